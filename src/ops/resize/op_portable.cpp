// Resizes to static sizes in terms of index_select: one dim after the other, last dim first, each as a weighted sum over its taps.
#include "ops/portable.h"
#include "ops/resize/portable.h"
#include "ops/resize/taps.h"

namespace pteron::ops::resize {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

constexpr int64_t kMaxTaps = 64;

std::optional<Method> method_of(std::string_view name) {
  if (name.find("_nearest_exact") != std::string_view::npos) return Method::kNearestExact;
  if (name.find("nearest") != std::string_view::npos) return Method::kNearest;
  const bool antialias = name.ends_with("_aa"), cubic = name.find("bicubic") != std::string_view::npos;
  if (antialias) return cubic ? Method::kCubicAntialias : Method::kLinearAntialias;
  return cubic ? Method::kCubic : Method::kLinear;
}

/// One resized dim in dtype R; x is float32 or float64 unless the method is a nearest one.
template <typename R>
ValueId resize_dim(Portable& f, ValueId x, int at, const Dim<R>& d, Method method) {
  const int64_t count = tap_count(d, method);
  std::vector<int64_t> index(static_cast<size_t>(d.out * count));
  std::vector<R> weight(index.size());
  fill_taps(d, method, count, index.data(), weight.data());
  const bool nearest = method == Method::kNearest || method == Method::kNearestExact;
  ValueId sum;
  for (int64_t tap = 0; tap < count; ++tap) {
    std::vector<int64_t> from;
    std::vector<R> by;
    for (int64_t o = 0; o < d.out; ++o) {
      from.push_back(index[static_cast<size_t>(o * count + tap)]);
      by.push_back(weight[static_cast<size_t>(o * count + tap)]);
    }
    const ValueId taken = f.b.op("aten::index_select", {x, Expr(at), f.ints(from)});
    if (nearest) return taken;
    const ValueId factors = f.b.constant(sizeof(R) == 8 ? DType::kFloat64 : DType::kFloat32, {d.out}, std::as_bytes(std::span(by)), "taps");
    const ValueId part = f.mul(taken, f.along(factors, at, f.rank(x)));
    sum = tap == 0 ? part : f.add(sum, part);
  }
  return sum;
}

}  // namespace

Ids portable_resize(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId x = n.value("self");
  const DType dtype = f.dtype(x);
  const std::optional<Method> method = method_of(n.op().name);
  const bool nearest = *method == Method::kNearest || *method == Method::kNearestExact;
  if (!nearest && !is_floating(dtype)) return {};
  const int rank = f.rank(x), spatial = rank - 2;
  std::vector<Expr> to = n.exprs("output_size");
  if (to.size() == 1) to.assign(static_cast<size_t>(spatial), to[0]);
  constexpr std::string_view kScales[] = {"scales_d", "scales_h", "scales_w"};
  if (!nearest) x = f.wide(x);
  for (int i = spatial; i-- > 0;) {
    const Expr in = f.size(x, 2 + i), out = to[static_cast<size_t>(i)];
    if (!in.is_const() || !out.is_const() || in.value() < 1) return {};
    const std::string_view scale_name = spatial == 1 ? "scales" : kScales[3 - spatial + i];
    Dim<float> d{in.value(), out.value(), n.has("align_corners") && n.boolean("align_corners"), std::nullopt};
    if (!n.is_none(scale_name)) d.scale = n.number(scale_name);
    if (tap_count(d, *method) > kMaxTaps) return {};
    if (f.dtype(x) == DType::kFloat64) {
      x = resize_dim(f, x, 2 + i, Dim<double>{d.in, d.out, d.align_corners, d.scale}, *method);
    } else {
      x = resize_dim(f, x, 2 + i, d, *method);
    }
  }
  return {f.to(x, dtype)};
}

}  // namespace pteron::ops::resize
