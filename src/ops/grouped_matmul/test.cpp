// Grouped products: the three forms on small numbers, what lies behind the last group, offsets that are none.
#include <gtest/gtest.h>

#include <array>

#include "ops/call_kernel.h"

namespace pteron::ops {
namespace {

using Sizes2 = std::array<int64_t, 2>;
using Sizes3 = std::array<int64_t, 3>;

struct Grouped : testing::Test {
  std::array<float, 8> x = {1, 2, 3, 4, 5, 6, 7, 8};
  std::array<float, 8> y = {1, 0, 0, 1, 2, 0, 0, 2};
  std::array<int32_t, 2> offs = {1, 3};
  std::array<float, 8> out = {9, 9, 9, 9, 9, 9, 9, 9};

  Status call(TensorView a, TensorView b, TensorView c) {
    KernelCallBuilder builder;
    builder.tensor(a).tensor(b).tensor(make_contiguous_view(DType::kInt32, std::array<int64_t, 1>{2}, offs.data())).tensor(c);
    return builder.call("pteron::grouped_mm.out", serial_pool());
  }
  TensorView of(std::span<const int64_t> sizes, std::array<float, 8>& data) { return make_contiguous_view(DType::kFloat32, sizes, data.data()); }
};

TEST_F(Grouped, RowsAndZerosBehindThem) {
  ASSERT_TRUE(call(of(Sizes2{4, 2}, x), of(Sizes3{2, 2, 2}, y), of(Sizes2{4, 2}, out)).ok());
  EXPECT_EQ(out, (std::array<float, 8>{1, 2, 6, 8, 10, 12, 0, 0}));
}

TEST_F(Grouped, Columns) {
  ASSERT_TRUE(call(of(Sizes3{2, 2, 2}, y), of(Sizes2{2, 4}, x), of(Sizes2{2, 4}, out)).ok());
  EXPECT_EQ(out, (std::array<float, 8>{1, 4, 6, 0, 5, 12, 14, 0}));
}

TEST_F(Grouped, SummedDim) {
  offs = {0, 3};  // an empty sum, then three of four
  ASSERT_TRUE(call(of(Sizes2{2, 4}, x), of(Sizes2{4, 2}, y), of(Sizes3{2, 2, 2}, out)).ok());
  EXPECT_EQ(out, (std::array<float, 8>{0, 0, 0, 0, 7, 2, 19, 6}));
}

TEST_F(Grouped, OffsetsMustRiseAndStayInside) {
  for (const std::array<int32_t, 2> bad : {std::array<int32_t, 2>{3, 1}, {-1, 2}, {1, 5}}) {
    offs = bad;
    EXPECT_EQ(call(of(Sizes2{4, 2}, x), of(Sizes3{2, 2, 2}, y), of(Sizes2{4, 2}, out)).code(), Code::kInvalidInput) << bad[0] << ' ' << bad[1];
  }
}

}  // namespace
}  // namespace pteron::ops
