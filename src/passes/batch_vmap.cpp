// Traces of torch.vmap (torch._functorch.predispatch.*) become plain operators: the dims that vmap hides are real dims in front of a slice's own.
// Operators without a rule (batch_rules.cpp) become a loop over slices.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/str_cat.h"
#include "passes/alias_ops.h"
#include "passes/batch_rules.h"
#include "passes/passes.h"
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

constexpr std::string_view kPrefix = "torch._functorch.predispatch.";
/// Levels of nesting, in order: vmap's own numbers. They stand for the first dims of a value.
using Levels = std::vector<int64_t>;

enum class Trace : uint8_t { kNone, kVmap, kOther };

/// What torch.func left in the graph; kOther: more than vmap (jvp, grad).
Trace trace_of(const Graph& graph) {
  Trace found = Trace::kNone;
  for (const NodeId id : graph.order) {
    std::string_view name = graph[id].op->name;
    if (!name.starts_with(kPrefix)) continue;
    name.remove_prefix(kPrefix.size());
    const bool vmap = name == "lazy_load_decompositions" || name == "_vmap_increment_nesting" || name == "_vmap_decrement_nesting" || name == "_add_batch_dim" || name == "_remove_batch_dim";
    if (!vmap) return Trace::kOther;
    found = Trace::kVmap;
  }
  return found;
}

/// "aten::add_.Tensor" -> "add".
std::string_view base_of(const ir::Op& op) {
  std::string_view name = op.functional != nullptr ? op.functional->schema.name : op.schema.name;
  if (name.starts_with("aten::")) name.remove_prefix(6);
  return name;
}

/// A kind of numbers, as type promotion ranks them.
int category(DType dtype) { return dtype == DType::kBool ? 0 : is_complex(dtype) ? 3 : is_floating(dtype) ? 2 : 1; }

class Batcher {
 public:
  explicit Batcher(Graph& graph) : graph_(graph), writes_(has_writes(graph)) {}

  Result<Rewrite> operator()(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const std::string_view name = graph_[id].op->name;
    if (name.starts_with(kPrefix)) return transform(b, graph_[id], name.substr(kPrefix.size()), made);
    Levels all;
    bool loses = false;
    ir::for_each_use(graph_[id], [&](ValueId v) {
      const Levels& own = levels_of(v);
      loses = loses || (v == written(graph_[id]) && own.empty());
      for (const int64_t level : own) {
        if (std::find(all.begin(), all.end(), level) == all.end()) all.push_back(level);
      }
    });
    if (all.empty()) return random(graph_[id]);
    std::sort(all.begin(), all.end());
    PTERON_TRY(check(graph_[id], all));
    PTERON_TRY(node(b, graph_[id], all, made));
    if (!b.status().ok()) return Rewrite::kKeep;
    PTERON_TRY(compare(b, graph_[id], all, made));
    for (const ValueId out : made) levels_[out.index] = all;
    return Rewrite::kReplace;
  }

 private:
  const Levels& levels_of(ValueId v) const {
    static const Levels kNone;
    const auto found = levels_.find(v.index);
    return found == levels_.end() ? kNone : found->second;
  }
  const TensorType& type(ValueId v) const { return graph_[v].type; }
  /// Dims of one slice.
  size_t rank(ValueId v) const { return type(v).sizes.size() - levels_of(v).size(); }
  std::vector<Expr> slice_sizes(ValueId v) const {
    const std::vector<Expr>& sizes = type(v).sizes;
    return {sizes.begin() + static_cast<std::ptrdiff_t>(levels_of(v).size()), sizes.end()};
  }
  std::vector<Expr> batch_sizes(const Levels& levels) const {
    std::vector<Expr> sizes;
    for (const int64_t level : levels) sizes.push_back(size_of_.at(level));
    return sizes;
  }
  std::vector<Expr> with_batch(const Levels& levels, const std::vector<Expr>& slice) const {
    std::vector<Expr> sizes = batch_sizes(levels);
    sizes.insert(sizes.end(), slice.begin(), slice.end());
    return sizes;
  }
  static ValueId written(const Node& node) {
    if (node.op->functional == nullptr || node.args.empty()) return {};
    const auto* v = std::get_if<ValueId>(&node.args[written_argument(*node.op)]);
    return v == nullptr ? ValueId() : *v;
  }

