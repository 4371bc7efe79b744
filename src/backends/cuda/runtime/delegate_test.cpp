// Calls of payloads on a stand-in for the driver: staging, recorded calls, updates in place, failures of every step.
#include <algorithm>
#include <array>

#include "backends/cuda/runtime/test_payload.h"

namespace pteron::cuda::testing {
namespace {

TEST(CudaDelegate, RunsRecordsAndReplays) {
  emulator().fail_nothing();
  LoadedPayload loaded = affine();
  EXPECT_OK(loaded.load());
  ASSERT_NE(loaded.delegate, nullptr);
  const int before = emulator().calls("cuGraphInstantiateWithFlags");
  int graphs = 0;
  for (const size_t n : {3u, 3u, 3u, 5u, 3u, 5u, 5u, 3u, 8u}) {
    Floats data(n);
    for (size_t i = 0; i < n; ++i) data[i] = static_cast<float>(i) + static_cast<float>(graphs++);
    Argument x(data, 8), y(Floats(1), 8);
    EXPECT_OK(call(loaded, {&x, &y}));
    EXPECT_EQ(y.now(), affine_of(data));
  }
  // Memory grew with the first calls of five and eight elements: what was recorded before is forgotten. Sizes that came twice since are recorded.
  EXPECT_EQ(emulator().calls("cuGraphInstantiateWithFlags") - before, 3);
}

TEST(CudaDelegate, ReplaysWithoutLaunches) {
  LoadedPayload loaded = affine();
  EXPECT_OK(loaded.load());
  Argument x({1, 2, 3}, 8), y(Floats(3), 8);
  for (int i = 0; i < 2; ++i) EXPECT_OK(call(loaded, {&x, &y}));
  const int launches = emulator().calls("cuLaunchKernel");
  const uint64_t to = emulator().copied(0), back = emulator().copied(1), on = emulator().copied(2);
  x.floats = {4, 5, 6, 0, 0, 0, 0, 0};
  std::copy(x.floats.begin(), x.floats.end(), x.value.tensor.as<float>());
  EXPECT_OK(call(loaded, {&x, &y}));
  EXPECT_EQ(y.now(), (Floats{13, 11, 9}));
  EXPECT_EQ(emulator().calls("cuLaunchKernel"), launches);
  EXPECT_EQ(emulator().copied(0) - to, 12u);
  EXPECT_EQ(emulator().copied(1) - back, 12u);
  EXPECT_EQ(emulator().copied(2) - on, 0u);
}

TEST(CudaDelegate, ThreadsOfABlockWaitForEachOther) {
  PlanBuilder b;
  const int32_t x = b.value(PlanBuilder::tensor({300})), y = b.value(PlanBuilder::tensor({1})), one = b.value(int64_t{1}), n = b.value(int64_t{300});
  launch(b, "sum_all", x, y, one, n, 128);
  b.plan.inputs = {x};
  b.plan.outputs = {y};
  LoadedPayload loaded = with_kernels(b);
  EXPECT_OK(loaded.load());
  Argument in(Floats(300, 0.5f)), out(Floats(1));
  EXPECT_OK(call(loaded, {&in, &out}));
  EXPECT_EQ(out.now(), (Floats{150}));
}

TEST(CudaDelegate, UpdatesABufferOfTheHost) {
  LoadedPayload loaded = adding();
  EXPECT_OK(loaded.load());
  Argument state(Floats(8, 1)), x({1, 2, 3, 4, 5, 6, 7, 8});
  for (int i = 0; i < 4; ++i) EXPECT_OK(call(loaded, {&state, &x, &state}));
  EXPECT_EQ(state.now(), (Floats{5, 9, 13, 17, 21, 25, 29, 33}));
}

TEST(CudaDelegate, BindsTensorsOfTheDevice) {
  LoadedPayload loaded = affine();
  EXPECT_OK(loaded.load());
  const OnDevice memory(4096);
  Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8));
  memory.take(x, 0);
  memory.take(y, 1024);
  const uint64_t copied = emulator().copied(0) + emulator().copied(1) + emulator().copied(2);
  for (int i = 0; i < 3; ++i) EXPECT_OK(call(loaded, {&x, &y}));
  EXPECT_EQ(y.now(), affine_of({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(emulator().copied(0) + emulator().copied(1) + emulator().copied(2), copied);
}

TEST(CudaDelegate, CopiesWhatLiesOffTheBoundary) {
  LoadedPayload loaded = affine();
  EXPECT_OK(loaded.load());
  const OnDevice memory(4096);
  for (const auto& [at_x, at_y, copies] : {std::array<size_t, 3>{4, 1024, 1}, {0, 1028, 1}, {8, 1036, 2}}) {
    Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8));
    memory.take(x, at_x);
    memory.take(y, at_y);
    for (int i = 0; i < 3; ++i) {
      std::fill_n(y.value.tensor.as<float>(), 8, 0.0f);
      const uint64_t before = emulator().copied(2);
      EXPECT_OK(call(loaded, {&x, &y}));
      EXPECT_EQ(y.now(), affine_of({1, 2, 3, 4, 5, 6, 7, 8}));
      EXPECT_EQ(emulator().copied(2) - before, copies * 32);
    }
  }
}

TEST(CudaDelegate, UpdatesOffTheBoundaryAreTwoCopies) {
  LoadedPayload loaded = adding();
  EXPECT_OK(loaded.load());
  const OnDevice memory(4096);
  Argument state(Floats(8, 1)), x({1, 2, 3, 4, 5, 6, 7, 8});
  memory.take(state, 4);
  memory.take(x, 1024);
  for (int i = 0; i < 4; ++i) {
    const uint64_t before = emulator().copied(2);
    EXPECT_OK(call(loaded, {&state, &x, &state}));
    EXPECT_EQ(emulator().copied(2) - before, 64u);
  }
  EXPECT_EQ(state.now(), (Floats{5, 9, 13, 17, 21, 25, 29, 33}));
}

TEST(CudaDelegate, RefusesTensorsOfAnotherDevice) {
  LoadedPayload loaded = affine();
  EXPECT_OK(loaded.load());
  const OnDevice memory(4096);
  Argument x({1, 2}, 8), y(Floats(2), 8);
  memory.take(x, 0);
  x.value.tensor.view.device.index = 1;
  EXPECT_ERROR(call(loaded, {&x, &y}), Code::kInvalidInput, "lies on CUDA device 1");
}

TEST(CudaDelegate, OutputsInAnotherOrderOfDims) {
  PlanBuilder b;
  format::TensorSpec wide = PlanBuilder::tensor({2, 3});
  const int32_t x = b.value(wide), y = b.value(wide), two = b.value(int64_t{2}), three = b.value(int64_t{3}), n = b.value(int64_t{6});
  const int32_t inputs = b.value(format::TensorListValue{{x}}), sizes = b.value(format::IntListValue{{two, three}}), values = b.value(format::IntListValue{{n}});
  const int32_t name = b.value(std::string("twice_plus_one")), grid = ints(b, {1, 1, 1}), threads = b.value(int64_t{32}), shared = b.value(int64_t{0}), dtype = b.value(int64_t{6});
  b.call("pteron_cuda::launch", "out", {inputs, sizes, values, name, grid, threads, shared, dtype, y});
  b.plan.inputs = {x};
  b.plan.outputs = {y};
  LoadedPayload loaded = with_kernels(b);
  EXPECT_OK(loaded.load());
  const auto turned = [](Argument& argument) {  // [2, 3] with the first dim innermost
    Tensor& tensor = argument.value.tensor;
    tensor.view.rank = 2;
    tensor.dynamic = false;
    tensor.view.size_array = {2, 3};
    tensor.bound = {2, 3};
    tensor.view.stride_array = {1, 2};
    tensor.dim_order = {1, 0};
  };
  const OnDevice memory(4096);
  for (const bool on_device : {false, true}) {
    Argument in({1, 2, 3, 4, 5, 6}), out(Floats(6));
    turned(in);
    turned(out);
    if (on_device) {
      memory.take(in, 0);
      memory.take(out, 1024);
    }
    for (int i = 0; i < 3; ++i) {
      EXPECT_OK(call(loaded, {&in, &out}));
      EXPECT_EQ((Floats{out.value.tensor.as<float>(), out.value.tensor.as<float>() + 6}), (Floats{3, 5, 7, 9, 11, 13}));
    }
  }
}

TEST(CudaDelegate, EveryFailureLeavesItUsable) {
  const int live = emulator().live();
  {
    LoadedPayload loaded = affine();
    EXPECT_OK(loaded.load());  // so that the device stays open, as in a process with another program
    const int open = emulator().live();
    constexpr const char* kSteps[] = {"cuMemAlloc_v2", "cuMemHostAlloc", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemsetD8Async", "cuModuleLoadData", "cuModuleGetFunction",
                                      "cuLaunchKernel", "cuStreamSynchronize"};
    for (const char* step : kSteps) {
      int failures = 0;
      for (int nth = 1; nth < 40; ++nth) {
        LoadedPayload other = affine();
        Argument x({1, 2, 3}, 8), y(Floats(3), 8);
        emulator().fail(step, nth, 2);
        Status status = other.load();
        if (status.ok()) status = call(other, {&x, &y});
        if (!status.ok()) {
          ++failures;
          EXPECT_EQ(status.code(), Code::kOutOfMemory) << step << ' ' << nth << ": " << status.message();
        }
        emulator().fail_nothing();
        if (other.delegate == nullptr) EXPECT_OK(other.load());
        EXPECT_OK(call(other, {&x, &y}));
        EXPECT_EQ(y.now(), (Floats{7, 5, 3}));
        other.delegate.reset();
        EXPECT_EQ(emulator().live(), open) << step << ' ' << nth;
        if (status.ok()) break;
      }
      EXPECT_GT(failures, 0) << step;
    }
  }
  EXPECT_EQ(emulator().live(), live);
}

TEST(CudaDelegate, ACallThatCannotBeRecordedRunsAsItIs) {
  for (const char* step : {"cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuStreamCreate"}) {
    const int live = emulator().live();
    LoadedPayload loaded = affine();
    EXPECT_OK(loaded.load());
    Argument x({1, 2, 3}, 8), y(Floats(3), 8);
    EXPECT_OK(call(loaded, {&x, &y}));
    emulator().fail(step, 1, 900);
    for (int i = 0; i < 3; ++i) {
      std::ranges::fill(y.floats, 0.0f);
      EXPECT_OK(call(loaded, {&x, &y}));
      EXPECT_EQ(y.now(), (Floats{7, 5, 3})) << step;
    }
    emulator().fail_nothing();
    loaded.delegate.reset();
    EXPECT_EQ(emulator().live(), live);
  }
}

TEST(CudaDelegate, AFaultOfTheDeviceIsAnError) {
  {
    LoadedPayload loaded = affine();
    EXPECT_OK(loaded.load());
    Argument x({1, 2, 3}, 8), y(Floats(3), 8);
    emulator().fail("cuLaunchKernel", 1, 700, true);
    EXPECT_ERROR(call(loaded, {&x, &y}), Code::kUnavailable, "starting a kernel");
    EXPECT_ERROR(call(loaded, {&x, &y}), Code::kUnavailable, "error 700");
  }
  emulator().fail_nothing();
  LoadedPayload loaded = affine();
  EXPECT_OK(loaded.load());
  Argument x({1, 2, 3}, 8), y(Floats(3), 8);
  EXPECT_OK(call(loaded, {&x, &y}));
  EXPECT_EQ(y.now(), (Floats{7, 5, 3}));
}

TEST(CudaDelegate, WhatIsMissingIsSaid) {
  LoadedPayload loaded = affine();
  const ModuleEntry entry{ModuleKind::kCubin, 100, std::as_bytes(std::span("machine code"))};
  auto container = write_module({&entry, 1});
  ASSERT_TRUE(container.ok());
  loaded.data.bytes.begin()->second = {container->span().begin(), container->span().end()};
  EXPECT_ERROR(loaded.load(), Code::kUnavailable, "sm_100");
  loaded.data.bytes.clear();
  EXPECT_ERROR(loaded.load(), Code::kInvalidFile, "are missing");
  loaded.version = {std::byte{99}};
  EXPECT_ERROR(loaded.load(), Code::kIncompatible, "version 99");
  setenv("PTERON_CUDA_DRIVER", "/nowhere/libcuda.so.1", 1);
  LoadedPayload other = affine();
  EXPECT_ERROR(other.load(), Code::kUnavailable, "the CUDA driver was not found");
  setenv("PTERON_CUDA_DRIVER", PTERON_CUDA_EMULATOR, 1);
  EXPECT_OK(other.load());
}

TEST(CudaAllocator, GivesCopiesAndTakesBack) {
  DeviceAllocator& allocator = *cuda::backend().device_allocator();
  const int live = emulator().live();
  for (const size_t alignment : {1u, 64u, 256u, 4096u}) {
    auto first = allocator.allocate(-1, 100, alignment), second = allocator.allocate(0, 100, alignment);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*first) % alignment, 0u);
    Floats data = {1, 2, 3, 4}, back(4);
    EXPECT_OK(allocator.fill_zero(0, *first, 100));
    EXPECT_OK(allocator.copy_from_host(0, *first, data.data(), 12));
    EXPECT_OK(allocator.copy_on_device(0, *second, *first, 16));
    EXPECT_OK(allocator.copy_to_host(0, back.data(), *second, 16));
    EXPECT_EQ(back, (Floats{1, 2, 3, 0}));
    allocator.deallocate(0, *first);
    allocator.deallocate(0, *second);
  }
  EXPECT_EQ(emulator().live(), live);
  EXPECT_ERROR(allocator.allocate(0, 16, 3).status(), Code::kInvalidInput, "power of two");
  EXPECT_ERROR(allocator.allocate(5, 16, 256).status(), Code::kUnavailable, "no CUDA device 5");
  emulator().fail("cuMemAlloc_v2", 1, 2);
  EXPECT_ERROR(allocator.allocate(0, 16, 256).status(), Code::kOutOfMemory, "allocating");
  emulator().fail_nothing();
  EXPECT_EQ(emulator().live(), live);
}

