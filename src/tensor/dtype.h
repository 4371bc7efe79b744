// Dtype facts: categories, promotion, C++ types, dispatch over dtypes. Used by both halves of every op room.
#pragma once

#include <complex>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "pteron/tensor.h"
#include "tensor/half.h"

namespace pteron {

constexpr bool is_complex(DType d) { return d == DType::kComplexHalf || d == DType::kComplexFloat || d == DType::kComplexDouble; }
constexpr bool is_float8(DType d) { return d >= DType::kFloat8E5M2 && d <= DType::kFloat8E4M3FNUZ; }
/// Real floating dtypes, 8-bit ones included.
constexpr bool is_floating(DType d) {
  return d == DType::kFloat16 || d == DType::kFloat32 || d == DType::kFloat64 || d == DType::kBFloat16 || is_float8(d);
}
/// Half and BFloat16: dtypes whose arithmetic ATen does in float.
constexpr bool is_reduced_float(DType d) { return d == DType::kFloat16 || d == DType::kBFloat16; }
/// Integers; bool counts only if `include_bool`.
constexpr bool is_integral(DType d, bool include_bool) {
  return d <= DType::kInt64 || (d >= DType::kUInt16 && d <= DType::kUInt64) || (include_bool && d == DType::kBool);
}

/// c10::promoteTypes: the dtype that holds values of both.
DType promote_dtypes(DType a, DType b);
/// True if ATen allows a result of dtype `from` to be stored in `to` (c10::canCast: no complex to real, no float to int, no number to bool).
bool can_cast(DType from, DType to);
/// Real dtype of a complex dtype's parts; other dtypes unchanged.
DType real_dtype(DType d);
/// dtype from PyTorch's name ("float32"); false if unknown.
bool dtype_from_name(std::string_view name, DType* out);

template <typename T>
struct DTypeOf;
#define PTERON_DTYPE_OF(type, value) \
  template <>                        \
  struct DTypeOf<type> {             \
    static constexpr DType kValue = DType::value; \
  }
PTERON_DTYPE_OF(uint8_t, kUInt8);
PTERON_DTYPE_OF(int8_t, kInt8);
PTERON_DTYPE_OF(int16_t, kInt16);
PTERON_DTYPE_OF(int32_t, kInt32);
PTERON_DTYPE_OF(int64_t, kInt64);
PTERON_DTYPE_OF(Half, kFloat16);
PTERON_DTYPE_OF(float, kFloat32);
PTERON_DTYPE_OF(double, kFloat64);
PTERON_DTYPE_OF(std::complex<float>, kComplexFloat);
PTERON_DTYPE_OF(std::complex<double>, kComplexDouble);
PTERON_DTYPE_OF(bool, kBool);
PTERON_DTYPE_OF(BFloat16, kBFloat16);
PTERON_DTYPE_OF(uint16_t, kUInt16);
PTERON_DTYPE_OF(uint32_t, kUInt32);
PTERON_DTYPE_OF(uint64_t, kUInt64);
#undef PTERON_DTYPE_OF

template <typename T>
inline constexpr DType kDTypeOf = DTypeOf<T>::kValue;

/// Calls fn.template operator()<T>() for the C++ type of a dtype and returns true; false for dtypes without one (fp8, complex half).
/// Covers ints, bool, half, bfloat16, float, double, uint16/32/64 and both complex types.
template <typename Fn>
bool dispatch_dtype(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kUInt8: fn.template operator()<uint8_t>(); return true;
    case DType::kInt8: fn.template operator()<int8_t>(); return true;
    case DType::kInt16: fn.template operator()<int16_t>(); return true;
    case DType::kInt32: fn.template operator()<int32_t>(); return true;
    case DType::kInt64: fn.template operator()<int64_t>(); return true;
    case DType::kFloat16: fn.template operator()<Half>(); return true;
    case DType::kFloat32: fn.template operator()<float>(); return true;
    case DType::kFloat64: fn.template operator()<double>(); return true;
    case DType::kBool: fn.template operator()<bool>(); return true;
    case DType::kBFloat16: fn.template operator()<BFloat16>(); return true;
    case DType::kUInt16: fn.template operator()<uint16_t>(); return true;
    case DType::kUInt32: fn.template operator()<uint32_t>(); return true;
    case DType::kUInt64: fn.template operator()<uint64_t>(); return true;
    case DType::kComplexFloat: fn.template operator()<std::complex<float>>(); return true;
    case DType::kComplexDouble: fn.template operator()<std::complex<double>>(); return true;
    default: return false;
  }
}

/// dispatch_dtype over real dtypes only (ints, bool, half, bfloat16, float, double, uint16/32/64).
template <typename Fn>
bool dispatch_real(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kUInt8: fn.template operator()<uint8_t>(); return true;
    case DType::kInt8: fn.template operator()<int8_t>(); return true;
    case DType::kInt16: fn.template operator()<int16_t>(); return true;
    case DType::kInt32: fn.template operator()<int32_t>(); return true;
    case DType::kInt64: fn.template operator()<int64_t>(); return true;
    case DType::kFloat16: fn.template operator()<Half>(); return true;
    case DType::kFloat32: fn.template operator()<float>(); return true;
    case DType::kFloat64: fn.template operator()<double>(); return true;
    case DType::kBool: fn.template operator()<bool>(); return true;
    case DType::kBFloat16: fn.template operator()<BFloat16>(); return true;
    case DType::kUInt16: fn.template operator()<uint16_t>(); return true;
    case DType::kUInt32: fn.template operator()<uint32_t>(); return true;
    case DType::kUInt64: fn.template operator()<uint64_t>(); return true;
    default: return false;
  }
}

/// dispatch_dtype over half, bfloat16, float and double.
template <typename Fn>
bool dispatch_floating(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat16: fn.template operator()<Half>(); return true;
    case DType::kFloat32: fn.template operator()<float>(); return true;
    case DType::kFloat64: fn.template operator()<double>(); return true;
    case DType::kBFloat16: fn.template operator()<BFloat16>(); return true;
    default: return false;
  }
}

/// dispatch by element size only, for kernels that move bytes: T is uint8_t, uint16_t, uint32_t, uint64_t or a 16-byte struct.
struct Bytes16 {
  uint64_t low, high;
};
template <typename Fn>
bool dispatch_size(size_t element_bytes, Fn&& fn) {
  switch (element_bytes) {
    case 1: fn.template operator()<uint8_t>(); return true;
    case 2: fn.template operator()<uint16_t>(); return true;
    case 4: fn.template operator()<uint32_t>(); return true;
    case 8: fn.template operator()<uint64_t>(); return true;
    case 16: fn.template operator()<Bytes16>(); return true;
    default: return false;
  }
}

}  // namespace pteron
