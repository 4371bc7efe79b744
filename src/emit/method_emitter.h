// MethodEmitter: builds the values and instructions of one method. Internal to the emit room; control flow is in control.cpp,
// expressions in scalars.cpp, tensors and calls in method_emitter.cpp.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "emit/emit.h"
#include "format/meta.h"
#include "format/program.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "plan/plan.h"

namespace pteron::emit {

/// Constants of the whole program, shared by its methods.
class ConstantPool {
 public:
  /// keys: of external constants; null: its own.
  explicit ConstantPool(const ir::Program& program, ExternalKeys* keys = nullptr) : program_(program), keys_(keys == nullptr ? own_keys_ : *keys) {}
  /// Index (from 1) in ProgramSpec::constants of a constant stored in `dim_order`.
  Result<uint32_t> constant(ir::ConstantId id, const std::vector<uint8_t>& dim_order);
  /// Index (from 1) in ProgramSpec::initial_states; 0 if all its bytes are zero (planned memory starts as zeros).
  Result<uint32_t> initial_state(ir::ConstantId id);
  /// Key of a constant that the program around stores, row-major or, if its users read any order, in its own.
  Result<std::string> external_key(ir::ConstantId id);
  /// Makes the keys of several such constants ahead, on several threads where their bytes lie in the archive. Errors: as external_key.
  Status make_keys(std::span<const ir::ConstantId> ids);
  /// Name of a constant that a data file stores in `dim_order`: its own, or one made of its bytes if it has none or another constant has it.
  Result<std::string> external_name(ir::ConstantId id, const std::vector<uint8_t>& dim_order);

  std::vector<ExternalConstant> external;
  std::vector<format::Payload> constants;
  std::vector<format::Payload> initial_states;

 private:
  Result<format::Payload> payload(ir::ConstantId id, const std::vector<uint8_t>& dim_order) const;
  /// A constant as the program around stores it, without a key.
  Result<ExternalConstant> stored(ir::ConstantId id) const;
  const ir::Program& program_;
  ExternalKeys own_keys_;
  ExternalKeys& keys_;
  std::map<std::pair<uint32_t, std::vector<uint8_t>>, uint32_t> constant_index_;
  std::set<uint32_t> listed_;  // constants in `external`
  std::map<uint32_t, std::string> names_;  // of constants in data files
  std::set<std::string> taken_;            // those names
};

/// Memory that one or several tensor values live in.
struct Root {
  int32_t value = -1;       ///< the tensor value that owns the memory
  bool planned = false;     ///< has a place in the arena
  bool persistent = false;  ///< lives through the whole call (states, planned inputs)
  bool writable_input = false;  ///< state or mutated input: the call changes its bytes
  uint64_t size_bytes = 0;
  uint32_t first = 0, last = 0;
  bool before_call = false;     ///< a planned input: its bytes are there before the first instruction
  bool used = false;
  bool lent = false;            ///< an input of a payload that the call may write where it lies
  bool shared = false;          ///< a state in the arena that methods share, at shared_offset
  uint64_t shared_offset = 0;
  Device device = {};           ///< whose memory it is
};

/// Placement::root of scalar slots.
inline constexpr uint32_t kNoRoot = 0xffffffffu;

/// Where a tensor value of the graph lives.
struct Placement {
  uint32_t root = 0;
  ir::ViewLayout layout;    ///< sizes, strides and offset in the root's memory
  int32_t value = -1;       ///< value index to use as an argument
};

/// The same bytes in the same order.
bool same_place(const Placement& a, const Placement& b);

/// Where shared states live: the same in every method.
struct SharedStates {
  std::map<std::string, uint64_t, std::less<>> offsets;
  uint64_t arena_bytes = 0;
};

/// Whether the constant's bytes are stored outside of what is emitted.
bool is_external(const ir::Constant& constant, const EmitOptions& options);

class MethodEmitter {
 public:
  MethodEmitter(const ir::Program& program, const ir::Method& method, const EmitOptions& options, const SharedStates& shared, ConstantPool& pool)
      : program_(program), method_(method), options_(options), shared_(shared), pool_(pool) {}

  /// Emits the method. Call once; then describe() gives its facts.
  Result<format::PlanSpec> run(MethodReport* report, format::MethodMeta* meta);

