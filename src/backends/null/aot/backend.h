// The compile half of the null backend.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "backends/api/backend.h"

namespace pteron::null {

enum class Take : uint8_t {
  kNothing,     ///< "null"
  kEverything,  ///< "null:all": every node that the portable kernels run
};

/// has_kernel: kernels that the runtime half has.
std::unique_ptr<backends::Backend> make_backend(Take take, std::function<bool(std::string_view kernel)> has_kernel);

}  // namespace pteron::null
