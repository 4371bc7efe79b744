// Both programs leave a trace: one step per result of an operator, in the order of execution. Steps that both have are paired (a longest common
// subsequence: passes and planning leave out or add some), and the first pair beyond the tolerance is the answer.
#include "cli/bisect.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "runtime/state.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cli {

Result<std::vector<interp::HostTensor>> graph_inputs(const ir::Graph& graph, const TensorFile& file) {
  std::vector<interp::HostTensor> out(graph.inputs.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    bool found = false;
    for (const NamedTensor& tensor : file.tensors) {
      if (tensor.name == str_cat(i) || tensor.name == graph.inputs[i].name) {
        out[i].view = tensor.view;  // the files outlive the call
        found = true;
      }
    }
    if (graph.inputs[i].value.valid() && !found) {
      return Status(Code::kInvalidInput, str_cat("input ", i, " (", graph.inputs[i].name, ") is missing", file.place_text()));
    }
  }
  return out;
}

namespace {

/// A result of one executed operator.
struct Step {
  std::string kernel;   ///< "aten::add.out"
  std::string place;    ///< "node add_1 (net.py:42)", "instruction 7 (net.py:42)"
  size_t call = 0;
  interp::HostTensor result;
};
using Trace = std::vector<Step>;

/// A row-major copy of a result as a step.
Status add_step(Trace& trace, std::string kernel, std::string place, size_t call, const TensorView& view) {
  PTERON_ASSIGN(interp::HostTensor copy, interp::make_tensor(view.dtype, view.sizes()));
  copy_strided(view, copy.view);
  trace.push_back({std::move(kernel), std::move(place), call, std::move(copy)});
  return ok_status();
}

/// The "kernel" of a method's outputs: what is compared if programs have no operator in common (a delegate has fused them).
constexpr const char* kOutput = "output";

std::string place_text(std::string_view what, std::string_view source) { return source.empty() ? std::string(what) : str_cat(what, " (", source, ")"); }

/// The reference interpreter on the decomposed graph.
Status trace_archive(const std::string& path, compiler::Profile profile, const std::vector<TensorFile>& calls, Trace* trace) {
  PTERON_ASSIGN(const Session session, Session::create());
  compiler::CompileOptions options;
  options.methods.push_back({"forward", path});
  options.profile = profile;
  options.stop_after = "decompose";
  PTERON_ASSIGN(const std::unique_ptr<compiler::EdgeProgram> edge, compiler::export_program(options, session.environment()));
  const ir::Graph& graph = edge->program.methods[0]->graph;
  interp::StateTensors states;
  for (size_t call = 0; call < calls.size(); ++call) {
    const interp::NodeObserver observe = [&](const ir::Node& node, std::span<const interp::NodeValue> results) -> Status {
      if (node.op->kernel.empty()) return ok_status();
      for (const interp::NodeValue& value : results) {
        const auto* tensor = std::get_if<interp::HostTensor>(&value);
        if (tensor != nullptr) PTERON_TRY(add_step(*trace, std::string(node.op->kernel), place_text(str_cat("node ", node.name), node.source), call, tensor->view));
      }
      return ok_status();
    };
    PTERON_ASSIGN(const std::vector<interp::HostTensor> given, graph_inputs(graph, calls[call]));
    PTERON_ASSIGN(const std::vector<std::optional<interp::HostTensor>> results, interp::run_graph(*session.environment().evaluator, graph, given, &states, observe));
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i]) PTERON_TRY(add_step(*trace, kOutput, str_cat("output ", i), call, results[i]->view));
    }
  }
  return ok_status();
}

/// Copies what kernels and delegates of a method write, those inside its delegates included.
class Recorder final : public runtime::CallObserver {
 public:
  Recorder(runtime::MethodState& state, Trace& trace, std::string prefix = {}) : state_(state), trace_(trace), prefix_(std::move(prefix)) {
    for (const format::MethodMeta& meta : state_.program->state().meta.methods) {
      if (meta.name == state_.info.name) lines_ = meta.source_lines;
    }
    for (size_t i = 0; i < state_.delegates.size(); ++i) {
      runtime::MethodState* payload = state_.delegates[i]->payload();
      if (payload != nullptr) inside_.push_back(std::make_unique<Recorder>(*payload, trace, str_cat("delegate ", i, ", ")));
    }
    state_.observer = this;
  }
  ~Recorder() override { state_.observer = nullptr; }
  void begin_call(size_t call) {
    call_ = call;
    for (const auto& recorder : inside_) recorder->begin_call(call);
  }

