// Streams: sessions beside each other, streams of the caller, calls that the caller records. With work that runs only when somebody waits for it.
#include <functional>
#include <string>

#include "backends/cuda/runtime/test_payload.h"

namespace pteron::cuda::testing {
namespace {

/// Work is deferred while it lives.
class Deferred {
 public:
  Deferred() { emulator().defer(true); }
  ~Deferred() { emulator().defer(false); }
};

/// A stream that the engine does not know.
class CallersStream {
 public:
  CallersStream() : keeps_context_(64) { EXPECT_EQ(in_context([&] { return emulator().find<int(void**, unsigned)>("cuStreamCreate")(&stream_, 1); }), 0); }
  ~CallersStream() {
    if (graph_ != nullptr) emulator().find<int(void*)>("cuGraphExecDestroy")(graph_);
    emulator().find<int(void*)>("cuStreamDestroy_v2")(stream_);
  }
  void* get() const { return stream_; }
  int wait() const {
    return in_context([&] { return emulator().find<int(void*)>("cuStreamSynchronize")(stream_); });
  }
  void begin_capture() const {
    EXPECT_EQ(in_context([&] { return emulator().find<int(void*, int)>("cuStreamBeginCapture_v2")(stream_, 1); }), 0);
  }
  /// 0 if something was recorded that can be replayed.
  int end_capture() {
    void* graph = nullptr;
    const int ended = in_context([&] { return emulator().find<int(void*, void**)>("cuStreamEndCapture")(stream_, &graph); });
    if (ended != 0) return ended;
    const int made = in_context([&] { return emulator().find<int(void**, void*, unsigned long long)>("cuGraphInstantiateWithFlags")(&graph_, graph, 0); });
    emulator().find<int(void*)>("cuGraphDestroy")(graph);
    return made;
  }
  void replay() const {
    EXPECT_EQ(in_context([&] { return emulator().find<int(void*, void*)>("cuGraphLaunch")(graph_, stream_); }), 0);
    EXPECT_EQ(wait(), 0);
  }

