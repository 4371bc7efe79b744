// The analysis walks from the end of the graph to its start: a value is computed inside the kernel that reads it if there is one such kernel, or if it
// costs nearly nothing. Kernels are tried on the unchanged graph; what cannot be written as part of another kernel goes to memory, and the analysis starts
// anew.
#include "backends/cuda/aot/fusion.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "backends/cuda/aot/lowering.h"
#include "backends/cuda/aot/operators.h"
#include "base/str_cat.h"
#include "emit/emit.h"
#include "emit/method_emitter.h"
#include "ir/builder.h"
#include "tensor/dtype.h"

namespace pteron::cuda {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Node;
using ir::NodeId;
using ir::TensorType;
using ir::ValueId;
using ir::ViewLayout;

namespace {

constexpr size_t kMaxNodes = 96;
constexpr size_t kMaxInputs = 48;

std::vector<Expr> dense_strides(const TensorType& type) {
  const std::vector<uint8_t> order = emit::dim_order_of(type);
  std::vector<Expr> strides(type.sizes.size(), Expr(1));
  Expr stride = 1;
  for (size_t i = type.sizes.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride = stride * dim_max(type.sizes[order[i]], 1);
  }
  return strides;
}

class Fusion {
 public:
  Fusion(ir::Graph& graph, const FusionOptions& options) : graph_(graph), options_(options) {
    memory_.holds = [this](ValueId id) { return holds(id); };
    memory_.layout = [this](ValueId id) { return layout(id); };
  }

  /// The launches by value.
  Result<std::map<uint32_t, Launch>> run() {
    collect();
    for (size_t turn = 0; turn < graph_.values.size() + 1; ++turn) {
      analyse();
      std::map<uint32_t, Launch> made;
      bool again = false;
      for (const uint32_t id : roots_) {
        Launch launch = tried(ValueId{id});
        if (!launch.failure.empty()) {
          if (!launch.blamed.valid() || launch.blamed.index == id || !forced_.insert(launch.blamed.index).second) {
            const ir::Value& value = graph_[ValueId{id}];
            return Status(Code::kInternal, str_cat("CUDA kernel of ", value.producer.valid() ? graph_[value.producer].name : value.name, ": ", launch.failure));
          }
          again = true;
          continue;
        }
        if (launch.inputs.size() > kMaxInputs && split(launch, ValueId{id})) {
          again = true;
          continue;
        }
        made.emplace(id, std::move(launch));
      }
      if (!again) return made;
    }
    return Status(Code::kInternal, "the fusion of CUDA kernels does not end");
  }

  bool is_kept_view(const Node& node) const {
    return std::ranges::any_of(node.outputs, [&](ValueId v) { return kept_.contains(v.index); });
  }
  bool is_own(NodeId id) const { return own_[id.index]; }
  const std::set<uint32_t>& roots() const { return roots_; }
  const Memory& memory() const { return memory_; }

 private:
  void collect() {
    own_.assign(graph_.nodes.size(), false);
    for (const NodeId id : graph_.order) {
      own_[id.index] = !(options_.is_library && options_.is_library(graph_[id])) && kind_of(graph_, graph_[id]) != NodeKind::kOther;
      ir::for_each_use(graph_[id], [&](ValueId used) { users_[used.index].push_back(id); });
    }
    ir::for_each_result(graph_, [&](ValueId& used) {
      if (used.valid() && graph_[used].kind == ir::ValueKind::kTensor) results_.insert(used.index);
    });
  }

  bool is_made_here(ValueId id) const { return graph_[id].producer.valid() && own_[graph_[id].producer.index]; }

  bool holds(ValueId id) const { return !is_made_here(id) || roots_.contains(id.index); }

