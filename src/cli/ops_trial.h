// Coverage by dtype and backend, found by running operators on small made-up arguments. Used by verbs/ops.cpp.
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

}  // namespace pteron::cli
