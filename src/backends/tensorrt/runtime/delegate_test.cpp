// Every rule of a TensorRT call, with an engine library that is none: bindings, profiles, staging, in-place inputs, faults.
#include <gtest/gtest.h>

#include "backends/tensorrt/runtime/test_load.h"

namespace pteron::tensorrt::testing {
namespace {

constexpr std::string_view kRows = "in x f32 -1 2\nprofile 0,2 4,2\nout z scale x 3\n";
const std::vector<Alias> kCacheAlias = {{"n", "c", Alias::Kind::kKvCacheUpdate}};

TEST(EngineCall, HostTensorsAreStagedAndTheResultIsThereOnReturn) {
  World w;
  auto d = w.load_ok({kAdd});
  Host x({1, 2, 3, 4}), y({10, 20, 30, 40}), z({0, 0, 0, 0});
  EXPECT_OK(d->execute(w.args({x, y, z})));
  EXPECT_EQ(z.values(), (Floats{11, 22, 33, 44}));
  EXPECT_EQ(w.world.copies, 3);
  EXPECT_OK(d->execute(w.args({x, y, z})));
  EXPECT_EQ(w.world.memory.size(), 3u);  // the same buffers again
  EXPECT_EQ(d->memory().own_bytes, 48u);
  d.reset();
  EXPECT_TRUE(w.world.memory.empty());
  EXPECT_EQ(w.world.live_contexts + w.world.live_engines, 0);
}

TEST(EngineCall, DeviceTensorsAreBoundWhereTheyLie) {
  World w;
  auto d = w.load_ok({kAdd});
  OnDevice x(w, {1, 2, 3, 4}), y(w, {10, 20, 30, 40}), z(w, {0, 0, 0, 0});
  EXPECT_OK(d->execute(w.args({x, y, z})));
  EXPECT_EQ(z.values(), (Floats{11, 22, 33, 44}));
  EXPECT_EQ(w.world.copies, 0);
}

TEST(EngineCall, ADeviceThatReadsHostMemoryStagesNothing) {
  World w;
  w.world.integrated = true;
  auto d = w.load_ok({kAdd});
  Host x({1, 2, 3, 4}), y({10, 20, 30, 40}), z({0, 0, 0, 0});
  EXPECT_OK(d->execute(w.args({x, y, z})));
  EXPECT_EQ(z.values(), (Floats{11, 22, 33, 44}));
  EXPECT_EQ(w.world.copies, 0);
  EXPECT_TRUE(w.world.memory.empty());
}

TEST(EngineCall, UnalignedAddressesAreStagedWithOneLogLineAnEngine) {
  World w;
  auto d = w.load_ok({kAdd});
  OnDevice x(w, {1, 2, 3, 4}, 16), y(w, {10, 20, 30, 40}), z(w, {0, 0, 0, 0}, 64);
  w.log.lines.clear();
  for (int call = 0; call < 2; ++call) EXPECT_OK(d->execute(w.args({x, y, z})));
  EXPECT_EQ(z.values(), (Floats{11, 22, 33, 44}));
  EXPECT_EQ(w.world.copies, 4);  // x and z, twice
  ASSERT_EQ(w.log.lines.size(), 1u);
  EXPECT_NE(w.log.lines[0].find("no multiple of 256"), std::string::npos);
}

TEST(EngineCall, AnInPlaceInputIsWrittenWhereItLiesAndItsOutputCopied) {
  World w;
  auto d = w.load_ok({kCache, kCacheAlias});
  OnDevice x(w, {1, 2, 3, 4}), c(w, {10, 10, 10, 10}), z(w, {0, 0, 0, 0}), n(w, {0, 0, 0, 0});
  EXPECT_OK(d->execute(w.args({x, c, z, n})));
  EXPECT_EQ(c.values(), (Floats{11, 12, 13, 14}));
  EXPECT_EQ(n.values(), (Floats{11, 12, 13, 14}));
  EXPECT_EQ(w.world.copies, 1);
  EXPECT_OK(d->execute(w.args({x, c, z, c})));  // input and output are one tensor
  EXPECT_EQ(c.values(), (Floats{12, 14, 16, 18}));
  EXPECT_EQ(w.world.copies, 1);
}

TEST(EngineCall, AStagedInPlaceInputIsCopiedBackWhetherItsOutputIsPassedOrElided) {
  for (const bool elided : {false, true}) {
    World w;
    Given given{kCache, kCacheAlias};
    if (elided) given.hidden = {"n"};
    auto d = w.load_ok(given);
    OnDevice x(w, {1, 2, 3, 4}), c(w, {10, 10, 10, 10}, 32), z(w, {0, 0, 0, 0}), n(w, {0, 0, 0, 0});
    EXPECT_OK(d->execute(elided ? w.args({x, c, z}) : w.args({x, c, z, n})));
    EXPECT_EQ(c.values(), (Floats{11, 12, 13, 14}));
    EXPECT_EQ(z.values(), (Floats{1, 2, 3, 4}));
    EXPECT_EQ(n.values(), elided ? Floats(4) : (Floats{11, 12, 13, 14}));
    EXPECT_EQ(w.world.copies, elided ? 2 : 3);
  }
}

TEST(EngineCall, AnInPlaceInputInHostMemoryIsRefusedUnlessTheProgramTakesItFromThere) {
  World w;
  auto official = w.load_ok({kCache, kCacheAlias});
  Host x({1, 2, 3, 4}), c({10, 10, 10, 10}), z({0, 0, 0, 0});
  EXPECT_ERROR(official->execute(w.args({x, c, z, c})), Code::kInvalidInput, "lies in host memory");
  Given given{kCache, kCacheAlias};
  given.settings = {{"in_place", "host"}};
  auto own = w.load_ok(given);
  EXPECT_OK(own->execute(w.args({x, c, z, c})));
  EXPECT_EQ(c.values(), (Floats{11, 12, 13, 14}));
}

TEST(EngineCall, EmptyTensorsGetAnAddressAndNoCopy) {
  World w;
  auto d = w.load_ok({kRows});
  Host x({}, {0, 2}, {4, 2}), z({}, {0, 2}, {4, 2});
  EXPECT_OK(d->execute(w.args({x, z})));
  EXPECT_EQ(w.world.copies, 0);
  EXPECT_EQ(w.world.streams.size(), 1u);
}

TEST(EngineCall, OutputsAreResizedWithinTheirBound) {
  World w;
  auto d = w.load_ok({kRows});
  Host x({1, 2, 3, 4}, {2, 2}, {4, 2}), z({0, 0, 0, 0, 0, 0, 0, 0}, {4, 2}, {4, 2});
  EXPECT_OK(d->execute(w.args({x, z})));
  EXPECT_EQ(z.value.tensor.size(0), 2);
  EXPECT_EQ(z.values(), (Floats{3, 6, 9, 12}));
  Host small({0, 0}, {1, 2}, {1, 2});
  EXPECT_ERROR(d->execute(w.args({x, small})), Code::kInvalidInput, "output 'z'");
}

TEST(EngineCall, AScalarMayStandForOneElement) {
  World w;
  auto d = w.load_ok({"in x f32 1\nout z scale x 2\n"});
  Host x({3}, {}, {}), z({0}, {}, {});
  EXPECT_OK(d->execute(w.args({x, z})));
  EXPECT_EQ(z.values(), (Floats{6}));
  EXPECT_EQ(z.value.tensor.rank(), 0);
}

TEST(EngineCall, ProfileBoundsNameInputAndDim) {
  World w;
  auto d = w.load_ok({kRows});
  Host z(Floats(8), {4, 2}, {4, 2});
  Host large(Floats(10), {5, 2}, {5, 2}), wide(Floats(6), {2, 3}, {2, 3}), flat(Floats(4), {4}, {4});
  EXPECT_ERROR(d->execute(w.args({large, z})), Code::kInvalidInput, "input 'x' has size 5 in dim 0, profile 0 takes 0 to 4");
  EXPECT_ERROR(d->execute(w.args({wide, z})), Code::kInvalidInput, "size 3 in dim 1");
  EXPECT_ERROR(d->execute(w.args({flat, z})), Code::kInvalidInput, "has rank 1, the engine 2");
}

TEST(EngineCall, TheProfileChangesOnlyWhenItDoesNotFit) {
  constexpr std::string_view kTwo = "in x f32 -1\nprofile 1 2\nprofile 2 8\nout z copy x\n";
  World w;
  auto d = w.load_ok({kTwo});
  Host one({1}, {1}, {8}), two({1, 2}, {2}, {8}), six(Floats(6), {6}, {8}), nine(Floats(9), {9}, {9}), z(Floats(9), {9}, {9});
  for (Host* x : {&two, &six, &two, &one}) EXPECT_OK(d->execute(w.args({*x, z})));
  EXPECT_EQ(w.world.profiles, (std::vector<int>{1, 0}));
  EXPECT_ERROR(d->execute(w.args({nine, z})), Code::kInvalidInput, "no profile of the engine takes these inputs");
  w.options.profile = 1;
  auto pinned = w.load_ok({kTwo});
  EXPECT_ERROR(pinned->execute(w.args({one, z})), Code::kInvalidInput, "profile 1 takes 2 to 8");
  w.options.profile = 2;
  EXPECT_ERROR(w.load({kTwo}).status(), Code::kInvalidInput, "the engine has 2");
  EXPECT_TRUE(w.load({kAdd}).ok());  // engines with one profile pass over it
}

TEST(EngineCall, WrongArgumentsAreRefused) {
  World w;
  auto d = w.load_ok({kAdd});
  Host x({1, 2, 3, 4}), y({1, 2, 3, 4}), z({0, 0, 0, 0});
  EXPECT_ERROR(d->execute(w.args({x, y})), Code::kInvalidFile, "2 arguments, the engine 3");
  Host none({1, 2, 3, 4});
  none.value.tensor.view.data = nullptr;
  EXPECT_ERROR(d->execute(w.args({x, none, z})), Code::kInvalidInput, "input 'y' is no tensor with memory");
  Host ints({1, 2, 3, 4});
  ints.value.tensor.view.dtype = DType::kInt32;
  EXPECT_ERROR(d->execute(w.args({x, ints, z})), Code::kInvalidInput, "input 'y' is int32, the engine has float32");
  EXPECT_ERROR(d->execute(w.args({x, y, ints})), Code::kInvalidInput, "output 'z' is int32");
}

TEST(EngineCall, HostTensorsInAnotherOrderArePacked) {
  World w;
  auto d = w.load_ok({"in x f32 2 2\nout z copy x\n"});
  Host x({1, 2, 3, 4}, {2, 2}, {2, 2}), z(Floats(4), {2, 2}, {2, 2});
  std::swap(x.value.tensor.view.stride_array[0], x.value.tensor.view.stride_array[1]);
  EXPECT_OK(d->execute(w.args({x, z})));
  EXPECT_EQ(z.values(), (Floats{1, 3, 2, 4}));
  OnDevice turned(w, {1, 2, 3, 4});
  turned.value = x.value;
  turned.value.tensor.view.data = turned.address;
  EXPECT_ERROR(d->execute(w.args({turned, z})), Code::kUnsupported, "another memory order");
  std::swap(z.value.tensor.view.stride_array[0], z.value.tensor.view.stride_array[1]);
  EXPECT_ERROR(d->execute(w.args({x, z})), Code::kUnsupported, "another memory order than the engine writes");
}

TEST(EngineCall, StreamsOfTheCallerNest) {
  World w;
  auto d = w.load_ok({kAdd});
  Host x({1, 2, 3, 4}), y({1, 2, 3, 4}), z({0, 0, 0, 0});
  const auto run = [&] { EXPECT_OK(d->execute(w.args({x, y, z}))); };
  int a = 0;
  run();
  {
    const TensorRtStream outer(&a);
    run();
    {
      const TensorRtStream inner(nullptr);  // a null stream is one too
      run();
    }
    run();
  }
  run();
  EXPECT_EQ(w.world.streams, (std::vector<void*>{&w.world, &a, nullptr, &a, &w.world}));
  w.world.capturing = true;
  EXPECT_ERROR(d->execute(w.args({x, y, z})), Code::kUnsupported, "being captured");
}

TEST(EngineCall, TheDeviceIsSwitchedAndPutBackOnEveryWay) {
  World w;
  Given given{kAdd};
  given.device = 1;
  auto d = w.load_ok(given);
  EXPECT_EQ(w.world.device, 0);
  Host x({1, 2, 3, 4}), y({1, 2, 3, 4}), z({0, 0, 0, 0});
  EXPECT_OK(d->execute(w.args({x, y, z})));
  w.world.enqueue_fails = true;
  EXPECT_ERROR(d->execute(w.args({x, y, z})), Code::kUnavailable, "TensorRT did not take the call");
  d.reset();
  EXPECT_TRUE(w.world.memory.empty());
  EXPECT_EQ(w.world.misplaced, 0);
  EXPECT_EQ(w.world.device, 0);
  given.device = 2;
  EXPECT_ERROR(w.load(given).status(), Code::kUnavailable, "CUDA device 2 cannot be made current: there are 2 devices");
}

TEST(EngineCall, FaultsDrainTheStreamAndTheNextCallWorks) {
  World w;
  auto d = w.load_ok({kAdd});
  Host x({1, 2, 3, 4}), y({10, 20, 30, 40}), z({0, 0, 0, 0});
  w.world.allocations_left = 1;
  EXPECT_ERROR(d->execute(w.args({x, y, z})), Code::kOutOfMemory, "input 'y': no 16 bytes on the device");
  EXPECT_TRUE(w.world.queue.empty());
  w.world.allocations_left = -1;
  for (const int copies : {0, 1, 2}) {
    w.world.copies_left = copies;
    EXPECT_ERROR(d->execute(w.args({x, y, z})), Code::kUnavailable, "the copy fails");
    EXPECT_TRUE(w.world.queue.empty());
  }
  w.world.copies_left = -1;
  w.world.wait_fails = true;
  EXPECT_ERROR(d->execute(w.args({x, y, z})), Code::kUnavailable, "the wait fails");
  w.world.wait_fails = false;
  std::fill_n(z.data, 4, 0.0f);
  EXPECT_OK(d->execute(w.args({x, y, z})));
  EXPECT_EQ(z.values(), (Floats{11, 22, 33, 44}));
}

}  // namespace
}  // namespace pteron::tensorrt::testing
