// eye as a comparison of row and column numbers.
#include "ops/factory/portable.h"

#include "ops/portable.h"

namespace pteron::ops::factory {

std::vector<ValueId> portable_eye(ir::Builder& b, const NodeView& n) {
  Portable f(b);
  const Expr rows = n.expr("n"), columns = n.has("m") ? n.expr("m") : rows;
  const ValueId same = f.compare("eq", f.unsqueeze(f.arange(rows), 1), f.arange(columns));
  return {f.to(same, n.dtype("dtype", DType::kFloat32))};
}

}  // namespace pteron::ops::factory
