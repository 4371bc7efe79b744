// Loading and running small programs: inputs, outputs, dynamic sizes, state, views, control flow, errors.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "runtime/test_program.h"

namespace pteron::runtime::testing {
namespace {

using Floats = std::vector<float>;

/// forward(x, y) = x + y with all three tensors planned or not.
PlanBuilder add_program(std::vector<int64_t> sizes, bool planned, bool dynamic = false, std::vector<uint8_t> dim_order = {}) {
  PlanBuilder b;
  const auto make = [&] {
    format::TensorSpec spec = planned ? b.planned(sizes, dynamic) : PlanBuilder::tensor(sizes, dynamic);
    spec.dim_order = dim_order;
    return spec;
  };
  const int32_t x = b.value(make()), y = b.value(make()), alpha = b.value(int64_t{1}), out = b.value(make());
  b.plan.inputs = {x, y};
  b.plan.outputs = {out};
  b.call("aten::add", "out", {x, y, alpha, out, out});
  return b;
}

TEST(Method, AddsPlannedAndUnplanned) {
  for (const bool planned : {true, false}) {
    PlanBuilder b = add_program({2, 2}, planned);
    Loaded loaded = load(b);
    ASSERT_NE(loaded.method, nullptr);
    Floats x = {1, 2, 3, 4}, y = {10, 20, 30, 40};
    EXPECT_OK(loaded.method->set_input(0, view_of(x, {2, 2})));
    EXPECT_OK(loaded.method->set_input("input_1", view_of(y, {2, 2})));
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{11, 22, 33, 44}));
    EXPECT_OK(loaded.method->execute());  // inputs stay set: their memory is their own
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{11, 22, 33, 44}));
  }
}

TEST(Method, TakesAnyStridesAndAddresses) {
  for (const bool planned : {true, false}) {
    PlanBuilder b = add_program({2, 3}, planned);
    Loaded loaded = load(b);
    ASSERT_NE(loaded.method, nullptr);
    std::vector<std::byte> raw(1 + 6 * sizeof(float));
    const Floats transposed = {1, 4, 2, 5, 3, 6};
    std::memcpy(raw.data() + 1, transposed.data(), 6 * sizeof(float));
    TensorView x = make_contiguous_view(DType::kFloat32, std::vector<int64_t>{2, 3}, raw.data() + 1);
    x.stride_array[0] = 1;
    x.stride_array[1] = 2;
    Floats scalar = {100};
    TensorView y = make_contiguous_view(DType::kFloat32, std::vector<int64_t>{2, 3}, scalar.data());
    y.stride_array[0] = y.stride_array[1] = 0;
    EXPECT_OK(loaded.method->set_input(0, x));
    EXPECT_OK(loaded.method->set_input(1, y));
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{101, 102, 103, 104, 105, 106}));
  }
}

TEST(Method, ConvertsToTheProgramsMemoryFormat) {
  for (const bool planned : {true, false}) {
    PlanBuilder b = add_program({1, 2, 2, 1}, planned, false, {0, 2, 3, 1});
    Loaded loaded = load(b);
    ASSERT_NE(loaded.method, nullptr);
    Floats x = {1, 2, 3, 4}, y = {0, 0, 0, 0};
    EXPECT_OK(loaded.method->set_input(0, view_of(x, {1, 2, 2, 1})));
    EXPECT_OK(loaded.method->set_input(1, view_of(y, {1, 2, 2, 1})));
    EXPECT_OK(loaded.method->execute());
    const auto output = loaded.method->output(0);
    ASSERT_TRUE(output.ok());
    EXPECT_EQ(std::get<TensorView>(*output).stride(1), 1);  // the program's format
    EXPECT_EQ(floats(*loaded.method, 0), x);                // the same logical values
  }
}

