// Kernels of the CPU engine by room; backend.cpp makes one table of them and the portable kernels.
#pragma once

#include <span>

#include "runtime/kernel.h"

namespace pteron::cpu {

std::span<const runtime::Kernel> attention_kernels();
std::span<const runtime::Kernel> product16_kernels();
std::span<const runtime::Kernel> conv_kernels();
std::span<const runtime::Kernel> image_kernels();
std::span<const runtime::Kernel> linear_kernels();
std::span<const runtime::Kernel> norm_kernels();
std::span<const runtime::Kernel> pointwise_kernels();
std::span<const runtime::Kernel> quantized_conv_kernels();
std::span<const runtime::Kernel> quantized_linear_kernels();
std::span<const runtime::Kernel> recurrent_kernels();

}  // namespace pteron::cpu
