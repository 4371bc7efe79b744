// Facts about aliasing and writing that resolve and functionalize share: which nodes write, how a view is undone, in-place operators.
#pragma once

#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace pteron::passes {

/// Position of the argument that an operator with Op::functional overwrites: 0 for in-place ones, the last for out variants.
size_t written_argument(const ir::Op& op);

/// What a node does to the memory of argument 0 (of its out argument, for out variants).
enum class Effect : uint8_t {
  kNone,     ///< results are new
  kView,     ///< results share the memory of argument 0 (views, alias, detach, metadata changes in place)
  kWrite,    ///< argument 0 is overwritten; the result is argument 0
  kUnknownWrite,  ///< writes, and has no functional form
};
Effect effect_of(const ir::Node& node);

/// True for in-place operators that change only sizes and strides (unsqueeze_, t_, detach_): later uses of the argument see the result.
bool is_metadata_write(const ir::Op& op);

/// conj: a view in ATen that is computed when it is read. Here a node that computes, which writes pass through.
bool is_lazy_view(const ir::Op& op);
/// The operator that computes a view node: for unsqueeze_ it is unsqueeze.
const ir::Op& view_op(const ir::Op& op);

/// True if training batch norm or a mutable node occurs in the graph or its regions.
bool has_writes(const ir::Graph& graph);

/// "aten::copy_" and the like, made once per program from the functional operator of the same arguments.
/// Null if the catalog has no such operator.
const ir::Op* in_place_op(ir::Program& program, const ir::Catalog& catalog, std::string_view name);

/// chunk, split or unbind of a dim that may vary: the pieces that the archive has, with their sizes; an export fixes their number (and
/// guards it). Empty for other nodes.
std::vector<ir::ValueId> pieces_as_exported(ir::Builder& builder, const ir::Node& node);

/// The value that `parent` gets when result `result` of the view `step` (a node whose argument 0 was `parent`) is replaced by `child`.
/// Errors: kUnsupported in the builder for views without an inverse.
ir::ValueId invert_view(ir::Builder& builder, const ir::Node& step, size_t result, ir::ValueId parent, ir::ValueId child);

}  // namespace pteron::passes