TEST(Method, RefusesInputsThatDoNotFit) {
  PlanBuilder b = add_program({2, 2}, true);
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {1, 2, 3, 4, 5, 6};
  EXPECT_ERROR(loaded.method->set_input(0, view_of(x, {2, 3})), Code::kInvalidInput, "input 0 (input_0): expected float32 [2,2], found float32 [2,3]");
  TensorView odd = view_of(x, {2, 2});
  odd.dtype = static_cast<DType>(200);
  EXPECT_ERROR(loaded.method->set_input(0, odd), Code::kInvalidInput, "found dtype number 200, which is none [2,2]");
  odd = view_of(x, {2, 2});
  odd.rank = kMaxRank + 1;
  EXPECT_ERROR(loaded.method->set_input(0, odd), Code::kInvalidInput, "found float32 of rank 17");
  odd = view_of(x, {2, 2});
  odd.stride_array[0] = -2;
  EXPECT_ERROR(loaded.method->set_input(0, odd), Code::kInvalidInput, "expected strides of 0 and more, found [-2,1]");
  EXPECT_ERROR(loaded.method->set_input(0, view_of(x, {4})), Code::kInvalidInput, "found float32 [4]");
  TensorView ints = view_of(x, {2, 2});
  ints.dtype = DType::kInt32;
  EXPECT_ERROR(loaded.method->set_input(1, ints), Code::kInvalidInput, "found int32 [2,2]");
  EXPECT_ERROR(loaded.method->set_input(2, view_of(x, {2, 2})), Code::kInvalidInput, "input 2 is asked for, there are 2");
  EXPECT_ERROR(loaded.method->set_input("z", view_of(x, {2, 2})), Code::kInvalidInput, "no input \"z\"; it has 2: input_0, input_1");
  EXPECT_ERROR(loaded.method->set_int_input(0, 1), Code::kInvalidInput, "found int 1");
  EXPECT_OK(loaded.method->set_input(1, view_of(x, {2, 2})));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidInput, "input 0 (input_0): was not set; 1 of 2 inputs are set");
  EXPECT_ERROR(loaded.method->output(0).status(), Code::kInvalidInput, "only after execute()");
}

TEST(Method, DynamicSizesUpToTheBound) {
  for (const bool planned : {true, false}) {
    PlanBuilder b = add_program({4, 2}, planned, true);
    Loaded loaded = load(b);
    ASSERT_NE(loaded.method, nullptr);
    Floats x = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, y = x;
    for (const int64_t rows : {4, 1, 0, 3}) {
      EXPECT_OK(loaded.method->set_input(0, view_of(x, {rows, 2})));
      EXPECT_OK(loaded.method->set_input(1, view_of(y, {rows, 2})));
      EXPECT_OK(loaded.method->execute());
      const Floats got = floats(*loaded.method, 0);
      ASSERT_EQ(got.size(), static_cast<size_t>(rows * 2));
      for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], 2 * x[i]);
    }
    EXPECT_ERROR(loaded.method->set_input(0, view_of(x, {5, 2})), Code::kInvalidInput, "expected float32 [0..4,0..2], found float32 [5,2]");
    EXPECT_ERROR(loaded.method->set_input(0, view_of(x, {2, 4})), Code::kInvalidInput, "found float32 [2,4]");  // fits the bytes, not the dims
  }
}

