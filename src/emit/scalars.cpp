// Scalar values of a method: constants, lists, and expressions over sizes as prim instructions.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/str_cat.h"
#include "emit/method_emitter.h"
#include "ir/scalar_kernels.h"

namespace pteron::emit {

using ir::BaseType;
using ir::Expr;
using ir::ExprOp;
using ir::ExprType;

namespace {

/// Zero of a scalar type, as the first value of a slot.
format::ValueSpec empty_slot(ExprType type) {
  if (type == ExprType::kFloat) return 0.0;
  if (type == ExprType::kBool) return false;
  return int64_t{0};
}

}  // namespace

int32_t MethodEmitter::add_value(format::ValueSpec value) {
  plan_.values.push_back(std::move(value));
  return static_cast<int32_t>(plan_.values.size() - 1);
}

int32_t MethodEmitter::scalar_slot(ExprType type) { return add_value(empty_slot(type)); }

int32_t MethodEmitter::null_value() {
  if (null_ < 0) null_ = add_value(format::NullValue{});
  return null_;
}

int32_t MethodEmitter::int_value(int64_t value) {
  const auto [at, fresh] = ints_.emplace(value, 0);
  if (fresh) at->second = add_value(value);
  return at->second;
}

int32_t MethodEmitter::bool_value(bool value) {
  const auto [at, fresh] = bools_.emplace(value, 0);
  if (fresh) at->second = add_value(value);
  return at->second;
}

int32_t MethodEmitter::double_value(double value) {
  const auto [at, fresh] = doubles_.emplace(std::bit_cast<uint64_t>(value), 0);
  if (fresh) at->second = add_value(value);
  return at->second;
}

int32_t MethodEmitter::string_value(const std::string& value) {
  const auto [at, fresh] = strings_.emplace(value, 0);
  if (fresh) at->second = add_value(value);
  return at->second;
}

int32_t MethodEmitter::int_list(std::vector<int64_t> items) {
  const auto found = int_lists_.find(items);
  if (found != int_lists_.end()) return found->second;
  const int32_t made = add_value(format::IntListValue{items});
  int_lists_.emplace(std::move(items), made);
  return made;
}

int32_t MethodEmitter::op_index(std::string_view kernel) {
  const auto [at, fresh] = op_indices_.emplace(std::string(kernel), static_cast<int32_t>(plan_.operators.size()));
  if (fresh) {
    const size_t space = kernel.find("::");
    const size_t dot = kernel.find('.', space);
    format::OperatorSpec op;
    op.name = std::string(kernel.substr(0, dot));
    if (dot != std::string_view::npos) op.overload = std::string(kernel.substr(dot + 1));
    plan_.operators.push_back(std::move(op));
    first_callers_.push_back(current_);
  }
  return at->second;
}

void MethodEmitter::call(std::string_view kernel, std::vector<int32_t> args) {
  plan_.instructions.emplace_back(format::KernelCall{op_index(kernel), std::move(args)});
}

Result<int32_t> MethodEmitter::prim(std::string_view name, const std::vector<int32_t>& args, format::ValueSpec out) {
  const int32_t slot = add_value(std::move(out));
  std::vector<int32_t> all = args;
  all.push_back(slot);
  call(name, std::move(all));
  return slot;
}

void MethodEmitter::define_symbol(Expr symbol, int32_t value) {
  if (symbol.is_symbol()) symbol_sources_.try_emplace(symbol.node(), SymbolSource{value, kValue, 1, 0});
}

void MethodEmitter::define_flag(Expr flag, int32_t value) {
  if (flag.node()->op != ExprOp::kEq) return;
  Expr symbol = flag.node()->args[0], one = flag.node()->args[1];
  if (symbol.is_const()) std::swap(symbol, one);
  if (symbol.is_symbol() && one.is_const() && one.value() == 1) symbol_sources_.try_emplace(symbol.node(), SymbolSource{value, kFlag, 1, 0});
}

void MethodEmitter::check_range(Expr symbol, int32_t value) {
  if (options_.profile != Profile::kPteron || symbol.type() == ExprType::kFloat) return;
  if (ir::is_number(symbol)) {  // the export took it for a constant
    const int32_t expected = int_value(static_cast<int64_t>(ir::number_of(symbol)));
    call("pteron::check_range.out", {value, expected, expected, string_value(current_)});
    return;
  }
  if (!symbol.is_symbol() || symbol.type() != ExprType::kInt) return;
  const ir::Range range = ir::bounds(symbol);
  if (range.min == ir::Range::kMin && range.max == ir::Range::kMax) return;
  call("pteron::check_range.out", {value, int_value(range.min), int_value(range.max), string_value(current_)});
}

void MethodEmitter::define_symbols(const ir::TensorType& type, int32_t tensor) {
  for (size_t d = 0; d < type.sizes.size(); ++d) {
    const Expr size = type.sizes[d];
    if (size.is_symbol()) symbol_sources_.try_emplace(size.node(), SymbolSource{tensor, static_cast<int>(d), 1, 0});
  }
  for (size_t d = 0; d < type.sizes.size(); ++d) {  // 2*s+1 gives s where no bare s does
    const Expr size = type.sizes[d];
    const std::vector<Expr> symbols = ir::symbols_in(size);
    if (symbols.size() != 1 || symbol_sources_.contains(symbols[0].node())) continue;
    const auto at = [&](int64_t v) { return ir::evaluate(size, [&](Expr) { return std::optional<int64_t>(v); }); };
    const auto zero = at(0), one = at(1), two = at(2), far = at(1000);
    if (!zero || !one || !two || !far) continue;
    const int64_t scale = *one - *zero;
    if (scale <= 0 || *two - *one != scale || *far != *zero + 1000 * scale) continue;
    symbol_sources_.try_emplace(symbols[0].node(), SymbolSource{tensor, static_cast<int>(d), scale, *zero});
  }
}

Result<int32_t> MethodEmitter::expr_value(Expr e) {
  if (e.is_const()) return int_value(e.value());
  const ir::ExprNode& node = *e.node();
  if (node.op == ExprOp::kConst) return node.type == ExprType::kBool ? bool_value(node.number != 0) : double_value(node.number);
  for (size_t i = computed_.size(); i-- > 0;) {
    const auto found = computed_[i].find(&node);
    if (found != computed_[i].end()) return found->second;
  }
  int32_t slot = -1;
  if (node.op == ExprOp::kSymbol) {
    const auto source = symbol_sources_.find(&node);
    if (source == symbol_sources_.end()) {
      return Status(Code::kUnsupported, str_cat(current_, ": size ", node.name, " is not carried by any input or earlier result"));
    }
    const SymbolSource& s = source->second;
    if (s.dim == kValue) return s.value;
    if (s.dim == kFlag) return prim("executorch_prim::sym_ite.Scalar", {s.value, int_value(1), int_value(0)}, int64_t{0});
    PTERON_ASSIGN(slot, prim("aten::sym_size.int", {s.value, int_value(s.dim)}, int64_t{0}));
    if (s.shift != 0) {
      PTERON_ASSIGN(slot, prim("executorch_prim::sub.Scalar", {slot, int_value(s.shift)}, int64_t{0}));
    }
    if (s.scale != 1) {
      PTERON_ASSIGN(slot, prim("executorch_prim::floordiv.Scalar", {slot, int_value(s.scale)}, int64_t{0}));
    }
  } else if (node.op == ExprOp::kFloor) {  // sym_int cuts towards zero
    PTERON_ASSIGN(const int32_t number, expr_value(node.args[0]));
    PTERON_ASSIGN(const int32_t down, prim("executorch_prim::floordiv.Scalar", {number, double_value(1)}, 0.0));
    PTERON_ASSIGN(slot, prim("executorch_prim::sym_int.Scalar", {down}, int64_t{0}));
  } else if (node.op == ExprOp::kNe) {
    PTERON_ASSIGN(const int32_t a, expr_value(node.args[0]));
    PTERON_ASSIGN(const int32_t b, expr_value(node.args[1]));
    PTERON_ASSIGN(const int32_t equal, prim("executorch_prim::eq.Scalar", {a, b}, false));
    PTERON_ASSIGN(slot, prim("executorch_prim::sym_not.Scalar", {equal}, false));
  } else if (node.op == ExprOp::kAnd || node.op == ExprOp::kOr) {
    PTERON_ASSIGN(slot, expr_value(node.args[0]));
    for (size_t i = 1; i < node.args.size(); ++i) {
      PTERON_ASSIGN(const int32_t next, expr_value(node.args[i]));
      const std::vector<int32_t> choice = node.op == ExprOp::kAnd ? std::vector<int32_t>{slot, next, bool_value(false)} : std::vector<int32_t>{slot, bool_value(true), next};
      PTERON_ASSIGN(slot, prim("executorch_prim::sym_ite.Scalar", choice, false));
    }
  } else {
    const ir::ScalarKernel kernel = ir::scalar_kernel(node);
    const std::span<const std::string_view> callable = helper_kernels(options_.profile);
    if (std::find(callable.begin(), callable.end(), kernel.name) == callable.end()) {
      return Status(Code::kUnsupported, str_cat(current_, ": shape arithmetic ", ir::to_text(e), " has no run-time instruction"));
    }
    std::vector<int32_t> args;
    for (const Expr& a : node.args) {
      PTERON_ASSIGN(const int32_t value, expr_value(a));
      args.push_back(value);
    }
    if (kernel.arity != 2) {
      PTERON_ASSIGN(slot, prim(kernel.name, args, empty_slot(node.type)));
    } else {
      slot = args[0];
      for (size_t i = 1; i < args.size(); ++i) {
        PTERON_ASSIGN(slot, prim(kernel.name, {slot, args[i]}, empty_slot(node.type)));
      }
    }
  }
  computed_.back().emplace(&node, slot);
  return slot;
}

Result<int32_t> MethodEmitter::expr_as(Expr e, BaseType base) {
  if (ir::is_number(e)) {
    const double number = ir::number_of(e);
    if (base == BaseType::kFloat) return double_value(number);
    if (base == BaseType::kBool) return bool_value(number != 0);
    if (base == BaseType::kInt) return int_value(e.is_const() ? e.value() : static_cast<int64_t>(number));
    return expr_value(e);
  }
  if (base == BaseType::kFloat && e.type() != ExprType::kFloat) {
    PTERON_ASSIGN(const int32_t integer, expr_value(e));
    return prim("executorch_prim::sym_float.Scalar", {integer}, 0.0);
  }
  return expr_value(e);
}

Result<int32_t> MethodEmitter::expr_list(const std::vector<Expr>& list, BaseType base) {
  if (base == BaseType::kFloat) {
    format::DoubleListValue doubles;
    for (const Expr& e : list) {
      if (!ir::is_number(e)) return Status(Code::kUnsupported, str_cat(current_, ": a list of floats with ", ir::to_text(e)));
      doubles.items.push_back(ir::number_of(e));
    }
    return add_value(std::move(doubles));
  }
  if (base == BaseType::kBool) {
    format::BoolListValue bools;
    for (const Expr& e : list) bools.items.push_back(ir::is_number(e) && ir::number_of(e) != 0 ? 1 : 0);
    return add_value(std::move(bools));
  }
  std::vector<int64_t> items;
  for (const Expr& e : list) {
    PTERON_ASSIGN(const int32_t value, expr_as(e, BaseType::kInt));
    items.push_back(value);
  }
  return int_list(std::move(items));
}

}  // namespace pteron::emit
