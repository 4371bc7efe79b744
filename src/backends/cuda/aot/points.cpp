// Operators whose elements are expressions but which are no plain functions of elements at the same place: gathers, joins, pads, windows, resizes.
#include <algorithm>
#include <cmath>
#include <optional>

#include "backends/cuda/aot/body.h"
#include "backends/cuda/aot/scalar_ops.h"
#include "base/str_cat.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

namespace pteron::cuda {

using ir::Expr;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;

namespace {

int64_t wrapped(int64_t dim, size_t rank) { return dim < 0 ? dim + static_cast<int64_t>(std::max<size_t>(rank, 1)) : dim; }

/// Two entries of a list that may have one.
std::vector<Expr> spread(std::vector<Expr> list, size_t count) {
  if (list.size() == 1) list.assign(count, list[0]);
  return list;
}

}  // namespace

std::string Body::point(const NodeView& n, ValueId result, size_t output, const Index& at) {
  const std::string_view op = std::string_view(n.op().name).substr(n.op().name.find(':') + 2);
  const std::string_view base = op.substr(0, op.find('.'));
  const TensorType& type = graph_[result].type;
  const DType out = type.dtype;
  const std::string t(c_type(out));
  const auto self_at = [&](const Index& where) { return converted(element(n.value("self"), where), n.type("self").dtype, out); };
  const auto plain = [&](std::string_view name, DType to) { return operand(n, name, at, to, false); };

  if (is_loop_op(op)) return loop(n, result, at);
  if (base == "view_as_real") {
    const std::string x = element(n.value("self"), Index(at.begin(), at.end() - 1));
    return str_cat("((", index(at.back()), ") == 0 ? ", x, ".re : ", x, ".im)");
  }
  if (base == "view_as_complex") {
    Index where = at;
    where.push_back(0);
    const std::string re = element(n.value("self"), where);
    where.back() = 1;
    return str_cat("p_", t, "(", re, ", ", element(n.value("self"), where), ")");
  }
  if (base == "_to_copy" || base == "clone" || base == "alias_copy" || base == "detach_copy" || base == "lift_fresh_copy") return self_at(at);
  if (base == "copy") return converted(element(n.value("src"), broadcast_index(n.type("src").sizes, at)), n.type("src").dtype, out);
  if (base == "bitwise_not") return out == DType::kBool ? str_cat("!", self_at(at)) : str_cat("(", t, ")(~", self_at(at), ")");
  if (base == "clamp") {
    std::string text = plain("self", out);
    const bool by_tensor = op == "clamp.Tensor";
    if (!n.is_none("min")) text = str_cat("p_max(", text, ", ", operand(n, "min", at, out, !by_tensor), ")");
    if (!n.is_none("max")) text = str_cat("p_min(", text, ", ", operand(n, "max", at, out, !by_tensor), ")");
    return rounded(text, out);
  }
  if (base == "gelu") return rounded(str_cat(n.text("approximate") == "tanh" ? "p_gelu_tanh(" : "p_gelu(", plain("self", out), ")"), out);
  if (base == "masked_fill") {
    const std::string mask = operand(n, "mask", at, DType::kBool, false), value = operand(n, "value", at, out, true);
    return str_cat("(", mask, " ? ", rounded(value, out), " : ", self_at(broadcast_index(n.type("self").sizes, at)), ")");
  }
  if (base == "div") {  // with a rounding mode
    if (n.is_none("rounding_mode")) return rounded(str_cat(plain("self", out), " / ", plain("other", out)), out);
    return rounded(str_cat(n.text("rounding_mode") == "floor" ? "p_divfloor(" : "p_divtrunc(", plain("self", out), ", ", plain("other", out), ")"), out);
  }
  if (op == "pow.Tensor_Scalar") {
    const std::string x = plain("self", out);
    if (!is_floating(out)) return str_cat("p_pow(", x, ", ", plain("exponent", out), ")");
    const double e = ir::is_number(n.expr("exponent")) ? n.number("exponent") : 0;
    std::string text = str_cat("p_pow(", x, ", ", operand(n, "exponent", at, out, true), ")");
    if (e == 1) text = x;
    if (e == 2) text = str_cat("(", x, " * ", x, ")");
    if (e == 3) text = str_cat("(", x, " * ", x, " * ", x, ")");
    if (e == 0.5) text = str_cat("m_sqrt(", x, ")");
    if (e == -0.5) text = str_cat("((", t, ")1 / m_sqrt(", x, "))");
    if (e == -1) text = str_cat("((", t, ")1 / ", x, ")");
    if (e == -2) text = str_cat("((", t, ")1 / (", x, " * ", x, "))");
    return rounded(text, out);
  }
  if (base == "logit") {
    std::string x = plain("self", out);
    if (!n.is_none("eps")) x = str_cat("p_clamp(", x, ", ", literal(n.number("eps"), out), ", ", literal(1 - n.number("eps"), out), ")");
    const std::string name = fresh();
    statement(str_cat("const ", t, " ", name, " = ", x, ";"));
    return rounded(str_cat("p_logit(", name, ")"), out);
  }
  if (base == "nan_to_num") {
    const double most = out == DType::kFloat16    ? 65504.0
                        : out == DType::kBFloat16 ? 3.3895313892515355e38
                        : out == DType::kFloat64  ? 1.7976931348623157e308
                                                  : 3.4028234663852886e38;
    const auto number = [&](std::string_view name, double missing) { return literal(n.is_none(name) ? missing : n.number(name), out, true); };
    const std::string x = self_at(at);
    if (!is_floating(out)) return x;
    return str_cat("(", x, " != ", x, " ? ", number("nan", 0), " : p_isposinf(", x, ") ? ", number("posinf", most), " : p_isneginf(", x, ") ? ",
                   number("neginf", -most), " : ", x, ")");
  }
  if (base == "glu") {
    const auto d = static_cast<size_t>(wrapped(n.integer("dim"), at.size()));
    Index second = at;
    second[d] = at[d] + type.sizes[d];
    const std::string a = self_at(at), b = self_at(second);
    return rounded(str_cat(a, " * p_sigmoid(", b, ")"), out);
  }
  if (base == "full" || base == "full_like") return operand(n, "fill_value", at, out, true);
  if (op == "fill.Scalar") return operand(n, "value", at, out, true);
  if (op == "fill.Tensor") return converted(element(n.value("value"), Index(n.type("value").sizes.size(), Expr(0))), n.type("value").dtype, out);
  if (base == "ones") return literal(1, out);
  if (base == "zeros" || base == "empty") return literal(0, out);
  if (base == "scalar_tensor") return operand(n, "s", at, out, true);
  if (base == "eye") return converted(str_cat("(", index(at[0]), " == ", index(at[1]), ")"), DType::kBool, out);
  if (base == "arange") {
    const bool has_start = n.has("start");
    const auto whole = [&](std::string_view name) { return !n.has(name) || n.expr(name).type() == ir::ExprType::kInt; };
    if (is_integral(out, false) && whole("start") && whole("step")) {
      const Expr value = (has_start ? n.expr("start") : Expr(0)) + at[0] * (has_start ? n.expr("step", 1) : Expr(1));
      return str_cat("(", t, ")(i64)(", index(value), ")");
    }
    const DType wide = is_integral(out, false) ? DType::kInt64 : DType::kFloat64;
    const std::string start = has_start ? operand(n, "start", at, wide, false) : literal(0, wide),
                      step = has_start ? operand(n, "step", at, wide, false) : literal(1, wide);
    return converted(str_cat("(", start, " + ", step, " * (", c_type(wide), ")(", index(at[0]), "))"), wide, out);
  }
  if (base == "tril" || base == "triu") {
    const Expr diagonal = at[at.size() - 1] - at[at.size() - 2] - n.expr("diagonal");
    return str_cat("((", index(diagonal), ") ", base == "tril" ? "<=" : ">=", " 0 ? ", self_at(at), " : ", literal(0, out), ")");
  }
  if (base == "flip") {
    Index where = at;
    if (at.empty()) return self_at(at);
    for (const int64_t dim : n.integers("dims")) {
      const auto d = static_cast<size_t>(wrapped(dim, at.size()));
      where[d] = type.sizes[d] - 1 - at[d];
    }
    return self_at(where);
  }
  if (base == "roll") {
    if (at.empty()) return self_at(at);
    const std::vector<Expr> shifts = n.exprs("shifts");
    const std::vector<int64_t> dims = n.integers("dims");
    if (dims.empty()) {
      const Expr count = ir::numel_of(type.sizes);
      return self_at(split_index(type.sizes, floor_mod(linear_index(type.sizes, at) - shifts[0], count)));
    }
    Index where = at;
    for (size_t i = 0; i < dims.size(); ++i) {
      const auto d = static_cast<size_t>(wrapped(dims[i], at.size()));
      where[d] = floor_mod(where[d] - shifts[i], type.sizes[d]);
    }
    return self_at(where);
  }
  if (base == "repeat") {
    const std::vector<Expr>& sizes = n.type("self").sizes;
    Index where;
    for (size_t d = 0; d < sizes.size(); ++d) where.push_back(dim_is(sizes[d], 1) ? Expr(0) : floor_mod(at[at.size() - sizes.size() + d], sizes[d]));
    return self_at(where);
  }
  if (base == "cat" || base == "stack") {
    std::vector<ValueId> tensors = n.values("tensors");
    if (base == "cat") std::erase_if(tensors, [&](ValueId id) { return graph_[id].type.sizes.size() != at.size(); });  // empty ones of rank 1
    if (tensors.empty()) return literal(0, out);
    const auto d = static_cast<size_t>(wrapped(n.integer("dim"), at.size()));
    const std::string name = fresh();
    statement(str_cat(t, " ", name, ";"));
    Expr start = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorType& part = graph_[tensors[i]].type;
      const Expr size = base == "stack" ? Expr(1) : part.sizes[d];
      const bool is_last = i + 1 == tensors.size();
      open(is_last ? "{" : str_cat("if (", index(at[d]), " < ", index(start + size), ") {"));
      Index where = at;
      where[d] = at[d] - start;
      if (base == "stack") where.erase(where.begin() + static_cast<std::ptrdiff_t>(d));
      statement(str_cat(name, " = ", converted(element(tensors[i], where), part.dtype, out), ";"));
      close(is_last ? "}" : "} else");
      start = start + size;
    }
    return name;
  }
  if (base == "slice_scatter" || base == "select_scatter") {
    const auto d = static_cast<size_t>(wrapped(n.integer("dim"), at.size()));
    const Expr size = type.sizes[d];
    const auto bound = [&](Expr e) { return e.is_const() && e.value() < 0 ? dim_max(e + size, 0) : e; };
    const Expr start = base == "select_scatter" ? bound(n.expr("index")) : dim_min(bound(n.expr("start", 0)), size);
    const Expr step = base == "select_scatter" ? Expr(1) : n.expr("step", 1);
    const Expr count = base == "select_scatter" ? Expr(1) : n.type("src").sizes[d];
    const std::string name = fresh();
    statement(str_cat(t, " ", name, ";"));
    const Expr step_number = dim_is(step, 1) ? at[d] - start : floor_div(at[d] - start, step);
    std::string inside = str_cat("(", index(at[d] - start), ") >= 0 && (", index(step_number), ") < ", index(count));
    if (!dim_is(step, 1)) str_append(inside, " && (", index(floor_mod(at[d] - start, step)), ") == 0");
    open(str_cat("if (", inside, ") {"));
    Index where = at;
    where[d] = step_number;
    if (base == "select_scatter") where.erase(where.begin() + static_cast<std::ptrdiff_t>(d));
    statement(str_cat(name, " = ", converted(element(n.value("src"), where), n.type("src").dtype, out), ";"));
    close("} else {");
    scopes_.emplace_back();
    statement(str_cat(name, " = ", self_at(at), ";"));
    close();
    return name;
  }
  if (base == "constant_pad_nd") {
    const std::vector<Expr> pad = n.exprs("pad");
    const std::vector<Expr>& sizes = n.type("self").sizes;
    Index where = at;
    std::string inside;
    for (size_t i = 0; 2 * i + 1 < pad.size(); ++i) {
      const size_t d = at.size() - 1 - i;
      where[d] = at[d] - pad[2 * i];
      if (!(dim_is(pad[2 * i], 0) && dim_is(pad[2 * i + 1], 0))) {
        str_append(inside, inside.empty() ? "" : " && ", "(", index(where[d]), ") >= 0 && (", index(where[d]), ") < ", index(sizes[d]));
      }
    }
    if (inside.empty()) return self_at(at);
    const std::string name = fresh();
    statement(str_cat(t, " ", name, " = ", operand(n, "value", at, out, true), ";"));
    open(str_cat("if (", inside, ") {"));
    statement(str_cat(name, " = ", self_at(where), ";"));
    close();
    return name;
  }
  if (base.starts_with("reflection_pad") || base.starts_with("replication_pad")) {
    const std::vector<Expr> pad = n.exprs("padding");
    const std::vector<Expr>& sizes = n.type("self").sizes;
    Index where = at;
    for (size_t i = 0; 2 * i + 1 < pad.size(); ++i) {
      const size_t d = at.size() - 1 - i;
      const std::string name = fresh();
      statement(str_cat("const i64 ", name, " = ", base.starts_with("reflection") ? "p_reflect(" : "p_within(", index(at[d] - pad[2 * i]), ", ",
                        index(sizes[d]), ");"));
      where[d] = loaded(name, sizes[d]);
    }
    return self_at(where);
  }
  if (base == "embedding") {
    const TensorType& weight = n.type("weight");
    const Expr row = position(n.value("indices"), Index(at.begin(), at.end() - 1), weight.sizes[0]);
    return element(n.value("weight"), {row, at.back()});
  }
  if (base == "index_select") {
    if (n.type("self").sizes.empty()) return self_at(at);
    const auto d = static_cast<size_t>(wrapped(n.integer("dim"), at.size()));
    Index where = at;
    where[d] = position(n.value("index"), broadcast_index(n.type("index").sizes, {at[d]}), n.type("self").sizes[d]);
    return self_at(where);
  }
  if (base == "gather") {
    if (n.type("self").sizes.empty()) return self_at({});
    const auto d = static_cast<size_t>(wrapped(n.integer("dim"), at.size()));
    Index where = at;
    where[d] = position(n.value("index"), at, n.type("self").sizes[d]);
    return self_at(where);
  }
  if (op == "index.Tensor") {
    const std::vector<ValueId> indices = n.values("indices");
    const std::vector<Expr>& sizes = n.type("self").sizes;
    // The index dims stand where the first indexed dim does, or first if indexed dims are apart.
    size_t index_rank = 0, first = sizes.size(), last = 0, count = 0;
    for (size_t d = 0; d < indices.size(); ++d) {
      if (!indices[d].valid()) continue;
      index_rank = std::max(index_rank, graph_[indices[d]].type.sizes.size());
      first = std::min(first, d), last = d, ++count;
    }
    const size_t place = last - first + 1 == count ? first : 0;
    const Index among(at.begin() + static_cast<std::ptrdiff_t>(place), at.begin() + static_cast<std::ptrdiff_t>(place + index_rank));
    Index where;
    size_t next = 0;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d < indices.size() && indices[d].valid()) {
        where.push_back(position(indices[d], broadcast_index(graph_[indices[d]].type.sizes, among), sizes[d]));
        continue;
      }
      if (next == place) next += index_rank;
      where.push_back(at[next++]);
    }
    return self_at(where);
  }
  if (base == "pixel_shuffle" || base == "pixel_unshuffle") {
    const bool shuffle = base == "pixel_shuffle";
    const Expr r = n.expr(shuffle ? "upscale_factor" : "downscale_factor");
    Index where = at;
    Expr &c = where[at.size() - 3], &y = where[at.size() - 2], &x = where[at.size() - 1];
    if (shuffle) {
      c = (c * r + floor_mod(y, r)) * r + floor_mod(x, r);
      y = floor_div(y, r), x = floor_div(x, r);
    } else {
      const Expr cell = floor_mod(c, r * r);
      y = y * r + floor_div(cell, r), x = x * r + floor_mod(cell, r);
      c = floor_div(c, r * r);
    }
    return self_at(where);
  }
  if (base == "_native_batch_norm_legit_no_training" || base == "native_batch_norm") {
    const TensorType& in = n.type("input");
    if (output != 0) return literal(0, out);
    const DType wide = c_type(in.dtype) == "float" ? DType::kFloat32 : in.dtype;
    const auto channel = [&](std::string_view name) { return converted(element(n.value(name), {at[1]}), n.type(name).dtype, wide); };
    const std::string x = element(n.value("input"), at), mean = channel("running_mean"), variance = channel("running_var");
    std::string text = str_cat("(", x, " - ", mean, ") * ((", c_type(wide), ")1 / m_sqrt(", variance, " + ", literal(n.number("eps"), wide), "))");
    if (!n.is_none("weight")) text = str_cat("(", text, ") * ", channel("weight"));
    if (!n.is_none("bias")) text = str_cat("(", text, ") + ", channel("bias"));
    return rounded(str_cat("(", text, ")"), out);
  }
  if (base.find("pool") != std::string_view::npos) return pool(n, result, output, at);
  return resize(n, result, at);
}

