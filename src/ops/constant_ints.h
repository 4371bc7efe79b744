// Reading small integer tensors at compile time: indices that a model holds as constants. Used by op*.cpp of op rooms.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/graph.h"

namespace pteron::ops {

/// The numbers of an integer or bool constant (also behind copies of it such as lift_fresh_copy), row-major; nullopt if the value is
/// computed, too large (over 1 << 20 elements) or of another dtype.
std::optional<std::vector<int64_t>> constant_ints(const ir::Graph& graph, ir::ValueId value);

}  // namespace pteron::ops
