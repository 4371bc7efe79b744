// Products of matrices on the device: one description, computed by cuBLASLt. The library is loaded at the first use; nothing of it is needed to build.
// Called by library_kernels.cpp. Does not choose layouts: what has no unit stride is refused.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/cuda/runtime/choices.h"
#include "backends/cuda/runtime/library_call.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::cuda {

/// A matrix, or a batch of them, in device memory. Units: strides in elements; 0 in `batch` for one that all use.
struct Matrix {
  const void* data = nullptr;
  int64_t row = 0, column = 0, batch = 0;
};

enum class ProductEnd : uint8_t { kNone, kRelu, kGeluTanh };

/// What products of a dtype are: int32 of int8, float32 of 8-bit floats, otherwise the dtype itself.
constexpr DType result_of(DType dtype) { return dtype == DType::kInt8 ? DType::kInt32 : dtype >= DType::kFloat8E5M2 && dtype <= DType::kFloat8E4M3FNUZ ? DType::kFloat32 : dtype; }

/// d = end(alpha * a b + beta * c + bias), a [rows, depth], b [depth, columns], c and d [rows, columns], bias [columns], a and b of `dtype`, the others of its result.
/// float32, float16, bfloat16 (sums in float32), float64, and alone (alpha 1, no c, bias or end), with a row-major and b column-major: int8, and 8-bit floats,
/// of which b's may be of another format. Requires: no size is 0; the column strides of c and d are 1.
struct Product {
  DType dtype = DType::kFloat32;
  DType b_dtype = DType::kFloat32;  ///< differs from `dtype` only between 8-bit floats
  bool tf32 = false;  ///< float32 operands may be rounded to TF32
  ProductEnd end = ProductEnd::kNone;
  int64_t batch = 1, rows = 1, columns = 1, depth = 1;
  Matrix a, b, c, d;           ///< c.data null: none. d is written.
  const void* bias = nullptr;  ///< null: none
  double alpha = 1, beta = 0;
};

/// True if a matrix of these sizes and strides can be an operand: one of its strides is 1, and the other lets no elements overlap.
inline bool is_operand(int64_t rows, int64_t columns, int64_t row_stride, int64_t column_stride) {
  const bool row_major = (columns == 1 || column_stride == 1) && (rows == 1 || row_stride >= columns);
  const bool column_major = (rows == 1 || row_stride == 1) && (columns == 1 || column_stride >= rows);
  return row_major || column_major;
}

/// cuBLASLt with the algorithms that were chosen for the shapes seen so far: the first call of a shape asks the heuristic, and measures what it offers if
/// the call may be timed and no earlier process has.
/// Threads: run() may be called from several threads at once.
class Blas {
 public:
  /// Errors: kUnavailable (the library is missing, with the places that were looked at, or does not start).
  /// choices: of earlier processes; outlives it; null: none.
  static Result<std::unique_ptr<Blas>> create(Choices* choices = nullptr);
  ~Blas();
  /// Queues the product on the call's stream. Errors: kUnsupported (strides, or no algorithm); kInternal (the library's).
  Status run(const Product& product, const LibraryCall& call);

 private:
  struct Library;
  struct Plan;
  using Key = std::array<int64_t, 18>;
  Blas();
  Result<Plan*> plan_for(const Product& product, const LibraryCall& call);
  Status choose(const Product& product, const LibraryCall& call, const Key& key, Plan* plan);
  Status launch(const Product& product, const LibraryCall& call, Plan* plan, const void* algorithm);

  std::mutex mutex_;
  std::unique_ptr<Library> library_;
  std::map<Key, std::unique_ptr<Plan>> plans_;
  Choices* choices_ = nullptr;
  std::string version_;  // for keys of choices
};

}  // namespace pteron::cuda
