// Products with a constant matrix of bfloat16, float16 or int8: weights in panels that every unit reads (VNNI, AVX512-BF16, AMX, AVX2), rows converted once
// for each block of rows, results handed to an epilogue tile by tile. Used by products16.cpp and the integer operators.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backends/cpu/runtime/narrow_kernels.h"
#include "backends/cpu/runtime/product.h"
#include "base/buffer.h"
#include "base/processor.h"
#include "base/thread_pool.h"
#include "pteron/status.h"
#include "runtime/kernel.h"
#include "tensor/dtype.h"

namespace pteron::cpu {

/// Weights [n, depth] as panels of kNarrowColumns columns; what does not exist is zero.
class NarrowMatrix final : public runtime::KernelState {
 public:
  /// Element (j, k) is data[j * stride_n + offsets[k]], as bfloat16 (kBf16), float16 (kHalf) or int8 (kInt8); zero for a negative
  /// offset. `bias`, float, may be null; not for kInt8.
  /// Errors: kOutOfMemory.
  static Result<std::shared_ptr<const NarrowMatrix>> make(NarrowKind kind, const void* data, int64_t n, int64_t stride_n, std::span<const int64_t> offsets,
                                                          const float* bias, int64_t bias_stride, ThreadPool& pool);
  uint64_t memory_bytes() const override { return panels_.size() + starts_.size(); }
  NarrowKind kind() const { return kind_; }
  int64_t columns() const { return n_; }
  int64_t depth() const { return depth_; }
  int64_t panel_count() const;
  int64_t chunks() const;
  int64_t panel_bytes() const { return chunks() * kQuadChunk * kQuadLine; }
  const std::byte* panel(int64_t index) const { return panels_.data() + index * panel_bytes(); }
  /// kBf16, kHalf: the bias, padded to whole panels.
  const float* bias() const { return reinterpret_cast<const float*>(starts_.data()); }
  /// kInt8: the sum of each column, padded to whole panels: what a zero point of the rows is multiplied with.
  const int32_t* column_sums() const { return reinterpret_cast<const int32_t*>(starts_.data()); }

 private:
  NarrowKind kind_ = NarrowKind::kBf16;
  int64_t n_ = 0, depth_ = 0;
  Buffer panels_, starts_;
};

/// A finished part of a product; row r, column c of it is values[r * kNarrowResultRow + c].
struct NarrowResult {
  const void* values = nullptr;  ///< float, or int32 (kInt8)
  int64_t row = 0, rows = 0;         ///< at most kNarrowResultRows
  int64_t column = 0, columns = 0;   ///< at most 2 * kNarrowColumns
};

/// Rows that lie evenly, as a NarrowProduct's context.
struct EvenNarrowRows {
  const std::byte* data = nullptr;
  int64_t stride_bytes = 0;
  static void get(const void* context, int64_t first, int64_t count, const std::byte** out);
};

/// Rows of bytes that lie evenly in lines, as windows of an image do: row i begins at data + i / length * line_step + i % length * row_step, and there
/// lie runs of `run_chunks` chunks (64 elements of the depth), `tap_step` from one to the next. The same elements as rows_of, taps and steps give;
/// behind the depth's end anything.
struct NarrowLines {
  const std::byte* data = nullptr;
  int64_t length = 0, line_step = 0, row_step = 0;
  int64_t run_chunks = 0, tap_step = 0;
  const std::byte* end = nullptr;  ///< of what may be read
};
/// Rows of tiles into which lines of `length` rows can be cut without a rest; 0 if these would be low.
int64_t rows_of_line_tile(int64_t length);

/// kBf16: y[i, j] = sum_k row_i[k] * w[j, k] + bias[j] in float, rows rounded to bfloat16 as ATen rounds. Units with instructions for bfloat16
/// take subnormal numbers as zero.
/// kHalf: the same of float16, nothing rounded.
/// kInt8: y[i, j] = sum_k (row_i[k] - zero_point) * w[j, k] in int32, exact (as long as it fits).
struct NarrowProduct {
  const NarrowMatrix* weights = nullptr;
  DType type = DType::kFloat32;  ///< of the rows: float32 or bfloat16 (kBf16), float32 or float16 (kHalf), uint8 or int8 (kInt8)
  int64_t rows = 0;
  /// Pointers to `count` rows from `first` on.
  void (*rows_of)(const void* context, int64_t first, int64_t count, const std::byte** out) = nullptr;
  const void* context = nullptr;
  int64_t taps = 1;                ///< a row is `taps` runs of depth / taps elements
  const int64_t* steps = kNoStep;  ///< elements from each run to the next, `taps` entries
  int32_t zero_point = 0;          ///< kInt8
  /// Takes the parts of the result as they are made, on several threads, each once.
  void (*store)(const void* context, const NarrowResult& part) = nullptr;
  const void* store_context = nullptr;
  const WorkBuffers* work = nullptr;
  Units units = processor_units();
  /// May be null: brings the memory of a part near, before its sums are made (its values are not there yet).
  void (*fetch)(const void* context, const NarrowResult& part) = nullptr;
  /// Not null: rows of kInt8 may be read where they are.
  const NarrowLines* lines = nullptr;
};
/// Errors: kOutOfMemory (room for converted rows).
Status run_narrow_product(const NarrowProduct& product, ThreadPool& pool);

/// A store for kBf16 and kHalf: c[i, j] = epilogue(y[i, j], residual[i, j]), float32 or rounded to bfloat16 or float16.
struct FloatStore {
  void* c = nullptr;
  DType c_type = DType::kFloat32;         ///< or bfloat16, float16
  int64_t c_row = 0;                      ///< elements
  const void* residual = nullptr;         ///< may be null
  DType residual_type = DType::kFloat32;  ///< or bfloat16, float16
  int64_t residual_row = 0;
  Epilogue epilogue;
  static void store(const void* context, const NarrowResult& part);
  static void fetch(const void* context, const NarrowResult& part);
};

}  // namespace pteron::cpu
