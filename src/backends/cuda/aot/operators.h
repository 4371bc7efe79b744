// The engine's own operators, as nodes of a payload's graph. Runtime kernels: backends/cuda/runtime.
#pragma once

#include <span>

#include "ir/op.h"

namespace pteron::cuda {

/// pteron_cuda::launch, one generated kernel: `inputs` are its first parameters, then the result, then `values` as long long. The result has `sizes` and
/// the dtype, row-major. grid: 3 entries, none zero if the result has elements. threads: the block's x size. shared: bytes of dynamic shared memory.
/// pteron_cuda::update, the same with argument `self` in front of the inputs, whose bytes the result has before the kernel runs (its memory, if it may be
/// overwritten); the parameters are the result, then the inputs, then values.
std::span<const ir::OpDef> operators();

inline constexpr std::string_view kLaunch = "pteron_cuda::launch";
inline constexpr std::string_view kUpdate = "pteron_cuda::update";

}  // namespace pteron::cuda
