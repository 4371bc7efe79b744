// eval_case: evaluates conformance cases (folders with model.pt2, inputs, expected tensors) with the reference interpreter: import, passes,
// kernels, no file written. A developer's tool for operators and passes; the judge of the product is tests/conformance/check.py.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <sys/wait.h>
#include <unistd.h>

#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "import/import.h"
#include "interp/evaluator.h"
#include "ops/catalog.h"
#include "ops/kernels.h"
#include "passes/passes.h"
#include "tensor/dtype.h"
#include "tensor/safetensors.h"
#include "tensor/shape.h"

namespace {

using namespace pteron;  // NOLINT: a tool

constexpr const char* kHelp =
    "usage: eval_case [--nodes] [--quiet] [--optimize] [--time] FOLDER...\n"
    "  FOLDER holds model.pt2, case.json, inputs.safetensors and expected.safetensors (inputs_0, expected_0, ... for several calls).\n"
    "  Each archive is imported, made functional, decomposed down to the operators that have kernels, run, and compared.\n"
    "  --nodes     print the nodes that are run\n"
    "  --optimize  also run the clean-up passes (folding, merging, removal)\n"
    "  --quiet     print only cases that do not pass\n"
    "  --time      print milliseconds of import, passes and evaluation\n"
    "Lines: pass | wrong (values) | unsupported (operators named) | error. Exit 1 unless all pass.\n"
    "Example: build/release/bin/eval_case --quiet /tmp/cases/op/add.*\n";

struct Options {
  bool nodes = false, quiet = false, optimize = false, time = false;
};

/// A number or list after "key": in the flat JSON of a case.
double number_after(const std::string& json, std::string_view key, double missing) {
  const size_t at = json.find(str_cat("\"", key, "\":"));
  if (at == std::string::npos) return missing;
  return std::strtod(json.c_str() + at + key.size() + 3, nullptr);
}

std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

double element(const TensorView& view, int64_t flat, bool imaginary) {
  std::array<int64_t, kMaxRank> index{};
  int64_t offset = 0;
  for (int d = view.rank; d-- > 0;) {
    index[static_cast<size_t>(d)] = flat % view.size(d);
    flat /= view.size(d);
    offset += index[static_cast<size_t>(d)] * view.stride(d);
  }
  double out = 0;
  dispatch_dtype(view.dtype, [&]<typename T>() {
    T value{};
    std::memcpy(&value, view.as<std::byte>() + static_cast<size_t>(offset) * sizeof(T), sizeof value);
    if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
      out = imaginary ? value.imag() : value.real();
    } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      out = static_cast<float>(value);
    } else {
      out = static_cast<double>(value);
    }
  });
  return out;
}

bool is_close(double got, double want, double rtol, double atol) {
  if (std::isnan(want)) return std::isnan(got);
  if (std::isinf(want)) return got == want;
  return std::fabs(got - want) <= atol + rtol * std::fabs(want);
}

/// Empty if equal within tolerance.
std::string difference(const TensorView& got, const TensorView& want, double rtol, double atol) {
  if (got.dtype != want.dtype) return str_cat("dtype ", dtype_name(got.dtype), ", expected ", dtype_name(want.dtype));
  if (!std::equal(got.sizes().begin(), got.sizes().end(), want.sizes().begin(), want.sizes().end())) {
    return str_cat("shape ", shape_text(got.sizes()), ", expected ", shape_text(want.sizes()));
  }
  const bool exact = is_integral(want.dtype, true);
  const int64_t count = want.numel();
  int64_t bad = 0, first = -1;
  for (int64_t i = 0; i < count; ++i) {
    bool ok = true;
    for (int part = 0; part < (is_complex(want.dtype) ? 2 : 1); ++part) {
      const double g = element(got, i, part == 1), w = element(want, i, part == 1);
      ok = ok && (exact ? g == w : is_close(g, w, rtol, atol));
    }
    if (ok) continue;
    ++bad;
    if (first < 0) first = i;
  }
  if (bad == 0) return {};
  return str_cat(bad, " of ", count, " differ, first at ", first, ": ", element(got, first, false), ", expected ", element(want, first, false));
}

bool has_kernel(std::string_view name) {
  return ops::portable_kernels().find(name) != nullptr || name == "aten::_local_scalar_dense" || name.starts_with("higher_order::");
}

