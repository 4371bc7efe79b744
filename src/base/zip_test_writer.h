// Test helper: makes zip archives the way torch does (zeros in local headers, data descriptors, 64-byte alignment), or deflated, or damaged.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

namespace pteron::test {

/// Collects entries, then writes directory and end records.
class ZipWriter {
 public:
  struct Entry {
    std::string name;
    uint64_t offset = 0, stored = 0, size = 0;
    uint32_t crc = 0;
    uint16_t method = 0, flags = 0x0808;
  };

  void add(std::string_view name, std::string_view data, bool deflated = false) {
    Entry entry{std::string(name), out_.size(), data.size(), data.size(), static_cast<uint32_t>(crc32_z(0, bytes(data), data.size())), 0, 0x0808};
    std::string body(data);
    if (deflated) {
      body = deflate_raw(data);
      entry.stored = body.size();
      entry.method = 8;
    }
    const size_t header = 30 + name.size() + 4;
    const size_t filler = (64 - (out_.size() + header) % 64) % 64;
    put32(0x04034b50), put16(0), put16(entry.flags), put16(entry.method), put32(0), put32(0), put32(0), put32(0);
    put16(static_cast<uint16_t>(name.size())), put16(static_cast<uint16_t>(4 + filler));
    out_ += name;
    out_ += "FB";
    put16(static_cast<uint16_t>(filler));
    out_.append(filler, 'Z');
    out_ += body;
    put32(0x08074b50), put32(entry.crc), put32(static_cast<uint32_t>(entry.stored)), put32(static_cast<uint32_t>(entry.size));
    entries.push_back(entry);
  }

  /// zip64: sizes and offsets of entries stand in zip64 fields, the end record holds only 0xffffffff.
  std::string finish(bool zip64 = false) {
    const uint64_t directory = out_.size();
    for (const Entry& e : entries) {
      put32(0x02014b50), put16(0), put16(0), put16(e.flags), put16(e.method), put32(0), put32(e.crc);
      put32(zip64 ? 0xffffffff : static_cast<uint32_t>(e.stored)), put32(zip64 ? 0xffffffff : static_cast<uint32_t>(e.size));
      put16(static_cast<uint16_t>(e.name.size())), put16(zip64 ? 28 : 0), put16(0), put16(0), put16(0), put32(0);
      put32(zip64 ? 0xffffffff : static_cast<uint32_t>(e.offset));
      out_ += e.name;
      if (zip64) put16(1), put16(24), put64(e.size), put64(e.stored), put64(e.offset);
    }
    const uint64_t size = out_.size() - directory, record = out_.size();
    put32(0x06064b50), put64(44), put16(0), put16(0), put32(0), put32(0), put64(entries.size()), put64(entries.size()), put64(size), put64(directory);
    put32(0x07064b50), put32(0), put64(record), put32(1);
    put32(0x06054b50), put16(0), put16(0), put16(static_cast<uint16_t>(entries.size())), put16(static_cast<uint16_t>(entries.size()));
    put32(static_cast<uint32_t>(size)), put32(zip64 ? 0xffffffff : static_cast<uint32_t>(directory)), put16(0);
    return out_;
  }

  std::vector<Entry> entries;

 private:
  static const Bytef* bytes(std::string_view data) { return reinterpret_cast<const Bytef*>(data.data()); }
  static std::string deflate_raw(std::string_view data) {
    std::string out(data.size() + 100, '\0');
    z_stream stream = {};
    deflateInit2(&stream, 6, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY);
    stream.next_in = const_cast<Bytef*>(bytes(data));
    stream.avail_in = static_cast<uInt>(data.size());
    stream.next_out = reinterpret_cast<Bytef*>(out.data());
    stream.avail_out = static_cast<uInt>(out.size());
    deflate(&stream, Z_FINISH);
    out.resize(stream.total_out);
    deflateEnd(&stream);
    return out;
  }
  void put16(uint16_t v) { out_.append(reinterpret_cast<const char*>(&v), 2); }
  void put32(uint32_t v) { out_.append(reinterpret_cast<const char*>(&v), 4); }
  void put64(uint64_t v) { out_.append(reinterpret_cast<const char*>(&v), 8); }
  std::string out_;
};

}  // namespace pteron::test
