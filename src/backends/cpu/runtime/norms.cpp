// Softmax, layer norm and root-mean-square norm in float over rows whose elements are neighbours. aten::_softmax, aten::_log_softmax and
// aten::native_layer_norm take the place of the portable kernels; other dtypes and layouts go on to those.
#include <algorithm>
#include <cmath>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/portable.h"
#include "backends/cpu/runtime/row_ops.h"
#include "base/str_cat.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

/// Elements worth a thread.
constexpr int64_t kGrain = 1 << 14;

bool is_float(const Value& v) { return v.tag == Tag::kTensor && v.tensor.dtype() == DType::kFloat32 && v.tensor.has_data(); }

/// Dims outside the rows, with the strides of two tensors.
struct Outer {
  Sizes sizes, a, b;
  int64_t count = 1;
};
void offsets_at(const Outer& o, int64_t index, int64_t* a, int64_t* b) {
  *a = *b = 0;
  for (size_t d = o.sizes.size(); d-- > 0;) {
    const int64_t at = index % o.sizes[d];
    index /= o.sizes[d];
    *a += at * o.a[d];
    *b += at * o.b[d];
  }
}
/// Dims [0, end) but for `skip`; neighbours that lie evenly in both become one.
Outer outer_of(const Tensor& x, const Tensor& y, int end, int skip) {
  Outer o;
  for (int d = 0; d < end; ++d) {
    if (d == skip || x.size(d) == 1) continue;
    o.count *= x.size(d);
    const size_t last = o.sizes.size() - 1;
    if (!o.sizes.empty() && o.a[last] == x.stride(d) * x.size(d) && o.b[last] == y.stride(d) * x.size(d)) {
      o.sizes[last] *= x.size(d);
      o.a[last] = x.stride(d);
      o.b[last] = y.stride(d);
      continue;
    }
    o.sizes.push_back(x.size(d));
    o.a.push_back(x.stride(d));
    o.b.push_back(y.stride(d));
  }
  return o;
}

/// fn(offset in x, offset in y, row) for every row of n elements.
template <class Fn>
void each_row(KernelContext& context, const Outer& o, int64_t n, Fn fn) {
  const auto run = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      int64_t a = 0, b = 0;
      offsets_at(o, i, &a, &b);
      fn(a, b, i);
    }
  };
  const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(n, 1));
  if (o.count <= grain) return run(0, o.count);
  context.pool->parallel_for(o.count, grain, run);
}

// self, dim, half_to_float, out
template <bool kLog>
Status softmax(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable(kLog ? "aten::_log_softmax.out" : "aten::_softmax.out");
  if (context.check_only || args.size() < 4 || !is_float(*args[0]) || !is_float(*args[3]) || args[1]->tag != Tag::kInt || args[3]->tensor.read_only) {
    return other.fn(context, args);
  }
  const Tensor& x = args[0]->tensor;
  Tensor& y = args[3]->tensor;
  const int rank = x.rank();
  const int64_t dim = args[1]->integer < 0 ? args[1]->integer + rank : args[1]->integer;
  if (dim < 0 || dim >= rank || x.numel() == 0 || x.stride(static_cast<int>(dim)) != 1) return other.fn(context, args);
  PTERON_TRY(resize(y, x.sizes()));
  if (y.stride(static_cast<int>(dim)) != 1) return other.fn(context, args);
  const int64_t n = x.size(static_cast<int>(dim));
  const RowSet& rows = row_set();
  each_row(context, outer_of(x, y, rank, static_cast<int>(dim)), n, [&](int64_t from, int64_t to, int64_t) { rows.softmax(x.as<float>() + from, y.as<float>() + to, n, kLog); });
  return ok_status();
}

/// True if dims [first, rank) lie row-major without gaps.
bool is_dense_from(const Tensor& t, int first) {
  int64_t expected = 1;
  for (int d = t.rank() - 1; d >= first; --d) {
    if (t.size(d) != 1 && t.stride(d) != expected) return false;
    expected *= t.size(d);
  }
  return true;
}

bool is_dense_vector(const Value& v, std::span<const int64_t> sizes) {
  if (v.tag == Tag::kNone) return true;
  return is_float(v) && std::ranges::equal(v.tensor.sizes(), sizes) && is_dense_from(v.tensor, 0);
}
const float* data_or_null(const Value& v) { return v.tag == Tag::kNone ? nullptr : v.tensor.as<float>(); }

