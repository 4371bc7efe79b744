// Equal constants become one. Candidates are found by type and a few sampled bytes, then compared whole.
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Constant;
using ir::Graph;
using ir::ValueId;

namespace {

/// True if the elements lie in memory without gaps, so that the bytes from `data` on are the whole tensor.
bool is_dense(const Constant& c) {
  int64_t stride = 1;
  for (size_t d = c.sizes.size(); d-- > 0;) {
    if (c.sizes[d] != 1 && c.strides[d] != stride) return false;
    stride *= c.sizes[d];
  }
  return true;
}

std::string key_of(const Constant& c) {
  std::string key;
  const auto put = [&](const void* bytes, size_t size) { key.append(static_cast<const char*>(bytes), size); };
  put(&c.dtype, sizeof c.dtype);
  for (const int64_t size : c.sizes) put(&size, sizeof size);
  key += '/';
  for (size_t d = 0; d < c.sizes.size(); ++d) {
    if (c.sizes[d] != 1) put(&c.strides[d], sizeof c.strides[d]);
  }
  const size_t bytes = c.size_bytes();
  if (!is_dense(c)) {  // only the very same memory counts
    put(&c.data, sizeof c.data);
    return key;
  }
  constexpr size_t kSample = 32;
  if (bytes <= 3 * kSample) {
    put(c.data, bytes);
    return key;
  }
  for (const size_t at : {size_t{0}, bytes / 2, bytes - kSample}) put(c.data + at, kSample);
  return key;
}

bool is_equal(const Constant& a, const Constant& b) { return a.data == b.data || (is_dense(a) && is_dense(b) && std::memcmp(a.data, b.data, a.size_bytes()) == 0); }

}  // namespace

Result<bool> merge_constants(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  ir::Program& program = *graph.program;
  std::unordered_map<std::string, std::vector<uint32_t>> groups;
  std::unordered_map<uint32_t, uint32_t> first;
  for (uint32_t i = 0; i < program.constants.size(); ++i) {
    const Constant& c = program.constants[i];
    if (c.data == nullptr || c.mutable_elsewhere || c.numel() == 0) continue;
    std::vector<uint32_t>& group = groups[key_of(c)];
    bool merged = false;
    for (const uint32_t other : group) {
      if (!is_equal(program.constants[other], c)) continue;
      first.emplace(i, other);
      merged = true;
      break;
    }
    if (!merged) group.push_back(i);
  }
  if (first.empty()) return false;
  const auto replace = [&](ValueId& id) {
    const ir::ConstantId constant = graph[id].constant;
    const auto found = constant.valid() ? first.find(constant.index) : first.end();
    if (found == first.end()) return;
    id = graph.add_constant(ir::ConstantId{found->second}, program.constants[found->second].name);
    changed = true;
  };
  for (const ir::NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, merge_constants(*region, catalog));
      changed = changed || region_changed;
    }
    for (ir::Arg& arg : graph[id].args) ir::for_each_value(arg, std::function<void(ValueId&)>(replace));
  }
  for (ir::Arg& output : graph.outputs) ir::for_each_value(output, std::function<void(ValueId&)>(replace));
  return changed;
}

}  // namespace pteron::passes
