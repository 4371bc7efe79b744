// Groups on graphs written by hand: no cycles, order, what stays outside, reports.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/str_cat.h"
#include "ir/verify.h"
#include "partition/partition.h"
#include "passes/test_ops.h"

namespace pteron::partition {
namespace {

using ir::Expr;
using ir::ValueId;
using passes::test::TestGraph;

/// Takes the operators it is given.
class Taking final : public backends::Backend {
 public:
  Taking(std::string name, std::vector<std::string> ops) : name_(std::move(name)), ops_(std::move(ops)) {}
  std::string_view name() const override { return name_; }
  std::string_view id() const override { return name_; }
  backends::Support supports(const ir::Graph&, const ir::Node& node) const override {
    if (std::find(ops_.begin(), ops_.end(), node.op->name) != ops_.end()) return {};
    return backends::Support::no("not on the list");
  }
  Result<backends::CompiledGroup> compile(ir::Method&, const backends::GroupContext&) const override { return backends::CompiledGroup(); }

 private:
  std::string name_;
  std::vector<std::string> ops_;
};

struct Parted {
  std::vector<Group> groups;
  PartitionReport report;
};

/// Partitions the graph of `t` as the method's.
Parted run(TestGraph& t, std::vector<const backends::Backend*> backends) {
  Parted out;
  auto& method = *std::find_if(t.program.methods.begin(), t.program.methods.end(), [&](const auto& m) { return &m->graph == &t.graph; });
  auto groups = partition(*method, backends, 0, &out.report);
  EXPECT_TRUE(groups.ok());
  if (groups.ok()) out.groups = std::move(groups).value();
  EXPECT_TRUE(ir::verify(t.graph, ir::Dialect::kFunctional).ok());
  for (const Group& group : out.groups) EXPECT_TRUE(ir::verify(group.method->graph, ir::Dialect::kFunctional).ok());
  return out;
}

std::vector<std::string> names(const ir::Graph& graph) {
  std::vector<std::string> out;
  for (const ir::NodeId id : graph.order) out.push_back(graph[id].op->name);
  return out;
}

TEST(Partition, NeverMakesACycle) {
  // relu -> add (outside) -> relu, and the first relu also feeds the second: one group would wait for itself.
  TestGraph t;
  const ValueId x = t.input("x", {4});
  const ValueId first = t.builder.op("aten::relu", {x});
  const ValueId outside = t.builder.op("aten::add.Tensor", {first, x});
  const ValueId second = t.builder.op("aten::relu", {outside});
  t.graph.outputs = {t.builder.op("aten::mul.Tensor", {second, first})};
  const Taking backend("b", {"aten::relu", "aten::mul.Tensor"});
  const Parted parted = run(t, {&backend});
  EXPECT_EQ(names(t.graph), (std::vector<std::string>{"pteron::delegate", "aten::add.Tensor", "pteron::delegate"}));
  ASSERT_EQ(parted.groups.size(), 2u);
  EXPECT_EQ(names(parted.groups[1].method->graph), (std::vector<std::string>{"aten::relu", "aten::mul.Tensor"}));
  EXPECT_EQ(parted.report.shares[0].nodes, 3u);
  EXPECT_EQ(parted.report.shares[0].groups, 2u);
  EXPECT_EQ(parted.report.nodes_outside, 1u);
  ASSERT_EQ(parted.report.refusals.size(), 1u);
  EXPECT_EQ(parted.report.refusals[0].op, "aten::add.Tensor");
}

TEST(Partition, AsksBackendsInOrderAndTakesNothingTwice) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {t.builder.op("aten::relu", {x}), x})};
  const Taking a("a", {"aten::relu"}), b("b", {"aten::relu", "aten::add.Tensor"});
  const Parted parted = run(t, {&a, &b});
  ASSERT_EQ(parted.groups.size(), 2u);
  EXPECT_EQ(parted.groups[0].backend, &a);
  EXPECT_EQ(parted.groups[1].backend, &b);
  EXPECT_EQ(parted.report.nodes_outside, 0u);
}

TEST(Partition, IndependentPartsAreOneGroup) {
  TestGraph t;
  const ValueId x = t.input("x", {4}), y = t.input("y", {4});
  const ValueId left = t.builder.op("aten::relu", {x}), right = t.builder.op("aten::relu", {y});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {left, right})};
  const Taking backend("b", {"aten::relu"});
  const Parted parted = run(t, {&backend});
  ASSERT_EQ(parted.groups.size(), 1u);
  EXPECT_EQ(parted.groups[0].method->graph.inputs.size(), 2u);
  EXPECT_EQ(parted.groups[0].method->graph.outputs.size(), 2u);
}

TEST(Partition, AGroupOfConstantsStaysOutside) {
  TestGraph t;
  const ValueId x = t.input("x", {2});
  const float data[2] = {1, 2};
  const ValueId c = t.builder.constant(DType::kFloat32, {2}, std::as_bytes(std::span(data)), "c");
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {t.builder.op("aten::relu", {c}), x})};
  const Taking backend("b", {"aten::relu"});
  const Parted parted = run(t, {&backend});
  EXPECT_TRUE(parted.groups.empty());
  EXPECT_EQ(names(t.graph), (std::vector<std::string>{"aten::relu", "aten::add.Tensor"}));
}

TEST(Partition, NumbersThatNoTensorGivesAreInputs) {
  TestGraph t;
  const Expr s = t.program.exprs.symbol("s0");
  t.program.exprs.set_range(s, {1, 8});
  const ValueId x = t.input("x", {s}), y = t.input("y", {s * Expr(2)});
  t.graph.outputs = {t.builder.op("aten::relu", {y}), x};
  const Taking backend("b", {"aten::relu"});
  const Parted parted = run(t, {&backend});
  ASSERT_EQ(parted.groups.size(), 1u);
  const ir::Graph& inner = parted.groups[0].method->graph;
  ASSERT_EQ(inner.inputs.size(), 2u);  // y, and s0: 2*s0 alone does not say it
  EXPECT_EQ(inner[inner.inputs[1].value].kind, ir::ValueKind::kScalar);
}

TEST(Partition, LongChainsOfAlternatingOwners) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  ValueId at = x;
  constexpr int kPairs = 10000;
  for (int i = 0; i < kPairs; ++i) at = t.builder.op("aten::add.Tensor", {t.builder.op("aten::relu", {at}), x});
  t.graph.outputs = {at};
  const Taking backend("b", {"aten::relu"});
  EXPECT_EQ(run(t, {&backend}).groups.size(), static_cast<size_t>(kPairs));
  EXPECT_EQ(t.graph.order.size(), static_cast<size_t>(2 * kPairs));
}

}  // namespace
}  // namespace pteron::partition