 private:
  template <typename Work>
  static int in_context(const Work& work) {
    void* context = nullptr;
    emulator().find<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, 0);
    emulator().find<int(void*)>("cuCtxPushCurrent_v2")(context);
    const int result = work();
    emulator().find<int(void**)>("cuCtxPopCurrent_v2")(&context);
    emulator().find<int(int)>("cuDevicePrimaryCtxRelease_v2")(0);
    return result;
  }
  OnDevice keeps_context_;
  void* stream_ = nullptr;
  void* graph_ = nullptr;
};

/// A payload in a session of its own.
struct InSession {
  explicit InSession(LoadedPayload made, bool may_queue = true) : allocator(cuda::backend().device_allocator()->make_session()), loaded(std::move(made)) {
    loaded.session = allocator.get();
    loaded.may_queue = may_queue;
    EXPECT_OK(loaded.load());
  }
  ~InSession() { loaded.delegate.reset(); }
  std::unique_ptr<DeviceAllocator> allocator;
  LoadedPayload loaded;
};

/// What lies on the device, once `session` is done.
Floats read_back(InSession& session, const Argument& argument) {
  Floats out(static_cast<size_t>(argument.value.tensor.numel()));
  EXPECT_OK(session.allocator->copy_to_host(0, out.data(), argument.value.tensor.view.data, out.size() * sizeof(float)));
  return out;
}

TEST(CudaQueue, SessionsDoNotWaitForEachOther) {
  emulator().fail_nothing();
  InSession first(affine()), second(affine());
  const OnDevice memory(4096);
  Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8)), z(Floats(8));
  memory.take(x, 0);
  memory.take(y, 1024);
  memory.take(z, 2048);
  const Deferred deferred;
  emulator().log(true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_OK(call(first.loaded, {&x, &y}));
    EXPECT_OK(call(second.loaded, {&x, &z}));
  }
  const std::string log = emulator().log(false);
  EXPECT_EQ(log.find("wait"), std::string::npos) << log;
  // Each call is on its session's stream: two launches, a record of two, then replays.
  const std::string one = log.substr(7, log.find('\n') - 7);
  const size_t at = log.find("launch", log.find("launch", 1) + 1);
  const std::string other = log.substr(at + 7, log.find('\n', at) - at - 7);
  EXPECT_NE(one, other) << log;
  EXPECT_NE(log.find("replay " + one), std::string::npos) << log;
  EXPECT_NE(log.find("replay " + other), std::string::npos) << log;
  // The second is done while the first has not begun.
  EXPECT_EQ(read_back(second, z), affine_of({1, 2, 3, 4, 5, 6, 7, 8}));
  EXPECT_EQ(*y.value.tensor.as<float>(), 0.0f);
  EXPECT_EQ(read_back(first, y), affine_of({1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(CudaQueue, InputsOfTheHostMayChangeAfterACall) {
  InSession session(affine());
  const OnDevice memory(4096);
  Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8)), z(Floats(8));
  memory.take(y, 1024);
  memory.take(z, 2048);
  const Deferred deferred;
  for (int i = 0; i < 3; ++i) {
    const Floats before = {1, 2, 3, 4, 5, 6, 7, static_cast<float>(i)}, after = {8, 7, 6, 5, 4, 3, 2, static_cast<float>(i)};
    std::ranges::copy(before, x.value.tensor.as<float>());
    EXPECT_OK(call(session.loaded, {&x, &y}));
    std::ranges::copy(after, x.value.tensor.as<float>());
    EXPECT_OK(call(session.loaded, {&x, &z}));
    EXPECT_EQ(read_back(session, y), affine_of(before)) << i;
    EXPECT_EQ(read_back(session, z), affine_of(after)) << i;
  }
}

TEST(CudaQueue, ACallersStreamIsInOrderWithTheCalls) {
  InSession session(affine(), false);
  const OnDevice memory(4096);
  Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8));
  memory.take(x, 0);
  memory.take(y, 1024);
  Argument host_x({1, 2, 3}, 8), host_y(Floats(3), 8);
  {
    CallersStream stream;
    EXPECT_OK(session.allocator->set_stream(0, stream.get()));
    const Deferred deferred;
    for (int i = 0; i < 3; ++i) {
      std::fill_n(y.value.tensor.as<float>(), 8, 0.0f);
      EXPECT_OK(call(session.loaded, {&x, &y}));
      EXPECT_EQ(*y.value.tensor.as<float>(), 0.0f) << "the call waited";
      EXPECT_EQ(stream.wait(), 0);
      EXPECT_EQ((Floats{y.value.tensor.as<float>(), y.value.tensor.as<float>() + 8}), affine_of({1, 2, 3, 4, 5, 6, 7, 8}));
      EXPECT_OK(call(session.loaded, {&host_x, &host_y}));  // of the host: done when the call is
      EXPECT_EQ(host_y.now(), affine_of({1, 2, 3}));
    }
  }
  // The stream is gone. The session's own takes over, and what the payload has goes without it.
  EXPECT_OK(session.allocator->set_stream(0, nullptr));
  EXPECT_OK(call(session.loaded, {&host_x, &host_y}));
  EXPECT_EQ(host_y.now(), affine_of({1, 2, 3}));
}

