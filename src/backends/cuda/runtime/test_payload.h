// Payloads made by hand and the stand-in for the driver, for the tests of this room.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda/copy_kernel.h"
#include "backends/cuda/module.h"
#include "backends/cuda/payload.h"
#include "backends/cuda/runtime/backend.h"
#include "base/str_cat.h"
#include "format/meta.h"
#include "runtime/test_program.h"

namespace pteron::cuda::testing {

using namespace pteron::runtime::testing;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;
using Floats = std::vector<float>;

/// What the stand-in for the driver tells and does (tests/cuda/emulator/emulator.h). Opening it makes it the driver of this process.
class Emulator {
 public:
  Emulator() : library_(dlopen(PTERON_CUDA_EMULATOR, RTLD_NOW | RTLD_LOCAL)) {
    setenv("PTERON_CUDA_DRIVER", PTERON_CUDA_EMULATOR, 1);
    EXPECT_NE(library_, nullptr) << dlerror();
  }
  void fail(const char* symbol, int nth, int result, bool sticky = false) const { find<void(const char*, int, int, int)>("pteron_emulator_fail")(symbol, nth, result, sticky); }
  /// Work runs only when somebody waits for it.
  void defer(bool on) const { find<void(int)>("pteron_emulator_defer")(on ? 1 : 0); }
  /// What was put on streams since the last call; on: whether it is noted from now on.
  std::string log(bool on) const { return find<const char*(int)>("pteron_emulator_log")(on ? 1 : 0); }
  void fail_nothing() const { fail("", 0, 0); }
  int calls(const char* symbol) const { return find<int(const char*)>("pteron_emulator_calls")(symbol); }
  int live() const { return find<int()>("pteron_emulator_live")(); }
  uint64_t copied(int kind) const { return find<uint64_t(int)>("pteron_emulator_copied")(kind); }
  template <typename F>
  F* find(const char* name) const {
    return reinterpret_cast<F*>(dlsym(library_, name));
  }

 private:
  void* library_;
};

inline const Emulator& emulator() {
  static const Emulator instance;
  return instance;
}

class TestData final : public NamedData {
 public:
  std::optional<std::span<const std::byte>> find(std::string_view key) const override {
    const auto found = bytes.find(std::string(key));
    if (found == bytes.end()) return std::nullopt;
    return std::span<const std::byte>(found->second);
  }
  std::map<std::string, std::vector<std::byte>> bytes;
};

/// The facts of a method whose ports have dims of `n` (0: a symbol up to 8).
inline std::vector<std::byte> facts(std::vector<std::string> inputs, std::vector<std::string> outputs, int mutated) {
  format::ProgramMeta meta;
  format::MethodMeta method;
  method.name = "forward";
  const auto port = [](const std::string& name) {
    format::PortMeta made;
    made.name = name;
    made.dims = {format::DimExpr::constant(8)};
    return made;
  };
  for (const std::string& name : inputs) method.inputs.push_back(port(name));
  for (const std::string& name : outputs) method.outputs.push_back(port(name));
  if (mutated >= 0) method.inputs[static_cast<size_t>(mutated)].mutated = true;
  meta.methods = {method};
  auto bytes = format::write_meta(meta);
  EXPECT_TRUE(bytes.ok());
  return {bytes->span().begin(), bytes->span().end()};
}

inline constexpr std::string_view kTestKernels = R"(
extern "C" __global__ void twice_plus_one(const float* x, float* out, long long n) {
  const long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = 2.0f * x[i] + 1.0f;
}
extern "C" __global__ void add_to(float* state, const float* x, long long n) {
  const long long i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) state[i] += x[i];
}
extern "C" __global__ void sum_all(const float* x, float* out, long long n) {
  __shared__ float parts[32];
  float sum = 0;
  for (long long i = threadIdx.x; i < n; i += blockDim.x) sum += x[i];
  for (int by = 16; by > 0; by /= 2) sum += __shfl_down_sync(0xffffffffu, sum, by);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 1; i < (int)blockDim.x / 32; ++i) sum += parts[i];
    out[0] = sum;
  }
}
extern "C" __global__ void reversed(const float* x, float* out, long long n) {
  extern __shared__ float held[];
  held[threadIdx.x] = threadIdx.x < n ? x[threadIdx.x] : 0.0f;
  __syncthreads();
  if (threadIdx.x < n) out[threadIdx.x] = held[n - 1 - threadIdx.x];
}
)";

/// A loaded payload with everything it borrows.
struct LoadedPayload {
  std::vector<std::byte> payload;
  TestData data;
  std::vector<std::byte> version{std::byte{kVersion}}, key;
  DeviceAllocator* session = nullptr;
  bool may_queue = false;
  ThreadPool* pool = &serial_pool();
  std::unique_ptr<Delegate> delegate;
  Status status;

  Status load() {
    static_cast<void>(emulator());
    std::vector<DelegateSetting> settings = {{kVersionKey, version}, {kModuleKey, key}};
    const DelegateLoad request{payload, settings, "forward", data, *pool, nullptr, may_queue, session};
    Result<std::unique_ptr<Delegate>> made = cuda::backend().load(request);
    if (!made.ok()) return made.status();
    delegate = std::move(made).value();
    return ok_status();
  }
};

inline LoadedPayload with_kernels(PlanBuilder& builder, std::string_view kernels = kTestKernels) {
  LoadedPayload made;
  made.payload = builder.bytes();
  const std::string text = str_cat("#define PTERON_BEGIN() ((void)0)\n", kernels, kCopyKernelText);
  const ModuleEntry entry{ModuleKind::kSource, 0, std::as_bytes(std::span(text))};
  auto container = write_module({&entry, 1});
  EXPECT_TRUE(container.ok());
  const std::string key = str_cat(kModulePrefix, "test");
  made.data.bytes[key] = {container->span().begin(), container->span().end()};
  made.key = {std::as_bytes(std::span(key)).begin(), std::as_bytes(std::span(key)).end()};
  return made;
}

