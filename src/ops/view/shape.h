// Layout rules of view ops as templates over the dim type: int64_t in kernels, ir::Expr in inference. Included by both halves of the
// rooms that make views. Knows no node, no tensor and no dtype.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>

#include "base/str_cat.h"
#include "pteron/status.h"
#include "tensor/dim_math.h"
#include "tensor/shape.h"

namespace pteron::ops::view {

/// Sizes, strides and offset (elements) of a strided tensor.
template <typename D>
struct Strided {
  RankList<D> sizes, strides;
  D offset = 0;
  int rank() const { return static_cast<int>(sizes.size()); }
};

/// index + size for a negative index. The version for symbolic dims is in symbolic.h.
template <typename D>
D wrapped(D index, D size);
template <>
inline int64_t wrapped(int64_t index, int64_t size) {
  return index < 0 ? index + size : index;
}

template <typename D>
D product(std::span<const D> sizes) {
  D n = 1;
  for (const D& s : sizes) n = n * s;
  return n;
}

template <typename D>
RankList<D> row_major(std::span<const D> sizes) {
  RankList<D> strides(sizes.size(), D(1));
  for (size_t d = sizes.size(); d-- > 1;) strides[d - 1] = strides[d] * dim_max(sizes[d], D(1));
  return strides;
}

/// True if the strides are known to be row-major (dims of size 1 do not count).
template <typename D>
bool is_row_major(const Strided<D>& v) {
  D expected = 1;
  for (size_t d = v.sizes.size(); d-- > 0;) {
    if (dim_is(v.sizes[d], 1)) continue;
    if (!dim_same(v.strides[d], expected)) return false;
    expected = expected * dim_max(v.sizes[d], D(1));
  }
  return true;
}

template <typename D>
Status permute(Strided<D>& v, std::span<const int64_t> dims) {
  if (static_cast<int>(dims.size()) != v.rank()) {
    return Status(Code::kInvalidInput, str_cat("permutation of ", dims.size(), " dims for a tensor of rank ", v.rank()));
  }
  const Strided<D> from = v;
  uint32_t seen = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    PTERON_ASSIGN(const int d, wrap_dim(dims[i], v.rank()));
    if ((seen & (1u << d)) != 0) return Status(Code::kInvalidInput, str_cat("permutation names dim ", d, " twice"));
    seen |= 1u << d;
    v.sizes[i] = from.sizes[static_cast<size_t>(d)];
    v.strides[i] = from.strides[static_cast<size_t>(d)];
  }
  return ok_status();
}

template <typename D>
Status transpose(Strided<D>& v, int64_t dim0, int64_t dim1) {
  PTERON_ASSIGN(const int a, wrap_dim(dim0, v.rank()));
  PTERON_ASSIGN(const int b, wrap_dim(dim1, v.rank()));
  if (v.rank() == 0) return ok_status();
  std::swap(v.sizes[static_cast<size_t>(a)], v.sizes[static_cast<size_t>(b)]);
  std::swap(v.strides[static_cast<size_t>(a)], v.strides[static_cast<size_t>(b)]);
  return ok_status();
}

template <typename D>
Status unsqueeze(Strided<D>& v, int64_t dim) {
  PTERON_ASSIGN(const int wrapped_dim, wrap_dim(dim, v.rank() + 1));
  const auto d = static_cast<size_t>(wrapped_dim);
  if (v.rank() >= kMaxRank) return Status(Code::kUnsupported, str_cat("rank over ", kMaxRank));
  const D stride = d >= v.sizes.size() ? D(1) : v.sizes[d] * v.strides[d];
  v.sizes.insert(d, D(1));
  v.strides.insert(d, stride);
  return ok_status();
}

/// Drops the dims of `dims` whose size is known to be 1.
template <typename D>
Status squeeze(Strided<D>& v, std::span<const int64_t> dims) {
  uint32_t drop = 0;
  for (const int64_t dim : dims) {
    PTERON_ASSIGN(const int d, wrap_dim(dim, v.rank()));
    drop |= 1u << d;
  }
  for (size_t d = v.sizes.size(); d-- > 0;) {
    if ((drop & (1u << d)) == 0 || !dim_is(v.sizes[d], 1)) continue;
    v.sizes.erase(d);
    v.strides.erase(d);
  }
  return ok_status();
}

template <typename D>
Status expand(Strided<D>& v, std::span<const D> sizes) {
  const size_t rank = v.sizes.size();
  if (sizes.size() < rank || sizes.size() > kMaxRank) {
    return Status(Code::kInvalidInput, str_cat("expansion to ", sizes.size(), " dims of a tensor of rank ", rank));
  }
  const Strided<D> from = v;
  const size_t lead = sizes.size() - rank;
  v.sizes = RankList<D>(sizes);
  v.strides = RankList<D>(sizes.size(), D(0));
  for (size_t i = 0; i < rank; ++i) {
    const D want = sizes[lead + i], have = from.sizes[i];
    const bool keep = dim_is(want, -1) || dim_same(want, have);
    if (!keep && !dim_is(have, 1) && dim_differ(want, have)) {
      return Status(Code::kInvalidInput, str_cat("dim ", lead + i, " does not expand: its size is neither 1 nor the new size"));
    }
    v.sizes[lead + i] = dim_is(want, -1) ? have : want;
    v.strides[lead + i] = keep || !dim_is(have, 1) ? from.strides[i] : D(0);
  }
  for (size_t i = 0; i < lead; ++i) {
    if (dim_is(sizes[i], -1)) return Status(Code::kInvalidInput, "size -1 in a leading dim of an expansion");
  }
  return ok_status();
}

