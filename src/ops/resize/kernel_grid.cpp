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

template <typename R>
R unnormalize(R coord, int64_t size, bool align_corners) {
  if (align_corners) return (coord + 1) / 2 * static_cast<R>(size - 1);
  return ((coord + 1) * static_cast<R>(size) - 1) / 2;
}

template <typename R>
R clip(R v, int64_t size) {
  return std::min(static_cast<R>(size - 1), std::max(v, R{0}));
}

/// v mirrored at twice_low / 2 and twice_high / 2.
template <typename R>
R reflect(R v, int64_t twice_low, int64_t twice_high) {
  if (twice_low == twice_high) return 0;
  const R low = static_cast<R>(twice_low) / 2, span = static_cast<R>(twice_high - twice_low) / 2;
  v = std::abs(v - low);
  const R extra = std::fmod(v, span);
  const R flips = std::floor(v / span);
  return std::fmod(flips, R{2}) == 0 ? extra + low : span - extra + low;
}

template <typename R>
R pad(R v, int64_t size, const Sampling& s) {
  if (s.padding == Padding::kBorder) return clip(v, size);
  if (s.padding == Padding::kReflection) {
    v = s.align_corners ? reflect(v, int64_t{0}, 2 * (size - 1)) : reflect(v, int64_t{-1}, 2 * size - 1);
    return clip(v, size);
  }
  return v;
}

/// Integer part for indexing; positions far outside (and NaN) become one that is outside.
template <typename R>
int64_t index_of(R v) {
  return v > static_cast<R>(-1e9) && v < static_cast<R>(1e9) ? static_cast<int64_t>(v) : -100;
}

/// Two neighbouring indexes of one dim and their weights.
template <typename R>
struct Pair {
  int64_t index[2];
  R weight[2];
};
template <typename R>
Pair<R> neighbours(R v) {
  const R low = std::floor(v);
  return {{index_of(low), index_of(low) + 1}, {low + 1 - v, v - low}};
}

template <typename R>
void cubic_weights(R t, R* w) {
  constexpr R kA = static_cast<R>(-0.75);
  w[0] = cubic_far(t + 1, kA), w[1] = cubic_near(t, kA), w[2] = cubic_near(1 - t, kA), w[3] = cubic_far(2 - t, kA);
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

template <typename T, typename R>
void add_tap(const T* image, const Tap<R>& tap, int64_t n, R* sums) {
  for (int64_t i = 0; i < n; ++i) {  // without a branch: which positions are outside is not to be foreseen
    const int64_t offset = tap.offset[i];
    const R value = tap.weight[i] * convert_value<R>(image[offset < 0 ? 0 : offset]);
    sums[i] += offset < 0 ? R{0} : value;
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
      pairs[d] = neighbours(pad(unnormalize(block.at[d][i], size, s.align_corners), size, s));
    }
    for (int corner = 0; corner < corners; ++corner) {
      int64_t offset = 0;
      R weight = 1;
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
    for (int64_t i = 0; i < block.count; ++i) to[c * to_channel + block.to[i]] = store_value<T>(sums[i]);
  }
}

/// The nearest pixels, copied.
template <typename T, typename R>
void sample_nearest(const Tensor& x, const T* image, const Block<R>& block, int dims, const Sampling& s, T* to, int64_t to_channel) {
  const int first = x.rank() - dims;
  int64_t offset[kBlock];
  bool all_inside = true, dense = true;
  for (int64_t i = 0; i < block.count; ++i) {
    bool inside = true;
    offset[i] = 0;
    for (int d = 0; d < dims; ++d) {
      const int64_t size = x.size(first + d);
      const int64_t index = index_of(std::nearbyint(pad(unnormalize(block.at[d][i], size, s.align_corners), size, s)));
      inside = inside && index >= 0 && index < size;
      offset[i] += index * x.stride(first + d);
    }
    if (!inside) offset[i] = -1;
    all_inside = all_inside && inside;
    dense = dense && block.to[i] == block.to[0] + i;
  }
  const T outside = store_value<T>(R{0});
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
  Tap<R> taps[4][4];       // weights along x
  R row_weight[4][kBlock];
  for (int64_t i = 0; i < block.count; ++i) {
    R weights[2][4];
    int64_t index[2][4];
    for (int d = 0; d < 2; ++d) {
      const int64_t size = x.size(2 + d);
      const R v = unnormalize(block.at[d][i], size, s.align_corners), low = std::floor(v);
      cubic_weights(v - low, weights[d]);
      for (int k = 0; k < 4; ++k) {
        const int64_t pixel = index_of(pad(low - 1 + static_cast<R>(k), size, s));
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
    for (int64_t i = 0; i < block.count; ++i) to[c * to_channel + block.to[i]] = store_value<T>(sums[i]);
  }
}

template <typename T>
void sample_all(KernelContext& context, const Tensor& x, const Tensor& grid, int dims, const Sampling& s, Tensor& y) {
  using R = std::conditional_t<std::is_same_v<T, double>, double, float>;
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
        for (int d = 0; d < dims; ++d) block.at[d][block.count] = convert_value<R>(points[at[0] + (dims - 1 - d) * step]);  // the grid has x first
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
  const bool known = dispatch_floating(x.dtype(), [&]<typename T>() { sample_all<T>(context, x, grid, dims, s, y); });
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
