// Composites that alias, copy or hide a write, made explicit from the strides of the archive. First of the semantic passes; see passes.h.
#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/str_cat.h"
#include "passes/alias_ops.h"
#include "passes/passes.h"
#include "passes/size_checks.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Arg;
using ir::Builder;
using ir::Catalog;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::TensorType;
using ir::ValueId;

namespace {

enum class Kind : uint8_t {
  kView,        ///< always a view with the recorded sizes
  kReshape,     ///< a view where the strides allow it, else a copy
  kExpand,      ///< a broadcasting view with the recorded sizes
  kContiguous,  ///< the input itself if its layout already fits, else a copy
  kTo,          ///< the input itself if nothing changes, else a copy
  kDropout,     ///< the input itself in evaluation
  kReal,        ///< the input itself for real dtypes
  kSame,        ///< the input itself if its sizes are the recorded ones
  kComposite,   ///< its decomposition is made of views
};

struct Row {
  std::string_view name;
  Kind kind;
};

constexpr std::array kRows = std::to_array<Row>({
    {"H", Kind::kComposite},           {"T", Kind::kComposite},
    {"_reshape_alias", Kind::kView},   {"adjoint", Kind::kComposite},
    {"alpha_dropout", Kind::kDropout}, {"atleast_1d", Kind::kComposite},
    {"atleast_2d", Kind::kComposite},  {"atleast_3d", Kind::kComposite},
    {"broadcast_tensors", Kind::kComposite}, {"broadcast_to", Kind::kExpand},
    {"cartesian_prod", Kind::kComposite}, {"chunk", Kind::kComposite},
    {"conj", Kind::kReal},             {"conj_physical", Kind::kReal},
    {"contiguous", Kind::kContiguous}, {"diagonal", Kind::kComposite},
    {"dropout", Kind::kDropout},       {"dsplit", Kind::kComposite},
    {"expand_as", Kind::kExpand},      {"feature_alpha_dropout", Kind::kDropout},
    {"feature_dropout", Kind::kDropout}, {"flatten", Kind::kReshape},
    {"hsplit", Kind::kComposite},      {"linalg_diagonal", Kind::kComposite},
    {"mH", Kind::kComposite},          {"mT", Kind::kComposite},
    {"matrix_H", Kind::kComposite},    {"meshgrid", Kind::kComposite},
    {"moveaxis", Kind::kComposite},
    {"movedim", Kind::kComposite},     {"narrow", Kind::kComposite},
    {"numpy_T", Kind::kComposite},     {"positive", Kind::kReal},
    {"ravel", Kind::kReshape},         {"real", Kind::kReal},
    {"reshape", Kind::kReshape},       {"reshape_as", Kind::kReshape},
    {"resolve_conj", Kind::kReal},     {"resolve_neg", Kind::kReal},
    {"split", Kind::kComposite},       {"split_with_sizes", Kind::kComposite},
    {"squeeze", Kind::kView},          {"sum_to_size", Kind::kSame},
    {"swapaxes", Kind::kComposite},
    {"swapdims", Kind::kComposite},    {"t", Kind::kComposite},
    {"tensor_split", Kind::kComposite}, {"to", Kind::kTo},
    {"type_as", Kind::kTo},            {"unflatten", Kind::kView},
    {"unsafe_chunk", Kind::kComposite}, {"unsafe_split", Kind::kComposite},
    {"unsafe_split_with_sizes", Kind::kComposite}, {"unsqueeze", Kind::kView},
    {"view_as", Kind::kView},          {"vsplit", Kind::kComposite},
});

const Row* find_row(const ir::Op& op) {
  std::string_view name = op.schema.name;
  if (!name.starts_with("aten::")) return nullptr;
  name.remove_prefix(6);
  const auto found = std::find_if(kRows.begin(), kRows.end(), [&](const Row& row) { return row.name == name; });
  return found == kRows.end() ? nullptr : &*found;
}

bool same_strides(const TensorType& a, const TensorType& b) {
  for (size_t d = 0; d < a.sizes.size(); ++d) {
    if (!ir::dim_is(a.sizes[d], 1) && !(a.strides[d] == b.strides[d])) return false;
  }
  return true;
}

/// a < b where both are known; otherwise a differs from b.
bool is_below(Expr a, Expr b) { return a.is_const() && b.is_const() ? a.value() < b.value() : !(a == b); }

/// True if a tensor of that layout can be viewed with these sizes (at::detail::computeStride).
bool is_viewable(const TensorType& type, std::span<const Expr> sizes) {
  if (ir::is_contiguous(type) || type.sizes == std::vector<Expr>(sizes.begin(), sizes.end())) return true;
  for (const Expr& size : sizes) {
    if (ir::dim_is(size, 0)) return true;
  }
  if (type.sizes.empty()) return true;
  size_t left = sizes.size();  // dims of the view that are not placed yet
  Expr chunk_stride = type.strides.back(), chunk_numel = 1, view_numel = 1;
  for (size_t d = type.sizes.size(); d-- > 0;) {
    chunk_numel = chunk_numel * type.sizes[d];
    if (d > 0 && (ir::dim_is(type.sizes[d - 1], 1) || type.strides[d - 1] == chunk_numel * chunk_stride)) continue;
    while (left > 0 && (is_below(view_numel, chunk_numel) || ir::dim_is(sizes[left - 1], 1))) view_numel = view_numel * sizes[--left];
    if (!(view_numel == chunk_numel)) return false;
    if (d > 0) chunk_stride = type.strides[d - 1];
    chunk_numel = 1;
    view_numel = 1;
  }
  return left == 0;
}

bool asks_for_copy(const NodeView& view) { return view.has("copy") && view.boolean("copy"); }

/// The value of a size or stride when every symbol is at least two, or one where `at_one` says so.
std::optional<int64_t> sample(Expr e, const std::function<bool(Expr)>& at_one) {
  return ir::evaluate(e, [&](Expr symbol) -> std::optional<int64_t> {
    const ir::Range range = ir::bounds(symbol);
    if (at_one && at_one(symbol)) return 1;
    return std::min(std::max<int64_t>(range.min, 2), range.max);
  });
}

/// The layout with numbers for symbols. False if some expression has no value there.
bool sample_type(const TensorType& type, const std::function<bool(Expr)>& at_one, TensorType* out) {
  *out = type;
  for (std::vector<Expr>* list : {&out->sizes, &out->strides}) {
    for (Expr& e : *list) {
      const auto value = sample(e, at_one);
      if (!value) return false;
      e = Expr(*value);
    }
  }
  return true;
}

/// Dims from the innermost to the outermost of a channels-last tensor; empty for ranks without that format.
std::span<const size_t> channels_last_dims(size_t rank) {
  static constexpr size_t k2d[] = {1, 3, 2, 0}, k3d[] = {1, 4, 3, 2, 0};
  if (rank == 4) return k2d;
  return rank == 5 ? std::span<const size_t>(k3d) : std::span<const size_t>();
}

/// c10's is_channels_last_strides: whether a tensor of that (constant) layout counts as channels-last.
bool is_like_channels_last(const TensorType& type) {
  const std::span<const size_t> dims = channels_last_dims(type.sizes.size());
  if (dims.empty() || type.strides[1].value() == 0) return false;
  int64_t least = 0;
  for (const size_t d : dims) {
    const int64_t size = type.sizes[d].value(), stride = type.strides[d].value();
    if (size == 0 || stride < least || (d == 0 && least == type.strides[1].value())) return false;
    least = stride * std::max<int64_t>(size, 1);
  }
  return true;
}

/// Tensor::suggest_memory_format.
ir::MemoryFormat suggested_format(const TensorType& type) {
  if (!is_like_channels_last(type)) return ir::MemoryFormat::kContiguous;
  return type.sizes.size() == 4 ? ir::MemoryFormat::kChannelsLast : ir::MemoryFormat::kChannelsLast3d;
}

/// Tensor::is_contiguous(format) of a constant layout.
bool fits_format(const TensorType& type, ir::MemoryFormat format) {
  std::vector<size_t> dims;
  for (size_t d = type.sizes.size(); d-- > 0;) dims.push_back(d);
  if (format != ir::MemoryFormat::kContiguous) {
    const std::span<const size_t> last = channels_last_dims(type.sizes.size());
    if (last.empty()) return false;
    dims.assign(last.begin(), last.end());
  }
  int64_t expected = 1;
  for (const size_t d : dims) {
    if (type.sizes[d].value() == 1) continue;
    if (type.strides[d].value() != expected) return false;
    expected *= type.sizes[d].value();
  }
  return true;
}

/// A memory_format argument that is neither None nor preserve_format.
bool asks_for_format(const NodeView& view) {
  if (!view.has("memory_format")) return false;
  const auto* format = std::get_if<ir::MemoryFormat>(&view.arg("memory_format"));
  return format != nullptr && *format != ir::MemoryFormat::kPreserve;
}

/// Whether Tensor.to(memory_format) takes a tensor of that layout as it is.
bool has_asked_format(const NodeView& view, const TensorType& from, const TensorType& to) {
  TensorType sampled;
  if (!sample_type(from, {}, &sampled)) return same_strides(from, to);
  return suggested_format(sampled) == std::get<ir::MemoryFormat>(view.arg("memory_format"));
}

class Resolver {
 public:
  Resolver(Graph& graph, bool writes) : graph_(graph), writes_(writes) {}