  // ---- the machinery of vmap

  Result<Rewrite> transform(Builder& b, const Node& node, std::string_view name, std::vector<ValueId>& made) {
    if (name == "lazy_load_decompositions" || name == "_vmap_decrement_nesting") return Rewrite::kRemove;
    if (name == "_vmap_increment_nesting") {
      randomness_ = node.args.size() > 1 && std::holds_alternative<std::string>(node.args[1]) ? std::get<std::string>(node.args[1]) : "error";
      return Rewrite::kRemove;
    }
    const size_t count = name == "_add_batch_dim" ? 3 : 4;
    const auto* x = node.args.size() == count ? std::get_if<ValueId>(&node.args[0]) : nullptr;
    int64_t level = 0, dim = 0;
    if (x == nullptr || node.outputs.size() != 1 || !constant(node.args[count == 3 ? 2 : 1], &level) || !constant(node.args[count == 3 ? 1 : 3], &dim)) {
      return Status::invalid_file(str_cat(node.op->name, ": arguments that are not those of PyTorch 2.13"));
    }
    PTERON_ASSIGN(const ValueId out, count == 3 ? add(b, *x, dim, level) : remove(b, *x, level, node.args[2], dim));
    made = {out};
    return Rewrite::kReplace;
  }

  static bool constant(const Arg& arg, int64_t* out) {
    const auto* e = std::get_if<Expr>(&arg);
    if (e == nullptr || !e->is_const()) return false;
    *out = e->value();
    return true;
  }

  /// Dim `dim` of a slice becomes the last of the hidden dims.
  Result<ValueId> add(Builder& b, ValueId x, int64_t dim, int64_t level) {
    Levels levels = levels_of(x);
    const auto hidden = static_cast<int64_t>(levels.size()), slice = static_cast<int64_t>(rank(x));
    if (dim < 0) dim += slice;
    if (dim < 0 || dim >= slice || (!levels.empty() && level <= levels.back())) return Status::invalid_file(str_cat("vmap over dim ", dim, " of a tensor of rank ", slice));
    size_of_.insert_or_assign(level, type(x).sizes[static_cast<size_t>(hidden + dim)]);
    std::vector<Expr> order;
    for (int64_t d = 0; d < hidden; ++d) order.emplace_back(d);
    order.emplace_back(hidden + dim);
    for (int64_t d = 0; d < slice; ++d) {
      if (d != dim) order.emplace_back(hidden + d);
    }
    const ValueId out = view(b, "aten::permute", {x, std::move(order)});
    levels.push_back(level);
    if (out.valid()) levels_[out.index] = std::move(levels);
    return out;
  }

  /// The hidden dim of `level` becomes dim `dim` of a slice; without one the value is repeated.
  Result<ValueId> remove(Builder& b, ValueId x, int64_t level, const Arg& count, int64_t dim) {
    Levels levels = levels_of(x);
    auto hidden = static_cast<int64_t>(levels.size());
    const auto slice = static_cast<int64_t>(rank(x));
    if (dim < 0) dim += slice + 1;
    const auto* size = std::get_if<Expr>(&count);
    if (dim < 0 || dim > slice || size == nullptr) return Status::invalid_file(str_cat("vmap with its results at dim ", dim, " of a tensor of rank ", slice));
    const auto at = std::find(levels.begin(), levels.end(), level);
    ValueId out;
    if (at == levels.end()) {
      std::vector<Expr> sizes = type(x).sizes;
      sizes.insert(sizes.begin() + hidden + dim, *size);
      out = view(b, "aten::expand", {view(b, "aten::unsqueeze", {x, Expr(hidden + dim)}), std::move(sizes)});
    } else {
      const int64_t from = at - levels.begin();
      std::vector<Expr> order;
      for (int64_t d = 0; d < hidden + slice; ++d) {
        if (d == hidden + dim) order.emplace_back(from);
        if (d != from) order.emplace_back(d);
      }
      if (dim == slice) order.emplace_back(from);
      out = view(b, "aten::permute", {x, std::move(order)});
      levels.erase(at);
    }
    if (out.valid() && !levels.empty()) levels_[out.index] = std::move(levels);
    return out;
  }

