// Run-time values: what kernels get. Tensors know how far they may grow; scalars and lists are plain.
// Used by the runtime, by every kernel, and by the evaluator of constant folding.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "pteron/status.h"
#include "pteron/tensor.h"
#include "tensor/shape.h"

namespace pteron::runtime {

/// A tensor slot of a method: the current view and the limits within which kernels may resize it.
struct Tensor {
  TensorView view;
  std::array<int64_t, kMaxRank> bound{};     ///< upper bound of every size (planned memory holds these)
  std::array<uint8_t, kMaxRank> dim_order{}; ///< storage order of dims, outermost first; strides of outs follow it
  uint64_t capacity_bytes = UINT64_MAX;      ///< bytes at view.data that belong to this tensor; the default means "enough for the bound"
  bool dynamic = false;                      ///< sizes may change within the bound
  bool read_only = false;                    ///< a constant or a view of one: not accepted as an out argument

  DType dtype() const { return view.dtype; }
  int rank() const { return view.rank; }
  std::span<const int64_t> sizes() const { return view.sizes(); }
  std::span<const int64_t> strides() const { return view.strides(); }
  int64_t size(int dim) const { return view.size(dim); }
  int64_t stride(int dim) const { return view.stride(dim); }
  int64_t numel() const { return view.numel(); }
  template <typename T>
  T* as() const {
    return static_cast<T*>(view.data);
  }
  /// False for a slot that has no memory (yet), unless it is empty.
  bool has_data() const { return view.data != nullptr || view.numel() == 0; }
};

/// A Scalar argument of a kernel: int, double or bool, as ATen's Scalar.
struct Scalar {
  enum class Kind : uint8_t { kInt, kDouble, kBool } kind = Kind::kInt;
  int64_t integer = 0;   ///< kInt, kBool (0 or 1)
  double floating = 0;   ///< kDouble
  bool is_integral(bool include_bool) const { return kind == Kind::kInt || (include_bool && kind == Kind::kBool); }
  double to_double() const { return kind == Kind::kDouble ? floating : static_cast<double>(integer); }
  int64_t to_int() const { return kind == Kind::kDouble ? static_cast<int64_t>(floating) : integer; }
  bool to_bool() const { return kind == Kind::kDouble ? floating != 0 : integer != 0; }
};

enum class Tag : uint8_t {
  kNone,
  kTensor,
  kInt,
  kDouble,
  kBool,
  kString,
  kIntList,     ///< boxed: items point to Int values, so that sizes computed at run time are seen
  kDoubleList,
  kBoolList,
  kTensorList,  ///< items may be None (Tensor?[])
};

/// One value of a method. Lists point to arrays that the method owns.
struct Value {
  Tag tag = Tag::kNone;
  Tensor tensor;                         ///< kTensor
  int64_t integer = 0;                   ///< kInt; kBool as 0 or 1
  double floating = 0;                   ///< kDouble
  std::string_view string;               ///< kString
  std::span<Value* const> items;         ///< kIntList, kTensorList
  std::span<const double> doubles;       ///< kDoubleList
  std::span<const bool> bools;           ///< kBoolList
};

/// Sets the sizes of an out tensor and its strides (dense, in its dim order).
/// Errors: kInvalidInput if the rank differs, a static tensor would change, a size is over the bound, or the bytes over the capacity.
Status resize(Tensor& tensor, std::span<const int64_t> sizes);

}  // namespace pteron::runtime
