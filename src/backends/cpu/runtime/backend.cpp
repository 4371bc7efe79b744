// Loads payloads as programs and runs them on the caller's tensors.
#include "backends/cpu/runtime/backend.h"

#include <algorithm>
#include <vector>

#include "backends/cpu/payload.h"
#include "backends/cpu/runtime/kernels.h"
#include "base/str_cat.h"
#include "ops/copy.h"
#include "ops/kernels.h"
#include "pteron/program.h"
#include "runtime/state.h"

namespace pteron::cpu {
namespace {

using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

runtime::KernelTable make_table() {
  runtime::KernelTable table = ops::portable_kernels();
  table.add(linear_kernels());
  table.add(conv_kernels());
  table.add(attention_kernels());
  table.add(norm_kernels());
  table.add(pointwise_kernels());
  table.add(recurrent_kernels());
  return table;
}

class CpuDelegate final : public Delegate {
 public:
  CpuDelegate(std::unique_ptr<Method> method, ThreadPool& pool) : method_(std::move(method)) { context_.pool = &pool; }

  Status execute(std::span<Value* const> args) override {
    const size_t inputs = method_->input_count(), outputs = method_->output_count();
    if (args.size() != inputs + outputs) {
      return Status(Code::kInvalidFile, str_cat("the call has ", args.size(), " arguments, the payload ", inputs, " inputs and ", outputs, " outputs"));
    }
    for (size_t i = 0; i < inputs; ++i) PTERON_TRY(set_input(i, *args[i]));
    for (size_t i = 0; i < outputs; ++i) PTERON_TRY(bind_output(i, *args[inputs + i]));
    PTERON_TRY(method_->execute());
    for (size_t i = 0; i < outputs; ++i) PTERON_TRY(take_output(i, args[inputs + i]->tensor));
    return ok_status();
  }

 private:
  Status set_input(size_t index, const Value& value) {
    switch (value.tag) {
      case Tag::kTensor: return method_->set_input(index, value.tensor.view);
      case Tag::kInt: return method_->set_int_input(index, value.integer);
      case Tag::kBool: return method_->set_bool_input(index, value.integer != 0);
      case Tag::kDouble: return method_->set_double_input(index, value.floating);
      default: return Status(Code::kInvalidFile, str_cat("input ", index, " is neither a tensor nor a number"));
    }
  }

  /// Lets the payload write straight into the caller's tensor if both store their dims in the same order.
  Status bind_output(size_t index, const Value& value) {
    const ValueInfo& info = method_->info().outputs[index];
    if (value.tag != Tag::kTensor || info.kind != ValueKind::kTensor || value.tensor.read_only || value.tensor.dtype() != info.dtype ||
        value.tensor.rank() != static_cast<int>(info.dims.size())) {
      return Status(Code::kInvalidFile, str_cat("output ", index, " is not the tensor that the payload makes: ", info.type_text()));
    }
    const Tensor& out = value.tensor;
    const bool same_order = std::equal(info.dim_order.begin(), info.dim_order.end(), out.dim_order.begin());
    const bool bindable = same_order && out.view.data != nullptr && out.capacity_bytes >= info.bound_bytes();
    return method_->set_output_data_ptr(index, bindable ? out.view.data : nullptr, bindable ? out.capacity_bytes : 0);
  }

  Status take_output(size_t index, Tensor& out) {
    PTERON_ASSIGN(const OutputValue value, method_->output(index));
    const auto* made = std::get_if<TensorView>(&value);
    if (made == nullptr) return Status(Code::kInvalidFile, str_cat("output ", index, " of the payload is no tensor"));
    PTERON_TRY(resize(out, made->sizes()));
    if (made->data == out.view.data || out.numel() == 0) return ok_status();
    if (!out.has_data()) return Status(Code::kInvalidFile, str_cat("output ", index, " has no memory"));
    return ops::copy_tensor(context_, *made, out.view);
  }

  std::unique_ptr<Method> method_;
  runtime::KernelContext context_;
};

class CpuBackend final : public DelegateBackend {
 public:
  CpuBackend() : kernels_(make_table()) {}
  std::string_view id() const override { return kBackendId; }

  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override {
    const auto version = std::ranges::find(request.settings, kVersionKey, &DelegateSetting::key);
    if (version == request.settings.end() || version->value.size() != 1) return Status(Code::kInvalidFile, "the payload does not say its version");
    if (version->value[0] != std::byte{kVersion}) {
      return Status(Code::kIncompatible, str_cat("the payload has version ", static_cast<int>(version->value[0]), ", this engine runs version ", int{kVersion},
                                                 "; compile the model anew"));
    }
    LoadOptions options;
    options.pool = &request.pool;
    options.log = request.log;
    options.kernels = &kernels_;
    options.outer_data = &request.named_data;
    options.states = &states_;
    PTERON_ASSIGN(const std::shared_ptr<Program> program, runtime::load_program(nullptr, request.payload, "payload", options));
    if (program->method_names().size() != 1) return Status(Code::kInvalidFile, str_cat("the payload has ", program->method_names().size(), " methods, expected 1"));
    PTERON_ASSIGN(std::unique_ptr<Method> method, program->load_method(program->method_names()[0]));
    return std::unique_ptr<Delegate>(std::make_unique<CpuDelegate>(std::move(method), request.pool));
  }

 private:
  runtime::KernelTable kernels_;
  mutable runtime::StateCache states_;
};

}  // namespace

const DelegateBackend& backend() {
  static const CpuBackend instance;
  return instance;
}

}  // namespace pteron::cpu
