// The engine of elementwise kernels: walks a broadcast shape in tiles that stay in the first-level cache, converts every operand to the
// dtype the arithmetic is done in, calls a plain loop, converts the results. Used by kernel*.cpp of pointwise rooms and by all rooms that
// need typed, contiguous runs of strided tensors. Knows no operator.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/kernel.h"
#include "tensor/dtype.h"
#include "tensor/promote.h"

#if defined(__clang__)
#define PTERON_VECTORIZE _Pragma("clang loop vectorize(assume_safety)")
#else
#define PTERON_VECTORIZE _Pragma("GCC ivdep")
#endif

/// A loop of costly arithmetic is compiled a second time for AVX-512; the system's loader takes the one that the processor has. Results are the same:
/// each element goes through the same operations. (clang has no such copies of templates.)
#if defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__)
#define PTERON_WIDE __attribute__((target_clones("arch=x86-64-v4", "default")))
#else
#define PTERON_WIDE
#endif

namespace pteron::ops {

using runtime::KernelContext;
using runtime::Scalar;
using runtime::Tensor;

/// Bytes of one operand's tile.
inline constexpr int64_t kTileBytes = 4096;
inline constexpr size_t kMaxTileInputs = 4;
inline constexpr size_t kMaxTileOutputs = 2;

/// The arithmetic on n elements: out[k] and in[k] are contiguous arrays of the dtypes that the call named. out[k] may be in[j].
using TileFn = void (*)(int64_t n, void* const* out, const void* const* in, const void* params);
/// Converts n contiguous elements.
using ConvertFn = void (*)(int64_t n, const void* from, void* to);

/// The dtype arithmetic on `dtype` is done in: float32 for 16-bit floats, complex64 for complex32, otherwise itself.
constexpr DType compute_dtype(DType dtype) {
  if (is_reduced_float(dtype) || is_float8(dtype)) return DType::kFloat32;
  return dtype == DType::kComplexHalf ? DType::kComplexFloat : dtype;
}
/// compute_dtype, with integers and bool as float32 (exp, sin, div).
constexpr DType float_compute_dtype(DType dtype) { return is_integral(dtype, true) ? DType::kFloat32 : compute_dtype(dtype); }

/// Conversion between two dtypes as ATen's `to`: C casts for floats to integers, != 0 for bool, the real part of complex numbers.
/// Null where there is none (float8, complex32).
ConvertFn find_convert(DType from, DType to);

/// An argument that is a tensor or a number (aten::add.Tensor called with a Python number; one function for .Tensor and .Scalar).
struct TensorOrScalar {
  const Tensor* tensor = nullptr;
  Scalar scalar;
  void add_to(Promotion& p) const;
};

/// An input of run_tiles.
/// Owns:    a number's converted value; borrows a tensor's data.
struct TileInput {
  TensorView view;
  DType compute = DType::kFloat32;   ///< what the tile function sees
  alignas(16) std::array<std::byte, 16> value{};
  bool is_value = false;

