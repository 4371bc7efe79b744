// Resizes for the runtime: one engine over tables of indexes and weights per dim (taps.h). Grid samplers: kernel_grid.cpp.
#include <algorithm>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/elementwise.h"
#include "ops/gemm_pack.h"
#include "ops/resize/kernels.h"
#include "ops/resize/shape.h"
#include "ops/resize/taps.h"
#include "tensor/dim_math.h"
#include "tensor/dtype.h"

namespace pteron::ops::resize {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::OptionalIntList;
using runtime::Tensor;
using runtime::Value;
using Scale = std::optional<double>;

/// Input and output as [batch, channels, depth, height, width].
struct Job {
  Method method = Method::kNearest;
  bool align_corners = false;
  Scale scales[3];
  int64_t batch = 1, channels = 1;
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1};
  int64_t x_batch = 0, x_channel = 0, y_batch = 0, y_channel = 0;
  int64_t x_stride[3] = {0, 0, 0}, y_stride[3] = {0, 0, 0};
  int64_t together = 1;  ///< channels that lie side by side in the output: they are blended at once
};

/// Most channels that are blended at once: four vectors of floats with AVX-512.
constexpr int64_t kTogether = 64;

template <typename R>
Dim<R> dim_of(const Job& job, size_t d) {
  return {job.in[d], job.out[d], job.align_corners, job.scales[d]};
}

/// Parts of the scratch: tables first, then one row per thread.
struct Layout {
  size_t index[3], weight[3], rows, row_bytes, bytes;
};
template <typename R>
Layout layout_of(const Job& job, int64_t slots) {
  Layout l{};
  size_t at = 0;
  const auto place = [&](size_t bytes) {
    const size_t here = at;
    at = align_up(at + bytes, 64);
    return here;
  };
  for (size_t d = 0; d < 3; ++d) {
    const auto taps = static_cast<size_t>(job.out[d] * tap_count(dim_of<R>(job, d), job.method));
    l.index[d] = place(taps * sizeof(int64_t));
    l.weight[d] = place(taps * sizeof(R));
  }
  l.row_bytes = align_up(static_cast<size_t>(job.in[2] * job.together) * sizeof(R), 64);
  l.rows = at;
  l.bytes = at + l.row_bytes * static_cast<size_t>(slots);
  return l;
}

/// Tables of the three dims.
template <typename R>
struct Tables {
  int64_t count[3];
  const int64_t* index[3];
  const R* weight[3];
};
template <typename R>
Tables<R> make_tables(const Job& job, const Layout& l, std::byte* scratch) {
  Tables<R> t{};
  for (size_t d = 0; d < 3; ++d) {
    auto* index = reinterpret_cast<int64_t*>(scratch + l.index[d]);
    auto* weight = reinterpret_cast<R*>(scratch + l.weight[d]);
    const Dim<R> dim = dim_of<R>(job, d);
    const Method method = job.in[d] == 1 && job.out[d] == 1 ? Method::kNearest : job.method;  // dims that the op lacks, and trivial ones
    t.count[d] = tap_count(dim, method);
    fill_taps(dim, method, t.count[d], index, weight);
    t.index[d] = index;
    t.weight[d] = weight;
  }
  return t;
}

/// Nearest: elements move, nothing is computed.
template <typename T, typename R>
void gather(KernelContext& context, const Job& job, const Tables<R>& t, const T* x, T* y) {
  const int64_t rows = job.batch * job.channels * job.out[0] * job.out[1];
  context.pool->parallel_for(rows, std::max<int64_t>(16384 / std::max<int64_t>(job.out[2], 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t oy = row % job.out[1], oz = row / job.out[1] % job.out[0], plane = row / job.out[1] / job.out[0];
      const int64_t n = plane / job.channels, c = plane % job.channels;
      const T* from = x + n * job.x_batch + c * job.x_channel + t.index[0][oz] * job.x_stride[0] + t.index[1][oy] * job.x_stride[1];
      T* to = y + n * job.y_batch + c * job.y_channel + oz * job.y_stride[0] + oy * job.y_stride[1];
      for (int64_t ox = 0; ox < job.out[2]; ++ox) to[ox * job.y_stride[2]] = from[t.index[2][ox] * job.x_stride[2]];
    }
  });
}