Status run_passes(ir::Graph& graph, const ir::Catalog& catalog, const Options& options, const interp::Evaluator& evaluator) {
  const auto keep = [](const ir::Graph&, const ir::Node& node) {
    const ir::Op& op = *node.op;
    return op.is_view() || op.has(ir::kAlias) || (!op.kernel.empty() && has_kernel(op.kernel));
  };
  const auto check = [](Result<bool> result, std::string_view name) { return result.ok() ? ok_status() : std::move(result).status().with_context(name); };
  PTERON_TRY(check(passes::inline_wrappers(graph, catalog), "inline_wrappers"));
  PTERON_TRY(check(passes::resolve(graph, catalog), "resolve"));
  PTERON_TRY(check(passes::functionalize(graph, catalog), "functionalize"));
  if (options.optimize) PTERON_TRY(check(passes::fold_conv_bn(graph, catalog), "fold_conv_bn"));
  PTERON_TRY(check(passes::decompose(graph, catalog, keep, has_kernel), "decompose"));
  PTERON_TRY(check(passes::dce(graph, catalog), "dce"));
  if (!options.optimize) return ok_status();
  PTERON_TRY(check(passes::remove_noops(graph, catalog), "remove_noops"));
  PTERON_TRY(check(passes::fold_casts_views(graph, catalog), "fold_casts_views"));
  PTERON_TRY(check(passes::fold_constants(graph, catalog, evaluator), "fold_constants"));
  PTERON_TRY(check(passes::cse(graph, catalog), "cse"));
  PTERON_TRY(check(passes::merge_constants(graph, catalog), "merge_constants"));
  return check(passes::dce(graph, catalog), "dce");
}

void print_nodes(const ir::Graph& graph, int indent) {
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    std::string line(static_cast<size_t>(indent), ' ');
    for (const ir::ValueId out : node.outputs) {
      str_append(line, graph[out].name, ":");
      if (graph[out].kind == ir::ValueKind::kTensor) str_append(line, dtype_name(graph[out].type.dtype), "[");
      for (const ir::Expr& size : graph[out].type.sizes) str_append(line, ir::to_text(size), " ");
      line += "] ";
    }
    str_append(line, "= ", node.op->name, "(");
    for (const ir::Arg& arg : node.args) {
      if (const auto* e = std::get_if<ir::Expr>(&arg)) str_append(line, ir::to_text(*e), " ");
      if (const auto* list = std::get_if<std::vector<ir::Expr>>(&arg)) {
        line += "[";
        for (const ir::Expr& e : *list) str_append(line, ir::to_text(e), " ");
        line += "] ";
      }
      ir::for_each_value(arg, std::function<void(ir::ValueId)>([&](ir::ValueId v) { str_append(line, "%", graph[v].name, " "); }));
      if (const auto* text = std::get_if<std::string>(&arg)) str_append(line, "'", *text, "' ");
      if (const auto* dtype = std::get_if<DType>(&arg)) str_append(line, dtype_name(*dtype), " ");
    }
    line += ")";
    std::printf("    %s\n", line.c_str());
    for (const auto& region : node.regions) print_nodes(*region, indent + 2);
  }
}

Result<interp::HostTensor> find_input(const Safetensors& file, const ir::Input& input, size_t position) {
  const TensorView* view = file.find(str_cat(position));
  if (view == nullptr) view = file.find(input.name);
  if (view == nullptr && !input.value.valid()) return interp::HostTensor{};
  if (view == nullptr) return Status(Code::kInvalidInput, str_cat("no input ", position, " '", input.name, "'"));
  interp::HostTensor borrowed{*view, nullptr};
  PTERON_ASSIGN(interp::HostTensor copy, interp::make_tensor(view->dtype, view->sizes()));
  if (view->numel() > 0) std::memcpy(copy.view.data, borrowed.view.data, view->size_bytes());
  return copy;
}

/// A text that says what is wrong, or empty.
Result<std::string> run_call(const std::string& folder, const std::string& suffix, const ir::Graph& graph, const interp::Evaluator& evaluator,
                             interp::StateTensors* states, double rtol, double atol) {
  PTERON_ASSIGN(const auto in_bytes, FileBytes::read(str_cat(folder, "/inputs", suffix, ".safetensors")));
  PTERON_ASSIGN(const Safetensors in, read_safetensors(in_bytes->bytes()));
  PTERON_ASSIGN(const auto want_bytes, FileBytes::read(str_cat(folder, "/expected", suffix, ".safetensors")));
  PTERON_ASSIGN(const Safetensors want, read_safetensors(want_bytes->bytes()));
  std::vector<interp::HostTensor> inputs;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    PTERON_ASSIGN(interp::HostTensor tensor, find_input(in, graph.inputs[i], i));
    inputs.push_back(std::move(tensor));
  }
  PTERON_ASSIGN(const auto outputs, interp::run_graph(evaluator, graph, inputs, states));
  size_t produced = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i]) continue;
    ++produced;
    const TensorView* expected = want.find(str_cat(i));
    if (expected == nullptr) return str_cat("output ", i, " is not expected");
    const std::string problem = difference(outputs[i]->view, *expected, rtol, atol);
    if (!problem.empty()) return str_cat("output ", i, suffix, ": ", problem);
  }
  if (produced != want.tensors.size()) return str_cat(produced, " outputs, expected ", want.tensors.size());
  return std::string();
}

