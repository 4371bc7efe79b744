// What both halves of the null backend must agree on.
#pragma once

#include <string_view>

namespace pteron::null {

inline constexpr std::string_view kBackendId = "PteronNullBackend";
/// Compile spec with one byte, the version of the payload.
inline constexpr std::string_view kVersionKey = "version";
inline constexpr unsigned char kVersion = 1;

}  // namespace pteron::null
