// quantized_decomposed and torchao: quantize, dequantize and choose_qparams per tensor, channel, token, group and block. Where the profile has the
// kernels, quantizing and dequantizing in float32 become pteron::quantize and pteron::dequantize, everything else arithmetic.
#include "ops/portable.h"
#include "ops/quantize/affine.h"
#include "tensor/dtype.h"

namespace pteron::ops::quantize {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

std::string_view input_name(const NodeView& n) { return n.has("w_int8") ? "w_int8" : "input"; }

Status infer_quantize(InferContext& c) {
  c.add(elementwise_type(c, c.dtype("dtype", DType::kInt8), c.type("input").sizes, {"input"}));
  return ok_status();
}
Status infer_quantize_blocks(InferContext& c) {
  c.add(elementwise_type(c, c.dtype("dtype", DType::kInt8), c.type("self").sizes, {"self"}));
  return ok_status();
}
Status infer_dequantize_blocks(InferContext& c) {
  c.add(elementwise_type(c, DType::kFloat32, c.type("self").sizes, {"self"}));
  return ok_status();
}
DType dequantized_dtype(const NodeView& n) { return n.dtype(n.has("out_dtype") ? "out_dtype" : "output_dtype", DType::kFloat32); }
Status infer_dequantize(InferContext& c) {
  const std::string_view name = input_name(c);
  c.add(elementwise_type(c, dequantized_dtype(c), c.type(name).sizes, {name}));
  return ok_status();
}
Status infer_token_params(InferContext& c) {
  std::vector<Expr> sizes = c.type("input").sizes;
  if (sizes.empty()) return Status(Code::kInvalidInput, "quantization parameters per token of a tensor of rank 0");
  sizes.back() = 1;
  c.add(DType::kFloat64, sizes);
  c.add(DType::kInt64, std::move(sizes));
  return ok_status();
}

/// A scale or zero point as it stands against the input: a number as 0-d tensor, or a tensor viewed to `shape`.
ValueId parameter(Portable& f, const NodeView& n, std::string_view name, const std::vector<Expr>& shape, DType number_dtype) {
  if (!n.is_value(name)) return f.number(n.expr(name), number_dtype);
  return shape.empty() ? n.value(name) : f.view(n.value(name), shape);
}

/// How parameters lie against the input.
struct Layout {
  ValueId input;              ///< in the shape that the parameters broadcast to
  std::vector<Expr> shape;    ///< of the parameters; empty: as they are
  std::vector<Expr> whole;    ///< the input's own sizes
};
bool layout_of(Portable& f, const NodeView& n, Layout* out) {
  const ValueId input = n.value(input_name(n));
  *out = {input, {}, f.sizes(input)};
  if (n.has("axis")) {
    auto axis = wrap_dim_of(n.integer("axis"), f.rank(input));
    if (!axis.ok()) return false;
    out->shape.assign(out->whole.size(), Expr(1));
    out->shape[static_cast<size_t>(*axis)] = f.size(input, *axis);
  }
  if (n.has("group_size")) {
    if (f.rank(input) != 2) return false;
    Expr group = n.expr("group_size");
    const Expr columns = f.size(input, 1);
    if (ir::bounds(group - columns).min > 0) group = columns;  // one group that is wider than the matrix
    const Expr rows = floor_div(f.size(input, 0) * columns, group);
    out->input = f.view(input, {rows, group});
    out->shape = {rows, Expr(1)};
  }
  return true;
}

/// The parameters of pteron::quantize and pteron::dequantize have the input's rank, or rank 0: one entry per block along every dim.
ValueId per_block(Portable& f, const NodeView& n, std::string_view name, const std::vector<Expr>& shape, ValueId input, DType number_dtype) {
  const ValueId p = parameter(f, n, name, shape, number_dtype);
  if (f.rank(p) == 0 || f.rank(p) == f.rank(input)) return p;
  return dim_is(ir::numel_of(f.sizes(p)), 1) ? f.view(p, {}) : ValueId();
}
/// Groups of columns are blocks of the matrix as it is.
void undo_groups(Portable& f, const NodeView& n, Layout* layout) {
  if (!n.has("group_size")) return;
  layout->input = n.value(input_name(n));
  layout->shape = {f.size(layout->input, 0), floor_div(layout->shape[0], f.size(layout->input, 0))};
}

Ids kernel_quantize(Portable& f, const NodeView& n, Layout layout, bool late) {
  undo_groups(f, n, &layout);
  const std::string_view scale_name = n.has("scale") ? "scale" : "scales", zero_name = n.has("scale") ? "zero_point" : "zero_points";
  if (n.is_value("quant_min") || f.dtype(layout.input) != DType::kFloat32) return {};
  ValueId inverse;
  if (n.is_value(scale_name)) {
    const ValueId scale = per_block(f, n, scale_name, layout.shape, layout.input, DType::kFloat32);
    inverse = scale.valid() ? f.to(f.unary("aten::reciprocal", scale), DType::kFloat32) : scale;
  } else {
    inverse = f.number(1.0 / n.number(scale_name), DType::kFloat32);
  }
  const ValueId zero = per_block(f, n, zero_name, layout.shape, layout.input, DType::kInt64);
  if (!inverse.valid() || !zero.valid()) return {};
  return {f.b.op("pteron::quantize", {layout.input, inverse, zero, n.expr("quant_min"), n.expr("quant_max"), n.dtype("dtype", DType::kInt8), f.b.boolean(late)})};
}

Ids kernel_dequantize(Portable& f, const NodeView& n, Layout layout) {
  undo_groups(f, n, &layout);
  const std::string_view scale_name = n.has("scale") ? "scale" : "scales", zero_name = n.has("scale") ? "zero_point" : "zero_points";
  if (dequantized_dtype(n) != DType::kFloat32 || !is_integral(f.dtype(layout.input), false)) return {};
  ValueId scale = per_block(f, n, scale_name, layout.shape, layout.input, DType::kFloat32);
  if (!scale.valid()) return {};
  scale = f.to(scale, DType::kFloat32);
  ir::Arg zero = std::monostate();
  if (!n.is_none(zero_name)) {
    const ValueId point = per_block(f, n, zero_name, layout.shape, layout.input, DType::kInt64);
    if (!point.valid()) return {};
    zero = point;
  }
  return {f.b.op("pteron::dequantize", {layout.input, scale, zero})};
}

/// clamp(round(x / scale) + zero point); with tensors per token and group the zero point is added before rounding, as PyTorch does.
Ids decompose_quantize(Builder& b, const NodeView& n) {
  Portable f(b);
  Layout layout;
  if (!layout_of(f, n, &layout)) return {};
  const bool number = !n.is_value(n.has("scale") ? "scale" : "scales");
  const bool late = n.has("scale") || n.has("axis");
  if (b.has_kernel != nullptr && b.has_kernel("pteron::quantize.out")) {
    Ids made = kernel_quantize(f, n, layout, late);
    if (!made.empty()) return made;
  }
  const ValueId x = f.wide(layout.input);
  const ValueId zero = parameter(f, n, n.has("scale") ? "zero_point" : "zero_points", layout.shape, DType::kInt64);
  ValueId scaled;
  if (number) {
    scaled = f.scale(x, 1.0 / n.number("scale"));
  } else {
    scaled = f.mul(x, f.unary("aten::reciprocal", parameter(f, n, n.has("scale") ? "scale" : "scales", layout.shape, DType::kFloat32)));
  }
  ValueId q = late ? f.add(f.unary("aten::round", scaled), zero) : f.unary("aten::round", f.add(scaled, zero));
  if (n.is_value("quant_min")) {
    q = b.op("aten::clamp.Tensor", {q, n.value("quant_min"), n.value("quant_max")});
  } else {
    q = b.op("aten::clamp", {q, n.expr("quant_min"), n.expr("quant_max")});
  }
  return {f.view(f.to(q, n.dtype("dtype", DType::kInt8)), layout.whole)};
}

/// (q - zero point) * scale.
Ids decompose_dequantize(Builder& b, const NodeView& n) {
  Portable f(b);
  Layout layout;
  if (!layout_of(f, n, &layout)) return {};
  if (b.has_kernel != nullptr && b.has_kernel("pteron::dequantize.out")) {
    Ids made = kernel_dequantize(f, n, layout);
    if (!made.empty()) return made;
  }
  const DType out = dequantized_dtype(n);
  const DType compute = out == DType::kFloat64 ? out : DType::kFloat32;
  ValueId x = f.to(layout.input, compute);
  const std::string_view zero_name = n.has("scale") ? "zero_point" : "zero_points";
  if (!n.is_none(zero_name)) x = f.sub(x, f.to(parameter(f, n, zero_name, layout.shape, DType::kInt64), compute));
  const ValueId scale = parameter(f, n, n.has("scale") ? "scale" : "scales", layout.shape, compute);
  return {f.view(f.to(f.mul(x, scale), out), layout.whole)};
}

/// The range from 0 to the extremes of each token onto -128..127, as PyTorch chooses it.
Ids decompose_asymmetric(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = f.wide(n.value("input"));
  const std::vector<Expr> last{Expr(-1)};
  const ValueId low = b.op("aten::clamp", {b.op("aten::amin", {x, last, b.boolean(true)}), {}, Expr(0)});
  const ValueId high = b.op("aten::clamp", {b.op("aten::amax", {x, last, b.boolean(true)}), Expr(0), {}});
  const ValueId scale = b.op("aten::clamp", {f.div(f.sub(high, low), f.number(255.0, f.dtype(x))), b.floating(1.1920928955078125e-07), {}});
  const ValueId down = f.div(low, scale), up = f.div(high, scale);
  const ValueId from_low = f.shift(down, -128.0), from_high = f.shift(up, 127.0);
  const ValueId by_low = b.op("aten::rsub.Scalar", {down, b.floating(-128.0)}), by_high = b.op("aten::rsub.Scalar", {up, b.floating(127.0)});
  const ValueId zero = f.where(f.compare("gt", f.add(from_low, from_high), Expr(0)), by_low, by_high);
  const ValueId rounded = f.unary("aten::round", b.op("aten::clamp", {zero, Expr(-128), Expr(127)}));
  return {f.to(scale, DType::kFloat64), f.to(rounded, DType::kInt64)};
}

#define QUANTIZE(text) {.schema = "quantized_decomposed::" text " -> Tensor", .infer = infer_quantize, .decompose = decompose_quantize}
#define DEQUANTIZE(text) {.schema = "quantized_decomposed::" text " -> Tensor", .infer = infer_dequantize, .decompose = decompose_dequantize}
#define FAKE(text, results) {.schema = "aten::" text " -> " results, .infer = infer_fake, .decompose = fake_quantize}
constexpr OpDef kTable[] = {
    {.schema = "pteron::quantize(Tensor self, Tensor inverse, Tensor? zero_point, int quant_min, int quant_max, ScalarType dtype, bool late) -> Tensor",
     .infer = infer_quantize_blocks, .kernel = "pteron::quantize.out"},
    {.schema = "pteron::dequantize(Tensor self, Tensor scale, Tensor? zero_point) -> Tensor", .infer = infer_dequantize_blocks, .kernel = "pteron::dequantize.out",
     .flags = ir::kWidens},
    FAKE("fake_quantize_per_tensor_affine(Tensor self, float scale, int zero_point, int quant_min, int quant_max)", "Tensor"),
    FAKE("fake_quantize_per_tensor_affine.tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max)", "Tensor"),
    FAKE("fake_quantize_per_tensor_affine_cachemask(Tensor self, float scale, int zero_point, int quant_min, int quant_max)", "(Tensor output, Tensor mask)"),
    FAKE("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(Tensor self, Tensor scale, Tensor zero_point, Tensor fake_quant_enabled, int quant_min, int quant_max)",
         "(Tensor output, Tensor mask)"),
    FAKE("fake_quantize_per_channel_affine(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max)", "Tensor"),
    FAKE("fake_quantize_per_channel_affine_cachemask(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max)", "(Tensor output, Tensor mask)"),
    {.schema = "quantized_decomposed::choose_qparams.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
     .infer = infer_tensor_params, .decompose = choose_per_tensor},
    {.schema = "quantized_decomposed::choose_qparams_symmetric.tensor(Tensor input, int quant_min, int quant_max, float eps, ScalarType dtype) -> (Tensor, Tensor)",
     .infer = infer_tensor_params, .decompose = choose_per_tensor},
    {.schema = "quantized_decomposed::choose_qparams_per_token(Tensor input, ScalarType dtype) -> (Tensor, Tensor)", .infer = infer_token_scales, .decompose = choose_per_token},
    {.schema = "quantized_decomposed::_choose_qparams_per_token_asymmetric_impl(Tensor input, ScalarType dtype) -> (Tensor, Tensor)", .infer = infer_token_params,
     .decompose = decompose_asymmetric},
    {.schema = "torchao::choose_qparams_affine(Tensor? input, str mapping_type, SymInt[] block_size, ScalarType target_dtype, Scalar? quant_min=None, Scalar? quant_max=None, "
               "float? eps=None, ScalarType? scale_dtype=None, ScalarType? zero_point_dtype=None, bool keepdim=False) -> (Tensor, Tensor)",
     .infer = infer_block_params, .decompose = choose_affine},
    {.schema = "torchao::quantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType output_dtype, Scalar? quant_min=None, "
               "Scalar? quant_max=None) -> Tensor",
     .infer = infer_affine, .decompose = quantize_affine},
    {.schema = "torchao::dequantize_affine(Tensor input, SymInt[] block_size, Tensor scale, Tensor? zero_point, ScalarType input_dtype, Scalar? quant_min=None, "
               "Scalar? quant_max=None, ScalarType output_dtype=float) -> Tensor",
     .infer = infer_affine, .decompose = dequantize_affine},
    {.schema = "quantized_decomposed::choose_qparams_per_token_asymmetric(Tensor input, ScalarType dtype) -> (Tensor, Tensor)",
     .infer = infer_token_params,
     .decompose = decompose_asymmetric},
    DEQUANTIZE("dequantize_per_channel(Tensor input, Tensor scales, Tensor? zero_points, int axis, int quant_min, int quant_max, ScalarType dtype, *, "
               "ScalarType? out_dtype=None)"),
    DEQUANTIZE("dequantize_per_channel_group(Tensor w_int8, Tensor scales, Tensor? zero_points, int quant_min, int quant_max, ScalarType dtype, "
               "int group_size, ScalarType output_dtype)"),
    DEQUANTIZE("dequantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype, *, "
               "ScalarType? out_dtype=None)"),
    DEQUANTIZE("dequantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype, *, "
               "ScalarType? out_dtype=None)"),
    DEQUANTIZE("dequantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype, *, "
               "ScalarType? out_dtype=None)"),
    DEQUANTIZE("dequantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, "
               "ScalarType output_dtype)"),
    QUANTIZE("quantize_per_channel(Tensor input, Tensor scales, Tensor zero_points, int axis, int quant_min, int quant_max, ScalarType dtype)"),
    QUANTIZE("quantize_per_channel_group(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype, int group_size)"),
    QUANTIZE("quantize_per_tensor(Tensor input, float scale, int zero_point, int quant_min, int quant_max, ScalarType dtype)"),
    QUANTIZE("quantize_per_tensor.tensor(Tensor input, Tensor scale, Tensor zero_point, int quant_min, int quant_max, ScalarType dtype)"),
    QUANTIZE("quantize_per_tensor.tensor2(Tensor input, Tensor scale, Tensor zero_point, Tensor quant_min, Tensor quant_max, ScalarType dtype)"),
    QUANTIZE("quantize_per_token(Tensor input, Tensor scales, Tensor zero_points, int quant_min, int quant_max, ScalarType dtype)"),
};
#undef FAKE
#undef QUANTIZE
#undef DEQUANTIZE

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::quantize