  Result<Rewrite> operator()(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const Node& node = graph_[id];
    const ir::Op& op = *node.op;
    if (op.has(ir::kDrop) && node.outputs.empty()) return Rewrite::kRemove;
    if (op.functional != nullptr && op.functional->schema.name.starts_with("aten::_foreach_")) return each_in_place(b, node);
    if (!writes_ || op.functional != nullptr || !op.known) return Rewrite::kKeep;
    if (is_batch_norm(op)) return batch_norm(b, node, made);
    if (op.schema.name == "aten::instance_norm") return instance_norm(b, node, made);
    if (op.schema.name == "aten::lift_fresh" || op.schema.name == "aten::lift") {
      const auto* lifted = std::get_if<ValueId>(&node.args[0]);
      if (lifted == nullptr) return Rewrite::kKeep;
      const bool is_literal = op.schema.name == "aten::lift_fresh" && graph_[*lifted].constant.valid();  // every call starts with its own
      made = {is_literal ? b.op("aten::clone", {*lifted}) : *lifted};
      return Rewrite::kReplace;
    }
    if ((op.schema.name == "aten::resolve_conj" || op.schema.name == "aten::resolve_neg") && is_lazy(std::get<ValueId>(node.args[0]), op.schema.name == "aten::resolve_neg")) {
      made = {b.op("aten::clone", {node.args[0]})};
      return Rewrite::kReplace;
    }
    if (op.schema.name == "aten::einsum") {  // of one operand: views, and a sum if there is one
      const auto* operands = std::get_if<std::vector<ValueId>>(&node.args[1]);
      return operands != nullptr && operands->size() == 1 ? composite(b, node, made) : Rewrite::kKeep;
    }
    // They count in memory: said in terms of its owner while the archive's views still stand.
    if (op.schema.name == "aten::as_strided" || op.schema.name == "aten::as_strided_scatter") return composite(b, node, made);
    if (made = pieces_as_exported(b, node); !made.empty()) return Rewrite::kReplace;
    const Row* row = find_row(op);
    const bool decided = row != nullptr && (row->kind == Kind::kReshape || row->kind == Kind::kContiguous || row->kind == Kind::kTo);
    if (row == nullptr || (op.is_view() && !decided) || node.outputs.empty() || node.args.empty()) return Rewrite::kKeep;
    const auto* input = std::get_if<ValueId>(&node.args[0]);
    if (row->kind == Kind::kComposite) return composite(b, node, made);
    if (input == nullptr || !input->valid()) return Rewrite::kKeep;
    return alias(b, node, row->kind, *input, made);
  }