TEST(Method, CallersOutputBufferIsCheckedAgainstTheBound) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  for (const bool planned : {true, false}) {
    PlanBuilder b = add_program({4, 2}, planned, true);
    Loaded loaded = load(b);
    ASSERT_NE(loaded.method, nullptr);
    // Two pages of which the second cannot be touched: a write behind the buffer ends the test.
    auto* pages = static_cast<std::byte*>(::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(pages, MAP_FAILED);
    ASSERT_EQ(::mprotect(pages + page, page, PROT_NONE), 0);
    const size_t full = 4 * 2 * sizeof(float);
    Floats x = {1, 2, 3, 4, 5, 6, 7, 8};
    EXPECT_OK(loaded.method->set_input(0, view_of(x, {1, 2})));
    EXPECT_OK(loaded.method->set_input(1, view_of(x, {1, 2})));
    EXPECT_OK(loaded.method->execute());  // the output is small now: its bound still counts
    const size_t small = 2 * sizeof(float);
    EXPECT_ERROR(loaded.method->set_output_data_ptr(0, pages + page - small, small), Code::kInvalidInput, "may need 32 bytes, the buffer has 8");
    EXPECT_OK(loaded.method->set_output_data_ptr(0, pages + page - full, full));
    for (const int64_t rows : {1, 4, 2}) {
      EXPECT_OK(loaded.method->set_input(0, view_of(x, {rows, 2})));
      EXPECT_OK(loaded.method->set_input(1, view_of(x, {rows, 2})));
      EXPECT_OK(loaded.method->execute());
      const auto output = loaded.method->output(0);
      ASSERT_TRUE(output.ok());
      EXPECT_EQ(std::get<TensorView>(*output).data, pages + page - full);
      EXPECT_EQ(floats(*loaded.method, 0).back(), 4 * static_cast<float>(rows));
    }
    // An address that is no multiple of the element size: delivered by a copy.
    EXPECT_OK(loaded.method->set_output_data_ptr(0, pages + 1, full));
    EXPECT_OK(loaded.method->execute());
    float first = 0;
    std::memcpy(&first, pages + 1, sizeof first);
    EXPECT_EQ(first, 2);
    EXPECT_OK(loaded.method->set_output_data_ptr(0, nullptr, 0));
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{2, 4, 6, 8}));
    ::munmap(pages, 2 * page);
  }
}

/// forward(x) = state + x, then state = result; the state starts at 3.
PlanBuilder counter_program() {
  PlanBuilder b;
  static const Floats kStart = {3};
  b.program.initial_states.push_back(format::Payload::borrow(std::as_bytes(std::span(kStart))));
  format::TensorSpec state = b.planned({1});
  state.data_index = 1;
  const int32_t s = b.value(state), x = b.value(b.planned({1})), alpha = b.value(int64_t{1}), out = b.value(b.planned({1})), no = b.value(false);
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("aten::add", "out", {s, x, alpha, out, out});
  b.call("aten::copy_", "", {s, out, no, s});
  return b;
}

TEST(Method, StatePersistsAndResets) {
  PlanBuilder b = counter_program();
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {10};
  for (int round = 0; round < 2; ++round) {
    for (const float expected : {13.0f, 23.0f, 33.0f}) {
      EXPECT_OK(loaded.method->set_input(0, view_of(x, {1})));
      EXPECT_OK(loaded.method->execute());
      EXPECT_EQ(floats(*loaded.method, 0), (Floats{expected}));
    }
    loaded.method->reset();
    EXPECT_ERROR(loaded.method->output(0).status(), Code::kInvalidInput, "only after");
    EXPECT_ERROR(loaded.method->execute(), Code::kInvalidInput, "was not set");
  }
  auto second = loaded.program->load_method("forward");  // state of its own
  ASSERT_TRUE(second.ok());
  EXPECT_OK(second.value()->set_input(0, view_of(x, {1})));
  EXPECT_OK(second.value()->execute());
  EXPECT_EQ(floats(*second.value(), 0), (Floats{13}));
}

TEST(Method, InputWhoseMemoryIsReusedMustBeSetAgain) {
  PlanBuilder b;
  format::TensorSpec spec = b.planned({2});
  const int32_t x = b.value(spec), alpha = b.value(int64_t{1}), out = b.value(spec);  // the same bytes
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("aten::add", "out", {x, x, alpha, out, out});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1, 2};
  EXPECT_OK(loaded.method->set_input(0, view_of(data, {2})));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{2, 4}));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidInput, "must be set again before each call");
}

