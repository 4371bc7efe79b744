// The engine's kernels, as tables for the loader of payloads.
#pragma once

#include <span>

#include "runtime/kernel.h"

namespace pteron::cuda {

/// Launches of generated kernels: pteron_cuda::launch.out, pteron_cuda::update.out.
std::span<const runtime::Kernel> launch_kernels();

}  // namespace pteron::cuda
