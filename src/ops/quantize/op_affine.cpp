// Choosing quantization parameters per tensor, torchao's affine operators over blocks, and fake quantization (training-aware models), as
// arithmetic in float. The table is in op.cpp.
#include <cmath>

#include "ops/portable.h"
#include "ops/quantize/affine.h"
#include "tensor/dtype.h"

namespace pteron::ops::quantize {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// The blocks of a tensor: dims split into (count, block) where a block is smaller than the dim, and which of the dims are inside of blocks.
struct Blocks {
  std::vector<Expr> shape;    ///< the input's, split
  std::vector<Expr> inside;   ///< dims to reduce
  std::vector<Expr> outside;  ///< shape with 1 for those dims
  std::vector<Expr> left;     ///< shape without those dims
  std::vector<Expr> counts;   ///< blocks along every dim of the input
};
Status read_blocks(const TensorType& input, const std::vector<Expr>& block, Blocks* out) {
  if (block.size() != input.sizes.size()) return Status(Code::kInvalidInput, str_cat("block_size ", shape_text(block), " for ", shape_text(input.sizes)));
  for (size_t d = 0; d < block.size(); ++d) {
    const Expr size = input.sizes[d];
    Expr b = block[d];
    if (b.is_const() && b.value() < 0) b = size;
    const bool whole = b == size, one = dim_is(b, 1);
    const auto add = [&](Expr dim, bool in) {
      if (in) out->inside.emplace_back(static_cast<int64_t>(out->shape.size()));
      if (!in) out->left.push_back(dim);
      out->outside.push_back(in ? Expr(1) : dim);
      out->shape.push_back(dim);
    };
    if (!whole && !one) add(floor_div(size, b), false);
    add(whole || one ? size : b, !one);
    out->counts.push_back(whole ? Expr(1) : floor_div(size, b));
  }
  return ok_status();
}

/// The range of values of the target dtype, as given or whole.
void value_range(const NodeView& n, DType dtype, double* low, double* high) {
  switch (dtype) {
    case DType::kUInt8: *low = 0, *high = 255; break;
    case DType::kInt16: *low = -32768, *high = 32767; break;
    case DType::kInt32: *low = -2147483648.0, *high = 2147483647.0; break;
    default: *low = -128, *high = 127; break;
  }
  if (!n.is_none("quant_min")) *low = n.number("quant_min");
  if (!n.is_none("quant_max")) *high = n.number("quant_max");
}
double smallest_normal(DType dtype) { return dtype == DType::kFloat16 ? 6.103515625e-05 : dtype == DType::kFloat64 ? 2.2250738585072014e-308 : 1.1754943508222875e-38; }

}  // namespace

Status infer_tensor_params(InferContext& c) {
  c.add(DType::kFloat64, {Expr(1)});
  c.add(DType::kInt64, {Expr(1)});
  return ok_status();
}
Status infer_token_scales(InferContext& c) {
  TensorType t = c.type("input");
  if (t.sizes.empty()) return Status(Code::kInvalidInput, "quantization parameters per token of a tensor of rank 0");
  t.sizes.back() = 1;
  const DType dtype = t.dtype == DType::kFloat16 ? DType::kFloat32 : t.dtype;
  c.add(dtype, t.sizes);
  c.add(dtype, t.sizes);
  return ok_status();
}
Status infer_block_params(InferContext& c) {
  const TensorType& input = c.type("input");
  Blocks blocks;
  PTERON_TRY(read_blocks(input, c.exprs("block_size"), &blocks));
  const std::vector<Expr> sizes = c.boolean("keepdim") ? blocks.counts : blocks.left;
  const bool symmetric = c.text("mapping_type") != "ASYMMETRIC";
  c.add(c.dtype("scale_dtype", input.dtype), sizes);
  c.add(c.dtype("zero_point_dtype", symmetric ? c.dtype("scale_dtype", input.dtype) : DType::kInt32), sizes);
  return ok_status();
}
Status infer_affine(InferContext& c) {
  c.add(c.dtype("output_dtype", DType::kFloat32), c.type("input").sizes);
  return ok_status();
}
Status infer_fake(InferContext& c) {
  c.add(elementwise_type(c, c.type("self").dtype, c.type("self").sizes, {"self"}));
  if (c.op().schema.returns.size() == 2) c.add(elementwise_type(c, DType::kBool, c.type("self").sizes, {"self"}));
  return ok_status();
}