template <typename D>
Status select(Strided<D>& v, int64_t dim, D index) {
  if (v.rank() == 0) return Status(Code::kInvalidInput, "select of a tensor of rank 0");
  PTERON_ASSIGN(const int wrapped_dim, wrap_dim(dim, v.rank()));
  const auto d = static_cast<size_t>(wrapped_dim);
  if (dim_is_const(index) && dim_is_const(v.sizes[d])) {
    const int64_t i = dim_value(index), size = dim_value(v.sizes[d]);
    if (i < -size || i >= size) return Status(Code::kInvalidInput, str_cat("index ", i, " is out of bounds for dim ", d, " of size ", size));
  }
  v.offset = v.offset + wrapped(index, v.sizes[d]) * v.strides[d];
  v.sizes.erase(d);
  v.strides.erase(d);
  return ok_status();
}

template <typename D>
Status slice(Strided<D>& v, int64_t dim, std::optional<D> start, std::optional<D> end, D step) {
  if (v.rank() == 0) return Status(Code::kInvalidInput, "slice of a tensor of rank 0");
  PTERON_ASSIGN(const int wrapped_dim, wrap_dim(dim, v.rank()));
  const auto d = static_cast<size_t>(wrapped_dim);
  if (dim_is_const(step) && dim_value(step) <= 0) return Status(Code::kInvalidInput, str_cat("slice step ", dim_value(step), " is not positive"));
  const D size = v.sizes[d];
  const D from = start ? dim_min(dim_max(wrapped(*start, size), D(0)), size) : D(0);
  const bool to_end = !end || dim_is(*end, std::numeric_limits<int64_t>::max());
  const D to = to_end ? size : dim_min(dim_max(wrapped(*end, size), from), size);
  v.sizes[d] = dim_is(step, 1) ? to - from : ceil_div(to - from, step);
  v.offset = v.offset + from * v.strides[d];
  v.strides[d] = v.strides[d] * step;
  return ok_status();
}

template <typename D>
Status narrow(Strided<D>& v, int64_t dim, D start, D length) {
  if (v.rank() == 0) return Status(Code::kInvalidInput, "narrow of a tensor of rank 0");
  PTERON_ASSIGN(const int wrapped_dim, wrap_dim(dim, v.rank()));
  const auto d = static_cast<size_t>(wrapped_dim);
  const D from = wrapped(start, v.sizes[d]);
  if (dim_is_const(from) && dim_is_const(length) && dim_is_const(v.sizes[d])) {
    const int64_t f = dim_value(from), n = dim_value(length), size = dim_value(v.sizes[d]);
    if (n < 0 || f < 0 || f > size || n > size - f) {
      return Status(Code::kInvalidInput, str_cat("start ", f, " and length ", n, " leave dim ", d, " of size ", size));
    }
  }
  v.sizes[d] = length;
  v.offset = v.offset + from * v.strides[d];
  return ok_status();
}

template <typename D>
Status diagonal(Strided<D>& v, int64_t offset, int64_t dim1, int64_t dim2) {
  PTERON_ASSIGN(const int a, wrap_dim(dim1, v.rank()));
  PTERON_ASSIGN(const int b, wrap_dim(dim2, v.rank()));
  if (a == b || v.rank() < 2) return Status(Code::kInvalidInput, str_cat("diagonal dims ", dim1, " and ", dim2, " are the same"));
  const auto d1 = static_cast<size_t>(a), d2 = static_cast<size_t>(b);
  const D rows = offset < 0 ? v.sizes[d1] + D(offset) : v.sizes[d1];
  const D columns = offset > 0 ? v.sizes[d2] - D(offset) : v.sizes[d2];
  const D length = dim_max(dim_min(rows, columns), D(0));
  const D stride = v.strides[d1] + v.strides[d2];
  if (!dim_is(length, 0)) v.offset = v.offset + (offset >= 0 ? D(offset) * v.strides[d2] : D(-offset) * v.strides[d1]);
  for (const size_t d : {std::max(d1, d2), std::min(d1, d2)}) {
    v.sizes.erase(d);
    v.strides.erase(d);
  }
  v.sizes.push_back(length);
  v.strides.push_back(stride);
  return ok_status();
}

