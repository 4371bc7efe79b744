// Functionalization: alias sets are followed from their root (the tensor that owns the memory) through views; a write replaces the
// root's current value, and names that are read later are made again from it. Called after resolve; see passes.h.
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "ir/view_layout.h"
#include "passes/alias_ops.h"
#include "passes/passes.h"

namespace pteron::passes {

using ir::Arg;
using ir::Builder;
using ir::Catalog;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;
using ir::ViewLayout;

namespace {

/// What is known about one name of the imported graph.
struct Name {
  ValueId parent;         ///< the name that this one is a view of; invalid for a root
  NodeId step;            ///< the view node
  uint32_t result = 0;    ///< which result of it
  ValueId root;
  ValueId current;        ///< functional value that holds the name's contents
  uint32_t seen = 0;      ///< the root's version that `current` belongs to
  uint32_t version = 0;   ///< of a root: writes so far
  bool written = false;   ///< of a root: some node writes it
};

class Functionalizer {
 public:
  Functionalizer(Graph& graph, const Catalog& catalog, bool region) : graph_(graph), catalog_(catalog), builder_(graph, catalog, order_), region_(region) {}

  Status run() {
    init_names();
    join_shared_constants();
    PTERON_TRY(scan());
    PTERON_TRY(make_states());
    const std::vector<NodeId> old_order = std::move(graph_.order);
    order_.reserve(old_order.size());
    renamed_.clear();
    for (const NodeId id : old_order) {
      builder_.set_origin(graph_[id]);
      Status status = process(id);
      if (status.ok()) status = builder_.take_status();
      if (!status.ok()) {
        const Node& node = graph_[id];
        return std::move(status).with_context(node.source.empty() ? str_cat("node ", node.name) : str_cat("node ", node.name, " (", node.source, ")"));
      }
    }
    finish();
    graph_.order = std::move(order_);
    return builder_.take_status();
  }

 private:
  void init_names() {
    names_.resize(graph_.values.size());
    for (uint32_t i = 0; i < names_.size(); ++i) {
      names_[i].root = ValueId{i};
      names_[i].current = ValueId{i};
    }
  }

  /// The name that a use means: after x.unsqueeze_() a use of x means the result.
  ValueId name_of(ValueId id) const {
    for (auto found = renamed_.find(id.index); found != renamed_.end(); found = renamed_.find(id.index)) id = found->second;
    return id;
  }

  static ValueId target_of(const Node& node) {
    const size_t at = node.op->functional != nullptr ? written_argument(*node.op) : 0;
    const auto* id = at >= node.args.size() ? nullptr : std::get_if<ValueId>(&node.args[at]);
    return id == nullptr ? ValueId{} : *id;
  }

  /// Builds the alias sets and marks the written ones.
  Status scan() {
    for (const NodeId id : graph_.order) {
      const Node& node = graph_[id];
      const Effect effect = effect_of(node);
      if (effect == Effect::kNone) continue;
      if (effect == Effect::kUnknownWrite) return Status(Code::kUnsupported, str_cat("operator ", node.op->name, " writes to an argument and has no functional form"));
      const ValueId raw = target_of(node);
      if (!raw.valid()) continue;
      const ValueId target = name_of(raw);
      if (effect == Effect::kWrite) {
        names_[names_[target.index].root.index].written = true;
      }
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        Name& out = names_[node.outputs[k].index];
        out.parent = target;
        out.step = id;
        out.result = static_cast<uint32_t>(k);
        out.root = names_[target.index].root;
      }
      if (is_metadata_write(*node.op) && !node.outputs.empty()) renamed_[raw.index] = node.outputs[0];
    }
    return ok_status();
  }

  /// Written constants become states; a written input of a region is refused.
  Status make_states() {
    for (uint32_t i = 0; i < names_.size(); ++i) {
      if (!names_[i].written) continue;
      if (region_ && is_region_input(ValueId{i})) {
        return Status(Code::kUnsupported, str_cat("a branch writes to '", graph_.values[i].name, "', which it captured from outside"));
      }
      if (!graph_.values[i].constant.valid()) continue;
      if (region_) return Status(Code::kUnsupported, str_cat("a branch writes to the constant '", graph_.values[i].name, "'"));
      PTERON_TRY(make_state(ValueId{i}));
    }
    return ok_status();
  }

