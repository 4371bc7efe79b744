// Best-fit placement in several orders; the smallest arena wins. While it is over the bound, a depth-first search in order of time and then a
// search over orders improve it; both are deterministic and bounded.
#include "plan/plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "base/checked_math.h"
#include "base/str_cat.h"

namespace pteron::plan {

namespace {

/// Largest sum of sizes alive at one position.
uint64_t lower_bound(std::span<const BufferRequest> requests, std::span<const uint64_t> sizes) {
  std::vector<std::pair<uint32_t, int64_t>> events;
  for (size_t i = 0; i < requests.size(); ++i) {
    events.emplace_back(requests[i].first, static_cast<int64_t>(sizes[i]));
    events.emplace_back(requests[i].last + 1, -static_cast<int64_t>(sizes[i]));
  }
  std::sort(events.begin(), events.end());  // at one position ends (negative) come before begins
  int64_t live = 0, most = 0;
  for (const auto& [position, change] : events) {
    live += change;
    most = std::max(most, live);
  }
  return static_cast<uint64_t>(most);
}

/// Places buffers in the given order, each in the smallest gap where it fits between those already placed that it meets in time.
/// Stops early (returns `limit`) once the arena reaches it.
uint64_t place(std::span<const BufferRequest> requests, std::span<const uint64_t> sizes, std::span<const uint32_t> order, uint64_t limit,
               std::vector<uint64_t>& offsets) {
  std::vector<uint32_t> placed;  // sorted by offset
  placed.reserve(order.size());
  uint64_t arena = 0;
  for (const uint32_t item : order) {
    const BufferRequest& request = requests[item];
    uint64_t best = 0, best_gap = std::numeric_limits<uint64_t>::max(), end = 0;
    for (const uint32_t other : placed) {
      const BufferRequest& o = requests[other];
      if (o.last < request.first || o.first > request.last) continue;
      if (offsets[other] > end && offsets[other] - end >= sizes[item] && offsets[other] - end < best_gap) {
        best = end;
        best_gap = offsets[other] - end;
      }
      end = std::max(end, offsets[other] + sizes[other]);
    }
    const bool in_gap = best_gap != std::numeric_limits<uint64_t>::max();
    offsets[item] = in_gap ? best : end;
    arena = std::max(arena, offsets[item] + sizes[item]);
    if (arena >= limit) return limit;
    const auto at = std::upper_bound(placed.begin(), placed.end(), item, [&](uint32_t a, uint32_t b) { return offsets[a] < offsets[b]; });
    placed.insert(at, item);
  }
  return arena;
}

/// Small deterministic generator (xorshift64).
class Random {
 public:
  uint64_t below(uint64_t limit) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_ % limit;
  }

 private:
  uint64_t state_ = 0x9e3779b97f4a7c15ull;
};

/// Places buffers in order of time in an arena of a given size, at either end of each gap, and takes steps back where one does not fit. Chains of
/// layers need this: a buffer that lives long must keep to one end, so that what comes after it finds the rest in one piece.
class TimeOrder {
 public:
  TimeOrder(std::span<const BufferRequest> requests, std::span<const uint64_t> sizes) : requests_(requests), sizes_(sizes), order_(requests.size()) {
    std::iota(order_.begin(), order_.end(), 0u);
    std::stable_sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
      return std::pair(requests[a].first, sizes[b]) < std::pair(requests[b].first, sizes[a]);
    });
  }

  /// True if everything found a place below `capacity` within `budget` placements; offsets are written then.
  bool fit(uint64_t capacity, int64_t budget, std::vector<uint64_t>& offsets) {
    std::vector<Level> levels(order_.size() + 1);
    offsets.assign(requests_.size(), 0);
    open(levels[0], {}, 0, capacity, offsets);
    for (size_t depth = 0; depth < order_.size();) {
      Level& level = levels[depth];
      if (level.next == level.places.size()) {
        if (depth-- == 0) return false;
        continue;
      }
      if (budget-- <= 0) return false;
      offsets[order_[depth]] = level.places[level.next++];
      if (++depth < order_.size()) open(levels[depth], levels[depth - 1].alive, depth, capacity, offsets);
    }
    return true;
  }

 private:
  /// One buffer: what is alive when it begins, and where it may go.
  struct Level {
    std::vector<uint32_t> alive;
    std::vector<uint64_t> places;  ///< the most promising first
    size_t next = 0;
  };

  void open(Level& level, const std::vector<uint32_t>& before, size_t depth, uint64_t capacity, const std::vector<uint64_t>& offsets) const {
    const uint32_t item = order_[depth];
    level.alive.clear();
    level.places.clear();
    level.next = 0;
    for (const uint32_t other : before) {
      if (requests_[other].last >= requests_[item].first) level.alive.push_back(other);
    }
    if (depth > 0 && requests_[order_[depth - 1]].last >= requests_[item].first) level.alive.push_back(order_[depth - 1]);
    std::sort(level.alive.begin(), level.alive.end(), [&](uint32_t a, uint32_t b) { return offsets[a] < offsets[b]; });
    std::vector<std::pair<uint64_t, uint64_t>> gaps;  // size, begin
    uint64_t end = 0;
    const auto add_gap = [&](uint64_t until) {
      if (until >= end && until - end >= sizes_[item]) gaps.emplace_back(until - end, end);
    };
    for (const uint32_t other : level.alive) {
      add_gap(offsets[other]);
      end = std::max(end, offsets[other] + sizes_[other]);
    }
    add_gap(capacity);
    std::sort(gaps.begin(), gaps.end());
    for (const auto& [size, begin] : gaps) {
      const uint64_t high = begin + size - sizes_[item];
      const bool at_top = begin + size == capacity && begin != 0;
      level.places.push_back(at_top ? high : begin);
      if (high != begin) level.places.push_back(at_top ? begin : high);
    }
  }

  std::span<const BufferRequest> requests_;
  std::span<const uint64_t> sizes_;
  std::vector<uint32_t> order_;
};

