// Grid samplers and affine grids. Table: kernel.cpp.
#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "ops/gemm_pack.h"
#include "ops/resize/kernels.h"
#include "ops/resize/taps.h"
#include "ops/walk.h"
#include "tensor/dtype.h"

namespace pteron::ops::resize {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tensor;

enum class Interpolation : uint8_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum class Padding : uint8_t { kZeros = 0, kBorder = 1, kReflection = 2 };

/// How grid positions become pixels.
struct Sampling {
  Interpolation interpolation;
  Padding padding;
  bool align_corners;
};

/// A number of a 16-bit type with arithmetic in float, each result rounded: ATen's kernel for two dims computes so (all else is computed in float).
template <typename T>
class Rounded {
 public:
  Rounded() = default;
  Rounded(float value) : value_(static_cast<float>(T(value))) {}  // NOLINT: implicit as a float's would be
  explicit operator float() const { return value_; }
  friend Rounded operator+(Rounded a, Rounded b) { return a.value_ + b.value_; }
  friend Rounded operator-(Rounded a, Rounded b) { return a.value_ - b.value_; }
  friend Rounded operator*(Rounded a, Rounded b) { return a.value_ * b.value_; }
  friend Rounded operator/(Rounded a, Rounded b) { return a.value_ / b.value_; }
  Rounded& operator+=(Rounded b) { return *this = *this + b; }
  Rounded& operator*=(Rounded b) { return *this = *this * b; }
  friend bool operator<(Rounded a, Rounded b) { return a.value_ < b.value_; }
  friend Rounded floor(Rounded a) { return std::floor(a.value_); }
  friend Rounded trunc(Rounded a) { return std::trunc(a.value_); }
  friend Rounded abs(Rounded a) { return std::fabs(a.value_); }
  friend Rounded nearbyint(Rounded a) { return std::nearbyint(a.value_); }

