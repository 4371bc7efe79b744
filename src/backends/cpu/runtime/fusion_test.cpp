// The engine's pointwise programs, attention, norms and recurrent steps against plain loops and against the portable kernels.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <random>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/row_ops.h"
#include "backends/cpu/runtime/test_args.h"
#include "backends/cpu/runtime/test_floats.h"
#include "base/processor.h"
#include "base/str_cat.h"
#include "ops/kernels.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::Kernel;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

const Kernel& kernel_of(std::span<const Kernel> rows, std::string_view name) {
  for (const Kernel& row : rows) {
    if (row.name == name) return row;
  }
  ADD_FAILURE() << name;
  return rows[0];
}

void expect_close(float got, float want, float tolerance, const std::string& what) {
  if (std::isnan(want) || std::isinf(want)) {
    EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << what << ": " << got << ", expected " << want;
    return;
  }
  EXPECT_LE(std::fabs(got - want), tolerance * (std::fabs(want) + 1e-38f) + 1e-44f) << what << ": " << got << ", expected " << want;
}

Status run_program(std::string_view program, std::vector<std::vector<float>*> inputs, std::vector<float>& out) {
  Args args;
  const auto n = static_cast<int64_t>(out.size());
  args.floats({n}, *inputs[0]);
  args.list(Tag::kTensorList);
  for (size_t i = 1; i < inputs.size(); ++i) args.floats({n}, *inputs[i]);
  args.end_list();
  args.text(program);
  args.integer(static_cast<int64_t>(DType::kFloat32));
  args.floats({n}, out);
  return args.run(pointwise_kernels()[0]);
}

double gelu(double x) { return 0.5 * x * std::erfc(-x * 0.70710678118654752440); }

TEST(CpuPointwise, FunctionsKeepSubnormalsInfinitiesAndNaN) {
  struct Row {
    const char* name;
    double (*want)(double);
    float tolerance;
  };
  const Row rows[] = {
      {"exp", [](double x) { return std::exp(x); }, 4e-7f},
      {"expm1", [](double x) { return std::expm1(x); }, 6e-7f},
      {"log", [](double x) { return std::log(x); }, 4e-7f},
      {"tanh", [](double x) { return std::tanh(x); }, 5e-7f},
      {"erf", [](double x) { return std::erf(x); }, 5e-7f},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, 6e-7f},
      {"relu", [](double x) { return x < 0 ? 0.0 : x; }, 0},
      {"sqrt", [](double x) { return std::sqrt(x); }, 1e-7f},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 3e-7f},
      {"reciprocal", [](double x) { return 1 / x; }, 1e-7f},
      {"neg", [](double x) { return -x; }, 0},
      {"abs", [](double x) { return std::fabs(x); }, 0},
      {"round", [](double x) { return std::nearbyint(x); }, 0},
      {"not", [](double x) { return x == 0 ? 1.0 : 0.0; }, 0},
      {"isnan", [](double x) { return std::isnan(x) ? 1.0 : 0.0; }, 0},
  };
  std::vector<float> x{0.0f, -0.0f, 1e-40f, -1e-40f, 1e-30f, 0.5f, -0.5f, 1.5f, 2.5f, -87.0f, -95.0f, -103.0f, -120.0f, 88.0f, 89.0f, 700.0f, kInf, -kInf, kNaN};
  for (float v = -12.0f; v < 12.0f; v += 0.037f) x.push_back(v);
  for (const Row& row : rows) {
    std::vector<float> y(x.size());
    const Status status = run_program(str_cat(row.name, " 0"), {&x}, y);
    ASSERT_TRUE(status.ok()) << status.message();
    for (size_t i = 0; i < x.size(); ++i) {
      const auto want = static_cast<float>(row.want(static_cast<double>(x[i])));
      if (std::string_view(row.name) == "exp" && std::fabs(want) > 0 && std::fabs(want) < 1.2e-38f) {
        EXPECT_NEAR(y[i], want, 3e-45f) << x[i];  // a subnormal has few bits
      } else if (std::string_view(row.name) == "sigmoid" && want < 1.2e-38f) {
        EXPECT_LE(std::fabs(y[i] - want), 1.2e-38f);
      } else {
        expect_close(y[i], want, row.tolerance, str_cat(row.name, " of element ", i));
      }
    }
  }
}

