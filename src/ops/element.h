// Single elements in kernels: a number as bytes of a dtype, and the type in which elements of a dtype are added and compared.
#pragma once

#include <complex>
#include <cstddef>
#include <type_traits>

#include "ops/copy.h"
#include "tensor/dtype.h"

namespace pteron::ops {

/// float for the 16-bit floats, T itself otherwise.
template <typename T>
using MathOf = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

template <typename T>
MathOf<T> to_math(T value) {
  return static_cast<MathOf<T>>(value);
}
template <typename T>
T from_math(MathOf<T> value) {
  return static_cast<T>(value);
}

/// A number as T, by ATen's rules for Scalar (bool: not zero).
template <typename T>
T scalar_as(const runtime::Scalar& s) {
  if constexpr (std::is_same_v<T, bool>) {
    return s.to_bool();
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return T(static_cast<float>(s.to_double()));
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(s.to_int());
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(s.to_double());
  } else {
    return T(static_cast<typename T::value_type>(s.to_double()), 0);
  }
}

/// One element of any dtype.
struct Element {
  alignas(16) std::byte bytes[16] = {};
};

/// Errors: kUnsupported (dtype without a C++ type).
inline Status element_of(const runtime::Scalar& s, DType dtype, Element* out) {
  const bool done = dispatch_dtype(dtype, [&]<typename T>() {
    static_assert(sizeof(T) <= sizeof out->bytes);
    *reinterpret_cast<T*>(out->bytes) = scalar_as<T>(s);
  });
  return done ? ok_status() : Status(Code::kUnsupported, std::string("no numbers of dtype ").append(dtype_name(dtype)));
}

/// Fills a tensor with one element of its dtype.
inline Status fill_tensor(runtime::KernelContext& context, Element& value, const TensorView& to) {
  return copy_tensor(context, make_contiguous_view(to.dtype, {}, value.bytes), to);
}

inline Status fill_tensor(runtime::KernelContext& context, const runtime::Scalar& s, const TensorView& to) {
  Element value;
  PTERON_TRY(element_of(s, to.dtype, &value));
  return fill_tensor(context, value, to);
}

}  // namespace pteron::ops
