// Indexing along one dim: index_select, index_add, index_copy, index_fill, index_reduce; of the flattened tensor: take, put.
#include <algorithm>
#include <limits>

#include "ops/element.h"
#include "ops/index/kernels_dim.h"
#include "ops/index/reader.h"
#include "ops/view/run.h"
#include "ops/walk.h"
#include "tensor/dim_math.h"

namespace pteron::ops::index {

namespace {

/// A dim of a tensor taken apart: slices at `stride`, each of the other dims.
struct Slices {
  int dim = 0;
  int64_t size = 1, stride = 0;
  Sizes other_sizes, other_strides;
};

Status slices_of(const Tensor& t, int64_t dim, Slices* out) {
  PTERON_ASSIGN(out->dim, wrap_dim(dim, t.rank()));
  for (int d = 0; d < t.rank(); ++d) {
    if (d == out->dim) {
      out->size = t.size(d);
      out->stride = t.stride(d);
      continue;
    }
    out->other_sizes.push_back(t.size(d));
    out->other_strides.push_back(t.stride(d));
  }
  return ok_status();
}

/// The index vector: rank 0 counts as one index.
struct Picks {
  Reader reader;
  int64_t count = 1, stride = 0;
};

Status picks_of(const Tensor& index, Picks* out) {
  if (index.rank() > 1) return Status(Code::kInvalidInput, str_cat("index of rank ", index.rank(), ", expected 0 or 1"));
  PTERON_TRY(make_reader(index, &out->reader));
  if (index.rank() == 1) {
    out->count = index.size(0);
    out->stride = index.stride(0);
  }
  return ok_status();
}

/// Errors: kInvalidInput if a pick is outside [lowest, size).
Status check_picks(const Picks& picks, const Slices& slices, int64_t lowest) {
  for (int64_t i = 0; i < picks.count; ++i) {
    const int64_t at = picks.reader.at(i * picks.stride);
    if (at < lowest || at >= slices.size) {
      return Status(Code::kInvalidInput, str_cat("index ", at, " is out of bounds for dim ", slices.dim, " with size ", slices.size));
    }
  }
  return ok_status();
}

}  // namespace

Status index_select(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, Tensor& out) {
  Slices from, to;
  Picks picks;
  PTERON_TRY(slices_of(self, dim, &from));
  PTERON_TRY(picks_of(index, &picks));
  PTERON_TRY(check_picks(picks, from, 0));
  Sizes sizes(self.sizes());
  if (!sizes.empty()) sizes[static_cast<size_t>(from.dim)] = picks.count;
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  PTERON_TRY(slices_of(out, dim, &to));
  // Rows of the dims before `dim`, each with `count` blocks of the dims behind it.
  const auto lead = static_cast<size_t>(self.rank() == 0 ? 0 : from.dim);
  const auto tail = [&](const Sizes& list) { return Sizes(std::span<const int64_t>(list).subspan(lead)); };
  const auto head = [&](const Sizes& list) { return Sizes(std::span<const int64_t>(list).first(lead)); };
  const Block block = merged_block(tail(from.other_sizes), tail(to.other_strides), tail(from.other_strides));
  const Sizes outer = head(from.other_sizes);
  const int64_t rows = index_count(outer), count = picks.count;
  if (block.count() == 1) {  // single elements: a loop over the picks
    dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
      context.pool->parallel_for(rows, row_grain(count), [&](int64_t begin, int64_t end) {
        walk<2>(outer, {head(to.other_strides), head(from.other_strides)}, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes&) {
          T* target = out.as<T>() + at[0];
          const T* source = self.as<T>() + at[1];
          if (picks.reader.dtype == DType::kInt64 && picks.stride == 1) {
            const auto* list = static_cast<const int64_t*>(picks.reader.data);
            for (int64_t i = 0; i < count; ++i) target[i * to.stride] = source[list[i] * from.stride];
            return;
          }
          for (int64_t i = 0; i < count; ++i) target[i * to.stride] = source[picks.reader.at(i * picks.stride) * from.stride];
        });
      });
    });
    return ok_status();
  }
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    context.pool->parallel_for(rows * count, row_grain(block.count()), [&](int64_t begin, int64_t end) {
      Sizes all = outer, to_strides = head(to.other_strides), from_strides = head(from.other_strides);
      all.push_back(count);
      to_strides.push_back(to.stride);
      from_strides.push_back(0);
      walk<2>(all, {to_strides, from_strides}, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes& where) {
        const int64_t pick = picks.reader.at(where[where.size() - 1] * picks.stride);
        copy_block(block, out.as<T>() + at[0], self.as<T>() + at[1] + pick * from.stride);
      });
    });
  });
  return ok_status();
}

