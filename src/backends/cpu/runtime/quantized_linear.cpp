// pteron_cpu::qlinear: x @ weight^T with constant int8 or 4-bit weights that have one scale per row and group of columns. 8-bit x are summed in
// integers, exactly; float x meet weights that are unpacked on the way: by one row of x as they are read, for more rows a panel at a time.
#include <algorithm>
#include <mutex>
#include <vector>

#include "backends/cpu/runtime/early.h"
#include "backends/cpu/runtime/geometry.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/narrow_product.h"
#include "backends/cpu/runtime/pack.h"
#include "backends/cpu/runtime/product.h"
#include "backends/cpu/runtime/quantized.h"
#include "backends/cpu/runtime/tile.h"
#include "base/buffer.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "tensor/dim_math.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tensor;
using runtime::Value;

/// Rows of x from which on panels of weights are unpacked for the float product.
constexpr int64_t kPanelRows = 8;
/// Multiplications worth a thread.
constexpr int64_t kGrain = 1 << 17;

// x, x_scale, x_zero, weight, scale, bias, residual, bits, residual_scale, residual_zero, middle, activation, low, high, inverse, zero, least, most, dtype, out
enum Position : size_t { kX, kXScale, kXZero, kWeight, kScale, kBias, kResidual, kBits, kResidualScale, kResidualZero, kEnd, kDtype = kEnd + 8, kOut };

/// What is made of the weights for 8-bit x.
struct Weights final : KernelState {
  uint64_t memory_bytes() const override { return (matrix != nullptr ? matrix->memory_bytes() : 0) + sums.size() + scaled.size(); }
  std::shared_ptr<const NarrowMatrix> matrix;  ///< 8 bits, one scale a row
  Buffer sums;                                 ///< otherwise: of integer weights [n, groups]
  Buffer scaled;                               ///< and of weights times scales [n]
};

struct QLinear final : KernelState {
  int64_t n = 0, depth = 0, groups = 1, bits = 8;
  QuantizedEnd end;
  std::shared_ptr<const KernelState> weights, work;
  const NarrowMatrix* matrix = nullptr;
  const int32_t* sums = nullptr;
  const float* scaled = nullptr;
  bool integers = false;  ///< 8-bit x
  bool blocks = false;    ///< 8-bit x meet 4-bit weights in blocks
  int64_t row_bytes() const { return depth * bits / 8; }
  int64_t group() const { return depth / groups; }
};

Status read_linear(std::span<Value* const> args, QLinear* q) {
  const Tensor &w = args[kWeight]->tensor, &s = args[kScale]->tensor;
  const int64_t bits = args[kBits]->integer;
  const DType stored = bits == 4 ? DType::kUInt8 : DType::kInt8;
  if ((bits != 8 && bits != 4) || !w.read_only || w.rank() != 2 || w.dtype() != stored || w.numel() == 0 || !w.view.is_contiguous()) {
    return Status(Code::kInvalidFile, str_cat("qlinear: the weight must be a row-major constant of rank 2 with 8 or 4 bits, found ", dtype_name(w.dtype()), " ", shape_text(w.sizes()),
                                              " with ", bits, " bits"));
  }
  q->bits = bits;
  q->n = w.size(0);
  q->depth = w.size(1) * 8 / bits;
  if (!s.read_only || s.rank() != 2 || s.dtype() != DType::kFloat32 || s.size(0) != q->n || s.size(1) < 1 || q->depth % s.size(1) != 0 || !s.view.is_contiguous()) {
    return Status(Code::kInvalidFile, str_cat("qlinear: scales ", dtype_name(s.dtype()), " ", shape_text(s.sizes()), " of a weight [", q->n, ", ", q->depth, "]"));
  }
  q->groups = s.size(1);
  if (q->group() > kMaxDepth || (bits == 4 && q->group() % 2 != 0)) return Status(Code::kInvalidFile, str_cat("qlinear: groups of ", q->group(), " columns"));
  const Tensor* bias = runtime::Unpack<const Tensor*>::get(*args[kBias]);
  if (bias != nullptr) PTERON_TRY(check_vector("qlinear", "the bias", *bias, q->n));
  PTERON_TRY(read_residual(*args[kResidualScale], *args[kResidualZero], &q->end));
  return q->end.read(args.subspan(kEnd, 9));
}

