// pteron compare: outputs of two sides on the same inputs. A side is a .pt2 (reference interpreter), a .pte (runtime) or expected tensors.
#include <algorithm>
#include <cstdio>
#include <map>
#include <variant>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/bisect.h"
#include "cli/difference.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "cli/tensors.h"
#include "cli/verb.h"
#include "interp/evaluator.h"

namespace pteron::cli {

namespace {

constexpr Option kCompareOptions[] = {
    {"inputs", "i", OptionKind::kList, "FILE", "tensors of one call; repeat for several calls on the same state; default: the example inputs of a .pt2"},
    {"method", "m", OptionKind::kValue, "NAME", "the method of a .pte to call; default: forward"},
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) with weights; default: those that the program names, beside it"},
    {"verify-data", "", OptionKind::kFlag, "", "hash every byte of the data files at load"},
    {"threads", "t", OptionKind::kCount, "N", "threads to use; default, and 0: all CPUs of the process"},
    {"bisect", "", OptionKind::kFlag, "", "name the first node of two programs whose result departs (keeps every result in memory)"},
    {"rtol", "", OptionKind::kReal, "X", "relative tolerance; default by dtype: 1e-4 float32, 1e-2 float16, 5e-2 bfloat16, 1e-7 float64"},
    {"atol", "", OptionKind::kReal, "X", "absolute tolerance; default 1e-5"},
};

/// Results of one call: tensors, row-major, with their bytes, and text.
struct Tensors {
  std::map<std::string, TensorView> views;
  std::map<std::string, std::string> texts;
  std::vector<Buffer> bytes;
  bool from_program = false;  ///< a tensor file and the interpreter have no text

  Status add(const std::string& name, const TensorView& view) {
    TensorView to;
    PTERON_ASSIGN(Buffer copy, row_major_copy(view, &to));
    views.emplace(name, to);
    bytes.push_back(std::move(copy));
    return ok_status();
  }
};
using Calls = std::vector<Tensors>;

Status run_program(const std::string& path, const Arguments& a, const std::vector<TensorFile>& inputs, Calls* out) {
  const LoadOptions load = load_options(a);
  PTERON_ASSIGN(const LoadedProgram loaded, load_program_file(path, load));
  PTERON_ASSIGN(const std::string name, pick_method(*loaded.program, a.value("method")));
  PTERON_ASSIGN(const std::unique_ptr<Method> method, loaded.program->load_method(name));
  for (const TensorFile& file : inputs) {
    PTERON_TRY(set_inputs(*method, file));
    PTERON_TRY(method->execute());
    Tensors call;
    call.from_program = true;
    PTERON_TRY(for_each_output(*method, [&](size_t index, const TensorView& view) { return call.add(str_cat(index), view); }));
    PTERON_TRY(for_each_text(*method, [&](size_t index, std::string_view text) {
      call.texts.emplace(str_cat(index), text);
      return ok_status();
    }));
    out->push_back(std::move(call));
  }
  return ok_status();
}

Status run_archive(const std::string& path, const std::vector<TensorFile>& inputs, Calls* out) {
  PTERON_ASSIGN(const Session session, Session::create());
  compiler::CompileOptions options;
  options.methods.push_back({"forward", path});
  options.stop_after = "decompose";
  PTERON_ASSIGN(const std::unique_ptr<compiler::EdgeProgram> edge, compiler::export_program(options, session.environment()));
  const ir::Graph& graph = edge->program.methods[0]->graph;
  interp::StateTensors states;
  for (const TensorFile& file : inputs) {
    PTERON_ASSIGN(const std::vector<interp::HostTensor> given, graph_inputs(graph, file));
    PTERON_ASSIGN(const auto results, interp::run_graph(*session.environment().evaluator, graph, given, &states));
    Tensors call;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i]) PTERON_TRY(call.add(str_cat(i), results[i]->view));
    }
    out->push_back(std::move(call));
  }
  return ok_status();
}

Status read_side(const std::string& path, const Arguments& a, const std::vector<TensorFile>& inputs, Calls* out) {
  if (path.ends_with(".pt2")) return run_archive(path, inputs, out);
  if (path.ends_with(".pte") || path.ends_with(".bpte")) return run_program(path, a, inputs, out);
  PTERON_ASSIGN(const TensorFile file, TensorFile::read(path));
  Tensors call;
  for (const NamedTensor& tensor : file.tensors) PTERON_TRY(call.add(tensor.name, tensor.view));
  out->push_back(std::move(call));
  return ok_status();
}

class DifferencePrinter {
 public:
  DifferencePrinter(bool json) : json_(json) {
    if (json_) writer_.begin_array();
  }
  bool failed() const { return failed_; }