/// Keeps the best placement found so far.
class Search {
 public:
  Search(std::span<const BufferRequest> requests, std::span<const uint64_t> sizes, MemoryPlan& plan)
      : requests_(requests), sizes_(sizes), plan_(plan), offsets_(requests.size(), 0) {}

  void attempt(const std::vector<uint32_t>& order) {
    const uint64_t arena = place(requests_, sizes_, order, best_, offsets_);
    if (arena >= best_) return;
    best_ = arena;
    plan_.offsets = offsets_;
    order_ = order;
  }

  /// Tries the orders that descend by key(index).
  template <typename Key>
  void attempt_by(Key key) {
    std::vector<uint32_t> order(requests_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return key(a) > key(b); });
    attempt(order);
  }

  /// Tries arenas of the bound and up to 5 % more. Work is bounded.
  void fit_in_time_order(uint64_t alignment) {
    constexpr int64_t kPlacements = 20'000;
    TimeOrder search(requests_, sizes_);
    for (const uint64_t percent : {0, 1, 2, 5}) {
      const uint64_t room = plan_.lower_bound_bytes + plan_.lower_bound_bytes / 100 * percent;
      const uint64_t capacity = room - room % alignment;
      if (capacity >= best_) return;
      if (!search.fit(capacity, kPlacements, offsets_)) continue;
      best_ = 0;
      for (size_t i = 0; i < sizes_.size(); ++i) best_ = std::max(best_, offsets_[i] + sizes_[i]);
      plan_.offsets = offsets_;
      return;
    }
  }

  /// Moves one buffer forward in the best order, again and again, until within 1 % of the bound. Work is bounded.
  void improve() {
    const uint64_t n = requests_.size();
    const uint64_t tries = n < 2 ? 0 : std::min<uint64_t>(2000, 10'000'000 / (n * n + 1));
    Random random;
    for (uint64_t i = 0; i < tries && !is_close(); ++i) {
      std::vector<uint32_t> candidate = order_;
      const uint64_t from = 1 + random.below(n - 1), to = random.below(from);
      const auto begin = candidate.begin();
      std::rotate(begin + static_cast<std::ptrdiff_t>(to), begin + static_cast<std::ptrdiff_t>(from), begin + static_cast<std::ptrdiff_t>(from) + 1);
      attempt(candidate);
    }
  }

  uint64_t best() const { return best_; }
  /// Within 1 % of the bound.
  bool is_close() const { return best_ <= plan_.lower_bound_bytes + plan_.lower_bound_bytes / 100; }

 private:
  std::span<const BufferRequest> requests_;
  std::span<const uint64_t> sizes_;
  MemoryPlan& plan_;
  std::vector<uint64_t> offsets_;
  std::vector<uint32_t> order_;
  uint64_t best_ = std::numeric_limits<uint64_t>::max();
};

}  // namespace

Result<MemoryPlan> plan_memory(std::span<const BufferRequest> requests, const PlanOptions& options) {
  MemoryPlan plan;
  std::vector<uint64_t> sizes;
  uint64_t total = 0;
  for (const BufferRequest& request : requests) {
    uint64_t size = 0;
    if (!checked_align(request.size_bytes, options.alignment_bytes, &size) || !checked_add(total, size, &total) || total >> 62 != 0) {
      return Status(Code::kUnsupported, "planned buffers add up to more than 2^62 bytes");
    }
    sizes.push_back(size);
  }
  plan.offsets.assign(requests.size(), 0);
  if (requests.empty()) return plan;
  plan.lower_bound_bytes = lower_bound(requests, sizes);
  Search search(requests, sizes, plan);
  const auto duration = [&](uint32_t i) { return static_cast<uint64_t>(requests[i].last - requests[i].first + 1); };
  search.attempt_by([&](uint32_t i) { return sizes[i]; });
  search.attempt_by([&](uint32_t i) { return std::pair(sizes[i], duration(i)); });
  search.attempt_by([&](uint32_t i) { return std::pair(duration(i), sizes[i]); });
  search.attempt_by([&](uint32_t i) { return static_cast<double>(sizes[i]) * static_cast<double>(duration(i)); });
  search.attempt_by([&](uint32_t i) { return -static_cast<int64_t>(requests[i].first); });
  if (!search.is_close()) search.fit_in_time_order(options.alignment_bytes);
  if (!search.is_close()) search.improve();
  plan.arena_bytes = search.best();
  return plan;
}

}  // namespace pteron::plan
