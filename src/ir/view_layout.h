// Questions about layouts of views. Used by passes that write through views and by emit, which decides where values live.
#pragma once

#include "ir/op.h"

namespace pteron::ir {

/// No two elements share memory, as far as strides and the ranges of sizes show.
bool is_one_to_one(const ViewLayout& layout);

}  // namespace pteron::ir
