// Operators that no kernel computes but that their decompositions (src/ops) spell out in operators that have one: the engine takes those as well. Called by
// backend.cpp.
#pragma once

#include <functional>

#include "backends/api/backend.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::cuda {

/// Threads: const members may be called from several threads at once for different programs.
class Speller {
 public:
  /// has_kernel: true for nodes that need no decomposition; it may say why not.
  using HasKernel = std::function<bool(const ir::Graph& graph, const ir::Node& node, std::string* why)>;
  Speller(ir::Catalog catalog, HasKernel has_kernel) : catalog_(std::move(catalog)), has_kernel_(std::move(has_kernel)) {}

  /// Whether the node has a decomposition all of whose nodes have kernels, and whose values are not much larger than the node's own.
  /// Tries it on a graph of its own; that may leave unused constants in the program.
  backends::Support supports(const ir::Graph& graph, const ir::Node& node) const;
  /// Puts decompositions in the place of all nodes without kernels. Errors: those of passes::decompose().
  Status spell(ir::Graph& graph) const;

 private:
  ir::Catalog catalog_;
  HasKernel has_kernel_;
};

}  // namespace pteron::cuda