  TileInput() = default;
  TileInput(const Tensor& tensor, DType compute_as) : view(tensor.view), compute(compute_as) {}
  TileInput(const TensorView& tensor, DType compute_as) : view(tensor), compute(compute_as) {}
  /// A number: integers reach integer dtypes without passing through double.
  TileInput(const Scalar& scalar, DType compute_as);
  TileInput(const TensorOrScalar& either, DType compute_as);
  /// The same, a number first rounded to `common` (ATen makes a 0-d tensor of the common dtype of it; 16-bit floats lose bits there).
  TileInput(const TensorOrScalar& either, DType compute_as, DType common);
};

struct TileOutput {
  TensorView view;
  DType compute = DType::kFloat32;   ///< what the tile function writes
};

/// Smallest number of elements worth a thread, for cheap and for costly arithmetic.
inline constexpr int64_t kCheapGrain = 32768;
inline constexpr int64_t kCostlyGrain = 4096;

/// Runs fn over all elements of `sizes`. Inputs broadcast to `sizes`; outputs have these sizes (already resized).
/// An output may lie exactly on an input; it must not overlap one in another way.
/// Errors: kUnsupported for dtypes without a conversion.
Status run_tiles(KernelContext& context, std::span<const int64_t> sizes, std::span<const TileInput> inputs, std::span<const TileOutput> outputs,
                 TileFn fn, const void* params, int64_t grain = kCheapGrain);

/// Broadcast of the inputs' sizes (numbers are skipped). Errors: kInvalidInput.
Status broadcast_inputs(std::span<const TileInput> inputs, Sizes* out);

/// broadcast_inputs, resize(out), run_tiles: the whole of most kernels.
Status run_elementwise(KernelContext& context, std::span<const TileInput> inputs, Tensor& out, DType out_compute, TileFn fn, const void* params,
                       int64_t grain = kCheapGrain);

/// Tile functions by the dtype of the arithmetic; null where an operator does not take the dtype.
struct TileTable {
  static constexpr size_t kCount = 13;
  std::array<TileFn, kCount> fns{};
  /// Place of a compute dtype in the table; kCount if it has none.
  static constexpr size_t place(DType dtype) {
    switch (dtype) {
      case DType::kBool: return 0;
      case DType::kUInt8: return 1;
      case DType::kInt8: return 2;
      case DType::kInt16: return 3;
      case DType::kInt32: return 4;
      case DType::kInt64: return 5;
      case DType::kFloat32: return 6;
      case DType::kFloat64: return 7;
      case DType::kComplexFloat: return 8;
      case DType::kComplexDouble: return 9;
      case DType::kUInt16: return 10;
      case DType::kUInt32: return 11;
      case DType::kUInt64: return 12;
      default: return kCount;
    }
  }
  constexpr TileFn find(DType dtype) const { return place(dtype) < kCount ? fns[place(dtype)] : nullptr; }
  template <typename T>
  constexpr void set(TileFn fn) {
    fns[place(kDTypeOf<T>)] = fn;
  }
};

/// "does not take dtype bool".
Status unsupported_dtype(DType dtype);

/// Loop over F::apply(a): results of type R from arguments of type T.
template <typename F, typename R, typename T>
void unary_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  R* to = static_cast<R*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<R>(F::apply(a[i]));
}

template <typename F, typename R, typename T>
PTERON_WIDE void unary_wide_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  R* to = static_cast<R*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<R>(F::apply(a[i]));
}
/// unary_tile for T, with a copy for AVX-512 if T is a real float.
template <typename F, typename R, typename T>
constexpr TileFn unary_fn() {
  if constexpr (std::is_floating_point_v<T>) {
    return &unary_wide_tile<F, R, T>;
  } else {
    return &unary_tile<F, R, T>;
  }
}

/// Loop over F::apply(a, params): params points to F::Params<T>.
template <typename F, typename R, typename T, typename P>
PTERON_WIDE void unary_params_tile(int64_t n, void* const* out, const void* const* in, const void* params) {
  R* to = static_cast<R*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  const P p = *static_cast<const P*>(params);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<R>(F::apply(a[i], p));
}

/// Loop over F::apply(a, b).
template <typename F, typename R, typename T>
void binary_tile(int64_t n, void* const* out, const void* const* in, const void*) {
  R* to = static_cast<R*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<R>(F::apply(a[i], b[i]));
}

/// Loop over F::apply(a, b, params).
template <typename F, typename R, typename T, typename P>
void binary_params_tile(int64_t n, void* const* out, const void* const* in, const void* params) {
  R* to = static_cast<R*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  const P p = *static_cast<const P*>(params);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<R>(F::apply(a[i], b[i], p));
}

/// Loop over F::apply(a, b, c, params).
template <typename F, typename R, typename T, typename P>
void ternary_params_tile(int64_t n, void* const* out, const void* const* in, const void* params) {
  R* to = static_cast<R*>(out[0]);
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  const T* c = static_cast<const T*>(in[2]);
  const P p = *static_cast<const P*>(params);
  PTERON_VECTORIZE
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<R>(F::apply(a[i], b[i], c[i], p));
}

}  // namespace pteron::ops

namespace pteron::runtime {
template <>
struct Unpack<ops::TensorOrScalar> {
  static bool fits(const Value& v) { return v.tag == Tag::kTensor || Unpack<Scalar>::fits(v); }
  static ops::TensorOrScalar get(Value& v) {
    if (v.tag == Tag::kTensor) return {&v.tensor, {}};
    return {nullptr, Unpack<Scalar>::get(v)};
  }
};
}  // namespace pteron::runtime
