// Convolutions on the device: one description, computed by cuDNN's graph API. The library is loaded at the first use; nothing of it is needed to build.
// Called by convolution.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/runtime/choices.h"
#include "backends/cuda/runtime/library_call.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::cuda {

/// A tensor of five dims (N, C, D, H, W; missing ones have size 1) in device memory. Units: strides in elements.
struct Image {
  const void* data = nullptr;
  std::array<int64_t, 5> sizes{}, strides{};
};

/// y = end(convolution(x, weight) + residual + bias): x [N, inputs, D, H, W], weight [outputs, inputs / groups, Q, R, S], y [N, outputs, ...], residual like y,
/// bias [outputs]. Transposed: weight [inputs, outputs / groups, Q, R, S]. float32, float16, bfloat16; sums in float32. Lists: by D, H, W.
struct Convolution {
  DType dtype = DType::kFloat32;
  bool tf32 = false;  ///< float32 operands may be rounded to TF32
  bool transposed = false;
  bool relu = false;
  Image x, weight, y, residual;  ///< residual.data null: none. y is written.
  const void* bias = nullptr;    ///< null: none
  std::array<int64_t, 3> stride{1, 1, 1}, padding{0, 0, 0}, dilation{1, 1, 1};
  int64_t groups = 1;
};

/// cuDNN with the engines that were chosen for the shapes seen so far.
/// Threads: run() may be called from several threads at once.
class Dnn {
 public:
  /// Errors: kUnavailable (the library is missing, with the places that were looked at, or does not start).
  /// choices: of earlier processes; outlives it; null: none.
  static Result<std::unique_ptr<Dnn>> create(Choices* choices = nullptr);
  ~Dnn();
  /// Queues the convolution on the call's stream. Errors: kUnsupported (no engine does all of it: callers may try it without bias, residual and end);
  /// kInternal (the library's).
  Status run(const Convolution& convolution, const LibraryCall& call);

 private:
  struct Library;
  struct Plan;
  using Key = std::array<int64_t, 53>;
  Dnn();
  Result<Plan*> plan_for(const Convolution& convolution, const LibraryCall& call);
  Status build(const Convolution& convolution, const LibraryCall& call, const Key& key, Plan* plan);
  /// Units: milliseconds; infinite for what does not run.
  Result<float> shortest_time(const Convolution& convolution, const LibraryCall& call, void* execution);
  Status launch(const Convolution& convolution, const LibraryCall& call, void* execution);

  std::mutex mutex_;
  std::unique_ptr<Library> library_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  Choices* choices_ = nullptr;
  std::string version_;  // for keys of choices
};

}  // namespace pteron::cuda
