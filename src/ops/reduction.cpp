// The loops of reductions over outputs, threads and parts, which are the same for all folds. Called by reduction.h.
#include "ops/reduction.h"

namespace pteron::ops {

bool prefers_columns(const ReducePlan& plan) {
  if (plan.kept.empty() || plan.reduced.empty() || plan.outputs == 0) return false;
  return plan.kept.back().in_stride < plan.reduced.back().in_stride && plan.kept.back().size >= 8;
}

namespace detail {
namespace {

constexpr int64_t kMaxChunks = 16;      // parts of one output's elements that may run at once

void fold_rows(ThreadPool& pool, const ReducePlan& plan, int64_t units, const FoldLoops& loops) {
  const std::span<const Axis> kept(plan.kept.begin(), plan.kept.size());
  const int64_t chunks = std::min(kMaxChunks, units / 32);
  if (plan.outputs < 4 && chunks > 1) {
    Walker at(kept, 0);
    for (int64_t i = 0; i < plan.outputs; ++i, at.next()) {
      alignas(kMaxTotalBytes) std::byte totals[kMaxChunks][kMaxTotalBytes];
      pool.parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) loops.rows(loops.bound, at.in(), i, units * c / chunks, units * (c + 1) / chunks, totals[c]);
      });
      for (int64_t c = 1; c < chunks; ++c) loops.combine(loops.bound, totals[0], totals[c], 1);
      loops.sink(loops.bound, OutPlace{i, {at.out(0), at.out(1)}}, totals[0]);
    }
    return;
  }
  const int64_t grain = std::max<int64_t>(1, kGrainElems / std::max<int64_t>(plan.count, 16));
  pool.parallel_for(plan.outputs, grain, [&](int64_t begin, int64_t end) {
    Walker at(kept, begin);
    alignas(kMaxTotalBytes) std::byte total[kMaxTotalBytes];
    for (int64_t i = begin; i < end; ++i, at.next()) {
      loops.rows(loops.bound, at.in(), i, 0, units, total);
      loops.sink(loops.bound, OutPlace{i, {at.out(0), at.out(1)}}, total);
    }
  });
}

void fold_columns(ThreadPool& pool, const ReducePlan& plan, const FoldLoops& loops) {
  const Axis side = plan.kept.back();
  const std::span<const Axis> outer(plan.kept.begin(), plan.kept.size() - 1);
  const int64_t tiles_per_row = ceil_div(side.size, kTile);
  const int64_t tiles = plan.outputs / side.size * tiles_per_row;
  const int64_t chunks = tiles < 8 ? std::clamp<int64_t>(plan.count / 512, 1, kMaxChunks) : 1;
  const auto run_tile = [&](int64_t tile, const Walker& at) {
    const int64_t first = tile % tiles_per_row * kTile;
    const int64_t width = std::min(kTile, side.size - first);
    const int64_t linear = tile / tiles_per_row * side.size + first;
    alignas(kMaxTotalBytes) std::byte totals[kMaxChunks][kTile * kMaxTotalBytes];
    const int64_t base = at.in() + first * side.in_stride;
    if (chunks == 1) {
      loops.columns(loops.bound, base, side.in_stride, width, linear, 0, plan.count, totals[0]);
    } else {
      pool.parallel_for(chunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c) {
          loops.columns(loops.bound, base, side.in_stride, width, linear, plan.count * c / chunks, plan.count * (c + 1) / chunks, totals[c]);
        }
      });
    }
    for (int64_t c = 1; c < chunks; ++c) loops.combine(loops.bound, totals[0], totals[c], width);
    for (int64_t j = 0; j < width; ++j) {
      const int64_t step = first + j;
      loops.sink(loops.bound, OutPlace{linear + j, {at.out(0) + step * side.out_stride[0], at.out(1) + step * side.out_stride[1]}},
                 totals[0] + static_cast<size_t>(j) * loops.total_bytes);
    }
  };
  const auto run = [&](int64_t begin, int64_t end) {
    Walker at(outer, begin / tiles_per_row);
    for (int64_t tile = begin; tile < end; ++tile) {
      run_tile(tile, at);
      if ((tile + 1) % tiles_per_row == 0) at.next();
    }
  };
  if (chunks > 1) {
    run(0, tiles);  // the parts run inside the tiles
  } else {
    pool.parallel_for(tiles, std::max<int64_t>(1, kGrainElems / (std::max<int64_t>(plan.count, 1) * std::min(kTile, side.size))), run);
  }
}

}  // namespace

void run_fold(ThreadPool& pool, const ReducePlan& plan, int64_t units, const FoldLoops& loops) {
  if (prefers_columns(plan)) {
    fold_columns(pool, plan, loops);
  } else {
    fold_rows(pool, plan, units, loops);
  }
}

}  // namespace detail
}  // namespace pteron::ops
