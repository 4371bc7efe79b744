// Operators whose element is a sum over something else: products and convolutions of what no library takes (integers, float64, empty ones), Fourier transforms,
// grid samplers.
#include <algorithm>
#include <array>
#include <cmath>

#include "backends/cuda/aot/body.h"
#include "backends/cuda/aot/scalar_ops.h"
#include "base/str_cat.h"
#include "tensor/dtype.h"

namespace pteron::cuda {

using ir::Expr;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;

namespace {

std::string_view base_of(const NodeView& n) {
  const std::string_view op = std::string_view(n.op().name).substr(n.op().name.find(':') + 2);
  return op.substr(0, op.find('.'));
}

/// What sums of a dtype are made in.
DType sum_dtype(DType out) { return is_reduced_float(out) ? DType::kFloat32 : out; }

size_t wrapped(int64_t dim, size_t rank) { return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(std::max<size_t>(rank, 1)) : dim); }

}  // namespace

bool is_loop_op(std::string_view op) {
  constexpr std::string_view kOps[] = {"_fft_c2c",    "_fft_c2r",        "_fft_r2c",        "addmm",  "baddbmm", "bmm",
                                       "convolution", "grid_sampler_2d", "grid_sampler_3d", "linear", "mm"};
  return std::ranges::find(kOps, op) != std::end(kOps);
}

std::string Body::loop(const NodeView& n, ValueId result, const Index& at) {
  const std::string_view base = base_of(n);
  if (base == "convolution") return convolution_sum(n, result, at);
  if (base.starts_with("_fft_")) return fourier_sum(n, result, at);
  return base.starts_with("grid_sampler") ? grid_sample(n, result, at) : product_sum(n, result, at);
}

std::string Body::product_sum(const NodeView& n, ValueId result, const Index& at) {
  const std::string_view base = base_of(n);
  const DType out = graph_[result].type.dtype, wide = sum_dtype(out);
  const std::string t(c_type(wide));
  const bool linear = base == "linear", batched = base == "baddbmm", sums = base == "addmm" || batched;
  const std::string_view left = linear ? "input" : batched ? "batch1" : base == "addmm" ? "mat1" : "self";
  const std::string_view right = linear ? "weight" : batched ? "batch2" : "mat2";
  const TensorType &a = n.type(left), &b = n.type(right);
  const Expr depth = a.sizes.back();
  const std::string total = fresh();
  statement(str_cat(t, " ", total, " = 0;"));
  if (!dim_is(depth, 0)) {
    const std::string k = fresh();
    open(str_cat("for (i64 ", k, " = 0; ", k, " < ", index(depth), "; ++", k, ") {"));
    const Expr along = loaded(k, depth);
    const bool vector = linear && b.rank() == 1;
    Index from = at, with = at;
    if (vector) {
      from.push_back(along), with = {along};
    } else {
      from.back() = along;
      if (linear) with = {at.back(), along};
      if (!linear) with[with.size() - 2] = along;
    }
    const std::string x = converted(element(n.value(left), from), a.dtype, wide), y = converted(element(n.value(right), with), b.dtype, wide);
    statement(str_cat(total, " = p_add(", total, ", p_mul((", t, ")", x, ", (", t, ")", y, "));"));
    close();
  }
  std::string text = total;
  const auto term = [&](std::string_view name) { return converted(element(n.value(name), broadcast_index(n.type(name).sizes, at)), n.type(name).dtype, wide); };
  if (sums) {
    if (ir::number_of(n.expr("alpha")) != 1) text = str_cat("p_mul(", literal(n.expr("alpha"), wide), ", ", text, ")");
    if (ir::number_of(n.expr("beta")) != 0) text = str_cat("p_add(", text, ", p_mul(", literal(n.expr("beta"), wide), ", ", term("self"), "))");
  }
  if (linear && !n.is_none("bias")) text = str_cat("p_add(", text, ", ", term("bias"), ")");
  return converted(text, wide, out);
}

