// Sizes of inputs against what the program was compiled for: named sizes with ranges, equalities and divisibility, from pteron.meta.
// Built at load, checked by Method::execute.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "pteron/status.h"
#include "runtime/value.h"
#include "schema/pteron_meta_generated.h"

namespace pteron::runtime {

/// Reads sizes of inputs into symbols and checks the rest. Borrows the meta table.
/// Threads: check() writes into the object; one thread at a time.
class Constraints {
 public:
  Constraints() = default;
  /// Errors: kInvalidFile (an expression that is malformed or names unknown symbols).
  static Result<Constraints> create(const wire::meta::Method& method);
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
    const wire::meta::Expr* expr = nullptr;
    const wire::meta::Constraint* condition = nullptr;
  };
  Status run(const Step& step, std::span<Value* const> inputs);
  Status bind(const Step& step, int64_t value);
  Status solve(const Step& step, int64_t value);
  /// False on overflow or division by zero.
  bool evaluate(const wire::meta::Expr& expr, int64_t* out) const;
  std::string_view input_name(uint32_t input) const;

  const wire::meta::Method* method_ = nullptr;
  std::vector<Step> steps_;
  std::vector<int64_t> values_;  ///< of symbols
};

/// True if the expression is a single symbol; writes its index.
bool is_symbol(const wire::meta::Expr& expr, uint32_t* symbol);
/// True if the expression is a single constant; writes it.
bool is_constant(const wire::meta::Expr& expr, int64_t* value);

}  // namespace pteron::runtime