TEST(CpuPointwise, GateFunctions) {
  std::vector<float> x = random_floats(1000, 1), y(x.size());
  for (float& v : x) v *= 8;
  struct Row {
    const char* name;
    double (*want)(double);
  };
  const Row rows[] = {
      {"gelu", gelu},
      {"gelu_tanh", [](double v) { return 0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))); }},
      {"silu", [](double v) { return v / (1 + std::exp(-v)); }},
      {"hardswish", [](double v) { return v * std::fmin(std::fmax(v + 3, 0), 6) / 6; }},
      {"hardsigmoid", [](double v) { return std::fmin(std::fmax(v + 3, 0), 6) / 6; }},
  };
  for (const Row& row : rows) {
    ASSERT_TRUE(run_program(str_cat(row.name, " 0"), {&x}, y).ok());
    for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(y[i], row.want(static_cast<double>(x[i])), 1e-6) << row.name << " of " << x[i];
  }
}

TEST(CpuPointwise, ComparisonsAndBounds) {
  std::vector<float> a{1, 2, kNaN, 3, -1}, b{2, 1, 0, kNaN, -1}, y(5);
  const auto check = [&](const char* program, std::vector<float> want) {
    ASSERT_TRUE(run_program(program, {&a, &b}, y).ok()) << program;
    for (size_t i = 0; i < 5; ++i) expect_close(y[i], want[i], 0, str_cat(program, " at ", i));
  };
  check("max 0 1", {2, 2, kNaN, kNaN, -1});
  check("min 0 1", {1, 1, kNaN, kNaN, -1});
  check("lt 0 1", {1, 0, 0, 0, 0});
  check("le 0 1", {1, 0, 0, 0, 1});
  check("ne 0 1", {1, 1, 1, 1, 0});
  check("clamp 0 #00000000 #40000000", {1, 2, kNaN, 2, 0});
  check("lt 0 1;where 2 0 #41200000", {1, 10, 10, 10, 10});
  check("sub #3f800000 0", {0, -1, kNaN, -2, 2});
  check("div 0 #40000000", {0.5f, 1, kNaN, 1.5f, -0.5f});
}

/// result[i] = (a * b + c) where b and c broadcast or lie in another order.
TEST(CpuPointwise, AnyStridesBroadcastAndThreads) {
  const int64_t N = 3, C = 7, H = 5, W = 11;
  const std::vector<int64_t> sizes{N, C, H, W}, last{C * H * W, 1, W * C, C}, first{C * H * W, H * W, W, 1};
  std::vector<float> a = random_floats(static_cast<size_t>(N * C * H * W), 1), full = random_floats(a.size(), 2), gate = random_floats(static_cast<size_t>(N * C), 3),
                     row = random_floats(static_cast<size_t>(W), 4), channel = random_floats(static_cast<size_t>(C), 5), one{0.25f};
  struct Operand {
    std::vector<int64_t> sizes, strides;
    std::vector<float>* data;
  };
  const Operand operands[] = {{sizes, first, &full}, {sizes, last, &full}, {{N, C, 1, 1}, {C, 1, 1, 1}, &gate}, {{W}, {1}, &row},
                              {{C, 1, 1}, {1, 1, 1}, &channel}, {{}, {}, &one}, {{1, 1, H, W}, {0, 0, W, 1}, &full}, {{N, C, H, W}, {0, 1, 0, C}, &full}};
  for (const auto& out_strides : {first, last}) {
    for (const auto& a_strides : {first, last}) {
      for (const Operand& b : operands) {
        for (const Operand& c : operands) {
          std::vector<float> out(a.size());
          Args args;
          args.floats(sizes, a, a_strides);
          args.list(Tag::kTensorList);
          const TensorView bv = args.floats(b.sizes, *b.data, b.strides).view, cv = args.floats(c.sizes, *c.data, c.strides).view;
          args.end_list();
          args.text("mul 0 1;add 3 2");
          args.integer(static_cast<int64_t>(DType::kFloat32));
          args.floats(sizes, out, out_strides);
          ASSERT_TRUE(args.run(pointwise_kernels()[0], 2).ok());
          const auto at = [&](const TensorView& v, const int64_t* index) {
            int64_t offset = 0;
            for (int d = 0; d < v.rank; ++d) offset += v.size(d) == 1 ? 0 : index[4 - v.rank + d] * v.stride(d);
            return v.as<float>()[offset];
          };
          for (int64_t i = 0; i < N * C * H * W; ++i) {
            const int64_t index[4] = {i / (C * H * W), i / (H * W) % C, i / W % H, i % W};
            int64_t ai = 0, oi = 0;
            for (size_t d = 0; d < 4; ++d) ai += index[d] * a_strides[d], oi += index[d] * out_strides[d];
            ASSERT_EQ(out[static_cast<size_t>(oi)], a[static_cast<size_t>(ai)] * at(bv, index) + at(cv, index)) << i;
          }
        }
      }
    }
  }
}

