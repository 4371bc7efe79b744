// The execution loop: instructions one after another, nothing looked up, nothing allocated, no text made unless something fails.
#include <algorithm>
#include <array>

#include "base/str_cat.h"
#include "runtime/state.h"
#include "runtime/user_op.h"

namespace pteron::runtime {
namespace {

/// Bool, or a bool tensor of which every element is true.
Result<bool> is_true(const Value& condition) {
  if (condition.tag == Tag::kBool || condition.tag == Tag::kInt) return condition.integer != 0;
  if (condition.tag != Tag::kTensor || condition.tensor.dtype() != DType::kBool || !condition.tensor.has_data()) {
    return Status(Code::kInvalidFile, "the condition is neither a bool nor a bool tensor");
  }
  const Tensor& tensor = condition.tensor;
  if (tensor.numel() == 0) return true;
  std::array<int64_t, kMaxRank> index{};
  for (;;) {
    int64_t at = 0;
    for (int d = 0; d < tensor.rank(); ++d) at += index[static_cast<size_t>(d)] * tensor.stride(d);
    if (tensor.as<uint8_t>()[at] == 0) return false;
    int d = tensor.rank() - 1;
    for (; d >= 0; --d) {
      if (++index[static_cast<size_t>(d)] < tensor.size(d)) break;
      index[static_cast<size_t>(d)] = 0;
    }
    if (d < 0) return true;
  }
}

/// Says where an error happened.
Status add_place(const MethodState& method, size_t at, Status status) {
  const Instruction& instruction = method.code[at];
  std::string place = str_cat("method ", method.info.name, ": instruction ", at);
  const int32_t name = method.operator_of[at];
  if (name >= 0) {
    const bool kernel = instruction.kind != Instruction::Kind::kDelegate;
    str_append(place, " (", (kernel ? method.info.operators : method.info.delegates)[static_cast<size_t>(name)], ")");
  }
  return std::move(status).with_context(place);
}

}  // namespace

Status run_instructions(MethodState& method) {
  const Instruction* code = method.code.data();
  const size_t count = method.code.size();
  CallObserver* const observer = method.observer;
  uint64_t budget = method.program->state().options.max_instructions;
  size_t at = 0;
  while (at < count) {
    const Instruction& instruction = code[at];
    if (budget-- == 0) [[unlikely]] {
      return add_place(method, at, Status(Code::kInternal, str_cat("more than ", method.program->state().options.max_instructions,
                                                                  " instructions in one call: an endless loop?")));
    }
    switch (instruction.kind) {
      case Instruction::Kind::kSizedKernel: {
        const size_t needed = instruction.workspace(instruction.args), found = method.context.scratch.size();
        if (needed > found) [[unlikely]] {
          return add_place(method, at, Status(Code::kUnsupported, str_cat("with these numbers the kernel needs ", needed, " bytes of scratch memory, ", found, " were planned at load")));
        }
      }
        [[fallthrough]];
      case Instruction::Kind::kKernel: {
        method.context.state = instruction.state;
        Status status = instruction.fn(method.context, instruction.args);
        if (status.ok() && observer != nullptr) [[unlikely]] status = observer->after(at);
        if (!status.ok()) [[unlikely]] return add_place(method, at, std::move(status));
        break;
      }
      case Instruction::Kind::kUserOp: {
        Status status = run_user_op(*instruction.user_op, instruction.args);
        if (status.ok() && observer != nullptr) [[unlikely]] status = observer->after(at);
        if (!status.ok()) [[unlikely]] return add_place(method, at, std::move(status));
        break;
      }
      case Instruction::Kind::kDelegate: {
        Status status = instruction.delegate->execute(instruction.args);
        if (status.ok() && observer != nullptr) [[unlikely]] status = observer->after(at);
        if (!status.ok()) [[unlikely]] return add_place(method, at, std::move(status));
        break;
      }
      case Instruction::Kind::kDeviceCopy: {
        Status status = run_device_copy(*instruction.copy, instruction.args[0]->tensor, instruction.args.back()->tensor);
        if (status.ok() && observer != nullptr) [[unlikely]] status = observer->after(at);
        if (!status.ok()) [[unlikely]] return add_place(method, at, std::move(status));
        break;
      }
      case Instruction::Kind::kMove:
        *instruction.args[1] = *instruction.args[0];
        break;
      case Instruction::Kind::kJumpFalse: {
        const Result<bool> condition = is_true(*instruction.args[0]);
        if (!condition.ok()) return add_place(method, at, condition.status());
        if (!*condition) {
          at = instruction.target;
          continue;
        }
        break;
      }
      case Instruction::Kind::kFree: break;  // memory is planned or belongs to the method
    }
    ++at;
  }
  return ok_status();
}

}  // namespace pteron::runtime
