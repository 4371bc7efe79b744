// index and index_put: several index tensors or masks, broadcast, negative values. Indexing along one dim is in kernel_dim.cpp.
#include <algorithm>

#include "ops/copy.h"
#include "ops/element.h"
#include "ops/index/kernels_dim.h"
#include "ops/index/reader.h"
#include "ops/kernels.h"
#include "ops/reduction.h"
#include "ops/walk.h"

namespace pteron::ops::index {
namespace {

using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::TensorList;
using runtime::Value;

bool is_mask(const Tensor& t) { return t.dtype() == DType::kBool || t.dtype() == DType::kUInt8; }

/// One indexed dim of self: where its indices are and what they step over.
struct Entry {
  Reader reader;
  Sizes strides;        ///< over the positions' dims
  int64_t size = 0;     ///< of the dim
  int64_t stride = 0;   ///< of self along the dim
  int64_t dim = 0;
};

/// self[indices] as positions x rest.
struct Plan {
  RankList<Entry> entries;
  Sizes positions;                   ///< broadcast shape of the indices
  Sizes rest_sizes, rest_strides;    ///< dims of self that stay
  size_t insert_at = 0;              ///< where the positions stand among the rest in the result
  Sizes result_sizes() const {
    Sizes sizes = rest_sizes;
    for (size_t i = 0; i < positions.size(); ++i) sizes.insert(insert_at + i, positions[i]);
    return sizes;
  }
};

/// Coordinates of a mask's non-zero elements, one column per dim, written to scratch. Returns their count.
int64_t expand_mask(const Tensor& mask, int64_t* columns, int64_t capacity) {
  int64_t count = 0;
  const auto* data = mask.as<uint8_t>();
  if (mask.rank() == 0) return data[0] != 0 ? 1 : 0;
  const size_t last = static_cast<size_t>(mask.rank()) - 1;
  const int64_t n = mask.sizes()[last], step = mask.strides()[last];
  if (n == 0) return 0;
  int64_t* inner = columns + static_cast<int64_t>(last) * capacity;
  walk<1>(mask.sizes().first(last), {Sizes(mask.strides().first(last))}, 0, mask.numel() / n, [&](const std::array<int64_t, 1>& at, const Sizes& index) {
    const int64_t before = count;
    // No branch on the mask: every number is written, and stays if its element is set. There is room until the last one is found.
    for (int64_t i = 0; i < n && count < capacity; ++i) {
      inner[count] = i;
      count += data[at[0] + i * step] != 0 ? 1 : 0;
    }
    for (size_t d = 0; d < last; ++d) std::fill(columns + static_cast<int64_t>(d) * capacity + before, columns + static_cast<int64_t>(d) * capacity + count, index[d]);
  });
  return count;
}

size_t mask_bytes(const Tensor& mask) { return static_cast<size_t>(mask.numel()) * static_cast<size_t>(mask.rank()) * sizeof(int64_t); }

size_t workspace(std::span<Value* const> args) {
  size_t bytes = 0;
  for (const Value* item : args[1]->items) {
    if (item != nullptr && item->tag == Tag::kTensor && is_mask(item->tensor)) bytes += mask_bytes(item->tensor);
  }
  return bytes;
}

Status add_entry(Plan& plan, const Tensor& self, int64_t dim, Reader reader, std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  if (plan.entries.size() >= kMaxRank) return Status(Code::kInvalidInput, "too many indices");
  PTERON_TRY(broadcast_sizes(plan.positions, sizes, &plan.positions));
  Entry entry{reader, Sizes(strides), self.size(static_cast<int>(dim)), self.stride(static_cast<int>(dim)), dim};
  // Until all shapes are known the strides keep their own rank; finish_plan aligns them.
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) entry.strides[d] = 0;
  }
  plan.entries.push_back(entry);
  return ok_status();
}

