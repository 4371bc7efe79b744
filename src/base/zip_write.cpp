// Local headers with their entries, the central directory, the end record.
#include "base/zip_write.h"

#include <cstdint>

#include "base/crc32.h"
#include "base/str_cat.h"

namespace pteron {

namespace {

constexpr uint64_t kMaxBytes = 0xfffffffe;
constexpr size_t kMaxItems = 0xfffe;

void put(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i, value >>= 8) out.push_back(static_cast<char>(value));
}

/// What local and central headers share: version needed to extra length.
void put_common(std::string& out, const ZipItem& item, uint32_t crc) {
  put(out, 20, 2);
  put(out, 0x800, 2);       // names are UTF-8
  put(out, 0, 2);           // stored
  put(out, 0x00210000, 4);  // 1980-01-01: no time in files
  put(out, crc, 4);
  put(out, item.content.size(), 4);
  put(out, item.content.size(), 4);
  put(out, item.name.size(), 2);
  put(out, 0, 2);
}

}  // namespace

Result<std::string> write_zip(std::span<const ZipItem> items) {
  std::string out, directory;
  if (items.size() > kMaxItems) return Status(Code::kInvalidInput, str_cat("an archive of ", items.size(), " entries is too large"));
  for (const ZipItem& item : items) {
    if (item.name.size() > 0xffff || item.content.size() > kMaxBytes - out.size() ||
        out.size() + item.content.size() > kMaxBytes - directory.size() - 65536 * 2) {
      return Status(Code::kInvalidInput, str_cat("entry ", item.name.substr(0, 80), " makes the archive larger than 4 GiB"));
    }
    const uint32_t crc = crc32_of(std::as_bytes(std::span(item.content)));
    const uint64_t at = out.size();
    out += "PK\3\4";
    put_common(out, item, crc);
    out += item.name;
    out += item.content;
    directory += "PK\1\2";
    put(directory, 20, 2);
    put_common(directory, item, crc);
    put(directory, 0, 2 + 2 + 2 + 4);  // comment, disk, attributes
    put(directory, at, 4);
    directory += item.name;
  }
  const uint64_t at = out.size();
  out += directory;
  out += "PK\5\6";
  put(out, 0, 2 + 2);  // disks
  put(out, items.size(), 2);
  put(out, items.size(), 2);
  put(out, directory.size(), 4);
  put(out, at, 4);
  put(out, 0, 2);
  return out;
}

}  // namespace pteron
