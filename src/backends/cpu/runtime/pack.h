// Weights from rows as they lie in the file to panels, as fast as memory gives and takes them. Used by product.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace pteron::cpu {

/// Knows where the elements of a row lie: element k at row[offsets[k]].
/// Owns:    borrows `offsets`.
class PanelPacker {
 public:
  explicit PanelPacker(std::span<const int64_t> offsets);

  /// to[k * width + j] = rows[j * stride + offsets[k]] for j < count, 0 for count <= j < width.
  void pack(const float* rows, int64_t stride, int64_t count, int64_t width, float* to) const;

 private:
  void pack_columns(const float* rows, int64_t count, int64_t width, float* to) const;
  void pack_dense(const float* rows, int64_t stride, int64_t count, int64_t width, float* to) const;
  void pack_any(const float* rows, int64_t stride, int64_t count, int64_t width, float* to) const;

  std::span<const int64_t> offsets_;
  std::vector<int64_t> place_of_;  ///< of the element at row[m]; empty if the elements of a row do not fill row[0, depth)
};

}  // namespace pteron::cpu
