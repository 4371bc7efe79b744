// Slices along one dim: what softmax, scans, orderings and other kernels that see a whole row at once walk over. Runtime half only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "ops/reduction.h"

namespace pteron::ops {

/// All slices of a tensor along a dim, with the strides of up to two outs of the same rank.
/// Units:   strides in elements.
struct Slices {
  RankList<Axis> outer;         ///< loops over slices, outermost first
  int64_t count = 1;            ///< slices
  int64_t n = 1;                ///< elements of a slice
  int64_t in_stride = 1;
  int64_t out_stride[2] = {1, 1};
  /// True if neighbouring slices, not the elements of one, lie side by side.
  bool side_by_side() const { return !outer.empty() && n > 1 && outer.back().in_stride < in_stride && outer.back().size >= 8; }
  std::span<const Axis> axes() const { return {outer.begin(), outer.size()}; }
};

/// Requires: dim wrapped; outs of the input's rank, equal in the other dims.
inline Slices plan_slices(const TensorView& in, int dim, std::span<const TensorView* const> outs) {
  Slices s;
  if (in.rank == 0) return s;
  const ReducePlan plan = plan_reduction(in, uint32_t{1} << dim, true, outs);
  s.outer = plan.kept;
  s.count = plan.outputs;
  s.n = in.size(dim);
  s.in_stride = in.stride(dim);
  for (size_t k = 0; k < outs.size(); ++k) s.out_stride[k] = outs[k]->stride(dim);
  return s;
}

/// Slices that a kernel with scratch works on at once, each with its own part of the scratch.
inline constexpr int64_t kScratchLanes = 16;

/// Scratch lanes for a number of slices.
inline int64_t scratch_lanes(int64_t slices) { return std::clamp<int64_t>(slices, 1, kScratchLanes); }

/// Calls fn(at, lane) for every slice, slices of one lane one after the other; lane < scratch_lanes(count).
/// Threads: lanes run at once.
template <typename Fn>
void for_each_slice(ThreadPool& pool, const Slices& s, int64_t slice_cost, const Fn& fn) {
  const int64_t lanes = s.count * slice_cost < kGrainElems ? 1 : scratch_lanes(s.count);
  pool.parallel_for(lanes, 1, [&](int64_t first, int64_t last) {
    for (int64_t lane = first; lane < last; ++lane) {
      const int64_t begin = s.count * lane / lanes, end = s.count * (lane + 1) / lanes;
      Walker at(s.axes(), begin);
      for (int64_t i = begin; i < end; ++i, at.next()) fn(at, lane);
    }
  });
}

}  // namespace pteron::ops
