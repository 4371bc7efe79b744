// Finds bytes that were met before, so that equal ones are stored once. Used by the reader of programs and by merge.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "format/content_hash.h"

namespace pteron::format {

/// An index of bytes by content. Owns: its table; borrows the bytes. Equal hashes are confirmed by comparing.
class Contents {
 public:
  /// Index of equal bytes among those that were added; adds them as `next` if there are none.
  size_t find_or_add(std::span<const std::byte> bytes, size_t next) {
    const auto [place, is_new] = places_.try_emplace({bytes.data(), bytes.size()}, next);  // the same bytes again: nothing to hash
    if (!is_new) return place->second;
    return place->second = find_content(bytes, next);
  }

  /// Index of equal bytes, or -1.
  int64_t find(std::span<const std::byte> bytes) const {
    const auto found = lists_.find(hash_hex(bytes));
    if (found == lists_.end()) return -1;
    for (const auto& [known, index] : found->second) {
      if (std::ranges::equal(known, bytes)) return static_cast<int64_t>(index);
    }
    return -1;
  }

  /// Of everything that was looked at once.
  uint64_t hashed_bytes() const { return hashed_bytes_; }

 private:
  size_t find_content(std::span<const std::byte> bytes, size_t next) {
    hashed_bytes_ += bytes.size();
    std::vector<std::pair<std::span<const std::byte>, size_t>>& list = lists_[hash_hex(bytes)];
    for (const auto& [known, index] : list) {
      if (std::ranges::equal(known, bytes)) return index;
    }
    list.emplace_back(bytes, next);
    return next;
  }

  uint64_t hashed_bytes_ = 0;
  std::map<std::pair<const std::byte*, size_t>, size_t> places_;
  std::unordered_map<std::string, std::vector<std::pair<std::span<const std::byte>, size_t>>> lists_;
};

}  // namespace pteron::format
