// Device functions of the kernels that work with tensor cores: PTX instructions on the device, plain C that does the same where the text is compiled by a
// host's compiler (tests).
#include "backends/cuda/aot/tile_text.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kText = R"(
// d += a b of 16x16 and 16x8 elements: a as four words, b as two, of each thread of a warp (PTX: mma.m16n8k16).
#define PTERON_MMA(type)                                                                                                                                       \
  __device__ __forceinline__ void pteron_mma_##type(float* d, const unsigned* a, unsigned b0, unsigned b1) {                                                   \
    PTERON_MMA_BODY(type)                                                                                                                                      \
  }
#ifdef __CUDA_ARCH__
#define PTERON_MMA_BODY(type)                                                                                                                                  \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." #type "." #type ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                          \
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
// By words from the other threads: row g of a lies in the four threads of group g, column n of b in those of group n.
#define PTERON_MMA_BODY(type)                                                                                                                                  \
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;                                                                                              \
  for (int s = 0; s < 4; ++s) {                                                                                                                                \
    unsigned x[4];                                                                                                                                             \
    for (int i = 0; i < 4; ++i) x[i] = __shfl_sync(0xffffffffu, a[i], g * 4 + s);                                                                              \
    for (int c = 0; c < 2; ++c) {                                                                                                                              \
      const unsigned y0 = __shfl_sync(0xffffffffu, b0, (2 * t + c) * 4 + s), y1 = __shfl_sync(0xffffffffu, b1, (2 * t + c) * 4 + s);                           \
      for (int half = 0; half < 2; ++half) {                                                                                                                   \
        const unsigned shift = 16u * (unsigned)half;                                                                                                           \
        const unsigned short w0 = (unsigned short)(y0 >> shift), w1 = (unsigned short)(y1 >> shift);                                                           \
        unsigned short xs[4];                                                                                                                                  \
        for (int i = 0; i < 4; ++i) xs[i] = (unsigned short)(x[i] >> shift);                                                                                   \
        d[c] += pteron_widen_##type(&xs[0], 0) * pteron_widen_##type(&w0, 0) + pteron_widen_##type(&xs[2], 0) * pteron_widen_##type(&w1, 0);                   \
        d[2 + c] += pteron_widen_##type(&xs[1], 0) * pteron_widen_##type(&w0, 0) + pteron_widen_##type(&xs[3], 0) * pteron_widen_##type(&w1, 0);               \
      }                                                                                                                                                        \
    }                                                                                                                                                          \
  }
#endif
PTERON_MMA(f16)
PTERON_MMA(bf16)
// Fragment a from a tile of rows: rows m..m+15, depth k..k+15.
__device__ __forceinline__ void pteron_tile_left(const unsigned short* tile, int pitch, int m, int k, unsigned* r) {
  const int lane = threadIdx.x & 31;
#ifdef __CUDA_ARCH__
  const unsigned short* p = tile + (m + (lane & 15)) * pitch + k + (lane >> 4) * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)));
#else
  const int g = lane >> 2, t = lane & 3;
  for (int i = 0; i < 4; ++i) {
    const unsigned short* p = tile + (m + (i & 1) * 8 + g) * pitch + k + (i >> 1) * 8 + 2 * t;
    r[i] = p[0] | ((unsigned)p[1] << 16);
  }
#endif
}
// Two fragments of b from a tile whose rows are columns of b: columns n..n+15, depth k..k+15.
__device__ __forceinline__ void pteron_tile_rows(const unsigned short* tile, int pitch, int n, int k, unsigned* r) {
  const int lane = threadIdx.x & 31;
#ifdef __CUDA_ARCH__
  const unsigned short* p = tile + (n + (lane & 7) + (lane >> 4) * 8) * pitch + k + ((lane >> 3) & 1) * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)));
#else
  const int g = lane >> 2, t = lane & 3;
  for (int i = 0; i < 4; ++i) {
    const unsigned short* p = tile + (n + (i >> 1) * 8 + g) * pitch + k + (i & 1) * 8 + 2 * t;
    r[i] = p[0] | ((unsigned)p[1] << 16);
  }
