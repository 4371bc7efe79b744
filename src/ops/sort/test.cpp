// Orderings, scans, searches and uniques: ties, NaN, descending, strided slices, sizes known only at run time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "ops/call_kernel.h"

namespace pteron::ops {
namespace {

using Floats = std::vector<float>;
using Ints = std::vector<int64_t>;

const float kNan = std::numeric_limits<float>::quiet_NaN();

TensorView floats(Floats& x, const Ints& sizes) { return make_contiguous_view(DType::kFloat32, sizes, x.data()); }
TensorView ints(Ints& x, const Ints& sizes) { return make_contiguous_view(DType::kInt64, sizes, x.data()); }

TEST(Sort, StableWithNanLargest) {
  Floats x = {3, kNan, 1, 3, 1, kNan}, values(6);
  Ints places(6);
  for (const bool descending : {false, true}) {
    KernelCallBuilder call;
    call.tensor(floats(x, {6})).boolean(true).integer(0).boolean(descending).tensor(floats(values, {6})).tensor(ints(places, {6}));
    ASSERT_TRUE(call.call("aten::sort.values_stable", serial_pool()).ok());
    EXPECT_EQ(places, descending ? (Ints{1, 5, 0, 3, 2, 4}) : (Ints{2, 4, 0, 3, 1, 5}));
  }
}

TEST(Sort, ColumnsOnTwoThreads) {
  const int64_t rows = 500, cols = 60;
  Floats x(rows * cols), values(rows * cols);
  Ints places(rows * cols);
  std::mt19937 random(4);
  for (float& v : x) v = static_cast<float>(random() % 50);  // many ties
  const auto two = make_thread_pool(2);
  KernelCallBuilder call;
  call.tensor(floats(x, {rows, cols})).boolean(true).integer(0).boolean(false).tensor(floats(values, {rows, cols})).tensor(ints(places, {rows, cols}));
  ASSERT_TRUE(call.call("aten::sort.values_stable", *two).ok());
  for (int64_t j = 0; j < cols; ++j) {
    Ints want(rows);
    std::iota(want.begin(), want.end(), int64_t{0});
    const auto value = [&](int64_t r) { return x[static_cast<size_t>(r * cols + j)]; };
    std::stable_sort(want.begin(), want.end(), [&](int64_t a, int64_t b) { return value(a) < value(b); });
    for (int64_t r = 0; r < rows; ++r) ASSERT_EQ(places[static_cast<size_t>(r * cols + j)], want[static_cast<size_t>(r)]);
  }
}

TEST(Sort, TopkKthMedianMode) {
  Floats x = {4, 9, kNan, 2, 7, 2}, values(3), one(1);
  Ints places(3), place(1);
  KernelCallBuilder top;
  top.tensor(floats(x, {6})).integer(3).integer(0).boolean(true).boolean(true).tensor(floats(values, {3})).tensor(ints(places, {3}));
  ASSERT_TRUE(top.call("aten::topk.values", serial_pool()).ok());
  EXPECT_EQ(places, (Ints{2, 1, 4}));
  KernelCallBuilder kth;
  kth.tensor(floats(x, {6})).integer(3).integer(0).boolean(true).tensor(floats(one, {1})).tensor(ints(place, {1}));
  ASSERT_TRUE(kth.call("aten::kthvalue.values", serial_pool()).ok());
  EXPECT_EQ(one[0], 4);
  EXPECT_EQ(place[0], 0);
  KernelCallBuilder nan;
  nan.tensor(floats(x, {6})).integer(0).boolean(true).tensor(floats(one, {1})).tensor(ints(place, {1}));
  ASSERT_TRUE(nan.call("aten::median.dim_values", serial_pool()).ok());
  EXPECT_TRUE(std::isnan(one[0]));
  ASSERT_TRUE(nan.call("aten::nanmedian.dim_values", serial_pool()).ok());
  EXPECT_EQ(one[0], 4);  // the lower middle of 2 2 4 7 9
  ASSERT_TRUE(nan.call("aten::mode.values", serial_pool()).ok());
  EXPECT_EQ(one[0], 2);
  KernelCallBuilder many;
  many.tensor(floats(x, {6})).integer(7).integer(0).boolean(true).boolean(true).tensor(floats(values, {3})).tensor(ints(places, {3}));
  EXPECT_EQ(many.call("aten::topk.values", serial_pool()).code(), Code::kInvalidInput);
}

TEST(Quantile, InterpolatesBetweenNeighbours) {
  Floats x = {1, 3, 2, 10}, q = {0, 0.5f, 0.9f}, out(3);
  KernelCallBuilder call;
  call.tensor(floats(x, {4})).tensor(floats(q, {3})).none().boolean(false).text("linear").tensor(floats(out, {3}));
  ASSERT_TRUE(call.call("aten::quantile.out", serial_pool()).ok());
  EXPECT_NEAR(out[0], 1, 1e-6);
  EXPECT_NEAR(out[1], 2.5, 1e-6);
  EXPECT_NEAR(out[2], 7.9, 1e-5);
}

TEST(Scan, SumsProductsAndExtremesAlongEveryDim) {
  const int64_t a = 3, n = 40, b = 20;
  Floats x(a * n * b), out(a * n * b);
  std::mt19937 random(5);
  for (float& v : x) v = static_cast<float>(random() % 7) - 3;
  KernelCallBuilder call;
  call.tensor(floats(x, {a, n, b})).integer(1).none().tensor(floats(out, {a, n, b}));
  ASSERT_TRUE(call.call("aten::cumsum.out", serial_pool()).ok());
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < n; ++k) {
        sum += x[static_cast<size_t>((i * n + k) * b + j)];
        ASSERT_EQ(out[static_cast<size_t>((i * n + k) * b + j)], sum);
      }
    }
  }
  Floats y = {1, 3, 3, kNan, 5}, best(5);
  Ints places(5);
  KernelCallBuilder extreme;
  extreme.tensor(floats(y, {5})).integer(0).tensor(floats(best, {5})).tensor(ints(places, {5}));
  ASSERT_TRUE(extreme.call("aten::cummax.out", serial_pool()).ok());
  EXPECT_EQ(places, (Ints{0, 1, 2, 3, 3}));  // the latest of equals; NaN stays
}

