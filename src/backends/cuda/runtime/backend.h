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
  int sm = 0;  ///< compute capability: 90 for 9.0
  int multiprocessors = 0;
  uint64_t memory_bytes = 0;
};

/// Where the time of a call goes. Units: milliseconds.
struct CallTimes {
  double enqueue_ms = 0;    ///< of the host, until the device has everything
  double to_device_ms = 0;  ///< copies of arguments
  double kernels_ms = 0;
  double to_host_ms = 0;  ///< copies of results
  struct Kernel {
    std::string name;
    double ms = 0;
    double bytes = 0;     ///< read and written, every operand whole
    double flops = 0;     ///< of products, convolutions and attention; a multiply-add counts two
    double least_ms = 0;  ///< that the device's peaks allow; 0: they are not known
  };
  std::vector<Kernel> kernels;  ///< in the order of the call; with marks between them each takes a little longer than in `kernels_ms`
};

/// Lets the calls of a delegate that this backend made be timed from now on: as recorded calls with a mark behind each phase, and behind each kernel
/// (by_kernel). Requires: `delegate` has run once with the arguments of those calls.
void time_calls(Delegate& delegate, bool by_kernel);
/// Of its last call since time_calls(); zeros if that was not recorded.
CallTimes times_of(const Delegate& delegate);

/// Starts the driver and looks at every device, without a context on any. driver_version: 13000 for CUDA 13.0.
/// Errors: kUnavailable (what is missing).
Result<std::vector<DeviceFacts>> probe_devices(int* driver_version);

/// A library that the engine opens at run time, as `pteron doctor` shows it.
struct LibraryFacts {
  std::string name;     ///< "cuBLASLt"
  std::string path;     ///< the file that was opened; empty if none was
  std::string version;  ///< as the library itself says it: "13.0.2"
  std::string why_not;  ///< empty if it is there and answers
};
/// Opens the driver's library, cuBLASLt and cuDNN and asks each for its version; no device is touched.
std::vector<LibraryFacts> probe_libraries();

}  // namespace pteron::cuda
