// Constant folding through the evaluator.
#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "interp/evaluator.h"
#include "passes/passes.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::passes {

using interp::Evaluator;
using interp::HostTensor;
using ir::Arg;
using ir::Builder;
using ir::Constant;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::Rewrite;
using ir::ValueId;

namespace {

constexpr uint64_t kAlwaysBytes = 1 << 20;  // results up to this size are folded whatever their operands
constexpr uint64_t kEagerBytes = 64 << 10;  // results up to this size are computed now; larger ones when they are written
constexpr int64_t kMatrixElements = 256;    // 8-bit tensors of this size may be weights

bool has_bytes(const Constant& c) { return c.data != nullptr || c.lazy || c.numel() == 0; }

bool all_numbers(const Node& node) {
  for (const Arg& arg : node.args) {
    if (const auto* e = std::get_if<Expr>(&arg); e != nullptr && !ir::is_number(*e)) return false;
    const auto* list = std::get_if<std::vector<Expr>>(&arg);
    if (list != nullptr && !std::all_of(list->begin(), list->end(), [](const Expr& e) { return ir::is_number(e); })) return false;
  }
  return true;
}

/// Bytes of a static tensor type; false if it is not static or too large to count.
bool bytes_of(const ir::Value& value, uint64_t* bytes) {
  if (value.kind != ir::ValueKind::kTensor || !value.type.is_static()) return false;
  uint64_t total = dtype_size(value.type.dtype);
  for (const Expr& size : value.type.sizes) {
    if (size.value() < 0 || __builtin_mul_overflow(total, static_cast<uint64_t>(size.value()), &total)) return false;
  }
  *bytes = total;
  return true;
}

class Folder {
 public:
  Folder(Graph& graph, const Evaluator& evaluator, bool keep_narrow) : graph_(graph), evaluator_(evaluator), keep_narrow_(keep_narrow), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> operator()(NodeId id, std::vector<ValueId>& made) {
    const Node& node = graph_[id];
    uint64_t out_bytes = 0;
    if (!is_candidate(node) || !fits(node, &out_bytes) || unpacks(node, out_bytes)) return Rewrite::kKeep;
    const bool lazy = out_bytes > kEagerBytes;
    std::vector<Constant> constants;
    if (node.op->is_view()) constants = view_constants(node);
    if (constants.empty() && lazy) constants = lazy_constants(id);
    if (constants.empty()) constants = eager_constants(node);
    if (constants.size() != node.outputs.size()) return Rewrite::kKeep;
    for (size_t k = 0; k < constants.size(); ++k) {
      std::string name = graph_[node.outputs[k]].name;
      constants[k].name = name;
      made.push_back(graph_.add_constant(graph_.program->add(std::move(constants[k])), name));
    }
    return Rewrite::kReplace;
  }

 private:
  const Constant* constant_of(ValueId id) const {
    const ir::ConstantId constant = graph_[id].constant;
    return constant.valid() ? &(*graph_.program)[constant] : nullptr;
  }

  bool is_candidate(const Node& node) const {
    const ir::Op& op = *node.op;
    if (op.has(ir::kRandom) || op.has(ir::kEffect) || op.has(ir::kRegion) || !node.regions.empty() || node.outputs.empty()) return false;
    if (!all_numbers(node)) return false;
    bool constant = true;
    ir::for_each_use(node, [&](ValueId v) {
      const Constant* c = constant_of(v);
      constant = constant && c != nullptr && !c->mutable_elsewhere && has_bytes(*c);
    });
    return constant && evaluator_.can_run(node);
  }

  /// Sizes must be known (those of an index by integers are, although it may be one by a mask), and the bytes worth storing.
  bool fits(const Node& node, uint64_t* out_bytes) const {
    for (const ValueId out : node.outputs) {
      uint64_t bytes = 0;
      if (!bytes_of(graph_[out], &bytes)) return false;
      *out_bytes += bytes;
    }
    uint64_t in_bytes = 0;
    bool shared = false;
    ir::for_each_use(node, [&](ValueId v) {
      in_bytes += constant_of(v)->size_bytes();
      shared = shared || (v.index < uses_.size() && uses_[v.index] > 1);
    });
    if (*out_bytes <= kAlwaysBytes) return true;
    // A large weight that is also used as it is would be stored twice.
    return !shared && *out_bytes <= 2 * in_bytes;
  }