#endif
}
// The same from a tile whose columns are columns of b.
__device__ __forceinline__ void pteron_tile_columns(const unsigned short* tile, int pitch, int n, int k, unsigned* r) {
  const int lane = threadIdx.x & 31;
#ifdef __CUDA_ARCH__
  const unsigned short* p = tile + (k + (lane & 7) + ((lane >> 3) & 1) * 8) * pitch + n + (lane >> 4) * 8;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"((unsigned)__cvta_generic_to_shared(p)));
#else
  const int g = lane >> 2, t = lane & 3;
  for (int i = 0; i < 4; ++i) {
    const unsigned short* p = tile + (k + (i & 1) * 8 + 2 * t) * pitch + n + (i >> 1) * 8 + g;
    r[i] = p[0] | ((unsigned)p[pitch] << 16);
  }
#endif
}
// 2^x by the device's approximation (2 units in the last place); 0 for -infinity.
__device__ __forceinline__ float pteron_exp2(float x) {
#ifdef __CUDA_ARCH__
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
  return r;
#else
  return exp2f(x);
#endif
}
// 16 bytes into shared memory while the thread goes on; zeros if not `inside`, and then `from` is not read.
__device__ __forceinline__ void pteron_fetch16(unsigned short* to, const unsigned short* from, bool inside) {
#ifdef __CUDA_ARCH__
  const int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes) : "memory");
#else
  for (int j = 0; j < 8; ++j) to[j] = inside ? from[j] : (unsigned short)0;
#endif
}
__device__ __forceinline__ void pteron_fetch_end() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// Waits until at most `left` of the groups of copies are under way.
template <int left>
__device__ __forceinline__ void pteron_fetch_wait() {
#ifdef __CUDA_ARCH__
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#endif
}
// Runs of bytes into shared memory by the copy engine: one thread asks for a run, and all that wait for `arrived` see it. The number and both addresses are multiples of 16.
// A barrier is opened once and counts: one thread says how many bytes belong to it. Without such an engine a thread copies its run itself, and to wait is to meet.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PTERON_BULK(...) __VA_ARGS__
#else
#define PTERON_BULK(...)
#endif
__device__ __forceinline__ void pteron_bulk_open(unsigned long long* arrived) {
  PTERON_BULK(asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\n fence.mbarrier_init.release.cluster;" ::"r"((unsigned)__cvta_generic_to_shared(arrived)) : "memory");)
}
__device__ __forceinline__ void pteron_bulk_expect(unsigned long long* arrived, int bytes) {
  PTERON_BULK(asm volatile("{ .reg .b64 state;\n mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"((unsigned)__cvta_generic_to_shared(arrived)), "r"(bytes) : "memory");)
}
__device__ __forceinline__ void pteron_bulk_fetch(unsigned short* to, const unsigned short* from, int bytes, unsigned long long* arrived) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"((unsigned)__cvta_generic_to_shared(to)), "l"(from), "r"(bytes),
               "r"((unsigned)__cvta_generic_to_shared(arrived))
               : "memory");
#else
  for (int i = 0; i < bytes / 16; ++i) ((uint4*)to)[i] = ((const uint4*)from)[i];
#endif
}
// Waits for the first use of the barrier.
__device__ __forceinline__ void pteron_bulk_wait(unsigned long long* arrived) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned done = 0;
  while (done == 0u) {
    asm volatile("{ .reg .pred p;\n mbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\n selp.u32 %0, 1, 0, p; }" : "=r"(done) : "r"((unsigned)__cvta_generic_to_shared(arrived)) : "memory");
  }
#else
  __syncthreads();
#endif
}
// Blocks of a cluster wait for each other, and read each other's shared memory. Without clusters a block is alone.
__device__ __forceinline__ void pteron_cluster_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.aligned;\n barrier.cluster.wait.aligned;" ::: "memory");
#endif
}
__device__ __forceinline__ float pteron_cluster_read(const float* mine, int block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned there;
  float r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(mine)), "r"(block));
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(r) : "r"(there) : "memory");
  return r;
#else
  return *mine;
#endif
}
__device__ __forceinline__ float2 pteron_cluster_read2(const float* mine, int block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned there;
  float2 r;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"((unsigned)__cvta_generic_to_shared(mine)), "r"(block));
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];" : "=f"(r.x), "=f"(r.y) : "r"(there) : "memory");
  return r;
#else
  return *(const float2*)mine;
#endif
}
)";

}  // namespace

std::string_view tile_text() { return kText; }

}  // namespace pteron::cuda