/// to[i] = w * from[i], or added to it.
template <typename T, typename R>
inline void add_weighted(const T* from, int64_t from_step, R w, bool first, int64_t n, R* to, int64_t to_step) {
  if (first) {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] = w * convert_value<R>(from[i * from_step]);
  } else {
    for (int64_t i = 0; i < n; ++i) to[i * to_step] += w * convert_value<R>(from[i * from_step]);
  }
}

/// row[i, c] = sum over the taps of (oz, oy) of weight * input row, for `channels` channels.
template <typename T, typename R>
PTERON_WIDE void blend_rows(const Job& job, const Tables<R>& t, const T* plane, int64_t channels, int64_t oz, int64_t oy, R* row) {
  bool first = true;
  for (int64_t a = 0; a < t.count[0]; ++a) {
    const R wz = t.weight[0][oz * t.count[0] + a];
    if (a > 0 && wz == 0) continue;
    for (int64_t b = 0; b < t.count[1]; ++b) {
      const R w = wz * t.weight[1][oy * t.count[1] + b];
      if (b > 0 && w == 0) continue;
      const T* from = plane + t.index[0][oz * t.count[0] + a] * job.x_stride[0] + t.index[1][oy * t.count[1] + b] * job.x_stride[1];
      const int64_t step = job.x_stride[2];
      if (job.x_channel == 1 && step == channels) {
        add_weighted(from, 1, w, first, job.in[2] * channels, row, 1);
      } else if (job.x_channel == 1) {
        for (int64_t i = 0; i < job.in[2]; ++i) add_weighted(from + i * step, 1, w, first, channels, row + i * channels, 1);
      } else if (channels == 1) {
        add_weighted(from, step, w, first, job.in[2], row, 1);
      } else {
        for (int64_t c = 0; c < channels; ++c) add_weighted(from + c * job.x_channel, step, w, first, job.in[2], row + c, channels);
      }
      first = false;
    }
  }
}

/// One row of results from a blended row.
template <typename T, typename R>
PTERON_WIDE void blend_columns(const Job& job, const Tables<R>& t, const R* line, int64_t channels, T* to) {
  const int64_t count = t.count[2];
  for (int64_t ox = 0; ox < job.out[2]; ++ox, to += job.y_stride[2]) {
    const int64_t* index = t.index[2] + ox * count;
    const R* weight = t.weight[2] + ox * count;
    if (count == 2) {  // the usual case, as a loop that vectorises
      const R *left = line + index[0] * channels, *right = line + index[1] * channels;
      for (int64_t c = 0; c < channels; ++c) to[c] = store_value<T>(weight[0] * left[c] + weight[1] * right[c]);
      continue;
    }
    for (int64_t c = 0; c < channels; ++c) {
      R sum = weight[0] * line[index[0] * channels + c];
      for (int64_t k = 1; k < count; ++k) sum += weight[k] * line[index[k] * channels + c];
      to[c] = store_value<T>(sum);
    }
  }
}

template <typename T, typename R>
void blend(KernelContext& context, const Job& job, const Tables<R>& t, const Layout& l, const T* x, T* y) {
  const int64_t groups = ceil_div(job.channels, job.together), rows = job.batch * groups * job.out[0] * job.out[1];
  const auto slots = static_cast<int64_t>((context.scratch.size() - l.rows) / l.row_bytes);
  const int64_t work = rows * job.together * (job.out[2] * t.count[2] + job.in[2] * t.count[1] * t.count[0]);
  const int64_t parts = std::clamp<int64_t>(work / 65536, 1, std::min<int64_t>(slots, context.pool->thread_count()));
  const int64_t each = ceil_div(rows, parts);
  context.pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      R* line = reinterpret_cast<R*>(context.scratch.data() + l.rows + static_cast<size_t>(part) * l.row_bytes);
      for (int64_t row = part * each; row < std::min(rows, (part + 1) * each); ++row) {
        const int64_t oy = row % job.out[1], oz = row / job.out[1] % job.out[0], group = row / job.out[1] / job.out[0];
        const int64_t n = group / groups, c = group % groups * job.together, channels = std::min(job.together, job.channels - c);
        blend_rows<T, R>(job, t, x + n * job.x_batch + c * job.x_channel, channels, oz, oy, line);
        blend_columns<T, R>(job, t, line, channels, y + n * job.y_batch + c * job.y_channel + oz * job.y_stride[0] + oy * job.y_stride[1]);
      }
    }
  });
}

