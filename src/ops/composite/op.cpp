// Rare operators that are made of common ones: old names of casts and convolutions, padded and flattened lists, products of quantized matrices,
// gradients of selections. No kernels.
#include <cmath>

#include "ops/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::composite {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;
using Dims = std::vector<Expr>;

std::string_view first_name(const NodeView& n) { return n.op().schema.args[0].name; }

template <DType dtype>
Status infer_cast(InferContext& c) {
  c.add(elementwise_type(c, dtype, c.type("self").sizes, {"self"}));
  return ok_status();
}
template <DType dtype>
Ids cast(Builder& b, const NodeView& n) {
  return {Compose(b).to(n.value("self"), dtype)};
}

/// Type of the first of a list of tensors; the others must agree in dtype. Errors: kInvalidInput.
Result<TensorType> list_type(const NodeView& n, std::string_view name) {
  const Ids items = n.values(name);
  if (items.empty()) return Status(Code::kInvalidInput, "an empty list of tensors");
  for (const ValueId id : items) {
    if (n.type(id).dtype != n.type(items[0]).dtype) return Status(Code::kUnsupported, "a list of tensors of several dtypes");
  }
  return n.type(items[0]);
}

Status infer_chunk_cat(InferContext& c) {
  PTERON_ASSIGN(const TensorType type, list_type(c, "tensors"));
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), type.rank()));
  const Expr chunks = c.expr("num_chunks");
  Expr total = 0;
  for (const ValueId id : c.values("tensors")) {
    Expr inner = ceil_div(c.type(id).sizes[static_cast<size_t>(dim)], chunks);
    for (size_t d = static_cast<size_t>(dim) + 1; d < c.type(id).sizes.size(); ++d) inner = inner * c.type(id).sizes[d];
    total = total + inner;
  }
  Dims sizes = sub_sizes(type.sizes, 0, static_cast<size_t>(dim));
  sizes.push_back(chunks);
  sizes.push_back(total);
  c.add(type.dtype, std::move(sizes));
  return ok_status();
}
ValueId pad_end(Portable& f, ValueId x, int dim, Expr size, const ir::Arg& value, bool left = false) {
  const Expr have = f.size(x, dim);
  if (have == size) return x;
  Dims pads(2 * static_cast<size_t>(f.rank(x) - dim), Expr(0));
  pads[pads.size() - (left ? 2 : 1)] = size - have;
  return f.b.op("aten::constant_pad_nd", {x, pads, value});
}
Ids chunk_cat(Builder& b, const NodeView& n) {
  Portable f(b);
  const Expr chunks = n.expr("num_chunks");
  Ids parts;
  int dim = 0;
  for (const ValueId id : n.values("tensors")) {
    auto wrapped = wrap_dim_of(n.integer("dim"), f.rank(id));
    if (!wrapped.ok()) return b.fail(std::move(wrapped).status()), Ids{};
    dim = *wrapped;
    const ValueId padded = pad_end(f, id, dim, ceil_div(f.size(id, dim), chunks) * chunks, Expr(0));
    Dims sizes = sub_sizes(f.sizes(padded), 0, static_cast<size_t>(dim));
    sizes.push_back(chunks);
    sizes.push_back(floor_div(ir::numel_of(sub_sizes(f.sizes(padded), static_cast<size_t>(dim), f.sizes(padded).size())), chunks));
    parts.push_back(b.op("aten::reshape", {padded, sizes}));
  }
  return {f.cat(parts, dim + 1)};
}

