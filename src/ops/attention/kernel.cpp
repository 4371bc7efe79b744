// Scaled dot product attention for the runtime: blocks of query rows, each with its scores in scratch, two matrix products and a softmax.
// Compile half: op.cpp.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/gemm.h"
#include "ops/gemm_pack.h"
#include "ops/math.h"
#include "runtime/kernel.h"
#include "tensor/dim_math.h"

namespace pteron::ops::attention {
namespace {

using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

// Query rows that share one pass over the keys.
constexpr int64_t kRows = 64;

/// Sizes and strides of one call; batch dims (heads included) are walked as one index.
struct Problem {
  int batch_dims = 0;
  std::array<int64_t, kMaxRank> batch{}, q{}, k{}, v{}, mask{}, out{};  ///< sizes and strides per batch dim
  int64_t share = 1;  ///< query heads per key head (last batch dim)
  int64_t rows = 0, keys = 0, width = 0, value_width = 0;
  int64_t q_row = 0, q_col = 0, k_row = 0, k_col = 0, v_row = 0, v_col = 0, mask_row = 0, mask_col = 0, out_row = 0, out_col = 0;
  bool causal = false, bool_mask = false;
  double scale = 1;

  int64_t batches() const {
    int64_t n = 1;
    for (int d = 0; d < batch_dims; ++d) n *= batch[static_cast<size_t>(d)];
    return n;
  }
  int64_t blocks() const { return ceil_div(rows, kRows); }
  /// Keys that rows below `end` can see.
  int64_t visible(int64_t end) const { return causal ? std::min(keys, end) : keys; }
};

struct Offsets {
  int64_t q = 0, k = 0, v = 0, mask = 0, out = 0;
};
Offsets offsets_of(const Problem& p, int64_t index) {
  Offsets o;
  for (int d = p.batch_dims - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    const int64_t at = index % p.batch[i];
    index /= p.batch[i];
    const int64_t shared = d == p.batch_dims - 1 ? at / p.share : at;
    o.q += at * p.q[i], o.k += shared * p.k[i], o.v += shared * p.v[i], o.mask += at * p.mask[i], o.out += at * p.out[i];
  }
  return o;
}

/// Parts of one thread's scratch.
struct Slot {
  size_t scores, result, sums, gemm, bytes;
};
Slot slot_of(DType compute, int64_t keys, int64_t width, int64_t value_width) {
  const size_t element = dtype_size(compute);
  Slot s{};
  size_t at = 0;
  const auto place = [&](size_t bytes) {
    const size_t here = at;
    at = align_up(at + bytes, 64);
    return here;
  };
  s.scores = place(static_cast<size_t>(kRows * std::max<int64_t>(keys, 1)) * element);
  s.result = place(static_cast<size_t>(kRows * std::max<int64_t>(value_width, 1)) * element);
  s.sums = place(static_cast<size_t>(kRows) * element);
  s.gemm = at;
  at += align_up(std::max(gemm_slot_bytes(compute, kRows, keys, width), gemm_slot_bytes(compute, kRows, value_width, keys)), 64);
  s.bytes = at;
  return s;
}

/// A strided operand of a narrow dtype.
template <typename T>
struct Strided {
  const T* data;
  int64_t row, col;
};
template <typename T>
void pack(const void* context, void* panel_bytes, int width, int64_t r0, int64_t rows, int64_t k0, int64_t depth) {
  const auto& x = *static_cast<const Strided<T>*>(context);
  auto* panel = static_cast<Compute<T>*>(panel_bytes);
  pack_block<Compute<T>, T>(x.data + r0 * x.row + k0 * x.col, x.row, x.col, panel, width, rows, depth);
  if (rows == width) return;
  for (int64_t k = 0; k < depth; ++k) std::fill(panel + k * width + rows, panel + (k + 1) * width, Compute<T>{});
}
template <typename T>
GemmOperand operand(const Strided<T>& x) {
  if constexpr (std::is_same_v<T, Compute<T>>) {
    return {x.data, x.row, x.col, nullptr, nullptr};
  } else {
    return {nullptr, 0, 0, pack<T>, &x};
  }
}

/// exp(s - max) over n scores in place; returns the sum (0 if every score is -infinity).
template <typename C>
C exponentials(C* s, int64_t n) {
  constexpr int64_t kLanes = 16;
  const C low = -std::numeric_limits<C>::infinity();
  C tops[kLanes], sums[kLanes] = {};
  std::fill(tops, tops + kLanes, low);
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) tops[l] = s[j + l] > tops[l] ? s[j + l] : tops[l];
  }
  for (; j < n; ++j) tops[0] = s[j] > tops[0] ? s[j] : tops[0];
  C top = low;
  for (int64_t l = 0; l < kLanes; ++l) top = std::max(top, tops[l]);
  if (top == low) {
    // Nothing to attend to, or NaN only: NaN stays, -infinity becomes 0.
    C sum{};
    for (int64_t i = 0; i < n; ++i) {
      s[i] = std::isnan(s[i]) ? s[i] : C{};
      sum += s[i];
    }
    return sum;
  }
  for (j = 0; j + kLanes <= n; j += kLanes) {
    for (int64_t l = 0; l < kLanes; ++l) {
      s[j + l] = math::exp(s[j + l] - top);
      sums[l] += s[j + l];
    }
  }
  for (; j < n; ++j) {
    s[j] = math::exp(s[j] - top);
    sums[0] += s[j];
  }
  C sum{};
  for (int64_t l = 0; l < kLanes; ++l) sum += sums[l];
  return sum;
}

