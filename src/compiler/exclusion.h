// Nodes that the caller keeps from a backend: the backend behind a front that refuses them, so that they go to the next one.
// Internal to the compiler room.
#pragma once

#include <memory>
#include <vector>

#include "backends/api/backend.h"
#include "compiler/compile.h"

namespace pteron::compiler {

/// Whether the exclusions name backends that the program has.
/// Errors: kInvalidInput.
Status check_exclusions(const CompileOptions& options);

/// The backends of `options`, in their order, those with exclusions behind fronts that live in `fronts`.
/// Errors: kInvalidInput (an exclusion that names no node of any method).
Result<std::vector<const backends::Backend*>> exclude(const CompileOptions& options, const ir::Program& program,
                                                      std::vector<std::unique_ptr<backends::Backend>>& fronts);

}  // namespace pteron::compiler