/// One row of integer weights; 4-bit ones are unpacked to `memory`.
const int8_t* weight_row(const QLinear& q, const Tensor& w, int64_t row, int8_t* memory) {
  const std::byte* from = w.as<std::byte>() + row * q.row_bytes();
  if (q.bits == 8) return reinterpret_cast<const int8_t*>(from);
  unpack_nibbles(reinterpret_cast<const uint8_t*>(from), q.depth, memory);
  return memory;
}

Result<std::shared_ptr<const KernelState>> pack(const QLinear& q, const Tensor& w, const Tensor& scale, ThreadPool& pool) {
  auto made = std::make_shared<Weights>();
  if (q.bits == 8 && q.groups == 1) {
    std::vector<int64_t> offsets(static_cast<size_t>(q.depth));
    for (size_t k = 0; k < offsets.size(); ++k) offsets[k] = static_cast<int64_t>(k);
    PTERON_ASSIGN(made->matrix, NarrowMatrix::make(NarrowKind::kInt8, w.as<int8_t>(), q.n, q.depth, offsets, nullptr, 0, pool));
    return std::shared_ptr<const KernelState>(std::move(made));
  }
  PTERON_ASSIGN(made->sums, Buffer::create(static_cast<size_t>(q.n * q.groups) * sizeof(int32_t)));
  PTERON_ASSIGN(Buffer unpacked, Buffer::create(static_cast<size_t>(q.depth)));
  PTERON_ASSIGN(made->scaled, Buffer::create_zeroed(static_cast<size_t>(q.n) * sizeof(float)));
  auto* sums = reinterpret_cast<int32_t*>(made->sums.data());
  for (int64_t j = 0; j < q.n; ++j) {
    double scaled = 0;
    const int8_t* row = weight_row(q, w, j, reinterpret_cast<int8_t*>(unpacked.data()));
    for (int64_t g = 0; g < q.groups; ++g, ++sums) {
      *sums = 0;
      for (int64_t k = 0; k < q.group(); ++k) *sums += row[g * q.group() + k];
      scaled += static_cast<double>(*sums) * static_cast<double>(scale.as<float>()[j * q.groups + g]);
    }
    reinterpret_cast<float*>(made->scaled.data())[j] = static_cast<float>(scaled);
  }
  return std::shared_ptr<const KernelState>(std::move(made));
}

Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  auto made = std::make_shared<QLinear>();
  PTERON_TRY(read_linear(args, made.get()));
  if (is_early(load)) return std::shared_ptr<const KernelState>();
  if (args[kXScale]->tag == runtime::Tag::kTensor) {
    const Tensor& w = args[kWeight]->tensor;
    const std::string key = str_cat("qlinear/", reinterpret_cast<uintptr_t>(w.view.data), "/", shape_text(w.sizes()), "/", made->groups, "/", made->bits, "/",
                                    reinterpret_cast<uintptr_t>(args[kScale]->tensor.view.data));
    PTERON_ASSIGN(made->weights, load.cache->find_or_make(key, [&] { return pack(*made, w, args[kScale]->tensor, *load.pool); }));
    const auto& weights = *static_cast<const Weights*>(made->weights.get());
    made->integers = true;
    made->matrix = weights.matrix.get();
    made->sums = made->matrix != nullptr ? made->matrix->column_sums() : reinterpret_cast<const int32_t*>(weights.sums.data());
    made->scaled = reinterpret_cast<const float*>(weights.scaled.data());
    made->blocks = made->matrix == nullptr && made->bits == 4 && made->depth % kByteBlock == 0 && made->group() % (kByteBlock / 2) == 0;
    PTERON_ASSIGN(made->work, WorkBuffers::shared(*load.cache));
  }
  return std::shared_ptr<const KernelState>(std::move(made));
}

