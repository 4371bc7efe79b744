// What kernel.cpp's table takes from kernel_grid.cpp.
#pragma once

#include "runtime/kernel.h"

namespace pteron::ops::resize {

Status grid_sampler_2d(runtime::KernelContext& context, const runtime::Tensor& input, const runtime::Tensor& grid, int64_t interpolation, int64_t padding,
                       bool align_corners, runtime::Tensor& out);
Status grid_sampler_3d(runtime::KernelContext& context, const runtime::Tensor& input, const runtime::Tensor& grid, int64_t interpolation, int64_t padding,
                       bool align_corners, runtime::Tensor& out);
Status affine_grid(runtime::KernelContext& context, const runtime::Tensor& theta, runtime::IntList size, bool align_corners, runtime::Tensor& out);

}  // namespace pteron::ops::resize