Status make_plan(KernelContext& context, const Tensor& self, TensorList indices, Plan* plan) {
  std::byte* scratch = context.scratch.data();
  size_t left = context.scratch.size();
  int dim = 0, groups = 0;
  bool in_group = false;
  for (const Value* item : indices) {
    const bool given = item != nullptr && item->tag == Tag::kTensor;
    const int covered = given && is_mask(item->tensor) ? item->tensor.rank() : 1;
    if (dim + covered > self.rank()) return Status(Code::kInvalidInput, str_cat("too many indices for a tensor of rank ", self.rank()));
    if (!given) {
      plan->rest_sizes.push_back(self.size(dim));
      plan->rest_strides.push_back(self.stride(dim++));
      in_group = false;
      continue;
    }
    if (!in_group && groups++ == 0) plan->insert_at = plan->rest_sizes.size();
    in_group = true;
    const Tensor& index = item->tensor;
    if (!is_mask(index)) {
      Reader reader;
      PTERON_TRY(make_reader(index, &reader));
      PTERON_TRY(add_entry(*plan, self, dim++, reader, index.sizes(), index.strides()));
      continue;
    }
    for (int d = 0; d < covered; ++d) {
      if (index.size(d) != self.size(dim + d)) {
        return Status(Code::kInvalidInput, str_cat("mask of shape ", shape_text(index.sizes()), " does not match shape ", shape_text(self.sizes()), " at dim ", dim));
      }
    }
    if (mask_bytes(index) > left) return Status(Code::kInternal, "index: scratch is too small");
    auto* columns = reinterpret_cast<int64_t*>(scratch);
    const int64_t capacity = index.numel(), count = expand_mask(index, columns, capacity);
    scratch += mask_bytes(index);
    left -= mask_bytes(index);
    for (int d = 0; d < covered; ++d) PTERON_TRY(add_entry(*plan, self, dim++, {columns + d * capacity, DType::kInt64}, Sizes{count}, Sizes{1}));
    // A mask of rank 0 indexes no dim but adds a position dim of size 0 or 1.
    if (covered == 0) PTERON_TRY(broadcast_sizes(plan->positions, Sizes{count}, &plan->positions));
  }
  for (; dim < self.rank(); ++dim) {
    plan->rest_sizes.push_back(self.size(dim));
    plan->rest_strides.push_back(self.stride(dim));
  }
  if (groups > 1) plan->insert_at = 0;
  if (plan->positions.size() + plan->rest_sizes.size() > kMaxRank) return Status(Code::kUnsupported, str_cat("index result of rank over ", kMaxRank));
  for (Entry& entry : plan->entries) {
    while (entry.strides.size() < plan->positions.size()) entry.strides.insert(0, 0);
  }
  return ok_status();
}

/// Parts of the result's strides: along the positions, along the rest.
void split_strides(const Plan& plan, std::span<const int64_t> strides, Sizes* positions, Sizes* rest) {
  for (size_t d = 0; d < strides.size(); ++d) {
    const bool is_position = d >= plan.insert_at && d < plan.insert_at + plan.positions.size();
    (is_position ? positions : rest)->push_back(strides[d]);
  }
}

/// Drops position dims of size 1 and merges neighbours that all entries and `strides` step over evenly.
void merge_positions(Plan& plan, Sizes& strides) {
  Sizes sizes, to;
  RankList<Sizes> entries(plan.entries.size(), Sizes());
  for (size_t d = 0; d < plan.positions.size(); ++d) {
    const int64_t size = plan.positions[d];
    if (size == 1) continue;
    bool even = !sizes.empty() && to.back() == strides[d] * size;
    for (size_t e = 0; e < entries.size() && even; ++e) even = entries[e].back() == plan.entries[e].strides[d] * size;
    if (!even) {
      sizes.push_back(size);
      to.push_back(strides[d]);
      for (size_t e = 0; e < entries.size(); ++e) entries[e].push_back(plan.entries[e].strides[d]);
      continue;
    }
    sizes.back() *= size;
    to.back() = strides[d];
    for (size_t e = 0; e < entries.size(); ++e) entries[e].back() = plan.entries[e].strides[d];
  }
  plan.positions = sizes;
  strides = to;
  for (size_t e = 0; e < entries.size(); ++e) plan.entries[e].strides = entries[e];
}

constexpr int64_t kPositionRun = 256;            ///< positions whose offsets are computed at once
constexpr int64_t kBadOffset = INT64_MIN / 2;    ///< far below every offset: an index of the position is out of bounds

/// Adds what an entry contributes to the offsets of n positions; data: its first index, `step` elements before the next.
template <typename I>
void add_offsets(const Entry& entry, const I* data, int64_t step, int64_t n, int64_t* offsets, BadIndex& bad) {
  bool outside = false;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t index = data[i * step];
    outside |= index < -entry.size || index >= entry.size;
    const auto wrapped = static_cast<uint64_t>(index < 0 ? index + entry.size : index);
    offsets[i] = static_cast<int64_t>(static_cast<uint64_t>(offsets[i]) + wrapped * static_cast<uint64_t>(entry.stride));
  }
  if (!outside) [[likely]] return;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t index = data[i * step];
    if (index >= -entry.size && index < entry.size) continue;
    bad.note(index, entry.dim, entry.size);
    offsets[i] = kBadOffset;
  }
}