 private:
  float value_ = 0;
};

/// A size, or a constant, as a number to compute with.
template <typename R, typename V>
R number(V v) {
  if constexpr (std::is_floating_point_v<R>) {
    return static_cast<R>(v);
  } else {
    return R(static_cast<float>(v));
  }
}

/// Positions in the order of operations of ATen's kernels: that for planes, and that for volumes.
template <typename R>
R unnormalize(R coord, int64_t size, bool align_corners, bool plane) {
  const R one = number<R>(1), two = number<R>(2);
  if (plane && align_corners) return (coord + one) * (number<R>(size - 1) / two);
  if (plane) return (coord + one) * (number<R>(size) / two) - number<R>(0.5);
  if (align_corners) return (coord + one) / two * number<R>(size - 1);
  return ((coord + one) * number<R>(size) - one) / two;
}

template <typename R>
R clip(R v, int64_t size) {
  return std::min(number<R>(size - 1), std::max(v, number<R>(0)));
}

/// v mirrored at both ends of [0, size - 1], or of [-0.5, size - 0.5].
template <typename R>
R reflect(R v, int64_t size, bool align_corners) {
  using std::abs;
  using std::trunc;
  const int64_t span = align_corners ? size - 1 : size;
  if (span == 0) return number<R>(0);
  const R low = number<R>(align_corners ? 0.0 : -0.5), twice = number<R>(span) * number<R>(2);
  v = abs(v - low);
  const R rest = v - trunc(v / twice) * twice;
  return std::min(rest, twice - rest) + low;
}

template <typename R>
R pad(R v, int64_t size, const Sampling& s) {
  if (s.padding == Padding::kBorder) return clip(v, size);
  if (s.padding == Padding::kReflection) return clip(reflect(v, size, s.align_corners), size);
  return v;
}

/// Integer part for indexing; positions far outside (and NaN) become one that is outside.
template <typename R>
int64_t index_of(R v) {
  const auto value = static_cast<std::conditional_t<std::is_same_v<R, double>, double, float>>(v);
  return value > -1e9F && value < 1e9F ? static_cast<int64_t>(value) : -100;
}

/// Two neighbouring indexes of one dim and their weights.
template <typename R>
struct Pair {
  int64_t index[2];
  R weight[2];
};
template <typename R>
Pair<R> neighbours(R v) {
  using std::floor;
  const R low = floor(v), share = v - low;
  return {{index_of(low), index_of(low) + 1}, {number<R>(1) - share, share}};
}

template <typename R>
void cubic_weights(R t, R* w) {
  const R a = number<R>(-0.75), one = number<R>(1), two = number<R>(2);
  const auto near = [&](R x) { return ((a + two) * x - (a + number<R>(3))) * x * x + one; };
  const auto far = [&](R x) { return ((a * x - number<R>(5) * a) * x + number<R>(8) * a) * x - number<R>(4) * a; };
  w[0] = far(t + one), w[1] = near(t), w[2] = near(one - t), w[3] = far(two - t);
}

constexpr int64_t kBlock = 64;  ///< positions that are sampled together, channel by channel

/// Up to kBlock positions of one image: where they are (x last), and where their results go.
template <typename R>
struct Block {
  int64_t count = 0;
  R at[3][kBlock];
  int64_t to[kBlock];
};

/// One pixel for every position of a block: its offset in a channel (-1: outside, adds nothing) and its weight.
template <typename R>
struct Tap {
  int64_t offset[kBlock];
  R weight[kBlock];
};

/// What values of T are loaded as and stored from.
template <typename T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

template <typename T, typename R>
void add_tap(const T* image, const Tap<R>& tap, int64_t n, R* sums) {
  for (int64_t i = 0; i < n; ++i) {  // without a branch: which positions are outside is not to be foreseen
    const int64_t offset = tap.offset[i];
    const R value = tap.weight[i] * number<R>(convert_value<Wide<T>>(image[offset < 0 ? 0 : offset]));
    sums[i] += offset < 0 ? number<R>(0) : value;
  }
}

template <typename T, typename R>
void sample_linear(const Tensor& x, const T* image, const Block<R>& block, int dims, const Sampling& s, T* to, int64_t to_channel) {
  const int corners = 1 << dims;
  const int first = x.rank() - dims;
  Tap<R> taps[8];
  for (int64_t i = 0; i < block.count; ++i) {
    Pair<R> pairs[3];
    for (int d = 0; d < dims; ++d) {
      const int64_t size = x.size(first + d);
      pairs[d] = neighbours(pad(unnormalize(block.at[d][i], size, s.align_corners, dims == 2), size, s));
    }
    for (int corner = 0; corner < corners; ++corner) {
      int64_t offset = 0;
      R weight = number<R>(1);
      bool inside = true;
      for (int d = 0; d < dims; ++d) {
        const int side = corner >> (dims - 1 - d) & 1;
        const int64_t index = pairs[d].index[side];
        inside = inside && index >= 0 && index < x.size(first + d);
        offset += index * x.stride(first + d);
        weight *= pairs[d].weight[side];
      }
      taps[corner].offset[i] = inside ? offset : -1;
      taps[corner].weight[i] = weight;
    }
  }
  for (int64_t c = 0; c < x.size(1); ++c) {
    R sums[kBlock] = {};
    for (int corner = 0; corner < corners; ++corner) add_tap(image + c * x.stride(1), taps[corner], block.count, sums);
    for (int64_t i = 0; i < block.count; ++i) to[c * to_channel + block.to[i]] = store_value<T>(static_cast<Wide<T>>(sums[i]));
  }
}

/// The nearest pixels, copied.
template <typename T, typename R>
void sample_nearest(const Tensor& x, const T* image, const Block<R>& block, int dims, const Sampling& s, T* to, int64_t to_channel) {
  using std::nearbyint;
  const int first = x.rank() - dims;
  int64_t offset[kBlock];
  bool all_inside = true, dense = true;
  for (int64_t i = 0; i < block.count; ++i) {
    bool inside = true;
    offset[i] = 0;
    for (int d = 0; d < dims; ++d) {
      const int64_t size = x.size(first + d);
      const int64_t index = index_of(nearbyint(pad(unnormalize(block.at[d][i], size, s.align_corners, dims == 2), size, s)));
      inside = inside && index >= 0 && index < size;
      offset[i] += index * x.stride(first + d);
    }
    if (!inside) offset[i] = -1;
    all_inside = all_inside && inside;
    dense = dense && block.to[i] == block.to[0] + i;
  }
  const T outside = store_value<T>(0.0F);
  for (int64_t c = 0; c < x.size(1); ++c, image += x.stride(1), to += to_channel) {
    if (all_inside && dense) {
      T* row = to + block.to[0];
      for (int64_t i = 0; i < block.count; ++i) row[i] = image[offset[i]];
      continue;
    }
    for (int64_t i = 0; i < block.count; ++i) to[block.to[i]] = offset[i] >= 0 ? image[offset[i]] : outside;
  }
}

template <typename T, typename R>
void sample_cubic(const Tensor& x, const T* image, const Block<R>& block, const Sampling& s, T* to, int64_t to_channel) {
  using std::floor;
  Tap<R> taps[4][4];       // weights along x
  R row_weight[4][kBlock];
  for (int64_t i = 0; i < block.count; ++i) {
    R weights[2][4];
    int64_t index[2][4];
    for (int d = 0; d < 2; ++d) {
      const int64_t size = x.size(2 + d);
      const R v = unnormalize(block.at[d][i], size, s.align_corners, true), low = floor(v);
      cubic_weights(v - low, weights[d]);
      for (int k = 0; k < 4; ++k) {
        const int64_t pixel = index_of(pad(low + number<R>(k - 1), size, s));
        index[d][k] = pixel >= 0 && pixel < size ? pixel : -1;
      }
    }
    for (int j = 0; j < 4; ++j) {
      row_weight[j][i] = weights[0][j];
      for (int k = 0; k < 4; ++k) {
        const bool inside = index[0][j] >= 0 && index[1][k] >= 0;
        taps[j][k].offset[i] = inside ? index[0][j] * x.stride(2) + index[1][k] * x.stride(3) : -1;
        taps[j][k].weight[i] = weights[1][k];
      }
    }
  }
  for (int64_t c = 0; c < x.size(1); ++c) {
    R sums[kBlock] = {};
    for (int j = 0; j < 4; ++j) {
      R row[kBlock] = {};
      for (int k = 0; k < 4; ++k) add_tap(image + c * x.stride(1), taps[j][k], block.count, row);
      for (int64_t i = 0; i < block.count; ++i) sums[i] += row_weight[j][i] * row[i];
    }
    for (int64_t i = 0; i < block.count; ++i) to[c * to_channel + block.to[i]] = store_value<T>(static_cast<Wide<T>>(sums[i]));
  }
}

template <typename T, typename R>
void sample_all(KernelContext& context, const Tensor& x, const Tensor& grid, int dims, const Sampling& s, Tensor& y) {
  const Sizes positions(grid.sizes().subspan(1, static_cast<size_t>(dims)));
  const Sizes grid_strides(grid.strides().subspan(1, static_cast<size_t>(dims))), out_strides(y.strides().subspan(2, static_cast<size_t>(dims)));
  const int64_t step = grid.stride(1 + dims), each = index_count(positions);
  const int64_t blocks = (each + kBlock - 1) / kBlock;
  context.pool->parallel_for(x.size(0) * blocks, std::max<int64_t>(8192 / kBlock / std::max<int64_t>(x.size(1), 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / blocks, from = i % blocks * kBlock;
      const T* image = x.as<T>() + n * x.stride(0);
      const T* points = grid.as<T>() + n * grid.stride(0);
      T* to = y.as<T>() + n * y.stride(0);
      Block<R> block;
      walk<2>(positions, {grid_strides, out_strides}, from, std::min(each, from + kBlock), [&](const std::array<int64_t, 2>& at, const Sizes&) {
        for (int d = 0; d < dims; ++d) block.at[d][block.count] = number<R>(convert_value<Wide<T>>(points[at[0] + (dims - 1 - d) * step]));  // the grid has x first
        block.to[block.count++] = at[1];
      });
      if (s.interpolation == Interpolation::kBicubic) {
        sample_cubic<T, R>(x, image, block, s, to, y.stride(1));
      } else if (s.interpolation == Interpolation::kNearest) {
        sample_nearest<T, R>(x, image, block, dims, s, to, y.stride(1));
      } else {
        sample_linear<T, R>(x, image, block, dims, s, to, y.stride(1));
      }
    }
  });
}

Status sample(KernelContext& context, const Tensor& x, const Tensor& grid, int dims, int64_t interpolation, int64_t padding, bool align_corners, Tensor& y) {
  const bool fits = x.rank() == dims + 2 && grid.rank() == dims + 2 && grid.size(dims + 1) == dims && grid.size(0) == x.size(0) && grid.dtype() == x.dtype() &&
                    y.dtype() == x.dtype();
  if (!fits) return Status(Code::kInvalidInput, str_cat("grid sampler: input ", shape_text(x.sizes()), " and grid ", shape_text(grid.sizes())));
  if (interpolation < 0 || interpolation > (dims == 2 ? 2 : 1) || padding < 0 || padding > 2) {
    return Status(Code::kInvalidInput, str_cat("grid sampler: interpolation ", interpolation, ", padding ", padding));
  }
  Sizes sizes{x.size(0), x.size(1)};
  for (int d = 0; d < dims; ++d) {
    sizes.push_back(grid.size(1 + d));
    if (x.size(2 + d) < 1) return Status(Code::kInvalidInput, str_cat("grid sampler: empty input ", shape_text(x.sizes())));
  }
  PTERON_TRY(runtime::resize(y, sizes));
  const Sampling s{static_cast<Interpolation>(interpolation), static_cast<Padding>(padding), align_corners};
  const bool known = dispatch_floating(x.dtype(), [&]<typename T>() {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      if (dims == 2) return sample_all<T, Rounded<T>>(context, x, grid, dims, s, y);
    }
    sample_all<T, Wide<T>>(context, x, grid, dims, s, y);
  });
  return known ? ok_status() : Status(Code::kUnsupported, str_cat("grid sampler of ", dtype_name(x.dtype())));
}