inline int32_t ints(PlanBuilder& b, std::vector<int64_t> items) {
  std::vector<int32_t> values;
  for (const int64_t item : items) values.push_back(b.value(item));
  format::IntListValue list;
  for (const int32_t value : values) list.items.push_back(value);
  return b.value(std::move(list));
}

/// pteron_cuda::launch of `kernel` with one input; `n`: the value that is its size and its only number.
inline void launch(PlanBuilder& b, std::string kernel, int32_t x, int32_t out, int32_t out_size, int32_t n, int64_t threads = 32, int64_t shared = 0) {
  const int32_t inputs = b.value(format::TensorListValue{{x}}), sizes = b.value(format::IntListValue{{out_size}}), values = b.value(format::IntListValue{{n}});
  const int32_t name = b.value(std::move(kernel)), grid = ints(b, {1, 1, 1}), t = b.value(threads), s = b.value(shared), dtype = b.value(int64_t{6});
  b.call("pteron_cuda::launch", "out", {inputs, sizes, values, name, grid, t, s, dtype, out});
}

inline int32_t size_of(PlanBuilder& b, int32_t tensor) {
  const int32_t dim = b.value(int64_t{0}), n = b.value(int64_t{0});
  b.call("aten::sym_size", "int", {tensor, dim, n});
  return n;
}

/// A tensor of floats among the arguments of a call. Owns its bytes unless they are on the device.
struct Argument {
  explicit Argument(Floats data, int64_t bound = 0) : floats(std::move(data)) {
    const auto n = static_cast<int64_t>(floats.size());
    if (bound > n) floats.resize(static_cast<size_t>(bound));
    value.tag = Tag::kTensor;
    Tensor& tensor = value.tensor;
    tensor.view.rank = 1;
    tensor.view.size_array[0] = n;
    tensor.view.stride_array[0] = 1;
    tensor.bound[0] = std::max(bound, n);
    tensor.dynamic = true;
    tensor.view.data = floats.data();
    tensor.capacity_bytes = floats.size() * sizeof(float);
  }
  Floats now() const { return {value.tensor.as<float>(), value.tensor.as<float>() + value.tensor.numel()}; }

  Floats floats;
  Value value;
};

inline Status call(LoadedPayload& loaded, std::vector<Argument*> arguments) {
  std::vector<Value*> values;
  for (Argument* argument : arguments) values.push_back(&argument->value);
  return loaded.delegate->execute(values);
}

/// y = 2 x + 1 of up to eight elements.
inline LoadedPayload affine() {
  PlanBuilder b;
  const int32_t x = b.value(PlanBuilder::tensor({8}, true)), y = b.value(PlanBuilder::tensor({8}, true)), t = b.value(b.planned({8}, true));
  const int32_t n = size_of(b, x);
  launch(b, "twice_plus_one", x, t, n, n);
  launch(b, "reversed", t, y, n, n, 32, 32 * sizeof(float));
  b.plan.inputs = {x};
  b.plan.outputs = {y};
  return with_kernels(b);
}

inline Floats affine_of(Floats x) {
  for (float& v : x) v = 2 * v + 1;
  std::ranges::reverse(x);
  return x;
}

/// state += x, where the caller has it.
inline LoadedPayload adding() {
  PlanBuilder b;
  const int32_t state = b.value(PlanBuilder::tensor({8})), x = b.value(PlanBuilder::tensor({8}));
  const int32_t inputs = b.value(format::TensorListValue{{x}}), values = ints(b, {8}), name = b.value(std::string("add_to")), grid = ints(b, {1, 1, 1});
  const int32_t threads = b.value(int64_t{32}), shared = b.value(int64_t{0});
  b.call("pteron_cuda::update", "out", {state, inputs, values, name, grid, threads, shared, state});
  b.plan.inputs = {state, x};
  b.plan.outputs = {state};
  static const std::vector<std::byte> kFacts = facts({"state", "x"}, {"out"}, 0);
  b.program.blobs = {{format::Payload::borrow(kFacts), 0, 0}};
  b.program.named_data = {{std::string(format::kMetaKey), 0}};
  return with_kernels(b);
}

/// Memory of the stand-in's device, with room in front for addresses that are no multiple of 256.
class OnDevice {
 public:
  explicit OnDevice(size_t bytes) {
    void* context = nullptr;
    emulator().find<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
    emulator().find<int(void*)>("cuCtxPushCurrent_v2")(context);
    EXPECT_EQ(emulator().find<int(uint64_t*, size_t)>("cuMemAlloc_v2")(&address_, bytes), 0);
  }
  ~OnDevice() {
    emulator().find<int(uint64_t)>("cuMemFree_v2")(address_);
    void* context = nullptr;
    emulator().find<int(void**)>("cuCtxPopCurrent_v2")(&context);
    emulator().find<int(int)>("cuDevicePrimaryCtxRelease_v2")(0);
  }
  /// The argument's tensor lies here from now on, with what it had on the host.
  void take(Argument& argument, size_t offset) const {
    auto* const memory = reinterpret_cast<std::byte*>(address_) + offset;
    std::memcpy(memory, argument.value.tensor.view.data, argument.value.tensor.capacity_bytes);
    argument.value.tensor.view.data = memory;
    argument.value.tensor.view.device = {DeviceType::kCuda, 0};
  }

 private:
  uint64_t address_ = 0;
};

}  // namespace pteron::cuda::testing
