// Where the time of a program's CUDA delegates goes, for pteron bench: phases of a call, and its kernels.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "pteron/program.h"

namespace pteron::cli {

/// Medians over calls, of all CUDA delegates of a method together. Units: milliseconds.
struct CudaTimes {
  double enqueue_ms = 0, to_device_ms = 0, kernels_ms = 0, to_host_ms = 0;
  size_t kernel_calls = 0;
  struct Kernel {
    std::string name;
    size_t calls = 0;
    double ms = 0;        ///< of all its calls in a call of the method
    double bytes = 0;     ///< that they read and write, every operand whole
    double flops = 0;     ///< of products, convolutions and attention
    double least_ms = 0;  ///< that the device's peaks allow; 0: they are not known
  };
  std::vector<Kernel> kernels;  ///< the most expensive first
  bool found = false;           ///< the method has CUDA delegates, and their calls are recorded

  std::string summary() const;
  std::string table() const;
  void to_json(JsonWriter& json) const;
};

/// Times calls of a method that has run before. call: sets the inputs and runs it.
/// Errors: those of the call.
Result<CudaTimes> time_cuda(Method& method, const std::function<Status()>& call, size_t calls);

}  // namespace pteron::cli