  // ---- building

  /// A view node whose strides are those of its memory: resolve and functionalize look at them.
  ValueId view(Builder& b, std::string_view name, std::vector<Arg> args) {
    const ValueId out = b.op(name, std::move(args));
    if (out.valid()) fix_strides(out, 0);
    return out;
  }

  void fix_strides(ValueId out, size_t result) {
    const NodeId producer = graph_[out].producer;
    if (!producer.valid() || graph_[producer].op->def.view == nullptr) return;
    const Node& node = graph_[producer];
    const TensorType& from = type(std::get<ValueId>(node.args[0]));
    ir::ViewLayout layout;
    if (node.op->def.view(NodeView(graph_, *node.op, node.args), {from.sizes, from.strides, 0}, result, &layout)) graph_[out].type.strides = std::move(layout.strides);
  }

  /// The node with other arguments; one that writes in place gives back the value it writes.
  std::vector<ValueId> build(Builder& b, const Node& node, std::vector<Arg> args) {
    if (node.op->functional == nullptr) {
      std::vector<ValueId> made = b.ops(node.op->name, std::move(args));
      for (size_t k = 0; k < made.size() && node.op->is_view(); ++k) fix_strides(made[k], k);
      return made;
    }
    Node write;
    write.op = node.op;
    write.name = node.name;
    write.source = node.source;
    write.module = node.module;
    write.args = std::move(args);
    const ValueId out = graph_.add_tensor(type(written(write)), node.name);
    write.outputs = {out};
    b.append(graph_.add_node(std::move(write)));
    return {out};
  }

  /// x with all hidden dims of `levels` (of size 1 where it does not vary, or expanded) and slices of the given rank.
  ValueId align(Builder& b, ValueId x, const Levels& levels, size_t slice_rank, bool expand) {
    const Levels own = levels_of(x);
    const size_t slice = rank(x);
    std::vector<Expr> sizes;
    ValueId out = x;
    for (size_t i = 0; i < levels.size(); ++i) {
      const bool has = std::find(own.begin(), own.end(), levels[i]) != own.end();
      if (!has) out = view(b, "aten::unsqueeze", {out, Expr(static_cast<int64_t>(i))});
      sizes.push_back(has || expand ? size_of_.at(levels[i]) : Expr(1));
    }
    for (size_t d = slice; d < slice_rank; ++d) out = view(b, "aten::unsqueeze", {out, Expr(static_cast<int64_t>(levels.size()))});
    if (!out.valid()) return out;
    const std::vector<Expr> now = type(out).sizes;
    sizes.insert(sizes.end(), now.begin() + static_cast<std::ptrdiff_t>(levels.size()), now.end());
    return now == sizes ? out : view(b, "aten::expand", {out, std::move(sizes)});
  }

  // ---- rules

  Result<Rewrite> random(const Node& node) const {
    if (node.op->has(ir::kRandom) && randomness_ == "different" && draws_random(graph_, node)) {
      return Status(Code::kUnsupported, str_cat(node.op->name, " inside torch.vmap with randomness='different'"));
    }
    return Rewrite::kKeep;
  }

