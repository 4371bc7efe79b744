// The text of pointwise programs, which aot/pointwise.cpp writes and runtime/pointwise.cpp reads: instructions separated by ';', each a name of
// pointwise_ops.inc and its operands, separated by blanks. An operand is the number of a value (the inputs come first, then one value per
// instruction) or "#" and the bits of a float in hexadecimal. The last value is the result: "mul 0 1;add 4 2;gelu 5;div 6 #40000000".
#pragma once

#include <cstddef>

namespace pteron::cpu {

inline constexpr int kMaxPointwiseInputs = 12;
inline constexpr size_t kMaxPointwiseCode = 64;

}  // namespace pteron::cpu
