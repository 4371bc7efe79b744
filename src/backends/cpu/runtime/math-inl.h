// Elementary functions of float vectors for one Highway target: 1 to 3 ulp, subnormals, infinities and NaN kept. Included inside HWY files of this
// folder, once per target.
//
// Polynomials and fractions: our own weighted least-squares fits with Lawson iteration of the function named beside them, in double, rounded to float.
#if defined(PTERON_CPU_MATH_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PTERON_CPU_MATH_INL_H
#undef PTERON_CPU_MATH_INL_H
#else
#define PTERON_CPU_MATH_INL_H
#endif

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace pteron::cpu {
namespace HWY_NAMESPACE {
namespace vm {
namespace hn = hwy::HWY_NAMESPACE;

template <class D>
using Vec = hn::Vec<D>;

/// The first n elements; the others are 0 and not read.
template <class D>
HWY_INLINE Vec<D> load_first(D d, const float* from, size_t n) {
  return hn::MaskedLoad(hn::FirstN(d, n), d, from);
}
template <class D>
HWY_INLINE void store_first(Vec<D> v, D d, float* to, size_t n) {
  hn::BlendedStore(v, hn::FirstN(d, n), d, to);
}

/// x, or the bound that it is beyond; NaN stays NaN.
template <class D>
HWY_INLINE Vec<D> bounded(D d, Vec<D> x, float low, float high) {
  // The instructions give their second operand if one is NaN.
  return hn::Min(hn::Set(d, high), hn::Max(hn::Set(d, low), x));
}

template <class D>
HWY_INLINE Vec<D> horner(D, Vec<D>, Vec<D> sum) {
  return sum;
}
template <class D, class... Rest>
HWY_INLINE Vec<D> horner(D d, Vec<D> x, Vec<D> sum, float next, Rest... rest) {
  return horner(d, x, hn::MulAdd(sum, x, hn::Set(d, next)), rest...);
}

/// exp(x) = (1 + tail) * 2^k with |x - k ln 2| <= ln2 / 2; n is k in float.
template <class D>
HWY_INLINE Vec<D> exp_tail(D d, Vec<D> x, hn::Vec<hn::RebindToSigned<D>>* k, Vec<D>* n) {
  // Adding 1.5 * 2^23 rounds to an integer, whose low bits are then those of the sum.
  const hn::RebindToSigned<D> di;
  const Vec<D> shift = hn::Set(d, 12582912.0f);
  const Vec<D> shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), shift);
  *k = hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x4b400000));
  *n = hn::Sub(shifted, shift);
  Vec<D> r = hn::NegMulAdd(*n, hn::Set(d, 0.693145751953125f), x);
  r = hn::NegMulAdd(*n, hn::Set(d, 1.42860682030941723e-6f), r);
  // (exp(r) - 1 - r) / r^2, error 2e-10
  const Vec<D> p = horner(d, r, hn::Set(d, 0.0001990761811612174f), 0.0013933676527813077f, 0.00833328627049923f, 0.041666463017463684f,
                          0.1666666716337204f, 0.5f);
  return hn::MulAdd(hn::Mul(r, r), p, r);
}

/// p * 2^k for p near 1, n = k in float. In two steps, so that subnormal results round once; the first goes into the exponent bits of p.
template <class D>
HWY_INLINE Vec<D> scale_by_power(D d, Vec<D> p, hn::Vec<hn::RebindToSigned<D>> k, [[maybe_unused]] Vec<D> n) {
  const hn::RebindToSigned<D> di;
#if HWY_TARGET <= HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) return Vec<D>{_mm512_maskz_scalef_ps(0xffff, p.raw, n.raw)};
#endif
  const auto half = hn::ShiftRight<1>(k);
  const Vec<D> scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(half)));
  return hn::Mul(scaled, hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(hn::Sub(k, half)), hn::Set(di, 127 << 23))));
}

template <class D>
HWY_INLINE Vec<D> exp(D d, Vec<D> x) {
  hn::Vec<hn::RebindToSigned<D>> k;
  Vec<D> n;
  const Vec<D> tail = exp_tail(d, bounded(d, x, -105.0f, 90.0f), &k, &n);
  return scale_by_power(d, hn::Add(tail, hn::Set(d, 1.0f)), k, n);
}

