// Products and convolutions count their multiply-adds, everything else one operation an element; the slower of arithmetic and memory counts.
#include "partition/cost.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "ir/builder.h"
#include "tensor/dtype.h"

namespace pteron::partition {

namespace {

// Measured on one thread of an AMD Zen 3 with `pteron bench --profile`. Only ratios between nodes matter.
constexpr double kFlopsPerSecond = 90e9;
constexpr double kBytesPerSecond = 18e9;
constexpr double kSecondsPerCall = 1e-7;
// A size without an upper bound counts as this.
constexpr double kUnknownSize = 64;

constexpr std::array<std::string_view, 7> kProducts = {"aten::addmm", "aten::baddbmm", "aten::bmm", "aten::linear", "aten::matmul", "aten::mm", "aten::mv"};

double count(const ir::TensorType& type) {
  double elements = 1;
  for (const ir::Expr size : type.sizes) {
    const ir::Range range = ir::bounds(size);
    elements *= range.max == ir::Range::kMax ? kUnknownSize : static_cast<double>(range.max);
  }
  return elements;
}

double bytes(const ir::TensorType& type) { return count(type) * static_cast<double>(dtype_size(type.dtype)); }

/// Multiply-adds per element of the result; 0 for operators that are no products.
double depth_of(const ir::Graph& graph, const ir::Node& node) {
  const ir::NodeView view(graph, *node.op, node.args);
  const std::string_view name = node.op->name;
  if (name == "aten::convolution" && !view.boolean("transposed")) {
    const ir::TensorType& weight = view.type("weight");
    return count(weight) / std::max(1.0, weight.rank() > 0 ? static_cast<double>(ir::bounds(weight.sizes[0]).max) : 1.0);
  }
  if (std::find(kProducts.begin(), kProducts.end(), name) == kProducts.end()) return 0;
  for (const char* left : {"input", "mat1", "batch1", "self"}) {
    if (!view.has(left) || view.type(left).rank() == 0) continue;
    const ir::Range range = ir::bounds(view.type(left).sizes.back());
    return range.max == ir::Range::kMax ? kUnknownSize : static_cast<double>(range.max);
  }
  return 0;
}

}  // namespace

double Cost::seconds() const {
  if (bytes == 0) return 0;
  return std::max(flops / kFlopsPerSecond, bytes / kBytesPerSecond) + kSecondsPerCall;
}

Cost cost_of(const ir::Graph& graph, const ir::Node& node) {
  Cost cost;
  if (node.op->is_view() || node.op->has(ir::kAlias)) return cost;  // views move nothing
  double elements = 0;
  for (const ir::ValueId id : node.outputs) {
    if (graph[id].kind != ir::ValueKind::kTensor) continue;
    elements += count(graph[id].type);
    cost.bytes += bytes(graph[id].type);
  }
  ir::for_each_use(node, [&](ir::ValueId id) {
    if (id.valid() && graph[id].kind == ir::ValueKind::kTensor) cost.bytes += bytes(graph[id].type);
  });
  const double depth = depth_of(graph, node);
  cost.flops = depth > 0 ? 2 * depth * elements : elements;
  if (node.op->name == "aten::scaled_dot_product_attention") {
    const ir::NodeView view(graph, *node.op, node.args);
    const ir::TensorType& key = view.type("key");
    if (key.rank() >= 2) cost.flops = 4 * elements * std::max(1.0, static_cast<double>(std::min<int64_t>(ir::bounds(key.sizes[key.sizes.size() - 2]).max, 1 << 20)));
  }
  return cost;
}

}  // namespace pteron::partition
