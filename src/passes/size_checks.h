// Sizes at which a copy of the compiled program would be its argument itself in PyTorch, where a write would show. Used by resolve.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"
#include "ir/op.h"

namespace pteron::passes {

/// A copy that is its argument itself where one of the sizes is one.
struct MaybeAlias {
  ir::ValueId copy;
  std::vector<ir::Expr> sizes;
};

/// Adds run-time checks that keep the sizes away from one for those copies of `pairs` where the copy or its argument shows a write of the other.
/// Errors: what building nodes says.
Status check_sizes(ir::Graph& graph, const ir::Catalog& catalog, std::span<const MaybeAlias> pairs);

}  // namespace pteron::passes
