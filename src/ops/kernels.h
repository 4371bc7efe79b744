// The portable kernels, made from the op rooms that all.inc lists. Runtime half: knows no compile room.
#pragma once

#include "runtime/kernel.h"

namespace pteron::ops {

/// Table with the rows of every op room.
const runtime::KernelTable& portable_kernels();

}  // namespace pteron::ops
