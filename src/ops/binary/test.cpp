// Two-operand kernels and the tile engine: integer and NaN rules against numbers of PyTorch 2.13, any strides against the definition.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/call_kernel.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "ops/math.h"

namespace pteron::ops {
namespace {

using math::kInf;
using math::kNaN;


template <typename T>
struct BinaryRow {
  std::string_view kernel;
  std::array<T, 8> expected;
  std::string_view mode = {};
};

template <typename T>
void check_rows(std::span<const BinaryRow<T>> rows, std::array<T, 8> a, std::array<T, 8> b) {
  const std::array<int64_t, 1> sizes = {8};
  for (const BinaryRow<T>& row : rows) {
    std::array<T, 8> out{};
    KernelCallBuilder call;
    call.tensor(make_contiguous_view(kDTypeOf<T>, sizes, a.data())).tensor(make_contiguous_view(kDTypeOf<T>, sizes, b.data()));
    if (row.kernel == "aten::add.out" || row.kernel == "aten::sub.out") call.integer(1);
    if (!row.mode.empty()) call.text(row.mode);
    call.tensor(make_contiguous_view(kDTypeOf<T>, sizes, out.data()));
    const Status status = call.call(row.kernel, serial_pool());
    ASSERT_TRUE(status.ok()) << row.kernel << ": " << status.message();
    for (size_t i = 0; i < 8; ++i) {
      if (row.expected[i] != row.expected[i]) {
        EXPECT_TRUE(out[i] != out[i]) << row.kernel << " " << row.mode << " element " << i << " is " << +out[i];
      } else if (std::is_floating_point_v<T> && std::isfinite(static_cast<double>(row.expected[i]))) {
        EXPECT_NEAR(out[i], row.expected[i], 2e-6 * std::fabs(static_cast<double>(row.expected[i]))) << row.kernel << " element " << i;
      } else {
        EXPECT_EQ(out[i], row.expected[i]) << row.kernel << " " << row.mode << " element " << i;
      }
    }
  }
}

TEST(Binary, IntegersFollowAten) {
  const std::array<int8_t, 8> a = {7, -7, 7, -7, 0, -128, 127, 5}, b = {2, 2, -2, -2, 3, -1, 4, -7};
  const BinaryRow<int8_t> rows[] = {
      {"aten::div.out_mode", {3, -4, -4, 3, 0, -128, 31, -1}, "floor"},
      {"aten::div.out_mode", {3, -3, -3, 3, 0, -128, 31, 0}, "trunc"},
      {"aten::floor_divide.out", {3, -4, -4, 3, 0, -128, 31, -1}},
      {"aten::remainder.Tensor_out", {1, 1, -1, -1, 0, 0, 3, -2}},
      {"aten::fmod.Tensor_out", {1, -1, 1, -1, 0, 0, 3, 5}},
      {"aten::mul.out", {14, -14, -14, 14, 0, -128, -4, -35}},
      {"aten::add.out", {9, -5, 5, -9, 3, 127, -125, -2}},
      {"aten::sub.out", {5, -9, 9, -5, -3, -127, 123, 12}},
      {"aten::bitwise_left_shift.Tensor_out", {28, -28, 0, 0, 0, 0, -16, 0}},
      {"aten::bitwise_right_shift.Tensor_out", {1, -2, 0, -1, 0, -1, 7, 0}},
      {"aten::gcd.out", {1, 1, 1, 1, 3, 1, 1, 1}},
      {"aten::lcm.out", {14, 14, 14, 14, 0, -128, -4, 35}},
      {"aten::pow.Tensor_Tensor_out", {49, 49, 0, 0, 0, 0, 1, 0}},
      {"aten::maximum.out", {7, 2, 7, -2, 3, -1, 127, 5}},
      {"aten::bitwise_xor.Tensor_out", {5, -5, -7, 7, 3, 127, 123, -4}},
  };
  check_rows<int8_t>(rows, a, b);
}

TEST(Binary, FloatsFollowAten) {
  const std::array<float, 8> a = {7.5f, -7.5f, 7.5f, -7.5f, 1.0f, kNaN, -0.0f, kInf}, b = {2, 2, -2, -2, 0, 1, 3, 2};
  const BinaryRow<float> rows[] = {
      {"aten::div.out_mode", {3, -4, -4, 3, kInf, kNaN, -0.0f, kNaN}, "floor"},
      {"aten::div.out_mode", {3, -3, -3, 3, kInf, kNaN, -0.0f, kInf}, "trunc"},
      {"aten::remainder.Tensor_out", {1.5f, 0.5f, -0.5f, -1.5f, kNaN, kNaN, -0.0f, kNaN}},
      {"aten::fmod.Tensor_out", {1.5f, -1.5f, 1.5f, -1.5f, kNaN, kNaN, -0.0f, kNaN}},
      {"aten::maximum.out", {7.5f, 2, 7.5f, -2, 1, kNaN, 3, kInf}},
      {"aten::fmax.out", {7.5f, 2, 7.5f, -2, 1, 1, 3, kInf}},
      {"aten::logaddexp.out", {7.504078388f, 2.000074863f, 7.500074863f, -1.995921612f, 1.313261747f, kNaN, 3.048587322f, kInf}},
      {"aten::heaviside.out", {1, 0, 1, 0, 1, 0, 3, 1}},
  };
  check_rows<float>(rows, a, b);
  const BinaryRow<float> swapped[] = {{"aten::xlogy.OutTensor", {4.029806137f, kNaN, -4.029806137f, kNaN, 0, kNaN, -kInf, kInf}},
                                {"aten::copysign.out", {2, -2, 2, -2, 0, 1, -3, 2}}};
  check_rows<float>(swapped, b, a);
}

TEST(Binary, IntegerDivisionByZeroIsAnError) {
  int64_t a = 1, b = 0, out = 0;
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kInt64, {}, &a)).tensor(make_contiguous_view(DType::kInt64, {}, &b));
  call.tensor(make_contiguous_view(DType::kInt64, {}, &out));
  EXPECT_EQ(call.call("aten::remainder.Tensor_out", serial_pool()).code(), Code::kInvalidInput);
}

