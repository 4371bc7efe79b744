// What a call of cuBLASLt or cuDNN gets beside its operands, and how such a library is found. Used by blas.cpp and dnn.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "pteron/status.h"

namespace pteron::cuda {

/// Times work on a stream with events. Not to be used while the stream is captured.
class Timer {
 public:
  virtual ~Timer() = default;
  /// Milliseconds that `work`, which queues something on the stream, takes there, after all that was queued before. Errors: those of `work` and the driver's.
  virtual Result<float> measure(const std::function<Status()>& work) = 0;
};

/// Where a library call is queued and may work. Owns: nothing.
struct LibraryCall {
  void* stream = nullptr;
  void* scratch = nullptr;  ///< device memory, at a multiple of 256
  uint64_t scratch_bytes = 0;
  Timer* timer = nullptr;  ///< null: choose without measuring
};

/// Scratch that products and convolutions are offered. Units: bytes.
inline constexpr uint64_t kLibraryScratch = uint64_t{32} << 20;

/// A library of CUDA's: the name that the loader knows, and the folder of the Python package that has it.
struct LibraryName {
  std::string_view file, package_folder;
};
inline constexpr LibraryName kBlasLibrary{"libcublasLt.so.13", "nvidia/cu13/lib"}, kDnnLibrary{"libcudnn.so.9", "nvidia/cudnn/lib"};

/// Looked for in PTERON_CUDA_PATH (the folder itself and its lib64), below VIRTUAL_ENV and the loader's own places; stays loaded.
/// Errors: kUnavailable, with the names.
Result<void*> open_cuda_library(const LibraryName& library);
/// The file that holds a function of a library, empty if the loader does not know.
std::string file_of(const void* function);
/// The address of a function in it. Errors: kUnavailable (a library of another version).
Result<void*> library_symbol(void* library, const char* name);

}  // namespace pteron::cuda