 private:
  using Scope = std::unordered_map<uint32_t, Placement>;  // ValueId of the current graph -> placement

  // Graph walk (method_emitter.cpp).
  Status emit_inputs();
  Status emit_states();
  Status emit_nodes(const ir::Graph& graph);
  Status emit_node(const ir::Graph& graph, const ir::Node& node);
  Status emit_view(const ir::Graph& graph, const ir::Node& node);
  Status emit_call(const ir::Graph& graph, const ir::Node& node);
  /// True for a cat of the executorch profile whose result may have no elements because of a size beside the dim: the official kernel then
  /// gives it other sizes.
  bool may_lose_sizes(const ir::Graph& graph, const ir::Node& node) const;
  /// A view of a result that may have lost its sizes, with them; becomes what later nodes read.
  Result<int32_t> restore_sizes(const ir::TensorType& type, ir::ValueId id);
  Status emit_delegate(const ir::Graph& graph, const ir::Node& node);
  /// The memory that a delegate's tensor input and its result `out` share: the input's own if nobody reads its old bytes, else a copy.
  Result<Placement> place_update(const ir::Graph& graph, const std::vector<ir::ValueId>& inputs, size_t input, ir::ValueId out);
  Status emit_write_backs();
  Status emit_outputs();
  /// Results that no other value shares get no planned memory: those of payloads, and those on a device, which the caller may want elsewhere.
  void release_outputs();
  Result<plan::MemoryPlan> place_buffers(std::span<const plan::BufferRequest> requests, Device device) const;
  /// Places the planned roots of one device that no other method shares: offsets by root. Gives back how many there are.
  Result<size_t> place_roots(Device device, std::vector<uint64_t>& offsets, MethodReport* report);
  /// The arena of a planned root (from 1).
  uint32_t arena_of(const Root& root) const;
  Status finish_plan(MethodReport* report);
  /// Names, ranges, state and source lines (method_meta.cpp).
  format::MethodMeta describe();

  // Control flow (control.cpp).
  Status emit_control(const ir::Graph& graph, const ir::Node& node);
  Status emit_cond(const ir::Graph& graph, const ir::Node& node);
  Status emit_while(const ir::Graph& graph, const ir::Node& node);
  Status emit_scan(const ir::Graph& graph, const ir::Node& node, const std::vector<ir::ValueId>& initial, const std::vector<ir::ValueId>& xs,
                   const std::vector<ir::ValueId>& extra);
  uint32_t jump_if_false(int32_t condition);
  void land(uint32_t jump);
  void close_loop(uint32_t begin);
  /// A tensor or scalar slot that branches and iterations write.
  Result<Placement> result_slot(const ir::Value& value);
  Status store(const ir::Graph& graph, const ir::Arg& from, const Placement& to);
  Result<std::vector<Placement>> start_carries(const ir::Graph& graph, const std::vector<ir::ValueId>& initial);
  Status store_carries(const ir::Graph& region, const std::vector<Placement>& carries);
  /// Emits a region's nodes: its first inputs are `bound`, the others operands of the outer graph. Results should end at `targets`; targets
  /// that are among `bound` are the region's own memory. leave_region() ends it.
  Status enter_region(const ir::Graph& graph, const ir::Graph& region, const std::vector<ir::Arg>& operands, const std::vector<Placement>& bound,
                      const std::vector<Placement>& targets);
  void leave_region();

