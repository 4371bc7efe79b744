// pteron_cuda::launch and pteron_cuda::update: one call of a generated kernel. Arguments of the kernel: the addresses of the inputs and the out (of an
// update: of the out, which has the old value, and the inputs), then the values.
#include <algorithm>
#include <array>
#include <limits>

#include "backends/cuda/payload.h"
#include "backends/cuda/runtime/copies.h"
#include "backends/cuda/runtime/kernels.h"
#include "backends/cuda/runtime/session.h"
#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

/// Largest sizes of a grid; CUDA C++ Programming Guide, compute capabilities.
constexpr int64_t kMaxGridX = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxGridYZ = 65535;
constexpr int64_t kMaxThreads = 1024;

struct Launch final : KernelState {
  Function function = nullptr;
};

/// Where a form of the operator has its arguments.
struct Form {
  size_t self, inputs, sizes, values, kernel, grid, threads, shared, out, count;
};
constexpr size_t kNone = SIZE_MAX;
constexpr Form kLaunch{.self = kNone, .inputs = 0, .sizes = 1, .values = 2, .kernel = 3, .grid = 4, .threads = 5, .shared = 6, .out = 8, .count = 9};
constexpr Form kUpdate{.self = 0, .inputs = 1, .sizes = kNone, .values = 2, .kernel = 3, .grid = 4, .threads = 5, .shared = 6, .out = 7, .count = 8};

bool are_ints(const Value& list, size_t most) {
  return list.tag == Tag::kIntList && list.items.size() <= most && std::ranges::all_of(list.items, [](const Value* item) { return item->tag == Tag::kInt; });
}

/// Kinds of the arguments; they stay during the life of a method.
Status check_kinds(const Form& form, std::span<Value* const> args) {
  if (args.size() < form.count) return runtime::bad_argument(args.size());
  constexpr auto kMost = static_cast<size_t>(kMaxLaunchArguments);
  if (form.self != kNone && args[form.self]->tag != Tag::kTensor) return runtime::bad_argument(form.self);
  const Value& inputs = *args[form.inputs];
  if (inputs.tag != Tag::kTensorList || inputs.items.size() > kMost) return runtime::bad_argument(form.inputs);
  if (!std::ranges::all_of(inputs.items, [](const Value* item) { return item->tag == Tag::kTensor; })) return runtime::bad_argument(form.inputs);
  if (form.sizes != kNone && !are_ints(*args[form.sizes], kMaxRank)) return runtime::bad_argument(form.sizes);
  if (!are_ints(*args[form.values], kMost)) return runtime::bad_argument(form.values);
  if (args[form.kernel]->tag != Tag::kString) return runtime::bad_argument(form.kernel);
  if (!are_ints(*args[form.grid], 3) || args[form.grid]->items.size() != 3) return runtime::bad_argument(form.grid);
  if (args[form.threads]->tag != Tag::kInt || args[form.threads]->integer < 1 || args[form.threads]->integer > kMaxThreads) return runtime::bad_argument(form.threads);
  if (args[form.shared]->tag != Tag::kInt || args[form.shared]->integer < 0) return runtime::bad_argument(form.shared);
  if (args[form.out]->tag != Tag::kTensor) return runtime::bad_argument(form.out);
  return ok_status();
}

template <const Form& form>
Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  auto made = std::make_shared<Launch>();
  PTERON_ASSIGN(made->function, session_of(load).function(args[form.kernel]->string, args[form.shared]->integer));
  return std::shared_ptr<const KernelState>(std::move(made));
}

/// The old value to where the new one is made, if the two are not one tensor.
Status bring_self(Session& session, const Tensor& self, const Tensor& out) {
  if (self.view.data == out.view.data || out.numel() == 0) return ok_status();
  return copy_tensor(session, self.view, out.view);
}

template <const Form& form>
Status call(KernelContext& context, std::span<Value* const> args) {
  if (context.check_only) [[unlikely]] return check_kinds(form, args);
  Session& session = session_of(context);
  Tensor& out = args[form.out]->tensor;
  if (form.sizes != kNone) {
    Sizes sizes;
    for (const Value* item : args[form.sizes]->items) sizes.push_back(item->integer);
    PTERON_TRY(runtime::resize(out, sizes));
  } else {
    PTERON_TRY(runtime::resize(out, args[form.self]->tensor.sizes()));
  }
  if (!out.has_data() || out.read_only) return runtime::argument_not_ready(form.out);
  if (form.self != kNone) PTERON_TRY(bring_self(session, args[form.self]->tensor, out));
  std::array<uint64_t, 2 * kMaxLaunchArguments + 1> params;
  size_t count = 0;
  if (form.self != kNone) params[count++] = reinterpret_cast<uint64_t>(out.view.data);
  for (const Value* item : args[form.inputs]->items) {
    if (!item->tensor.has_data()) return runtime::argument_not_ready(form.inputs);
    params[count++] = reinterpret_cast<uint64_t>(item->tensor.view.data);
  }
  if (form.self == kNone) params[count++] = reinterpret_cast<uint64_t>(out.view.data);
  for (const Value* item : args[form.values]->items) params[count++] = static_cast<uint64_t>(item->integer);
  const std::span<Value* const> grid = args[form.grid]->items;
  const int64_t x = grid[0]->integer, y = grid[1]->integer, z = grid[2]->integer;
  if (x < 0 || y < 0 || z < 0 || x > kMaxGridX || y > kMaxGridYZ || z > kMaxGridYZ) {
    return Status(Code::kInvalidFile, str_cat("kernel ", args[form.kernel]->string, ": a grid of ", x, " x ", y, " x ", z, " blocks is none that a device takes"));
  }
  if (x == 0 || y == 0 || z == 0) return ok_status();
  const auto* state = static_cast<const Launch*>(context.state);
  Status status = session.launch(state->function, {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)}, static_cast<unsigned>(args[form.threads]->integer),
                                 static_cast<unsigned>(args[form.shared]->integer), {params.data(), count});
  if (!status.ok()) [[unlikely]] return std::move(status).with_context(str_cat("kernel ", args[form.kernel]->string));
  return ok_status();
}

constexpr runtime::Kernel kRows[] = {
    {"pteron_cuda::launch.out", call<kLaunch>, nullptr, prepare<kLaunch>},
    {"pteron_cuda::update.out", call<kUpdate>, nullptr, prepare<kUpdate>},
};

}  // namespace

std::span<const runtime::Kernel> launch_kernels() { return kRows; }

}  // namespace pteron::cuda