TEST(Search, BothSidesNanAndRows) {
  Floats edges = {1, 2, 3}, x = {kNan, 1, 2.5f, 9};
  Ints out(4);
  for (const bool right : {false, true}) {
    KernelCallBuilder call;
    call.tensor(floats(x, {4})).tensor(floats(edges, {3})).boolean(false).boolean(right).tensor(ints(out, {4}));
    ASSERT_TRUE(call.call("aten::bucketize.Tensor_out", serial_pool()).ok());
    EXPECT_EQ(out, right ? (Ints{3, 1, 2, 3}) : (Ints{3, 0, 2, 3}));
  }
  Floats rows = {1, 3, 5, 2, 4, 6}, values = {3, 6, 3, 6};
  KernelCallBuilder call;
  call.tensor(floats(rows, {2, 3})).tensor(floats(values, {2, 2})).boolean(false).boolean(false).none().none().tensor(ints(out, {2, 2}));
  ASSERT_TRUE(call.call("aten::searchsorted.Tensor_out", serial_pool()).ok());
  EXPECT_EQ(out, (Ints{1, 3, 1, 2}));
}

TEST(Search, BincountRefusesNegativeNumbers) {
  Ints x = {1, -2}, out(3);
  KernelCallBuilder call;
  call.tensor(ints(x, {2})).none().integer(0).tensor(ints(out, {3}));
  EXPECT_EQ(call.call("aten::bincount.out", serial_pool()).code(), Code::kInvalidInput);
}

TEST(Search, BincountRefusesResultsOfOtherDtypes) {
  Ints x = {1, 2}, counts(4), none;
  Floats weights = {1, 2}, sums(4), few;
  const auto code = [](const TensorView& self, const TensorView* w, const TensorView& out) {
    KernelCallBuilder call;
    call.tensor(self);
    if (w != nullptr) call.tensor(*w);
    if (w == nullptr) call.none();
    call.integer(0).tensor(out);
    return call.call("aten::bincount.out", serial_pool()).code();
  };
  const TensorView heavy = floats(weights, {2}), empty = floats(few, {0});
  EXPECT_EQ(code(ints(x, {2}), nullptr, floats(sums, {4})), Code::kInvalidInput);
  EXPECT_EQ(code(ints(x, {2}), &heavy, ints(counts, {4})), Code::kInvalidInput);
  EXPECT_EQ(code(ints(none, {0}), &empty, floats(sums, {0})), Code::kInvalidInput);  // int64 in PyTorch
  EXPECT_EQ(code(ints(none, {0}), &empty, ints(counts, {0})), Code::kOk);
}

TEST(Pool, RefusesResultsOfOtherDtypes) {
  Floats x(16), samples = {0.5f, 0.5f}, y(4);
  Ints where(4), wrong(4);
  const auto code = [&](const TensorView& out, const TensorView& indices) {
    KernelCallBuilder call;
    call.tensor(floats(x, {1, 4, 4})).integers({2, 2}).integers({2, 2}).tensor(floats(samples, {1, 1, 2})).tensor(out).tensor(indices);
    return call.call("aten::fractional_max_pool2d.output", serial_pool()).code();
  };
  EXPECT_EQ(code(floats(y, {1, 2, 2}), ints(where, {1, 2, 2})), Code::kOk);
  EXPECT_EQ(code(ints(wrong, {1, 2, 2}), ints(where, {1, 2, 2})), Code::kInvalidInput);
  EXPECT_EQ(code(floats(y, {1, 2, 2}), floats(y, {1, 2, 2})), Code::kInvalidInput);
}

