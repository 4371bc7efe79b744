// The runtime half of the TensorRT backend.
#pragma once

#include <memory>

#include "backends/tensorrt/runtime/engine_library.h"
#include "pteron/delegate.h"
#include "pteron/tensorrt.h"

namespace pteron::tensorrt {

/// Loads TensorRTBackend payloads with `library`, which must outlive it and its delegates. Threads: as DelegateBackend.
std::unique_ptr<DelegateBackend> make_backend(const EngineLibrary& library, const TensorRtOptions& options);
/// With what this build has, and the default options.
const DelegateBackend& backend();

}  // namespace pteron::tensorrt