/// Calls fn(offset in self, offset by `strides`) for the positions [begin, end) in order; those with an index out of bounds are noted and left out.
/// Requires: merge_positions(plan, strides) was called.
template <typename Fn>
void each_position(const Plan& plan, const Sizes& strides, int64_t begin, int64_t end, BadIndex& bad, Fn&& fn) {
  const size_t rank = plan.positions.size();
  const int64_t inner = rank == 0 ? 1 : plan.positions.back(), step = rank == 0 ? 0 : strides.back();
  const auto start_of = [&](const Sizes& by, int64_t position) {
    int64_t at = 0;
    for (size_t d = rank; d-- > 0; position /= plan.positions[d]) at += position % plan.positions[d] * by[d];
    return at;
  };
  int64_t offsets[kPositionRun];
  for (int64_t i = begin; i < end;) {
    const int64_t n = std::min({inner - i % inner, end - i, kPositionRun});
    std::fill_n(offsets, n, 0);
    for (const Entry& entry : plan.entries) {
      const int64_t from = start_of(entry.strides, i), entry_step = rank == 0 ? 0 : entry.strides.back();
      entry.reader.visit([&](const auto* data) { add_offsets(entry, data + from, entry_step, n, offsets, bad); });
    }
    const int64_t at = start_of(strides, i);
    for (int64_t k = 0; k < n; ++k) {
      if (offsets[k] > kBadOffset / 2) fn(offsets[k], at + k * step);
    }
    i += n;
  }
}

Status index(KernelContext& context, const Tensor& self, TensorList indices, Tensor& out) {
  Plan plan;
  PTERON_TRY(make_plan(context, self, indices, &plan));
  const Sizes sizes = plan.result_sizes();
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  Sizes position_strides, rest_strides;
  split_strides(plan, out.strides(), &position_strides, &rest_strides);
  const Block block = merged_block(plan.rest_sizes, rest_strides, plan.rest_strides);
  merge_positions(plan, position_strides);
  BadIndex bad;
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    context.pool->parallel_for(index_count(plan.positions), row_grain(block.count()), [&](int64_t begin, int64_t end) {
      each_position(plan, position_strides, begin, end, bad, [&](int64_t offset, int64_t at) {
        if (block.sizes.empty()) {
          out.as<T>()[at] = self.as<T>()[offset];
        } else {
          copy_block(block, out.as<T>() + at, self.as<T>() + offset);
        }
      });
    });
  });
  return bad.status();
}

/// Writes `values` at plan's positions of `target` (whose strides the plan has). In order, so that the last of equal indices stays.
template <typename T, bool accumulate>
void put_values(const Plan& plan, const TensorView& target, const TensorView& values, const Sizes& position_strides, const Block& block, BadIndex& bad) {
  each_position(plan, position_strides, 0, index_count(plan.positions), bad, [&](int64_t offset, int64_t at) {
    T* to = target.as<T>() + offset;
    const T* from = values.as<T>() + at;
    if constexpr (accumulate) {
      for_block(block, to, from, [](T& x, const T& y) {
        if constexpr (std::is_same_v<T, bool>) {
          x = x || y;
        } else {
          x = from_math<T>(static_cast<MathOf<T>>(to_math(x) + to_math(y)));
        }
      });
    } else if (block.sizes.empty()) {
      *to = *from;
    } else {
      copy_block(block, to, from);
    }
  });
}

/// The mask among `indices` if it is all that indexes, and the dim where it starts.
const Tensor* only_mask(TensorList indices, int* dim) {
  const Tensor* mask = nullptr;
  int at = 0;
  for (const Value* item : indices) {
    const bool given = item != nullptr && item->tag == Tag::kTensor;
    if (given && (mask != nullptr || !is_mask(item->tensor))) return nullptr;
    if (given) {
      mask = &item->tensor;
      *dim = at;
    }
    at += 1;
  }
  return mask;
}

/// Writes one value where the mask, which covers the dims from `dim` on, is set.
/// Requires: the mask's sizes are those of the dims.
template <typename T>
void fill_masked(KernelContext& context, const TensorView& target, const Tensor& mask, int dim, T value) {
  RankList<Axis> axes;
  for (int d = 0; d < target.rank; ++d) {
    const bool covered = d >= dim && d < dim + mask.rank();
    axes.push_back({target.size(d), covered ? mask.stride(d - dim) : 0, {target.stride(d), 0}});
  }
  detail::merge_axes(axes);
  const Axis inner = axes.empty() ? Axis{1, 0, {0, 0}} : axes.back();
  const std::span<const Axis> outer(axes.begin(), axes.empty() ? 0 : axes.size() - 1);
  constexpr int64_t kPiece = 4096;
  const int64_t pieces = (inner.size + kPiece - 1) / kPiece;
  const auto* set = mask.as<uint8_t>();
  context.pool->parallel_for(target.numel() / inner.size * pieces, row_grain(std::min(inner.size, kPiece)), [&](int64_t begin, int64_t end) {
    Walker row(outer, begin / pieces);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % pieces * kPiece, n = std::min(kPiece, inner.size - first), to_step = inner.out_stride[0];
      const uint8_t* from = set + row.in() + first * inner.in_stride;
      T* to = target.as<T>() + row.out(0) + first * to_step;
      if (inner.in_stride == 1 && to_step == 1) {
        for (int64_t k = 0; k < n; ++k) to[k] = from[k] != 0 ? value : to[k];
      } else {
        for (int64_t k = 0; k < n; ++k) to[k * to_step] = from[k * inner.in_stride] != 0 ? value : to[k * to_step];
      }
      if ((i + 1) % pieces == 0) row.next();
    }
  });
}

