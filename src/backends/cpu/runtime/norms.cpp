// Softmax, layer norm and root-mean-square norm in float over rows whose elements are neighbours, and group norm (instance norm is one with a
// channel a group) of row-major and channels-last images. aten::_softmax, aten::_log_softmax, aten::native_layer_norm and native_group_norm take the place of the portable kernels; other dtypes and layouts go on to those.
#include <algorithm>
#include <cmath>

#include "backends/cpu/runtime/geometry.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/pointwise_ops.h"
#include "backends/cpu/runtime/portable.h"
#include "backends/cpu/runtime/row_ops.h"
#include "base/str_cat.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

/// Elements worth a thread.
constexpr int64_t kGrain = 1 << 14;

bool is_float(const Value& v) { return v.tag == Tag::kTensor && v.tensor.dtype() == DType::kFloat32 && v.tensor.has_data(); }

/// Dims outside the rows, with the strides of two tensors.
struct Outer {
  Sizes sizes, a, b;
  int64_t count = 1;
};
void offsets_at(const Outer& o, int64_t index, int64_t* a, int64_t* b) {
  *a = *b = 0;
  for (size_t d = o.sizes.size(); d-- > 0;) {
    const int64_t at = index % o.sizes[d];
    index /= o.sizes[d];
    *a += at * o.a[d];
    *b += at * o.b[d];
  }
}
/// Dims [0, end) but for `skip`; neighbours that lie evenly in both become one.
Outer outer_of(const Tensor& x, const Tensor& y, int end, int skip) {
  Outer o;
  for (int d = 0; d < end; ++d) {
    if (d == skip || x.size(d) == 1) continue;
    o.count *= x.size(d);
    const size_t last = o.sizes.size() - 1;
    if (!o.sizes.empty() && o.a[last] == x.stride(d) * x.size(d) && o.b[last] == y.stride(d) * x.size(d)) {
      o.sizes[last] *= x.size(d);
      o.a[last] = x.stride(d);
      o.b[last] = y.stride(d);
      continue;
    }
    o.sizes.push_back(x.size(d));
    o.a.push_back(x.stride(d));
    o.b.push_back(y.stride(d));
  }
  return o;
}

/// fn(offset in x, offset in y, row) for every row of n elements.
template <class Fn>
void each_row(KernelContext& context, const Outer& o, int64_t n, Fn fn) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t a = 0, b = 0;
      offsets_at(o, i, &a, &b);
      fn(a, b, i);
    }
  };
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1));
  if (o.count <= grain) return run(0, o.count);
  context.pool->parallel_for(o.count, grain, run);
}

/// Results of this size do not stay in the last cache.
constexpr int64_t kStreamBytes = 12 << 20;
constexpr int64_t kStreamedRow = 4096;

/// fn(offset in x, where the row's results go, row) for every row of n elements. Large results go past the caches: a store would read their lines first.
template <class Fn>
void each_result_row(KernelContext& context, const Outer& o, int64_t n, float* y, Fn fn) {
  const bool streams = o.count * n * static_cast<int64_t>(sizeof(float)) >= kStreamBytes && n <= kStreamedRow && n % 16 == 0;
  if (!streams) return each_row(context, o, n, [&](int64_t from, int64_t to, int64_t row) { fn(from, y + to, row); });
  const auto run = [&](int64_t begin, int64_t end) {
    alignas(64) float made[kStreamedRow];
    for (int64_t i = begin; i < end; ++i) {
      int64_t from = 0, to = 0;
      offsets_at(o, i, &from, &to);
      fn(from, made, i);
      pointwise_set().stream(made, y + to, static_cast<size_t>(n));
    }
    pointwise_set().flush();
  };
  context.pool->parallel_for(o.count, std::max<int64_t>(1, kGrain / n), run);
}

