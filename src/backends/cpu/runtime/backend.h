// The CPU engine's runtime half: loads payloads that cpu/aot made. A payload is a program in our own format whose kernels are the portable
// ones and the engine's; constants of it are named data of the program around.
#pragma once

#include "pteron/delegate.h"

namespace pteron::cpu {

/// The one instance; packed weights are shared by everything it loads.
/// Threads: load() from any thread; a delegate runs one call at a time.
const DelegateBackend& backend();

}  // namespace pteron::cpu
