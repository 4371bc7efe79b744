// The tile engine. Every operand is coalesced on its own against the order in which the first output lies in memory, so that dense
// operands are used in place and only the others are gathered and converted tile by tile. Where rows are long enough, operands that are dense
// along rows are used in place too: broadcast ones and slices.
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

// ---- rows: one shape for all operands

/// Shortest rows that are worth a call of the tile function each: of operands in place or broadcast, and of others.
constexpr int64_t kShortestRow = 16, kShortestGatheredRow = 128;

/// How the elements of a row reach the tile function.
enum class Access : uint8_t {
  kInPlace,  ///< where they lie
  kOnce,     ///< one number for all rows
  kFill,     ///< one number a row
  kMove,     ///< gathered, scattered or converted
};

using FillFn = void (*)(const std::byte* from, int64_t n, std::byte* to);
template <typename T>
void fill_run(const std::byte* from, int64_t n, std::byte* to) {
  T value;
  std::memcpy(&value, from, sizeof value);
  std::fill_n(reinterpret_cast<T*>(to), n, value);
}
template <typename T>
void gather_run(const std::byte* from, int64_t stride, int64_t n, std::byte* to) {
  const T* source = reinterpret_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) reinterpret_cast<T*>(to)[i] = source[i * stride];
}
template <typename T>
void scatter_run(const std::byte* from, int64_t stride, int64_t n, std::byte* to) {
  T* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) target[i * stride] = reinterpret_cast<const T*>(from)[i];
}

struct RowLane {
  std::byte* base = nullptr;
  size_t element_bytes = 1;
  Access access = Access::kInPlace;
  ConvertFn convert = nullptr;
  FillFn fill = nullptr;                     ///< of elements as the tile function sees them
  std::array<int64_t, kMaxRank> step{};      ///< bytes, of the dims around rows
  int64_t step_in_row = 0;                   ///< bytes

  int64_t stride() const { return step_in_row / static_cast<int64_t>(element_bytes); }
  void fill_row(const std::byte* at, int64_t n, std::byte* to) const {
    if (convert == nullptr) return fill(at, n, to);
    alignas(16) std::byte value[16];
    convert(1, at, value);
    fill(value, n, to);
  }
  void load(const std::byte* at, int64_t n, std::byte* raw, std::byte* to) const {
    const bool dense = step_in_row == static_cast<int64_t>(element_bytes);
    if (dense && convert != nullptr) return convert(n, at, to);
    dispatch_size(element_bytes, [&]<typename T>() { gather_run<T>(at, stride(), n, convert != nullptr ? raw : to); });
    if (convert != nullptr) convert(n, raw, to);
  }
  void store(const std::byte* from, int64_t n, std::byte* raw, std::byte* at) const {
    const bool dense = step_in_row == static_cast<int64_t>(element_bytes);
    if (dense && convert != nullptr) return convert(n, from, at);
    if (convert != nullptr) convert(n, from, raw);
    dispatch_size(element_bytes, [&]<typename T>() { scatter_run<T>(convert != nullptr ? raw : from, stride(), n, at); });
  }
};

/// What the parts of one run_tiles call by rows share.
struct RowLoop {
  static constexpr size_t kMaxLanes = kMaxTileInputs + kMaxTileOutputs;
  std::array<RowLane, kMaxLanes> lanes;  ///< inputs, then outputs
  size_t in_count = 0, count = 0;
  int64_t inner = 1;                     ///< elements of a row
  size_t outer_rank = 0;
  std::array<int64_t, kMaxRank> size{};  ///< of the dims around rows
  TileFn fn = nullptr;
  const void* params = nullptr;
  int64_t piece = 0;                     ///< most elements of a row at a time
  bool short_rows = false;               ///< a row is one piece, and no operand is gathered, scattered or converted

  void run(int64_t begin, int64_t end) const;
  /// The usual counts of operands are known to the compiler (rows may be short); 0: any.
  template <size_t kIn, size_t kCount>
  void run_counts(int64_t begin, int64_t end) const;
};