// self, dim, half_to_float, out
template <bool kLog>
Status softmax(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable(kLog ? "aten::_log_softmax.out" : "aten::_softmax.out");
  if (context.check_only || args.size() < 4 || !is_float(*args[0]) || !is_float(*args[3]) || args[1]->tag != Tag::kInt || args[3]->tensor.read_only) {
    return other.fn(context, args);
  }
  const Tensor& x = args[0]->tensor;
  Tensor& y = args[3]->tensor;
  const int rank = x.rank();
  const int64_t dim = args[1]->integer < 0 ? args[1]->integer + rank : args[1]->integer;
  if (dim < 0 || dim >= rank || x.numel() == 0 || x.stride(static_cast<int>(dim)) != 1) return other.fn(context, args);
  PTERON_TRY(resize(y, x.sizes()));
  if (y.stride(static_cast<int>(dim)) != 1) return other.fn(context, args);
  const int64_t n = x.size(static_cast<int>(dim));
  const RowSet& rows = row_set();
  each_result_row(context, outer_of(x, y, rank, static_cast<int>(dim)), n, y.as<float>(), [&](int64_t from, float* to, int64_t) { rows.softmax(x.as<float>() + from, to, n, kLog); });
  return ok_status();
}

/// True if dims [first, rank) lie row-major without gaps.
bool is_dense_from(const Tensor& t, int first) {
  int64_t expected = 1;
  for (int d = t.rank() - 1; d >= first; --d) {
    if (t.size(d) != 1 && t.stride(d) != expected) return false;
    expected *= t.size(d);
  }
  return true;
}

bool is_dense_vector(const Value& v, std::span<const int64_t> sizes) {
  if (v.tag == Tag::kNone) return true;
  return is_float(v) && std::ranges::equal(v.tensor.sizes(), sizes) && is_dense_from(v.tensor, 0);
}
const float* data_or_null(const Value& v) { return v.tag == Tag::kNone ? nullptr : v.tensor.as<float>(); }

// input, normalized_shape, weight, bias, eps, out, mean, rstd
Status layer_norm(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable("aten::native_layer_norm.out");
  const auto hand_on = [&] { return other.fn(context, args); };
  if (context.check_only || args.size() < 8 || !is_float(*args[0]) || !is_float(*args[5]) || !is_float(*args[6]) || !is_float(*args[7])) return hand_on();
  if (!runtime::Unpack<runtime::IntList>::fits(*args[1]) || !runtime::Unpack<double>::fits(*args[4])) return hand_on();
  const Tensor& x = args[0]->tensor;
  const runtime::IntList shape = runtime::Unpack<runtime::IntList>::get(*args[1]);
  const int first = x.rank() - static_cast<int>(shape.size());
  if (first < 0 || shape.empty() || x.numel() == 0 || !std::ranges::equal(x.sizes().subspan(static_cast<size_t>(first)), std::span<const int64_t>(shape))) return hand_on();
  Tensor &y = args[5]->tensor, &mean = args[6]->tensor, &rstd = args[7]->tensor;
  if (y.read_only || mean.read_only || rstd.read_only || !is_dense_vector(*args[2], shape) || !is_dense_vector(*args[3], shape) || !is_dense_from(x, first)) return hand_on();
  Sizes stats(x.sizes().first(static_cast<size_t>(first)));
  while (stats.size() < static_cast<size_t>(x.rank())) stats.push_back(1);
  PTERON_TRY(resize(y, x.sizes()));
  PTERON_TRY(resize(mean, stats));
  PTERON_TRY(resize(rstd, stats));
  if (!is_dense_from(y, first) || !is_dense_from(mean, 0) || !is_dense_from(rstd, 0)) return hand_on();
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  const float *weight = data_or_null(*args[2]), *bias = data_or_null(*args[3]);
  const auto eps = static_cast<float>(runtime::Unpack<double>::get(*args[4]));
  const RowSet& rows = row_set();
  each_result_row(context, outer_of(x, y, first, -1), n, y.as<float>(), [&](int64_t from, float* to, int64_t row) {
    rows.layer_norm(x.as<float>() + from, weight, bias, to, n, eps, mean.as<float>() + row, rstd.as<float>() + row);
  });
  return ok_status();
}

