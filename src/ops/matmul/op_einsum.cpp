// einsum: the equation is parsed to one label per dim, operands are multiplied pairwise: elementwise where nothing is summed, as batched
// matrix products otherwise. ATen chooses the same way, which autocast sees.
#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "ops/matmul/rows.h"

namespace pteron::ops::matmul {
namespace {

/// Labels are letters as they are, and 256 + i for the i-th dim that "..." stands for, counted from the right.
using Labels = std::vector<int>;
constexpr int kEllipsis = 256;

struct Equation {
  std::vector<Labels> operands;
  Labels output;
};

bool contains(const Labels& labels, int label) { return std::find(labels.begin(), labels.end(), label) != labels.end(); }

Status bad_equation(std::string_view text) { return Status(Code::kInvalidInput, str_cat("einsum: bad equation '", text, "'")); }

/// Labels of one side; "..." becomes `wide` labels.
Status parse_term(std::string_view text, size_t wide, Labels* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text[i] == '.') {
      if (text.substr(i, 3) != "...") return bad_equation(text);
      for (size_t w = wide; w-- > 0;) out->push_back(kEllipsis + static_cast<int>(w));
      i += 2;
      continue;
    }
    out->push_back(static_cast<unsigned char>(text[i]));
  }
  return ok_status();
}

size_t letters_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return c != ' ' && c != '.'; }));
}

/// Sorted labels that appear once, after the ellipsis: the output when there is no "->".
Labels implied_output(const std::vector<Labels>& operands, size_t wide) {
  Labels out;
  for (size_t w = wide; w-- > 0;) out.push_back(kEllipsis + static_cast<int>(w));
  for (int label = 0; label < kEllipsis; ++label) {
    std::ptrdiff_t uses = 0;
    for (const Labels& labels : operands) uses += std::count(labels.begin(), labels.end(), label);
    if (uses == 1) out.push_back(label);
  }
  return out;
}

Status parse_equation(std::string_view text, const std::vector<int>& ranks, Equation* out) {
  const size_t arrow = text.find("->");
  std::string_view left = text.substr(0, arrow);
  std::vector<std::string_view> terms;
  for (size_t comma = left.find(','); comma != std::string_view::npos; comma = left.find(',')) {
    terms.push_back(left.substr(0, comma));
    left.remove_prefix(comma + 1);
  }
  terms.push_back(left);
  if (terms.size() != ranks.size()) return bad_equation(text);
  size_t widest = 0;
  for (size_t i = 0; i < terms.size(); ++i) {
    const bool dots = terms[i].find("...") != std::string_view::npos;
    const size_t letters = letters_of(terms[i]), rank = static_cast<size_t>(ranks[i]);
    if (letters > rank || (!dots && letters != rank)) return bad_equation(text);
    out->operands.emplace_back();
    PTERON_TRY(parse_term(terms[i], rank - letters, &out->operands.back()));
    if (dots) widest = std::max(widest, rank - letters);
  }
  if (arrow == std::string_view::npos) {
    out->output = implied_output(out->operands, widest);
    return ok_status();
  }
  return parse_term(text.substr(arrow + 2), widest, &out->output);
}

/// An operand with distinct labels.
struct Term {
  ValueId value;
  Labels labels;
};

/// Dims with the same label become their diagonal.
void take_diagonals(Compose& f, Term* t) {
  for (size_t i = 0; i < t->labels.size(); ++i) {
    for (size_t j = i + 1; j < t->labels.size();) {
      if (t->labels[i] != t->labels[j]) {
        ++j;
        continue;
      }
      const int label = t->labels[i];
      t->value = f.b.op("aten::diagonal", {t->value, Expr(0), Expr(static_cast<int64_t>(i)), Expr(static_cast<int64_t>(j))});
      t->labels.erase(t->labels.begin() + static_cast<std::ptrdiff_t>(j));
      t->labels.erase(t->labels.begin() + static_cast<std::ptrdiff_t>(i));
      t->labels.push_back(label);
      i = 0;
      j = 1;
    }
  }
}