void RowLoop::run(int64_t begin, int64_t end) const {
  if (in_count == 2 && count == 3) return run_counts<2, 3>(begin, end);
  if (in_count == 1 && count == 2) return run_counts<1, 2>(begin, end);
  run_counts<0, 0>(begin, end);
}

template <size_t kIn, size_t kCount>
void RowLoop::run_counts(int64_t begin, int64_t end) const {
  const size_t in_count = kIn != 0 ? kIn : this->in_count, count = kCount != 0 ? kCount : this->count;
  alignas(64) std::array<std::array<std::byte, kTileBytes>, kMaxLanes + 1> tiles;
  std::byte* raw = tiles.back().data();
  std::array<std::byte*, kMaxLanes> row{};
  std::array<int64_t, kMaxRank> index{};
  int64_t column = begin % inner, rest = begin / inner;
  for (size_t k = 0; k < count; ++k) row[k] = lanes[k].base;
  for (size_t d = outer_rank; d-- > 0; rest /= size[d]) {
    index[d] = rest % size[d];
    for (size_t k = 0; k < count; ++k) row[k] += index[d] * lanes[k].step[d];
  }
  const auto next_row = [&](size_t dims) {  // one step in the innermost of the first `dims` dims
    for (size_t d = dims; d-- > 0;) {
      for (size_t k = 0; k < count; ++k) row[k] += lanes[k].step[d];
      if (++index[d] < size[d]) break;
      for (size_t k = 0; k < count; ++k) row[k] -= size[d] * lanes[k].step[d];
      index[d] = 0;
    }
  };
  std::array<const void*, kMaxTileInputs> from{};
  std::array<void*, kMaxTileOutputs> to{};
  for (size_t k = 0; k < count; ++k) {
    if (k < in_count) from[k] = tiles[k].data();
    if (k >= in_count) to[k - in_count] = tiles[k].data();
    if (lanes[k].access == Access::kOnce) lanes[k].fill_row(row[k], std::min({piece, inner, end - begin}), tiles[k].data());
  }
  while (begin < end) {
    if (short_rows && column == 0 && end - begin >= inner) {  // whole rows along the dim around them
      const size_t around = outer_rank - 1;
      const int64_t rows = std::min(size[around] - index[around], (end - begin) / inner);
      for (int64_t r = 0; r < rows; ++r) {
        for (size_t k = 0; k < count; ++k) {
          if (lanes[k].access == Access::kFill) lanes[k].fill(row[k], inner, tiles[k].data());
          if (lanes[k].access == Access::kInPlace && k < in_count) from[k] = row[k];
          if (lanes[k].access == Access::kInPlace && k >= in_count) to[k - in_count] = row[k];
          row[k] += lanes[k].step[around];
        }
        fn(inner, to.data(), from.data(), params);
      }
      begin += rows * inner;
      index[around] += rows;
      if (index[around] < size[around]) continue;
      for (size_t k = 0; k < count; ++k) row[k] -= size[around] * lanes[k].step[around];
      index[around] = 0;
      next_row(around);
      continue;
    }
    const int64_t row_end = std::min(inner, column + end - begin);
    begin += row_end - column;
    for (size_t k = 0; k < in_count; ++k) {
      if (lanes[k].access == Access::kFill) lanes[k].fill_row(row[k], std::min(piece, row_end - column), tiles[k].data());
    }
    for (int64_t n = 0; column < row_end; column += n) {
      n = std::min(piece, row_end - column);
      for (size_t k = 0; k < count; ++k) {
        std::byte* at = row[k] + column * lanes[k].step_in_row;
        if (k >= in_count) {
          if (lanes[k].access == Access::kInPlace) to[k - in_count] = at;
          continue;
        }
        if (lanes[k].access == Access::kInPlace) from[k] = at;
        if (lanes[k].access == Access::kMove) lanes[k].load(at, n, raw, tiles[k].data());
      }
      fn(n, to.data(), from.data(), params);
      for (size_t k = in_count; k < count; ++k) {
        if (lanes[k].access == Access::kMove) lanes[k].store(tiles[k].data(), n, raw, row[k] + column * lanes[k].step_in_row);
      }
    }
    column = 0;
    next_row(outer_rank);
  }
}

