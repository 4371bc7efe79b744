// Matrix product for the kernels of the op rooms: packed, blocked, any strides, any dtype that ATen multiplies. Used by matmul, conv,
// attention and rnn. half and bfloat16 are multiplied and summed in float, integers modulo 2^64, bool not at all.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>

#include "base/thread_pool.h"
#include "tensor/dtype.h"

namespace pteron::ops {

/// The type that products of T are computed in.
template <typename T>
struct ComputeOf {
  using Type = int64_t;
};
template <>
struct ComputeOf<Half> {
  using Type = float;
};
template <>
struct ComputeOf<BFloat16> {
  using Type = float;
};
template <>
struct ComputeOf<float> {
  using Type = float;
};
template <>
struct ComputeOf<double> {
  using Type = double;
};
template <>
struct ComputeOf<std::complex<float>> {
  using Type = std::complex<float>;
};
template <>
struct ComputeOf<std::complex<double>> {
  using Type = std::complex<double>;
};
template <typename T>
using Compute = typename ComputeOf<T>::Type;

/// Bytes of the compute type of a dtype.
size_t compute_size(DType dtype);

/// One operand, seen as rows of `k` products: A as its rows, B as its columns.
struct GemmOperand {
  const void* data = nullptr;
  int64_t stride_r = 0;  ///< elements from one row of A (column of B) to the next
  int64_t stride_k = 0;  ///< elements along the summed dim
  /// If set, makes panels instead of `data`: writes element (r0 + i, k0 + k) to panel[k * width + i] for i < rows, zeros for the rest
  /// of `width`, in the compute type of the dtype. Called from several threads.
  void (*pack)(const void* context, void* panel, int width, int64_t r0, int64_t rows, int64_t k0, int64_t depth) = nullptr;
  const void* context = nullptr;
};

/// c = alpha * a @ b + beta * init.
struct GemmCall {
  DType dtype = DType::kFloat32;  ///< of a, b, c and init
  int64_t m = 0, n = 0, k = 0;
  GemmOperand a, b;
  void* c = nullptr;
  int64_t c_m = 0, c_n = 0;       ///< strides of c in elements
  const void* init = nullptr;     ///< null: nothing is added; strides may be 0
  int64_t init_m = 0, init_n = 0;
  double alpha = 1, beta = 1;     ///< integers use their truncation
};

/// Scratch for a call on one thread; monotonic in m, n and k.
size_t gemm_slot_bytes(DType dtype, int64_t m, int64_t n, int64_t k);
/// Scratch for gemm() that lets every CPU work.
size_t gemm_workspace(DType dtype, int64_t m, int64_t n, int64_t k);

/// Computes the call on one thread.
/// Requires: scratch of gemm_slot_bytes, aligned to 64; dtype real or complex, not bool.
void gemm_serial(const GemmCall& call, std::span<std::byte> scratch);
/// The same on as many threads as the pool has and the scratch holds slots for.
void gemm(const GemmCall& call, ThreadPool& pool, std::span<std::byte> scratch);
/// gemm for `count` independent calls; call_of(i) describes the i-th. All have the dtype and at most the sizes of `largest`.
void gemm_batched(const GemmCall& largest, int64_t count, const std::function<GemmCall(int64_t)>& call_of, ThreadPool& pool,
                  std::span<std::byte> scratch);

}  // namespace pteron::ops