TEST(CpuPointwise, OtherDtypes) {
  std::vector<int64_t> whole{0, 1, -3, 1 << 20};
  bool mask[] = {true, false, true, true};
  bool out[4];
  std::vector<float> x{0.5f, 1.0f, -4.0f, 1e9f};
  Args args;
  args.floats({4}, x);
  args.list(Tag::kTensorList);
  args.tensor(DType::kInt64, {4}, whole.data());
  args.tensor(DType::kBool, {4}, mask);
  args.end_list();
  args.text("lt 1 0;and 3 2");
  args.integer(static_cast<int64_t>(DType::kBool));
  args.tensor(DType::kBool, {4}, out);
  const Status status = args.run(pointwise_kernels()[0]);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_TRUE(out[0]);
  EXPECT_FALSE(out[1]);
  EXPECT_FALSE(out[2]);
  EXPECT_TRUE(out[3]);
}

TEST(CpuPointwise, EmptyAndRankZero) {
  std::vector<float> x{2.0f}, y{0.0f}, none;
  Args args;
  args.floats({}, x);
  args.list(Tag::kTensorList);
  args.end_list();
  args.text("mul 0 0");
  args.integer(static_cast<int64_t>(DType::kFloat32));
  args.floats({}, y);
  ASSERT_TRUE(args.run(pointwise_kernels()[0]).ok());
  EXPECT_EQ(y[0], 4.0f);
  ASSERT_TRUE(run_program("exp 0", {&none}, none).ok());
}

