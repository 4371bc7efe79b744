// Tensors as the public API and every room see them: dtype, device, sizes, strides and a borrowed data pointer.
// Does not own memory and does not compute.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace pteron {

/// Element types; the numbers are those of c10::ScalarType and of the .pte format.
enum class DType : uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kFloat32 = 6,
  kFloat64 = 7,
  kComplexHalf = 8,
  kComplexFloat = 9,
  kComplexDouble = 10,
  kBool = 11,
  kBFloat16 = 15,
  kFloat8E5M2 = 23,
  kFloat8E4M3FN = 24,
  kFloat8E5M2FNUZ = 25,
  kFloat8E4M3FNUZ = 26,
  kUInt16 = 27,
  kUInt32 = 28,
  kUInt64 = 29,
};

/// Bytes of one element.
size_t dtype_size(DType dtype);
/// PyTorch's name: "float32", "bool", "bfloat16".
std::string_view dtype_name(DType dtype);
/// True if `number` is one of the DType values.
bool is_known_dtype(int number);

/// Largest rank of a tensor (a limit of the file format's runtime).
inline constexpr int kMaxRank = 16;

enum class DeviceType : uint8_t { kCpu = 0, kCuda = 1 };

struct Device {
  DeviceType type = DeviceType::kCpu;
  int8_t index = 0;
  bool operator==(const Device&) const = default;
};

/// A borrowed, possibly strided tensor.
/// Shape:   rank at most kMaxRank; sizes >= 0.
/// Units:   strides in elements (0 for broadcast dims, negative never).
/// Owns:    nothing; `data` must stay alive while the view is used.
struct TensorView {
  DType dtype = DType::kFloat32;
  Device device;
  uint8_t rank = 0;
  std::array<int64_t, kMaxRank> size_array{};
  std::array<int64_t, kMaxRank> stride_array{};
  void* data = nullptr;

  std::span<const int64_t> sizes() const { return {size_array.data(), rank}; }
  std::span<const int64_t> strides() const { return {stride_array.data(), rank}; }
  int64_t size(int dim) const { return size_array[static_cast<size_t>(dim)]; }
  int64_t stride(int dim) const { return stride_array[static_cast<size_t>(dim)]; }
  /// Number of elements (1 for rank 0).
  int64_t numel() const;
  /// numel() * dtype_size(dtype).
  size_t size_bytes() const;
  /// True if elements lie in row-major order without gaps (dims of size 1 and empty tensors do not count).
  bool is_contiguous() const;

  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

/// A row-major view of `data`. Requires: sizes.size() <= kMaxRank.
TensorView make_contiguous_view(DType dtype, std::span<const int64_t> sizes, void* data);

}  // namespace pteron
