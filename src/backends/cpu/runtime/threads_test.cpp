// The engine as programs see it. Two sessions on two threads: methods of one program that share a pool and packed weights, each with a buffer of its own that the payload
// updates in place. Run under the thread sanitizer by tests/run_tests.py, there with the engine's kernels alone.
#include <immintrin.h>

#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <thread>

#include "backends/cpu/runtime/kernels.h"
#include "format/meta.h"
#include "ops/kernels.h"
#include "runtime/program_delegate.h"
#include "runtime/test_program.h"

#ifdef PTERON_ENGINE_ALONE
namespace pteron::ops {
/// The thread sanitizer's build has no portable kernels; those of the runtime's tests take their place.
const runtime::KernelTable& portable_kernels() { return runtime::testing::test_kernels(); }
}  // namespace pteron::ops
#endif

namespace pteron::cpu {
namespace {

using runtime::testing::PlanBuilder;

constexpr int kCalls = 40;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> out(count);
  for (float& v : out) v = static_cast<float>(engine() % 2001) / 1000.0f - 1.0f;
  return out;
}

class EngineBackend final : public DelegateBackend {
 public:
  EngineBackend() : kernels_(runtime::testing::test_kernels()) {
    kernels_.add(linear_kernels());
    kernels_.add(conv_kernels());
  }
  std::string_view id() const override { return "Engine"; }
  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override { return runtime::load_program_delegate(request, kernels_, states_); }

 private:
  runtime::KernelTable kernels_;
  mutable runtime::StateCache states_;
};

struct Weights {
  std::vector<float> image = random_floats(8 * 4 * 3 * 3, 1), matrix = random_floats(96 * 512, 2);
};

int32_t constant(PlanBuilder& b, const std::vector<float>& data, std::vector<int64_t> sizes) {
  b.program.constants.push_back(format::Payload::borrow(std::as_bytes(std::span(data))));
  format::TensorSpec spec = PlanBuilder::tensor(std::move(sizes));
  spec.data_index = static_cast<uint32_t>(b.program.constants.size());
  return b.value(spec);
}

format::PortMeta port(const char* name, std::vector<int64_t> sizes) {
  format::PortMeta made;
  made.name = name;
  for (const int64_t size : sizes) made.dims.push_back(format::DimExpr::constant(size));
  return made;
}

/// image [2,4,8,8] -> conv2d -> [2,8,8,8], seen as [2,512] -> linear -> [2,96]; sum [2,96] += it, where it lies.
std::vector<std::byte> make_payload(const Weights& weights) {
  PlanBuilder b;
  const int32_t image = b.value(PlanBuilder::tensor({2, 4, 8, 8})), sum = b.value(PlanBuilder::tensor({2, 96}));
  const int32_t conv_out = b.value(b.planned({2, 8, 8, 8})), rows = b.value(PlanBuilder::tensor({2, 512})), out = b.value(b.planned({2, 96}));
  const int32_t image_weight = constant(b, weights.image, {8, 4, 3, 3}), matrix = constant(b, weights.matrix, {96, 512});
  const int32_t none = b.value(format::NullValue{}), one = b.value(int64_t{1}), zero = b.value(int64_t{0}), two = b.value(int64_t{2}), wide = b.value(int64_t{512});
  const int32_t ones = b.value(format::IntListValue{{one, one}}), sizes = b.value(format::IntListValue{{two, wide}}), strides = b.value(format::IntListValue{{wide, one}});
  const int32_t clamp = b.value(std::string("clamp")), gelu = b.value(std::string("gelu"));
  const int32_t low = b.value(0.0), minus = b.value(-kInfinity), plus = b.value(kInfinity);
  b.plan.inputs = {image, sum};
  b.plan.outputs = {sum};
  b.call("pteron_cpu::conv2d", "out", {image, image_weight, none, none, ones, ones, ones, one, clamp, low, plus, conv_out, conv_out});
  b.call("pteron::view_strided", "out", {conv_out, sizes, strides, zero, rows, rows});
  b.call("pteron_cpu::linear", "out", {rows, matrix, none, none, gelu, minus, plus, out, out});
  b.call("aten::add", "out", {sum, out, one, sum, sum});
  format::MethodMeta method;
  method.name = "forward";
  method.inputs = {port("image", {2, 4, 8, 8}), port("sum", {2, 96})};
  method.inputs[1].mutated = true;
  method.outputs = {port("out", {2, 96})};
  format::ProgramMeta meta;
  meta.methods = {method};
  auto facts = format::write_meta(meta);
  EXPECT_TRUE(facts.ok());
  b.program.blobs = {{format::Payload::borrow(facts->span()), 0, 0}};
  b.program.named_data = {{std::string(format::kMetaKey), 0}};
  return b.bytes();
}

/// A program whose buffer `sum` the payload updates.
PlanBuilder around(std::span<const std::byte> payload) {
  PlanBuilder b;
  const int32_t image = b.value(PlanBuilder::tensor({2, 4, 8, 8})), sum = b.value(b.planned({2, 96}));
  b.plan.inputs = {image};
  b.plan.outputs = {sum};
  b.program.blobs = {{format::Payload::borrow(payload), 0, 0}};
  b.plan.delegates = {{"Engine", 0, {}}};
  b.plan.instructions = {format::DelegateCall{0, {image, sum, sum}}};
  return b;
}

/// That program's bytes, with what they need while they are loaded.
struct EngineProgram {
  Weights weights;
  std::vector<std::byte> payload = make_payload(weights), bytes = around(payload).bytes();
  EngineBackend backend;

