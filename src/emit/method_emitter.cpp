// One method: inputs, states, nodes, write-backs, outputs, and the memory plan.
#include "emit/method_emitter.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "format/content_hash.h"
#include "ir/op.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::emit {

using ir::Arg;
using ir::BaseType;
using ir::Expr;
using ir::TensorType;
using ir::ValueId;
using ir::ViewLayout;

std::vector<uint8_t> dim_order_of(const TensorType& type) {
  const size_t rank = type.sizes.size();
  std::vector<uint8_t> order(rank);
  std::iota(order.begin(), order.end(), uint8_t{0});
  if (ir::is_contiguous(type) || type.strides.size() != rank) return order;
  std::vector<uint8_t> sorted = order;
  std::stable_sort(sorted.begin(), sorted.end(), [&](uint8_t a, uint8_t b) {
    return ir::bounds(type.strides[a] - type.strides[b]).min > 0;
  });
  Expr stride = 1;
  for (size_t i = rank; i-- > 0;) {
    const size_t d = sorted[i];
    if (!dim_is(type.sizes[d], 1) && !(type.strides[d] == stride)) return order;  // gaps or overlap: row-major
    stride = stride * dim_max(type.sizes[d], 1);
  }
  return sorted;
}

Result<format::Payload> ConstantPool::payload(ir::ConstantId id, const std::vector<uint8_t>& dim_order) const {
  const ir::Constant& c = program_[id];
  if (c.data == nullptr && c.lazy) {
    const bool row_major = std::is_sorted(dim_order.begin(), dim_order.end());
    if (row_major) return format::Payload::produce(c.size_bytes(), c.lazy);
    return format::Payload::produce(c.size_bytes(), [&c, dim_order]() -> Result<Buffer> {
      PTERON_ASSIGN(Buffer made, c.lazy());
      format::StridedBytes gathered{c.dtype, c.sizes, {}, dim_order, made.data()};
      const Sizes strides = contiguous_strides(c.sizes);
      gathered.strides.assign(strides.begin(), strides.end());
      PTERON_ASSIGN(const format::Payload inner, format::Payload::gather(std::move(gathered)));
      return format::payload_bytes(inner);
    });
  }
  if (c.data == nullptr && c.numel() > 0) {
    return Status(Code::kInvalidFile, str_cat("constant ", c.name, " has no bytes in the archive"));
  }
  // The official runtime finds no bytes for a constant segment of size zero: an empty constant has one byte that nobody reads.
  static constexpr std::byte kOne[1] = {};
  if (c.numel() == 0) return format::Payload::borrow(kOne);
  return format::Payload::gather({c.dtype, c.sizes, c.strides, dim_order, c.data});
}

Result<uint32_t> ConstantPool::constant(ir::ConstantId id, const std::vector<uint8_t>& dim_order) {
  const auto key = std::pair(id.index, dim_order);
  const auto found = constant_index_.find(key);
  if (found != constant_index_.end()) return found->second;
  PTERON_ASSIGN(format::Payload made, payload(id, dim_order));
  constants.push_back(std::move(made));
  const auto index = static_cast<uint32_t>(constants.size());
  constant_index_.emplace(key, index);
  return index;
}

Result<uint32_t> ConstantPool::initial_state(ir::ConstantId id) {
  std::vector<uint8_t> order(program_[id].sizes.size());
  std::iota(order.begin(), order.end(), uint8_t{0});
  PTERON_ASSIGN(format::Payload made, payload(id, order));
  PTERON_ASSIGN(const Buffer bytes, format::payload_bytes(made));
  const auto span = bytes.span();
  if (std::all_of(span.begin(), span.end(), [](std::byte b) { return b == std::byte{0}; })) return 0u;
  initial_states.push_back(std::move(made));
  return static_cast<uint32_t>(initial_states.size());
}

namespace {

/// Between tensors of one device.
constexpr std::string_view kDeviceCopy = "pteron::device_copy.out";

/// The order in which the program around stores the constant's dims.
std::vector<uint8_t> stored_order(const ir::Constant& c) {
  TensorType type = ir::contiguous_type(c.dtype, {c.sizes.begin(), c.sizes.end()});
  if (c.any_order) type.strides.assign(c.strides.begin(), c.strides.end());
  return dim_order_of(type);
}

/// True if the constant's bytes need not be computed or gathered to be stored in that order.
bool lies_in_file(const ir::Constant& c, const std::vector<uint8_t>& order) {
  if (c.data == nullptr) return c.numel() == 0;
  int64_t dense = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const size_t d = order[i];
    if (c.sizes[d] != 1 && c.strides[d] != dense) return false;
    dense *= std::max<int64_t>(c.sizes[d], 1);
  }
  return true;
}

}  // namespace

// Bytes that were made for their key are kept for the file up to this sum; what is beyond is made again, so that memory stays bounded.
constexpr uint64_t kKeptBytes = 32 << 20;

Result<ExternalConstant> ConstantPool::stored(ir::ConstantId id) const {
  const ir::Constant& c = program_[id];
  const std::vector<uint8_t> order = stored_order(c);
  ExternalConstant constant;
  // The bytes are those of a row-major tensor with its dims in this order: the same weight read as it is has the same key.
  constant.layout = {c.dtype, {}, {}};
  for (const uint8_t d : order) constant.layout.sizes.push_back(c.sizes[d]);
  PTERON_ASSIGN(constant.payload, payload(id, order));
  return constant;
}

Status ConstantPool::make_keys(std::span<const ir::ConstantId> ids) {
  std::vector<ir::ConstantId> made;
  std::vector<ExternalConstant> constants;
  for (const ir::ConstantId id : ids) {
    const ir::Constant& c = program_[id];
    if (keys_.keys.contains(id.index) || !lies_in_file(c, stored_order(c))) continue;
    PTERON_ASSIGN(ExternalConstant constant, stored(id));
    made.push_back(id);
    constants.push_back(std::move(constant));
  }
  std::vector<format::HashedTensor> tensors;
  for (const ExternalConstant& constant : constants) tensors.push_back({constant.layout.dtype, constant.layout.sizes, &constant.payload});
  PTERON_ASSIGN(const std::vector<std::string> hashes, format::tensor_hashes(tensors));
  for (size_t i = 0; i < made.size(); ++i) keys_.keys.emplace(made[i].index, format::weight_key(hashes[i]));
  return ok_status();
}