/// Makes the loop by rows of a prepared call. False if rows would be too short, or if there is no gain in them.
bool make_rows(std::span<const int64_t> sizes, const RankList<uint8_t>& order, std::span<const TileInput> inputs, std::span<const TileOutput> outputs,
               const Loop& loop, RowLoop* rows) {
  const size_t in_count = inputs.size(), count = in_count + outputs.size();
  const auto lane_of = [&](size_t k) -> const Lane& { return k < in_count ? loop.in[k] : loop.out[k - in_count]; };
  // Strides of all operands for the dims of more than one element, outermost first; dims that follow from the next one for all are merged.
  size_t rank = 0;
  std::array<int64_t, kMaxRank> size{};
  std::array<std::array<int64_t, kMaxRank>, RowLoop::kMaxLanes> strides{};
  for (const uint8_t d : order) {
    if (sizes[d] == 1) continue;
    bool merges = rank > 0;
    std::array<int64_t, RowLoop::kMaxLanes> stride{};
    for (size_t k = 0; k < count; ++k) {
      const TensorView& view = k < in_count ? inputs[k].view : outputs[k - in_count].view;
      const int own = static_cast<int>(d) - static_cast<int>(sizes.size()) + view.rank;
      stride[k] = own < 0 || view.size(own) == 1 ? 0 : view.stride(own);
      merges = merges && strides[k][rank - 1] == stride[k] * sizes[d];
    }
    const size_t at = merges ? rank - 1 : rank++;
    size[at] = merges ? size[at] * sizes[d] : sizes[d];
    for (size_t k = 0; k < count; ++k) strides[k][at] = stride[k];
  }
  if (rank < 2 || size[rank - 1] < kShortestRow) return false;
  rows->inner = size[rank - 1];
  rows->outer_rank = rank - 1;
  rows->size = size;
  bool in_place = true, moves = false, converts = false;
  for (size_t k = 0; k < count; ++k) {
    const Lane& lane = lane_of(k);
    RowLane& row = rows->lanes[k];
    const int64_t bytes = static_cast<int64_t>(lane.walker.element_bytes), stride = strides[k][rank - 1];
    row.base = lane.walker.base;
    row.element_bytes = lane.walker.element_bytes;
    row.convert = lane.convert;
    row.step_in_row = stride * bytes;
    for (size_t d = 0; d + 1 < rank; ++d) row.step[d] = strides[k][d] * bytes;
    const bool filled = k < in_count && stride == 0;
    row.access = filled ? (lane.walker.is_single() ? Access::kOnce : Access::kFill) : lane.convert == nullptr && stride == 1 ? Access::kInPlace : Access::kMove;
    const DType compute = k < in_count ? inputs[k].compute : outputs[k - in_count].compute;
    if (filled) dispatch_size(dtype_size(compute), [&]<typename T>() { row.fill = &fill_run<T>; });
    in_place = in_place && row.access == Access::kInPlace;
    moves = moves || row.access == Access::kMove;
    converts = converts || row.convert != nullptr;
  }
  if (moves && rows->inner < kShortestGatheredRow) return false;
  rows->in_count = in_count;
  rows->count = count;
  rows->fn = loop.fn;
  rows->params = loop.params;
  rows->piece = in_place ? rows->inner : loop.tile;
  rows->short_rows = rows->outer_rank > 0 && !moves && !converts && rows->inner <= rows->piece;
  return true;
}

template <typename AnyLoop>
void run_loop(KernelContext& context, const AnyLoop& loop, int64_t total, int64_t grain) {
  if (total <= grain) return loop.run(0, total);
  context.pool->parallel_for(total, grain, [&loop](int64_t begin, int64_t end) { loop.run(begin, end); });
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
  RowLoop rows;
  if (!loop.all_direct && make_rows(sizes, order, inputs, outputs, loop, &rows)) {
    run_loop(context, rows, total, grain);
  } else {
    run_loop(context, loop, total, grain);
  }
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
