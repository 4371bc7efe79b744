// View ops: symbolic and constant layouts, and the copying kernels against layouts computed by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ops/catalog.h"
#include "ops/kernels.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::view {
namespace {

using ir::Arg;

struct Fixture : testing::Test {
  Fixture() : catalog(std::move(make_catalog()).value()), method(program) {}

  ValueId input(std::vector<Expr> sizes) {
    return method.graph.add_tensor(ir::contiguous_type(DType::kFloat32, std::move(sizes)), "x");
  }
  std::vector<ValueId> run(std::string_view name, std::vector<Arg> args, Status* status = nullptr) {
    ir::Builder b(method.graph, catalog, method.graph.order);
    std::vector<ValueId> ids = b.ops(name, std::move(args));
    if (status != nullptr) *status = b.take_status();
    return ids;
  }
  std::string sizes(ValueId id) { return shape_text(method.graph[id].type.sizes); }
  std::string strides(ValueId id) { return shape_text(method.graph[id].type.strides); }

  ir::Catalog catalog;
  ir::Program program;
  ir::Method method;
};

TEST_F(Fixture, SliceClampsLikeAten) {
  const ValueId x = input({10, 4});
  const auto one = [&](Expr start, Expr end, int64_t step) { return sizes(run("aten::slice.Tensor", {x, Expr(0), start, end, Expr(step)})[0]); };
  EXPECT_EQ(one(2, INT64_MAX, 3), "[3,4]");
  EXPECT_EQ(one(-3, -1, 1), "[2,4]");
  EXPECT_EQ(one(-30, 100, 1), "[10,4]");
  EXPECT_EQ(one(7, 3, 1), "[0,4]");
}

TEST_F(Fixture, SymbolicSizesStayExact) {
  const Expr s = program.exprs.symbol("s0");
  program.exprs.set_range(s, {2, 100});
  const ValueId x = input({s, 6});
  EXPECT_EQ(sizes(run("aten::slice.Tensor", {x, Expr(0), Expr(1), Expr(INT64_MAX), Expr(1)})[0]), shape_text(std::vector<Expr>{s - Expr(1), 6}));
  EXPECT_EQ(sizes(run("aten::view", {x, std::vector<Expr>{Expr(-1), Expr(2), Expr(3)}})[0]), shape_text(std::vector<Expr>{s, 2, 3}));
  EXPECT_EQ(sizes(run("aten::view", {x, std::vector<Expr>{Expr(3), Expr(-1)}})[0]), shape_text(std::vector<Expr>{3, s * Expr(2)}));
  const ValueId t = run("aten::transpose.int", {x, Expr(0), Expr(1)})[0];
  EXPECT_EQ(strides(t), "[1,6]");
  EXPECT_EQ(run("aten::chunk", {x, Expr(3), Expr(1)}).size(), 3u);
  const Expr two_or_three = program.exprs.symbol("s1");
  program.exprs.set_range(two_or_three, {2, 3});
  EXPECT_EQ(sizes(run("aten::slice.Tensor", {input({two_or_three, 6}), Expr(0), Expr(0), Expr(INT64_MAX), Expr(3)})[0]), "[1,6]");
  EXPECT_EQ(floor_mod(two_or_three + Expr(8), 10), two_or_three - Expr(2));
  program.exprs.set_range(two_or_three, {3, 3});
  EXPECT_EQ(two_or_three - Expr(2), Expr(1));
}

TEST_F(Fixture, ErrorsNameWhatIsWrong) {
  const ValueId x = input({2, 3});
  Status status;
  run("aten::view", {x, std::vector<Expr>{Expr(4), Expr(2)}}, &status);
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  run("aten::select.int", {x, Expr(1), Expr(3)}, &status);
  EXPECT_NE(status.message().find("index 3 is out of bounds for dim 1 of size 3"), std::string_view::npos) << status.message();
  run("aten::permute", {x, std::vector<Expr>{Expr(0), Expr(0)}}, &status);
  EXPECT_EQ(status.code(), Code::kInvalidInput);
}

TEST_F(Fixture, EveryCoreViewHasItsKernel) {
  for (const ir::Op* op : catalog.all()) {
    if (!op->is_view() || op->kernel.empty()) continue;
    EXPECT_NE(portable_kernels().find(op->kernel), nullptr) << op->name;
  }
}

TEST(ViewKernel, ReshapeOfTransposedCopies) {
  std::vector<float> data(6), out(6);
  std::iota(data.begin(), data.end(), 0.0f);
  runtime::Value self, size, result, items[2];
  self.tag = result.tag = runtime::Tag::kTensor;
  const int64_t from[] = {2, 3}, to[] = {6};
  self.tensor.view = make_contiguous_view(DType::kFloat32, from, data.data());
  std::swap(self.tensor.view.size_array[0], self.tensor.view.size_array[1]);
  std::swap(self.tensor.view.stride_array[0], self.tensor.view.stride_array[1]);
  result.tensor.view = make_contiguous_view(DType::kFloat32, to, out.data());
  items[0].tag = runtime::Tag::kInt;
  items[0].integer = -1;
  runtime::Value* const boxed[] = {&items[0]};
  size.tag = runtime::Tag::kIntList;
  size.items = boxed;
  runtime::KernelContext context{&serial_pool(), {}};
  std::array<runtime::Value*, 3> args{&self, &size, &result};
  const Status status = portable_kernels().find("aten::view_copy.out")->fn(context, args);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, (std::vector<float>{0, 3, 1, 4, 2, 5}));
}

}  // namespace
}  // namespace pteron::ops::view
