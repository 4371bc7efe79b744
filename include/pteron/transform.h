// What a caller's own pass may see and change of a method's graph while it is compiled: GraphEditor. Passes are given to export_program
// (CompileSettings::passes, compile.h); docs/transform.md has an example. Nothing here runs or writes anything.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron {

/// Bytes that several owners may share.
/// Owns: `owner` keeps `bytes` alive; without one they are the caller's, who keeps them alive for as long as the call says.
struct SharedBytes {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

/// A value of the graph that a pass sees: a tensor or a run-time number. Of that graph alone, and only while the pass runs.
struct GraphValue {
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t index = kNone;
  constexpr GraphValue() = default;
  constexpr explicit GraphValue(uint32_t number) : index(number) {}
  bool valid() const { return index != kNone; }
  bool operator==(const GraphValue&) const = default;
};

/// A call of an operator.
struct GraphNode {
  static constexpr uint32_t kNone = 0xffffffffu;
  uint32_t index = kNone;
  bool valid() const { return index != kNone; }
  bool operator==(const GraphNode&) const = default;
};

/// An int, float or bool: known now, or an expression over the sizes and numbers of a call.
/// Owns: nothing; an expression is the graph's.
class GraphScalar {
 public:
  enum class Kind : uint8_t { kInt, kFloat, kBool, kExpression };
  GraphScalar() = default;
  template <std::integral T>
  GraphScalar(T value) : kind_(std::same_as<T, bool> ? Kind::kBool : Kind::kInt), integer_(static_cast<int64_t>(value)) {}  // NOLINT: implicit by design
  template <std::floating_point T>
  GraphScalar(T value) : kind_(Kind::kFloat), number_(value) {}  // NOLINT: implicit by design
  static GraphScalar expression(const void* node) {
    GraphScalar made;
    made.kind_ = Kind::kExpression;
    made.expression_ = node;
    return made;
  }
  Kind kind() const { return kind_; }
  bool is_constant() const { return kind_ != Kind::kExpression; }
  /// Of an int or bool; 0 of others.
  int64_t integer() const { return integer_; }
  /// Of any constant.
  double number() const { return kind_ == Kind::kFloat ? number_ : static_cast<double>(integer_); }
  const void* expression() const { return expression_; }
  bool operator==(const GraphScalar&) const = default;

 private:
  Kind kind_ = Kind::kInt;
  int64_t integer_ = 0;
  double number_ = 0;
  const void* expression_ = nullptr;
};

/// An argument that is no value, number, text or dtype.
struct GraphOther {
  enum class Kind : uint8_t { kMemoryFormat, kLayout, kDevice, kComplex };
  Kind kind = Kind::kMemoryFormat;
  double a = 0;  ///< number of the format, layout or device type as in PyTorch's C++; real part
  double b = 0;  ///< index of the device; imaginary part
  bool operator==(const GraphOther&) const = default;
};

/// An argument of a call: None, a value, a list of values (an invalid one is None), a number, a list of numbers, text, a dtype, or another.
using GraphArgument = std::variant<std::monostate, GraphValue, std::vector<GraphValue>, GraphScalar, std::vector<GraphScalar>, std::string, DType, GraphOther>;

/// A call, copied out of the graph.
struct GraphCall {
  std::string name;                         ///< of the node, as the text form has it
  std::string op;                           ///< "aten::add.Tensor"
  std::string source;                       ///< "net.py:42"; empty if unknown
  std::string module;                       ///< "layers.0"; empty if unknown
  std::vector<std::string> argument_names;  ///< as many as arguments
  std::vector<GraphArgument> arguments;     ///< in the order of the operator's schema, defaults filled in
  std::vector<GraphValue> results;
  size_t branches = 0;  ///< graphs inside, of control flow
};

/// A value, copied out of the graph.
struct GraphTensor {
  std::string name;
  bool is_tensor = true;  ///< false: a run-time number, or a result that is not there
  DType dtype = DType::kFloat32;
  std::vector<GraphScalar> sizes;
  bool is_constant = false;
  std::string weight = {};  ///< of constants: the weight's name in the model, or one of the compiler
  GraphNode producer = {};  ///< invalid for inputs, states and constants
};

/// The graph of one method, after all of the compiler's passes and before backends are asked: calls in order, each result written once (views
/// and in-place operators are plain functions here). Every edit is checked when it is made and refused by a sentence that names the node; a
/// refused edit changes nothing, but the compilation ends with its sentence even if the pass goes on.
/// Owns:    nothing; copies edit the same graph.
/// Errors:  of every edit: kInvalidInput (what does not fit), kUnsupported (an operator that is not known). Reading what does not exist gives
///          empty structs.
/// Threads: one thread at a time.
class GraphEditor {
 public:
  /// Name of the method.
  const std::string& method() const;
  /// Calls in the order in which they run.
  std::vector<GraphNode> nodes() const;
  GraphCall call(GraphNode node) const;
  GraphTensor tensor(GraphValue value) const;
  /// The user's inputs (a literal is an invalid value), then the buffers that live on between calls.
  std::vector<GraphValue> inputs() const;
  std::vector<GraphValue> states() const;
  /// What the method gives back (a literal is an invalid value).
  std::vector<GraphValue> outputs() const;
  /// Calls that read the value, in order.
  std::vector<GraphNode> users(GraphValue value) const;
  /// By the names of the text form; invalid if there is none.
  GraphNode find_node(std::string_view name) const;
  GraphValue find_value(std::string_view name) const;
  /// A number as the text form writes it: "2*s0+1".
  std::string text(GraphScalar scalar) const;
  /// The call as the text form writes it.
  std::string text(GraphNode node) const;
  /// The graph of a branch or body of control flow. Requires: branch below GraphCall::branches.
  GraphEditor branch(GraphNode node, size_t branch) const;
  /// The bytes of a constant in row-major order; they are never written to.
  /// Errors: kInvalidInput (no constant, or one without bytes), kOutOfMemory, those of weights that are made on demand.
  Result<SharedBytes> constant_bytes(GraphValue constant) const;

  /// A new constant from row-major bytes, which are copied if nobody owns them.
  Result<GraphValue> add_constant(std::string_view name, DType dtype, std::vector<int64_t> sizes, SharedBytes bytes);
  /// A new call before `before` (an invalid one: behind all); missing arguments take their defaults. Gives its results.
  Result<std::vector<GraphValue>> insert(GraphNode before, std::string_view op, std::vector<GraphArgument> arguments, std::string_view name = {});
  /// Makes a call one of another operator or with other arguments. Its results keep their names and must keep dtypes and sizes.
  Status replace(GraphNode node, std::string_view op, std::vector<GraphArgument> arguments);
  /// Whoever reads `from`, results of the method included, reads `to` instead, but for the calls in `except`. Both have one dtype and one size.
  Status replace_uses(GraphValue from, GraphValue to, std::span<const GraphNode> except = {});
  /// Removes a call whose results nobody reads.
  Status erase(GraphNode node);
  /// Removes all calls whose results nobody reads, and gives their number.
  Result<size_t> erase_dead();

  struct State;  ///< for the library's own use
  explicit GraphEditor(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

/// A pass of the caller's. An error that it gives back ends the compilation, with the pass and the method in front.
struct TransformPass {
  std::string name;
  std::function<Status(GraphEditor& graph)> run;
  std::string method = {};  ///< empty: every method, one after the other
};

}  // namespace pteron
