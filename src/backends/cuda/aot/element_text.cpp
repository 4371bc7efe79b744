// The shared device functions. Plain C where the text is compiled by a host's compiler (tests), PTX instructions on the device.
#include "backends/cuda/aot/element_text.h"

namespace pteron::cuda {

namespace {

constexpr std::string_view kText = R"(
struct pteron_vector16 { unsigned word[4]; };
__device__ __forceinline__ pteron_vector16 pteron_zero16() {
  pteron_vector16 v;
  for (int i = 0; i < 4; ++i) v.word[i] = 0u;
  return v;
}
// The 16 bytes with number `index`.
__device__ __forceinline__ pteron_vector16 pteron_load16(const void* p, long long index) {
  const uint4 v = ((const uint4*)p)[index];
  pteron_vector16 r;
  r.word[0] = v.x; r.word[1] = v.y; r.word[2] = v.z; r.word[3] = v.w;
  return r;
}
// The same for bytes that nobody reads again.
__device__ __forceinline__ pteron_vector16 pteron_stream16(const void* p, long long index) {
#ifdef __CUDA_ARCH__
  pteron_vector16 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.word[0]), "=r"(r.word[1]), "=r"(r.word[2]), "=r"(r.word[3]) : "l"((const char*)p + index * 16));
  return r;
#else
  return pteron_load16(p, index);
#endif
}
__device__ __forceinline__ float pteron_bits_to_float(unsigned bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
#endif
}
__device__ __forceinline__ unsigned pteron_float_to_bits(float f) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(f);
#else
  unsigned bits;
  __builtin_memcpy(&bits, &f, 4);
  return bits;
#endif
}
__device__ __forceinline__ double pteron_bits_to_double(long long bits) {
#ifdef __CUDA_ARCH__
  return __longlong_as_double(bits);
#else
  double d;
  __builtin_memcpy(&d, &bits, 8);
  return d;
#endif
}
__device__ __forceinline__ float pteron_half_to_float(unsigned h) {
#ifdef __CUDA_ARCH__
  float f;
  asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)h));
  return f;
#else
  const unsigned sign = (h & 0x8000u) << 16, mantissa = h & 0x3ffu, exponent = (h >> 10) & 31u;
  if (exponent == 31u) return pteron_bits_to_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0u) return pteron_bits_to_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float small = (float)mantissa * (1.0f / 16777216.0f);
  return sign != 0u ? -small : small;
#endif
}
__device__ __forceinline__ unsigned pteron_float_to_half(float f) {
#ifdef __CUDA_ARCH__
  unsigned short h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
  return h;
#else
  const unsigned bits = pteron_float_to_bits(f), sign = (bits >> 16) & 0x8000u, rest = bits & 0x7fffffffu;
  if (rest > 0x7f800000u) return sign | 0x7fffu;
  if (rest >= 0x477ff000u) return sign | 0x7c00u;
  if (rest < 0x38800000u) {
    const float scaled = pteron_bits_to_float(rest) + 0.5f;
    return sign | (pteron_float_to_bits(scaled) - 0x3f000000u);
  }
  return sign | ((rest + 0xfffu + ((rest >> 13) & 1u) - 0x38000000u) >> 13);
#endif
}
__device__ __forceinline__ unsigned pteron_float_to_bfloat(float f) {
  const unsigned bits = pteron_float_to_bits(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
}
__device__ __forceinline__ float pteron_widen_f32(const float* p, long long i) { return p[i]; }
__device__ __forceinline__ float pteron_widen_f16(const unsigned short* p, long long i) { return pteron_half_to_float(p[i]); }
__device__ __forceinline__ float pteron_widen_bf16(const unsigned short* p, long long i) { return pteron_bits_to_float((unsigned)p[i] << 16); }
__device__ __forceinline__ void pteron_narrow_f32(float* p, long long i, float v) { p[i] = v; }
__device__ __forceinline__ void pteron_narrow_f16(unsigned short* p, long long i, float v) { p[i] = (unsigned short)pteron_float_to_half(v); }
__device__ __forceinline__ void pteron_narrow_bf16(unsigned short* p, long long i, float v) { p[i] = (unsigned short)pteron_float_to_bfloat(v); }
__device__ __forceinline__ void pteron_unpack_f32(const pteron_vector16& v, float* out) {
#pragma unroll
  for (int i = 0; i < 4; ++i) out[i] = pteron_bits_to_float(v.word[i]);
}
__device__ __forceinline__ void pteron_unpack_f16(const pteron_vector16& v, float* out) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = pteron_half_to_float(v.word[i] & 0xffffu);
    out[2 * i + 1] = pteron_half_to_float(v.word[i] >> 16);
  }
}
__device__ __forceinline__ void pteron_unpack_bf16(const pteron_vector16& v, float* out) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    out[2 * i] = pteron_bits_to_float(v.word[i] << 16);
    out[2 * i + 1] = pteron_bits_to_float(v.word[i] & 0xffff0000u);
  }
}
// Two values in one word, the first in the lower half.
__device__ __forceinline__ unsigned pteron_pack2_f16(float low, float high) {
#ifdef __CUDA_ARCH__
  unsigned r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
#else
  return pteron_float_to_half(low) | (pteron_float_to_half(high) << 16);
#endif
}
__device__ __forceinline__ unsigned pteron_pack2_bf16(float low, float high) {
#ifdef __CUDA_ARCH__
  unsigned r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
#else
  return pteron_float_to_bfloat(low) | (pteron_float_to_bfloat(high) << 16);
#endif
}
)";

}  // namespace

std::string_view element_text() { return kText; }

std::string element_type(DType dtype) { return dtype == DType::kFloat32 ? "float" : "unsigned short"; }

std::string element_name(DType dtype) { return dtype == DType::kFloat32 ? "f32" : dtype == DType::kFloat16 ? "f16" : "bf16"; }

std::string fill_text(std::string_view text, std::initializer_list<std::pair<std::string_view, std::string>> values) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t open = text.find('@', at);
    const size_t close = open == std::string_view::npos ? open : text.find('@', open + 1);
    if (close == std::string_view::npos) {
      out += text.substr(at);
      break;
    }
    out += text.substr(at, open - at);
    const std::string_view key = text.substr(open + 1, close - open - 1);
    bool found = false;
    for (const auto& [name, value] : values) {
      if (name != key) continue;
      out += value;
      found = true;
    }
    if (!found) out += text.substr(open, close - open + 1);
    at = close + 1;
  }
  return out;
}

}  // namespace pteron::cuda
