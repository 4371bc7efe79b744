// Kernels of this room that stand in files of their own. Read by kernel.cpp, which has the table.
#pragma once

#include <span>

#include "runtime/kernel.h"

namespace pteron::ops::gradient_window {

/// aten::convolution_backward.out: one to three spatial dims, groups, dilation, transposed.
Status convolution_kernel(runtime::KernelContext& context, std::span<runtime::Value* const> args);
size_t convolution_workspace(std::span<runtime::Value* const> args);

}  // namespace pteron::ops::gradient_window
