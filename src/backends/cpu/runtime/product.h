// Products with a constant matrix in float: weights in panels (packed once at load), rows of the other operand read where they lie. Used by
// linear.cpp and conv.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "backends/cpu/runtime/pointwise_ops.h"
#include "base/buffer.h"
#include "base/thread_pool.h"
#include "pteron/status.h"
#include "runtime/kernel.h"

namespace pteron::cpu {

/// What happens to a sum on its way to memory: + residual, clamp to [low, high], then `function` on whole runs; with `adds_last` the residual
/// comes behind these.
struct Epilogue {
  float low = -__builtin_huge_valf();
  float high = __builtin_huge_valf();
  PointwiseFn function = nullptr;
  bool adds_last = false;
  /// The residual that the sum takes before the clamp.
  const float* before(const float* residual) const { return adds_last ? nullptr : residual; }
  /// What follows the clamp, for `rows` runs of `columns` values, which lie `row` elements apart; `residual` may be null.
  void apply(float* values, int64_t row, int64_t rows, int64_t columns, const float* residual = nullptr, int64_t residual_row = 0) const;
};
/// By the name that the fused operators carry: "none", "clamp" (low and high as given), "gelu", "gelu_tanh", "silu", "hardswish",
/// "hardsigmoid", "sigmoid", "tanh"; kThenResidual behind any of them but "none". Errors: kInvalidFile.
Result<Epilogue> epilogue_of(std::string_view activation, double low, double high);

/// Weights [n, depth] as panels of tile_set().columns columns, a last narrow one half as wide, columns that do not exist as zeros; bias
/// padded in the same way.
class PackedMatrix final : public runtime::KernelState {
 public:
  /// Element (j, k) is data[j * stride_n + offsets[k]]; bias may be null.
  static Result<std::shared_ptr<const PackedMatrix>> make(const float* data, int64_t n, int64_t stride_n, std::span<const int64_t> offsets,
                                                          const float* bias, int64_t bias_stride, ThreadPool& pool);
  /// `count` matrices whose panels lie one after the other, without a bias; the panels' memory is to be written. Errors: kOutOfMemory.
  static Result<std::vector<std::shared_ptr<PackedMatrix>>> create(int64_t count, int64_t n, int64_t depth);
  int64_t columns() const { return n_; }
  int64_t depth() const { return depth_; }
  int64_t panel_count() const;
  float* panel(int64_t index) { return const_cast<float*>(std::as_const(*this).panel(index)); }
  const float* panel(int64_t index) const;
  const float* bias(int64_t index) const;
  uint64_t memory_bytes() const override;
  /// True if panel `index` is half as wide as the others.
  bool is_half(int64_t index) const;

 private:
  struct Memory {
    Buffer panels, bias;  ///< the bias of all matrices is one
  };
  int64_t n_ = 0, depth_ = 0;
  std::shared_ptr<Memory> memory_;
  const float* panels_ = nullptr;
};

/// Memory for gathered rows, shared by all calls of a process: as many buffers as blocks run at once.
class WorkBuffers final : public runtime::KernelState {
 public:
  /// The one of `cache`. Errors: kOutOfMemory.
  static Result<std::shared_ptr<const runtime::KernelState>> shared(runtime::StateCache& cache);

  /// One buffer for as long as the loan lives. Threads: loans may be taken and ended on any thread.
  class Loan {
   public:
    /// Room for `count` floats. Nothing is borrowed without an owner.
    Loan(const WorkBuffers* owner, int64_t count);
    ~Loan();
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    /// Null without an owner or without memory.
    float* floats() const { return buffer_.size() != 0 ? reinterpret_cast<float*>(const_cast<std::byte*>(buffer_.data())) : nullptr; }

   private:
    const WorkBuffers* owner_;
    Buffer buffer_;
  };

 private:
  mutable std::mutex mutex_;
  mutable std::vector<Buffer> idle_;
};

/// Steps of rows with a single tap.
inline constexpr int64_t kNoStep[1] = {0};

/// Rows that lie evenly, as a Product's context.
struct EvenRows {
  const float* data = nullptr;
  int64_t stride = 0;
  static void get(const void* context, int64_t first, int64_t count, const float** out);
};

/// c[i, j] = epilogue(sum_k row_i[k] * scale[k] * w[j, k] + bias[j]).
struct Product {
  const PackedMatrix* weights = nullptr;
  int64_t rows = 0;
  /// Pointers to `count` rows from `first` on.
  void (*rows_of)(const void* context, int64_t first, int64_t count, const float** out) = nullptr;
  const void* context = nullptr;
  int64_t taps = 1;       ///< a row is `taps` runs of depth / taps elements
  const int64_t* steps = kNoStep;  ///< elements from each run to the next, `taps` entries
  float* c = nullptr;
  int64_t c_row = 0;
  const float* residual = nullptr;
  int64_t residual_row = 0;
  const float* scale = nullptr;       ///< null: ones. Requires one tap
  Epilogue epilogue;
  const WorkBuffers* work = nullptr;  ///< may be null: nothing is gathered
  const float* after = nullptr;       ///< weights that the caller reads next, to be brought near; may be null
};
void run_product(const Product& product, ThreadPool& pool);
/// Panels [first, last) for all rows (at most kMaxBlockRows), on the calling thread.
void run_panels(const Product& product, int64_t first, int64_t last);
inline constexpr int64_t kMaxBlockRows = 240;

}  // namespace pteron::cpu