namespace {

/// self copied to out; slices of out and source; checked picks.
struct Writing {
  Slices to, from;
  Picks picks;
  Block block;  ///< other dims: a is out, b is source
};

Status begin_writing(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor* source, int64_t lowest, Tensor& out,
                     Writing* w) {
  PTERON_TRY(resize(out, self.sizes()));
  if (out.view.data != self.view.data) PTERON_TRY(copy_tensor(context, self.view, out.view));
  PTERON_TRY(slices_of(out, dim, &w->to));
  PTERON_TRY(picks_of(index, &w->picks));
  PTERON_TRY(check_picks(w->picks, w->to, lowest == 0 ? 0 : -w->to.size));
  if (source == nullptr) {
    w->block = merged_block(w->to.other_sizes, w->to.other_strides, w->to.other_strides);
    return ok_status();
  }
  if (source->dtype() != out.dtype()) {
    return Status(Code::kInvalidInput, str_cat("source of dtype ", dtype_name(source->dtype()), " for ", dtype_name(out.dtype())));
  }
  Sizes source_others = w->to.other_sizes, source_strides = w->to.other_sizes;
  if (source->rank() == out.rank()) {
    PTERON_TRY(slices_of(*source, dim, &w->from));
    source_others = w->from.other_sizes;
    source_strides = w->from.other_strides;
  } else if (source->rank() == 0 && index_count(w->to.other_sizes) == 1) {
    for (int64_t& s : source_strides) s = 0;  // one number
  } else {
    return Status(Code::kInvalidInput, str_cat("source of shape ", shape_text(source->sizes()), " for shape ", shape_text(out.sizes())));
  }
  if (!(source_others == w->to.other_sizes) || w->from.size != w->picks.count) {
    return Status(Code::kInvalidInput, str_cat("source of shape ", shape_text(source->sizes()), " does not fit ", w->picks.count, " indices into dim ", w->to.dim,
                                               " of shape ", shape_text(out.sizes())));
  }
  w->block = merged_block(w->to.other_sizes, w->to.other_strides, source_strides);
  return ok_status();
}

/// fn(out element, source element) for every pick, in order of the picks.
template <typename T, typename Fn>
void for_picks(const Writing& w, const Tensor& source, Tensor& out, Fn&& fn) {
  if (index_count(w.to.other_sizes) == 0) return;
  for (int64_t i = 0; i < w.picks.count; ++i) {
    const int64_t pick = w.picks.reader.at(i * w.picks.stride);
    T* to = out.as<T>() + (pick < 0 ? pick + w.to.size : pick) * w.to.stride;
    for_block(w.block, to, source.as<T>() + i * w.from.stride, fn);
  }
}

}  // namespace

Status index_add(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha, Tensor& out) {
  Writing w;
  PTERON_TRY(begin_writing(context, self, dim, index, &source, 0, out, &w));
  const bool done = dispatch_dtype(out.dtype(), [&]<typename T>() {
    const auto scale = to_math(scalar_as<T>(alpha));
    for_picks<T>(w, source, out, [&](T& x, const T& y) {
      if constexpr (std::is_same_v<T, bool>) {
        x = x || (y && scale);
      } else {
        x = from_math<T>(static_cast<MathOf<T>>(to_math(x) + static_cast<MathOf<T>>(to_math(y) * scale)));
      }
    });
  });
  return done ? ok_status() : Status(Code::kUnsupported, str_cat("index_add of dtype ", dtype_name(out.dtype())));
}

Status index_copy(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, Tensor& out) {
  Writing w;
  PTERON_TRY(begin_writing(context, self, dim, index, &source, 0, out, &w));
  dispatch_size(dtype_size(out.dtype()), [&]<typename T>() {
    for_picks<T>(w, source, out, [](T& x, const T& y) { x = y; });
  });
  return ok_status();
}

