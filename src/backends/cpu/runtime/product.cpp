// Packing of weights, blocks of rows, threads, epilogues.
#include "backends/cpu/runtime/product.h"

#include <algorithm>
#include <cstring>

#include "backends/cpu/payload.h"
#include "backends/cpu/runtime/pack.h"
#include "backends/cpu/runtime/pointwise_ops.h"
#include "backends/cpu/runtime/tile.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "tensor/dim_math.h"

namespace pteron::cpu {
namespace {

// Weights up to this size stay in the second-level cache while small blocks of rows pass by; larger ones are streamed once per large block.
constexpr int64_t kCachedWeightBytes = 192 << 10;
constexpr int64_t kRowBlockBytes = 96 << 10;
// Sums go through memory between blocks of the depth, which costs more than panels that come from the second-level cache for every tile. A block of
// rows must stay there, too: it is smaller on processors without AVX-512.
constexpr int64_t kMaxDepthBlock = 512;
constexpr int64_t kNarrowDepthBlock = 256;
// More lines at once wait for each other.
constexpr int64_t kMaxPrefetchLines = 8;
// Rows are gathered for at least so many columns: below, the copy costs more than it saves.
constexpr int64_t kGatherColumns = 128;
// Below this many multiplications a second thread costs more than it saves.
constexpr double kThreadGrain = 1 << 17;
constexpr int64_t kTasksEach = 4;
// So many rows for every thread and each takes rows of its own, although all then read all weights: what a thread wrote is what it reads next.
constexpr int64_t kOwnRows = 48;

struct Named {
  std::string_view name;
  PointwiseOp op;
};
constexpr Named kFunctions[] = {
    {"gelu", PointwiseOp::k_gelu},           {"gelu_tanh", PointwiseOp::k_gelu_tanh}, {"silu", PointwiseOp::k_silu}, {"hardswish", PointwiseOp::k_hardswish},
    {"hardsigmoid", PointwiseOp::k_hardsigmoid}, {"sigmoid", PointwiseOp::k_sigmoid},     {"tanh", PointwiseOp::k_tanh},
};

int64_t depth_block() { return tile_set().columns == kMaxTileColumns ? kMaxDepthBlock : kNarrowDepthBlock; }
/// A depth up to this is one block.
int64_t undivided_depth() { return depth_block() * 3 / 2; }

/// A part of the depth: whole taps, or a piece of one.
struct DepthBlock {
  int64_t taps = 1;
  const int64_t* steps = kNoStep;
  int64_t run = 0;
  int64_t start = 0;  ///< elements from a row's begin
  int64_t depth = 0;  ///< sums done before this block
  int64_t size() const { return taps * run; }
};

/// Calls fn(block, is_last) for blocks of about depth_block().
template <typename Fn>
void for_depth_blocks(const Product& p, Fn&& fn) {
  const int64_t run = p.weights->depth() / p.taps, size = depth_block();
  if (run * p.taps <= undivided_depth()) return fn(DepthBlock{p.taps, p.steps, run, 0, 0}, true);
  int64_t start = 0;
  if (run <= size) {
    const int64_t blocks = ceil_div(p.taps, size / run), group = ceil_div(p.taps, blocks);
    for (int64_t tap = 0; tap < p.taps; tap += group) {
      const int64_t taps = std::min(group, p.taps - tap);
      fn(DepthBlock{taps, p.steps + tap, run, start, tap * run}, tap + taps == p.taps);
      for (int64_t t = tap; t < tap + taps; ++t) start += p.steps[t];
    }
    return;
  }
  const int64_t piece = ceil_div(ceil_div(run, ceil_div(run, size)), int64_t{kPrefetchSteps}) * kPrefetchSteps;
  for (int64_t tap = 0; tap < p.taps; start += p.steps[tap++]) {
    for (int64_t k = 0; k < run; k += piece) {
      const int64_t part = std::min(piece, run - k);
      fn(DepthBlock{1, kNoStep, part, start + k, tap * run + k}, tap + 1 == p.taps && k + part == run);
    }
  }
}

/// Whether the first rows lie a multiple of a page apart: they would push each other out of the caches.
bool rows_collide(const Product& p) {
  if (p.rows < 2) return false;
  const float* rows[2];
  p.rows_of(p.context, 0, 2, rows);
  return (reinterpret_cast<uintptr_t>(rows[1]) - reinterpret_cast<uintptr_t>(rows[0])) % 4096 == 0;
}

/// The rows' part of the block, one after the other in `to`.
void gather_rows(const DepthBlock& block, int64_t count, const float** rows, float* to) {
  const auto bytes = static_cast<size_t>(block.run) * sizeof(float);
  for (int64_t i = 0; i < count; ++i) {
    const float* from = rows[i] + block.start;
    rows[i] = to;
    for (int64_t t = 0; t < block.taps; ++t, to += block.run) {
      std::memcpy(to, from, bytes);
      from += block.steps[t];
    }
  }
}

/// The part of a panel that begins at `depth`.
const float* panel_at(const Product& p, int64_t panel, int64_t depth) {
  return p.weights->panel(panel) + depth * (p.weights->is_half(panel) ? tile_set().columns / 2 : tile_set().columns);
}

/// to[k, j] = from[k, j] * scale[k], in panels of `width` columns: far less work than the rows that it is multiplied with.
void scale_panel(const float* from, const float* scale, int64_t depth, int64_t width, float* to) {
  for (int64_t k = 0; k < depth; ++k, from += width, to += width) {
    const float factor = scale[k];
    for (int64_t j = 0; j < width; ++j) to[j] = from[j] * factor;
  }
}

/// Rows [first, last) of panels [panel, end), for one part of the depth; `next_task` is read behind the last one.
void run_depth_block(const Product& p, const DepthBlock& block, bool is_last, const float* const* rows, int64_t first, int64_t last, int64_t panel, int64_t end,
                     const float* next_task) {
  const TileSet& tiles = tile_set();
  Tile tile;
  alignas(64) float scaled[kMaxDepthBlock * 3 / 2 * kMaxTileColumns];
  tile.taps = block.taps;
  tile.steps = block.steps;
  tile.run = block.run;
  tile.c_row = p.c_row;
  tile.residual_row = p.residual_row;
  tile.low = is_last ? p.epilogue.low : -__builtin_huge_valf();
  tile.high = is_last ? p.epilogue.high : __builtin_huge_valf();
  // Tiles of nearly the same height: a low one at the end would leave most units idle.
  const float* const after = is_last ? next_task : panel_at(p, panel, block.depth + block.size());
  const int64_t tiles_down = ceil_div(last - first, int64_t{tiles.rows}), height = (last - first) / tiles_down, taller = (last - first) % tiles_down;
  for (; panel < end; ++panel) {
    const int64_t column = panel * tiles.columns;
    const bool half = p.weights->is_half(panel);
    const int64_t width = half ? tiles.columns / 2 : tiles.columns;
    tile.columns = static_cast<int>(std::min(p.weights->columns() - column, width));
    tile.panel = panel_at(p, panel, block.depth);
    if (p.scale != nullptr) {
      scale_panel(tile.panel, p.scale + block.depth, block.size(), width, scaled);
      tile.panel = scaled;
    }
    tile.bias = block.depth == 0 ? p.weights->bias(panel) : nullptr;
    const float* next = panel + 1 < end ? panel_at(p, panel + 1, block.depth) : after;
    // Every tile fetches its share of the next panel: few rows stand against much memory.
    const int64_t lines = ceil_div(ceil_div(block.size() * width, int64_t{kLineFloats}), tiles_down), steps = block.taps * (block.run / kPrefetchSteps);
    tile.next_lines = next == nullptr ? 0 : static_cast<int>(std::min(ceil_div(lines, std::max<int64_t>(steps, 1)), kMaxPrefetchLines));
    const TileFn* functions = half ? tiles.half : tiles.full;
    for (int64_t row = first, down = 0; row < last; ++down) {
      const int64_t count = height + (down < taller ? 1 : 0);
      tile.rows = rows + (row - first);
      tile.c = p.c + row * p.c_row + column;
      if (next != nullptr) tile.next = next + down * lines * kLineFloats;
      const float* const residual = is_last && p.residual != nullptr ? p.residual + row * p.residual_row + column : nullptr;
      tile.residual = p.epilogue.before(residual);
      functions[count](tile);
      if (is_last) p.epilogue.apply(tile.c, p.c_row, count, tile.columns, residual, p.residual_row);
      row += count;
    }
  }
}

/// Rows [first, last) of panels [panel, end); with `gathered`, rows are gathered there. `next` is read afterwards and may be null.
void run_block(const Product& p, int64_t first, int64_t last, int64_t panel, int64_t end, const float* next, float* gathered) {
  const float* rows[kMaxBlockRows];
  const float* part[kMaxBlockRows];
  const int64_t count = last - first;
  p.rows_of(p.context, first, count, rows);
  for_depth_blocks(p, [&](const DepthBlock& block, bool is_last) {
    if (gathered != nullptr) {
      std::copy(rows, rows + count, part);
      gather_rows(block, count, part, gathered);
      run_depth_block(p, DepthBlock{1, kNoStep, block.size(), 0, block.depth}, is_last, part, first, last, panel, end, next);
    } else {
      for (int64_t i = 0; i < count; ++i) part[i] = rows[i] + block.start;
      run_depth_block(p, block, is_last, part, first, last, panel, end, next);
    }
  });
}

/// A single row of panels [panel, end).
void run_row(const Product& p, int64_t panel, int64_t end) {
  const TileSet& tiles = tile_set();
  const float* x;
  p.rows_of(p.context, 0, 1, &x);
  const bool half = end > panel && p.weights->is_half(end - 1);
  const int64_t column = panel * tiles.columns;
  RowRun run;
  run.x = x;
  run.depth = p.weights->depth();
  run.panel = p.weights->panel(panel);
  run.panel_step = p.weights->depth() * tiles.columns;
  run.panels = end - panel - (half ? 1 : 0);
  run.c = p.c + column;
  run.bias = p.weights->bias(panel);
  const float* const residual = p.residual != nullptr ? p.residual + column : nullptr;
  run.residual = p.epilogue.before(residual);
  run.low = p.epilogue.low;
  run.high = p.epilogue.high;
  run.columns = std::min(p.weights->columns() - column, run.panels * tiles.columns);
  if (run.panels > 0) tiles.row(run);
  p.epilogue.apply(run.c, 0, 1, run.columns, residual);
  if (half) run_block(p, 0, 1, end - 1, end, nullptr, nullptr);
}

}  // namespace

void Epilogue::apply(float* values, int64_t row, int64_t rows, int64_t columns, const float* residual, int64_t residual_row) const {
  if (!adds_last) residual = nullptr;
  if (function == nullptr && residual == nullptr) return;
  if (row == columns && (residual == nullptr || residual_row == columns)) columns *= std::exchange(rows, 1);  // one run
  const PointwiseFn add = residual != nullptr ? pointwise_set().plain[static_cast<size_t>(PointwiseOp::k_add)] : nullptr;
  for (int64_t i = 0; i < rows; ++i, values += row) {
    if (function != nullptr) function(values, nullptr, nullptr, 0, values, static_cast<size_t>(columns));
    if (add == nullptr) continue;
    add(values, residual, nullptr, 0, values, static_cast<size_t>(columns));
    residual += residual_row;
  }
}

Result<Epilogue> epilogue_of(std::string_view activation, double low, double high) {
  Epilogue out;
  if (activation == "none") return out;
  const std::string_view whole = activation;
  out.adds_last = activation.ends_with(kThenResidual);
  if (out.adds_last) activation.remove_suffix(kThenResidual.size());
  if (activation == "clamp") {
    out.low = static_cast<float>(low);
    out.high = static_cast<float>(high);
    return out;
  }
  for (const Named& named : kFunctions) {
    if (named.name != activation) continue;
    out.function = pointwise_set().plain[static_cast<size_t>(named.op)];
    return out;
  }
  return Status(Code::kInvalidFile, str_cat("activation '", whole, "' is unknown"));
}

int64_t PackedMatrix::panel_count() const { return ceil_div(n_, int64_t{tile_set().columns}); }
const float* PackedMatrix::panel(int64_t index) const { return panels_ + index * depth_ * tile_set().columns; }
const float* PackedMatrix::bias(int64_t index) const { return reinterpret_cast<const float*>(memory_->bias.data()) + index * tile_set().columns; }
bool PackedMatrix::is_half(int64_t index) const { return n_ - index * tile_set().columns <= tile_set().columns / 2; }

uint64_t PackedMatrix::memory_bytes() const { return static_cast<uint64_t>(panel_count() * tile_set().columns * depth_) * sizeof(float); }

Result<std::vector<std::shared_ptr<PackedMatrix>>> PackedMatrix::create(int64_t count, int64_t n, int64_t depth) {
  const int64_t padded = ceil_div(n, int64_t{tile_set().columns}) * tile_set().columns, floats = padded * std::max<int64_t>(depth, 1);
  auto memory = std::make_shared<Memory>();
  PTERON_ASSIGN(memory->panels, Buffer::create(static_cast<size_t>(count * floats) * sizeof(float)));
  PTERON_ASSIGN(memory->bias, Buffer::create_zeroed(static_cast<size_t>(padded) * sizeof(float)));
  std::vector<std::shared_ptr<PackedMatrix>> made(static_cast<size_t>(count));
  const float* panels = reinterpret_cast<const float*>(memory->panels.data());
  for (std::shared_ptr<PackedMatrix>& matrix : made) {
    matrix = std::make_shared<PackedMatrix>();
    matrix->n_ = n;
    matrix->depth_ = depth;
    matrix->memory_ = memory;
    matrix->panels_ = panels;
    panels += floats;
  }
  return made;
}

Result<std::shared_ptr<const PackedMatrix>> PackedMatrix::make(const float* data, int64_t n, int64_t stride_n, std::span<const int64_t> offsets,
                                                               const float* bias, int64_t bias_stride, ThreadPool& pool) {
  PTERON_ASSIGN(const std::vector<std::shared_ptr<PackedMatrix>> one, create(1, n, static_cast<int64_t>(offsets.size())));
  const std::shared_ptr<PackedMatrix>& made = one[0];
  float* biases = reinterpret_cast<float*>(made->memory_->bias.data());
  for (int64_t j = 0; bias != nullptr && j < n; ++j) biases[j] = bias[j * bias_stride];
  const PanelPacker packer(offsets);
  const int64_t width = tile_set().columns;
  pool.parallel_for(made->panel_count(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t own = made->is_half(p) ? width / 2 : width;
      packer.pack(data + p * width * stride_n, stride_n, std::min(own, n - p * width), own, made->panel(p));
    }
  });
  return std::shared_ptr<const PackedMatrix>(made);
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
  // Threads share the rows, or the panels if these are more bytes and the rows few: what is shared is read once in all, the other by every thread.
  const bool by_rows = threads > 1 && (p.rows >= p.weights->columns() || p.rows >= threads * kOwnRows);
  int64_t blocks = ceil_div(p.rows, block);
  if (by_rows) blocks = std::min(ceil_div(blocks, threads) * threads, p.rows);
  block = ceil_div(p.rows, blocks);
  // Whole tiles, unless that would leave one thread more than the others.
  if (!by_rows) block = ceil_div(block, tile_rows) * tile_rows;
  blocks = ceil_div(p.rows, block);
  // Several tasks a thread, so that they end at the same time; none smaller than half of what a thread is worth.
  const int64_t tasks = threads == 1 ? 1 : std::clamp<int64_t>(static_cast<int64_t>(work / (kThreadGrain / 2)), threads, threads * kTasksEach);
  const int64_t parts = std::min(panels, ceil_div(tasks, blocks));
  const int64_t part = ceil_div(panels, parts);
  // Measured with rows 4,096 bytes apart: 13 % on Zen 3, nothing on Xeons; with other rows the copy is not won back.
  const bool gather = p.work != nullptr && rows_collide(p) && p.weights->depth() > undivided_depth() && part * tile_set().columns >= kGatherColumns;
  const bool single = p.rows == 1 && p.taps == 1 && p.scale == nullptr;
  const auto run = [&](int64_t begin, int64_t end) {
    const WorkBuffers::Loan loan(gather && !single ? p.work : nullptr, kMaxBlockRows * undivided_depth());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts * block, panel = i % parts * part;
      if (panel >= panels) continue;
      if (single) {
        run_row(p, panel, std::min(panels, panel + part));
      } else {
        // The task behind this one is most often the same thread's next.
        const int64_t then = (i + 1) % parts * part;
        const float* const after = i + 1 < blocks * parts && then < panels ? p.weights->panel(then) : p.after;
        run_block(p, row, std::min(p.rows, row + block), panel, std::min(panels, panel + part), after, loan.floats());
      }
    }
  };
  if (threads == 1) return run(0, blocks * parts);
  pool.parallel_for(blocks * parts, 1, run);
}