  void show(size_t call, const std::string& name, const Difference& d, std::span<const int64_t> sizes) {
    failed_ = failed_ || d.bad();
    if (!json_) {
      std::printf("call %zu output %s: %s\n", call, name.c_str(), difference_text(d).c_str());
      if (d.first_bad >= 0) std::printf("  first at %s: %.9g against %.9g\n", index_text(d.first_bad, sizes).c_str(), d.first_a, d.first_b);
      return;
    }
    writer_.begin_object();
    writer_.field("call", call);
    writer_.field("output", name);
    if (!d.problem.empty()) writer_.field("problem", d.problem);
    writer_.field("max_absolute", d.max_absolute);
    writer_.field("max_relative", d.max_relative);
    writer_.field("cosine", d.cosine);
    writer_.field("count", d.count);
    writer_.field("over_tolerance", d.beyond);
    if (d.first_bad >= 0) {
      writer_.field("first_index", index_text(d.first_bad, sizes));
      writer_.field("first_a", d.first_a);
      writer_.field("first_b", d.first_b);
    }
    writer_.end_object();
  }

  void finish() {
    if (!json_) return;
    writer_.end_array();
    std::printf("%s\n", writer_.text().c_str());
  }

 private:
  bool json_;
  bool failed_ = false;
  JsonWriter writer_;
};

/// Text of two programs: equal or not.
void compare_texts(const Calls& left, const Calls& right, DifferencePrinter& printer) {
  const auto show = [&](size_t call, const std::string& name, const std::string* a, const std::string* b) {
    Difference d;
    d.count = 1;
    if (a == nullptr || b == nullptr) d.problem = a == nullptr ? "missing on the first side" : "missing on the other side";
    if (a != nullptr && b != nullptr && *a != *b) d.problem = "the texts differ";
    printer.show(call, name, d, {});
  };
  const auto find = [](const Tensors& tensors, const std::string& name) {
    const auto found = tensors.texts.find(name);
    return found == tensors.texts.end() ? nullptr : &found->second;
  };
  for (size_t call = 0; call < left.size(); ++call) {
    for (const auto& [name, text] : left[call].texts) show(call, name, &text, find(right[call], name));
    for (const auto& [name, text] : right[call].texts) {
      if (!left[call].texts.contains(name)) show(call, name, nullptr, &text);
    }
  }
}

Tolerance read_tolerance(const Arguments& a) {
  Tolerance tolerance;
  if (a.has("rtol")) tolerance.rtol = a.real("rtol", 0);
  if (a.has("atol")) tolerance.atol = a.real("atol", 0);
  return tolerance;
}

/// The example inputs of the first archive; no tensors if both sides are none.
Result<TensorFile> default_inputs(const Arguments& a) {
  for (const std::string& path : a.positionals()) {
    if (path.ends_with(".pt2")) return TensorFile::examples_of(path);
  }
  return TensorFile();
}

Result<int> run_compare(const Arguments& a) {
  std::vector<TensorFile> inputs;
  for (const std::string& path : a.list("inputs")) {
    PTERON_ASSIGN(TensorFile file, TensorFile::read(path));
    inputs.push_back(std::move(file));
  }
  if (inputs.empty()) {
    PTERON_ASSIGN(TensorFile examples, default_inputs(a));
    inputs.push_back(std::move(examples));
  }
  const Tolerance tolerance = read_tolerance(a);
  if (a.flag("bisect")) return bisect(a, inputs, tolerance);
  Calls left, right;
  PTERON_TRY(read_side(a.positionals()[0], a, inputs, &left));
  PTERON_TRY(read_side(a.positionals()[1], a, inputs, &right));
  if (left.size() != right.size()) return Status(Code::kInvalidInput, str_cat(left.size(), " calls on one side, ", right.size(), " on the other; a tensor file holds one call"));
  DifferencePrinter printer(a.flag("json"));
  for (size_t call = 0; call < left.size(); ++call) {
    for (const auto& [name, view] : left[call].views) {
      const auto other = right[call].views.find(name);
      if (other == right[call].views.end()) {
        printer.show(call, name, {.problem = "missing on the other side"}, {});
        continue;
      }
      printer.show(call, name, compare(view, other->second, tolerance), view.sizes());
    }
    for (const auto& [name, view] : right[call].views) {
      if (!left[call].views.contains(name)) printer.show(call, name, {.problem = "missing on the first side"}, {});
    }
  }
  if (right[0].from_program && left[0].from_program) compare_texts(left, right, printer);
  printer.finish();
  return printer.failed() ? 1 : 0;
}

}  // namespace

extern const Verb k_compare_verb;
const Verb k_compare_verb = {"compare", "compare two of: a .pt2, a .pte or .bpte, expected tensors", "A B [--inputs IN.safetensors] [options]", 2, 2, kCompareOptions, run_compare};

}  // namespace pteron::cli
