// Conversions between 8-bit floats and all dtypes with a C++ type, through float. See elementwise.h (find_convert).
#include <algorithm>
#include <array>

#include "ops/cast.h"
#include "ops/convert_float8.h"
#include "ops/elementwise.h"

namespace pteron::ops {

namespace {

template <DType from, typename To>
void from_run(int64_t n, const void* source, void* target) {
  static const std::array<float, 256> kValues = [] {
    std::array<float, 256> values;
    for (size_t i = 0; i < values.size(); ++i) values[i] = float8_to_float(static_cast<uint8_t>(i), float8_format(from));
    return values;
  }();
  const auto* in = static_cast<const uint8_t*>(source);
  To* out = static_cast<To*>(target);
  for (int64_t i = 0; i < n; ++i) out[i] = convert<To>(kValues[in[i]]);
}
template <typename From, DType to>
void to_run(int64_t n, const void* source, void* target) {
  const From* in = static_cast<const From*>(source);
  auto* out = static_cast<uint8_t*>(target);
  for (int64_t i = 0; i < n; ++i) out[i] = float_to_float8(convert<float>(in[i]), float8_format(to));
}
template <DType from, DType to>
void between_run(int64_t n, const void* source, void* target) {
  const auto* in = static_cast<const uint8_t*>(source);
  auto* out = static_cast<uint8_t*>(target);
  for (int64_t i = 0; i < n; ++i) out[i] = from == to ? in[i] : float_to_float8(float8_to_float(in[i], float8_format(from)), float8_format(to));
}

/// fn.template operator()<dtype>() for an 8-bit float.
template <typename Fn>
void with_format(DType dtype, const Fn& fn) {
  switch (dtype) {
    case DType::kFloat8E5M2: return fn.template operator()<DType::kFloat8E5M2>();
    case DType::kFloat8E4M3FN: return fn.template operator()<DType::kFloat8E4M3FN>();
    case DType::kFloat8E5M2FNUZ: return fn.template operator()<DType::kFloat8E5M2FNUZ>();
    default: return fn.template operator()<DType::kFloat8E4M3FNUZ>();
  }
}

}  // namespace

ConvertFn find_float8_convert(DType from, DType to) {
  ConvertFn found = nullptr;
  if (is_float8(from) && is_float8(to)) {
    with_format(from, [&]<DType f>() { with_format(to, [&]<DType t>() { found = &between_run<f, t>; }); });
  } else if (is_float8(from)) {
    with_format(from, [&]<DType f>() { dispatch_dtype(to, [&]<typename To>() { found = &from_run<f, To>; }); });
  } else if (is_float8(to)) {
    with_format(to, [&]<DType t>() { dispatch_dtype(from, [&]<typename From>() { found = &to_run<From, t>; }); });
  }
  return found;
}

}  // namespace pteron::ops
