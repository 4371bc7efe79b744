// What CUDA C++ has and a host's compiler lacks, for the kernels of a module that the emulator translates: this text stands in front of theirs.
// Threads of a block are fibers of one thread, so atomics are plain and shared variables are static; what waits calls back into the emulator.
#pragma once

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define PTERON_EMULATOR 1
#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
};

/// One for each loaded module; the emulator sets it before a block runs.
struct pteron_state {
  const uint3* thread;  ///< index of the running thread
  uint3 block_index;
  dim3 block_size, grid_size;
  char* shared;         ///< dynamic shared memory
  void (*block_wait)();
  void (*warp_wait)(unsigned mask);
  uint64_t* (*warp_slots)();  ///< 32 of the running thread's warp
  unsigned (*active_mask)();
  void (*trap)();
};
extern "C" {
__attribute__((visibility("default"))) pteron_state pteron_state_of_module;
}
#define threadIdx (*pteron_state_of_module.thread)
#define blockIdx (pteron_state_of_module.block_index)
#define blockDim (pteron_state_of_module.block_size)
#define gridDim (pteron_state_of_module.grid_size)
#define warpSize 32

static inline unsigned pteron_lane() { return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32; }

// --- waiting ---

static inline void __syncthreads() { pteron_state_of_module.block_wait(); }
static inline void __syncwarp(unsigned mask = 0xffffffffu) { pteron_state_of_module.warp_wait(mask); }
static inline unsigned __activemask() { return pteron_state_of_module.active_mask(); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __trap() { pteron_state_of_module.trap(); }
static inline void __nanosleep(unsigned) {}

template <typename T>
static inline T pteron_exchange(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8, "a value of a shuffle has at most 8 bytes");
  uint64_t* slots = pteron_state_of_module.warp_slots();
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  slots[pteron_lane()] = bits;
  pteron_state_of_module.warp_wait(mask);
  bits = slots[source];
  pteron_state_of_module.warp_wait(mask);
  T result;
  memcpy(&result, &bits, sizeof result);
  return result;
}
template <typename T>
static inline T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  const int own = static_cast<int>(pteron_lane());
  return pteron_exchange(mask, value, own / width * width + (lane & (width - 1)));
}
template <typename T>
static inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  const int own = static_cast<int>(pteron_lane()), other = own ^ bits;
  return pteron_exchange(mask, value, other / width > own / width ? own : other);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int own = static_cast<int>(pteron_lane()), other = own + static_cast<int>(by);
  return pteron_exchange(mask, value, other / width != own / width || other > 31 ? own : other);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  const int own = static_cast<int>(pteron_lane()), other = own - static_cast<int>(by);
  return pteron_exchange(mask, value, other < own / width * width ? own : other);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned result = 0;
  uint64_t* slots = pteron_state_of_module.warp_slots();
  slots[pteron_lane()] = predicate != 0;
  pteron_state_of_module.warp_wait(mask);
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) != 0 && slots[lane] != 0) result |= 1u << lane;
  }
  pteron_state_of_module.warp_wait(mask);
  return result;
}
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) == (mask & __activemask()); }
template <typename T>
static inline T pteron_reduce(unsigned mask, T value, T (*join)(T, T)) {
  uint64_t* slots = pteron_state_of_module.warp_slots();
  slots[pteron_lane()] = static_cast<uint64_t>(value);
  pteron_state_of_module.warp_wait(mask);
  bool first = true;
  T result = value;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) == 0) continue;
    result = first ? static_cast<T>(slots[lane]) : join(result, static_cast<T>(slots[lane]));
    first = false;
  }
  pteron_state_of_module.warp_wait(mask);
  return result;
}
template <typename T>
static inline T __reduce_add_sync(unsigned mask, T value) {
  return pteron_reduce<T>(mask, value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <typename T>
static inline T __reduce_max_sync(unsigned mask, T value) {
  return pteron_reduce<T>(mask, value, [](T a, T b) { return a < b ? b : a; });
}
template <typename T>
static inline T __reduce_min_sync(unsigned mask, T value) {
  return pteron_reduce<T>(mask, value, [](T a, T b) { return b < a ? b : a; });
}
static inline int __syncthreads_count(int predicate) {
  static int count;
  __syncthreads();
  count = 0;
  __syncthreads();
  count += predicate != 0;
  __syncthreads();
  const int result = count;
  __syncthreads();
  return result;
}
static inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0; }
static inline int __syncthreads_and(int predicate) { return __syncthreads_count(predicate == 0) == 0; }

// --- atomics: fibers of one thread ---

template <typename T, typename U>
static inline T atomicAdd(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old + static_cast<T>(value));
  return old;
}
template <typename T, typename U>
static inline T atomicSub(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old - static_cast<T>(value));
  return old;
}
template <typename T, typename U>
static inline T atomicMax(T* at, U value) {
  const T old = *at;
  if (old < static_cast<T>(value)) *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U>
static inline T atomicMin(T* at, U value) {
  const T old = *at;
  if (static_cast<T>(value) < old) *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U>
static inline T atomicExch(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U, typename V>
static inline T atomicCAS(T* at, U expected, V value) {
  const T old = *at;
  if (old == static_cast<T>(expected)) *at = static_cast<T>(value);
  return old;
}
template <typename T, typename U>
static inline T atomicOr(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old | static_cast<T>(value));
  return old;
}
template <typename T, typename U>
static inline T atomicAnd(T* at, U value) {
  const T old = *at;
  *at = static_cast<T>(old & static_cast<T>(value));
  return old;
}

// --- loads, bits, vectors ---

template <typename T>
static inline T __ldg(const T* from) {
  return *from;
}
template <typename T>
static inline T __ldcg(const T* from) {
  return *from;
}
template <typename T>
static inline T __ldcs(const T* from) {
  return *from;
}
template <typename T>
static inline void __stcs(T* to, T value) {
  *to = value;
}
template <typename To, typename From>
static inline To pteron_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  memcpy(&to, &value, sizeof to);
  return to;
}
static inline float __int_as_float(int v) { return pteron_bits<float>(v); }
static inline int __float_as_int(float v) { return pteron_bits<int>(v); }
static inline float __uint_as_float(unsigned v) { return pteron_bits<float>(v); }
static inline unsigned __float_as_uint(float v) { return pteron_bits<unsigned>(v); }
static inline double __longlong_as_double(long long v) { return pteron_bits<double>(v); }
static inline long long __double_as_longlong(double v) { return pteron_bits<long long>(v); }
static inline int __popc(unsigned v) { return __builtin_popcount(v); }
static inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
static inline int __clz(int v) { return v == 0 ? 32 : __builtin_clz(static_cast<unsigned>(v)); }
static inline int __clzll(long long v) { return v == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(v)); }
static inline int __ffs(int v) { return __builtin_ffs(v); }
static inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32); }
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) { return static_cast<unsigned long long>(static_cast<unsigned __int128>(a) * b >> 64); }