TEST(CpuPointwise, SumsOfTheLastDims) {
  // sum or mean of exp(x * y + z[column]) over the last dims: one and several, wide rows, many narrow ones, single elements, turned and broadcast operands.
  struct Case {
    std::vector<int64_t> sizes;
    int64_t dims;
    bool turned;
  };
  const Case cases[] = {{{7}, 1, false},       {{1}, 1, false},         {{3, 5}, 1, false},    {{3, 5}, 2, false},   {{130, 9}, 1, false},      {{2, 70, 3}, 1, false},
                        {{4, 1300}, 1, false}, {{2, 3, 700}, 2, false}, {{5, 40, 33}, 1, true}, {{5, 40, 33}, 2, true}, {{6, 8, 1}, 1, false},    {{2, 2, 2, 2, 2}, 3, true},
                        {{1, 1, 4}, 1, false}, {{900, 2}, 1, true},     {{3, 1025, 2}, 2, true}};
  for (const Case& c : cases) {
    int64_t count = 1, outputs = 1;
    for (size_t d = 0; d < c.sizes.size(); ++d) {
      count *= c.sizes[d];
      if (d + static_cast<size_t>(c.dims) < c.sizes.size()) outputs *= c.sizes[d];
    }
    // Turned: the first dim is the innermost in memory.
    std::vector<int64_t> strides(c.sizes.size());
    int64_t stride = 1;
    for (size_t i = 0; i < c.sizes.size(); ++i) {
      const size_t d = c.turned ? i : c.sizes.size() - 1 - i;
      strides[d] = stride;
      stride *= c.sizes[d];
    }
    std::vector<float> x = random_floats(static_cast<size_t>(count), 31), y = random_floats(static_cast<size_t>(count), 32);
    std::vector<float> z = random_floats(static_cast<size_t>(c.sizes.back()), 33);
    for (const bool mean : {false, true}) {
      for (const bool keepdim : {false, true}) {
        std::vector<float> out(static_cast<size_t>(outputs), -7.0f);
        std::vector<int64_t> left(c.sizes.begin(), c.sizes.end() - c.dims);
        if (keepdim) left.insert(left.end(), static_cast<size_t>(c.dims), 1);
        Args args;
        args.floats(c.sizes, x, strides);
        args.list(Tag::kTensorList);
        args.floats(c.sizes, y);
        args.floats({c.sizes.back()}, z);
        args.end_list();
        args.text("mul 0 1;add 3 2;exp 4");
        args.integer(c.dims);
        args.boolean(mean);
        args.boolean(keepdim);
        args.floats(left, out);
        const Status status = args.run(kernel_of(pointwise_kernels(), "pteron_cpu::pointwise_sum.out"), 2);
        ASSERT_TRUE(status.ok()) << status.message();
        std::vector<double> want(out.size(), 0);
        for (int64_t i = 0; i < count; ++i) {
          int64_t at = 0, rest = i;
          for (size_t d = c.sizes.size(); d-- > 0; rest /= c.sizes[d]) at += rest % c.sizes[d] * strides[d];
          const float e = x[static_cast<size_t>(at)] * y[static_cast<size_t>(i)] + z[static_cast<size_t>(i % c.sizes.back())];
          want[static_cast<size_t>(i / (count / outputs))] += std::exp(static_cast<double>(e)) / (mean ? static_cast<double>(count / outputs) : 1.0);
        }
        for (size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(static_cast<double>(out[i]), want[i], 3e-6 * want[i]) << "at " << i << " of " << shape_text(c.sizes) << " dims " << c.dims;
      }
    }
  }
}

TEST(CpuPointwise, SumsOfNothing) {
  for (const bool mean : {false, true}) {
    std::vector<float> x(1), out(3, -7.0f), none(1);
    Args args;
    args.floats({3, 0}, x);
    args.list(Tag::kTensorList);
    args.end_list();
    args.text("exp 0");
    args.integer(1);
    args.boolean(mean);
    args.boolean(false);
    args.floats({3}, out);
    ASSERT_TRUE(args.run(kernel_of(pointwise_kernels(), "pteron_cpu::pointwise_sum.out")).ok());
    for (const float v : out) EXPECT_TRUE(mean ? std::isnan(v) : v == 0.0f);
  }
}

TEST(CpuPointwise, DamagedProgramsAreRefused) {
  std::vector<float> x(4), y(4);
  std::string many = "copy 0", wide = "copy 0";
  for (int i = 0; i < 64; ++i) many += ";copy 0";
  for (int i = 0; i < 30; ++i) wide += ";copy 0";
  for (int i = 1; i < 30; ++i) wide += str_cat(";add ", i, " ", i + 30 - i / 2);
  for (const std::string& program : std::vector<std::string>{"", ";", "fly 0", "add 0", "add 0 0 0", "add 0 0 0 0", "exp 1", "exp 5", "exp -1", "exp 0;exp 2", "exp #", "exp #3f80000000",
                                    "exp 0x", "exp 99999999999", "exp  0", "where 0 0", many, wide}) {
    EXPECT_EQ(run_program(program, {&x}, y).code(), Code::kInvalidFile) << program;
  }
}

struct AttentionCase {
  int64_t heads, kv_heads, rows, keys, width, value_width;
  int mask;  ///< 0 none, 1 per key, 2 per row and key, 3 bool, 4 both
  bool causal, turned_keys;
};

void check_attention(const AttentionCase& c) {
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  std::vector<float> q = random_floats(count(c.heads * c.rows * c.width), 1), k = random_floats(count(c.kv_heads * c.keys * c.width), 2),
                     v = random_floats(count(c.kv_heads * c.keys * c.value_width), 3), row_mask = random_floats(count(c.keys), 4), mask = random_floats(count(c.rows * c.keys), 5),
                     out(count(c.heads * c.rows * c.value_width));
  std::vector<uint8_t> keep(count(c.rows * c.keys));
  for (size_t i = 0; i < keep.size(); ++i) keep[i] = mask[i] > -1.0f || i % static_cast<size_t>(c.keys) == 0;
  for (int64_t i = 0; i < c.keys && c.rows > 2; ++i) keep[static_cast<size_t>(2 * c.keys + i)] = 0;  // a row that sees nothing
  const double scale = 0.3;
  Args args;
  // Queries and results as [rows][heads][width], as projections give them.
  args.floats({1, c.heads, c.rows, c.width}, q, {c.heads * c.rows * c.width, c.width, c.heads * c.width, 1});
  if (c.turned_keys) {
    args.floats({1, c.kv_heads, c.keys, c.width}, k, {c.kv_heads * c.keys * c.width, c.keys * c.width, 1, c.keys});
  } else {
    args.floats({1, c.kv_heads, c.keys, c.width}, k, {c.kv_heads * c.keys * c.width, c.keys * c.width, c.width, 1});
  }
  args.floats({1, c.kv_heads, c.keys, c.value_width}, v);
  args.list(Tag::kTensorList);
  if (c.mask == 1 || c.mask == 4) args.floats({1, 1, 1, 1, c.keys}, row_mask);
  if (c.mask == 2 || c.mask == 4) args.floats({c.rows, c.keys}, mask);
  if (c.mask == 3) args.tensor(DType::kBool, {1, c.rows, c.keys}, keep.data());
  args.end_list();
  args.boolean(c.causal);
  args.number(scale);
  args.boolean(c.heads != c.kv_heads);
  args.boolean(true);
  args.floats({1, c.heads, c.rows, c.value_width}, out, {c.heads * c.rows * c.value_width, c.value_width, c.heads * c.value_width, 1});
  const Status status = args.run(attention_kernels()[0], c.heads % 2 == 0 ? 2 : 1);
  ASSERT_TRUE(status.ok()) << status.message();
  const int64_t share = c.heads / c.kv_heads;
  for (int64_t h = 0; h < c.heads; ++h) {
    for (int64_t r = 0; r < c.rows; ++r) {
      std::vector<double> s(count(c.keys), -std::numeric_limits<double>::infinity());
      double top = s.empty() ? 0 : s[0], sum = 0;
      for (int64_t j = 0; j < c.keys && !(c.causal && j > r); ++j) {
        double dot = 0;
        for (int64_t e = 0; e < c.width; ++e) {
          const int64_t ki = c.turned_keys ? (h / share * c.width + e) * c.keys + j : (h / share * c.keys + j) * c.width + e;
          dot += static_cast<double>(q[count((r * c.heads + h) * c.width + e)]) * static_cast<double>(k[count(ki)]);
        }
        dot *= scale;
        if (c.mask == 1 || c.mask == 4) dot += static_cast<double>(row_mask[count(j)]);
        if (c.mask == 2 || c.mask == 4) dot += static_cast<double>(mask[count(r * c.keys + j)]);
        if (c.mask == 3 && keep[count(r * c.keys + j)] == 0) continue;
        s[count(j)] = dot;
        top = std::max(top, dot);
      }
      for (double& e : s) sum += e = std::isinf(top) ? 0 : std::exp(e - top);
      for (int64_t e = 0; e < c.value_width; ++e) {
        double want = 0;
        for (int64_t j = 0; j < c.keys; ++j) want += s[count(j)] * static_cast<double>(v[count((h / share * c.keys + j) * c.value_width + e)]);
        if (sum != 0) want /= sum;
        ASSERT_NEAR(out[count((r * c.heads + h) * c.value_width + e)], want, 2e-5) << "head " << h << " row " << r << " keys " << c.keys << " mask " << c.mask;
      }
    }
  }
}

TEST(CpuAttention, EqualsLoops) {
  const AttentionCase cases[] = {
      {1, 1, 1, 1, 1, 1, 0, false, false},    {2, 2, 5, 7, 3, 5, 0, false, true},      {3, 3, 49, 49, 32, 32, 4, false, false}, {12, 12, 128, 128, 64, 64, 1, false, false},
      {9, 3, 1, 256, 64, 64, 1, false, false}, {4, 2, 17, 300, 20, 33, 2, false, true}, {2, 2, 200, 523, 16, 24, 0, false, false}, {2, 1, 300, 300, 16, 16, 0, true, false},
      {1, 1, 270, 400, 8, 8, 3, true, false}, {2, 2, 33, 65, 48, 80, 3, false, false}, {1, 1, 13, 0, 8, 8, 0, false, false},     {2, 2, 31, 600, 128, 128, 4, false, false},
      {4, 4, 197, 197, 16, 16, 0, false, false}, {2, 2, 600, 40, 8, 8, 0, false, false}};
  for (const AttentionCase& c : cases) check_attention(c);
}

TEST(CpuAttention, ShapesThatDoNotFitAreRefused) {
  std::vector<float> data(64);
  Args args;
  args.floats({1, 2, 4, 4}, data);
  args.floats({1, 2, 4, 2}, data);
  args.floats({1, 2, 4, 4}, data);
  args.list(Tag::kTensorList);
  args.end_list();
  args.boolean(false);
  args.none();
  args.boolean(false);
  args.boolean(true);
  args.floats({1, 2, 4, 4}, data);
  EXPECT_EQ(args.run(attention_kernels()[0]).code(), Code::kInvalidInput);
}

/// The engine's kernel against the portable one of the same name; `fill` adds the arguments, the last `outs` of which are results.
void check_against_portable(std::span<const Kernel> rows, std::string_view name, const std::function<void(Args&, std::vector<std::vector<float>>&)>& fill, float tolerance,
                            int threads = 2) {
  std::vector<std::vector<float>> mine, theirs;
  Args a, b;
  fill(a, mine);
  fill(b, theirs);
  Status status = a.run(kernel_of(rows, name), threads);
  ASSERT_TRUE(status.ok()) << status.message();
  status = b.run(*ops::portable_kernels().find(name));
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < mine.size(); ++i) {
    for (size_t j = 0; j < mine[i].size(); ++j) {
      if (std::isnan(theirs[i][j])) {
        ASSERT_TRUE(std::isnan(mine[i][j])) << name << " result " << i << " at " << j;
      } else if (std::isinf(theirs[i][j])) {
        ASSERT_EQ(mine[i][j], theirs[i][j]) << name << " result " << i << " at " << j;
      } else {
        ASSERT_NEAR(mine[i][j], theirs[i][j], tolerance * (1 + std::fabs(theirs[i][j]))) << name << " result " << i << " at " << j;
      }
    }
  }
}