 private:
  Result<Rewrite> composite(Builder& b, const Node& node, std::vector<ValueId>& made) {
    if (node.op->def.decompose == nullptr) return Rewrite::kKeep;
    const NodeView view(graph_, *node.op, node.args);
    const size_t wanted = node.outputs.size();
    made = node.op->def.decompose(b, view);
    return made.size() == wanted ? Rewrite::kReplace : Rewrite::kKeep;
  }

  Result<Rewrite> alias(Builder& b, const Node& node, Kind kind, ValueId input, std::vector<ValueId>& made) {
    const NodeView view(graph_, *node.op, node.args);
    const TensorType from = graph_[input].type;
    const TensorType to = graph_[node.outputs[0]].type;
    switch (kind) {
      case Kind::kView: made = {b.op("aten::view", {input, to.sizes})}; return Rewrite::kReplace;
      case Kind::kExpand: made = {b.op("aten::expand", {input, to.sizes})}; return Rewrite::kReplace;
      case Kind::kReshape: {
        const bool aliases = is_viewable(from, to.sizes);
        const ValueId source = aliases ? input : b.op("aten::clone", {input, ir::MemoryFormat::kContiguous});
        if (!aliases) {
          note_copy(source, from, [&](const TensorType& type, const std::function<bool(Expr)>& at_one) {
            TensorType shape;
            return sample_type(to, at_one, &shape) && is_viewable(type, shape.sizes);
          });
        }
        made = {b.op("aten::view", {source, to.sizes})};
        return Rewrite::kReplace;
      }
      case Kind::kContiguous: {
        const bool aliases = same_strides(from, to);
        made = {aliases ? input : b.op("aten::clone", {input, view.arg("memory_format")})};
        const auto* format = std::get_if<ir::MemoryFormat>(&view.arg("memory_format"));
        if (!aliases && format != nullptr) {
          note_copy(made[0], from, [&](const TensorType& type, const std::function<bool(Expr)>&) { return fits_format(type, *format); });
        }
        return Rewrite::kReplace;
      }
      case Kind::kTo: {
        const bool keeps = from.dtype == to.dtype && from.device == to.device && !asks_for_copy(view) && (!asks_for_format(view) || has_asked_format(view, from, to));
        made = {input};
        return keeps ? Rewrite::kReplace : Rewrite::kKeep;
      }
      case Kind::kDropout: {
        made = {input};
        const bool off = !view.boolean("train") || view.number("p", 0.5) == 0;
        return off ? Rewrite::kReplace : Rewrite::kKeep;
      }
      case Kind::kReal:
        made = {input};
        return is_complex(from.dtype) ? Rewrite::kKeep : Rewrite::kReplace;
      case Kind::kSame:
        made = {input};
        return from.sizes == to.sizes ? Rewrite::kReplace : Rewrite::kKeep;
      case Kind::kComposite: break;
    }
    return Rewrite::kKeep;
  }

