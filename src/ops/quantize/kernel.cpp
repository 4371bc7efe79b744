// pteron::quantize and pteron::dequantize: parameters have one entry per block along every dim (or one for all), so that tensors, channels, tokens and
// groups are one case. All other operators of this room become these and arithmetic. Compile half: op.cpp.
#include <algorithm>
#include <cmath>
#include <span>

#include "base/str_cat.h"
#include "ops/elementwise.h"
#include "ops/walk.h"
#include "runtime/kernel.h"

namespace pteron::ops::quantize {
namespace {

using runtime::KernelContext;
using runtime::Tensor;

/// Elements that are converted at once.
constexpr int64_t kRun = 512;

/// Entries of a parameter: how many elements of each dim share one, and where it lies.
struct Entries {
  const Tensor* tensor = nullptr;
  ConvertFn convert = nullptr;
  int64_t block[kMaxRank] = {1};
  int64_t stride[kMaxRank] = {};

  Status init(const char* name, const Tensor* t, const Tensor& x) {
    tensor = t;
    if (t == nullptr) return ok_status();
    convert = find_convert(t->dtype(), DType::kFloat32);
    if (convert == nullptr || is_complex(t->dtype())) return Status(Code::kUnsupported, str_cat(name, " of dtype ", dtype_name(t->dtype())));
    for (int d = 0; d < x.rank(); ++d) {
      const int64_t count = t->rank() == 0 ? 1 : t->rank() == x.rank() ? t->size(d) : 0;
      if (count < 1 || x.size(d) % count != 0) {
        return Status(Code::kInvalidInput, str_cat(name, " ", shape_text(t->sizes()), " does not divide a tensor ", shape_text(x.sizes()), " into blocks"));
      }
      block[d] = std::max<int64_t>(x.size(d) / count, 1);
      stride[d] = t->rank() == 0 ? 0 : t->stride(d);
    }
    return ok_status();
  }
  /// The entry of an element; `index` lacks the last dim.
  float at(const Sizes& index, int64_t last) const {
    if (tensor == nullptr) return 0;
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] / block[d] * stride[d];
    offset += last / block[index.size()] * stride[index.size()];
    float value = 0;
    convert(1, tensor->as<std::byte>() + offset * static_cast<int64_t>(dtype_size(tensor->dtype())), &value);
    return value;
  }
  /// Elements of the last dim that share an entry.
  int64_t run(int rank) const { return tensor == nullptr ? INT64_MAX : block[std::max(rank - 1, 0)]; }
};

struct Levels {
  float low = 0, high = 0;
  bool late = true;  ///< the zero point is added after rounding
};

void quantize_run(const float* x, float inverse, float zero, const Levels& levels, int64_t n, float* to) {
  if (levels.late) {
    for (int64_t i = 0; i < n; ++i) to[i] = std::nearbyint(x[i] * inverse) + zero;
  } else {
    for (int64_t i = 0; i < n; ++i) to[i] = std::nearbyint(x[i] * inverse + zero);
  }
  for (int64_t i = 0; i < n; ++i) to[i] = to[i] < levels.low ? levels.low : to[i] > levels.high ? levels.high : to[i];
}
void dequantize_run(const float* x, float scale, float zero, int64_t n, float* to) {
  for (int64_t i = 0; i < n; ++i) to[i] = (x[i] - zero) * scale;
}

/// Calls fn(values, scale, zero, count, to) for runs of x that share parameters, as floats; results go to out.
template <typename Fn>
Status for_runs(KernelContext& context, const Tensor& x, const Tensor& scale, const Tensor* zero, Tensor& out, const Fn& fn) {
  Entries scales, zeros;
  PTERON_TRY(scales.init("scale", &scale, x));
  PTERON_TRY(zeros.init("zero point", zero, x));
  PTERON_TRY(resize(out, x.sizes()));
  const ConvertFn load = find_convert(x.dtype(), DType::kFloat32), store = find_convert(DType::kFloat32, out.dtype());
  if (load == nullptr || store == nullptr) return Status(Code::kUnsupported, str_cat("from ", dtype_name(x.dtype()), " to ", dtype_name(out.dtype())));
  if (x.numel() == 0) return ok_status();
  const int rank = x.rank();
  const int64_t columns = rank == 0 ? 1 : x.size(rank - 1), step = rank == 0 ? 1 : x.stride(rank - 1), out_step = rank == 0 ? 1 : out.stride(rank - 1);
  const auto x_bytes = static_cast<int64_t>(dtype_size(x.dtype())), out_bytes = static_cast<int64_t>(dtype_size(out.dtype()));
  const Sizes rows = without_last(x.sizes());
  const std::array<Sizes, 2> strides{without_last(x.strides()), without_last(out.strides())};
  context.pool->parallel_for(index_count(rows), row_grain(columns), [&](int64_t begin, int64_t end) {
    float values[kRun];
    walk(std::span<const int64_t>(rows), strides, begin, end, [&](const std::array<int64_t, 2>& offsets, const Sizes& index) {
      for (int64_t c = 0; c < columns;) {
        const int64_t n = std::min({kRun, columns - c, scales.run(rank) - c % scales.run(rank), zeros.run(rank) - c % zeros.run(rank)});
        const std::byte* from = x.as<std::byte>() + (offsets[0] + c * step) * x_bytes;
        if (step == 1) {
          load(n, from, values);
        } else {
          for (int64_t i = 0; i < n; ++i) load(1, from + i * step * x_bytes, values + i);
        }
        fn(values, scales.at(index, c), zeros.at(index, c), n, values);
        std::byte* to = out.as<std::byte>() + (offsets[1] + c * out_step) * out_bytes;
        if (out_step == 1) {
          store(n, values, to);
        } else {
          for (int64_t i = 0; i < n; ++i) store(1, values + i, to + i * out_step * out_bytes);
        }
        c += n;
      }
    });
  });
  return ok_status();
}

Status quantize_out(KernelContext& context, const Tensor& self, const Tensor& inverse, const Tensor* zero, int64_t low, int64_t high, DType dtype, bool late, Tensor& out) {
  if (self.dtype() != DType::kFloat32 || out.dtype() != dtype) {
    return Status(Code::kUnsupported, str_cat("quantize: from ", dtype_name(self.dtype()), " to ", dtype_name(out.dtype())));
  }
  const Levels levels{static_cast<float>(low), static_cast<float>(high), late};
  return for_runs(context, self, inverse, zero, out,
                  [&](const float* x, float by, float point, int64_t n, float* to) { quantize_run(x, by, point, levels, n, to); });
}

Status dequantize_out(KernelContext& context, const Tensor& self, const Tensor& scale, const Tensor* zero, Tensor& out) {
  if (out.dtype() != DType::kFloat32 || !is_integral(self.dtype(), false)) {
    return Status(Code::kUnsupported, str_cat("dequantize: from ", dtype_name(self.dtype()), " to ", dtype_name(out.dtype())));
  }
  return for_runs(context, self, scale, zero, out, [](const float* x, float by, float point, int64_t n, float* to) { dequantize_run(x, by, point, n, to); });
}

constexpr runtime::Kernel kRows[] = {
    {"pteron::dequantize.out", PTERON_KERNEL(dequantize_out)},
    {"pteron::quantize.out", PTERON_KERNEL(quantize_out)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::quantize
