// Winograd convolutions: weights, blocks of tiles, threads.
#include "backends/cpu/runtime/winograd.h"

#include <algorithm>
#include <atomic>
#include <span>

#include "backends/cpu/runtime/tile.h"
#include "base/no_memory.h"
#include "base/str_cat.h"
#include "tensor/dim_math.h"

namespace pteron::cpu {
namespace {

constexpr int64_t kPoints = 36;
// Tiles of a block: their transformed values, before and after the products, should stay in the second-level cache, but every block reads
// all weights, which do not stay there if they are large.
constexpr int64_t kBlockFloats = 128 << 10, kFarBlockFloats = 1 << 20;
constexpr int64_t kCachedWeightFloats = 256 << 10;
constexpr int64_t kMinBlockTiles = 12, kMaxBlockTiles = 64;
// Fewer tiles than this do not pay for four times the weights.
constexpr int64_t kMinTiles = 12;
constexpr int64_t kMinChannels = 16;

/// G of the paper: kernel values to points.
constexpr double kG[6][3] = {{1.0 / 4, 0, 0},          {-1.0 / 6, -1.0 / 6, -1.0 / 6}, {-1.0 / 6, 1.0 / 6, -1.0 / 6},
                             {1.0 / 24, 1.0 / 12, 1.0 / 6}, {1.0 / 24, -1.0 / 12, 1.0 / 6}, {0, 0, 1}};

/// Tiles of each of the blocks that `tiles` are shared out to.
int64_t block_tiles(int64_t tiles, int64_t channels, int64_t out_channels) {
  const int64_t floats = kPoints * channels * out_channels <= kCachedWeightFloats ? kBlockFloats : kFarBlockFloats;
  const int64_t most = std::clamp(floats / (kPoints * (channels + out_channels)), kMinBlockTiles, kMaxBlockTiles);
  return ceil_div(tiles, ceil_div(tiles, most));
}

/// Tiles of 4x4 outputs that cover `count` images.
int64_t tile_count(int64_t count, int64_t height, int64_t width) { return count * ceil_div(height, int64_t{4}) * ceil_div(width, int64_t{4}); }

/// Where tile `index` begins in the output.
struct Place {
  int64_t image, y, x;
};
Place place_of(const WinogradConv& c, int64_t index) {
  const int64_t across = ceil_div(c.out_width, int64_t{4}), down = ceil_div(c.out_height, int64_t{4});
  return {index / (across * down), index / across % down * 4, index % across * 4};
}

bool transform_input(const WinogradConv& c, const Place& place, const float* zeros, float* out, int64_t out_step) {
  WinogradInput in;
  in.out = out;
  in.out_step = out_step;
  in.channels = c.channels;
  const float* image = c.x + place.image * c.batch;
  for (int64_t i = 0; i < 36; ++i) {
    const int64_t y = place.y + i / 6 - c.padding[0], x = place.x + i % 6 - c.padding[1];
    in.pixels[i] = y >= 0 && y < c.height && x >= 0 && x < c.width ? image + y * c.row + x * c.pixel : zeros;
  }
  return winograd_transforms().input(in);
}

void transform_output(const WinogradConv& c, const Place& place, const float* in, int64_t in_step, int64_t first, int64_t count) {
  WinogradOutput o;
  o.in = in;
  o.in_step = in_step;
  o.has_residual = c.epilogue.before(c.residual) != nullptr;
  o.bias = reinterpret_cast<const float*>(c.weights->bias.data()) + first;
  o.channels = count;
  o.low = c.epilogue.low;
  o.high = c.epilogue.high;
  for (int64_t i = 0; i < 16; ++i) {
    const int64_t y = place.y + i / 4, x = place.x + i % 4;
    const bool inside = y < c.out_height && x < c.out_width;
    const int64_t at = (place.image * c.out_height + y) * c.out_width + x;
    o.pixels[i] = inside ? c.y + at * c.out_pixel + first : nullptr;
    o.residuals[i] = inside && c.residual != nullptr ? c.residual + at * c.residual_pixel + first : nullptr;
  }
  winograd_transforms().output(o);
  for (size_t i = 0; i < 16; ++i) {
    if (o.pixels[i] != nullptr) c.epilogue.apply(o.pixels[i], 0, 1, count, o.residuals[i]);
  }
}

/// Output channels [first, first + count) of a tile as plain sums.
void sum_directly(const WinogradConv& c, const Place& place, int64_t first, int64_t count) {
  const WinogradWeights& w = *c.weights;
  const float* const bias = reinterpret_cast<const float*>(w.bias.data());
  for (int64_t y = place.y; y < std::min(place.y + 4, c.out_height); ++y) {
    for (int64_t x = place.x; x < std::min(place.x + 4, c.out_width); ++x) {
      const int64_t at = (place.image * c.out_height + y) * c.out_width + x;
      float* const to = c.y + at * c.out_pixel;
      const float* const residual = c.residual != nullptr ? c.residual + at * c.residual_pixel : nullptr;
      for (int64_t o = first; o < first + count; ++o) {
        float sum = bias[o];
        for (int64_t tap = 0; tap < 9; ++tap) {
          const int64_t in_y = y + tap / 3 - c.padding[0], in_x = x + tap % 3 - c.padding[1];
          if (in_y < 0 || in_y >= c.height || in_x < 0 || in_x >= c.width) continue;
          const float* pixel = c.x + place.image * c.batch + in_y * c.row + in_x * c.pixel;
          const float* weight = w.data + o * w.strides[0] + tap / 3 * w.strides[2] + tap % 3 * w.strides[3];
          for (int64_t i = 0; i < c.channels; ++i) sum += pixel[i] * weight[i * w.strides[1]];
        }
        if (c.epilogue.before(residual) != nullptr) sum += residual[o];
        sum = sum < c.epilogue.low ? c.epilogue.low : sum;
        to[o] = sum > c.epilogue.high ? c.epilogue.high : sum;
      }
      c.epilogue.apply(to + first, 0, 1, count, residual != nullptr ? residual + first : nullptr);
    }
  }
}

/// Tiles [first, last) for the output channels of panels [panel, end).
void run_tiles(const WinogradConv& c, int64_t first, int64_t last, int64_t panel, int64_t end, float* memory) {
  const int64_t tiles = last - first, column = panel * tile_set().columns;
  const int64_t columns = std::min(end * tile_set().columns, c.out_channels) - column;
  float* const zeros = memory;
  float* const values = zeros + c.channels;
  float* const sums = values + kPoints * tiles * c.channels;
  std::fill(zeros, zeros + c.channels, 0.0f);
  bool finite[kMaxBlockRows];
  for (int64_t t = 0; t < tiles; ++t) finite[t] = transform_input(c, place_of(c, first + t), zeros, values + t * c.channels, tiles * c.channels);
  for (int64_t i = 0; i < kPoints; ++i) {
    const EvenRows rows{values + i * tiles * c.channels, c.channels};
    Product p;
    p.weights = c.weights->matrices[static_cast<size_t>(i)].get();
    p.rows = tiles;
    p.rows_of = EvenRows::get;
    p.context = &rows;
    p.c = sums + i * tiles * columns - column;  // panels before the first are not written
    p.c_row = columns;
    if (i + 1 < kPoints) p.after = c.weights->matrices[static_cast<size_t>(i + 1)]->panel(panel);
    run_panels(p, panel, end);
  }
  for (int64_t t = 0; t < tiles; ++t) {
    const Place place = place_of(c, first + t);
    if (finite[t]) {
      transform_output(c, place, sums + t * columns, tiles * columns, column, columns);
    } else {
      sum_directly(c, place, column, columns);
    }
  }
}

/// The points of all kernels of one panel of output channels, straight into the packed matrices.
void transform_panel(const float* data, int64_t out_channels, int64_t channels, const int64_t strides[4], int64_t panel,
                     std::span<const std::shared_ptr<PackedMatrix>> matrices) {
  const int64_t width = matrices[0]->is_half(panel) ? tile_set().columns / 2 : tile_set().columns;
  const int64_t first = panel * tile_set().columns, count = std::min(width, out_channels - first);
  float* to[kPoints];
  for (size_t i = 0; i < matrices.size(); ++i) to[i] = matrices[i]->panel(panel);
  double kernel[9][kMaxTileColumns] = {}, rows[6][3][kMaxTileColumns];
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t o = 0; o < count; ++o) {
      const float* from = data + (first + o) * strides[0] + c * strides[1];
      for (int64_t k = 0; k < 9; ++k) kernel[k][o] = from[k / 3 * strides[2] + k % 3 * strides[3]];
    }
    for (int i = 0; i < 6; ++i) {
      for (int x = 0; x < 3; ++x) {
        for (int64_t o = 0; o < width; ++o) rows[i][x][o] = kG[i][0] * kernel[x][o] + kG[i][1] * kernel[3 + x][o] + kG[i][2] * kernel[6 + x][o];
      }
    }
    for (int i = 0; i < 6; ++i) {
      for (int j = 0; j < 6; ++j) {
        float* point = to[i * 6 + j] + c * width;
        for (int64_t o = 0; o < width; ++o) point[o] = static_cast<float>(rows[i][0][o] * kG[j][0] + rows[i][1][o] * kG[j][1] + rows[i][2][o] * kG[j][2]);
      }
    }
  }
}

}  // namespace

