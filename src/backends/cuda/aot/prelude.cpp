// The text in front of every program of kernels.
#include "backends/cuda/aot/kernel_sources.h"

namespace pteron::cuda {

std::string_view prelude() { return "#define PTERON_KERNEL extern \"C\" __global__ void\n"; }

}  // namespace pteron::cuda
