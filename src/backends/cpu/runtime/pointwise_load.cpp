// Reads pointwise programs: the text is checked, values get registers, instructions the functions of this processor.
#include <algorithm>
#include <bit>
#include <charconv>

#include "backends/cpu/pointwise_program.h"
#include "backends/cpu/runtime/pointwise_state.h"
#include "base/str_cat.h"

namespace pteron::cpu {
namespace {

struct OpInfo {
  std::string_view name;
  int operands;
};
constexpr OpInfo kOps[] = {
#define POINTWISE(name, operands) {#name, operands},
#include "backends/cpu/pointwise_ops.inc"
#undef POINTWISE
};

/// Reads and checks one program. Values are numbered: inputs, then one per instruction.
class Loader {
 public:
  Loader(std::string_view text, int inputs, bool compiles) : rest_(text), inputs_(inputs), compiles_(compiles) {}

  Result<std::shared_ptr<const PointwiseState>> run() {
    auto made = std::make_shared<PointwiseState>();
    made->inputs = inputs_;
    while (!rest_.empty()) {
      if (code_.size() == kMaxPointwiseCode) return bad("too many instructions");
      PTERON_TRY(instruction(until(';')));
    }
    if (code_.empty()) return bad("it is empty");
    PTERON_TRY(assign_registers(*made));
    choose_functions();
    made->code = std::move(code_);
    made->registers = registers_;
    if (compiles_) made->compiled = PointwiseCode(*made);
    return std::shared_ptr<const PointwiseState>(std::move(made));
  }

 private:
  Status bad(std::string_view why) const { return Status(Code::kInvalidFile, str_cat("pointwise program, instruction ", code_.size(), ": ", why)); }

  std::string_view until(char end) {
    const size_t at = std::min(rest_.find(end), rest_.size());
    const std::string_view word = rest_.substr(0, at);
    rest_.remove_prefix(std::min(at + 1, rest_.size()));
    return word;
  }

  Status instruction(std::string_view text) {
    const size_t space = std::min(text.find(' '), text.size());
    const auto* op = std::ranges::find(kOps, text.substr(0, space), &OpInfo::name);
    if (op == std::end(kOps)) return bad(str_cat("'", text.substr(0, space), "' is no instruction"));
    text.remove_prefix(std::min(space + 1, text.size()));
    Instruction made;
    while (!text.empty()) {
      const size_t end = std::min(text.find(' '), text.size());
      if (made.count == 3) return bad("too many operands");
      PTERON_TRY(operand(text.substr(0, end), &made.operands[made.count++]));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (made.count != op->operands) return bad(str_cat(op->name, " has ", op->operands, " operands, found ", made.count));
    made.op = static_cast<PointwiseOp>(op - std::begin(kOps));
    code_.push_back(made);
    return ok_status();
  }

  Status operand(std::string_view word, Operand* out) const {
    const bool is_value = word.starts_with('#');
    if (is_value) word.remove_prefix(1);
    uint32_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, is_value ? 16 : 10);
    if (error != std::errc() || end != word.data() + word.size()) return bad(str_cat("'", word, "' is no operand"));
    if (is_value) {
      *out = {Operand::Kind::kValue, -1, std::bit_cast<float>(number)};
      return ok_status();
    }
    if (number >= static_cast<uint32_t>(inputs_) + code_.size()) return bad(str_cat("value ", number, " does not exist yet"));
    const int index = static_cast<int>(number);
    *out = index < inputs_ ? Operand{Operand::Kind::kInput, index, 0} : Operand{Operand::Kind::kRegister, index - inputs_, 0};
    return ok_status();
  }

  /// Registers for numbers that need one, then for results, each free again after its last use.
  Status assign_registers(PointwiseState& made) {
    std::vector<int> last(code_.size(), -1), place(code_.size(), -1), free;
    last.back() = static_cast<int>(code_.size());
    for (size_t i = 0; i < code_.size(); ++i) {
      for (Operand& operand : std::span(code_[i].operands, static_cast<size_t>(code_[i].count))) {
        if (operand.kind == Operand::Kind::kRegister) last[static_cast<size_t>(operand.index)] = static_cast<int>(i);
        if (operand.kind != Operand::Kind::kValue || is_immediate(code_[i])) continue;
        operand.index = registers_++;
        made.numbers.push_back(operand);
      }
    }
    for (size_t i = 0; i < code_.size(); ++i) {
      for (Operand& operand : std::span(code_[i].operands, static_cast<size_t>(code_[i].count))) {
        if (operand.kind != Operand::Kind::kRegister) continue;
        const auto source = static_cast<size_t>(operand.index);
        operand.index = place[source];
        if (last[source] != static_cast<int>(i)) continue;
        free.push_back(place[source]);
        last[source] = -1;  // given back once
      }
      if (free.empty()) {
        place[i] = registers_++;
      } else {
        place[i] = free.back();
        free.pop_back();
      }
      code_[i].target = place[i];
    }
    return registers_ <= kMaxRegisters ? ok_status() : bad(str_cat("it needs ", registers_, " registers, at most ", kMaxRegisters));
  }

  /// One of two operands is a number.
  static bool is_immediate(const Instruction& in) {
    return in.count == 2 && (in.operands[0].kind == Operand::Kind::kValue) != (in.operands[1].kind == Operand::Kind::kValue);
  }

  void choose_functions() {
    const PointwiseSet& set = pointwise_set();
    for (Instruction& in : code_) {
      const auto op = static_cast<size_t>(in.op);
      in.fn = set.plain[op];
      if (!is_immediate(in)) continue;
      const bool right = in.operands[1].kind == Operand::Kind::kValue;
      in.fn = right ? set.right_value[op] : set.left_value[op];
      in.value = in.operands[right ? 1 : 0].value;
    }
  }

  std::string_view rest_;
  int inputs_;
  bool compiles_;
  int registers_ = 0;
  std::vector<Instruction> code_;
};

}  // namespace

Result<std::shared_ptr<const PointwiseState>> load_pointwise(std::string_view text, int inputs, bool compiles) { return Loader(text, inputs, compiles).run(); }

}  // namespace pteron::cpu
