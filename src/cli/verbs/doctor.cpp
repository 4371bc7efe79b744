// pteron doctor: what this machine and this build can do.
#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/json_writer.h"
#include "base/processor.h"
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

Result<int> run_doctor(const Arguments& a) {
  PTERON_TRY(check_cpu_cap());
  const std::string units(units_name(processor_units()));
  PTERON_ASSIGN(const Session session, Session::create());
  const size_t operators = session.catalog().all().size(), kernels = ops::portable_kernels().rows().size();
#if defined(__x86_64__)
  const Feature features[] = {{"avx2", __builtin_cpu_supports("avx2") != 0}, {"fma", __builtin_cpu_supports("fma") != 0}, {"avx512f", __builtin_cpu_supports("avx512f") != 0},
                              {"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0}, {"avx512bf16", __builtin_cpu_supports("avx512bf16") != 0}};
  const bool enough = features[0].present && features[1].present;
#else
  const Feature features[] = {{"baseline", true}};
  const bool enough = true;
#endif
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
    json.field("ready", enough);
    json.end_object();
    std::printf("%s\n", json.text().c_str());
    return enough ? 0 : 6;
  }
  std::printf("pteron %s: %zu operators, %zu portable kernels\nCPUs that this process may use: %d\n", std::string(version()).c_str(), operators, kernels, usable_cpu_count());
  for (const Feature& f : features) std::printf("%-10s %s\n", f.name, f.present ? "yes" : "no");
  std::printf("kernels use %s%s\n", units.c_str(), std::getenv("PTERON_CPU_MAX") != nullptr ? ", capped by PTERON_CPU_MAX" : "");
  std::printf(enough ? "backends: portable, cpu\n" : "this processor lacks AVX2 or FMA, which this build needs\n");
  return enough ? 0 : 6;
}

}  // namespace

extern const Verb k_doctor_verb;
const Verb k_doctor_verb = {"doctor", "check this machine and this build", "", 0, 0, {}, run_doctor};

}  // namespace pteron::cli