  Status after(size_t index) override {
    const runtime::Instruction& instruction = state_.code[index];
    const auto name = static_cast<size_t>(state_.operator_of[index]);
    const bool is_kernel = instruction.kind != runtime::Instruction::Kind::kDelegate;
    const std::string op = is_kernel ? state_.info.operators[name] : state_.info.delegates[name];
    if (op.starts_with("executorch_prim::") || op == "pteron::view_strided.out") return ok_status();
    std::vector<const runtime::Tensor*> outs;
    collect(instruction.args, is_kernel, outs);
    for (const runtime::Tensor* out : outs) {
      if (out->has_data() && out->view.device.type == DeviceType::kCpu) PTERON_TRY(add_step(trace_, op, place_text(str_cat(prefix_, "instruction ", index, " ", op), line_of(index)), call_, out->view));
    }
    return ok_status();
  }

 private:
  /// A kernel's out arguments are the last ones: those that stand there again at the end of the list (results are listed twice).
  static void collect(std::span<runtime::Value* const> args, bool is_kernel, std::vector<const runtime::Tensor*>& outs) {
    size_t count = is_kernel ? args.size() / 2 : 0;
    while (count > 0 && !ends_repeated(args, count)) --count;
    if (count == 0) count = std::min<size_t>(1, args.size());  // in place: the tensor that is written
    for (const runtime::Value* value : args.last(count)) {
      if (value->tag == runtime::Tag::kTensor) outs.push_back(&value->tensor);
      if (value->tag != runtime::Tag::kTensorList) continue;
      for (const runtime::Value* item : value->items) {
        if (item->tag == runtime::Tag::kTensor) outs.push_back(&item->tensor);
      }
    }
  }

  static bool ends_repeated(std::span<runtime::Value* const> args, size_t count) {
    const auto tail = args.last(count), before = args.subspan(args.size() - 2 * count, count);
    return std::equal(tail.begin(), tail.end(), before.begin());
  }

  std::string line_of(size_t index) const {
    std::string line;
    for (const format::SourceLineMeta& known : lines_) {
      if (static_cast<size_t>(known.instruction) <= index) line = known.location;
    }
    return line;
  }

  runtime::MethodState& state_;
  Trace& trace_;
  std::string prefix_;
  std::vector<std::unique_ptr<Recorder>> inside_;
  std::vector<format::SourceLineMeta> lines_;
  size_t call_ = 0;
};

Status trace_program(const std::string& path, const Arguments& a, const std::vector<TensorFile>& calls, Trace* trace) {
  const LoadOptions load = load_options(a);
  PTERON_ASSIGN(const LoadedProgram loaded, load_program_file(path, load));
  PTERON_ASSIGN(const std::string name, pick_method(*loaded.program, a.value("method")));
  PTERON_ASSIGN(const std::unique_ptr<Method> method, loaded.program->load_method(name));
  Recorder recorder(method->state(), *trace);
  for (size_t call = 0; call < calls.size(); ++call) {
    recorder.begin_call(call);
    PTERON_TRY(set_inputs(*method, calls[call]));
    PTERON_TRY(method->execute());
    for (size_t i = 0; i < method->output_count(); ++i) {
      PTERON_ASSIGN(const OutputValue value, method->output(i));
      if (const auto* view = std::get_if<TensorView>(&value)) PTERON_TRY(add_step(*trace, kOutput, str_cat("output ", i), call, *view));
    }
  }
  return ok_status();
}

/// The profile a .pte was compiled for, so that an archive is decomposed in the same way.
Result<compiler::Profile> profile_of(const std::string& path, const Arguments& a) {
  if (!path.ends_with(".pte") && !path.ends_with(".bpte")) return compiler::Profile::kPteron;
  const LoadOptions load = load_options(a);
  PTERON_ASSIGN(const LoadedProgram loaded, load_program_file(path, load));
  return loaded.program->state().meta.profile == "executorch" ? compiler::Profile::kExecutorch : compiler::Profile::kPteron;
}

bool pairs(const Step& a, const Step& b) {
  return a.call == b.call && a.kernel == b.kernel && a.result.view.dtype == b.result.view.dtype && std::ranges::equal(a.result.view.sizes(), b.result.view.sizes());
}

using Pairs = std::vector<std::pair<size_t, size_t>>;

