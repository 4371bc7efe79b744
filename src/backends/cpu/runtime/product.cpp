// Packing of weights, blocks of rows, threads, epilogues.
#include "backends/cpu/runtime/product.h"

#include <algorithm>
#include <cmath>

#include "backends/cpu/runtime/tile.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/math.h"
#include "tensor/dim_math.h"

namespace pteron::cpu {
namespace {

namespace math = ops::math;

// Weights up to this size stay in the second-level cache while small blocks of rows pass by; larger ones are streamed once per large block.
constexpr int64_t kCachedWeightBytes = 192 << 10;
constexpr int64_t kRowBlockBytes = 96 << 10;
constexpr int64_t kMaxBlockRows = 240;
// Below this many multiplications a second thread costs more than it saves.
constexpr double kThreadGrain = 1 << 17;

template <float (*fn)(float)>
void map_run(float* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) values[i] = fn(values[i]);
}

inline float gelu(float x) { return x * 0.5f * (1.0f + math::erf(x * 0.70710678118654752440f)); }
inline float gelu_tanh(float x) { return 0.5f * x * (1.0f + math::tanh(0.79788456080286535588f * (x + 0.044715f * x * x * x))); }
inline float silu(float x) { return x / (1.0f + math::exp(-x)); }
inline float six(float x) {
  x = x < 0.0f ? 0.0f : x;
  return x > 6.0f ? 6.0f : x;
}
inline float hardswish(float x) { return x * six(x + 3.0f) / 6.0f; }
inline float hardsigmoid(float x) { return six(x + 3.0f) / 6.0f; }
inline float sigmoid(float x) { return math::sigmoid(x); }
inline float tanh(float x) { return math::tanh(x); }

struct Named {
  std::string_view name;
  void (*function)(float*, int64_t);
};
constexpr Named kFunctions[] = {
    {"gelu", map_run<gelu>},           {"gelu_tanh", map_run<gelu_tanh>}, {"silu", map_run<silu>}, {"hardswish", map_run<hardswish>},
    {"hardsigmoid", map_run<hardsigmoid>}, {"sigmoid", map_run<sigmoid>},     {"tanh", map_run<tanh>},
};

/// Rows [first, last) of panels [panel, end).
void run_block(const Product& p, int64_t first, int64_t last, int64_t panel, int64_t end) {
  const TileSet& tiles = tile_set();
  const float* rows[kMaxBlockRows];
  p.rows_of(p.context, first, last - first, rows);
  Tile tile;
  tile.taps = p.taps;
  tile.steps = p.steps;
  tile.run = p.weights->depth() / p.taps;
  tile.c_row = p.c_row;
  tile.residual_row = p.residual_row;
  tile.low = p.epilogue.low;
  tile.high = p.epilogue.high;
  const int64_t first_column = panel * tiles.columns;
  for (; panel < end; ++panel) {
    const int64_t column = panel * tiles.columns;
    const bool half = p.weights->is_half(panel);
    tile.columns = static_cast<int>(std::min<int64_t>(p.weights->columns() - column, half ? tiles.columns / 2 : tiles.columns));
    tile.panel = p.weights->panel(panel);
    tile.bias = p.weights->bias(panel);
    const TileFn* functions = half ? tiles.half : tiles.full;
    for (int64_t row = first; row < last; row += tiles.rows) {
      const int64_t count = std::min<int64_t>(tiles.rows, last - row);
      tile.rows = rows + (row - first);
      tile.c = p.c + row * p.c_row + column;
      if (p.residual != nullptr) tile.residual = p.residual + row * p.residual_row + column;
      functions[count](tile);
    }
  }
  if (p.epilogue.function == nullptr) return;
  const int64_t last_column = std::min(end * tiles.columns, p.weights->columns());
  for (int64_t row = first; row < last; ++row) p.epilogue.function(p.c + row * p.c_row + first_column, last_column - first_column);
}

}  // namespace

Result<Epilogue> epilogue_of(std::string_view activation, double low, double high) {
  Epilogue out;
  if (activation == "none") return out;
  if (activation == "clamp") {
    out.low = static_cast<float>(low);
    out.high = static_cast<float>(high);
    return out;
  }
  for (const Named& named : kFunctions) {
    if (named.name != activation) continue;
    out.function = named.function;
    return out;
  }
  return Status(Code::kInvalidFile, str_cat("activation '", activation, "' is unknown"));
}