  // Results in memory that has a name already (in_place.cpp).
  /// A value's place in the concatenation that it is part of.
  struct Join {
    ir::ValueId whole;
    size_t dim = 0;                ///< of the concatenation
    ir::Expr start = 0;
    std::vector<size_t> dims = {}; ///< of the concatenation, for every dim of the value
  };
  /// What is known about the graph that is being emitted.
  struct Frame {
    std::unordered_map<uint32_t, std::vector<uint32_t>> uses;      // ValueId -> positions in `order`, ascending; its size for results
    std::unordered_map<uint32_t, std::vector<ir::ValueId>> members;    // root -> values that were placed in it
    std::unordered_map<uint32_t, Placement> wanted;                // ValueId -> where the graph's result must end
    std::unordered_map<uint32_t, Join> joins;                      // ValueId of a part -> where its producer writes it
    std::unordered_map<uint32_t, Placement> joined;                // ValueId of a concatenation -> its memory, once a part of it is made
    std::set<uint32_t> owned;                                      // roots of carries: older than the frame and its own all the same
    uint32_t first_root = 0;                                       // roots made before belong to outer graphs
    uint32_t position = 0;                                         // of the current node in `order`
  };
  void enter_frame(const ir::Graph& graph);
  /// Records where a value lives.
  void bind(ir::ValueId id, Placement place);
  /// True if the current graph may change the bytes of a root.
  bool may_overwrite(uint32_t root) const;
  /// The part of `parent` that a scatter node writes; nothing for other operators.
  std::optional<ir::ViewLayout> scatter_layout(const ir::Graph& graph, const ir::Node& node, const ir::ViewLayout& parent) const;
  /// True if nobody reads the root's present bytes after the current node, once `made` stands at `where` in it.
  bool is_dead_after(const ir::Graph& graph, uint32_t root, ir::ValueId made, const ir::ViewLayout& where) const;
  bool is_dead_after(const ir::Graph& graph, uint32_t root) const { return is_dead_after(graph, root, {}, {}); }
  bool reads_root(const ir::Graph& graph, const ir::Node& node, uint32_t root, size_t first_arg) const;
  /// Argument 0's place, if the node may write its result there.
  std::optional<Placement> place_in_argument(const ir::Graph& graph, const ir::Node& node) const;
  /// The place where result `out` must end, if the node may write there at once.
  std::optional<Placement> place_in_target(const ir::Graph& graph, const ir::Node& node, ir::ValueId out) const;
  /// The parent's place, if a scatter's source is that part of it already.
  std::optional<Placement> scattered_already(const ir::Graph& graph, const ir::Node& node) const;
  /// Finds what aten::cat joins and its producers can write in place. Payloads only.
  void find_joins(const ir::Graph& graph);
  /// True if `made` can be computed in the place that `join` gives it.
  bool may_join(const ir::Graph& graph, ir::ValueId made, const Join& join) const;
  /// True if everything that reads the value, or views of it, is in any_strides.inc.
  bool takes_any_strides(const ir::Graph& graph, ir::ValueId id) const;
  /// The memory of a concatenation, made when its first part is.
  Result<Placement> join_memory(const ir::Graph& graph, ir::ValueId whole);
  /// The place of a concatenation whose parts are all there already.
  std::optional<Placement> joined_already(const ir::Graph& graph, const ir::Node& node) const;
  /// Where a part of a concatenation, or a concatenation with such parts, is to be written; nothing for other values.
  Result<std::optional<Placement>> place_in_join(const ir::Graph& graph, ir::ValueId part);
  /// The current graph's result should end at `target`.
  void want(const ir::Arg& result, const Placement& target);

  // Tensors (method_emitter.cpp).
  Result<Placement> placement(const ir::Graph& graph, ir::ValueId id);
  Result<int32_t> tensor_value(const ir::Graph& graph, ir::ValueId id);
  Result<Placement> new_planned(const ir::TensorType& type, std::string_view what);
  Result<format::TensorSpec> tensor_spec(const ir::TensorType& type, std::string_view what, std::vector<uint8_t>* dim_order);
  Result<Placement> place_constant(ir::ConstantId id);
  /// A constant in a device's memory: planned for the whole call, with the constant's bytes as its initial ones.
  Result<Placement> place_constant_on(ir::ConstantId id, Device device);
  Placement whole(uint32_t root, int32_t value, const ir::TensorType& type, const std::vector<uint8_t>& dim_order);
  /// A value index for `layout` in the root of `base`: an alias with a shifted offset (if that may be), or a view_strided call. Nothing if the
  /// profile cannot express it.
  Result<std::optional<int32_t>> view_value(const Placement& base, const ir::ViewLayout& layout, const ir::TensorType& type, bool may_alias = true);
  void touch(uint32_t root);
  Result<Placement> clone_of(const Placement& from, const ir::TensorType& type);