  ViewLayout layout(ValueId id) const {
    const ir::Value& value = graph_[id];
    TensorType type = value.type;
    if (value.constant.valid()) {
      const ir::Constant& c = (*graph_.program)[value.constant];
      const bool is_weight = c.origin == ir::Constant::Origin::kParameter || c.origin == ir::Constant::Origin::kBuffer;
      const bool outside = c.size_bytes() >= (options_.external_weights ? emit::kExternalWeightBytes : emit::kExternalBytes) ||
                           (options_.external_weights && is_weight && c.size_bytes() > 0);
      type = outside ? ir::contiguous_type(c.dtype, {c.sizes.begin(), c.sizes.end()})
                     : TensorType{c.dtype, {c.sizes.begin(), c.sizes.end()}, {c.strides.begin(), c.strides.end()}, {}};
    }
    return {type.sizes, dense_strides(type), 0};
  }

  /// Kernels are written again only where what they read from memory has changed.
  Launch tried(ValueId id) {
    std::string inside;
    describe(id, true, inside);
    const auto found = tried_.find(id.index);
    if (found != tried_.end() && found->second.first == inside) return found->second.second;
    Launch launch = lower(graph_, id, memory_);
    tried_[id.index] = {inside, launch};
    return launch;
  }
  void describe(ValueId id, bool is_root, std::string& out) {
    str_append(out, id.index, ",");
    if (!is_root && holds(id)) return;
    if (!graph_[id].producer.valid()) return;
    if (out.size() > 20000) return;
    ir::for_each_use(graph_[graph_[id].producer], [&](ValueId used) { describe(used, false, out); });
  }

  /// A kernel with too many operands: some of what is computed inside goes to memory.
  bool split(const Launch&, ValueId root) {
    bool any = false;
    ir::for_each_use(graph_[graph_[root].producer], [&](ValueId used) {
      if (!holds(used) && forced_.insert(used.index).second) any = true;
    });
    return any;
  }

  void analyse() {
    roots_.clear();
    kept_.clear();
    inside_.clear();
    sizes_.clear();
    for (const uint32_t id : results_) {
      if (is_made_here(ValueId{id}) || !graph_[ValueId{id}].producer.valid()) roots_.insert(id);
    }
    for (size_t i = graph_.order.size(); i-- > 0;) {
      const NodeId id = graph_.order[i];
      if (!own_[id.index]) continue;
      for (const ValueId made : graph_[id].outputs) place(id, made);
    }
    // Views that library nodes read stay if what they show is in memory.
  }

  /// The kernels that compute a value: its own if it is in memory, else those of its users.
  void place(NodeId id, ValueId made) {
    const Node& node = graph_[id];
    const NodeKind kind = kind_of(graph_, node);
    const auto users = users_.find(made.index);
    if (users == users_.end() && !results_.contains(made.index)) return;  // nobody reads it
    if (results_.contains(made.index) || forced_.contains(made.index) || kind == NodeKind::kUpdate || kind == NodeKind::kWhole) return root(made);
    std::set<uint32_t> readers;
    bool by_library = false;
    for (const NodeId user : users->second) {
      if (!own_[user.index]) {
        by_library = true;
        continue;
      }
      if (kind_of(graph_, graph_[user]) == NodeKind::kUpdate && !graph_[user].args.empty() && graph_[user].args[0] == Arg(made)) return root(made);
      for (const ValueId result : graph_[user].outputs) {
        if (const auto found = inside_.find(result.index); found != inside_.end()) readers.insert(found->second.begin(), found->second.end());
      }
      if (kind_of(graph_, graph_[user]) == NodeKind::kWhole && kind != NodeKind::kView && !is_cheap(made, 0)) return root(made);
      if (reads_often(graph_[user], made) && is_costly_chain(made, 0)) return root(made);
    }
    if (by_library) {
      if (kind != NodeKind::kView || !view_stays(made)) return root(made);
      kept_.insert(made.index);
      // What it shows is in memory; then kernels read it there as well.
      return;
    }
    if (readers.empty()) return;  // what reads it is read by nobody
    if (readers.size() > 1 && !is_cheap(made, 0)) return root(made);
    if (readers.size() == 1) {
      const ValueId reader{*readers.begin()};
      if (sizes_[reader.index] >= kMaxNodes) return root(made);
      const ir::Range here = ir::bounds(ir::numel_of(graph_[made].type.sizes)), there = ir::bounds(ir::numel_of(graph_[reader].type.sizes));
      // What is joined with others is computed for its own elements alone.
      const bool joined = std::ranges::all_of(users->second, [&](NodeId user) { return graph_[user].op->name == "aten::cat"; });
      const bool spread = !joined && here.max > 1 && there.max / 2 > here.max;
      if (kind == NodeKind::kRow ? !row_fits(made, reader) : spread && is_costly_chain(made, 0) && !is_row_number(made, 0)) return root(made);
    }
    for (const uint32_t reader : readers) ++sizes_[reader];
    inside_[made.index] = std::move(readers);
  }

