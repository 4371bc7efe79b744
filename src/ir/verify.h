// Checks the invariants of a graph. Run after the import, after passes (--verify) and in tests.
#pragma once

#include <cstdint>
#include <span>

#include "ir/graph.h"
#include "pteron/status.h"

namespace pteron::ir {

/// What a graph may contain at a point of the main path.
enum class Dialect : uint8_t {
  kImported,    ///< after the import: in-place operators, composites and unknown operators allowed
  kFunctional,  ///< after functionalize: value semantics, base names of views only
  kProfile,     ///< before planning: known operators with a kernel, views and control flow only
};

/// Checks the graph and its regions: every use after its definition in the same graph, every value defined once, unique names,
/// arguments and results that fit the schemas, sensible types, results and states that exist, and the rules of the dialect.
/// Errors: kInternal with the node's name and line.
Status verify(const Graph& graph, Dialect dialect);
/// Whether arguments fit an operator's schema, their number included; for callers that make nodes from outside.
/// Errors: kInternal naming the argument.
Status check_arguments(const Graph& graph, const Op& op, std::span<const Arg> args);
/// Every method.
Status verify(const Program& program, Dialect dialect);

}  // namespace pteron::ir
