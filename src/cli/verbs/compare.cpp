// pteron compare: outputs of two sides on the same inputs. A side is a .pt2 (reference interpreter), a .pte (runtime) or expected tensors.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <variant>

#include "base/str_cat.h"
#include "cli/json_writer.h"
#include "cli/programs.h"
#include "cli/session.h"
#include "cli/tensors.h"
#include "cli/verb.h"
#include "interp/evaluator.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cli {

namespace {

constexpr Option kOptions[] = {
    {"inputs", "i", OptionKind::kList, "FILE", "tensors of one call; repeat for several calls on the same state"},
    {"method", "m", OptionKind::kValue, "NAME", "the method of a .pte to call; default: forward"},
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) with weights"},
    {"threads", "t", OptionKind::kValue, "N", "threads to use; default: all CPUs of the process"},
    {"rtol", "", OptionKind::kValue, "X", "relative tolerance; default by dtype: 1e-4 float32, 1e-2 float16, 5e-2 bfloat16, 1e-7 float64"},
    {"atol", "", OptionKind::kValue, "X", "absolute tolerance; default 1e-5"},
};

/// Tensors of one call, row-major, with their bytes.
struct Tensors {
  std::map<std::string, TensorView> views;
  std::vector<Buffer> bytes;

  Status add(const std::string& name, const TensorView& view) {
    PTERON_ASSIGN(Buffer copy, Buffer::create(std::max<size_t>(view.size_bytes(), 1)));
    const TensorView to = make_contiguous_view(view.dtype, view.sizes(), copy.data());
    copy_strided(view, to);
    views.emplace(name, to);
    bytes.push_back(std::move(copy));
    return ok_status();
  }
};
using Calls = std::vector<Tensors>;

Status run_program(const std::string& path, const Arguments& a, const std::vector<TensorFile>& inputs, Calls* out) {
  PTERON_ASSIGN(const LoadOptions load, load_options(a));
  PTERON_ASSIGN(const std::shared_ptr<Program> program, Program::load(path, load));
  PTERON_ASSIGN(const std::string name, pick_method(*program, a.value("method")));
  PTERON_ASSIGN(const std::unique_ptr<Method> method, program->load_method(name));
  for (const TensorFile& file : inputs) {
    PTERON_TRY(set_inputs(*method, file));
    PTERON_TRY(method->execute());
    Tensors call;
    PTERON_TRY(for_each_output(*method, [&](size_t index, const TensorView& view) { return call.add(str_cat(index), view); }));
    out->push_back(std::move(call));
  }
  return ok_status();
}

/// Inputs of a graph in order, by decimal key or name.
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
      return Status(Code::kInvalidInput, str_cat(file.path, ": input ", i, " (", graph.inputs[i].name, ") is missing"));
    }
  }
  return out;
}

Status run_archive(const std::string& path, const std::vector<TensorFile>& inputs, Calls* out) {
  PTERON_ASSIGN(const Session session, Session::create());
  compiler::CompileOptions options;
  options.methods.push_back({"forward", path});
  options.stop_after = "decompose";
  options.observe = [&](const ir::Program& program) -> Status {
    const ir::Graph& graph = program.methods[0]->graph;
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
  };
  MemorySink nothing;
  return compiler::compile(options, session.environment(), nothing).status();
}

Status read_side(const std::string& path, const Arguments& a, const std::vector<TensorFile>& inputs, Calls* out) {
  if (path.ends_with(".pt2")) return run_archive(path, inputs, out);
  if (path.ends_with(".pte")) return run_program(path, a, inputs, out);
  PTERON_ASSIGN(const TensorFile file, TensorFile::read(path));
  Tensors call;
  for (const NamedTensor& tensor : file.tensors) PTERON_TRY(call.add(tensor.name, tensor.view));
  out->push_back(std::move(call));
  return ok_status();
}

struct Difference {
  std::string problem;      // shapes, dtypes, missing outputs; empty if values were compared
  double max_absolute = 0, max_relative = 0, cosine = 1;
  int64_t count = 0, beyond = 0, first_bad = -1, nan_a = 0, nan_b = 0, infinite_a = 0, infinite_b = 0;
  double first_a = 0, first_b = 0;
};

double default_rtol(DType dtype) {
  if (dtype == DType::kFloat16) return 1e-2;
  if (dtype == DType::kBFloat16) return 5e-2;
  return dtype == DType::kFloat64 ? 1e-7 : dtype == DType::kFloat32 ? 1e-4 : 0;
}