Result<std::string> ConstantPool::external_key(ir::ConstantId id) {
  const auto found = keys_.keys.find(id.index);
  if (found != keys_.keys.end() && listed_.contains(id.index)) return found->second;
  const ir::Constant& c = program_[id];
  PTERON_ASSIGN(ExternalConstant constant, stored(id));
  listed_.insert(id.index);
  if (found != keys_.keys.end()) {
    constant.key = found->second;
    external.push_back(std::move(constant));
    return found->second;
  }
  if (!lies_in_file(c, stored_order(c)) && keys_.kept_bytes + constant.payload.size_bytes <= kKeptBytes) {
    PTERON_ASSIGN(Buffer bytes, format::payload_bytes(constant.payload));
    constant.made = std::make_shared<const Buffer>(std::move(bytes));  // shared: with the group's named data
    constant.payload = format::Payload::borrow(constant.made->span());
    keys_.kept_bytes += constant.payload.size_bytes;
  }
  PTERON_ASSIGN(constant.key, format::weight_key(constant.layout.dtype, constant.layout.sizes, constant.payload));
  std::string key = constant.key;
  keys_.keys.emplace(id.index, key);
  external.push_back(std::move(constant));
  return key;
}

Result<std::string> ConstantPool::external_name(ir::ConstantId id, const std::vector<uint8_t>& dim_order) {
  const auto found = names_.find(id.index);
  if (found != names_.end()) return found->second;
  const ir::Constant& c = program_[id];
  ExternalConstant constant;
  PTERON_ASSIGN(constant.payload, payload(id, dim_order));
  const bool row_major = std::ranges::is_sorted(dim_order);
  constant.layout = {c.dtype, c.sizes, row_major ? std::vector<uint8_t>() : dim_order};
  const bool is_free = c.origin != ir::Constant::Origin::kFolded && !c.name.empty() && !c.name.starts_with("pteron") && c.name.find('\n') == std::string::npos && !taken_.contains(c.name);
  constant.key = c.name;
  if (!is_free) {
    PTERON_ASSIGN(constant.key, format::weight_key(c.dtype, c.sizes, constant.payload));
    for (size_t d = 0; !row_major && d < dim_order.size(); ++d) str_append(constant.key, d == 0 ? "." : "", static_cast<int>(dim_order[d]));
  }
  names_.emplace(id.index, constant.key);
  std::string key = constant.key;
  if (taken_.insert(key).second) external.push_back(std::move(constant));
  return key;
}

void MethodEmitter::touch(uint32_t root) {
  if (root == kNoRoot) return;
  roots_[root].last = std::max(roots_[root].last, position());
  roots_[root].used = true;
}

Result<format::TensorSpec> MethodEmitter::tensor_spec(const TensorType& type, std::string_view what, std::vector<uint8_t>* dim_order) {
  format::TensorSpec spec;
  spec.dtype = type.dtype;
  spec.device = type.device;
  if (type.sizes.size() > kMaxRank) {
    return Status(Code::kUnsupported, str_cat(current_, ": ", what, " has rank ", type.sizes.size(), ", the format holds at most ", kMaxRank));
  }
  for (const Expr& size : type.sizes) {
    const ir::Range range = ir::bounds(size);
    if (range.max == ir::Range::kMax) {
      return Status(Code::kUnsupported, str_cat(current_, ": ", what, " has size ", ir::to_text(size), " without an upper bound; export with a maximum (Dim(max=...)), or compile with --max-size"));
    }
    if (range.max > INT32_MAX) return Status(Code::kUnsupported, str_cat(current_, ": ", what, " has size ", ir::to_text(size), " up to ", range.max, ", the format holds 2^31-1"));
    spec.sizes.push_back(std::max<int64_t>(range.max, 0));
    if (!size.is_const()) spec.dynamism = format::Dynamism::kBounded;
  }
  if (options_.profile == Profile::kPteron) {
    spec.dim_order = dim_order_of(type);
  } else {
    spec.dim_order.resize(type.sizes.size());
    std::iota(spec.dim_order.begin(), spec.dim_order.end(), uint8_t{0});
  }
  *dim_order = spec.dim_order;
  return spec;
}

namespace {

std::vector<Expr> strides_in_order(std::span<const Expr> sizes, std::span<const uint8_t> dim_order) {
  std::vector<Expr> strides(sizes.size(), Expr(1));
  Expr stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[dim_order[i]] = stride;
    stride = stride * dim_max(sizes[dim_order[i]], 1);
  }
  return strides;
}

Result<uint64_t> bytes_of(const format::TensorSpec& spec, std::string_view where) {
  int64_t count = 0;
  uint64_t bytes = 0;
  if (!checked_numel(spec.sizes, &count) || !checked_mul(static_cast<uint64_t>(count), static_cast<uint64_t>(dtype_size(spec.dtype)), &bytes)) {
    return Status(Code::kUnsupported, str_cat(where, ": a tensor of shape ", str_list(spec.sizes), " is too large"));
  }
  return bytes;
}

}  // namespace

Placement MethodEmitter::whole(uint32_t root, int32_t value, const TensorType& type, const std::vector<uint8_t>& dim_order) {
  return {root, {type.sizes, strides_in_order(type.sizes, dim_order), 0}, value};
}

Result<Placement> MethodEmitter::new_planned(const TensorType& type, std::string_view what) {
  std::vector<uint8_t> dim_order;
  PTERON_ASSIGN(format::TensorSpec spec, tensor_spec(type, what, &dim_order));
  PTERON_ASSIGN(const uint64_t bytes, bytes_of(spec, current_));
  spec.allocation = format::Allocation{};
  const int32_t value = add_value(std::move(spec));
  const auto root = static_cast<uint32_t>(roots_.size());
  roots_.push_back({value, true, false, false, bytes, position(), position()});
  roots_.back().device = type.device;
  return whole(root, value, type, dim_order);
}

