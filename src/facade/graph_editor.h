// GraphEditor's state, and the conversion between its arguments and those of the intermediate form. Used by graph_editor.cpp, graph_reader.cpp
// and, through transforms_of, by compile.cpp.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/transform.h"

namespace pteron::facade {

/// What all editors of one pass over one method share.
struct EditSession {
  const ir::Catalog* catalog = nullptr;
  std::string method;
  Status first_error;  ///< of an edit
  bool changed = false;
  bool open = true;  ///< the pass still runs
};

ir::Arg to_ir(const GraphArgument& argument, ir::ExprContext& exprs);
GraphArgument from_ir(const ir::Arg& arg);
GraphScalar from_ir(ir::Expr expr);

/// The passes as the compiler runs them.
std::vector<compiler::Transform> transforms_of(std::span<const TransformPass> passes);

}  // namespace pteron::facade

namespace pteron {

struct GraphEditor::State {
  std::shared_ptr<facade::EditSession> session;  // shared: by the editors of branches
  ir::Graph* graph = nullptr;
};

}  // namespace pteron
