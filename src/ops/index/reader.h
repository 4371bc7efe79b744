// Reading index tensors in kernels: values of any integer dtype, bounds, negative values. Used by the indexing rooms.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "base/str_cat.h"
#include "pteron/status.h"
#include "runtime/kernel.h"
#include "tensor/dtype.h"

namespace pteron::ops::index {

/// Elements of an integer tensor as int64.
struct Reader {
  const void* data = nullptr;
  DType dtype = DType::kInt64;

  /// `offset` in elements.
  int64_t at(int64_t offset) const {
    switch (dtype) {
      case DType::kInt64: return static_cast<const int64_t*>(data)[offset];
      case DType::kInt32: return static_cast<const int32_t*>(data)[offset];
      case DType::kInt16: return static_cast<const int16_t*>(data)[offset];
      case DType::kInt8: return static_cast<const int8_t*>(data)[offset];
      default: return static_cast<const uint8_t*>(data)[offset];
    }
  }
  /// fn(pointer to the elements in their own type), for loops that ask for the dtype once.
  template <typename Fn>
  void visit(Fn&& fn) const {
    switch (dtype) {
      case DType::kInt64: return fn(static_cast<const int64_t*>(data));
      case DType::kInt32: return fn(static_cast<const int32_t*>(data));
      case DType::kInt16: return fn(static_cast<const int16_t*>(data));
      case DType::kInt8: return fn(static_cast<const int8_t*>(data));
      default: return fn(static_cast<const uint8_t*>(data));
    }
  }
};

inline bool is_index_dtype(DType d) { return d == DType::kInt64 || d == DType::kInt32 || d == DType::kInt16 || d == DType::kInt8 || d == DType::kUInt8; }

/// Errors: kInvalidInput (not an integer tensor).
inline Status make_reader(const runtime::Tensor& tensor, Reader* out) {
  if (!is_index_dtype(tensor.dtype())) return Status(Code::kInvalidInput, str_cat("index of dtype ", dtype_name(tensor.dtype()), ", expected integers"));
  *out = {tensor.view.data, tensor.dtype()};
  return ok_status();
}

/// The first bad index that a (parallel) loop met. Elements with a bad index are skipped.
class BadIndex {
 public:
  void note(int64_t index, int64_t dim, int64_t size) {
    bool expected = false;
    if (!found_.compare_exchange_strong(expected, true)) return;
    index_ = index;
    dim_ = dim;
    size_ = size;
  }
  /// Errors: kInvalidInput if a bad index was noted. Call after the loop has ended.
  Status status() const {
    if (!found_.load()) return ok_status();
    return Status(Code::kInvalidInput, str_cat("index ", index_, " is out of bounds for dim ", dim_, " with size ", size_));
  }

 private:
  std::atomic<bool> found_{false};
  int64_t index_ = 0, dim_ = 0, size_ = 0;
};

/// Rows of the same shape in two tensors, adjacent dims merged where both allow it.
struct Block {
  Sizes sizes, a, b;  ///< sizes and strides (elements), outermost first
  int64_t count() const {
    int64_t n = 1;
    for (const int64_t s : sizes) n *= s;
    return n;
  }
};

inline Block merged_block(std::span<const int64_t> sizes, std::span<const int64_t> a, std::span<const int64_t> b) {
  Block out;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    if (!out.sizes.empty() && out.a.back() == a[d] * sizes[d] && out.b.back() == b[d] * sizes[d]) {
      out.sizes.back() *= sizes[d];
      out.a.back() = a[d];
      out.b.back() = b[d];
      continue;
    }
    out.sizes.push_back(sizes[d]);
    out.a.push_back(a[d]);
    out.b.push_back(b[d]);
  }
  return out;
}

/// Calls fn(a, b) on every pair of elements of two blocks.
template <typename A, typename B, typename Fn>
void for_block(const Block& block, A* a, B* b, Fn&& fn) {
  const size_t rank = block.sizes.size();
  if (rank == 0) return fn(*a, *b);
  const int64_t n = block.sizes[rank - 1], sa = block.a[rank - 1], sb = block.b[rank - 1];
  if (rank == 1) {
    for (int64_t i = 0; i < n; ++i) fn(a[i * sa], b[i * sb]);
    return;
  }
  Sizes at(rank - 1, 0);
  for (;;) {
    for (int64_t i = 0; i < n; ++i) fn(a[i * sa], b[i * sb]);
    size_t d = rank - 1;
    for (;;) {
      if (d-- == 0) return;
      a += block.a[d];
      b += block.b[d];
      if (++at[d] < block.sizes[d]) break;
      a -= block.a[d] * block.sizes[d];
      b -= block.b[d] * block.sizes[d];
      at[d] = 0;
    }
  }
}

/// Copies block `from` (strides b) to block `to` (strides a).
template <typename T>
void copy_block(const Block& block, T* to, const T* from) {
  const size_t rank = block.sizes.size();
  if (rank == 1 && block.a[0] == 1 && block.b[0] == 1) {
    std::copy(from, from + block.sizes[0], to);
    return;
  }
  for_block(block, to, from, [](T& x, const T& y) { x = y; });
}

}  // namespace pteron::ops::index
