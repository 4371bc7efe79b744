// A pointwise program as pointwise_load.cpp reads it from its text, for what runs it block by block (pointwise.cpp) and what makes machine code of it
// (pointwise_code.cpp).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "backends/cpu/runtime/pointwise_code.h"
#include "backends/cpu/runtime/pointwise_ops.h"
#include "pteron/status.h"
#include "runtime/kernel.h"

namespace pteron::cpu {

inline constexpr int kMaxRegisters = 24;

/// Where an operand comes from: an input, a register, or a number.
struct Operand {
  enum class Kind : uint8_t { kInput, kRegister, kValue } kind = Kind::kRegister;
  int index = 0;  ///< of the input or register; of a number, the register that holds it where one is needed
  float value = 0;
};
struct Instruction {
  PointwiseFn fn = nullptr;
  PointwiseOp op = PointwiseOp::k_copy;
  float value = 0;
  Operand operands[3];
  int count = 0;   ///< of operands
  int target = 0;  ///< register
};
struct PointwiseState final : runtime::KernelState {
  std::vector<Instruction> code;
  std::vector<Operand> numbers;  ///< registers that hold a number all along
  int registers = 0;
  int inputs = 0;
  PointwiseCode compiled;  ///< the same as one loop, where that can be made
};

/// Reads and checks a program of `inputs` inputs (backends/cpu/pointwise_program.h has the text's form) and, if it `compiles`, makes machine code of it.
/// Errors: kInvalidFile (another text than a program, or one that needs too many registers).
Result<std::shared_ptr<const PointwiseState>> load_pointwise(std::string_view text, int inputs, bool compiles = true);

}  // namespace pteron::cpu