std::string Body::pool(const NodeView& n, ValueId result, size_t output, const Index& at) {
  const std::string_view op = std::string_view(n.op().name).substr(6);
  const TensorType &type = graph_[result].type, &in = n.type("self");
  const bool is_max = op.find("max_pool") != std::string_view::npos, adaptive = op.find("adaptive") != std::string_view::npos;
  const size_t spatial = op.find("3d") != std::string_view::npos ? 3 : 2, first = in.sizes.size() - spatial;
  const DType sum_type = c_type(in.dtype) == "float" ? DType::kFloat32 : in.dtype;
  const std::string t(c_type(sum_type));
  const std::string total = fresh(), place = fresh(), count = fresh();
  std::vector<Expr> kernel, stride, padding, dilation(spatial, Expr(1));
  if (!adaptive) {
    kernel = spread(n.exprs("kernel_size"), spatial);
    stride = n.exprs("stride").empty() ? kernel : spread(n.exprs("stride"), spatial);
    padding = spread(n.exprs("padding"), spatial);
    if (is_max) dilation = spread(n.exprs("dilation"), spatial);
  }
  statement(str_cat(t, " ", total, " = ", is_max && is_floating(in.dtype) ? str_cat("-p_inf((", t, ")0)") : "0", ";"));
  if (is_max) statement(str_cat("i64 ", place, " = -1;"));
  if (adaptive) statement(str_cat("int ", count, " = 0;"));
  Index where = at;
  std::vector<std::string> begins, ends;
  for (size_t d = 0; d < spatial; ++d) {
    const std::string k = fresh();
    const Expr size = in.sizes[first + d], o = at[first + d];
    if (adaptive) {
      const Expr to = type.sizes[first + d];
      open(str_cat("for (int ", k, " = ", index(floor_div(o * size, to)), "; ", k, " < ", index(floor_div((o + 1) * size + to - 1, to)), "; ++", k, ") {"));
      where[first + d] = loaded(k, size);
    } else {
      open(str_cat("for (int ", k, " = 0; ", k, " < ", index(kernel[d]), "; ++", k, ") {"));
      const Expr step = counter(k, kernel[d]);
      const Expr from = o * stride[d] - padding[d] + (dim_is(kernel[d], 1) ? Expr(0) : step) * dilation[d];
      where[first + d] = from;
      statement(str_cat("if ((", index(from), ") < 0 || (", index(from), ") >= ", index(size), ") continue;"));
    }
  }
  const std::string x = element(n.value("self"), where);
  if (is_max) {
    const Expr linear = linear_index(std::span(in.sizes).subspan(first), Index(where.begin() + static_cast<std::ptrdiff_t>(first), where.end()));
    statement(str_cat("if (", place, " < 0 || ", x, " > ", total, " || ", x, " != ", x, ") { ", total, " = ", x, "; ", place, " = ", index(linear), "; }"));
  } else {
    statement(str_cat(total, " += ", x, ";"));
    if (adaptive) statement(str_cat("++", count, ";"));
  }
  for (size_t d = 0; d < spatial; ++d) close();
  if (is_max) return output == 0 ? total : place;
  if (adaptive) return rounded(str_cat("(", total, " / (", t, ")", count, ")"), type.dtype);
  std::string divisor;
  if (n.has("divisor_override") && !n.is_none("divisor_override")) {
    divisor = str_cat("(", n.integer("divisor_override"), ")");
  } else {
    Expr inside = 1;
    for (size_t d = 0; d < spatial; ++d) {
      const Expr size = in.sizes[first + d], start = at[first + d] * stride[d] - padding[d];
      const Expr end = dim_min(start + kernel[d], size + padding[d]);
      const bool counts = n.boolean("count_include_pad");
      inside = inside * (counts ? end - start : dim_min(end, size) - dim_max(start, 0));
    }
    divisor = str_cat("(", index(inside), ")");
  }
  return rounded(str_cat("(", total, " / (", t, ")", divisor, ")"), type.dtype);
}

