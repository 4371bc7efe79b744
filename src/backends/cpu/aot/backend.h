// The CPU engine's compile half: takes whatever the runtime has kernels for, fuses, chooses layouts, and emits the group as a payload
// program. Runtime half: backends/cpu/runtime.
#pragma once

#include <functional>
#include <string_view>

#include "backends/api/backend.h"

namespace pteron::cpu {

/// has_kernel: the kernels of our runtime; must outlive the backend.
Result<std::unique_ptr<backends::Backend>> make_backend(std::function<bool(std::string_view kernel)> has_kernel);

}  // namespace pteron::cpu
