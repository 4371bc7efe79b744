// One walk over each method: every use is given a value in the memory that it reads, copied at most once.
#include "compiler/devices.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "base/ascii.h"
#include "base/str_cat.h"
#include "emit/emit.h"
#include "ir/builder.h"
#include "ir/op.h"

namespace pteron::compiler {

namespace {

using ir::NodeId;
using ir::ValueId;

/// What the device of a method's (or of all methods') uses of a state may be.
struct Residence {
  bool is_used = false;
  bool on_host = false;  ///< two users differ
  Device device = {};

  void add(Device user) {
    on_host = on_host || (is_used && !(user == device));
    device = user;
    is_used = true;
  }
  void add(const Residence& other) {
    if (other.is_used) add(other.on_host ? Device() : other.device);
  }
  Device place() const { return is_used && !on_host ? device : Device(); }
};

class DevicePlacer {
 public:
  DevicePlacer(const CompileOptions& options, const EdgeProgram& edge, ir::Graph& graph) : options_(options), edge_(edge), graph_(graph) {}

  bool has_devices() const {
    return std::ranges::any_of(graph_.order, [&](NodeId id) { return device_of(graph_[id]).type != DeviceType::kCpu; });
  }

  /// Of each state, in their order.
  std::vector<Residence> residences() const {
    std::map<uint32_t, Residence> of_value;
    for (const NodeId id : graph_.order) {
      const Device device = device_of(graph_[id]);
      ir::for_each_use(graph_[id], [&](ValueId use) { of_value[use.index].add(device); });
    }
    for (const ir::Arg& output : graph_.outputs) {
      ir::for_each_value(output, [&](ValueId use) { of_value[use.index].add(Device()); });
    }
    std::vector<Residence> found;
    for (const ir::State& state : graph_.states) {
      Residence residence = of_value[state.value.index];
      if (state.result.valid() && state.result != state.value) residence.add(maker_device(state.result));
      for (const ir::State& other : graph_.states) {  // its old value is another one's new value: copied on the host
        if (&other != &state && other.result == state.value) residence.add(Device());
      }
      found.push_back(residence);
    }
    return found;
  }

  /// states: where each lives.
  Status run(const std::vector<Device>& states) {
    for (size_t i = 0; i < states.size(); ++i) graph_[graph_.states[i].value].type.device = states[i];
    if (options_.device_inputs) place_inputs();
    const std::vector<NodeId> order = std::exchange(graph_.order, {});
    find_readers(order);
    for (const NodeId id : order) {
      const Device device = place_of(graph_[id]);
      for (ir::Arg& arg : graph_[id].args) ir::for_each_value(arg, [&](ValueId& use) { use = at(use, device); });
      graph_.order.push_back(id);
      for (const ValueId out : graph_[id].outputs) {
        if (device.type != DeviceType::kCpu && graph_[out].kind == ir::ValueKind::kTensor) graph_[out].type.device = device;
      }
    }
    for (ir::Arg& output : graph_.outputs) {
      if (options_.device_outputs) break;
      ir::for_each_value(output, [&](ValueId& use) { use = at(use, Device()); });
    }
    for (ir::State& state : graph_.states) {
      if (state.result.valid()) state.result = at(state.result, graph_[state.value].type.device);
    }
    for (ir::InputMutation& mutation : graph_.input_mutations) mutation.result = at(mutation.result, Device());
    return std::move(status_);
  }

 private:
  /// Where a node wants its tensors.
  Device device_of(const ir::Node& node) const {
    if (node.op->name != emit::kDelegateOp) return {};
    const auto index = static_cast<size_t>(ir::NodeView(graph_, *node.op, node.args).integer("index"));
    return index < edge_.groups.size() ? edge_.groups[index].compiled.io_device : Device();
  }

  /// The operand of a view.
  ValueId viewed(const ir::Node& node) const {
    const auto* self = node.op->is_view() && !node.args.empty() ? std::get_if<ValueId>(&node.args[0]) : nullptr;
    return self != nullptr ? *self : ValueId();
  }

  /// The devices whose delegates read each value, itself or a view of it.
  void find_readers(const std::vector<NodeId>& order) {
    for (auto id = order.rbegin(); id != order.rend(); ++id) {
      const ir::Node& node = graph_[*id];
      const Device device = device_of(node);
      if (device.type != DeviceType::kCpu) ir::for_each_use(node, [&](ValueId use) { readers_[use.index].push_back(device); });
      const ValueId self = viewed(node);
      if (!self.valid()) continue;
      for (const ValueId out : node.outputs) {
        for (const Device reader : std::vector<Device>(readers_[out.index])) readers_[self.index].push_back(reader);
      }
    }
  }