std::string Body::convolution_sum(const NodeView& n, ValueId result, const Index& at) {
  const DType out = graph_[result].type.dtype, wide = sum_dtype(out);
  const std::string t(c_type(wide));
  const TensorType &x = n.type("input"), &weight = n.type("weight");
  const size_t dims = x.sizes.size() - 2;
  const bool transposed = n.boolean("transposed");
  const auto list = [&](std::string_view name) {
    std::vector<Expr> values = n.exprs(name);
    while (values.size() < dims) values.push_back(values.back());
    return values;
  };
  const std::vector<Expr> stride = list("stride"), padding = list("padding"), dilation = list("dilation");
  const Expr groups = n.expr("groups"), inputs = floor_div(x.sizes[1], groups), outputs = floor_div(graph_[result].type.sizes[1], groups);
  const Expr group = dim_is(groups, 1) ? Expr(0) : floor_div(at[1], outputs);
  const std::string total = fresh();
  statement(str_cat(t, " ", total, " = 0;"));
  Index from = at, with(x.sizes.size(), Expr(0));
  for (size_t d = 0; d < dims; ++d) {
    const Expr kernel = weight.sizes[d + 2], size = x.sizes[d + 2];
    const std::string k = fresh(), place = fresh();
    open(str_cat("for (int ", k, " = 0; ", k, " < ", index(kernel), "; ++", k, ") {"));
    with[d + 2] = loaded(k, kernel);
    if (transposed) {
      statement(str_cat("i64 ", place, " = (i64)(", index(at[d + 2] + padding[d]), ") - (i64)", k, " * ", index(dilation[d]), ";"));
      statement(str_cat("if (", place, " < 0 || ", place, " % ", index(stride[d]), " != 0) continue;\n", place, " /= ", index(stride[d]), ";"));
    } else {
      statement(str_cat("const i64 ", place, " = (i64)(", index(at[d + 2] * stride[d] - padding[d]), ") + (i64)", k, " * ", index(dilation[d]), ";"));
    }
    statement(str_cat("if (", place, " < 0 || ", place, " >= ", index(size), ") continue;"));
    from[d + 2] = loaded(place, size);
  }
  const std::string c = fresh();
  open(str_cat("for (int ", c, " = 0; ", c, " < ", index(inputs), "; ++", c, ") {"));
  const Expr channel = loaded(c, inputs);
  from[1] = group * inputs + channel;
  with[0] = transposed ? from[1] : at[1];
  with[1] = transposed ? (dim_is(groups, 1) ? at[1] : floor_mod(at[1], outputs)) : channel;
  const std::string a = converted(element(n.value("input"), from), x.dtype, wide), b = converted(element(n.value("weight"), with), weight.dtype, wide);
  statement(str_cat(total, " = p_add(", total, ", p_mul((", t, ")", a, ", (", t, ")", b, "));"));
  for (size_t d = 0; d <= dims; ++d) close();
  std::string text = total;
  if (!n.is_none("bias")) text = str_cat("p_add(", text, ", ", converted(element(n.value("bias"), {at[1]}), n.type("bias").dtype, wide), ")");
  return converted(text, wide, out);
}

std::string Body::fourier_sum(const NodeView& n, ValueId result, const Index& at) {
  const std::string_view base = base_of(n);
  const TensorType &in = n.type("self"), &type = graph_[result].type;
  const bool to_real = base == "_fft_c2r", from_real = base == "_fft_r2c", forward = from_real || (!to_real && n.boolean("forward"));
  const DType real = in.dtype == DType::kFloat64 || in.dtype == DType::kComplexDouble ? DType::kFloat64 : DType::kFloat32;
  const std::string t(c_type(real)), re = fresh(), im = fresh(), angle = fresh(), sine = fresh(), cosine = fresh();
  statement(str_cat(t, " ", re, " = 0, ", im, " = 0;"));
  Index where = at;
  std::string turns = "0";
  Expr count = 1;
  std::string twice;
  const std::vector<int64_t> dims = n.integers("dim");
  for (size_t i = 0; i < dims.size(); ++i) {
    const size_t d = wrapped(dims[i], at.size());
    const bool halved = to_real && i + 1 == dims.size();
    const Expr signal = halved ? type.sizes[d] : in.sizes[d], terms = halved ? dim_min(floor_div(signal, 2) + 1, in.sizes[d]) : in.sizes[d];
    count = count * signal;
    const std::string k = fresh();
    open(str_cat("for (int ", k, " = 0; ", k, " < ", index(terms), "; ++", k, ") {"));
    where[d] = loaded(k, in.sizes[d]);
    str_append(turns, " + (", t, ")((i64)", k, " * (i64)(", index(at[d]), ") % ", index(signal), ") / (", t, ")", index(signal));
    // The other half of a real signal's spectrum is the conjugate of this one.
    if (halved) twice = str_cat("(", k, " == 0 || 2 * ", k, " == ", index(signal), " ? (", t, ")1 : (", t, ")2)");
  }
  const std::string x = element(n.value("self"), where);
  statement(str_cat("const ", t, " ", angle, " = (", t, ")", forward ? "-2" : "2", " * (", turns, ");\n", t, " ", sine, ", ", cosine, ";\nm_sincospi(", angle,
                    ", &", sine, ", &", cosine, ");"));
  if (from_real) {
    statement(str_cat(re, " += (", t, ")", x, " * ", cosine, ";\n", im, " += (", t, ")", x, " * ", sine, ";"));
  } else {
    const std::string part = str_cat("(", x, ".re * ", cosine, " - ", x, ".im * ", sine, ")");
    statement(str_cat(re, " += ", twice, twice.empty() ? "" : " * ", part, ";"));
    if (!to_real) statement(str_cat(im, " += ", x, ".re * ", sine, " + ", x, ".im * ", cosine, ";"));
  }
  for (size_t i = 0; i < dims.size(); ++i) close();
  // 0: as it is, 1: by the root of the number of elements, 2: by the number.
  const int64_t normalization = n.integer("normalization");
  std::string scale;
  if (normalization == 1) scale = str_cat(" / m_sqrt((", t, ")(", index(count), "))");
  if (normalization == 2) scale = str_cat(" / (", t, ")(", index(count), ")");
  if (to_real) return str_cat("(", re, scale, ")");
  return str_cat(real == DType::kFloat64 ? "p_c128(" : "p_c64(", re, scale, ", ", im, scale, ")");
}

