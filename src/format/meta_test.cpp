// Tests of pteron.meta and of dim expressions.
#include "format/meta.h"

#include <gtest/gtest.h>

#include <cstring>

namespace pteron::format {
namespace {

using Step = DimExpr::Step;

ProgramMeta sample_meta() {
  ProgramMeta meta;
  meta.compiler_version = "0.1.0";
  meta.profile = "pteron";
  MethodMeta method;
  method.name = "forward";
  method.symbols = {{"batch", 1, 64, 4, 0}, {"length", 2, std::numeric_limits<int64_t>::max(), 1, 0}};
  PortMeta x;
  x.name = "x";
  x.dtype = DType::kBFloat16;
  x.dims = {DimExpr::symbol(0, "batch"), DimExpr::constant(3), {{{DimOp::kSymbol, 1}, {DimOp::kConst, 2}, {DimOp::kFloorDiv, 0}}, "length//2"}};
  x.dim_order = {0, 2, 1};
  x.strides = {DimExpr::constant(9), DimExpr::constant(1), DimExpr::constant(3)};
  x.mutated = true;
  PortMeta n;
  n.name = "n";
  n.kind = PortKind::kInt;
  n.dtype = DType::kInt64;
  n.int_min = -3;
  n.int_max = 10;
  n.symbol = 1;
  PortMeta f;
  f.name = "f";
  f.kind = PortKind::kFloat;
  f.float_min = 0.5;
  f.varies = true;
  method.inputs = {x, n, f};
  method.outputs = {x};
  method.input_spec = "[1, {}]";
  method.output_spec = "*";
  method.constraints = {{{{{DimOp::kSymbol, 0}, {DimOp::kSymbol, 1}, {DimOp::kLe, 0}}, "batch <= length"}, "batch <= length (net.py:3)"}};
  method.arenas = {{64, ""}, {256, "shared"}};
  method.mutable_buffers = {{"cache", 7, true, {{3, 1, 2}}}};
  method.source_lines = {{0, "net/model.py:42", "net.layer"}};
  meta.methods = {method};
  meta.data_files = {{"model.ptd", 12345, std::string(32, 'a')}};
  return meta;
}

TEST(Meta, RoundTrip) {
  const ProgramMeta meta = sample_meta();
  auto blob = write_meta(meta);
  ASSERT_TRUE(blob.ok()) << blob.status().message();
  EXPECT_EQ(std::memcmp(blob->data() + 4, "PTM1", 4), 0);
  auto read = read_meta(blob->span());
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(*read, meta);
  EXPECT_NE(read->find("forward"), nullptr);
  EXPECT_EQ(read->find("other"), nullptr);
  auto again = write_meta(meta);
  EXPECT_EQ(std::memcmp(again->data(), blob->data(), blob->size()), 0);
  std::vector<std::byte> room(blob->size() + 1);
  std::memcpy(room.data() + 1, blob->data(), blob->size());
  EXPECT_EQ(*read_meta(std::span(room).subspan(1)), meta);
  for (const std::span<const std::byte> bytes : {std::span<const std::byte>(blob->span()), std::span<const std::byte>(room).subspan(1)}) {
    auto view = verify_meta(bytes);
    ASSERT_TRUE(view.ok());
    EXPECT_EQ(view->root->methods()->Get(0)->symbols()->Get(0)->max(), 64);
  }
}

TEST(Meta, RefusesBadFacts) {
  const auto refused = [](auto damage) {
    ProgramMeta meta = sample_meta();
    damage(meta.methods[0]);
    return write_meta(meta).status().code() == Code::kInvalidInput;
  };
  EXPECT_TRUE(refused([](MethodMeta& m) { m.inputs[0].dims[0] = {}; }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.inputs[0].dims[0] = DimExpr::symbol(2, "x"); }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.inputs[0].dims.assign(17, DimExpr::constant(1)); }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.inputs[0].dim_order = {0, 0, 1}; }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.inputs[0].strides.pop_back(); }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.inputs[1].symbol = 2; }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.symbols[0].divisor = 0; }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.symbols[0].min = 65; }));
  EXPECT_TRUE(refused([](MethodMeta& m) { m.constraints[0].condition.steps.pop_back(); }));
}

