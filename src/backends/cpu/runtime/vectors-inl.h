// What the engine's HWY files share, once per target: vectors of float, their lanes, clamps. Included inside HWY files of this folder.
#if defined(PTERON_CPU_VECTORS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef PTERON_CPU_VECTORS_INL_H
#undef PTERON_CPU_VECTORS_INL_H
#else
#define PTERON_CPU_VECTORS_INL_H
#endif

#include <hwy/highway.h>

/// Before a loop of constant length that must become straight code: its arrays live in registers then.
#ifndef PTERON_UNROLL
#if defined(__clang__)
#define PTERON_UNROLL _Pragma("clang loop unroll(full)")
#else
#define PTERON_UNROLL _Pragma("GCC unroll 16")
#endif
#endif

HWY_BEFORE_NAMESPACE();
namespace pteron::cpu {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, 16>;
using V = hn::Vec<D>;
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));

/// `y` between low and high. NaN stays NaN: x86's instructions give their second operand if one is NaN.
HWY_INLINE V clamp(V y, V low, V high) {
  if constexpr (HWY_ARCH_X86) return hn::Min(high, hn::Max(low, y));
  y = hn::IfThenElse(hn::Lt(y, low), low, y);
  return hn::IfThenElse(hn::Gt(y, high), high, y);
}

}  // namespace HWY_NAMESPACE
}  // namespace pteron::cpu
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