  bool is_region_input(ValueId id) const {
    return std::any_of(graph_.inputs.begin(), graph_.inputs.end(), [&](const ir::Input& input) { return input.value == id; });
  }

  Status make_state(ValueId constant_value) {
    const ir::ConstantId id = graph_[constant_value].constant;
    ir::Constant& constant = (*graph_.program)[id];
    PTERON_TRY(refuse_overlap(constant_value, constant));
    constant.mutable_elsewhere = true;
    const ValueId value = graph_.add_tensor(graph_[constant_value].type, graph_[constant_value].name);
    graph_.states.push_back({constant.name, value, value, id});
    names_[constant_value.index].current = value;
    state_of_.emplace_back(constant_value, graph_.states.size() - 1);
    return ok_status();
  }

  /// Constants of this graph with the same bytes and layout are one buffer: all uses take the first of them.
  void join_shared_constants() {
    std::unordered_map<const std::byte*, std::vector<ValueId>> by_address;
    std::unordered_map<uint32_t, ValueId> first;
    for (uint32_t i = 0; i < names_.size(); ++i) {
      const ir::ConstantId id = graph_.values[i].constant;
      if (!id.valid() || (*graph_.program)[id].data == nullptr || (*graph_.program)[id].numel() == 0) continue;
      std::vector<ValueId>& group = by_address[(*graph_.program)[id].data];
      const auto same = std::find_if(group.begin(), group.end(), [&](ValueId other) { return is_same_buffer((*graph_.program)[id], (*graph_.program)[graph_[other].constant]); });
      if (same == group.end()) {
        group.push_back(ValueId{i});
      } else {
        first.emplace(i, *same);
      }
    }
    if (first.empty()) return;
    const auto replace = [&](ValueId& value) {
      if (const auto found = first.find(value.index); found != first.end()) value = found->second;
    };
    for (const NodeId id : graph_.order) {
      for (Arg& arg : graph_[id].args) ir::for_each_value(arg, std::function<void(ValueId&)>(replace));
    }
    ir::for_each_result(graph_, replace);
  }

  static bool is_same_buffer(const ir::Constant& a, const ir::Constant& b) {
    return a.data == b.data && a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides;
  }

  /// Partly overlapping buffers cannot be expressed.
  Status refuse_overlap(ValueId written, const ir::Constant& constant) {
    uint64_t bytes = 0;
    if (constant.data == nullptr || !strided_extent(constant, &bytes)) return ok_status();
    for (uint32_t i = 0; i < names_.size(); ++i) {
      const ir::ConstantId other_id = graph_.values[i].constant;
      if (i == written.index || !other_id.valid()) continue;
      const ir::Constant& other = (*graph_.program)[other_id];
      uint64_t other_bytes = 0;
      if (other.data == nullptr || !strided_extent(other, &other_bytes) || is_same_buffer(constant, other)) continue;
      if (other.data >= constant.data + bytes || constant.data >= other.data + other_bytes) continue;
      return Status(Code::kUnsupported, str_cat("buffer '", constant.name, "' is written and shares memory with '", other.name, "'"));
    }
    return ok_status();
  }

  static bool strided_extent(const ir::Constant& constant, uint64_t* bytes) {
    uint64_t last = 0;
    for (size_t d = 0; d < constant.sizes.size(); ++d) {
      if (constant.sizes[d] <= 0) return false;
      last += static_cast<uint64_t>(constant.sizes[d] - 1) * static_cast<uint64_t>(constant.strides[d]);
    }
    *bytes = (last + 1) * dtype_size(constant.dtype);
    return true;
  }

  /// The functional value of a name now.
  ValueId read(ValueId id) { return current_of(name_of(id)); }

  ValueId current_of(ValueId id) {
    if (id.index >= names_.size()) return id;
    const Name& name = names_[id.index];
    const Name& root = names_[name.root.index];
    if (!root.written || name.seen == root.version || !name.parent.valid()) return name.current;
    return make_again(id);
  }

