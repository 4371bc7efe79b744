// What torch.export assumed about sizes of inputs (guards_code of an archive): Python conditions like "L['x'].size()[0] % 2 == 0". Used by import.cpp.
#pragma once

#include <functional>
#include <optional>
#include <string_view>

#include "ir/expr.h"

namespace pteron::importer {

/// Gives what stands behind an input: `name` is its path joined by "_" ("d_z" for L['d']['z']); dim is -1 for the input's own value.
using GuardInput = std::function<std::optional<ir::Expr>(std::string_view name, int64_t dim)>;

/// The condition as an expression over sizes; nothing if it is about more than sizes and integers (strides, floats, other functions).
std::optional<ir::Expr> read_guard(std::string_view text, ir::ExprContext& exprs, const GuardInput& input);

}  // namespace pteron::importer
