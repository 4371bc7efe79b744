// Autocast regions of the CPU: which casts PyTorch applies to the arguments of an operator. Called by inline_wrappers.
#pragma once

#include "ir/builder.h"
#include "ir/graph.h"

namespace pteron::passes {

/// The autocast state around a node.
struct Autocast {
  bool enabled = false;
  DType dtype = DType::kBFloat16;
};

/// Casts the arguments of a node in place (new cast nodes go to the builder), as autocast would.
/// *stale becomes true at a node whose recorded result dtype contradicts the cast lists: strict exports record what the region gives without
/// autocast. From there on recorded dtypes count for nothing: this node's and all later ones get what inference says.
/// Errors: kUnsupported (operators whose inner casts are not known here).
Status apply_autocast(ir::Builder& builder, const Autocast& autocast, ir::Node& node, bool* stale);

/// True for a composite whose own operators autocast casts, one by one: an einsum without sums stays in float32, one with them does not.
bool is_cast_inside(const ir::Graph& graph, const ir::Node& node);

/// Makes the operators of such a composite (nodes go to the builder), each with its casts. One id per result.
/// Errors: kUnsupported (its operators are not known here); what building nodes says.
Result<std::vector<ir::ValueId>> expand_in_autocast(ir::Builder& builder, const Autocast& autocast, const ir::Node& node);

/// Gives a node's results the dtypes that its arguments make. Errors: what inference says; kUnsupported for control flow.
Status retype(ir::Builder& builder, const ir::Node& node);

}  // namespace pteron::passes