size_t workspace(std::span<Value* const> args) {
  const Tensor &x = args[kX]->tensor, &out = args[kOut]->tensor;
  // Dense and arranged copies of x, dense ones of the residual and the result, the sums, parameters of rows.
  const int64_t rows = x.rank() > 0 && x.size(x.rank() - 1) > 0 ? x.numel() / x.size(x.rank() - 1) : 0;
  return 2 * line_bytes(x.numel(), dtype_size(x.dtype())) + 3 * line_bytes(out.numel(), sizeof(float)) + 2 * line_bytes(rows, sizeof(float));
}

/// What one call reads and writes, densely.
struct Call {
  const QLinear* q = nullptr;
  const Tensor* w = nullptr;
  const void* x = nullptr;
  DType x_dtype = DType::kFloat32;
  const float* scales = nullptr;
  const float* bias = nullptr;
  const float* x_scale = nullptr;  ///< one per row
  const float* x_zero = nullptr;
  const uint8_t* arranged = nullptr;  ///< x for byte_rows()
  int64_t rows = 0;
  float* y = nullptr;              ///< [rows, n] sums
};

template <typename T>
void integer_columns(const Call& c, int64_t first, int64_t last) {
  const QLinear& q = *c.q;
  const T* x = static_cast<const T*>(c.x);
  int8_t memory[kMaxDepth];
  for (int64_t j = first; j < last; ++j) {
    const bool whole = q.bits == 8 || q.depth <= kMaxDepth;
    const int8_t* row = whole ? weight_row(q, *c.w, j, memory) : nullptr;
    for (int64_t i = 0; i < c.rows; ++i) {
      float y = 0;
      const auto zero = static_cast<int32_t>(c.x_zero[i]);
      for (int64_t g = 0; g < q.groups; ++g) {
        const int8_t* from = row != nullptr ? row + g * q.group() : memory;
        if (row == nullptr) unpack_nibbles(c.w->as<uint8_t>() + j * q.row_bytes() + g * q.group() / 2, q.group(), memory);
        const int32_t sum = dot(x + i * q.depth + g * q.group(), from, q.group()) - zero * q.sums[j * q.groups + g];
        y += static_cast<float>(sum) * c.scales[j * q.groups + g];
      }
      c.y[i * q.n + j] = y * c.x_scale[i];
    }
  }
}

WeightRow row_of(const Call& c, int64_t j) {
  const QLinear& q = *c.q;
  return {c.w->as<std::byte>() + j * q.row_bytes(), c.scales + j * q.groups, q.depth, q.group(), q.bits};
}

/// Columns of sums of 8-bit x and 4-bit weights, block by block.
void block_columns(const Call& c, int64_t first, int64_t last) {
  const QLinear& q = *c.q;
  const float shift = c.x_dtype == DType::kInt8 ? 128 : 0;  // arranged x are uint8
  // As many rows as stay in the second-level cache while the weights pass by.
  const int64_t block = std::max<int64_t>((128 << 10) / q.depth / 4 * 4, 4);
  for (int64_t row = 0; row < c.rows; row += block) {
    const int64_t count = std::min(block, c.rows - row);
    for (int64_t j = first; j < last; ++j) {
      float* y = c.y + row * q.n + j;
      byte_rows(c.arranged + row * q.depth, count, row_of(c, j), y, q.n);
      for (int64_t i = 0; i < count; ++i) y[i * q.n] = (y[i * q.n] - (c.x_zero[row + i] + shift) * q.scaled[j]) * c.x_scale[row + i];
    }
  }
}

/// Columns of float sums, weight by weight.
void float_columns(const Call& c, int64_t first, int64_t last) {
  const QLinear& q = *c.q;
  for (int64_t j = first; j < last; ++j) {
    const WeightRow row = row_of(c, j);
    for (int64_t i = 0; i < c.rows; ++i) c.y[i * q.n + j] = grouped_dot(static_cast<const float*>(c.x) + i * q.depth, row);
  }
}

