// Carry-less products fold 64 bytes into 64 bytes until 16 are left, whose checksum is that of all (V. Gopal et al., "Fast CRC Computation for
// Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009). zlib does what is left, and everything where the instruction is missing.
#include "base/crc32.h"

#include <zlib.h>

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace pteron {

namespace {

uint32_t zlib_crc(uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

#if defined(__x86_64__)

/// x^n modulo the polynomial, bits reflected, one bit to the left as products of reflected numbers need it.
constexpr int64_t power(int n) {
  uint32_t rest = 0x80000000;  // x^0
  for (int i = 0; i < n; ++i) rest = (rest >> 1) ^ ((rest & 1) != 0 ? 0xedb88320 : 0);
  return static_cast<int64_t>(rest) << 1;
}

constexpr size_t kStep = 64;

/// Moves a 16-byte part of the message over the distance that `by` stands for.
__attribute__((target("pclmul"))) inline __m128i fold(__m128i part, __m128i by, __m128i onto) {
  return _mm_xor_si128(onto, _mm_xor_si128(_mm_clmulepi64_si128(part, by, 0x00), _mm_clmulepi64_si128(part, by, 0x11)));
}

inline __m128i load(const std::byte* at) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(at)); }

/// Requires: at least kStep bytes.
__attribute__((target("pclmul"))) uint32_t folded_crc(std::span<const std::byte> bytes) {
  const __m128i far = _mm_set_epi64x(power(512 - 32), power(512 + 32)), near = _mm_set_epi64x(power(128 - 32), power(128 + 32));
  const std::byte* at = bytes.data();
  __m128i a = _mm_xor_si128(load(at), _mm_cvtsi32_si128(-1)), b = load(at + 16), c = load(at + 32), d = load(at + 48);
  size_t left = bytes.size() - kStep;
  at += kStep;
  for (; left >= kStep; left -= kStep, at += kStep) {
    a = fold(a, far, load(at));
    b = fold(b, far, load(at + 16));
    c = fold(c, far, load(at + 32));
    d = fold(d, far, load(at + 48));
  }
  const __m128i all = fold(fold(fold(a, near, b), near, c), near, d);
  std::byte rest[16];
  std::memcpy(rest, &all, sizeof rest);
  return zlib_crc(zlib_crc(0xffffffff, rest), {at, left});  // zlib keeps the complement: this starts from zero
}

#endif

}  // namespace

uint32_t crc32_of(std::span<const std::byte> bytes) {
#if defined(__x86_64__)
  if (bytes.size() >= kStep && __builtin_cpu_supports("pclmul") != 0) return folded_crc(bytes);
#endif
  return zlib_crc(0, bytes);
}

}  // namespace pteron