Status rms_norm_out(KernelContext& context, const Tensor& x, const Tensor* weight, double eps, Tensor& out) {
  const auto bad = [&](std::string_view what) { return Status(Code::kInvalidInput, str_cat("rms_norm of ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ": ", what)); };
  if (x.dtype() != DType::kFloat32 || out.dtype() != DType::kFloat32 || x.rank() < 1) return bad("expected float32 of rank 1 and more");
  const int64_t n = x.size(x.rank() - 1);
  if (weight != nullptr && (weight->dtype() != DType::kFloat32 || weight->rank() != 1 || weight->size(0) != n)) return bad("the weight does not fit");
  PTERON_TRY(resize(out, x.sizes()));
  if (x.numel() == 0) return ok_status();
  const int last = x.rank() - 1;
  const RowSet& rows = row_set();
  const float* factors = weight != nullptr ? weight->as<float>() : nullptr;
  const Outer outer = outer_of(x, out, last, -1);
  const bool dense = (n == 1 || (x.stride(last) == 1 && out.stride(last) == 1)) && (weight == nullptr || n == 1 || weight->stride(0) == 1);
  if (dense) {
    each_result_row(context, outer, n, out.as<float>(), [&](int64_t from, float* to, int64_t) { rows.rms_norm(x.as<float>() + from, factors, to, n, static_cast<float>(eps)); });
    return ok_status();
  }
  const int64_t step = x.stride(last), out_step = out.stride(last), weight_step = weight != nullptr ? weight->stride(0) : 0;
  each_row(context, outer, n, [&](int64_t from, int64_t to, int64_t) {
    double square = 0;
    for (int64_t i = 0; i < n; ++i) square += static_cast<double>(x.as<float>()[from + i * step]) * static_cast<double>(x.as<float>()[from + i * step]);
    const auto scale = static_cast<float>(1.0 / std::sqrt(square / static_cast<double>(n) + eps));
    for (int64_t i = 0; i < n; ++i) {
      const float v = x.as<float>()[from + i * step] * scale;
      out.as<float>()[to + i * out_step] = factors != nullptr ? v * factors[i * weight_step] : v;
    }
  });
  return ok_status();
}

/// A group norm that this engine runs: input, weight, bias, N, C, HxW, groups, eps, out, mean, rstd.
struct GroupNorm {
  int64_t batch = 0, channels = 0, pixels = 0, groups = 0, parts = 0;
  bool last = false;  ///< channels-last; else row-major
  const float *x = nullptr, *weight = nullptr, *bias = nullptr;
  float *y = nullptr, *mean = nullptr, *rstd = nullptr;
  double eps = 0;
  int64_t per_group() const { return channels / groups; }
  float factor(int64_t channel, double scale) const { return static_cast<float>(scale) * (weight != nullptr ? weight[channel] : 1.0f); }
  float shift(int64_t channel) const { return bias != nullptr ? bias[channel] : 0.0f; }
  /// Writes the statistics of a group; gives 1 / deviation.
  double finish(int64_t image, int64_t group, double center, double spread) const {
    const double scale = 1.0 / std::sqrt(spread / static_cast<double>(per_group() * pixels) + eps);
    mean[image * groups + group] = static_cast<float>(center);
    rstd[image * groups + group] = static_cast<float>(scale);
    return scale;
  }
};

/// Parts of an image whose sums are made on their own.
constexpr int64_t kMaxParts = 16;
int64_t parts_of(int64_t pixels, int64_t channels) { return std::clamp<int64_t>(pixels * channels / kGrain, 1, std::min(kMaxParts, std::max<int64_t>(pixels, 1))); }

void group_norm_rows(const GroupNorm& g, ThreadPool& pool) {
  const RowSet& rows = row_set();
  const int64_t n = g.per_group() * g.pixels;
  pool.parallel_for(g.batch * g.groups, std::max<int64_t>(1, kGrain / n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double center = 0, spread = 0;
      rows.moments(g.x + i * n, n, &center, &spread);
      const double scale = g.finish(i / g.groups, i % g.groups, center, spread);
      for (int64_t k = 0; k < g.per_group(); ++k) {
        const int64_t channel = i % g.groups * g.per_group() + k, at = i * n + k * g.pixels;
        rows.affine(g.x + at, g.y + at, g.pixels, static_cast<float>(center), g.factor(channel, scale), g.shift(channel));
      }
    }
  });
}

/// Mean and spread of some pixels of a group.
struct PartMoments {
  double mean = 0, spread = 0, count = 0;
  void join(double other_mean, double other_spread, double other_count) {
    const double step = other_mean - mean, share = other_count / (count + other_count);
    spread += other_spread + step * step * count * share;
    mean += step * share;
    count += other_count;
  }
};

/// Moments of pixels [first, last) of an image for each group, by blocks that stay in the first-level cache. `sums` and `centers` have room for a float
/// a channel.
void moments_of_pixels(const GroupNorm& g, const float* image, int64_t first, int64_t last, float* sums, float* centers, PartMoments* out) {
  constexpr int64_t kBlockFloats = 4096;
  const RowSet& rows = row_set();
  const int64_t block = std::max<int64_t>(1, kBlockFloats / g.channels), width = g.per_group();
  for (int64_t at = first; at < last; at += block) {
    const int64_t count = std::min(block, last - at);
    const auto elements = static_cast<double>(count * width);
    const auto total = [&](int64_t group) {
      double sum = 0;
      for (int64_t k = 0; k < width; ++k) sum += static_cast<double>(sums[group * width + k]);
      return sum;
    };
    rows.column_sums(image + at * g.channels, g.channels, count, g.channels, nullptr, sums);
    for (int64_t group = 0; group < g.groups; ++group) std::fill_n(centers + group * width, width, static_cast<float>(total(group) / elements));
    rows.column_sums(image + at * g.channels, g.channels, count, g.channels, centers, sums);
    for (int64_t group = 0; group < g.groups; ++group) out[group].join(static_cast<double>(centers[group * width]), total(group), elements);
  }
}

/// Scratch: moments [batch, parts, groups], then sums and centers [batch, parts, channels] each, then center, factor, shift [batch, channels] each.
size_t group_norm_bytes(int64_t batch, int64_t channels, int64_t groups, int64_t parts) {
  return static_cast<size_t>(batch * parts * groups) * sizeof(PartMoments) + static_cast<size_t>(batch * channels * (2 * parts + 3)) * sizeof(float);
}

void group_norm_pixels(const GroupNorm& g, ThreadPool& pool, std::span<std::byte> scratch) {
  auto* moments = reinterpret_cast<PartMoments*>(scratch.data());
  auto* room = reinterpret_cast<float*>(moments + g.batch * g.parts * g.groups);
  float* terms = room + 2 * g.batch * g.parts * g.channels;
  const int64_t image_floats = g.pixels * g.channels, tasks = g.batch * g.parts;
  const auto pixel_of = [&](int64_t part) { return g.pixels * part / g.parts; };
  pool.parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      PartMoments* own = moments + i * g.groups;
      std::fill_n(own, g.groups, PartMoments());
      float* sums = room + 2 * i * g.channels;
      moments_of_pixels(g, g.x + i / g.parts * image_floats, pixel_of(i % g.parts), pixel_of(i % g.parts + 1), sums, sums + g.channels, own);
    }
  });
  for (int64_t i = 0; i < g.batch * g.groups; ++i) {
    const int64_t image = i / g.groups, group = i % g.groups;
    PartMoments all;
    for (int64_t part = 0; part < g.parts; ++part) {
      const PartMoments& own = moments[(image * g.parts + part) * g.groups + group];
      all.join(own.mean, own.spread, own.count);
    }
    const double scale = g.finish(image, group, all.mean, all.spread);
    float* of_image = terms + 3 * image * g.channels;
    for (int64_t k = group * g.per_group(); k < (group + 1) * g.per_group(); ++k) {
      of_image[k] = static_cast<float>(all.mean);
      of_image[g.channels + k] = g.factor(k, scale);
      of_image[2 * g.channels + k] = g.shift(k);
    }
  }
  const RowSet& rows = row_set();
  pool.parallel_for(tasks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* of_image = terms + 3 * (i / g.parts) * g.channels;
      for (int64_t p = pixel_of(i % g.parts); p < pixel_of(i % g.parts + 1); ++p) {
        const int64_t at = i / g.parts * image_floats + p * g.channels;
        rows.column_affine(g.x + at, g.y + at, g.channels, of_image, of_image + g.channels, of_image + 2 * g.channels);
      }
    }
  });
}

