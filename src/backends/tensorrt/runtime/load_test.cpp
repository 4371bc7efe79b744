// Every rule of loading an engine, with an engine library that is none: payloads, bindings, aliases, stripped plans, streaming, sharing, scratch.
#include <gtest/gtest.h>

#include "backends/tensorrt/runtime/test_load.h"

namespace pteron::tensorrt::testing {
namespace {

constexpr std::string_view kCount = "in x f32 -1\nprofile 0 1024\nout z scale x 2\nscratch 16\n";

Floats sum(World& w, Delegate& d) {
  Host x({1, 2, 3, 4}), y({10, 20, 30, 40}), z({0, 0, 0, 0});
  EXPECT_OK(d.execute(w.args({x, y, z})));
  return z.values();
}

Floats twice(World& w, Delegate& d, int64_t count) {
  Host x(Floats(static_cast<size_t>(count), 1), {count}, {1024}), z(Floats(static_cast<size_t>(count)), {count}, {1024});
  EXPECT_OK(d.execute(w.args({x, z})));
  return z.values();
}

TEST(EngineLoad, ABuildWithoutTensorRtSaysSo) {
  World w;
  EXPECT_ERROR(w.load({kAdd}, backend()).status(), Code::kUnavailable, "this build has no TensorRT");
}

TEST(EngineLoad, DamagedPayloadsAndEnginesAreRefused) {
  World w;
  w.backends.push_back(make_backend(w.library, {}));
  std::vector<std::byte> cut = w.payload({kAdd});
  cut.resize(cut.size() - 1);
  EXPECT_ERROR(w.load_bytes(cut, {kAdd}, *w.backends[0]).status(), Code::kInvalidFile, "TensorRT payload: an engine of");
  EXPECT_ERROR(w.load({"garbage"}).status(), Code::kInvalidFile, "TensorRT cannot read the engine");
  EXPECT_EQ(w.world.device, 0);
}

TEST(EngineLoad, NamesMustBeThoseOfTheEngine) {
  World w;
  EXPECT_ERROR(w.load({kAdd, {}, {}, {}, 0, {}, {{"x", true}, {"q", true}, {"z", false}}}).status(), Code::kInvalidFile, "the engine has no input 'q'");
  EXPECT_ERROR(w.load({kAdd, {}, {}, {}, 0, {}, {{"x", true}, {"z", false}}}).status(), Code::kInvalidFile, "input 'y' is not among those of the payload");
  EXPECT_ERROR(w.load({kAdd, {}, {}, {}, 0, {}, {{"x", true}, {"y", false}, {"z", false}}}).status(), Code::kInvalidFile, "no output 'y'");
  EXPECT_ERROR(w.load({"in x f32 4\nin y f32 4\nshape y\nout z copy x\n"}).status(), Code::kInvalidFile, "input 'y' holds sizes");
  EXPECT_EQ(w.world.live_engines, 0);
}

TEST(EngineLoad, InputsComeInTheOrderOfThePayload) {
  World w;
  auto d = w.load_ok({"in x f32 4\nin y f32 4\nout z sub x y\n", {}, {}, {}, 0, {}, {{"y", true}, {"x", true}, {"z", false}}});
  EXPECT_EQ(sum(w, *d), (Floats{9, 18, 27, 36}));
}

TEST(EngineLoad, APayloadWithoutNamesTakesTheEnginesNumbers) {
  const auto with_engine = [](World& w, std::string_view engine) {
    w.backends.push_back(make_backend(w.library, w.options));
    std::vector<std::byte> bytes = w.payload({engine, {}, {}, {}, 0, {}, {{"x", true}}});
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    const std::string_view member = R"({"name":"x","dtype":"","shape":[],"is_input":true})";
    const size_t at = text.find(member);
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), member.size(), std::byte{' '});
    return w.load_bytes(std::move(bytes), {engine}, *w.backends.back());
  };
  World w;
  auto d = with_engine(w, "in a_1 f32 4\nin b.0 f32 4\nout z_0 sub a_1 b.0\n");
  ASSERT_TRUE(d.ok()) << d.status().message();
  EXPECT_EQ(sum(w, **d), (Floats{9, 18, 27, 36}));
  EXPECT_ERROR(with_engine(w, "in a_0 f32 4\nin b f32 4\nout z_0 sub a_0 b\n").status(), Code::kInvalidFile, "'b' ends in no number");
  EXPECT_ERROR(with_engine(w, "in a_0 f32 4\nin b_2 f32 4\nout z_0 sub a_0 b_2\n").status(), Code::kInvalidFile, "are not 0 to 1");
  EXPECT_ERROR(with_engine(w, "in a_0 f32 4\nin b_4000000000 f32 4\nout z_0 sub a_0 b_4000000000\n").status(), Code::kInvalidFile, "are not 0 to 1");
  EXPECT_ERROR(with_engine(w, "in a_0 f32 4\nin b_0 f32 4\nout z_0 sub a_0 b_0\n").status(), Code::kInvalidFile, "are not 0 to 1");
}

