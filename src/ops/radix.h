// Radix sort for kernels that order many numbers: values become unsigned keys of the same order, keys (with or without a position) are
// sorted digit by digit, digits that all keys share cost nothing. The sort is stable. Runtime half only.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace pteron::ops {

/// The unsigned type of a value's key.
template <typename P>
using KeyOf = std::conditional_t<sizeof(P) == 4, uint32_t, uint64_t>;

/// The key of NaN: after that of every number. Only floating-point keys have it.
template <typename P>
inline constexpr KeyOf<P> kNanKey = static_cast<KeyOf<P>>(-1);

/// Keys order as values do; -0 and 0 have one key, all NaN have one, the last.
template <typename P>
KeyOf<P> key_of(P value) {
  using K = KeyOf<P>;
  constexpr K kTop = K{1} << (8 * sizeof(K) - 1);
  if constexpr (std::is_floating_point_v<P>) {
    const K bits = std::bit_cast<K>(value + P{0});  // -0 + 0 is 0
    const K ordered = (bits & kTop) != 0 ? static_cast<K>(~bits) : static_cast<K>(bits | kTop);
    return value != value ? kNanKey<P> : ordered;
  } else {
    return std::is_signed_v<P> ? static_cast<K>(value) ^ kTop : static_cast<K>(value);
  }
}

/// The value of a key (any NaN for kNanKey).
template <typename P>
P value_of(KeyOf<P> key) {
  using K = KeyOf<P>;
  constexpr K kTop = K{1} << (8 * sizeof(K) - 1);
  if constexpr (std::is_floating_point_v<P>) {
    if (key == kNanKey<P>) return std::bit_cast<P>(static_cast<K>(~K{0} >> 1));
    return std::bit_cast<P>((key & kTop) != 0 ? static_cast<K>(key ^ kTop) : static_cast<K>(~key));
  } else {
    return static_cast<P>(std::is_signed_v<P> ? key ^ kTop : key);
  }
}

/// A key alone.
template <typename K>
struct Key {
  using Word = K;
  K key;
};
/// A key and where it came from.
template <typename K>
struct PlacedKey {
  using Word = K;
  K key;
  K place;
};

/// Sorts items[0..n) by key; spare has room for n too. Returns where the sorted items are: items or spare.
template <typename Item>
Item* radix_sort(Item* items, Item* spare, int64_t n) {
  using K = typename Item::Word;
  constexpr int kDigitBits = 11;
  constexpr K kMask = (K{1} << kDigitBits) - 1;
  if (n < 2) return items;
  K low = items[0].key, high = low;
  for (int64_t i = 1; i < n; ++i) {
    low = std::min(low, items[i].key);
    high = std::max(high, items[i].key);
  }
  const K range = high - low;
  for (int shift = 0; shift < static_cast<int>(8 * sizeof(K)) && (range >> shift) != 0; shift += kDigitBits) {
    int64_t starts[kMask + 1] = {};
    for (int64_t i = 0; i < n; ++i) ++starts[(items[i].key - low) >> shift & kMask];
    int64_t sum = 0;
    for (int64_t& start : starts) sum += std::exchange(start, sum);
    for (int64_t i = 0; i < n; ++i) spare[starts[(items[i].key - low) >> shift & kMask]++] = items[i];
    std::swap(items, spare);
  }
  return items;
}

}  // namespace pteron::ops