TEST(Meta, DamageIsAnErrorOrAnotherValidBlob) {
  auto blob = write_meta(sample_meta());
  ASSERT_TRUE(blob.ok());
  for (size_t size = 0; size < blob->size(); ++size) {
    const std::vector<std::byte> cut(blob->data(), blob->data() + size);
    const auto read = read_meta(cut);
    EXPECT_TRUE(read.ok() || read.status().code() == Code::kInvalidFile);
  }
  size_t refused = 0;
  for (size_t bit = 0; bit < blob->size() * 8; ++bit) {
    std::vector<std::byte> flipped(blob->data(), blob->data() + blob->size());
    flipped[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    const auto read = read_meta(flipped);
    if (!read.ok()) {
      EXPECT_EQ(read.status().code(), Code::kInvalidFile);
      ++refused;
    }
  }
  EXPECT_GT(refused, 100u);
}

std::optional<int64_t> value(std::vector<Step> steps) {
  const DimExpr expr{std::move(steps), "e"};
  EXPECT_TRUE(is_well_formed(expr, 2));
  const std::array<int64_t, 2> symbols = {7, -3};
  return evaluate(expr, symbols);
}

TEST(DimExpr, Evaluates) {
  const Step a{DimOp::kSymbol, 0}, b{DimOp::kSymbol, 1}, two{DimOp::kConst, 2};
  EXPECT_EQ(value({a, b, {DimOp::kAdd, 0}}), 4);
  EXPECT_EQ(value({a, b, {DimOp::kSub, 0}}), 10);
  EXPECT_EQ(value({a, b, {DimOp::kMul, 0}}), -21);
  EXPECT_EQ(value({b, two, {DimOp::kFloorDiv, 0}}), -2);
  EXPECT_EQ(value({b, two, {DimOp::kMod, 0}}), 1);
  EXPECT_EQ(value({a, b, {DimOp::kMax, 0}}), 7);
  EXPECT_EQ(value({a, b, {DimOp::kMin, 0}}), -3);
  EXPECT_EQ(value({a, b, {DimOp::kEq, 0}}), 0);
  EXPECT_EQ(value({a, b, {DimOp::kNe, 0}}), 1);
  EXPECT_EQ(value({b, a, {DimOp::kLt, 0}}), 1);
  EXPECT_EQ(value({a, a, {DimOp::kLe, 0}}), 1);
  EXPECT_EQ(value({a, {DimOp::kConst, 0}, {DimOp::kAnd, 0}}), 0);
  EXPECT_EQ(value({a, {DimOp::kConst, 0}, {DimOp::kOr, 0}}), 1);
  EXPECT_EQ(value({a, {DimOp::kNot, 0}}), 0);
  EXPECT_EQ(value({a, b, two, {DimOp::kIte, 0}}), -3);
  EXPECT_EQ(value({b, two, {DimOp::kPow, 0}}), 9);
  EXPECT_EQ(value({a, {DimOp::kConst, 0}, {DimOp::kFloorDiv, 0}}), std::nullopt);
  EXPECT_EQ(value({a, {DimOp::kConst, 40}, {DimOp::kPow, 0}}), std::nullopt);
  EXPECT_EQ(value({a, b, {DimOp::kPow, 0}}), std::nullopt);
  EXPECT_EQ(value({{DimOp::kConst, INT64_MIN}, {DimOp::kConst, -1}, {DimOp::kFloorDiv, 0}}), std::nullopt);
  EXPECT_EQ(value({{DimOp::kConst, INT64_MAX}, two, {DimOp::kMul, 0}}), std::nullopt);
  EXPECT_EQ(value({{DimOp::kConst, -1}, {DimOp::kConst, INT64_MAX}, {DimOp::kPow, 0}}), -1);
}

TEST(DimExpr, WellFormedness) {
  EXPECT_FALSE(is_well_formed({}, 2));
  EXPECT_FALSE(is_well_formed({{{DimOp::kAdd, 0}}, ""}, 2));
  EXPECT_FALSE(is_well_formed({{{DimOp::kConst, 1}, {DimOp::kConst, 1}}, ""}, 2));
  EXPECT_FALSE(is_well_formed({{{static_cast<DimOp>(200), 1}}, ""}, 2));
  EXPECT_FALSE(is_well_formed(DimExpr::symbol(-1, ""), 2));
  std::vector<Step> deep(65, Step{DimOp::kConst, 1});
  deep.insert(deep.end(), 64, Step{DimOp::kAdd, 0});
  EXPECT_FALSE(is_well_formed({deep, ""}, 0));
}

}  // namespace
}  // namespace pteron::format