std::string Body::grid_sample(const NodeView& n, ValueId result, const Index& at) {
  const TensorType &in = n.type("input"), &grid = n.type("grid");
  const size_t spatial = in.sizes.size() - 2;
  const std::string t(c_type(graph_[result].type.dtype));
  const int64_t mode = n.integer("interpolation_mode"), padding = n.integer("padding_mode");  // bilinear, nearest, bicubic; zeros, border, reflection
  const std::string corners = n.boolean("align_corners") ? "true" : "false";
  Index place(at.begin(), at.end());
  place.erase(place.begin() + 1);
  place.push_back(0);
  const int64_t taps = mode == 1 ? 1 : mode == 0 ? 2 : 4;
  std::vector<std::string> low, weight;
  for (size_t d = 0; d < spatial; ++d) {
    const Expr size = in.sizes[d + 2];
    place.back() = Expr(static_cast<int64_t>(spatial - 1 - d));  // x stands first in the grid
    const std::string g = converted(element(n.value("grid"), place), grid.dtype, graph_[result].type.dtype);
    const std::string v = fresh(), floor = fresh(), share = fresh(), w = fresh();
    std::string pixel = str_cat("p_grid_pixel((", t, ")", g, ", ", index(size), ", ", corners, ", ", spatial == 2 ? "true" : "false", ")");
    if (mode != 2) pixel = str_cat("p_grid_pad(", pixel, ", ", index(size), ", ", padding, ", ", corners, ")");
    statement(str_cat("const ", t, " ", v, " = ", pixel, ";"));
    statement(str_cat("const ", t, " ", floor, " = ", mode == 1 ? "m_round(" : "m_floor(", v, ");"));
    statement(str_cat("const ", t, " ", share, " = ", v, " - ", floor, ";"));
    if (mode == 0) statement(str_cat("const ", t, " ", w, "[2] = {(", t, ")1 - ", share, ", ", share, "};"));
    if (mode == 2)
      statement(str_cat("const ", t, " ", w, "[4] = {p_cubic_far(", share, " + (", t, ")1), p_cubic_near(", share, "), p_cubic_near((", t, ")1 - ", share,
                        "), p_cubic_far((", t, ")2 - ", share, ")};"));
    low.push_back(floor), weight.push_back(w);
  }
  const std::string total = fresh();
  statement(str_cat(t, " ", total, " = 0;"));
  Index where = at;
  std::string product;
  for (size_t d = 0; d < spatial; ++d) {
    const Expr size = in.sizes[d + 2];
    const std::string k = fresh(), i = fresh();
    open(str_cat("for (int ", k, " = 0; ", k, " < ", taps, "; ++", k, ") {"));
    std::string pixel = mode == 2 ? str_cat("p_grid_pad(", low[d], " + (", t, ")(", k, " - 1), ", index(size), ", ", padding, ", ", corners, ")")
                                  : str_cat(low[d], " + (", t, ")", k);
    statement(str_cat("const i64 ", i, " = p_grid_index(", pixel, ");\nif (", i, " < 0 || ", i, " >= ", index(size), ") continue;"));
    where[d + 2] = loaded(i, size);
    if (mode != 1) str_append(product, " * ", weight[d], "[", k, "]");
  }
  const std::string x = element(n.value("input"), where);
  statement(str_cat(total, " += ", x, product, ";"));
  for (size_t d = 0; d < spatial; ++d) close();
  return total;
}

}  // namespace pteron::cuda