/// True if the call only fills under one mask, and then done: no positions are collected (ATen does so too).
bool put_one_value(KernelContext& context, TensorList indices, const Tensor& values, Tensor& target) {
  int dim = 0;
  const Tensor* mask = only_mask(indices, &dim);
  if (mask == nullptr || values.numel() != 1 || values.dtype() != target.dtype() || dim + mask->rank() > target.rank() || target.numel() == 0) return false;
  for (int d = 0; d < mask->rank(); ++d) {
    if (mask->size(d) != target.size(dim + d)) return false;
  }
  dispatch_size(dtype_size(target.dtype()), [&]<typename T>() { fill_masked<T>(context, target.view, *mask, dim, *values.as<T>()); });
  return true;
}

Status put_into(KernelContext& context, TensorList indices, const Tensor& values, bool accumulate, Tensor& target) {
  if (!accumulate && put_one_value(context, indices, values, target)) return ok_status();
  Plan plan;
  PTERON_TRY(make_plan(context, target, indices, &plan));
  const Sizes sizes = plan.result_sizes();
  if (values.dtype() != target.dtype()) {
    return Status(Code::kInvalidInput, str_cat("index_put of ", dtype_name(values.dtype()), " values into ", dtype_name(target.dtype())));
  }
  if (index_count(sizes) == 0) return ok_status();
  Sizes value_strides(sizes.size(), 0);
  const int missing = static_cast<int>(sizes.size()) - values.rank();
  for (int d = 0; d < values.rank(); ++d) {
    if (missing < 0 ? values.size(d) != 1 : values.size(d) != 1 && values.size(d) != sizes[static_cast<size_t>(d + missing)]) {
      return Status(Code::kInvalidInput, str_cat("values of shape ", shape_text(values.sizes()), " do not broadcast to ", shape_text(sizes)));
    }
    if (missing >= 0 && values.size(d) != 1) value_strides[static_cast<size_t>(d + missing)] = values.stride(d);
  }
  Sizes position_strides, rest_strides;
  split_strides(plan, value_strides, &position_strides, &rest_strides);
  const Block block = merged_block(plan.rest_sizes, plan.rest_strides, rest_strides);
  merge_positions(plan, position_strides);
  BadIndex bad;
  bool done = true;
  if (accumulate) {
    done = dispatch_dtype(target.dtype(), [&]<typename T>() { put_values<T, true>(plan, target.view, values.view, position_strides, block, bad); });
  } else {
    done = dispatch_size(dtype_size(target.dtype()), [&]<typename T>() { put_values<T, false>(plan, target.view, values.view, position_strides, block, bad); });
  }
  if (!done) return Status(Code::kUnsupported, str_cat("index_put of dtype ", dtype_name(target.dtype())));
  return bad.status();
}

Status index_put(KernelContext& context, const Tensor& self, TensorList indices, const Tensor& values, bool accumulate, Tensor& out) {
  PTERON_TRY(resize(out, self.sizes()));
  if (out.view.data != self.view.data) PTERON_TRY(copy_tensor(context, self.view, out.view));
  return put_into(context, indices, values, accumulate, out);
}

Status index_put_in_place(KernelContext& context, Tensor& self, TensorList indices, const Tensor& values, bool accumulate) {
  return put_into(context, indices, values, accumulate, self);
}

constexpr Kernel kTable[] = {
    {"aten::index.Tensor_out", PTERON_KERNEL(index), workspace},
    {"aten::index_put.out", PTERON_KERNEL(index_put), workspace},
    {"aten::index_put_", PTERON_KERNEL(index_put_in_place), workspace},
    {"aten::index_select.out", PTERON_KERNEL(index_select)},
    {"aten::index_add.out", PTERON_KERNEL(index_add)},
    {"aten::index_copy.out", PTERON_KERNEL(index_copy)},
    {"aten::index_fill.int_Scalar_out", PTERON_KERNEL(index_fill)},
    {"aten::index_fill.int_Tensor_out", PTERON_KERNEL(index_fill_tensor)},
    {"aten::index_reduce.out", PTERON_KERNEL(index_reduce), index_reduce_workspace},
    {"aten::take.out", PTERON_KERNEL(take)},
    {"aten::put.out", PTERON_KERNEL(put)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::index
