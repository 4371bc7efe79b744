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
/// Errors: kUnsupported (operators whose inner casts are not known here).
Status apply_autocast(ir::Builder& builder, const Autocast& autocast, ir::Node& node);

}  // namespace pteron::passes