  Status check(const Node& node, const Levels& all) const {
    const auto refuse = [&](std::string_view why) {
      return Status(Code::kUnsupported, str_cat(node.op->name, " inside torch.vmap: ", why, "; export.run_decompositions() may turn the program into plain operators"));
    };
    if (!node.op->known && node.op->functional == nullptr) return refuse("unknown operator");
    if (!node.regions.empty() || node.op->has(ir::kRegion)) return refuse("control flow over slices");
    if (node.op->has(ir::kRandom) && draws_random(graph_, node)) return refuse("random numbers");
    const ValueId target = written(node);
    if (target.valid() && levels_of(target) != all) return refuse("writes slices into a tensor that all slices share");
    return ok_status();
  }

  Status node(Builder& b, const Node& node, const Levels& all, std::vector<ValueId>& made) {
    made = ruled(b, node, all);
    if (!made.empty() || !b.status().ok()) return ok_status();
    if (node.op->functional == nullptr && !(node.op->is_view() && writes_)) return loop(b, node, *node.op, all, made);
    if (node.op->functional == nullptr || written_argument(*node.op) != 0 || is_metadata_write(*node.op)) {
      return Status(Code::kUnsupported, str_cat(node.op->name, " inside torch.vmap: it has no form for all slices at once and its memory is written to"));
    }
    std::vector<ValueId> result;
    PTERON_TRY(loop(b, node, *node.op->functional, all, result));
    if (!b.status().ok()) return ok_status();
    Node copy;
    copy.op = in_place_op(*graph_.program, b.catalog(), "aten::copy_");
    if (copy.op == nullptr) return Status(Code::kUnsupported, "operator aten::copy is not in the catalog");
    copy.name = node.name;
    copy.source = node.source;
    copy.module = node.module;
    PTERON_ASSIGN(copy.args, ir::complete_args(*copy.op, {written(node), result[0]}, graph_.program->exprs));
    made = {graph_.add_tensor(type(written(node)), node.name)};
    copy.outputs = made;
    b.append(graph_.add_node(std::move(copy)));
    return ok_status();
  }

  /// Empty: no rule fits.
  std::vector<ValueId> ruled(Builder& b, const Node& node, const Levels& all) {
    const std::string_view base = base_of(*node.op);
    BatchRule rule = batch_rule(base);
    const NodeView n(graph_, node.op->functional != nullptr ? *node.op->functional : *node.op, node.args);
    if (has_channels_last(node)) return {};
    if (rule == BatchRule::kReduceAll && n.has("other")) rule = BatchRule::kElementwise;
    if (rule == BatchRule::kReduceAll && n.has("dim")) rule = BatchRule::kReduceDims;
    if (node.op->name == "aten::view.dtype") rule = BatchRule::kLeading;
    switch (rule) {
      case BatchRule::kElementwise: return elementwise(b, node, all);
      case BatchRule::kDims: return dims(b, node, all, false);
      case BatchRule::kReduceDims: return dims(b, node, all, true);
      case BatchRule::kReshape: {
        const ValueId x = node_value(node, 0);
        return {view(b, may_copy(base) ? "aten::reshape" : "aten::view", {align(b, x, all, rank(x), true), with_batch(all, type(node.outputs[0]).sizes)})};
      }
      case BatchRule::kExpand: {
        const std::vector<Expr> slice = type(node.outputs[0]).sizes;
        const ValueId x = align(b, node_value(node, 0), all, slice.size(), false);
        return {view(b, "aten::expand", {x, with_batch(all, slice)})};
      }
      case BatchRule::kLeading: return only_first_varies(node) && rank(node_value(node, 0)) >= 1 ? build(b, node, node.args) : std::vector<ValueId>();
      case BatchRule::kProduct: return {product(b, node_value(node, 0), node_value(node, 1), all)};
      case BatchRule::kLinear: return linear(b, node, n, all);
      case BatchRule::kReduceAll: return reduce_all(b, node, n, all, reduce_one_dim(base));
      case BatchRule::kNewSizes: {
        std::vector<Arg> args = node.args;
        args[1] = with_batch(all, n.exprs("size"));
        return build(b, node, std::move(args));
      }
      case BatchRule::kPermute: return permute(b, node, n, all);
      case BatchRule::kIndex: return index(b, n, all);
      case BatchRule::kLoop: break;
    }
    return {};
  }

