// What both halves of the CPU engine must agree on.
#pragma once

#include <cstdint>
#include <string_view>

namespace pteron::cpu {

inline constexpr std::string_view kBackendId = "PteronCpuBackend";
/// Compile spec with one byte, the version of the payload's operators.
inline constexpr std::string_view kVersionKey = "version";
inline constexpr unsigned char kVersion = 2;
/// Behind an activation's name: the residual is added to what the activation makes, not before.
inline constexpr std::string_view kThenResidual = "+residual";
/// Most taps of a convolution's kernel.
inline constexpr int64_t kMaxTaps = 256;

}  // namespace pteron::cpu
