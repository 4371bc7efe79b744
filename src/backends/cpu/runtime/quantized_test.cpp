// The engine's products of quantized operands against plain loops: dtypes, groups, zero points, residuals, rows with parameters of their own,
// requantization; and arguments that a damaged payload might have.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/quantized.h"
#include "backends/cpu/runtime/test_args.h"
#include "base/str_cat.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

/// A tensor of bytes or floats with its memory; elements as double.
struct Data {
  DType dtype = DType::kInt8;
  std::vector<int64_t> sizes, strides;
  std::vector<std::byte> bytes;
  Data() = default;
  Data(DType d, std::vector<int64_t> s) : dtype(d), sizes(std::move(s)) {
    int64_t n = 1;
    for (size_t i = sizes.size(); i-- > 0; n *= sizes[i]) strides.insert(strides.begin(), n);
    bytes.resize(static_cast<size_t>(n) * dtype_size(d));
  }
  int64_t numel() const { return static_cast<int64_t>(bytes.size() / dtype_size(dtype)); }
  double at(int64_t i) const {
    if (dtype == DType::kInt8) return reinterpret_cast<const int8_t*>(bytes.data())[i];
    if (dtype == DType::kUInt8) return reinterpret_cast<const uint8_t*>(bytes.data())[i];
    return static_cast<double>(reinterpret_cast<const float*>(bytes.data())[i]);
  }
  void set(int64_t i, double v) {
    if (dtype == DType::kInt8) reinterpret_cast<int8_t*>(bytes.data())[i] = static_cast<int8_t>(v);
    if (dtype == DType::kUInt8) reinterpret_cast<uint8_t*>(bytes.data())[i] = static_cast<uint8_t>(v);
    if (dtype == DType::kFloat32) reinterpret_cast<float*>(bytes.data())[i] = static_cast<float>(v);
  }
};

Data random_data(DType dtype, std::vector<int64_t> sizes, std::mt19937& engine, int low = -128, int high = 127) {
  Data d(dtype, std::move(sizes));
  if (dtype == DType::kUInt8 && low == -128) low = 0, high = 255;
  for (int64_t i = 0; i < d.numel(); ++i) {
    d.set(i, dtype == DType::kFloat32 ? static_cast<double>(engine() % 2001) / 1000 - 1 : static_cast<int>(engine() % static_cast<uint32_t>(high - low + 1)) + low);
  }
  return d;
}
Data random_scales(std::vector<int64_t> sizes, std::mt19937& engine) {
  Data d(DType::kFloat32, std::move(sizes));
  for (int64_t i = 0; i < d.numel(); ++i) d.set(i, 0.001 + static_cast<double>(engine() % 1000) / 50000);
  return d;
}

class Call : public Args {
 public:
  void data(Data& d, bool constant = false) { tensor(d.dtype, d.sizes, d.bytes.data(), d.strides).read_only = constant; }
  void optional(Data* d, bool constant = false) { d == nullptr ? none() : data(*d, constant); }
};

/// How results end.
struct End {
  bool clamps = false;
  double low = -0.5, high = 0.75;
  double inverse = 37.5;
  int64_t zero = 3, least = -120, most = 125;
  DType dtype = DType::kFloat32;
  std::vector<double> middle = {};
  void add(Call& call) const {
    call.numbers(middle);
    call.text(clamps ? "clamp" : "none");
    call.number(low);
    call.number(high);
    call.number(inverse);
    call.integer(zero);
    call.integer(least);
    call.integer(most);
    call.integer(static_cast<int64_t>(dtype));
  }
  /// The sum behind the levels in the middle, if there are some; false where it is so near a tie that both levels are right.
  bool through_middle(double* sum) const {
    if (middle.empty()) return true;
    const double level = std::clamp(*sum, middle[0], middle[1]) * static_cast<double>(static_cast<float>(middle[2]));
    *sum = (std::clamp(std::nearbyint(level) + middle[3], middle[4], middle[5]) - middle[6]) * middle[7];
    return std::fabs(level - std::floor(level) - 0.5) > 1e-3;
  }
  /// Compares one result; levels may differ by one where the exact value is at a tie.
  void expect(double got, double sum, const std::string& what) const {
    if (clamps) sum = std::clamp(sum, low, high);
    if (dtype == DType::kFloat32) {
      EXPECT_NEAR(got, sum, 2e-5 * (1 + std::fabs(sum))) << what;
      return;
    }
    const double level = sum * static_cast<double>(static_cast<float>(inverse));
    const double want = std::clamp(std::nearbyint(level) + static_cast<double>(zero), static_cast<double>(least), static_cast<double>(most));
    const bool tie = std::fabs(level - std::floor(level) - 0.5) < 1e-3;
    EXPECT_LE(std::fabs(got - want), tie ? 1 : 0) << what << ": level " << level;
  }
};