// Weights of byte images: 16-bit fixed point with as many bits as the largest weight leaves room for, at most this many.
constexpr int kMaxWeightBits = 22;

/// Fixed-point weights of one dim in place of its table; returns the number of fraction bits.
int fix_weights(const double* weight, int64_t count, int16_t* fixed) {
  double top = 0;
  for (int64_t i = 0; i < count; ++i) top = std::max(top, weight[i]);
  int bits = 0;
  while (bits < kMaxWeightBits && static_cast<int>(0.5 + top * static_cast<double>(1 << (bits + 1))) < (1 << 15)) ++bits;
  for (int64_t i = 0; i < count; ++i) {
    const double v = weight[i] * static_cast<double>(1 << bits);
    fixed[i] = static_cast<int16_t>(v < 0 ? v - 0.5 : v + 0.5);
  }
  return bits;
}

/// Adds the weights of taps that the border has moved to one index, as ATen does before it takes them to fixed point: the largest of these sums
/// decides the number of fraction bits, and each is rounded once.
void merge_taps(const int64_t* index, double* weight, int64_t outputs, int64_t count) {
  for (int64_t o = 0; o < outputs; ++o, index += count, weight += count) {
    for (int64_t k = 1, first = 0; k < count; ++k) {
      if (index[k] != index[first]) {
        first = k;
        continue;
      }
      weight[first] += weight[k];
      weight[k] = 0;
    }
  }
}

uint8_t fixed_to_byte(int64_t sum, int bits) { return static_cast<uint8_t>(std::clamp<int64_t>((sum + (int64_t{1} << bits >> 1)) >> bits, 0, 255)); }

/// Byte images: rows first, rounded to bytes, then columns; both in 16-bit fixed point, as ATen does. Two dims only.
void blend_bytes(const Job& job, const Tables<double>& t, int16_t* fixed_y, int16_t* fixed_x, uint8_t* lines, const uint8_t* x, uint8_t* y) {
  const int bits_y = fix_weights(t.weight[1], job.out[1] * t.count[1], fixed_y), bits_x = fix_weights(t.weight[2], job.out[2] * t.count[2], fixed_x);
  const bool keep_rows = job.in[2] == job.out[2], keep_columns = job.in[1] == job.out[1];
  // The single column of a row-major image: see repeat_first_row. Images of up to four channels have a kernel of their own in PyTorch, without this.
  const bool one_row = job.out[2] == 1 && job.channels > 4 && job.y_channel != 1;
  for (int64_t plane = 0; plane < job.batch * job.channels; ++plane) {
    const int64_t n = plane / job.channels, c = plane % job.channels;
    const uint8_t* from = x + n * job.x_batch + c * job.x_channel;
    for (int64_t i = 0; i < job.in[1]; ++i) {
      for (int64_t o = 0; o < job.out[2]; ++o) {
        const uint8_t* row = from + i * job.x_stride[1];
        int64_t sum = 0;
        for (int64_t k = 0; k < t.count[2] && !keep_rows; ++k) {
          sum += int64_t{fixed_x[o * t.count[2] + k]} * row[t.index[2][o * t.count[2] + k] * job.x_stride[2]];
        }
        lines[i * job.out[2] + o] = keep_rows ? row[o * job.x_stride[2]] : fixed_to_byte(sum, bits_x);
      }
    }
    uint8_t* to = y + n * job.y_batch + c * job.y_channel;
    for (int64_t o = 0; o < job.out[1]; ++o) {
      const int64_t taps = one_row ? 0 : o * t.count[1];
      for (int64_t i = 0; i < job.out[2]; ++i) {
        int64_t sum = 0;
        for (int64_t k = 0; k < t.count[1] && !keep_columns; ++k) sum += int64_t{fixed_y[taps + k]} * lines[t.index[1][taps + k] * job.out[2] + i];
        to[o * job.y_stride[1] + i * job.y_stride[2]] = keep_columns ? lines[o * job.out[2] + i] : fixed_to_byte(sum, bits_y);
      }
    }
  }
}

