// The engine's kernels, as tables for the loader of payloads.
#pragma once

#include <span>

#include "runtime/kernel.h"

namespace pteron::cuda {

/// Launches of generated kernels: pteron_cuda::launch.out, pteron_cuda::update.out.
std::span<const runtime::Kernel> launch_kernels();
/// Copies that emit writes: aten::clone.out, aten::copy_.
std::span<const runtime::Kernel> copy_kernels();

}  // namespace pteron::cuda