bool is_external(const ir::Constant& constant, const EmitOptions& options) {
  if (!options.is_payload && !options.external_weights) return false;
  if (constant.size_bytes() >= (options.external_weights ? kExternalWeightBytes : kExternalBytes)) return true;
  const bool is_weight = constant.origin == ir::Constant::Origin::kParameter || constant.origin == ir::Constant::Origin::kBuffer;
  return options.external_weights && is_weight && constant.size_bytes() > 0;
}

Result<Placement> MethodEmitter::place_constant(ir::ConstantId id) {
  const auto found = constant_places_.find(id.index);
  if (found != constant_places_.end()) return found->second;
  const ir::Constant& c = program_[id];
  TensorType type{c.dtype, {c.sizes.begin(), c.sizes.end()}, {c.strides.begin(), c.strides.end()}, {}};
  std::vector<uint8_t> dim_order;
  const bool external = is_external(c, options_);
  if (external && options_.is_payload && !c.any_order) type = ir::contiguous_type(c.dtype, std::move(type.sizes));
  PTERON_ASSIGN(format::TensorSpec spec, tensor_spec(type, c.name, &dim_order));
  if (external) {
    PTERON_ASSIGN(spec.external_name, options_.is_payload ? pool_.external_key(id) : pool_.external_name(id, dim_order));
  } else {
    PTERON_ASSIGN(spec.data_index, pool_.constant(id, dim_order));
  }
  const int32_t value = add_value(std::move(spec));
  const auto root = static_cast<uint32_t>(roots_.size());
  roots_.push_back({value, false, true, false, c.size_bytes(), 0, 0});
  const Placement place = whole(root, value, type, dim_order);
  constant_places_.emplace(id.index, place);
  return place;
}

Result<Placement> MethodEmitter::place_constant_on(ir::ConstantId id, Device device) {
  const auto key = std::pair(id.index, std::pair(device.type, device.index));
  if (const auto found = device_constants_.find(key); found != device_constants_.end()) return found->second;
  const ir::Constant& c = program_[id];
  const TensorType type = ir::contiguous_type(c.dtype, {c.sizes.begin(), c.sizes.end()}, device);
  PTERON_ASSIGN(Placement place, new_planned(type, c.name));
  roots_[place.root].persistent = true;
  auto& spec = std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(place.value)]);
  if (is_external(c, options_)) {
    PTERON_ASSIGN(spec.external_name, pool_.external_name(id, spec.dim_order));
  } else {
    PTERON_ASSIGN(spec.data_index, pool_.initial_state(id));
  }
  device_constants_.emplace(key, place);
  return place;
}

Result<Placement> MethodEmitter::placement(const ir::Graph& graph, ValueId id) {
  const ir::Value& value = graph[id];
  const auto found = scopes_.back().find(id.index);
  if (found != scopes_.back().end()) return found->second;
  if (value.constant.valid()) return value.type.device == Device() ? place_constant(value.constant) : place_constant_on(value.constant, value.type.device);
  return Status(Code::kInternal, str_cat(current_, ": value ", value.name, " is used before it is made"));
}

Result<int32_t> MethodEmitter::tensor_value(const ir::Graph& graph, ValueId id) {
  PTERON_ASSIGN(const Placement place, placement(graph, id));
  touch(place.root);
  return place.value;
}

Status MethodEmitter::emit_inputs() {
  for (size_t i = 0; i < method_.graph.inputs.size(); ++i) {
    const ir::Input& input = method_.graph.inputs[i];
    current_ = str_cat("input ", input.name);
    if (!input.value.valid()) {
      if (const auto* e = std::get_if<Expr>(&input.literal)) {
        // A slot of its own: the caller sets it, so it is no shared constant.
        if (e->type() == ir::ExprType::kFloat) {
          plan_.inputs.push_back(add_value(ir::number_of(*e)));
        } else if (e->type() == ir::ExprType::kBool) {
          plan_.inputs.push_back(add_value(ir::number_of(*e) != 0));
        } else {
          plan_.inputs.push_back(add_value(e->value()));
        }
      } else if (const auto* text = std::get_if<std::string>(&input.literal)) {
        plan_.inputs.push_back(add_value(*text));
      } else {
        plan_.inputs.push_back(add_value(format::NullValue{}));
      }
      continue;
    }
    const ir::Value& value = method_.graph[input.value];
    if (value.kind == ir::ValueKind::kScalar) {
      const int32_t slot = scalar_slot(value.scalar.type());
      plan_.inputs.push_back(slot);
      define_symbol(value.scalar, slot);
      continue;
    }
    std::vector<uint8_t> dim_order;
    PTERON_ASSIGN(format::TensorSpec spec, tensor_spec(value.type, "it", &dim_order));
    PTERON_ASSIGN(const uint64_t bytes, bytes_of(spec, current_));
    // Our runtime binds the caller's tensor; the official one copies it into planned memory. An input that the program overwrites is
    // copied as well: the caller's bytes may be read-only.
    const bool mutated = std::any_of(method_.graph.input_mutations.begin(), method_.graph.input_mutations.end(),
                                     [&](const ir::InputMutation& m) { return m.input == i; });
    // A tensor of a device is the caller's in both profiles: the official planner leaves such inputs out as well.
    const bool planned = ((mutated && !options_.is_payload) || options_.profile == Profile::kExecutorch) && value.type.device == Device();
    if (planned) spec.allocation = format::Allocation{};
    const int32_t slot = add_value(std::move(spec));
    plan_.inputs.push_back(slot);
    const auto root = static_cast<uint32_t>(roots_.size());
    // A planned input that nobody writes back needs its memory up to its last use; callers set it anew for each call.
    roots_.push_back({slot, planned, !planned || mutated, false, bytes, 0, 0, planned, false});
    roots_.back().device = value.type.device;
    bind(input.value, whole(root, slot, value.type, dim_order));
    define_symbols(value.type, slot);
  }
  for (const ir::InputMutation& mutation : method_.graph.input_mutations) {
    const ValueId id = method_.graph.inputs[mutation.input].value;
    Root& root = roots_[scopes_.back().at(id.index).root];
    root.writable_input = true;
    root.lent = !root.planned;
    want(ir::Arg(mutation.result), scopes_.back().at(id.index));
  }
  return ok_status();
}

