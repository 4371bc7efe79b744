// The CUDA engine's runtime half: loads payloads with the id kBackendId (backends/cuda/payload.h).
#pragma once

#include <string>
#include <vector>

#include "pteron/delegate.h"

namespace pteron::cuda {

/// Threads: immutable.
const DelegateBackend& backend();

/// A device as `pteron doctor` shows it.
struct DeviceFacts {
  std::string name;
  int sm = 0;               ///< compute capability: 90 for 9.0
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
};

/// Starts the driver and looks at every device, without a context on any. driver_version: 13000 for CUDA 13.0.
/// Errors: kUnavailable (what is missing).
Result<std::vector<DeviceFacts>> probe_devices(int* driver_version);

}  // namespace pteron::cuda