Expr longest(const NodeView& n) {
  Expr size = 0;
  for (const ValueId id : n.values("sequences")) size = dim_max(size, n.type(id).sizes.empty() ? Expr(1) : n.type(id).sizes[0]);
  return size;
}
Status infer_pad_sequence(InferContext& c) {
  PTERON_ASSIGN(const TensorType type, list_type(c, "sequences"));
  if (type.rank() < 1) return Status(Code::kInvalidInput, "pad_sequence of tensors of rank 0");
  const Expr count = static_cast<int64_t>(c.values("sequences").size());
  Dims sizes = c.boolean("batch_first") ? Dims{count, longest(c)} : Dims{longest(c), count};
  sizes.insert(sizes.end(), type.sizes.begin() + 1, type.sizes.end());
  c.add(type.dtype, std::move(sizes));
  return ok_status();
}
Ids pad_sequence(Builder& b, const NodeView& n) {
  Portable f(b);
  Ids parts;
  for (const ValueId id : n.values("sequences")) {
    if (f.rank(id) < 1) return b.fail(Status(Code::kInvalidInput, "pad_sequence of tensors of rank 0")), Ids{};
    parts.push_back(pad_end(f, id, 0, longest(n), n.arg("padding_value"), n.text("padding_side") == "left"));
  }
  return {f.stack(parts, n.boolean("batch_first") ? 0 : 1)};
}
Status infer_flatten(InferContext& c) {
  PTERON_ASSIGN(const TensorType type, list_type(c, "tensors"));
  Expr total = 0;
  for (const ValueId id : c.values("tensors")) total = total + ir::numel_of(c.type(id).sizes);
  c.add(type.dtype, {total});
  return ok_status();
}
Ids flatten(Builder& b, const NodeView& n) {
  Portable f(b);
  Ids parts;
  for (const ValueId id : n.values("tensors")) parts.push_back(b.op("aten::reshape", {id, Dims{ir::numel_of(f.sizes(id))}}));
  return {f.cat(parts, 0)};
}

Status infer_distance(InferContext& c) {
  const TensorType &x = c.type("x1"), &y = c.type("x2");
  if (x.rank() < 2 || y.rank() < 2) return Status(Code::kInvalidInput, str_cat("distances of ", shape_text(x.sizes), " and ", shape_text(y.sizes)));
  Dims sizes;
  PTERON_TRY(broadcast_exprs(sub_sizes(x.sizes, 0, x.sizes.size() - 2), sub_sizes(y.sizes, 0, y.sizes.size() - 2), &sizes));
  sizes.push_back(x.sizes[x.sizes.size() - 2]);
  sizes.push_back(y.sizes[y.sizes.size() - 2]);
  c.add(x.dtype, std::move(sizes));
  return ok_status();
}
Ids distance(Builder& b, const NodeView& n) { return {b.op("aten::cdist", {n.value("x1"), n.value("x2"), b.floating(2)})}; }

Status infer_multigamma(InferContext& c) { return infer_float_like_self(c); }
/// The sum of lgamma(x - j / 2) for j < p, and p (p - 1) / 4 * log(pi).
Ids multigamma(Builder& b, const NodeView& n) {
  Portable f(b);
  const int64_t p = n.integer("p");
  if (p < 1) return b.fail(Status(Code::kInvalidInput, str_cat("mvlgamma with p = ", p))), Ids{};
  const ValueId x = f.wide(n.value("self"));
  ValueId sum;
  for (int64_t j = p - 1; j >= 0; --j) {
    const ValueId one = f.unary("aten::lgamma", f.shift(x, -static_cast<double>(j) / 2));
    sum = sum.valid() ? f.add(sum, one) : one;
  }
  constexpr double kLogPi = 1.1447298858494001741;
  return {f.to(f.shift(sum, static_cast<double>(p * (p - 1)) / 4 * kLogPi), to_float_dtype(n.type("self").dtype))};
}

