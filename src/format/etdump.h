// ETDumps (.etdp): what the runs of a program took, for the official inspector. Plain structs, writer and verified reader. Used by the runtime's
// EventRecorder and by `pteron inspect`. Wire layout: schema/etdump.fbs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "base/buffer.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::format {

inline constexpr std::string_view kEtdumpIdentifier = "ED00";
/// The identifier's place: after the size and the root offset.
inline constexpr size_t kEtdumpIdentifierAt = 8;

/// Which instruction an event belongs to; -1: none. In a delegate, a number or a text says which part of it.
struct EtdumpPlace {
  int64_t chain = -1;
  int32_t instruction = -1;
  int32_t delegate_number = -1;
  std::string_view delegate_text = {};
};

/// Units: start and end are nanoseconds of one clock in files that Pteron writes.
struct EtdumpProfile {
  std::string_view name;
  EtdumpPlace place;
  uint64_t start = 0, end = 0;
  std::span<const std::byte> metadata = {};
};

struct EtdumpAllocation {
  int32_t allocator = 0;
  uint64_t size_bytes = 0;
};

/// `offset_bytes`: place in a separate file of tensor bytes.
struct EtdumpTensor {
  DType dtype = DType::kFloat32;
  std::span<const int64_t> sizes;
  int64_t offset_bytes = 0;
};
using EtdumpValue = std::variant<std::monostate, EtdumpTensor, std::vector<EtdumpTensor>, int64_t, bool, double>;

/// A value that was seen.
struct EtdumpDebug {
  std::string_view name;
  EtdumpPlace place;
  EtdumpValue value;
  bool is_output = false;
};

using EtdumpEvent = std::variant<EtdumpProfile, EtdumpAllocation, EtdumpDebug>;

struct EtdumpRun {
  std::string_view name;
  int32_t bundled_case = -1;
  std::vector<std::string_view> allocators = {};
  std::vector<EtdumpEvent> events = {};
};

/// Owns: its lists; borrows texts, sizes and metadata, from the file or from `aligned_copy`.
struct Etdump {
  std::vector<EtdumpRun> runs;
  Buffer aligned_copy = {};  ///< of a file whose bytes are not aligned
};

/// Values of debug events are written without strides: dense.
/// Errors: kInvalidInput (more than 1 GiB), kOutOfMemory.
Result<Buffer> write_etdump(const Etdump& dump);
/// Checks a whole .etdp. `file` must stay alive while the dump is used; a copy of it is made if it is not aligned.
/// Errors: kInvalidFile (what was expected, found and where), kUnsupported (a newer version), kOutOfMemory.
Result<Etdump> read_etdump(std::span<const std::byte> file);
/// Whether the file says of itself that it is one.
bool is_etdump(std::span<const std::byte> file);

}  // namespace pteron::format
