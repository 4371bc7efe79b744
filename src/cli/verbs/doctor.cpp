// pteron doctor: what this machine and this build can do.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/cuda/aot/nvrtc.h"
#include "backends/cuda/runtime/backend.h"
#include "base/json_writer.h"
#include "base/processor.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "ops/kernels.h"
#include "pteron/version.h"

namespace pteron::cli {

namespace {

struct Feature {
  const char* name;
  bool present;
};

/// What the CUDA engine finds here: its devices, or why it cannot run.
struct Cuda {
  int driver_version = 0;  ///< 13000 for CUDA 13.0
  std::vector<cuda::DeviceFacts> devices;
  std::string why_not;  ///< empty if there are devices
  std::vector<cuda::LibraryFacts> libraries;
};

cuda::LibraryFacts probe_nvrtc() {
  cuda::LibraryFacts facts;
  facts.name = "NVRTC";
  const auto nvrtc = cuda::Nvrtc::open();
  if (nvrtc.ok()) {
    facts.path = (*nvrtc)->path();
    facts.version = (*nvrtc)->version();
  } else {
    facts.why_not = nvrtc.status().message();
  }
  return facts;
}

Cuda probe_cuda() {
  Cuda found;
  Result<std::vector<cuda::DeviceFacts>> devices = cuda::probe_devices(&found.driver_version);
  if (!devices.ok()) {
    found.why_not = devices.status().message();
  } else {
    found.devices = std::move(devices).value();
  }
  found.libraries = cuda::probe_libraries();
  found.libraries.push_back(probe_nvrtc());
  return found;
}

void print_cuda(const Cuda& found) {
  if (!found.why_not.empty()) {
    std::printf("cuda: no program runs here: %s\n", found.why_not.c_str());
  } else {
    std::printf("cuda: driver of CUDA %d.%d\n", found.driver_version / 1000, found.driver_version % 1000 / 10);
  }
  for (const cuda::LibraryFacts& library : found.libraries) {
    const std::string said = library.why_not.empty() ? str_cat(library.version, ", ", library.path) : str_cat("missing: ", library.why_not);
    std::printf("  %s %s\n", library.name.c_str(), said.c_str());
  }
  for (size_t i = 0; i < found.devices.size(); ++i) {
    const cuda::DeviceFacts& device = found.devices[i];
    std::printf("  cuda:%zu %s, sm_%d, %d multiprocessors, %.1f GB\n", i, device.name.c_str(), device.sm, device.multiprocessors,
                static_cast<double>(device.memory_bytes) / 1e9);
  }
}

void add_cuda(const Cuda& found, JsonWriter& json) {
  json.key("cuda");
  json.begin_object();
  json.field("ready", found.why_not.empty());
  if (!found.why_not.empty()) json.field("why_not", found.why_not);
  json.field("driver_version", found.driver_version);
  json.key("devices");
  json.begin_array();
  for (const cuda::DeviceFacts& device : found.devices) {
    json.begin_object();
    json.field("name", device.name);
    json.field("architecture", str_cat("sm_", device.sm));
    json.field("multiprocessors", device.multiprocessors);
    json.field("memory_bytes", device.memory_bytes);
    json.end_object();
  }
  json.end_array();
  json.key("libraries");
  json.begin_array();
  for (const cuda::LibraryFacts& library : found.libraries) {
    json.begin_object();
    json.field("name", library.name);
    json.field("ready", library.why_not.empty());
    json.field("version", library.version);
    json.field("path", library.path);
    if (!library.why_not.empty()) json.field("why_not", library.why_not);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

Result<int> run_doctor(const Arguments& a) {
  PTERON_TRY(check_cpu_cap());
  const std::string units(units_name(processor_units()));
  PTERON_ASSIGN(const Session session, Session::create());
  const size_t operators = session.catalog().all().size(), kernels = ops::portable_kernels().rows().size();
#if defined(__x86_64__)
  const Feature features[] = {{"avx2", __builtin_cpu_supports("avx2") != 0},
                              {"fma", __builtin_cpu_supports("fma") != 0},
                              {"avx512f", __builtin_cpu_supports("avx512f") != 0},
                              {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0},
                              {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0}};
  const bool enough = features[0].present && features[1].present;
#else
  const Feature features[] = {{"baseline", true}};
  const bool enough = true;
#endif
  const Cuda cuda = probe_cuda();
  if (a.flag("json")) {
    JsonWriter json;
    json.begin_object();
    json.field("version", version());
    json.field("cpus", usable_cpu_count());
    json.key("cpu_features");
    json.begin_object();
    for (const Feature& f : features) json.field(f.name, f.present);
    json.end_object();
    json.field("units", units);
    json.field("operators", operators);
    json.field("kernels", kernels);
    add_cuda(cuda, json);
    json.field("ready", enough);
    json.end_object();
    std::printf("%s\n", json.text().c_str());
    return enough ? 0 : 6;
  }
  std::printf("pteron %s: %zu operators, %zu portable kernels\nCPUs that this process may use: %d\n", std::string(version()).c_str(), operators, kernels,
              usable_cpu_count());
  for (const Feature& f : features) std::printf("%-10s %s\n", f.name, f.present ? "yes" : "no");
  std::printf("kernels use %s%s\n", units.c_str(), std::getenv("PTERON_CPU_MAX") != nullptr ? ", capped by PTERON_CPU_MAX" : "");
  print_cuda(cuda);
  std::printf(enough ? "backends: portable, cpu, cuda\n" : "this processor lacks AVX2 or FMA, which this build needs\n");
  return enough ? 0 : 6;
}

}  // namespace

extern const Verb k_doctor_verb;
const Verb k_doctor_verb = {"doctor", "check this machine and this build", "", 0, 0, {}, run_doctor};

}  // namespace pteron::cli
