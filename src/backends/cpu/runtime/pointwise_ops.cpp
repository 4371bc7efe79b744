// The instructions of pointwise programs in Highway: compiled for the baseline and for AVX-512, chosen at run time.
#include "backends/cpu/runtime/pointwise_ops.h"

#include <cstdint>

#include <hwy/cache_control.h>
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/runtime/pointwise_ops.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/runtime/math-inl.h"
#include "backends/cpu/runtime/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pteron::cpu {
namespace HWY_NAMESPACE {
V truth(hn::Mask<D> mask) { return hn::IfThenElseZero(mask, hn::Set(D(), 1.0f)); }
hn::Mask<D> is_true(V x) { return hn::Ne(x, hn::Zero(D())); }

struct F_copy { static V at(D, V a) { return a; } };
struct F_abs { static V at(D, V a) { return hn::Abs(a); } };
struct F_ceil { static V at(D, V a) { return hn::Ceil(a); } };
struct F_erf { static V at(D d, V a) { return vm::erf(d, a); } };
struct F_exp { static V at(D d, V a) { return vm::exp(d, a); } };
struct F_expm1 { static V at(D d, V a) { return vm::expm1(d, a); } };
struct F_floor { static V at(D, V a) { return hn::Floor(a); } };
struct F_gelu { static V at(D d, V a) { return vm::gelu(d, a); } };
struct F_gelu_tanh { static V at(D d, V a) { return vm::gelu_tanh(d, a); } };
struct F_hardsigmoid { static V at(D d, V a) { return vm::hardsigmoid(d, a); } };
struct F_hardswish { static V at(D d, V a) { return vm::hardswish(d, a); } };
struct F_isnan { static V at(D, V a) { return truth(hn::Not(hn::Eq(a, a))); } };
struct F_log { static V at(D d, V a) { return vm::log(d, a); } };
struct F_neg { static V at(D, V a) { return hn::Neg(a); } };
struct F_not { static V at(D d, V a) { return truth(hn::Eq(a, hn::Zero(d))); } };
struct F_reciprocal { static V at(D d, V a) { return hn::Div(hn::Set(d, 1.0f), a); } };
struct F_relu { static V at(D d, V a) { return hn::IfThenElse(hn::Lt(a, hn::Zero(d)), hn::Zero(d), a); } };
struct F_round { static V at(D, V a) { return hn::Round(a); } };
struct F_rsqrt { static V at(D d, V a) { return hn::Div(hn::Set(d, 1.0f), hn::Sqrt(a)); } };
struct F_sigmoid { static V at(D d, V a) { return vm::sigmoid(d, a); } };
struct F_silu { static V at(D d, V a) { return vm::silu(d, a); } };
struct F_sqrt { static V at(D, V a) { return hn::Sqrt(a); } };
struct F_tanh { static V at(D d, V a) { return vm::tanh(d, a); } };
struct F_trunc { static V at(D, V a) { return hn::Trunc(a); } };

struct F_add { static V at(D, V a, V b) { return hn::Add(a, b); } };
struct F_sub { static V at(D, V a, V b) { return hn::Sub(a, b); } };
struct F_mul { static V at(D, V a, V b) { return hn::Mul(a, b); } };
struct F_div { static V at(D, V a, V b) { return hn::Div(a, b); } };
// NaN in either operand gives NaN.
struct F_max { static V at(D, V a, V b) { return hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Gt(a, b), a, b), a); } };
struct F_min { static V at(D, V a, V b) { return hn::IfThenElse(hn::Eq(a, a), hn::IfThenElse(hn::Lt(a, b), a, b), a); } };
struct F_eq { static V at(D, V a, V b) { return truth(hn::Eq(a, b)); } };
struct F_ne { static V at(D, V a, V b) { return truth(hn::Not(hn::Eq(a, b))); } };
struct F_lt { static V at(D, V a, V b) { return truth(hn::Lt(a, b)); } };
struct F_le { static V at(D, V a, V b) { return truth(hn::Le(a, b)); } };
struct F_and { static V at(D, V a, V b) { return truth(hn::And(is_true(a), is_true(b))); } };
struct F_or { static V at(D, V a, V b) { return truth(hn::Or(is_true(a), is_true(b))); } };
struct F_xor { static V at(D, V a, V b) { return truth(hn::Xor(is_true(a), is_true(b))); } };

struct F_where { static V at(D, V a, V b, V c) { return hn::IfThenElse(is_true(a), b, c); } };
// The lower bound first: with bounds the wrong way round the upper one wins, as in ATen.
struct F_clamp {
  static V at(D, V a, V low, V high) {
    a = hn::IfThenElse(hn::Lt(a, low), low, a);
    return hn::IfThenElse(hn::Gt(a, high), high, a);
  }
};
/// x > 0 ? x : b * (exp(c x) - 1)
struct F_elu {
  static V at(D d, V a, V b, V c) { return hn::IfThenElse(hn::Gt(a, hn::Zero(d)), a, hn::Mul(b, vm::expm1(d, hn::Mul(a, c)))); }
};