template <typename T>
struct Run {
  using C = Compute<T>;
  const Problem& p;
  const Slot& slot;
  const T* q;
  const T* k;
  const T* v;
  const void* mask;
  T* out;

  void add_mask(C* s, int64_t row, int64_t n, int64_t offset) const {
    const int64_t base = offset + row * p.mask_row;
    if (p.bool_mask) {
      const bool* keep = static_cast<const bool*>(mask) + base;
      for (int64_t j = 0; j < n; ++j) s[j] = keep[j * p.mask_col] ? s[j] : -std::numeric_limits<C>::infinity();
      return;
    }
    const T* add = static_cast<const T*>(mask) + base;
    for (int64_t j = 0; j < n; ++j) s[j] += convert_value<C>(add[j * p.mask_col]);
  }

  void block(int64_t index, std::byte* scratch) const {
    const int64_t begin = index % p.blocks() * kRows, end = std::min(p.rows, begin + kRows), rows = end - begin;
    const Offsets o = offsets_of(p, index / p.blocks());
    const int64_t keys = p.visible(end);
    C* scores = reinterpret_cast<C*>(scratch + slot.scores);
    C* result = reinterpret_cast<C*>(scratch + slot.result);
    C* sums = reinterpret_cast<C*>(scratch + slot.sums);
    const std::span<std::byte> work(scratch + slot.gemm, slot.bytes - slot.gemm);
    const Strided<T> queries{q + o.q + begin * p.q_row, p.q_row, p.q_col}, key_rows{k + o.k, p.k_row, p.k_col}, values{v + o.v, p.v_col, p.v_row};
    GemmCall call;
    call.dtype = kDTypeOf<C>;
    call.m = rows, call.n = keys, call.k = p.width;
    call.a = operand(queries), call.b = operand(key_rows);
    call.c = scores, call.c_m = keys, call.c_n = 1;
    call.alpha = p.scale;
    gemm_serial(call, work);
    for (int64_t i = 0; i < rows; ++i) {
      C* row = scores + i * keys;
      const int64_t n = p.visible(begin + i + 1);
      if (mask != nullptr) add_mask(row, begin + i, n, o.mask);
      sums[i] = exponentials(row, n);
      std::fill(row + n, row + keys, C{});
    }
    call.n = p.value_width, call.k = keys;
    call.a = {scores, keys, 1, nullptr, nullptr}, call.b = operand(values);
    call.c = result, call.c_m = p.value_width;
    call.alpha = 1;
    gemm_serial(call, work);
    for (int64_t i = 0; i < rows; ++i) {
      const C factor = sums[i] == 0 ? C{} : 1 / sums[i];
      T* to = out + o.out + (begin + i) * p.out_row;
      const C* from = result + i * p.value_width;
      for (int64_t j = 0; j < p.value_width; ++j) to[j * p.out_col] = store_value<T>(from[j] * factor);
    }
  }
};

template <typename T>
void run(KernelContext& context, const Problem& p, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor* mask, Tensor& out) {
  const Slot slot = slot_of(kDTypeOf<Compute<T>>, p.keys, p.width, p.value_width);
  const Run<T> job{p, slot, q.as<T>(), k.as<T>(), v.as<T>(), mask != nullptr ? mask->view.data : nullptr, out.as<T>()};
  const int64_t count = p.batches() * p.blocks();
  if (count == 0) return;
  const int64_t slots = std::clamp<int64_t>(static_cast<int64_t>(context.scratch.size() / slot.bytes), 1, context.pool->thread_count());
  const int64_t work = p.batches() * p.rows * p.keys * (p.width + p.value_width);
  const int64_t parts = std::clamp<int64_t>(work >> 17, 1, std::min(slots, count));
  // Interleaved, since causal blocks get longer.
  context.pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t i = part; i < count; i += parts) job.block(i, context.scratch.data() + static_cast<size_t>(part) * slot.bytes);
    }
  });
}

/// Stride of batch dim d (of `dims`) of t, 0 where it broadcasts; false if the size fits neither.
bool batch_stride(const Tensor& t, int d, int dims, int64_t size, int64_t* stride) {
  const int own = d - (dims - (t.rank() - 2));
  *stride = 0;
  if (own < 0 || t.size(own) == 1) return true;
  *stride = t.stride(own);
  return t.size(own) == size;
}

Status bad_shapes(const Tensor& q, const Tensor& k, const Tensor& v) {
  return Status(Code::kInvalidInput, str_cat("attention: query ", shape_text(q.sizes()), ", key ", shape_text(k.sizes()), ", value ", shape_text(v.sizes())));
}