// input, normalized_shape, weight, bias, eps, out, mean, rstd
Status layer_norm(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable("aten::native_layer_norm.out");
  const auto hand_on = [&] { return other.fn(context, args); };
  if (context.check_only || args.size() < 8 || !is_float(*args[0]) || !is_float(*args[5]) || !is_float(*args[6]) || !is_float(*args[7])) return hand_on();
  if (!runtime::Unpack<runtime::IntList>::fits(*args[1]) || !runtime::Unpack<double>::fits(*args[4])) return hand_on();
  const Tensor& x = args[0]->tensor;
  const runtime::IntList shape = runtime::Unpack<runtime::IntList>::get(*args[1]);
  const int first = x.rank() - static_cast<int>(shape.size());
  if (first < 0 || shape.empty() || x.numel() == 0 || !std::ranges::equal(x.sizes().subspan(static_cast<size_t>(first)), std::span<const int64_t>(shape))) return hand_on();
  Tensor &y = args[5]->tensor, &mean = args[6]->tensor, &rstd = args[7]->tensor;
  if (y.read_only || mean.read_only || rstd.read_only || !is_dense_vector(*args[2], shape) || !is_dense_vector(*args[3], shape) || !is_dense_from(x, first)) return hand_on();
  Sizes stats(x.sizes().first(static_cast<size_t>(first)));
  while (stats.size() < static_cast<size_t>(x.rank())) stats.push_back(1);
  PTERON_TRY(resize(y, x.sizes()));
  PTERON_TRY(resize(mean, stats));
  PTERON_TRY(resize(rstd, stats));
  if (!is_dense_from(y, first) || !is_dense_from(mean, 0) || !is_dense_from(rstd, 0)) return hand_on();
  int64_t n = 1;
  for (const int64_t s : shape) n *= s;
  const float *weight = data_or_null(*args[2]), *bias = data_or_null(*args[3]);
  const auto eps = static_cast<float>(runtime::Unpack<double>::get(*args[4]));
  const RowSet& rows = row_set();
  each_row(context, outer_of(x, y, first, -1), n, [&](int64_t from, int64_t to, int64_t row) {
    rows.layer_norm(x.as<float>() + from, weight, bias, y.as<float>() + to, n, eps, mean.as<float>() + row, rstd.as<float>() + row);
  });
  return ok_status();
}

Status rms_norm_out(KernelContext& context, const Tensor& x, const Tensor* weight, double eps, Tensor& out) {
  const auto bad = [&](std::string_view what) { return Status(Code::kInvalidInput, str_cat("rms_norm of ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ": ", what)); };
  if (x.dtype() != DType::kFloat32 || out.dtype() != DType::kFloat32 || x.rank() < 1) return bad("expected float32 of rank 1 and more");
  const int64_t n = x.size(x.rank() - 1);
  if (weight != nullptr && (weight->dtype() != DType::kFloat32 || weight->rank() != 1 || weight->size(0) != n)) return bad("the weight does not fit");
  PTERON_TRY(resize(out, x.sizes()));
  if (x.numel() == 0) return ok_status();
  const int last = x.rank() - 1;
  const RowSet& rows = row_set();
  const float* factors = weight != nullptr ? weight->as<float>() : nullptr;
  const Outer outer = outer_of(x, out, last, -1);
  const bool dense = (n == 1 || (x.stride(last) == 1 && out.stride(last) == 1)) && (weight == nullptr || n == 1 || weight->stride(0) == 1);
  if (dense) {
    each_row(context, outer, n, [&](int64_t from, int64_t to, int64_t) { rows.rms_norm(x.as<float>() + from, factors, out.as<float>() + to, n, static_cast<float>(eps)); });
    return ok_status();
  }
  const int64_t step = x.stride(last), out_step = out.stride(last), weight_step = weight != nullptr ? weight->stride(0) : 0;
  each_row(context, outer, n, [&](int64_t from, int64_t to, int64_t) {
    double square = 0;
    for (int64_t i = 0; i < n; ++i) square += static_cast<double>(x.as<float>()[from + i * step]) * static_cast<double>(x.as<float>()[from + i * step]);
    const auto scale = static_cast<float>(1.0 / std::sqrt(square / static_cast<double>(n) + eps));
    for (int64_t i = 0; i < n; ++i) {
      const float v = x.as<float>()[from + i * step] * scale;
      out.as<float>()[to + i * out_step] = factors != nullptr ? v * factors[i * weight_step] : v;
    }
  });
  return ok_status();
}

constexpr runtime::Kernel kRows[] = {
    {"aten::_log_softmax.out", softmax<true>},
    {"aten::_softmax.out", softmax<false>},
    {"aten::native_layer_norm.out", layer_norm},
    {"pteron_cpu::rms_norm.out", PTERON_KERNEL(rms_norm_out)},
};

}  // namespace

std::span<const runtime::Kernel> norm_kernels() { return kRows; }

}  // namespace pteron::cpu
