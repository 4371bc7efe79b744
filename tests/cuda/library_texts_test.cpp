// The hand-written kernels (attention, a few rows times a weight) against plain loops in double, with the emulator's translation of their texts.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backends/cuda/aot/attention_text.h"
#include "backends/cuda/aot/convolution_text.h"
#include "backends/cuda/aot/depthwise_text.h"
#include "backends/cuda/aot/element_text.h"
#include "backends/cuda/aot/few_rows_text.h"
#include "backends/cuda/aot/kernel_sources.h"
#include "backends/cuda/aot/row_product_text.h"
#include "backends/cuda/aot/tile_text.h"
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
  Elements(DType type, size_t count)
      : dtype(type), bits32(type == DType::kFloat32 ? count : 0, 0x7fc00000u), bits16(type == DType::kFloat32 ? 0 : count, 0x7fff) {}
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
    std::string text(prelude());
    text += element_text();
    text += tile_text();
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
  int64_t gap = 0;  ///< elements behind each row
  bool group = false;
  std::optional<AttentionTiles> how = {};
  bool any_scale = true;
};

void check_attention(const AttentionCase& c) {
  AttentionForm form;
  form.dtype = c.dtype;
  form.width = c.width;
  form.value_width = c.value_width;
  form.masks = c.masks;
  form.causal = c.causal;
  form.zero_rows = c.zero_rows;
  form.how = c.how;
  form.any_scale = c.any_scale;
  const AttentionShape shape = attention_shape(form);
  Module module({{"attend", attention_text(form)}, {"merge", attention_merge_text(form)}});
  const int64_t ql = c.width + c.gap, kl = c.width + c.gap, vl = c.value_width + c.gap, ol = c.value_width + c.gap;
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  Elements q = random_elements(c.dtype, count(c.batch * c.heads * c.queries * ql), 1),
           k = random_elements(c.dtype, count(c.batch * c.key_heads * c.keys * kl), 2),
           v = random_elements(c.dtype, count(c.batch * c.key_heads * c.keys * vl), 3), o(c.dtype, count(c.batch * c.heads * c.queries * ol));
  // Mask 0 is for all heads of a batch, mask 1 for all.
  std::vector<uint8_t> bools(count(c.batch * c.queries * c.keys), 1);
  std::vector<Elements> floats;
  for (size_t i = 0; i < c.masks.size(); ++i)
    floats.push_back(random_elements(c.masks[i] == DType::kBool ? DType::kFloat32 : c.masks[i], bools.size(), 10 + static_cast<unsigned>(i)));
  for (size_t i = 0; i < bools.size(); ++i) bools[i] = static_cast<uint8_t>(i * 2654435761u >> 7 & 1);
  if (c.hide_first_query) std::fill(bools.begin(), bools.begin() + static_cast<std::ptrdiff_t>(c.keys), uint8_t{0});
  const int64_t ratio = c.heads / c.key_heads, group = c.group ? ratio : 1, rows = c.queries * group;
  const int64_t tiles = (c.keys + shape.keys - 1) / shape.keys, chunk = (tiles + c.splits - 1) / c.splits * shape.keys, splits = (c.keys + chunk - 1) / chunk;
  std::vector<float> parts(count(c.batch * c.heads * c.queries * splits * (c.value_width + 2)), std::numeric_limits<float>::quiet_NaN());
  std::vector<uint64_t> p{q.address(), k.address(), v.address(), o.address()};
  for (size_t i = 0; i < 2; ++i)
    p.push_back(i >= c.masks.size() ? 0 : c.masks[i] == DType::kBool ? reinterpret_cast<uint64_t>(bools.data()) : floats[i].address());
  p.push_back(reinterpret_cast<uint64_t>(parts.data()));
  for (const int64_t x : {c.queries, c.keys, c.heads, group, ratio}) p.push_back(static_cast<uint64_t>(x));
  for (const int64_t x : {c.heads * c.queries * ql, c.queries * ql, ql, c.key_heads * c.keys * kl, c.keys * kl, kl, c.key_heads * c.keys * vl, c.keys * vl, vl,
                          c.heads * c.queries * ol, c.queries * ol, ol}) {
    p.push_back(static_cast<uint64_t>(x));
  }
  for (const int64_t x : {c.queries * c.keys, int64_t{0}, c.keys, int64_t{1}, int64_t{0}, int64_t{0}, c.keys, int64_t{1}})
    p.push_back(static_cast<uint64_t>(x));
  const double scale = 0.3;
  const bool whole = c.gap % 8 == 0 && c.width % 8 == 0 && c.value_width % 8 == 0;
  for (const int64_t x : {splits, chunk, int64_t{whole}}) p.push_back(static_cast<uint64_t>(x));
  p.push_back(std::bit_cast<uint64_t>(scale));
  module.run("attend", static_cast<unsigned>((rows + shape.rows - 1) / shape.rows), static_cast<unsigned>(c.heads / group),
             static_cast<unsigned>(c.batch * splits), static_cast<unsigned>(shape.threads), static_cast<size_t>(shape.shared_bytes), p);
  if (splits > 1) {
    module.run(
        "merge", static_cast<unsigned>(c.queries), static_cast<unsigned>(c.heads), static_cast<unsigned>(c.batch), 128, 0,
        {reinterpret_cast<uint64_t>(parts.data()), o.address(), static_cast<uint64_t>(c.queries), static_cast<uint64_t>(c.heads),
         static_cast<uint64_t>(c.heads * c.queries * ol), static_cast<uint64_t>(c.queries * ol), static_cast<uint64_t>(ol), static_cast<uint64_t>(splits)});
  }
  double worst = 0;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < c.heads; ++h) {
      for (int64_t i = 0; i < c.queries; ++i) {
        std::vector<double> scores;
        double top = -kInfinity, sum = 0;
        for (int64_t j = 0; j < c.keys; ++j) {
          double s = 0;
          for (int64_t d = 0; d < c.width; ++d)
            s += q.get(count(((b * c.heads + h) * c.queries + i) * ql + d)) * k.get(count(((b * c.key_heads + h / ratio) * c.keys + j) * kl + d));
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
        for (int64_t d = c.value_width; d < ol; ++d)
          EXPECT_TRUE(std::isnan(o.get(count(((b * c.heads + h) * c.queries + i) * ol + d)))) << "wrote behind a row";
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
    check_attention(
        {.dtype = dtype, .batch = 2, .heads = 8, .key_heads = 2, .queries = 1, .keys = 300, .width = 64, .value_width = 64, .splits = 3, .group = true});
    check_attention({.dtype = dtype, .queries = 2, .keys = 200, .zero_rows = true, .hide_first_query = true, .masks = {DType::kBool}, .splits = 2});
  }
}

TEST(AttentionText, Tiles) {
  // Groups of keys that are joined, several rows of fragments a warp, keys in one step or (more than a step has) in several.
  const AttentionTiles few{.each = 1, .warps = 1, .groups = 3, .keys_a_group = 32, .stages = 1},
      deep{.each = 2, .warps = 2, .groups = 2, .keys_a_group = 48, .stages = 2};
  for (const AttentionTiles& how : {few, deep}) {
    check_attention({.dtype = DType::kBFloat16, .queries = 50, .keys = 70, .width = 64, .value_width = 32, .how = how, .any_scale = false});
    check_attention({.dtype = DType::kBFloat16, .heads = 6, .queries = 5, .keys = 230, .masks = {DType::kBool, DType::kFloat32}, .how = how});
    check_attention({.dtype = DType::kBFloat16, .queries = 70, .keys = 70, .causal = true, .how = how, .any_scale = false});
    check_attention({.dtype = DType::kBFloat16, .queries = 3, .keys = 230, .hide_first_query = true, .masks = {DType::kBool}, .splits = 2, .how = how});
    check_attention({.dtype = DType::kBFloat16, .queries = 20, .keys = 40, .width = 13, .value_width = 9, .gap = 3, .how = how});
  }
}

TEST(AttentionText, TilesAreChosenForTheShape) {
  AttentionForm form;
  form.dtype = DType::kBFloat16;
  form.width = form.value_width = 64;
  EXPECT_EQ(attention_shape(form).rows, 64);
  form.likely_rows = 50, form.likely_keys = 291, form.likely_units = 15;
  EXPECT_EQ(attention_shape(form).rows, 16);
  EXPECT_GE(attention_shape(form).keys, 291);
  form.likely_rows = form.likely_keys = 1500, form.likely_units = 8;
  EXPECT_EQ(attention_shape(form).rows, 128);
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
  module.run("rows", static_cast<unsigned>((form.columns + form.columns_a_block() - 1) / form.columns_a_block()), 1, 1, static_cast<unsigned>(form.warps * 32),
             0,
             {x.address() + shift * element, w.address(), form.gate ? g.address() : 0, form.bias ? bias.address() : 0, form.residual ? residual.address() : 0,
              y.address()});
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

void check_few_rows(FewRowsForm form, size_t shift = 0) {
  Module module({{"rows", few_rows_text(form)}});
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  Elements x = random_elements(form.dtype, count(form.rows * form.depth) + shift, 1), factors = random_elements(form.dtype, count(form.depth), 2),
           bias = random_elements(form.dtype, count(form.columns[0]), 3), residual = random_elements(form.dtype, count(form.rows * form.columns[0]), 4);
  std::vector<Elements> weights, results;
  for (const int64_t n : form.columns) {
    weights.push_back(random_elements(form.dtype, count(n * form.depth), 5 + static_cast<unsigned>(weights.size())));
    results.emplace_back(form.dtype, count(form.rows * n));
  }
  const double eps = 1e-3;
  std::vector<uint64_t> params{x.address() + 2 * shift};
  for (size_t i = 0; i < 3; ++i) params.push_back(i < weights.size() ? weights[i].address() : 0);
  for (const uint64_t address : {form.norm ? factors.address() : 0, form.bias ? bias.address() : 0, form.residual ? residual.address() : 0})
    params.push_back(address);
  for (size_t i = 0; i < 3; ++i) params.push_back(i < results.size() ? results[i].address() : 0);
  params.push_back(std::bit_cast<uint64_t>(eps));
  module.run("rows", static_cast<unsigned>(form.blocks()), static_cast<unsigned>(form.row_blocks()), 1, static_cast<unsigned>(form.threads()),
             static_cast<size_t>(form.shared_bytes()), params);
  for (int64_t r = 0; r < form.rows; ++r) {
    double square = 0;
    for (int64_t k = 0; k < form.depth; ++k) square += x.get(count(r * form.depth + k) + shift) * x.get(count(r * form.depth + k) + shift);
    const double scale = form.norm ? 1 / std::sqrt(square / static_cast<double>(form.depth) + eps) : 1;
    const auto dot = [&](size_t i, int64_t n) {
      double sum = 0;
      for (int64_t k = 0; k < form.depth; ++k) {
        sum += scale * x.get(count(r * form.depth + k) + shift) * (form.norm ? factors.get(count(k)) : 1) * weights[i].get(count(n * form.depth + k));
      }
      return sum;
    };
    for (size_t i = 0; i < (form.gate ? 1 : results.size()); ++i) {
      for (int64_t n = 0; n < form.columns[i]; ++n) {
        double want = dot(i, n), factor = 0;  // what errors of the sums are multiplied with
        if (form.gate) {
          factor = std::fabs(want) + std::fabs(dot(1, n));
          want = want / (1 + std::exp(-want)) * dot(1, n);
        }
        if (form.bias) want += bias.get(count(n));
        if (form.residual) want += residual.get(count(r * form.columns[0] + n));
        if (form.end == FewRowsForm::End::kRelu) want = std::max(want, 0.0);
        if (form.end == FewRowsForm::End::kSilu) want = want / (1 + std::exp(-want));
        if (form.end == FewRowsForm::End::kGeluTanh) want = 0.5 * want * (1 + std::tanh(0.7978845608028654 * (want + 0.044715 * want * want * want)));
        EXPECT_NEAR(results[i].get(count(r * form.columns[i] + n)), want, tolerance(form.dtype) * (10 + std::fabs(want) + 4 * factor))
            << r << " " << n << " of " << i;
      }
    }
  }
}

TEST(FewRowsText, Forms) {
  for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    check_few_rows({.dtype = dtype, .rows = 21, .depth = 96, .columns = {40, 16, 24}, .norm = true, .tile = 16, .parts = 1, .row_tiles = 2, .depth_groups = 2});
    check_few_rows(
        {.dtype = dtype, .rows = 7, .depth = 64, .columns = {40, 40}, .gate = true, .norm = true, .tile = 16, .parts = 2, .row_tiles = 1, .depth_groups = 3});
    check_few_rows(
        {.dtype = dtype, .rows = 50, .depth = 128, .columns = {72}, .bias = true, .residual = true, .tile = 32, .parts = 4, .row_tiles = 1, .depth_groups = 1});
  }
  for (const auto end : {FewRowsForm::End::kRelu, FewRowsForm::End::kGeluTanh, FewRowsForm::End::kSilu}) {
    check_few_rows({.rows = 5, .depth = 32, .columns = {8}, .bias = true, .end = end, .tile = 16, .parts = 1, .row_tiles = 1, .depth_groups = 2}, 3);
  }
}

TEST(FewRowsText, FormsAreChosen) {
  FewRowsForm form{.rows = 50, .depth = 2048, .columns = {720}, .residual = true};
  ASSERT_TRUE(choose_few_rows(&form));
  EXPECT_EQ(form.row_tiles, 4);
  EXPECT_LE(form.blocks(), 132);
  EXPECT_EQ(form.depth % (16 * form.parts), 0);
  form.columns = {1000000};
  EXPECT_FALSE(choose_few_rows(&form)) << "weights of that size are the library's";
}

void check_depthwise(DepthwiseForm form, int64_t images, int64_t rows, int64_t columns) {
  const int64_t result_rows = (rows + 2 * form.padding_y - form.height) / form.stride_y + 1,
                result_columns = (columns + 2 * form.padding_x - form.width) / form.stride_x + 1;
  choose_depthwise(&form, images * result_rows, result_columns);
  Module module({{"depthwise", depthwise_text(form)}});
  const auto count = [](int64_t n) { return static_cast<size_t>(n); };
  Elements x = random_elements(form.dtype, count(images * rows * columns * form.channels), 1),
           w = random_elements(form.dtype, count(form.channels * form.height * form.width), 2), bias = random_elements(form.dtype, count(form.channels), 3),
           residual = random_elements(form.dtype, count(images * result_rows * result_columns * form.channels), 4),
           y(form.dtype, count(images * result_rows * result_columns * form.channels));
  const int64_t strips = images * result_rows * ((result_columns + form.strip - 1) / form.strip);
  module.run("depthwise", static_cast<unsigned>((strips + form.strips - 1) / form.strips), static_cast<unsigned>(form.channels / 2 / form.pairs), 1,
             static_cast<unsigned>(form.threads()), static_cast<size_t>(form.shared_bytes()),
             {x.address(), w.address(), form.bias ? bias.address() : 0, form.residual ? residual.address() : 0, y.address(), static_cast<uint64_t>(rows),
              static_cast<uint64_t>(columns), static_cast<uint64_t>(result_rows), static_cast<uint64_t>(result_columns), static_cast<uint64_t>(strips)});
  for (int64_t i = 0; i < images * result_rows * result_columns * form.channels; ++i) {
    const int64_t c = i % form.channels, q = i / form.channels % result_columns, p = i / form.channels / result_columns % result_rows,
                  image = i / form.channels / result_columns / result_rows;
    double want = form.bias ? bias.get(count(c)) : 0;
    for (int64_t r = 0; r < form.height; ++r) {
      for (int64_t s = 0; s < form.width; ++s) {
        const int64_t at_row = p * form.stride_y - form.padding_y + r, at_column = q * form.stride_x - form.padding_x + s;
        if (at_row < 0 || at_row >= rows || at_column < 0 || at_column >= columns) continue;
        want += x.get(count(((image * rows + at_row) * columns + at_column) * form.channels + c)) * w.get(count((c * form.height + r) * form.width + s));
      }
    }
    if (form.residual) want += residual.get(count(i));
    if (form.relu) want = std::max(want, 0.0);
    EXPECT_NEAR(y.get(count(i)), want, tolerance(form.dtype) * (4 + std::fabs(want))) << image << " " << p << " " << q << " " << c;
  }
}

TEST(DepthwiseText, Forms) {
  check_depthwise({.dtype = DType::kBFloat16, .channels = 6, .height = 7, .width = 7, .padding_y = 3, .padding_x = 3, .bias = true}, 2, 9, 11);
  check_depthwise({.dtype = DType::kFloat16,
                   .channels = 130,
                   .height = 3,
                   .width = 5,
                   .stride_y = 2,
                   .stride_x = 3,
                   .padding_y = 1,
                   .padding_x = 0,
                   .bias = true,
                   .residual = true,
                   .relu = true},
                  1, 8, 23);
  check_depthwise({.dtype = DType::kBFloat16, .channels = 4, .stride_y = 1, .stride_x = 2, .padding_y = 1, .padding_x = 1}, 1, 1, 2);
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