struct LinearShape {
  int64_t rows, n, depth, groups;
};

void check_linear(const LinearShape& s, std::optional<DType> x_dtype, int64_t bits, const Data* residual_like, const End& end, bool rows_differ) {
  std::mt19937 engine(static_cast<uint32_t>(s.rows * 131 + s.n * 17 + s.depth + bits));
  Data x = random_data(x_dtype.value_or(DType::kFloat32), {s.rows, s.depth}, engine);
  Data weights = random_data(DType::kInt8, {s.n, s.depth}, engine, bits == 4 ? -8 : -128, bits == 4 ? 7 : 127);
  Data scales = random_scales({s.n, s.groups}, engine), bias = random_data(DType::kFloat32, {s.n}, engine);
  Data stored = weights;
  if (bits == 4) {
    stored = Data(DType::kUInt8, {s.n, s.depth / 2});
    for (int64_t i = 0; i < stored.numel(); ++i) stored.set(i, static_cast<int>(weights.at(2 * i) + 8) | static_cast<int>(weights.at(2 * i + 1) + 8) << 4);
  }
  const int64_t parameters = rows_differ ? s.rows : 1;
  Data x_scale = random_scales({parameters, 1}, engine), x_zero = random_data(DType::kInt8, {parameters, 1}, engine, -20, 20);
  std::optional<Data> residual;
  if (residual_like != nullptr) residual = random_data(residual_like->dtype, {s.rows, s.n}, engine);
  Data out(end.dtype, {s.rows, s.n});
  Call call;
  call.data(x);
  call.optional(x_dtype ? &x_scale : nullptr);
  call.optional(x_dtype ? &x_zero : nullptr);
  call.data(stored, true);
  call.data(scales, true);
  call.data(bias, true);
  call.optional(residual ? &*residual : nullptr);
  call.integer(bits);
  call.number(0.01);
  call.integer(-4);
  end.add(call);
  call.data(out);
  const Status status = call.run(quantized_linear_kernels()[0], 2);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t i = 0; i < s.rows; ++i) {
    for (int64_t j = 0; j < s.n; ++j) {
      double sum = bias.at(j);
      for (int64_t k = 0; k < s.depth; ++k) {
        const int64_t p = rows_differ ? i : 0;
        const double value = x_dtype ? (x.at(i * s.depth + k) - x_zero.at(p)) * x_scale.at(p) : x.at(i * s.depth + k);
        sum += value * weights.at(j * s.depth + k) * scales.at(j * s.groups + k / (s.depth / s.groups));
      }
      if (residual) sum += residual->dtype == DType::kFloat32 ? residual->at(i * s.n + j) : (residual->at(i * s.n + j) + 4) * static_cast<double>(0.01f);
      end.expect(out.at(i * s.n + j), sum, str_cat("[", i, ", ", j, "] of ", s.rows, "x", s.n, "x", s.depth, " groups ", s.groups, " bits ", bits));
    }
  }
}

constexpr LinearShape kShapes[] = {{1, 1, 2, 1}, {1, 33, 64, 2}, {3, 16, 96, 3}, {9, 40, 130, 1}, {17, 70, 256, 8}, {260, 24, 64, 1}, {5, 100, 514, 1}};