  /// A copy that would be the tensor itself if some size were one: notes the sizes that decide it.
  void note_copy(ValueId copy, const TensorType& from, const std::function<bool(const TensorType&, const std::function<bool(Expr)>&)>& aliases) {
    std::vector<Expr> symbols;
    for (const Expr size : from.sizes) {
      for (const Expr symbol : ir::symbols_in(size)) {
        const ir::Range range = ir::bounds(symbol);
        if (range.min <= 1 && range.max >= 1) symbols.push_back(symbol);
      }
    }
    const auto aliases_at = [&](const std::function<bool(Expr)>& at_one) {
      TensorType type;
      return sample_type(from, at_one, &type) && aliases(type, at_one);
    };
    std::vector<Expr> deciding;
    for (const Expr symbol : symbols) {
      if (aliases_at([&](Expr s) { return s == symbol; })) deciding.push_back(symbol);
    }
    if (deciding.empty() && symbols.size() > 1 && aliases_at([&](Expr s) { return std::find(symbols.begin(), symbols.end(), s) != symbols.end(); })) {
      deciding.push_back(symbols[0]);
    }
    if (!deciding.empty()) maybe_aliases.push_back({copy, std::move(deciding)});
  }

  /// The side that the function says yes to keeps its conj (neg) bit: a view that is computed when it is read.
  bool is_lazy(ValueId id, bool negative) const {
    bool conjugated = false;
    while (id.valid() && graph_[id].producer.valid()) {
      const Node& node = graph_[graph_[id].producer];
      const Effect effect = effect_of(node);
      if (effect != Effect::kView && effect != Effect::kWrite) return conjugated;
      if (is_lazy_view(*node.op) && is_complex(graph_[id].type.dtype)) conjugated = !conjugated;
      const size_t at = node.op->functional != nullptr ? written_argument(*node.op) : 0;
      const auto* next = at < node.args.size() ? std::get_if<ValueId>(&node.args[at]) : nullptr;
      if (next == nullptr) return conjugated;
      if (view_op(*node.op).schema.name == "aten::imag" && negative) return is_lazy(*next, false);
      id = *next;
    }
    return conjugated;
  }

