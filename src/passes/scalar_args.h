// Numbers given where a schema has a tensor (add.Tensor(x, 2)). Called by decompose, so that kernels never see them.
#pragma once

#include "ir/builder.h"
#include "ir/graph.h"

namespace pteron::passes {

/// Switches the node to the overload that takes a scalar there, or makes a 0-d tensor of the number. Complex numbers become tensors, also where
/// the schema has a scalar and another overload a tensor. Types of results stay.
/// Errors: those of the builder; kUnsupported (a complex number that no overload takes as tensor).
Status fit_scalar_args(ir::Builder& builder, ir::Node& node, DType result_dtype);

}  // namespace pteron::passes