TEST(CudaDelegate, DamagedPayloadsAreRefused) {
  const auto changed = [](const std::function<void(PlanBuilder&, int32_t, int32_t)>& make) {
    PlanBuilder b;
    const int32_t x = b.value(PlanBuilder::tensor({8})), y = b.value(PlanBuilder::tensor({8}));
    make(b, x, y);
    b.plan.inputs = {x};
    b.plan.outputs = {y};
    LoadedPayload loaded = with_kernels(b);
    Status status = loaded.load();
    if (!status.ok()) return status;
    Argument in(Floats(8)), out(Floats(8));
    return call(loaded, {&in, &out});
  };
  EXPECT_ERROR(changed([](PlanBuilder& b, int32_t x, int32_t y) {
                 const int32_t n = b.value(int64_t{8});
                 launch(b, "no_such_kernel", x, y, n, n);
               }),
               Code::kInvalidFile, "no kernel no_such_kernel");
  EXPECT_ERROR(changed([](PlanBuilder& b, int32_t x, int32_t y) {
                 const int32_t n = b.value(int64_t{8});
                 launch(b, "reversed", x, y, n, n, 32, 1 << 20);
               }),
               Code::kUnavailable, "bytes of shared memory");
  EXPECT_ERROR(changed([](PlanBuilder& b, int32_t x, int32_t y) {
                 const int32_t n = b.value(int64_t{8});
                 launch(b, "reversed", x, y, n, n, 4096);
               }),
               Code::kInvalidFile, "argument 5");
  EXPECT_ERROR(changed([](PlanBuilder& b, int32_t x, int32_t) {
                 const int32_t n = b.value(int64_t{8});
                 launch(b, "reversed", x, x, n, n);
               }),
               Code::kInvalidFile, "");
  EXPECT_ERROR(changed([](PlanBuilder& b, int32_t x, int32_t) { b.call("aten::_local_scalar_dense", "", {x, b.value(0.0)}); }), Code::kInvalidFile, "reads a tensor's bytes");
}

}  // namespace
}  // namespace pteron::cuda::testing
