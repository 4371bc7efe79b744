// Chains of elementwise operators become one pteron_cpu::pointwise each. A node joins the group of its users if all of them are in that group and
// have the same sizes; so a group has one result and can never be part of a cycle.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "backends/cpu/aot/nodes.h"
#include "backends/cpu/aot/rewrites.h"
#include "backends/cpu/pointwise_program.h"
#include "base/str_cat.h"
#include "ir/builder.h"
#include "tensor/dtype.h"

namespace pteron::cpu {
namespace {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::TensorType;
using ir::ValueId;

constexpr std::string_view kPointwise = "pteron_cpu::pointwise";
/// Instructions that one operator may need; a group stops growing when so many might not fit any more.
constexpr size_t kMaxOwnCode = 4;
constexpr size_t kMaxNodes = kMaxPointwiseCode / kMaxOwnCode;

bool is_real(DType d) { return d == DType::kFloat32; }
bool is_truth(DType d) { return d == DType::kBool; }
/// Read into float without loss, or as ATen reads it into float.
bool is_readable(DType d) { return !is_complex(d) && !is_float8(d) && d != DType::kFloat64; }

/// Writes the program of one group; in a dry run (no program) only asks whether a node can be part of one.
class Writer {
 public:
  explicit Writer(const Graph& graph) : graph_(graph) {}

  /// True if the node is an elementwise operator that this engine has.
  static bool takes(const Graph& graph, const Node& node) {
    if (node.outputs.size() != 1 || !node.regions.empty() || graph[node.outputs[0]].kind != ir::ValueKind::kTensor) return false;
    const DType result = graph[node.outputs[0]].type.dtype;
    if (!is_real(result) && !is_truth(result) && !is_reduced_float(result) && !is_byte(result)) return false;
    Writer dry(graph);
    dry.dry_ = true;
    return dry.node(node);
  }

  /// Appends the node's instructions. False if it is none of ours.
  bool node(const Node& node) {
    const NodeView view(graph_, *node.op, node.args);
    node_ = &view;
    result_ = graph_[node.outputs[0]].type.dtype;
    ok_ = true;
    const std::string made = translate(view, view.op().name);
    node_ = nullptr;
    if (made.empty() || !ok_) return false;
    if (!dry_) numbers_[node.outputs[0].index] = made;
    return true;
  }

  /// Values read from outside become inputs before the first instruction is written.
  void add_input(ValueId id) {
    if (numbers_.contains(id.index)) return;
    if (const std::string number = constant_number(id); !number.empty()) {
      numbers_[id.index] = number;
      return;
    }
    numbers_[id.index] = str_cat(inputs_.size());
    inputs_.push_back(id);
  }
  /// Swaps input `index` with the first.
  void put_first(size_t index) {
    std::swap(numbers_[inputs_[0].index], numbers_[inputs_[index].index]);
    std::swap(inputs_[0], inputs_[index]);
  }
  const std::vector<ValueId>& inputs() const { return inputs_; }
  const std::string& program() const { return program_; }
  size_t code_size() const { return code_; }

 private:
  static std::string immediate(double value) {
    char text[12];
    std::snprintf(text, sizeof text, "#%08x", std::bit_cast<uint32_t>(static_cast<float>(value)));
    return text;
  }

  /// The immediate of a constant with one element of rank 0; empty for others.
  std::string constant_number(ValueId id) const {
    const ir::Value& value = graph_[id];
    if (!value.constant.valid() || !value.type.sizes.empty()) return {};
    const ir::Constant& c = (*graph_.program)[value.constant];
    if (c.mutable_elsewhere || c.data == nullptr) return {};
    if (c.dtype == DType::kFloat32) {
      float number;
      std::memcpy(&number, c.data, sizeof number);
      return immediate(static_cast<double>(number));
    }
    if (c.dtype == DType::kBool) return immediate(static_cast<double>(static_cast<unsigned char>(c.data[0]) != 0));
    return {};
  }

