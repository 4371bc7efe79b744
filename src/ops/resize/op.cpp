// Resizes and grid samplers for the compiler. The .vec forms decompose to the plain ones, but for the two that the official kernels have.
#include "base/str_cat.h"
#include "ops/compose.h"
#include "ops/resize/portable.h"

namespace pteron::ops::resize {
namespace {

using ir::Builder;
using ir::OpDef;

Status check_input(const TensorType& x, size_t spatial) {
  if (x.sizes.size() == spatial + 2) return ok_status();
  return Status(Code::kInvalidInput, str_cat("expected an input of rank ", spatial + 2, ", found ", shape_text(x.sizes)));
}

Status add_result(InferContext& c, const TensorType& x, std::vector<Expr> to) {
  if (x.sizes.size() != to.size() + 2) return check_input(x, to.size());
  const std::string_view name = c.op().schema.name;
  const bool blends_bytes = x.dtype == DType::kUInt8 && (name.find("bilinear") != name.npos || name.find("bicubic") != name.npos);
  const bool many_channels = !x.sizes[1].is_const() || x.sizes[1].value() > 4;
  if (blends_bytes && to.size() == 2 && dim_is(to[1], 1) && many_channels && !ir::is_contiguous(x)) {
    return Status(Code::kUnsupported, "bytes of more than four channels that are not row-major, to a single column: PyTorch's results depend on the layout there");
  }
  std::vector<Expr> sizes{x.sizes[0], x.sizes[1]};
  sizes.insert(sizes.end(), to.begin(), to.end());
  c.add(x.dtype, std::move(sizes));
  return ok_status();
}

template <size_t spatial>
Status infer_plain(InferContext& c) {
  const TensorType x = c.type("self");
  PTERON_TRY(check_input(x, spatial));
  std::vector<Expr> to = c.exprs("output_size");
  if (to.size() == 1) to.assign(spatial, to[0]);
  return add_result(c, x, std::move(to));
}

/// Output sizes of a .vec form: given, or trunc(size * factor).
std::vector<Expr> target_sizes(const NodeView& n, ir::ExprContext& exprs) {
  if (!n.is_none("output_size")) return n.exprs("output_size");
  const std::vector<Expr> factors = n.exprs("scale_factors");
  const std::vector<Expr>& sizes = n.type("input").sizes;
  std::vector<Expr> out;
  for (size_t i = 0; i < factors.size() && i + 2 < sizes.size(); ++i) {
    const Expr size = sizes[i + 2];
    const double factor = ir::is_number(factors[i]) ? ir::number_of(factors[i]) : 1.0;
    if (size.is_const()) {
      out.emplace_back(static_cast<int64_t>(static_cast<double>(size.value()) * factor));
      continue;
    }
    if (factor == static_cast<double>(static_cast<int64_t>(factor))) {
      out.push_back(size * Expr(static_cast<int64_t>(factor)));
      continue;
    }
    const Expr as_float[] = {size};
    const Expr product[] = {exprs.make(ir::ExprOp::kToFloat, as_float), exprs.floating(factor)};
    const Expr scaled[] = {exprs.make(ir::ExprOp::kMul, product)};
    out.push_back(exprs.make(ir::ExprOp::kTrunc, scaled));
  }
  return out;
}

template <size_t spatial>
Status infer_vec(InferContext& c) {
  const TensorType x = c.type("input");
  PTERON_TRY(check_input(x, spatial));
  if (c.is_none("output_size") == c.is_none("scale_factors")) {
    return Status(Code::kInvalidInput, "exactly one of output_size and scale_factors must be given");
  }
  return add_result(c, x, target_sizes(c, c.exprs()));
}

/// The plain op of a .vec one: sizes, then one scale per dim (None without factors).
std::vector<ValueId> decompose_vec(Builder& b, const NodeView& n) {
  const std::string_view vec = n.op().name;
  std::vector<ir::Arg> args{n.value("input"), target_sizes(n, b.exprs())};
  if (n.has("align_corners")) args.push_back(n.arg("align_corners"));
  const std::vector<Expr> factors = n.exprs("scale_factors");
  const size_t spatial = n.type("input").sizes.size() - 2;
  const size_t first = args.size();
  args.resize(first + spatial);
  for (size_t i = 0; i < std::min(spatial, factors.size()); ++i) args[first + i] = factors[i];
  return {b.op(vec.substr(0, vec.size() - 4), std::move(args))};
}

/// The plain op as the .vec one that the official kernels have, where that computes the same.
std::vector<ValueId> decompose_plain(Builder& b, const NodeView& n) {
  const DType dtype = n.type("self").dtype;  // the official linear kernel computes float64 and integers in float32
  if (n.has("align_corners") && (dtype == DType::kFloat64 || !is_floating(dtype))) return portable_resize(b, n);
  std::vector<ir::Arg> args{n.value("self")};
  const bool scaled = !n.is_none("scales_h") && !n.is_none("scales_w");
  if (!scaled && !(n.is_none("scales_h") && n.is_none("scales_w"))) return portable_resize(b, n);
  if (scaled) {
    args.emplace_back(std::monostate());
  } else {
    args.emplace_back(n.exprs("output_size"));
  }
  if (n.has("align_corners")) args.push_back(n.arg("align_corners"));
  if (scaled) {
    args.emplace_back(std::vector<Expr>{n.expr("scales_h"), n.expr("scales_w")});
  } else {
    args.emplace_back(std::monostate());
  }
  const ValueId out = b.op(str_cat(n.op().name, ".vec"), std::move(args));
  // Scales that do not give the asked size cannot be expressed.
  std::vector<Expr> want = sub_sizes(n.type("self").sizes, 0, 2);
  for (const Expr& e : n.exprs("output_size")) want.push_back(e);
  if (!out.valid() || b.type(out).sizes != want) return portable_resize(b, n);
  return {out};
}

Status infer_grid(InferContext& c) {
  const TensorType& x = c.type("input");
  const TensorType& grid = c.type("grid");
  if (x.rank() != grid.rank() || x.rank() < 4 || x.rank() > 5 || dim_differ(x.sizes[0], grid.sizes[0]) ||
      dim_differ(grid.sizes.back(), Expr(x.rank() - 2))) {
    return Status(Code::kInvalidInput, str_cat("input ", shape_text(x.sizes), " and grid ", shape_text(grid.sizes)));
  }
  std::vector<Expr> sizes{x.sizes[0], x.sizes[1]};
  sizes.insert(sizes.end(), grid.sizes.begin() + 1, grid.sizes.end() - 1);
  const DType dtype = x.dtype;
  c.add(dtype, std::move(sizes));
  return ok_status();
}

std::vector<ValueId> decompose_grid(Builder& b, const NodeView& n) {
  return {b.op(n.type("input").rank() == 4 ? "aten::grid_sampler_2d" : "aten::grid_sampler_3d", {n.args().begin(), n.args().end()})};
}

Status infer_affine(InferContext& c) {
  const std::vector<Expr> size = c.exprs("size");
  if (size.size() != 4 && size.size() != 5) return Status(Code::kInvalidInput, str_cat("affine grid of size ", shape_text(size)));
  std::vector<Expr> sizes{size[0]};
  sizes.insert(sizes.end(), size.begin() + 2, size.end());
  sizes.emplace_back(static_cast<int64_t>(size.size() - 2));
  c.add(c.type("theta").dtype, std::move(sizes));
  return ok_status();
}

/// For static float32 sizes: the base positions as a constant times theta.
std::vector<ValueId> decompose_affine(Builder& b, const NodeView& n) {
  if (!n.all_const("size") || n.type("theta").dtype != DType::kFloat32) return {};
  Compose f(b);
  const std::vector<int64_t> size = n.integers("size");
  const bool align = n.boolean("align_corners");
  const size_t dims = size.size() - 2;
  int64_t positions = 1;
  for (size_t d = 0; d < dims; ++d) positions *= size[2 + d];
  std::vector<float> base(static_cast<size_t>(positions) * (dims + 1), 1.0f);
  for (int64_t i = 0; i < positions; ++i) {
    int64_t rest = i;
    for (size_t d = dims; d-- > 0;) {
      const int64_t count = size[2 + d], at = rest % count;
      rest /= count;
      const float step = count > 1 ? 2.0f / static_cast<float>(count - 1) : 0.0f;
      float v = at < count / 2 ? -1.0f + step * static_cast<float>(at) : 1.0f - step * static_cast<float>(count - at - 1);
      if (count <= 1) v = 0;
      if (!align) v = v * static_cast<float>(count - 1) / static_cast<float>(count);
      base[static_cast<size_t>(i) * (dims + 1) + (dims - 1 - d)] = v;
    }
  }
  const auto wide = static_cast<int64_t>(dims);
  const ValueId constant = b.constant(DType::kFloat32, {1, positions, wide + 1}, std::as_bytes(std::span(base)), "affine_base");
  const ValueId grid = f.bmm(f.expand(constant, {Expr(size[0]), Expr(positions), Expr(wide + 1)}), f.transpose(n.value("theta"), 1, 2));
  std::vector<Expr> sizes{Expr(size[0])};
  for (size_t d = 0; d < dims; ++d) sizes.emplace_back(size[2 + d]);
  sizes.emplace_back(wide);
  return {f.view(grid, sizes)};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor", .infer = infer_plain<1>,
     .decompose = portable_resize,
     .kernel = "aten::upsample_nearest1d.out"},
    {.schema = "aten::upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor", .infer = infer_vec<1>,
     .decompose = decompose_vec},
    {.schema = "aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
     .infer = infer_plain<2>, .decompose = decompose_plain, .kernel = "aten::upsample_nearest2d.out"},
    {.schema = "aten::upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor", .infer = infer_vec<2>,
     .kernel = "aten::upsample_nearest2d.vec_out"},
    {.schema = "aten::upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor",
     .infer = infer_plain<3>, .decompose = portable_resize, .kernel = "aten::upsample_nearest3d.out"},
    {.schema = "aten::upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor", .infer = infer_vec<3>,
     .decompose = decompose_vec},
    {.schema = "aten::_upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor", .infer = infer_plain<1>,
     .decompose = portable_resize,
     .kernel = "aten::_upsample_nearest_exact1d.out"},
    {.schema = "aten::_upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor", .infer = infer_vec<1>,
     .decompose = decompose_vec},
    {.schema = "aten::_upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
     .infer = infer_plain<2>, .decompose = portable_resize, .kernel = "aten::_upsample_nearest_exact2d.out"},
    {.schema = "aten::_upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor", .infer = infer_vec<2>,
     .decompose = decompose_vec},
    {.schema = "aten::_upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) "
               "-> Tensor",
     .infer = infer_plain<3>, .decompose = portable_resize, .kernel = "aten::_upsample_nearest_exact3d.out"},
    {.schema = "aten::_upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor", .infer = infer_vec<3>,
     .decompose = decompose_vec},
    {.schema = "aten::upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor", .infer = infer_plain<1>,
     .decompose = portable_resize,
     .kernel = "aten::upsample_linear1d.out"},
    {.schema = "aten::upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
     .infer = infer_vec<1>, .decompose = decompose_vec},
    {.schema = "aten::upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
     .infer = infer_plain<2>, .decompose = decompose_plain, .kernel = "aten::upsample_bilinear2d.out"},
    {.schema = "aten::upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
     .infer = infer_vec<2>, .decompose = decompose_vec, .kernel = "aten::upsample_bilinear2d.vec_out"},
    {.schema = "aten::upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, float? scales_h=None, "
               "float? scales_w=None) -> Tensor",
     .infer = infer_plain<3>, .decompose = portable_resize, .kernel = "aten::upsample_trilinear3d.out"},
    {.schema = "aten::upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
     .infer = infer_vec<3>, .decompose = decompose_vec},
    {.schema = "aten::upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
     .infer = infer_plain<2>, .decompose = portable_resize, .kernel = "aten::upsample_bicubic2d.out"},
    {.schema = "aten::upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
     .infer = infer_vec<2>, .decompose = decompose_vec},
    {.schema = "aten::_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) "
               "-> Tensor",
     .infer = infer_plain<2>, .decompose = portable_resize, .kernel = "aten::_upsample_bilinear2d_aa.out"},
    {.schema = "aten::_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
     .infer = infer_vec<2>, .decompose = decompose_vec},
    {.schema = "aten::_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) "
               "-> Tensor",
     .infer = infer_plain<2>, .decompose = portable_resize, .kernel = "aten::_upsample_bicubic2d_aa.out"},
    {.schema = "aten::_upsample_bicubic2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
     .infer = infer_vec<2>, .decompose = decompose_vec},
    {.schema = "aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
     .infer = infer_grid, .decompose = decompose_grid},
    {.schema = "aten::grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
     .infer = infer_grid, .kernel = "aten::grid_sampler_2d.out"},
    {.schema = "aten::grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor",
     .infer = infer_grid, .kernel = "aten::grid_sampler_3d.out"},
    {.schema = "aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor", .infer = infer_affine,
     .decompose = decompose_affine, .kernel = "aten::affine_grid_generator.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::resize
