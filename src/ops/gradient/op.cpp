// Gradients of pointwise operators and losses (training programs hold them) as arithmetic, in the order in which ATen computes them. No kernels.
#include <cmath>

#include "ops/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::gradient {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// Numbers of at::Reduction.
enum Reduction : int64_t { kNone = 0, kMean = 1 };

std::string_view grad_name(const NodeView& n) { return n.has("grad_output") ? "grad_output" : "grad_out"; }
std::string_view input_name(const NodeView& n) {
  if (n.has("self")) return "self";
  return n.has("output") ? "output" : n.has("mask") ? "mask" : "self_or_result";
}

Status infer_pointwise(InferContext& c) {
  const std::string_view grad = grad_name(c), in = input_name(c);
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {grad, in}, &sizes));
  const DType dtype = in == "mask" ? c.type(grad).dtype : result_type(c, {grad, in});
  c.add(elementwise_type(c, dtype, std::move(sizes), {grad, in}));
  return ok_status();
}
Status infer_input(InferContext& c) {
  c.add(c.type("self").dtype, c.type("self").sizes);
  return ok_status();
}
Status infer_prelu(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"grad_output", "self", "weight"}, &sizes));
  const TensorType type = elementwise_type(c, c.type("self").dtype, std::move(sizes), {"self"});
  c.add(type);
  c.add(type);
  return ok_status();
}

/// The arithmetic of one gradient: operands in the wide dtype, the result cast back.
class Gradient : public Portable {
 public:
  Gradient(Builder& builder, const NodeView& n) : Portable(builder) {
    g = wide(n.value(grad_name(n)));
    x = wide(n.value(input_name(n)));
    result_ = input_name(n) == "mask" ? b.type(n.value(grad_name(n))).dtype : promote_dtypes(n.type(grad_name(n)).dtype, n.type(input_name(n)).dtype);
  }
  Ids done(ValueId y) { return {to(y, result_)}; }
  /// number - x.
  ValueId from(double value, ValueId v) { return b.op("aten::rsub.Scalar", {v, b.floating(value)}); }
  ValueId sigmoid(ValueId v) { return unary("aten::sigmoid", v); }
  ValueId zero() { return number(0.0, dtype(g)); }

  ValueId g, x;

 private:
  DType result_;
};

