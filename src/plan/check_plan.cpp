// A plan that somebody else made: checked against the buffers before anything is laid out by it.
#include <algorithm>
#include <numeric>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "plan/plan.h"

namespace pteron::plan {

namespace {

constexpr uint64_t kMaxArenaBytes = uint64_t{1} << 62;

std::string name_of(std::span<const BufferRequest> requests, std::span<const uint64_t> offsets, size_t index) {
  const BufferRequest& request = requests[index];
  return str_cat("buffer ", index, " (", request.size_bytes, " bytes, alive from step ", request.first, " to ", request.last, ") at offset ", offsets[index]);
}

bool meet(const BufferRequest& a, const BufferRequest& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

Result<MemoryPlan> check_plan(std::span<const BufferRequest> requests, std::vector<uint64_t> offsets, const PlanOptions& options) {
  const auto refuse = [](std::string message) { return Status(Code::kInvalidInput, std::move(message)); };
  if (offsets.size() != requests.size()) return refuse(str_cat("the planner gave ", offsets.size(), " offsets for ", requests.size(), " buffers"));
  MemoryPlan plan;
  std::vector<std::pair<uint32_t, int64_t>> events;
  for (size_t i = 0; i < offsets.size(); ++i) {
    uint64_t end = 0, size = 0;
    if (offsets[i] % options.alignment_bytes != 0)
      return refuse(str_cat(name_of(requests, offsets, i), ": a multiple of ", options.alignment_bytes, " is expected"));
    const bool fits = checked_add(offsets[i], requests[i].size_bytes, &end) && checked_align(end, options.alignment_bytes, &end) && end <= kMaxArenaBytes;
    if (!fits) return refuse(str_cat(name_of(requests, offsets, i), " ends beyond 2^62 bytes"));
    plan.arena_bytes = std::max(plan.arena_bytes, end);
    if (!checked_align(requests[i].size_bytes, options.alignment_bytes, &size)) return refuse(str_cat(name_of(requests, offsets, i), " is too large"));
    events.emplace_back(requests[i].first, static_cast<int64_t>(size));
    events.emplace_back(requests[i].last + 1, -static_cast<int64_t>(size));
  }
  std::vector<uint32_t> order(offsets.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, {}, [&](uint32_t i) { return offsets[i]; });
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t end = offsets[order[i]] + requests[order[i]].size_bytes;
    for (size_t k = i + 1; k < order.size() && offsets[order[k]] < end; ++k) {
      if (requests[order[k]].size_bytes == 0 || !meet(requests[order[i]], requests[order[k]])) continue;
      return refuse(str_cat(name_of(requests, offsets, order[i]), " and ", name_of(requests, offsets, order[k]), " are alive together and share bytes"));
    }
  }
  std::ranges::sort(events);  // at one position ends (negative) come before begins
  int64_t live = 0;
  for (const auto& [position, change] : events) {
    live += change;
    plan.lower_bound_bytes = std::max(plan.lower_bound_bytes, static_cast<uint64_t>(live));
  }
  plan.offsets = std::move(offsets);
  return plan;
}

}  // namespace pteron::plan