  /// Walks up to the nearest name that is up to date, then replays the views down to `id`.
  ValueId make_again(ValueId id) {
    std::vector<ValueId> chain;
    const uint32_t version = names_[names_[id.index].root.index].version;
    ValueId at = id;
    while (names_[at.index].parent.valid() && names_[at.index].seen != version) {
      chain.push_back(at);
      at = names_[at.index].parent;
    }
    for (size_t i = chain.size(); i-- > 0;) replay(chain[i], version);
    return names_[id.index].current;
  }

  /// as_strided speaks of memory: its argument must have the strides that the archive had.
  ValueId with_layout(const Node& step, ValueId traced, ValueId now) {
    if (view_op(*step.op).schema.name != "aten::as_strided") return now;
    const TensorType& wanted = graph_[traced].type;
    if (graph_[now].type.strides == wanted.strides) return now;
    if (ir::is_contiguous(wanted)) return builder_.op("aten::clone", {now, ir::MemoryFormat::kContiguous});
    builder_.fail(Status(Code::kUnsupported, "aten::as_strided of a tensor that is not row-major, after writes"));
    return now;
  }

  void replay(ValueId id, uint32_t version) {
    const Name name = names_[id.index];
    const ValueId parent = with_layout(graph_[name.step], name.parent, names_[name.parent.index].current);
    const Node& step = graph_[name.step];
    if (is_identity(step)) {
      set_current(id, parent, version);
      return;
    }
    std::vector<Arg> args = step.args;
    args[0] = parent;
    const std::vector<ValueId> outputs = step.outputs;
    const std::vector<ValueId> made = builder_.ops(view_op(*step.op).name, std::move(args));
    for (size_t k = 0; k < made.size() && k < outputs.size(); ++k) set_current(outputs[k], made[k], version);
  }

  void set_current(ValueId id, ValueId value, uint32_t version) {
    names_[id.index].current = value;
    names_[id.index].seen = version;
  }

  /// Steps whose result is argument 0: alias, detach, and the results of in-place operators.
  static bool is_identity(const Node& step) {
    return effect_of(step) == Effect::kWrite || view_op(*step.op).has(ir::kAlias);
  }

  /// `id` now holds `value`: everything above it changes, up to the root. `uniform`: all its elements are equal.
  void write(ValueId id, ValueId value, bool uniform) {
    const uint32_t next = names_[names_[id.index].root.index].version + 1;
    ValueId at = id;
    std::vector<std::pair<ValueId, ValueId>> fresh = {{at, value}};
    const ValueId top = above_overlap(id);
    if (top.valid() && !(uniform && names_[id.index].parent == top)) {
      // Elements of views in between show in several places: the written ones are put where they lie, and those views are made again.
      const std::optional<ViewLayout> place = layout_in(id, top);
      if (!place || !(uniform || ir::is_one_to_one(*place))) {
        return builder_.fail(Status(Code::kUnsupported, "writes to a view whose elements share memory (made by expand, unfold or as_strided): what comes of it depends "
                                                        "on the order of the writes; write to a clone, or to a part without repeated elements"));
      }
      if (uniform) fresh.clear();
      value = builder_.op("pteron::as_strided_scatter", {row_major(current_of(top)), value, place->sizes, place->strides, place->offset});
      at = top;
      fresh.emplace_back(at, value);
    }
    while (names_[at.index].parent.valid()) {
      const Name name = names_[at.index];
      const Node& step = graph_[name.step];
      if (!is_identity(step)) {
        const ValueId parent_value = with_layout(step, name.parent, current_of(name.parent));
        value = invert_view(builder_, graph_[name.step], name.result, parent_value, value);
        if (!value.valid()) return;
        if (may_overlap(step)) fresh.clear();  // one element of the parent shows in several places: the view is made again from it
      }
      at = name.parent;
      fresh.emplace_back(at, value);
    }
    names_[at.index].version = next;
    for (const auto& [name, current] : fresh) set_current(name, current, next);
  }

  ValueId row_major(ValueId value) {
    return ir::is_contiguous(graph_[value].type) ? value : builder_.op("aten::clone", {value, ir::MemoryFormat::kContiguous});
  }