  Result<std::shared_ptr<Program>> load() const {
    LoadOptions options = runtime::testing::test_options();
    options.threads = 2;
    options.delegates = {&backend};
    return runtime::load_program(nullptr, bytes, "test.pte", options);
  }
};

/// kCalls calls with images of a thread's own; what the buffer holds at the end.
std::vector<float> run_session(Program& program, uint32_t seed) {
  auto method = program.load_method("forward");
  EXPECT_TRUE(method.ok()) << method.status().message();
  if (!method.ok()) return {};
  for (int call = 0; call < kCalls; ++call) {
    std::vector<float> image = random_floats(2 * 4 * 8 * 8, seed + static_cast<uint32_t>(call));
    EXPECT_OK((*method)->set_input(0, runtime::testing::view_of(image, {2, 4, 8, 8})));
    EXPECT_OK((*method)->execute());
  }
  return runtime::testing::floats(**method, 0);
}

TEST(EngineThreads, TwoSessionsOfOneProgram) {
  const EngineProgram engine;
  auto program = engine.load();
  ASSERT_TRUE(program.ok()) << program.status().message();
  const std::array<std::vector<float>, 2> expected = {run_session(**program, 100), run_session(**program, 900)};
  ASSERT_EQ(expected[0].size(), 2u * 96u);
  EXPECT_NE(expected[0], expected[1]);
  std::array<std::vector<float>, 2> found;
  {
    std::thread first([&] { found[0] = run_session(**program, 100); }), second([&] { found[1] = run_session(**program, 900); });
    first.join();
    second.join();
  }
  for (size_t s = 0; s < 2; ++s) {
    ASSERT_EQ(found[s].size(), expected[s].size());
    for (size_t i = 0; i < found[s].size(); ++i) EXPECT_NEAR(found[s][i], expected[s][i], 1e-3f * (1 + std::fabs(expected[s][i]))) << s << " " << i;
  }
}

/// Control bits of the vector units: rounding, masks of exceptions, flush to zero, subnormals as zero; not what happened so far.
uint32_t vector_control() { return _mm_getcsr() & ~0x3fu; }

TEST(EngineThreads, TheCallersFlushStateIsLeftAlone) {
  const EngineProgram engine;
  constexpr uint32_t kFlushToZero = 0x8000, kSubnormalsAreZero = 0x0040;
  const uint32_t before = _mm_getcsr();
  for (const uint32_t state : {0u, kFlushToZero, kFlushToZero | kSubnormalsAreZero}) {
    const uint32_t wanted = (before & ~(kFlushToZero | kSubnormalsAreZero | 0x3fu)) | state;
    _mm_setcsr(wanted);
    auto program = engine.load();
    const bool loaded = program.ok();
    if (loaded) run_session(**program, 100);
    const uint32_t after = vector_control();
    _mm_setcsr(before);
    ASSERT_TRUE(loaded);
    EXPECT_EQ(after, wanted);
  }
}

}  // namespace
}  // namespace pteron::cpu
