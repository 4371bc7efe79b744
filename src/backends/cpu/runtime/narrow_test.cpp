// Narrow products against plain loops: kinds, odd sizes, taps, zero points, extreme values, on every unit that this processor has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "backends/cpu/runtime/narrow_product.h"
#include "base/str_cat.h"
#include "base/thread_pool.h"
#include "tensor/half.h"

namespace pteron::cpu {
namespace {

std::vector<Units> units_here() {
  std::vector<Units> out;
  for (int u = 0; u <= static_cast<int>(processor_units()); ++u) out.push_back(static_cast<Units>(u));
  return out;
}

struct Shape {
  int64_t rows, columns, depth, taps;
};
constexpr Shape kShapes[] = {{1, 1, 1, 1},     {1, 33, 64, 1},    {2, 16, 31, 1},    {7, 17, 9, 3},     {16, 32, 128, 1},   {17, 48, 130, 1},  {31, 15, 65, 1},
                             {32, 64, 147, 7}, {33, 20, 576, 9},  {49, 100, 200, 2}, {100, 10, 768, 1}, {257, 40, 1030, 1}, {260, 40, 130, 1}, {300, 70, 96, 3},  {5, 300, 5000, 1}};

std::unique_ptr<ThreadPool> pool_of(int threads) { return make_thread_pool(threads); }

/// Rows that overlap as windows do: row i begins at i * stride; taps lie `step` apart.
struct Layout {
  int64_t run, step, stride, size;
  explicit Layout(const Shape& s) : run(s.depth / s.taps), step(run + 3), stride(run + 1), size((s.rows - 1) * stride + s.taps * step + run) {}
  int64_t at(int64_t row, int64_t k) const { return row * stride + k / run * step + k % run; }
};

template <typename T>
struct Taken {
  std::vector<T> values;
  int64_t columns = 0;
  static void store(const void* context, const NarrowResult& part) {
    auto& self = *const_cast<Taken*>(static_cast<const Taken*>(context));
    for (int64_t i = 0; i < part.rows; ++i) {
      for (int64_t j = 0; j < part.columns; ++j) {
        self.values[static_cast<size_t>((part.row + i) * self.columns + part.column + j)] += static_cast<const T*>(part.values)[i * kNarrowResultRow + j];
      }
    }
  }
};

std::vector<int64_t> offsets_of(int64_t depth, int64_t stride) {
  std::vector<int64_t> out(static_cast<size_t>(depth));
  for (int64_t k = 0; k < depth; ++k) out[static_cast<size_t>(k)] = k * stride;
  return out;
}

/// Weights as [n, depth] (dense) or [depth, n]: both ways of packing.
template <typename T>
std::shared_ptr<const NarrowMatrix> pack(NarrowKind kind, const std::vector<T>& w, const Shape& s, bool turned, const float* bias, ThreadPool& pool) {
  const std::vector<int64_t> offsets = offsets_of(s.depth, turned ? s.columns : 1);
  auto made = NarrowMatrix::make(kind, w.data(), s.columns, turned ? 1 : s.depth, offsets, bias, 1, pool);
  EXPECT_TRUE(made.ok());
  return *made;
}

template <typename T>
void check_int8(const Shape& s, DType type, bool extreme, int threads) {
  const auto pool = pool_of(threads);
  const Layout layout(s);
  std::mt19937 engine(7);
  const auto lowest = std::numeric_limits<T>::min(), highest = std::numeric_limits<T>::max();
  std::vector<T> x(static_cast<size_t>(layout.size));
  for (T& v : x) v = extreme ? (engine() % 4 == 0 ? lowest : highest) : static_cast<T>(engine());
  std::vector<int8_t> w(static_cast<size_t>(s.columns * s.depth));
  for (int8_t& v : w) v = extreme ? (engine() % 4 == 0 ? int8_t{127} : int8_t{-128}) : static_cast<int8_t>(engine());
  const bool turned = s.rows % 2 == 0;
  const int32_t zero_point = extreme ? lowest : 3;
  const auto matrix = pack(NarrowKind::kInt8, w, s, turned, nullptr, *pool);
  std::vector<int32_t> expected;
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.columns; ++j) {
      int32_t sum = 0;
      for (int64_t k = 0; k < s.depth; ++k) {
        sum += (x[static_cast<size_t>(layout.at(i, k))] - zero_point) * w[static_cast<size_t>(turned ? k * s.columns + j : j * s.depth + k)];
      }
      expected.push_back(sum);
    }
  }
  const WorkBuffers work;
  const EvenNarrowRows rows{reinterpret_cast<const std::byte*>(x.data()), layout.stride};
  const std::vector<int64_t> steps(static_cast<size_t>(s.taps), layout.step);
  for (const Units units : units_here()) {
    Taken<int32_t> taken{std::vector<int32_t>(expected.size()), s.columns};
    NarrowProduct p{matrix.get(), type, s.rows, EvenNarrowRows::get, &rows, s.taps, steps.data(), zero_point, Taken<int32_t>::store, &taken, &work, units};
    ASSERT_TRUE(run_narrow_product(p, *pool).ok());
    EXPECT_EQ(taken.values, expected) << "units " << static_cast<int>(units) << " rows " << s.rows << " columns " << s.columns << " depth " << s.depth;
    if (s.taps != 1) continue;
    // Read in place up to the last byte, and in lines of ten rows.
    for (const int64_t length : {s.rows, int64_t{10}}) {
      if (s.rows % length != 0) continue;
      NarrowLines lines;
      lines.data = rows.data;
      lines.length = length;
      lines.line_step = length * layout.stride;
      lines.row_step = layout.stride;
      lines.run_chunks = matrix->chunks();
      lines.end = rows.data + x.size();
      p.lines = &lines;
      taken.values.assign(expected.size(), 0);
      ASSERT_TRUE(run_narrow_product(p, *pool).ok());
      EXPECT_EQ(taken.values, expected) << "in place, units " << static_cast<int>(units) << " rows " << s.rows << " columns " << s.columns << " depth " << s.depth;
    }
  }
}

