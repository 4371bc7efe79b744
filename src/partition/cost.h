// A rough guess of how long a node takes, so that reports can say what a group is worth. Used by partition.cpp.
#pragma once

#include "ir/graph.h"

namespace pteron::partition {

/// Work of a node with every size at its upper bound.
struct Cost {
  double flops = 0;  ///< a multiply-add counts two
  double bytes = 0;  ///< read and written once
  double seconds() const;
};

Cost cost_of(const ir::Graph& graph, const ir::Node& node);

}  // namespace pteron::partition
