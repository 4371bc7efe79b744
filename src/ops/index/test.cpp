// Advanced indexing: ATen's placement of index dims, negative and bad indices, masks, accumulation; kernels called directly.
#include <gtest/gtest.h>

#include <numeric>

#include "ops/catalog.h"
#include "ops/infer.h"
#include "ops/kernels.h"
#include "tensor/dtype.h"

namespace pteron::ops::index {
namespace {

using runtime::Tag;
using runtime::Value;

template <typename T>
Value tensor(std::vector<T>& data, std::vector<int64_t> sizes) {
  Value v;
  v.tag = Tag::kTensor;
  v.tensor.view = make_contiguous_view(kDTypeOf<T>, sizes, data.data());
  return v;
}
Value masked(std::vector<uint8_t>& data, std::vector<int64_t> sizes) {
  Value v = tensor(data, std::move(sizes));
  v.tensor.view.dtype = DType::kBool;
  return v;
}

struct Call {
  std::vector<std::byte> scratch = std::vector<std::byte>(4096);
  Status run(std::string_view name, std::vector<Value*> args) {
    runtime::KernelContext context{&serial_pool(), scratch};
    const runtime::Kernel* kernel = portable_kernels().find(name);
    if (kernel == nullptr) return Status(Code::kNotFound, std::string(name));
    return kernel->fn(context, args);
  }
};

struct Indexed : testing::Test {
  Indexed() : x(24) { std::iota(x.begin(), x.end(), 0.0f); }
  Status index(std::vector<Value*> indices, std::vector<int64_t> sizes) {
    out.assign(static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{1}, std::multiplies<>())), -1.0f);
    Value self = tensor(x, {2, 3, 4}), list, result = tensor(out, std::move(sizes));
    list.tag = Tag::kTensorList;
    list.items = indices;
    return Call().run("aten::index.Tensor_out", {&self, &list, &result});
  }
  std::vector<float> x, out;
  Value none;
};

TEST_F(Indexed, AdjacentIndicesStayInPlace) {
  std::vector<int64_t> i{2, -3}, j{0, 3};
  Value a = tensor(i, {2}), b = tensor(j, {2});
  const Status status = index({&none, &a, &b}, {2, 2});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, (std::vector<float>{8, 3, 20, 15}));
}

TEST_F(Indexed, SeparatedIndicesComeFirst) {
  std::vector<int64_t> i{1}, j{0, 3};
  Value a = tensor(i, {1}), b = tensor(j, {2});
  const Status status = index({&a, &none, &b}, {2, 3});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, (std::vector<float>{12, 16, 20, 15, 19, 23}));
}

TEST_F(Indexed, MaskOverTwoDims) {
  std::vector<uint8_t> mask{0, 1, 0, 0, 0, 1};
  Value m = masked(mask, {2, 3});
  const Status status = index({&m}, {2, 4});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(out, (std::vector<float>{4, 5, 6, 7, 20, 21, 22, 23}));
}

TEST_F(Indexed, BadIndexIsNamed) {
  std::vector<int64_t> i{0, 3};
  Value a = tensor(i, {2});
  const Status status = index({&none, &a}, {2, 2, 4});
  EXPECT_EQ(status.code(), Code::kInvalidInput);
  EXPECT_NE(status.message().find("index 3 is out of bounds for dim 1 with size 3"), std::string_view::npos) << status.message();
}

TEST(IndexPut, AccumulatesEqualIndices) {
  std::vector<float> x{1, 2, 3}, values{10, 20}, out(3);
  std::vector<int64_t> i{2, 2};
  Value self = tensor(x, {3}), a = tensor(i, {2}), v = tensor(values, {2}), result = tensor(out, {3}), list, accumulate;
  std::vector<Value*> items{&a};
  list.tag = Tag::kTensorList;
  list.items = items;
  accumulate.tag = Tag::kBool;
  accumulate.integer = 1;
  ASSERT_TRUE(Call().run("aten::index_put.out", {&self, &list, &v, &accumulate, &result}).ok());
  EXPECT_EQ(out, (std::vector<float>{1, 2, 33}));
  accumulate.integer = 0;
  ASSERT_TRUE(Call().run("aten::index_put.out", {&self, &list, &v, &accumulate, &result}).ok());
  EXPECT_EQ(out, (std::vector<float>{1, 2, 20}));
}

