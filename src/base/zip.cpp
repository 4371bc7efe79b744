// Zip directory parsing and inflating. The layout is PKWARE's APPNOTE; torch writes zeros into local headers, so sizes come
// from the central directory only.
#include "base/zip.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/buffer.h"
#include "base/checked_math.h"
#include "base/crc32.h"
#include "base/no_memory.h"
#include "base/str_cat.h"

namespace pteron {

namespace {

constexpr uint32_t kLocalMagic = 0x04034b50, kCentralMagic = 0x02014b50, kEndMagic = 0x06054b50;
constexpr uint32_t kEnd64Magic = 0x06064b50, kLocator64Magic = 0x07064b50;
constexpr size_t kLocalBytes = 30, kCentralBytes = 46, kEndBytes = 22, kLocator64Bytes = 20, kEnd64Bytes = 56;
constexpr uint16_t kStored = 0, kDeflated = 8;
constexpr uint64_t kMaxInflateRatio = 1032;  // deflate cannot expand more

static_assert(std::endian::native == std::endian::little, "zip numbers are read as they lie");

/// A little-endian number at an offset that the caller has checked.
template <typename T>
T number_at(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct Directory {
  uint64_t offset = 0, size = 0, count = 0;
};

/// Position of the end record: the last one whose comment reaches exactly to the end of the file.
Result<uint64_t> find_end(std::span<const std::byte> bytes) {
  if (bytes.empty()) return Status::invalid_file("the file is empty, a zip archive is expected");
  const bool looks_like_zip = bytes.size() >= 4 && number_at<uint32_t>(bytes, 0) == kLocalMagic;
  if (bytes.size() >= kEndBytes) {
    const uint64_t last = bytes.size() - kEndBytes;
    const uint64_t first = last > 0xffff ? last - 0xffff : 0;
    for (uint64_t at = last + 1; at-- > first;) {
      if (number_at<uint32_t>(bytes, at) != kEndMagic) continue;
      if (at + kEndBytes + number_at<uint16_t>(bytes, at + 20) == bytes.size()) return at;
    }
  }
  if (looks_like_zip) return Status::invalid_file(str_cat("zip archive of ", bytes.size(), " bytes is truncated: no end record"));
  return Status::invalid_file(str_cat("not a zip archive: ", bytes.size(), " bytes without zip records"));
}

/// Where the central directory lies, from the zip64 record if there is one.
Result<Directory> find_directory(std::span<const std::byte> bytes) {
  PTERON_ASSIGN(const uint64_t end, find_end(bytes));
  if (number_at<uint16_t>(bytes, end + 4) != number_at<uint16_t>(bytes, end + 6)) {
    return Status(Code::kUnsupported, "zip archive of several disks");
  }
  Directory directory{number_at<uint32_t>(bytes, end + 16), number_at<uint32_t>(bytes, end + 12), number_at<uint16_t>(bytes, end + 10)};
  uint64_t limit = end;
  if (end >= kLocator64Bytes && number_at<uint32_t>(bytes, end - kLocator64Bytes) == kLocator64Magic) {
    const uint64_t record = number_at<uint64_t>(bytes, end - kLocator64Bytes + 8);
    if (!range_inside(record, kEnd64Bytes, end - kLocator64Bytes) || number_at<uint32_t>(bytes, record) != kEnd64Magic) {
      return Status::invalid_file(str_cat("zip64 end record expected at offset ", record));
    }
    directory = {number_at<uint64_t>(bytes, record + 48), number_at<uint64_t>(bytes, record + 40), number_at<uint64_t>(bytes, record + 32)};
    limit = record;
  }
  if (!range_inside(directory.offset, directory.size, limit)) {
    return Status::invalid_file(str_cat("zip directory of ", directory.size, " bytes at offset ", directory.offset, " does not end before its end record at ", limit));
  }
  if (directory.count > directory.size / kCentralBytes) {
    return Status::invalid_file(str_cat("zip directory of ", directory.size, " bytes cannot hold ", directory.count, " entries"));
  }
  return directory;
}

/// Replaces the 0xffffffff numbers of a central entry by those of its zip64 field.
Status read_zip64_field(std::span<const std::byte> extra, ZipEntry* entry, uint64_t* local_offset) {
  for (uint64_t at = 0; range_inside(at, 4, extra.size());) {
    const uint16_t id = number_at<uint16_t>(extra, at), size = number_at<uint16_t>(extra, at + 2);
    if (!range_inside(at + 4, size, extra.size())) break;
    if (id == 1) {
      uint64_t field = at + 4;
      const uint64_t field_end = field + size;
      for (uint64_t* number : {&entry->size_bytes, &entry->stored_bytes, local_offset}) {
        if (*number != 0xffffffff) continue;
        if (field + 8 > field_end) return Status::invalid_file(str_cat("zip entry ", entry->name, ": its zip64 field is too short"));
        *number = number_at<uint64_t>(extra, field);
        field += 8;
      }
    }
    at += 4 + uint64_t{size};
  }
  return ok_status();
}

/// One record of the central directory; `at` moves behind it. data_offset is the local header's for now.
Result<ZipEntry> read_central(std::span<const std::byte> bytes, uint64_t* at, uint64_t end) {
  if (!range_inside(*at, kCentralBytes, end) || number_at<uint32_t>(bytes, *at) != kCentralMagic) {
    return Status::invalid_file(str_cat("zip directory entry expected at offset ", *at));
  }
  const uint16_t flags = number_at<uint16_t>(bytes, *at + 8);
  const uint64_t name_bytes = number_at<uint16_t>(bytes, *at + 28), extra_bytes = number_at<uint16_t>(bytes, *at + 30);
  const uint64_t comment_bytes = number_at<uint16_t>(bytes, *at + 32);
  const uint64_t tail = *at + kCentralBytes;
  if (!range_inside(tail, name_bytes + extra_bytes + comment_bytes, end)) {
    return Status::invalid_file(str_cat("zip directory entry at offset ", *at, " runs past the directory's end"));
  }
  ZipEntry entry;
  entry.name = {reinterpret_cast<const char*>(bytes.data()) + tail, name_bytes};
  entry.method = number_at<uint16_t>(bytes, *at + 10);
  entry.crc = number_at<uint32_t>(bytes, *at + 16);
  entry.stored_bytes = number_at<uint32_t>(bytes, *at + 20);
  entry.size_bytes = number_at<uint32_t>(bytes, *at + 24);
  uint64_t local_offset = number_at<uint32_t>(bytes, *at + 42);
  PTERON_TRY(read_zip64_field(bytes.subspan(tail + name_bytes, extra_bytes), &entry, &local_offset));
  entry.data_offset = local_offset;
  *at = tail + name_bytes + extra_bytes + comment_bytes;
  if ((flags & 1) != 0) return Status(Code::kUnsupported, str_cat("zip entry ", entry.name, " is encrypted"));
  if (entry.method != kStored && entry.method != kDeflated) {
    return Status(Code::kUnsupported, str_cat("zip entry ", entry.name, ": compression method ", entry.method, ", only stored and deflated are read"));
  }
  if (entry.method == kStored && entry.stored_bytes != entry.size_bytes) {
    return Status::invalid_file(str_cat("zip entry ", entry.name, " is stored, yet has ", entry.stored_bytes, " bytes in the file and ", entry.size_bytes, " outside"));
  }
  if (entry.method == kDeflated && entry.size_bytes / kMaxInflateRatio > entry.stored_bytes) {
    return Status::invalid_file(str_cat("zip entry ", entry.name, ": ", entry.stored_bytes, " deflated bytes cannot become ", entry.size_bytes));
  }
  return entry;
}

/// Turns the local header's offset into the data's, and checks that header and data end before `limit`.
Status locate_data(std::span<const std::byte> bytes, ZipEntry* entry, uint64_t limit) {
  const uint64_t header = entry->data_offset;
  if (!range_inside(header, kLocalBytes, limit) || number_at<uint32_t>(bytes, header) != kLocalMagic) {
    return Status::invalid_file(str_cat("zip entry ", entry->name, ": local header expected at offset ", header));
  }
  const uint64_t name_bytes = number_at<uint16_t>(bytes, header + 26), extra_bytes = number_at<uint16_t>(bytes, header + 28);
  if (!range_inside(header + kLocalBytes, name_bytes + extra_bytes, limit) || name_bytes != entry->name.size() ||
      std::memcmp(bytes.data() + header + kLocalBytes, entry->name.data(), name_bytes) != 0) {
    return Status::invalid_file(str_cat("zip entry ", entry->name, ": the local header at offset ", header, " has another name"));
  }
  entry->data_offset = header + kLocalBytes + name_bytes + extra_bytes;
  if (!range_inside(entry->data_offset, entry->stored_bytes, limit)) {
    return Status::invalid_file(str_cat("zip entry ", entry->name, ": ", entry->stored_bytes, " bytes at offset ", entry->data_offset,
                           " overlap what begins at ", limit));
  }
  return ok_status();
}

Result<ZipBytes> inflate_entry(std::span<const std::byte> stored, const ZipEntry& entry) {
  PTERON_ASSIGN(Buffer made, buffer_for(str_cat("zip entry ", entry.name), Buffer::create(entry.size_bytes)));
  auto buffer = std::make_shared<Buffer>(std::move(made));  // shared: see ZipBytes::owner
  z_stream stream = {};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return Status::out_of_memory();
  constexpr size_t kStep = size_t{1} << 30;  // zlib counts in 32 bits
  size_t read = 0, written = 0;
  int answer = Z_OK;
  while (answer == Z_OK) {
    const size_t in = std::min(kStep, stored.size() - read), out = std::min(kStep, buffer->size() - written);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(stored.data() + read));
    stream.avail_in = static_cast<uInt>(in);
    stream.next_out = reinterpret_cast<Bytef*>(buffer->data() + written);
    stream.avail_out = static_cast<uInt>(out);
    answer = inflate(&stream, Z_NO_FLUSH);
    read += in - stream.avail_in;
    written += out - stream.avail_out;
    if (answer == Z_OK && stream.avail_in == in && stream.avail_out == out) answer = Z_BUF_ERROR;
  }
  inflateEnd(&stream);
  if (answer != Z_STREAM_END || written != entry.size_bytes) {
    return Status::invalid_file(str_cat("zip entry ", entry.name, ": deflated data is damaged (", written, " of ", entry.size_bytes, " bytes)"));
  }
  return ZipBytes{buffer->span(), 0, buffer};
}

Status compare_crc(std::span<const std::byte> bytes, const ZipEntry& entry) {
  const auto found = crc32_of(bytes);
  if (found == entry.crc) return ok_status();
  return Status::invalid_file(str_cat("zip entry ", entry.name, " is damaged: checksum ", found, ", the directory says ", entry.crc));
}

}  // namespace

Result<ZipFile> ZipFile::open(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  PTERON_ASSIGN(const Directory directory, find_directory(bytes));
  ZipFile zip;
  zip.bytes_ = bytes;
  zip.owner_ = std::move(owner);
  zip.entries_.reserve(directory.count);
  uint64_t at = directory.offset;
  const uint64_t end = directory.offset + directory.size;
  for (uint64_t i = 0; i < directory.count; ++i) {
    PTERON_ASSIGN(ZipEntry entry, read_central(bytes, &at, end));
    zip.entries_.push_back(entry);
  }
  std::vector<ZipEntry*> by_offset;
  by_offset.reserve(zip.entries_.size());
  for (ZipEntry& entry : zip.entries_) by_offset.push_back(&entry);
  std::sort(by_offset.begin(), by_offset.end(), [](const ZipEntry* a, const ZipEntry* b) { return a->data_offset > b->data_offset; });
  uint64_t limit = directory.offset;
  for (ZipEntry* entry : by_offset) {  // from the last to the first: each must end before the header behind it
    const uint64_t header = entry->data_offset;
    PTERON_TRY(locate_data(bytes, entry, limit));
    limit = header;
  }
  zip.index_.reserve(zip.entries_.size());
  for (size_t i = 0; i < zip.entries_.size(); ++i) {
    if (!zip.index_.emplace(zip.entries_[i].name, i).second) return Status::invalid_file(str_cat("zip entry ", zip.entries_[i].name, " occurs twice"));
  }
  return zip;
}

const ZipEntry* ZipFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

Result<ZipBytes> ZipFile::read(const ZipEntry& entry, bool check_crc) const {
  ZipBytes out{bytes_.subspan(entry.data_offset, entry.stored_bytes), bytes_.size() - entry.data_offset - entry.stored_bytes, owner_};
  if (entry.method == kDeflated) {
    PTERON_ASSIGN(out, inflate_entry(out.bytes, entry));
    check_crc = true;  // the bytes were just written: reading them again is cheap
  }
  if (check_crc) PTERON_TRY(compare_crc(out.bytes, entry));
  return out;
}

}  // namespace pteron
