// The hand-written kernels (attention, a few rows times a weight) against plain loops in double, with the emulator's translation of their texts.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "backends/cuda/aot/attention_text.h"
#include "backends/cuda/aot/convolution_text.h"
#include "backends/cuda/aot/element_text.h"
#include "backends/cuda/aot/row_product_text.h"
#include "emulator.h"
#include "tensor/half.h"

namespace pteron::cuda {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Elements of one dtype that a kernel reads and writes.
struct Elements {
  DType dtype;
  std::vector<uint32_t> bits32;
  std::vector<uint16_t> bits16;
  Elements(DType type, size_t count) : dtype(type), bits32(type == DType::kFloat32 ? count : 0, 0x7fc00000u), bits16(type == DType::kFloat32 ? 0 : count, 0x7fff) {}
  uint64_t address() { return dtype == DType::kFloat32 ? reinterpret_cast<uint64_t>(bits32.data()) : reinterpret_cast<uint64_t>(bits16.data()); }
  double get(size_t i) const {
    if (dtype == DType::kFloat32) return std::bit_cast<float>(bits32[i]);
    return dtype == DType::kFloat16 ? half_bits_to_float(bits16[i]) : bfloat16_bits_to_float(bits16[i]);
  }
  void set(size_t i, double value) {
    const auto f = static_cast<float>(value);
    if (dtype == DType::kFloat32) {
      bits32[i] = std::bit_cast<uint32_t>(f);
    } else {
      bits16[i] = dtype == DType::kFloat16 ? float_to_half_bits(f) : float_to_bfloat16_bits(f);
    }
  }
};

Elements random_elements(DType dtype, size_t count, unsigned seed) {
  Elements made(dtype, count);
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (size_t i = 0; i < count; ++i) made.set(i, normal(random));
  return made;
}

/// Relative to values near 1.
double tolerance(DType dtype) { return dtype == DType::kFloat32 ? 5e-6 : dtype == DType::kFloat16 ? 3e-3 : 2e-2; }

/// Kernels of one text.
class Module {
 public:
  explicit Module(const std::vector<std::pair<std::string, std::string>>& kernels) {
    std::string text = "#define PTERON_KERNEL extern \"C\" __global__ void\n";
    text += element_text();
    for (const auto& [name, body] : kernels) {
      std::string named = body;
      for (size_t at = named.find("@NAME@"); at != std::string::npos; at = named.find("@NAME@", at)) named.replace(at, 6, name);
      EXPECT_EQ(named.find('@'), std::string::npos) << named.substr(named.find('@'), 40);
      text += named;
    }
    kernels_ = emulator::open_kernels(text.c_str());
    EXPECT_NE(kernels_, nullptr);
  }
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  void run(const char* name, unsigned x, unsigned y, unsigned z, unsigned threads, size_t shared, const std::vector<uint64_t>& params) {
    ASSERT_NE(kernels_, nullptr);
    void* kernel = emulator::find_kernel(kernels_, name);
    ASSERT_NE(kernel, nullptr);
    ASSERT_TRUE(emulator::run_kernel(kernels_, kernel, {x, y, z}, {threads, 1, 1}, shared, params.data(), params.size()));
  }