  // Scalars (scalars.cpp).
  int32_t null_value();
  int32_t int_value(int64_t value);
  int32_t bool_value(bool value);
  int32_t double_value(double value);
  int32_t string_value(const std::string& value);
  int32_t add_value(format::ValueSpec value);
  /// A slot of its own that instructions or the caller fill.
  int32_t scalar_slot(ir::ExprType type);
  int32_t int_list(std::vector<int64_t> items);
  Result<int32_t> expr_value(ir::Expr e);
  Result<int32_t> expr_as(ir::Expr e, ir::BaseType base);
  Result<int32_t> expr_list(const std::vector<ir::Expr>& list, ir::BaseType base);
  Result<int32_t> prim(std::string_view name, const std::vector<int32_t>& args, format::ValueSpec out);
  void define_symbols(const ir::TensorType& type, int32_t tensor);
  void define_symbol(ir::Expr symbol, int32_t value);
  /// A bool read from a tensor, which an export writes as "u0 == 1": it gives u0.
  void define_flag(ir::Expr flag, int32_t value);

  // Instructions.
  int32_t op_index(std::string_view kernel);
  void call(std::string_view kernel, std::vector<int32_t> args);
  uint32_t position() const { return static_cast<uint32_t>(plan_.instructions.size()); }

  /// Lets the program check a number that it computed against the range that it was exported for.
  void check_range(ir::Expr symbol, int32_t value);
  /// Every kernel of the plan must be one that the profile has.
  Status check_kernels() const;
  Result<std::vector<int32_t>> call_args(const ir::Graph& graph, const ir::Node& node);

  const ir::Program& program_;
  const ir::Method& method_;
  const EmitOptions& options_;
  const SharedStates& shared_;
  ConstantPool& pool_;
  format::PlanSpec plan_;
  std::vector<Device> arena_devices_;  ///< of the arenas that no other method shares, which the plan has
  uint32_t shared_arena_ = 0;          ///< from 1; 0: there is none
  std::vector<Root> roots_;
  struct Alias {
    int32_t value;
    uint32_t root;
    uint64_t offset_bytes;
  };
  std::vector<Alias> aliases_;
  std::vector<Scope> scopes_;                       // one per graph being emitted, innermost last
  std::vector<Frame> frames_;                       // the same
  std::unordered_map<uint32_t, Placement> constant_places_;
  std::map<std::pair<uint32_t, std::pair<DeviceType, int8_t>>, Placement> device_constants_;
  std::unordered_map<std::string, int32_t> op_indices_;
  std::vector<std::string> first_callers_;  ///< for each of the plan's operators, what needed it first
  // Scalar caches. Constant slots are shared; run-time slots are per expression and scope.
  std::map<int64_t, int32_t> ints_;
  std::map<uint64_t, int32_t> doubles_;
  std::map<bool, int32_t> bools_;
  std::map<std::string, int32_t> strings_;
  std::map<std::vector<int64_t>, int32_t> int_lists_;
  int32_t null_ = -1;
  static constexpr int kValue = -1, kFlag = -2;
  struct SymbolSource {
    int32_t value = -1;   // scalar value, or tensor whose dim carries it
    int dim = kValue;     // kValue: `value` is the scalar itself; kFlag: a bool, true if the symbol is 1
    int64_t scale = 1, shift = 0;  // size = scale * symbol + shift
  };
  std::unordered_map<const ir::ExprNode*, SymbolSource> symbol_sources_;
  std::vector<std::unordered_map<const ir::ExprNode*, int32_t>> computed_;  // expression slots, one map per block
  std::unordered_map<uint32_t, Placement> old_values_;  // copies of overwritten values that are outputs
  std::unordered_map<uint32_t, Placement> swapped_;     // copies of overwritten values that are new values elsewhere
  std::unordered_map<size_t, Placement> moved_carries_;
  std::vector<uint32_t> output_roots_;
  struct InPlaceCall {
    uint32_t root;
    format::InPlaceArgument argument;
  };
  std::vector<InPlaceCall> in_place_calls_;  // of delegates
  std::vector<format::SourceLineMeta> source_lines_;
  std::vector<uint32_t> instruction_nodes_;
  std::string current_;  // "node conv (net.py:3)" for messages
};

/// Storage order of a type's dims (outermost first) if its strides are dense; row-major order otherwise.
std::vector<uint8_t> dim_order_of(const ir::TensorType& type);
/// True if a layout is row-major without gaps.
bool is_dense(const ir::ViewLayout& layout);

}  // namespace pteron::emit