#define PTERON_VECTORS(T, name)                                                                        \
  struct name##2 { T x, y; };                                                                          \
  struct name##3 { T x, y, z; };                                                                       \
  struct __align__(sizeof(T) == 8 ? 16 : sizeof(T) * 4) name##4 { T x, y, z, w; };                     \
  static inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                    \
  static inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
PTERON_VECTORS(float, float)
PTERON_VECTORS(double, double)
PTERON_VECTORS(int, int)
PTERON_VECTORS(short, short)
PTERON_VECTORS(unsigned short, ushort)
PTERON_VECTORS(signed char, char)
PTERON_VECTORS(unsigned char, uchar)
PTERON_VECTORS(long long, longlong)
PTERON_VECTORS(unsigned long long, ulonglong)
struct uint2 { unsigned x, y; };
struct __align__(16) uint4 { unsigned x, y, z, w; };
static inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

// --- arithmetic ---

#define PTERON_MIN_MAX(T)                                          \
  static inline T min(T a, T b) { return b < a ? b : a; }          \
  static inline T max(T a, T b) { return a < b ? b : a; }
PTERON_MIN_MAX(int)
PTERON_MIN_MAX(unsigned)
PTERON_MIN_MAX(long)
PTERON_MIN_MAX(unsigned long)
PTERON_MIN_MAX(long long)
PTERON_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }
static inline long long min(long long a, int b) { return min(a, static_cast<long long>(b)); }
static inline long long min(int a, long long b) { return min(static_cast<long long>(a), b); }
static inline long long max(long long a, int b) { return max(a, static_cast<long long>(b)); }
static inline long long max(int a, long long b) { return max(static_cast<long long>(a), b); }

#define __expf expf
#define __logf logf
#define __log2f log2f
#define __powf powf
#define __sinf sinf
#define __cosf cosf
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __dadd_rn(double x, double y) { return x + y; }
static inline double __dsub_rn(double x, double y) { return x - y; }
static inline double __dmul_rn(double x, double y) { return x * y; }
static inline double __ddiv_rn(double x, double y) { return x / y; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float sinpif(float x) { return static_cast<float>(sin(3.14159265358979323846 * static_cast<double>(x))); }
static inline float cospif(float x) { return static_cast<float>(cos(3.14159265358979323846 * static_cast<double>(x))); }
static inline int __float2int_rn(float x) { return static_cast<int>(nearbyintf(x)); }
static inline int __float2int_rz(float x) { return static_cast<int>(x); }
static inline int __float2int_rd(float x) { return static_cast<int>(floorf(x)); }
static inline long long __float2ll_rn(float x) { return static_cast<long long>(nearbyintf(x)); }
static inline float __int2float_rn(int x) { return static_cast<float>(x); }
static inline float __saturatef(float x) { return x < 0 || isnan(x) ? 0.0f : x > 1 ? 1.0f : x; }
static inline int __dp4a(int a, int b, int c) {
  for (int i = 0; i < 4; ++i) c += static_cast<signed char>(a >> 8 * i) * static_cast<signed char>(b >> 8 * i);
  return c;
}