TEST(QuantizedLinear, EqualsPlainLoops) {
  const Data bytes(DType::kInt8, {1}), floats(DType::kFloat32, {1});
  const End plain, clamped{.clamps = true}, levels{.clamps = true, .dtype = DType::kInt8}, unsigned_levels{.zero = 100, .least = 0, .most = 255, .dtype = DType::kUInt8};
  for (const LinearShape& s : kShapes) {
    for (const int64_t bits : {8, 4}) {
      check_linear(s, std::nullopt, bits, nullptr, plain, false);
      check_linear(s, std::nullopt, bits, &floats, clamped, false);
      check_linear(s, DType::kInt8, bits, nullptr, plain, true);
      check_linear(s, DType::kUInt8, bits, &bytes, levels, false);
      check_linear(s, DType::kInt8, bits, &floats, unsigned_levels, false);
    }
  }
}

struct ConvShape {
  int64_t batch, channels, height, width, out_channels, kernel, stride, padding, dilation, groups;
};

void check_conv(const ConvShape& s, DType x_dtype, std::optional<DType> residual_dtype, const End& end, bool channels_last) {
  std::mt19937 engine(static_cast<uint32_t>(s.channels * 31 + s.height * 7 + s.out_channels));
  Data x = random_data(x_dtype, {s.batch, s.channels, s.height, s.width}, engine);
  if (channels_last) x.strides = {s.channels * s.height * s.width, 1, s.width * s.channels, s.channels};
  const int64_t inner = s.channels / s.groups;
  Data w = random_data(DType::kInt8, {s.out_channels, inner, s.kernel, s.kernel}, engine);
  Data scales = random_scales({s.out_channels}, engine), bias = random_data(DType::kFloat32, {s.out_channels}, engine);
  const auto size = [&](int64_t in) { return (in + 2 * s.padding - s.dilation * (s.kernel - 1) - 1) / s.stride + 1; };
  const int64_t h = size(s.height), wide = size(s.width);
  Data out(end.dtype, {s.batch, s.out_channels, h, wide});
  out.strides = {s.out_channels * h * wide, 1, wide * s.out_channels, s.out_channels};
  std::optional<Data> residual;
  if (residual_dtype) residual = random_data(*residual_dtype, out.sizes, engine);
  constexpr double kScale = 0.0078125;
  const int64_t zero = x_dtype == DType::kUInt8 ? 119 : -7;
  Call call;
  call.data(x);
  call.data(w, true);
  call.data(scales, true);
  call.data(bias, true);
  call.optional(residual ? &*residual : nullptr);
  call.number(kScale);
  call.integer(zero);
  call.number(0.03125);
  call.integer(2);
  for (const int64_t v : {s.stride, s.padding, s.dilation}) call.ints({v, v});
  call.integer(s.groups);
  end.add(call);
  call.data(out);
  const Status status = call.run(quantized_conv_kernels()[0], 2);
  ASSERT_TRUE(status.ok()) << status.message();
  for (int64_t i = 0; i < s.batch * s.out_channels * h * wide; ++i) {
    const int64_t n = i / (s.out_channels * h * wide), j = i / (h * wide) % s.out_channels, oy = i / wide % h, ox = i % wide;
    int64_t sum = 0;
    for (int64_t c = 0; c < inner; ++c) {
      const int64_t channel = j / (s.out_channels / s.groups) * inner + c;
      for (int64_t t = 0; t < s.kernel * s.kernel; ++t) {
        const int64_t y = oy * s.stride - s.padding + t / s.kernel * s.dilation, xx = ox * s.stride - s.padding + t % s.kernel * s.dilation;
        if (y < 0 || xx < 0 || y >= s.height || xx >= s.width) continue;
        const auto value = static_cast<int64_t>(x.at(n * x.strides[0] + channel * x.strides[1] + y * x.strides[2] + xx * x.strides[3]));
        sum += (value - zero) * static_cast<int64_t>(w.at((j * inner + c) * s.kernel * s.kernel + t));
      }
    }
    double want = static_cast<double>(sum) * kScale * scales.at(j) + bias.at(j);
    if (!end.through_middle(&want)) continue;
    if (residual) want += residual->dtype == DType::kFloat32 ? residual->at(i) : (residual->at(i) - 2) * 0.03125;
    const double got = out.at(n * out.strides[0] + j * out.strides[1] + oy * out.strides[2] + ox * out.strides[3]);
    end.expect(got, want, str_cat("[", n, ", ", j, ", ", oy, ", ", ox, "] of ", s.channels, " to ", s.out_channels, " channels"));
  }
}