  /// An operand: tensor or number. Empty (and not ok) if it is of no use here.
  std::string operand(std::string_view name) {
    const Arg& arg = node_->arg(name);
    if (const auto* id = std::get_if<ValueId>(&arg)) {
      if (graph_[*id].kind != ir::ValueKind::kTensor || !is_readable(graph_[*id].type.dtype)) return fail();
      if (dry_) return "0";
      return numbers_.at(id->index);
    }
    const auto* e = std::get_if<Expr>(&arg);
    return e != nullptr && ir::is_number(*e) ? immediate(ir::number_of(*e)) : fail();
  }
  std::string fail() {
    ok_ = false;
    return "0";
  }
  bool number(std::string_view name, double* out) {
    const auto* e = std::get_if<Expr>(&node_->arg(name));
    if (e == nullptr || !ir::is_number(*e)) return false;
    *out = ir::number_of(*e);
    return true;
  }

  std::string write(std::string_view op, std::initializer_list<std::string> operands) {
    if (dry_) return "0";
    if (!program_.empty()) program_ += ';';
    program_ += op;
    for (const std::string& o : operands) program_ += str_cat(' ', o);
    return str_cat(inputs_.size() + code_++);
  }

  /// Arithmetic in float: the result is float32, and nothing wider takes part.
  bool arithmetic() const { return is_real(result_); }
  bool has_dtype(std::string_view name, bool (*test)(DType)) const {
    const auto* id = std::get_if<ValueId>(&node_->arg(name));
    return id == nullptr || test(graph_[*id].type.dtype);
  }

  std::string translate(const NodeView& n, const std::string& name) {
    if (!name.starts_with("aten::")) return {};
    const std::string_view op = std::string_view(name).substr(6);
    if (op == "_to_copy") return cast(n);
    if (is_truth(result_)) return truth(n, op);
    if (!arithmetic()) return {};
    if (const std::string_view plain = unary(op); !plain.empty()) return write(plain, {operand("self")});
    const std::string_view base = op.substr(0, op.find('.'));
    if (base == "add" || base == "sub" || base == "rsub") return sum(base);
    if (base == "mul" || op == "div.Tensor" || op == "div.Scalar") return write(base, {operand("self"), operand("other")});
    if (op == "maximum" || op == "minimum") return write(op.substr(0, 3), {operand("self"), operand("other")});
    if (op == "gelu") return write(n.text("approximate") == "tanh" ? "gelu_tanh" : "gelu", {operand("self")});
    if (op == "pow.Tensor_Scalar") return power();
    if (op.starts_with("where.S") || op == "where.self") return select("condition", "self", "other");
    if (op == "masked_fill.Scalar" || op == "masked_fill.Tensor") return select("mask", "value", "self");
    return bounded(op);
  }

  static std::string_view unary(std::string_view op) {
    constexpr std::string_view kSame[] = {"abs",  "ceil",  "erf",  "exp",  "expm1",      "floor", "hardsigmoid", "hardswish", "log",  "neg",
                                          "relu", "round", "rsqrt", "sigmoid", "reciprocal", "silu",  "sqrt",        "tanh",      "trunc"};
    for (const std::string_view same : kSame) {
      if (op == same) return same;
    }
    return {};
  }

  std::string sum(std::string_view base) {
    double alpha = 1;
    if (!number("alpha", &alpha)) return {};
    std::string self = operand("self"), other = operand("other");
    if (alpha != 1) (base == "rsub" ? self : other) = write("mul", {base == "rsub" ? self : other, immediate(alpha)});
    if (base == "rsub") return write("sub", {other, self});
    return write(base, {self, other});
  }

  std::string power() {
    double exponent = 0;
    if (!number("exponent", &exponent)) return {};
    const std::string x = operand("self");
    if (exponent == 1) return write("copy", {x});
    if (exponent == 2) return write("mul", {x, x});
    if (exponent == 3) return write("mul", {write("mul", {x, x}), x});
    if (exponent == 0.5) return write("sqrt", {x});
    if (exponent == -0.5) return write("rsqrt", {x});
    if (exponent == -1) return write("reciprocal", {x});
    if (exponent == -2) return write("reciprocal", {write("mul", {x, x})});
    return {};
  }

  std::string select(std::string_view condition, std::string_view yes, std::string_view no) {
    if (!has_dtype(condition, is_truth)) return {};
    return write("where", {operand(condition), operand(yes), operand(no)});
  }