Status infer_conv(InferContext& c) {
  const TensorType &x = c.type("self"), &w = c.type("weight");
  const size_t spatial = std::max<size_t>(w.sizes.size(), 2) - 2;
  if (x.sizes.size() != spatial + 2 || spatial < 1) return Status(Code::kInvalidInput, str_cat("convolution of ", shape_text(x.sizes), " with ", shape_text(w.sizes)));
  const Dims stride = c.exprs("stride"), padding = c.exprs("padding");
  Dims sizes{x.sizes[0], w.sizes[0]};
  for (size_t d = 0; d < spatial; ++d) {
    const auto at = [&](const Dims& list) { return d < list.size() ? list[d] : list.empty() ? Expr(1) : list[0]; };
    sizes.push_back(floor_div(x.sizes[2 + d] + at(padding) * Expr(2) - w.sizes[2 + d], at(stride)) + Expr(1));
  }
  c.add(x.dtype, std::move(sizes));
  return ok_status();
}
Ids conv(Builder& b, const NodeView& n) {
  const size_t spatial = std::max<size_t>(n.type("weight").sizes.size(), 2) - 2;
  return {b.op("aten::convolution", {n.value("self"), n.value("weight"), n.arg("bias"), n.arg("stride"), n.arg("padding"), Dims(spatial, Expr(1)), b.boolean(false), Dims(spatial, Expr(0)), Expr(1)})};
}

Status infer_matmul(InferContext& c) {
  const TensorType &x = c.type("self"), &y = c.type("mat2");
  if (x.rank() != 2 || y.rank() != 2) return Status(Code::kInvalidInput, str_cat("product of ", shape_text(x.sizes), " and ", shape_text(y.sizes)));
  const bool rows = c.op().name == "aten::_weight_int8pack_mm" || c.op().name == "aten::_weight_int4pack_mm_for_cpu";
  const DType dtype = c.op().name == "aten::_int_mm" ? DType::kInt32 : c.has("out_dtype") ? c.dtype("out_dtype", x.dtype) : x.dtype;
  c.add(dtype, {x.sizes[0], y.sizes[rows ? 0 : 1]});
  return ok_status();
}
Ids int_mm(Builder& b, const NodeView& n) {
  Portable f(b);
  return {f.mm(f.to(n.value("self"), DType::kInt32), f.to(n.value("mat2"), DType::kInt32))};
}
/// Rows of int8 weights, one scale each.
Ids int8_mm(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId product = f.mm(f.wide(n.value("self")), f.transpose(f.to(n.value("mat2"), DType::kFloat32), 0, 1));
  return {f.to(f.mul(product, f.to(n.value("scales"), f.dtype(product))), n.type("self").dtype)};
}
/// The order of packed weights is that of the processor that exported them, so only weights that are packed in the program itself are taken.
Ids int4_mm(Builder& b, const NodeView& n) {
  Portable f(b);
  const ir::Value& packed = b.graph()[n.value("mat2")];
  if (!packed.producer.valid() || b.graph()[packed.producer].op->name != "aten::_convert_weight_to_int4pack_for_cpu") return {};
  const ValueId levels = std::get<ValueId>(b.graph()[packed.producer].args[0]);  // [N, K] of 0..15
  const Expr rows = f.size(levels, 0), columns = f.size(levels, 1), group = n.expr("qGroupSize"), groups = floor_div(columns, group);
  const ValueId parameters = f.transpose(f.to(n.value("qScaleAndZeros"), DType::kFloat32), 0, 1);  // [N, groups, 2]
  const ValueId scale = f.slice(parameters, 2, 0, Expr(1)), zero = f.slice(parameters, 2, Expr(1), Expr(2));
  const ValueId q = f.shift(f.view(f.to(levels, DType::kFloat32), {rows, groups, group}), -8);
  const ValueId weight = f.view(f.add(f.mul(q, scale), zero), {rows, columns});
  return {f.to(f.mm(f.to(n.value("self"), DType::kFloat32), f.transpose(weight, 0, 1)), n.type("self").dtype)};
}
Status infer_pack(InferContext& c) {
  const TensorType& w = c.type("self");
  if (w.rank() != 2 || w.dtype != DType::kInt32) return Status(Code::kInvalidInput, str_cat("int4 packing of ", dtype_name(w.dtype), " ", shape_text(w.sizes)));
  c.add(DType::kUInt8, {w.sizes[0], floor_div(w.sizes[1], Expr(2))});
  return ok_status();
}
Ids scaled_mm(Builder& b, const NodeView& n) {
  Portable f(b);
  const auto number = [&](std::string_view name) { return f.to(n.value(name), DType::kFloat32); };
  ValueId y = f.mm(f.to(n.value("self"), DType::kFloat32), f.to(n.value("mat2"), DType::kFloat32));
  y = f.mul(f.mul(y, number("scale_a")), number("scale_b"));
  if (!n.is_none("bias")) y = f.add(y, number("bias"));
  if (!n.is_none("scale_result") && is_float8(n.dtype("out_dtype", n.type("self").dtype))) y = f.mul(y, number("scale_result"));
  return {f.to(y, n.dtype("out_dtype", n.type("self").dtype))};
}
Status infer_baddbmm(InferContext& c) {
  const TensorType &x = c.type("batch1"), &y = c.type("batch2");
  if (x.rank() != 3 || y.rank() != 3) return Status(Code::kInvalidInput, str_cat("products of ", shape_text(x.sizes), " and ", shape_text(y.sizes)));
  c.add(c.dtype("out_dtype", x.dtype), {x.sizes[0], x.sizes[1], y.sizes[2]});
  return ok_status();
}
Ids baddbmm(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType out = n.dtype("out_dtype", n.type("batch1").dtype);
  const auto in = [&](std::string_view name) { return f.to(n.value(name), out); };
  return {b.op("aten::baddbmm", {in("self"), in("batch1"), in("batch2"), n.arg("beta"), n.arg("alpha")})};
}

