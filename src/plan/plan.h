// Memory planning: places buffers with known lifetimes into one arena so that buffers which are never alive together share bytes.
// Knows nothing of graphs; emit describes the buffers and applies the offsets.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::plan {

/// A buffer to place.
/// Units:   size in bytes; first and last are instruction positions, both inclusive.
struct BufferRequest {
  uint64_t size_bytes = 0;
  uint32_t first = 0;
  uint32_t last = 0;
};

struct PlanOptions {
  uint64_t alignment_bytes = 64;  ///< every offset is a multiple; any number above 0
};

struct MemoryPlan {
  std::vector<uint64_t> offsets;     ///< one per request
  uint64_t arena_bytes = 0;          ///< size of the arena, a multiple of the alignment
  uint64_t lower_bound_bytes = 0;    ///< largest sum of live buffers (sizes rounded up to the alignment)
};

/// Places all buffers in one arena.
/// Owns:    the result borrows nothing.
/// Errors:  kUnsupported if sizes overflow 2^63.
/// Threads: pure function of its arguments.
Result<MemoryPlan> plan_memory(std::span<const BufferRequest> requests, const PlanOptions& options);

/// Places the buffers that one method has on one device: an offset for each, in their order.
using Planner = std::function<Result<std::vector<uint64_t>>(std::string_view method, std::span<const BufferRequest> requests, uint64_t alignment_bytes, Device device)>;

/// The plan that offsets from outside give.
/// Errors:  kInvalidInput naming the buffer (another number of offsets than buffers, an offset that is no multiple of the alignment, two buffers
///          that are alive together and share bytes, an end beyond 2^62).
Result<MemoryPlan> check_plan(std::span<const BufferRequest> requests, std::vector<uint64_t> offsets, const PlanOptions& options);

}  // namespace pteron::plan