TEST(CpuRows, AreAsWideAsTheUnitsInUse) {
  EXPECT_EQ(row_set().panel, processor_units() == Units::kAvx2 ? 64 : 128);
  const char* cap = std::getenv("PTERON_CPU_MAX");
  if (cap != nullptr && std::string_view(cap) == "avx2") {
    EXPECT_EQ(row_set().panel, 64);
  }
}

TEST(CpuNorms, EqualPortableKernels) {
  for (const int64_t n : {1, 3, 8, 15, 31, 64, 197, 1000}) {
    for (const int64_t step : {n, n + 3}) {
      std::vector<float> x = random_floats(static_cast<size_t>(6 * step), 7), w = random_floats(static_cast<size_t>(n), 8), b = random_floats(static_cast<size_t>(n), 9);
      x[0] = -kInf;
      if (n > 2) x[static_cast<size_t>(step)] = kNaN;
      for (const char* name : {"aten::_softmax.out", "aten::_log_softmax.out"}) {
        const auto fill = [&](Args& args, std::vector<std::vector<float>>& outs) {
          outs.assign(1, std::vector<float>(static_cast<size_t>(6 * n)));
          args.floats({2, 3, n}, x, {3 * step, step, 1});
          args.integer(-1);
          args.boolean(false);
          args.floats({2, 3, n}, outs[0]);
        };
        check_against_portable(norm_kernels(), name, fill, 2e-6f);
      }
      x[0] = 1.0f;
      for (const int affine : {0, 1, 2}) {
        const auto fill = [&](Args& args, std::vector<std::vector<float>>& outs) {
          outs = {std::vector<float>(static_cast<size_t>(6 * n)), std::vector<float>(6), std::vector<float>(6)};
          args.floats({6, n}, x, {step, 1});
          args.list(Tag::kIntList);
          args.integer(n);
          args.end_list();
          affine > 0 ? void(args.floats({n}, w)) : args.none();
          affine > 1 ? void(args.floats({n}, b)) : args.none();
          args.number(1e-3);
          args.floats({6, n}, outs[0]);
          args.floats({6, 1}, outs[1]);
          args.floats({6, 1}, outs[2]);
        };
        check_against_portable(norm_kernels(), "aten::native_layer_norm.out", fill, 1e-5f);
      }
    }
  }
}