size_t group_norm_workspace(std::span<Value* const> args) {
  const runtime::Kernel& plain = portable("aten::native_group_norm.out");
  const size_t other = plain.workspace != nullptr ? plain.workspace(args) : 0;
  if (args.size() < 11 || args[0]->tag != Tag::kTensor || args[0]->tensor.rank() != 4 || args[6]->tag != Tag::kInt) return other;
  const Tensor& x = args[0]->tensor;
  const int64_t groups = std::clamp<int64_t>(args[6]->integer, 0, x.size(1));
  return std::max(other, group_norm_bytes(x.size(0), x.size(1), groups, kMaxParts));
}

Status group_norm(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable("aten::native_group_norm.out");
  const auto hand_on = [&] { return other.fn(context, args); };
  if (context.check_only || args.size() < 11 || !is_float(*args[0]) || args[6]->tag != Tag::kInt || !runtime::Unpack<double>::fits(*args[7])) return hand_on();
  for (const size_t at : {size_t{8}, size_t{9}, size_t{10}}) {
    if (!is_float(*args[at]) || args[at]->tensor.read_only) return hand_on();
  }
  const Tensor& x = args[0]->tensor;
  GroupNorm g;
  g.groups = args[6]->integer;
  if (x.rank() < 3 || x.numel() == 0 || g.groups < 1 || x.size(1) % g.groups != 0) return hand_on();
  g.batch = x.size(0);
  g.channels = x.size(1);
  g.pixels = x.numel() / (g.batch * g.channels);
  const int64_t of_channel[] = {g.channels}, of_stats[] = {g.batch, g.groups};
  if (!is_dense_vector(*args[1], of_channel) || !is_dense_vector(*args[2], of_channel)) return hand_on();
  Tensor &y = args[8]->tensor, &mean = args[9]->tensor, &rstd = args[10]->tensor;
  PTERON_TRY(resize(y, x.sizes()));
  PTERON_TRY(resize(mean, of_stats));
  PTERON_TRY(resize(rstd, of_stats));
  const bool rows = is_dense_from(x, 0) && is_dense_from(y, 0);
  g.last = !rows && is_dense_channels_last(x) && is_dense_channels_last(y);
  if ((!rows && !g.last) || !is_dense_from(mean, 0) || !is_dense_from(rstd, 0)) return hand_on();
  g.parts = parts_of(g.pixels, g.channels);
  g.x = x.as<float>();
  g.weight = data_or_null(*args[1]);
  g.bias = data_or_null(*args[2]);
  g.y = y.as<float>();
  g.mean = mean.as<float>();
  g.rstd = rstd.as<float>();
  g.eps = runtime::Unpack<double>::get(*args[7]);
  if (!g.last) {
    group_norm_rows(g, *context.pool);
    return ok_status();
  }
  if (context.scratch.size() < group_norm_bytes(g.batch, g.channels, g.groups, g.parts)) return hand_on();
  group_norm_pixels(g, *context.pool, context.scratch);
  return ok_status();
}

constexpr runtime::Kernel kRows[] = {
    {"aten::_log_softmax.out", softmax<true>},
    {"aten::_softmax.out", softmax<false>},
    {"aten::native_group_norm.out", group_norm, group_norm_workspace},
    {"aten::native_layer_norm.out", layer_norm},
    {"pteron_cpu::rms_norm.out", PTERON_KERNEL(rms_norm_out)},
};

}  // namespace

std::span<const runtime::Kernel> norm_kernels() { return kRows; }

}  // namespace pteron::cpu