/// The weights of rows [first, last) as floats in one panel.
Status unpack_panel(const Call& c, int64_t first, int64_t last, float* rows, PackedMatrix* panel, const PanelPacker& packer) {
  const QLinear& q = *c.q;
  int8_t memory[512];
  for (int64_t j = first; j < last; ++j) {
    const std::byte* from = c.w->as<std::byte>() + j * q.row_bytes();
    float* to = rows + (j - first) * q.depth;
    for (int64_t g = 0; g < q.groups; ++g) {
      const float scale = c.scales[j * q.groups + g];
      for (int64_t k = g * q.group(), end = k + q.group(); k < end;) {
        const int64_t count = std::min<int64_t>(end - k, 512);
        const int8_t* weights = reinterpret_cast<const int8_t*>(from) + k;
        if (q.bits == 4) {
          unpack_nibbles(reinterpret_cast<const uint8_t*>(from) + k / 2, count, memory);
          weights = memory;
        }
        for (int64_t i = 0; i < count; ++i) to[k + i] = static_cast<float>(weights[i]) * scale;
        k += count;
      }
    }
  }
  const int64_t width = tile_set().columns;
  packer.pack(rows, q.depth, last - first, panel->is_half(0) ? width / 2 : width, panel->panel(0));
  return ok_status();
}

/// Panels [first, last) of float sums for all rows.
Status float_panels(const Call& c, int64_t first, int64_t last) {
  const QLinear& q = *c.q;
  const int64_t width = tile_set().columns;
  PTERON_ASSIGN(Buffer rows, Buffer::create(static_cast<size_t>(width * q.depth) * sizeof(float)));
  std::vector<int64_t> offsets(static_cast<size_t>(q.depth));
  for (size_t k = 0; k < offsets.size(); ++k) offsets[k] = static_cast<int64_t>(k);
  const PanelPacker packer(offsets);
  for (int64_t p = first; p < last; ++p) {
    const int64_t begin = p * width, end = std::min(q.n, begin + width);
    PTERON_ASSIGN(const std::vector<std::shared_ptr<PackedMatrix>> one, PackedMatrix::create(1, end - begin, q.depth));
    const std::shared_ptr<PackedMatrix>& panel = one[0];
    PTERON_TRY(unpack_panel(c, begin, end, reinterpret_cast<float*>(rows.data()), panel.get(), packer));
    for (int64_t row = 0; row < c.rows; row += kMaxBlockRows) {
      const EvenRows source{static_cast<const float*>(c.x) + row * q.depth, q.depth};
      Product product;
      product.weights = panel.get();
      product.rows = std::min(kMaxBlockRows, c.rows - row);
      product.rows_of = EvenRows::get;
      product.context = &source;
      product.c = c.y + row * q.n + begin;
      product.c_row = q.n;
      run_panels(product, 0, 1);
    }
  }
  return ok_status();
}

Status run_sums(const Call& c, ThreadPool& pool) {
  const QLinear& q = *c.q;
  const int64_t column_work = std::max<int64_t>(c.rows * q.depth, 1), grain = std::max<int64_t>(kGrain / column_work, 1);
  if (c.x_dtype != DType::kFloat32) {
    pool.parallel_for(q.n, grain, [&](int64_t first, int64_t last) {
      if (q.blocks) return block_columns(c, first, last);
      if (c.x_dtype == DType::kInt8) return integer_columns<int8_t>(c, first, last);
      integer_columns<uint8_t>(c, first, last);
    });
    return ok_status();
  }
  if (c.rows < kPanelRows) {
    pool.parallel_for(q.n, grain, [&](int64_t first, int64_t last) { float_columns(c, first, last); });
    return ok_status();
  }
  std::mutex mutex;
  Status status;
  pool.parallel_for(ceil_div(q.n, int64_t{tile_set().columns}), std::max<int64_t>(grain / tile_set().columns, 1), [&](int64_t first, int64_t last) {
    Status part = float_panels(c, first, last);
    if (part.ok()) return;
    const std::lock_guard lock(mutex);
    status = std::move(part);
  });
  return status;
}