TEST(Binary, LargeIntegersDoNotPassThroughDouble) {
  int64_t a = 9007199254740993, out = 0;  // 2^53 + 1
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kInt64, {}, &a)).integer(9007199254740993).integer(1);
  call.tensor(make_contiguous_view(DType::kInt64, {}, &out));
  ASSERT_TRUE(call.call("aten::add.Scalar_out", serial_pool()).ok());
  EXPECT_EQ(out, 18014398509481986);
}

/// A view with random strides (broadcast dims, gaps, any order) into storage filled with numbers.
struct RandomView {
  std::vector<float> storage;
  TensorView view;
};
RandomView make_random(std::mt19937& random, const std::vector<int64_t>& sizes, bool may_broadcast) {
  RandomView made;
  made.view.dtype = DType::kFloat32;
  made.view.rank = static_cast<uint8_t>(sizes.size());
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::shuffle(order.begin(), order.end(), random);
  int64_t stride = static_cast<int64_t>(random() % 2) + 1;
  for (const size_t d : order) {
    const bool one = may_broadcast && random() % 4 == 0;
    made.view.size_array[d] = one ? 1 : sizes[d];
    made.view.stride_array[d] = stride;
    stride *= made.view.size_array[d] + static_cast<int64_t>(random() % 2);
  }
  made.storage.resize(static_cast<size_t>(stride) + 1);
  for (float& x : made.storage) x = static_cast<float>(random() % 1000);
  made.view.data = made.storage.data();
  return made;
}
float element(const TensorView& v, const std::vector<int64_t>& index) {
  int64_t at = 0;
  const size_t missing = index.size() - v.rank;
  for (size_t d = 0; d < v.rank; ++d) at += v.size_array[d] == 1 ? 0 : index[d + missing] * v.stride_array[d];
  return v.as<float>()[at];
}