double ms_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
}

Result<std::string> run_case(const std::string& folder, const ir::Catalog& catalog, const Options& options) {
  const std::string json = read_text(folder + "/case.json");
  const double rtol = number_after(json, "rtol", 1e-5), atol = number_after(json, "atol", 1e-6);
  const int calls = static_cast<int>(number_after(json, "calls", 1));
  const auto begin = std::chrono::steady_clock::now();
  PTERON_ASSIGN(auto archive, FileBytes::map(folder + "/model.pt2"));
  ir::Program program;
  PTERON_TRY(importer::import_archive(archive, catalog, {}, program));
  const double import_ms = ms_since(begin);
  const interp::Evaluator evaluator(ops::portable_kernels(), serial_pool());
  ir::Graph& graph = program.methods.at(0)->graph;
  const auto passes_begin = std::chrono::steady_clock::now();
  PTERON_TRY(run_passes(graph, catalog, options, evaluator));
  const double passes_ms = ms_since(passes_begin);
  if (options.nodes) print_nodes(graph, 0);
  PTERON_TRY(passes::check_supported(program, has_kernel));
  interp::StateTensors states;
  const auto run_begin = std::chrono::steady_clock::now();
  for (int call = 0; call < calls; ++call) {
    const std::string suffix = calls > 1 ? str_cat("_", call) : std::string();
    PTERON_ASSIGN(const std::string problem, run_call(folder, suffix, graph, evaluator, &states, rtol, atol));
    if (!problem.empty()) return problem;
  }
  if (options.time) std::printf("  import %.2f ms, passes %.2f ms, evaluation %.2f ms\n", import_ms, passes_ms, ms_since(run_begin));
  return std::string();
}

constexpr const char* kKinds[] = {"pass", "wrong", "unsupported", "error", "crash"};

/// Index in kKinds.
int run_one(const std::string& folder, const ir::Catalog& catalog, const Options& options) {
  const size_t slash = folder.find_last_of('/', folder.size() - 2);
  const std::string name = folder.substr(slash == std::string::npos ? 0 : slash + 1);
  auto result = run_case(folder, catalog, options);
  int kind = 0;
  std::string text;
  if (!result.ok()) {
    kind = result.status().code() == Code::kUnsupported ? 2 : 3;
    text = std::string(result.status().message());
  } else if (!result->empty()) {
    kind = 1;
    text = *result;
  }
  if (kind != 0 || !options.quiet) std::printf("%-11s %s  %s\n", kKinds[kind], name.c_str(), text.c_str());
  std::fflush(stdout);
  return kind;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--help") return std::fputs(kHelp, stdout), 0;
    if (arg == "--nodes") options.nodes = true;
    else if (arg == "--quiet") options.quiet = true;
    else if (arg == "--optimize") options.optimize = true;
    else if (arg == "--time") options.time = true;
    else if (arg.starts_with("--")) return std::fputs(kHelp, stderr), 2;
    else folders.emplace_back(arg);
  }
  if (folders.empty()) return std::fputs(kHelp, stderr), 2;
  auto catalog = pteron::ops::make_catalog();
  if (!catalog.ok()) {
    std::fprintf(stderr, "%s\n", std::string(catalog.status().message()).c_str());
    return 6;
  }
  std::map<std::string, int> counts;
  for (const std::string& folder : folders) {
    if (folders.size() > 1) {  // each in a process of its own, so that a crash costs one case
      std::fflush(stdout);
      const pid_t child = fork();
      if (child == 0) {
        alarm(120);
        _exit(run_one(folder, *catalog, options));
      }
      int state = 0;
      waitpid(child, &state, 0);
      const int code = WIFEXITED(state) ? WEXITSTATUS(state) : 4;
      if (code == 4) std::printf("%-11s %s\n", kKinds[4], folder.c_str());
      ++counts[kKinds[std::min(code, 4)]];
      continue;
    }
    ++counts[kKinds[run_one(folder, *catalog, options)]];
  }
  for (const auto& [kind, count] : counts) std::printf("%d %s  ", count, kind.c_str());
  std::printf("\n");
  return counts["pass"] == static_cast<int>(folders.size()) ? 0 : 1;
}