TEST(Narrow, Int8IsExact) {
  for (const Shape& s : kShapes) {
    for (const bool extreme : {false, true}) {
      check_int8<uint8_t>(s, DType::kUInt8, extreme, 1);
      check_int8<int8_t>(s, DType::kInt8, extreme, 2);
    }
  }
}

struct Bf16Case {
  std::vector<float> x, bias;
  std::vector<uint16_t> halves, w;
  std::vector<double> expected, magnitude;
};

Bf16Case bf16_case(const Shape& s, const Layout& layout, bool turned) {
  Bf16Case c;
  std::mt19937 engine(11);
  const auto next = [&] { return static_cast<float>(engine() % 20011) / 10000.0f - 1.0f; };
  for (int64_t i = 0; i < layout.size; ++i) {
    c.x.push_back(next());
    c.halves.push_back(float_to_bfloat16_bits(c.x.back()));
  }
  for (int64_t i = 0; i < s.columns * s.depth; ++i) c.w.push_back(float_to_bfloat16_bits(next()));
  for (int64_t j = 0; j < s.columns; ++j) c.bias.push_back(next());
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.columns; ++j) {
      double sum = c.bias[static_cast<size_t>(j)], magnitude = std::fabs(sum);
      for (int64_t k = 0; k < s.depth; ++k) {
        const double product = static_cast<double>(bfloat16_bits_to_float(c.halves[static_cast<size_t>(layout.at(i, k))])) *
                               static_cast<double>(bfloat16_bits_to_float(c.w[static_cast<size_t>(turned ? k * s.columns + j : j * s.depth + k)]));
        sum += product;
        magnitude += std::fabs(product);
      }
      c.expected.push_back(sum);
      c.magnitude.push_back(magnitude);
    }
  }
  return c;
}

