// Finds bytes that were met before, so that equal ones are stored once. Used by the reader of programs and by merge.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
    std::vector<std::pair<std::span<const std::byte>, size_t>>& list = lists_[hash_hex(bytes)];
    for (const auto& [known, index] : list) {
      if (std::ranges::equal(known, bytes)) return index;
    }
    list.emplace_back(bytes, next);
    return next;
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

 private:
  std::unordered_map<std::string, std::vector<std::pair<std::span<const std::byte>, size_t>>> lists_;
};

}  // namespace pteron::format
