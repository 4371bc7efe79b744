// What pteron.meta adds: ranges, equalities and divisibility of sizes, dynamic scalar inputs, shared arenas.
#include "base/str_cat.h"
#include "format/meta.h"
#include "runtime/test_program.h"

namespace pteron::runtime::testing {
namespace {

using format::DimExpr;
using format::DimOp;
using Floats = std::vector<float>;

/// 2*symbol.
DimExpr twice(int64_t symbol, std::string text) {
  DimExpr expr;
  expr.steps = {{DimOp::kConst, 2}, {DimOp::kSymbol, symbol}, {DimOp::kMul, 0}};
  expr.text = std::move(text);
  return expr;
}

format::PortMeta port(std::string name, std::vector<DimExpr> dims) {
  format::PortMeta made;
  made.name = std::move(name);
  made.dims = std::move(dims);
  return made;
}

/// Loads the plan with facts about its method.
Loaded load_with(PlanBuilder& b, format::MethodMeta method) {
  format::ProgramMeta meta;
  method.name = "forward";
  meta.methods.push_back(std::move(method));
  auto bytes = format::write_meta(meta);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  format::BlobSpec blob;
  blob.payload = format::Payload::borrow(bytes->span());
  b.program.blobs.push_back(blob);
  b.program.named_data.push_back({std::string(format::kMetaKey), static_cast<uint32_t>(b.program.blobs.size() - 1)});
  return load(b);
}

/// forward(x: [s0, 2], y: [2*s1, s0]) with s0 in [2, 4] and s1 % 2 == 0; returns x.
Loaded two_symbols(PlanBuilder& b) {
  const int32_t x = b.value(b.planned({4, 2}, true)), y = b.value(b.planned({16, 4}, true));
  b.plan.inputs = {x, y};
  b.plan.outputs = {x};
  format::MethodMeta method;
  method.symbols = {{"s0", 2, 4, 1, 0}, {"s1", 0, 8, 2, 0}};
  method.inputs = {port("x", {DimExpr::symbol(0, "s0"), DimExpr::constant(2)}), port("y", {twice(1, "2*s1"), DimExpr::symbol(0, "s0")})};
  method.outputs = {port("result", {DimExpr::symbol(0, "s0"), DimExpr::constant(2)})};
  format::ConstraintMeta less;
  less.condition.steps = {{DimOp::kSymbol, 1}, {DimOp::kSymbol, 0}, {DimOp::kLe, 0}};
  less.condition.text = less.text = "s1 <= s0";
  method.constraints = {less};
  return load_with(b, method);
}

TEST(Contract, ArenasBeginWhereTheyWerePlannedFor) {
  for (const uint32_t alignment : {16u, 64u, 256u, 4096u}) {
    PlanBuilder b;
    const int32_t x = b.value(b.planned({4, 2}, true));
    b.plan.inputs = b.plan.outputs = {x};
    format::MethodMeta method;
    method.inputs = {port("x", {DimExpr::constant(4), DimExpr::constant(2)})};
    method.outputs = {port("y", {DimExpr::constant(4), DimExpr::constant(2)})};
    method.arenas = {{alignment, {}}};
    Loaded loaded = load_with(b, method);
    ASSERT_NE(loaded.method, nullptr);
    const Floats data(8, 1);
    const int64_t sizes[] = {4, 2};
    ASSERT_TRUE(loaded.method->set_input(0, make_contiguous_view(DType::kFloat32, sizes, const_cast<float*>(data.data()))).ok());
    ASSERT_TRUE(loaded.method->execute().ok());
    const auto out = loaded.method->output(0);
    ASSERT_TRUE(out.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(std::get<TensorView>(*out).data) % std::max(alignment, 64u), 0u) << alignment;
  }
}

TEST(Contract, SizesAreChecked) {
  PlanBuilder b;
  Loaded loaded = two_symbols(b);
  ASSERT_NE(loaded.method, nullptr);
  Method& m = *loaded.method;
  Floats data(64, 1);
  struct Row {
    std::vector<int64_t> x, y;
    const char* error;  // of set_input or execute; null = fits
  };
  const Row rows[] = {
      {{2, 2}, {4, 2}, nullptr},
      {{4, 2}, {8, 4}, nullptr},
      {{3, 2}, {0, 3}, nullptr},
      {{1, 2}, {4, 1}, "input 0 (x): expected float32 [s0 in 2..4,2], found float32 [1,2]"},
      {{3, 1}, {4, 3}, "input 0 (x): expected float32 [s0 in 2..4,2], found float32 [3,1]"},  // a static dim stays static
      {{3, 2}, {4, 2}, "input 1 (y): size of dim 1 is 2, expected 3 (s0, as in the inputs before it)"},
      {{3, 2}, {3, 3}, "input 1 (y): size of dim 0: expected 2*s1, found 3"},
      {{3, 2}, {6, 3}, "input 1 (y): size of dim 0: expected 2*s1 with s1 in [0,8], found 6"},
      {{2, 2}, {8, 2}, "sizes of inputs: expected s1 <= s0, found s1 = 4 (input 1 (y): size of dim 0 is 2*s1), s0 = 2 (input 0 (x): size of dim 0)"},
  };
  for (const Row& row : rows) {
    Status status = m.set_input("x", view_of(data, row.x));
    if (status.ok()) status = m.set_input("y", view_of(data, row.y));
    if (status.ok()) status = m.execute();
    if (row.error == nullptr) {
      EXPECT_OK(status);
    } else {
      EXPECT_ERROR(status, Code::kInvalidInput, row.error);
    }
  }
}

TEST(Contract, NamesComeFromTheFacts) {
  PlanBuilder b;
  Loaded loaded = two_symbols(b);
  ASSERT_NE(loaded.method, nullptr);
  EXPECT_EQ(loaded.method->info().inputs[1].name, "y");
  EXPECT_EQ(loaded.method->info().outputs[0].name, "result");
  EXPECT_EQ(loaded.method->info().inputs[1].type_text(), "float32 [2*s1 in 0..16,s0 in 2..4]");
  EXPECT_EQ(*loaded.method->input_index("1"), 1u);
}

TEST(Contract, DynamicIntsTakeTheirRange) {
  PlanBuilder b;
  const int32_t n = b.value(int64_t{5}), x = b.value(b.planned({8}, true));
  b.plan.inputs = {n, x};
  b.plan.outputs = {n};
  format::MethodMeta method;
  method.symbols = {{"s0", 1, 6, 1, 0}};
  format::PortMeta count = port("n", {});
  count.kind = format::PortKind::kInt;
  count.symbol = 0;
  count.int_min = 1;
  count.int_max = 6;
  format::PortMeta result = count;
  result.symbol = -1;
  method.inputs = {count, port("x", {DimExpr::symbol(0, "s0")})};
  method.outputs = {result};
  Loaded loaded = load_with(b, method);
  ASSERT_NE(loaded.method, nullptr);
  Method& m = *loaded.method;
  Floats data(8, 0);
  for (const int64_t value : {3, 6}) {
    EXPECT_OK(m.set_int_input(0, value));
    EXPECT_OK(m.set_input(1, view_of(data, {value})));
    EXPECT_OK(m.execute());
    EXPECT_EQ(std::get<int64_t>(*m.output(0)), value);
  }
  EXPECT_ERROR(m.set_int_input(0, 7), Code::kInvalidInput, "input 0 (n): expected a value in [1, 6], found 7");
  EXPECT_OK(m.set_int_input(0, 2));
  EXPECT_ERROR(m.execute(), Code::kInvalidInput, "input 1 (x): size of dim 0 is 6, expected 2");
}

TEST(Contract, ScratchIsAskedForAgainWhereNumbersVary) {
  PlanBuilder b;
  const int32_t n = b.value(int64_t{64}), x = b.value(b.planned({2})), out = b.value(b.planned({2}));
  b.plan.inputs = {n, x};
  b.plan.outputs = {out};
  b.call("test::count", "out", {x, n, out, out});
  format::MethodMeta method;
  method.symbols = {{"s0", 1, 4096, 1, 0}};
  format::PortMeta count = port("n", {});
  count.kind = format::PortKind::kInt;
  count.symbol = 0;
  count.int_min = 1;
  count.int_max = 4096;
  method.inputs = {count, port("x", {DimExpr::constant(2)})};
  method.outputs = {port("result", {DimExpr::constant(2)})};
  Loaded loaded = load_with(b, method);
  ASSERT_NE(loaded.method, nullptr);
  Floats data = {1, 2};
  EXPECT_OK(loaded.method->set_input(1, view_of(data, {2})));
  EXPECT_OK(loaded.method->set_int_input(0, 64));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(floats(*loaded.method, 0), data);
  EXPECT_OK(loaded.method->set_int_input(0, 4000));
  EXPECT_ERROR(loaded.method->execute(), Code::kUnsupported,
               "instruction 0 (test::count.out): with these numbers the kernel needs 4000 bytes of scratch memory, 64 were planned at load");
}

TEST(Contract, FactsMustFitThePlan) {
  PlanBuilder b;
  const int32_t x = b.value(b.planned({4, 2}));
  b.plan.inputs = b.plan.outputs = {x};
  format::MethodMeta method;
  method.name = "forward";
  method.inputs = {port("x", {DimExpr::constant(4)})};
  method.outputs = {port("x", {DimExpr::constant(4), DimExpr::constant(2)})};
  format::ProgramMeta meta;
  meta.methods = {method};
  auto bytes = format::write_meta(meta);
  ASSERT_TRUE(bytes.ok());
  format::BlobSpec blob;
  blob.payload = format::Payload::borrow(bytes->span());
  b.program.blobs = {blob};
  b.program.named_data = {{std::string(format::kMetaKey), 0}};
  EXPECT_ERROR(load_error(b), Code::kInvalidFile, "differ in input 0");
}

/// A counter whose state lies in arena 2, which pteron.meta may share: out = s + x, s = out.
PlanBuilder shared_counter(std::string_view share, std::vector<std::byte>& meta_bytes) {
  PlanBuilder b;
  format::MethodMeta method;
  method.inputs = {port("x", {DimExpr::constant(1)})};
  method.outputs = {port("y", {DimExpr::constant(1)})};
  method.arenas = {{64, ""}, {64, std::string(share)}};
  static const float kStart[1] = {3};
  b.program.initial_states = {format::Payload::borrow(std::as_bytes(std::span(kStart)))};
  const int32_t x = b.value(b.planned({1})), alpha = b.value(int64_t{1}), out = b.value(b.planned({1})), no = b.value(false);
  format::TensorSpec state = PlanBuilder::tensor({1});
  state.allocation = format::Allocation{2, 0};
  state.data_index = 1;
  b.plan.arenas.push_back({64, {}});
  const int32_t s = b.value(state);
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("aten::add", "out", {s, x, alpha, out, out});
  b.call("aten::copy_", "", {s, out, no, s});
  format::ProgramMeta meta;
  for (const char* name : {"decode", "forward"}) {
    method.name = name;
    meta.methods.push_back(method);
  }
  auto bytes = format::write_meta(meta);
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  meta_bytes.assign(bytes->span().begin(), bytes->span().end());
  format::BlobSpec blob;
  blob.payload = format::Payload::borrow(meta_bytes);
  b.program.blobs = {blob};
  b.program.named_data = {{std::string(format::kMetaKey), 0}};
  b.program.plans.push_back(b.plan);  // the first method; bytes() adds "forward"
  b.program.plans[0].name = "decode";
  return b;
}

float call_with(Method& method, float value) {
  std::vector<float> x = {value};
  EXPECT_OK(method.set_input(0, view_of(x, {1})));
  EXPECT_OK(method.execute());
  return floats(method, 0)[0];
}

TEST(Sessions, ShareTheArenasThatTheFileShares) {
  std::vector<std::byte> meta;
  PlanBuilder b = shared_counter("state", meta);
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Method& forward = *loaded.method;
  auto decode = loaded.program->load_method("decode", forward);
  ASSERT_TRUE(decode.ok()) << decode.status().message();
  auto other = loaded.program->load_method("decode");  // a session of its own
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(call_with(forward, 1), 4);
  EXPECT_EQ(call_with(**decode, 10), 14);
  EXPECT_EQ(call_with(forward, 1), 15);
  EXPECT_EQ(call_with(**other, 1), 4);
  decode.value()->reset();
  EXPECT_EQ(call_with(forward, 1), 4);
  EXPECT_EQ(call_with(**other, 1), 5);
  std::vector<std::byte> more;
  PlanBuilder again = shared_counter("state", more);
  Loaded foreign = load(again);
  ASSERT_NE(foreign.method, nullptr);
  EXPECT_ERROR(foreign.program->load_method("decode", forward).status(), Code::kInvalidInput, "another program");
}

TEST(Sessions, ArenasWithoutAShareBelongToTheMethod) {
  std::vector<std::byte> meta;
  PlanBuilder b = shared_counter("", meta);
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  auto decode = loaded.program->load_method("decode", *loaded.method);
  ASSERT_TRUE(decode.ok());
  EXPECT_EQ(call_with(*loaded.method, 1), 4);
  EXPECT_EQ(call_with(**decode, 10), 13);
}

TEST(MutatedInput, IsThePlannedCopy) {
  PlanBuilder b;
  const int32_t x = b.value(b.planned({2})), alpha = b.value(int64_t{1}), sum = b.value(b.planned({2})), no = b.value(false);
  b.plan.inputs = {x};
  b.plan.outputs = {sum};
  b.call("aten::add", "out", {x, x, alpha, sum, sum});
  b.call("aten::copy_", "", {x, sum, no, x});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  EXPECT_ERROR(loaded.method->input(0).status(), Code::kInvalidInput, "not set");
  EXPECT_ERROR(loaded.method->input(1).status(), Code::kInvalidInput, "input 1");
  std::vector<float> data = {1, 2};
  EXPECT_OK(loaded.method->set_input(0, view_of(data, {2})));
  for (const float factor : {2.0f, 4.0f}) {  // it stays set, with what the call wrote
    EXPECT_OK(loaded.method->execute());
    const auto now = loaded.method->input(0);
    ASSERT_TRUE(now.ok()) << now.status().message();
    EXPECT_EQ(static_cast<const float*>(now->data)[1], 2 * factor);
  }
  EXPECT_EQ(data, (std::vector<float>{1, 2}));
}

}  // namespace
}  // namespace pteron::runtime::testing