TEST(CpuNorms, SoftmaxOfMasksAndFarNumbers) {
  constexpr int64_t kRow = 37;
  const float far[] = {0.0f, -0.25f, -1.0f, -20.0f, -80.0f, -86.5f, -87.4f, -95.0f, -103.0f, -120.0f, -1e9f, -3.4e38f, -kInf};
  for (const float top : {0.0f, 8.5f, -3.4e38f}) {
    std::vector<float> x(static_cast<size_t>(kRow)), y(x.size()), want(x.size());
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = std::fmax(top + far[i % std::size(far)], i % std::size(far) == std::size(far) - 1 ? -kInf : -3.4e38f);
      sum += std::exp(static_cast<double>(x[i]) - static_cast<double>(top));
    }
    Args args;
    args.floats({1, kRow}, x);
    args.integer(-1);
    args.boolean(false);
    args.floats({1, kRow}, y);
    ASSERT_TRUE(args.run(kernel_of(norm_kernels(), "aten::_softmax.out")).ok());
    for (size_t i = 0; i < x.size(); ++i) {
      const double d = static_cast<double>(x[i]) - static_cast<double>(top), value = std::isinf(d) ? 0 : std::exp(d) / sum;
      // The exponential's share grows with the distance; a subnormal has few bits besides.
      const double allowed = value * (4e-7 + 2.5e-8 * std::fmin(-d, 120)) + (value < 1.2e-38 ? 3e-45 : 0);
      EXPECT_NEAR(static_cast<double>(y[i]), value, allowed) << x[i] << " with " << top;
    }
  }
}