/// One scale and zero point from the extremes of the tensor and zero.
Ids choose_per_tensor(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = f.wide(n.value("input"));
  const double low = n.number("quant_min"), high = n.number("quant_max");
  const ValueId zero = f.number(0.0, f.dtype(x));
  const ValueId least = b.op("aten::minimum", {b.op("aten::amin", {x}), zero}), most = b.op("aten::maximum", {b.op("aten::amax", {x}), zero});
  const bool symmetric = n.op().name.find("symmetric") != std::string::npos;
  const std::vector<Expr> one{Expr(1)};
  const auto limited = [&](ValueId scale) { return b.op("aten::maximum", {scale, f.number(static_cast<double>(static_cast<float>(n.number("eps"))), f.dtype(x))}); };
  if (symmetric) {
    const ValueId reach = b.op("aten::maximum", {f.unary("aten::neg", least), most});
    const ValueId scale = limited(f.div(reach, f.number((high - low) / 2, f.dtype(x))));
    const double middle = n.dtype("dtype", DType::kInt8) == DType::kUInt8 ? 128 : 0;
    return {f.view(f.to(scale, DType::kFloat64), one), b.op("aten::full", {one, Expr(static_cast<int64_t>(middle)), DType::kInt64})};
  }
  const ValueId scale = limited(f.div(f.sub(most, least), f.number(high - low, f.dtype(x))));
  const ValueId steps = f.to(f.unary("aten::round", f.div(least, scale)), DType::kInt32);
  const ValueId point = b.op("aten::clamp", {b.op("aten::rsub.Scalar", {steps, n.expr("quant_min")}), n.expr("quant_min"), n.expr("quant_max")});
  return {f.view(f.to(scale, DType::kFloat64), one), f.view(f.to(point, DType::kInt64), one)};
}

/// Symmetric scales of tokens (rows).
Ids choose_per_token(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId x = n.value("input");
  ValueId reach = b.op("aten::amax", {f.unary("aten::abs", x), std::vector<Expr>{Expr(-1)}, b.boolean(true)});
  if (f.dtype(reach) == DType::kFloat16) reach = f.to(reach, DType::kFloat32);
  const double levels = n.dtype("dtype", DType::kInt8) == DType::kInt8 ? 127 : 0;
  if (levels == 0) return b.fail(Status(Code::kUnsupported, str_cat("choose_qparams_per_token for ", dtype_name(n.dtype("dtype", DType::kInt8))))), Ids{};
  const ValueId scale = b.op("aten::div.Scalar", {b.op("aten::clamp", {reach, b.floating(1e-5), {}}), b.floating(levels)});
  return {scale, b.op("aten::full", {f.sizes(scale), b.floating(0), f.dtype(scale)})};
}

Ids choose_affine(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId input = n.value("input");
  const TensorType type = b.type(input);
  Blocks blocks;
  if (Status status = read_blocks(type, n.exprs("block_size"), &blocks); !status.ok()) return b.fail(std::move(status)), Ids{};
  double low = 0, high = 0;
  value_range(n, n.dtype("target_dtype", DType::kInt8), &low, &high);
  const std::string_view mapping = n.text("mapping_type");
  const ValueId x = b.op("aten::reshape", {input, blocks.shape});
  const auto extreme = [&](std::string_view name) { return blocks.inside.empty() ? x : b.op(name, {x, blocks.inside}); };
  const ValueId zero = f.number(0.0, type.dtype);
  const ValueId least = b.op("aten::minimum", {extreme("aten::amin"), zero}), most = b.op("aten::maximum", {extreme("aten::amax"), zero});
  const auto over = [&](ValueId v, double by) { return b.op("aten::div.Scalar", {v, b.floating(by)}); };
  const Expr eps = n.is_none("eps") ? b.floating(smallest_normal(type.dtype)) : n.expr("eps");
  ValueId scale, point;
  if (mapping == "ASYMMETRIC") {
    scale = b.op("aten::clamp", {over(f.sub(most, least), high - low), eps, {}});
    const ValueId steps = f.unary("aten::round", f.div(least, scale));
    point = b.op("aten::clamp", {b.op("aten::rsub.Scalar", {steps, b.floating(low)}), b.floating(low), b.floating(high)});
  } else {
    if (mapping == "SYMMETRIC") {
      scale = over(b.op("aten::maximum", {f.unary("aten::neg", least), most}), (high - low) / 2);
    } else {
      scale = b.op("aten::maximum", {over(least, low), over(most, high)});
    }
    point = b.op("aten::full", {f.sizes(scale), b.floating(std::trunc((high + low + 1) / 2)), type.dtype});
    scale = b.op("aten::clamp", {scale, eps, {}});
  }
  if (n.boolean("keepdim")) scale = f.view(scale, blocks.counts), point = f.view(point, blocks.counts);
  const DType scale_dtype = n.dtype("scale_dtype", type.dtype);
  return {f.to(scale, scale_dtype), f.to(point, n.dtype("zero_point_dtype", mapping == "ASYMMETRIC" ? DType::kInt32 : scale_dtype))};
}

namespace {
/// Zero points as one entry per block along every dim; none if there are none.
ir::Arg zero_of(Portable& f, const NodeView& n, const std::vector<Expr>& counts) {
  if (n.is_none("zero_point") || dim_is(ir::numel_of(n.type("zero_point").sizes), 0)) return std::monostate();
  return f.view(n.value("zero_point"), counts);
}
}  // namespace

