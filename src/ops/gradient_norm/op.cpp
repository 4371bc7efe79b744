// Gradients of softmax and of the norms (training programs hold them) as arithmetic and sums, in the order in which ATen computes them. No kernels.
#include "ops/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::gradient_norm {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_softmax(InferContext& c) {
  c.add(c.dtype("input_dtype", c.type("grad_output").dtype), c.type("grad_output").sizes);
  return ok_status();
}

/// Results of a norm: gradients of the input, the weight and the bias, None where the mask says so. Weight and bias have their own sizes.
Status infer_masked(InferContext& c, const std::vector<Expr>& parameter_sizes) {
  const std::vector<bool> mask = flags_of(c, "output_mask");
  const TensorType& in = c.type("input");
  const DType weight = c.is_none("weight") ? in.dtype : c.type("weight").dtype;
  for (size_t k = 0; k < mask.size(); ++k) {
    if (!mask[k]) {
      c.add_none();
    } else if (k == 0) {
      c.add(in.dtype, in.sizes);
    } else {
      c.add(k == 2 && c.has("bias") && !c.is_none("bias") ? c.type("bias").dtype : weight, parameter_sizes);
    }
  }
  return ok_status();
}
Status infer_trailing(InferContext& c) { return infer_masked(c, c.exprs("normalized_shape")); }
Status infer_channels(InferContext& c) { return infer_masked(c, {c.type("input").sizes.size() > 1 ? c.type("input").sizes[1] : Expr(1)}); }
Status infer_group(InferContext& c) { return infer_masked(c, {c.expr("C")}); }

/// out * (grad - sum(grad * out)).
Ids softmax_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId g = f.wide(n.value("grad_output")), y = f.wide(n.value("output"));
  const std::vector<Expr> dim{n.expr("dim")};
  const ValueId product = f.mul(g, y);
  const ValueId total = f.rank(y) == 0 ? product : f.sum(product, dim, true);
  return {f.to(f.sub(product, f.mul(y, total)), n.dtype("input_dtype", n.type("grad_output").dtype))};
}
Ids log_softmax_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId g = f.wide(n.value("grad_output")), y = f.wide(n.value("output"));
  const ValueId total = f.rank(y) == 0 ? g : f.sum(g, {n.expr("dim")}, true);
  return {f.to(f.sub(g, f.mul(f.unary("aten::exp", y), total)), n.dtype("input_dtype", n.type("grad_output").dtype))};
}

/// The common parts of a norm's gradient.
struct Parts {
  ValueId g, x;
  std::vector<bool> mask;
  bool wants(size_t k) const { return k < mask.size() && mask[k]; }
};
Parts parts_of(Portable& f, const NodeView& n) {
  return {f.wide(n.value(n.has("grad_out") ? "grad_out" : "grad_output")), f.wide(n.value("input")), flags_of(n, "output_mask")};
}
ValueId optional_wide(Portable& f, const NodeView& n, std::string_view name) { return n.is_none(name) ? ValueId() : f.wide(n.value(name)); }
std::vector<Expr> dims_between(int64_t first, int64_t last) {
  std::vector<Expr> out;
  for (int64_t d = first; d < last; ++d) out.emplace_back(d);
  return out;
}
/// The sum over some dims, x itself for none.
ValueId sum_over(Portable& f, ValueId x, const std::vector<Expr>& dims, bool keepdim) { return dims.empty() ? x : f.sum(x, dims, keepdim); }
ValueId mean_over(Portable& f, ValueId x, const std::vector<Expr>& dims) { return dims.empty() ? x : f.b.op("aten::mean.dim", {x, dims, f.b.boolean(true)}); }
DType parameter_dtype(const NodeView& n, std::string_view name) {
  if (n.has(name) && !n.is_none(name)) return n.type(name).dtype;
  return n.is_none("weight") ? n.type("input").dtype : n.type("weight").dtype;
}

