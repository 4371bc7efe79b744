// The engine's own operators: schemas and inference. Kernels: backends/cpu/runtime/{linear,conv,products16,quantized_linear,quantized_conv}.cpp.
#include "backends/cpu/aot/rewrites.h"
#include "base/str_cat.h"
#include "ir/builder.h"
#include "ops/conv/shape.h"
#include "ops/infer.h"

namespace pteron::cpu {
namespace {

using ir::Expr;
using ir::InferContext;

Status infer_linear(InferContext& c) {
  std::vector<Expr> sizes = c.type("x").sizes;
  if (sizes.empty() || c.type("weight").rank() != 2) return Status(Code::kInvalidInput, "pteron_cpu::linear: ranks do not fit");
  sizes.back() = c.type("weight").sizes[0];
  c.add(c.type("x").dtype, std::move(sizes));
  return ok_status();
}

Status infer_conv2d(InferContext& c) {
  const ir::TensorType &x = c.type("x"), &weight = c.type("weight");
  if (x.rank() != 4 || weight.rank() != 4) return Status(Code::kInvalidInput, "pteron_cpu::conv2d: ranks do not fit");
  const std::vector<Expr> stride = c.exprs("stride"), padding = c.exprs("padding"), dilation = c.exprs("dilation");
  std::vector<Expr> sizes{x.sizes[0], weight.sizes[0]};
  for (size_t d = 0; d < 2; ++d) sizes.push_back(ops::conv::forward_size(x.sizes[d + 2], weight.sizes[d + 2], stride[d], padding[d], dilation[d]));
  ir::TensorType type = ir::contiguous_type(x.dtype, std::move(sizes));
  const Expr channels = dim_max(type.sizes[1], 1), width = dim_max(type.sizes[3], 1), height = dim_max(type.sizes[2], 1);
  type.strides = {channels * width * height, 1, channels * width, channels};
  c.add(std::move(type));
  return ok_status();
}

Status infer_gated(InferContext& c) {
  const ir::TensorType &x = c.type("x"), &gate = c.type("gate"), &weight = c.type("weight");
  if (x.rank() != 4 || gate.rank() != 4 || weight.rank() != 4) return Status(Code::kInvalidInput, "pteron_cpu::gated_conv2d: ranks do not fit");
  ir::TensorType type = ir::contiguous_type(x.dtype, {x.sizes[0], weight.sizes[0], x.sizes[2], x.sizes[3]});
  const Expr channels = dim_max(type.sizes[1], 1), width = dim_max(type.sizes[3], 1), height = dim_max(type.sizes[2], 1);
  type.strides = {channels * width * height, 1, channels * width, channels};
  c.add(std::move(type));
  return ok_status();
}

Status infer_linear16(InferContext& c) {
  PTERON_TRY(infer_linear(c));
  c.results.back().type.dtype = c.dtype("dtype", DType::kFloat32);
  return ok_status();
}

/// The weight is [out, y, x, in].
Status infer_conv2d16(InferContext& c) {
  const ir::TensorType &x = c.type("x"), &weight = c.type("weight");
  if (x.rank() != 4 || weight.rank() != 4) return Status(Code::kInvalidInput, "pteron_cpu::conv2d16: ranks do not fit");
  const std::vector<Expr> stride = c.exprs("stride"), padding = c.exprs("padding"), dilation = c.exprs("dilation");
  std::vector<Expr> sizes{x.sizes[0], weight.sizes[0]};
  for (size_t d = 0; d < 2; ++d) sizes.push_back(ops::conv::forward_size(x.sizes[d + 2], weight.sizes[d + 1], stride[d], padding[d], dilation[d]));
  ir::TensorType type = ir::contiguous_type(c.dtype("dtype", DType::kFloat32), std::move(sizes));
  const Expr channels = dim_max(type.sizes[1], 1), width = dim_max(type.sizes[3], 1), height = dim_max(type.sizes[2], 1);
  type.strides = {channels * width * height, 1, channels * width, channels};
  c.add(std::move(type));
  return ok_status();
}

Status infer_qlinear(InferContext& c) {
  std::vector<Expr> sizes = c.type("x").sizes;
  if (sizes.empty() || c.type("weight").rank() != 2) return Status(Code::kInvalidInput, "pteron_cpu::qlinear: ranks do not fit");
  sizes.back() = c.type("weight").sizes[0];
  c.add(c.dtype("dtype", DType::kFloat32), std::move(sizes));
  return ok_status();
}

Status infer_qconv2d(InferContext& c) {
  PTERON_TRY(infer_conv2d(c));
  c.results.back().type.dtype = c.dtype("dtype", DType::kFloat32);
  return ok_status();
}

/// Sizes of what a pointwise program makes.
Status pointwise_sizes(InferContext& c, std::vector<Expr>* sizes) {
  *sizes = c.type("self").sizes;
  for (const ir::ValueId other : c.values("others")) {
    const std::vector<Expr> before = *sizes;
    PTERON_TRY(ops::broadcast_exprs(before, c.type(other).sizes, sizes));
  }
  return ok_status();
}

Status infer_pointwise(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(pointwise_sizes(c, &sizes));
  c.add(ops::elementwise_type(c, c.dtype("dtype", DType::kFloat32), std::move(sizes), {"self"}));
  return ok_status();
}

Status infer_pointwise_sum(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(pointwise_sizes(c, &sizes));
  const int64_t dims = c.integer("dims");
  if (dims < 1 || dims > static_cast<int64_t>(sizes.size())) return Status(Code::kInvalidInput, "pteron_cpu::pointwise_sum: dims do not fit");
  for (int64_t d = 0; d < dims; ++d) sizes.pop_back();
  if (c.boolean("keepdim")) sizes.insert(sizes.end(), static_cast<size_t>(dims), Expr(1));
  c.add(DType::kFloat32, std::move(sizes));
  return ok_status();
}

Status infer_attention(InferContext& c) {
  const ir::TensorType &q = c.type("query"), &k = c.type("key"), &v = c.type("value");
  if (q.rank() < 2 || k.rank() < 2 || v.rank() != k.rank() || q.rank() < k.rank()) return Status(Code::kInvalidInput, "pteron_cpu::attention: ranks do not fit");
  std::vector<Expr> sizes(q.sizes.begin(), q.sizes.end() - 2);
  const std::vector<Expr> own = sizes;
  if (!c.boolean("gqa")) PTERON_TRY(ops::broadcast_exprs(own, std::span(k.sizes).first(k.sizes.size() - 2), &sizes));
  sizes.push_back(q.sizes[q.sizes.size() - 2]);
  sizes.push_back(v.sizes.back());
  c.add(q.dtype, std::move(sizes));
  return ok_status();
}

constexpr ir::OpDef kRows[] = {
    {.schema = "pteron_cpu::linear(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, str activation, float low, float high) -> Tensor",
     .infer = infer_linear, .kernel = "pteron_cpu::linear.out"},
    {.schema = "pteron_cpu::conv2d(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int[] stride, int[] padding, int[] dilation, int groups, "
               "str activation, float low, float high) -> Tensor",
     .infer = infer_conv2d, .kernel = "pteron_cpu::conv2d.out"},
    {.schema = "pteron_cpu::gated_conv2d(Tensor x, Tensor gate, Tensor weight, Tensor? bias, Tensor? residual, str activation, float low, float high) -> Tensor",
     .infer = infer_gated, .kernel = "pteron_cpu::gated_conv2d.out"},
    {.schema = "pteron_cpu::linear16(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, str activation, float low, float high, ScalarType dtype) -> Tensor",
     .infer = infer_linear16, .kernel = "pteron_cpu::linear16.out"},
    {.schema = "pteron_cpu::conv2d16(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int[] stride, int[] padding, int[] dilation, int groups, "
               "str activation, float low, float high, ScalarType dtype) -> Tensor",
     .infer = infer_conv2d16, .kernel = "pteron_cpu::conv2d16.out"},
    {.schema = "pteron_cpu::qlinear(Tensor x, Tensor? x_scale, Tensor? x_zero, Tensor weight, Tensor scale, Tensor? bias, Tensor? residual, int bits, "
               "float residual_scale, int residual_zero, float[] middle, str activation, float low, float high, float inverse, int zero, int least, int most, ScalarType dtype) "
               "-> Tensor",
     .infer = infer_qlinear, .kernel = "pteron_cpu::qlinear.out"},
    {.schema = "pteron_cpu::qconv2d(Tensor x, Tensor weight, Tensor scale, Tensor? bias, Tensor? residual, float x_scale, int x_zero, float residual_scale, "
               "int residual_zero, int[] stride, int[] padding, int[] dilation, int groups, float[] middle, str activation, float low, float high, float inverse, int zero, "
               "int least, int most, ScalarType dtype) -> Tensor",
     .infer = infer_qconv2d, .kernel = "pteron_cpu::qconv2d.out"},
    {.schema = "pteron_cpu::pointwise(Tensor self, Tensor[] others, str program, ScalarType dtype) -> Tensor", .infer = infer_pointwise,
     .kernel = "pteron_cpu::pointwise.out", .flags = ir::kInPlace},
    {.schema = "pteron_cpu::pointwise_sum(Tensor self, Tensor[] others, str program, int dims, bool mean, bool keepdim) -> Tensor", .infer = infer_pointwise_sum,
     .kernel = "pteron_cpu::pointwise_sum.out"},
    {.schema = "pteron_cpu::attention(Tensor query, Tensor key, Tensor value, Tensor[] masks, bool causal, float? scale, bool gqa, bool zero_rows) -> Tensor",
     .infer = infer_attention, .kernel = "pteron_cpu::attention.out"},
    {.schema = "pteron_cpu::rms_norm(Tensor x, Tensor? weight, float eps) -> Tensor", .infer = ops::infer_like_self, .kernel = "pteron_cpu::rms_norm.out",
     .flags = ir::kInPlace},
};

}  // namespace

std::span<const ir::OpDef> operators() { return kRows; }

}  // namespace pteron::cpu
