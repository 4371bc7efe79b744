// What a program costs the host: loading it, and each execute() of a program whose inputs and outputs stay on the device (compile --device-inputs
// --device-outputs). Usage: call_bench MODEL.pte [METHOD]. Inputs of the device are bound once; calls are queued in rounds of 100, and waited for between them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <variant>
#include <vector>

#include "backends/cuda/runtime/backend.h"
#include "pteron/program.h"

namespace pteron {
namespace {

using Clock = std::chrono::steady_clock;
double us_since(Clock::time_point begin) { return std::chrono::duration<double, std::micro>(Clock::now() - begin).count(); }

/// Zeros for every input, in the memory of its device.
Status bind_inputs(Method& method, std::vector<std::vector<std::byte>>& storage) {
  DeviceAllocator& allocator = *cuda::backend().device_allocator();
  for (size_t i = 0; i < method.input_count(); ++i) {
    const ValueInfo& info = method.info().inputs[i];
    if (info.kind != ValueKind::kTensor) continue;
    std::vector<int64_t> sizes;
    for (const DimInfo& dim : info.dims) sizes.push_back(dim.max);
    TensorView view = make_contiguous_view(info.dtype, sizes, nullptr);
    if (info.device.type == DeviceType::kCuda) {
      Result<void*> memory = allocator.allocate(info.device.index, info.bound_bytes(), 256);
      if (!memory.ok()) return memory.status();
      Status cleared = allocator.fill_zero(info.device.index, *memory, info.bound_bytes());
      if (!cleared.ok()) return cleared;
      view.data = *memory;
      view.device = info.device;
    } else {
      view.data = storage.emplace_back(info.bound_bytes() + 64).data();
    }
    Status set = method.set_input(i, view);
    if (!set.ok()) return set;
  }
  return ok_status();
}

/// Reads the first output, which waits for all that was queued.
Status wait(const Method& method, std::vector<std::byte>& room) {
  const Result<OutputValue> output = method.output(0);
  if (!output.ok()) return output.status();
  const auto* tensor = std::get_if<TensorView>(&*output);
  if (tensor == nullptr) return ok_status();
  room.resize(tensor->size_bytes());
  return method.copy_to_host(*tensor, room.data(), room.size());
}

Status measure(const char* path, const char* wanted) {
  const Clock::time_point begin = Clock::now();
  const auto program = Program::load(path);
  if (!program.ok()) return program.status();
  auto method = (*program)->load_method(wanted != nullptr ? wanted : (*program)->method_names()[0]);
  if (!method.ok()) return method.status();
  std::printf("load %.1f ms\n", us_since(begin) / 1000);
  std::vector<std::vector<std::byte>> storage;
  Status status = bind_inputs(**method, storage);
  std::vector<std::byte> room;
  const Clock::time_point first = Clock::now();
  for (int i = 0; i < 3 && status.ok(); ++i) {
    status = (*method)->execute();
    if (status.ok()) status = wait(**method, room);
    if (i == 0) std::printf("first call %.1f ms\n", us_since(first) / 1000);
  }
  std::vector<double> times;
  for (int round = 0; round < 20 && status.ok(); ++round) {
    for (int call = 0; call < 100 && status.ok(); ++call) {
      const Clock::time_point one = Clock::now();
      status = (*method)->execute();
      times.push_back(us_since(one));
    }
    if (status.ok()) status = wait(**method, room);
  }
  if (!status.ok()) return status;
  std::ranges::sort(times);
  std::printf("execute: median %.2f us, p10 %.2f, p90 %.2f (%zu calls)\n", times[times.size() / 2], times[times.size() / 10], times[times.size() * 9 / 10], times.size());
  return ok_status();
}

}  // namespace
}  // namespace pteron

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: call_bench MODEL.pte [METHOD]\n");
    return 2;
  }
  const pteron::Status status = pteron::measure(argv[1], argc > 2 ? argv[2] : nullptr);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
  return pteron::exit_code(status.code());
}
