// Evaluator: runs nodes of the functional dialect on tensors in memory with a kernel table passed in. For constant folding, compare
// and tests; the only room that knows both ir and kernels. Passes arguments exactly as emit does.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "base/thread_pool.h"
#include "interp/scalars.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"
#include "pteron/tensor.h"
#include "runtime/kernel.h"

namespace pteron::interp {

/// A tensor with what keeps its bytes alive.
struct HostTensor {
  TensorView view;
  std::shared_ptr<const void> owner;
};

/// Uninitialised row-major tensor. Errors: kOutOfMemory.
Result<HostTensor> make_tensor(DType dtype, std::span<const int64_t> sizes);
/// Row-major copy (the tensor itself if it is row-major already). Errors: kOutOfMemory.
Result<HostTensor> make_contiguous(const HostTensor& tensor);
/// The tensor of a constant: its bytes in place, or what its lazy transform makes.
/// Errors: kInvalidFile (no bytes in the archive), and those of the transform.
Result<HostTensor> tensor_of(const ir::Constant& constant);

/// A result of a node.
using NodeValue = std::variant<std::monostate, HostTensor, Number>;
/// Where a node's operands come from.
using Lookup = std::function<Result<HostTensor>(ir::ValueId)>;

/// Threads: run() may be called from several threads at once.
class Evaluator {
 public:
  /// Both must live as long as the evaluator and every lazy constant made with it.
  Evaluator(const runtime::KernelTable& kernels, ThreadPool& pool) : kernels_(&kernels), pool_(&pool) {}

  /// True if the node is a view, an alias, or has a kernel in the table. Control flow: false.
  bool can_run(const ir::Node& node) const;

  /// Results of one node. Symbols that the node defines (item, nonzero) are added to `symbols`.
  /// Errors: kUnsupported (no kernel, control flow), kInternal (an expression without value), the kernel's.
  Result<std::vector<NodeValue>> run(const ir::Graph& graph, const ir::Node& node, const Lookup& lookup, Symbols* symbols) const;

 private:
  friend class CallFrame;
  Result<std::vector<NodeValue>> run_view(const ir::Graph& graph, const ir::Node& node, const Lookup& lookup, const Symbols& symbols) const;
  const runtime::Kernel* find_kernel(std::string_view name) const;

  const runtime::KernelTable* kernels_;
  ThreadPool* pool_;
};

/// Mutable buffers between calls of run_graph, in the order of Graph::states; filled at the first call.
using StateTensors = std::vector<HostTensor>;

/// Sees every node after it ran, those in branches and bodies each time.
using NodeObserver = std::function<Status(const ir::Node& node, std::span<const NodeValue> results)>;

/// Runs a whole functional graph, control flow included. `inputs` are those of Graph::inputs in order; entries of literals are ignored,
/// scalar inputs are 0-d tensors. Outputs that are None or text are nullopt; numbers are 0-d int64, float64 or bool tensors.
/// Errors: kInvalidInput (count, dtype or shape of inputs), kUnsupported (an operator without kernel), the kernels'.
Result<std::vector<std::optional<HostTensor>>> run_graph(const Evaluator& evaluator, const ir::Graph& graph, std::span<const HostTensor> inputs,
                                                         StateTensors* states, const NodeObserver& observe = {});

}  // namespace pteron::interp