/// exp(x) = result * 2^n for floor <= x <= 0, fewer steps than exp_tail: within 2.1 ulp near 0, 5 ulp at -20, 19 at -80, since log2(e) is one float;
/// `shifted` has n in its low bits.
template <class D>
HWY_INLINE Vec<D> exp_fraction(D d, Vec<D> x, float floor, Vec<D>* shifted, Vec<D>* n) {
  const Vec<D> shift = hn::Set(d, 12582912.0f), log2e = hn::Set(d, 1.44269504088896341f);
  // The larger of two with x last: NaN stays.
  const Vec<D> y = hn::Max(hn::Set(d, floor), x);
  *shifted = hn::MulAdd(y, log2e, shift);
  *n = hn::Sub(*shifted, shift);
  // 2^r on [-1/2, 1/2], 1 at 0, error 9e-8
  return horner(d, hn::MulSub(y, log2e, *n), hn::Set(d, 0.001326472731307149f), 0.009671512991189957f, 0.05550733581185341f, 0.24022242426872253f,
                0.6931470036506653f, 1.0f);
}

/// exp(x) for x <= 0 (softmax). -inf gives 0, subnormal results stay.
template <class D>
HWY_INLINE Vec<D> exp_of_negative(D d, Vec<D> x) {
  const hn::RebindToSigned<D> di;
  Vec<D> shifted, n;
  const Vec<D> p = exp_fraction(d, x, -105.0f, &shifted, &n);
  return scale_by_power(d, p, hn::Sub(hn::BitCast(di, shifted), hn::Set(di, 0x4b400000)), n);
}

/// exp(x) for x <= 0 where results below 2^-125 become 0 (attention). -inf gives 0.
template <class D>
HWY_INLINE Vec<D> exp_small(D d, Vec<D> x) {
  constexpr float kFloor = -86.5f;
  const hn::RebindToSigned<D> di;
  Vec<D> shifted, n;
  const Vec<D> p = exp_fraction(d, x, kFloor, &shifted, &n);
  const Vec<D> floor = hn::Set(d, kFloor);
#if HWY_TARGET <= HWY_AVX3
  if constexpr (hn::MaxLanes(D()) == 16) return Vec<D>{_mm512_maskz_scalef_ps(_mm512_cmp_ps_mask(x.raw, floor.raw, _CMP_NLT_UQ), p.raw, n.raw)};
#endif
  // Of the shifted number's bits, only those of the integer stay.
  const Vec<D> scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), hn::ShiftLeft<23>(hn::BitCast(di, shifted))));
  return hn::IfThenZeroElse(hn::Lt(x, floor), scaled);
}

template <class D>
HWY_INLINE Vec<D> expm1(D d, Vec<D> x) {
  const hn::RebindToSigned<D> di;
  hn::Vec<hn::RebindToSigned<D>> k;
  Vec<D> n;
  const Vec<D> tail = exp_tail(d, bounded(d, x, -20.0f, 89.0f), &k, &n);
  // 2 * (2^(k-1) * (1 + tail) - 1/2): k may be 128
  const Vec<D> scale = hn::BitCast(d, hn::Add(hn::ShiftLeft<23>(k), hn::Set(di, 126 << 23)));
  const Vec<D> y = hn::MulAdd(scale, tail, hn::Sub(scale, hn::Set(d, 0.5f)));
  return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Add(y, y));
}

template <class D>
HWY_INLINE Vec<D> log(D d, Vec<D> x) {
  const hn::RebindToSigned<D> di;
  const auto tiny = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
  const Vec<D> y = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 8388608.0f)), x);
  const auto bits = hn::BitCast(di, y);
  const auto k = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));  // sqrt(1/2)
  const Vec<D> e = hn::Sub(hn::ConvertTo(d, k), hn::IfThenElseZero(tiny, hn::Set(d, 23.0f)));
  const Vec<D> f = hn::Sub(hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(k))), hn::Set(d, 1.0f));
  const Vec<D> s = hn::Div(f, hn::Add(f, hn::Set(d, 2.0f)));
  const Vec<D> z = hn::Mul(s, s);
  // (2 atanh(s) / s - 2) / s^2, error 6e-9
  const Vec<D> p = horner(d, z, hn::Set(d, 0.2952421009540558f), 0.3999083340167999f, 0.6666666865348816f);
  const Vec<D> half_square = hn::Mul(hn::Mul(hn::Set(d, 0.5f), f), f);
  Vec<D> rest = hn::Sub(half_square, hn::Mul(s, hn::MulAdd(p, z, half_square)));
  rest = hn::NegMulAdd(e, hn::Set(d, 1.42860682030941723e-6f), rest);
  Vec<D> out = hn::MulAdd(e, hn::Set(d, 0.693145751953125f), hn::Sub(f, rest));
  const Vec<D> inf = hn::Inf(d);
  out = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(inf), out);
  out = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::NaN(d), out);
  return hn::IfThenElse(hn::Lt(x, inf), out, hn::Add(x, x));
}