TEST(CpuNorms, GroupsOfRowMajorAndChannelsLastImages) {
  struct Case {
    int64_t batch, channels, height, width, groups;
  };
  // Odd sizes, one channel a group (instance norm), one group, several parts of an image, more pixels than a block.
  constexpr Case kCases[] = {{1, 1, 1, 1, 1}, {2, 6, 3, 5, 3}, {1, 32, 7, 7, 32}, {3, 20, 9, 4, 1}, {2, 48, 33, 31, 8}, {1, 7, 130, 70, 7}};
  for (const Case& c : kCases) {
    const int64_t count = c.batch * c.channels * c.height * c.width;
    std::vector<float> x = random_floats(static_cast<size_t>(count), 21);
    std::vector<float> w = random_floats(static_cast<size_t>(c.channels), 22), b = random_floats(static_cast<size_t>(c.channels), 23);
    for (float& v : x) v = v * 0.5f + 40.0f;  // far from zero: sums of squares would lose the spread
    const std::vector<int64_t> last = {c.channels * c.height * c.width, 1, c.channels * c.width, c.channels};
    for (const bool channels_last : {false, true}) {
      for (const int affine : {0, 1, 2}) {
        for (const int threads : {1, 2}) {
          const auto fill = [&](Args& args, std::vector<std::vector<float>>& outs) {
            const auto stats = static_cast<size_t>(c.batch * c.groups);
            outs = {std::vector<float>(static_cast<size_t>(count)), std::vector<float>(stats), std::vector<float>(stats)};
            const std::vector<int64_t> sizes = {c.batch, c.channels, c.height, c.width}, strides = channels_last ? last : std::vector<int64_t>();
            args.floats(sizes, x, strides);
            affine > 0 ? void(args.floats({c.channels}, w)) : args.none();
            affine > 1 ? void(args.floats({c.channels}, b)) : args.none();
            for (const int64_t v : {c.batch, c.channels, c.height * c.width, c.groups}) args.integer(v);
            args.number(1e-5);
            args.floats(sizes, outs[0], strides);
            args.floats({c.batch, c.groups}, outs[1]);
            args.floats({c.batch, c.groups}, outs[2]);
          };
          check_against_portable(norm_kernels(), "aten::native_group_norm.out", fill, 3e-5f, threads);
        }
      }
    }
  }
}

TEST(CpuNorms, RootMeanSquareWithAnyStrides) {
  const int64_t rows = 5;
  for (const int64_t n : {1, 7, 64, 130}) {
    for (const bool turned : {false, true}) {
      std::vector<float> x = random_floats(static_cast<size_t>(rows * n), 1), w = random_floats(static_cast<size_t>(n), 2), y(x.size());
      Args args;
      args.floats({rows, n}, x, turned ? std::vector<int64_t>{1, rows} : std::vector<int64_t>{n, 1});
      args.floats({n}, w);
      args.number(1e-5);
      args.floats({rows, n}, y);
      ASSERT_TRUE(args.run(kernel_of(norm_kernels(), "pteron_cpu::rms_norm.out")).ok());
      for (int64_t r = 0; r < rows; ++r) {
        const auto at = [&](int64_t i) { return static_cast<double>(x[static_cast<size_t>(turned ? i * rows + r : r * n + i)]); };
        double square = 0;
        for (int64_t i = 0; i < n; ++i) square += at(i) * at(i);
        for (int64_t i = 0; i < n; ++i) {
          const double want = at(i) / std::sqrt(square / static_cast<double>(n) + 1e-5) * static_cast<double>(w[static_cast<size_t>(i)]);
          ASSERT_NEAR(y[static_cast<size_t>(r * n + i)], want, 1e-5);
        }
      }
    }
  }
}

TEST(CpuImages, NearestUpsamplingOfChannelsLast) {
  const int64_t N = 2, C = 5, H = 3, W = 4;
  const std::vector<int64_t> last{C * H * W, 1, W * C, C};
  std::vector<float> x = random_floats(static_cast<size_t>(N * C * H * W), 1);
  for (const auto& [high, wide] : {std::pair<int64_t, int64_t>{2, 2}, {3, 1}, {1, 4}}) {
    const auto fill = [&, high = high, wide = wide](Args& args, std::vector<std::vector<float>>& outs) {
      outs.assign(1, std::vector<float>(static_cast<size_t>(N * C * H * W * high * wide)));
      args.floats({N, C, H, W}, x, last);
      args.list(Tag::kIntList);
      args.integer(H * high);
      args.integer(W * wide);
      args.end_list();
      args.none();
      args.none();
      args.floats({N, C, H * high, W * wide}, outs[0], {C * H * W * high * wide, 1, W * wide * C, C});
    };
    check_against_portable(image_kernels(), "aten::upsample_nearest2d.out", fill, 0);
  }
}

