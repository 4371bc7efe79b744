// A payload's inputs are bound to the caller's tensors, its outputs are written where the caller wants them; other memory formats are converted.
#include "runtime/program_delegate.h"

#include <algorithm>

#include "base/str_cat.h"
#include "pteron/program.h"
#include "runtime/state.h"

namespace pteron::runtime {
namespace {

bool same_list(std::span<const int64_t> a, std::span<const int64_t> b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

class ProgramDelegate final : public Delegate {
 public:
  ProgramDelegate(std::unique_ptr<Method> method, StateCache& states)
      : method_(std::move(method)), state_(method_->state()), states_(states), bound_(state_.inputs.size(), false) {}

  DelegateMemory memory() const override {
    DelegateMemory found;
    for (const Buffer& buffer : state_.memory) found.own_bytes += buffer.size();
    found.own_bytes += state_.scratch.size();
    found.shared_bytes = states_.memory_bytes();
    return found;
  }

  MethodState* payload() override { return &state_; }

  Status execute(std::span<Value* const> args) override {
    const size_t inputs = state_.inputs.size(), outputs = state_.outputs.size();
    if (args.size() != inputs + outputs) {
      return Status(Code::kInvalidFile, str_cat("the call has ", args.size(), " arguments, the payload ", inputs, " inputs and ", outputs, " outputs"));
    }
    for (size_t i = 0; i < inputs; ++i) {
      if (!bind_again(i, *args[i])) PTERON_TRY(set_input(i, *args[i]));
    }
    for (size_t i = 0; i < outputs; ++i) PTERON_TRY(bind_output(i, *args[inputs + i]));
    PTERON_TRY(method_->execute());
    for (size_t i = 0; i < outputs; ++i) PTERON_TRY(take_output(i, args[inputs + i]->tensor));
    return ok_status();
  }

 private:
  /// The short way for a tensor that looks like the one of an earlier call.
  bool bind_again(size_t index, const Value& value) {
    if (!bound_[index]) return false;
    const TensorView& from = value.tensor.view;
    TensorView& to = state_.inputs[index].value->tensor.view;
    const uintptr_t element = dtype_size(to.dtype);
    const bool alike = value.tag == Tag::kTensor && from.data != nullptr && from.dtype == to.dtype && same_list(from.sizes(), to.sizes()) &&
                       same_list(from.strides(), to.strides()) && reinterpret_cast<uintptr_t>(from.data) % element == 0;
    if (!alike || (state_.inputs[index].lent && value.tensor.read_only)) return false;
    to.data = from.data;
    return true;
  }

  Status set_input(size_t index, const Value& value) {
    const InputSlot& slot = state_.inputs[index];
    switch (value.tag) {
      case Tag::kTensor:
        if (slot.lent && value.tensor.read_only) {
          return Status(Code::kInvalidFile, str_cat("input ", index, " is written by the payload, and may only be read"));
        }
        PTERON_TRY(method_->set_input(index, value.tensor.view));
        bound_[index] = slot.tag == Tag::kTensor && !slot.planned && !slot.written && value.tensor.dtype() != DType::kBool && value.tensor.numel() != 0 &&
                        slot.value->tensor.view.data == value.tensor.view.data && same_list(slot.value->tensor.strides(), value.tensor.strides());
        return ok_status();
      case Tag::kInt: return method_->set_int_input(index, value.integer);
      case Tag::kBool: return method_->set_bool_input(index, value.integer != 0);
      case Tag::kDouble: return method_->set_double_input(index, value.floating);
      default: return Status(Code::kInvalidFile, str_cat("input ", index, " is neither a tensor nor a number"));
    }
  }

  /// Lets the payload write straight into the caller's tensor if both store their dims in the same order.
  Status bind_output(size_t index, const Value& value) {
    const ValueInfo& info = state_.info.outputs[index];
    if (value.tag != Tag::kTensor || info.kind != ValueKind::kTensor || value.tensor.read_only || value.tensor.dtype() != info.dtype ||
        value.tensor.rank() != static_cast<int>(info.dims.size())) {
      return Status(Code::kInvalidFile, str_cat("output ", index, " is not the tensor that the payload makes: ", info.type_text()));
    }
    const Tensor& out = value.tensor;
    OutputSlot& slot = state_.outputs[index];
    const bool same_order = std::equal(info.dim_order.begin(), info.dim_order.end(), out.dim_order.begin());
    const bool bindable = same_order && out.view.data != nullptr && out.capacity_bytes >= slot.bound_bytes;
    slot.caller_data = bindable ? out.view.data : nullptr;
    slot.is_delivered = false;
    return ok_status();
  }

  Status take_output(size_t index, Tensor& out) {
    const OutputSlot& slot = state_.outputs[index];
    const Value& value = *slot.value;
    if (value.tag != Tag::kTensor || !value.tensor.has_data()) return Status(Code::kInvalidFile, str_cat("output ", index, " of the payload is no tensor"));
    const TensorView& made = slot.is_delivered ? slot.delivered : value.tensor.view;
    PTERON_TRY(resize(out, made.sizes()));
    if (made.data == out.view.data || out.numel() == 0) return ok_status();
    if (!out.has_data()) return Status(Code::kInvalidFile, str_cat("output ", index, " has no memory"));
    copy_strided(made, out.view);
    return ok_status();
  }

  std::unique_ptr<Method> method_;
  MethodState& state_;
  StateCache& states_;
  std::vector<bool> bound_;  // inputs that may be bound again without checks of their layout
};

}  // namespace

Result<std::unique_ptr<Delegate>> load_program_delegate(const DelegateLoad& request, const KernelTable& kernels, StateCache& states) {
  LoadOptions options;
  options.pool = &request.pool;
  options.log = request.log;
  options.kernels = &kernels;
  options.outer_data = &request.named_data;
  options.states = &states;
  options.pack_at_load = request.pack_at_load;
  PTERON_ASSIGN(const std::shared_ptr<Program> program, load_program(nullptr, request.payload, "payload", options));
  if (program->method_names().size() != 1) return Status(Code::kInvalidFile, str_cat("the payload has ", program->method_names().size(), " methods, expected 1"));
  PTERON_ASSIGN(std::unique_ptr<Method> method, program->load_method(program->method_names()[0]));
  return std::unique_ptr<Delegate>(std::make_unique<ProgramDelegate>(std::move(method), states));
}

}  // namespace pteron::runtime
