// Rewords checks of torch.export; see assertions.h.
#include "import/assertions.h"

#include <string>
#include <string_view>

#include "base/str_cat.h"
#include "ir/op.h"
#include "ir/places.h"

namespace pteron::importer {

namespace {
constexpr std::string_view kOfExport = "Runtime assertion failed for expression ";
}

void word_assertions(ir::Graph& graph, const ir::Graph& method) {
  for (const ir::NodeId id : graph.order) {
    ir::Node& node = graph[id];
    for (const auto& region : node.regions) word_assertions(*region, method);
    if (node.op->schema.name != "aten::_assert_scalar" || node.args.size() < 2) continue;
    auto* message = std::get_if<std::string>(&node.args[1]);
    if (message == nullptr || !message->starts_with(kOfExport)) continue;
    const auto* condition = std::get_if<ir::Expr>(&node.args[0]);
    if (condition != nullptr && !ir::symbols_in(*condition).empty()) *message = str_cat("expected ", ir::text_with_places(*condition, method));
  }
}

}  // namespace pteron::importer