TEST(Method, ViewsMoveNoBytes) {
  // out = x[:, 1:].t() + constant
  PlanBuilder b;
  static const Floats kOnes = {1, 1, 1, 1};
  b.program.constants.push_back(format::Payload::borrow(std::as_bytes(std::span(kOnes))));
  format::TensorSpec ones = PlanBuilder::tensor({2, 2});
  ones.data_index = 1;
  const int32_t x = b.value(b.planned({2, 3})), c = b.value(ones), view = b.value(PlanBuilder::tensor({2, 2}));
  const int32_t one = b.value(int64_t{1}), two = b.value(int64_t{2}), three = b.value(int64_t{3});
  const int32_t sizes = b.value(format::IntListValue{{two, two}}), strides = b.value(format::IntListValue{{one, three}});
  const int32_t out = b.value(b.planned({2, 2}));
  b.plan.inputs = {x};
  b.plan.outputs = {out, view};
  b.call("pteron::view_strided", "out", {x, sizes, strides, one, view, view});
  b.call("aten::add", "out", {view, c, one, out, out});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1, 2, 3, 4, 5, 6};
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(loaded.method->set_input(0, view_of(data, {2, 3})));
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{3, 6, 4, 7}));
    EXPECT_EQ(floats(*loaded.method, 1), (Floats{2, 5, 3, 6}));
  }
}

TEST(Method, ViewsStayInsideTheirBase) {
  PlanBuilder b;
  const int32_t x = b.value(b.planned({2, 3})), view = b.value(PlanBuilder::tensor({2, 2}));
  const int32_t two = b.value(int64_t{2}), three = b.value(int64_t{3});
  const int32_t sizes = b.value(format::IntListValue{{two, two}}), strides = b.value(format::IntListValue{{two, three}});
  b.plan.inputs = {x};
  b.plan.outputs = {view};
  b.call("pteron::view_strided", "out", {x, sizes, strides, two, view, view});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1, 2, 3, 4, 5, 6};
  EXPECT_OK(loaded.method->set_input(0, view_of(data, {2, 3})));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidInput, "method forward: instruction 0 (pteron::view_strided.out): a view of shape [2,2]");
}

TEST(Method, ViewsMayNameAnotherDtypeOfTheSameSize) {
  for (const DType dtype : {DType::kInt32, DType::kInt64, DType::kInt16}) {
    PlanBuilder b;
    format::TensorSpec seen = PlanBuilder::tensor({2});
    seen.dtype = dtype;
    const int32_t x = b.value(b.planned({2, 2})), view = b.value(seen), one = b.value(int64_t{1}), two = b.value(int64_t{2});
    const int32_t sizes = b.value(format::IntListValue{{two}}), strides = b.value(format::IntListValue{{one}});
    b.plan.inputs = {x};
    b.plan.outputs = {view};
    b.call("pteron::view_strided", "out", {x, sizes, strides, two, view, view});
    Loaded loaded = load(b);
    ASSERT_NE(loaded.method, nullptr);
    Floats data = {1, 2, 3, -4};
    EXPECT_OK(loaded.method->set_input(0, view_of(data, {2, 2})));
    if (dtype != DType::kInt32) {
      EXPECT_ERROR(loaded.method->execute(), Code::kInvalidFile, "a view of float32 as int");
      continue;
    }
    EXPECT_OK(loaded.method->execute());
    const auto bits = loaded.method->output(0);
    ASSERT_TRUE(bits.ok());
    const auto* seen_bits = std::get<TensorView>(*bits).as<int32_t>();
    EXPECT_EQ(seen_bits[0], 0x40400000);
    EXPECT_EQ(seen_bits[1], static_cast<int32_t>(0xc0800000));
  }
}

TEST(Method, ConstantsAreNeverWritten) {
  PlanBuilder b;
  static const Floats kOnes = {1, 1};
  b.program.constants.push_back(format::Payload::borrow(std::as_bytes(std::span(kOnes))));
  format::TensorSpec ones = PlanBuilder::tensor({2});
  ones.data_index = 1;
  const int32_t x = b.value(b.planned({2})), c = b.value(ones), one = b.value(int64_t{1});
  b.plan.inputs = {x};
  b.plan.outputs = {c};
  b.call("aten::add", "out", {x, x, one, c, c});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1, 2};
  EXPECT_OK(loaded.method->set_input(0, view_of(data, {2})));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidFile, "is a constant where a result goes");
}