TEST(CudaQueue, ACallIsRecordedIntoTheCallersGraph) {
  InSession session(affine());
  const OnDevice memory(4096);
  Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8));
  memory.take(x, 0);
  memory.take(y, 1024);
  CallersStream stream;
  EXPECT_OK(session.allocator->set_stream(0, stream.get()));
  for (int i = 0; i < 3; ++i) EXPECT_OK(call(session.loaded, {&x, &y}));  // even if the engine has a graph of its own
  EXPECT_EQ(stream.wait(), 0);
  std::fill_n(y.value.tensor.as<float>(), 8, 0.0f);
  stream.begin_capture();
  EXPECT_OK(call(session.loaded, {&x, &y}));
  EXPECT_EQ(stream.end_capture(), 0);
  EXPECT_EQ(*y.value.tensor.as<float>(), 0.0f) << "the call ran";
  for (const float first : {1.0f, 5.0f}) {
    *x.value.tensor.as<float>() = first;
    stream.replay();
    EXPECT_EQ((Floats{y.value.tensor.as<float>(), y.value.tensor.as<float>() + 8}), affine_of({first, 2, 3, 4, 5, 6, 7, 8}));
  }
  *x.value.tensor.as<float>() = 2;
  EXPECT_OK(call(session.loaded, {&x, &y}));
  EXPECT_EQ((Floats{y.value.tensor.as<float>(), y.value.tensor.as<float>() + 8}), affine_of({2, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(CudaQueue, UnalignedTensorsAreRecordedWithTheirCopies) {
  InSession session(affine());
  const OnDevice memory(4096);
  Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8));
  memory.take(x, 4);
  memory.take(y, 1028);
  CallersStream stream;
  EXPECT_OK(session.allocator->set_stream(0, stream.get()));
  EXPECT_OK(call(session.loaded, {&x, &y}));
  stream.begin_capture();
  EXPECT_OK(call(session.loaded, {&x, &y}));
  EXPECT_EQ(stream.end_capture(), 0);
  *x.value.tensor.as<float>() = 9;
  stream.replay();
  EXPECT_EQ((Floats{y.value.tensor.as<float>(), y.value.tensor.as<float>() + 8}), affine_of({9, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(CudaQueue, WhatCannotBeRecordedIsRefusedAndTheCaptureGoesOn) {
  InSession session(affine());
  const OnDevice memory(4096);
  Argument x({1, 2, 3, 4, 5, 6, 7, 8}), y(Floats(8)), few({1, 2, 3}, 8), host({1, 2, 3, 4, 5, 6, 7, 8}), host_out(Floats(8)), off({1, 2, 3, 4, 5, 6, 7, 8});
  memory.take(x, 0);
  memory.take(y, 1024);
  memory.take(few, 2048);
  memory.take(off, 3076);
  CallersStream stream;
  EXPECT_OK(session.allocator->set_stream(0, stream.get()));
  EXPECT_OK(call(session.loaded, {&x, &y}));
  stream.begin_capture();
  EXPECT_ERROR(call(session.loaded, {&host, &y}), Code::kInvalidInput, "input 0 (input_0): the caller's stream is being captured, and it lies on the host");
  EXPECT_ERROR(call(session.loaded, {&x, &host_out}), Code::kInvalidInput, "output 0 (output_0): the caller's stream is being captured, and it lies on the host");
  EXPECT_ERROR(call(session.loaded, {&few, &y}), Code::kInvalidInput, "has not run with these sizes before");
  EXPECT_ERROR(call(session.loaded, {&off, &y}), Code::kInvalidInput, "has not run with these sizes before");
  float number = 0;
  EXPECT_ERROR(session.allocator->copy_to_host(0, &number, y.value.tensor.view.data, sizeof number), Code::kInvalidInput, "is being captured");
  EXPECT_ERROR(session.allocator->copy_from_host(0, y.value.tensor.view.data, &number, sizeof number), Code::kInvalidInput, "is being captured");
  EXPECT_OK(call(session.loaded, {&x, &y}));
  EXPECT_EQ(stream.end_capture(), 0) << "an error spoiled the capture";
  stream.replay();
  EXPECT_EQ((Floats{y.value.tensor.as<float>(), y.value.tensor.as<float>() + 8}), affine_of({1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST(CudaQueue, AddressesHaveOwners) {
  DeviceAllocator& allocator = *cuda::backend().device_allocator();
  const auto memory = allocator.allocate(0, 64, 256);
  ASSERT_TRUE(memory.ok());
  const auto session = allocator.make_session();
  float on_host = 0;
  EXPECT_EQ(session->owner_of(0, *memory)->type, DeviceType::kCuda);
  EXPECT_EQ(session->owner_of(0, &on_host)->type, DeviceType::kCpu);
  allocator.deallocate(0, *memory);
}

}  // namespace
}  // namespace pteron::cuda::testing