/// Where parts of a product of integers go.
struct Target {
  const Call* call = nullptr;
  const std::byte* residual = nullptr;
  DType residual_dtype = DType::kFloat32;
  std::byte* out = nullptr;
  static void store(const void* context, const NarrowResult& part) {
    const Target& t = *static_cast<const Target*>(context);
    const Call& c = *t.call;
    const QLinear& q = *c.q;
    const auto out_bytes = static_cast<int64_t>(dtype_size(q.end.dtype)), residual_bytes = static_cast<int64_t>(dtype_size(t.residual_dtype));
    float factors[2 * kNarrowColumns];
    int32_t sums[2 * kNarrowColumns];
    for (int64_t r = 0; r < part.rows; ++r) {
      const int64_t i = part.row + r, at = i * q.n + part.column;
      const auto zero = static_cast<int32_t>(c.x_zero[i]);
      const int32_t* from = static_cast<const int32_t*>(part.values) + r * kNarrowResultRow;
      for (int64_t j = 0; j < part.columns; ++j) {
        factors[j] = c.scales[part.column + j] * c.x_scale[i];
        sums[j] = from[j] - zero * q.sums[part.column + j];
      }
      SumBlock block;
      block.sums = sums;
      block.rows = 1;
      block.columns = part.columns;
      block.factors = factors;
      block.bias = c.bias != nullptr ? c.bias + part.column : nullptr;
      block.residual = t.residual != nullptr ? t.residual + at * residual_bytes : nullptr;
      block.residual_dtype = t.residual_dtype;
      block.out = t.out + at * out_bytes;
      finish_block(q.end, block);
    }
  }
};

/// The product of 8-bit matrices, finished.
Status run_integers(const Call& c, const Target& target, ThreadPool& pool) {
  const QLinear& q = *c.q;
  const EvenNarrowRows rows{static_cast<const std::byte*>(c.x), q.depth};
  NarrowProduct p;
  p.weights = q.matrix;
  p.type = c.x_dtype;
  p.rows = c.rows;
  p.rows_of = EvenNarrowRows::get;
  p.context = &rows;
  p.store = Target::store;
  p.store_context = &target;
  p.work = static_cast<const WorkBuffers*>(q.work.get());
  return run_narrow_product(p, pool);
}

/// A parameter as one float per row: as many entries as rows, or one for all.
Status row_values(const Tensor* t, const char* name, int64_t rows, float missing, float* to) {
  if (t == nullptr) {
    std::fill(to, to + rows, missing);
    return ok_status();
  }
  if (t->numel() != 1 && t->numel() != rows) return Status(Code::kInvalidInput, str_cat("qlinear: ", name, " ", shape_text(t->sizes()), " for ", rows, " rows"));
  const ops::ConvertFn convert = ops::find_convert(t->dtype(), DType::kFloat32);
  if (convert == nullptr || is_complex(t->dtype()) || !t->view.is_contiguous()) return Status(Code::kUnsupported, str_cat("qlinear: ", name, " of dtype ", dtype_name(t->dtype())));
  convert(t->numel(), t->view.data, to);
  if (t->numel() == 1) std::fill(to, to + rows, to[0]);
  return ok_status();
}

/// The tensor's elements one after the other, copied to `scratch` if they do not lie so.
Result<const void*> dense_in(KernelContext& context, const Tensor& t, std::byte* scratch) {
  if (t.view.is_contiguous()) return static_cast<const void*>(t.view.data);
  PTERON_TRY(ops::copy_tensor(context, t.view, make_contiguous_view(t.dtype(), t.sizes(), scratch)));
  return static_cast<const void*>(scratch);
}