/// forward(x, flag): result = flag ? x + x : x + x * 10, through jumps and moves.
TEST(Method, JumpsAndMoves) {
  PlanBuilder b;
  format::TensorSpec flag = b.planned({1});
  flag.dtype = DType::kBool;
  const int32_t x = b.value(b.planned({1})), condition = b.value(flag), one = b.value(int64_t{1}), ten = b.value(int64_t{10});
  const int32_t then = b.value(b.planned({1})), other = b.value(b.planned({1})), result = b.value(b.planned({1})), never = b.value(false);
  const int32_t add = b.op("aten::add", "out");
  b.plan.inputs = {x, condition};
  b.plan.outputs = {result};
  b.plan.instructions = {format::JumpFalseCall{condition, 4}, format::KernelCall{add, {x, x, one, then, then}}, format::MoveCall{then, result},
                         format::JumpFalseCall{never, 6}, format::KernelCall{add, {x, x, ten, other, other}}, format::MoveCall{other, result}};
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1};
  for (const bool yes : {true, false, true}) {
    uint8_t byte = yes ? 1 : 0;
    EXPECT_OK(loaded.method->set_input(0, view_of(data, {1})));
    EXPECT_OK(loaded.method->set_input(1, make_contiguous_view(DType::kBool, std::vector<int64_t>{1}, &byte)));
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{yes ? 2.0f : 11.0f}));
  }
}

TEST(Method, EndlessLoopsEnd) {
  PlanBuilder b;
  const int32_t zero = b.value(int64_t{0}), never = b.value(false);
  b.plan.outputs = {never};
  b.call("executorch_prim::lt", "Scalar", {zero, zero, never});
  b.plan.instructions.push_back(format::JumpFalseCall{never, 0});
  LoadOptions options = test_options();
  options.max_instructions = 1000;
  Loaded loaded = load(b, options);
  ASSERT_NE(loaded.method, nullptr);
  EXPECT_ERROR(loaded.method->execute(), Code::kInternal, "more than 1000 instructions in one call");
}

TEST(Method, LoopCountersStartAnew) {
  // n = 0; do { n += 1 } while (n < 5); returns n
  PlanBuilder b;
  const int32_t n = b.value(int64_t{0}), one = b.value(int64_t{1}), five = b.value(int64_t{5}), done = b.value(false);
  b.plan.outputs = {n};
  b.call("executorch_prim::add", "Scalar", {n, one, n});
  b.call("executorch_prim::ge", "Scalar", {n, five, done});
  b.plan.instructions.push_back(format::JumpFalseCall{done, 0});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(loaded.method->execute());
    const auto output = loaded.method->output(0);
    ASSERT_TRUE(output.ok());
    EXPECT_EQ(std::get<int64_t>(*output), 5);
  }
}

TEST(Method, ScalarInputsMustHaveTheCompiledValue) {
  PlanBuilder b;
  const int32_t i = b.value(int64_t{7}), d = b.value(2.5), flag = b.value(true), none = b.value(format::NullValue{}), text = b.value(std::string("mode"));
  b.plan.inputs = {i, d, flag, none, text};
  b.plan.outputs = {i, d, flag, none, text};
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Method& m = *loaded.method;
  EXPECT_ERROR(m.set_int_input(0, 8), Code::kInvalidInput, "expected int 7, which the program was compiled for, found int 8");
  EXPECT_ERROR(m.set_double_input(0, 7), Code::kInvalidInput, "expected int, found float 7");
  EXPECT_OK(m.set_int_input(0, 7));
  EXPECT_OK(m.set_double_input(1, 2.5));
  EXPECT_ERROR(m.execute(), Code::kInvalidInput, "input 2 (input_2): was not set");
  uint8_t yes = 1;
  EXPECT_OK(m.set_input(2, make_contiguous_view(DType::kBool, std::vector<int64_t>{}, &yes)));
  EXPECT_OK(m.execute());
  EXPECT_EQ(std::get<int64_t>(*m.output(0)), 7);
  EXPECT_EQ(std::get<double>(*m.output(1)), 2.5);
  EXPECT_EQ(std::get<bool>(*m.output(2)), true);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(*m.output(3)));
  EXPECT_EQ(std::get<std::string_view>(*m.output(4)), "mode");
}