template <class F>
void map1(const float* a, const float*, const float*, float, float* out, size_t n) {
  const D d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(F::at(d, hn::LoadU(d, a + i)), d, out + i);
  if (i < n) vm::store_first(F::at(d, vm::load_first(d, a + i, n - i)), d, out + i, n - i);
}
template <class F>
void map2(const float* a, const float* b, const float*, float, float* out, size_t n) {
  const D d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(F::at(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  if (i < n) vm::store_first(F::at(d, vm::load_first(d, a + i, n - i), vm::load_first(d, b + i, n - i)), d, out + i, n - i);
}
template <class F>
void map2_right(const float* a, const float*, const float*, float value, float* out, size_t n) {
  const D d;
  const V b = hn::Set(d, value);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(F::at(d, hn::LoadU(d, a + i), b), d, out + i);
  if (i < n) vm::store_first(F::at(d, vm::load_first(d, a + i, n - i), b), d, out + i, n - i);
}
template <class F>
void map2_left(const float*, const float* b, const float*, float value, float* out, size_t n) {
  const D d;
  const V a = hn::Set(d, value);
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(F::at(d, a, hn::LoadU(d, b + i)), d, out + i);
  if (i < n) vm::store_first(F::at(d, a, vm::load_first(d, b + i, n - i)), d, out + i, n - i);
}
template <class F>
void map3(const float* a, const float* b, const float* c, float, float* out, size_t n) {
  const D d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  for (; i + step <= n; i += step) hn::StoreU(F::at(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i), hn::LoadU(d, c + i)), d, out + i);
  if (i < n) vm::store_first(F::at(d, vm::load_first(d, a + i, n - i), vm::load_first(d, b + i, n - i), vm::load_first(d, c + i, n - i)), d, out + i, n - i);
}

/// One vector, passed and returned in registers: what generated code calls.
using Raw = decltype(V().raw);
template <class F>
Raw vector1(Raw a) {
  return F::at(D(), V{a}).raw;
}
template <class F>
Raw vector2(Raw a, Raw b) {
  return F::at(D(), V{a}, V{b}).raw;
}
template <class F>
Raw vector3(Raw a, Raw b, Raw c) {
  return F::at(D(), V{a}, V{b}, V{c}).raw;
}

template <class F, int kOperands>
void put(PointwiseSet* set, PointwiseOp op) {
  const auto at = static_cast<size_t>(op);
  if constexpr (kOperands == 1) {
    set->plain[at] = map1<F>;
    set->vector[at] = reinterpret_cast<const void*>(vector1<F>);
  }
  if constexpr (kOperands == 2) {
    set->vector[at] = reinterpret_cast<const void*>(vector2<F>);
    set->plain[at] = map2<F>;
    set->right_value[at] = map2_right<F>;
    set->left_value[at] = map2_left<F>;
  }
  if constexpr (kOperands == 3) {
    set->plain[at] = map3<F>;
    set->vector[at] = reinterpret_cast<const void*>(vector3<F>);
  }
}

void gather_rows(const float* from, int64_t row, int64_t rows, int64_t columns, float* to) {
  const D d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = columns - columns % step;
  const auto left = static_cast<size_t>(columns - whole);
  for (int64_t r = 0; r < rows; ++r, from += row, to += columns) {
    for (int64_t c = 0; c < whole; c += step) hn::StoreU(hn::LoadU(d, from + c), d, to + c);
    if (left > 0) vm::store_first(vm::load_first(d, from + whole, left), d, to + whole, left);
  }
}

float sum(const float* x, int64_t n) {
  const D d;
  const auto step = static_cast<int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  int64_t i = 0;
  for (; i + 4 * step <= n; i += 4 * step) {
    a = hn::Add(a, hn::LoadU(d, x + i));
    b = hn::Add(b, hn::LoadU(d, x + i + step));
    c = hn::Add(c, hn::LoadU(d, x + i + 2 * step));
    e = hn::Add(e, hn::LoadU(d, x + i + 3 * step));
  }
  for (; i + step <= n; i += step) a = hn::Add(a, hn::LoadU(d, x + i));
  if (i < n) b = hn::Add(b, vm::load_first(d, x + i, static_cast<size_t>(n - i)));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

void stream(const float* from, float* to, size_t n) {
  const D d;
  const size_t step = hn::Lanes(d);
  size_t i = 0;
  // Up to an address that vectors may be streamed to.
  while (i < n && (reinterpret_cast<uintptr_t>(to + i) % (step * sizeof(float))) != 0) {
    to[i] = from[i];
    ++i;
  }
  for (; i + step <= n; i += step) hn::Stream(hn::LoadU(d, from + i), d, to + i);
  for (; i < n; ++i) to[i] = from[i];
}
void flush() { hwy::FlushStream(); }

PointwiseSet make_pointwise() {
  PointwiseSet set;
  set.lanes = kLanes;
  set.gather_rows = gather_rows;
  set.sum = sum;
  set.stream = stream;
  set.flush = flush;
#define POINTWISE(name, operands) put<F_##name, operands>(&set, PointwiseOp::k_##name);
#include "backends/cpu/pointwise_ops.inc"
#undef POINTWISE
  return set;
}

}  // namespace HWY_NAMESPACE
}  // namespace pteron::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/highway.h"
namespace pteron::cpu {
const PointwiseSet& pointwise_set() {
  static const PointwiseSet set = PTERON_HWY_CALL(make_pointwise);
  return set;
}
}  // namespace pteron::cpu
#endif