constexpr ConvShape kConvs[] = {{1, 3, 11, 9, 8, 3, 2, 1, 1, 1}, {2, 16, 7, 7, 33, 1, 1, 0, 1, 1}, {1, 32, 8, 10, 32, 3, 1, 1, 1, 32},
                                {1, 24, 9, 9, 12, 3, 1, 2, 2, 2}, {2, 70, 6, 6, 70, 5, 2, 2, 1, 70}, {1, 64, 14, 14, 48, 3, 1, 1, 1, 1},
                                {1, 70, 9, 11, 70, 3, 2, 1, 1, 70},  {1, 130, 6, 60, 130, 3, 1, 1, 1, 130}, {1, 20, 9, 9, 20, 3, 1, 2, 2, 20},
                                {2, 3, 40, 40, 20, 7, 2, 3, 1, 1},   {1, 96, 12, 26, 40, 3, 1, 1, 1, 1},   {2, 64, 30, 30, 70, 3, 2, 0, 1, 1},
                                {2, 80, 24, 24, 30, 1, 2, 0, 1, 1},  {1, 33, 9, 37, 20, 3, 1, 1, 2, 1},    {1, 100, 5, 33, 34, 1, 1, 0, 1, 1}};

/// Two sessions: calls at the same time that share the pool, packed weights and work memory.
TEST(QuantizedLinear, TwoThreadsShareWeightsAndPool) {
  std::mt19937 engine(5);
  constexpr int64_t kRows = 40, kColumns = 70, kDepth = 512;
  Data weights = random_data(DType::kInt8, {kColumns, kDepth}, engine), scales = random_scales({kColumns, 1}, engine), bias = random_data(DType::kFloat32, {kColumns}, engine);
  Data x_scale = random_scales({1, 1}, engine), x_zero = random_data(DType::kInt8, {1, 1}, engine, -20, 20);
  const std::unique_ptr<ThreadPool> pool = make_thread_pool(2);
  runtime::StateCache cache;
  const auto session = [&](uint32_t seed, Data* out) {
    std::mt19937 own(seed);
    Data x = random_data(DType::kInt8, {kRows, kDepth}, own);
    for (int i = 0; i < 20; ++i) {
      Call call;
      call.data(x);
      call.data(x_scale);
      call.data(x_zero);
      call.data(weights, true);
      call.data(scales, true);
      call.data(bias, true);
      call.none();
      call.integer(8);
      call.number(0.01);
      call.integer(0);
      End().add(call);
      call.data(*out);
      const Status status = call.run(quantized_linear_kernels()[0], *pool, cache);
      ASSERT_TRUE(status.ok()) << status.message();
    }
  };
  Data expected[2] = {Data(DType::kFloat32, {kRows, kColumns}), Data(DType::kFloat32, {kRows, kColumns})}, found[2] = {expected[0], expected[1]};
  session(1, &expected[0]);
  session(2, &expected[1]);
  std::thread first([&] { session(1, &found[0]); }), second([&] { session(2, &found[1]); });
  first.join();
  second.join();
  EXPECT_NE(expected[0].bytes, expected[1].bytes);
  for (int s = 0; s < 2; ++s) EXPECT_EQ(found[s].bytes, expected[s].bytes) << s;
}

