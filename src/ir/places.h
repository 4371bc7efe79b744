// Where sizes and numbers of a program come from, in words for messages. Used by import and by passes that add run-time checks.
#pragma once

#include <string>

#include "ir/graph.h"

namespace pteron::ir {

/// "size of dim 0 of input 'x'", "the value of input 'n'", "in the size 2*s0 of dim 0 of input 'x'", "the number of aten::item at net.py:12",
/// "size of dim 0 of the result of aten::nonzero at net.py:3"; empty if nothing in the graph (a method's, regions included) defines the symbol.
std::string place_of(Expr symbol, const Graph& graph);

/// A condition with the places of its symbols: "u0<=s77, where u0 is the number of aten::item at net.py:12, s77 is size of dim 0 of input 'x'".
std::string text_with_places(Expr condition, const Graph& graph);

}  // namespace pteron::ir
