// The data of the page: instructions with what they read and write, values, and planned buffers with their lives. Payloads that are programs are
// methods of their own on the page.
#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/str_cat.h"
#include "cli/inspect.h"
#include "cli/inspect_page.h"
#include "format/meta.h"
#include "format/program.h"
#include "runtime/device_memory.h"
#include "tensor/dtype.h"

namespace pteron::cli {

namespace {

using format::TensorSpec;

std::string type_of(const format::ValueSpec& value) {
  if (const auto* tensor = std::get_if<TensorSpec>(&value))
    return str_cat(dtype_name(tensor->dtype), str_list(tensor->sizes), tensor->dynamism == format::Dynamism::kStatic ? "" : " at most");
  if (const auto* number = std::get_if<int64_t>(&value)) return str_cat("int ", *number);
  if (const auto* truth = std::get_if<bool>(&value)) return str_cat("bool ", *truth);
  if (const auto* real = std::get_if<double>(&value)) return str_cat("float ", *real);
  if (const auto* text = std::get_if<std::string>(&value)) return str_cat("text ", text->substr(0, 40));
  return std::holds_alternative<format::NullValue>(value) ? "none" : "list";
}

uint64_t bytes_of(const TensorSpec& tensor) {
  uint64_t bytes = dtype_size(tensor.dtype);
  for (const int64_t size : tensor.sizes) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

/// One method on the page.
class MethodPage {
 public:
  MethodPage(const format::PlanSpec& plan, const format::MethodMeta* meta) : plan_(plan), meta_(meta) {
    for (const int32_t input : plan.inputs) written_.insert(input);
    for (size_t i = 0; i < plan.values.size(); ++i) {
      const auto* tensor = std::get_if<TensorSpec>(&plan.values[i]);
      if (tensor == nullptr || tensor->data_index > 0 || !tensor->external_name.empty()) written_.insert(static_cast<int32_t>(i));
    }
    for (size_t i = 0; i < plan.instructions.size(); ++i) read_instruction(i);
  }

  /// inside: position of each delegate's payload among the methods of the page.
  void write(JsonWriter& json, const std::string& name, const std::map<int32_t, size_t>& inside) const {
    json.begin_object();
    json.field("name", name);
    indices(json, "inputs", plan_.inputs);
    indices(json, "outputs", plan_.outputs);
    indices(json, "outputs_from", sources_of(plan_.outputs));
    json.key("steps");
    json.begin_array();
    for (size_t i = 0; i < steps_.size(); ++i) write_step(json, i, inside);
    json.end_array();
    json.key("values");
    json.begin_array();
    for (size_t i = 0; i < plan_.values.size(); ++i) write_value(json, static_cast<int32_t>(i));
    json.end_array();
    json.key("arenas");
    json.begin_array();
    for (const format::ArenaSpec& arena : plan_.arenas) json.integer(arena.size_bytes);
    json.end_array();
    json.key("arena_devices");
    json.begin_array();
    for (const format::ArenaSpec& arena : plan_.arenas) json.string(runtime::device_text(arena.device));
    json.end_array();
    write_buffers(json);
    json.end_object();
  }

 private:
  struct Step {
    std::string op;
    std::vector<int32_t> ins, outs;
    int32_t delegate = -1;
    std::vector<int32_t> from = {};  ///< for each of ins the value that was written: itself, or one whose memory it is a view of
  };

  static void indices(JsonWriter& json, std::string_view key, const std::vector<int32_t>& list) {
    json.key(key);
    json.begin_array();
    for (const int32_t index : list) json.integer(index);
    json.end_array();
  }

  /// Tensors and run-time numbers of an argument, lists taken apart.
  void flatten(int32_t value, std::vector<int32_t>& out) const {
    const format::ValueSpec& spec = plan_.values[static_cast<size_t>(value)];
    const std::vector<int32_t>* items = nullptr;
    if (const auto* list = std::get_if<format::TensorListValue>(&spec)) items = &list->items;
    if (const auto* list = std::get_if<format::OptionalTensorListValue>(&spec)) items = &list->items;
    if (items == nullptr) return out.push_back(value);
    for (const int32_t item : *items) {
      if (item >= 0) out.push_back(item);
    }
  }

  void read_instruction(size_t index) {
    Step step;
    const format::InstructionSpec& instruction = plan_.instructions[index];
    if (const auto* call = std::get_if<format::KernelCall>(&instruction)) {
      const format::OperatorSpec& op = plan_.operators[static_cast<size_t>(call->op_index)];
      step.op = op.overload.empty() ? op.name : str_cat(op.name, ".", op.overload);
      // The results stand last, and once more as out arguments.
      if (!call->args.empty()) flatten(call->args.back(), step.outs);
      for (const int32_t arg : operands_of(*call, step.outs)) add_input(arg, step);
    } else if (const auto* delegate = std::get_if<format::DelegateCall>(&instruction)) {
      step.delegate = delegate->delegate_index;
      step.op = str_cat("delegate ", plan_.delegates[static_cast<size_t>(delegate->delegate_index)].id);
      read_delegate(*delegate, step);
    } else if (const auto* move = std::get_if<format::MoveCall>(&instruction)) {
      step = {"move", {move->from}, {move->to}, -1};
    } else if (const auto* jump = std::get_if<format::JumpFalseCall>(&instruction)) {
      step = {str_cat("jump to ", jump->destination, " if false"), {jump->condition}, {}, -1};
    } else {
      step = {"free", {std::get<format::FreeCall>(instruction).value}, {}, -1};
    }
    for (const auto* list : {&step.ins, &step.outs}) {
      for (const int32_t value : *list) use(value, static_cast<uint32_t>(index) + 1);
    }
    step.from = sources_of(step.ins);
    for (const int32_t value : step.outs) {
      written_.insert(value);
      writes_.push_back(value);
    }
    steps_.push_back(std::move(step));
  }

  /// The arguments without the results at the end; an operand that is computed in place stays.
  static std::span<const int32_t> operands_of(const format::KernelCall& call, const std::vector<int32_t>& outs) {
    std::span<const int32_t> args = call.args;
    if (args.empty()) return args;
    args = args.first(args.size() - 1);
    const bool has_outs = args.size() >= outs.size() && std::ranges::equal(args.last(outs.size()), outs);
    return has_outs ? args.first(args.size() - outs.size()) : args;
  }

  void add_input(int32_t arg, Step& step) const {
    std::vector<int32_t> parts;
    flatten(arg, parts);
    for (const int32_t part : parts) {
      const bool is_tensor = std::holds_alternative<TensorSpec>(plan_.values[static_cast<size_t>(part)]);
      if (is_tensor && std::ranges::find(step.ins, part) == step.ins.end()) step.ins.push_back(part);
    }
  }

  /// Inputs come first; a tensor that nothing has written yet, or that stands there again, is a result.
  void read_delegate(const format::DelegateCall& call, Step& step) const {
    for (const int32_t arg : call.args) {
      std::vector<int32_t> parts;
      flatten(arg, parts);
      for (const int32_t part : parts) {
        const bool again = std::ranges::find(step.ins, part) != step.ins.end();
        (again || !written_.contains(part) ? step.outs : step.ins).push_back(part);
      }
    }
  }

  /// Views need no instruction: what they show was written as the value last written to their memory.
  std::vector<int32_t> sources_of(const std::vector<int32_t>& values) const {
    std::vector<int32_t> out;
    for (const int32_t value : values) out.push_back(written_.contains(value) ? value : source_of(value));
    return out;
  }

  int32_t source_of(int32_t value) const {
    const auto* view = std::get_if<TensorSpec>(&plan_.values[static_cast<size_t>(value)]);
    if (view == nullptr || !view->allocation.has_value()) return value;
    const auto meets = [&](int32_t other) {
      const auto* tensor = std::get_if<TensorSpec>(&plan_.values[static_cast<size_t>(other)]);
      if (tensor == nullptr || !tensor->allocation.has_value() || tensor->allocation->memory_id != view->allocation->memory_id) return false;
      return tensor->allocation->offset < view->allocation->offset + bytes_of(*view) &&
             view->allocation->offset < tensor->allocation->offset + bytes_of(*tensor);
    };
    const auto last = std::find_if(writes_.rbegin(), writes_.rend(), meets);
    if (last != writes_.rend()) return *last;
    const auto input = std::ranges::find_if(plan_.inputs, meets);
    if (input != plan_.inputs.end()) return *input;
    for (size_t i = 0; i < plan_.values.size(); ++i) {
      const auto other = static_cast<int32_t>(i);
      if (std::holds_alternative<TensorSpec>(plan_.values[i]) && is_state(other) && meets(other)) return other;
    }
    return value;
  }

  void use(int32_t value, uint32_t step) {
    const auto [found, is_new] = lives_.try_emplace(value, step, step);
    if (!is_new) found->second.second = step;
  }

  void write_step(JsonWriter& json, size_t index, const std::map<int32_t, size_t>& inside) const {
    const Step& step = steps_[index];
    json.begin_object();
    json.field("op", step.op);
    indices(json, "ins", step.ins);
    indices(json, "from", step.from);
    indices(json, "outs", step.outs);
    if (const auto found = inside.find(step.delegate); step.delegate >= 0 && found != inside.end()) json.field("inside", static_cast<uint64_t>(found->second));
    const format::SourceLineMeta* line = nullptr;  // of the node that the instruction is a part of
    for (size_t i = 0; meta_ != nullptr && i < meta_->source_lines.size() && meta_->source_lines[i].instruction <= static_cast<int32_t>(index); ++i)
      line = &meta_->source_lines[i];
    if (line != nullptr && !line->location.empty()) json.field("source", line->location);
    if (line != nullptr && !line->module_path.empty()) json.field("module", line->module_path);
    json.end_object();
  }

  std::string name_of(int32_t value) const {
    for (const auto& [list, ports] :
         {std::pair{&plan_.inputs, meta_ == nullptr ? nullptr : &meta_->inputs}, std::pair{&plan_.outputs, meta_ == nullptr ? nullptr : &meta_->outputs}}) {
      const auto found = std::ranges::find(*list, value);
      const auto position = static_cast<size_t>(found - list->begin());
      if (found != list->end() && ports != nullptr && position < ports->size()) return (*ports)[position].name;
    }
    const auto* tensor = std::get_if<TensorSpec>(&plan_.values[static_cast<size_t>(value)]);
    return tensor == nullptr ? std::string() : tensor->external_name.empty() ? tensor->buffer_name : tensor->external_name;
  }

  std::string_view role_of(int32_t value) const {
    const auto* tensor = std::get_if<TensorSpec>(&plan_.values[static_cast<size_t>(value)]);
    if (tensor == nullptr) return "number";
    if (std::ranges::find(plan_.inputs, value) != plan_.inputs.end()) return "input";
    if (is_state(value)) return "state";
    if (!tensor->external_name.empty()) return "weight in a data file";
    if (tensor->data_index > 0) return "constant";
    return std::ranges::find(plan_.outputs, value) != plan_.outputs.end() ? "output" : "tensor";
  }

  bool is_state(int32_t value) const {
    const auto& tensor = std::get<TensorSpec>(plan_.values[static_cast<size_t>(value)]);
    const bool named =
        meta_ != nullptr && std::ranges::find(meta_->mutable_buffers, value, &format::MutableBufferMeta::value_index) != meta_->mutable_buffers.end();
    return named || (tensor.allocation.has_value() && tensor.data_index > 0);
  }

  void write_value(JsonWriter& json, int32_t value) const {
    json.begin_object();
    json.field("type", type_of(plan_.values[static_cast<size_t>(value)]));
    json.field("role", role_of(value));
    if (const std::string name = name_of(value); !name.empty()) json.field("name", name);
    json.end_object();
  }

  void write_buffers(JsonWriter& json) const {
    json.key("buffers");
    json.begin_array();
    const auto end = static_cast<uint32_t>(steps_.size()) + 1;
    for (const auto& [value, life] : lives_) {
      const auto* tensor = std::get_if<TensorSpec>(&plan_.values[static_cast<size_t>(value)]);
      if (tensor == nullptr || !tensor->allocation.has_value()) continue;
      const bool before = std::ranges::find(plan_.inputs, value) != plan_.inputs.end() || is_state(value);
      const bool after = std::ranges::find(plan_.outputs, value) != plan_.outputs.end() || is_state(value);
      json.begin_object();
      json.field("value", value);
      json.field("arena", tensor->allocation->memory_id - 1);
      json.field("offset", tensor->allocation->offset);
      json.field("bytes", bytes_of(*tensor));
      json.field("first", before ? 0u : life.first);
      json.field("last", after ? end : life.second);
      json.end_object();
    }
    json.end_array();
  }

  const format::PlanSpec& plan_;
  const format::MethodMeta* meta_;
  std::vector<Step> steps_;
  std::set<int32_t> written_;                               ///< so far, or there from the beginning
  std::vector<int32_t> writes_;                             ///< by instructions, in order
  std::map<int32_t, std::pair<uint32_t, uint32_t>> lives_;  ///< first and last step
};

/// The methods of a program and of its payloads.
class ProgramPages {
 public:
  /// prefix: what the names of its methods begin with.
  Status add(const format::ProgramView& view, const std::string& prefix) {
    PTERON_ASSIGN(const format::ProgramSpec program, format::read_program(view));
    format::ProgramMeta meta;
    if (const auto facts = view.named_data(format::kMetaKey); facts.has_value()) {
      PTERON_ASSIGN(meta, format::read_meta(*facts));
    }
    const size_t first = texts_.size();
    texts_.resize(first + program.plans.size());
    for (size_t i = 0; i < program.plans.size(); ++i) {
      const format::PlanSpec& plan = program.plans[i];
      std::map<int32_t, size_t> inside;
      for (size_t d = 0; d < plan.delegates.size() && prefix.empty(); ++d) {
        const auto payload = format::verify_program(view.delegate_payload(*view.plan(static_cast<uint32_t>(i)).delegates()->Get(static_cast<uint32_t>(d))));
        if (!payload.ok()) continue;  // another backend's
        inside[static_cast<int32_t>(d)] = texts_.size();
        PTERON_TRY(add(*payload, str_cat(plan.name, " / delegate ", d, " / ")));
      }
      JsonWriter json;
      MethodPage(plan, meta.find(plan.name)).write(json, str_cat(prefix, plan.name), inside);
      texts_[first + i] = json.text();
    }
    return ok_status();
  }

  std::string json(std::string_view file) const {
    JsonWriter json;
    json.begin_object();
    json.field("file", file);
    json.key("methods");
    json.begin_array();
    for (const std::string& text : texts_) json.raw(text);
    json.end_array();
    json.end_object();
    return json.text();
  }

 private:
  std::vector<std::string> texts_;
};

}  // namespace

Result<std::string> inspect_html(std::string_view file, const format::ProgramView& view) {
  ProgramPages pages;
  PTERON_TRY(pages.add(view, {}));
  std::string out(kPageHead);
  for (const char c : pages.json(file)) {  // no text of the program ends the script
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  out += kPageTail;
  return out;
}

}  // namespace pteron::cli