  static bool may_copy(std::string_view base) { return base == "reshape" || base == "reshape_as" || base == "flatten" || base == "ravel"; }

  static ValueId node_value(const Node& node, size_t at) {
    const auto* v = at < node.args.size() ? std::get_if<ValueId>(&node.args[at]) : nullptr;
    return v == nullptr ? ValueId() : *v;
  }

  static bool has_channels_last(const Node& node) {
    return std::any_of(node.args.begin(), node.args.end(), [](const Arg& arg) {
      const auto* format = std::get_if<ir::MemoryFormat>(&arg);
      return format != nullptr && *format != ir::MemoryFormat::kPreserve && *format != ir::MemoryFormat::kContiguous;
    });
  }

  bool only_first_varies(const Node& node) const {
    for (size_t i = 1; i < node.args.size(); ++i) {
      bool varies = false;
      ir::for_each_value(node.args[i], [&](ValueId v) { varies = varies || !levels_of(v).empty(); });
      if (varies) return false;
    }
    return node_value(node, 0).valid();
  }

  std::vector<ValueId> elementwise(Builder& b, const Node& node, const Levels& all) {
    const std::string_view base = base_of(*node.op);
    const bool takes_number = base == "fill" || base == "masked_fill";  // a tensor of rank 0
    if (const ValueId last = node_value(node, node.args.size() - 1); takes_number && last.valid() && !levels_of(last).empty()) return {};
    size_t slice_rank = 0;
    DType dtype = DType::kBool;  // of the operands that have dims
    for (const Arg& arg : node.args) {
      ir::for_each_value(arg, [&](ValueId v) {
        slice_rank = std::max(slice_rank, rank(v));
        if (rank(v) > 0 && category(type(v).dtype) >= category(dtype)) dtype = category(type(v).dtype) == category(dtype) ? promote_dtypes(dtype, type(v).dtype) : type(v).dtype;
      });
    }
    std::vector<Arg> args = node.args;
    const ValueId target = written(node);
    for (Arg& arg : args) {
      auto* v = std::get_if<ValueId>(&arg);
      if (v == nullptr || !v->valid() || *v == target) continue;
      const DType own = type(*v).dtype;
      if (levels_of(*v).empty()) {  // among slices of rank 0 it counts as much as they do
        if (slice_rank == 0 && category(own) > 0 && !takes_number) *v = view(b, "aten::unsqueeze", {*v, Expr(0)});
        continue;
      }
      // A slice of rank 0 does not decide the dtype beside one with dims; with hidden dims it would.
      const bool weak = rank(*v) == 0 && slice_rank > 0 && category(own) > 0 && category(own) == category(dtype) && own != dtype;
      *v = align(b, *v, all, slice_rank, false);
      if (weak && v->valid()) *v = b.op("aten::_to_copy", {*v, dtype});
    }
    return b.status().ok() ? build(b, node, std::move(args)) : std::vector<ValueId>();
  }

