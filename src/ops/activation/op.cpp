// Activation functions: schemas, inference, decompositions. Runtime half: kernel.cpp.
#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "ops/activation/portable.h"
#include "ops/infer.h"
#include "ops/portable.h"

namespace pteron::ops::activation {

namespace {

using ir::Builder;

Status infer_glu(InferContext& c) {
  TensorType type = c.type("self");
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim", -1), type.rank()));
  Expr& size = type.sizes[static_cast<size_t>(dim)];
  if (size.is_const() && size.value() % 2 != 0) return Status(Code::kInvalidInput, str_cat("glu halves an even size, found ", size.value()));
  size = floor_div(size, 2);
  c.add(type.dtype, type.sizes);
  return ok_status();
}
Status infer_prelu(InferContext& c) { return infer_like_self(c); }
Status infer_prelu_kernel(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "weight"}, &sizes));
  c.add(elementwise_type(c, c.type("self").dtype, std::move(sizes), {"self", "weight"}));
  return ok_status();
}
Status infer_log_sigmoid_forward(InferContext& c) {
  PTERON_TRY(infer_like_self(c));
  c.add(c.type("self").dtype, {Expr(0)});
  return ok_status();
}
Status infer_dropout(InferContext& c) {
  c.add(c.type("input"));
  return ok_status();
}
Status infer_native_dropout(InferContext& c) {
  c.add(elementwise_type(c, c.type("input").dtype, c.type("input").sizes, {"input"}));
  c.add(elementwise_type(c, DType::kBool, c.type("input").sizes, {"input"}));
  return ok_status();
}