  /// Weights of 8 bits stay so in the file: what makes them wider runs in the program, or inside of a product.
  bool unpacks(const Node& node, uint64_t out_bytes) const {
    uint64_t in_bytes = 0;
    bool narrow = node.op->has(ir::kWidens);
    ir::for_each_use(node, [&](ValueId v) {
      const Constant& c = *constant_of(v);
      in_bytes += c.size_bytes();
      const bool matrix = c.sizes.size() >= 2 && c.numel() >= kMatrixElements && (c.dtype == DType::kInt8 || c.dtype == DType::kUInt8 || is_float8(c.dtype));
      narrow = narrow || (keep_narrow_ && matrix && node.op->name == "aten::_to_copy");
    });
    return narrow && out_bytes > in_bytes;
  }

  interp::Lookup lookup() const { return lookup_in(graph_); }

  static interp::Lookup lookup_in(const Graph& graph) {
    return [&graph](ValueId id) { return interp::tensor_of((*graph.program)[graph[id].constant]); };
  }

  static Constant like(const TensorView& view) {
    Constant constant;
    constant.dtype = view.dtype;
    constant.sizes.assign(view.sizes().begin(), view.sizes().end());
    constant.strides.assign(view.strides().begin(), view.strides().end());
    return constant;
  }

  /// Views of bytes that are there: no copy. Empty if the operand is lazy or the layout cannot express the view.
  std::vector<Constant> view_constants(const Node& node) const {
    const auto* self = std::get_if<ValueId>(&node.args[0]);
    if (self == nullptr || constant_of(*self)->data == nullptr) return {};
    const Constant& base = *constant_of(*self);
    interp::Symbols symbols;
    auto results = evaluator_.run(graph_, node, lookup(), &symbols);
    if (!results.ok()) return {};
    std::vector<Constant> constants;
    for (interp::NodeValue& result : *results) {
      auto* tensor = std::get_if<HostTensor>(&result);
      if (tensor == nullptr) return {};
      const auto* data = static_cast<const std::byte*>(tensor->view.data);
      if (tensor->owner != base.owner || data < base.data) return {};  // the evaluator made a copy
      Constant constant = like(tensor->view);
      constant.data = data;
      constant.owner = tensor->owner;
      constants.push_back(std::move(constant));
    }
    return constants;
  }

  /// One result of a node as row-major bytes.
  static Result<Buffer> compute(const Evaluator& evaluator, const Graph& graph, const Node& node, size_t k) {
    interp::Symbols symbols;
    PTERON_ASSIGN(const auto results, evaluator.run(graph, node, lookup_in(graph), &symbols));
    const auto* tensor = std::get_if<HostTensor>(&results[k]);
    if (tensor == nullptr) return Status(Code::kInternal, "a folded node gives no tensor");
    PTERON_ASSIGN(Buffer buffer, Buffer::create(tensor->view.size_bytes()));
    copy_strided(tensor->view, make_contiguous_view(tensor->view.dtype, tensor->view.sizes(), buffer.data()));
    return buffer;
  }

  Constant row_major(ValueId out) const {
    const ir::TensorType& type = graph_[out].type;
    std::vector<int64_t> sizes;
    for (const Expr& size : type.sizes) sizes.push_back(size.value());
    return like(make_contiguous_view(type.dtype, sizes, nullptr));
  }

  std::vector<Constant> lazy_constants(NodeId id) const {
    std::vector<Constant> constants;
    const Node& node = graph_[id];
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      Constant constant = row_major(node.outputs[k]);
      const Graph* graph = &graph_;
      const Evaluator* evaluator = &evaluator_;
      constant.lazy = [graph, evaluator, id, k] { return compute(*evaluator, *graph, (*graph)[id], k); };
      constants.push_back(std::move(constant));
    }
    return constants;
  }

  std::vector<Constant> eager_constants(const Node& node) const {
    std::vector<Constant> constants;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      auto bytes = compute(evaluator_, graph_, node, k);
      if (!bytes.ok()) return {};
      Constant constant = row_major(node.outputs[k]);
      auto owner = std::make_shared<Buffer>(std::move(bytes).value());
      constant.data = owner->data();
      constant.owner = owner;
      constants.push_back(std::move(constant));
    }
    return constants;
  }

  Graph& graph_;
  const Evaluator& evaluator_;
  bool keep_narrow_;
  std::vector<uint32_t> uses_;
};

}  // namespace

Result<bool> fold_constants(Graph& graph, const ir::Catalog& catalog, const Evaluator& evaluator, bool keep_narrow) {
  bool changed = false;
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) {
      PTERON_ASSIGN(const bool region_changed, fold_constants(*region, catalog, evaluator, keep_narrow));
      changed = changed || region_changed;
    }
  }
  Folder folder(graph, evaluator, keep_narrow);
  PTERON_ASSIGN(const bool folded, ir::rewrite(graph, catalog, [&](Builder&, NodeId id, std::vector<ValueId>& made) { return folder(id, made); }));
  return changed || folded;
}

}  // namespace pteron::passes