  static bool may_overlap(const Node& step) {
    const std::string& name = view_op(*step.op).schema.name;
    return name == "aten::unfold" || name == "aten::as_strided" || name == "pteron::as_strided" || name == "aten::expand" || name == "aten::expand_as" ||
           name == "aten::broadcast_to";
  }

  /// The last ancestor, going up, of which a view shows elements in several places; invalid if there is none.
  ValueId above_overlap(ValueId id) {
    ValueId top;
    for (ValueId at = id; names_[at.index].parent.valid(); at = names_[at.index].parent) {
      const Name& name = names_[at.index];
      if (is_identity(graph_[name.step]) || !may_overlap(graph_[name.step])) continue;
      const std::optional<ViewLayout> layout = layout_in(at, name.parent);
      if (!layout || !ir::is_one_to_one(*layout)) top = name.parent;
    }
    return top;
  }

  /// The place of a name in an ancestor that is taken as row-major. Nothing if a step has no layout, or another dtype.
  std::optional<ViewLayout> layout_in(ValueId id, ValueId ancestor) {
    std::vector<ValueId> chain;
    for (ValueId at = id; at != ancestor; at = names_[at.index].parent) chain.push_back(at);
    const TensorType& whole = graph_[ancestor].type;
    ViewLayout layout{whole.sizes, ir::contiguous_strides_of(whole.sizes), 0};
    for (size_t i = chain.size(); i-- > 0;) {
      const Name& name = names_[chain[i].index];
      const Node& step = graph_[name.step];
      if (is_identity(step)) continue;
      const ir::Op& op = view_op(*step.op);
      std::vector<Arg> args = step.args;
      args[0] = name.parent;
      ViewLayout next;
      if (op.def.view == nullptr || graph_[chain[i]].type.dtype != whole.dtype || !op.def.view(NodeView(graph_, op, args), layout, name.result, &next)) return std::nullopt;
      layout = std::move(next);
    }
    return layout;
  }

  Status process(NodeId id) {
    const Effect effect = effect_of(graph_[id]);
    for (const auto& region : graph_[id].regions) {
      if (!has_writes(*region)) continue;
      Functionalizer inner(*region, catalog_, true);
      PTERON_TRY(inner.run());
    }
    if (effect == Effect::kWrite) return process_write(id);
    if (effect == Effect::kView) return process_view(id);
    for (Arg& arg : graph_[id].args) {
      ir::for_each_value(arg, [&](ValueId& value) { value = read(value); });
    }
    order_.push_back(id);
    return ok_status();
  }

  Status process_view(NodeId id) {
    Node& node = graph_[id];
    const ValueId raw = target_of(node);
    if (!raw.valid()) {
      order_.push_back(id);
      return ok_status();
    }
    const ValueId now = read(raw);
    const uint32_t version = names_[names_[name_of(raw).index].root.index].version;
    const bool metadata = is_metadata_write(*node.op);
    if (is_identity(node)) {
      for (const ValueId out : node.outputs) set_current(out, now, version);
    } else if (metadata) {
      std::vector<Arg> args = node.args;
      args[0] = now;
      const std::vector<ValueId> outputs = node.outputs;
      const std::vector<ValueId> made = builder_.ops(node.op->functional->name, std::move(args));
      for (size_t k = 0; k < made.size() && k < outputs.size(); ++k) set_current(outputs[k], made[k], version);
    } else {
      // Replays of this step need its other arguments as they are; argument 0 is set anew each time.
      for (Arg& arg : node.args) ir::for_each_value(arg, [&](ValueId& value) { value = read(value); });
      node.args[0] = with_layout(node, name_of(raw), std::get<ValueId>(node.args[0]));
      order_.push_back(id);
      for (const ValueId out : node.outputs) set_current(out, out, version);
    }
    if (metadata && !graph_[id].outputs.empty()) renamed_[raw.index] = graph_[id].outputs[0];
    return ok_status();
  }

