// The CUDA engine's compile half: a group becomes a program of launches of generated kernels and library calls on device memory.
#pragma once

#include <memory>

#include "backends/api/backend.h"

namespace pteron::cuda {

Result<std::unique_ptr<backends::Backend>> make_backend();

}  // namespace pteron::cuda
