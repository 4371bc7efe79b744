// Messages of checks that torch.export adds by itself, in this compiler's words. Used by import.cpp.
#pragma once

#include "ir/graph.h"

namespace pteron::importer {

/// Says what aten::_assert_scalar nodes expect, and of which input's dim or of which number, where torch.export wrote the condition in its own
/// spelling ("Runtime assertion failed for expression Eq(Mod(u0, 2), 0) on node 'eq'"). Messages of the program's author stay.
/// `graph`: the method's or a region below it; `method`: where symbols come from.
void word_assertions(ir::Graph& graph, const ir::Graph& method);

}  // namespace pteron::importer
