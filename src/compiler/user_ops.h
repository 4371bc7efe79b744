// Users' own operators (pteron/ops.h) in a compilation: rows for the catalog, and their shape functions against what the archive says.
#pragma once

#include <memory>
#include <vector>

#include "base/op_library.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::compiler {

/// Adds the operators of a library, which must outlive the catalog.
/// Errors: kInvalidFile (a schema that does not parse, or a name that the catalog has already), with library and operator.
Status add_user_ops(const OpLibrary& library, ir::Catalog& catalog);

/// Calls the shape function of every node whose arguments have fixed sizes and compares it with the exported result.
/// Errors: kInvalidInput with node, line and both shapes.
Status check_user_shapes(const ir::Program& program, const std::vector<std::shared_ptr<const OpLibrary>>& libraries);

}  // namespace pteron::compiler