  /// All tensors with all hidden dims; arguments that name dims moved behind these.
  std::vector<ValueId> dims(Builder& b, const Node& node, const Levels& all, bool none_is_all) {
    const ir::Op& op = node.op->functional != nullptr ? *node.op->functional : *node.op;
    std::vector<Arg> args = node.args;
    size_t slice = 0;
    bool first = true, fits = true;
    for (const Arg& arg : node.args) {
      ir::for_each_value(arg, [&](ValueId v) {
        fits = fits && (first || rank(v) == slice);
        slice = first ? rank(v) : slice;
        first = false;
      });
    }
    if (!fits || slice == 0) return {};
    const auto hidden = static_cast<int64_t>(all.size());
    const int64_t wrap = static_cast<int64_t>(slice) + (op.schema.name == "aten::stack" ? 1 : 0);
    bool moved = false;
    for (size_t i = 0; i < args.size(); ++i) {
      if (!names_dims(op.schema.args[i].name)) continue;
      const bool none = std::holds_alternative<std::monostate>(args[i]);
      auto* list = std::get_if<std::vector<Expr>>(&args[i]);
      if (none || (list != nullptr && list->empty())) {
        if (!none_is_all || !op.schema.args[i].type.list) return {};
        std::vector<Expr> every;
        for (int64_t d = 0; d < wrap; ++d) every.emplace_back(hidden + d);
        args[i] = std::move(every);
      } else if (list != nullptr) {
        for (Expr& dim : *list) {
          if (!move_dim(&dim, hidden, wrap)) return {};
        }
      } else if (auto* dim = std::get_if<Expr>(&args[i]); dim == nullptr || !move_dim(dim, hidden, wrap)) {
        return {};
      }
      moved = true;
    }
    if (!moved) return {};
    const ValueId target = written(node);
    for (Arg& arg : args) {
      ir::for_each_value(arg, std::function<void(ValueId&)>([&](ValueId& v) { v = v == target ? v : align(b, v, all, slice, true); }));
    }
    return b.status().ok() ? build(b, node, std::move(args)) : std::vector<ValueId>();
  }

  static bool move_dim(Expr* dim, int64_t hidden, int64_t wrap) {
    if (!dim->is_const() || dim->value() < -wrap || dim->value() >= wrap) return false;
    *dim = Expr(hidden + (dim->value() < 0 ? dim->value() + wrap : dim->value()));
    return true;
  }

  std::vector<ValueId> permute(Builder& b, const Node& node, const NodeView& n, const Levels& all) {
    const auto hidden = static_cast<int64_t>(all.size()), slice = static_cast<int64_t>(rank(node_value(node, 0)));
    std::vector<Expr> order;
    for (int64_t d = 0; d < hidden; ++d) order.emplace_back(d);
    for (Expr dim : n.exprs("dims")) {
      if (!move_dim(&dim, hidden, slice)) return {};
      order.push_back(dim);
    }
    return {view(b, "aten::permute", {node_value(node, 0), std::move(order)})};
  }

  std::vector<ValueId> reduce_all(Builder& b, const Node& node, const NodeView& n, const Levels& all, std::string_view with_dim) {
    const ValueId x = node_value(node, 0);
    const auto hidden = static_cast<int64_t>(all.size());
    const ValueId flat = b.op("aten::reshape", {x, with_batch(all, {ir::numel_of(slice_sizes(x))})});
    const bool list = with_dim == "aten::sum.dim_IntList" || with_dim == "aten::mean.dim" || with_dim == "aten::amax" || with_dim == "aten::amin";
    std::vector<Arg> args = {flat, list ? Arg(std::vector<Expr>{Expr(hidden)}) : Arg(Expr(hidden)), b.boolean(false)};
    if (n.has("dtype")) args.push_back(n.arg("dtype"));
    return {b.op(with_dim, std::move(args))};
  }

