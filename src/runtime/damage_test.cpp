// Damaged programs: every bit of small files flipped and every length cut, read from heap buffers of exactly the file's size, loaded and run.
// Under the sanitizers this shows that no file from outside makes the runtime read or write where it must not.
#include <algorithm>
#include <memory>
#include <optional>

#include "format/meta.h"
#include "runtime/test_host_device.h"
#include "runtime/test_program.h"

/// Read by AddressSanitizer. A file may ask for more memory than there is; the answer is an error, not the end of the test.
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1:max_allocation_size_mb=256"; }

namespace pteron::runtime::testing {
namespace {

using Floats = std::vector<float>;

/// Sets inputs that fit what the file says, runs, and reads all outputs.
void run_whatever_it_says(Method& method) {
  Floats data(4096, 0.5f);
  for (size_t i = 0; i < method.input_count(); ++i) {
    const ValueInfo& info = method.info().inputs[i];
    std::vector<int64_t> sizes;
    for (const DimInfo& dim : info.dims) sizes.push_back(dim.max);
    if (info.kind == ValueKind::kTensor && info.bound_bytes() <= data.size() * sizeof(float)) {
      static_cast<void>(method.set_input(i, make_contiguous_view(info.dtype, sizes, data.data())).ok());
    }
    static_cast<void>(method.set_int_input(i, info.integer).ok());
    static_cast<void>(method.set_bool_input(i, info.integer != 0).ok());
    static_cast<void>(method.set_double_input(i, info.floating).ok());
  }
  for (int call = 0; call < 2; ++call) {
    if (!method.execute().ok()) break;
    for (size_t i = 0; i < method.output_count(); ++i) {
      const auto output = method.output(i);
      if (!output.ok() || !std::holds_alternative<TensorView>(*output)) continue;
      const TensorView view = std::get<TensorView>(*output);
      if (view.size_bytes() > 65536) continue;
      std::vector<std::byte> copy(view.size_bytes() + 1);
      copy_strided(view, make_contiguous_view(view.dtype, view.sizes(), copy.data()));
    }
  }
  method.reset();
}

struct Counts {
  size_t refused = 0, ran = 0;
};

void load_and_run(std::span<const std::byte> damaged, Counts& counts) {
  const auto exact = std::make_unique<std::byte[]>(damaged.size());
  std::copy(damaged.begin(), damaged.end(), exact.get());
  LoadOptions options = test_options();
  options.max_instructions = 200;
  HostDevice device;
  options.device_allocators = {&device};
  auto program = load_program(nullptr, {exact.get(), damaged.size()}, "damaged", options);
  if (!program.ok()) {
    EXPECT_FALSE(program.status().message().empty());
    ++counts.refused;
    return;
  }
  for (const std::string& name : program.value()->method_names()) {
    auto method = program.value()->load_method(name);
    if (!method.ok()) continue;
    run_whatever_it_says(*method.value());
    ++counts.ran;
  }
}

Counts damage(const std::vector<std::byte>& good) {
  Counts counts;
  std::vector<std::byte> bytes = good;
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    load_and_run(bytes, counts);
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  for (size_t length = 0; length < bytes.size(); ++length) load_and_run({bytes.data(), length}, counts);
  return counts;
}

/// Views, lists, a branch, a move, a loop counter, a constant and state in one plan.
PlanBuilder busy_program() {
  static const Floats kConstant = {1, 2, 3, 4}, kState = {5, 6, 7, 8};
  PlanBuilder b;
  b.program.constants.push_back(format::Payload::borrow(std::as_bytes(std::span(kConstant))));
  b.program.initial_states.push_back(format::Payload::borrow(std::as_bytes(std::span(kState))));
  format::TensorSpec constant = PlanBuilder::tensor({2, 2}), state = b.planned({2, 2}), flag = b.planned({1});
  constant.data_index = 1;
  state.data_index = 1;
  flag.dtype = DType::kBool;
  const int32_t x = b.value(b.planned({4, 2}, true)), condition = b.value(flag), c = b.value(constant), s = b.value(state);
  const int32_t view = b.value(PlanBuilder::tensor({2, 2})), reshaped = b.value(PlanBuilder::tensor({4})), sum = b.value(b.planned({2, 2}));
  const int32_t out = b.value(PlanBuilder::tensor({2, 2})), moved = b.value(PlanBuilder::tensor({2, 2}));
  const int32_t zero = b.value(int64_t{0}), one = b.value(int64_t{1}), two = b.value(int64_t{2}), four = b.value(int64_t{4});
  const int32_t n = b.value(int64_t{0}), done = b.value(false), no = b.value(false), rows = b.value(int64_t{0});
  const int32_t sizes = b.value(format::IntListValue{{two, two}}), strides = b.value(format::IntListValue{{two, one}}), flat = b.value(format::IntListValue{{four}});
  b.plan.inputs = {x, condition};
  b.plan.outputs = {out, moved, reshaped, rows};
  b.call("aten::sym_size", "int", {x, zero, rows});
  b.call("pteron::view_strided", "out", {x, sizes, strides, two, view, view});
  b.call("aten::add", "out", {view, c, one, sum, sum});
  b.call("executorch_prim::et_view", "default", {sum, flat, reshaped, reshaped});
  b.call("executorch_prim::add", "Scalar", {n, one, n});
  b.call("executorch_prim::ge", "Scalar", {n, two, done});
  b.plan.instructions.push_back(format::JumpFalseCall{done, 4});
  b.plan.instructions.push_back(format::JumpFalseCall{condition, 9});
  b.plan.instructions.push_back(format::MoveCall{sum, moved});
  b.call("aten::add", "out", {sum, s, two, out, out});
  b.call("aten::copy_", "", {s, out, no, s});
  b.call("test::scratch", "out", {sum, sum, sum});
  return b;
}

TEST(Damage, NoBitOrLengthBreaksTheRuntime) {
  PlanBuilder b = busy_program();
  const std::vector<std::byte> good = b.bytes();
  Counts whole;
  load_and_run(good, whole);
  EXPECT_EQ(whole.ran, 1u);
  const Counts counts = damage(good);
  EXPECT_GT(counts.refused, good.size());  // all short ones at least
  EXPECT_GT(counts.ran, 1000u);            // constants and names may hold anything
}

/// An input, state and an output on a device, with copies between them and to the host.
PlanBuilder device_program() {
  static const Floats kState = {5, 6, 7, 8};
  constexpr Device kDevice{DeviceType::kCuda, 0};
  PlanBuilder b;
  b.program.initial_states.push_back(format::Payload::borrow(std::as_bytes(std::span(kState))));
  const auto on_device = [&](std::optional<uint64_t> offset, bool dynamic) {
    format::TensorSpec spec = PlanBuilder::tensor({2, 2}, dynamic);
    spec.device = kDevice;
    if (offset) spec.allocation = format::Allocation{2, *offset};
    return spec;
  };
  const int32_t x = b.value(b.planned({2, 2}, true)), back = b.value(b.planned({2, 2}, true));
  b.plan.arenas.push_back({128, kDevice});
  format::TensorSpec state = on_device(64, false);
  state.data_index = 1;
  const int32_t given = b.value(on_device(std::nullopt, true)), there = b.value(on_device(0, true)), kept = b.value(state), out = b.value(on_device(std::nullopt, true));
  b.plan.inputs = {x, given};
  b.plan.outputs = {back, out};
  b.call("et_copy::_h2d_copy", "out", {x, there, there});
  b.call("pteron::device_copy", "out", {given, out, out});
  b.call("pteron::device_copy", "out", {there, kept, kept});
  b.call("et_copy::_d2h_copy", "out", {kept, back, back});
  return b;
}

TEST(Damage, NoBitOfAProgramWithDevicesBreaksTheRuntime) {
  PlanBuilder b = device_program();
  const std::vector<std::byte> good = b.bytes();
  Counts whole;
  load_and_run(good, whole);
  EXPECT_EQ(whole.ran, 1u);
  const Counts counts = damage(good);
  EXPECT_GT(counts.refused, good.size());
  EXPECT_GT(counts.ran, 1000u);
}

TEST(Damage, NoBitOfTheFactsBreaksTheRuntime) {
  PlanBuilder b;
  const int32_t x = b.value(b.planned({8, 2}, true));
  b.plan.inputs = b.plan.outputs = {x};
  format::ProgramMeta meta;
  format::MethodMeta& method = meta.methods.emplace_back();
  method.name = "forward";
  method.symbols = {{"s0", 1, 4, 1, 0}};
  format::PortMeta port;
  port.name = "x";
  format::DimExpr twice;
  twice.steps = {{format::DimOp::kConst, 2}, {format::DimOp::kSymbol, 0}, {format::DimOp::kMul, 0}};
  twice.text = "2*s0";
  port.dims = {twice, format::DimExpr::constant(2)};
  method.inputs = method.outputs = {port};
  format::ConstraintMeta constraint;
  constraint.condition.steps = {{format::DimOp::kSymbol, 0}, {format::DimOp::kConst, 8}, {format::DimOp::kLe, 0}};
  constraint.text = constraint.condition.text = "s0 <= 8";
  method.constraints = {constraint};
  auto bytes = format::write_meta(meta);
  ASSERT_TRUE(bytes.ok());
  format::BlobSpec blob;
  blob.payload = format::Payload::borrow(bytes->span());
  b.program.blobs = {blob};
  b.program.named_data = {{std::string(format::kMetaKey), 0}};
  const Counts counts = damage(b.bytes());
  EXPECT_GT(counts.refused, 1000u);
  EXPECT_GT(counts.ran, 1000u);
}

}  // namespace
}  // namespace pteron::runtime::testing
