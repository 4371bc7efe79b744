// Reader of SymPy's srepr text ("Add(Integer(1), Symbol('s77', positive=True, integer=True))") as torch.export writes it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "ir/expr.h"
#include "pteron/status.h"

namespace pteron::importer {

/// Makes expressions of one archive; remembers each text.
/// Symbols get their range at first sight, so that simplification knows it. A symbol whose name another method already uses with
/// another range is renamed ("s77_m1").
class ExprReader {
 public:
  /// ranges: by symbol name, from range_constraints.
  ExprReader(ir::ExprContext& exprs, std::unordered_map<std::string, ir::Range> ranges);

  /// Errors: kInvalidFile (no expression), kUnsupported (a head that is not known, a number or a result that is too large), with the text.
  Result<ir::Expr> read(std::string_view text);

 private:
  friend class SreprParser;
  ir::Expr symbol(std::string_view name, bool integer, bool positive);
  ir::ExprContext* exprs_;
  std::unordered_map<std::string, ir::Range> ranges_;
  std::unordered_map<std::string, ir::Expr> symbols_;
  std::unordered_map<std::string, ir::Expr> read_before_;
};

}  // namespace pteron::importer
