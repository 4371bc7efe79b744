// Kernels of the engine that stand in for portable ones of the same name: they do what they are fast at and hand other calls on.
#pragma once

#include <string_view>

#include "ops/kernels.h"
#include "runtime/kernel.h"

namespace pteron::cpu {

/// The portable kernel of that name. Requires: there is one.
inline const runtime::Kernel& portable(std::string_view name) { return *ops::portable_kernels().find(name); }

}  // namespace pteron::cpu