  Status process_write(NodeId id) {
    const Node& node = graph_[id];
    const ValueId target = name_of(target_of(node));
    if (!target.valid()) return Status(Code::kUnsupported, str_cat(node.op->name, ": argument 0 is no tensor"));
    std::vector<Arg> args = node.args;
    for (Arg& arg : args) ir::for_each_value(arg, [&](ValueId& value) { value = read(value); });
    const TensorType wanted = graph_[read(target)].type;
    args.resize(node.op->functional->schema.args.size());  // without the out argument
    const bool is_out = written_argument(*node.op) >= args.size();
    ValueId value = node.op->schema.name == "aten::copy_" ? copied(args) : builder_.op(node.op->functional->name, std::move(args));
    if (!builder_.status().ok()) return ok_status();
    if (is_out && differ(graph_[value].type, wanted)) return Status(Code::kUnsupported, str_cat(graph_[id].op->name, ": an out tensor of another shape"));
    value = fitted(value, wanted);
    write(target, value, is_uniform_write(graph_[id]));
    const uint32_t version = names_[names_[target.index].root.index].version;
    if (names_[target.index].seen != version) return ok_status();  // results of the node are made again like the target
    for (const ValueId out : graph_[id].outputs) set_current(out, value, version);
    return ok_status();
  }

  static bool differ(const TensorType& a, const TensorType& b) {
    if (a.sizes.size() != b.sizes.size()) return true;
    for (size_t d = 0; d < a.sizes.size(); ++d) {
      if (ir::dim_differ(a.sizes[d], b.sizes[d])) return true;
    }
    return false;
  }

  static bool is_number(const Arg& arg) { return std::holds_alternative<Expr>(arg) || std::holds_alternative<std::complex<double>>(arg); }

  /// One number everywhere.
  static bool is_uniform_write(const Node& node) {
    const std::string& name = node.op->schema.name;
    return name == "aten::fill_" || name == "aten::zero_" || (name == "aten::copy_" && is_number(node.args[1]));
  }

  /// copy_(self, src): src itself, once cast and broadcast. A Python number fills.
  ValueId copied(const std::vector<Arg>& args) {
    const auto* source = std::get_if<ValueId>(&args[1]);
    if (source != nullptr) return *source;
    if (is_number(args[1])) return builder_.op("aten::fill.Scalar", {args[0], args[1]});
    return builder_.op("aten::copy", args);
  }

  /// An in-place result keeps the dtype and sizes of its tensor.
  ValueId fitted(ValueId value, const TensorType& wanted) {
    if (graph_[value].type.dtype != wanted.dtype) value = builder_.op("aten::_to_copy", {value, wanted.dtype});
    if (!value.valid()) return value;
    if (graph_[value].type.sizes != wanted.sizes && may_broadcast(graph_[value].type, wanted)) value = builder_.op("aten::expand", {value, wanted.sizes});
    return value;
  }

  /// Equal numbers of elements under another expression are left alone; real broadcasts are spelled out.
  static bool may_broadcast(const TensorType& from, const TensorType& to) {
    if (from.sizes.size() != to.sizes.size()) return true;
    for (size_t d = 0; d < from.sizes.size(); ++d) {
      if (!(from.sizes[d] == to.sizes[d]) && ir::dim_is(from.sizes[d], 1)) return true;
    }
    return false;
  }

  void finish() {
    ir::for_each_result(graph_, [&](ValueId& value) { value = read(value); });
    for (const auto& [name, index] : state_of_) graph_.states[index].result = names_[name.index].current;
    for (uint32_t i = 0; i < graph_.inputs.size() && !region_; ++i) {
      const ValueId input = graph_.inputs[i].value;
      if (!input.valid() || !names_[input.index].written) continue;
      const bool is_listed = std::any_of(graph_.input_mutations.begin(), graph_.input_mutations.end(), [&](const auto& m) { return m.input == i; });
      if (!is_listed) graph_.input_mutations.push_back({i, names_[input.index].current});
    }
  }

  Graph& graph_;
  const Catalog& catalog_;
  std::vector<NodeId> order_;
  Builder builder_;
  bool region_;
  std::vector<Name> names_;
  std::unordered_map<uint32_t, ValueId> renamed_;
  std::vector<std::pair<ValueId, size_t>> state_of_;
};

}  // namespace

Result<bool> functionalize(Graph& graph, const Catalog& catalog) {
  if (!has_writes(graph)) return false;
  Functionalizer functionalizer(graph, catalog, false);
  PTERON_TRY(functionalizer.run());
  return true;
}

}  // namespace pteron::passes