Ids sigmoid_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  return f.done(f.mul(f.mul(f.g, f.from(1, f.x)), f.x));
}
Ids tanh_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  return f.done(f.mul(f.g, f.from(1, f.mul(f.x, f.x))));
}
Ids silu_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId s = f.sigmoid(f.x);
  return f.done(f.mul(f.mul(f.g, s), f.shift(f.mul(f.x, f.from(1, s)), 1)));
}
Ids gelu_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  constexpr double kTwoBySqrtPi = 1.12837916709551257390, kSqrtHalf = 0.70710678118654752440, kSqrt2 = 1.41421356237309504880;
  const ValueId square = f.mul(f.x, f.x);
  if (n.text("approximate") != "tanh") {
    const ValueId cdf = f.scale(f.shift(f.unary("aten::erf", f.scale(f.x, kSqrtHalf)), 1), 0.5);
    const ValueId pdf = f.scale(f.unary("aten::exp", f.scale(square, -0.5)), kTwoBySqrtPi * kSqrtHalf * 0.5);
    return f.done(f.mul(f.g, f.add(cdf, f.mul(f.x, pdf))));
  }
  constexpr double kBeta = kSqrt2 * kTwoBySqrtPi * 0.5, kKappa = 0.044715;
  const ValueId inner = f.scale(f.add(f.x, f.scale(f.mul(square, f.x), kKappa)), kBeta);
  const ValueId t = f.unary("aten::tanh", inner);
  const ValueId left = f.scale(f.x, 0.5);
  const ValueId inner_slope = f.scale(f.shift(f.scale(square, 3 * kKappa), 1), kBeta);
  const ValueId right_part = f.mul(f.mul(left, f.from(1, f.mul(t, t))), inner_slope);
  return f.done(f.mul(f.g, f.add(f.scale(f.shift(t, 1), 0.5), right_part)));
}
Ids hardsigmoid_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId inside = f.both(f.compare("gt", f.x, -3.0), f.compare("lt", f.x, 3.0));
  return f.done(f.where(inside, f.scale(f.g, 1.0 / 6.0), 0.0));
}
Ids hardswish_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId slope = f.mul(f.g, f.shift(f.div(f.x, f.number(3.0, f.dtype(f.x))), 0.5));
  return f.done(f.where(f.compare("le", f.x, -3.0), 0.0, f.where(f.compare("lt", f.x, 3.0), slope, f.g)));
}
Ids hardtanh_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId outside = f.either(f.compare("le", f.x, n.number("min_val")), f.compare("ge", f.x, n.number("max_val")));
  return f.done(f.where(outside, 0.0, f.g));
}
Ids leaky_relu_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  return f.done(f.where(f.compare("gt", f.x, 0.0), f.g, f.scale(f.g, n.number("negative_slope"))));
}
Ids elu_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const double negative = n.number("alpha") * n.number("scale"), inside = n.number("input_scale");
  const ValueId low = n.boolean("is_result") ? f.mul(f.scale(f.g, inside), f.shift(f.x, negative))
                                             : f.mul(f.scale(f.g, inside * negative), f.unary("aten::exp", f.scale(f.x, inside)));
  return f.done(f.where(f.compare("le", f.x, 0.0), low, f.scale(f.g, n.number("scale"))));
}
Ids log_sigmoid_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId below = f.compare("lt", f.x, 0.0);
  const ValueId z = f.unary("aten::exp", f.unary("aten::neg", f.unary("aten::abs", f.x)));
  const ValueId part = f.div(z, f.shift(z, 1));
  const ValueId slope = f.where(below, f.from(1, part), part);
  return f.done(f.mul(f.g, slope));
}
Ids logit_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const double eps = n.is_none("eps") ? 0 : n.number("eps");
  const ValueId outside = f.either(f.compare("lt", f.x, eps), f.compare("gt", f.x, 1 - eps));
  const ValueId inside = f.div(f.g, f.mul(f.x, f.from(1, f.x)));
  return f.done(f.where(outside, n.is_none("eps") ? std::numeric_limits<double>::quiet_NaN() : 0.0, inside));
}
Ids mish_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId s = f.sigmoid(f.x), t = f.unary("aten::tanh", b.op("aten::softplus", {f.x}));
  return f.done(f.mul(f.g, f.add(t, f.mul(f.mul(f.x, s), f.from(1, f.mul(t, t))))));
}
Ids softplus_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId scaled = f.scale(f.x, n.number("beta")), z = f.unary("aten::exp", scaled);
  return f.done(f.where(f.compare("gt", scaled, n.number("threshold")), f.g, f.div(f.mul(f.g, z), f.shift(z, 1))));
}
/// Integers too: the gradient where the input is over the threshold (or NaN).
Ids threshold_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = promote_dtypes(n.type("grad_output").dtype, n.type("self").dtype);
  const ValueId low = b.op("aten::le.Scalar", {n.value("self"), n.expr("threshold")});
  return {f.where(low, 0.0, f.to(n.value("grad_output"), dtype))};
}
Ids shrink_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const double limit = n.number("lambd");
  return f.done(f.where(f.both(f.compare("ge", f.x, -limit), f.compare("le", f.x, limit)), 0.0, f.g));
}
Ids dropout_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  return f.done(f.mul(f.g, f.scale(f.to(f.x, f.dtype(f.g)), n.number("scale"))));
}
Ids prelu_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId over = f.compare("gt", f.x, 0.0), weight = f.wide(n.value("weight"));
  const DType result = n.type("self").dtype;
  return {f.to(f.where(over, f.g, f.mul(weight, f.g)), result), f.to(f.where(over, 0.0, f.mul(f.x, f.g)), result)};
}
Ids glu_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  auto dim = wrap_dim_of(n.integer("dim"), f.rank(f.x));
  if (!dim.ok()) return b.fail(std::move(dim).status()), Ids{};
  const Expr half = f.size(f.g, *dim);
  const ValueId first = f.slice(f.x, *dim, 0, half), gate = f.sigmoid(f.slice(f.x, *dim, half, half + half));
  const ValueId to_first = f.mul(gate, f.g);
  return f.done(f.cat({to_first, f.mul(f.mul(f.from(1, gate), to_first), first)}, *dim));
}