  /// copy_(target, value) as the archive would have it.
  Status write(Builder& b, ValueId target, ValueId value, std::string_view source, std::string_view module) {
    const ir::Op* copy = in_place_op(*graph_.program, b.catalog(), "aten::copy_");
    if (copy == nullptr) return Status(Code::kUnsupported, "operator aten::copy is not in the catalog");
    Node node;
    node.op = copy;
    PTERON_ASSIGN(node.args, ir::complete_args(*copy, {target, value}, graph_.program->exprs));
    node.outputs = {graph_.add_tensor(graph_[target].type, "copy_")};
    node.name = "copy_";
    node.source = std::string(source);
    node.module = std::string(module);
    b.append(graph_.add_node(std::move(node)));
    return ok_status();
  }

  /// _foreach_add_ and the like: one tensor after the other, each a functional operator and a write, so that tensors of the list that share
  /// memory see each other's writes.
  Result<Rewrite> each_in_place(Builder& b, const Node& node) {
    const ir::Op& functional = *node.op->functional;
    const auto* written = std::get_if<std::vector<ValueId>>(&node.args[0]);
    if (written == nullptr || functional.def.decompose == nullptr) return Rewrite::kKeep;
    const std::vector<ValueId> targets = *written;
    const std::string source = node.source, module = node.module;
    for (size_t k = 0; k < targets.size(); ++k) {
      std::vector<Arg> args = node.args;
      for (size_t i = 0; i < args.size(); ++i) {
        auto* values = std::get_if<std::vector<ValueId>>(&args[i]);
        auto* numbers = std::get_if<std::vector<Expr>>(&args[i]);
        if (values != nullptr && k < values->size()) *values = {(*values)[k]};
        if (numbers != nullptr && k < numbers->size()) *numbers = {(*numbers)[k]};
      }
      const std::vector<ValueId> result = functional.def.decompose(b, NodeView(graph_, functional, args));
      if (result.size() != 1 || !b.status().ok()) return Rewrite::kKeep;  // the builder has the error
      PTERON_TRY(write(b, targets[k], result[0], source, module));
    }
    return Rewrite::kRemove;
  }

  static bool is_batch_norm(const ir::Op& op) {
    const std::string& name = op.schema.name;
    return op.schema.overload.empty() && (name == "aten::batch_norm" || name == "aten::native_batch_norm" || name == "aten::_native_batch_norm_legit");
  }

