// ATen's type promotion (at::result_type): tensors with dims outrank 0-d tensors, which outrank Python numbers, unless the category is higher.
// Used by shape inference and, with run-time tensors, by kernels.
#pragma once

#include "pteron/tensor.h"
#include "tensor/dtype.h"

namespace pteron {

/// Collects operands, then gives the common dtype.
class Promotion {
 public:
  /// A tensor operand.
  void add_tensor(DType dtype, int rank) {
    if (rank > 0) {
      join(&dim_, &has_dim_, dtype);
    } else {
      join(&zero_, &has_zero_, dtype);
    }
  }
  /// Python numbers: int, float (the default dtype float32 stands for it), bool.
  void add_int() { join(&wrapped_, &has_wrapped_, DType::kInt64); }
  void add_float() { join(&wrapped_, &has_wrapped_, DType::kFloat32); }
  void add_bool() { join(&wrapped_, &has_wrapped_, DType::kBool); }
  void add_complex() { join(&wrapped_, &has_wrapped_, DType::kComplexFloat); }

  /// The common dtype; kFloat32 if nothing was added.
  DType result() const {
    DType out = DType::kFloat32;
    bool has = false;
    combine(&out, &has, dim_, has_dim_);
    combine(&out, &has, zero_, has_zero_);
    combine(&out, &has, wrapped_, has_wrapped_);
    return out;
  }

 private:
  /// 0 bool, 1 integer, 2 floating, 3 complex.
  static int category(DType d) { return d == DType::kBool ? 0 : is_complex(d) ? 3 : is_floating(d) ? 2 : 1; }
  static void join(DType* into, bool* has, DType dtype) {
    *into = *has ? promote_dtypes(*into, dtype) : dtype;
    *has = true;
  }
  /// c10's combine_categories: a lower-priority operand counts only if its category is higher.
  static void combine(DType* out, bool* has, DType lower, bool has_lower) {
    if (!has_lower) return;
    if (!*has) {
      *out = lower;
      *has = true;
      return;
    }
    if (category(lower) > category(*out)) *out = promote_dtypes(*out, lower);
  }

  DType dim_ = DType::kFloat32, zero_ = DType::kFloat32, wrapped_ = DType::kFloat32;
  bool has_dim_ = false, has_zero_ = false, has_wrapped_ = false;
};

}  // namespace pteron
