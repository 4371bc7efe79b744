// Text as bytes, for the tests of this room.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace pteron {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

}  // namespace pteron
