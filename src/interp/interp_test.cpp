// The evaluator on graphs made of real operators: scalars, views, symbolic sizes, states, control flow.
#include <cstring>

#include <gtest/gtest.h>

#include "interp/evaluator.h"
#include "ir/builder.h"
#include "ops/catalog.h"
#include "ops/kernels.h"
#include "tensor/dtype.h"

namespace pteron::interp {
namespace {

using ir::Expr;
using ir::ValueId;

const ir::Catalog& catalog() {
  static const ir::Catalog* made = [] {
    auto result = ops::make_catalog();
    EXPECT_TRUE(result.ok());
    return new ir::Catalog(std::move(result).value());
  }();
  return *made;
}

HostTensor floats(std::vector<int64_t> sizes, std::vector<float> data) {
  auto tensor = make_tensor(DType::kFloat32, sizes);
  EXPECT_TRUE(tensor.ok());
  std::memcpy(tensor->view.data, data.data(), data.size() * sizeof(float));
  return *tensor;
}

std::vector<float> contents(const HostTensor& tensor) {
  auto flat = make_contiguous(tensor);
  EXPECT_TRUE(flat.ok());
  return {flat->view.as<float>(), flat->view.as<float>() + flat->view.numel()};
}

struct Fixture {
  ir::Program program;
  ir::Method method{program};
  ir::Graph& graph = method.graph;
  ir::Builder builder{graph, catalog(), graph.order};
  Evaluator evaluator{ops::portable_kernels(), serial_pool()};

  ValueId input(ir::Graph& g, std::vector<Expr> sizes) {
    const ValueId id = g.add_tensor(ir::contiguous_type(DType::kFloat32, std::move(sizes)), "x");
    g.inputs.push_back({"x", id, {}});
    return id;
  }
};

TEST(Scalars, FollowPython) {
  ir::ExprContext exprs;
  const Expr s = exprs.symbol("s");
  const Symbols symbols = {{s.node(), Number::of(int64_t{-7})}};
  EXPECT_EQ(evaluate_number(ir::floor_div(s, 2), symbols)->integer, -4);
  EXPECT_EQ(evaluate_number(ir::floor_mod(s, 2), symbols)->integer, 1);
  const Expr args[] = {s, Expr(2)};
  EXPECT_EQ(evaluate_number(exprs.make(ir::ExprOp::kTrueDiv, args), symbols)->floating, -3.5);
  EXPECT_FALSE(evaluate_number(exprs.symbol("t"), symbols).has_value());
}

TEST(Scalars, LearnFromLinearSizes) {
  ir::ExprContext exprs;
  const Expr s = exprs.symbol("s");
  Symbols symbols;
  EXPECT_FALSE(learn_size(s * 2 + 1, 8, &symbols));
  EXPECT_TRUE(learn_size(s * 2 + 1, 9, &symbols));
  EXPECT_EQ(symbols.at(s.node()).integer, 4);
  EXPECT_TRUE(learn_size(s + 1, 5, &symbols));
  EXPECT_FALSE(learn_size(s + 1, 6, &symbols));
}

TEST(RunGraph, RunsDynamicShapesAndStates) {
  Fixture f;
  const Expr n = f.program.exprs.symbol("n");
  f.program.exprs.set_range(n, {1, 100});
  const ValueId x = f.input(f.graph, {n, Expr(2)});
  ir::Constant zero;
  zero.name = "total";
  zero.sizes = {2};
  zero.strides = {1};
  static const float kStart[2] = {10, 20};
  zero.data = reinterpret_cast<const std::byte*>(kStart);
  const ir::ConstantId initial = f.program.add(std::move(zero));
  const ValueId state = f.graph.add_tensor(ir::contiguous_type(DType::kFloat32, {Expr(2)}), "total");
  const ValueId next = f.builder.op("aten::add.Tensor", {state, state});
  f.graph.states.push_back({"total", state, next, initial});
  f.graph.outputs = {f.builder.op("aten::add.Tensor", {x, state}), n * 2};
  ASSERT_TRUE(f.builder.status().ok());
  StateTensors states;
  const HostTensor inputs[] = {floats({3, 2}, {0, 0, 1, 1, 2, 2})};
  auto first = run_graph(f.evaluator, f.graph, inputs, &states);
  ASSERT_TRUE(first.ok()) << first.status().message();
  EXPECT_EQ(contents(*(*first)[0]), (std::vector<float>{10, 20, 11, 21, 12, 22}));
  EXPECT_EQ(*(*first)[1]->view.as<int64_t>(), 6);
  const HostTensor smaller[] = {floats({1, 2}, {0, 0})};
  auto second = run_graph(f.evaluator, f.graph, smaller, &states);
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(contents(*(*second)[0]), (std::vector<float>{20, 40}));
  const HostTensor wrong[] = {floats({1, 3}, {0, 0, 0})};
  EXPECT_EQ(run_graph(f.evaluator, f.graph, wrong, &states).status().code(), Code::kInvalidInput);
}

TEST(RunGraph, TakesTheBranchThatTheSizeSays) {
  Fixture f;
  const Expr n = f.program.exprs.symbol("n");
  const ValueId x = f.input(f.graph, {n});
  ir::Node cond;
  cond.op = catalog().find("higher_order::cond");
  ASSERT_NE(cond.op, nullptr);
  const Expr compared[] = {n, Expr(2)};
  cond.args = {f.program.exprs.make(ir::ExprOp::kLt, compared), std::vector<ValueId>{x}};
  for (const char* name : {"aten::neg", "aten::abs"}) {
    auto region = std::make_unique<ir::Graph>(f.program);
    const ValueId inner = f.input(*region, {n});
    ir::Builder b(*region, catalog(), region->order);
    region->outputs = {b.op(name, {inner})};
    ASSERT_TRUE(b.status().ok());
    cond.regions.push_back(std::move(region));
  }
  cond.outputs = {f.graph.add_tensor(ir::contiguous_type(DType::kFloat32, {n}), "y")};
  f.graph.outputs = {cond.outputs[0]};
  f.graph.order.push_back(f.graph.add_node(std::move(cond)));
  StateTensors states;
  const HostTensor one[] = {floats({1}, {5})};
  auto small = run_graph(f.evaluator, f.graph, one, &states);
  ASSERT_TRUE(small.ok()) << small.status().message();
  EXPECT_EQ(contents(*(*small)[0]), (std::vector<float>{-5}));
  const HostTensor two[] = {floats({2}, {5, -6})};
  auto large = run_graph(f.evaluator, f.graph, two, &states);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(contents(*(*large)[0]), (std::vector<float>{5, 6}));
}

}  // namespace
}  // namespace pteron::interp