Status MethodEmitter::emit_states() {
  for (const ir::State& state : method_.graph.states) {
    current_ = str_cat("buffer ", state.name);
    const TensorType& type = method_.graph[state.value].type;
    PTERON_ASSIGN(Placement place, new_planned(ir::contiguous_type(type.dtype, type.sizes, type.device), "it"));
    roots_[place.root].persistent = true;
    roots_[place.root].writable_input = true;
    if (const auto shared = shared_.offsets.find(state.name); shared != shared_.offsets.end()) {
      roots_[place.root].shared = true;
      roots_[place.root].shared_offset = shared->second;
    }
    PTERON_ASSIGN(std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(place.value)]).data_index, pool_.initial_state(state.initial));
    want(ir::Arg(state.result), place);
    bind(state.value, std::move(place));
  }
  return ok_status();
}

Status MethodEmitter::emit_nodes(const ir::Graph& graph) {
  for (uint32_t i = 0; i < graph.order.size(); ++i) {
    const ir::Node& node = graph[graph.order[i]];
    frames_.back().position = i;
    current_ = node.source.empty() ? str_cat("node ", node.name) : str_cat("node ", node.name, " (", node.source, ")");
    const uint32_t begin = position();
    PTERON_TRY(emit_node(graph, node));
    if (frames_.size() == 1) {  // what branches became is the node's
      instruction_nodes_.resize(begin, 0);
      instruction_nodes_.resize(position(), i + 1);
    }
    if (position() > begin && (!node.source.empty() || !node.module.empty())) {
      source_lines_.push_back({static_cast<int32_t>(begin), node.source, node.module});
    }
  }
  return ok_status();
}

Status MethodEmitter::emit_node(const ir::Graph& graph, const ir::Node& node) {
  if (node.op->has(ir::kRegion)) return emit_control(graph, node);
  if (node.op->has(ir::kAlias)) {
    const auto* self = std::get_if<ValueId>(&node.args[0]);
    if (self == nullptr) return Status(Code::kInternal, str_cat(current_, ": an alias of nothing"));
    PTERON_ASSIGN(Placement place, placement(graph, *self));
    bind(node.outputs[0], std::move(place));
    return ok_status();
  }
  if (node.op->is_view()) return emit_view(graph, node);
  if (node.op->name == kDelegateOp) return emit_delegate(graph, node);
  return emit_call(graph, node);
}

Result<std::optional<int32_t>> MethodEmitter::view_value(const Placement& base, const ViewLayout& layout, const TensorType& type, bool may_alias) {
  const Root& root = roots_[base.root];
  TensorType actual{type.dtype, layout.sizes, layout.strides, root.device};
  const std::vector<uint8_t> order = dim_order_of(actual);
  const bool dense = strides_in_order(layout.sizes, order) == layout.strides ||
                     [&] {  // strides of dims of size 1 do not matter
                       const std::vector<Expr> strides = strides_in_order(layout.sizes, order);
                       for (size_t d = 0; d < strides.size(); ++d) {
                         if (!dim_is(layout.sizes[d], 1) && !(strides[d] == layout.strides[d])) return false;
                       }
                       return true;
                     }();
  const bool row_major = std::is_sorted(order.begin(), order.end());
  if (may_alias && dense && layout.offset.is_const() && actual.is_static() && root.planned && (row_major || options_.profile == Profile::kPteron)) {
    format::TensorSpec spec;
    spec.dtype = type.dtype;
    spec.device = root.device;
    for (const Expr& size : layout.sizes) spec.sizes.push_back(size.value());
    spec.dim_order = order;
    spec.allocation = format::Allocation{};
    const int32_t value = add_value(std::move(spec));
    aliases_.push_back({value, base.root, static_cast<uint64_t>(layout.offset.value()) * dtype_size(type.dtype)});
    return std::optional<int32_t>(value);
  }
  if (options_.profile != Profile::kPteron) return std::optional<int32_t>();
  std::vector<uint8_t> ignored;
  PTERON_ASSIGN(format::TensorSpec spec, tensor_spec(actual, "a view", &ignored));
  PTERON_ASSIGN(const int32_t sizes, expr_list(layout.sizes, BaseType::kInt));
  PTERON_ASSIGN(const int32_t strides, expr_list(layout.strides, BaseType::kInt));
  PTERON_ASSIGN(const int32_t offset, expr_value(layout.offset));
  const int32_t value = add_value(std::move(spec));
  touch(base.root);
  call("pteron::view_strided.out", {root.value, sizes, strides, offset, value, value});
  return std::optional<int32_t>(value);
}

Status MethodEmitter::emit_view(const ir::Graph& graph, const ir::Node& node) {
  const auto* self = std::get_if<ValueId>(&node.args[0]);
  if (self == nullptr) return Status(Code::kInternal, str_cat(current_, ": a view of nothing"));
  PTERON_ASSIGN(const Placement base, placement(graph, *self));
  const ir::NodeView view(graph, *node.op, node.args);
  const DType base_dtype = graph[*self].type.dtype;
  std::vector<Placement> results;
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const TensorType& type = graph[node.outputs[k]].type;
    ViewLayout layout;
    const bool other_bytes = type.dtype == DType::kBool && base_dtype != DType::kBool;  // bytes of another dtype need not be 0 and 1
    if (other_bytes || dtype_size(type.dtype) != dtype_size(base_dtype) || !node.op->def.view(view, base.layout, k, &layout)) break;
    PTERON_ASSIGN(const std::optional<int32_t> value, view_value(base, layout, type));
    if (!value) break;
    results.push_back({base.root, std::move(layout), *value});
  }
  if (results.size() != node.outputs.size()) {
    if (!node.op->kernel.empty()) return emit_call(graph, node);
    // A view without a copying kernel: every view that can be a copy is a view of the row-major copy.
    if (is_dense(base.layout)) return Status(Code::kUnsupported, str_cat(current_, ": ", node.op->name, " cannot be expressed as a view"));
    PTERON_ASSIGN(Placement copy, clone_of(base, graph[*self].type));
    bind(*self, std::move(copy));
    return emit_view(graph, node);
  }
  for (size_t k = 0; k < results.size(); ++k) bind(node.outputs[k], std::move(results[k]));
  return ok_status();
}