template <class D>
HWY_INLINE Vec<D> sigmoid(D d, Vec<D> x) {
  const Vec<D> one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp(d, hn::Neg(x))));
}
template <class D>
HWY_INLINE Vec<D> silu(D d, Vec<D> x) {
  return hn::Div(x, hn::Add(hn::Set(d, 1.0f), exp(d, hn::Neg(x))));
}

template <class D>
HWY_INLINE Vec<D> tanh(D d, Vec<D> x) {
  x = bounded(d, x, -9.0f, 9.0f);
  const Vec<D> z = hn::Mul(x, x);
  // tanh(x) / x in x^2 on [0, 9], error 1.3e-9
  const Vec<D> p = horner(d, z, hn::Set(d, -1.2246413085004182e-11f), 3.064280562625754e-08f, 2.803144343488384e-05f, 0.0038695151451975107f,
                          0.1368086189031601f, 1.0f);
  const Vec<D> q = horner(d, z, hn::Set(d, 1.2890437801615917e-06f), 0.0003940725582651794f, 0.02725018374621868f, 0.4701419472694397f, 1.0f);
  return bounded(d, hn::Div(hn::Mul(x, p), q), -1.0f, 1.0f);
}

template <class D>
HWY_INLINE Vec<D> erf(D d, Vec<D> x) {
  x = bounded(d, x, -3.92f, 3.92f);
  const Vec<D> z = hn::Mul(x, x);
  // erf(x) / x in x^2 on [0, 3.92], error 1.9e-8
  const Vec<D> p = horner(d, z, hn::Set(d, 2.050034709100146e-06f), 0.0002848750737030059f, 0.0037655094638466835f, 0.052748389542102814f,
                          0.19040468335151672f, 1.1283791065216064f);
  const Vec<D> q = horner(d, z, hn::Set(d, 3.809076588368043e-05f), 0.0011624994222074747f, 0.014969011768698692f, 0.11410827934741974f,
                          0.5020744800567627f, 1.0f);
  return bounded(d, hn::Div(hn::Mul(x, p), q), -1.0f, 1.0f);
}

template <class D>
HWY_INLINE Vec<D> gelu(D d, Vec<D> x) {
  const Vec<D> half = hn::Mul(x, hn::Set(d, 0.5f));
  return hn::MulAdd(half, erf(d, hn::Mul(x, hn::Set(d, 0.70710678118654752440f))), half);
}
template <class D>
HWY_INLINE Vec<D> gelu_tanh(D d, Vec<D> x) {
  const Vec<D> half = hn::Mul(x, hn::Set(d, 0.5f));
  const Vec<D> cube = hn::Mul(hn::Mul(x, x), x);
  const Vec<D> inner = hn::Mul(hn::Set(d, 0.79788456080286535588f), hn::MulAdd(hn::Set(d, 0.044715f), cube, x));
  return hn::MulAdd(half, tanh(d, inner), half);
}
template <class D>
HWY_INLINE Vec<D> hardsigmoid(D d, Vec<D> x) {
  return hn::Mul(bounded(d, hn::Add(x, hn::Set(d, 3.0f)), 0.0f, 6.0f), hn::Set(d, 1.0f / 6.0f));
}
template <class D>
HWY_INLINE Vec<D> hardswish(D d, Vec<D> x) {
  return hn::Mul(x, hardsigmoid(d, x));
}

}  // namespace vm
}  // namespace HWY_NAMESPACE
}  // namespace pteron::cpu
HWY_AFTER_NAMESPACE();

#endif  // PTERON_CPU_MATH_INL_H
