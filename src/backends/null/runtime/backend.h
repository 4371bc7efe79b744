// The runtime half of the null backend.
#pragma once

#include "pteron/delegate.h"

namespace pteron::null {

/// Runs payloads on the portable kernels. Threads: immutable.
const DelegateBackend& backend();

}  // namespace pteron::null
