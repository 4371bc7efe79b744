// The kernel table.
#include "runtime/kernel.h"

#include <algorithm>

#include "base/str_cat.h"

namespace pteron::runtime {

Status bad_argument(size_t index) { return Status(Code::kInvalidFile, str_cat("argument ", index, " is missing or of the wrong kind")); }

Status argument_not_ready(size_t index) {
  return Status(Code::kInvalidFile, str_cat("argument ", index, " has no memory, or is a constant where a result goes"));
}

Result<std::shared_ptr<const KernelState>> StateCache::find_or_make(const std::string& key, const Make& make) {
  const std::lock_guard lock(mutex_);
  std::weak_ptr<const KernelState>& slot = states_[key];
  if (std::shared_ptr<const KernelState> living = slot.lock()) return living;
  PTERON_ASSIGN(std::shared_ptr<const KernelState> made, make());
  slot = made;
  return made;
}

uint64_t StateCache::memory_bytes() {
  const std::lock_guard lock(mutex_);
  uint64_t sum = 0;
  for (const auto& [key, state] : states_) {
    if (const std::shared_ptr<const KernelState> living = state.lock()) sum += living->memory_bytes();
  }
  return sum;
}

void KernelTable::add(std::span<const Kernel> rows) {
  rows_.insert(rows_.begin(), rows.begin(), rows.end());  // in front: stable_sort and unique then keep the newest of equal names
  std::stable_sort(rows_.begin(), rows_.end(), [](const Kernel& a, const Kernel& b) { return a.name < b.name; });
  rows_.erase(std::unique(rows_.begin(), rows_.end(), [](const Kernel& a, const Kernel& b) { return a.name == b.name; }), rows_.end());
}

const Kernel* KernelTable::find(std::string_view name) const {
  const auto found = std::lower_bound(rows_.begin(), rows_.end(), name, [](const Kernel& k, std::string_view n) { return k.name < n; });
  return found != rows_.end() && found->name == name ? &*found : nullptr;
}

}  // namespace pteron::runtime
