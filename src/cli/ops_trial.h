// Coverage by dtype, backend and profile, found by running operators on small made-up arguments. Used by verbs/ops.cpp and ops_report.cpp.
#pragma once

#include <span>
#include <string>

#include "backends/api/backend.h"
#include "compiler/compile.h"
#include "ir/op.h"

namespace pteron::cli {

/// Table with a row per dtype: how many core ATen operators run with tensors of it, are refused, could not be given arguments; and how many of
/// those that run become nodes which a backend takes, a column per backend.
std::string trial_text(const ir::Catalog& catalog, const compiler::Environment& environment, std::span<const backends::Backend* const> backends);

/// Table of operators whose small call the executorch profile refuses although it runs in ours: dtypes, and what the call leads to. For docs/unsupported.md.
std::string executorch_trial_text(const ir::Catalog& catalog, const compiler::Environment& environment);
/// Operators whose small call with complex64 is refused, in one line.
std::string complex_trial_text(const ir::Catalog& catalog, const compiler::Environment& environment);

}  // namespace pteron::cli
