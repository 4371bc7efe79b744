// Convolutions for the compiler: aten::convolution is the core, the others decompose to it.
#include <array>

#include "base/str_cat.h"
#include "ops/compose.h"
#include "ops/conv/shape.h"

namespace pteron::ops::conv {
namespace {

using ir::Builder;
using ir::OpDef;

/// A list of `count` entries from a list of one or `count`.
Status spread(const NodeView& c, std::string_view name, size_t count, std::vector<Expr>* out) {
  *out = c.exprs(name);
  if (out->size() == 1) out->assign(count, (*out)[0]);
  if (out->size() == count) return ok_status();
  return Status(Code::kInvalidInput, str_cat(name, " has ", out->size(), " entries for ", count, " spatial dims"));
}

/// True for dense channels-last memory of rank 4 or 5 (ATen's suggest_memory_format: ambiguous layouts count as row-major).
bool channels_last(const TensorType& t) {
  if (t.rank() != 4 && t.rank() != 5) return false;
  if (ir::is_contiguous(t)) return false;
  Expr expected = t.sizes[1];
  if (!dim_is(t.strides[1], 1)) return false;
  for (size_t d = t.sizes.size(); d-- > 2;) {
    if (!dim_is(t.sizes[d], 1) && !(t.strides[d] == expected)) return false;
    expected = expected * t.sizes[d];
  }
  return dim_is(t.sizes[0], 1) || t.strides[0] == expected;
}

TensorType channels_last_type(DType dtype, std::vector<Expr> sizes) {
  TensorType t = ir::contiguous_type(dtype, std::move(sizes));
  Expr stride = t.sizes[1];
  t.strides[1] = 1;
  for (size_t d = t.sizes.size(); d-- > 2;) {
    t.strides[d] = stride;
    stride = stride * t.sizes[d];
  }
  t.strides[0] = stride;
  return t;
}

/// Result of a convolution; `spatial` is the number of spatial dims, x may lack the batch dim. No padding list: sizes stay ("same").
Status infer(InferContext& c, size_t spatial, bool transposed, const std::vector<Expr>* padding) {
  const TensorType& x = c.type("input");
  const TensorType& w = c.type("weight");
  const bool batched = x.sizes.size() == spatial + 2;
  if ((!batched && x.sizes.size() != spatial + 1) || w.sizes.size() != spatial + 2) {
    return Status(Code::kInvalidInput, str_cat("expected a weight of rank ", spatial + 2, ", found input ", shape_text(x.sizes), " and weight ", shape_text(w.sizes)));
  }
  if (x.dtype != w.dtype) {
    return Status(Code::kInvalidInput, str_cat("expected input and weight of one dtype, found ", dtype_name(x.dtype), " and ", dtype_name(w.dtype)));
  }
  const size_t first = batched ? 2 : 1;
  const Expr groups = c.expr("groups");
  const Expr channels = transposed ? w.sizes[0] : w.sizes[1] * groups;
  if (dim_differ(x.sizes[first - 1], channels)) {
    return Status(Code::kInvalidInput, str_cat("weight ", shape_text(w.sizes), " expects ", ir::to_text(channels), " input channels, input ",
                                               shape_text(x.sizes), " has ", ir::to_text(x.sizes[first - 1])));
  }
  std::vector<Expr> stride, dilation, extra(spatial, Expr(0));
  PTERON_TRY(spread(c, "stride", spatial, &stride));
  PTERON_TRY(spread(c, "dilation", spatial, &dilation));
  if (transposed) PTERON_TRY(spread(c, "output_padding", spatial, &extra));
  std::vector<Expr> sizes;
  if (batched) sizes.push_back(x.sizes[0]);
  sizes.push_back(transposed ? w.sizes[1] * groups : w.sizes[0]);
  for (size_t i = 0; i < spatial; ++i) {
    const Expr in = x.sizes[first + i], kernel = w.sizes[2 + i];
    if (padding == nullptr) {
      sizes.push_back(in);
      continue;
    }
    sizes.push_back(transposed ? transposed_size(in, kernel, stride[i], (*padding)[i], dilation[i], extra[i])
                               : forward_size(in, kernel, stride[i], (*padding)[i], dilation[i]));
    if (sizes.back().is_const() && sizes.back().value() < 0) {
      return Status(Code::kInvalidInput, str_cat("input ", shape_text(x.sizes), " is smaller than the kernel ", shape_text(w.sizes)));
    }
  }
  if (batched && (channels_last(x) || channels_last(w)) && !is_integral(x.dtype, true) && x.dtype != DType::kFloat64) {
    c.add(channels_last_type(x.dtype, std::move(sizes)));
  } else {
    c.add(x.dtype, std::move(sizes));
  }
  return ok_status();
}

Status infer_convolution(InferContext& c) {
  const size_t spatial = c.type("weight").sizes.size() - 2;
  std::vector<Expr> padding;
  PTERON_TRY(spread(c, "padding", spatial, &padding));
  return infer(c, spatial, c.boolean("transposed"), &padding);
}

template <size_t spatial, bool transposed>
Status infer_plain(InferContext& c) {
  std::vector<Expr> padding;
  PTERON_TRY(spread(c, "padding", spatial, &padding));
  return infer(c, spatial, transposed, &padding);
}

template <size_t spatial>
Status infer_named(InferContext& c) {
  const std::vector<Expr> none(spatial, Expr(0));
  if (c.text("padding") == "valid") return infer(c, spatial, false, &none);
  if (c.text("padding") == "same") return infer(c, spatial, false, nullptr);
  return Status(Code::kInvalidInput, str_cat("padding '", c.text("padding"), "' is neither valid nor same"));
}

/// The core op on a batched input, the batch dim added and taken away where it is missing.
std::vector<ValueId> convolve(Builder& b, const NodeView& n, size_t spatial, ValueId x, std::vector<Expr> padding, bool transposed, std::vector<Expr> extra) {
  Compose f(b);
  const bool batched = f.sizes(x).size() == spatial + 2;
  if (!batched) x = f.unsqueeze(x, 0);
  const auto list = [&](std::string_view name) {
    std::vector<Expr> out = n.exprs(name);
    if (out.size() == 1) out.assign(spatial, out[0]);
    return out;
  };
  if (padding.size() == 1) padding.assign(spatial, padding[0]);
  if (extra.size() == 1) extra.assign(spatial, extra[0]);
  if (extra.empty()) extra.assign(spatial, Expr(0));
  const ValueId out = b.op("aten::convolution", {x, n.value("weight"), n.arg("bias"), list("stride"), padding, list("dilation"), b.boolean(transposed),
                                                 extra, n.arg("groups")});
  return {batched ? out : f.squeeze(out, 0)};
}

template <size_t spatial>
std::vector<ValueId> decompose_plain(Builder& b, const NodeView& n) {
  return convolve(b, n, spatial, n.value("input"), n.exprs("padding"), false, {});
}
template <size_t spatial>
std::vector<ValueId> decompose_transposed(Builder& b, const NodeView& n) {
  return convolve(b, n, spatial, n.value("input"), n.exprs("padding"), true, n.exprs("output_padding"));
}

template <size_t spatial>
std::vector<ValueId> decompose_named(Builder& b, const NodeView& n) {
  ValueId x = n.value("input");
  if (n.text("padding") == "valid") return convolve(b, n, spatial, x, std::vector<Expr>(spatial, Expr(0)), false, {});
  const std::vector<Expr> kernel = n.type("weight").sizes;
  std::vector<Expr> dilation = n.exprs("dilation");
  if (dilation.size() == 1) dilation.assign(spatial, dilation[0]);
  std::vector<Expr> before(spatial), rest(2 * spatial, Expr(0));
  bool even = true;
  for (size_t i = 0; i < spatial; ++i) {
    const Expr total = dilation[i] * (kernel[2 + i] - Expr(1));
    before[i] = floor_div(total, Expr(2));
    // An odd total needs one more at the end than at the start: the input gets it, last dim first.
    const Expr more = total - before[i] - before[i];
    rest[2 * (spatial - 1 - i) + 1] = more;
    even = even && dim_is(more, 0);
  }
  if (!even) x = b.op("aten::constant_pad_nd", {x, rest, Expr(0)});
  return convolve(b, n, spatial, x, before, false, {});
}

/// The same for transposed convolutions: each plane of the kernel spreads every image, which is then put at its place in the depth.
std::vector<ValueId> decompose_transposed_planes(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = n.value("input"), weight = n.value("weight");
  const auto entry = [&](std::string_view name, size_t i) {
    const std::vector<Expr> list = n.exprs(name);
    return i < list.size() ? list[i] : list.empty() ? Expr(0) : list[0];
  };
  const auto plane = [&](std::string_view name) { return std::vector<Expr>{entry(name, 1), entry(name, 2)}; };
  const Expr stride = entry("stride", 0), dilation = entry("dilation", 0), padding = entry("padding", 0);
  const Expr batch = f.size(x, 0), count = f.size(x, 2), spread_depth = (count - Expr(1)) * stride + Expr(1);
  const int64_t depth = f.size(weight, 2).value();
  const Expr whole = spread_depth + dilation * Expr(depth - 1) + entry("output_padding", 0);
  const std::array<int64_t, 5> swap{0, 2, 1, 3, 4};
  const ValueId images = f.view(f.permute(x, swap), {batch * count, f.size(x, 1), f.size(x, 3), f.size(x, 4)});
  ValueId sum;
  for (int64_t k = 0; k < depth; ++k) {
    const ValueId part = b.op("aten::convolution", {images, f.select(weight, 2, Expr(k)), {}, plane("stride"), plane("padding"), plane("dilation"), b.boolean(true),
                                                    plane("output_padding"), n.arg("groups")});
    const Expr channels = f.size(part, 1), height = f.size(part, 2), width = f.size(part, 3);
    ValueId slab = f.permute(f.view(part, {batch, count, channels, height, width}), swap);
    if (!dim_is(stride, 1)) {  // zeros between the images
      slab = b.op("aten::constant_pad_nd", {f.unsqueeze(slab, 3), std::vector<Expr>{Expr(0), Expr(0), Expr(0), Expr(0), Expr(0), stride - Expr(1)}, Expr(0)});
      slab = f.slice(f.view(slab, {batch, channels, count * stride, height, width}), 2, 0, spread_depth);
    }
    const Expr first = dilation * Expr(k);
    slab = b.op("aten::constant_pad_nd", {slab, std::vector<Expr>{Expr(0), Expr(0), Expr(0), Expr(0), first, whole - first - spread_depth}, Expr(0)});
    sum = k == 0 ? slab : f.add(sum, slab);
  }
  sum = f.slice(sum, 2, padding, whole - padding);
  if (!n.is_none("bias")) sum = f.add(sum, f.view(n.value("bias"), {Expr(1), f.size(sum, 1), Expr(1), Expr(1), Expr(1)}));
  return {sum};
}

/// Three spatial dims as a sum over the depth of the kernel, each a convolution of planes. For profiles whose kernel has two dims.
std::vector<ValueId> decompose_planes(Builder& b, const NodeView& n) {
  Compose f(b);
  ValueId x = n.value("input");
  const ValueId weight = n.value("weight");
  if (f.rank(x) != 5 || !f.size(weight, 2).is_const()) return {};
  if (n.boolean("transposed")) return decompose_transposed_planes(b, n);
  const auto entry = [&](std::string_view name, size_t i) {
    const std::vector<Expr> list = n.exprs(name);
    return list.size() == 1 ? list[0] : list[i];
  };
  const auto plane = [&](std::string_view name) { return std::vector<Expr>{entry(name, 1), entry(name, 2)}; };
  const Expr padding = entry("padding", 0), stride = entry("stride", 0), dilation = entry("dilation", 0);
  if (!dim_is(padding, 0)) {
    x = b.op("aten::constant_pad_nd", {x, std::vector<Expr>{Expr(0), Expr(0), Expr(0), Expr(0), padding, padding}, Expr(0)});
  }
  const Expr batch = f.size(x, 0), channels = f.size(x, 1), height = f.size(x, 3), width = f.size(x, 4);
  const int64_t depth = f.size(weight, 2).value();
  const Expr count = floor_div(f.size(x, 2) - dilation * Expr(depth - 1) - Expr(1), stride) + Expr(1);
  ValueId sum;
  for (int64_t k = 0; k < depth; ++k) {
    const Expr first = dilation * Expr(k);
    const ValueId slab = b.op("aten::slice.Tensor", {x, Expr(2), first, first + stride * (count - Expr(1)) + Expr(1), stride});
    const std::array<int64_t, 5> planes_first{0, 2, 1, 3, 4};
    const ValueId images = f.view(f.permute(slab, planes_first), {batch * count, channels, height, width});
    const ir::Arg bias = k == 0 ? n.arg("bias") : ir::Arg();
    const ValueId part = b.op("aten::convolution", {images, f.select(weight, 2, Expr(k)), bias, plane("stride"), plane("padding"), plane("dilation"),
                                                    b.boolean(false), std::vector<Expr>{Expr(0), Expr(0)}, n.arg("groups")});
    sum = k == 0 ? part : f.add(sum, part);
  }
  const Expr out_channels = f.size(sum, 1), out_height = f.size(sum, 2), out_width = f.size(sum, 3);
  const std::array<int64_t, 5> channels_first{0, 2, 1, 3, 4};
  return {f.permute(f.view(sum, {batch, count, out_channels, out_height, out_width}), channels_first)};
}

std::vector<ValueId> decompose_old(Builder& b, const NodeView& n) {
  return {b.op("aten::convolution", {n.arg("input"), n.arg("weight"), n.arg("bias"), n.arg("stride"), n.arg("padding"), n.arg("dilation"),
                                     n.arg("transposed"), n.arg("output_padding"), n.arg("groups")})};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, "
               "SymInt[] output_padding, SymInt groups) -> Tensor",
     .infer = infer_convolution, .decompose = decompose_planes, .kernel = "aten::convolution.out"},
    {.schema = "aten::_convolution(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, bool transposed, "
               "SymInt[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled, bool allow_tf32) -> Tensor",
     .infer = infer_convolution, .decompose = decompose_old},
    {.schema = "aten::_convolution.deprecated(Tensor input, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
               "bool transposed, int[] output_padding, SymInt groups, bool benchmark, bool deterministic, bool cudnn_enabled) -> Tensor",
     .infer = infer_convolution, .decompose = decompose_old},
    {.schema = "aten::conv1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0], SymInt[1] dilation=[1], "
               "SymInt groups=1) -> Tensor",
     .infer = infer_plain<1, false>, .decompose = decompose_plain<1>},
    {.schema = "aten::conv1d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], str padding=\"valid\", "
               "SymInt[1] dilation=[1], SymInt groups=1) -> Tensor",
     .infer = infer_named<1>, .decompose = decompose_named<1>},
    {.schema = "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], "
               "SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor",
     .infer = infer_plain<2, false>, .decompose = decompose_plain<2>},
    {.schema = "aten::conv2d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], str padding=\"valid\", "
               "SymInt[2] dilation=[1, 1], SymInt groups=1) -> Tensor",
     .infer = infer_named<2>, .decompose = decompose_named<2>},
    {.schema = "aten::conv3d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], "
               "SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor",
     .infer = infer_plain<3, false>, .decompose = decompose_plain<3>},
    {.schema = "aten::conv3d.padding(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], str padding=\"valid\", "
               "SymInt[3] dilation=[1, 1, 1], SymInt groups=1) -> Tensor",
     .infer = infer_named<3>, .decompose = decompose_named<3>},
    {.schema = "aten::conv_transpose1d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[1] stride=[1], SymInt[1] padding=[0], "
               "SymInt[1] output_padding=[0], SymInt groups=1, SymInt[1] dilation=[1]) -> Tensor",
     .infer = infer_plain<1, true>, .decompose = decompose_transposed<1>},
    {.schema = "aten::conv_transpose2d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=[1, 1], SymInt[2] padding=[0, 0], "
               "SymInt[2] output_padding=[0, 0], SymInt groups=1, SymInt[2] dilation=[1, 1]) -> Tensor",
     .infer = infer_plain<2, true>, .decompose = decompose_transposed<2>},
    {.schema = "aten::conv_transpose3d.input(Tensor input, Tensor weight, Tensor? bias=None, SymInt[3] stride=[1, 1, 1], SymInt[3] padding=[0, 0, 0], "
               "SymInt[3] output_padding=[0, 0, 0], SymInt groups=1, SymInt[3] dilation=[1, 1, 1]) -> Tensor",
     .infer = infer_plain<3, true>, .decompose = decompose_transposed<3>},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::conv