  void root(ValueId id) {
    roots_.insert(id.index);
    inside_[id.index] = {id.index};
    sizes_[id.index] = 1;
  }

  /// Elements of `made` are read several times by one element of the user.
  bool reads_often(const Node& user, ValueId made) const {
    const std::string_view op = user.op->name;
    const bool window = op.find("pool") != std::string_view::npos || op.find("linear1d") != std::string_view::npos ||
                        op.find("linear2d") != std::string_view::npos || op.find("linear3d") != std::string_view::npos;
    const bool gathers = op == "aten::embedding" || op == "aten::index.Tensor" || op == "aten::index_select" || op == "aten::gather";
    return is_loop_op(op.substr(op.find(':') + 2)) || ((window || gathers) && !user.args.empty() && user.args[0] == Arg(made));
  }

  /// What would be computed again with it, up to memory, has something costly.
  bool is_costly_chain(ValueId id, int depth) const {
    if (!is_made_here(id) || roots_.contains(id.index)) return false;
    if (depth > 6) return true;
    const Node& node = graph_[graph_[id].producer];
    if (is_costly(graph_, node)) return true;
    bool costly = false;
    ir::for_each_use(node, [&](ValueId used) { costly = costly || is_costly_chain(used, depth + 1); });
    return costly;
  }

  /// Views, casts and numbers: computed wherever they are read.
  bool is_cheap(ValueId id, int depth) const {
    if (!is_made_here(id) || roots_.contains(id.index)) return true;
    if (depth > 3) return false;
    const Node& node = graph_[graph_[id].producer];
    const NodeKind kind = kind_of(graph_, node);
    if (kind != NodeKind::kView && kind != NodeKind::kPoint) return false;
    if (kind == NodeKind::kPoint && is_costly(graph_, node)) return false;
    size_t operands = 0;
    bool cheap = true;
    ir::for_each_use(node, [&](ValueId used) {
      if (graph_[used].kind == ir::ValueKind::kTensor) ++operands, cheap = cheap && is_cheap(used, depth + 1);
    });
    const std::string_view op = node.op->name;
    const bool cast = kind == NodeKind::kView || op == "aten::_to_copy" || op == "aten::clone" || operands == 0;
    return cheap && (cast || (depth == 0 && operands == 1));
  }

  /// A number of a row that its kernel needs once for the row.
  bool is_row_number(ValueId id, int depth) const {
    if (depth > 8 || !is_made_here(id)) return false;
    const Node& node = graph_[graph_[id].producer];
    const NodeKind kind = kind_of(graph_, node);
    if (kind == NodeKind::kRow) return true;
    if (kind != NodeKind::kPoint) return false;
    bool any = false;
    ir::for_each_use(node, [&](ValueId used) { any = any || is_row_number(used, depth + 1); });
    return any;
  }

  /// Rows of the kernel that reads a row's numbers may be the same rows; writing the kernel shows it.
  bool row_fits(ValueId made, ValueId reader) const {
    const Node& node = graph_[graph_[made].producer];
    const ir::NodeView n(graph_, *node.op, node.args);
    const TensorType& in = n.type(n.has("input") ? "input" : "self");
    const Node& last = graph_[graph_[reader].producer];
    if (kind_of(graph_, last) == NodeKind::kRow) {
      const ir::NodeView l(graph_, *last.op, last.args);
      return l.type(l.has("input") ? "input" : "self").sizes == in.sizes;
    }
    const std::vector<Expr>& sizes = graph_[reader].type.sizes;
    return kind_of(graph_, last) == NodeKind::kPoint && (sizes == in.sizes || sizes == graph_[made].type.sizes);
  }

