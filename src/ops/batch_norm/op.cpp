// batch_norm, instance_norm and the native batch norms for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
// Forms that write running statistics become _native_batch_norm_legit_functional in passes/resolve.cpp.
#include <span>

#include "ops/batch_norm/portable.h"
#include "ops/reduce_infer.h"

namespace pteron::ops::batch_norm {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

/// dtype of saved statistics: float32 if a 16-bit input meets float32 parameters, the input's otherwise.
DType stat_dtype(const NodeView& n) {
  const DType in = n.type("input").dtype;
  if (!is_reduced_float(in)) return in;
  for (const std::string_view name : {"weight", "bias", "running_mean", "running_var"}) {
    if (n.has(name) && !n.is_none(name) && n.type(name).dtype == DType::kFloat32) return DType::kFloat32;
  }
  return in;
}

Status check(const InferContext& c) {
  const TensorType& in = c.type("input");
  const bool empty = in.rank() == 1 && dim_is(in.sizes[0], 0);
  if (in.rank() < 2 && !empty) return Status(Code::kInvalidInput, str_cat("batch_norm expects at least two dims, found ", shape_text(in.sizes)));
  if (!is_floating(in.dtype)) return Status(Code::kInvalidInput, str_cat("batch_norm of dtype ", dtype_name(in.dtype)));
  for (const std::string_view name : {"weight", "bias", "running_mean", "running_var"}) {
    if (!c.has(name) || c.is_none(name)) continue;
    const TensorType& t = c.type(name);
    if (t.rank() != 1 || (!empty && dim_differ(t.sizes[0], in.sizes[1]))) {
      return Status(Code::kInvalidInput, str_cat(name, " of shape ", shape_text(t.sizes), " for an input of shape ", shape_text(in.sizes)));
    }
  }
  return ok_status();
}

void add_like_input(InferContext& c) { c.add(elementwise_type(c, c.type("input").dtype, c.type("input").sizes, {"input"})); }

Status infer_one(InferContext& c) {
  PTERON_TRY(check(c));
  add_like_input(c);
  return ok_status();
}

Status infer_three(InferContext& c, bool training) {
  PTERON_TRY(check(c));
  add_like_input(c);
  const Expr saved = training && c.type("input").rank() > 1 ? c.type("input").sizes[1] : Expr(0);
  for (int i = 0; i < 2; ++i) c.add(stat_dtype(c), {saved});
  return ok_status();
}
Status infer_native(InferContext& c) { return infer_three(c, c.boolean("training")); }
Status infer_no_stats(InferContext& c) { return infer_three(c, true); }
Status infer_no_training(InferContext& c) { return infer_three(c, false); }
Status infer_functional(InferContext& c) {
  PTERON_TRY(infer_native(c));
  c.add(c.type("running_mean").dtype, c.type("running_mean").sizes);
  c.add(c.type("running_var").dtype, c.type("running_var").sizes);
  return ok_status();
}

Ids decompose_batch_norm(Builder& b, const NodeView& n) {
  const Arg input = n.value("input");
  if (!n.boolean("training")) {
    return {b.op("aten::_native_batch_norm_legit_no_training", {input, n.arg("weight"), n.arg("bias"), n.arg("running_mean"), n.arg("running_var"),
                                                                n.expr("momentum"), n.expr("eps")})};
  }
  return {b.op("aten::_native_batch_norm_legit.no_stats", {input, n.arg("weight"), n.arg("bias"), b.boolean(true), n.expr("momentum"), n.expr("eps")})};
}

/// Statistics of the batch normalise; the input's own ones when it has no running ones to update.
Ids decompose_native(Builder& b, const NodeView& n) {
  const Arg input = n.value("input");
  if (!n.boolean("training")) {
    return b.ops("aten::_native_batch_norm_legit_no_training", {input, n.arg("weight"), n.arg("bias"), n.arg("running_mean"), n.arg("running_var"),
                                                                n.expr("momentum"), n.expr("eps")});
  }
  return b.ops("aten::_native_batch_norm_legit.no_stats", {input, n.arg("weight"), n.arg("bias"), b.boolean(true), n.expr("momentum"), n.expr("eps")});
}

/// (1 - momentum) * old + momentum * now.
ValueId moved(Builder& b, ValueId old, ValueId now, double momentum) {
  const ValueId kept = b.op("aten::mul.Scalar", {old, b.floating(1 - momentum)});
  const ValueId sum = b.op("aten::add.Tensor", {kept, b.op("aten::mul.Scalar", {now, b.floating(momentum)})});
  return cast_to(b, sum, b.type(old).dtype);
}

/// For profiles without the kernel.
Ids decompose_functional(Builder& b, const NodeView& n) {
  const TensorType in = n.type("input");
  if (!n.boolean("training")) {
    Ids made = decompose_native(b, n);
    made.push_back(n.value("running_mean"));
    made.push_back(n.value("running_var"));
    return made;
  }
  Ids made = decompose_native(b, n);
  const DType compute = is_reduced_float(in.dtype) ? DType::kFloat32 : in.dtype;
  const uint32_t others = ((uint32_t{1} << in.rank()) - 1u) & ~2u;
  const Ids both = b.ops("aten::var_mean.correction", {cast_to(b, n.value("input"), compute), mask_dims(others, in.rank()), Expr(1), b.boolean(false)});
  if (both.size() != 2) return {};
  const double momentum = n.number("momentum");
  made.push_back(moved(b, n.value("running_mean"), both[1], momentum));
  made.push_back(moved(b, n.value("running_var"), both[0], momentum));
  return made;
}

/// Every channel of every image on its own is a group norm with one channel per group.
Ids decompose_instance_norm(Builder& b, const NodeView& n) {
  const TensorType& in = n.type("input");
  if (!n.boolean("use_input_stats")) {
    return {b.op("aten::_native_batch_norm_legit_no_training", {n.value("input"), n.arg("weight"), n.arg("bias"), n.arg("running_mean"),
                                                                n.arg("running_var"), n.expr("momentum"), n.expr("eps")})};
  }
  if (!in.sizes[1].is_const()) return {};
  Expr pixels = 1;
  for (size_t d = 2; d < in.sizes.size(); ++d) pixels = pixels * in.sizes[d];
  return {b.op("aten::native_group_norm",
               {n.value("input"), n.arg("weight"), n.arg("bias"), in.sizes[0], in.sizes[1], pixels, in.sizes[1], n.expr("eps")})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, "
               "float momentum, float eps, bool cudnn_enabled) -> Tensor",
     .infer = infer_one,
     .decompose = decompose_batch_norm},
    {.schema = "aten::native_batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, "
               "float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     .infer = infer_native,
     .decompose = decompose_native,
     .kernel = "aten::native_batch_norm.out"},
    {.schema = "aten::_native_batch_norm_legit(Tensor input, Tensor? weight, Tensor? bias, Tensor(a!) running_mean, Tensor(b!) running_var, "
               "bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     .infer = infer_native,
     .decompose = decompose_native},
    {.schema = "aten::_native_batch_norm_legit.no_stats(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> "
               "(Tensor, Tensor, Tensor)",
     .infer = infer_no_stats,
     .decompose = portable_no_stats,
     .kernel = "aten::_native_batch_norm_legit.no_stats_out"},
    {.schema = "aten::_native_batch_norm_legit_no_training(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, "
               "float momentum, float eps) -> (Tensor, Tensor, Tensor)",
     .infer = infer_no_training,
     .decompose = portable_no_training,
     .kernel = "aten::_native_batch_norm_legit_no_training.out"},
    {.schema = "aten::_native_batch_norm_legit_functional(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, "
               "bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor, Tensor running_mean_out, Tensor running_var_out)",
     .infer = infer_functional,
     .decompose = decompose_functional,
     .kernel = "pteron::_native_batch_norm_legit_functional.out"},
    {.schema = "aten::instance_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, "
               "float momentum, float eps, bool cudnn_enabled) -> Tensor",
     .infer = infer_one,
     .decompose = decompose_instance_norm},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::batch_norm