  /// Training with running statistics: the functional form and two writes.
  Result<Rewrite> batch_norm(Builder& b, const Node& node, std::vector<ValueId>& made) {
    const NodeView view(graph_, *node.op, node.args);
    if (view.is_none("running_mean") || view.is_none("running_var")) return Rewrite::kKeep;
    if (!view.boolean("training")) return node.op->schema.name == "aten::_native_batch_norm_legit" ? composite(b, node, made) : Rewrite::kKeep;
    const std::string source = node.source, module = node.module;
    const ValueId mean = view.value("running_mean"), var = view.value("running_var");
    const std::vector<ValueId> results = b.ops(
        "aten::_native_batch_norm_legit_functional",
        {view.arg("input"), view.arg("weight"), view.arg("bias"), mean, var, view.arg("training"), view.arg("momentum"), view.arg("eps")});
    if (results.size() != 5) return Rewrite::kKeep;  // the builder has the error
    PTERON_TRY(write(b, mean, results[3], source, module));
    PTERON_TRY(write(b, var, results[4], source, module));
    made.assign(results.begin(), results.begin() + static_cast<std::ptrdiff_t>(node.outputs.size()));
    return Rewrite::kReplace;
  }

  /// (1 - momentum) * old + momentum * the mean over images of `now` [N,C].
  ValueId moved(Builder& b, ValueId old, ValueId now, double momentum) {
    const ValueId mean = b.op("aten::mean.dim", {now, std::vector<ir::Expr>{ir::Expr(0)}});
    const ValueId kept = b.op("aten::mul.Scalar", {old, b.floating(1 - momentum)});
    return b.op("aten::add.Tensor", {kept, b.op("aten::mul.Scalar", {mean, b.floating(momentum)})});
  }

  /// The form without running statistics, and the writes of the new ones.
  Result<Rewrite> instance_norm(Builder& b, const Node& node, std::vector<ValueId>& made) {
    const NodeView view(graph_, *node.op, node.args);
    if (view.is_none("running_mean") || view.is_none("running_var") || !view.boolean("use_input_stats")) return Rewrite::kKeep;
    const std::string source = node.source, module = node.module;
    const ValueId mean = view.value("running_mean"), var = view.value("running_var");
    std::vector<ir::Expr> pixels;
    for (int d = 2; d < view.type("input").rank(); ++d) pixels.emplace_back(d);
    const std::vector<ValueId> stats = b.ops("aten::var_mean.correction", {view.arg("input"), pixels, ir::Expr(1), b.boolean(false)});
    if (stats.size() != 2) return Rewrite::kKeep;  // the builder has the error
    const double momentum = view.number("momentum");
    const ValueId result = b.op("aten::instance_norm", {view.arg("input"), view.arg("weight"), view.arg("bias"), std::monostate(), std::monostate(), b.boolean(true),
                                                        view.arg("momentum"), view.arg("eps"), view.arg("cudnn_enabled")});
    PTERON_TRY(write(b, mean, moved(b, mean, stats[1], momentum), source, module));
    PTERON_TRY(write(b, var, moved(b, var, stats[0], momentum), source, module));
    made = {result};
    return Rewrite::kReplace;
  }

  Graph& graph_;
  bool writes_;

 public:
  std::vector<MaybeAlias> maybe_aliases;
};

}  // namespace

Result<bool> resolve(Graph& graph, const Catalog& catalog) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, resolve(*region, catalog));
      changed = changed || region_changed;
    }
  }
  Resolver resolver(graph, has_writes(graph));
  constexpr int kRounds = 8;  // composites of composites
  for (int round = 0; round < kRounds; ++round) {
    PTERON_ASSIGN(const bool again, ir::rewrite(graph, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& made) { return resolver(b, id, made); }));
    changed = changed || again;
    if (!again) break;
  }
  PTERON_TRY(check_sizes(graph, catalog, resolver.maybe_aliases));
  return changed;
}

}  // namespace pteron::passes
