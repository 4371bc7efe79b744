// Search for the first value that a symbol is a size or number of: inputs first, then results of nodes.
#include "ir/places.h"

#include <algorithm>

#include "base/str_cat.h"
#include "ir/op.h"

namespace pteron::ir {

namespace {

std::string named(const Input& input) { return str_cat("input '", input.name, "'"); }

/// The input that has the symbol itself as a size or value.
std::string input_with(Expr symbol, const Graph& graph) {
  for (const Input& input : graph.inputs) {
    if (!input.value.valid()) continue;
    const Value& value = graph[input.value];
    if (value.kind == ValueKind::kScalar && value.scalar == symbol) return str_cat("the value of ", named(input));
    const auto found = std::find(value.type.sizes.begin(), value.type.sizes.end(), symbol);
    if (found != value.type.sizes.end()) return str_cat("size of dim ", found - value.type.sizes.begin(), " of ", named(input));
  }
  return {};
}

/// The input that has an expression of the symbol as a size.
std::string input_made_of(Expr symbol, const Graph& graph) {
  for (const Input& input : graph.inputs) {
    if (!input.value.valid()) continue;
    const std::vector<Expr>& sizes = graph[input.value].type.sizes;
    for (size_t d = 0; d < sizes.size(); ++d) {
      const std::vector<Expr> symbols = symbols_in(sizes[d]);
      if (std::find(symbols.begin(), symbols.end(), symbol) != symbols.end()) return str_cat("in the size ", to_text(sizes[d]), " of dim ", d, " of ", named(input));
    }
  }
  return {};
}

std::string result_with(Expr symbol, const Graph& graph) {
  for (const Node& node : graph.nodes) {  // passes take `order` apart while they rewrite
    const auto at = [&] { return str_cat(node.op->name, " at ", node.source.empty() ? str_cat("node ", node.name) : node.source); };
    for (const ValueId out : node.outputs) {
      const Value& value = graph[out];
      if (value.kind == ValueKind::kScalar && value.scalar == symbol) return str_cat("the number of ", at());
      const auto found = std::find(value.type.sizes.begin(), value.type.sizes.end(), symbol);
      if (found != value.type.sizes.end()) return str_cat("size of dim ", found - value.type.sizes.begin(), " of the result of ", at());
    }
    for (const auto& region : node.regions) {
      if (std::string place = result_with(symbol, *region); !place.empty()) return place;
    }
  }
  return {};
}

}  // namespace

std::string place_of(Expr symbol, const Graph& graph) {
  if (std::string place = input_with(symbol, graph); !place.empty()) return place;
  if (std::string place = result_with(symbol, graph); !place.empty()) return place;
  return input_made_of(symbol, graph);
}

std::string text_with_places(Expr condition, const Graph& graph) {
  std::string text = to_text(condition);
  std::string_view before = ", where ";
  for (const Expr symbol : symbols_in(condition)) {
    const std::string place = place_of(symbol, graph);
    if (place.empty()) continue;
    str_append(text, before, symbol.node()->name, " is ", place);
    before = ", ";
  }
  return text;
}

}  // namespace pteron::ir
