// pteron bench: load time, first run and latency of a method on inputs of its own making or from a file.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <span>

#include "base/file_writer.h"
#include "base/json_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "cli/cuda_times.h"
#include "cli/profile.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "cli/tensors.h"
#include "cli/verb.h"

namespace pteron::cli {

namespace {

using Clock = std::chrono::steady_clock;

constexpr Option kBenchOptions[] = {
    {"inputs", "i", OptionKind::kValue, "FILE", "tensors of a call (.safetensors, .npy, .npz); default: floats between -1 and 1, integers 0, sizes at their bounds"},
    {"method", "m", OptionKind::kValue, "NAME", "the method to call; default: forward, or the only one"},
    {"kernels", "k", OptionKind::kList, "LIBRARY", "a shared library with own operators (pteron/ops.h)"},
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) with weights; default: those that the program names, beside it"},
    {"verify-data", "", OptionKind::kFlag, "", "hash every byte of the data files at load"},
    {"late-packing", "", OptionKind::kFlag, "", "pack weights in the first run, as programs do if LoadOptions::pack_at_load is not set, instead of at load"},
    {"seed", "", OptionKind::kCount, "N", "seed of operators that draw random numbers (compile --allow-random), default 0"},
    {"threads", "t", OptionKind::kCount, "N", "threads to use; default, and 0: all CPUs of the process"},
    {"profile", "", OptionKind::kFlag, "", "print where the time goes, by kernel and by node, those inside delegates included"},
    {"trace", "", OptionKind::kValue, "FILE", "write the calls that were profiled as a Chrome/Perfetto trace"},
    {"min-time", "", OptionKind::kReal, "SECONDS", "shortest time to measure, default 1"},
    {"min-runs", "", OptionKind::kCount, "N", "fewest calls to measure; default: 30, or 3 where 30 take ten times --min-time"},
    {"warm-up", "", OptionKind::kReal, "SECONDS", "time of calls that are not counted, before the others; default: a tenth of --min-time"},
};

/// Processor time of the whole process.
double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

double ms_since(Clock::time_point begin) { return std::chrono::duration<double, std::milli>(Clock::now() - begin).count(); }

/// VmHWM of this process in bytes; 0 where /proc is missing.
uint64_t peak_resident_bytes() {
  auto status = FileBytes::read("/proc/self/status");
  if (!status.ok()) return 0;
  const auto bytes = (*status)->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const size_t at = text.find("VmHWM:");
  return at == std::string_view::npos ? 0 : std::strtoull(text.data() + at + 6, nullptr, 10) * 1024;
}

struct Measurement {
  double load_ms = 0, first_ms = 0, least_cpu_ms = 1e300;
  std::vector<double> latencies_ms;  // sorted
  std::vector<std::pair<std::string, DelegateMemory>> delegates;  // a backend each
  CudaTimes cuda;
  Machine machine;
  std::string table, trace, profile_json;  // with --profile or --trace
  double at(double part) const { return latencies_ms[std::min(latencies_ms.size() - 1, static_cast<size_t>(part * static_cast<double>(latencies_ms.size())))]; }
};

/// Calls with an observer, after the ones that count: taking the time of every instruction costs time.
Status profile(Method& method, const std::function<Status()>& call, double seconds, Measurement* out) {
  out->machine = probe_machine(*method.state().context.pool);
  Profile profile(method);
  const Clock::time_point start = Clock::now();
  for (int calls = 0; calls < 5 || ms_since(start) < seconds * 1000; ++calls) {
    profile.begin_call();
    PTERON_TRY(call());
    profile.end_call();
  }
  out->table = profile.table(out->machine);
  out->trace = profile.trace();
  JsonWriter json;
  profile.to_json(out->machine, json);
  out->profile_json = json.text();
  return ok_status();
}

/// Delegates of one backend as one: what they share counts once.
void add_memory(const runtime::MethodState& method, Measurement* out) {
  for (size_t i = 0; i < method.delegates.size(); ++i) {
    const std::string& id = method.info.delegates[i];
    auto found = std::find_if(out->delegates.begin(), out->delegates.end(), [&](const auto& known) { return known.first == id; });
    if (found == out->delegates.end()) found = out->delegates.insert(found, {id, {}});
    const DelegateMemory memory = method.delegates[i]->memory();
    found->second.own_bytes += memory.own_bytes;
    found->second.shared_bytes = std::max(found->second.shared_bytes, memory.shared_bytes);
  }
}

/// How long to measure.
struct Effort {
  double warm_seconds = 0, min_seconds = 0;
  size_t min_runs = 30;
  bool is_runs_given = false;  ///< if not, slow models are called less often
};

bool is_enough(const Effort& effort, double spent_ms, size_t runs) {
  if (spent_ms < effort.min_seconds * 1000) return false;
  if (runs >= effort.min_runs) return true;
  return !effort.is_runs_given && runs >= 3 && spent_ms >= effort.min_seconds * 10000;
}

Result<Measurement> measure(const Arguments& a, const Effort& effort) {
  Measurement out;
  LoadOptions load = load_options(a);
  load.pack_at_load = !a.flag("late-packing");
  const Clock::time_point begin = Clock::now();
  PTERON_ASSIGN(const std::shared_ptr<Program> program, Program::load(a.positionals()[0], load));
  PTERON_ASSIGN(const std::string name, pick_method(*program, a.value("method")));
  PTERON_ASSIGN(const std::unique_ptr<Method> method, program->load_method(name));
  out.load_ms = ms_since(begin);
  TensorFile file;
  SyntheticInputs synthetic;
  if (a.has("inputs")) {
    PTERON_ASSIGN(file, TensorFile::read(a.value("inputs")));
  } else {
    PTERON_ASSIGN(synthetic, SyntheticInputs::make(*method));
  }
  const auto call = [&]() -> Status {
    PTERON_TRY(a.has("inputs") ? set_inputs(*method, file) : synthetic.set(*method));
    return method->execute();
  };
  const Clock::time_point first = Clock::now();
  PTERON_TRY(call());
  out.first_ms = ms_since(first);
  const Clock::time_point warm = Clock::now();
  do {
    PTERON_TRY(call());
  } while (ms_since(warm) < effort.warm_seconds * 1000);
  const Clock::time_point start = Clock::now();
  while (!is_enough(effort, ms_since(start), out.latencies_ms.size())) {
    const Clock::time_point one = Clock::now();
    const double cpu = cpu_ms();
    PTERON_TRY(call());
    out.least_cpu_ms = std::min(out.least_cpu_ms, cpu_ms() - cpu);
    out.latencies_ms.push_back(ms_since(one));
  }
  std::sort(out.latencies_ms.begin(), out.latencies_ms.end());
  add_memory(method->state(), &out);
  constexpr size_t kTimedCalls = 30;
  PTERON_ASSIGN(out.cuda, time_cuda(*method, call, kTimedCalls));
  if (a.flag("profile") || a.has("trace")) PTERON_TRY(profile(*method, call, std::min(effort.min_seconds, 2.0), &out));
  return out;
}

Result<int> run_bench(const Arguments& a) {
  const double min_seconds = a.real("min-time", 1);
  if (min_seconds > 3600) return usage_error("bench", "--min-time expects seconds from 0 to 3600");
  const double warm_seconds = a.real("warm-up", min_seconds / 10);
  if (warm_seconds > 3600) return usage_error("bench", "--warm-up expects seconds from 0 to 3600");
  const uint64_t min_runs = a.count("min-runs", 30);
  if (min_runs < 1 || min_runs > 10'000'000) return usage_error("bench", "--min-runs expects a number from 1 to 10000000");
  if (a.has("trace") && a.value("trace").empty()) return usage_error("bench", "--trace names no file");
  PTERON_ASSIGN(const Measurement m, measure(a, {warm_seconds, min_seconds, min_runs, a.has("min-runs")}));
  if (a.has("trace")) {
    PTERON_ASSIGN(const std::unique_ptr<FileWriter> file, FileWriter::create(a.value("trace")));
    PTERON_TRY(file->write(std::as_bytes(std::span(m.trace))));
    PTERON_TRY(file->commit(false));
  }
  if (!a.flag("json")) {
    std::printf("load %.3f ms, first run %.3f ms\nlatency: median %.4f ms, p10 %.4f, p90 %.4f, p99 %.4f, best %.4f (%zu calls)\npeak memory %.1f MB\n", m.load_ms,
                m.first_ms, m.at(0.5), m.at(0.1), m.at(0.9), m.at(0.99), m.latencies_ms[0], m.latencies_ms.size(), static_cast<double>(peak_resident_bytes()) / 1e6);
    for (const auto& [id, memory] : m.delegates) {
      std::printf("%s holds %.1f MB of its own and %.1f MB of packed weights\n", id.c_str(), static_cast<double>(memory.own_bytes) / 1e6, static_cast<double>(memory.shared_bytes) / 1e6);
    }
    if (m.cuda.found) std::printf("%s", m.cuda.summary().c_str());
    if (a.flag("profile")) std::printf("\n%s", m.table.c_str());
    if (a.flag("profile") && m.cuda.found) std::printf("\n%s", m.cuda.table().c_str());
    return 0;
  }
  JsonWriter json;
  json.begin_object();
  json.key("latency_ms");
  json.begin_object();
  json.field("median", m.at(0.5));
  json.field("p10", m.at(0.1));
  json.field("p90", m.at(0.9));
  json.field("p99", m.at(0.99));
  json.field("min", m.latencies_ms[0]);
  json.end_object();
  json.field("least_cpu_ms", m.least_cpu_ms);
  json.field("calls", m.latencies_ms.size());
  json.field("load_ms", m.load_ms);
  json.field("first_run_ms", m.first_ms);
  json.field("peak_rss_bytes", peak_resident_bytes());
  json.key("delegates");
  json.begin_array();
  for (const auto& [id, memory] : m.delegates) {
    json.begin_object();
    json.field("name", id);
    json.field("own_bytes", memory.own_bytes);
    json.field("shared_bytes", memory.shared_bytes);
    json.end_object();
  }
  json.end_array();
  if (m.cuda.found) {
    json.key("cuda");
    m.cuda.to_json(json);
  }
  if (a.flag("profile")) {
    json.key("profile");
    json.raw(m.profile_json);
  }
  json.end_object();
  std::printf("%s\n", json.text().c_str());
  return 0;
}

}  // namespace

extern const Verb k_bench_verb;
const Verb k_bench_verb = {"bench", "measure load time and latency of a .pte program", "MODEL.pte [options]", 1, 1, kBenchOptions, run_bench};

}  // namespace pteron::cli