/// Scratch of a byte image after the tables: fixed-point weights, then the rows.
size_t bytes_scratch(const Job& job, const Layout& l, size_t* fixed_y, size_t* fixed_x, size_t* lines) {
  *fixed_y = l.rows;
  *fixed_x = align_up(*fixed_y + (l.weight[2] - l.index[1]), 64);  // an int64 table of the dim is larger than its int16 weights
  *lines = align_up(*fixed_x + (l.rows - l.index[2]), 64);
  return *lines + static_cast<size_t>(job.in[1] * job.out[2]);
}

Status run_bytes(KernelContext& context, const Job& job, const Tensor& x, Tensor& y) {
  if (x.rank() != 4) return Status(Code::kUnsupported, str_cat("resize of ", dtype_name(x.dtype()), " in ", x.rank() - 2, " dims"));
  const Layout l = layout_of<double>(job, 1);
  size_t fixed_y = 0, fixed_x = 0, lines = 0;
  if (bytes_scratch(job, l, &fixed_y, &fixed_x, &lines) > context.scratch.size()) {
    return Status(Code::kInvalidInput, "resize: scale factors do not fit the sizes");
  }
  std::byte* base = context.scratch.data();
  const Tables<double> t = make_tables<double>(job, l, base);
  for (size_t d = 1; d < 3; ++d) {
    merge_taps(reinterpret_cast<int64_t*>(base + l.index[d]), reinterpret_cast<double*>(base + l.weight[d]), job.out[d], t.count[d]);
  }
  blend_bytes(job, t, reinterpret_cast<int16_t*>(base + fixed_y), reinterpret_cast<int16_t*>(base + fixed_x), reinterpret_cast<uint8_t*>(base + lines),
              x.as<uint8_t>(), y.as<uint8_t>());
  return ok_status();
}

/// PyTorch's antialiased resize to a single column gives every row of a row-major image the weights of the first row (its CPU kernel takes them for
/// constant along the line it works on, and the lines of such an image run down). The same numbers are expected here.
template <typename R>
void repeat_first_row(const Job& job, const Layout& l, int64_t count, std::byte* scratch) {
  const bool channels_last = job.channels > 1 && job.y_channel == 1;
  if (!is_antialias(job.method) || job.out[2] != 1 || job.in[1] == job.out[1] || channels_last) return;
  auto* index = reinterpret_cast<int64_t*>(scratch + l.index[1]);
  auto* weight = reinterpret_cast<R*>(scratch + l.weight[1]);
  for (int64_t o = 1; o < job.out[1]; ++o) {
    std::copy_n(index, count, index + o * count);
    std::copy_n(weight, count, weight + o * count);
  }
}

template <typename R>
Status run_typed(KernelContext& context, Job job, const Tensor& x, Tensor& y) {
  if (job.y_channel == 1) job.together = std::min(job.channels, kTogether);
  if (layout_of<R>(job, 1).bytes > context.scratch.size()) job.together = 1;  // the layout was another one when the scratch was planned
  const Layout l = layout_of<R>(job, 1);
  if (l.bytes > context.scratch.size()) return Status(Code::kInvalidInput, "resize: scale factors do not fit the sizes");
  const Tables<R> t = make_tables<R>(job, l, context.scratch.data());
  if (x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat64) repeat_first_row<R>(job, l, t.count[1], context.scratch.data());
  bool known = false;
  if (job.method == Method::kNearest || job.method == Method::kNearestExact) {
    known = dispatch_size(dtype_size(x.dtype()), [&]<typename T>() { gather<T, R>(context, job, t, x.as<T>(), y.as<T>()); });
  } else {
    known = dispatch_floating(x.dtype(), [&]<typename T>() { blend<T, R>(context, job, t, l, x.as<T>(), y.as<T>()); });
  }
  return known ? ok_status() : Status(Code::kUnsupported, str_cat("resize of ", dtype_name(x.dtype())));
}

void set_sizes(Job* job, const Tensor& x, std::span<const int64_t> to) {
  const int spatial = x.rank() - 2;
  job->batch = x.size(0), job->channels = x.size(1);
  for (int d = 0; d < spatial; ++d) {
    const auto at = static_cast<size_t>(3 - spatial + d);
    job->in[at] = x.size(2 + d);
    job->out[at] = to[static_cast<size_t>(d)];
    job->x_stride[at] = x.stride(2 + d);
  }
  job->x_batch = x.stride(0), job->x_channel = x.stride(1);
}

