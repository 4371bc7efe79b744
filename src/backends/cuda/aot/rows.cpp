// Operators that need numbers of whole rows. A number is made by a loop over the row's columns; what reads it is written behind that loop.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backends/cuda/aot/body.h"
#include "backends/cuda/aot/scalar_ops.h"
#include "base/str_cat.h"
#include "ops/reduce_infer.h"
#include "tensor/dtype.h"

namespace pteron::cuda {

using ir::Expr;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;

namespace {

std::string_view base_of(const NodeView& n) {
  std::string_view op = std::string_view(n.op().name).substr(n.op().name.find(':') + 2);
  return op.substr(0, op.find('.'));
}

std::string_view input_of(const NodeView& n) { return n.has("input") ? "input" : "self"; }

/// The least or the largest number of a dtype.
std::string extreme(DType dtype, bool largest) {
  switch (dtype) {
    case DType::kBool:
      return largest ? "true" : "false";
    case DType::kUInt8:
      return largest ? "(u8)255" : "(u8)0";
    case DType::kInt8:
      return largest ? "(i8)127" : "(i8)-128";
    case DType::kInt16:
      return largest ? "(short)32767" : "(short)-32768";
    case DType::kInt32:
      return largest ? "2147483647" : "(-2147483647 - 1)";
    case DType::kInt64:
      return largest ? "9223372036854775807ll" : "(-9223372036854775807ll - 1)";
    case DType::kFloat64:
      return largest ? "P_DINF" : "(-P_DINF)";
    default:
      return largest ? "P_INF" : "(-P_INF)";
  }
}

}  // namespace

bool row_domain(const NodeView& n, std::vector<Expr>* domain, uint32_t* mask) {
  const TensorType& in = n.type(input_of(n));
  *domain = in.sizes;
  const int rank = in.rank();
  if (n.has("normalized_shape")) {
    const size_t count = n.exprs("normalized_shape").size();
    *mask = 0;
    for (size_t d = in.sizes.size() - count; d < in.sizes.size(); ++d) *mask |= 1u << d;
    return true;
  }
  if (!n.has("dim")) {
    *mask = (1u << rank) - 1;
    return true;
  }
  if (rank == 0) {
    *mask = 0;
    return true;
  }
  const auto made = ops::dims_mask(n, "dim", rank);
  if (!made.ok()) return false;
  *mask = made.value();
  return true;
}

void Body::set_rows(std::vector<Expr> domain, uint32_t mask) {
  domain_ = std::move(domain), mask_ = mask, has_rows_ = true;
  for (size_t d = 0; d < domain_.size(); ++d) {
    const bool folded = (mask >> d & 1u) != 0;
    (folded ? col_at_ : row_at_).push_back(counter(str_cat(folded ? "c" : "r", (folded ? col_at_ : row_at_).size()), domain_[d]));
  }
}

Index Body::whole_index(const Index& rows) const {
  Index out;
  size_t r = 0, c = 0;
  for (size_t d = 0; d < domain_.size(); ++d) out.push_back((mask_ >> d & 1u) != 0 ? col_at_[c++] : rows[r++]);
  return out;
}

std::string Body::fold(std::string_view how, std::string_view type, const std::string& start, const std::function<std::string()>& element) {
  std::vector<Scope> outer;
  std::swap(outer, scopes_);
  // Loops that the element needs end up in front of this one: which loads are this loop's is known when it is complete.
  const size_t first_load = loads_.size();
  scopes_.emplace_back();
  const std::string x = element();
  const std::string name = "a" + std::to_string(names_used_++);
  statement(str_cat(name, " = ", how, "::of(", name, ", ", x, ");"));
  LoopText loop;
  loop.before = str_cat(type, " ", name, " = ", start, ";\n");
  loop.body = std::move(scopes_.back().code);
  loop.after = str_cat(name, " = P_FOLD_ROW(", how, ", ", type, ", ", name, ");\n");
  for (size_t i = first_load; i < loads_.size(); ++i) {
    if (loop.body.find(str_cat("\x03", i, "\x02")) != std::string::npos) loads_[i].loop = loops_.size();
  }
  loops_.push_back(std::move(loop));
  scopes_ = std::move(outer);
  return name;
}

std::string Body::row_constant(std::string_view type, const std::string& text) {
  const std::string name = "a" + std::to_string(names_used_++);
  loops_.back().after += str_cat("const ", type, " ", name, " = ", text, ";\n");
  return name;
}

std::string Body::row(const NodeView& n, ValueId result, size_t output, const Index& at) {
  const std::string_view base = base_of(n), input = input_of(n);
  const TensorType& in = n.type(input);
  const DType out = graph_[result].type.dtype;
  std::vector<Expr> domain;
  uint32_t mask = 0;
  if (!row_domain(n, &domain, &mask) || !has_rows_ || domain != domain_ || mask != mask_) {
    fail(result, "rows of another shape");
    return "0";
  }
  // Which row: the dims that are not folded.
  const std::vector<Expr>& sizes = graph_[result].type.sizes;
  const bool is_whole = sizes.size() == domain.size();  // or keepdim
  Index rows;
  for (size_t d = 0, k = 0; d < domain.size(); ++d) {
    if ((mask >> d & 1u) != 0) continue;
    rows.push_back(is_whole ? at[d] : at[k++]);
  }
  if (rows != row_at_) {
    fail(result, "another row than that of the kernel");
    return "0";
  }
  const bool is_log = base == "logsumexp" || base.ends_with("softmax");  // of integers: in the result's dtype
  const DType own = is_log && is_integral(in.dtype, true) ? out : in.dtype;
  const DType wide = c_type(own) == "float" ? DType::kFloat32 : own;
  const ValueId x_value = n.value(input);
  const Index all = whole_index(rows);
  Expr count = 1;
  for (size_t d = 0; d < domain.size(); ++d) {
    if ((mask >> d & 1u) != 0) count = count * domain[d];
  }
  const auto raw = [&] {
    std::string x = element(x_value, all);
    std::string key = str_cat(x_value.index, "@");
    for (const Expr& e : all) str_append(key, ir::to_text(e), ",");
    if (caches_ && cache_count_ < 2 && !cached_.contains(key) && x.starts_with("t")) {
      const std::string name = "x" + std::to_string(cache_count_++);
      cache_declarations_ += str_cat(c_type(in.dtype), " ", name, "[P_ROOM];\n");
      statement(str_cat(name, "[P_SLOT] = ", x, ";"));
      pending_cache_.emplace_back(key, name + "[P_SLOT]");
    }
    return x;
  };
  // Elements are in registers from the end of the loop that made them.
  const auto folded = [&](std::string_view how, std::string_view type, const std::string& start, const std::function<std::string()>& fn) {
    const std::string name = fold(how, type, start, fn);
    for (auto& [key, text] : pending_cache_) cached_[key] = text;
    pending_cache_.clear();
    return name;
  };
  const auto as = [&](DType to) { return [&, to] { return converted(raw(), in.dtype, to); }; };
  const auto known = [&](std::string_view what, const std::function<std::string()>& make) {
    const std::string key = str_cat(graph_[result].producer.index, what);
    if (const auto found = row_values_.find(key); found != row_values_.end()) return found->second;
    std::string made = make();
    row_values_[key] = made;
    return made;
  };
  const std::string number = str_cat("(", index(count), ")");
  const DType sum_type = is_integral(out, true) ? DType::kInt64 : c_type(out) == "float" ? DType::kFloat32 : out;
  const std::string s(c_type(sum_type)), w(c_type(wide));

  if (base == "sum" || base == "nansum") {
    const auto term = [&] {
      const bool skips = base == "nansum" && is_floating(in.dtype);
      return converted(skips ? str_cat("p_numbers_only(", raw(), ")") : raw(), in.dtype, sum_type);
    };
    return converted(known("sum", [&] { return folded("FoldSum", s, literal(0, sum_type), term); }), sum_type, out);
  }
  if (base == "mean") {
    const std::string sum = known("sum", [&] { return folded("FoldSum", s, literal(0, sum_type), as(sum_type)); });
    return rounded(str_cat("(", sum, " / (", s, ")", number, ")"), out);
  }
  if (base == "prod") return converted(known("prod", [&] { return folded("FoldProd", s, literal(1, sum_type), as(sum_type)); }), sum_type, out);
  if (base == "amax" || base == "amin" || (base == "max" && !n.has("dim")) || (base == "min" && !n.has("dim")) || base == "aminmax") {
    const bool largest = base == "amax" || base == "max" || (base == "aminmax" && output == 1);
    return known(largest ? "max" : "min", [&] { return folded(largest ? "FoldMax" : "FoldMin", w, extreme(in.dtype, !largest), raw); });
  }
  if (base == "any" || base == "all") {
    const bool any = base == "any";
    return converted(known(base, [&] { return folded(any ? "FoldAny" : "FoldAll", "bool", any ? "false" : "true", as(DType::kBool)); }), DType::kBool, out);
  }
  if (base == "count_nonzero") {
    return known("count", [&] { return folded("FoldSum", "i64", "0", [&] { return str_cat("(i64)", converted(raw(), in.dtype, DType::kBool)); }); });
  }
  if (base == "argmax" || base == "argmin" || base == "max" || base == "min") {
    const bool largest = base.ends_with("max");
    const std::string place = known("place", [&] {
      std::vector<Expr> col_sizes;
      for (size_t d = 0; d < domain.size(); ++d) {
        if ((mask >> d & 1u) != 0) col_sizes.push_back(domain[d]);
      }
      const std::string type = str_cat("Place<", w, ">");
      return folded(largest ? "FoldArgMax" : "FoldArgMin", type, str_cat("p_place<", w, ">(0, -1)"),
                    [&] { return str_cat("p_place<", w, ">(", raw(), ", ", index(linear_index(col_sizes, col_at_)), ")"); });
    });
    return str_cat(place, is_integral(out, false) && (base.starts_with("arg") || output == 1) ? ".at" : ".value");
  }
  const auto mean_of = [&] {
    return known("mean", [&] {
      const std::string sum = folded("FoldSum", w, literal(0, wide), as(wide));
      return row_constant(w, str_cat(sum, " / (", w, ")", number));
    });
  };
  const auto squares_of = [&] {
    return known("squares", [&] {
      const std::string mean = mean_of();
      return folded("FoldSum", w, literal(0, wide), [&] {
        const std::string d = fresh(), x = converted(raw(), in.dtype, wide);
        statement(str_cat("const ", w, " ", d, " = ", x, " - ", mean, ";"));
        return str_cat(d, " * ", d);
      });
    });
  };
  if (base == "var" || base == "std" || base == "var_mean" || base == "std_mean") {
    if (output == 1) return rounded(mean_of(), out);
    const double correction = n.is_none("correction") ? 1.0 : n.number("correction");
    const std::string squares = squares_of();
    std::string text = str_cat("(", squares, " / p_max((", w, ")", number, " - ", literal(correction, wide), ", (", w, ")0))");
    if (base.starts_with("std")) text = str_cat("m_sqrt(", text, ")");
    return rounded(text, out);
  }
  if (base == "_softmax" || base == "_log_softmax" || base == "logsumexp") {
    const std::string most = known("most", [&] { return folded("FoldMax", w, extreme(wide, false), as(wide)); });
    const std::string shift =
        known("shift", [&] { return base == "logsumexp" ? row_constant(w, str_cat("p_isinf(", most, ") ? (", w, ")0 : ", most)) : most; });
    const std::string sum = known(
        "sum", [&] { return folded("FoldSum", w, literal(0, wide), [&] { return str_cat("m_exp(", converted(raw(), in.dtype, wide), " - ", shift, ")"); }); });
    if (base == "logsumexp") return rounded(str_cat("(m_log(", sum, ") + ", shift, ")"), out);
    const std::string x = converted(element(x_value, at), in.dtype, wide);
    if (base == "_softmax") {
      const std::string part = known("part", [&] { return row_constant(w, str_cat("(", w, ")1 / ", sum)); });
      return rounded(str_cat("(m_exp(", x, " - ", shift, ") * ", part, ")"), out);
    }
    const std::string log = known("log", [&] { return row_constant(w, str_cat("m_log(", sum, ")")); });
    return rounded(str_cat("(", x, " - ", shift, " - ", log, ")"), out);
  }
  if (base == "linalg_vector_norm") {
    const double ord = n.number("ord", 2);
    const DType real = c_type(out) == "float" ? DType::kFloat32 : out;
    const std::string r(c_type(real));
    const auto size = [&] { return str_cat("m_abs(", converted(raw(), in.dtype, real), ")"); };
    if (std::isinf(ord)) {
      return rounded(known("norm", [&] { return folded(ord > 0 ? "FoldMax" : "FoldMin", r, ord > 0 ? literal(0, real) : extreme(real, true), size); }), out);
    }
    const std::string sum = known("norm", [&] {
      return folded("FoldSum", r, literal(0, real), [&]() -> std::string {
        const std::string name = fresh(), x = size();
        statement(str_cat("const ", r, " ", name, " = ", x, ";"));
        if (ord == 0) return str_cat("(", r, ")(", name, " != 0)");
        if (ord == 1) return name;
        return ord == 2 ? str_cat(name, " * ", name) : str_cat("m_pow(", name, ", ", literal(ord, real), ")");
      });
    });
    if (ord == 0 || ord == 1) return rounded(sum, out);
    return rounded(ord == 2 ? str_cat("m_sqrt(", sum, ")") : str_cat("m_pow(", sum, ", ", literal(1 / ord, real), ")"), out);
  }
  // Norms over the last dims: native_layer_norm, rms_norm, _fused_rms_norm.
  const bool centered = base == "native_layer_norm";
  const double missing = wide == DType::kFloat64 ? std::numeric_limits<double>::epsilon() : static_cast<double>(std::numeric_limits<float>::epsilon());
  const std::string eps = literal(n.is_none("eps") ? missing : n.number("eps"), wide);
  const std::string scale = known("scale", [&] {
    const std::string squares = centered ? squares_of() : folded("FoldSum", w, literal(0, wide), [&] {
      const std::string x = fresh(), text = converted(raw(), in.dtype, wide);
      statement(str_cat("const ", w, " ", x, " = ", text, ";"));
      return str_cat(x, " * ", x);
    });
    return row_constant(w, str_cat("(", w, ")1 / m_sqrt(", squares, " / (", w, ")", number, " + ", eps, ")"));
  });
  if (centered && output == 1) return rounded(mean_of(), out);
  if (output != 0) return rounded(scale, out);
  const std::string x = converted(element(x_value, at), in.dtype, wide);
  std::string text = centered ? str_cat("(", x, " - ", mean_of(), ") * ", scale) : str_cat(x, " * ", scale);
  for (const std::string_view name : {"weight", "bias"}) {
    if (!n.has(name) || n.is_none(name)) continue;
    const TensorType& type = n.type(name);
    text = str_cat("(", text, ") ", name == "weight" ? "* " : "+ ", converted(element(n.value(name), broadcast_index(type.sizes, at)), type.dtype, wide));
  }
  return rounded(str_cat("(", text, ")"), out);
}

}  // namespace pteron::cuda