Result<std::vector<int32_t>> MethodEmitter::call_args(const ir::Graph& graph, const ir::Node& node) {
  const auto& schema = node.op->schema.args;
  const bool factory = node.op->schema.find("pin_memory") >= 0 || node.op->schema.find("layout") >= 0;
  std::vector<int32_t> args;
  for (size_t i = 0; i < schema.size(); ++i) {
    const std::string& name = schema[i].name;
    if (factory && (name == "dtype" || name == "layout" || name == "device" || name == "pin_memory")) continue;
    const Arg& arg = node.args[i];
    int32_t value = -1;
    if (std::holds_alternative<std::monostate>(arg) || std::holds_alternative<Device>(arg)) {
      value = null_value();
    } else if (const auto* id = std::get_if<ValueId>(&arg)) {
      if (!id->valid()) {
        value = null_value();
      } else if (graph[*id].kind == ir::ValueKind::kScalar) {
        PTERON_ASSIGN(value, expr_value(graph[*id].scalar));
      } else {
        PTERON_ASSIGN(value, tensor_value(graph, *id));
      }
    } else if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg)) {
      std::vector<int32_t> items;
      for (const ValueId item : *ids) {
        if (!item.valid()) {
          items.push_back(-1);
          continue;
        }
        PTERON_ASSIGN(const int32_t tensor, tensor_value(graph, item));
        items.push_back(tensor);
      }
      value = schema[i].type.optional_elements ? add_value(format::OptionalTensorListValue{std::move(items)})
                                               : add_value(format::TensorListValue{std::move(items)});
    } else if (const auto* e = std::get_if<Expr>(&arg)) {
      if (schema[i].type.list) {
        PTERON_ASSIGN(value, expr_list({*e}, schema[i].type.base));
      } else {
        PTERON_ASSIGN(value, expr_as(*e, schema[i].type.base));
      }
    } else if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
      PTERON_ASSIGN(value, expr_list(*list, schema[i].type.base));
    } else if (const auto* text = std::get_if<std::string>(&arg)) {
      value = string_value(*text);
    } else if (const auto* dtype = std::get_if<DType>(&arg)) {
      value = int_value(static_cast<int64_t>(*dtype));
    } else if (const auto* format = std::get_if<ir::MemoryFormat>(&arg)) {
      // The official kernels take None or contiguous; there every planned tensor is row-major.
      value = options_.profile == Profile::kExecutorch ? null_value() : int_value(static_cast<int64_t>(*format));
    } else if (const auto* layout = std::get_if<ir::Layout>(&arg)) {
      value = int_value(static_cast<int64_t>(*layout));
    } else {
      return Status(Code::kUnsupported, str_cat(current_, ": ", node.op->name, ": argument '", name, "' is a complex number"));
    }
    args.push_back(value);
  }
  return args;
}

bool MethodEmitter::may_lose_sizes(const ir::Graph& graph, const ir::Node& node) const {
  if (options_.profile != Profile::kExecutorch || node.op->name != "aten::cat") return false;
  const std::vector<Expr>& sizes = graph[node.outputs[0]].type.sizes;
  int64_t dim = ir::NodeView(graph, *node.op, node.args).integer("dim");
  if (dim < 0) dim += static_cast<int64_t>(sizes.size());
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (static_cast<int64_t>(d) != dim && ir::bounds(sizes[d]).min <= 0) return true;
  }
  return false;
}

Result<int32_t> MethodEmitter::restore_sizes(const TensorType& type, ValueId id) {
  Placement place = scopes_.back().at(id.index);
  std::vector<uint8_t> ignored;
  PTERON_ASSIGN(format::TensorSpec spec, tensor_spec(type, "its result", &ignored));
  PTERON_ASSIGN(const int32_t sizes, expr_list(type.sizes, BaseType::kInt));
  spec.allocation = format::Allocation{};
  const int32_t value = add_value(std::move(spec));
  aliases_.push_back({value, place.root, 0});
  touch(place.root);
  call("executorch_prim::et_view.default", {place.value, sizes, value});
  place.value = value;
  bind(id, std::move(place));
  return value;
}

