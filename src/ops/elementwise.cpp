// The tile engine. Every operand is coalesced on its own against the order in which the first output lies in memory, so that dense
// operands are used in place and only the others are gathered and converted tile by tile.
#include "ops/elementwise.h"

#include <algorithm>
#include <cstring>

#include "base/str_cat.h"

namespace pteron::ops {

namespace {

/// Places of one operand's elements along the flat iteration space: own merged dims, innermost last.
struct Walker {
  std::byte* base = nullptr;
  size_t element_bytes = 1;
  int rank = 0;
  std::array<int64_t, kMaxRank> size{};
  std::array<int64_t, kMaxRank> stride{};

  bool is_single() const { return rank == 0 || (rank == 1 && stride[0] == 0); }
  bool is_dense() const { return rank == 1 && stride[0] == 1; }
};

/// Dims of the iteration, outermost first, by descending stride of the output.
RankList<uint8_t> iteration_order(const TensorView& out) {
  RankList<uint8_t> order;
  for (int d = 0; d < out.rank; ++d) order.push_back(static_cast<uint8_t>(d));
  if (out.is_contiguous()) return order;
  std::stable_sort(order.begin(), order.end(), [&](uint8_t a, uint8_t b) { return out.stride(a) > out.stride(b); });
  return order;
}

Walker make_walker(const TensorView& view, std::span<const int64_t> sizes, const RankList<uint8_t>& order) {
  Walker w;
  w.base = static_cast<std::byte*>(view.data);
  w.element_bytes = dtype_size(view.dtype);
  const int missing = static_cast<int>(sizes.size()) - view.rank;
  for (const uint8_t d : order) {
    const int64_t size = sizes[d];
    if (size == 1) continue;
    const int own = static_cast<int>(d) - missing;
    const int64_t stride = own < 0 || view.size(own) == 1 ? 0 : view.stride(own);
    if (w.rank > 0) {
      int64_t& outer_size = w.size[static_cast<size_t>(w.rank - 1)];
      int64_t& outer_stride = w.stride[static_cast<size_t>(w.rank - 1)];
      if (outer_stride == stride * size) {
        outer_size *= size;
        outer_stride = stride;
        continue;
      }
    }
    w.size[static_cast<size_t>(w.rank)] = size;
    w.stride[static_cast<size_t>(w.rank)] = stride;
    ++w.rank;
  }
  return w;
}

/// Calls run(pointer to the first element, count) for the stretches of the innermost dim that cover [begin, begin + n).
template <typename T, typename Run>
void for_runs(const Walker& w, int64_t begin, int64_t n, Run&& run) {
  std::array<int64_t, kMaxRank> index{};
  T* at = reinterpret_cast<T*>(w.base);
  int64_t rest = begin;
  for (size_t d = static_cast<size_t>(w.rank); d-- > 0;) {
    index[d] = rest % w.size[d];
    rest /= w.size[d];
    at += index[d] * w.stride[d];
  }
  const size_t inner = static_cast<size_t>(w.rank - 1);
  while (n > 0) {
    const int64_t count = std::min(n, w.size[inner] - index[inner]);
    run(at, count);
    n -= count;
    if (n == 0) return;
    at -= index[inner] * w.stride[inner];
    index[inner] = 0;
    for (size_t d = inner; d-- > 0;) {
      at += w.stride[d];
      if (++index[d] < w.size[d]) break;
      at -= w.size[d] * w.stride[d];
      index[d] = 0;
    }
  }
}

template <typename T>
void gather_elements(const Walker& w, int64_t begin, int64_t n, T* to) {
  if (w.is_single()) {
    std::fill_n(to, n, *reinterpret_cast<const T*>(w.base));
    return;
  }
  const int64_t stride = w.stride[static_cast<size_t>(w.rank - 1)];
  for_runs<T>(w, begin, n, [&](const T* at, int64_t count) {
    if (stride == 1) {
      for (int64_t i = 0; i < count; ++i) to[i] = at[i];
    } else if (stride == 0) {
      for (int64_t i = 0; i < count; ++i) to[i] = *at;
    } else {
      for (int64_t i = 0; i < count; ++i) to[i] = at[i * stride];
    }
    to += count;
  });
}

template <typename T>
void scatter_elements(const Walker& w, int64_t begin, int64_t n, const T* from) {
  if (w.rank == 0) {
    *reinterpret_cast<T*>(w.base) = *from;
    return;
  }
  const int64_t stride = w.stride[static_cast<size_t>(w.rank - 1)];
  for_runs<T>(w, begin, n, [&](T* at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) at[i * stride] = from[i];
    from += count;
  });
}

void gather(const Walker& w, int64_t begin, int64_t n, std::byte* to) {
  dispatch_size(w.element_bytes, [&]<typename T>() { gather_elements<T>(w, begin, n, reinterpret_cast<T*>(to)); });
}

void scatter(const Walker& w, int64_t begin, int64_t n, const std::byte* from) {
  dispatch_size(w.element_bytes, [&]<typename T>() { scatter_elements<T>(w, begin, n, reinterpret_cast<const T*>(from)); });
}

/// One operand of a running loop.
struct Lane {
  Walker walker;
  ConvertFn convert = nullptr;  ///< null: the stored dtype is the dtype of the arithmetic
  bool direct = false;          ///< elements are used where they lie
};

/// What the parts of one run_tiles call share.
struct Loop {
  std::array<Lane, kMaxTileInputs> in;
  std::array<Lane, kMaxTileOutputs> out;
  size_t in_count = 0, out_count = 0;
  TileFn fn = nullptr;
  const void* params = nullptr;
  int64_t tile = 0;   ///< elements at a time
  bool all_direct = true;