size_t position(const Labels& labels, int label) {
  return static_cast<size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin());
}

/// Dims of size 1 whose label has another size elsewhere broadcast: they are dropped here.
void drop_broadcast_dims(Compose& f, Term* t, const Term& other) {
  for (size_t i = 0; i < t->labels.size();) {
    const bool one = dim_is(f.size(t->value, static_cast<int>(i)), 1);
    if (one && contains(other.labels, t->labels[i])) {
      t->value = f.squeeze(t->value, static_cast<int>(i));
      t->labels.erase(t->labels.begin() + static_cast<std::ptrdiff_t>(i));
      continue;
    }
    ++i;
  }
}

/// Sums the dims whose label nothing else needs.
void sum_unneeded(Compose& f, Term* t, const Labels& needed) {
  std::vector<Expr> dims;
  Labels left;
  for (size_t i = 0; i < t->labels.size(); ++i) {
    if (contains(needed, t->labels[i])) {
      left.push_back(t->labels[i]);
    } else {
      dims.emplace_back(static_cast<int64_t>(i));
    }
  }
  if (dims.empty()) return;
  t->value = f.sum(t->value, dims);
  t->labels = left;
}

ValueId ordered(Compose& f, const Term& t, const Labels& order) {
  std::vector<int64_t> dims;
  for (const int label : order) dims.push_back(static_cast<int64_t>(position(t.labels, label)));
  return f.permute(t.value, dims);
}

Expr product_of(Compose& f, const Term& t, const Labels& labels) {
  Expr n = 1;
  for (const int label : labels) n = n * f.size(t.value, static_cast<int>(position(t.labels, label)));
  return n;
}

/// Dims in that order, of size 1 where the term lacks the label.
ValueId spread(Compose& f, const Term& t, const Labels& order) {
  Labels own;
  for (const int label : order) {
    if (contains(t.labels, label)) own.push_back(label);
  }
  ValueId value = ordered(f, t, own);
  for (size_t i = 0; i < order.size(); ++i) {
    if (!contains(t.labels, order[i])) value = f.unsqueeze(value, static_cast<int>(i));
  }
  return value;
}

/// a * b with the labels in the order of `needed`.
Term multiply(Compose& f, const Term& a, const Term& b, const Labels& needed) {
  Term out;
  for (const int label : needed) {
    if (!contains(out.labels, label) && (contains(a.labels, label) || contains(b.labels, label))) out.labels.push_back(label);
  }
  const ValueId left = spread(f, a, out.labels), right = spread(f, b, out.labels);
  out.value = f.mul(left, right);
  return out;
}

/// a * b summed over the labels that are in both and not in `needed`.
Term contract(Compose& f, Term a, Term b, const Labels& needed) {
  drop_broadcast_dims(f, &a, b);
  drop_broadcast_dims(f, &b, a);
  Labels all = needed;
  all.insert(all.end(), b.labels.begin(), b.labels.end());
  sum_unneeded(f, &a, all);
  all = needed;
  all.insert(all.end(), a.labels.begin(), a.labels.end());
  sum_unneeded(f, &b, all);
  Labels batch, rows, summed, columns;
  for (const int label : a.labels) {
    if (!contains(b.labels, label)) {
      rows.push_back(label);
    } else if (contains(needed, label)) {
      batch.push_back(label);
    } else {
      summed.push_back(label);
    }
  }
  for (const int label : b.labels) {
    if (!contains(a.labels, label)) columns.push_back(label);
  }
  if (summed.empty()) return multiply(f, a, b, needed);
  const auto joined = [](Labels x, const Labels& y, const Labels& z) {
    x.insert(x.end(), y.begin(), y.end());
    x.insert(x.end(), z.begin(), z.end());
    return x;
  };
  Term out;
  out.labels = joined(batch, rows, columns);
  std::vector<Expr> sizes;
  for (const int label : out.labels) {
    const Term& from = contains(a.labels, label) ? a : b;
    sizes.push_back(f.size(from.value, static_cast<int>(position(from.labels, label))));
  }
  const Expr count = product_of(f, a, batch), m = product_of(f, a, rows), k = product_of(f, a, summed), n = product_of(f, b, columns);
  const ValueId left = ordered(f, a, joined(batch, rows, summed)), right = ordered(f, b, joined(batch, summed, columns));
  if (batch.empty()) {
    out.value = f.view(f.mm(f.view(left, {m, k}), f.view(right, {k, n})), sizes);
  } else {
    out.value = f.view(f.bmm(f.view(left, {count, m, k}), f.view(right, {count, k, n})), sizes);
  }
  return out;
}