TEST(Method, NamesEverythingThatIsMissing) {
  PlanBuilder b = add_program({1}, true);
  b.call("aten::gelu", "out", {0, 0, 0});
  b.call("aten::gelu", "out", {0, 0, 0});
  b.call("my::op", "", {0});
  b.program.blobs.push_back({});
  b.plan.delegates.push_back({"SomeBackend", 0, {}});
  b.plan.instructions.push_back(format::DelegateCall{0, {0, 3}});
  EXPECT_ERROR(load_error(b), Code::kUnsupported, "method forward: this runtime lacks delegate \"SomeBackend\", aten::gelu.out (2 calls), my::op");
}

TEST(Method, KernelErrorsSayWhere) {
  PlanBuilder b = add_program({1}, true);
  b.call("test::fail", "out", {0, 3, 3});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {1};
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {1})));
  EXPECT_OK(loaded.method->set_input(1, view_of(x, {1})));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidInput, "method forward: instruction 1 (test::fail.out): this kernel always fails");
}

TEST(Method, ScratchHoldsTheBound) {
  PlanBuilder b;
  const int32_t x = b.value(b.planned({8, 4}, true)), out = b.value(b.planned({8, 4}, true));
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("test::scratch", "out", {x, out, out});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1, 2, 3, 4};
  EXPECT_OK(loaded.method->set_input(0, view_of(data, {1, 4})));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(floats(*loaded.method, 0), data);
}

TEST(Method, RefusesMalformedCalls) {
  PlanBuilder few;
  const int32_t x = few.value(few.planned({1}));
  few.plan.outputs = {x};
  few.call("test::scratch", "out", {});
  EXPECT_ERROR(load_error(few), Code::kInvalidFile, "instruction 0 (test::scratch.out): argument 0 is missing or of the wrong kind");

  PlanBuilder input = add_program({1}, true);
  input.plan.instructions.push_back(format::MoveCall{3, 0});
  EXPECT_ERROR(load_error(input), Code::kInvalidFile, "input 0 is the target of a move");

  PlanBuilder odd;
  format::TensorSpec spec = odd.planned({4});
  spec.allocation->offset = 2;
  odd.plan.arenas[0].size_bytes = 64;
  odd.plan.outputs = {odd.value(spec)};
  EXPECT_ERROR(load_error(odd), Code::kInvalidFile, "no multiple of its element size");
}

/// Adds the payload's first byte to every element of its input.
class AddingDelegate final : public Delegate {
 public:
  explicit AddingDelegate(float addend) : addend_(addend) {}
  Status execute(std::span<Value* const> args) override {
    Tensor &in = args[0]->tensor, &out = args[1]->tensor;
    PTERON_TRY(resize(out, in.sizes()));
    for (int64_t i = 0; i < in.numel(); ++i) out.as<float>()[i] = in.as<float>()[i] + addend_;
    return in.as<float>()[0] < 0 ? Status(Code::kUnavailable, "the device is gone") : ok_status();
  }

 private:
  float addend_;
};

class AddingBackend final : public DelegateBackend {
 public:
  std::string_view id() const override { return "AddingBackend"; }
  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override {
    if (request.payload.size() != 1) return Status(Code::kInvalidFile, "a payload of 1 byte is expected");
    EXPECT_EQ(request.method, "forward");
    EXPECT_EQ(request.settings.size(), 1u);
    EXPECT_EQ(request.settings[0].key, "level");
    EXPECT_TRUE(request.named_data.find("blob").has_value());
    return std::unique_ptr<Delegate>(std::make_unique<AddingDelegate>(static_cast<float>(request.payload[0])));
  }
};

PlanBuilder delegate_program(std::span<const std::byte> payload) {
  PlanBuilder b;
  const int32_t x = b.value(b.planned({2})), out = b.value(b.planned({2}));
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  format::BlobSpec blob;
  blob.payload = format::Payload::borrow(payload);
  b.program.blobs = {blob};
  b.program.named_data = {{"blob", 0}};
  b.plan.delegates = {{"AddingBackend", 0, {{"level", {std::byte{1}}}}}};
  b.plan.instructions = {format::DelegateCall{0, {x, out}}};
  return b;
}

