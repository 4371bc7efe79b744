// Control flow as jumps inside the method's one chain: cond, while_loop, scan, map. Every loop tests at its top.
// Results and carries are planned tensors of their own that each branch or iteration writes.
#include <algorithm>

#include "base/str_cat.h"
#include "emit/method_emitter.h"
#include "ir/op.h"

namespace pteron::emit {

using ir::Arg;
using ir::Expr;
using ir::ValueId;

namespace {

constexpr int32_t kLater = -1;  // destination filled in when it is known

std::vector<Arg> as_args(const std::vector<ValueId>& ids) { return {ids.begin(), ids.end()}; }

/// The k-th list-of-tensors argument of a node.
std::vector<ValueId> list_arg(const ir::Node& node, size_t k) {
  for (const Arg& arg : node.args) {
    const auto* list = std::get_if<std::vector<ValueId>>(&arg);
    if (list == nullptr) continue;
    if (k == 0) return *list;
    --k;
  }
  return {};
}

}  // namespace

bool is_control_flow(std::string_view op) {
  return op == "higher_order::cond" || op == "higher_order::while_loop" || op == "higher_order::scan" || op == "higher_order::map_impl";
}

Status MethodEmitter::emit_control(const ir::Graph& graph, const ir::Node& node) {
  const std::string_view name = node.op->schema.name;
  if (name == "higher_order::cond") return emit_cond(graph, node);
  if (name == "higher_order::while_loop") return emit_while(graph, node);
  if (name == "higher_order::scan") return emit_scan(graph, node, list_arg(node, 0), list_arg(node, 1), list_arg(node, 2));
  if (name == "higher_order::map_impl") return emit_scan(graph, node, {}, list_arg(node, 0), list_arg(node, 1));
  return Status(Code::kUnsupported, str_cat(current_, ": control flow ", name, " cannot be emitted"));
}

uint32_t MethodEmitter::jump_if_false(int32_t condition) {
  plan_.instructions.emplace_back(format::JumpFalseCall{condition, kLater});
  return position() - 1;
}

void MethodEmitter::land(uint32_t jump) {
  std::get<format::JumpFalseCall>(plan_.instructions[jump]).destination = static_cast<int32_t>(position());
}

Status MethodEmitter::store(const ir::Graph& graph, const Arg& from, const Placement& to) {
  if (to.root == kNoRoot) {
    int32_t value = -1;
    if (const auto* id = std::get_if<ValueId>(&from)) {
      PTERON_ASSIGN(value, expr_value(graph[*id].scalar));
    } else if (const auto* e = std::get_if<Expr>(&from)) {
      PTERON_ASSIGN(value, expr_value(*e));
    } else {
      value = null_value();
    }
    plan_.instructions.emplace_back(format::MoveCall{value, to.value});
    return ok_status();
  }
  const auto* id = std::get_if<ValueId>(&from);
  if (id == nullptr) return Status(Code::kUnsupported, str_cat(current_, ": a branch returns a literal where the other returns a tensor"));
  PTERON_ASSIGN(const Placement place, placement(graph, *id));
  touch(place.root);
  touch(to.root);
  if (same_place(place, to)) return ok_status();
  call("aten::clone.out", {place.value, null_value(), to.value, to.value});
  return ok_status();
}

Result<Placement> MethodEmitter::result_slot(const ir::Value& value) {
  if (value.kind == ir::ValueKind::kTensor) {
    return new_planned(ir::contiguous_type(value.type.dtype, value.type.sizes, value.type.device), "its result");
  }
  Placement slot;
  slot.root = kNoRoot;
  slot.value = scalar_slot(value.scalar.type());
  if (value.scalar.is_symbol()) define_symbol(value.scalar, slot.value);
  return slot;
}

Status MethodEmitter::enter_region(const ir::Graph& graph, const ir::Graph& region, const std::vector<Arg>& operands,
                                   const std::vector<Placement>& bound, const std::vector<Placement>& targets) {
  enter_frame(region);
  for (size_t k = 0; k < targets.size() && k < region.outputs.size(); ++k) want(region.outputs[k], targets[k]);
  Scope scope;
  const auto add = [&](ValueId id, Placement place) {
    if (place.root != kNoRoot) frames_.back().members[place.root].push_back(id);
    scope.emplace(id.index, std::move(place));
  };
  std::unordered_map<const ir::ExprNode*, int32_t> computed;
  for (size_t i = 0; i < region.inputs.size(); ++i) {
    const ValueId inner = region.inputs[i].value;
    if (!inner.valid()) continue;
    if (i < bound.size()) {
      const bool is_target = std::any_of(targets.begin(), targets.end(), [&](const Placement& t) { return t.root == bound[i].root; });
      if (is_target && bound[i].root != kNoRoot) frames_.back().owned.insert(bound[i].root);
      add(inner, bound[i]);
      continue;
    }
    if (i - bound.size() >= operands.size()) return Status(Code::kInternal, str_cat(current_, ": region has more inputs than operands"));
    const Arg& operand = operands[i - bound.size()];
    const auto* id = std::get_if<ValueId>(&operand);
    if (id != nullptr && graph[*id].kind == ir::ValueKind::kTensor) {
      PTERON_ASSIGN(Placement place, placement(graph, *id));
      add(inner, std::move(place));
      continue;
    }
    const Expr scalar = id != nullptr ? graph[*id].scalar : std::holds_alternative<Expr>(operand) ? std::get<Expr>(operand) : Expr(0);
    PTERON_ASSIGN(const int32_t value, expr_value(scalar));
    if (!region[inner].scalar.is_const()) computed.emplace(region[inner].scalar.node(), value);
  }
  scopes_.push_back(std::move(scope));
  computed_.push_back(std::move(computed));
  return emit_nodes(region);
}

void MethodEmitter::leave_region() {
  frames_.pop_back();
  scopes_.pop_back();
  computed_.pop_back();
}

Status MethodEmitter::emit_cond(const ir::Graph& graph, const ir::Node& node) {
  if (node.regions.size() != 2) return Status(Code::kInternal, str_cat(current_, ": cond without two branches"));
  const std::string outer = current_;
  int32_t predicate = -1;
  if (const auto* id = std::get_if<ValueId>(&node.args[0])) {
    if (graph[*id].kind == ir::ValueKind::kScalar) {
      PTERON_ASSIGN(predicate, expr_value(graph[*id].scalar));
    } else {
      PTERON_ASSIGN(predicate, tensor_value(graph, *id));
    }
  } else if (const auto* e = std::get_if<Expr>(&node.args[0])) {
    PTERON_ASSIGN(predicate, expr_value(*e));
  } else {
    return Status(Code::kInternal, str_cat(current_, ": cond without a predicate"));
  }
  std::vector<Arg> operands;
  for (const Arg& arg : node.args) {
    if (const auto* list = std::get_if<std::vector<ValueId>>(&arg)) operands = as_args(*list);
  }
  std::vector<Placement> results;
  for (const ValueId id : node.outputs) {
    PTERON_ASSIGN(Placement slot, result_slot(graph[id]));
    results.push_back(std::move(slot));
  }
  const auto branch = [&](const ir::Graph& region) -> Status {
    PTERON_TRY(enter_region(graph, region, operands, {}, results));
    for (size_t k = 0; k < results.size() && k < region.outputs.size(); ++k) PTERON_TRY(store(region, region.outputs[k], results[k]));
    leave_region();
    current_ = outer;
    return ok_status();
  };
  const uint32_t to_else = jump_if_false(predicate);
  PTERON_TRY(branch(*node.regions[0]));
  const uint32_t to_end = jump_if_false(bool_value(false));
  land(to_else);
  PTERON_TRY(branch(*node.regions[1]));
  land(to_end);
  for (size_t k = 0; k < results.size(); ++k) {
    if (results[k].root == kNoRoot) continue;
    touch(results[k].root);
    define_symbols(graph[node.outputs[k]].type, results[k].value);
    bind(node.outputs[k], std::move(results[k]));
  }
  return ok_status();
}

void MethodEmitter::close_loop(uint32_t begin) {
  // What was made before the loop and is used in it must last until the loop ends, as the next iteration uses it again.
  for (Root& root : roots_) {
    if ((root.before_call || root.first < begin) && root.used && root.last >= begin) root.last = std::max(root.last, position());
  }
}

Status MethodEmitter::store_carries(const ir::Graph& region, const std::vector<Placement>& carries) {
  // A new carry may be a view of another carry's slot: take copies of those before any slot is written.
  for (size_t k = 0; k < carries.size(); ++k) {
    const auto* id = std::get_if<ValueId>(&region.outputs[k]);
    if (id == nullptr || region[*id].kind != ir::ValueKind::kTensor) continue;
    PTERON_ASSIGN(const Placement place, placement(region, *id));
    bool in_slot = false;
    for (size_t other = 0; other < carries.size(); ++other) in_slot = in_slot || (other != k && carries[other].root == place.root);
    if (!in_slot && (place.root != carries[k].root || place.value == carries[k].value || same_place(place, carries[k]))) continue;
    PTERON_ASSIGN(Placement copy, clone_of(place, region[*id].type));
    moved_carries_[k] = std::move(copy);
  }
  for (size_t k = 0; k < carries.size(); ++k) {
    const auto moved = moved_carries_.find(k);
    if (moved != moved_carries_.end()) {
      touch(moved->second.root);
      touch(carries[k].root);
      call("aten::clone.out", {moved->second.value, null_value(), carries[k].value, carries[k].value});
      continue;
    }
    const auto* id = std::get_if<ValueId>(&region.outputs[k]);
    if (id != nullptr && region[*id].kind == ir::ValueKind::kTensor) {
      PTERON_ASSIGN(const Placement place, placement(region, *id));
      if (place.value == carries[k].value || same_place(place, carries[k])) continue;  // unchanged, or computed there
    }
    PTERON_TRY(store(region, region.outputs[k], carries[k]));
  }
  moved_carries_.clear();
  return ok_status();
}

Result<std::vector<Placement>> MethodEmitter::start_carries(const ir::Graph& graph, const std::vector<ValueId>& initial) {
  std::vector<Placement> carries;
  for (const ValueId id : initial) {
    PTERON_ASSIGN(Placement slot, result_slot(graph[id]));
    PTERON_TRY(store(graph, Arg(id), slot));
    carries.push_back(std::move(slot));
  }
  return carries;
}

Status MethodEmitter::emit_while(const ir::Graph& graph, const ir::Node& node) {
  if (node.regions.size() != 2) return Status(Code::kInternal, str_cat(current_, ": while_loop without condition and body"));
  const std::string outer = current_;
  const std::vector<Arg> extra = as_args(list_arg(node, 1));
  PTERON_ASSIGN(std::vector<Placement> carries, start_carries(graph, list_arg(node, 0)));
  const uint32_t begin = position();
  PTERON_TRY(enter_region(graph, *node.regions[0], extra, carries, {}));
  const auto* condition = node.regions[0]->outputs.empty() ? nullptr : std::get_if<ValueId>(&node.regions[0]->outputs[0]);
  if (condition == nullptr) return Status(Code::kUnsupported, str_cat(outer, ": while_loop whose condition is a literal"));
  int32_t predicate = -1;
  if ((*node.regions[0])[*condition].kind == ir::ValueKind::kScalar) {
    PTERON_ASSIGN(predicate, expr_value((*node.regions[0])[*condition].scalar));
  } else {
    PTERON_ASSIGN(predicate, tensor_value(*node.regions[0], *condition));
  }
  leave_region();
  const uint32_t to_end = jump_if_false(predicate);
  PTERON_TRY(enter_region(graph, *node.regions[1], extra, carries, carries));
  PTERON_TRY(store_carries(*node.regions[1], carries));
  leave_region();
  current_ = outer;
  plan_.instructions.emplace_back(format::JumpFalseCall{bool_value(false), static_cast<int32_t>(begin)});
  for (const Placement& carry : carries) touch(carry.root);
  close_loop(begin);
  land(to_end);
  for (size_t k = 0; k < carries.size(); ++k) {
    define_symbols(graph[node.outputs[k]].type, carries[k].value);
    bind(node.outputs[k], std::move(carries[k]));
  }
  return ok_status();
}

Status MethodEmitter::emit_scan(const ir::Graph& graph, const ir::Node& node, const std::vector<ValueId>& initial,
                                const std::vector<ValueId>& xs, const std::vector<ValueId>& extra) {
  if (node.regions.size() != 1 || xs.empty()) return Status(Code::kInternal, str_cat(current_, ": a scan needs a body and something to scan"));
  const std::string outer = current_;
  const ir::Graph& body = *node.regions[0];
  PTERON_ASSIGN(const int32_t count, expr_value(graph[xs[0]].type.sizes[0]));
  PTERON_ASSIGN(std::vector<Placement> bound, start_carries(graph, initial));
  const std::vector<Placement> carries = bound;
  std::vector<Placement> stacked;
  for (size_t k = carries.size(); k < node.outputs.size(); ++k) {
    PTERON_ASSIGN(Placement slot, result_slot(graph[node.outputs[k]]));
    // et_copy_index grows dim 0 step by step, so the slot is dynamic even if the result is not.
    std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(slot.value)]).dynamism = format::Dynamism::kBounded;
    // The official kernel grows dim 0 but leaves the others: without rows they are set to those of this call.
    std::vector<ir::Expr> empty = graph[node.outputs[k]].type.sizes;
    if (std::any_of(empty.begin() + 1, empty.end(), [](const ir::Expr& size) { return !size.is_const(); })) {
      empty[0] = 0;
      if (auto sizes = expr_list(empty, ir::BaseType::kInt); sizes.ok()) {
        touch(slot.root);
        call("aten::zeros.out", {*sizes, slot.value, slot.value});
      }
    }
    stacked.push_back(std::move(slot));
  }
  const int32_t index = add_value(int64_t{0});
  const uint32_t begin = position();
  PTERON_ASSIGN(const int32_t more, prim("executorch_prim::lt.Scalar", {index, count}, false));
  const uint32_t to_end = jump_if_false(more);
  for (const ValueId id : xs) {
    ir::TensorType slice = graph[id].type;
    slice.sizes.erase(slice.sizes.begin());
    slice = ir::contiguous_type(slice.dtype, slice.sizes, slice.device);
    PTERON_ASSIGN(const int32_t whole_value, tensor_value(graph, id));
    PTERON_ASSIGN(Placement part, new_planned(slice, "a slice"));
    call("aten::select_copy.int_out", {whole_value, int_value(0), index, part.value, part.value});
    bound.push_back(std::move(part));
  }
  PTERON_TRY(enter_region(graph, body, as_args(extra), bound, carries));
  for (size_t k = 0; k < stacked.size(); ++k) {
    const auto* id = std::get_if<ValueId>(&body.outputs[carries.size() + k]);
    if (id == nullptr) return Status(Code::kUnsupported, str_cat(outer, ": a scan that stacks literals"));
    ir::TensorType type = body[*id].type;
    PTERON_ASSIGN(Placement part, placement(body, *id));
    if (!is_dense(part.layout)) {
      PTERON_ASSIGN(part, clone_of(part, type));
    }
    touch(part.root);
    touch(stacked[k].root);
    call("executorch_prim::et_copy_index.tensor", {stacked[k].value, part.value, index});
  }
  PTERON_TRY(store_carries(body, carries));
  leave_region();
  current_ = outer;
  call("executorch_prim::add.Scalar", {index, int_value(1), index});
  plan_.instructions.emplace_back(format::JumpFalseCall{bool_value(false), static_cast<int32_t>(begin)});
  for (const Placement& slot : carries) touch(slot.root);
  for (const Placement& slot : stacked) touch(slot.root);
  close_loop(begin);
  land(to_end);
  call("executorch_prim::sub.Scalar", {index, count, index});  // the counter starts at 0 in the next call
  size_t k = 0;
  for (const std::vector<Placement>* list : {&carries, static_cast<const std::vector<Placement>*>(&stacked)}) {
    for (const Placement& slot : *list) {
      define_symbols(graph[node.outputs[k]].type, slot.value);
      bind(node.outputs[k], slot);
      ++k;
    }
  }
  return ok_status();
}

bool is_dense(const ir::ViewLayout& layout) {
  Expr stride = 1;
  for (size_t d = layout.sizes.size(); d-- > 0;) {
    if (!dim_is(layout.sizes[d], 1) && !(layout.strides[d] == stride)) return false;
    stride = stride * dim_max(layout.sizes[d], 1);
  }
  return true;
}

}  // namespace pteron::emit
