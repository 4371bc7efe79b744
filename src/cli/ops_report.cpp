// Coverage tables and the list of what is refused, for `pteron ops`.
#include "cli/ops_report.h"

#include <algorithm>
#include <array>
#include <vector>

#include "base/str_cat.h"
#include "cli/ops_trial.h"
#include "compiler/profile.h"
#include "emit/emit.h"

namespace pteron::cli {

namespace {

constexpr size_t kHowCount = 7;

/// Forms of supported operators that a compilation refuses, in every profile.
constexpr compiler::FormLimit kForms[] = {
    {"sizes that depend on data without an upper bound (`repeat_interleave` by a tensor, `bincount` of 32 and 64 bit integers)",
     "no memory can be planned: export with a bound, or compile with `--max-size`"},
    {"`tensor_split` into a number of pieces known only at run time", "the number of results of a program is fixed"},
    {"`_weight_int4pack_mm_for_cpu` with a weight that was packed before the export", "its order of bytes is that of the processor that packed it"},
    {"`linear_cross_entropy` with gradients made ahead", "training"},
    {"a range (`arange`) of floats whose bounds are known only at run time", "the number of elements is an integer expression"},
    {"a complex number as argument that is neither operand nor fill value (`beta` and `alpha` of `addmm`, bounds of `linspace`)", "kernels take real numbers"},
    {"complex numbers of 16 bits (`half * 2j`)", "no kernels"},
    {"`bincount` with weights of a tensor without elements", "PyTorch gives int64 there, the archive says a float"},
    {"`bilinear` and `bicubic` resizes of bytes to a single column, of more than four channels that are not row-major", "PyTorch's results depend on the layout there"},
    {"tensors of more than 16 dims", "the file format holds 16"},
    {"writes but of one number to a view whose elements share memory (all of an `expand`, windows of an `unfold` that meet)",
     "what comes of them depends on their order; parts without repeated elements can be written"},
    {"inside `torch.vmap`: control flow over slices, random numbers that differ from slice to slice, views without a rule where the program writes",
     "`export.run_decompositions()` may give a plain program"},
    {"traces of other transforms of `torch.func` (`jvp`, `grad`)", "`export.run_decompositions()` gives a plain program"},
    {"operators that the catalog does not have (custom operators, sparse and quantized tensors)", "named with their first source line"},
};

/// Forms that have no decomposition into official kernels, of operators that have one for other forms. tests/interop/test_refusals.py has one each.
constexpr compiler::FormLimit kOfficialForms[] = {
    {"`scatter_reduce` and `index_reduce` with `prod`, `amax` or `amin`: integers, 0-d tensors, sizes that vary or differ beside the dim, above 2^24 pairs of places",
     "decomposed into comparisons of all pairs of places"},
    {"`sort` and what sorts (`argsort`, `median`, `kthvalue`, `mode`, `quantile`, `unique`): sizes that vary, above 2^24 pairs of elements",
     "decomposed into comparisons of all pairs of elements"},
    {"`unique_consecutive` along a dim or with sizes that vary", "decomposed for all elements of static sizes"},
    {"`cumprod`, `cummax`, `cummin`, `logcumsumexp` along a dim whose size varies or is above 65536", "decomposed into one step for every power of two"},
    {"`i0`, `i0e`, `i1`, `i1e`, `erfc`, `erfcx`, `ndtri`, `log_ndtr`, `hypot` of float64", "the decompositions are exact to float32 only"},
    {"resizes but `upsample_nearest2d` and `upsample_bilinear2d`: linear or cubic ones of integers, sizes that vary, more than 64 places for a result",
     "decomposed into a sum of that many terms"},
    {"pools of three dims, adaptive pools but `adaptive_avg_pool2d`, `max_unpool`: spatial sizes that vary", "decomposed with tables of places"},
    {"`as_strided_scatter`, also from a write through `as_strided`, or to a part of an `expand` or `unfold`; `view_as_complex`; `view` as a dtype of another size",
     "no official kernel"},
    {"powers, roots, logarithms and bit operations of sizes that vary (`x / x.shape[0] ** 0.5`, `torch.sym_sqrt`)", "`executorch_prim` has no such arithmetic"},
};

/// Symbolic arithmetic that the importer turns into expressions, and out variants, which no export holds.
bool is_expression_or_out(std::string_view name) {
  return name.starts_with("aten::sym_") || name.ends_with(".out") || name.ends_with("_out");
}

struct Counts {
  std::array<size_t, kHowCount> of{};
  size_t total = 0;
  void add(How how) {
    ++of[static_cast<size_t>(how)];
    ++total;
  }
};

std::string row(std::string_view name, const Counts& c) {
  std::string out = str_cat(name);
  out.resize(std::max<size_t>(out.size(), 34), ' ');
  for (const size_t n : {c.total, c.of[0], c.of[1], c.of[2], c.of[3], c.of[4], c.of[5], c.of[6]}) {
    const std::string text = std::to_string(n);
    out += std::string(text.size() < 12 ? 12 - text.size() : 1, ' ') + text;
  }
  return out + "\n";
}

Counts count_all(const ir::Catalog& catalog, const compiler::Environment& environment, bool executorch) {
  Counts counts;
  for (const ir::Op* op : catalog.all()) counts.add(how_of(*op, environment, executorch));
  return counts;
}

Counts count_core(const ir::Catalog& catalog, const compiler::Environment& environment, bool executorch, std::vector<std::string_view>* missing) {
  Counts counts;
  for (const std::string_view name : compiler::core_aten()) {
    if (is_expression_or_out(name)) continue;
    const ir::Op* op = catalog.find(name);
    if (op == nullptr) op = catalog.find_functional(name);
    const How how = op == nullptr ? How::kUnsupported : how_of(*op, environment, executorch);
    counts.add(how);
    if (how == How::kUnsupported) missing->push_back(name);
  }
  return counts;
}

std::string joined(const std::vector<std::string_view>& names) {
  std::string out;
  for (const std::string_view name : names) str_append(out, out.empty() ? "" : ", ", "`", name, "`");
  return out.empty() ? "none" : out;
}

/// Official kernels that our runtime lacks.
std::vector<std::string_view> missing_kernels(const compiler::Environment& environment) {
  std::vector<std::string_view> missing;
  for (const std::string_view kernel : compiler::executorch_kernels()) {
    if (!environment.has_kernel(kernel)) missing.push_back(kernel);
  }
  return missing;
}

std::string_view reason_of(const ir::Op& op) {
  if (op.name == "aten::_convert_weight_to_int4pack_for_cpu") return "the order of bytes is that of the processor; fine where its result goes into `_weight_int4pack_mm_for_cpu` only";
  return op.kernel.empty() ? "no kernel" : "no kernel of that name";
}

}  // namespace

How how_of(const ir::Op& op, const compiler::Environment& environment, bool executorch) {
  if (!op.known) return How::kUnsupported;
  if (op.is_view() || op.has(ir::kAlias)) return How::kView;
  if (op.has(ir::kDrop) || op.name.starts_with("higher_order::wrap_with_")) return How::kRemoved;
  if (op.has(ir::kRegion)) return emit::is_control_flow(op.name) ? How::kControlFlow : How::kUnsupported;
  const bool has = !op.kernel.empty() && (executorch ? compiler::executorch_has_kernel(op.kernel) : environment.has_kernel(op.kernel));
  if (!has && op.def.decompose == nullptr) return How::kUnsupported;
  if (op.has(ir::kRandom)) return How::kRandom;
  return has ? How::kKernel : How::kDecomposed;
}

std::string_view how_text(How how) {
  constexpr std::string_view kTexts[kHowCount] = {"kernel", "view", "decomposed", "control flow", "removed", "random", "unsupported"};
  return kTexts[static_cast<size_t>(how)];
}

std::string coverage_text(const ir::Catalog& catalog, const compiler::Environment& environment) {
  std::string out = str_cat("operators                                total      kernel        view  decomposed     control     removed      random unsupported\n");
  std::vector<std::string_view> ours, theirs;
  out += row("core ATen, pteron", count_core(catalog, environment, false, &ours));
  out += row("core ATen, executorch profile", count_core(catalog, environment, true, &theirs));
  out += row("catalog, pteron", count_all(catalog, environment, false));
  out += row("catalog, executorch profile", count_all(catalog, environment, true));
  const auto missing = missing_kernels(environment);
  const size_t official = compiler::executorch_kernels().size();
  str_append(out, "official kernels that run here: ", official - missing.size(), " of ", official, "\n");
  str_append(out, "core ATen missing, pteron: ", joined(ours), "\ncore ATen missing, executorch profile: ", joined(theirs), "\n");
  str_append(out, "official kernels missing here: ", joined(missing), "\n");
  return out;
}

std::string unsupported_text(const ir::Catalog& catalog, const compiler::Environment& environment) {
  std::string out =
      "# What is refused\n\nMade by `pteron ops --unsupported > docs/unsupported.md`; `tests/cli/test_cli.py` checks that it is current. A refusal is exit 4 at\n"
      "compile time and lists every reason at once.\n\n## Operators without a kernel or decomposition\n\n| operator | reason |\n|---|---|\n";
  std::vector<std::string_view> core;
  count_core(catalog, environment, false, &core);
  for (const std::string_view name : core) {
    if (catalog.find(name) == nullptr) str_append(out, "| `", name, "` | ", name.ends_with("_backward") ? "a gradient" : "not in the catalog", " |\n");
  }
  for (const ir::Op* op : catalog.all()) {
    if (op->name.starts_with("pteron::") || how_of(*op, environment, false) != How::kUnsupported) continue;
    str_append(out, "| `", op->name, "` | ", reason_of(*op), " |\n");
  }
  out += "\n## Operators that need `--allow-random`\n\nThey draw random numbers (a dropout only in training); with the option they run, with numbers that are not PyTorch's (`pteron run --seed`).\n\n";
  std::vector<std::string_view> random;
  for (const ir::Op* op : catalog.all()) {
    if (how_of(*op, environment, false) == How::kRandom) random.push_back(op->name);
  }
  out += joined(random) + "\n";
  out += "\n## Forms of other operators\n\n| form | reason |\n|---|---|\n";
  for (const auto& form : kForms) str_append(out, "| ", form.op, " | ", form.reason, " |\n");
  out += "\n## Complex numbers\n\nTensors of complex64 and complex128, and complex Python numbers as arguments, are taken where a kernel takes them. Small calls with complex64\nare refused by these operators (many of them, as pools and comparisons of size, have no complex form in PyTorch either):\n\n";
  out += complex_trial_text(catalog, environment) + "\n";
  out += "\n## With `--profile executorch`, in addition\n\nNeither an official kernel nor a decomposition into some:\n\n";
  std::vector<std::string_view> missing;
  for (const ir::Op* op : catalog.all()) {
    if (op->name.starts_with("pteron::") || how_of(*op, environment, true) != How::kUnsupported) continue;
    if (how_of(*op, environment, false) != How::kUnsupported) missing.push_back(op->name);
  }
  str_append(out, joined(missing), "\n\nForms of operators that are decomposed otherwise:\n\n| form | reason |\n|---|---|\n");
  for (const auto& form : kOfficialForms) str_append(out, "| ", form.op, " | ", form.reason, " |\n");
  str_append(out, "\nForms that the official kernels get wrong. They are decomposed where the operator has a decomposition for them, else refused:\n\n");
  out += "| operator | reason |\n|---|---|\n";
  for (const auto& limit : compiler::executorch_limits()) str_append(out, "| `", limit.op, "` | ", limit.reason, " |\n");
  out += "| complex numbers | few official kernels take them |\n| 8-bit floats, unsigned integers of 16 to 64 bits | the official runtime computes nothing in them |\n\n";
  out += executorch_trial_text(catalog, environment);
  out += "\nWhat the official runtime does otherwise with a file that is right here:\n\n| what | how |\n|---|---|\n"
         "| inputs that are not row-major (channels-last, strided) | it takes the bytes as they lie: give it row-major tensors; `compile` warns when the example inputs were others |\n"
         "| NaN in `max_pool2d` | its kernel passes over NaN |\n"
         "| buffers of `--share-state` | the loader gives all methods one arena (`executorch.runtime` does, `extension.pybindings` does not) |\n";
  str_append(out, "\n## Official kernels that do not run here\n\n", joined(missing_kernels(environment)), "\n");
  return out;
}

}  // namespace pteron::cli
