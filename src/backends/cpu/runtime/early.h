// Which loads leave packing for later. Used by the prepare() of every kernel that packs weights.
#pragma once

#include "runtime/kernel.h"

namespace pteron::cpu {

/// True in a load that must be short (runtime::finish_loading): prepare() checks its arguments and gives null instead of packing weights.
inline bool is_early(const runtime::KernelLoad& load) { return load.pool == nullptr; }

}  // namespace pteron::cpu