TEST(Narrow, Bf16SumsInFloat) {
  const WorkBuffers work;
  for (const Shape& s : kShapes) {
    const auto pool = pool_of(s.rows % 3 == 0 ? 2 : 1);
    const Layout layout(s);
    const bool turned = s.rows % 2 == 0;
    const Bf16Case c = bf16_case(s, layout, turned);
    const auto matrix = pack(NarrowKind::kBf16, c.w, s, turned, c.bias.data(), *pool);
    const std::vector<int64_t> steps(static_cast<size_t>(s.taps), layout.step);
    for (const Units units : units_here()) {
      for (const bool narrow : {false, true}) {
        const EvenNarrowRows rows{narrow ? reinterpret_cast<const std::byte*>(c.halves.data()) : reinterpret_cast<const std::byte*>(c.x.data()),
                                  layout.stride * (narrow ? 2 : 4)};
        Taken<float> taken{std::vector<float>(c.expected.size()), s.columns};
        NarrowProduct p{matrix.get(), narrow ? DType::kBFloat16 : DType::kFloat32, s.rows, EvenNarrowRows::get, &rows, s.taps, steps.data(), 0, Taken<float>::store,
                        &taken, &work, units};
        ASSERT_TRUE(run_narrow_product(p, *pool).ok());
        for (size_t i = 0; i < c.expected.size(); ++i) {
          ASSERT_NEAR(taken.values[i], c.expected[i], c.magnitude[i] * 2e-6) << "units " << static_cast<int>(units) << " rows " << s.rows << " depth " << s.depth << " at " << i;
        }
      }
    }
  }
}

/// float16 is widened exactly, so that only the order of float sums differs.
TEST(Narrow, HalfSumsInFloatAndIsRoundedOnce) {
  const WorkBuffers work;
  for (const Shape& s : kShapes) {
    const auto pool = pool_of(s.rows % 3 == 0 ? 2 : 1);
    const Layout layout(s);
    const bool turned = s.rows % 2 == 0;
    std::mt19937 engine(13);
    const auto next = [&] { return half_bits_to_float(float_to_half_bits(static_cast<float>(engine() % 20011) / 10000.0f - 1.0f)); };
    std::vector<float> x, bias;
    std::vector<uint16_t> halves, w;
    for (int64_t i = 0; i < layout.size; ++i) halves.push_back(float_to_half_bits(x.emplace_back(next())));
    for (int64_t i = 0; i < s.columns * s.depth; ++i) w.push_back(float_to_half_bits(next()));
    for (int64_t j = 0; j < s.columns; ++j) bias.push_back(next());
    const auto matrix = pack(NarrowKind::kHalf, w, s, turned, bias.data(), *pool);
    const std::vector<int64_t> steps(static_cast<size_t>(s.taps), layout.step);
    for (const Units units : units_here()) {
      for (const bool narrow : {false, true}) {
        const EvenNarrowRows rows{narrow ? reinterpret_cast<const std::byte*>(halves.data()) : reinterpret_cast<const std::byte*>(x.data()), layout.stride * (narrow ? 2 : 4)};
        std::vector<uint16_t> made(static_cast<size_t>(s.rows * s.columns), 0xffff);
        const std::vector<uint16_t> residual(made.size(), float_to_half_bits(0.5f));
        FloatStore store;
        store.c = made.data();
        store.residual = residual.data();
        store.c_type = store.residual_type = DType::kFloat16;
        store.c_row = store.residual_row = s.columns;
        store.epilogue.high = 3;
        NarrowProduct p{matrix.get(), narrow ? DType::kFloat16 : DType::kFloat32, s.rows, EvenNarrowRows::get, &rows, s.taps, steps.data(), 0, FloatStore::store, &store, &work, units};
        ASSERT_TRUE(run_narrow_product(p, *pool).ok());
        for (int64_t i = 0; i < s.rows; ++i) {
          for (int64_t j = 0; j < s.columns; ++j) {
            double sum = static_cast<double>(bias[static_cast<size_t>(j)]) + 0.5, magnitude = std::fabs(sum);
            for (int64_t k = 0; k < s.depth; ++k) {
              const double product = static_cast<double>(x[static_cast<size_t>(layout.at(i, k))]) *
                                     static_cast<double>(half_bits_to_float(w[static_cast<size_t>(turned ? k * s.columns + j : j * s.depth + k)]));
              sum += product;
              magnitude += std::fabs(product);
            }
            const double want = std::min(sum, 3.0), got = static_cast<double>(half_bits_to_float(made[static_cast<size_t>(i * s.columns + j)]));
            ASSERT_NEAR(got, want, std::fabs(want) * 0x1p-11 + magnitude * 2e-6) << "units " << static_cast<int>(units) << " rows " << s.rows << " depth " << s.depth << " at " << i << " " << j;
          }
        }
      }
    }
  }
}