void EvenRows::get(const void* context, int64_t first, int64_t count, const float** out) {
  const EvenRows& rows = *static_cast<const EvenRows*>(context);
  for (int64_t i = 0; i < count; ++i) out[i] = rows.data + (first + i) * rows.stride;
}

void run_panels(const Product& p, int64_t first, int64_t last) { run_block(p, 0, p.rows, first, last, p.after, nullptr); }

WorkBuffers::Loan::Loan(const WorkBuffers* owner, int64_t count) : owner_(owner) {
  if (owner == nullptr) return;
  {
    const std::lock_guard lock(owner->mutex_);
    if (!owner->idle_.empty()) {
      buffer_ = std::move(owner->idle_.back());
      owner->idle_.pop_back();
    }
  }
  const uint64_t bytes = static_cast<uint64_t>(count) * sizeof(float);
  if (buffer_.size() >= bytes) return;
  buffer_ = Buffer();
  Result<Buffer> made = Buffer::create(bytes);
  if (made.ok()) buffer_ = std::move(*made);
}

WorkBuffers::Loan::~Loan() {
  if (owner_ == nullptr || buffer_.size() == 0) return;
  const std::lock_guard lock(owner_->mutex_);
  owner_->idle_.push_back(std::move(buffer_));
}

Result<std::shared_ptr<const runtime::KernelState>> WorkBuffers::shared(runtime::StateCache& cache) {
  return cache.find_or_make("work buffers", []() -> Result<std::shared_ptr<const runtime::KernelState>> {
    return std::shared_ptr<const runtime::KernelState>(std::make_shared<WorkBuffers>());
  });
}

}  // namespace pteron::cpu
