// The part of loading that waits for the first call: whatever reads all bytes of the weights. So a program of many gigabytes loads in no time, and
// methods that nobody calls cost nothing.
#include "base/str_cat.h"
#include "runtime/state.h"

namespace pteron::runtime {
namespace {

/// Large constants need not stay in memory twice. Units: bytes.
constexpr uint64_t kWorthReleasing = 64 * 1024;

Status compare_bytes(MethodState& method) {
  std::vector<Status> found(method.late_checks.size());
  const DataMap& data = method.program->state().data;
  method.context.pool->parallel_for(static_cast<int64_t>(found.size()), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) found[i] = data.verify(method.late_checks[i]);
  });
  for (Status& status : found) PTERON_TRY(std::move(status));
  method.late_checks.clear();
  return ok_status();
}

Status prepare(MethodState& method, LateKernel& late) {
  ProgramState& program = method.program->state();
  std::vector<Value*> args;
  for (Value& value : late.values) args.push_back(&value);
  PTERON_ASSIGN(std::shared_ptr<const KernelState> state, late.prepare({program.pool, program.states()}, args));
  method.code[late.instruction].state = state.get();
  if (state == nullptr) return ok_status();
  method.kernel_states.push_back(std::move(state));
  release_constants(program, args);
  return ok_status();
}

}  // namespace

void release_constants(const ProgramState& program, std::span<Value* const> args) {
  for (const Value* arg : args) {
    if (arg->tag != Tag::kTensor || !arg->tensor.read_only || arg->tensor.view.data == nullptr || arg->tensor.capacity_bytes < kWorthReleasing) continue;
    program.data.release({arg->tensor.as<const std::byte>(), arg->tensor.view.size_bytes()});
  }
}

Status finish_loading(MethodState& method) {
  PTERON_TRY(compare_bytes(method));
  for (auto late = method.late_kernels.begin(); late != method.late_kernels.end(); ++late) {
    Status status = prepare(method, *late);
    if (status.ok()) continue;
    const size_t instruction = late->instruction;
    const int32_t name = method.operator_of[instruction];
    method.late_kernels.erase(method.late_kernels.begin(), late);
    return std::move(status).with_context(str_cat("method ", method.info.name, ": instruction ", instruction,
                                                  name >= 0 ? str_cat(" (", method.info.operators[static_cast<size_t>(name)], ")") : std::string()));
  }
  method.late_kernels.clear();
  return ok_status();
}

}  // namespace pteron::runtime
