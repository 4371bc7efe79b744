// Which values of a group's graph are in memory, and the launches that make them. Called by backend.cpp.
#pragma once

#include <functional>

#include "backends/cuda/aot/kernel_sources.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::cuda {

struct FusionOptions {
  bool external_weights = false;                         ///< GroupContext::external_weights: decides how constants lie
  std::function<bool(const ir::Node& node)> is_library;  ///< nodes that stay as they are
};

/// Replaces every node that is no library node by launches of generated kernels: as few values as possible go through memory. Views stay where library
/// nodes read them and they cost nothing. `engine` has operators().
/// Errors: kInternal (a node that supports() should have refused, by name).
Status make_launches(ir::Graph& graph, const ir::Catalog& engine, KernelSources& sources, const FusionOptions& options);

}  // namespace pteron::cuda