Ids layer_norm_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const Parts p = parts_of(f, n);
  const int64_t rank = f.rank(p.x), inner = static_cast<int64_t>(n.exprs("normalized_shape").size());
  const std::vector<Expr> inside = dims_between(rank - inner, rank), outside = dims_between(0, rank - inner);
  const ValueId rstd = f.wide(n.value("rstd")), weight = optional_wide(f, n, "weight");
  const ValueId normal = f.mul(f.sub(p.x, f.wide(n.value("mean"))), rstd);
  Ids out(3);
  if (p.wants(0)) {
    const ValueId scaled = weight.valid() ? f.mul(p.g, weight) : p.g;
    const ValueId bias_part = mean_over(f, scaled, inside), scale_part = f.mul(normal, mean_over(f, f.mul(scaled, normal), inside));
    out[0] = f.to(f.mul(rstd, f.sub(f.sub(scaled, bias_part), scale_part)), n.type("input").dtype);
  }
  if (p.wants(1)) out[1] = f.to(sum_over(f, f.mul(p.g, normal), outside, false), parameter_dtype(n, "weight"));
  if (p.wants(2)) out[2] = f.to(sum_over(f, p.g, outside, false), parameter_dtype(n, "bias"));
  return out;
}

Ids rms_norm_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const Parts p = parts_of(f, n);
  const int64_t rank = f.rank(p.x), inner = static_cast<int64_t>(n.exprs("normalized_shape").size());
  const ValueId rstd = f.wide(n.value("rstd")), weight = optional_wide(f, n, "weight");
  const ValueId normal = f.mul(p.x, rstd);
  Ids out(2);
  if (p.wants(0)) {
    const ValueId scaled = weight.valid() ? f.mul(p.g, weight) : p.g;
    const ValueId part = f.mul(normal, mean_over(f, f.mul(scaled, normal), dims_between(rank - inner, rank)));
    out[0] = f.to(f.mul(rstd, f.sub(scaled, part)), n.type("input").dtype);
  }
  if (p.wants(1)) out[1] = f.to(sum_over(f, f.mul(p.g, normal), dims_between(0, rank - inner), false), parameter_dtype(n, "weight"));
  return out;
}

Ids group_norm_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const Parts p = parts_of(f, n);
  const Expr batch = n.expr("N"), channels = n.expr("C"), pixels = n.expr("HxW"), groups = n.expr("group"), inside = floor_div(channels, groups);
  const ValueId weight = optional_wide(f, n, "weight");
  const std::vector<Expr> grouped{batch, groups, inside}, per_group{batch, groups}, whole{batch, groups, inside, pixels}, last{Expr(2)};
  const ValueId mean = f.view(f.wide(n.value("mean")), per_group), rstd = f.view(f.wide(n.value("rstd")), per_group);
  const ValueId g = f.view(p.g, {batch, channels, pixels}), x = f.view(p.x, {batch, channels, pixels});
  const ValueId ds = f.view(f.sum(f.mul(g, x), last), grouped), db = f.view(f.sum(g, last), grouped);
  const ValueId factors = weight.valid() ? f.view(weight, {Expr(1), groups, inside}) : ValueId();
  Ids out(3);
  if (p.wants(0)) {
    const ValueId share = f.number(pixels * inside, f.dtype(x));
    const ValueId ds_group = f.sum(weight.valid() ? f.mul(ds, factors) : ds, last), db_group = f.sum(weight.valid() ? f.mul(db, factors) : db, last);
    const ValueId cube = f.mul(f.mul(rstd, rstd), rstd);
    const ValueId c2 = f.div(f.mul(f.sub(f.mul(db_group, mean), ds_group), cube), share);
    const ValueId c3 = f.unary("aten::neg", f.add(f.mul(c2, mean), f.div(f.mul(db_group, rstd), share)));
    const auto spread = [&](ValueId v) { return f.unsqueeze(f.unsqueeze(v, 2), 3); };
    const ValueId c1 = weight.valid() ? f.unsqueeze(f.mul(f.unsqueeze(rstd, 2), factors), 3) : spread(rstd);
    const ValueId y = f.add(f.add(f.mul(f.view(g, whole), c1), f.mul(f.view(x, whole), spread(c2))), spread(c3));
    out[0] = f.to(f.view(y, n.type("input").sizes), n.type("input").dtype);
  }
  const std::vector<Expr> over_batch{Expr(0)};
  if (p.wants(1)) {
    const ValueId scaled = f.mul(f.sub(ds, f.mul(db, f.unsqueeze(mean, 2))), f.unsqueeze(rstd, 2));
    out[1] = f.to(f.view(f.sum(scaled, over_batch), {channels}), parameter_dtype(n, "weight"));
  }
  if (p.wants(2)) out[2] = f.to(f.view(f.sum(db, over_batch), {channels}), parameter_dtype(n, "weight"));
  return out;
}

