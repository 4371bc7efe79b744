// Philox 4x32 with 10 rounds (Salmon et al., SC 2011): four random words for a counter and a key. Counter based, so that results do not depend on
// the number of threads. Runtime half only.
#pragma once

#include <array>
#include <cstdint>

namespace pteron::ops::random {

using Words = std::array<uint32_t, 4>;

/// The words of element `counter` of the stream `seed`; `draw` numbers further words of the same element.
inline Words philox(uint64_t seed, uint64_t counter, uint64_t draw = 0) {
  uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32), c2 = static_cast<uint32_t>(draw), c3 = static_cast<uint32_t>(draw >> 32);
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c0, b = uint64_t{0xCD9E8D57} * c2;
    const uint32_t next0 = static_cast<uint32_t>(b >> 32) ^ c1 ^ k0, next2 = static_cast<uint32_t>(a >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(b);
    c3 = static_cast<uint32_t>(a);
    c0 = next0;
    c2 = next2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {c0, c1, c2, c3};
}

inline uint64_t word64(const Words& w) { return uint64_t{w[1]} << 32 | w[0]; }
/// In [0, 1) with `bits` random bits (at most 53).
inline double unit(const Words& w, int bits = 53) { return static_cast<double>(word64(w) >> (64 - bits)) / static_cast<double>(uint64_t{1} << bits); }
/// In (0, 1], from the other two words.
inline double other_unit(const Words& w) { return (static_cast<double>((uint64_t{w[3]} << 32 | w[2]) >> 11) + 1) * 0x1p-53; }
/// In [0, range), range > 0.
inline uint64_t below(const Words& w, uint64_t range) { return static_cast<uint64_t>((static_cast<unsigned __int128>(word64(w)) * range) >> 64); }

}  // namespace pteron::ops::random