  /// A view of a view of ... something in memory, expressible by strides. What it shows becomes memory.
  bool view_stays(ValueId made) {
    ValueId base = made;
    while (is_made_here(base) && kind_of(graph_, graph_[graph_[base].producer]) == NodeKind::kView && !results_.contains(base.index)) {
      base = std::get<ValueId>(graph_[graph_[base].producer].args[0]);
    }
    if (base == made) return false;
    Memory shown{[&](ValueId id) { return id == base; }, memory_.layout};
    ValueId found;
    ViewLayout where;
    if (!view_place(graph_, made, shown, &found, &where)) return false;
    for (ValueId id = std::get<ValueId>(graph_[graph_[made].producer].args[0]); id != base; id = std::get<ValueId>(graph_[graph_[id].producer].args[0])) {
      forced_views_.insert(id.index);
      kept_.insert(id.index);
    }
    if (is_made_here(base)) forced_.insert(base.index);
    return true;
  }

  ir::Graph& graph_;
  const FusionOptions& options_;
  Memory memory_;
  std::vector<bool> own_;
  std::unordered_map<uint32_t, std::vector<NodeId>> users_;
  std::set<uint32_t> results_, roots_;
  std::unordered_set<uint32_t> forced_, kept_, forced_views_;
  std::unordered_map<uint32_t, std::set<uint32_t>> inside_;
  std::unordered_map<uint32_t, size_t> sizes_;
  std::unordered_map<uint32_t, std::pair<std::string, Launch>> tried_;
};

}  // namespace

Status make_launches(ir::Graph& graph, const ir::Catalog& engine, KernelSources& sources, const FusionOptions& options) {
  Fusion fusion(graph, options);
  PTERON_ASSIGN(const auto launches, fusion.run());
  std::vector<NodeId> order;
  std::unordered_map<uint32_t, ValueId> now;
  const auto current = [&](ValueId id) {
    const auto found = now.find(id.index);
    return found == now.end() ? id : found->second;
  };
  Builder builder(graph, engine, order);
  const auto launch = [&](ValueId id) -> Status {
    const Launch& made = launches.at(id.index);
    const ir::Value value = graph[id];
    if (value.producer.valid()) builder.set_origin(graph[value.producer]);
    const std::string name = sources.add(made.stem, made.body, value.producer.valid() ? graph[value.producer].name : value.name);
    std::vector<ValueId> inputs;
    for (const ValueId input : made.inputs) inputs.push_back(current(input));
    ValueId result;
    if (made.self.valid()) {
      result = builder.op(kUpdate, {current(made.self), std::move(inputs), made.values, name, made.grid, Expr(made.threads), Expr(0)});
    } else {
      result = builder.op(kLaunch, {std::move(inputs), value.type.sizes, made.values, name, made.grid, Expr(made.threads), Expr(0), value.type.dtype});
    }
    if (!result.valid()) return builder.take_status();
    graph[result].type = value.type;
    now[id.index] = result;
    return ok_status();
  };
  const std::vector<NodeId> before = graph.order;
  for (const NodeId id : before) {
    const bool stays = !fusion.is_own(id) || fusion.is_kept_view(graph[id]);
    if (stays) {
      for (Arg& arg : graph[id].args) ir::for_each_value(arg, std::function<void(ValueId&)>([&](ValueId& used) { used = current(used); }));
      order.push_back(id);
    }
    const std::vector<ValueId> outputs = graph[id].outputs;
    for (const ValueId made : outputs) {
      if (fusion.is_own(id) && fusion.roots().contains(made.index)) PTERON_TRY(launch(made));
    }
  }
  // Inputs and constants that are results as they are.
  for (const uint32_t id : fusion.roots()) {
    const ValueId value{id};
    const bool own = graph[value].producer.valid();
    if (!own && !now.contains(id)) PTERON_TRY(launch(value));
  }
  graph.order = std::move(order);
  ir::for_each_result(graph, [&](ValueId& used) { used = used.valid() ? current(used) : used; });
  return ok_status();
}

}  // namespace pteron::cuda