TEST(EngineLoad, AliasesMustBeThoseOfTheEngine) {
  World w;
  const auto kv = Alias::Kind::kKvCacheUpdate;
  EXPECT_ERROR(w.load({kCache, {{"n", "x", kv}}}).status(), Code::kInvalidFile, "the engine in place of 'c'");
  EXPECT_ERROR(w.load({kCache, {{"z", "c", kv}}}).status(), Code::kInvalidFile, "the engine gives it memory of its own");
  EXPECT_ERROR(w.load({kCache, {{"q", "c", kv}}}).status(), Code::kInvalidFile, "no output 'q'");
  EXPECT_ERROR(w.load({kCache, {{"n", "c", kv}, {"n", "x", Alias::Kind::kUser}}}).status(), Code::kInvalidFile, "written in place twice");
  EXPECT_ERROR(w.load({"in x f32 4\nin c f32 2\nout n copy x\n", {{"n", "c", Alias::Kind::kUser}}}).status(), Code::kInvalidFile,
               "[4] cannot be written in place of 'c' [2]");
  EXPECT_TRUE(w.load({"in x f32 4\nin c f32 4\nout n add c x\n", {{"n", "c", Alias::Kind::kUser}}}).ok());
}

TEST(EngineLoad, AStrippedPlanIsRefusedOnlyIfItHoldsFewerWeightsThanItsTotal) {
  World w;
  const std::string engine(kAdd);
  EXPECT_ERROR(w.load({engine + "weights 1000 10\n"}).status(), Code::kInvalidFile, "a stripped plan with 10 of its 1000 bytes of weights");
  EXPECT_ERROR(w.load({engine + "weights 1000 0\n"}).status(), Code::kInvalidFile, "stripped plan");
  const std::string full = engine + "weights 1000 1000\n", unmarked = engine + "weights 1000 -1\n";
  auto plain = w.load_ok({kAdd}), whole = w.load_ok({full}), other = w.load_ok({unmarked});
  EXPECT_EQ(sum(w, *whole), sum(w, *plain));
  EXPECT_EQ(sum(w, *other), sum(w, *plain));
}

TEST(EngineLoad, TheBudgetIsTheCallersElseTheFilesElseTheLibrarys) {
  const std::string engine = std::string(kAdd) + "stream 1000 300\n";
  Given plain{engine}, baked{engine};
  baked.settings = {{"weight_streaming_budget", "0200"}};
  const auto budget_of = [](const Given& given, std::optional<std::string> option) {
    World w;
    w.options.weight_streaming_budget = std::move(option);
    EXPECT_OK(w.load(given).status());
    return w.world.budget;
  };
  EXPECT_EQ(budget_of(plain, {}), 300);
  EXPECT_EQ(budget_of(baked, {}), 200);
  EXPECT_EQ(budget_of(baked, "500"), 500);
  EXPECT_EQ(budget_of(baked, "8589934592"), 1000);  // no more than there is
  EXPECT_EQ(budget_of(baked, ""), 200);
  EXPECT_EQ(budget_of(plain, "0"), 0);
}