TEST(Engine, AnyStridesGiveTheDefinition) {
  std::mt19937 random(3);
  const std::unique_ptr<ThreadPool> pool = make_thread_pool(2);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> sizes;
    const size_t rank = random() % 5;
    for (size_t d = 0; d < rank; ++d) sizes.push_back(static_cast<int64_t>(random() % (round % 10 == 0 ? 40 : 7)));
    RandomView a = make_random(random, sizes, true), b = make_random(random, sizes, true), out = make_random(random, sizes, false);
    for (const TensorView* v : {&a.view, &b.view}) {
      for (size_t d = 0; d < rank; ++d) {
        if (v->size_array[d] != 1 && v->size_array[d] != sizes[d]) GTEST_FAIL();
      }
    }
    // The output's sizes are those of the broadcast.
    for (size_t d = 0; d < rank; ++d) sizes[d] = std::min(sizes[d], a.view.size_array[d] == 1 ? b.view.size_array[d] : a.view.size_array[d]);
    for (size_t d = 0; d < rank; ++d) out.view.size_array[d] = sizes[d];
    KernelContext context{pool.get(), {}};
    struct Sub {
      static float apply(float x, float y) { return x - 2 * y; }
    };
    const std::array<TileInput, 2> inputs = {TileInput(a.view, DType::kFloat32), TileInput(b.view, DType::kFloat32)};
    const TileOutput output{out.view, DType::kFloat32};
    ASSERT_TRUE(run_tiles(context, sizes, inputs, {&output, 1}, &binary_tile<Sub, float, float>, nullptr, 64).ok());
    std::vector<int64_t> index(rank, 0);
    int64_t total = 1;
    for (const int64_t s : sizes) total *= s;
    for (int64_t flat = 0; flat < total; ++flat) {
      int64_t rest = flat;
      for (size_t d = rank; d-- > 0;) {
        index[d] = rest % sizes[d];
        rest /= sizes[d];
      }
      ASSERT_EQ(element(out.view, index), element(a.view, index) - 2 * element(b.view, index)) << "round " << round;
    }
    // A copy of a strided tensor into another layout.
    RandomView copy = make_random(random, sizes, false);
    ASSERT_TRUE(copy_tensor(context, out.view, copy.view).ok());
    for (int64_t flat = 0; flat < total; ++flat) {
      int64_t rest = flat;
      for (size_t d = rank; d-- > 0;) {
        index[d] = rest % sizes[d];
        rest /= sizes[d];
      }
      ASSERT_EQ(element(copy.view, index), element(out.view, index)) << "copy of round " << round;
    }
  }
}

/// sizes with innermost rows that are worth a call each, and operands that are broadcast, sliced, turned or of another dtype.
TEST(Engine, RowsOfAnyOperandsGiveTheDefinition) {
  const std::unique_ptr<ThreadPool> pool = make_thread_pool(2);
  struct Mix {
    static double apply(double x, double y, double z, double factor) { return x - factor * y + 3 * z; }
  };
  const double factor = 2;
  for (const int64_t inner : {16, 17, 40, 127, 128, 129, 700, 1500}) {
    for (int layout = 0; layout < 64; ++layout) {
      const int64_t rows = 5, planes = 3;
      const std::array<int64_t, 3> sizes = {planes, rows, inner};
      // Storage large enough for every choice of strides below; wide: the arithmetic's dtype, narrow: to be converted.
      std::vector<double> wide(static_cast<size_t>(planes * rows * inner * 2 + 64)), out(wide.size(), -1.0);
      std::vector<int16_t> narrow(wide.size());
      for (size_t i = 0; i < wide.size(); ++i) {
        wide[i] = static_cast<double>(i % 1009);
        narrow[i] = static_cast<int16_t>(i % 997);
      }
      const std::array<std::array<int64_t, 3>, 4> strides = {
          {{rows * inner, inner, 1}, {0, 1, 0}, {rows * (inner + 2), inner + 2, 1}, {1, planes, planes * rows}}};  // dense, one a row, sliced, turned
      const auto view_of = [&](int kind, bool converted) {
        TensorView view = make_contiguous_view(converted ? DType::kInt16 : DType::kFloat64, sizes, converted ? static_cast<void*>(narrow.data()) : wide.data());
        for (size_t d = 0; d < 3; ++d) view.stride_array[d] = strides[static_cast<size_t>(kind)][d];
        return view;
      };
      const std::array<int, 3> kinds = {layout % 4, layout / 4 % 4, layout / 16 % 4};
      const std::array<TensorView, 3> in = {view_of(kinds[0], layout % 3 == 0), view_of(kinds[1], layout % 5 == 0), view_of(kinds[2], false)};
      const std::array<TileInput, 3> inputs = {TileInput(in[0], DType::kFloat64), TileInput(in[1], DType::kFloat64), TileInput(in[2], DType::kFloat64)};
      TensorView to = make_contiguous_view(DType::kFloat64, sizes, out.data());
      if (layout % 2 == 1) to.stride_array = {rows * (inner + 1), inner + 1, 1};  // a slice
      const TileOutput output{to, DType::kFloat64};
      KernelContext context{pool.get(), {}};
      ASSERT_TRUE(run_tiles(context, sizes, inputs, {&output, 1}, &ternary_params_tile<Mix, double, double, double>, &factor, 100).ok());
      const auto at = [&](size_t k, int64_t i, int64_t j, int64_t l) {
        const int64_t offset = i * in[k].stride(0) + j * in[k].stride(1) + l * in[k].stride(2);
        return in[k].dtype == DType::kInt16 ? static_cast<double>(narrow[static_cast<size_t>(offset)]) : wide[static_cast<size_t>(offset)];
      };
      for (int64_t i = 0; i < planes; ++i) {
        for (int64_t j = 0; j < rows; ++j) {
          for (int64_t l = 0; l < inner; ++l) {
            const double found = out[static_cast<size_t>(i * to.stride(0) + j * to.stride(1) + l)];
            ASSERT_EQ(found, at(0, i, j, l) - 2 * at(1, i, j, l) + 3 * at(2, i, j, l)) << "rows of " << inner << ", layout " << layout << " at " << i << " " << j << " " << l;
          }
        }
      }
    }
  }
}