 private:
  emulator::Kernels* kernels_ = nullptr;
};

struct AttentionCase {
  DType dtype = DType::kFloat32;
  int64_t batch = 1, heads = 2, key_heads = 2, queries = 5, keys = 7, width = 16, value_width = 16;
  bool causal = false, zero_rows = true, hide_first_query = false;
  std::vector<DType> masks = {};
  int64_t splits = 1;
  int64_t gap = 0;   ///< elements behind each row
  bool group = false;
};

void check_attention(const AttentionCase& c) {
  AttentionForm form;
  form.dtype = c.dtype;
  form.width = c.width;
  form.value_width = c.value_width;
  form.masks = c.masks;
  form.causal = c.causal;
  form.zero_rows = c.zero_rows;
  const AttentionShape shape = attention_shape(form);
  Module module({{"attend", attention_text(form)}, {"merge", attention_merge_text(form)}});
  const int64_t ql = c.width + c.gap, kl = c.width + c.gap, vl = c.value_width + c.gap, ol = c.value_width + c.gap;
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  Elements q = random_elements(c.dtype, count(c.batch * c.heads * c.queries * ql), 1), k = random_elements(c.dtype, count(c.batch * c.key_heads * c.keys * kl), 2),
           v = random_elements(c.dtype, count(c.batch * c.key_heads * c.keys * vl), 3), o(c.dtype, count(c.batch * c.heads * c.queries * ol));
  // Mask 0 is for all heads of a batch, mask 1 for all.
  std::vector<uint8_t> bools(count(c.batch * c.queries * c.keys), 1);
  std::vector<Elements> floats;
  for (size_t i = 0; i < c.masks.size(); ++i) floats.push_back(random_elements(c.masks[i] == DType::kBool ? DType::kFloat32 : c.masks[i], bools.size(), 10 + static_cast<unsigned>(i)));
  for (size_t i = 0; i < bools.size(); ++i) bools[i] = static_cast<uint8_t>(i * 2654435761u >> 7 & 1);
  if (c.hide_first_query) std::fill(bools.begin(), bools.begin() + static_cast<std::ptrdiff_t>(c.keys), uint8_t{0});
  const int64_t ratio = c.heads / c.key_heads, group = c.group ? ratio : 1, rows = c.queries * group;
  const int64_t tiles = (c.keys + shape.keys - 1) / shape.keys, chunk = (tiles + c.splits - 1) / c.splits * shape.keys, splits = (c.keys + chunk - 1) / chunk;
  std::vector<float> parts(count(c.batch * c.heads * c.queries * splits * (c.value_width + 2)), std::numeric_limits<float>::quiet_NaN());
  std::vector<uint64_t> p{q.address(), k.address(), v.address(), o.address()};
  for (size_t i = 0; i < 2; ++i) p.push_back(i >= c.masks.size() ? 0 : c.masks[i] == DType::kBool ? reinterpret_cast<uint64_t>(bools.data()) : floats[i].address());
  p.push_back(reinterpret_cast<uint64_t>(parts.data()));
  for (const int64_t x : {c.queries, c.keys, c.heads, group, ratio}) p.push_back(static_cast<uint64_t>(x));
  for (const int64_t x : {c.heads * c.queries * ql, c.queries * ql, ql, c.key_heads * c.keys * kl, c.keys * kl, kl, c.key_heads * c.keys * vl, c.keys * vl, vl, c.heads * c.queries * ol,
                          c.queries * ol, ol}) {
    p.push_back(static_cast<uint64_t>(x));
  }
  for (const int64_t x : {c.queries * c.keys, int64_t{0}, c.keys, int64_t{1}, int64_t{0}, int64_t{0}, c.keys, int64_t{1}}) p.push_back(static_cast<uint64_t>(x));
  const double scale = 0.3;
  const bool whole = c.gap % 8 == 0 && c.width % 8 == 0 && c.value_width % 8 == 0;
  for (const int64_t x : {splits, chunk, int64_t{whole}}) p.push_back(static_cast<uint64_t>(x));
  p.push_back(std::bit_cast<uint64_t>(scale));
  module.run("attend", static_cast<unsigned>((rows + shape.rows - 1) / shape.rows), static_cast<unsigned>(c.heads / group), static_cast<unsigned>(c.batch * splits), 128,
             static_cast<size_t>(shape.shared_bytes), p);
  if (splits > 1) {
    module.run("merge", static_cast<unsigned>(c.queries), static_cast<unsigned>(c.heads), static_cast<unsigned>(c.batch), 128, 0,
               {reinterpret_cast<uint64_t>(parts.data()), o.address(), static_cast<uint64_t>(c.queries), static_cast<uint64_t>(c.heads), static_cast<uint64_t>(c.heads * c.queries * ol),
                static_cast<uint64_t>(c.queries * ol), static_cast<uint64_t>(ol), static_cast<uint64_t>(splits)});
  }
  double worst = 0;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> scores;
        double top = -kInfinity, sum = 0;
        for (int64_t j = 0; j < c.keys; ++j) {
          double s = 0;
          for (int64_t d = 0; d < c.width; ++d) s += q.get(count(((b * c.heads + h) * c.queries + i) * ql + d)) * k.get(count(((b * c.key_heads + h / ratio) * c.keys + j) * kl + d));
          s *= scale;
          for (size_t m = 0; m < c.masks.size(); ++m) {
            const size_t at = count(((m == 0 ? b * c.queries : 0) + i) * c.keys + j);
            if (c.masks[m] == DType::kBool) {
              if (bools[at] == 0) s = -kInfinity;
            } else {
              s += floats[m].get(at);
            }
          }
          if (c.causal && j > i) s = -kInfinity;
          scores.push_back(s);
          top = std::max(top, s);
        }
        for (double& s : scores) s = top == -kInfinity ? 0 : std::exp(s - top), sum += s;
        for (int64_t d = 0; d < c.value_width; ++d) {
          double want = 0;
          for (int64_t j = 0; j < c.keys; ++j) want += scores[count(j)] * v.get(count(((b * c.key_heads + h / ratio) * c.keys + j) * vl + d));
          const double got = o.get(count(((b * c.heads + h) * c.queries + i) * ol + d));
          if (sum == 0 && !c.zero_rows) {
            EXPECT_TRUE(std::isnan(got));
            continue;
          }
          want = sum == 0 ? 0 : want / sum;
          const double error = std::fabs(got - want);
          worst = error <= worst ? worst : std::isnan(error) ? kInfinity : error;
        }
        for (int64_t d = c.value_width; d < ol; ++d) EXPECT_TRUE(std::isnan(o.get(count(((b * c.heads + h) * c.queries + i) * ol + d)))) << "wrote behind a row";
      }
    }
  }
  EXPECT_LE(worst, tolerance(c.dtype));
}

