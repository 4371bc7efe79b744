// Passes by name, for `pteron opt` and the text tests in tests/ir. The order of the main path stands in compiler/pipeline.cpp only.
#pragma once

#include <span>
#include <string_view>

#include "passes/passes.h"

namespace pteron::passes {

/// What passes may need beyond the graph.
struct PassContext {
  const ir::Catalog* catalog = nullptr;
  const interp::Evaluator* evaluator = nullptr;  ///< null: fold_constants does nothing
  bool keep_narrow = false;                      ///< fold_constants does not cast 8-bit matrices to wider ones
  bool allow_random = false;                     ///< operators that draw random numbers are decomposed too
  HasKernel has_kernel;                          ///< decompose keeps views and operators with these kernels
  Keep avoid;                                    ///< but not nodes in a form that the profile's kernel gets wrong; null: no such
};

struct Pass {
  std::string_view name;
  std::string_view summary;
  Result<bool> (*run)(ir::Graph& graph, const PassContext& context);
};

/// Sorted by name.
std::span<const Pass> all_passes();
/// Null if there is no such pass.
const Pass* find_pass(std::string_view name);

/// The clean-up group of the main path: no-ops, chains of casts and views, folding, merging, dead code.
/// Errors: those of the passes.
Result<bool> clean_up(ir::Graph& graph, const PassContext& context);

}  // namespace pteron::passes