Status make_problem(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor* mask, std::optional<double> scale, bool causal, bool gqa, Problem* p,
                    Sizes* out) {
  const bool ranks = q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2 && q.size(q.rank() - 1) == k.size(k.rank() - 1) &&
                     k.size(k.rank() - 2) == v.size(v.rank() - 2) && k.rank() == v.rank() && q.rank() >= k.rank();
  if (!ranks || q.dtype() != k.dtype() || q.dtype() != v.dtype()) return bad_shapes(q, k, v);
  const int dims = q.rank() - 2;
  p->batch_dims = dims;
  p->rows = q.size(dims), p->width = q.size(dims + 1);
  p->keys = k.size(k.rank() - 2), p->value_width = v.size(v.rank() - 1);
  if (gqa && dims > 0 && k.rank() >= 3 && k.size(k.rank() - 3) > 0 && q.size(dims - 1) % k.size(k.rank() - 3) == 0) {
    p->share = q.size(dims - 1) / k.size(k.rank() - 3);
  }
  for (int d = 0; d < dims; ++d) {
    const auto i = static_cast<size_t>(d);
    int64_t size = q.size(d);
    if (const int own = d - (dims - (k.rank() - 2)); size == 1 && own >= 0 && !gqa) size = k.size(own);
    p->batch[i] = size;
    const int64_t shared = d == dims - 1 ? size / p->share : size;
    if (!batch_stride(q, d, dims, size, &p->q[i]) || !batch_stride(k, d, dims, shared, &p->k[i]) || !batch_stride(v, d, dims, shared, &p->v[i])) {
      return bad_shapes(q, k, v);
    }
    out->push_back(size);
  }
  out->push_back(p->rows);
  out->push_back(p->value_width);
  p->q_row = q.stride(dims), p->q_col = q.stride(dims + 1);
  p->k_row = k.stride(k.rank() - 2), p->k_col = k.stride(k.rank() - 1);
  p->v_row = v.stride(v.rank() - 2), p->v_col = v.stride(v.rank() - 1);
  p->causal = causal;
  p->scale = scale.value_or(p->width > 0 ? 1.0 / std::sqrt(static_cast<double>(p->width)) : 1.0);
  if (mask == nullptr) return ok_status();
  p->bool_mask = mask->dtype() == DType::kBool;
  if (!p->bool_mask && mask->dtype() != q.dtype()) {
    return Status(Code::kInvalidInput, str_cat("attention: mask of ", dtype_name(mask->dtype()), " for ", dtype_name(q.dtype())));
  }
  const int mr = mask->rank();
  bool fits = mr >= 1 && mr <= q.rank() && (mask->size(mr - 1) == p->keys || mask->size(mr - 1) == 1);
  if (fits && mask->size(mr - 1) != 1) p->mask_col = mask->stride(mr - 1);
  if (fits && mr >= 2) {
    fits = mask->size(mr - 2) == p->rows || mask->size(mr - 2) == 1;
    if (mask->size(mr - 2) != 1) p->mask_row = mask->stride(mr - 2);
  }
  for (int d = 0; d < dims && fits && mr >= 2; ++d) fits = batch_stride(*mask, d, dims, p->batch[static_cast<size_t>(d)], &p->mask[static_cast<size_t>(d)]);
  return fits ? ok_status() : Status(Code::kInvalidInput, str_cat("attention: mask ", shape_text(mask->sizes()), " for query ", shape_text(q.sizes())));
}

Status attention_out(KernelContext& context, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor* mask, double dropout, bool causal,
                     std::optional<double> scale, bool gqa, Tensor& out) {
  if (dropout != 0) return Status(Code::kUnsupported, str_cat("attention with dropout ", dropout));
  Problem p;
  Sizes sizes;
  PTERON_TRY(make_problem(q, k, v, mask, scale, causal, gqa, &p, &sizes));
  if (out.dtype() != q.dtype()) return Status(Code::kInvalidInput, str_cat("attention of ", dtype_name(q.dtype()), " into ", dtype_name(out.dtype())));
  PTERON_TRY(resize(out, sizes));
  for (int d = 0; d < p.batch_dims; ++d) p.out[static_cast<size_t>(d)] = out.stride(d);
  p.out_row = out.stride(p.batch_dims), p.out_col = out.stride(p.batch_dims + 1);
  const bool known = dispatch_floating(q.dtype(), [&]<typename T>() { run<T>(context, p, q, k, v, mask, out); });
  return known ? ok_status() : Status(Code::kUnsupported, str_cat("attention of ", dtype_name(q.dtype())));
}

size_t workspace(std::span<Value* const> args) {
  const Tensor& q = args[0]->tensor;
  const Tensor& k = args[1]->tensor;
  const Tensor& v = args[2]->tensor;
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2) return 0;
  const DType compute = q.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
  const size_t slot = slot_of(compute, k.size(k.rank() - 2), q.size(q.rank() - 1), v.size(v.rank() - 1)).bytes;
  return slot * static_cast<size_t>(std::clamp(usable_cpu_count(), 1, 64));
}

constexpr runtime::Kernel kTable[] = {{"pteron::scaled_dot_product_attention.out", PTERON_KERNEL(attention_out), workspace}};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::attention
