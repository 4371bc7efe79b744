// Finds the first node whose result departs between two programs. Called by pteron compare --bisect.
#pragma once

#include <vector>

#include "cli/difference.h"
#include "cli/tensors.h"
#include "cli/verb.h"
#include "interp/evaluator.h"
#include "ir/graph.h"

namespace pteron::cli {

/// Inputs of a graph in order, by decimal key or name.
/// Owns:   borrows the file's bytes.
/// Errors: kInvalidInput (one is missing).
Result<std::vector<interp::HostTensor>> graph_inputs(const ir::Graph& graph, const TensorFile& file);

/// Runs both programs (positionals 0 and 1) on the same calls, pairs their results in order by operator, dtype and shape, and prints the first
/// pair that differs: node and source line of a .pt2, instruction of a .pte. Returns the exit code: 1 if a result departs.
/// Errors: kInvalidInput (no operator in common), and those of loading, compiling and running.
Result<int> bisect(const Arguments& arguments, const std::vector<TensorFile>& calls, const Tolerance& tolerance);

}  // namespace pteron::cli