/// float16 and bfloat16 take the same way: most cases run with one of them.
constexpr DType kDtypes[] = {DType::kFloat32, DType::kBFloat16};
constexpr DType kAllDtypes[] = {DType::kFloat32, DType::kFloat16, DType::kBFloat16};

TEST(AttentionText, SmallAndOddSizes) {
  for (const DType dtype : kDtypes) {
    check_attention({.dtype = dtype, .queries = 3, .keys = 70, .width = 13, .value_width = 9});
    check_attention({.dtype = dtype, .batch = 2, .queries = 67, .keys = 130, .width = 64, .value_width = 64});
  }
  check_attention({.dtype = DType::kFloat16});
}

TEST(AttentionText, WideHeads) {
  for (const DType dtype : kDtypes) check_attention({.dtype = dtype, .heads = 1, .key_heads = 1, .queries = 18, .keys = 40, .width = 256, .value_width = 80});
}

TEST(AttentionText, MasksAndCausal) {
  for (const DType dtype : kDtypes) {
    check_attention({.dtype = dtype, .queries = 70, .keys = 70, .causal = true});
    check_attention({.dtype = dtype, .batch = 2, .queries = 9, .keys = 40, .masks = {dtype, DType::kFloat32}});
  }
}

TEST(AttentionText, QueriesThatSeeNothing) {
  for (const DType dtype : kDtypes) check_attention({.dtype = dtype, .zero_rows = false, .hide_first_query = true, .masks = {DType::kBool}});
}

