// Numbers of the .pte and .ptd byte layouts that both readers and writers use; tables in schema/README.md.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace pteron::format {

inline constexpr std::string_view kProgramIdentifier = "ET12";
inline constexpr std::string_view kProgramHeaderMagic = "eh00";
inline constexpr std::string_view kDataIdentifier = "FT01";
inline constexpr std::string_view kDataHeaderMagic = "FH01";
inline constexpr std::string_view kMetaIdentifier = "PTM1";
/// Root offset and identifier; headers follow them.
inline constexpr uint64_t kPrefixBytes = 8;
inline constexpr uint64_t kProgramHeaderBytes = 32;
inline constexpr uint64_t kMinProgramHeaderBytes = 24;
inline constexpr uint64_t kDataHeaderBytes = 40;
/// Segments start at multiples of this, relative to the segment base; so does the base in the file.
inline constexpr uint64_t kSegmentAlignment = 128;
/// FlatBuffers' offsets are signed 32 bits.
inline constexpr uint64_t kMaxFlatbufferBytes = 0x7fffffff;
/// Alignment that a flatbuffer needs in memory (inline payloads are aligned to it).
inline constexpr uint64_t kFlatbufferAlignment = 16;

/// The little-endian number at `offset`. Requires: it lies inside `bytes`.
template <typename T>
T read_number(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// What a file that is not the expected one is, for messages.
inline std::string_view kind_of_file(std::span<const std::byte> bytes) {
  const auto has = [&](size_t at, std::string_view text) { return bytes.size() >= at + text.size() && std::memcmp(bytes.data() + at, text.data(), text.size()) == 0; };
  if (has(0, "PK\3\4")) return "a zip archive (a .pt2 has to be compiled first)";
  if (has(4, kProgramIdentifier)) return "a program (.pte)";
  if (has(4, "ET")) return "a program (.pte) of another version";
  if (has(4, kDataIdentifier)) return "a data file (.ptd)";
  return "another one";
}

template <typename T>
void write_number(std::span<std::byte> bytes, uint64_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

/// Four characters at `offset`. Requires: they lie inside `bytes`.
inline std::string_view read_tag(std::span<const std::byte> bytes, uint64_t offset) {
  return {reinterpret_cast<const char*>(bytes.data()) + offset, 4};
}

}  // namespace pteron::format
