// Reading small integer tensors at compile time.
#include "ops/constant_ints.h"

#include <cstring>

#include "ir/op.h"
#include "tensor/dtype.h"

namespace pteron::ops {

namespace {

/// The constant behind a chain of ops that only copy; null if there is none.
const ir::Constant* constant_behind(const ir::Graph& graph, ir::ValueId value) {
  for (;;) {
    const ir::Value& v = graph[value];
    if (v.constant.valid()) return &(*graph.program)[v.constant];
    if (!v.producer.valid()) return nullptr;
    const ir::Node& node = graph[v.producer];
    const std::string_view name = node.op->name;
    const bool copies = name == "aten::lift_fresh_copy" || name == "aten::lift_fresh" || name == "aten::detach" || name == "aten::alias" ||
                        name == "aten::clone" || name == "aten::detach_";
    const auto* source = copies && !node.args.empty() ? std::get_if<ir::ValueId>(&node.args[0]) : nullptr;
    if (source == nullptr) return nullptr;
    value = *source;
  }
}

}  // namespace

std::optional<std::vector<int64_t>> constant_ints(const ir::Graph& graph, ir::ValueId value) {
  constexpr int64_t kMaxElements = int64_t{1} << 20;
  const ir::Constant* constant = value.valid() ? constant_behind(graph, value) : nullptr;
  if (constant == nullptr || constant->data == nullptr || !is_integral(constant->dtype, true) || constant->numel() > kMaxElements) return std::nullopt;
  std::vector<int64_t> out;
  const int64_t count = constant->numel();
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, at = 0;
    for (size_t d = constant->sizes.size(); d-- > 0;) {
      at += rest % constant->sizes[d] * constant->strides[d];
      rest /= constant->sizes[d];
    }
    dispatch_real(constant->dtype, [&]<typename T>() {
      if constexpr (std::is_integral_v<T>) {
        T number;
        std::memcpy(&number, constant->data + static_cast<size_t>(at) * sizeof(T), sizeof(T));
        out.push_back(static_cast<int64_t>(number));
      }
    });
  }
  return out;
}

}  // namespace pteron::ops
