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
  // `a` says why it did not take the addition, and that a later one did.
  ASSERT_EQ(parted.report.refusals.size(), 1u);
  EXPECT_EQ(parted.report.refusals[0].backend, "a");
  EXPECT_EQ(parted.report.refusals[0].op, "aten::add.Tensor");
  EXPECT_EQ(parted.report.refusals[0].reason, "not on the list");
  EXPECT_EQ(parted.report.refusals[0].count, 1u);
  EXPECT_EQ(parted.report.refusals[0].outside, 0u);
}

TEST(Partition, EveryBackendSaysWhyANodeStaysOutside) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {t.builder.op("aten::relu", {x}), x})};
  const Taking a("a", {}), b("b", {"aten::relu"});
  const Parted parted = run(t, {&a, &b});
  std::vector<std::string> said;
  for (const Refusal& r : parted.report.refusals) said.push_back(str_cat(r.backend, " ", r.op, " ", r.count, " ", r.outside, " ", r.reason));
  EXPECT_EQ(said, (std::vector<std::string>{"a aten::add.Tensor 1 1 not on the list", "a aten::relu 1 0 not on the list", "b aten::add.Tensor 1 1 not on the list"}));
  EXPECT_EQ(parted.report.nodes_outside, 1u);
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
  EXPECT_EQ(parted.report.nodes_outside, 2u);
  ASSERT_EQ(parted.report.refusals.size(), 2u);
  EXPECT_NE(parted.report.refusals[1].reason.find("nothing but constants"), std::string::npos);
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

TEST(Partition, AnInputThatNobodyInsideReadsKeepsItsPlace) {
  // y is read by the group, though what reads it is no result: rewriting inside may drop the reader, never the argument.
  TestGraph t;
  const ValueId x = t.input("x", {4}), y = t.input("y", {4}), z = t.input("z", {4});
  const ValueId first = t.builder.op("aten::relu", {x});
  t.builder.op("aten::relu", {y});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {first, z})};
  const Taking backend("b", {"aten::relu", "aten::add.Tensor"});
  const Parted parted = run(t, {&backend});
  ASSERT_EQ(parted.groups.size(), 1u);
  const ir::Graph& inner = parted.groups[0].method->graph;
  const ir::Node& call = t.graph[t.graph.order[0]];
  const std::vector<ValueId> given = ir::NodeView(t.graph, *call.op, call.args).values("inputs");
  EXPECT_EQ(given, (std::vector<ValueId>{x, y, z}));
  ASSERT_EQ(inner.inputs.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(inner.inputs[i].name, t.graph[given[i]].name);
    EXPECT_EQ(inner[inner.inputs[i].value].type.dtype, t.graph[given[i]].type.dtype);
  }
}

/// Partitions a chain of `pairs` nodes inside and as many outside; gives the steps that it took.
uint64_t steps_of_chain(size_t pairs) {
  TestGraph t;
  const ValueId x = t.input("x", {4});
  ValueId at = x;
  for (size_t i = 0; i < pairs; ++i) at = t.builder.op("aten::add.Tensor", {t.builder.op("aten::relu", {at}), x});
  t.graph.outputs = {at};
  const Taking backend("b", {"aten::relu"});
  const Parted parted = run(t, {&backend});
  EXPECT_EQ(parted.groups.size(), pairs);
  EXPECT_EQ(t.graph.order.size(), 2 * pairs);
  return parted.report.steps;
}

TEST(Partition, GrowsLinearly) {
  const uint64_t half = steps_of_chain(5000), whole = steps_of_chain(10000);
  EXPECT_GE(half, 10000u);
  EXPECT_LE(whole, 2 * half + 16);
}

/// A chain where every node also reads one a hundred before, and every third stays outside: the steps for `count` nodes.
uint64_t steps_of_weave(size_t count) {
  TestGraph t;
  std::vector<ValueId> made = {t.input("x", {4})};
  for (size_t i = 0; i < count; ++i) {
    const ValueId far = made[made.size() > 100 ? made.size() - 100 : 0];
    made.push_back(t.builder.op(i % 3 == 0 ? "aten::mul.Tensor" : "aten::add.Tensor", {made.back(), far}));
  }
  t.graph.outputs = {made.back()};
  const Taking backend("b", {"aten::add.Tensor"});
  const backends::Backend* const backends[] = {&backend};
  PartitionReport report;
  EXPECT_TRUE(partition(*t.program.methods[0], backends, 0, &report).ok());
  return report.steps;
}

TEST(Partition, TwentyThousandNodesGrowLinearly) {
  const uint64_t half = steps_of_weave(10000), whole = steps_of_weave(20000);
  EXPECT_GE(half, 10000u);
  EXPECT_LE(whole, half * 21 / 10);
}