Difference compare(const TensorView& a, const TensorView& b, double rtol, double atol) {
  Difference out;
  if (a.dtype != b.dtype || !std::equal(a.sizes().begin(), a.sizes().end(), b.sizes().begin(), b.sizes().end())) {
    out.problem = str_cat(dtype_name(a.dtype), " ", shape_text(a.sizes()), " against ", dtype_name(b.dtype), " ", shape_text(b.sizes()));
    return out;
  }
  out.count = a.numel();
  double dot = 0, norm_a = 0, norm_b = 0;
  const bool exact = is_integral(a.dtype, true);
  const bool known = dispatch_real(a.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < out.count; ++i) {
      const T left = a.as<T>()[i], right = b.as<T>()[i];
      double x = 0, y = 0;
      if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
        x = static_cast<float>(left), y = static_cast<float>(right);
      } else {
        x = static_cast<double>(left), y = static_cast<double>(right);
      }
      out.nan_a += std::isnan(x), out.nan_b += std::isnan(y), out.infinite_a += std::isinf(x), out.infinite_b += std::isinf(y);
      const bool same = std::memcmp(&left, &right, sizeof(T)) == 0 || x == y || (std::isnan(x) && std::isnan(y));
      const double error = same ? 0 : std::abs(x - y);
      const bool bad = !same && (exact || !(error <= atol + rtol * std::abs(y)));
      if (bad && out.first_bad < 0) out.first_bad = i, out.first_a = x, out.first_b = y;
      out.beyond += bad;
      if (std::isfinite(error)) {
        out.max_absolute = std::max(out.max_absolute, error);
        if (y != 0) out.max_relative = std::max(out.max_relative, error / std::abs(y));
      }
      if (std::isfinite(x) && std::isfinite(y)) dot += x * y, norm_a += x * x, norm_b += y * y;
    }
  });
  if (!known) out.problem = str_cat("values of dtype ", dtype_name(a.dtype), " cannot be compared");
  if (norm_a > 0 && norm_b > 0) out.cosine = dot / std::sqrt(norm_a * norm_b);
  return out;
}

std::string index_text(int64_t flat, std::span<const int64_t> sizes) {
  Sizes index(sizes.size(), 0);
  for (size_t d = sizes.size(); d-- > 0;) {
    index[d] = flat % sizes[d];
    flat /= sizes[d];
  }
  return shape_text(index);
}

class Printer {
 public:
  Printer(bool json) : json_(json) {
    if (json_) writer_.begin_array();
  }
  bool failed() const { return failed_; }

  void show(size_t call, const std::string& name, const Difference& d, std::span<const int64_t> sizes) {
    failed_ = failed_ || !d.problem.empty() || d.beyond > 0;
    if (!json_) {
      if (!d.problem.empty()) {
        std::printf("call %zu output %s: %s\n", call, name.c_str(), d.problem.c_str());
        return;
      }
      std::printf("call %zu output %s: max absolute %.3g, max relative %.3g, cosine %.7f, %lld of %lld over tolerance, NaN %lld/%lld, inf %lld/%lld\n", call, name.c_str(),
                  d.max_absolute, d.max_relative, d.cosine, static_cast<long long>(d.beyond), static_cast<long long>(d.count), static_cast<long long>(d.nan_a),
                  static_cast<long long>(d.nan_b), static_cast<long long>(d.infinite_a), static_cast<long long>(d.infinite_b));
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

Result<int> run(const Arguments& a) {
  std::vector<TensorFile> inputs;
  for (const std::string& path : a.list("inputs")) {
    PTERON_ASSIGN(TensorFile file, TensorFile::read(path));
    inputs.push_back(std::move(file));
  }
  if (inputs.empty()) inputs.emplace_back();
  Calls left, right;
  PTERON_TRY(read_side(a.positionals()[0], a, inputs, &left));
  PTERON_TRY(read_side(a.positionals()[1], a, inputs, &right));
  if (left.size() != right.size()) return Status(Code::kInvalidInput, str_cat(left.size(), " calls on one side, ", right.size(), " on the other; a tensor file holds one call"));
  Printer printer(a.flag("json"));
  for (size_t call = 0; call < left.size(); ++call) {
    for (const auto& [name, view] : left[call].views) {
      const auto other = right[call].views.find(name);
      if (other == right[call].views.end()) {
        printer.show(call, name, {.problem = "missing on the other side"}, {});
        continue;
      }
      const double rtol = a.has("rtol") ? std::strtod(a.value("rtol").c_str(), nullptr) : default_rtol(view.dtype);
      const double atol = a.has("atol") ? std::strtod(a.value("atol").c_str(), nullptr) : 1e-5;
      printer.show(call, name, compare(view, other->second, rtol, atol), view.sizes());
    }
    for (const auto& [name, view] : right[call].views) {
      if (!left[call].views.contains(name)) printer.show(call, name, {.problem = "missing on the first side"}, {});
    }
  }
  printer.finish();
  return printer.failed() ? 1 : 0;
}

}  // namespace

extern const Verb k_compare_verb;
const Verb k_compare_verb = {"compare", "compare two of: a .pt2, a .pte, expected tensors", "A B [--inputs IN.safetensors] [options]", 2, 2, kOptions, run};

}  // namespace pteron::cli
