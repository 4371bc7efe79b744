// How the CUDA engine spells out operators where the decompositions of their op rooms have other kernels in mind. Called by spelled.cpp.
#pragma once

#include <functional>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::cuda {

/// Null if there is none for the operator. One that does not take a form gives no values.
ir::DecomposeFn own_spelling(const ir::Node& node);
/// Replaces every node that `keep` does not hold and that has a spelling; true if there was one. Errors: those of inference.
Result<bool> spell_own(ir::Graph& graph, const ir::Catalog& catalog, const std::function<bool(const ir::Graph&, const ir::Node&)>& keep);

}  // namespace pteron::cuda