/// Two sessions: products at the same time with one matrix, one pool and one store of work memory, of all kinds and units.
TEST(Narrow, TwoThreadsShareMatrixPoolAndWorkMemory) {
  const Shape s{70, 100, 260, 1};
  const auto pool = pool_of(2);
  const WorkBuffers work;
  std::mt19937 engine(17);
  std::vector<uint16_t> w16(static_cast<size_t>(s.columns * s.depth));
  std::vector<int8_t> w8(w16.size());
  for (size_t i = 0; i < w16.size(); ++i) {
    w8[i] = static_cast<int8_t>(engine());
    w16[i] = float_to_half_bits(static_cast<float>(w8[i]) / 128);
  }
  const std::shared_ptr<const NarrowMatrix> matrices[] = {pack(NarrowKind::kHalf, w16, s, false, nullptr, *pool), pack(NarrowKind::kBf16, w16, s, false, nullptr, *pool),
                                                          pack(NarrowKind::kInt8, w8, s, false, nullptr, *pool)};
  const auto session = [&](uint32_t seed) {
    std::mt19937 own(seed);
    std::vector<uint16_t> x16(static_cast<size_t>(s.rows * s.depth));
    for (uint16_t& v : x16) v = float_to_half_bits(static_cast<float>(own() % 2001) / 1000 - 1);
    std::vector<std::vector<int32_t>> out;
    for (const auto& matrix : matrices) {
      const bool bytes = matrix->kind() == NarrowKind::kInt8;
      const EvenNarrowRows rows{reinterpret_cast<const std::byte*>(x16.data()), s.depth * (bytes ? 1 : 2)};
      const DType type = bytes ? DType::kUInt8 : matrix->kind() == NarrowKind::kHalf ? DType::kFloat16 : DType::kBFloat16;
      for (const Units units : units_here()) {
        Taken<int32_t> taken{std::vector<int32_t>(static_cast<size_t>(s.rows * s.columns)), s.columns};  // the bits of floats
        NarrowProduct p{matrix.get(), type, s.rows, EvenNarrowRows::get, &rows, 1, kNoStep, 0, Taken<int32_t>::store, &taken, &work, units};
        EXPECT_TRUE(run_narrow_product(p, *pool).ok());
        out.push_back(std::move(taken.values));
      }
    }
    return out;
  };
  const auto expected_a = session(1), expected_b = session(2);
  std::vector<std::vector<int32_t>> a, b;
  std::thread first([&] { a = session(1); }), second([&] { b = session(2); });
  first.join();
  second.join();
  EXPECT_EQ(a, expected_a);
  EXPECT_EQ(b, expected_b);
  EXPECT_NE(a, b);
}

TEST(Narrow, Bf16KeepsWhatIsNoOrdinaryNumber) {
  const auto pool = pool_of(1);
  const WorkBuffers work;
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  constexpr int64_t kDepth = 5;  // the rest of the chunk must stay zeros, also beside NaN
  const Shape s{5, 2, kDepth, 1};
  // Columns: ones, and one zero in the last place.
  const uint16_t one = float_to_bfloat16_bits(1.0f);
  const std::vector<uint16_t> w = {one, one, one, one, one, one, one, one, one, 0};
  const auto matrix = pack(NarrowKind::kBf16, w, s, false, nullptr, *pool);
  const std::vector<float> x = {1, 2, 3, 4, inf, 1, -inf, 3, 4, 5, 1, 2, nan, 4, 5, 1e-39f, 0, 0, 0, 0, 3.4e38f, 0, 0, 0, 0};
  const EvenNarrowRows rows{reinterpret_cast<const std::byte*>(x.data()), kDepth * 4};
  for (const Units units : units_here()) {
    Taken<float> taken{std::vector<float>(10), 2};
    NarrowProduct p{matrix.get(), DType::kFloat32, 5, EvenNarrowRows::get, &rows, 1, kNoStep, 0, Taken<float>::store, &taken, &work, units};
    ASSERT_TRUE(run_narrow_product(p, *pool).ok());
    EXPECT_EQ(taken.values[0], inf);
    EXPECT_TRUE(std::isnan(taken.values[1]));  // inf * 0
    EXPECT_EQ(taken.values[2], -inf);
    EXPECT_EQ(taken.values[3], -inf);
    EXPECT_TRUE(std::isnan(taken.values[4]) && std::isnan(taken.values[5]));
    // Units for bfloat16 take subnormal numbers as zero.
    EXPECT_NEAR(taken.values[6], 1e-39f, 1.2e-39f);
    if (units < Units::kAvx512Bf16) {
      EXPECT_EQ(taken.values[6], bfloat16_bits_to_float(float_to_bfloat16_bits(1e-39f)));
    }
    EXPECT_EQ(taken.values[8], bfloat16_bits_to_float(float_to_bfloat16_bits(3.4e38f)));
  }
}

