// Compile specs of a TensorRTBackend delegate: written by the compile half, read by the runtime half.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace pteron::tensorrt {

/// Decimal bytes of weights that stay on the device; the rest is streamed. Of each engine, not of the program.
inline constexpr std::string_view kBudgetSpec = "weight_streaming_budget";
/// "cuda:0": where the official runtime places the delegate's buffers.
inline constexpr std::string_view kDeviceSpec = "target_device";
/// kHostState: inputs that the engine writes in place may lie in host memory, since the program takes the new value from there. Without it the
/// runtime refuses them, as the official one does.
inline constexpr std::string_view kInPlaceSpec = "in_place";
inline constexpr std::string_view kHostState = "host";

/// Digits only, at least one, below 2^63; nothing else around them.
inline std::optional<int64_t> read_budget(std::string_view text) {
  if (text.empty()) return std::nullopt;
  int64_t value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '9') return std::nullopt;
    if (value > (std::numeric_limits<int64_t>::max() - (digit - '0')) / 10) return std::nullopt;
    value = value * 10 + (digit - '0');
  }
  return value;
}

}  // namespace pteron::tensorrt
