// The kernels that a file for the official runtime may use.
#include <algorithm>
#include <iterator>

#include "base/str_cat.h"
#include "compiler/profile.h"
#include "ir/builder.h"
#include "tensor/dtype.h"

namespace pteron::compiler {

namespace {
constexpr std::string_view kNames[] = {
#define EXECUTORCH_KERNEL(name) name,
#include "compiler/executorch_kernels.inc"
#undef EXECUTORCH_KERNEL
};

constexpr std::string_view kCoreAten[] = {
#define CORE_ATEN(name) name,
#include "compiler/core_aten.inc"
#undef CORE_ATEN
};
}  // namespace

std::span<const std::string_view> executorch_kernels() { return kNames; }
std::span<const std::string_view> core_aten() { return kCoreAten; }

bool executorch_has_kernel(std::string_view kernel) { return std::binary_search(std::begin(kNames), std::end(kNames), kernel); }

namespace {

using ir::NodeView;

bool pads_negative(const NodeView& node) {
  const auto pads = node.exprs("pad");
  return std::any_of(pads.begin(), pads.end(), [](const ir::Expr& e) { return ir::bounds(e).min < 0; });
}

DType self_dtype(const NodeView& node) { return node.type(node.has("self") ? "self" : "input").dtype; }
bool is_double(const NodeView& node) { return self_dtype(node) == DType::kFloat64; }
bool is_float(const NodeView& node) { return is_floating(self_dtype(node)); }
bool is_reduced(const NodeView& node) { return is_reduced_float(self_dtype(node)); }
bool is_reduced_input(const NodeView& node) { return is_reduced_float(node.type("input").dtype); }
bool is_no_float(const NodeView& node) { return self_dtype(node) == DType::kFloat64 || !is_floating(self_dtype(node)); }

/// The first tensor among self, other and exponent, or float if one of them is.
bool integral_result(const NodeView& node) {
  for (const std::string_view name : {"self", "other", "exponent"}) {
    if (!node.has(name)) continue;
    if (node.is_value(name) && !is_integral(node.type(name).dtype, true)) return false;
    if (!node.is_value(name) && node.expr(name).type() == ir::ExprType::kFloat) return false;
  }
  return true;
}
/// Numbers beyond 2^53 are possible.
bool long_result(const NodeView& node) {
  return integral_result(node) && ((node.is_value("self") && node.type("self").dtype == DType::kInt64) || (node.is_value("other") && node.type("other").dtype == DType::kInt64));
}
bool cuts_longs(const NodeView& node) { return !node.is_none("rounding_mode") && node.text("rounding_mode") == "trunc" && long_result(node); }
bool floors_floats(const NodeView& node) {
  if (node.has("rounding_mode") && (node.is_none("rounding_mode") || node.text("rounding_mode") != "floor")) return false;
  return !integral_result(node);
}
bool dynamic_target(const NodeView& node) { return !node.all_const("output_size"); }
bool dynamic_input(const NodeView& node) { return std::ranges::any_of(node.type("self").sizes, [](ir::Expr size) { return !size.is_const(); }); }
bool two_sided(const NodeView& node) { return !node.boolean("onesided"); }
bool any_form(const NodeView&) { return true; }
bool no_plain_conv2d(const NodeView& node) {
  const std::vector<ir::Expr> mask = node.exprs("output_mask");
  const bool all = std::ranges::all_of(mask, [](ir::Expr e) { return ir::is_number(e) && ir::number_of(e) != 0; });
  return node.type("input").rank() != 4 || node.boolean("transposed") || !all;
}
bool three_spatial_dims(const NodeView& node) { return node.type("input").rank() > 4; }

/// A form that an official kernel refuses or gets wrong, seen with the 1.5.1 package.
struct Limit {
  std::string_view op;
  bool (*applies)(const NodeView& node);
  std::string_view reason;
};

constexpr Limit kLimits[] = {
    {"aten::_adaptive_avg_pool2d", is_double, "the official kernel adds float64 in float32"},
    {"aten::_fft_r2c", two_sided, "the official kernel gives one side of the spectrum only"},
    {"aten::_log_softmax", is_double, "the official kernel takes no float64"},
    {"aten::_native_batch_norm_legit.no_stats", is_double, "the official kernel loses digits of float64"},
    {"aten::_native_batch_norm_legit_no_training", is_double, "the official kernel loses digits of float64"},
    {"aten::_upsample_bilinear2d_aa", is_no_float, "the official kernel computes float64 and integers in float32"},
    {"aten::_upsample_bilinear2d_aa", dynamic_target, "the official kernel takes no output size that varies"},
    {"aten::_upsample_bilinear2d_aa", dynamic_input, "the official kernel takes no batch or channels below their bound"},
    {"aten::constant_pad_nd", pads_negative, "the official kernel takes no negative padding"},
    {"aten::convolution", three_spatial_dims, "the official kernel has at most two spatial dims"},
    {"aten::convolution_backward", no_plain_conv2d, "the official kernel takes two spatial dims, no transposed convolution, and gives all three gradients"},
    {"aten::div.Scalar_mode", floors_floats, "the official floor division of floats gives inf for 0/0"},
    {"aten::div.Scalar_mode", cuts_longs, "the official division of integers towards zero goes through double"},
    {"aten::div.Tensor_mode", cuts_longs, "the official division of integers towards zero goes through double"},
    {"aten::div.Tensor_mode", floors_floats, "the official floor division of floats gives inf for 0/0"},
    {"aten::floor_divide", floors_floats, "the official floor division of floats gives inf for 0/0"},
    {"aten::fmod.Scalar", long_result, "the official remainder of integers goes through double"},
    {"aten::fmod.Tensor", long_result, "the official remainder of integers goes through double"},
    {"aten::grid_sampler_2d", is_reduced_input, "the official kernel rounds otherwise than PyTorch, which rounds each step"},
    {"aten::logit", is_reduced, "the official kernel takes no half or bfloat16"},
    {"aten::max_pool2d_with_indices_backward", any_form, "the official kernel adds to what stood in its result's memory"},
    {"aten::native_group_norm", is_double, "the official kernel loses digits of float64"},
    {"aten::native_layer_norm", is_double, "the official kernel loses digits of float64"},
    {"aten::pow.Scalar", integral_result, "the official integer power goes through double"},
    {"aten::pow.Tensor_Scalar", integral_result, "the official integer power goes through double"},
    {"aten::pow.Tensor_Tensor", integral_result, "the official integer power goes through double"},
    {"aten::remainder.Scalar", integral_result, "the official remainder of integers has the sign of the dividend"},
    {"aten::remainder.Tensor", integral_result, "the official remainder of integers has the sign of the dividend"},
    {"aten::sign", is_float, "the official sign of NaN is NaN"},
    {"aten::upsample_bilinear2d.vec", is_no_float, "the official kernel computes float64 and integers in float32"},
};

/// Operators whose official kernels take complex numbers.
constexpr std::string_view kComplex[] = {
    "aten::_conj_physical", "aten::_fft_c2r", "aten::_fft_r2c", "aten::abs", "aten::add.Tensor", "aten::bmm", "aten::cat", "aten::clone", "aten::full",
    "aten::index_select", "aten::mul.Tensor", "aten::sub.Tensor", "aten::sum.dim_IntList",
};

/// Sums and products have no complex form for tensors of one element.
bool complex_scalar(const ir::Graph& graph, const ir::Node& node) {
  const std::string_view name = node.op->name;
  if (name != "aten::mul.Tensor" && name != "aten::add.Tensor" && name != "aten::sub.Tensor") return false;
  bool one = false, complex = false;
  const auto look = [&](ir::ValueId& id) {
    if (!id.valid()) return;
    one = one || dim_is(ir::numel_of(graph[id].type.sizes), 1);
    complex = complex || is_complex(graph[id].type.dtype);
  };
  for (ir::Arg arg : node.args) ir::for_each_value(arg, look);
  return one && complex;
}

/// Dtypes that next to no official kernel takes, nor any conversion to another.
bool is_rare(DType d) { return is_float8(d) || d == DType::kUInt16 || d == DType::kUInt32 || d == DType::kUInt64; }

/// True for an argument or result of such a dtype.
bool has_dtype(const ir::Graph& graph, const ir::Node& node, bool (*is)(DType)) {
  bool found = false;
  const auto look = [&](ir::ValueId& id) { found = found || (id.valid() && graph[id].kind == ir::ValueKind::kTensor && is(graph[id].type.dtype)); };
  for (ir::Arg arg : node.args) ir::for_each_value(arg, look);
  for (ir::ValueId out : node.outputs) look(out);
  return found;
}

bool complex_beyond(const ir::Graph& graph, const ir::Node& node) {
  if (!executorch_has_kernel(node.op->kernel)) return false;  // said with all kernels that are missing
  if (complex_scalar(graph, node)) return true;
  if (!node.op->known || node.op->is_view() || node.op->has(ir::kAlias) || std::find(std::begin(kComplex), std::end(kComplex), node.op->name) != std::end(kComplex)) return false;
  return has_dtype(graph, node, [](DType d) { return is_complex(d); });
}

const Limit* limit_of(const ir::Graph& graph, const ir::Node& node) {
  for (const Limit& limit : kLimits) {
    if (node.op->name == limit.op && limit.applies(NodeView(graph, *node.op, node.args))) return &limit;
  }
  return nullptr;
}

/// What the official runtime has against the node; empty if nothing.
std::string_view problem_of(const ir::Graph& graph, const ir::Node& node) {
  if (const Limit* limit = limit_of(graph, node); limit != nullptr) return limit->reason;
  if (node.regions.empty() && complex_beyond(graph, node)) return "the official kernel takes no complex numbers";
  if (has_dtype(graph, node, is_rare)) return "the official runtime computes nothing in 8-bit floats and unsigned integers of 16 to 64 bits";
  return {};
}

void check_graph(const ir::Graph& graph, std::string* problems) {
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    const std::string_view problem = problem_of(graph, node);
    if (!problem.empty()) str_append(*problems, "\n  ", node.op->name, " at ", node.source.empty() ? str_cat("node ", node.name) : node.source, ": ", problem);
    for (const auto& region : node.regions) check_graph(*region, problems);
  }
}

}  // namespace

std::vector<FormLimit> executorch_limits() {
  std::vector<FormLimit> out;
  for (const Limit& limit : kLimits) out.push_back({limit.op, limit.reason});
  return out;
}

bool executorch_avoids(const ir::Graph& graph, const ir::Node& node) { return limit_of(graph, node) != nullptr; }

Status check_executorch_limits(const ir::Program& program) {
  std::string problems;
  for (const auto& method : program.methods) check_graph(method->graph, &problems);
  if (problems.empty()) return ok_status();
  return Status(Code::kUnsupported, str_cat("unsupported in the executorch profile:", problems));
}

std::function<bool(std::string_view kernel)> kernels_of(const CompileOptions& options, const Environment& environment) {
  const bool executorch = options.profile == Profile::kExecutorch;
  return [executorch, own = environment.has_kernel](std::string_view kernel) {
    return emit::is_control_flow(kernel) || (executorch ? executorch_has_kernel(kernel) : own(kernel));
  };
}

}  // namespace pteron::compiler