TEST(Narrow, RowsAreRoundedAsATenRounds) {
  std::vector<float> values;
  std::mt19937 engine(3);
  for (int i = 0; i < 4096; ++i) values.push_back(std::bit_cast<float>(static_cast<uint32_t>(engine())));
  for (const uint32_t bits : {0u, 0x80000000u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0x18000u, 0x3f808000u, 0x3f818000u, 0x7f7fffffu, 0x7f800000u, 0xff800000u, 0x7f800001u, 0xffffffffu}) {
    values.push_back(std::bit_cast<float>(bits));
  }
  for (const Units units : units_here()) {
    const NarrowKernels& kernels = narrow_kernels(NarrowKind::kBf16, units);
    std::vector<uint16_t> halves(values.size());
    std::vector<float> floats(values.size());
    kernels.float_to_bf16(values.data(), halves.data(), static_cast<int64_t>(values.size()));
    kernels.float_to_rounded(values.data(), floats.data(), static_cast<int64_t>(values.size()));
    for (size_t i = 0; i < values.size(); ++i) {
      const uint16_t expected = float_to_bfloat16_bits(values[i]);
      EXPECT_EQ(halves[i], expected);
      EXPECT_EQ(std::bit_cast<uint32_t>(floats[i]), static_cast<uint32_t>(expected) << 16);
    }
  }
}

TEST(Narrow, FloatStoreAddsAndClamps) {
  const auto pool = pool_of(1);
  const WorkBuffers work;
  const Shape s{40, 37, 64, 1};
  const Layout layout(s);
  const Bf16Case c = bf16_case(s, layout, false);
  const auto matrix = pack(NarrowKind::kBf16, c.w, s, false, c.bias.data(), *pool);
  const EvenNarrowRows rows{reinterpret_cast<const std::byte*>(c.x.data()), layout.stride * 4};
  std::vector<float> residual(static_cast<size_t>(s.rows * s.columns));
  std::vector<uint16_t> narrow_residual;
  for (size_t i = 0; i < residual.size(); ++i) {
    residual[i] = static_cast<float>(i % 13) * 0.25f - 1.0f;
    narrow_residual.push_back(float_to_bfloat16_bits(residual[i]));
  }
  for (const int kind : {0, 1, 2, 3}) {
    const bool narrow = kind % 2 == 1, adds_last = kind >= 2;
    std::vector<float> wide_out(residual.size());
    std::vector<uint16_t> narrow_out(residual.size());
    FloatStore store;
    store.c = narrow ? static_cast<void*>(narrow_out.data()) : wide_out.data();
    store.c_type = store.residual_type = narrow ? DType::kBFloat16 : DType::kFloat32;
    store.residual = narrow ? static_cast<const void*>(narrow_residual.data()) : residual.data();
    store.c_row = store.residual_row = s.columns;
    store.epilogue.low = 0;
    store.epilogue.high = 2;
    store.epilogue.adds_last = adds_last;
    NarrowProduct p{matrix.get(), DType::kFloat32, s.rows, EvenNarrowRows::get, &rows, 1, kNoStep, 0, FloatStore::store, &store, &work};
    ASSERT_TRUE(run_narrow_product(p, *pool).ok());
    for (size_t i = 0; i < residual.size(); ++i) {
      const double added = static_cast<double>(residual[i]);
      const double expected = adds_last ? std::clamp(c.expected[i], 0.0, 2.0) + added : std::clamp(c.expected[i] + added, 0.0, 2.0);
      if (narrow) {
        EXPECT_NEAR(bfloat16_bits_to_float(narrow_out[i]), expected, std::fabs(expected) * 0x1p-8 + 1e-4);
      } else {
        EXPECT_NEAR(wide_out[i], expected, 1e-4);
      }
    }
  }
}

}  // namespace
}  // namespace pteron::cpu
