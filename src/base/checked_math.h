// Size arithmetic that cannot overflow unseen. All sizes from files, inputs or shapes go through here.
#pragma once

#include <cstdint>
#include <limits>
#include <span>

namespace pteron {

/// a*b into *out; false on overflow.
template <typename T>
[[nodiscard]] bool checked_mul(T a, T b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}

/// a+b into *out; false on overflow.
template <typename T>
[[nodiscard]] bool checked_add(T a, T b, T* out) {
  return !__builtin_add_overflow(a, b, out);
}

/// a+b and a*b modulo 2^64, for arithmetic that may overflow without harm (hostile constants in expressions).
[[nodiscard]] constexpr int64_t wrapping_add(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b)); }
[[nodiscard]] constexpr int64_t wrapping_mul(int64_t a, int64_t b) { return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b)); }

/// Product of non-negative sizes into *out; false if a size is negative or the product overflows int64.
[[nodiscard]] inline bool checked_numel(std::span<const int64_t> sizes, int64_t* out) {
  int64_t product = 1;
  bool zero = false;
  for (const int64_t size : sizes) {
    if (size < 0) return false;
    if (size == 0) {
      zero = true;
      continue;
    }
    if (!checked_mul(product, size, &product)) return false;
  }
  *out = zero ? 0 : product;
  return true;
}

/// True if [offset, offset+size) lies inside [0, limit), without overflow.
[[nodiscard]] inline bool range_inside(uint64_t offset, uint64_t size, uint64_t limit) {
  return offset <= limit && size <= limit - offset;
}

/// value rounded up to a multiple of alignment (> 0) into *out; false on overflow.
[[nodiscard]] inline bool checked_align(uint64_t value, uint64_t alignment, uint64_t* out) {
  const uint64_t rest = value % alignment;
  if (rest == 0) {
    *out = value;
    return true;
  }
  return checked_add(value, alignment - rest, out);
}

/// value rounded up to a multiple of alignment (> 0). Requires: no overflow (sizes already checked).
inline uint64_t align_up(uint64_t value, uint64_t alignment) {
  const uint64_t rest = value % alignment;
  return rest == 0 ? value : value + (alignment - rest);
}

}  // namespace pteron
