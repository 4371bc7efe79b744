// Elementwise operators as expressions of CUDA C++: one table. Functions that they call are in prelude.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "ir/expr.h"
#include "pteron/tensor.h"

namespace pteron::cuda {

/// True for the dtypes that generated kernels compute with: bool, 8 to 64-bit signed integers, uint8, float8_e4m3fn, float8_e5m2, float16, bfloat16, float32,
/// float64.
bool has_c_type(DType dtype);
/// The floats among them that are computed as float32: those of 16 and 8 bits.
bool is_narrow_float(DType dtype);
/// What an element is computed as: "float" for narrow floats, else the type itself. Requires: has_c_type.
std::string_view c_type(DType dtype);
/// What an element is in memory: "f16". Requires: has_c_type.
std::string_view memory_type(DType dtype);
/// A number as c_type(dtype), rounded to dtype first if `rounded`.
std::string literal(double number, DType dtype, bool rounded = false);
/// An integer, float or bool constant. Requires: ir::is_number(e).
std::string literal(ir::Expr e, DType dtype, bool rounded = false);
/// `text` of c_type(from) as c_type(to) with the value that `to` holds: 16-bit floats are rounded, floats become integers by way of 64 bits.
std::string converted(const std::string& text, DType from, DType to);
/// `text`, an arithmetic result of c_type(dtype), rounded to what dtype holds.
std::string rounded(const std::string& text, DType dtype);

/// What operands are converted to, and what the expression gives.
enum class Compute : uint8_t {
  kResult,  ///< the result's dtype
  kCommon,  ///< the promoted dtype of the operands self and other; gives a bool
  kSelf,    ///< the dtype of self; gives a bool
  kTruth,   ///< bool; gives a bool
  kWhole,   ///< the result's dtype; integers stay as they are
};

/// An operator: `$name` stands for the argument, `$T` for the type of the arithmetic.
struct ScalarOp {
  std::string_view op;  ///< without "aten::"
  Compute compute = Compute::kResult;
  std::string_view text;
  bool rounds_numbers = false;  ///< Python numbers are rounded to the operands' dtype first
  bool is_costly = false;       ///< worth computing once
};

/// Null if the operator is not in the table.
const ScalarOp* find_scalar_op(std::string_view name);

}  // namespace pteron::cuda