Ids quantize_affine(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId input = n.value("input");
  Blocks blocks;
  if (Status status = read_blocks(b.type(input), n.exprs("block_size"), &blocks); !status.ok()) return b.fail(std::move(status)), Ids{};
  const DType target = n.dtype("output_dtype", DType::kInt8);
  double low = 0, high = 0;
  value_range(n, target, &low, &high);
  if (b.has_kernel != nullptr && b.has_kernel("pteron::quantize.out") && f.dtype(input) == DType::kFloat32 && f.dtype(n.value("scale")) == DType::kFloat32) {
    const ValueId inverse = f.unary("aten::reciprocal", f.view(n.value("scale"), blocks.counts));
    return {b.op("pteron::quantize", {input, inverse, zero_of(f, n, blocks.counts), Expr(static_cast<int64_t>(low)), Expr(static_cast<int64_t>(high)), target, b.boolean(true)})};
  }
  const ValueId x = b.op("aten::reshape", {input, blocks.shape}), scale = b.op("aten::reshape", {n.value("scale"), blocks.outside});
  ValueId q = f.unary("aten::round", f.mul(x, f.unary("aten::reciprocal", scale)));
  if (!n.is_none("zero_point") && !dim_is(ir::numel_of(n.type("zero_point").sizes), 0)) q = f.add(q, b.op("aten::reshape", {n.value("zero_point"), blocks.outside}));
  q = b.op("aten::clamp", {q, b.floating(low), b.floating(high)});
  return {f.view(f.to(q, target), b.type(input).sizes)};
}

Ids dequantize_affine(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId input = n.value("input");
  Blocks blocks;
  if (Status status = read_blocks(b.type(input), n.exprs("block_size"), &blocks); !status.ok()) return b.fail(std::move(status)), Ids{};
  const DType out = n.dtype("output_dtype", DType::kFloat32);
  if (b.has_kernel != nullptr && b.has_kernel("pteron::dequantize.out") && out == DType::kFloat32 && f.dtype(n.value("scale")) == DType::kFloat32) {
    return {b.op("pteron::dequantize", {input, f.view(n.value("scale"), blocks.counts), zero_of(f, n, blocks.counts)})};
  }
  ValueId x = f.to(b.op("aten::reshape", {input, blocks.shape}), out);
  if (!n.is_none("zero_point")) x = f.sub(x, f.to(b.op("aten::reshape", {n.value("zero_point"), blocks.outside}), out));
  x = f.mul(x, b.op("aten::reshape", {n.value("scale"), blocks.outside}));
  return {f.to(f.view(x, b.type(input).sizes), out)};
}

/// Rounds to the levels of a quantized dtype and back; the mask says where the value was inside.
Ids fake_quantize(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = f.wide(n.value("self"));
  const DType dtype = f.dtype(x);
  ValueId inverse, scale, point;
  if (n.is_value("scale")) {
    std::vector<Expr> shape(n.has("axis") ? f.sizes(x).size() : 0, Expr(1));
    if (n.has("axis")) {
      auto axis = wrap_dim_of(n.integer("axis"), f.rank(x));
      if (!axis.ok()) return b.fail(std::move(axis).status()), Ids{};
      shape[static_cast<size_t>(*axis)] = f.size(x, *axis);
    }
    scale = f.view(f.to(n.value("scale"), dtype), shape);
    point = f.view(f.to(n.value("zero_point"), dtype), shape);
    inverse = f.unary("aten::reciprocal", scale);
  } else {
    const double s = n.number("scale");
    scale = f.number(static_cast<double>(static_cast<float>(s)), dtype);
    point = f.number(n.number("zero_point"), dtype);
    inverse = f.number(static_cast<double>(1.0f / static_cast<float>(s)), dtype);
  }
  const double low = n.number("quant_min"), high = n.number("quant_max");
  const ValueId level = f.add(f.unary("aten::round", f.mul(x, inverse)), point);
  const ValueId y = f.to(f.mul(f.sub(b.op("aten::clamp", {level, b.floating(low), b.floating(high)}), point), scale), n.type("self").dtype);
  const bool enabled = n.has("fake_quant_enabled");
  const auto choose = [&](ValueId on, ValueId off) { return f.where(b.op("aten::view", {f.compare("ne", n.value("fake_quant_enabled"), Expr(0)), std::vector<Expr>()}), on, off); };
  if (n.op().schema.returns.size() == 1) return {y};
  const ValueId inside = f.both(f.compare("ge", level, low), f.compare("le", level, high));
  if (!enabled) return {y, inside};
  const ValueId all = b.op("aten::full_like", {inside, b.boolean(true)});
  return {choose(y, n.value("self")), choose(inside, all)};
}

}  // namespace pteron::ops::quantize
