// copy_strided against an index-by-index copy over many shapes, strides and element sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "tensor/shape.h"

namespace pteron {
namespace {

TensorView view_of(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides, void* data) {
  TensorView view = make_contiguous_view(dtype, sizes, data);
  std::ranges::copy(strides, view.stride_array.begin());
  return view;
}

/// Strides of a tensor whose dims lie in memory in the order of `order`, each padded by `pad` elements.
std::vector<int64_t> strides_in_order(std::span<const int64_t> sizes, std::span<const size_t> order, int64_t pad) {
  std::vector<int64_t> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    strides[order[i]] = stride;
    stride = stride * std::max<int64_t>(sizes[order[i]], 1) + pad;
  }
  return strides;
}

void check(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> from_strides, std::span<const int64_t> to_strides) {
  const size_t element = dtype_size(dtype);
  uint64_t from_bytes = 0, to_bytes = 0;
  ASSERT_TRUE(strided_extent_bytes(sizes, from_strides, element, &from_bytes) && strided_extent_bytes(sizes, to_strides, element, &to_bytes));
  std::vector<uint8_t> source(from_bytes), target(to_bytes, 0xee), expected(to_bytes, 0xee);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 131 + i / 251);
  const TensorView from = view_of(dtype, sizes, from_strides, source.data());
  copy_strided(from, view_of(dtype, sizes, to_strides, target.data()));
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t n = from.numel(); n > 0; --n) {
    const int64_t f = std::inner_product(index.begin(), index.end(), from_strides.begin(), int64_t{0});
    const int64_t t = std::inner_product(index.begin(), index.end(), to_strides.begin(), int64_t{0});
    std::memcpy(expected.data() + static_cast<size_t>(t) * element, source.data() + static_cast<size_t>(f) * element, element);
    for (size_t d = sizes.size(); d-- > 0;) {
      if (++index[d] < sizes[d]) break;
      index[d] = 0;
    }
  }
  EXPECT_EQ(target, expected) << shape_text(sizes) << " from " << shape_text(from_strides) << " to " << shape_text(to_strides);
}

TEST(CopyStrided, AllOrdersOfDims) {
  const std::vector<std::vector<int64_t>> kShapes = {{}, {1}, {5}, {3, 4}, {1, 7}, {40, 70}, {2, 3, 4}, {2, 1, 5}, {33, 2, 35}, {2, 3, 4, 5}, {0, 3}};
  for (const DType dtype : {DType::kInt8, DType::kFloat16, DType::kFloat32, DType::kInt64, DType::kComplexDouble}) {
    for (const auto& sizes : kShapes) {
      std::vector<size_t> order(sizes.size());
      std::iota(order.begin(), order.end(), size_t{0});
      const std::vector<size_t> row_major = order;
      do {
        for (const int64_t pad : {0, 3}) {
          check(dtype, sizes, strides_in_order(sizes, order, pad), strides_in_order(sizes, row_major, 0));
          check(dtype, sizes, strides_in_order(sizes, row_major, pad), strides_in_order(sizes, order, pad));
        }
      } while (std::ranges::next_permutation(order).found);
    }
  }
}

TEST(CopyStrided, BroadcastSources) {
  const std::vector<int64_t> sizes = {3, 4, 5};
  for (const std::vector<int64_t>& strides : {std::vector<int64_t>{0, 5, 1}, {1, 0, 0}, {0, 1, 0}, {0, 0, 1}, {0, 0, 0}}) {
    check(DType::kFloat32, sizes, strides, contiguous_strides(sizes));
  }
}

}  // namespace
}  // namespace pteron