/// linspace(-1, 1, count), scaled to pixel centres if corners are not aligned.
template <typename R>
R base_position(int64_t i, int64_t count, bool align_corners) {
  if (count <= 1) return 0;
  const R step = R{2} / static_cast<R>(count - 1);
  const R v = i < count / 2 ? R{-1} + step * static_cast<R>(i) : R{1} - step * static_cast<R>(count - i - 1);
  return align_corners ? v : v * static_cast<R>(count - 1) / static_cast<R>(count);
}

template <typename T>
void fill_grid(const Tensor& theta, int dims, bool align_corners, Tensor& out) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
  int64_t positions = 1;
  for (int d = 0; d < dims; ++d) positions *= out.size(1 + d);
  for (int64_t i = 0; i < out.size(0) * positions; ++i) {
    const int64_t n = i / positions;
    int64_t rest = i % positions, to = n * out.stride(0);
    R base[4];
    base[dims] = 1;
    for (int d = dims - 1; d >= 0; --d) {
      base[dims - 1 - d] = base_position<R>(rest % out.size(1 + d), out.size(1 + d), align_corners);
      to += rest % out.size(1 + d) * out.stride(1 + d);
      rest /= out.size(1 + d);
    }
    for (int row = 0; row < dims; ++row) {
      R sum = 0;
      for (int k = 0; k <= dims; ++k) sum += base[k] * convert_value<R>(theta.as<T>()[n * theta.stride(0) + row * theta.stride(1) + k * theta.stride(2)]);
      out.as<T>()[to + row * out.stride(1 + dims)] = store_value<T>(sum);
    }
  }
}

}  // namespace