TEST(Engine, HalfIsComputedInFloatWithOneRounding) {
  // 1/3 in half times three: in float the product rounds once.
  Half a(0.33325195f), b(3.0f), out;
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kFloat16, {}, &a)).tensor(make_contiguous_view(DType::kFloat16, {}, &b));
  call.tensor(make_contiguous_view(DType::kFloat16, {}, &out));
  ASSERT_TRUE(call.call("aten::mul.out", serial_pool()).ok());
  EXPECT_EQ(out.bits, Half(static_cast<float>(a) * 3.0f).bits);
}

TEST(Convert, CastsWrapAsAten) {
  // torch.tensor([...]).to(torch.uint8), .to(torch.int8), .to(torch.float16), .to(torch.bfloat16)
  std::array<float, 5> x = {300.7f, -1.2f, kNaN, 3e9f, -5e9f};
  std::array<uint8_t, 5> bytes{};
  find_convert(DType::kFloat32, DType::kUInt8)(5, x.data(), bytes.data());
  EXPECT_EQ(bytes, (std::array<uint8_t, 5>{44, 255, 0, 0, 0}));
  std::array<float, 3> y = {300.7f, -1.2f, 40000.0f};
  std::array<int8_t, 3> small{};
  find_convert(DType::kFloat32, DType::kInt8)(3, y.data(), small.data());
  EXPECT_EQ(small, (std::array<int8_t, 3>{44, -1, 64}));
  std::array<float, 3> z = {65520.0f, 1e-8f, 2.0001f};
  std::array<Half, 3> half{};
  find_convert(DType::kFloat32, DType::kFloat16)(3, z.data(), half.data());
  EXPECT_EQ(static_cast<float>(half[0]), kInf);
  EXPECT_EQ(static_cast<float>(half[1]), 0.0f);
  EXPECT_EQ(static_cast<float>(half[2]), 2.0f);
}

TEST(Convert, EightBitFloatsAsAten) {
  // torch 2.13: .to(torch.float8_e4m3fn) saturates, .to(torch.float8_e5m2) overflows to infinity; both round ties to even.
  const std::array<float, 15> x = {0.0f, -0.0f, 1.0f, 1.0625f, 1.1875f, 448.0f, 464.0f, 500.0f, 1e9f, kInf, kNaN, 0x1p-9f, 0x1p-10f, 0x1.8p-10f, -3.3f};
  std::array<uint8_t, 15> bits{};
  find_convert(DType::kFloat32, DType::kFloat8E4M3FN)(15, x.data(), bits.data());
  EXPECT_EQ(bits, (std::array<uint8_t, 15>{0x00, 0x80, 0x38, 0x38, 0x3a, 0x7e, 0x7e, 0x7e, 0x7e, 0x7e, 0x7f, 0x01, 0x00, 0x01, 0xc5}));
  find_convert(DType::kFloat32, DType::kFloat8E5M2)(15, x.data(), bits.data());
  EXPECT_EQ(bits, (std::array<uint8_t, 15>{0x00, 0x80, 0x3c, 0x3c, 0x3d, 0x5f, 0x5f, 0x60, 0x7c, 0x7c, 0x7f, 0x18, 0x14, 0x16, 0xc3}));
  std::array<float, 15> back{};
  find_convert(DType::kFloat8E5M2, DType::kFloat32)(15, bits.data(), back.data());
  EXPECT_EQ(back[7], 512.0f);
  EXPECT_EQ(back[13], 0x1.8p-10f);
  EXPECT_TRUE(std::isnan(back[10]));
}

}  // namespace
}  // namespace pteron::ops
