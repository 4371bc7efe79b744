// Options of the delegate that runs prebuilt TensorRT engines ("TensorRTBackend"). Programs use it by themselves with the defaults; who wants others
// makes one and gives it in LoadOptions::delegates. A library that was built without TensorRT has it too, and refuses such programs. docs/tensorrt.md
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "pteron/delegate.h"

namespace pteron {

struct TensorRtOptions {
  /// Decimal bytes of weights of each engine that stay on the device, instead of what the file says; empty counts as not given.
  std::optional<std::string> weight_streaming_budget = {};
  bool shared_engines = true;   ///< equal engines on one device with one budget are deserialized once
  bool shared_scratch = false;  ///< engines of one device take their scratch from one buffer that only grows; methods loaded from now on
  /// Optimization profile of engines with several; nullopt: the present one while it fits, else the first that does.
  std::optional<int> profile = {};
};

/// Must outlive the programs that use it. Threads: as DelegateBackend.
std::unique_ptr<DelegateBackend> make_tensorrt_backend(const TensorRtOptions& options);

/// Engines that this thread runs while the object lives use this stream (a cudaStream_t; null is one too). They nest. Calls return when the
/// work is done, as without it.
class TensorRtStream {
 public:
  explicit TensorRtStream(void* stream);
  ~TensorRtStream();
  TensorRtStream(const TensorRtStream&) = delete;
  TensorRtStream& operator=(const TensorRtStream&) = delete;

 private:
  std::optional<void*> former_;
};

}  // namespace pteron
