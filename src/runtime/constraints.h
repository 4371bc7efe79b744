// Sizes of inputs against what the program was compiled for: named sizes with ranges, equalities and divisibility, from pteron.meta.
// Built at load, checked by Method::execute.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "format/meta.h"
#include "pteron/status.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// Reads sizes of inputs into symbols and checks the rest. Borrows the method's facts.
/// Threads: check() writes into the object; one thread at a time.
class Constraints {
 public:
  Constraints() = default;
  /// Requires: `method` comes from format::read_meta (expressions are well formed) and fits the plan (describe_method).
  explicit Constraints(const format::MethodMeta& method);
  bool empty() const { return steps_.empty(); }
  /// inputs: the values of the method's inputs, in order.
  /// Errors: kInvalidInput naming input, dim, the compiled range and the size found.
  Status check(std::span<Value* const> inputs);

 private:
  struct Step {
    enum class Kind : uint8_t { kBindDim, kBindInt, kSolveDim, kCheckDim, kCondition } kind = Kind::kBindDim;
    bool first = false;                          ///< kBindDim, kBindInt: gives the symbol its value; else compares
    uint32_t input = 0;
    uint32_t dim = 0;
    uint32_t symbol = 0;
    const format::DimExpr* expr = nullptr;
    const format::ConstraintMeta* condition = nullptr;
  };
  Status run(const Step& step, std::span<Value* const> inputs);
  Status bind(const Step& step, int64_t value);
  Status solve(const Step& step, int64_t value);
  void bind_plain_symbols(std::vector<bool>& known, std::vector<Step>& derived);
  void add_derived(std::vector<bool>& known, std::vector<Step>& derived);
  std::string place(const Step& step) const;
  /// The error of a condition that does not hold.
  Status broken(const Step& step) const;
  /// The step that gives the symbol its value; null if none does.
  const Step* binding(uint32_t symbol) const;

  const format::MethodMeta* method_ = nullptr;
  std::vector<Step> steps_;
  std::vector<int64_t> values_;  ///< of symbols
};

}  // namespace pteron::runtime
