// Memory formats inside a group: strides of results are a free choice, since kernels read any strides and write what the result's type says.
#include <algorithm>
#include <array>

#include "backends/cpu/aot/rewrites.h"
#include "ir/builder.h"

namespace pteron::cpu {
namespace {

using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::TensorType;
using ir::ValueId;

// Operators whose result has the images' layout although their inference gives row-major.
constexpr std::array<std::string_view, 12> kImageOps = {
    "aten::_adaptive_avg_pool2d", "aten::adaptive_avg_pool2d", "aten::avg_pool2d",         "aten::cat",
    "aten::constant_pad_nd",      "aten::max_pool2d",          "aten::max_pool2d_with_indices", "aten::mean.dim",
    "aten::native_group_norm",    "aten::upsample_bilinear2d", "aten::upsample_nearest2d", "aten::native_batch_norm",
};

bool is_channels_last(const TensorType& type) {
  if (type.rank() != 4 || ir::is_contiguous(type)) return false;
  return dim_is(type.strides[1], 1) && type.strides[3] == dim_max(type.sizes[1], 1);
}

std::vector<Expr> channels_last_strides(const TensorType& type) {
  const Expr channels = dim_max(type.sizes[1], 1), height = dim_max(type.sizes[2], 1), width = dim_max(type.sizes[3], 1);
  return {channels * height * width, 1, channels * width, channels};
}

}  // namespace

Status choose_layouts(Graph& graph) {
  for (const ir::NodeId id : graph.order) {
    const Node& node = graph[id];
    if (node.op->is_view() || node.op->has(ir::kAlias) || node.op->def.infer == nullptr) continue;
    bool reads_images = false;
    ir::for_each_use(node, [&](ValueId used) { reads_images = reads_images || is_channels_last(graph[used].type); });
    if (!reads_images) continue;
    const bool keeps = std::find(kImageOps.begin(), kImageOps.end(), node.op->name) != kImageOps.end();
    ir::InferContext context(graph, *node.op, node.args);
    if (!keeps && !node.op->def.infer(context).ok()) continue;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      TensorType& type = graph[node.outputs[k]].type;
      if (keeps) {
        if (type.rank() == 4) type.strides = channels_last_strides(type);
      } else if (k < context.results.size() && context.results[k].type.sizes == type.sizes && context.results[k].type.dtype == type.dtype) {
        type.strides = context.results[k].type.strides;
      }
    }
  }
  return ok_status();
}

}  // namespace pteron::cpu
