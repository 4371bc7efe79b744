// The kernel that adds bias and residual to a convolution's result where cuDNN has no engine that does. Called by convolutions.cpp.
#pragma once

#include <string>

#include "pteron/tensor.h"

namespace pteron::cuda {

struct TailForm {
  DType dtype = DType::kFloat32;
  bool bias = false, residual = false, relu = false;
};

/// y[i] = end(y[i] + residual[i] + bias[i % channels]) for channels-last y. Parameters, all of 8 bytes: y, bias or null, residual or null, elements, channels.
/// Grid: elements / 1024 rounded up; 256 threads. The text needs element_text().
std::string tail_text(const TailForm& form);

}  // namespace pteron::cuda