/// Where one mask selects a value, by rows of sizes: x[mask] = 9 at the mask's dims.
TEST(IndexPut, OneValueUnderAMask) {
  struct Row {
    std::vector<int64_t> sizes, mask_sizes;
    size_t dim;  // of x, where the mask starts
    std::vector<uint8_t> mask;
    std::vector<float> expected;
  };
  const Row rows[] = {
      {{4}, {4}, 0, {0, 1, 1, 0}, {0, 9, 9, 3}},
      {{2, 3}, {2}, 0, {0, 1}, {0, 1, 2, 9, 9, 9}},
      {{2, 3}, {3}, 1, {1, 0, 1}, {9, 1, 9, 9, 4, 9}},
      {{2, 3}, {2, 3}, 0, {1, 0, 0, 0, 0, 1}, {9, 1, 2, 3, 4, 9}},
      {{2, 2, 2}, {2}, 1, {0, 1}, {0, 1, 9, 9, 4, 5, 9, 9}},
      {{2, 2}, {2, 2}, 0, {0, 0, 0, 0}, {0, 1, 2, 3}},
      {{0, 3}, {3}, 1, {1, 1, 1}, {}},
      {{}, {}, 0, {1}, {9}},
      {{3}, {2}, 0, {1, 1}, {}},  // refused
  };
  for (const Row& row : rows) {
    const size_t n = static_cast<size_t>(std::accumulate(row.sizes.begin(), row.sizes.end(), int64_t{1}, std::multiplies<>()));
    std::vector<float> x(n), value{9}, out(n);
    std::vector<uint8_t> mask = row.mask;
    std::iota(x.begin(), x.end(), 0.0f);
    Value self = tensor(x, row.sizes), m = masked(mask, row.mask_sizes), v = tensor(value, {}), result = tensor(out, row.sizes), none, list, accumulate;
    std::vector<Value*> items(row.dim, &none);
    items.push_back(&m);
    list.tag = Tag::kTensorList;
    list.items = items;
    accumulate.tag = Tag::kBool;
    const Status status = Call().run("aten::index_put.out", {&self, &list, &v, &accumulate, &result});
    if (row.expected.size() != n) {
      EXPECT_EQ(status.code(), Code::kInvalidInput);
      continue;
    }
    ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(out, row.expected);
  }
}

TEST(IndexPut, OneValueUnderAMaskOfAnyLength) {
  for (const int64_t n : {1, 31, 4095, 4096, 4097, 9000}) {
    for (const int64_t step : {1, 2}) {  // of the mask and of the target
      std::vector<float> x(static_cast<size_t>(n * step)), value{-1};
      std::vector<uint8_t> mask(static_cast<size_t>(n * step), 2);
      for (int64_t i = 0; i < n; ++i) mask[static_cast<size_t>(i * step)] = i % 3 == 0 ? 1 : 0;
      Value self = tensor(x, {n}), m = masked(mask, {n}), v = tensor(value, {1}), list, accumulate;
      self.tensor.view.stride_array[0] = m.tensor.view.stride_array[0] = step;
      std::vector<Value*> items{&m};
      list.tag = Tag::kTensorList;
      list.items = items;
      accumulate.tag = Tag::kBool;
      ASSERT_TRUE(Call().run("aten::index_put_", {&self, &list, &v, &accumulate}).ok());
      for (int64_t i = 0; i < n * step; ++i) {
        ASSERT_EQ(x[static_cast<size_t>(i)], i % step == 0 && i / step % 3 == 0 ? -1.0f : 0.0f) << n << " " << step << " " << i;
      }
    }
  }
}

TEST(IndexSelect, RefusesNegativeIndices) {
  std::vector<float> x{1, 2, 3}, out(1);
  std::vector<int64_t> i{-1};
  Value self = tensor(x, {3}), a = tensor(i, {1}), result = tensor(out, {1}), dim;
  dim.tag = Tag::kInt;
  EXPECT_EQ(Call().run("aten::index_select.out", {&self, &dim, &a, &result}).code(), Code::kInvalidInput);
}

TEST(IndexInference, MaskGivesBoundedSymbol) {
  const ir::Catalog catalog = std::move(make_catalog()).value();
  ir::Program program;
  ir::Method method(program);
  ir::Graph& g = method.graph;
  const ValueId x = g.add_tensor(ir::contiguous_type(DType::kFloat32, {4, 5}), "x");
  const ValueId mask = g.add_tensor(ir::contiguous_type(DType::kBool, {4}), "mask");
  ir::Builder b(g, catalog, g.order);
  const ValueId y = b.op("aten::index.Tensor", {x, std::vector<ValueId>{mask}});
  ASSERT_TRUE(b.status().ok()) << b.status().message();
  const auto& sizes = g[y].type.sizes;
  ASSERT_EQ(sizes.size(), 2u);
  EXPECT_TRUE(sizes[0].is_symbol());
  EXPECT_EQ(ir::bounds(sizes[0]), (ir::Range{0, 4}));
  EXPECT_EQ(sizes[1], Expr(5));
}

TEST(ScatterReduce, MeanWithoutSelf) {
  std::vector<float> x{100, 200, 300}, src{1, 3, 5}, out(3);
  std::vector<int64_t> i{0, 0, 2};
  Value self = tensor(x, {3}), a = tensor(i, {3}), s = tensor(src, {3}), result = tensor(out, {3}), dim, reduce, include;
  dim.tag = Tag::kInt;
  reduce.tag = Tag::kString;
  reduce.string = "mean";
  include.tag = Tag::kBool;
  ASSERT_TRUE(Call().run("aten::scatter_reduce.two_out", {&self, &dim, &a, &s, &reduce, &include, &result}).ok());
  EXPECT_EQ(out, (std::vector<float>{2, 200, 5}));
}

}  // namespace
}  // namespace pteron::ops::index
