// What the kernels of two-operand rooms (binary, compare, divide) share: dtype categories and the run of a table.
#pragma once

#include "ops/binary/math.h"
#include "ops/elementwise.h"

namespace pteron::ops::binary {

using CFloat = std::complex<float>;
using CDouble = std::complex<double>;

template <typename T>
struct RealOfType {
  using Type = T;
};
template <typename T>
struct RealOfType<std::complex<T>> {
  using Type = T;
};
template <typename T>
using RealOf = typename RealOfType<T>::Type;

template <typename F, typename... Ts>
constexpr TileTable same_table() {
  TileTable table;
  (table.set<Ts>(&binary_tile<F, Ts, Ts>), ...);
  return table;
}

struct Number {
  static constexpr bool kFloat = false;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>();
  }
};
struct Real {
  static constexpr bool kFloat = false;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, float, double>();
  }
};
struct Float {
  static constexpr bool kFloat = true;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, float, double>();
  }
};
struct Integer {
  static constexpr bool kFloat = false;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t>();
  }
};
struct Whole {
  static constexpr bool kFloat = false;
  template <typename F>
  static constexpr TileTable table() {
    return same_table<F, uint8_t, int8_t, int16_t, int32_t, int64_t>();
  }
};

/// The promoted dtype of two operands.
DType common_dtype(const TensorOrScalar& self, const TensorOrScalar& other);

/// Whether numbers are rounded to a 16-bit common dtype first (ATen's usual way).
enum class Rounding : uint8_t { kRoundNumbers, kKeepNumbers };

/// Runs table[promoted dtype] over the broadcast operands; `to_float`: integers are computed in float32.
Status run_binary(KernelContext& context, const TensorOrScalar& self, const TensorOrScalar& other, Tensor& out, const TileTable& table,
                  bool to_float, const void* params = nullptr, Rounding rounding = Rounding::kRoundNumbers);
/// The same with bool results.
Status run_compare(KernelContext& context, const TensorOrScalar& self, const TensorOrScalar& other, Tensor& out, const TileTable& table);

}  // namespace pteron::ops::binary
