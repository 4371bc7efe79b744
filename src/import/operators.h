// From target strings of an archive ("torch.ops.aten.add_.Tensor") to operators. Used by graph_reader.cpp.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "ir/graph.h"
#include "ir/op.h"

namespace pteron::importer {

/// "torch.ops.aten.add.Tensor" -> "aten::add.Tensor", "torch.ops.aten.relu.default" -> "aten::relu",
/// "torch.ops.higher_order.cond" -> "higher_order::cond"; anything else unchanged.
std::string operator_name(std::string_view target);

/// True for functions on symbolic numbers (`_operator.mul`, `torch.sym_max`, `aten::sym_size.int`): their results are expressions.
bool is_symbolic_function(std::string_view name);

/// True for run-time checks that may be dropped: asserts and range constraints.
bool is_check(std::string_view name);

/// Finds operators, and makes those that the catalog does not have: in-place forms and unknown ones, kept in Program::foreign_ops.
class OperatorTable {
 public:
  OperatorTable(const ir::Catalog& catalog, ir::Program& program);
  /// Never null.
  const ir::Op* find(const std::string& name);

 private:
  const ir::Catalog* catalog_;
  ir::Program* program_;
  std::unordered_map<std::string, const ir::Op*> foreign_;
};

}  // namespace pteron::importer
