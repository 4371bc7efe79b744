// Tries a node's kernel on tensors of zeros, so that dtypes which few kernels take are refused when compiling, not in the first run.
// Called by check_supported.
#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "interp/evaluator.h"
#include "ir/builder.h"
#include "passes/probe_dtypes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using interp::HostTensor;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::ValueId;

namespace {

constexpr int64_t kMostElements = 1 << 20;  // operands and results together: more would take long, smaller ones stand in
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

/// What the kernel says to zeros: nothing (it runs), why it does not take the dtypes, or no answer (zeros may well be no valid input).
std::optional<std::string> ask(const Graph& graph, const Node& node, const interp::Evaluator& evaluator, interp::Symbols* symbols) {
  choose_numbers(node, symbols);
  const interp::Lookup lookup = [&](ValueId id) -> Result<HostTensor> {
    std::vector<int64_t> own;
    if (!sizes_of(graph[id].type, symbols, &own)) return Status(Code::kInternal, "no sizes");
    return zeros(graph[id].type.dtype, own);
  };
  interp::Symbols learnt = *symbols;
  const auto results = evaluator.run(graph, node, lookup, &learnt);
  if (results.ok()) return std::string();
  if (results.status().code() != Code::kUnsupported) return std::nullopt;
  return std::string(results.status().message());
}

/// Whether a trial of the node would be short.
bool is_small(const Graph& graph, const Node& node, interp::Symbols* symbols) {
  std::vector<int64_t> sizes;
  int64_t total = 0;
  for (const ValueId id : tensors_of(graph, node)) {
    if (!sizes_of(graph[id].type, symbols, &sizes) || !count_elements(sizes, &total)) return false;
  }
  return true;
}

/// The largest size of a stand-in, and whether numbers among the arguments are cut to it as well (sizes of results, channels, windows).
struct StandIn {
  int64_t most;
  bool numbers;
};
constexpr StandIn kStandIns[] = {{8, true}, {8, false}, {32, true}, {32, false}, {3, true}, {3, false}, {1, true}};

/// The node with operands of a few elements in a graph of its own; its inference makes the results.
class Smaller {
 public:
  Smaller(const Graph& graph, StandIn stand_in) : from_(graph), stand_in_(stand_in), graph_(program_) {}

  std::optional<std::string> ask_about(const Node& node, const interp::Evaluator& evaluator) {
    std::vector<ir::Arg> args;
    for (const ir::Arg& arg : node.args) {
      std::optional<ir::Arg> made = argument(arg);
      if (!made) return std::nullopt;
      args.push_back(*std::move(made));
    }
    const auto made = ir::make_node(graph_, *node.op, std::move(args), "probe");
    interp::Symbols symbols;
    if (!made.ok() || !same_dtypes(node, graph_[*made]) || !is_small(graph_, graph_[*made], &symbols)) return std::nullopt;
    return ask(graph_, graph_[*made], evaluator, &symbols);
  }

 private:
  bool same_dtypes(const Node& node, const Node& made) const {
    if (node.outputs.size() != made.outputs.size()) return false;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (from_[node.outputs[k]].kind == ir::ValueKind::kTensor && from_[node.outputs[k]].type.dtype != graph_[made.outputs[k]].type.dtype) return false;
    }
    return true;
  }

  std::optional<Expr> number(Expr e) {
    choose(e, &symbols_);
    const auto value = interp::evaluate_number(e, symbols_);
    if (!value) return std::nullopt;
    if (value->type == ir::ExprType::kFloat) return program_.exprs.floating(value->to_double());
    if (value->type == ir::ExprType::kBool) return program_.exprs.boolean(value->to_bool());
    return Expr(stand_in_.numbers ? std::min(value->to_int(), stand_in_.most) : value->to_int());
  }

  std::optional<ValueId> value(ValueId id) {
    if (!id.valid()) return id;
    const auto known = made_.find(id.index);
    if (known != made_.end()) return known->second;
    const ir::Value& old = from_[id];
    ValueId made;
    if (old.kind == ir::ValueKind::kTensor) {
      std::vector<int64_t> sizes;
      if (!sizes_of(old.type, &symbols_, &sizes)) return std::nullopt;
      std::vector<Expr> cut;
      for (const int64_t size : sizes) cut.emplace_back(std::min(size, stand_in_.most));
      made = graph_.add_tensor(ir::contiguous_type(old.type.dtype, std::move(cut)), "operand");
    } else if (old.kind == ir::ValueKind::kScalar) {
      const std::optional<Expr> e = number(old.scalar);
      if (!e) return std::nullopt;
      made = graph_.add_scalar(*e, "number");
    } else {
      made = graph_.add_none("none");
    }
    made_.emplace(id.index, made);
    return made;
  }

  template <typename T, typename Make>
  static std::optional<ir::Arg> list(const std::vector<T>& items, const Make& make) {
    std::vector<T> made;
    for (const T& item : items) {
      const std::optional<T> one = make(item);
      if (!one) return std::nullopt;
      made.push_back(*one);
    }
    return ir::Arg(std::move(made));
  }

  std::optional<ir::Arg> argument(const ir::Arg& arg) {
    if (const auto* id = std::get_if<ValueId>(&arg)) return value(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg)) return list(*ids, [&](ValueId id) { return value(id); });
    if (const auto* e = std::get_if<Expr>(&arg)) return number(*e);
    if (const auto* numbers = std::get_if<std::vector<Expr>>(&arg)) return list(*numbers, [&](Expr e) { return number(e); });
    return arg;
  }

  const Graph& from_;
  StandIn stand_in_;
  ir::Program program_;
  Graph graph_;
  interp::Symbols symbols_;  // of the node's own graph
  std::unordered_map<uint32_t, ValueId> made_;
};

}  // namespace

std::string probe_dtypes(const Graph& graph, const Node& node, const interp::Evaluator& evaluator) {
  const std::vector<ValueId> tensors = tensors_of(graph, node);
  const auto rare = std::find_if(tensors.begin(), tensors.end(), [&](ValueId id) { return is_rare(graph[id].type.dtype); });
  if (rare == tensors.end() || !node.regions.empty() || node.op->has(ir::kEffect) || !evaluator.can_run(node)) return {};
  interp::Symbols symbols;
  if (is_small(graph, node, &symbols)) return ask(graph, node, evaluator, &symbols).value_or(std::string());
  for (const StandIn& stand_in : kStandIns) {
    if (auto answer = Smaller(graph, stand_in).ask_about(node, evaluator)) return *std::move(answer);
  }
  return {};
}

}  // namespace pteron::passes