TEST(Unique, SizesAreKnownAfterTheCall) {
  Ints x = {3, 1, 2, 1}, values(4), inverse(4), counts(4);
  std::array<runtime::Value, 7> args;
  const auto set = [&](size_t i, Ints& data, bool dynamic) {
    args[i].tag = runtime::Tag::kTensor;
    args[i].tensor.view = ints(data, {4});
    args[i].tensor.bound[0] = 4;
    args[i].tensor.capacity_bytes = 32;
    args[i].tensor.dynamic = dynamic;
  };
  set(0, x, false);
  for (size_t i = 1; i < 4; ++i) {
    args[i].tag = runtime::Tag::kBool;
    args[i].integer = 1;
  }
  set(4, values, true);
  set(5, inverse, false);
  set(6, counts, true);
  std::array<runtime::Value*, 7> pointers;
  for (size_t i = 0; i < 7; ++i) pointers[i] = &args[i];
  const runtime::Kernel* kernel = portable_kernels().find("aten::_unique2.out");
  ASSERT_NE(kernel, nullptr);
  std::vector<std::byte> scratch(kernel->workspace(pointers));
  runtime::KernelContext context{&serial_pool(), scratch};
  ASSERT_TRUE(kernel->fn(context, pointers).ok());
  EXPECT_EQ(args[4].tensor.size(0), 3);
  EXPECT_EQ(values, (Ints{1, 2, 3, 0}));
  EXPECT_EQ(inverse, (Ints{2, 0, 1, 0}));
  EXPECT_EQ(counts, (Ints{2, 1, 1, 0}));
}

/// Scratch is asked for before a kernel has looked at its arguments: a program from outside may name any dim.
TEST(Sort, DimsThatATensorLacksAreRefused) {
  Floats x = {3, 1, 2}, values(3);
  Ints places(3);
  for (const int64_t dim : {int64_t{1}, int64_t{-2}, int64_t{1} << 40, INT64_MIN}) {
    const auto refused = [&](std::string_view name, auto&& arguments) {
      KernelCallBuilder call;
      call.tensor(floats(x, {3}));
      arguments(call);
      call.tensor(floats(values, {3})).tensor(ints(places, {3}));
      EXPECT_EQ(call.call(name, serial_pool()).code(), Code::kInvalidInput) << name << " " << dim;
    };
    refused("aten::sort.values", [&](auto& call) { call.integer(dim).boolean(false); });
    refused("aten::sort.values_stable", [&](auto& call) { call.boolean(true).integer(dim).boolean(false); });
    refused("aten::topk.values", [&](auto& call) { call.integer(1).integer(dim).boolean(true).boolean(true); });
    refused("aten::kthvalue.values", [&](auto& call) { call.integer(1).integer(dim).boolean(false); });
    refused("aten::median.dim_values", [&](auto& call) { call.integer(dim).boolean(false); });
    KernelCallBuilder quantile;
    quantile.tensor(floats(x, {3})).number(0.5).integer(dim).boolean(false).text("linear").tensor(floats(values, {}));
    EXPECT_EQ(quantile.call("aten::quantile.scalar_out", serial_pool()).code(), Code::kInvalidInput) << dim;
  }
}

TEST(Sort, ResultsOfOtherDtypesAreRefused) {
  Floats x = {3, 1, 2};
  Ints room(3), places(3);
  for (const bool wrong_values : {true, false}) {
    const auto refused = [&](std::string_view name, const Ints& sizes, auto&& arguments) {
      KernelCallBuilder call;
      call.tensor(floats(x, {3}));
      arguments(call);
      call.tensor(make_contiguous_view(wrong_values ? DType::kUInt8 : DType::kFloat32, sizes, room.data()));
      call.tensor(make_contiguous_view(wrong_values ? DType::kInt64 : DType::kUInt8, sizes, places.data()));
      EXPECT_FALSE(call.call(name, serial_pool()).ok()) << name << " " << wrong_values;
    };
    refused("aten::sort.values_stable", {3}, [](auto& call) { call.boolean(true).integer(0).boolean(false); });
    refused("aten::topk.values", {1}, [](auto& call) { call.integer(1).integer(0).boolean(true).boolean(true); });
    refused("aten::kthvalue.values", {}, [](auto& call) { call.integer(1).integer(0).boolean(false); });
    if (!wrong_values) refused("aten::cummax.out", {3}, [](auto& call) { call.integer(0); });
  }
}

TEST(Rnn, ResultsOfOtherDtypesAreRefused) {
  Floats gates(8, 1), state(2, 1), weight(16, 1), out(2), last(2), cell(2);
  for (int wrong = -1; wrong < 3; ++wrong) {
    const auto result = [&](int which, Floats& data, const Ints& sizes) {
      return make_contiguous_view(which == wrong ? DType::kUInt8 : DType::kFloat32, sizes, data.data());
    };
    KernelCallBuilder call;
    call.tensor(floats(gates, {1, 1, 8})).tensor(floats(state, {1, 2})).tensor(floats(state, {1, 2})).tensor(floats(weight, {8, 2})).none().boolean(false);
    call.tensor(result(0, out, {1, 1, 2})).tensor(result(1, last, {1, 2})).tensor(result(2, cell, {1, 2}));
    EXPECT_EQ(call.call("pteron::lstm_scan.out", serial_pool()).code(), wrong < 0 ? Code::kOk : Code::kInvalidInput) << wrong;
  }
}

}  // namespace
}  // namespace pteron::ops
