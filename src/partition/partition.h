// Partition: which backend takes which nodes. Nodes of one backend that do not wait for each other through others become one group; the
// group becomes a single node `pteron::delegate`. Called by compiler/pipeline.cpp before emit.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/api/backend.h"
#include "ir/graph.h"
#include "pteron/status.h"

namespace pteron::partition {

/// Nodes that a backend did not take, for reports.
struct Refusal {
  std::string backend;
  std::string op;
  std::string reason;
  uint32_t count = 0;
  uint32_t outside = 0;   ///< of these, nodes that no later backend took either
  std::string first;      ///< name of one of them, one that stayed outside if there is any
};

/// What one backend took of a method.
struct BackendShare {
  std::string backend;
  uint32_t nodes = 0;
  uint32_t groups = 0;
  double seconds = 0;  ///< estimated (partition/cost.h)
};

struct PartitionReport {
  std::vector<BackendShare> shares;   ///< in the order of the backends
  uint32_t nodes_outside = 0;         ///< nodes that no backend took; views that only rename bytes do not count
  double seconds_outside = 0;         ///< estimated time of nodes outside
  std::vector<Refusal> refusals;      ///< by backend in their order, most frequent first
  uint64_t steps = 0;                 ///< operands and edges looked at: what the time grows with
};

/// Whether a backend takes a node; control flow, run-time checks and nodes with results that are no tensors are never offered.
backends::Support ask(const backends::Backend& backend, const ir::Graph& graph, const ir::Node& node);

/// A group taken out of its method.
struct Group {
  const backends::Backend* backend = nullptr;
  std::unique_ptr<ir::Method> method;  ///< lives in the same ir::Program
};

/// A group that the caller asks for.
struct GivenGroup {
  std::string name;
  const backends::Backend* backend = nullptr;
  std::vector<ir::NodeId> nodes;
};

/// Replaces what the backends take by delegate nodes (emit::kDelegateOp); group i of the result belongs to the node whose index argument is
/// first_index + i. Nodes inside regions are left alone.
/// Requires: functional dialect; a verified graph. Groups never depend on each other in a cycle; a node is in one group at most; a group
/// that reads nothing but constants stays outside. Linear in nodes and edges, but for the final sort.
/// Errors: kInternal (our own bug).
Result<std::vector<Group>> partition(ir::Method& method, std::span<const backends::Backend* const> backends, uint32_t first_index, PartitionReport* report);

/// The same with groups that the caller chose; a group that reads nothing but constants stays outside. The report has one share a group.
/// Errors: kInvalidInput (a node twice, or not in the method's order; groups that would wait for each other, with both names),
///         kUnsupported (a node that the backend does not take, with its reason).
Result<std::vector<Group>> partition_given(ir::Method& method, std::span<const GivenGroup> given, uint32_t first_index, PartitionReport* report);

}  // namespace pteron::partition
