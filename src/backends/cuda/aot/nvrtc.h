// NVRTC, opened at run time: CUDA C++ becomes machine code for an architecture, or PTX.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "pteron/status.h"

namespace pteron::cuda {

/// What a program is translated for: "sm_90" (machine code), "compute_80" (PTX), "source" (nothing: the text itself).
struct Target {
  enum class Kind : uint8_t { kCubin, kPtx, kSource } kind = Kind::kCubin;
  unsigned sm = 0;
  std::string text;
};

/// A list as the user writes it: "sm_90,compute_80". Errors: kInvalidInput (another word, an empty list, a word twice).
Result<std::vector<Target>> parse_targets(std::string_view list);

/// What `pteron compile --arch` means: the list, and PTX of its newest architecture for devices that came later, if the list has no PTX ("sm_80,sm_90" gives
/// "sm_80,sm_90,compute_90"). Errors: as above.
Result<std::string> architectures_of(std::string_view list);

/// The library. Threads: translate() from several threads at once.
class Nvrtc {
 public:
  /// Looks in the folder PTERON_CUDA_PATH (and its lib64), in the Python environment VIRTUAL_ENV (packages nvidia-cuda-nvrtc), then where the loader looks.
  /// Errors: kUnavailable with the places.
  static Result<std::shared_ptr<const Nvrtc>> open();
  /// The result for a target that is no source; PTX with its zero byte. name_line says whose a line of the text is (empty: nobody's).
  /// Errors: kInternal with NVRTC's first message and the node whose kernel it is about; kUnsupported (an architecture that this NVRTC does not know).
  Result<Buffer> translate(const std::string& text, const Target& target, const std::function<std::string(size_t)>& node_at) const;
  /// That it translates for all of them. Errors: kInvalidInput with the architectures that it knows.
  Status check(std::span<const Target> targets) const;
  /// "13.0".
  std::string version() const;
  /// The file that was opened.
  std::string path() const;
  virtual ~Nvrtc() = default;

 protected:
  Nvrtc() = default;
};

}  // namespace pteron::cuda
