// The two ways to compute a pass, called by kernel.cpp.
#pragma once

#include "ops/conv/geometry.h"

namespace pteron::ops::conv {

/// Pointers of one call, at the first element of each tensor; bias may be null.
struct Operands {
  DType dtype = DType::kFloat32;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  void* y = nullptr;
};

/// Any convolution as a matrix product over an image padded in scratch.
void general_pass(runtime::KernelContext& context, const Geometry& g, const Operands& o);
size_t general_workspace(DType dtype, const Geometry& g);

/// One input channel per group, as sums of shifted rows.
void depthwise_pass(runtime::KernelContext& context, const Geometry& g, const Operands& o);
size_t depthwise_workspace(DType dtype, const Geometry& g);

}  // namespace pteron::ops::conv