  /// Where a node's tensors lie: a view of a device's tensor that a delegate of that device reads is one itself, if emit makes it without a kernel.
  Device place_of(const ir::Node& node) {
    const ValueId self = viewed(node);
    if (!self.valid() || graph_[self].kind != ir::ValueKind::kTensor) return device_of(node);
    const Device device = graph_[self].type.device;
    const bool is_read = std::ranges::any_of(node.outputs, [&](ValueId out) { return std::ranges::find(readers_[out.index], device) != readers_[out.index].end(); });
    return device.type != DeviceType::kCpu && is_read && is_part(node, self) ? device : Device();
  }

  /// True if each result is a part of `self` without gaps, in its order: what a delegate takes as it lies.
  bool is_part(const ir::Node& node, ValueId self) const {
    const ir::TensorType& type = graph_[self].type;
    if (!ir::is_contiguous(type)) return false;
    const ir::ViewLayout whole{type.sizes, ir::contiguous_strides_of(type.sizes), 0};
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      const ir::TensorType& made = graph_[node.outputs[k]].type;
      ir::ViewLayout part;
      if (made.dtype != type.dtype || !node.op->def.view(ir::NodeView(graph_, *node.op, node.args), whole, k, &part)) return false;
      if (!ir::is_contiguous({made.dtype, part.sizes, part.strides, {}})) return false;
      // The official format has aliases of fixed sizes only.
      if (options_.profile != emit::Profile::kPteron && !(type.is_static() && made.is_static() && part.offset.is_const())) return false;
    }
    return true;
  }

  Device maker_device(ValueId id) const {
    const NodeId maker = graph_[id].producer;
    return maker.valid() ? device_of(graph_[maker]) : Device();
  }

  /// An input that a delegate of a device reads is a tensor of that device, of the first of them; not one that the program writes.
  void place_inputs() {
    for (uint32_t i = 0; i < graph_.inputs.size(); ++i) {
      const ValueId value = graph_.inputs[i].value;
      const bool mutated = std::ranges::any_of(graph_.input_mutations, [&](const ir::InputMutation& m) { return m.input == i; });
      if (!value.valid() || mutated || graph_[value].kind != ir::ValueKind::kTensor) continue;
      for (const NodeId id : graph_.order) {
        const Device device = device_of(graph_[id]);
        bool reads = false;
        ir::for_each_use(graph_[id], [&](ValueId use) { reads = reads || use == value; });
        if (!reads || device.type == DeviceType::kCpu) continue;
        graph_[value].type.device = device;
        break;
      }
    }
  }

  /// The value, or its copy, in the memory of `device`. Copies stand before the node that needs them first.
  ValueId at(ValueId id, Device device) {
    if (!id.valid() || graph_[id].kind != ir::ValueKind::kTensor || graph_[id].type.device == device) return id;
    const auto key = std::pair(id.index, std::pair(static_cast<int>(device.type), static_cast<int>(device.index)));
    if (const auto found = copies_.find(key); found != copies_.end()) return found->second;
    if (graph_[id].constant.valid() && ir::is_contiguous(graph_[id].type)) {  // lies there from the load on
      const ValueId made = graph_.add_tensor(graph_[id].type, str_cat(graph_[id].name, "_on_device"));
      graph_[made].constant = graph_[id].constant;
      graph_[made].type.device = device;
      copies_.emplace(key, made);
      return made;
    }
    const bool over_host = graph_[id].type.device.type != DeviceType::kCpu && device.type != DeviceType::kCpu;
    const ValueId from = over_host ? at(id, Device()) : id;
    const bool to_device = device.type != DeviceType::kCpu;
    auto op = emit::device_copy_op(*graph_.program, to_device);
    if (!op.ok()) {
      status_ = std::move(op).status();
      return id;
    }
    ir::TensorType type = graph_[from].type;
    type.device = device;
    const ValueId made = graph_.add_tensor(std::move(type), str_cat(graph_[id].name, to_device ? "_on_device" : "_on_host"));
    ir::Node node;
    node.op = *op;
    node.name = graph_[made].name;
    node.args = {ir::Arg(from)};
    node.outputs = {made};
    graph_.order.push_back(graph_.add_node(std::move(node)));
    copies_.emplace(key, made);
    return made;
  }

