// The compile half of the TensorRT backend: nodes with prebuilt engines become TensorRTBackend delegates. It builds no engines.
#pragma once

#include <memory>

#include "backends/api/backend.h"

namespace pteron::tensorrt {

/// claim() takes the engines; supports() refuses every other node.
std::unique_ptr<backends::Backend> make_backend();

}  // namespace pteron::tensorrt
