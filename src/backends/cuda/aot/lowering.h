// From a value of a graph to the text of the kernel that computes it, with everything that it is made of up to the values in memory inside.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace pteron::cuda {

/// Which nodes generated kernels compute.
enum class NodeKind : uint8_t {
  kOther,   ///< none: another's, or refused
  kView,    ///< another look at the elements of argument 0
  kPoint,   ///< every element of the result by an expression of elements of the arguments
  kRow,     ///< needs numbers that stand for whole rows: sums, norms, softmax
  kWhole,   ///< a kernel of its own shape: scans, orders
  kUpdate,  ///< writes a part of argument 0
};
/// True for pteron::quantize and pteron::dequantize.
bool is_level_node(const ir::Node& node);
/// The kind, and for kOther why not.
NodeKind kind_of(const ir::Graph& graph, const ir::Node& node, std::string* why = nullptr);
/// True for an operator (its name behind the namespace) whose elements are sums over many elements of its operands.
bool is_loop_op(std::string_view op);
/// Worth computing once: transcendental functions, windows, rows.
bool is_costly(const ir::Graph& graph, const ir::Node& node);

/// A kernel and the launch of it. `failure` is set instead if it cannot be made as long as `blamed` is no value in memory.
struct Launch {
  std::string stem, body;  ///< KernelSources::add
  std::vector<ir::ValueId> inputs;
  std::vector<ir::Expr> values, grid;
  int64_t threads = 256;
  ir::ValueId self;  ///< what an update starts from
  std::string failure;
  ir::ValueId blamed;
};

/// What is in memory, and how it lies there.
struct Memory {
  std::function<bool(ir::ValueId)> holds;
  std::function<ir::ViewLayout(ir::ValueId)> layout;
};

/// The kernel that makes `value`, whose own layout is memory.layout(value).
Launch lower(ir::Graph& graph, ir::ValueId value, const Memory& memory);

/// Where a view's elements lie if what it shows does: the value in memory behind it, and the layout in it. False if they cannot be said by strides.
bool view_place(const ir::Graph& graph, ir::ValueId value, const Memory& memory, ir::ValueId* base, ir::ViewLayout* layout);

}  // namespace pteron::cuda