/// Longest common subsequence of traces that are not too long for a table.
Pairs align_exactly(const Trace& a, const Trace& b) {
  const size_t width = b.size() + 1;
  std::vector<uint32_t> best((a.size() + 1) * width, 0);
  for (size_t i = a.size(); i-- > 0;) {
    for (size_t j = b.size(); j-- > 0;) {
      best[i * width + j] = pairs(a[i], b[j]) ? best[(i + 1) * width + j + 1] + 1 : std::max(best[(i + 1) * width + j], best[i * width + j + 1]);
    }
  }
  Pairs out;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (pairs(a[i], b[j])) {
      out.emplace_back(i++, j++);
    } else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) {
      ++i;
    } else {
      ++j;
    }
  }
  return out;
}

/// Takes the next step of `b` within a window for each of `a`.
Pairs align_greedily(const Trace& a, const Trace& b) {
  constexpr size_t kWindow = 256;
  Pairs out;
  size_t j = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t end = std::min(b.size(), j + kWindow);
    size_t at = j;
    while (at < end && !pairs(a[i], b[at])) ++at;
    if (at == end) continue;
    out.emplace_back(i, at);
    j = at + 1;
  }
  return out;
}

void print_departure(bool json, const Trace& a, const Trace& b, const Pairs& aligned, size_t at, const Difference& d) {
  const bool found = at < aligned.size();
  if (!json) {
    if (!found) {
      std::printf("no result departs: %zu results compared, %zu and %zu made\n", aligned.size(), a.size(), b.size());
      return;
    }
    const Step& left = a[aligned[at].first];
    const Step& right = b[aligned[at].second];
    std::printf("call %zu: %s departs at %s against %s, after %zu equal results\n  %s %s: %s\n", left.call, left.kernel.c_str(), left.place.c_str(), right.place.c_str(), at,
                std::string(dtype_name(left.result.view.dtype)).c_str(), shape_text(left.result.view.sizes()).c_str(), difference_text(d).c_str());
    if (left.kernel == kOutput) std::printf("  a delegate has fused what comes before: compile with --backend portable to see which operator it is\n");
    if (d.first_bad >= 0) std::printf("  first at %s: %.9g against %.9g\n", index_text(d.first_bad, left.result.view.sizes()).c_str(), d.first_a, d.first_b);
    return;
  }
  JsonWriter writer;
  writer.begin_object();
  writer.field("departs", found);
  writer.field("compared", found ? at + 1 : aligned.size());
  writer.field("results_a", a.size());
  writer.field("results_b", b.size());
  if (found) {
    const Step& left = a[aligned[at].first];
    writer.field("call", left.call);
    writer.field("kernel", left.kernel);
    writer.field("place_a", left.place);
    writer.field("place_b", b[aligned[at].second].place);
    writer.field("max_absolute", d.max_absolute);
    writer.field("max_relative", d.max_relative);
    writer.field("over_tolerance", d.beyond);
    writer.field("count", d.count);
  }
  writer.end_object();
  std::printf("%s\n", writer.text().c_str());
}

}  // namespace

Result<int> bisect(const Arguments& a, const std::vector<TensorFile>& calls, const Tolerance& tolerance) {
  const std::string paths[] = {a.positionals()[0], a.positionals()[1]};
  Trace traces[2];
  for (int side = 0; side < 2; ++side) {
    const std::string& path = paths[side];
    if (path.ends_with(".pte") || path.ends_with(".bpte")) {
      PTERON_TRY(trace_program(path, a, calls, &traces[side]));
    } else if (path.ends_with(".pt2")) {
      PTERON_ASSIGN(const compiler::Profile profile, profile_of(paths[1 - side], a));
      PTERON_TRY(trace_archive(path, profile, calls, &traces[side]));
    } else {
      return usage_error("compare", str_cat("--bisect compares programs (.pt2 or .pte), found ", path));
    }
  }
  constexpr size_t kTableCells = size_t{1} << 26;
  const bool small = traces[0].size() < kTableCells / (traces[1].size() + 1);
  const Pairs aligned = small ? align_exactly(traces[0], traces[1]) : align_greedily(traces[0], traces[1]);
  if (aligned.empty()) return Status(Code::kInvalidInput, str_cat(paths[0], " and ", paths[1], " have no operator in common: they are not the same model"));
  size_t at = 0;
  Difference difference;
  for (; at < aligned.size(); ++at) {
    difference = compare(traces[0][aligned[at].first].result.view, traces[1][aligned[at].second].result.view, tolerance);
    if (difference.bad()) break;
  }
  print_departure(a.flag("json"), traces[0], traces[1], aligned, at, difference);
  return at < aligned.size() ? 1 : 0;
}

}  // namespace pteron::cli