Status MethodEmitter::emit_call(const ir::Graph& graph, const ir::Node& node) {
  if (node.op->kernel.empty()) return Status(Code::kInternal, str_cat(current_, ": ", node.op->name, " has no kernel"));
  if (std::optional<Placement> place = scattered_already(graph, node)) {
    bind(node.outputs[0], *std::move(place));
    return ok_status();
  }
  if (std::optional<Placement> place = joined_already(graph, node)) {
    bind(node.outputs[0], *std::move(place));
    return ok_status();
  }
  std::optional<Placement> joined;  // before the arguments: it may need an instruction of its own
  if (node.outputs.size() == 1) {
    PTERON_ASSIGN(joined, place_in_join(graph, node.outputs[0]));
  }
  PTERON_ASSIGN(std::vector<int32_t> args, call_args(graph, node));
  // Arguments with sizes computed at run time put instructions before the call: every tensor lives until the call itself.
  for (const Arg& arg : node.args) {
    ir::for_each_value(arg, std::function<void(ValueId)>([&](ValueId id) {
                         if (graph[id].kind != ir::ValueKind::kTensor) return;
                         if (const auto place = placement(graph, id); place.ok()) touch(place->root);
                       }));
  }
  const bool list_result = node.op->schema.returns.size() == 1 && node.op->schema.returns[0].type.list;
  const std::optional<Placement> in_argument = joined ? joined : place_in_argument(graph, node);
  const bool loses_sizes = may_lose_sizes(graph, node);
  // Outs are made while the call is the next instruction; arguments were touched at this position, so they do not share memory with outs.
  std::vector<int32_t> outs;
  for (const ValueId id : node.outputs) {
    const ir::Value& out = graph[id];
    if (out.kind == ir::ValueKind::kScalar) {
      const int32_t slot = scalar_slot(out.scalar.type());
      outs.push_back(slot);
      if (out.scalar.is_symbol()) {
        define_symbol(out.scalar, slot);
      } else if (!out.scalar.is_const()) {
        computed_.back()[out.scalar.node()] = slot;
        define_flag(out.scalar, slot);
      }
      continue;
    }
    if (out.kind == ir::ValueKind::kNone) {
      outs.push_back(null_value());
      continue;
    }
    std::optional<Placement> named = in_argument;
    if (!named && !list_result && !loses_sizes) named = place_in_target(graph, node, id);
    if (!named) {
      PTERON_ASSIGN(named, new_planned(out.type, "its result"));
    }
    if (loses_sizes) std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(named->value)]).dynamism = format::Dynamism::kBounded;
    outs.push_back(named->value);
    touch(named->root);
    bind(id, *std::move(named));
  }
  if (list_result) {
    const int32_t list = add_value(format::TensorListValue{outs});
    args.push_back(list);
    args.push_back(list);
  } else {
    args.insert(args.end(), outs.begin(), outs.end());
    const bool primitive = outs.size() == 1 && graph[node.outputs[0]].kind == ir::ValueKind::kScalar;  // primitives list their out once
    if (outs.size() == 1 && !primitive) args.push_back(outs[0]);
    if (outs.size() > 1 && std::all_of(node.outputs.begin(), node.outputs.end(), [&](ValueId id) { return graph[id].kind == ir::ValueKind::kTensor; })) {
      args.push_back(add_value(format::TensorListValue{outs}));
    }
  }
  call(node.op->kernel, std::move(args));
  if (loses_sizes) {
    PTERON_ASSIGN(outs[0], restore_sizes(graph[node.outputs[0]].type, node.outputs[0]));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (graph[node.outputs[i]].kind == ir::ValueKind::kScalar) check_range(graph[node.outputs[i]].scalar, outs[i]);
  }
  size_t k = 0;
  for (const ValueId id : node.outputs) {
    if (graph[id].kind == ir::ValueKind::kTensor) define_symbols(graph[id].type, outs[k]);
    ++k;
  }
  return ok_status();
}

Status MethodEmitter::emit_delegate(const ir::Graph& graph, const ir::Node& node) {
  const ir::NodeView view(graph, *node.op, node.args);
  const auto index = static_cast<size_t>(view.integer("index"));
  if (index >= options_.delegates.size()) return Status(Code::kInternal, str_cat(current_, ": there is no compiled group ", index));
  const std::vector<ValueId> inputs = view.values("inputs");
  std::vector<int32_t> args;
  for (const Expr& number : view.exprs("numbers")) {
    PTERON_ASSIGN(const int32_t value, expr_value(number));
    args.push_back(value);
  }
  // Numbers put instructions before the call: tensors are looked up after them, so that they live until the call itself.
  std::vector<int32_t> tensors;
  for (const ValueId id : inputs) {
    PTERON_ASSIGN(const int32_t value, tensor_value(graph, id));
    tensors.push_back(value);
  }
  std::unordered_map<size_t, Placement> updates;  // by result
  const std::vector<int64_t> pairs = view.integers("in_place");
  for (size_t p = 0; p + 1 < pairs.size(); p += 2) {
    const auto input = static_cast<size_t>(pairs[p]), output = static_cast<size_t>(pairs[p + 1]);
    PTERON_ASSIGN(Placement place, place_update(graph, inputs, input, node.outputs[output]));
    tensors[input] = place.value;
    in_place_calls_.push_back({place.root, {0, static_cast<int32_t>(input), static_cast<int32_t>(tensors.size() + args.size() + output)}});
    updates.emplace(output, std::move(place));
  }
  for (const ValueId id : inputs) touch(scopes_.back().contains(id.index) ? scopes_.back().at(id.index).root : kNoRoot);  // a copy is an instruction too
  args.insert(args.begin(), tensors.begin(), tensors.end());
  std::vector<int32_t> outs;
  for (size_t k = 0; k < node.outputs.size(); ++k) {
    const ValueId id = node.outputs[k];
    const auto update = updates.find(k);
    Placement place;
    if (update != updates.end()) {
      place = update->second;
    } else {
      PTERON_ASSIGN(place, new_planned(graph[id].type, "its result"));
    }
    touch(place.root);
    outs.push_back(place.value);
    bind(id, std::move(place));
  }
  args.insert(args.end(), outs.begin(), outs.end());
  for (size_t p = in_place_calls_.size() - updates.size(); p < in_place_calls_.size(); ++p) in_place_calls_[p].argument.instruction = static_cast<int32_t>(position());
  format::DelegateSpec spec = options_.delegates[index];
  spec.blob = static_cast<uint32_t>(index);
  plan_.instructions.push_back(format::DelegateCall{static_cast<int32_t>(plan_.delegates.size()), std::move(args)});
  plan_.delegates.push_back(std::move(spec));
  for (size_t k = 0; k < outs.size(); ++k) define_symbols(graph[node.outputs[k]].type, outs[k]);
  return ok_status();
}

Result<Placement> MethodEmitter::place_update(const ir::Graph& graph, const std::vector<ValueId>& inputs, size_t input, ValueId out) {
  PTERON_ASSIGN(const Placement place, placement(graph, inputs[input]));
  bool shared = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i == input) continue;
    PTERON_ASSIGN(const Placement other, placement(graph, inputs[i]));
    shared = shared || other.root == place.root;
  }
  const bool is_own = !shared && is_dense(place.layout) && graph[inputs[input]].type.sizes == graph[out].type.sizes && may_overwrite(place.root) &&
                      is_dead_after(graph, place.root, out, place.layout);
  if (is_own) return place;
  return clone_of(place, graph[inputs[input]].type);
}