TEST(AttentionText, GroupsAndSplits) {
  for (const DType dtype : kDtypes) {
    check_attention({.dtype = dtype, .batch = 2, .heads = 8, .key_heads = 2, .queries = 1, .keys = 300, .width = 64, .value_width = 64, .splits = 3, .group = true});
    check_attention({.dtype = dtype, .queries = 2, .keys = 200, .zero_rows = true, .hide_first_query = true, .masks = {DType::kBool}, .splits = 2});
  }
}

TEST(AttentionText, RowsWithGaps) {
  check_attention({.dtype = DType::kFloat32, .queries = 20, .keys = 20, .gap = 3});
  for (const int64_t gap : {8, 3}) check_attention({.dtype = DType::kBFloat16, .queries = 20, .keys = 20, .gap = gap});
}

void check_rows(RowProductForm form, size_t shift) {
  choose_row_product(&form);
  Module module({{"rows", row_product_text(form)}});
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  Elements x = random_elements(form.dtype, count(form.rows * form.depth) + shift, 1), w = random_elements(form.dtype, count(form.columns * form.depth), 2),
           g = random_elements(form.dtype, count(form.columns * form.depth), 3), bias = random_elements(form.dtype, count(form.columns), 4),
           residual = random_elements(form.dtype, count(form.rows * form.columns), 5), y(form.dtype, count(form.rows * form.columns));
  const uint64_t element = form.dtype == DType::kFloat32 ? 4 : 2;
  module.run("rows", static_cast<unsigned>((form.columns + form.columns_a_block() - 1) / form.columns_a_block()), 1, 1, static_cast<unsigned>(form.warps * 32), 0,
             {x.address() + shift * element, w.address(), form.gate ? g.address() : 0, form.bias ? bias.address() : 0, form.residual ? residual.address() : 0, y.address()});
  for (int64_t r = 0; r < form.rows; ++r) {
    for (int64_t n = 0; n < form.columns; ++n) {
      double sum = 0, gate = 0;
      for (int64_t k = 0; k < form.depth; ++k) {
        sum += x.get(count(r * form.depth + k) + shift) * w.get(count(n * form.depth + k));
        gate += x.get(count(r * form.depth + k) + shift) * g.get(count(n * form.depth + k));
      }
      if (form.gate) sum *= gate / (1 + std::exp(-gate));
      if (form.bias) sum += bias.get(count(n));
      if (form.residual) sum += residual.get(count(r * form.columns + n));
      EXPECT_NEAR(y.get(count(r * form.columns + n)), sum, tolerance(form.dtype) * (10 + std::fabs(sum))) << r << " " << n;
    }
  }
}

TEST(RowProductText, Forms) {
  for (const DType dtype : kDtypes) {
    check_rows({.rows = 3, .depth = 2080, .columns = 7, .dtype = dtype, .bias = true, .residual = true}, 0);
    check_rows({.rows = 4, .depth = 1024, .columns = 6, .dtype = dtype, .gate = true}, 0);
    check_rows({.rows = 2, .depth = 96, .columns = 9, .dtype = dtype, .bias = true}, 1);
  }
  check_rows({.rows = 1, .depth = 32, .columns = 8451, .dtype = DType::kFloat16, .residual = true}, 0);
}

TEST(ConvolutionTailText, AddsAndClamps) {
  for (const DType dtype : kAllDtypes) {
    Module module({{"tail", tail_text({.dtype = dtype, .bias = true, .residual = true, .relu = true})}});
    Elements y = random_elements(dtype, 1500, 1), bias = random_elements(dtype, 3, 2), residual = random_elements(dtype, 1500, 3);
    const Elements before = y;
    module.run("tail", 2, 1, 1, 256, 0, {y.address(), bias.address(), residual.address(), 1500, 3});
    for (size_t i = 0; i < 1500; ++i) EXPECT_NEAR(y.get(i), std::max(0.0, before.get(i) + bias.get(i % 3) + residual.get(i)), tolerance(dtype) * 8) << i;
  }
}

}  // namespace
}  // namespace pteron::cuda
