// Phases from calls without marks between kernels, kernels from calls with them.
#include "cli/cuda_times.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "backends/cuda/payload.h"
#include "backends/cuda/runtime/backend.h"
#include "base/str_cat.h"
#include "runtime/state.h"

namespace pteron::cli {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::vector<Delegate*> cuda_delegates(Method& method) {
  std::vector<Delegate*> found;
  for (size_t i = 0; i < method.state().delegates.size(); ++i) {
    if (method.info().delegates[i] == cuda::kBackendId) found.push_back(method.state().delegates[i].get());
  }
  return found;
}

}  // namespace

Result<CudaTimes> time_cuda(Method& method, const std::function<Status()>& call, size_t calls) {
  CudaTimes out;
  const std::vector<Delegate*> delegates = cuda_delegates(method);
  if (delegates.empty()) return out;
  for (Delegate* delegate : delegates) cuda::time_calls(*delegate, false);
  std::array<std::vector<double>, 4> phases;
  for (size_t i = 0; i < calls; ++i) {
    PTERON_TRY(call());
    cuda::CallTimes sum;
    for (const Delegate* delegate : delegates) {
      const cuda::CallTimes times = cuda::times_of(*delegate);
      sum.enqueue_ms += times.enqueue_ms;
      sum.to_device_ms += times.to_device_ms;
      sum.kernels_ms += times.kernels_ms;
      sum.to_host_ms += times.to_host_ms;
    }
    const double values[] = {sum.enqueue_ms, sum.to_device_ms, sum.kernels_ms, sum.to_host_ms};
    for (size_t p = 0; p < phases.size(); ++p) phases[p].push_back(values[p]);
  }
  out.enqueue_ms = median(phases[0]);
  out.to_device_ms = median(phases[1]);
  out.kernels_ms = median(phases[2]);
  out.to_host_ms = median(phases[3]);
  out.found = out.kernels_ms > 0;
  for (Delegate* delegate : delegates) cuda::time_calls(*delegate, true);
  std::map<std::string, std::vector<double>> by_name;
  std::map<std::string, CudaTimes::Kernel> works;  // of the last call
  for (size_t i = 0; i < calls; ++i) {
    PTERON_TRY(call());
    works.clear();
    for (const Delegate* delegate : delegates) {
      for (const cuda::CallTimes::Kernel& kernel : cuda::times_of(*delegate).kernels) {
        CudaTimes::Kernel& sum = works[kernel.name];
        sum.calls += 1;
        sum.ms += kernel.ms;
        sum.bytes += kernel.bytes;
        sum.flops += kernel.flops;
        sum.least_ms += kernel.least_ms;
      }
    }
    for (const auto& [name, sum] : works) by_name[name].push_back(sum.ms);
  }
  for (auto& [name, values] : by_name) {
    CudaTimes::Kernel& kernel = works[name];
    kernel.name = name;
    kernel.ms = median(std::move(values));
    out.kernel_calls += kernel.calls;
    out.kernels.push_back(std::move(kernel));
  }
  std::ranges::sort(out.kernels, [](const CudaTimes::Kernel& a, const CudaTimes::Kernel& b) { return a.ms > b.ms; });
  return out;
}

std::string CudaTimes::summary() const {
  char line[256];
  std::snprintf(line, sizeof line, "cuda: enqueue %.4f ms, to the device %.4f, %zu kernels %.4f, to the host %.4f\n", enqueue_ms, to_device_ms, kernel_calls, kernels_ms, to_host_ms);
  std::string text = line;
  // A kernel that does nothing takes about 1.2 us in a graph (H200, bench/gpu/RESULTS.md).
  constexpr double kLaunchBoundMs = 0.003;
  if (kernel_calls > 0 && kernels_ms / static_cast<double>(kernel_calls) < kLaunchBoundMs) {
    text += "hint: the kernels are so short that starting them takes much of the time; larger batches cost little more\n";
  }
  return text;
}

std::string CudaTimes::table() const {
  std::string text = "kernel                                                        calls         ms        MB      GB/s   TFLOP/s   of peak\n";
  for (const Kernel& kernel : kernels) {
    const double seconds = kernel.ms > 0 ? kernel.ms / 1e3 : 1;
    char line[256];
    std::snprintf(line, sizeof line, "%-60.60s %6zu %10.4f %9.3f %9.1f %9.2f", kernel.name.c_str(), kernel.calls, kernel.ms, kernel.bytes / 1e6, kernel.bytes / seconds / 1e9,
                  kernel.flops / seconds / 1e12);
    text += line;
    std::snprintf(line, sizeof line, " %7.1f %%\n", kernel.ms > 0 ? 100 * kernel.least_ms / kernel.ms : 0);
    text += kernel.least_ms > 0 ? line : "         -\n";
  }
  return text + "MB: operands and results once each, whole (of a table only some rows may be read); of peak: the time that the device's peaks of memory or arithmetic allow, as a part of ms\n";
}

void CudaTimes::to_json(JsonWriter& json) const {
  json.begin_object();
  json.field("enqueue_ms", enqueue_ms);
  json.field("to_device_ms", to_device_ms);
  json.field("kernels_ms", kernels_ms);
  json.field("to_host_ms", to_host_ms);
  json.field("kernel_calls", kernel_calls);
  json.key("kernels");
  json.begin_array();
  for (const Kernel& kernel : kernels) {
    json.begin_object();
    json.field("name", kernel.name);
    json.field("calls", kernel.calls);
    json.field("ms", kernel.ms);
    json.field("bytes", kernel.bytes);
    json.field("flops", kernel.flops);
    json.field("least_ms", kernel.least_ms);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

}  // namespace pteron::cli