template <typename D>
Status unfold(Strided<D>& v, int64_t dim, D size, D step) {
  if (v.rank() == 0) {
    v.sizes.push_back(D(1));
    v.strides.push_back(D(1));
    v.sizes[0] = size;
    return ok_status();
  }
  PTERON_ASSIGN(const int wrapped_dim, wrap_dim(dim, v.rank()));
  const auto d = static_cast<size_t>(wrapped_dim);
  if (v.rank() >= kMaxRank) return Status(Code::kUnsupported, str_cat("rank over ", kMaxRank));
  if (dim_is_const(size) && dim_is_const(v.sizes[d]) && (dim_value(size) < 0 || dim_value(size) > dim_value(v.sizes[d]))) {
    return Status(Code::kInvalidInput, str_cat("window of ", dim_value(size), " in dim ", d, " of size ", dim_value(v.sizes[d])));
  }
  if (dim_is_const(step) && dim_value(step) <= 0) return Status(Code::kInvalidInput, str_cat("unfold step ", dim_value(step), " is not positive"));
  const D stride = v.strides[d];
  v.sizes[d] = floor_div(v.sizes[d] - size, step) + D(1);
  v.strides[d] = stride * step;
  v.sizes.push_back(size);
  v.strides.push_back(stride);
  return ok_status();
}

/// Replaces one -1 in `sizes` by what is left of the elements of `from`.
template <typename D>
Status infer_unknown_size(std::span<const D> from, RankList<D>& sizes) {
  int unknown = -1;
  D rest = 1;
  RankList<D> numerator(from);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!dim_is(sizes[i], -1)) continue;
    if (unknown >= 0) return Status(Code::kInvalidInput, "more than one size is -1");
    unknown = static_cast<int>(i);
  }
  if (unknown < 0) return ok_status();
  RankList<D> divisors;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (static_cast<int>(i) == unknown) continue;
    bool cancelled = false;
    for (size_t j = 0; j < numerator.size() && !cancelled; ++j) {
      if (!dim_same(numerator[j], sizes[i]) || dim_is(sizes[i], 0)) continue;
      numerator.erase(j);
      cancelled = true;
    }
    if (!cancelled) divisors.push_back(sizes[i]);
  }
  for (const D& s : numerator) rest = rest * s;
  for (const D& s : divisors) {
    if (dim_is(s, 0)) return Status(Code::kInvalidInput, "size -1 is ambiguous beside a size 0");
    rest = floor_div(rest, s);
  }
  sizes[static_cast<size_t>(unknown)] = rest;
  return ok_status();
}

/// ATen's computeStride: strides of `sizes` (same number of elements) in the memory of v; false if there are none.
template <typename D>
bool view_strides(const Strided<D>& v, const RankList<D>& sizes, RankList<D>* out) {
  if (is_row_major(v) || dim_is(product<D>(v.sizes), 0)) {
    *out = row_major<D>(sizes);
    return true;
  }
  RankList<D> strides(sizes.size(), D(1));
  int view_d = static_cast<int>(sizes.size()) - 1;
  D chunk_stride = v.strides[v.sizes.size() - 1];
  D tensor_numel = 1, view_numel = 1;
  for (size_t d = v.sizes.size(); d-- > 0;) {
    tensor_numel = tensor_numel * v.sizes[d];
    if (d > 0 && (dim_is(v.sizes[d - 1], 1) || dim_same(v.strides[d - 1], tensor_numel * chunk_stride))) continue;
    while (view_d >= 0 && (!dim_same(view_numel, tensor_numel) || dim_is(sizes[static_cast<size_t>(view_d)], 1))) {
      strides[static_cast<size_t>(view_d)] = view_numel * chunk_stride;
      view_numel = view_numel * sizes[static_cast<size_t>(view_d)];
      --view_d;
    }
    if (!dim_same(view_numel, tensor_numel)) return false;
    if (d == 0) break;
    chunk_stride = v.strides[d - 1];
    tensor_numel = 1;
    view_numel = 1;
  }
  if (view_d >= 0) return false;
  *out = strides;
  return true;
}

/// New sizes over the same elements. *aliases: false if the memory of v cannot express it (then the strides are row-major).
/// Errors: kInvalidInput if the numbers of elements differ.
template <typename D>
Status reshape(Strided<D>& v, std::span<const D> new_sizes, bool* aliases) {
  if (new_sizes.size() > kMaxRank) return Status(Code::kUnsupported, str_cat("rank over ", kMaxRank));
  RankList<D> sizes(new_sizes);
  PTERON_TRY(infer_unknown_size<D>(v.sizes, sizes));
  const D have = product<D>(v.sizes), want = product<D>(sizes);
  if (dim_is_const(have) && dim_is_const(want) && dim_value(have) != dim_value(want)) {
    return Status(Code::kInvalidInput, str_cat("view of ", dim_value(have), " elements as a shape of ", dim_value(want)));
  }
  RankList<D> strides;
  *aliases = view_strides(v, sizes, &strides);
  v.strides = *aliases ? strides : row_major<D>(sizes);
  v.sizes = sizes;
  return ok_status();
}

}  // namespace pteron::ops::view