Status infer_dim_arange(InferContext& c) {
  const TensorType& like = c.type("like");
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), like.rank()));
  c.add(DType::kInt64, {like.sizes[static_cast<size_t>(dim)]});
  return ok_status();
}
Ids dim_arange(Builder& b, const NodeView& n) {
  Portable f(b);
  return {f.arange(f.size(n.value("like"), static_cast<int>(n.integer("dim"))))};
}
Status infer_shape(InferContext& c) {
  c.add(DType::kInt64, {Expr(c.type("self").rank())});
  return ok_status();
}
Ids shape_tensor(Builder& b, const NodeView& n) {
  Portable f(b);
  Ids parts;
  for (const Expr& size : n.type("self").sizes) parts.push_back(b.op("aten::full", {Dims{Expr(1)}, size, DType::kInt64}));
  if (parts.empty()) return {b.op("aten::full", {Dims{Expr(0)}, Expr(0), DType::kInt64})};
  return {f.cat(parts, 0)};
}
Status infer_same(InferContext& c) {
  const TensorType& t = c.type(first_name(c));
  c.add(t.dtype, t.sizes);
  return ok_status();
}
Ids saturate(Builder& b, const NodeView& n) { return {b.op("aten::clamp", {n.value("weight"), b.floating(-65504), b.floating(65504)})}; }

/// In eval mode; what cuDNN saves is empty.
Status infer_cudnn_norm(InferContext& c) {
  if (c.boolean("training")) return Status(Code::kUnsupported, "cudnn_batch_norm in training");
  const TensorType &in = c.type("input"), &weight = c.type("weight");
  c.add(elementwise_type(c, in.dtype, in.sizes, {"input"}));
  c.add(weight.dtype, {Expr(0)});
  c.add(weight.dtype, {Expr(0)});
  c.add(DType::kUInt8, {Expr(0)});
  return ok_status();
}
Ids cudnn_norm(Builder& b, const NodeView& n) {
  const auto nothing = [&](DType dtype) { return b.op("aten::full", {Dims{Expr(0)}, Expr(0), dtype}); };
  const Ids norm = b.ops("aten::_native_batch_norm_legit_no_training",
                         {n.value("input"), n.arg("weight"), n.arg("bias"), n.arg("running_mean"), n.arg("running_var"), n.expr("exponential_average_factor"), n.expr("epsilon")});
  if (norm.empty()) return {};
  const DType dtype = n.type("weight").dtype;
  return {norm[0], nothing(dtype), nothing(dtype), nothing(DType::kUInt8)};
}