Ids batch_norm_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const Parts p = parts_of(f, n);
  const bool train = n.boolean("train");
  const int64_t rank = f.rank(p.x);
  if (rank < 2) return b.fail(Status(Code::kInvalidInput, str_cat("batch norm of ", shape_text(f.sizes(p.x))))), Ids{};
  std::vector<Expr> dims{Expr(0)}, shape(static_cast<size_t>(rank), Expr(1));
  for (int64_t d = 2; d < rank; ++d) dims.emplace_back(d);
  shape[1] = f.size(p.x, 1);
  Expr count = f.size(p.x, 0);
  for (int64_t d = 2; d < rank; ++d) count = count * f.size(p.x, static_cast<int>(d));
  const ValueId mean = f.wide(n.value(train ? "save_mean" : "running_mean"));
  const ValueId invstd = train ? f.wide(n.value("save_invstd")) : f.unary("aten::rsqrt", f.shift(f.wide(n.value("running_var")), n.number("eps")));
  const ValueId weight = optional_wide(f, n, "weight");
  const ValueId centred = f.sub(p.x, f.view(mean, shape));
  const ValueId total = f.sum(p.g, dims), dot = f.sum(f.mul(p.g, centred), dims);
  Ids out(3);
  if (p.wants(0)) {
    const ValueId factor = f.view(weight.valid() ? f.mul(invstd, weight) : invstd, shape);
    ValueId y = p.g;
    if (train) {
      const ValueId number = f.number(count, f.dtype(p.x));
      const ValueId slope = f.view(f.mul(f.div(dot, number), f.mul(invstd, invstd)), shape);
      y = f.sub(f.sub(y, f.mul(centred, slope)), f.view(f.div(total, number), shape));
    }
    out[0] = f.to(f.mul(y, factor), n.type("input").dtype);
  }
  if (p.wants(1)) out[1] = f.to(f.mul(dot, invstd), parameter_dtype(n, "weight"));
  if (p.wants(2)) out[2] = f.to(total, parameter_dtype(n, "weight"));
  return out;
}

constexpr OpDef kTable[] = {
    {.schema = "aten::_fused_rms_norm_backward(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, bool[2] output_mask) -> (Tensor, Tensor)",
     .infer = infer_trailing, .decompose = rms_norm_backward},
    {.schema = "aten::_log_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
     .infer = infer_softmax, .decompose = log_softmax_backward},
    {.schema = "aten::_softmax_backward_data(Tensor grad_output, Tensor output, int dim, ScalarType input_dtype) -> Tensor",
     .infer = infer_softmax, .decompose = softmax_backward},
    {.schema = "aten::native_batch_norm_backward(Tensor grad_out, Tensor input, Tensor? weight, Tensor? running_mean, Tensor? running_var, "
               "Tensor? save_mean, Tensor? save_invstd, bool train, float eps, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
     .infer = infer_channels, .decompose = batch_norm_backward},
    {.schema = "aten::native_group_norm_backward(Tensor grad_out, Tensor input, Tensor mean, Tensor rstd, Tensor? weight, SymInt N, SymInt C, "
               "SymInt HxW, int group, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
     .infer = infer_group, .decompose = group_norm_backward},
    {.schema = "aten::native_layer_norm_backward(Tensor grad_out, Tensor input, SymInt[] normalized_shape, Tensor mean, Tensor rstd, "
               "Tensor? weight, Tensor? bias, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
     .infer = infer_trailing, .decompose = layer_norm_backward},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::gradient_norm