  const CompileOptions& options_;
  const EdgeProgram& edge_;
  ir::Graph& graph_;
  std::map<std::pair<uint32_t, std::pair<int, int>>, ValueId> copies_;
  std::map<uint32_t, std::vector<Device>> readers_;  // by value
  Status status_;
};

/// Groups that take tensors of their device as well as the host's.
void choose_devices(const CompileOptions& options, EdgeProgram& edge) {
  for (EdgeProgram::Group& group : edge.groups) {
    const Device device = group.compiled.possible_device;
    if (device == Device()) continue;
    const bool is_used = std::ranges::any_of(edge.groups, [&](const EdgeProgram::Group& other) { return other.compiled.io_device == device; });
    if (is_used || options.device_inputs || options.device_outputs) group.compiled.io_device = device;
  }
}

/// The one place of all states that methods share: they lie in one arena.
Device shared_place(const CompileOptions& options, EdgeProgram& edge) {
  Residence all;
  for (const auto& method : edge.program.methods) {
    const std::vector<Residence> residences = DevicePlacer(options, edge, method->graph).residences();
    for (size_t i = 0; i < residences.size(); ++i) {
      if (std::ranges::find(options.shared_states, method->graph.states[i].name) != options.shared_states.end()) all.add(residences[i]);
    }
  }
  return all.place();
}

}  // namespace

namespace {

void forget_devices_in(ir::Graph& graph) {
  for (ir::Value& value : graph.values) value.type.device = {};
  for (ir::Node& node : graph.nodes) {
    for (const auto& region : node.regions) forget_devices_in(*region);
  }
}

}  // namespace

void forget_devices(ir::Program& program) {
  for (const auto& method : program.methods) forget_devices_in(method->graph);
}

Status check_device_name(std::string_view what, std::string_view text) {
  constexpr std::string_view kCuda = "cuda:";
  bool fits = text.size() > kCuda.size() && text.size() <= kCuda.size() + 3;
  fits = fits && to_lower(text.substr(0, kCuda.size())) == kCuda;
  int number = 0;
  for (size_t i = kCuda.size(); fits && i < text.size(); ++i) {
    fits = is_digit(text[i]);
    number = number * 10 + (text[i] - '0');
  }
  return fits && number < 128 ? ok_status() : Status(Code::kInvalidInput, str_cat(what, " is cuda:NUMBER, with a number below 128; found '", text, "'"));
}

std::string device_label(const EdgeProgram::Group& group) {
  const auto spec = std::ranges::find(group.compiled.specs, backends::kDeviceSpec, &format::CompileSpec::key);
  if (spec == group.compiled.specs.end()) return {};
  return to_lower(std::string_view(reinterpret_cast<const char*>(spec->value.data()), spec->value.size()));
}

std::vector<std::string> devices_of(const MethodPartition& part, std::string_view backend) {
  std::vector<std::string> devices;
  for (const GroupReport& group : part.groups) {
    if (group.backend == backend && !group.device.empty() && std::ranges::find(devices, group.device) == devices.end()) devices.push_back(group.device);
  }
  return devices;
}

Status check_devices(const CompileOptions& options, const EdgeProgram& edge) {
  const EdgeProgram::Group* by_default = nullptr;
  for (const EdgeProgram::Group& group : edge.groups) {
    if (!group.device_given && by_default == nullptr && !device_label(group).empty()) by_default = &group;
  }
  const bool has_device = std::ranges::any_of(edge.groups, [](const EdgeProgram::Group& group) { return !device_label(group).empty(); });
  if (!options.device.empty() && !has_device) return Status(Code::kInvalidInput, str_cat("device ", options.device, " is given, and no delegate of the program computes on a device"));
  if (by_default == nullptr) return ok_status();
  for (const EdgeProgram::Group& group : edge.groups) {
    const std::string name = device_label(group), other = device_label(*by_default);
    if (name.empty() || name == other) continue;
    return Status(Code::kInvalidInput, str_cat("delegates on different devices: ", group.backend, " on ", name, ", and ", by_default->backend, ", which was given no device, on ", other,
                                               "; give one to each backend, or one to the program"));
  }
  return ok_status();
}

Status place_on_devices(const CompileOptions& options, EdgeProgram& edge) {
  choose_devices(options, edge);
  const Device shared = shared_place(options, edge);
  for (const auto& method : edge.program.methods) {
    DevicePlacer placer(options, edge, method->graph);
    if (!placer.has_devices() && shared.type == DeviceType::kCpu) continue;
    const std::vector<Residence> residences = placer.residences();
    std::vector<Device> states;
    for (size_t i = 0; i < residences.size(); ++i) {
      const bool is_shared = std::ranges::find(options.shared_states, method->graph.states[i].name) != options.shared_states.end();
      states.push_back(is_shared ? shared : residences[i].place());
    }
    Status status = placer.run(states);
    if (!status.ok()) return std::move(status).with_context(str_cat("method ", method->name));
  }
  return ok_status();
}

}  // namespace pteron::compiler