TEST(QuantizedConv, EqualsPlainLoops) {
  const End plain, levels{.clamps = true, .inverse = 20, .dtype = DType::kInt8}, unsigned_levels{.inverse = 9, .zero = 100, .least = 0, .most = 255, .dtype = DType::kUInt8};
  const End middle{.clamps = true, .low = 0, .inverse = 20, .dtype = DType::kInt8, .middle = {-1.5, 8, 16, -3, -128, 127, -3, 0.0625}};
  for (const ConvShape& s : kConvs) {
    for (const bool last : {true, false}) {
      check_conv(s, DType::kInt8, std::nullopt, plain, last);
      check_conv(s, DType::kInt8, DType::kInt8, levels, last);
      check_conv(s, DType::kUInt8, DType::kFloat32, unsigned_levels, last);
      check_conv(s, DType::kUInt8, DType::kUInt8, plain, last);
      check_conv(s, DType::kInt8, DType::kInt8, middle, last);
    }
  }
}

/// Blocks of sums, which wide units finish in another order, against rows that are finished step by step: equal bytes, for any bounds, zero points,
/// residuals, and numbers so large that a step overflows.
TEST(QuantizedEnd, BlocksEndAsRowsDo) {
  std::mt19937 engine(29);
  const auto pick = [&](std::initializer_list<double> of) { return static_cast<float>(of.begin()[engine() % of.size()]); };
  constexpr double kInf = std::numeric_limits<double>::infinity();
  for (int round = 0; round < 4000; ++round) {
    QuantizedEnd end;
    end.dtype = engine() % 2 == 0 ? DType::kInt8 : DType::kUInt8;
    const float lowest = end.dtype == DType::kInt8 ? -128 : 0;
    end.least = lowest + pick({0, 0, 1, 100});
    end.most = end.least + pick({155, 27, 0});
    end.zero = pick({0, -128, 127, 3, 255, -256});
    end.inverse = pick({1, 0.37, 300, 1e-30, 1e30});
    end.low = pick({-kInf, 0, -0.4, 10});
    end.high = pick({kInf, 6, 0.3, 0});  // now and then below the other
    end.middle.exists = engine() % 2 == 0;
    end.middle.low = pick({-kInf, -3, 0});
    end.middle.high = pick({kInf, 4, 0});
    end.middle.inverse = pick({1, 7.3, 1e20});
    end.middle.zero = end.middle.back_zero = pick({0, 5, -128});
    if (engine() % 4 == 0) end.middle.back_zero = 17;
    end.middle.least = pick({-128, -100, 0});
    end.middle.most = pick({127, 0});
    end.middle.scale = pick({0.13, 1e-3, 1e35});
    if (engine() % 2 == 0) end.make_table();
    end.residual_scale = pick({0.02, 1, -1e38});
    end.residual_zero = pick({0, -128, 128});
    const auto rows = static_cast<int64_t>(engine() % 7 + 1), columns = static_cast<int64_t>(engine() % 64 + 1), row = columns + static_cast<int64_t>(engine() % 3);
    std::vector<int32_t> sums(static_cast<size_t>(rows * 64));
    for (int32_t& v : sums) v = static_cast<int32_t>(engine()) >> (engine() % 32);
    std::vector<float> factors(static_cast<size_t>(columns)), bias(factors.size());
    const bool wild = engine() % 4 == 0;
    for (float& v : factors) v = wild ? pick({1e-3, kInf, -1e38, std::numeric_limits<double>::quiet_NaN()}) : pick({1e-3, 0.02, 1e-6});
    for (float& v : bias) v = wild ? pick({0.5, -kInf}) : pick({0.5, -2, 0});
    const DType residual_dtype = engine() % 3 == 0 ? DType::kInt8 : engine() % 2 == 0 ? DType::kUInt8 : DType::kFloat32;
    const auto residual_bytes = static_cast<int64_t>(dtype_size(residual_dtype));
    std::vector<std::byte> residual(static_cast<size_t>(rows * row * residual_bytes));
    for (int64_t i = 0; i < rows * row; ++i) {
      if (residual_dtype == DType::kFloat32) {
        reinterpret_cast<float*>(residual.data())[i] = pick({0, 1, -3.5, kInf, std::numeric_limits<double>::quiet_NaN()});
      } else {
        residual[static_cast<size_t>(i)] = static_cast<std::byte>(engine());
      }
    }
    const bool adds = engine() % 2 == 0, has_bias = engine() % 4 != 0;
    std::vector<std::byte> found(static_cast<size_t>(rows * row), std::byte{77}), expected = found;
    SumBlock block;
    block.sums = sums.data();
    block.sum_row = 64;
    block.rows = rows;
    block.columns = columns;
    block.factors = factors.data();
    block.bias = has_bias ? bias.data() : nullptr;
    block.residual = adds ? residual.data() : nullptr;
    block.residual_dtype = residual_dtype;
    block.out = found.data();
    block.row = row;
    finish_block(end, block);
    for (int64_t i = 0; i < rows; ++i) {
      std::vector<float> y(factors.size());
      for (size_t j = 0; j < y.size(); ++j) {
        y[j] = static_cast<float>(sums[static_cast<size_t>(i) * 64 + j]) * factors[j];
        y[j] += has_bias ? bias[j] : 0.0f;
      }
      end.finish(y.data(), adds ? residual.data() + i * row * residual_bytes : nullptr, residual_dtype, columns, expected.data() + i * row);
    }
    ASSERT_EQ(found, expected) << "round " << round;
  }
}

