// ProgramView: the verified bytes of a .pte. verify_program checks every offset, index, size, enumeration and union once; afterwards the
// generated accessors may be used freely, with one rule: vectors, strings and optional tables may be absent, so go through items_of and text_of.
// Called by the runtime, the inspector and tests. Does not copy segments and does not evaluate anything.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "pteron/status.h"
#include "pteron/tensor.h"
#include "schema/program_generated.h"

namespace pteron::format {

/// A numeric vector as a span; absent = empty.
template <typename T>
std::span<const T> items_of(const flatbuffers::Vector<T>* vector) {
  if (vector == nullptr || vector->size() == 0) return {};
  return {reinterpret_cast<const T*>(vector->Data()), vector->size()};
}

/// Number of entries of any vector; absent = 0.
template <typename T>
uint32_t count_of(const flatbuffers::Vector<T>* vector) {
  return vector == nullptr ? 0 : vector->size();
}

/// Absent = empty.
inline std::string_view text_of(const flatbuffers::String* text) {
  return text == nullptr ? std::string_view() : std::string_view(text->c_str(), text->size());
}

/// 64-bit offset of a planned tensor in its arena.
inline uint64_t offset_of(const wire::pte::AllocationDetails& place) {
  return (uint64_t{place.memory_offset_high()} << 32) | place.memory_offset_low();
}

/// What the two headers say.
struct ProgramHeader {
  uint32_t header_bytes = 0;        ///< 0 = no extended header
  uint64_t program_bytes = 0;       ///< size of the flatbuffer part
  uint64_t segment_base = 0;
  uint64_t segment_bytes = 0;       ///< 0 = not recorded
};

struct NamedRange {
  std::string_view key;
  std::span<const std::byte> bytes;
};

/// A .pte whose structure has been checked.
/// Owns:    a copy of the flatbuffer part if the bytes were not 16-byte aligned, else nothing; borrows the file's bytes.
/// Threads: immutable.
class ProgramView {
 public:
  const wire::pte::Program& root() const { return *root_; }
  const ProgramHeader& header() const { return header_; }
  std::span<const std::byte> file() const { return file_; }

  uint32_t plan_count() const { return count_of(root_->execution_plan()); }
  const wire::pte::ExecutionPlan& plan(uint32_t index) const { return *root_->execution_plan()->Get(index); }
  /// Index of the plan of that name, or -1.
  int find_plan(std::string_view name) const;

  /// Requires: index below count_of(root().segments()).
  std::span<const std::byte> segment(uint32_t index) const;
  /// Bytes of a constant tensor value (no allocation, data_buffer_idx > 0, not external).
  std::span<const std::byte> constant(const wire::pte::Tensor& tensor) const;
  /// Initial bytes of a planned tensor with data_buffer_idx > 0.
  std::span<const std::byte> initial_state(const wire::pte::Tensor& tensor) const;
  std::span<const std::byte> delegate_payload(const wire::pte::BackendDelegate& delegate) const;
  /// The blob of that name. Returns nullopt if there is none.
  std::optional<std::span<const std::byte>> named_data(std::string_view key) const;
  /// All blobs, sorted by key.
  std::span<const NamedRange> named_data() const { return named_; }
  /// Bytes of arena `memory_id` that the plan's tensors reach; never more than non_const_buffer_sizes says. Allocate this, not the stored size.
  uint64_t arena_bytes(uint32_t plan, uint32_t memory_id) const { return arenas_[plan][memory_id]; }
  /// Arenas of a plan, the reserved entry 0 included.
  uint32_t arena_count(uint32_t plan) const { return static_cast<uint32_t>(arenas_[plan].size()); }

 private:
  friend class ProgramVerifier;
  const wire::pte::Program* root_ = nullptr;
  ProgramHeader header_;
  std::span<const std::byte> file_;
  Buffer aligned_copy_;
  std::vector<NamedRange> named_;
  std::vector<std::vector<uint64_t>> arenas_;
};

/// numel * element size of a verified tensor.
uint64_t tensor_bytes(const wire::pte::Tensor& tensor);
/// True if the tensor's bytes come from a data file under extra_tensor_info()->fully_qualified_name().
bool is_external(const wire::pte::Tensor& tensor);

/// True if constants lie in the constant segment; old files have them in constant_buffer. One offset is the placeholder alone.
bool constants_in_segment(const wire::pte::Program& root);

/// Checks a whole .pte. `file` must stay alive and unchanged while the view is used.
/// Errors: kInvalidFile (what was expected, found and where), kOutOfMemory.
Result<ProgramView> verify_program(std::span<const std::byte> file);

/// The same for a file of `file_bytes` bytes of which only the flatbuffer part is at hand (the writer checks its own work with it).
/// Segments of the result must not be read.
Result<ProgramView> verify_program_part(std::span<const std::byte> part, uint64_t file_bytes);

}  // namespace pteron::format