std::string Body::resize(const NodeView& n, ValueId result, const Index& at) {
  const std::string_view op = std::string_view(n.op().name).substr(6);
  const bool vec = op.ends_with(".vec");
  const std::string_view name = vec ? "input" : "self";
  const TensorType &type = graph_[result].type, &in = n.type(name);
  const size_t spatial = in.sizes.size() - 2;
  const bool exact = op.find("exact") != std::string_view::npos, linear = op.find("linear") != std::string_view::npos;
  const bool corners = linear && n.boolean("align_corners");
  const std::string_view scale_names[] = {"scales_d", "scales_h", "scales_w"};
  const DType real = in.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const std::string t(c_type(real));
  std::vector<Expr> factors;
  if (vec && !n.is_none("scale_factors")) factors = n.exprs("scale_factors");
  struct Tap {
    Expr low, high;
    std::string weight;
  };
  std::vector<Tap> taps;
  for (size_t d = 0; d < spatial; ++d) {
    const Expr size = in.sizes[2 + d], to = type.sizes[2 + d];
    double factor = 0;
    if (vec && d < factors.size()) factor = ir::number_of(factors[d]);
    const std::string_view scale_name = spatial == 1 ? std::string_view("scales") : scale_names[3 - spatial + d];
    if (!vec && n.has(scale_name) && !n.is_none(scale_name)) factor = n.number(scale_name);
    const std::string o = str_cat("(", t, ")(", index(at[2 + d]), ")"), from = str_cat("(", t, ")", index(size)), over = str_cat("(", t, ")", index(to));
    std::string ratio = str_cat("(", from, " / ", over, ")");
    if (corners) ratio = str_cat("(", index(to), " > 1 ? (", from, " - 1) / (", over, " - 1) : (", t, ")0)");
    if (!corners && factor > 0)
      ratio = literal(static_cast<double>(real == DType::kFloat32 ? static_cast<double>(static_cast<float>(1.0 / factor)) : 1.0 / factor), real);
    const std::string place = fresh(), low = fresh();
    if (!linear) {
      statement(
          str_cat("const i64 ", low, " = p_within((i64)m_floor(", exact ? str_cat("(", o, " + (", t, ")0.5)") : o, " * ", ratio, "), ", index(size), ");"));
      taps.push_back({loaded(low, size), 0, {}});
      continue;
    }
    statement(str_cat("const ", t, " ", place, " = ",
                      corners ? str_cat(ratio, " * ", o) : str_cat("p_relu(", ratio, " * (", o, " + (", t, ")0.5) - (", t, ")0.5)"), ";"));
    statement(str_cat("const i64 ", low, " = p_within((i64)", place, ", ", index(size), ");"));
    const std::string high = fresh(), weight = fresh();
    statement(str_cat("const i64 ", high, " = p_within(", low, " + 1, ", index(size), ");"));
    statement(str_cat("const ", t, " ", weight, " = p_min(p_max(", place, " - (", t, ")", low, ", (", t, ")0), (", t, ")1);"));
    taps.push_back({loaded(low, size), loaded(high, size), weight});
  }
  const std::function<std::string(size_t, Index)> blend = [&](size_t d, Index where) -> std::string {
    if (d == spatial) return element(n.value(name), where);
    where[2 + d] = taps[d].low;
    const std::string a = blend(d + 1, where);
    if (!linear) return a;
    where[2 + d] = taps[d].high;
    const std::string b = blend(d + 1, where);
    const std::string made = fresh();
    statement(str_cat("const ", t, " ", made, " = ((", t, ")1 - ", taps[d].weight, ") * ", a, " + ", taps[d].weight, " * ", b, ";"));
    return made;
  };
  const std::string made = blend(0, at);
  return linear ? rounded(made, type.dtype) : made;
}

}  // namespace pteron::cuda
