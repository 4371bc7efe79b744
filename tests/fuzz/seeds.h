// Small well-formed files of each kind, made in memory: starting points of fuzz targets and of the damage test.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

namespace pteron::fuzz {

using Consumer = bool (*)(std::span<const std::byte>);

/// A kind of file: its reader and small examples of it.
struct Kind {
  std::string_view name;
  Consumer consume;
  std::vector<std::vector<std::byte>> seeds;
  bool cut_refused;  ///< every file that is cut short is refused
};

/// All kinds, in the order of the declarations in consume.h.
std::vector<Kind> all_kinds();

/// The files of a stored zip archive, in order.
struct ZipPart {
  std::string_view name;
  std::span<const std::byte> bytes;
};
/// A stored zip archive with right checksums.
std::vector<std::byte> build_zip(std::span<const ZipPart> parts);
/// x + w, with w in a data file under the key "w".
std::vector<std::byte> program_with_weights();
/// A small .pt2 archive around the given model.json.
std::vector<std::byte> build_archive(std::span<const std::byte> model_json);

}  // namespace pteron::fuzz