TEST(Partition, TheNewValueOfABufferTakesItsPlace) {
  TestGraph t;
  const ValueId x = t.input("x", {4}), start = t.buffer("start", {4});
  const ValueId cache = t.graph.add_tensor(ir::contiguous_type(DType::kFloat32, {4}), "cache");
  const ValueId next = t.builder.op("aten::mul.Tensor", {cache, x});
  t.graph.states.push_back({"cache", cache, next, t.graph[start].constant});
  t.graph.outputs = {t.builder.op("aten::relu", {next})};
  const Taking backend("b", {"aten::mul.Tensor", "aten::relu"});
  const Parted parted = run(t, {&backend});
  ASSERT_EQ(parted.groups.size(), 1u);
  const ir::Graph& inner = parted.groups[0].method->graph;
  ASSERT_EQ(inner.input_mutations.size(), 1u);
  const ir::Node& call = t.graph[t.graph.order[0]];
  const ir::NodeView view(t.graph, *call.op, call.args);
  const std::vector<int64_t> pairs = view.integers("in_place");
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(view.values("inputs")[static_cast<size_t>(pairs[0])], cache);
  EXPECT_EQ(call.outputs[static_cast<size_t>(pairs[1])], next);
  EXPECT_EQ(inner.input_mutations[0].input, static_cast<uint32_t>(pairs[0]));
  EXPECT_EQ(std::get<ValueId>(inner.outputs[static_cast<size_t>(pairs[1])]), inner.input_mutations[0].result);
}

TEST(Partition, SharesOfTheEstimatedTime) {
  TestGraph t;
  const ValueId x = t.input("x", {1 << 20});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {t.builder.op("aten::relu", {x}), x})};
  const Taking backend("b", {"aten::relu"});
  const Parted parted = run(t, {&backend});
  const double inside = parted.report.shares[0].seconds, outside = parted.report.seconds_outside;
  EXPECT_GT(inside, 0);
  EXPECT_NEAR(outside / inside, 1.5, 0.01);  // three tensors are moved against two
}

/// A value that goes into a group, out and in again: `first` and `last` can be no group.
struct Given {
  TestGraph t;
  ValueId first, middle, last;
  Given() {
    const ValueId x = t.input("x", {4});
    first = t.builder.op("aten::relu", {x});
    middle = t.builder.op("aten::add.Tensor", {first, x});
    last = t.builder.op("aten::mul.Tensor", {middle, first});
    t.graph.outputs = {last};
  }
  Status part(std::vector<GivenGroup> groups) {
    PartitionReport report;
    return partition_given(*t.program.methods[0], groups, 0, &report).status();
  }
  ir::NodeId node(ValueId id) { return t.graph[id].producer; }
};

TEST(PartitionGiven, GroupsThatWaitForEachOtherAreRefusedWithBothNames) {
  const Taking all("b", {"aten::relu", "aten::add.Tensor", "aten::mul.Tensor"});
  Given given;
  const Status status = given.part({{"outer", &all, {given.node(given.first), given.node(given.last)}}, {"inner", &all, {given.node(given.middle)}}});
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_NE(status.message().find("outer"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("inner"), std::string::npos) << status.message();
}

TEST(PartitionGiven, AGroupThatWaitsForItselfIsRefused) {
  const Taking all("b", {"aten::relu", "aten::add.Tensor", "aten::mul.Tensor"});
  Given given;
  const Status status = given.part({{"outer", &all, {given.node(given.first), given.node(given.last)}}});
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_NE(status.message().find("outer would wait for itself through [add"), std::string::npos) << status.message();
}

TEST(PartitionGiven, GroupsAreTakenAsTheyAre) {
  const Taking all("b", {"aten::relu", "aten::add.Tensor", "aten::mul.Tensor"});
  Given given;
  PartitionReport report;
  const GivenGroup groups[] = {{"last", &all, {given.node(given.last)}}, {"front", &all, {given.node(given.first), given.node(given.middle)}}};
  const auto made = partition_given(*given.t.program.methods[0], groups, 0, &report);
  ASSERT_TRUE(made.ok());
  EXPECT_EQ(made->size(), 2u);
  EXPECT_TRUE(ir::verify(given.t.graph, ir::Dialect::kFunctional).ok());
}

TEST(PartitionGiven, WrongNodesAreRefused) {
  const Taking none("b", {"aten::relu"});
  Given given;
  EXPECT_EQ(given.part({{"g", &none, {given.node(given.middle)}}}).code(), Code::kUnsupported);
  Given again;
  EXPECT_EQ(again.part({{"g", &none, {again.node(again.first)}}, {"h", &none, {again.node(again.first)}}}).code(), Code::kInvalidInput);
}

}  // namespace
}  // namespace pteron::partition