Status run(KernelContext& context, Job job, const Tensor& x, std::span<const int64_t> to, int spatial, Tensor& y) {
  if (x.rank() != spatial + 2 || to.size() != static_cast<size_t>(spatial)) {
    return Status(Code::kInvalidInput, str_cat("resize of ", spatial, " dims: input ", shape_text(x.sizes()), " to ", shape_text(to)));
  }
  if (x.dtype() != y.dtype()) return Status(Code::kInvalidInput, str_cat("resize of ", dtype_name(x.dtype()), " into ", dtype_name(y.dtype())));
  Sizes sizes{x.size(0), x.size(1)};
  for (const int64_t size : to) sizes.push_back(size);
  for (size_t d = 2; d < sizes.size(); ++d) {
    if (sizes[d] < 1 || x.size(static_cast<int>(d)) < 1) {
      return Status(Code::kInvalidInput, str_cat("resize: input ", shape_text(x.sizes()), " to ", shape_text(to), ": sizes must be positive"));
    }
  }
  PTERON_TRY(runtime::resize(y, sizes));
  set_sizes(&job, x, to);
  job.y_batch = y.stride(0), job.y_channel = y.stride(1);
  for (int d = 0; d < spatial; ++d) job.y_stride[3 - spatial + d] = y.stride(2 + d);
  if (x.dtype() == DType::kUInt8 && job.method != Method::kNearest && job.method != Method::kNearestExact) return run_bytes(context, job, x, y);
  return x.dtype() == DType::kFloat64 ? run_typed<double>(context, job, x, y) : run_typed<float>(context, job, x, y);
}

Job make_job(Method method, bool align_corners, std::initializer_list<Scale> scales) {
  Job job;
  job.method = method;
  job.align_corners = align_corners;
  size_t at = 3 - scales.size();
  for (const Scale& s : scales) job.scales[at++] = s;
  return job;
}

template <Method m>
Status nearest1(KernelContext& context, const Tensor& x, IntList to, Scale w, Tensor& y) {
  return run(context, make_job(m, false, {w}), x, to, 1, y);
}
template <Method m>
Status nearest2(KernelContext& context, const Tensor& x, IntList to, Scale h, Scale w, Tensor& y) {
  return run(context, make_job(m, false, {h, w}), x, to, 2, y);
}
template <Method m>
Status nearest3(KernelContext& context, const Tensor& x, IntList to, Scale d, Scale h, Scale w, Tensor& y) {
  return run(context, make_job(m, false, {d, h, w}), x, to, 3, y);
}
Status linear1(KernelContext& context, const Tensor& x, IntList to, bool align, Scale w, Tensor& y) {
  return run(context, make_job(Method::kLinear, align, {w}), x, to, 1, y);
}
template <Method m>
Status smooth2(KernelContext& context, const Tensor& x, IntList to, bool align, Scale h, Scale w, Tensor& y) {
  return run(context, make_job(m, align, {h, w}), x, to, 2, y);
}
Status linear3(KernelContext& context, const Tensor& x, IntList to, bool align, Scale d, Scale h, Scale w, Tensor& y) {
  return run(context, make_job(Method::kLinear, align, {d, h, w}), x, to, 3, y);
}

using ScaleList = std::optional<std::span<const double>>;

/// Output size and scales of the .vec forms: sizes, or factors.
Status read_target(const Tensor& x, const OptionalIntList& size, const ScaleList& factors, Sizes* to, Job* job) {
  if (size.has == factors.has_value() || x.rank() != 4 || (factors.has_value() && factors->size() != 2)) {
    return Status(Code::kInvalidInput, str_cat("resize: exactly one of output size and two scale factors must be given for input ", shape_text(x.sizes())));
  }
  if (size.has) {
    *to = size.list;
    return ok_status();
  }
  for (size_t d = 0; d < 2; ++d) {
    job->scales[1 + d] = (*factors)[d];
    to->push_back(scaled_size(x.size(static_cast<int>(2 + d)), (*factors)[d]));
  }
  return ok_status();
}

