// Tries kernels on dtypes that few of them take. Used by check_supported.
#pragma once

#include <string>

#include "ir/graph.h"

namespace pteron::interp {
class Evaluator;
}

namespace pteron::passes {

/// What the node's kernel says against its dtypes; empty if it runs and if all dtypes are common ones (real numbers of up to 64 bits, without
/// uint16, uint32, uint64 and 8-bit floats). Large tensors are stood for by ones of the same dtypes with a few elements.
std::string probe_dtypes(const ir::Graph& graph, const ir::Node& node, const interp::Evaluator& evaluator);

}  // namespace pteron::passes
