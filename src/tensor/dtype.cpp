// Tables behind tensor/dtype.h and the dtype functions of pteron/tensor.h.
#include "tensor/dtype.h"

#include <array>
#include <iterator>

namespace pteron {

namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;
  uint8_t size;
};

constexpr DTypeRow kRows[] = {
    {DType::kUInt8, "uint8", 1},
    {DType::kInt8, "int8", 1},
    {DType::kInt16, "int16", 2},
    {DType::kInt32, "int32", 4},
    {DType::kInt64, "int64", 8},
    {DType::kFloat16, "float16", 2},
    {DType::kFloat32, "float32", 4},
    {DType::kFloat64, "float64", 8},
    {DType::kComplexHalf, "complex32", 4},
    {DType::kComplexFloat, "complex64", 8},
    {DType::kComplexDouble, "complex128", 16},
    {DType::kBool, "bool", 1},
    {DType::kBFloat16, "bfloat16", 2},
    {DType::kFloat8E5M2, "float8_e5m2", 1},
    {DType::kFloat8E4M3FN, "float8_e4m3fn", 1},
    {DType::kFloat8E5M2FNUZ, "float8_e5m2fnuz", 1},
    {DType::kFloat8E4M3FNUZ, "float8_e4m3fnuz", 1},
    {DType::kUInt16, "uint16", 2},
    {DType::kUInt32, "uint32", 4},
    {DType::kUInt64, "uint64", 8},
};

constexpr int kDTypeLimit = 30;

constexpr std::array<int8_t, kDTypeLimit> make_index() {
  std::array<int8_t, kDTypeLimit> index{};
  for (auto& entry : index) entry = -1;
  for (size_t i = 0; i < std::size(kRows); ++i) index[static_cast<size_t>(kRows[i].dtype)] = static_cast<int8_t>(i);
  return index;
}

constexpr std::array<int8_t, kDTypeLimit> kIndex = make_index();

const DTypeRow& row(DType dtype) { return kRows[kIndex[static_cast<size_t>(dtype)]]; }

// Order inside one category in which a larger place wins; c10's promotion table written as ranks.
int integer_bits(DType d) { return static_cast<int>(dtype_size(d)) * 8; }
bool is_unsigned(DType d) { return d == DType::kUInt8 || (d >= DType::kUInt16 && d <= DType::kUInt64); }

DType signed_of_bits(int bits) {
  if (bits <= 8) return DType::kInt8;
  if (bits <= 16) return DType::kInt16;
  return bits <= 32 ? DType::kInt32 : DType::kInt64;
}

DType promote_integers(DType a, DType b) {
  if (is_unsigned(a) == is_unsigned(b)) return integer_bits(a) >= integer_bits(b) ? a : b;
  const DType unsigned_one = is_unsigned(a) ? a : b;
  const DType signed_one = is_unsigned(a) ? b : a;
  if (integer_bits(signed_one) > integer_bits(unsigned_one)) return signed_one;
  return signed_of_bits(integer_bits(unsigned_one) * 2);
}

DType promote_floats(DType a, DType b) {
  if (is_reduced_float(a) && is_reduced_float(b)) return DType::kFloat32;  // half with bfloat16
  if (is_float8(a)) return b;
  if (is_float8(b)) return a;
  return dtype_size(a) >= dtype_size(b) ? a : b;
}

DType complex_of(DType d) {
  if (is_complex(d)) return d;
  if (d == DType::kFloat64) return DType::kComplexDouble;
  return d == DType::kFloat16 ? DType::kComplexHalf : DType::kComplexFloat;
}

}  // namespace

size_t dtype_size(DType dtype) { return row(dtype).size; }
std::string_view dtype_name(DType dtype) { return row(dtype).name; }
bool is_known_dtype(int number) { return number >= 0 && number < kDTypeLimit && kIndex[static_cast<size_t>(number)] >= 0; }

bool dtype_from_name(std::string_view name, DType* out) {
  for (const DTypeRow& candidate : kRows) {
    if (candidate.name == name) {
      *out = candidate.dtype;
      return true;
    }
  }
  return false;
}

DType real_dtype(DType d) {
  if (d == DType::kComplexHalf) return DType::kFloat16;
  if (d == DType::kComplexFloat) return DType::kFloat32;
  return d == DType::kComplexDouble ? DType::kFloat64 : d;
}

DType promote_dtypes(DType a, DType b) {
  if (a == b) return a;
  if (is_complex(a) || is_complex(b)) {
    const DType other = is_complex(a) ? b : a;
    const DType complex_one = is_complex(a) ? a : b;
    if (!is_complex(other) && !is_floating(other)) return complex_one;
    return complex_of(promote_floats(real_dtype(complex_one), real_dtype(other)));
  }
  if (is_floating(a) && is_floating(b)) return promote_floats(a, b);
  if (is_floating(a)) return a;
  if (is_floating(b)) return b;
  if (a == DType::kBool) return b;
  if (b == DType::kBool) return a;
  return promote_integers(a, b);
}

bool can_cast(DType from, DType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if (is_floating(from) && is_integral(to, true)) return false;
  return from == DType::kBool || to != DType::kBool;
}

}  // namespace pteron