/// What a loss's gradient is scaled with: 1 / elements for means.
bool reduction_is_mean(const NodeView& n) { return n.integer("reduction", kMean) == kMean; }
ValueId over_count(Gradient& f, const NodeView& n, ValueId y) {
  if (!reduction_is_mean(n)) return y;
  return f.div(y, f.number(ir::numel_of(n.type("self").sizes), f.dtype(y)));
}
ValueId difference(Gradient& f, const NodeView& n) { return f.sub(f.x, f.wide(n.value("target"))); }

Ids mse_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  return f.done(over_count(f, n, f.mul(f.scale(difference(f, n), 2), f.g)));
}
/// Slope of a loss that is a parabola within +-limit and a line outside.
Ids bounded_slope(Builder& b, const NodeView& n, double limit, double inside_factor, double outside_factor) {
  Gradient f(b, n);
  const ValueId d = difference(f, n);
  const ValueId outside = f.scale(f.g, outside_factor);
  const ValueId inside = f.mul(f.scale(d, inside_factor), f.g);
  const ValueId low = f.compare("le", d, -limit), high = f.compare("ge", d, limit);
  return f.done(over_count(f, n, f.where(low, f.unary("aten::neg", outside), f.where(high, outside, inside))));
}
Ids smooth_l1_backward(Builder& b, const NodeView& n) {
  const double beta = n.number("beta");
  return bounded_slope(b, n, beta, beta == 0 ? 0 : 1 / beta, 1);
}
Ids huber_backward(Builder& b, const NodeView& n) { return bounded_slope(b, n, n.number("delta"), 1, n.number("delta")); }
Ids bce_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId spread = b.op("aten::clamp_min", {f.mul(f.from(1, f.x), f.x), b.floating(1e-12)});
  ValueId y = f.div(f.mul(f.g, difference(f, n)), spread);
  if (!n.is_none("weight")) y = f.mul(y, f.wide(n.value("weight")));
  return f.done(over_count(f, n, y));
}
Ids soft_margin_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  const ValueId target = f.wide(n.value("target"));
  const ValueId z = f.unary("aten::exp", f.mul(f.unary("aten::neg", target), f.x));
  const ValueId y = f.div(f.mul(f.mul(f.unary("aten::neg", target), z), f.g), f.shift(z, 1));
  return f.done(over_count(f, n, y));
}
/// -grad * weight at the target of every row, 0 elsewhere and for ignored rows.
Ids nll_backward(Builder& b, const NodeView& n) {
  Gradient f(b, n);
  if (f.rank(f.x) < 1) return b.fail(Status(Code::kInvalidInput, "nll_loss of a tensor of rank 0")), Ids{};
  const int channel = f.rank(f.x) == 1 ? 0 : 1;
  ValueId grad = f.g;
  if (reduction_is_mean(n)) grad = f.div(grad, f.wide(n.value("total_weight")));
  const ValueId target = f.unsqueeze(n.value("target"), f.rank(f.x) == 1 && n.type("target").rank() == 1 ? -1 : channel);
  const ValueId column = f.rank(f.x) == 1 ? f.view(target, {Expr(1)}) : target;
  const ValueId kept = f.compare("ne", column, n.expr("ignore_index"));
  const ValueId safe = f.where(kept, column, f.number(0.0, DType::kInt64));
  const ValueId zeros = b.op("aten::full", {f.sizes(f.x), b.floating(0), f.dtype(f.x)});
  const ValueId marks = b.op("aten::scatter.value", {zeros, Expr(channel), safe, b.floating(-1)});
  if (f.rank(grad) > 0 && f.rank(grad) < f.rank(f.x)) grad = f.unsqueeze(grad, channel);
  if (!n.is_none("weight")) {
    std::vector<Expr> shape(static_cast<size_t>(f.rank(f.x)), Expr(1));
    shape[static_cast<size_t>(channel)] = f.size(f.x, channel);
    grad = f.mul(grad, f.view(f.wide(n.value("weight")), shape));
  }
  return f.done(f.mul(marks, f.where(kept, grad, 0.0)));
}