TEST(EngineLoad, MalformedBudgetsAreRefused) {
  const std::string engine = std::string(kAdd) + "stream 1000 300\n";
  for (const char* text : {"-1", "+1", " 1", "1 ", "1x", "9223372036854775808", "0x10"}) {
    World w;
    Given baked{engine};
    baked.settings = {{"weight_streaming_budget", text}};
    EXPECT_ERROR(w.load(baked).status(), Code::kInvalidFile, "compile spec weight_streaming_budget is a number of bytes");
    w.options.weight_streaming_budget = text;
    EXPECT_ERROR(w.load({engine}).status(), Code::kInvalidInput, "option weight_streaming_budget is a number of bytes");
  }
  World w;
  Given twice_given{engine};
  twice_given.settings = {{"weight_streaming_budget", "1"}, {"weight_streaming_budget", "1"}};
  EXPECT_ERROR(w.load(twice_given).status(), Code::kInvalidFile, "stands there twice");
  Given empty{engine};
  empty.settings = {{"weight_streaming_budget", ""}};
  EXPECT_ERROR(w.load(empty).status(), Code::kInvalidFile, "found ''");
}

TEST(EngineLoad, RefusedBudgetsAndEnginesWithoutStreaming) {
  const std::string engine = std::string(kAdd) + "stream 1000 300\n";
  World w;
  w.world.refused_budgets = {300};
  EXPECT_OK(w.load({engine}).status());
  EXPECT_EQ(w.world.budget, 0);
  w.world.refused_budgets = {-1};
  EXPECT_ERROR(w.load({engine}).status(), Code::kUnavailable, "refuses every budget");
  w.options.weight_streaming_budget = "7";
  EXPECT_ERROR(w.load({engine}).status(), Code::kUnavailable, "refuses a budget of 7 bytes");
  EXPECT_OK(w.load({kAdd}).status());
  EXPECT_TRUE(w.log.has("the budget of 7 bytes is passed over"));
}

TEST(EngineLoad, AnEngineInADataFileIsTheSameEngine) {
  World w;
  const std::string engine = str_cat(kAdd, std::string(100, '\n'));
  Given outside{engine};
  outside.key = "tensorrt/key";
  EXPECT_ERROR(w.load(outside).status(), Code::kNotFound, "the engine 'tensorrt/key' is neither in a data file nor in the program");
  w.files.bytes["tensorrt/key"] = engine;
  auto out = w.load_ok(outside), in = w.load_ok({engine});
  EXPECT_EQ(sum(w, *out), sum(w, *in));
  EXPECT_LT(w.payload(outside).size(), w.payload({engine}).size());
}

TEST(EngineLoad, EqualEnginesAreDeserializedOnceForADeviceAndABudget) {
  World w;
  const std::unique_ptr<DelegateBackend> backend = make_backend(w.library, {});
  const auto count = [&](const Given& given) {
    const int before = w.world.deserialized;
    auto made = w.load(given, *backend);
    EXPECT_OK(made.status());
    return std::pair(std::move(made).value(), w.world.deserialized - before);
  };
  auto [first, a] = count({kAdd});
  auto [second, b] = count({kAdd});
  Given other_device{kAdd}, other_budget{kAdd};
  other_device.device = 1;
  other_budget.settings = {{"weight_streaming_budget", "1"}};
  auto [third, c] = count(other_device);
  auto [fourth, d] = count(other_budget);
  auto [fifth, e] = count({kCache});
  EXPECT_EQ((std::vector<int>{a, b, c, d, e}), (std::vector<int>{1, 0, 1, 1, 1}));
  EXPECT_EQ(w.world.live_contexts, 5);
  first.reset();  // the second keeps the engine, and its bytes are those to compare with
  std::fill(w.payloads[0].begin(), w.payloads[0].end(), std::byte{0});
  EXPECT_EQ(sum(w, *second), (Floats{11, 22, 33, 44}));
  auto [sixth, f] = count({kAdd});
  EXPECT_EQ(f, 0);
  second.reset();
  sixth.reset();
  EXPECT_EQ(w.world.live_engines, 3);
  const std::unique_ptr<DelegateBackend> apart = make_backend(w.library, {.shared_engines = false});
  auto x = w.load({kAdd}, *apart), y = w.load({kAdd}, *apart);
  EXPECT_EQ(w.world.live_engines, 5);
}