  /// matmul of slices.
  ValueId product(Builder& b, ValueId x, ValueId y, const Levels& all) {
    const bool row = rank(x) == 1, column = rank(y) == 1;
    const auto widen = [&](ValueId v, int64_t dim) {
      const Levels own = levels_of(v);
      const ValueId wide = view(b, "aten::unsqueeze", {v, Expr(dim)});
      if (wide.valid() && !own.empty()) levels_[wide.index] = own;
      return wide;
    };
    if (row) x = widen(x, -2);
    if (column) y = widen(y, -1);
    if (!x.valid() || !y.valid()) return {};
    const size_t slice = std::max(rank(x), rank(y));
    // A matrix that all slices share stays one: the product is one large one.
    if (!levels_of(x).empty()) x = align(b, x, all, slice, false);
    if (!levels_of(y).empty()) y = align(b, y, all, slice, false);
    ValueId out = b.op("aten::matmul", {x, y});
    if (column) out = view(b, "aten::squeeze.dim", {out, Expr(-1)});
    if (row) out = view(b, "aten::squeeze.dim", {out, Expr(column ? -1 : -2)});
    return out;
  }

  std::vector<ValueId> linear(Builder& b, const Node& node, const NodeView& n, const Levels& all) {
    const ValueId x = n.value("input"), weight = n.value("weight"), bias = n.value("bias");
    if (only_first_varies(node)) return build(b, node, node.args);
    if (rank(x) == 0 || rank(weight) != 2) return {};
    const Levels own = levels_of(weight);
    const ValueId turned = view(b, "aten::transpose.int", {weight, Expr(-2), Expr(-1)});
    if (!turned.valid()) return {};
    if (!own.empty()) levels_[turned.index] = own;
    ValueId out = product(b, x, turned, all);
    if (bias.valid() && out.valid()) {
      const ValueId added = levels_of(bias).empty() ? bias : align(b, bias, all, rank(x), false);
      out = b.op("aten::add.Tensor", {out, added});
    }
    return {out};
  }

  /// Indices from the first dim on: those of the hidden dims stand before them if the tensor itself varies.
  std::vector<ValueId> index(Builder& b, const NodeView& n, const Levels& all) {
    const ValueId x = n.value("self");
    std::vector<ValueId> indices = n.values("indices");
    while (!indices.empty() && !indices.back().valid()) indices.pop_back();
    if (indices.empty()) return {};
    size_t slice = 0;
    for (const ValueId v : indices) {
      if (!v.valid() || type(v).dtype == DType::kBool || type(v).dtype == DType::kUInt8) return {};
      slice = std::max(slice, rank(v));
    }
    std::vector<ValueId> made;
    const Levels own = levels_of(x);
    for (const int64_t level : own) {
      const auto at = static_cast<size_t>(std::find(all.begin(), all.end(), level) - all.begin());
      std::vector<Expr> sizes(all.size() + slice, Expr(1));
      sizes[at] = size_of_.at(level);
      made.push_back(b.op("aten::view", {b.op("aten::arange", {size_of_.at(level), DType::kInt64}), std::move(sizes)}));
    }
    for (const ValueId v : indices) made.push_back(levels_of(v).empty() ? v : align(b, v, all, slice, false));
    return {b.op("aten::index.Tensor", {x, std::move(made)})};
  }

  // ---- slice by slice

