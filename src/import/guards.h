// What torch.export assumed about sizes of inputs (guards_code of an archive): Python conditions like "L['x'].size()[0] % 2 == 0". Used by import.cpp.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "ir/expr.h"

namespace pteron::importer {

/// Gives what stands behind an input: `name` is its path joined by "_" ("d_z" for L['d']['z']); dim is -1 for the input's own value.
using GuardInput = std::function<std::optional<ir::Expr>(std::string_view name, int64_t dim)>;

/// The condition as an expression over sizes; nothing if it is about more than sizes and integers (strides, floats, other functions).
std::optional<ir::Expr> read_guard(std::string_view text, ir::ExprContext& exprs, const GuardInput& input);

/// Whether a condition says no more than that a size is not 0 or 1 ("n != 1", "n >= 2"). torch.export notes these wherever it would have had to
/// think of broadcasting; the declared range of the size may well include 1, and kernels here broadcast by the sizes of the call.
bool excludes_small_size(ir::Expr guard);

/// Narrows the ranges of `symbols` to the sizes for which equations of one symbol hold: "(8-n)//3 == 1" with n in 3..6 leaves 3..5, so that what
/// the export took for 1 is 1 here too. Remainders are left to the check at call time, ranges of more than 4096 sizes as well.
void narrow_by_equalities(std::span<const ir::Expr> guards, std::span<const ir::Expr> symbols, ir::ExprContext& exprs);

}  // namespace pteron::importer