std::vector<ValueId> decompose_relu6(Builder& b, const NodeView& n) { return {b.op("aten::hardtanh", {n.value("self"), Expr(0), Expr(6)})}; }
std::vector<ValueId> decompose_selu(Builder& b, const NodeView& n) {
  return {b.op("aten::elu", {n.value("self"), b.floating(1.6732632423543772848170429916717), b.floating(1.0507009873554804934193349852946)})};
}
std::vector<ValueId> decompose_celu(Builder& b, const NodeView& n) {
  const double alpha = n.number("alpha", 1);
  return {b.op("aten::elu", {n.value("self"), b.floating(alpha), b.floating(1.0), b.floating(1.0 / alpha)})};
}
/// The weight of prelu belongs to dim 1.
std::vector<ValueId> decompose_prelu(Builder& b, const NodeView& n) {
  const TensorType& self = n.type("self");
  ValueId weight = n.value("weight");
  const TensorType& type = n.type(weight);
  if (self.rank() != type.rank() || type.rank() != 1) {
    std::vector<Expr> sizes(static_cast<size_t>(self.rank()), Expr(1));
    if (sizes.size() > 1) sizes[1] = ir::numel_of(type.sizes);
    weight = b.op("aten::view", {weight, std::move(sizes)});
  }
  return {b.op("aten::_prelu_kernel", {n.value("self"), weight})};
}
/// Outside training leaky_relu with the mean slope; in training slopes are drawn per element.
std::vector<ValueId> decompose_rrelu(Builder& b, const NodeView& n) {
  if (n.boolean("training")) {
    Portable f(b);
    const ValueId x = f.wide(n.value("self")), drawn = b.op("aten::rand", {f.sizes(x), f.dtype(x)});
    const ValueId slope = f.shift(f.scale(drawn, n.number("upper") - n.number("lower")), n.number("lower"));
    return {f.to(f.where(f.compare("le", x, 0.0), f.mul(x, slope), x), n.type("self").dtype)};
  }
  return {b.op("aten::leaky_relu", {n.value("self"), b.floating((n.number("lower") + n.number("upper")) / 2)})};
}
/// Dropout does nothing outside training or with p = 0.
bool drops(const NodeView& n) { return n.boolean("train") && n.number("p") != 0; }
std::vector<ValueId> decompose_dropout(Builder& b, const NodeView& n) {
  if (!drops(n)) return {n.value("input")};
  std::vector<ValueId> made = b.ops("aten::native_dropout", {n.value("input"), n.expr("p"), b.boolean(true)});
  made.resize(std::min<size_t>(made.size(), 1));  // none if it failed
  return made;
}
/// Elements or whole channels (the two leading dims) are dropped; alpha_dropout keeps mean and variance of selu's output.
std::vector<ValueId> drop(Builder& b, const NodeView& n, bool channels, bool alpha) {
  if (!drops(n)) return {n.value("input")};
  Portable f(b);
  const double p = n.number("p");
  const ValueId x = f.wide(n.value("input"));
  const DType dtype = n.type("input").dtype;
  if (p == 1) return {f.to(f.scale(x, 0), dtype)};
  std::vector<Expr> sizes = f.sizes(x);
  for (size_t d = 2; channels && d < sizes.size(); ++d) sizes[d] = Expr(1);
  const ValueId kept = f.compare("ge", b.op("aten::rand", {sizes, f.dtype(x)}), p);
  if (!alpha) return {f.to(f.where(kept, f.scale(x, 1 / (1 - p)), 0.0), dtype)};
  constexpr double kAlpha = 1.7580993408473766;
  const double a = 1 / std::sqrt((kAlpha * kAlpha * p + 1) * (1 - p)), shift = kAlpha * a * p;
  return {f.to(f.where(kept, f.shift(f.scale(x, a), shift), shift - kAlpha * a), dtype)};
}
template <bool channels, bool alpha>
std::vector<ValueId> decompose_drop(Builder& b, const NodeView& n) {
  return drop(b, n, channels, alpha);
}
std::vector<ValueId> decompose_native_dropout(Builder& b, const NodeView& n) {
  if (n.boolean("train", true) && n.number("p") != 0) return {};
  return {n.value("input"), b.op("aten::full_like", {n.value("input"), b.boolean(true), DType::kBool})};
}
std::vector<ValueId> decompose_log_sigmoid_forward(Builder& b, const NodeView& n) {
  return {b.op("aten::log_sigmoid", {n.value("self")}), b.op("aten::full", {std::vector<Expr>{Expr(0)}, Expr(0), n.type("self").dtype})};
}

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::_prelu_kernel(Tensor self, Tensor weight) -> Tensor", .infer = infer_prelu_kernel, .decompose = portable_prelu, .kernel = "aten::_prelu_kernel.out"},
    {.schema = "aten::alpha_dropout(Tensor input, float p, bool train) -> Tensor", .infer = infer_dropout, .decompose = decompose_drop<false, true>},
    {.schema = "aten::celu(Tensor self, Scalar alpha=1.) -> Tensor", .infer = infer_like_self, .decompose = decompose_celu},
    {.schema = "aten::dropout(Tensor input, float p, bool train) -> Tensor", .infer = infer_dropout, .decompose = decompose_dropout},
    {.schema = "aten::elu(Tensor self, Scalar alpha=1, Scalar scale=1, Scalar input_scale=1) -> Tensor",
     .infer = infer_like_self,
     .kernel = "aten::elu.out", .flags = ir::kInPlace},
    {.schema = "aten::feature_alpha_dropout(Tensor input, float p, bool train) -> Tensor", .infer = infer_dropout, .decompose = decompose_drop<true, true>},
    {.schema = "aten::feature_dropout(Tensor input, float p, bool train) -> Tensor", .infer = infer_dropout, .decompose = decompose_drop<true, false>},
    {.schema = "aten::gelu(Tensor self, *, str approximate='none') -> Tensor", .infer = infer_like_self, .kernel = "aten::gelu.out", .flags = ir::kInPlace},
    {.schema = "aten::glu(Tensor self, int dim=-1) -> Tensor", .infer = infer_glu, .kernel = "aten::glu.out"},
    {.schema = "aten::hardshrink(Tensor self, Scalar lambd=0.5) -> Tensor", .infer = infer_like_self, .decompose = portable_hardshrink, .kernel = "aten::hardshrink.out", .flags = ir::kInPlace},
    {.schema = "aten::hardsigmoid(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = portable_hardsigmoid, .kernel = "aten::hardsigmoid.out", .flags = ir::kInPlace},
    {.schema = "aten::hardswish(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = portable_hardswish, .kernel = "aten::hardswish.out", .flags = ir::kInPlace},
    {.schema = "aten::hardtanh(Tensor self, Scalar min_val=-1, Scalar max_val=1) -> Tensor", .infer = infer_like_self, .kernel = "aten::hardtanh.out", .flags = ir::kInPlace},
    {.schema = "aten::leaky_relu(Tensor self, Scalar negative_slope=0.01) -> Tensor", .infer = infer_like_self, .kernel = "aten::leaky_relu.out", .flags = ir::kInPlace},
    {.schema = "aten::log_sigmoid(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = portable_log_sigmoid, .kernel = "aten::log_sigmoid.out"},
    {.schema = "aten::log_sigmoid_forward(Tensor self) -> (Tensor output, Tensor buffer)",
     .infer = infer_log_sigmoid_forward,
     .decompose = decompose_log_sigmoid_forward},
    {.schema = "aten::mish(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = portable_mish, .kernel = "aten::mish.out", .flags = ir::kInPlace},
    {.schema = "aten::native_dropout(Tensor input, float p, bool? train) -> (Tensor, Tensor)",
     .infer = infer_native_dropout,
     .decompose = decompose_native_dropout,
     .kernel = "aten::native_dropout.out",
     .flags = ir::kRandom},
    {.schema = "aten::prelu(Tensor self, Tensor weight) -> Tensor", .infer = infer_prelu, .decompose = decompose_prelu},
    {.schema = "aten::relu6(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = decompose_relu6},
    {.schema = "aten::rrelu(Tensor self, Scalar lower=0.125, Scalar upper=0.33333333333333331, bool training=False, "
               "Generator? generator=None) -> Tensor",
     .infer = infer_like_self,
     .decompose = decompose_rrelu},
    {.schema = "aten::selu(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = decompose_selu},
    {.schema = "aten::silu(Tensor self) -> Tensor", .infer = infer_like_self, .decompose = portable_silu, .kernel = "aten::silu.out", .flags = ir::kInPlace},
    {.schema = "aten::softplus(Tensor self, Scalar beta=1, Scalar threshold=20) -> Tensor", .infer = infer_like_self, .decompose = portable_softplus, .kernel = "aten::softplus.out", .flags = ir::kInPlace},
    {.schema = "aten::softshrink(Tensor self, Scalar lambd=0.5) -> Tensor", .infer = infer_like_self, .decompose = portable_softshrink, .kernel = "aten::softshrink.out", .flags = ir::kInPlace},
    {.schema = "aten::threshold(Tensor self, Scalar threshold, Scalar value) -> Tensor", .infer = infer_like_self, .decompose = portable_threshold, .kernel = "aten::threshold.out", .flags = ir::kInPlace},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::activation