int64_t PackedMatrix::panel_count() const { return ceil_div(n_, int64_t{tile_set().columns}); }
const float* PackedMatrix::panel(int64_t index) const { return reinterpret_cast<const float*>(panels_.data()) + index * depth_ * tile_set().columns; }
const float* PackedMatrix::bias(int64_t index) const { return reinterpret_cast<const float*>(bias_.data()) + index * tile_set().columns; }
bool PackedMatrix::is_half(int64_t index) const { return n_ - index * tile_set().columns <= tile_set().columns / 2; }

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::make(const float* data, int64_t n, int64_t stride_n, std::span<const int64_t> offsets,
                                                               const float* bias, int64_t bias_stride, ThreadPool& pool) {
  const int64_t width = tile_set().columns;
  const auto depth = static_cast<int64_t>(offsets.size());
  auto made = std::make_shared<PackedMatrix>();
  made->n_ = n;
  made->depth_ = depth;
  const int64_t panels = made->panel_count();
  PTERON_ASSIGN(made->panels_, Buffer::create(static_cast<size_t>(panels * width * std::max<int64_t>(depth, 1)) * sizeof(float)));
  PTERON_ASSIGN(made->bias_, Buffer::create_zeroed(static_cast<size_t>(panels * width) * sizeof(float)));
  float* biases = reinterpret_cast<float*>(made->bias_.data());
  for (int64_t j = 0; bias != nullptr && j < n; ++j) biases[j] = bias[j * bias_stride];
  float* base = reinterpret_cast<float*>(made->panels_.data());
  const PackedMatrix& m = *made;
  pool.parallel_for(panels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t own = m.is_half(p) ? width / 2 : width;
      const int64_t first = p * width, count = std::min(own, n - first);
      float* to = base + p * depth * width;
      // Row by row of the weights: reads run along memory, writes go to few lines at a time.
      constexpr int64_t kChunk = 64;
      for (int64_t k0 = 0; k0 < depth; k0 += kChunk) {
        const int64_t k1 = std::min(depth, k0 + kChunk);
        for (int64_t j = 0; j < own; ++j) {
          const float* from = data + (first + j) * stride_n;
          for (int64_t k = k0; k < k1; ++k) to[k * own + j] = j < count ? from[offsets[static_cast<size_t>(k)]] : 0.0f;
        }
      }
    }
  });
  return std::shared_ptr<const PackedMatrix>(std::move(made));
}

void run_product(const Product& p, ThreadPool& pool) {
  if (p.rows == 0 || p.weights->columns() == 0) return;
  const int64_t tile_rows = tile_set().rows, panels = p.weights->panel_count();
  const int64_t weight_bytes = p.weights->columns() * p.weights->depth() * 4;
  int64_t block = kMaxBlockRows;
  if (weight_bytes <= kCachedWeightBytes) {
    block = std::clamp<int64_t>(kRowBlockBytes / std::max<int64_t>(p.weights->depth() * 4, 1), 2 * tile_rows, kMaxBlockRows);
  }
  const double work = static_cast<double>(p.rows) * static_cast<double>(p.weights->columns()) * static_cast<double>(p.weights->depth());
  const auto threads = static_cast<int64_t>(std::clamp(work / kThreadGrain, 1.0, static_cast<double>(pool.thread_count())));
  if (threads > 1) block = std::min(block, ceil_div(p.rows, threads));
  block = ceil_div(block, tile_rows) * tile_rows;
  const int64_t blocks = ceil_div(p.rows, block);
  const int64_t parts = std::min(panels, ceil_div(threads, blocks));
  const int64_t part = ceil_div(panels, parts);
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts * block, panel = i % parts * part;
      if (panel >= panels) continue;
      run_block(p, row, std::min(p.rows, row + block), panel, std::min(panels, panel + part));
    }
  };
  if (threads == 1) return run(0, blocks * parts);
  pool.parallel_for(blocks * parts, 1, run);
}

}  // namespace pteron::cpu
