// A loaded payload of the CUDA engine.
#pragma once

#include <memory>

#include "backends/cuda/runtime/backend.h"
#include "backends/cuda/runtime/device.h"
#include "pteron/delegate.h"

namespace pteron::cuda {

/// Loads `request.payload` onto the device. Errors: kInvalidFile, kIncompatible, kUnsupported (a kernel is missing), kUnavailable, kOutOfMemory.
Result<std::unique_ptr<Delegate>> load_delegate(const DelegateLoad& request, std::shared_ptr<Device> device);

}  // namespace pteron::cuda