TEST(Method, DelegatesRun) {
  static constexpr std::byte kPayload[] = {std::byte{5}, std::byte{6}};
  const AddingBackend backend;
  LoadOptions options = test_options();
  options.delegates = {&backend};
  PlanBuilder b = delegate_program(std::span(kPayload).first(1));
  Loaded loaded = load(b, options);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {1, 2};
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{6, 7}));
  x[0] = -1;
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  EXPECT_ERROR(loaded.method->execute(), Code::kUnavailable, "method forward: instruction 0 (AddingBackend): the device is gone");
  PlanBuilder bad = delegate_program(kPayload);
  EXPECT_ERROR(load_error(bad, options), Code::kInvalidFile, "method forward: delegate 0 (AddingBackend): a payload of 1 byte is expected");
}

TEST(Method, TakesItsOwnOutputAsInput) {
  PlanBuilder b;
  format::TensorSpec spec = b.planned({2, 2});
  const int32_t x = b.value(spec), one = b.value(int64_t{1}), out = b.value(spec);  // input and output share their bytes
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("aten::add", "out", {x, x, one, out, out});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1, 2, 3, 4};
  EXPECT_OK(loaded.method->set_input(0, view_of(data, {2, 2})));
  EXPECT_OK(loaded.method->execute());
  TensorView transposed = std::get<TensorView>(*loaded.method->output(0));
  std::swap(transposed.stride_array[0], transposed.stride_array[1]);
  EXPECT_OK(loaded.method->set_input(0, transposed));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{4, 12, 8, 16}));
}

TEST(Program, HoldsSeveralMethods) {
  PlanBuilder b = add_program({1}, true);
  b.program.plans.push_back(b.plan);
  b.program.plans[0].name = "double";
  b.program.plans[0].instructions[0] = format::KernelCall{0, {0, 0, 2, 3, 3}};
  Loaded loaded = load(b);
  ASSERT_NE(loaded.program, nullptr);
  auto other = loaded.program->load_method("double");
  ASSERT_TRUE(other.ok()) << other.status().message();
  Floats x = {1}, y = {10};
  for (Method* method : {loaded.method.get(), other->get()}) {
    EXPECT_OK(method->set_input(0, view_of(x, {1})));
    EXPECT_OK(method->set_input(1, view_of(y, {1})));
    EXPECT_OK(method->execute());
  }
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{11}));
  EXPECT_EQ(floats(**other, 0), (Floats{2}));
}

TEST(Program, NamesItsMethods) {
  PlanBuilder b = add_program({1}, true);
  Loaded loaded = load(b);
  ASSERT_NE(loaded.program, nullptr);
  EXPECT_EQ(std::vector<std::string>(loaded.program->method_names().begin(), loaded.program->method_names().end()), std::vector<std::string>{"forward"});
  EXPECT_ERROR(loaded.program->load_method("backward").status(), Code::kNotFound, "no method \"backward\"; there are [forward]");
  const auto info = loaded.program->method_info("forward");
  ASSERT_TRUE(info.ok());
  EXPECT_EQ(info->inputs.size(), 2u);
  EXPECT_EQ(info->operators, std::vector<std::string>{"aten::add.out"});
  EXPECT_EQ(info->arena_bytes, std::vector<uint64_t>{132});
}

TEST(Program, LoadsFromAnyAddress) {
  PlanBuilder b = counter_program();
  const std::vector<std::byte> bytes = b.bytes();
  for (size_t shift = 0; shift < 17; ++shift) {
    std::vector<std::byte> moved(bytes.size() + shift);
    std::memcpy(moved.data() + shift, bytes.data(), bytes.size());
    auto program = load_program(nullptr, std::span(moved).subspan(shift), "shifted", test_options());
    ASSERT_TRUE(program.ok()) << program.status().message();
    auto method = program.value()->load_method("forward");
    ASSERT_TRUE(method.ok()) << method.status().message();
    Floats x = {1};
    EXPECT_OK(method.value()->set_input(0, view_of(x, {1})));
    EXPECT_OK(method.value()->execute());
    EXPECT_EQ(floats(*method.value(), 0), (Floats{4}));
  }
}

