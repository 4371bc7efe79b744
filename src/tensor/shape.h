// Shape helpers of the runtime side: a fixed-capacity list of sizes, contiguous strides, dim order, broadcasting, index walking.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "base/check.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron {

/// A vector of T with room for kMaxRank items and no allocation. Requires: never more than kMaxRank items.
template <typename T>
class RankList {
 public:
  RankList() = default;
  RankList(std::initializer_list<T> items) {
    for (const T& item : items) push_back(item);
  }
  explicit RankList(std::span<const T> items) {
    for (const T& item : items) push_back(item);
  }
  RankList(size_t count, const T& value) {
    for (size_t i = 0; i < count; ++i) push_back(value);
  }
  void push_back(const T& item) {
    PTERON_DCHECK(size_ < kMaxRank);
    items_[size_++] = item;
  }
  void insert(size_t at, const T& item) {
    push_back(item);
    for (size_t i = size_ - 1; i > at; --i) items_[i] = items_[i - 1];
    items_[at] = item;
  }
  void erase(size_t at) {
    for (size_t i = at; i + 1 < size_; ++i) items_[i] = items_[i + 1];
    --size_;
  }
  void resize(size_t count, const T& value = T()) {
    while (size_ < count) push_back(value);
    size_ = count;
  }
  void pop_back() { --size_; }
  void clear() { size_ = 0; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& back() { return items_[size_ - 1]; }
  const T& back() const { return items_[size_ - 1]; }
  T* begin() { return items_.data(); }
  T* end() { return items_.data() + size_; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  operator std::span<const T>() const { return {items_.data(), size_}; }  // NOLINT: implicit by design
  bool operator==(const RankList& other) const {
    if (size_ != other.size_) return false;
    for (size_t i = 0; i < size_; ++i) {
      if (!(items_[i] == other.items_[i])) return false;
    }
    return true;
  }

 private:
  std::array<T, kMaxRank> items_{};
  size_t size_ = 0;
};

using Sizes = RankList<int64_t>;

/// Row-major strides in elements.
Sizes contiguous_strides(std::span<const int64_t> sizes);
/// Strides of a dense tensor whose dims are stored in `dim_order` (outermost first). Requires: dim_order is a permutation.
Sizes strides_of_dim_order(std::span<const int64_t> sizes, std::span<const uint8_t> dim_order);
/// True if the strides are those of a dense tensor in some dim order; writes that order (outermost first; ties and size-1 dims keep index order).
bool dim_order_of_strides(std::span<const int64_t> sizes, std::span<const int64_t> strides, std::span<uint8_t> dim_order);
/// numpy broadcasting of two shapes into *out. Errors: kInvalidInput with both shapes.
Status broadcast_sizes(std::span<const int64_t> a, std::span<const int64_t> b, Sizes* out);
/// dim in [-rank, rank) to [0, rank); rank 0 accepts 0 and -1. Errors: kInvalidInput.
Result<int> wrap_dim(int64_t dim, int64_t rank);
/// "[2,3,4]".
std::string shape_text(std::span<const int64_t> sizes);
/// Bytes from the first to one past the last element that a strided tensor touches (0 if empty).
/// Returns false on overflow or a negative stride.
bool strided_extent_bytes(std::span<const int64_t> sizes, std::span<const int64_t> strides, size_t element_bytes, uint64_t* out);
/// Copies all elements of `from` into `to` (same dtype and sizes, any strides). Single thread; kernels have their own faster copy.
void copy_strided(const TensorView& from, const TensorView& to);

}  // namespace pteron
