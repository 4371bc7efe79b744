// Layout: "PTCUDAMO", u32 version, u32 count, then per entry u32 kind, u32 sm, u64 offset, u64 size; little-endian.
#include "backends/cuda/module.h"

#include <algorithm>
#include <cstring>

#include "base/str_cat.h"

namespace pteron::cuda {

namespace {

constexpr std::string_view kMagic = "PTCUDAMO";
constexpr uint32_t kModuleVersion = 1;
constexpr size_t kHeadBytes = 16, kEntryBytes = 24, kEntryAlignment = 16;
constexpr uint32_t kMaxEntries = 64;

template <typename T>
T load(std::span<const std::byte> bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

Status bad(std::string_view what) { return Status(Code::kInvalidFile, str_cat("CUDA module: ", what)); }

uint64_t aligned(uint64_t at) { return (at + kEntryAlignment - 1) / kEntryAlignment * kEntryAlignment; }

}  // namespace

Result<Buffer> write_module(std::span<const ModuleEntry> entries) {
  uint64_t total = kHeadBytes + kEntryBytes * entries.size();
  for (const ModuleEntry& entry : entries) total = aligned(total) + entry.bytes.size();
  PTERON_ASSIGN(Buffer out, Buffer::create_zeroed(total));
  std::memcpy(out.data(), kMagic.data(), kMagic.size());
  store(out.data() + 8, kModuleVersion);
  store(out.data() + 12, static_cast<uint32_t>(entries.size()));
  uint64_t at = kHeadBytes + kEntryBytes * entries.size();
  for (size_t i = 0; i < entries.size(); ++i) {
    at = aligned(at);
    std::byte* row = out.data() + kHeadBytes + kEntryBytes * i;
    store(row, static_cast<uint32_t>(entries[i].kind));
    store(row + 4, entries[i].sm);
    store(row + 8, at);
    store(row + 16, static_cast<uint64_t>(entries[i].bytes.size()));
    std::ranges::copy(entries[i].bytes, out.data() + at);
    at += entries[i].bytes.size();
  }
  return out;
}

Result<std::vector<ModuleEntry>> read_module(std::span<const std::byte> bytes) {
  if (bytes.size() < kHeadBytes || std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) return bad("expected its magic at the start");
  const uint32_t version = load<uint32_t>(bytes, 8), count = load<uint32_t>(bytes, 12);
  if (version != kModuleVersion) return Status(Code::kIncompatible, str_cat("CUDA module: version ", version, ", expected ", kModuleVersion));
  if (count > kMaxEntries || (bytes.size() - kHeadBytes) / kEntryBytes < count) return bad(str_cat("a table of ", count, " entries does not fit into ", bytes.size(), " bytes"));
  std::vector<ModuleEntry> entries;
  uint64_t free = kHeadBytes + kEntryBytes * count;
  for (uint32_t i = 0; i < count; ++i) {
    const size_t row = kHeadBytes + kEntryBytes * i;
    const uint32_t kind = load<uint32_t>(bytes, row);
    const uint64_t offset = load<uint64_t>(bytes, row + 8), size = load<uint64_t>(bytes, row + 16);
    if (kind < 1 || kind > 3) return bad(str_cat("entry ", i, " has the unknown kind ", kind));
    if (offset % kEntryAlignment != 0 || offset < free || offset > bytes.size() || size > bytes.size() - offset || size == 0) {
      return bad(str_cat("entry ", i, " lies at ", offset, " with ", size, " bytes, in a module of ", bytes.size()));
    }
    const std::span<const std::byte> body = bytes.subspan(offset, size);
    if (static_cast<ModuleKind>(kind) == ModuleKind::kPtx && body.back() != std::byte{0}) return bad(str_cat("entry ", i, " is PTX without a zero byte at its end"));
    entries.push_back({static_cast<ModuleKind>(kind), load<uint32_t>(bytes, row + 4), body});
    free = offset + size;
  }
  return entries;
}

std::string list_entries(std::span<const ModuleEntry> entries) {
  std::string out;
  for (const ModuleEntry& entry : entries) {
    if (!out.empty()) out += ", ";
    if (entry.kind == ModuleKind::kSource) {
      out += "source";
    } else {
      str_append(out, "sm_", entry.sm, entry.kind == ModuleKind::kCubin ? " (cubin)" : " (ptx)");
    }
  }
  return out.empty() ? "nothing" : out;
}

}  // namespace pteron::cuda