Result<Placement> MethodEmitter::clone_of(const Placement& from, const TensorType& type) {
  TensorType dense = ir::contiguous_type(type.dtype, type.sizes, type.device);
  touch(from.root);
  PTERON_ASSIGN(Placement to, new_planned(dense, "a copy"));
  if (type.device == Device()) {
    call("aten::clone.out", {from.value, null_value(), to.value, to.value});
  } else {
    call(kDeviceCopy, {from.value, to.value, to.value});
  }
  return to;
}

Status MethodEmitter::emit_write_backs() {
  const ir::Graph& graph = method_.graph;
  struct WriteBack {
    ValueId target, result;
  };
  std::vector<WriteBack> all;
  for (const ir::State& state : graph.states) {
    if (state.result.valid() && state.result != state.value) all.push_back({state.value, state.result});
  }
  for (const ir::InputMutation& mutation : graph.input_mutations) all.push_back({graph.inputs[mutation.input].value, mutation.result});
  std::erase_if(all, [&](const WriteBack& w) {  // computed where it belongs
    const auto target = scopes_.back().find(w.target.index), result = scopes_.back().find(w.result.index);
    return result != scopes_.back().end() && same_place(target->second, result->second);
  });
  // Outputs and new values that still show the old bytes of something overwritten here are copied first.
  std::vector<bool> overwritten(roots_.size(), false);
  for (const WriteBack& w : all) overwritten[scopes_.back().at(w.target.index).root] = true;
  const auto keep_old = [&](ValueId id) -> Status {
    PTERON_ASSIGN(const Placement place, placement(graph, id));
    if (place.root >= overwritten.size() || !overwritten[place.root]) return ok_status();
    PTERON_ASSIGN(Placement copy, clone_of(place, graph[id].type));
    bind(id, std::move(copy));
    return ok_status();
  };
  for (const Arg& output : graph.outputs) {
    const auto* id = std::get_if<ValueId>(&output);
    if (id == nullptr || !id->valid() || graph[*id].kind != ir::ValueKind::kTensor) continue;
    bool is_target = false;  // an overwritten input that is itself returned: the caller sees the old value only through a copy
    for (const WriteBack& w : all) is_target = is_target || w.target == *id;
    if (is_target) {
      // Keep the input's own placement for the write-back; outputs use a copy under the same id.
      PTERON_ASSIGN(const Placement place, placement(graph, *id));
      PTERON_ASSIGN(Placement copy, clone_of(place, graph[*id].type));
      old_values_[id->index] = std::move(copy);
      continue;
    }
    PTERON_TRY(keep_old(*id));
  }
  for (const WriteBack& w : all) {
    bool is_target = false;
    for (const WriteBack& other : all) is_target = is_target || other.target == w.result;
    if (is_target) {  // swaps: the new value of one buffer is the old value of another
      PTERON_ASSIGN(const Placement place, placement(graph, w.result));
      PTERON_ASSIGN(Placement copy, clone_of(place, graph[w.result].type));
      swapped_[w.result.index] = std::move(copy);
      continue;
    }
    PTERON_TRY(keep_old(w.result));
  }
  for (const WriteBack& w : all) {
    const Placement target = scopes_.back().at(w.target.index);
    const auto swapped = swapped_.find(w.result.index);
    Placement from;
    if (swapped != swapped_.end()) {
      from = swapped->second;
    } else {
      PTERON_ASSIGN(from, placement(graph, w.result));
    }
    touch(from.root);
    touch(target.root);
    if (roots_[target.root].device == Device()) {
      call("aten::copy_", {target.value, from.value, bool_value(false), target.value});
    } else {
      call(kDeviceCopy, {from.value, target.value, target.value});
    }
  }
  return ok_status();
}

Status MethodEmitter::emit_outputs() {
  const ir::Graph& graph = method_.graph;
  for (const Arg& output : graph.outputs) {
    current_ = str_cat("output ", plan_.outputs.size());
    int32_t value = -1;
    if (const auto* id = std::get_if<ValueId>(&output); id != nullptr && id->valid()) {
      if (graph[*id].kind == ir::ValueKind::kScalar) {
        PTERON_ASSIGN(value, expr_value(graph[*id].scalar));
      } else {
        const auto old = old_values_.find(id->index);
        const auto mutation = std::find_if(graph.input_mutations.begin(), graph.input_mutations.end(), [&](const ir::InputMutation& m) { return m.result == *id; });
        Placement place;
        if (options_.is_payload && mutation != graph.input_mutations.end()) {
          // The caller gives one tensor for both: the result may only go there once nobody reads the old value, and is there by now.
          place = scopes_.back().at(graph.inputs[mutation->input].value.index);
        } else if (old != old_values_.end()) {
          place = old->second;
        } else {
          PTERON_ASSIGN(place, placement(graph, *id));
        }
        roots_[place.root].persistent = roots_[place.root].persistent || !roots_[place.root].planned;
        output_roots_.push_back(place.root);
        value = place.value;
      }
    } else if (const auto* e = std::get_if<Expr>(&output)) {
      PTERON_ASSIGN(value, expr_value(*e));
    } else if (const auto* text = std::get_if<std::string>(&output)) {
      value = string_value(*text);
    } else {
      value = null_value();
    }
    plan_.outputs.push_back(value);
  }
  for (const uint32_t root : output_roots_) touch(root);
  return ok_status();
}

void MethodEmitter::release_outputs() {
  std::vector<bool> shared(roots_.size(), false);
  for (const Alias& alias : aliases_) shared[alias.root] = true;
  std::map<uint32_t, int> count;
  for (const uint32_t root : output_roots_) {
    if (root != kNoRoot) ++count[root];
  }
  for (const auto& [index, uses] : count) {
    Root& root = roots_[index];
    const bool is_output = std::find(plan_.outputs.begin(), plan_.outputs.end(), root.value) != plan_.outputs.end();
    if (uses > 1 || shared[index] || !root.planned || root.persistent || root.before_call || !is_output) continue;
    if (!options_.is_payload && root.device == Device()) continue;
    root.planned = false;
    std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(root.value)]).allocation.reset();
  }
}

