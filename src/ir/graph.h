// The intermediate form: programs, methods, graphs, nodes, values, constants. Plain data; passes work on it with ir/builder.h.
// Invariants are checked by ir/verify.h, text form is in ir/text.h.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/buffer.h"
#include "ir/expr.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::ir {

struct Op;      // ir/op.h
class Graph;
struct Program;

/// Index of one kind of object; distinct types do not mix.
template <typename Tag>
struct Id {
  static constexpr uint32_t kInvalid = 0xffffffffu;
  uint32_t index = kInvalid;
  constexpr bool valid() const { return index != kInvalid; }
  constexpr auto operator<=>(const Id&) const = default;
};
using ValueId = Id<struct ValueTag>;
using NodeId = Id<struct NodeTag>;
using ConstantId = Id<struct ConstantTag>;

/// Numbers are c10's.
enum class MemoryFormat : uint8_t { kContiguous = 0, kPreserve = 1, kChannelsLast = 2, kChannelsLast3d = 3 };
enum class Layout : uint8_t { kStrided = 0, kSparse = 1 };

/// Dtype, dims and memory layout of a tensor value.
/// Units:   strides in elements, as many as sizes.
struct TensorType {
  DType dtype = DType::kFloat32;
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Device device;
  bool operator==(const TensorType&) const = default;
  int rank() const { return static_cast<int>(sizes.size()); }
  /// True if every size is a constant.
  bool is_static() const;
};

/// A row-major type.
TensorType contiguous_type(DType dtype, std::vector<Expr> sizes, Device device = {});
/// Row-major strides.
std::vector<Expr> contiguous_strides_of(std::span<const Expr> sizes);
/// True if the strides are row-major (dims of size 1 do not count).
bool is_contiguous(const TensorType& type);
/// Product of the sizes.
Expr numel_of(std::span<const Expr> sizes);

/// An argument of a node: None, a value, a list of values (invalid id = None inside Tensor?[]), a scalar (int, float or bool
/// expression), a list of scalars, a string, or an enumeration.
using Arg = std::variant<std::monostate, ValueId, std::vector<ValueId>, Expr, std::vector<Expr>, std::string, DType, MemoryFormat, Layout,
                         Device, std::complex<double>>;

enum class ValueKind : uint8_t {
  kTensor,
  kScalar,  ///< int, float or bool known at run time; `scalar` is its expression (a symbol if nothing more is known)
  kNone,    ///< absent optional result
};

struct Value {
  ValueKind kind = ValueKind::kTensor;
  TensorType type;        ///< kTensor
  Expr scalar;            ///< kScalar
  std::string name;       ///< unique in the graph
  NodeId producer;        ///< invalid for inputs, states and constants
  ConstantId constant;    ///< valid for constants
};

struct Node {
  const Op* op = nullptr;
  std::vector<Arg> args;             ///< one per schema argument, defaults filled in
  std::vector<ValueId> outputs;      ///< results in order; the members of a Tensor[] result one by one
  std::vector<std::unique_ptr<Graph>> regions;  ///< branches and bodies of control flow, in schema order
  std::string name;                  ///< "conv2d_1"
  std::string source;                ///< "net.py:42"; empty if unknown
  std::string module;                ///< module path "layers.0.conv"; empty if unknown
  std::string refusal;               ///< why its decomposition takes no such form; empty if it was not refused
};

/// A user-visible input of a method.
struct Input {
  std::string name;    ///< "x", "d_z"
  ValueId value;       ///< tensor or scalar value; invalid for a literal
  Arg literal;         ///< the constant that the program was exported with, if value is invalid (None, int, float, bool, string)
};

/// A mutable buffer: read through `value`, replaced at the end of a call by `result`.
struct State {
  std::string name;    ///< fully qualified name
  ValueId value;       ///< value at the start of a call
  ValueId result;      ///< value at the end; equal to `value` until functionalize finds a write
  ConstantId initial;  ///< value before the first call
};

/// The caller's tensor `input` is overwritten with `result` at the end of a call.
struct InputMutation {
  uint32_t input = 0;
  ValueId result;
};

