// unique and the radix sort under it: rows of numbers with what torch.unique of PyTorch 2.13 gives, and long random ones against std::sort.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "ops/call_kernel.h"
#include "ops/radix.h"
#include "tensor/dtype.h"

namespace pteron::ops {
namespace {

using Ints = std::vector<int64_t>;

const double kNotANumber = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kLow = std::numeric_limits<int64_t>::min(), kHigh = std::numeric_limits<int64_t>::max();

/// One call of a unique kernel on a one-dimensional tensor whose results have dynamic sizes.
template <typename T>
struct Unique {
  std::vector<T> values;
  Ints inverse, counts;
  Status status;

  Unique(std::string_view name, std::vector<T> x, bool sorted = true) {
    const auto n = static_cast<int64_t>(x.size());
    values.resize(x.size()), inverse.resize(x.size()), counts.resize(x.size());
    std::vector<runtime::Value> args;
    const auto add_tensor = [&](DType dtype, void* data, size_t item) {
      runtime::Value& v = args.emplace_back();
      v.tag = runtime::Tag::kTensor;
      v.tensor.view = make_contiguous_view(dtype, Ints{n}, data);
      v.tensor.bound[0] = n;
      v.tensor.capacity_bytes = x.size() * item;
      v.tensor.dynamic = args.size() != 1;
    };
    const auto add_flag = [&](bool flag) {
      runtime::Value& v = args.emplace_back();
      v.tag = runtime::Tag::kBool;
      v.integer = flag ? 1 : 0;
    };
    args.reserve(8);
    add_tensor(kDTypeOf<T>, x.data(), sizeof(T));
    if (name == "aten::_unique2.out") add_flag(sorted);
    add_flag(true), add_flag(true);
    if (name == "aten::unique_consecutive.out") args.emplace_back();  // dim: none
    const size_t first_out = args.size();
    add_tensor(kDTypeOf<T>, values.data(), sizeof(T));
    add_tensor(DType::kInt64, inverse.data(), sizeof(int64_t));
    add_tensor(DType::kInt64, counts.data(), sizeof(int64_t));
    std::vector<runtime::Value*> pointers;
    for (runtime::Value& v : args) pointers.push_back(&v);
    const runtime::Kernel* kernel = portable_kernels().find(name);
    if (kernel == nullptr) {
      status = Status(Code::kNotFound, std::string(name));
      return;
    }
    std::vector<std::byte> scratch(kernel->workspace(pointers) + 64);
    runtime::KernelContext context{&serial_pool(), scratch};
    status = kernel->fn(context, pointers);
    if (!status.ok()) return;
    values.resize(static_cast<size_t>(args[first_out].tensor.size(0)));
    counts.resize(static_cast<size_t>(args[first_out + 2].tensor.size(0)));
  }
};

template <typename T>
struct UniqueRow {
  std::string_view kernel;
  std::vector<T> x, values;
  Ints inverse, counts;
};

template <typename T>
void check_unique(const std::vector<UniqueRow<T>>& rows) {
  for (size_t i = 0; i < rows.size(); ++i) {
    const UniqueRow<T>& row = rows[i];
    const Unique<T> found(row.kernel, row.x);
    ASSERT_TRUE(found.status.ok()) << found.status.message();
    ASSERT_EQ(found.values.size(), row.values.size()) << "row " << i;
    for (size_t k = 0; k < row.values.size(); ++k) {
      EXPECT_TRUE(found.values[k] == row.values[k] || (found.values[k] != found.values[k] && row.values[k] != row.values[k])) << "row " << i << " value " << k;
    }
    EXPECT_EQ(found.inverse, row.inverse) << "row " << i;
    EXPECT_EQ(found.counts, row.counts) << "row " << i;
  }
}

constexpr std::string_view kUnique = "aten::_unique2.out", kNeighbours = "aten::unique_consecutive.out";

TEST(UniqueRows, Integers) {
  check_unique<int64_t>({
      {kUnique, {}, {}, {}, {}},
      {kUnique, {5}, {5}, {0}, {1}},
      {kUnique, {7, 7, 7}, {7}, {0, 0, 0}, {3}},
      {kUnique, {3, -1, 3, 0, -1}, {-1, 0, 3}, {2, 0, 2, 1, 0}, {2, 1, 2}},
      {kUnique, {kHigh, kLow, 0, kHigh, kLow + 1}, {kLow, kLow + 1, 0, kHigh}, {3, 0, 2, 3, 1}, {1, 1, 1, 2}},  // every digit differs
      {kUnique, {4096, 2048, 2047, 4096, 0}, {0, 2047, 2048, 4096}, {3, 2, 1, 3, 0}, {1, 1, 1, 2}},             // at the borders of digits
      {kNeighbours, {1, 1, 2, 1, 1}, {1, 2, 1}, {0, 0, 1, 2, 2}, {2, 1, 2}},
      {kNeighbours, {}, {}, {}, {}},
  });
  check_unique<uint8_t>({{kUnique, {255, 0, 255, 128}, {0, 128, 255}, {2, 0, 2, 1}, {1, 1, 2}}});
  check_unique<int8_t>({{kUnique, {127, -128, 0, -128}, {-128, 0, 127}, {2, 0, 1, 0}, {2, 1, 1}}});
}

TEST(UniqueRows, FloatsWithZerosAndNan) {
  check_unique<double>({
      {kUnique, {0.0, -0.0, 1.5, -1.5}, {-1.5, 0.0, 1.5}, {1, 1, 2, 0}, {1, 2, 1}},
      {kUnique, {kNotANumber, 1, kNotANumber, -kInfinity, kInfinity}, {-kInfinity, 1, kInfinity, kNotANumber, kNotANumber}, {3, 1, 4, 0, 2}, {1, 1, 1, 1, 1}},
      {kNeighbours, {kNotANumber, kNotANumber, 2, 2}, {kNotANumber, kNotANumber, 2}, {0, 1, 2, 2}, {1, 1, 2}},
  });
  const float nan = std::numeric_limits<float>::quiet_NaN();
  check_unique<float>({{kUnique, {nan, 2, -2, 2, nan}, {-2, 2, nan, nan}, {2, 1, 0, 1, 3}, {1, 2, 1, 1}}});
}

/// n numbers, a third of them drawn from a few.
template <typename T>
std::vector<T> many(size_t n) {
  std::mt19937_64 random(11);
  std::vector<T> x(n);
  for (T& v : x) {
    const uint64_t bits = random();
    if constexpr (std::is_integral_v<T>) {
      v = static_cast<T>(bits % 3 == 0 ? bits % 97 : bits >> (bits % 64));
    } else {
      v = static_cast<T>(bits % 3 == 0 ? static_cast<double>(bits % 97) - 40 : std::ldexp(static_cast<double>(static_cast<int64_t>(bits)), static_cast<int>(bits % 40) - 70));
    }
  }
  return x;
}

template <typename T>
void check_many(size_t n) {
  const std::vector<T> x = many<T>(n);
  const Unique<T> found(kUnique, x);
  ASSERT_TRUE(found.status.ok()) << found.status.message();
  std::map<T, int64_t> expected;
  for (const T v : x) ++expected[v];
  ASSERT_EQ(found.values.size(), expected.size());
  size_t at = 0;
  for (const auto& [value, count] : expected) {
    ASSERT_EQ(found.values[at], value);
    ASSERT_EQ(found.counts[at++], count);
  }
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(found.values[static_cast<size_t>(found.inverse[i])], x[i]);
}

TEST(UniqueRows, ManyAgainstAMap) {
  for (const size_t n : {size_t{2}, size_t{513}, size_t{5000}}) {
    check_many<int64_t>(n);
    check_many<uint64_t>(n);
    check_many<int32_t>(n);
    check_many<int16_t>(n);
    check_many<float>(n);
    check_many<double>(n);
  }
}

TEST(Radix, KeysOrderAsValues) {
  const std::vector<double> ordered = {-kInfinity, -1e300, -1.5, -1e-310, 0.0, 1e-310, 1.5, 1e300, kInfinity, kNotANumber};
  for (size_t i = 0; i + 1 < ordered.size(); ++i) EXPECT_LT(key_of(ordered[i]), key_of(ordered[i + 1])) << i;
  for (size_t i = 0; i + 1 < ordered.size(); ++i) EXPECT_EQ(value_of<double>(key_of(ordered[i])), ordered[i]) << i;
  EXPECT_EQ(key_of(-0.0), key_of(0.0));
  EXPECT_EQ(key_of(-kNotANumber), kNanKey<double>);
  EXPECT_TRUE(std::isnan(value_of<double>(kNanKey<double>)));
  for (const int64_t v : {kLow, int64_t{-1}, int64_t{0}, kHigh}) EXPECT_EQ(value_of<int64_t>(key_of(v)), v);
  EXPECT_LT(key_of(int64_t{-1}), key_of(int64_t{0}));
}

TEST(Radix, SortsAnyRangeAndKeepsEqualKeysInOrder) {
  std::mt19937_64 random(5);
  for (const uint64_t range : {uint64_t{1}, uint64_t{2}, uint64_t{2047}, uint64_t{2048}, uint64_t{1} << 33, ~uint64_t{0}}) {
    for (const int64_t n : {0, 1, 2, 3, 100, 3000}) {
      std::vector<PlacedKey<uint64_t>> items(static_cast<size_t>(n)), spare(items.size());
      for (size_t i = 0; i < items.size(); ++i) items[i] = {~uint64_t{0} - random() % range, i};
      auto expected = items;
      std::stable_sort(expected.begin(), expected.end(), [](const auto& a, const auto& b) { return a.key < b.key; });
      const auto* sorted = radix_sort(items.data(), spare.data(), n);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(sorted[i].key, expected[i].key) << range << " " << n;
        ASSERT_EQ(sorted[i].place, expected[i].place) << range << " " << n;
      }
    }
  }
}

}  // namespace
}  // namespace pteron::ops