namespace {

Status fill_picks(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Element& value, Tensor& out) {
  if (self.numel() == 0) return resize(out, self.sizes());  // PyTorch does not look at the index then
  Writing w;
  PTERON_TRY(begin_writing(context, self, dim, index, nullptr, -1, out, &w));
  w.from.stride = 0;
  dispatch_size(dtype_size(out.dtype()), [&]<typename T>() {
    const T fill = *reinterpret_cast<const T*>(value.bytes);
    for_picks<T>(w, out, out, [&](T& x, const T&) { x = fill; });
  });
  return ok_status();
}

}  // namespace

Status index_fill(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, Scalar value, Tensor& out) {
  Element element;
  PTERON_TRY(element_of(value, self.dtype(), &element));
  return fill_picks(context, self, dim, index, element, out);
}

Status index_fill_tensor(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& value, Tensor& out) {
  if (value.numel() != 1) return Status(Code::kInvalidInput, str_cat("fill value of shape ", shape_text(value.sizes())));
  Element element;
  TensorView one = value.view;
  one.rank = 0;
  PTERON_TRY(copy_tensor(context, one, make_contiguous_view(self.dtype(), {}, element.bytes)));
  return fill_picks(context, self, dim, index, element, out);
}

size_t index_reduce_workspace(std::span<runtime::Value* const> args) {
  // Counts of the mean, one per slice; and a mark per slice that was overwritten with the neutral element.
  return args[0]->tag == runtime::Tag::kTensor ? static_cast<size_t>(args[0]->tensor.numel() + 1) * sizeof(int64_t) : 0;
}

namespace {

enum class Reduce : uint8_t { kProd, kMean, kMax, kMin };

template <typename T>
MathOf<T> neutral(Reduce reduce) {
  using M = MathOf<T>;
  if (reduce == Reduce::kProd) return M(1);
  if (reduce == Reduce::kMean) return M(0);
  if constexpr (std::is_floating_point_v<M>) {
    return reduce == Reduce::kMax ? -std::numeric_limits<M>::infinity() : std::numeric_limits<M>::infinity();
  } else if constexpr (std::is_integral_v<M>) {
    return reduce == Reduce::kMax ? std::numeric_limits<M>::lowest() : std::numeric_limits<M>::max();
  } else {
    return M(0);
  }
}

template <typename M>
M combine(Reduce reduce, M x, M y) {
  if (reduce == Reduce::kProd) return static_cast<M>(x * y);
  if (reduce == Reduce::kMean) return static_cast<M>(x + y);
  if constexpr (std::is_floating_point_v<M>) {
    if (x != x || y != y) return x != x ? x : y;  // NaN wins
  }
  return reduce == Reduce::kMax ? (x < y ? y : x) : (y < x ? y : x);
}

/// Quotient of the mean: floor division for integers, as ATen's div with rounding_mode "floor".
template <typename M>
M mean_of(M sum, int64_t count) {
  if constexpr (std::is_floating_point_v<M>) {
    return sum / static_cast<M>(count);
  } else if constexpr (std::is_same_v<M, bool>) {
    return sum;
  } else {
    return static_cast<M>(floor_div(static_cast<int64_t>(sum), count));
  }
}

template <typename T>
void reduce_slices(const Writing& w, Reduce reduce, bool include_self, const Tensor& source, Tensor& out, int64_t* counts) {
  std::fill(counts, counts + w.to.size, include_self ? 1 : 0);
  const Block self_block = merged_block(w.to.other_sizes, w.to.other_strides, w.to.other_strides);
  if (index_count(w.to.other_sizes) == 0) return;
  for (int64_t i = 0; i < w.picks.count; ++i) {
    const int64_t pick = w.picks.reader.at(i * w.picks.stride);
    T* to = out.as<T>() + pick * w.to.stride;
    if (counts[pick]++ == 0) for_block(self_block, to, to, [&](T& x, const T&) { x = from_math<T>(neutral<T>(reduce)); });
    for_block(w.block, to, source.as<T>() + i * w.from.stride, [&](T& x, const T& y) { x = from_math<T>(combine(reduce, to_math(x), to_math(y))); });
  }
  if (reduce != Reduce::kMean) return;
  for (int64_t s = 0; s < w.to.size; ++s) {
    if (counts[s] <= 1) continue;
    T* to = out.as<T>() + s * w.to.stride;
    for_block(self_block, to, to, [&](T& x, const T&) { x = from_math<T>(mean_of(to_math(x), counts[s])); });
  }
}

}  // namespace

