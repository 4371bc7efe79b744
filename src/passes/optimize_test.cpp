// remove_noops, fold_casts_views, fold_constants, merge_constants and fold_conv_bn on graphs written by hand.
#include <cstring>

#include <gtest/gtest.h>

#include "interp/evaluator.h"
#include "passes/passes.h"
#include "passes/probe_dtypes.h"
#include "passes/test_ops.h"
#include "tensor/dtype.h"

namespace pteron::passes {
namespace {

using ir::Expr;
using ir::ValueId;
using test::TestGraph;

/// out = self + other for float32 tensors of the same sizes: the only kernel that these tests need.
Status add_kernel(runtime::KernelContext&, const runtime::Tensor& self, const runtime::Tensor& other, runtime::Scalar alpha, runtime::Tensor& out) {
  for (int64_t i = 0; i < out.numel(); ++i) out.as<float>()[i] = self.as<float>()[i] + static_cast<float>(alpha.to_double()) * other.as<float>()[i];
  return ok_status();
}

const runtime::KernelTable& kernels() {
  static const runtime::KernelTable table = [] {
    static constexpr runtime::Kernel kRows[] = {{"aten::add.out", PTERON_KERNEL(add_kernel)}};
    runtime::KernelTable made;
    made.add(kRows);
    return made;
  }();
  return table;
}

ValueId floats(TestGraph& t, std::string_view name, std::vector<int64_t> sizes, std::vector<float> data) {
  return t.builder.constant(DType::kFloat32, std::move(sizes), std::as_bytes(std::span(data)), name);
}

std::vector<float> contents(TestGraph& t, ValueId id) {
  auto tensor = interp::tensor_of(t.program[t.graph[id].constant]);
  EXPECT_TRUE(tensor.ok());
  auto flat = interp::make_contiguous(*tensor);
  EXPECT_TRUE(flat.ok());
  const auto* data = flat->view.as<float>();
  return {data, data + flat->view.numel()};
}

TEST(RemoveNoops, KeepsWhatIsNotExact) {
  TestGraph t;
  const ValueId x = t.input("x", {2, 3});
  const ValueId same = t.builder.op("aten::_to_copy", {t.builder.op("aten::clone", {x}), DType::kFloat32});
  const ValueId plus = t.builder.op("aten::add.Scalar", {t.builder.op("aten::view", {same, std::vector<Expr>{Expr(2), Expr(3)}}), Expr(0)});
  t.graph.outputs = {t.builder.op("aten::mul.Scalar", {plus, Expr(1)})};
  ASSERT_TRUE(remove_noops(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(), "add.Scalar(x) -> add\n");  // -0.0 + 0 is 0.0
}

TEST(FoldCastsViews, JoinsChains) {
  TestGraph t;
  const ValueId x = t.input("x", {2, 3}, DType::kBFloat16);
  const ValueId wide = t.builder.op("aten::_to_copy", {x, DType::kFloat32});
  const ValueId back = t.builder.op("aten::_to_copy", {wide, DType::kBFloat16});
  const ValueId narrow = t.builder.op("aten::_to_copy", {t.builder.op("aten::_to_copy", {x, DType::kInt32}), DType::kFloat32});
  const ValueId turned = t.builder.op("aten::permute", {t.builder.op("aten::transpose.int", {back, Expr(0), Expr(1)}), std::vector<Expr>{Expr(1), Expr(0)}});
  const ValueId flat = t.builder.op("aten::view", {t.builder.op("aten::unsqueeze", {turned, Expr(0)}), std::vector<Expr>{Expr(6)}});
  t.graph.outputs = {flat, narrow};
  ASSERT_TRUE(fold_casts_views(t.graph, t.catalog).ok());
  ASSERT_TRUE(dce(t.graph, t.catalog).ok());
  EXPECT_EQ(t.text(), "_to_copy(x) -> _to_copy_2\n_to_copy(_to_copy_2) -> _to_copy_3\nview(x) -> view_1\n");
}

TEST(FoldConstants, ComputesAndSharesBytes) {
  TestGraph t;
  const interp::Evaluator evaluator(kernels(), serial_pool());
  const ValueId x = t.input("x", {2, 2});
  const ValueId w = floats(t, "w", {2, 2}, {1, 2, 3, 4});
  const ValueId twice = t.builder.op("aten::add.Tensor", {w, w});
  const ValueId same_bytes = t.builder.op("aten::view", {w, std::vector<Expr>{Expr(2), Expr(2)}});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {x, twice}), same_bytes};
  ASSERT_TRUE(fold_constants(t.graph, t.catalog, evaluator).ok());
  ASSERT_EQ(t.text(), "add.Tensor(x, add_2) -> add_1\n");
  const auto& node = t.graph[t.graph.order[0]];
  EXPECT_EQ(contents(t, std::get<ValueId>(node.args[1])), (std::vector<float>{2, 4, 6, 8}));
  const ValueId view = std::get<ValueId>(t.graph.outputs[1]);
  EXPECT_EQ(t.program[t.graph[view].constant].data, t.program[t.graph[w].constant].data);
}

TEST(FoldConstants, LeavesStatesAndMakesLargeResultsLazily) {
  TestGraph t;
  const interp::Evaluator evaluator(kernels(), serial_pool());
  const ValueId state = floats(t, "state", {2}, {1, 2});
  t.program[t.graph[state].constant].mutable_elsewhere = true;
  const ValueId large = floats(t, "large", {40000}, std::vector<float>(40000, 1.5f));
  const ValueId sum = t.builder.op("aten::add.Tensor", {large, large});
  t.graph.outputs = {t.builder.op("aten::add.Tensor", {state, state}), sum};
  ASSERT_TRUE(fold_constants(t.graph, t.catalog, evaluator).ok());
  EXPECT_EQ(t.text(), "add.Tensor(state, state) -> add_1\n");
  const ValueId folded = std::get<ValueId>(t.graph.outputs[1]);
  EXPECT_EQ(t.program[t.graph[folded].constant].data, nullptr);
  EXPECT_EQ(contents(t, folded), std::vector<float>(40000, 3.0f));
}

TEST(MergeConstants, NeedsEqualTypeLayoutAndBytes) {
  TestGraph t;
  const ValueId a = floats(t, "a", {2, 2}, {1, 2, 3, 4});
  const ValueId b = floats(t, "b", {2, 2}, {1, 2, 3, 4});
  const ValueId other_shape = floats(t, "c", {4}, {1, 2, 3, 4});
  const ValueId other_bytes = floats(t, "d", {2, 2}, {1, 2, 3, 5});
  const ValueId state = floats(t, "e", {2, 2}, {1, 2, 3, 4});
  t.program[t.graph[state].constant].mutable_elsewhere = true;
  t.graph.outputs = {a, b, other_shape, other_bytes, state};
  ASSERT_TRUE(merge_constants(t.graph, t.catalog).ok());
  const std::vector<ir::Arg> expected = {a, a, other_shape, other_bytes, state};
  EXPECT_EQ(t.graph.outputs, expected);
}

TEST(FoldConvBn, ScalesWeightsPerChannel) {
  TestGraph t;
  const ValueId x = t.input("x", {1, 1, 4, 4});
  const ValueId w = floats(t, "w", {2, 1, 1, 1}, {2, 3});
  const ValueId gamma = floats(t, "gamma", {2}, {1, 4}), beta = floats(t, "beta", {2}, {0, 1});
  const ValueId mean = floats(t, "mean", {2}, {1, 2}), var = floats(t, "var", {2}, {0.25f, 4});
  const ValueId y = t.builder.op("aten::conv2d", {x, w});
  t.graph.outputs = {t.builder.op("aten::batch_norm", {y, gamma, beta, mean, var, t.builder.boolean(false), t.builder.floating(0.1), t.builder.floating(0), t.builder.boolean(false)})};
  ASSERT_TRUE(fold_conv_bn(t.graph, t.catalog).ok());
  ASSERT_EQ(t.graph.order.size(), 1u);
  const ir::Node& conv = t.graph[t.graph.order[0]];
  EXPECT_EQ(conv.op->name, "aten::conv2d");
  EXPECT_EQ(contents(t, std::get<ValueId>(conv.args[1])), (std::vector<float>{4, 6}));    // 2*1/0.5, 3*4/2
  EXPECT_EQ(contents(t, std::get<ValueId>(conv.args[2])), (std::vector<float>{-2, -3}));  // (0-1)*2+0, (0-2)*2+1
}

TEST(FoldConvBn, LeavesAConvolutionWithOtherUses) {
  TestGraph t;
  const ValueId x = t.input("x", {1, 1, 4, 4});
  const ValueId y = t.builder.op("aten::conv2d", {x, floats(t, "w", {1, 1, 1, 1}, {2})});
  const ValueId one = floats(t, "one", {1}, {1});
  const ValueId n = t.builder.op("aten::batch_norm", {y, one, one, one, one, t.builder.boolean(false), t.builder.floating(0.1), t.builder.floating(0), t.builder.boolean(false)});
  t.graph.outputs = {n, y};
  auto changed = fold_conv_bn(t.graph, t.catalog);
  ASSERT_TRUE(changed.ok());
  EXPECT_FALSE(*changed);
}

/// Of the first operands that add_but_of_uint16 has seen.
int64_t& most_elements() {
  static int64_t most = 0;
  return most;
}

Status add_but_of_uint16(runtime::KernelContext&, const runtime::Tensor& self, const runtime::Tensor&, runtime::Scalar, runtime::Tensor&) {
  most_elements() = std::max(most_elements(), self.numel());
  return self.dtype() == DType::kUInt16 ? Status(Code::kUnsupported, "no uint16") : ok_status();
}

TEST(ProbeDTypes, LargeTensorsAreStoodForBySmallOnes) {
  static constexpr runtime::Kernel kRows[] = {{"aten::add.out", PTERON_KERNEL(add_but_of_uint16)}};
  runtime::KernelTable table;
  table.add(kRows);
  const interp::Evaluator evaluator(table, serial_pool());
  for (const DType dtype : {DType::kUInt16, DType::kUInt32}) {
    TestGraph t;
    const Expr n = t.program.exprs.symbol("n");
    t.program.exprs.set_range(n, {5000, 6000});
    const ValueId sum = t.builder.op("aten::add.Tensor", {t.input("x", {4096, n, 3}, dtype), t.input("y", {4096, 1, 3}, dtype)});
    EXPECT_EQ(probe_dtypes(t.graph, t.graph[t.graph[sum].producer], evaluator), dtype == DType::kUInt16 ? "aten::add.out: no uint16" : "");
  }
  EXPECT_GT(most_elements(), 0);
  EXPECT_LE(most_elements(), 4096);
}

}  // namespace
}  // namespace pteron::passes