  Status loop(Builder& b, const Node& node, const ir::Op& op, const Levels& all, std::vector<ValueId>& made) {
    const ir::Op* map = b.catalog().find("higher_order::map_impl");
    if (map == nullptr) return Status(Code::kUnsupported, str_cat(op.name, " inside torch.vmap"));
    auto body = std::make_unique<Graph>(*graph_.program);
    std::vector<ValueId> varying, shared;
    std::unordered_map<uint32_t, ValueId> inside;
    const Expr count = ir::numel_of(batch_sizes(all));
    ir::for_each_use(node, [&](ValueId v) {
      if (inside.contains(v.index) || levels_of(v).empty()) return;
      inside[v.index] = body->add_tensor(ir::contiguous_type(type(v).dtype, slice_sizes(v)), graph_[v].name);
      body->inputs.push_back({(*body)[inside[v.index]].name, inside[v.index], {}});
      std::vector<Expr> sizes = {count};
      for (const Expr& size : slice_sizes(v)) sizes.push_back(size);
      varying.push_back(b.op("aten::reshape", {align(b, v, all, rank(v), true), std::move(sizes)}));
    });
    ir::for_each_use(node, [&](ValueId v) {
      if (inside.contains(v.index)) return;
      if (graph_[v].constant.valid()) {
        inside[v.index] = body->add_constant(graph_[v].constant, graph_[v].name);
        return;
      }
      inside[v.index] = body->add_tensor(ir::contiguous_type(type(v).dtype, type(v).sizes), graph_[v].name);
      body->inputs.push_back({(*body)[inside[v.index]].name, inside[v.index], {}});
      shared.push_back(v);
    });
    if (!b.status().ok()) return ok_status();
    std::vector<Arg> args = node.args;
    for (Arg& arg : args) ir::for_each_value(arg, std::function<void(ValueId&)>([&](ValueId& v) { v = inside[v.index]; }));
    PTERON_ASSIGN(const NodeId step, ir::make_node(*body, op, std::move(args), node.name));
    (*body)[step].source = node.source;
    (*body)[step].module = node.module;
    body->order.push_back(step);
    Node call;
    call.op = map;
    call.name = node.name;
    call.source = node.source;
    call.module = node.module;
    call.args = {std::move(varying), std::move(shared)};
    for (const ValueId out : (*body)[step].outputs) {
      if ((*body)[out].kind != ir::ValueKind::kTensor) return Status(Code::kUnsupported, str_cat(op.name, " inside torch.vmap: a result that is no tensor"));
      body->outputs.emplace_back(out);
      std::vector<Expr> sizes = (*body)[out].type.sizes;
      sizes.insert(sizes.begin(), count);
      call.outputs.push_back(graph_.add_tensor(ir::contiguous_type((*body)[out].type.dtype, std::move(sizes)), node.name));
    }
    call.regions.push_back(std::move(body));
    const std::vector<ValueId> stacked = call.outputs;
    b.append(graph_.add_node(std::move(call)));
    for (const ValueId v : stacked) {
      const std::vector<Expr> sizes = type(v).sizes;
      made.push_back(view(b, "aten::view", {v, with_batch(all, {sizes.begin() + 1, sizes.end()})}));
    }
    return ok_status();
  }

  /// The archive knows dtype and rank of a slice; what was made must be that.
  Status compare(Builder& b, const Node& node, const Levels& all, std::vector<ValueId>& made) {
    if (made.size() != node.outputs.size()) return Status(Code::kInternal, str_cat(node.op->name, " inside torch.vmap: ", made.size(), " results instead of ", node.outputs.size()));
    for (size_t k = 0; k < made.size(); ++k) {
      const TensorType& want = type(node.outputs[k]);
      if (type(made[k]).dtype != want.dtype && node.op->functional == nullptr) made[k] = b.op("aten::_to_copy", {made[k], want.dtype});
      if (!made[k].valid()) return ok_status();
      if (type(made[k]).sizes.size() == want.sizes.size() + all.size()) continue;
      return Status(Code::kInternal, str_cat(node.op->name, " inside torch.vmap: rank ", type(made[k]).sizes.size(), " instead of ", want.sizes.size() + all.size()));
    }
    return ok_status();
  }

  Graph& graph_;
  bool writes_;
  std::string randomness_ = "error";
  std::unordered_map<uint32_t, Levels> levels_;  ///< of values that vary from slice to slice
  std::map<int64_t, Expr> size_of_;              ///< slices of a level
};

}  // namespace

Result<bool> batch_vmap(Graph& graph, const Catalog& catalog) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, batch_vmap(*region, catalog));
      changed = changed || region_changed;
    }
  }
  if (trace_of(graph) != Trace::kVmap) return changed;  // anything else is named with the unsupported operators
  Batcher batcher(graph);
  PTERON_ASSIGN(const bool rewritten, ir::rewrite(graph, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& made) { return batcher(b, id, made); }));
  return changed || rewritten;
}

}  // namespace pteron::passes
