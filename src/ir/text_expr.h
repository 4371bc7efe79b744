// Parser of infix expressions as ir::to_text writes them: "2*s0+1", "max(s0,4)//2".
#pragma once

#include <functional>
#include <string_view>

#include "ir/expr.h"
#include "ir/text_lexer.h"

namespace pteron::ir {

/// Reads one expression; symbols must exist in the context or `resolve` must know the name (null Expr pointer: unknown).
/// The result is canonical. Returns false with the error in the lexer.
/// resolve: value of a name; returns false if unknown.
using NameResolver = std::function<bool(std::string_view name, Expr* out)>;
bool parse_expr(Lexer& lexer, ExprContext& exprs, const NameResolver& resolve, Expr* out);

}  // namespace pteron::ir
