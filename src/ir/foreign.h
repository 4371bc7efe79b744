// Operators that a program brings along: in-place forms of catalog operators, and operators that the catalog does not know.
// Used by the importer and by the text form's parser.
#pragma once

#include <string>
#include <unordered_map>

#include "ir/graph.h"
#include "ir/op.h"

namespace pteron::ir {

/// Finds operators by full name; makes those that the catalog does not have, in Program::foreign_ops.
class OperatorTable {
 public:
  OperatorTable(const Catalog& catalog, Program& program);
  /// Never null: the catalog's operator, or its in-place form ("aten::add_.Tensor", `functional` set), or an unknown one (known = false).
  const Op* find(const std::string& name);

 private:
  const Catalog* catalog_;
  Program* program_;
  std::unordered_map<std::string, const Op*> foreign_;
};

}  // namespace pteron::ir
