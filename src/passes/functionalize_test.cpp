// Functionalize, resolve, decompose, dce and cse on graphs written by hand.
#include <gtest/gtest.h>

#include "passes/passes.h"
#include "passes/test_ops.h"

namespace pteron::passes {
namespace {

using ir::Expr;
using ir::ValueId;
using test::TestGraph;

TEST(Functionalize, LeavesAFunctionalGraphAlone) {
  TestGraph t;
  const ValueId x = t.input("x", {4, 4});
  const ValueId v = t.builder.op("aten::slice.Tensor", {x, Expr(0), Expr(1), Expr(3), Expr(1)});
  t.graph.outputs = {t.builder.op("aten::relu", {v})};
  const std::string before = t.text();
  auto changed = functionalize(t.graph, t.catalog);
  ASSERT_TRUE(changed.ok());
  EXPECT_FALSE(*changed);
  EXPECT_EQ(t.text(), before);
}

TEST(Functionalize, WriteThroughViewReachesTheBaseAndOtherViews) {
  TestGraph t;
  const ValueId x = t.input("x", {4, 4});
  const ValueId base = t.builder.op("aten::relu", {x});
  const ValueId rows = t.builder.op("aten::slice.Tensor", {base, Expr(0), Expr(1), Expr(3), Expr(1)});
  const ValueId other = t.builder.op("aten::select.int", {base, Expr(1), Expr(0)});
  const ValueId cell = t.builder.op("aten::select.int", {rows, Expr(0), Expr(0)});
  t.in_place("aten::add_.Tensor", {cell, cell});
  t.graph.outputs = {base, other, rows};
  ASSERT_TRUE(functionalize(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(),
            "relu(x) -> relu\n"
            "slice.Tensor(relu) -> slice\n"
            "select.int(relu) -> select\n"
            "select.int(slice) -> select_1\n"
            "add.Tensor(select_1, select_1) -> add\n"
            "select_scatter(slice, add) -> select_scatter\n"
            "slice_scatter(relu, select_scatter) -> slice_scatter\n"
            "select.int(slice_scatter) -> select_2\n");
  EXPECT_EQ(t.graph[std::get<ValueId>(t.graph.outputs[0])].name, "slice_scatter");
  EXPECT_EQ(t.graph[std::get<ValueId>(t.graph.outputs[1])].name, "select_2");
  EXPECT_EQ(t.graph[std::get<ValueId>(t.graph.outputs[2])].name, "select_scatter");
}

TEST(Functionalize, WritesToInputsAndBuffersAreReported) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  const ValueId state = t.buffer("count", {4});
  const ValueId before = t.builder.op("aten::relu", {state});
  t.in_place("aten::add_.Tensor", {state, x});
  t.in_place("aten::mul_.Tensor", {x, x});
  t.graph.outputs = {before, state};
  ASSERT_TRUE(functionalize(t.graph, t.catalog).ok());
  ASSERT_EQ(t.graph.states.size(), 1u);
  const ir::State& s = t.graph.states[0];
  EXPECT_EQ(s.name, "count");
  EXPECT_FALSE(t.graph[s.value].constant.valid());
  EXPECT_TRUE(t.program[s.initial].mutable_elsewhere);
  EXPECT_EQ(t.graph[s.result].name, "add");
  ASSERT_EQ(t.graph.input_mutations.size(), 1u);
  EXPECT_EQ(t.graph.input_mutations[0].input, 0u);
  EXPECT_EQ(t.graph[t.graph.input_mutations[0].result].name, "mul");
  EXPECT_EQ(t.text(), "relu(count_1) -> relu\nadd.Tensor(count_1, x) -> add\nmul.Tensor(x, x) -> mul\n");
}

TEST(Functionalize, CopyCastsAndBroadcasts) {
  TestGraph t;
  const ValueId x = t.input("x", {4, 2});
  const ValueId row = t.input("row", {1, 2}, DType::kInt64);
  t.in_place("aten::copy_", {x, row});
  t.graph.outputs = {x};
  ASSERT_TRUE(functionalize(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(), "_to_copy(row) -> _to_copy\nexpand(_to_copy) -> expand\n");
}

TEST(Functionalize, MetadataWritesRenameTheirArgument) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  const ValueId base = t.builder.op("aten::relu", {x});
  t.in_place("aten::unsqueeze_", {base, Expr(0)});
  t.in_place("aten::add_.Tensor", {base, base});
  t.graph.outputs = {base};
  ASSERT_TRUE(functionalize(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(), "relu(x) -> relu\nunsqueeze(relu) -> unsqueeze\nadd.Tensor(unsqueeze, unsqueeze) -> add\nview(add) -> view\n");
  EXPECT_EQ(t.graph[std::get<ValueId>(t.graph.outputs[0])].name, "add");
}

TEST(Functionalize, SplitMembersScatterBack) {
  TestGraph t;
  const ValueId x = t.input("x", {4, 2});
  const std::vector<ValueId> parts = t.builder.ops("aten::split.Tensor", {x, Expr(2), Expr(0)});
  t.in_place("aten::mul_.Tensor", {parts[1], parts[0]});
  t.graph.outputs = {x};
  ASSERT_TRUE(functionalize(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(), "split.Tensor(x) -> split split_1\nmul.Tensor(split_1, split) -> mul\nslice_scatter(x, mul) -> slice_scatter\n");
  const ir::Node& scatter = t.graph[t.graph.order.back()];
  EXPECT_EQ(std::get<Expr>(scatter.args[3]), Expr(2));
  EXPECT_EQ(std::get<Expr>(scatter.args[4]), Expr(4));
}

TEST(Resolve, ReshapeAliasesOnlyWhereStridesAllow) {
  TestGraph t;
  const ValueId x = t.input("x", {4, 2});
  const auto reshape = [&](ValueId from, std::vector<Expr> sizes) {
    ir::Node node;
    node.op = t.catalog.find("aten::reshape");
    node.args = {from, sizes};
    node.outputs = {t.graph.add_tensor(ir::contiguous_type(DType::kFloat32, sizes), "reshape")};
    const ValueId out = node.outputs[0];
    t.graph.order.push_back(t.graph.add_node(std::move(node)));
    return out;
  };
  const ValueId turned = t.builder.op("aten::transpose.int", {x, Expr(0), Expr(1)});
  t.graph[turned].type.strides = {1, 2};
  const ValueId flat = reshape(x, {8});
  const ValueId copied = reshape(turned, {8});
  t.in_place("aten::add_.Tensor", {flat, flat});
  t.in_place("aten::add_.Tensor", {copied, copied});
  t.graph.outputs = {x, flat, copied};
  ASSERT_TRUE(resolve(t.graph, t.catalog).ok());
  ASSERT_TRUE(functionalize(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(),
            "transpose.int(x) -> transpose\nview(x) -> view\nclone(transpose) -> clone\nview(clone) -> view_1\n"
            "add.Tensor(view, view) -> add\nview(add) -> view_2\nadd.Tensor(view_1, view_1) -> add_1\nview(add_1) -> view_3\n");
  EXPECT_EQ(t.graph[t.graph.input_mutations.at(0).result].name, "view_2");
}

TEST(Decompose, RunsToAFixedPointAndRefusesEndlessOnes) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  t.graph.outputs = {t.builder.op("test::double", {t.builder.op("test::double", {x})})};
  const Keep none = [](const ir::Graph&, const ir::Node&) { return false; };
  ASSERT_TRUE(decompose(t.graph, t.catalog, none).ok());
  EXPECT_EQ(t.text(), "add.Tensor(x, x) -> add\nadd.Tensor(add, add) -> add_1\n");
  TestGraph endless;
  endless.graph.outputs = {endless.builder.op("test::endless", {endless.input("x", {Expr(1)})})};
  EXPECT_EQ(decompose(endless.graph, endless.catalog, none).status().code(), Code::kInternal);
}

TEST(Dce, KeepsDefinitionsOfSymbolsInUse) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  const ValueId n = t.builder.op("aten::item", {x});
  t.builder.op("aten::item", {x});
  t.builder.op("aten::relu", {x});
  t.graph.outputs = {t.builder.op("aten::view", {x, std::vector<Expr>{t.graph[n].scalar}})};
  ASSERT_TRUE(dce(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(), "item(x) -> item\nview(x) -> view\n");
}

TEST(Cse, MergesEqualNodes) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  const ValueId a = t.builder.op("aten::relu", {x});
  const ValueId b = t.builder.op("aten::relu", {x});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {a, b})};
  ASSERT_TRUE(cse(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(), "relu(x) -> relu\nadd.Tensor(relu, relu) -> add\n");
}

TEST(CheckSupported, NamesEveryOperatorOnce) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {t.builder.op("aten::relu", {x}), t.builder.op("aten::relu", {x})})};
  EXPECT_TRUE(check_supported(t.program, [](std::string_view) { return true; }).ok());
  const Status status = check_supported(t.program, [](std::string_view) { return false; });
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_NE(status.message().find("aten::relu  x2"), std::string_view::npos);
  EXPECT_NE(status.message().find("aten::add.Tensor  x1"), std::string_view::npos);
}

}  // namespace
}  // namespace pteron::passes
