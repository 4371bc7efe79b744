// Winograd's transforms in Highway, vectors along the channels: compiled for the baseline and for AVX-512, chosen at run time.
#include "backends/cpu/runtime/winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backends/cpu/runtime/winograd_transforms.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "backends/cpu/runtime/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace pteron::cpu {
namespace HWY_NAMESPACE {
/// B^T times six values, in place.
inline void input_rows(V& a, V& b, V& c, V& d, V& e, V& f) {
  const D tag;
  const V two = hn::Set(tag, 2.0f), four = hn::Set(tag, 4.0f), five = hn::Set(tag, 5.0f);
  const V p = hn::NegMulAdd(four, c, e), q = hn::NegMulAdd(four, b, d);  // e - 4c, d - 4b
  const V r = hn::Sub(e, c), s = hn::Mul(two, hn::Sub(d, b));
  const V first = hn::MulAdd(four, a, hn::NegMulAdd(five, c, e));
  const V last = hn::MulAdd(four, b, hn::NegMulAdd(five, d, f));
  a = first;
  b = hn::Add(p, q);
  c = hn::Sub(p, q);
  d = hn::Add(r, s);
  e = hn::Sub(r, s);
  f = last;
}

/// A^T times six values.
inline void output_rows(V a, V b, V c, V d, V e, V f, V* out) {
  const D tag;
  const V sum = hn::Add(b, c), difference = hn::Sub(b, c), sum2 = hn::Add(d, e), difference2 = hn::Sub(d, e);
  out[0] = hn::Add(hn::Add(a, sum), sum2);
  out[1] = hn::MulAdd(hn::Set(tag, 2.0f), difference2, difference);
  out[2] = hn::MulAdd(hn::Set(tag, 4.0f), sum2, sum);
  out[3] = hn::Add(hn::MulAdd(hn::Set(tag, 8.0f), difference2, difference), f);
}

template <class Load, class Store>
inline void input_vector(Load&& load, Store&& store) {
  V t[6][6];
  for (int x = 0; x < 6; ++x) {
    for (int y = 0; y < 6; ++y) t[y][x] = load(y * 6 + x);
    input_rows(t[0][x], t[1][x], t[2][x], t[3][x], t[4][x], t[5][x]);
  }
  for (int y = 0; y < 6; ++y) {
    input_rows(t[y][0], t[y][1], t[y][2], t[y][3], t[y][4], t[y][5]);
    for (int x = 0; x < 6; ++x) store(y * 6 + x, t[y][x]);
  }
}

bool input(const WinogradInput& in) {
  const D d;
  const V zero = hn::Zero(d);
  V odd = zero;  // stays 0 while all values are finite
  int64_t c = 0;
  for (; c + kLanes <= in.channels; c += kLanes) {
    input_vector([&](int i) HWY_ATTR { return hn::LoadU(d, in.pixels[i] + c); },
                 [&](int i, V v) HWY_ATTR {
                   odd = hn::MulAdd(v, zero, odd);
                   hn::StoreU(v, d, in.out + i * in.out_step + c);
                 });
  }
  if (c < in.channels) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(in.channels - c));
    input_vector([&](int i) HWY_ATTR { return hn::MaskedLoad(mask, d, in.pixels[i] + c); },
                 [&](int i, V v) HWY_ATTR {
                   odd = hn::MulAdd(v, zero, odd);
                   hn::BlendedStore(v, mask, d, in.out + i * in.out_step + c);
                 });
  }
  return hn::AllTrue(d, hn::Eq(odd, zero));
}

template <class Load, class Store>
inline void output_vector(Load&& load, Store&& store) {
  V t[4][6];
  for (int x = 0; x < 6; ++x) {
    V column[4];
    output_rows(load(x), load(6 + x), load(12 + x), load(18 + x), load(24 + x), load(30 + x), column);
    for (int y = 0; y < 4; ++y) t[y][x] = column[y];
  }
  for (int y = 0; y < 4; ++y) {
    V row[4];
    output_rows(t[y][0], t[y][1], t[y][2], t[y][3], t[y][4], t[y][5], row);
    for (int x = 0; x < 4; ++x) store(y * 4 + x, row[x]);
  }
}

void output(const WinogradOutput& o) {
  const D d;
  const V low = hn::Set(d, o.low), high = hn::Set(d, o.high);
  int64_t c = 0;
  for (; c + kLanes <= o.channels; c += kLanes) {
    const V bias = hn::LoadU(d, o.bias + c);
    output_vector([&](int i) HWY_ATTR { return hn::LoadU(d, o.in + i * o.in_step + c); },
                  [&](int i, V v) HWY_ATTR {
                    if (o.pixels[i] == nullptr) return;
                    v = hn::Add(v, bias);
                    if (o.has_residual) v = hn::Add(v, hn::LoadU(d, o.residuals[i] + c));
                    hn::StoreU(clamp(v, low, high), d, o.pixels[i] + c);
                  });
  }
  if (c == o.channels) return;
  const auto mask = hn::FirstN(d, static_cast<size_t>(o.channels - c));
  const V bias = hn::MaskedLoad(mask, d, o.bias + c);
  output_vector([&](int i) HWY_ATTR { return hn::MaskedLoad(mask, d, o.in + i * o.in_step + c); },
                [&](int i, V v) HWY_ATTR {
                  if (o.pixels[i] == nullptr) return;
                  v = hn::Add(v, bias);
                  if (o.has_residual) v = hn::Add(v, hn::MaskedLoad(mask, d, o.residuals[i] + c));
                  hn::BlendedStore(clamp(v, low, high), mask, d, o.pixels[i] + c);
                });
}

WinogradTransforms make_transforms() { return {input, output}; }

}  // namespace HWY_NAMESPACE
}  // namespace pteron::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "ops/highway.h"
namespace pteron::cpu {
const WinogradTransforms& winograd_transforms() {
  static const WinogradTransforms transforms = PTERON_HWY_CALL(make_transforms);
  return transforms;
}
}  // namespace pteron::cpu
#endif
