// The kernels that a file for the official runtime may use.
#include <algorithm>
#include <iterator>

#include "base/str_cat.h"
#include "compiler/profile.h"
#include "ir/builder.h"

namespace pteron::compiler {

namespace {
constexpr std::string_view kNames[] = {
#define EXECUTORCH_KERNEL(name) name,
#include "compiler/executorch_kernels.inc"
#undef EXECUTORCH_KERNEL
};
}  // namespace

bool executorch_has_kernel(std::string_view kernel) { return std::binary_search(std::begin(kNames), std::end(kNames), kernel); }

namespace {

bool pads_negative(const ir::NodeView& node) {
  const auto pads = node.exprs("pad");
  return std::any_of(pads.begin(), pads.end(), [](const ir::Expr& e) { return ir::bounds(e).min < 0; });
}

bool is_double(const ir::NodeView& node) { return node.type("self").dtype == DType::kFloat64; }

/// A form that an official kernel refuses at run time, seen with the 1.5.1 package.
struct Limit {
  std::string_view op;
  bool (*applies)(const ir::NodeView& node);
  std::string_view reason;
};

constexpr Limit kLimits[] = {
    {"aten::constant_pad_nd", pads_negative, "the official kernel takes no negative padding"},
    {"aten::_log_softmax", is_double, "the official kernel takes no float64"},
};

void check_graph(const ir::Graph& graph, std::string* problems) {
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    for (const Limit& limit : kLimits) {
      if (node.op->name != limit.op || !limit.applies(ir::NodeView(graph, *node.op, node.args))) continue;
      str_append(*problems, "\n  ", node.op->name, " at ", node.source.empty() ? str_cat("node ", node.name) : node.source, ": ", limit.reason);
    }
    for (const auto& region : node.regions) check_graph(*region, problems);
  }
}

}  // namespace

Status check_executorch_limits(const ir::Program& program) {
  std::string problems;
  for (const auto& method : program.methods) check_graph(method->graph, &problems);
  if (problems.empty()) return ok_status();
  return Status(Code::kUnsupported, str_cat("unsupported in the executorch profile:", problems));
}

}  // namespace pteron::compiler