TEST(SharedScratch, OneBufferADeviceThatOnlyGrows) {
  World w;
  {
    const std::unique_ptr<DelegateBackend> backend = make_backend(w.library, {.shared_scratch = true});
    auto first = w.load({kCount}, *backend), second = w.load({kCount}, *backend);
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(twice(w, **first, 4), Floats(4, 2));
    EXPECT_EQ(twice(w, **second, 2), Floats(2, 2));
    EXPECT_EQ(twice(w, **second, 8), Floats(8, 2));
    EXPECT_EQ(twice(w, **first, 1), Floats(1, 2));
    EXPECT_EQ(w.world.scratch, (std::vector<int64_t>{64, 64, 128, 128}));
    EXPECT_EQ(w.world.live_events, 1);
  }
  EXPECT_TRUE(w.world.memory.empty());
  EXPECT_EQ(w.world.live_events, 0);
}

TEST(SharedScratch, AnEmptyBatchHasScratchIfTheEngineCanNeedAny) {
  World w;
  w.options.shared_scratch = true;
  auto needs = w.load_ok({kCount});
  EXPECT_EQ(twice(w, *needs, 0), Floats());
  EXPECT_EQ(w.world.scratch, (std::vector<int64_t>{1}));
  EXPECT_EQ(twice(w, *needs, 3), Floats(3, 2));
  auto needs_none = w.load_ok({"in x f32 -1\nprofile 0 1024\nout z scale x 2\n"});
  w.world.scratch.clear();
  EXPECT_EQ(twice(w, *needs_none, 0), Floats());
  EXPECT_EQ(twice(w, *needs_none, 3), Floats(3, 2));
  EXPECT_TRUE(w.world.scratch.empty());
}

TEST(SharedScratch, TooLittleIsRefusedByTheEnqueue) {
  World w;
  const FakePlan plan = fake_plan(kCount);
  FakeContext context(w.world, plan, false);
  const std::vector<int64_t> sizes = {4};
  EXPECT_OK(context.set_sizes("x", sizes));
  char memory[64];
  EXPECT_ERROR(context.enqueue(nullptr), Code::kUnavailable, "with 0 bytes of scratch needs 64");
  EXPECT_OK(context.set_scratch(memory, 63));
  EXPECT_ERROR(context.enqueue(nullptr), Code::kUnavailable, "with 63 bytes of scratch needs 64");
}

TEST(SharedScratch, NoRoomIsAnErrorAndTheOldBufferStays) {
  World w;
  w.options.shared_scratch = true;
  auto d = w.load_ok({kCount});
  EXPECT_EQ(twice(w, *d, 4), Floats(4, 2));
  Host x(Floats(8, 1), {8}, {1024}), z(Floats(8), {8}, {1024});
  w.world.allocations_left = 2;  // staging of x and z
  EXPECT_ERROR(d->execute(w.args({x, z})), Code::kOutOfMemory, "no 128 bytes of shared scratch");
  w.world.allocations_left = 0;
  EXPECT_EQ(twice(w, *d, 4), Floats(4, 2));
}

}  // namespace
}  // namespace pteron::tensorrt::testing
