// Common subexpression elimination: pure nodes with equal operator and arguments are computed once.
#include <bit>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "passes/alias_ops.h"
#include "passes/passes.h"

namespace pteron::passes {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Rewrite;
using ir::ValueId;

namespace {

/// Byte string that is equal for equal arguments and only for them.
class Key {
 public:
  explicit Key(const Node& node) {
    put(node.op);
    for (const Arg& arg : node.args) add(arg);
  }
  std::string take() { return std::move(bytes_); }

 private:
  template <typename T>
  void put(const T& plain) {
    char raw[sizeof(T)];
    std::memcpy(raw, &plain, sizeof(T));
    bytes_.append(raw, sizeof(T));
  }
  void add_expr(Expr e) {
    put(e.node());
    put(e.is_const() ? e.value() : int64_t{0});
  }
  void add(const Arg& arg) {
    put(static_cast<uint8_t>(arg.index()));
    if (const auto* id = std::get_if<ValueId>(&arg)) {
      put(id->index);
    } else if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg)) {
      put(ids->size());
      for (const ValueId id : *ids) put(id.index);
    } else if (const auto* e = std::get_if<Expr>(&arg)) {
      add_expr(*e);
    } else if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
      put(list->size());
      for (const Expr& item : *list) add_expr(item);
    } else if (const auto* text = std::get_if<std::string>(&arg)) {
      put(text->size());
      bytes_ += *text;
    } else if (const auto* dtype = std::get_if<DType>(&arg)) {
      put(*dtype);
    } else if (const auto* format = std::get_if<ir::MemoryFormat>(&arg)) {
      put(*format);
    } else if (const auto* layout = std::get_if<ir::Layout>(&arg)) {
      put(*layout);
    } else if (const auto* device = std::get_if<Device>(&arg)) {
      put(device->type);
      put(device->index);
    } else if (const auto* number = std::get_if<std::complex<double>>(&arg)) {
      put(std::bit_cast<uint64_t>(number->real()));
      put(std::bit_cast<uint64_t>(number->imag()));
    }
  }
  std::string bytes_;
};

bool is_pure(const Node& node) {
  const ir::Op& op = *node.op;
  return op.known && node.regions.empty() && !op.has(ir::kRandom) && !op.has(ir::kEffect) && !op.has(ir::kRegion) && effect_of(node) != Effect::kWrite &&
         effect_of(node) != Effect::kUnknownWrite;
}

/// Data-dependent results carry symbols of their own; equal nodes would need them unified.
bool defines_symbols(const Graph& graph, const Node& node) {
  if (node.op->has(ir::kDataDependent)) return true;
  for (const ValueId out : node.outputs) {
    if (graph[out].kind == ir::ValueKind::kScalar) return true;
  }
  return false;
}

bool same_types(const Graph& graph, const Node& a, const Node& b) {
  if (a.outputs.size() != b.outputs.size()) return false;
  for (size_t k = 0; k < a.outputs.size(); ++k) {
    const ir::Value& x = graph[a.outputs[k]];
    const ir::Value& y = graph[b.outputs[k]];
    if (x.kind != y.kind || x.type.dtype != y.type.dtype || !(x.type.sizes == y.type.sizes)) return false;
  }
  return true;
}

}  // namespace

Result<bool> cse(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, cse(*region, catalog));
      changed = changed || region_changed;
    }
  }
  std::unordered_map<std::string, NodeId> seen;
  PTERON_ASSIGN(const bool merged, ir::rewrite(graph, catalog, [&](Builder&, NodeId id, std::vector<ValueId>& made) -> Result<Rewrite> {
    const Node& node = graph[id];
    if (!is_pure(node) || defines_symbols(graph, node)) return Rewrite::kKeep;
    const auto [found, fresh] = seen.emplace(Key(node).take(), id);
    if (fresh || !same_types(graph, graph[found->second], node)) return Rewrite::kKeep;
    made = graph[found->second].outputs;
    return Rewrite::kReplace;
  }));
  return changed || merged;
}

}  // namespace pteron::passes