Status index_reduce(KernelContext& context, const Tensor& self, int64_t dim, const Tensor& index, const Tensor& source, std::string_view name,
                    bool include_self, Tensor& out) {
  Reduce reduce = Reduce::kProd;
  if (name == "mean") {
    reduce = Reduce::kMean;
  } else if (name == "amax") {
    reduce = Reduce::kMax;
  } else if (name == "amin") {
    reduce = Reduce::kMin;
  } else if (name != "prod") {
    return Status(Code::kUnsupported, str_cat("index_reduce by ", name));
  }
  Writing w;
  PTERON_TRY(begin_writing(context, self, dim, index, &source, 0, out, &w));
  if (context.scratch.size() < static_cast<size_t>(w.to.size) * sizeof(int64_t)) return Status(Code::kInternal, "index_reduce: scratch is too small");
  auto* counts = reinterpret_cast<int64_t*>(context.scratch.data());
  const bool done = dispatch_real(out.dtype(), [&]<typename T>() { reduce_slices<T>(w, reduce, include_self, source, out, counts); });
  return done ? ok_status() : Status(Code::kUnsupported, str_cat("index_reduce of dtype ", dtype_name(out.dtype())));
}

Status take(KernelContext& context, const Tensor& self, const Tensor& index, Tensor& out) {
  Reader reader;
  PTERON_TRY(make_reader(index, &reader));
  PTERON_TRY(resize(out, index.sizes()));
  const int64_t count = self.numel();
  const bool flat = self.view.is_contiguous();
  BadIndex bad;
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    context.pool->parallel_for(index.numel(), 4096, [&](int64_t begin, int64_t end) {
      walk<2>(index.sizes(), {Sizes(index.strides()), Sizes(out.strides())}, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes&) {
        int64_t i = reader.at(at[0]);
        if (i < -count || i >= count) return bad.note(i, 0, count);
        if (i < 0) i += count;
        out.as<T>()[at[1]] = self.as<T>()[flat ? i : view::offset_of(self.view, i)];
      });
    });
  });
  return bad.status();
}

Status put(KernelContext& context, const Tensor& self, const Tensor& index, const Tensor& source, bool accumulate, Tensor& out) {
  Reader reader;
  PTERON_TRY(make_reader(index, &reader));
  if (source.numel() != index.numel()) return Status(Code::kInvalidInput, str_cat("put of ", source.numel(), " values at ", index.numel(), " indices"));
  if (source.dtype() != self.dtype()) return Status(Code::kInvalidInput, str_cat("put of ", dtype_name(source.dtype()), " values into ", dtype_name(self.dtype())));
  PTERON_TRY(resize(out, self.sizes()));
  if (out.view.data != self.view.data) PTERON_TRY(copy_tensor(context, self.view, out.view));
  const int64_t count = out.numel(), writes = index.numel();
  const bool flat = out.view.is_contiguous() && index.view.is_contiguous() && source.view.is_contiguous();
  const auto place = [flat](const TensorView& tensor, int64_t k) { return flat ? k : view::offset_of(tensor, k); };
  BadIndex bad;
  const auto each = [&](auto&& write) {
    for (int64_t k = 0; k < writes; ++k) {
      const int64_t i = reader.at(place(index.view, k));
      if (i < -count || i >= count) return bad.note(i, 0, count);
      write(place(out.view, i < 0 ? i + count : i), place(source.view, k));
    }
  };
  if (!accumulate) {
    dispatch_size(dtype_size(out.dtype()), [&]<typename T>() { each([&](int64_t to, int64_t from) { out.as<T>()[to] = source.as<T>()[from]; }); });
    return bad.status();
  }
  const bool done = dispatch_dtype(out.dtype(), [&]<typename T>() {
    each([&](int64_t to, int64_t from) {
      T& x = out.as<T>()[to];
      const T y = source.as<T>()[from];
      if constexpr (std::is_same_v<T, bool>) {
        x = x || y;
      } else {
        x = from_math<T>(static_cast<MathOf<T>>(to_math(x) + to_math(y)));
      }
    });
  });
  if (!done) return Status(Code::kUnsupported, str_cat("put of dtype ", dtype_name(out.dtype())));
  return bad.status();
}

}  // namespace pteron::ops::index