  void run(int64_t begin, int64_t end) const;
};

void load(const Lane& lane, int64_t begin, int64_t n, std::byte* raw, std::byte* to) {
  const Walker& w = lane.walker;
  if (lane.convert == nullptr) return gather(w, begin, n, to);
  if (w.is_dense()) return lane.convert(n, w.base + static_cast<size_t>(begin) * w.element_bytes, to);
  gather(w, begin, n, raw);
  lane.convert(n, raw, to);
}

void store(const Lane& lane, int64_t begin, int64_t n, std::byte* raw, const std::byte* from) {
  const Walker& w = lane.walker;
  if (lane.convert == nullptr) return scatter(w, begin, n, from);
  if (w.is_dense()) return lane.convert(n, from, w.base + static_cast<size_t>(begin) * w.element_bytes);
  lane.convert(n, from, raw);
  scatter(w, begin, n, raw);
}

void Loop::run(int64_t begin, int64_t end) const {
  alignas(64) std::array<std::array<std::byte, kTileBytes>, kMaxTileInputs + kMaxTileOutputs + 1> tiles;
  std::byte* raw = tiles.back().data();
  std::array<const void*, kMaxTileInputs> from{};
  std::array<void*, kMaxTileOutputs> to{};
  for (size_t k = 0; k < in_count; ++k) {
    from[k] = tiles[k].data();
    if (in[k].walker.is_single() && !in[k].direct) load(in[k], 0, std::min(tile, end - begin), raw, tiles[k].data());
  }
  for (size_t k = 0; k < out_count; ++k) to[k] = tiles[kMaxTileInputs + k].data();
  const int64_t step = all_direct ? end - begin : tile;
  for (int64_t at = begin; at < end; at += step) {
    const int64_t n = std::min(step, end - at);
    for (size_t k = 0; k < in_count; ++k) {
      if (in[k].direct) {
        from[k] = in[k].walker.base + static_cast<size_t>(at) * in[k].walker.element_bytes;
      } else if (!in[k].walker.is_single()) {
        load(in[k], at, n, raw, tiles[k].data());
      }
    }
    for (size_t k = 0; k < out_count; ++k) {
      if (out[k].direct) to[k] = out[k].walker.base + static_cast<size_t>(at) * out[k].walker.element_bytes;
    }
    fn(n, to.data(), from.data(), params);
    for (size_t k = 0; k < out_count; ++k) {
      if (!out[k].direct) store(out[k], at, n, raw, tiles[kMaxTileInputs + k].data());
    }
  }
}

Status no_conversion(DType from, DType to) {
  return Status(Code::kUnsupported, str_cat("no conversion from ", dtype_name(from), " to ", dtype_name(to)));
}

}  // namespace