TEST(Program, ThreadsShareIt) {
  PlanBuilder b = counter_program();
  Loaded loaded = load(b);
  ASSERT_NE(loaded.program, nullptr);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      auto method = loaded.program->load_method("forward");
      ASSERT_TRUE(method.ok());
      Floats x = {1};
      for (int i = 1; i <= 100; ++i) {
        EXPECT_OK(method.value()->set_input(0, view_of(x, {1})));
        EXPECT_OK(method.value()->execute());
        EXPECT_EQ(floats(*method.value(), 0), (Floats{3.0f + static_cast<float>(i)}));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Program, SessionsShareItsPool) {
  PlanBuilder b;
  const int32_t x = b.value(b.planned({1000}, true)), out = b.value(b.planned({1000}, true));
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("test::twice", "out", {x, out, out});
  const std::unique_ptr<ThreadPool> pool = make_thread_pool(4);
  LoadOptions options = test_options();
  options.pool = pool.get();
  Loaded loaded = load(b, options);
  ASSERT_NE(loaded.program, nullptr);
  std::vector<std::thread> sessions;
  for (int t = 0; t < 4; ++t) {
    sessions.emplace_back([&, t] {
      auto method = loaded.program->load_method("forward");
      ASSERT_TRUE(method.ok());
      for (int i = 0; i < 50; ++i) {
        const int64_t count = 1000 - 7 * i - t;
        Floats data(static_cast<size_t>(count), static_cast<float>(t * 100 + i));
        EXPECT_OK(method.value()->set_input(0, view_of(data, {count})));
        EXPECT_OK(method.value()->execute());
        const Floats got = floats(*method.value(), 0);
        ASSERT_EQ(got.size(), data.size());
        EXPECT_TRUE(std::all_of(got.begin(), got.end(), [&](float v) { return v == 2 * data[0]; }));
      }
    });
  }
  for (std::thread& session : sessions) session.join();
}

TEST(Method, WritesNothingAroundTheCallersBuffer) {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  // A page that may be written between two that may not be touched: an access before or behind ends the test.
  auto* pages = static_cast<std::byte*>(::mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(::mprotect(pages + page, page, PROT_READ | PROT_WRITE), 0);
  const size_t bound = 1000 * sizeof(float);
  for (const bool planned : {true, false}) {
    PlanBuilder b = add_program({1000}, planned, true);
    Loaded loaded = load(b);
    ASSERT_NE(loaded.method, nullptr);
    // At the start of the page, at its end, and at addresses that are no multiple of the element size; inputs lie there too.
    for (const size_t at : {size_t{0}, page - bound, size_t{1}, page - bound - 3}) {
      std::byte* buffer = pages + page + at;
      EXPECT_ERROR(loaded.method->set_output_data_ptr(0, buffer, bound - 1), Code::kInvalidInput, "may need 4000 bytes, the buffer has 3999");
      EXPECT_OK(loaded.method->set_output_data_ptr(0, buffer, bound));
      for (const int64_t count : {1, 1000, 3}) {
        std::memset(pages + page, 0x5a, page);
        Floats x(1001, 3);
        std::byte* odd = reinterpret_cast<std::byte*>(x.data()) + 1;
        const Floats values(static_cast<size_t>(count), 5);
        std::memcpy(odd, values.data(), values.size() * sizeof(float));
        const TensorView view = make_contiguous_view(DType::kFloat32, std::vector<int64_t>{count}, odd);
        EXPECT_OK(loaded.method->set_input(0, view));
        EXPECT_OK(loaded.method->set_input(1, view));
        EXPECT_OK(loaded.method->execute());
        EXPECT_EQ(floats(*loaded.method, 0), Floats(static_cast<size_t>(count), 10));
        size_t touched = 0;
        for (size_t i = 0; i < page; ++i) touched += (i < at || i >= at + bound) && pages[page + i] != std::byte{0x5a};
        EXPECT_EQ(touched, 0u);
      }
    }
  }
  ::munmap(pages, 3 * page);
}

}  // namespace
}  // namespace pteron::runtime::testing