Status nearest2_vec(KernelContext& context, const Tensor& x, OptionalIntList size, ScaleList factors, Tensor& y) {
  Job job = make_job(Method::kNearest, false, {});
  Sizes to;
  PTERON_TRY(read_target(x, size, factors, &to, &job));
  return run(context, job, x, to, 2, y);
}
Status bilinear2_vec(KernelContext& context, const Tensor& x, OptionalIntList size, bool align, ScaleList factors, Tensor& y) {
  Job job = make_job(Method::kLinear, align, {});
  Sizes to;
  PTERON_TRY(read_target(x, size, factors, &to, &job));
  return run(context, job, x, to, 2, y);
}

/// Tables for the bounds of sizes. An antialiasing table has out * (taps per output) entries, and taps grow as out shrinks: both are bounded
/// by what the bounds of input and output allow together.
template <Method m>
size_t workspace(std::span<Value* const> args) {
  const Tensor& x = args[0]->tensor;
  const Tensor& y = args.back()->tensor;
  if (x.rank() < 3 || x.rank() > 5 || y.rank() != x.rank()) return 0;
  Job job = make_job(m, false, {});
  set_sizes(&job, x, y.sizes().subspan(2));
  if (x.stride(1) == 1 || y.stride(1) == 1) job.together = std::min(job.channels, kTogether);
  const auto slots = std::clamp(usable_cpu_count(), 1, 64);
  size_t bytes = x.dtype() == DType::kFloat64 ? layout_of<double>(job, slots).bytes : layout_of<float>(job, slots).bytes;
  if (is_antialias(m)) {
    // out * (2 * ceil(support * in / out) + 1) <= 4 * in + 3 * out + ... for linear, twice that for cubic; 16 bytes an entry.
    for (size_t d = 0; d < 3; ++d) bytes += static_cast<size_t>(8 * job.in[d] + 11 * job.out[d]) * 16 + 64;
  }
  if (x.dtype() == DType::kUInt8) {
    size_t fixed_y = 0, fixed_x = 0, lines = 0;
    bytes += bytes_scratch(job, layout_of<double>(job, 1), &fixed_y, &fixed_x, &lines) + bytes;
  }
  return bytes;
}

constexpr runtime::Kernel kRows[] = {
    {"aten::_upsample_bicubic2d_aa.out", PTERON_KERNEL(smooth2<Method::kCubicAntialias>), workspace<Method::kCubicAntialias>},
    {"aten::_upsample_bilinear2d_aa.out", PTERON_KERNEL(smooth2<Method::kLinearAntialias>), workspace<Method::kLinearAntialias>},
    {"aten::_upsample_nearest_exact1d.out", PTERON_KERNEL(nearest1<Method::kNearestExact>), workspace<Method::kNearestExact>},
    {"aten::_upsample_nearest_exact2d.out", PTERON_KERNEL(nearest2<Method::kNearestExact>), workspace<Method::kNearestExact>},
    {"aten::_upsample_nearest_exact3d.out", PTERON_KERNEL(nearest3<Method::kNearestExact>), workspace<Method::kNearestExact>},
    {"aten::affine_grid_generator.out", PTERON_KERNEL(affine_grid)},
    {"aten::grid_sampler_2d.out", PTERON_KERNEL(grid_sampler_2d)},
    {"aten::grid_sampler_3d.out", PTERON_KERNEL(grid_sampler_3d)},
    {"aten::upsample_bicubic2d.out", PTERON_KERNEL(smooth2<Method::kCubic>), workspace<Method::kCubic>},
    {"aten::upsample_bilinear2d.out", PTERON_KERNEL(smooth2<Method::kLinear>), workspace<Method::kLinear>},
    {"aten::upsample_bilinear2d.vec_out", PTERON_KERNEL(bilinear2_vec), workspace<Method::kLinear>},
    {"aten::upsample_linear1d.out", PTERON_KERNEL(linear1), workspace<Method::kLinear>},
    {"aten::upsample_nearest1d.out", PTERON_KERNEL(nearest1<Method::kNearest>), workspace<Method::kNearest>},
    {"aten::upsample_nearest2d.out", PTERON_KERNEL(nearest2<Method::kNearest>), workspace<Method::kNearest>},
    {"aten::upsample_nearest2d.vec_out", PTERON_KERNEL(nearest2_vec), workspace<Method::kNearest>},
    {"aten::upsample_nearest3d.out", PTERON_KERNEL(nearest3<Method::kNearest>), workspace<Method::kNearest>},
    {"aten::upsample_trilinear3d.out", PTERON_KERNEL(linear3), workspace<Method::kLinear>},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::resize
