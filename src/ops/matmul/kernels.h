// What kernel.cpp's table takes from the other runtime files of the room.
#pragma once

#include "runtime/kernel.h"

namespace pteron::ops::matmul {

/// aten::linalg_det.out and aten::linalg_inv_ex.inverse.
Status det_kernel(runtime::KernelContext& context, std::span<runtime::Value* const> args);
Status inverse_kernel(runtime::KernelContext& context, std::span<runtime::Value* const> args);
inline constexpr runtime::KernelFn kDetKernel = det_kernel;
inline constexpr runtime::KernelFn kInverseKernel = inverse_kernel;
/// Scratch of both: the matrix and its inverse in the compute type.
size_t lu_workspace(std::span<runtime::Value* const> args);

}  // namespace pteron::ops::matmul