bool winograd_pays(int64_t count, int64_t out_height, int64_t out_width, int64_t channels, int64_t out_channels) {
  if (channels < kMinChannels || out_channels < kMinChannels) return false;
  return tile_count(count, out_height, out_width) >= kMinTiles;
}

Result<std::shared_ptr<const runtime::KernelState>> WinogradWeights::make(const float* data, int64_t out_channels, int64_t channels, const int64_t strides[4], const float* bias,
                                                                          int64_t bias_stride, ThreadPool& pool) {
  auto made = std::make_shared<WinogradWeights>();
  made->data = data;
  std::copy(strides, strides + 4, made->strides);
  PTERON_ASSIGN(made->bias, Buffer::create_zeroed(static_cast<size_t>(out_channels) * sizeof(float)));
  for (int64_t o = 0; bias != nullptr && o < out_channels; ++o) reinterpret_cast<float*>(made->bias.data())[o] = bias[o * bias_stride];
  PTERON_ASSIGN(const std::vector<std::shared_ptr<PackedMatrix>> matrices, PackedMatrix::create(kPoints, out_channels, channels));
  pool.parallel_for(matrices[0]->panel_count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) transform_panel(data, out_channels, channels, strides, p, matrices);
  });
  made->matrices.assign(matrices.begin(), matrices.end());
  return std::shared_ptr<const runtime::KernelState>(std::move(made));
}