/// The two terms that are multiplied next: of the path if it has them, else the first two.
std::pair<size_t, size_t> step_of(const std::vector<int64_t>& path, size_t step, size_t terms) {
  if (2 * step + 1 >= path.size()) return {0, 1};
  const auto first = static_cast<size_t>(path[2 * step]), second = static_cast<size_t>(path[2 * step + 1]);
  return first < terms && second < terms && first != second ? std::pair(first, second) : std::pair<size_t, size_t>(0, 1);
}

}  // namespace

Status infer_einsum(InferContext& c) {
  const std::vector<ValueId> values = c.values("tensors");
  if (values.empty()) return bad_equation(c.text("equation"));
  std::vector<int> ranks;
  for (const ValueId v : values) ranks.push_back(c.type(v).rank());
  Equation equation;
  PTERON_TRY(parse_equation(c.text("equation"), ranks, &equation));
  std::vector<Expr> sizes;
  for (const int label : equation.output) {
    Expr size = 1;
    bool found = false;
    for (size_t i = 0; i < values.size(); ++i) {
      for (size_t d = 0; d < equation.operands[i].size(); ++d) {
        if (equation.operands[i][d] != label) continue;
        const Expr here = c.type(values[i]).sizes[d];
        if (!found || dim_is(size, 1)) size = here;
        found = true;
      }
    }
    if (!found) return bad_equation(c.text("equation"));
    sizes.push_back(size);
  }
  DType dtype = c.type(values[0]).dtype;
  for (const ValueId v : values) dtype = promote_dtypes(dtype, c.type(v).dtype);  // elementwise products promote
  c.add(dtype, std::move(sizes));
  return ok_status();
}

std::vector<ValueId> decompose_einsum(ir::Builder& b, const NodeView& n) {
  Compose f(b);
  const std::vector<ValueId> values = n.values("tensors");
  std::vector<int> ranks;
  for (const ValueId v : values) ranks.push_back(f.rank(v));
  Equation equation;
  if (Status status = parse_equation(n.text("equation"), ranks, &equation); !status.ok()) {
    b.fail(std::move(status));
    return {};
  }
  std::vector<Term> terms;
  for (size_t i = 0; i < values.size(); ++i) {
    terms.push_back({values[i], equation.operands[i]});
    take_diagonals(f, &terms.back());
  }
  const std::vector<int64_t> path = n.is_none("path") ? std::vector<int64_t>() : n.integers("path");
  for (size_t step = 0; terms.size() > 1 && b.status().ok(); ++step) {
    auto [first, second] = step_of(path, step, terms.size());
    const Term left = terms[first], right = terms[second];
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(std::max(first, second)));
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(std::min(first, second)));
    Labels needed = equation.output;
    for (const Term& other : terms) needed.insert(needed.end(), other.labels.begin(), other.labels.end());
    terms.insert(path.empty() ? terms.begin() : terms.end(), contract(f, left, right, needed));
  }
  Term result = terms[0];
  sum_unneeded(f, &result, equation.output);
  if (!b.status().ok()) return {};
  const ValueId out = ordered(f, result, equation.output);
  // A pure permutation or diagonal would alias the operand; einsum's result may too in ATen, so a view is right.
  return {out};
}

}  // namespace pteron::ops::matmul