TEST(CpuRecurrent, EqualPortableKernels) {
  for (const int64_t batch : {1, 3, 6}) {
    for (const int64_t width : {1, 5, 32, 70}) {
      for (const bool reverse : {false, true}) {
        const int64_t steps = 4;
        const auto count = [](int64_t n) { return static_cast<size_t>(n); };
        std::vector<float> h = random_floats(count(batch * width), 2), c = random_floats(count(batch * width), 3);
        for (const bool lstm : {true, false}) {
          const int64_t gates = (lstm ? 4 : 3) * width;
          std::vector<float> g = random_floats(count(steps * batch * gates), 1), w = random_floats(count(gates * width), 4), b = random_floats(count(gates), 5);
          const auto fill = [&](Args& args, std::vector<std::vector<float>>& outs) {
            outs = {std::vector<float>(count(steps * batch * width)), std::vector<float>(count(batch * width)), std::vector<float>(count(lstm ? batch * width : 0))};
            args.floats({steps, batch, gates}, g);
            args.floats({batch, width}, h);
            if (lstm) args.floats({batch, width}, c);
            args.floats({gates, width}, w).read_only = true;
            if (lstm) {
              args.none();
            } else {
              args.floats({gates}, b);
            }
            args.boolean(reverse);
            args.floats({steps, batch, width}, outs[0]);
            args.floats({batch, width}, outs[1]);
            if (lstm) args.floats({batch, width}, outs[2]);
          };
          check_against_portable(recurrent_kernels(), lstm ? "pteron::lstm_scan.out" : "pteron::gru_scan.out", fill, 2e-5f);
        }
      }
    }
  }
}

/// Results beyond the last cache are written another way: equal to what each row gives alone.
TEST(CpuNorms, LargeResultsAreThoseOfTheirRows) {
  constexpr int64_t kRows = 3200, kColumns = 1024;
  std::vector<float> x = random_floats(static_cast<size_t>(kRows * kColumns), 7), weight = random_floats(kColumns, 8), bias = random_floats(kColumns, 9);
  const auto softmax = [&](std::vector<float>& from, std::vector<float>& to, int64_t rows) {
    Args args;
    args.floats({rows, kColumns}, from);
    args.integer(1);
    args.boolean(false);
    args.floats({rows, kColumns}, to);
    return args.run(kernel_of(norm_kernels(), "aten::_softmax.out"), 2);
  };
  const auto rms_norm = [&](std::vector<float>& from, std::vector<float>& to, int64_t rows) {
    Args args;
    args.floats({rows, kColumns}, from);
    args.floats({kColumns}, weight);
    args.number(1e-5);
    args.floats({rows, kColumns}, to);
    return args.run(kernel_of(norm_kernels(), "pteron_cpu::rms_norm.out"), 2);
  };
  const auto layer_norm = [&](std::vector<float>& from, std::vector<float>& to, int64_t rows) {
    std::vector<float> mean(static_cast<size_t>(rows)), rstd(mean.size());
    Args args;
    args.floats({rows, kColumns}, from);
    args.ints({kColumns});
    args.floats({kColumns}, weight);
    args.floats({kColumns}, bias);
    args.number(1e-5);
    args.floats({rows, kColumns}, to);
    args.floats({rows, 1}, mean);
    args.floats({rows, 1}, rstd);
    return args.run(kernel_of(norm_kernels(), "aten::native_layer_norm.out"), 2);
  };
  const auto check = [&](const auto& run) {
    std::vector<float> all(x.size(), -7), one(kColumns);
    ASSERT_TRUE(run(x, all, kRows).ok());
    for (const int64_t row : {int64_t{0}, int64_t{1}, kRows / 2, kRows - 1}) {
      std::vector<float> from(x.begin() + row * kColumns, x.begin() + (row + 1) * kColumns);
      ASSERT_TRUE(run(from, one, 1).ok());
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + row * kColumns)) << "row " << row;
    }
  };
  check(softmax);
  check(rms_norm);
  check(layer_norm);
}

}  // namespace
}  // namespace pteron::cpu