/// Values and nodes of one method or region. Objects are never erased from `values` and `nodes`; what is in `order` counts.
class Graph {
 public:
  explicit Graph(Program& owner) : program(&owner) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  Program* program;
  std::deque<Value> values;
  std::deque<Node> nodes;
  std::vector<NodeId> order;                 ///< execution order
  std::vector<Input> inputs;
  std::vector<Arg> outputs;                  ///< values, or literals (None, int, float, bool, string, expression)
  std::vector<State> states;
  std::vector<InputMutation> input_mutations;

  Value& operator[](ValueId id) { return values[id.index]; }
  const Value& operator[](ValueId id) const { return values[id.index]; }
  Node& operator[](NodeId id) { return nodes[id.index]; }
  const Node& operator[](NodeId id) const { return nodes[id.index]; }

  /// A new tensor value; the name gets a suffix if it is taken.
  ValueId add_tensor(TensorType type, std::string_view name);
  ValueId add_scalar(Expr scalar, std::string_view name);
  ValueId add_none(std::string_view name);
  /// The value that stands for a constant (one per constant and graph).
  ValueId add_constant(ConstantId constant, std::string_view name);
  /// A new node at the end of `nodes` (not yet in `order`); its outputs get it as producer.
  NodeId add_node(Node node);
  /// Value by name; invalid if there is none.
  ValueId find(std::string_view name) const;

 private:
  std::string unique_name(std::string_view name);
  std::unordered_map<std::string, uint32_t> names_;
  std::unordered_map<std::string, uint32_t> suffixes_;
  std::unordered_map<uint32_t, ValueId> constant_values_;
};

/// Immutable bytes of a tensor: a strided view of owned bytes, or a computation that makes them when they are written.
struct Constant {
  /// What it is in the exported model; kFolded: made by the compiler.
  enum class Origin : uint8_t { kFolded, kParameter, kBuffer, kConstant };

  std::string name;                       ///< fully qualified name of the weight, or "folded_3"
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;           ///< elements
  const std::byte* data = nullptr;        ///< first element; null for lazy constants and for constants without bytes in the archive
  std::shared_ptr<const void> owner;      ///< keeps `data` alive
  std::function<Result<Buffer>()> lazy;   ///< makes the row-major bytes; set if data is null and the bytes can be computed
  Origin origin = Origin::kFolded;
  std::string hash;                       ///< of the bytes, if they are known only by it (a graph read from text)
  bool mutable_elsewhere = false;         ///< some state starts from it: never merged, never folded
  bool any_order = false;                 ///< its users read any strides: a file holds its dims in the order of `strides`, not row-major

  int64_t numel() const;
  size_t size_bytes() const;
};

/// A callable entry of a program.
struct Method {
  explicit Method(Program& owner) : graph(owner) {}
  std::string name;
  Graph graph;
  std::string in_spec;    ///< pytree text as in the archive
  std::string out_spec;
};

/// Everything one compilation works on.
struct Program {
  Program() = default;
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  ExprContext exprs;
  std::deque<Constant> constants;
  std::vector<std::unique_ptr<Method>> methods;
  std::deque<std::unique_ptr<Op>> foreign_ops;  ///< operators met in the archive that the catalog does not know

  Constant& operator[](ConstantId id) { return constants[id.index]; }
  const Constant& operator[](ConstantId id) const { return constants[id.index]; }
  ConstantId add(Constant constant);
  ~Program();
};

/// Calls fn(ValueId&) for every value that an argument refers to (None entries of lists are skipped).
void for_each_value(Arg& arg, const std::function<void(ValueId&)>& fn);
void for_each_value(const Arg& arg, const std::function<void(ValueId)>& fn);
/// The same for every use inside a node: its arguments.
void for_each_use(const Node& node, const std::function<void(ValueId)>& fn);
/// Uses at the end of the graph: outputs, state results, input mutations.
void for_each_result(Graph& graph, const std::function<void(ValueId&)>& fn);
/// How often each value is used by nodes in `order` and by the results.
std::vector<uint32_t> count_uses(Graph& graph);

}  // namespace pteron::ir