Status infer_grad(InferContext& c) {
  const std::string_view sizes = c.has("self_sizes") ? "self_sizes" : "sizes";
  c.add(c.type("grad").dtype, c.has(sizes) ? c.exprs(sizes) : c.type("input").sizes);
  return ok_status();
}
ValueId zeros(Builder& b, const Dims& sizes, DType dtype) { return b.op("aten::full", {sizes, Expr(0), dtype}); }
Ids index_select_backward(Builder& b, const NodeView& n) {
  return {b.op("aten::index_add", {zeros(b, n.exprs("self_sizes"), n.type("grad").dtype), n.expr("dim"), n.value("index"), n.value("grad")})};
}
Ids trace_backward(Builder& b, const NodeView& n) {
  const Dims sizes = n.exprs("sizes");
  if (sizes.size() != 2) return b.fail(Status(Code::kInvalidInput, "trace_backward of no matrix")), Ids{};
  return {b.op("aten::mul.Tensor", {b.op("aten::eye.m", {sizes[0], sizes[1], n.type("grad").dtype}), n.value("grad")})};
}
Ids masked_select_backward(Builder& b, const NodeView& n) {
  const Dims sizes = n.type("input").sizes;
  return {b.op("aten::masked_scatter", {zeros(b, sizes, n.type("grad").dtype), b.op("aten::expand", {n.value("mask"), sizes}), n.value("grad")})};
}
Ids cummaxmin_backward(Builder& b, const NodeView& n) {
  if (n.type("input").rank() == 0) return {n.value("grad")};
  return {b.op("aten::scatter_add", {zeros(b, n.type("input").sizes, n.type("grad").dtype), n.expr("dim"), n.value("indices"), n.value("grad")})};
}
Ids selecting_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const Dims sizes = n.exprs("sizes");
  if (sizes.empty()) return {n.value("grad")};
  ValueId grad = n.value("grad"), indices = n.value("indices");
  if (!n.boolean("keepdim")) {
    grad = f.unsqueeze(grad, static_cast<int>(n.integer("dim")));
    indices = f.unsqueeze(indices, static_cast<int>(n.integer("dim")));
  }
  return {b.op("aten::scatter.src", {zeros(b, sizes, f.dtype(grad)), n.expr("dim"), indices, grad})};
}
Ids masked_grad(Builder& b, const NodeView& n) { return {b.op("aten::mul.Tensor", {n.value("grad"), n.value("mask")})}; }
Ids gelu_backward(Builder& b, const NodeView& n) { return {b.op("aten::gelu_backward", {n.value("grad"), n.value("self")})}; }