Status run_winograd(const WinogradConv& c, ThreadPool& pool) {
  const int64_t tiles = tile_count(c.count, c.out_height, c.out_width);
  const int64_t panels = c.weights->matrices[0]->panel_count(), threads = pool.thread_count();
  if (tiles == 0 || panels == 0) return ok_status();
  int64_t block = block_tiles(tiles, c.channels, c.out_channels);
  // As many blocks for every thread, where there are several each.
  if (tiles > block) block = ceil_div(tiles, ceil_div(ceil_div(tiles, block), threads) * threads);
  const int64_t blocks = ceil_div(tiles, block);
  // With fewer blocks than threads, the output channels are shared out as well; each part transforms the input for itself.
  const int64_t parts = std::min(panels, ceil_div(threads, blocks)), part = ceil_div(panels, parts);
  std::atomic<bool> failed = false;
  const int64_t floats = c.channels + kPoints * block * (c.channels + c.out_channels);
  const auto run = [&](int64_t begin, int64_t end) {
    const WorkBuffers::Loan loan(c.work, floats);
    if (loan.floats() == nullptr) {
      failed = true;
      return;
    }
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / parts * block, panel = i % parts * part;
      if (panel < panels) run_tiles(c, first, std::min(tiles, first + block), panel, std::min(panels, panel + part), loan.floats());
    }
  };
  pool.parallel_for(blocks * parts, 1, run);
  return failed ? no_memory(static_cast<uint64_t>(floats) * sizeof(float)).with_context(str_cat("conv2d: a block of ", block, " tiles")) : ok_status();
}

}  // namespace pteron::cpu