void TensorOrScalar::add_to(Promotion& p) const {
  if (tensor != nullptr) return p.add_tensor(tensor->dtype(), tensor->rank());
  if (scalar.kind == Scalar::Kind::kDouble) return p.add_float();
  if (scalar.kind == Scalar::Kind::kBool) return p.add_bool();
  p.add_int();
}

TileInput::TileInput(const Scalar& scalar, DType compute_as) : compute(compute_as), is_value(true) {
  view.dtype = compute_as;
  const bool is_double = scalar.kind == Scalar::Kind::kDouble;
  const ConvertFn convert = find_convert(is_double ? DType::kFloat64 : DType::kInt64, compute_as);
  if (convert != nullptr) convert(1, is_double ? static_cast<const void*>(&scalar.floating) : static_cast<const void*>(&scalar.integer), value.data());
}

TileInput::TileInput(const TensorOrScalar& either, DType compute_as) {
  *this = either.tensor != nullptr ? TileInput(*either.tensor, compute_as) : TileInput(either.scalar, compute_as);
}

TileInput::TileInput(const TensorOrScalar& either, DType compute_as, DType common) : TileInput(either, compute_as) {
  if (either.tensor != nullptr || !is_reduced_float(common)) return;
  const TileInput rounded(either.scalar, common);
  if (const ConvertFn widen = find_convert(common, compute_as); widen != nullptr) widen(1, rounded.value.data(), value.data());
}

Status unsupported_dtype(DType dtype) { return Status(Code::kUnsupported, str_cat("does not take dtype ", dtype_name(dtype))); }

Status run_tiles(KernelContext& context, std::span<const int64_t> sizes, std::span<const TileInput> inputs, std::span<const TileOutput> outputs,
                 TileFn fn, const void* params, int64_t grain) {
  int64_t total = 1;
  for (const int64_t size : sizes) total *= size;
  if (total == 0) return ok_status();
  Loop loop;
  loop.fn = fn;
  loop.params = params;
  loop.in_count = inputs.size();
  loop.out_count = outputs.size();
  const RankList<uint8_t> order = iteration_order(outputs[0].view);
  size_t widest = 1;
  const auto prepare = [&](Lane& lane, const TensorView& view, DType compute, bool is_output) -> Status {
    lane.walker = make_walker(view, sizes, order);
    if (view.dtype != compute) {
      lane.convert = is_output ? find_convert(compute, view.dtype) : find_convert(view.dtype, compute);
      if (lane.convert == nullptr) return is_output ? no_conversion(compute, view.dtype) : no_conversion(view.dtype, compute);
    }
    lane.direct = lane.convert == nullptr && (lane.walker.is_dense() || total == 1);
    loop.all_direct = loop.all_direct && lane.direct;
    widest = std::max({widest, dtype_size(view.dtype), dtype_size(compute)});
    return ok_status();
  };
  for (size_t k = 0; k < inputs.size(); ++k) {
    TensorView view = inputs[k].view;
    if (inputs[k].is_value) view.data = const_cast<std::byte*>(inputs[k].value.data());
    PTERON_TRY(prepare(loop.in[k], view, inputs[k].compute, false));
  }
  for (size_t k = 0; k < outputs.size(); ++k) PTERON_TRY(prepare(loop.out[k], outputs[k].view, outputs[k].compute, true));
  loop.tile = kTileBytes / static_cast<int64_t>(widest);
  if (total <= grain) {
    loop.run(0, total);
    return ok_status();
  }
  context.pool->parallel_for(total, grain, [&loop](int64_t begin, int64_t end) { loop.run(begin, end); });
  return ok_status();
}

Status broadcast_inputs(std::span<const TileInput> inputs, Sizes* out) {
  Sizes sizes;
  for (const TileInput& input : inputs) {
    if (!input.is_value) PTERON_TRY(broadcast_sizes(sizes, input.view.sizes(), &sizes));
  }
  *out = sizes;
  return ok_status();
}

Status run_elementwise(KernelContext& context, std::span<const TileInput> inputs, Tensor& out, DType out_compute, TileFn fn, const void* params,
                       int64_t grain) {
  Sizes sizes;
  PTERON_TRY(broadcast_inputs(inputs, &sizes));
  PTERON_TRY(runtime::resize(out, sizes));
  const TileOutput output{out.view, out_compute};
  return run_tiles(context, sizes, inputs, {&output, 1}, fn, params, grain);
}

}  // namespace pteron::ops