#define CAST(name, dtype) {.schema = "aten::_cast_" name "(Tensor self, bool non_blocking=False) -> Tensor", .infer = infer_cast<DType::dtype>, .decompose = cast<DType::dtype>}
#define GRADIENT(text, how) {.schema = "aten::" text " -> Tensor", .infer = infer_grad, .decompose = how}
#define PRODUCT(text, how) {.schema = "aten::" text " -> Tensor", .infer = infer_matmul, .decompose = how}
constexpr OpDef kTable[] = {
    CAST("Byte", kUInt8), CAST("Char", kInt8), CAST("Double", kFloat64), CAST("Float", kFloat32), CAST("Half", kFloat16), CAST("Int", kInt32), CAST("Long", kInt64), CAST("Short", kInt16),
    {.schema = "aten::_chunk_cat(Tensor[] tensors, int dim, int num_chunks) -> Tensor", .infer = infer_chunk_cat, .decompose = chunk_cat},
    {.schema = "aten::_convert_weight_to_int4pack_for_cpu(Tensor self, int innerKTiles) -> Tensor", .infer = infer_pack},
    {.schema = "aten::_dim_arange(Tensor like, int dim) -> Tensor", .infer = infer_dim_arange, .decompose = dim_arange},
    {.schema = "aten::_euclidean_dist(Tensor x1, Tensor x2) -> Tensor", .infer = infer_distance, .decompose = distance},
    PRODUCT("_int_mm(Tensor self, Tensor mat2)", int_mm),
    {.schema = "aten::_saturate_weight_to_fp16(Tensor weight) -> Tensor", .infer = infer_same, .decompose = saturate},
    PRODUCT("_scaled_mm(Tensor self, Tensor mat2, Tensor scale_a, Tensor scale_b, Tensor? bias=None, Tensor? scale_result=None, ScalarType? out_dtype=None, bool use_fast_accum=False)", scaled_mm),
    {.schema = "aten::_shape_as_tensor(Tensor self) -> Tensor", .infer = infer_shape, .decompose = shape_tensor},
    PRODUCT("_weight_int4pack_mm_for_cpu(Tensor self, Tensor mat2, int qGroupSize, Tensor qScaleAndZeros)", int4_mm),
    PRODUCT("_weight_int8pack_mm(Tensor self, Tensor mat2, Tensor scales)", int8_mm),
    {.schema = "aten::baddbmm.dtype(Tensor self, Tensor batch1, Tensor batch2, ScalarType out_dtype, *, Scalar beta=1, Scalar alpha=1) -> Tensor", .infer = infer_baddbmm, .decompose = baddbmm},
    {.schema = "aten::cudnn_batch_norm(Tensor input, Tensor weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float exponential_average_factor, "
               "float epsilon) -> (Tensor, Tensor, Tensor, Tensor)",
     .infer = infer_cudnn_norm, .decompose = cudnn_norm},
    GRADIENT("cummaxmin_backward(Tensor grad, Tensor input, Tensor indices, int dim)", cummaxmin_backward),
    {.schema = "aten::fake_quantize_per_channel_affine_cachemask_backward(Tensor grad, Tensor mask) -> Tensor", .infer = infer_same, .decompose = masked_grad},
    {.schema = "aten::fake_quantize_per_tensor_affine_cachemask_backward(Tensor grad, Tensor mask) -> Tensor", .infer = infer_same, .decompose = masked_grad},
    {.schema = "aten::flatten_dense_tensors(Tensor[] tensors) -> Tensor", .infer = infer_flatten, .decompose = flatten},
    GRADIENT("index_select_backward(Tensor grad, SymInt[] self_sizes, int dim, Tensor index)", index_select_backward),
    {.schema = "aten::infinitely_differentiable_gelu_backward(Tensor grad, Tensor self) -> Tensor", .infer = infer_same, .decompose = gelu_backward},
    GRADIENT("masked_select_backward(Tensor grad, Tensor input, Tensor mask)", masked_select_backward),
    {.schema = "aten::mvlgamma(Tensor self, int p) -> Tensor", .infer = infer_multigamma, .decompose = multigamma},
    {.schema = "aten::pad_sequence(Tensor[] sequences, bool batch_first=False, float padding_value=0., str padding_side='right') -> Tensor", .infer = infer_pad_sequence, .decompose = pad_sequence},
    {.schema = "aten::slow_conv3d(Tensor self, Tensor weight, SymInt[3] kernel_size, Tensor? bias=None, SymInt[3] stride=1, SymInt[3] padding=0) -> Tensor", .infer = infer_conv, .decompose = conv},
    {.schema = "aten::special_multigammaln(Tensor self, int p) -> Tensor", .infer = infer_multigamma, .decompose = multigamma},
    {.schema = "aten::thnn_conv2d(Tensor self, Tensor weight, SymInt[2] kernel_size, Tensor? bias=None, SymInt[2] stride=1, SymInt[2] padding=0) -> Tensor", .infer = infer_conv, .decompose = conv},
    GRADIENT("trace_backward(Tensor grad, SymInt[] sizes)", trace_backward),
    GRADIENT("value_selecting_reduction_backward(Tensor grad, int dim, Tensor indices, SymInt[] sizes, bool keepdim)", selecting_backward),
};
#undef CAST
#undef GRADIENT
#undef PRODUCT

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::composite