  std::string bounded(std::string_view op) {
    double low = -INFINITY, high = INFINITY;
    const auto bound = [&](std::string_view name, double* out) { return node_->is_none(name) || number(name, out); };
    if (op == "hardtanh" && (!number("min_val", &low) || !number("max_val", &high))) return {};
    if (op == "clamp" && (!bound("min", &low) || !bound("max", &high))) return {};
    if (op == "clamp_min" && !number("min", &low)) return {};
    if (op == "clamp_max" && !number("max", &high)) return {};
    if (op == "relu6") low = 0, high = 6;
    if (op == "hardtanh" || op.starts_with("clamp") || op == "relu6") {
      if (op.find('.') != std::string_view::npos || std::isnan(low) || std::isnan(high)) return {};
      return write("clamp", {operand("self"), immediate(low), immediate(high)});
    }
    double alpha = 1, scale = 1, input_scale = 1;
    if (op == "leaky_relu" && number("negative_slope", &alpha)) {
      const std::string x = operand("self");
      return write("where", {write("lt", {immediate(0), x}), x, write("mul", {x, immediate(alpha)})});
    }
    if (op == "elu" && number("alpha", &alpha) && number("scale", &scale) && number("input_scale", &input_scale) && scale == 1) {
      return write("elu", {operand("self"), immediate(alpha), immediate(input_scale)});
    }
    return {};
  }

  std::string truth(const NodeView& n, std::string_view op) {
    const std::string_view base = op.substr(0, op.find('.'));
    const auto plain = [](DType d) { return is_real(d) || is_truth(d); };
    if (!n.has("self") || !has_dtype("self", plain)) return {};
    if (base == "isnan") return write("isnan", {operand("self")});
    if (base == "logical_not") return write("not", {operand("self")});
    if (op == "bitwise_not") return has_dtype("self", is_truth) ? write("not", {operand("self")}) : std::string();
    if (!n.has("other") || !has_dtype("other", plain)) return {};
    // Numbers are compared in the dtype that both have in common; with a bool tensor that is not float.
    if (!n.is_value("self") || (is_truth(n.type("self").dtype) && !n.is_value("other"))) return {};
    if (base == "gt" || base == "ge") return write(base == "gt" ? "lt" : "le", {operand("other"), operand("self")});
    if (base == "lt" || base == "le" || base == "eq" || base == "ne") return write(base, {operand("self"), operand("other")});
    if (base.starts_with("logical_")) return write(base.substr(8), {operand("self"), operand("other")});
    if (base.starts_with("bitwise_") && has_dtype("self", is_truth) && has_dtype("other", is_truth)) {
      const std::string_view which = base.substr(8);
      if (which == "and" || which == "or" || which == "xor") return write(which, {operand("self"), operand("other")});
    }
    return {};
  }

  std::string cast(const NodeView& n) {
    const auto* format = std::get_if<ir::MemoryFormat>(&n.arg("memory_format"));
    if (format != nullptr && *format != ir::MemoryFormat::kPreserve) return {};
    const DType from = n.type("self").dtype;
    // Wider than float on the way in or out would round twice.
    if (from == result_ || !is_readable(from)) return {};
    if (is_byte(result_)) return is_real(from) ? write("copy", {operand("self")}) : std::string();
    if (is_truth(result_)) return is_real(from) || is_reduced_float(from) ? write("ne", {operand("self"), immediate(0)}) : std::string();
    if (is_reduced_float(result_) && !is_real(from) && !is_truth(from)) return {};
    return write("copy", {operand("self")});
  }

  const Graph& graph_;
  const NodeView* node_ = nullptr;
  DType result_ = DType::kFloat32;
  bool dry_ = false, ok_ = true;
  std::unordered_map<uint32_t, std::string> numbers_;  ///< operand text of values
  std::vector<ValueId> inputs_;
  std::string program_;
  size_t code_ = 0;
};

/// Which nodes go together.
class Grouper {
 public:
  explicit Grouper(Graph& graph) : graph_(graph) {}

  /// The members of every group, in order, by the node that makes its result.
  std::unordered_map<uint32_t, std::vector<NodeId>> run() {
    collect_users();
    std::unordered_map<uint32_t, std::vector<NodeId>> groups;
    for (size_t i = graph_.order.size(); i-- > 0;) {
      const NodeId id = graph_.order[i];
      if (!Writer::takes(graph_, graph_[id])) continue;
      const NodeId root = root_for(id, groups);
      root_of_[id.index] = root;
      groups[root.index].push_back(id);
      count_inputs(root, id);
    }
    for (auto& [root, members] : groups) std::reverse(members.begin(), members.end());
    return groups;
  }