/// A call whose arguments can be spoilt.
struct Spoilable {
  Data x{DType::kInt8, {2, 8}}, scale{DType::kFloat32, {1}}, weight{DType::kInt8, {4, 8}}, scales{DType::kFloat32, {4, 2}}, bias{DType::kFloat32, {4}}, out{DType::kFloat32, {2, 4}};
  int64_t bits = 8, residual_zero = 0;
  bool constant = true;
  End end;
  Status run() {
    Call call;
    call.data(x);
    call.data(scale);
    call.optional(nullptr);
    call.data(weight, constant);
    call.data(scales, true);
    call.data(bias, true);
    call.optional(nullptr);
    call.integer(bits);
    call.number(1);
    call.integer(residual_zero);
    end.add(call);
    call.data(out);
    return call.run(quantized_linear_kernels()[0], 2);
  }
};

TEST(QuantizedLinear, RefusesDamagedArguments) {
  EXPECT_TRUE(Spoilable().run().ok());
  const auto refuses = [](const char* what, const auto& spoil) {
    Spoilable s;
    spoil(s);
    EXPECT_FALSE(s.run().ok()) << what;
  };
  refuses("bits", [](Spoilable& s) { s.bits = 3; });
  refuses("4 bits in int8", [](Spoilable& s) { s.bits = 4; });
  refuses("a weight that is no constant", [](Spoilable& s) { s.constant = false; });
  refuses("groups that do not divide the depth", [](Spoilable& s) { s.scales = Data(DType::kFloat32, {4, 3}); });
  refuses("scales of fewer rows", [](Spoilable& s) { s.scales = Data(DType::kFloat32, {3, 2}); });
  refuses("a short bias", [](Spoilable& s) { s.bias = Data(DType::kFloat32, {3}); });
  refuses("float x", [](Spoilable& s) { s.x = Data(DType::kFloat32, {2, 8}); });
  refuses("too many parameters of rows", [](Spoilable& s) { s.scale = Data(DType::kFloat32, {3}); });
  refuses("x of another depth", [](Spoilable& s) { s.x = Data(DType::kInt8, {2, 7}); });
  refuses("a zero point far away", [](Spoilable& s) { s.residual_zero = 1 << 20; });
  refuses("a dtype", [](Spoilable& s) { s.end.dtype = DType::kInt32; });
  refuses("levels outside of the dtype", [](Spoilable& s) { s.end.dtype = DType::kInt8, s.end.most = 200; });
  refuses("a short list of middle levels", [](Spoilable& s) { s.end.middle = {0, 1, 2}; });
  refuses("middle levels the wrong way round", [](Spoilable& s) { s.end.middle = {0, 1, 2, 0, 127, -128, 0, 1}; });
  refuses("no scale", [](Spoilable& s) { s.end.dtype = DType::kInt8, s.end.inverse = 0; });
}

}  // namespace
}  // namespace pteron::cpu