#define GRADIENT(text, how) {.schema = "aten::" text " -> Tensor", .infer = infer_pointwise, .decompose = how}
#define OF_INPUT(text, how) {.schema = "aten::" text " -> Tensor", .infer = infer_input, .decompose = how}
constexpr OpDef kTable[] = {
    {.schema = "aten::_prelu_kernel_backward(Tensor grad_output, Tensor self, Tensor weight) -> (Tensor, Tensor)", .infer = infer_prelu, .decompose = prelu_backward},
    OF_INPUT("binary_cross_entropy_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, int reduction=1)", bce_backward),
    GRADIENT("elu_backward(Tensor grad_output, Scalar alpha, Scalar scale, Scalar input_scale, bool is_result, Tensor self_or_result)", elu_backward),
    GRADIENT("gelu_backward(Tensor grad_output, Tensor self, *, str approximate='none')", gelu_backward),
    OF_INPUT("glu_backward(Tensor grad_output, Tensor self, int dim)", glu_backward),
    GRADIENT("hardshrink_backward(Tensor grad_out, Tensor self, Scalar lambd)", shrink_backward),
    GRADIENT("hardsigmoid_backward(Tensor grad_output, Tensor self)", hardsigmoid_backward),
    GRADIENT("hardswish_backward(Tensor grad_output, Tensor self)", hardswish_backward),
    GRADIENT("hardtanh_backward(Tensor grad_output, Tensor self, Scalar min_val, Scalar max_val)", hardtanh_backward),
    OF_INPUT("huber_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta)", huber_backward),
    GRADIENT("leaky_relu_backward(Tensor grad_output, Tensor self, Scalar negative_slope, bool self_is_result)", leaky_relu_backward),
    GRADIENT("log_sigmoid_backward(Tensor grad_output, Tensor self, Tensor buffer)", log_sigmoid_backward),
    GRADIENT("logit_backward(Tensor grad_output, Tensor self, float? eps=None)", logit_backward),
    GRADIENT("mish_backward(Tensor grad_output, Tensor self)", mish_backward),
    OF_INPUT("mse_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction)", mse_backward),
    GRADIENT("native_dropout_backward(Tensor grad_output, Tensor mask, float scale)", dropout_backward),
    OF_INPUT("nll_loss2d_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight)", nll_backward),
    OF_INPUT("nll_loss_backward(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, SymInt ignore_index, Tensor total_weight)", nll_backward),
    GRADIENT("sigmoid_backward(Tensor grad_output, Tensor output)", sigmoid_backward),
    GRADIENT("silu_backward(Tensor grad_output, Tensor self)", silu_backward),
    OF_INPUT("smooth_l1_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta)", smooth_l1_backward),
    OF_INPUT("soft_margin_loss_backward(Tensor grad_output, Tensor self, Tensor target, int reduction)", soft_margin_backward),
    GRADIENT("softplus_backward(Tensor grad_output, Tensor self, Scalar beta, Scalar threshold)", softplus_backward),
    GRADIENT("softshrink_backward(Tensor grad_output, Tensor self, Scalar lambd)", shrink_backward),
    GRADIENT("tanh_backward(Tensor grad_output, Tensor output)", tanh_backward),
    GRADIENT("threshold_backward(Tensor grad_output, Tensor self, Scalar threshold)", threshold_backward),
};
#undef GRADIENT
#undef OF_INPUT

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::gradient
