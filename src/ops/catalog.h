// The operators that Pteron knows, made from the op rooms that all.inc lists.
#pragma once

#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::ops {

/// Catalog with the rows of every op room.
/// Errors: kInternal (a row's schema does not parse, or two rows have one name).
Result<ir::Catalog> make_catalog();

}  // namespace pteron::ops