 private:
  void collect_users() {
    for (const NodeId id : graph_.order) {
      ir::for_each_use(graph_[id], [&](ValueId used) { users_[used.index].push_back(id); });
    }
    ir::for_each_result(graph_, [&](ValueId& used) { fixed_[used.index] = true; });
  }

  /// The group of all users, or the node itself.
  NodeId root_for(NodeId id, const std::unordered_map<uint32_t, std::vector<NodeId>>& groups) {
    const ValueId made = graph_[id].outputs[0];
    const DType dtype = graph_[made].type.dtype;
    const auto users = users_.find(made.index);
    if (fixed_.contains(made.index) || users == users_.end() || (!is_real(dtype) && !is_truth(dtype))) return id;
    NodeId root;
    for (const NodeId user : users->second) {
      const auto found = root_of_.find(user.index);
      if (found == root_of_.end() || (root.valid() && root != found->second)) return id;
      root = found->second;
    }
    const TensorType& result = graph_[graph_[root].outputs[0]].type;
    if (result.sizes != graph_[made].type.sizes || groups.at(root.index).size() >= kMaxNodes) return id;
    // What it reads may count twice here; a bound is enough.
    if (inputs_[root.index] + own_inputs(id) > kMaxPointwiseInputs) return id;
    return root;
  }

  size_t own_inputs(NodeId id) const {
    size_t count = 0;
    ir::for_each_use(graph_[id], [&](ValueId) { ++count; });
    return count;
  }
  void count_inputs(NodeId root, NodeId id) {
    // The member's own result was counted when its users joined.
    inputs_[root.index] += own_inputs(id);
    if (root != id) inputs_[root.index] -= std::min<size_t>(inputs_[root.index], users_[graph_[id].outputs[0].index].size());
  }

  Graph& graph_;
  std::unordered_map<uint32_t, std::vector<NodeId>> users_;
  std::unordered_map<uint32_t, bool> fixed_;
  std::unordered_map<uint32_t, NodeId> root_of_;
  std::unordered_map<uint32_t, size_t> inputs_;
};

/// The input whose layout the result takes: the first with the result's dtype and sizes, else with its sizes, else the first.
size_t leader(const Graph& graph, const std::vector<ValueId>& inputs, const TensorType& result) {
  size_t found = inputs.size();
  for (size_t i = 0; i < inputs.size(); ++i) {
    const TensorType& type = graph[inputs[i]].type;
    if (type.sizes != result.sizes) continue;
    if (type.dtype == result.dtype && !graph[inputs[i]].constant.valid()) return i;
    if (found == inputs.size()) found = i;
  }
  return found == inputs.size() ? 0 : found;
}

}  // namespace

Result<bool> fuse_pointwise(Graph& graph, const ir::Catalog& engine) {
  const auto groups = Grouper(graph).run();
  return ir::rewrite(graph, engine, [&](Builder& builder, NodeId id, std::vector<ValueId>& replacements) -> Result<Rewrite> {
    const auto group = groups.find(id.index);
    if (group == groups.end()) return Rewrite::kKeep;
    Writer writer(graph);
    std::unordered_map<uint32_t, bool> inside;
    for (const NodeId member : group->second) inside[graph[member].outputs[0].index] = true;
    for (const NodeId member : group->second) {
      ir::for_each_use(graph[member], [&](ValueId used) {
        if (!inside.contains(used.index)) writer.add_input(used);
      });
    }
    const TensorType result = graph[graph[id].outputs[0]].type;
    if (writer.inputs().empty() || writer.inputs().size() > kMaxPointwiseInputs) return Rewrite::kKeep;
    writer.put_first(leader(graph, writer.inputs(), result));
    for (const NodeId member : group->second) {
      if (!writer.node(graph[member])) return Rewrite::kKeep;
    }
    if (writer.code_size() > kMaxPointwiseCode) return Rewrite::kKeep;
    const ValueId self = writer.inputs()[0];
    std::vector<ValueId> others(writer.inputs().begin() + 1, writer.inputs().end());
    const ValueId made = builder.op(kPointwise, {self, std::move(others), writer.program(), result.dtype});
    if (!made.valid() || graph[made].type.sizes != result.sizes) return Rewrite::kKeep;
    graph[made].type = result;
    replacements = {made};
    return Rewrite::kReplace;
  });
}

}  // namespace pteron::cpu
