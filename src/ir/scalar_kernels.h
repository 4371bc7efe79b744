// Which kernel computes a scalar expression at run time. Read by emit, and by the list of what nothing can run.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace pteron::ir {

struct ScalarKernel {
  std::string name;  ///< "executorch_prim::add.Scalar"; empty if the operation is made of several kernels, or of none
  size_t arity = 0;  ///< of the kernel; expressions with more arguments are chains of it
};

/// The kernel of one operation. Its arguments are those of the expression, its result has the expression's type.
ScalarKernel scalar_kernel(const ExprNode& node);

/// Looks in every scalar argument of `node` for an operation whose kernel `has_kernel` does not know; nullptr if there is none.
const ExprNode* scalar_without_kernel(const Node& node, const std::function<bool(std::string_view)>& has_kernel);

}  // namespace pteron::ir
