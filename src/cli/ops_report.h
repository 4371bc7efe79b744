// Coverage tables and the list of what is refused, for `pteron ops`. Used by verbs/ops.cpp.
#pragma once

#include <string>

#include "compiler/compile.h"
#include "ir/op.h"

namespace pteron::cli {

/// How an operator runs in a profile.
enum class How : uint8_t { kKernel, kView, kDecomposed, kControlFlow, kRemoved, kRandom, kUnsupported };
How how_of(const ir::Op& op, const compiler::Environment& environment, bool executorch);
std::string_view how_text(How how);

/// Table of operators and kernels: core ATen, the official kernels, the whole catalog, in both profiles.
std::string coverage_text(const ir::Catalog& catalog, const compiler::Environment& environment);
/// The document docs/unsupported.md: every refusal and its reason.
std::string unsupported_text(const ir::Catalog& catalog, const compiler::Environment& environment);

}  // namespace pteron::cli
