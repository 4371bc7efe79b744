// Tries a node's kernel on tensors of zeros, so that dtypes which few kernels take are refused when compiling, not in the first run.
// Called by check_supported.
#include <algorithm>
#include <string>
#include <vector>

#include "interp/evaluator.h"
#include "passes/probe_dtypes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using interp::HostTensor;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::ValueId;

namespace {

constexpr int64_t kMostElements = 1 << 20;  // operands and results together: more would take long
constexpr int64_t kSymbolSize = 4;          // of sizes that may vary, where their range allows it

bool is_rare(DType dtype) {
  return is_complex(dtype) || is_float8(dtype) || dtype == DType::kUInt16 || dtype == DType::kUInt32 || dtype == DType::kUInt64;
}

/// Every tensor of the node, operands first.
std::vector<ValueId> tensors_of(const Graph& graph, const Node& node) {
  std::vector<ValueId> all;
  const auto add = [&](ValueId id) {
    if (id.valid() && graph[id].kind == ir::ValueKind::kTensor) all.push_back(id);
  };
  ir::for_each_use(node, add);
  for (const ValueId id : node.outputs) add(id);
  return all;
}

void choose(Expr e, interp::Symbols* symbols) {
  for (const Expr symbol : ir::symbols_in(e)) {
    const ir::Range range = ir::bounds(symbol);
    symbols->try_emplace(symbol.node(), interp::Number::of(std::clamp(kSymbolSize, range.min, std::max(range.min, range.max))));
  }
}

/// Sizes with every symbol chosen; false if there is no number for one of them.
bool sizes_of(const ir::TensorType& type, interp::Symbols* symbols, std::vector<int64_t>* sizes) {
  sizes->clear();
  for (const Expr size : type.sizes) {
    choose(size, symbols);
    const auto number = interp::evaluate_number(size, *symbols);
    if (!number || number->to_int() < 0) return false;
    sizes->push_back(number->to_int());
  }
  return true;
}

bool count_elements(std::span<const int64_t> sizes, int64_t* total) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    if (__builtin_mul_overflow(count, size, &count)) return false;
  }
  return !__builtin_add_overflow(*total, count, total) && *total <= kMostElements;
}

void choose_numbers(const Node& node, interp::Symbols* symbols) {
  for (const ir::Arg& arg : node.args) {
    if (const auto* e = std::get_if<Expr>(&arg)) choose(*e, symbols);
    if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
      for (const Expr e : *list) choose(e, symbols);
    }
  }
}

Result<HostTensor> zeros(DType dtype, std::span<const int64_t> sizes) {
  PTERON_ASSIGN(HostTensor made, interp::make_tensor(dtype, sizes));
  const size_t bytes = made.view.size_bytes();
  if (bytes > 0) std::fill_n(static_cast<std::byte*>(made.view.data), bytes, std::byte{0});
  return made;
}

}  // namespace

std::string probe_dtypes(const Graph& graph, const Node& node, const interp::Evaluator& evaluator) {
  const std::vector<ValueId> tensors = tensors_of(graph, node);
  const auto rare = std::find_if(tensors.begin(), tensors.end(), [&](ValueId id) { return is_rare(graph[id].type.dtype); });
  if (rare == tensors.end() || !node.regions.empty() || node.op->has(ir::kEffect) || !evaluator.can_run(node)) return {};
  interp::Symbols symbols;
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const ValueId id : tensors) {
    if (!sizes_of(graph[id].type, &symbols, &sizes) || !count_elements(sizes, &total)) return {};
  }
  choose_numbers(node, &symbols);
  const interp::Lookup lookup = [&](ValueId id) -> Result<HostTensor> {
    std::vector<int64_t> own;
    if (!sizes_of(graph[id].type, &symbols, &own)) return Status(Code::kInternal, "no sizes");
    return zeros(graph[id].type.dtype, own);
  };
  interp::Symbols learnt = symbols;
  const auto results = evaluator.run(graph, node, lookup, &learnt);
  if (results.ok() || results.status().code() != Code::kUnsupported) return {};  // zeros may well be no valid input
  return std::string(results.status().message());
}

}  // namespace pteron::passes