Status qlinear_out(KernelContext& context, const Tensor& x, const Tensor* x_scale, const Tensor* x_zero, const Tensor& weight, const Tensor& scale, const Tensor* bias,
                   const Tensor* residual, int64_t, double, int64_t, Value&, std::string_view, double, double, double, int64_t, int64_t, int64_t, DType, Tensor& out) {
  const QLinear& q = *static_cast<const QLinear*>(context.state);
  const bool integers = q.integers;
  if (x.rank() < 1 || x.size(x.rank() - 1) != q.depth || (integers ? !is_byte(x.dtype()) : x.dtype() != DType::kFloat32) || out.dtype() != q.end.dtype) {
    return Status(Code::kInvalidInput, str_cat("qlinear: input ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ", expected ", integers ? "int8 or uint8" : "float32", " [..., ", q.depth, "]"));
  }
  Sizes sizes(x.sizes());
  sizes.back() = q.n;
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  if (residual != nullptr && (!is_result_dtype(residual->dtype()) || !std::ranges::equal(residual->sizes(), std::span<const int64_t>(sizes)))) {
    return Status(Code::kInvalidInput, str_cat("qlinear: residual ", dtype_name(residual->dtype()), " ", shape_text(residual->sizes())));
  }
  std::byte* scratch = context.scratch.data();
  const auto take = [&](int64_t count, size_t bytes) {
    std::byte* at = scratch;
    scratch += line_bytes(count, bytes);
    return at;
  };
  Call c;
  c.q = &q;
  c.w = &weight;
  c.rows = out.numel() / q.n;
  c.x_dtype = x.dtype();
  PTERON_ASSIGN(c.x, dense_in(context, x, take(x.numel(), dtype_size(x.dtype()))));
  c.scales = scale.as<float>();
  c.bias = bias != nullptr ? bias->as<float>() : nullptr;
  c.y = reinterpret_cast<float*>(take(out.numel(), sizeof(float)));
  const void* added = nullptr;
  if (residual != nullptr) {
    PTERON_ASSIGN(added, dense_in(context, *residual, take(out.numel(), sizeof(float))));
  }
  std::byte* result = out.view.is_contiguous() ? out.as<std::byte>() : take(out.numel(), sizeof(float));
  if (integers) {
    float* by = reinterpret_cast<float*>(take(c.rows, sizeof(float)));
    float* zero = reinterpret_cast<float*>(take(c.rows, sizeof(float)));
    PTERON_TRY(row_values(x_scale, "x_scale", c.rows, 1, by));
    PTERON_TRY(row_values(x_zero, "x_zero", c.rows, 0, zero));
    c.x_scale = by;
    c.x_zero = zero;
    if (q.blocks) {
      auto* arranged = reinterpret_cast<uint8_t*>(take(x.numel(), 1));
      context.pool->parallel_for(c.rows, std::max<int64_t>(65536 / q.depth, 1), [&](int64_t first, int64_t last) {
        arrange_bytes(static_cast<const uint8_t*>(c.x) + first * q.depth, c.x_dtype == DType::kInt8, last - first, q.depth, arranged + first * q.depth);
      });
      c.arranged = arranged;
    }
  }
  const auto finish_copy = [&] {
    return result == out.as<std::byte>() ? ok_status() : ops::copy_tensor(context, make_contiguous_view(out.dtype(), out.sizes(), result), out.view);
  };
  if (q.matrix != nullptr) {
    const Target target{&c, static_cast<const std::byte*>(added), residual != nullptr ? residual->dtype() : DType::kFloat32, result};
    PTERON_TRY(run_integers(c, target, *context.pool));
    return finish_copy();
  }
  PTERON_TRY(run_sums(c, *context.pool));
  const auto out_bytes = static_cast<int64_t>(dtype_size(out.dtype()));
  const auto added_bytes = residual != nullptr ? static_cast<int64_t>(dtype_size(residual->dtype())) : 0;
  context.pool->parallel_for(c.rows, std::max<int64_t>(32768 / q.n, 1), [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      float* y = c.y + i * q.n;
      for (int64_t j = 0; c.bias != nullptr && j < q.n; ++j) y[j] += c.bias[j];
      const std::byte* from = added != nullptr ? static_cast<const std::byte*>(added) + i * q.n * added_bytes : nullptr;
      q.end.finish(y, from, residual != nullptr ? residual->dtype() : DType::kFloat32, q.n, result + i * q.n * out_bytes);
    }
  });
  return finish_copy();
}

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::qlinear.out", PTERON_KERNEL(qlinear_out), workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> quantized_linear_kernels() { return kRows; }

}  // namespace pteron::cpu
