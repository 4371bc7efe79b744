// Comparing reads every byte of the weights: page faults and checksums take as long as everything else in the import.
#include "import/payload_check.h"

#include <algorithm>

#include "base/str_cat.h"

namespace pteron::importer {

namespace {
constexpr uint64_t kWorthAThread = uint64_t{1} << 20;
}  // namespace

void PayloadCheck::add(const ZipEntry& entry, std::string name) {
  if (entry.method == 0) entries_.emplace_back(&entry, std::move(name));
}

void PayloadCheck::start(bool beside) {
  std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.first->data_offset < b.first->data_offset; });
  entries_.erase(std::unique(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) { return a.first == b.first; }), entries_.end());
  found_.resize(entries_.size());
  uint64_t bytes = 0;
  for (const auto& [entry, name] : entries_) bytes += entry->size_bytes;
  if (beside && bytes >= kWorthAThread) beside_ = std::make_unique<Background>([this] { work(); });
}

void PayloadCheck::work() {
  for (size_t i = next_.fetch_add(1); i < entries_.size(); i = next_.fetch_add(1)) found_[i] = zip_.read(*entries_[i].first, true).status();
}

Status PayloadCheck::finish() {
  const std::lock_guard lock(finishing_);
  if (result_) return *result_;
  work();
  if (beside_ != nullptr) beside_->wait();
  result_ = ok_status();
  for (size_t i = 0; i < found_.size() && result_->ok(); ++i) {
    if (!found_[i].ok()) result_ = std::move(found_[i]).with_context(str_cat("weight '", entries_[i].second, "'"));
  }
  return *result_;
}

}  // namespace pteron::importer
