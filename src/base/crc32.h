// CRC-32 of zip entries at the speed of memory. Called by zip.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace pteron {

/// The checksum that zip and gzip use.
uint32_t crc32_of(std::span<const std::byte> bytes);

}  // namespace pteron
