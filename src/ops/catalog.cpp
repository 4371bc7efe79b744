// Builds the catalog from all.inc.
#include "ops/catalog.h"

#include <span>
#include <utility>

#define PTERON_OP(room)                            \
  namespace pteron::ops::room {                    \
  extern const std::span<const ir::OpDef> kOps;    \
  }
#include "ops/all.inc"
#undef PTERON_OP

namespace pteron::ops {

Result<ir::Catalog> make_catalog() {
  ir::Catalog catalog;
#define PTERON_OP(room) PTERON_TRY(catalog.add(room::kOps));
#include "ops/all.inc"
#undef PTERON_OP
  return catalog;
}

}  // namespace pteron::ops