Status grid_sampler_2d(KernelContext& context, const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners, Tensor& out) {
  return sample(context, input, grid, 2, interpolation, padding, align_corners, out);
}
Status grid_sampler_3d(KernelContext& context, const Tensor& input, const Tensor& grid, int64_t interpolation, int64_t padding, bool align_corners, Tensor& out) {
  return sample(context, input, grid, 3, interpolation, padding, align_corners, out);
}

Status affine_grid(KernelContext&, const Tensor& theta, IntList size, bool align_corners, Tensor& out) {
  const int dims = static_cast<int>(size.size()) - 2;
  if ((dims != 2 && dims != 3) || theta.rank() != 3 || theta.size(1) != dims || theta.size(2) != dims + 1 || theta.size(0) != size[0] ||
      theta.dtype() != out.dtype()) {
    return Status(Code::kInvalidInput, str_cat("affine grid: theta ", shape_text(theta.sizes()), " for size ", shape_text(size)));
  }
  Sizes sizes{size[0]};
  for (int d = 0; d < dims; ++d) sizes.push_back(size[static_cast<size_t>(2 + d)]);
  sizes.push_back(dims);
  PTERON_TRY(runtime::resize(out, sizes));
  const bool known = dispatch_floating(theta.dtype(), [&]<typename T>() { fill_grid<T>(theta, dims, align_corners, out); });
  return known ? ok_status() : Status(Code::kUnsupported, str_cat("affine grid of ", dtype_name(theta.dtype())));
}

}  // namespace pteron::ops::resize