Result<plan::MemoryPlan> MethodEmitter::place_buffers(std::span<const plan::BufferRequest> requests, Device device) const {
  if (!options_.planner) return plan::plan_memory(requests, {options_.alignment_bytes});
  auto offsets = options_.planner(method_.name, requests, options_.alignment_bytes, device);
  if (!offsets.ok()) return std::move(offsets).status().with_context("planning memory");
  auto plan = plan::check_plan(requests, std::move(offsets).value(), {options_.alignment_bytes});
  if (!plan.ok()) return std::move(plan).status().with_context("planning memory");
  return plan;
}

Result<size_t> MethodEmitter::place_roots(Device device, std::vector<uint64_t>& offsets, MethodReport* report) {
  const uint32_t end = position();
  std::vector<plan::BufferRequest> requests;
  std::vector<uint32_t> owners;
  for (uint32_t i = 0; i < roots_.size(); ++i) {
    Root& root = roots_[i];
    if (!root.planned || root.shared || !(root.device == device)) continue;
    // Step 0 is before the call, instruction i is step i + 1: an input that nothing reads gives its bytes to the first instruction.
    const uint32_t first = root.persistent || root.before_call ? 0 : root.first + 1;
    const uint32_t last = root.persistent ? end + 1 : root.before_call && !root.used ? 0 : root.last + 1;
    requests.push_back({root.size_bytes, first, last});
    owners.push_back(i);
  }
  if (owners.empty()) return size_t{0};
  PTERON_ASSIGN(const plan::MemoryPlan memory, place_buffers(requests, device));
  for (size_t i = 0; i < owners.size(); ++i) offsets[owners[i]] = memory.offsets[i];
  plan_.arenas.push_back({static_cast<int64_t>(memory.arena_bytes), device});
  arena_devices_.push_back(device);
  report->arena_bytes += memory.arena_bytes;
  report->lower_bound_bytes += memory.lower_bound_bytes;
  return owners.size();
}

uint32_t MethodEmitter::arena_of(const Root& root) const {
  if (root.shared) return shared_arena_;
  const auto found = std::ranges::find(arena_devices_, root.device);
  const auto index = static_cast<uint32_t>(found - arena_devices_.begin()) + 1;
  return shared_arena_ != 0 && index >= shared_arena_ ? index + 1 : index;
}

/// The host's arena is the first, even an empty one if methods share the second; those of devices follow.
Status MethodEmitter::finish_plan(MethodReport* report) {
  std::vector<uint64_t> offset_of_root(roots_.size(), 0);
  PTERON_ASSIGN(const size_t on_host, place_roots(Device(), offset_of_root, report));
  const auto shared = std::ranges::find_if(roots_, [](const Root& root) { return root.shared; });
  if (shared != roots_.end()) {
    if (on_host == 0) {
      plan_.arenas.push_back({});
      arena_devices_.push_back(Device());
    }
    plan_.arenas.push_back({static_cast<int64_t>(shared_.arena_bytes), shared->device});
    shared_arena_ = static_cast<uint32_t>(plan_.arenas.size());
  }
  std::vector<Device> devices;
  for (const Root& root : roots_) {
    if (root.planned && !root.shared && !(root.device == Device()) && std::ranges::find(devices, root.device) == devices.end()) devices.push_back(root.device);
  }
  std::ranges::sort(devices, {}, [](Device device) { return std::pair(device.type, device.index); });
  for (const Device device : devices) {
    PTERON_TRY(place_roots(device, offset_of_root, report).status());
  }
  for (uint32_t i = 0; i < roots_.size(); ++i) {
    if (roots_[i].shared) offset_of_root[i] = roots_[i].shared_offset;
    if (!roots_[i].shared && !roots_[i].planned) continue;
    std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(roots_[i].value)]).allocation = format::Allocation{arena_of(roots_[i]), offset_of_root[i]};
  }
  for (const Alias& alias : aliases_) {
    std::get<format::TensorSpec>(plan_.values[static_cast<size_t>(alias.value)]).allocation =
        format::Allocation{arena_of(roots_[alias.root]), offset_of_root[alias.root] + (roots_[alias.root].size_bytes == 0 ? 0 : alias.offset_bytes)};
  }
  report->name = method_.name;
  report->instruction_count = plan_.instructions.size();
  report->nodes = instruction_nodes_;
  report->nodes.resize(plan_.instructions.size(), 0);
  for (const auto& [id, place] : constant_places_) report->constant_bytes += roots_[place.root].size_bytes;
  return ok_status();
}

Status MethodEmitter::check_kernels() const {
  std::string missing;
  for (size_t i = 0; i < plan_.operators.size(); ++i) {
    const format::OperatorSpec& op = plan_.operators[i];
    const std::string name = op.overload.empty() ? op.name : str_cat(op.name, ".", op.overload);
    if (options_.has_kernel && !options_.has_kernel(name)) str_append(missing, "\n  ", name, "  first for ", first_callers_[i]);
  }
  return missing.empty() ? ok_status() : Status(Code::kUnsupported, str_cat("the program needs kernels that the profile lacks:", missing));
}

Result<format::PlanSpec> MethodEmitter::run(MethodReport* report, format::MethodMeta* meta) {
  plan_.name = method_.name;
  plan_.input_spec = method_.in_spec;
  plan_.output_spec = method_.out_spec;
  scopes_.emplace_back();
  computed_.emplace_back();
  enter_frame(method_.graph);
  PTERON_TRY(emit_inputs());
  PTERON_TRY(emit_states());
  PTERON_TRY(emit_nodes(method_.graph));
  PTERON_TRY(emit_write_backs());
  PTERON_TRY(emit_outputs());
  PTERON_TRY(check_kernels());
  release_outputs();
  PTERON_TRY(finish_plan(report));
  *meta = describe();
  return std::move(plan_);
}

}  // namespace pteron::emit
