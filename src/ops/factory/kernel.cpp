// Kernels that fill tensors: constants, ranges, identity matrices, indices of triangles. Compile half: op.cpp.
#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "tensor/dim_math.h"

namespace pteron::ops::factory {

namespace {

using runtime::IntList;
using runtime::Value;

Status fill(KernelContext& context, Tensor& out, const Scalar& value) {
  const TileInput input(value, out.dtype());
  if (find_convert(DType::kInt64, out.dtype()) == nullptr) return unsupported_dtype(out.dtype());
  TensorView one;
  one.dtype = out.dtype();
  one.data = const_cast<std::byte*>(input.value.data());
  return copy_tensor(context, one, out.view);
}
Status fill_sized(KernelContext& context, const IntList& size, const Scalar& value, Tensor& out) {
  PTERON_TRY(runtime::resize(out, size));
  return fill(context, out, value);
}

constexpr Scalar kZero{Scalar::Kind::kInt, 0, 0};
constexpr Scalar kOne{Scalar::Kind::kInt, 1, 0};

Status full_kernel(KernelContext& context, IntList size, Scalar value, Tensor& out) { return fill_sized(context, size, value, out); }
Status full_like_kernel(KernelContext& context, const Tensor& self, Scalar value, Value&, Tensor& out) {
  return fill_sized(context, IntList(self.sizes()), value, out);
}
Status zeros_kernel(KernelContext& context, IntList size, Tensor& out) { return fill_sized(context, size, kZero, out); }
Status ones_kernel(KernelContext& context, IntList size, Tensor& out) { return fill_sized(context, size, kOne, out); }
/// (size, memory_format or dim_order, out): zeros, so that runs repeat.
Status empty_kernel(KernelContext& context, IntList size, Value&, Tensor& out) { return fill_sized(context, size, kZero, out); }
Status scalar_tensor_kernel(KernelContext& context, Scalar value, Tensor& out) { return fill_sized(context, {}, value, out); }
Status fill_kernel(KernelContext& context, const Tensor& self, TensorOrScalar value, Tensor& out) {
  PTERON_TRY(runtime::resize(out, self.sizes()));
  if (value.tensor == nullptr) return fill(context, out, value.scalar);
  if (value.tensor->numel() != 1) return Status(Code::kInvalidInput, "fill: the value has more than one element");
  TensorView one = value.tensor->view;
  one.rank = 0;
  return copy_tensor(context, one, out.view);
}

/// Calls value_at(i) for every element of a 1-d out and stores it in the out's dtype, which is that of `compute` after conversion.
template <typename T, typename Fn>
Status fill_1d(KernelContext& context, Tensor& out, Fn&& value_at) {
  const ConvertFn convert = find_convert(kDTypeOf<T>, out.dtype());
  if (convert == nullptr) return unsupported_dtype(out.dtype());
  const size_t step = static_cast<size_t>(out.stride(0)) * dtype_size(out.dtype());
  context.pool->parallel_for(out.size(0), kCheapGrain, [&](int64_t begin, int64_t end) {
    std::byte* at = out.as<std::byte>() + static_cast<size_t>(begin) * step;
    for (int64_t i = begin; i < end; ++i, at += step) {
      const T value = value_at(i);
      convert(1, &value, at);
    }
  });
  return ok_status();
}

/// The element of a tensor of one element, or the number.
Result<Scalar> number_of(const TensorOrScalar& either) {
  if (either.tensor == nullptr) return either.scalar;
  const Tensor& t = *either.tensor;
  if (t.numel() != 1) return Status(Code::kInvalidInput, "expected a tensor of one element");
  Scalar out;
  const bool integral = is_integral(t.dtype(), true);
  const ConvertFn convert = find_convert(t.dtype(), integral ? DType::kInt64 : DType::kFloat64);
  if (convert == nullptr) return unsupported_dtype(t.dtype());
  out.kind = integral ? Scalar::Kind::kInt : Scalar::Kind::kDouble;
  convert(1, t.view.data, integral ? static_cast<void*>(&out.integer) : static_cast<void*>(&out.floating));
  return out;
}

Status arange(KernelContext& context, const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  const bool integers = start.is_integral(true) && end.is_integral(true) && step.is_integral(true);
  if (step.to_double() == 0) return Status(Code::kInvalidInput, "arange: step is zero");
  const double exact = std::ceil((end.to_double() - start.to_double()) / step.to_double());
  const int64_t count = integers ? ceil_div(end.integer - start.integer, step.integer) : static_cast<int64_t>(exact);
  const std::array<int64_t, 1> sizes = {std::max<int64_t>(count, 0)};
  PTERON_TRY(runtime::resize(out, sizes));
  if (is_integral(out.dtype(), true)) {
    const int64_t first = start.to_int(), by = step.to_int();
    return fill_1d<int64_t>(context, out, [=](int64_t i) { return first + by * i; });
  }
  const double first = start.to_double(), by = step.to_double();
  return fill_1d<double>(context, out, [=](int64_t i) { return first + by * static_cast<double>(i); });
}
Status arange_kernel(KernelContext& context, Scalar end, Tensor& out) { return arange(context, kZero, end, kOne, out); }
Status arange_step_kernel(KernelContext& context, Scalar start, Scalar end, Scalar step, Tensor& out) {
  return arange(context, start, end, step, out);
}

/// One number of T's precision after each operation; 16-bit floats round every time, as ATen's scalar type does.
template <typename T>
struct Rounded {
  using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
  static Wide of(Wide x) {
    if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) return static_cast<float>(T(x));
    if constexpr (!std::is_same_v<T, Half> && !std::is_same_v<T, BFloat16>) return x;
  }
};

/// Evenly spaced values from both ends towards the middle, ATen's way to hit both ends exactly.
template <typename T>
struct Spaced {
  using R = Rounded<T>;
  using Wide = typename R::Wide;
  Wide start, end, step;
  int64_t steps;
  Spaced(const Scalar& first, const Scalar& last, int64_t count)
      : start(R::of(static_cast<Wide>(first.to_double()))), end(R::of(static_cast<Wide>(last.to_double()))), step(0), steps(count) {
    if (count > 1) step = R::of(R::of(end - start) / R::of(static_cast<Wide>(count - 1)));
  }
  Wide at(int64_t i) const {
    if (steps == 1) return start;
    if (i < steps / 2) return R::of(start + R::of(step * R::of(static_cast<Wide>(i))));
    return R::of(end - R::of(step * R::of(static_cast<Wide>(steps - i - 1))));
  }
};

Status linspace_kernel(KernelContext& context, TensorOrScalar start, TensorOrScalar end, int64_t steps, Tensor& out) {
  PTERON_ASSIGN(const Scalar first, number_of(start));
  PTERON_ASSIGN(const Scalar last, number_of(end));
  PTERON_TRY(runtime::resize(out, std::array<int64_t, 1>{steps}));
  switch (out.dtype()) {
    case DType::kFloat32: {
      const Spaced<float> s(first, last, steps);
      if (steps > 1 && steps < (int64_t{1} << 24) && out.stride(0) == 1) {  // the same numbers in loops that vectorise
        float* to = out.as<float>();
        const int32_t count = static_cast<int32_t>(steps), half = count / 2;
        for (int32_t i = 0; i < half; ++i) to[i] = s.start + s.step * static_cast<float>(i);
        for (int32_t i = half; i < count; ++i) to[i] = s.end - s.step * static_cast<float>(count - i - 1);
        return ok_status();
      }
      return fill_1d<float>(context, out, [&](int64_t i) { return s.at(i); });
    }
    case DType::kFloat16: {
      const Spaced<Half> s(first, last, steps);
      return fill_1d<float>(context, out, [&](int64_t i) { return s.at(i); });
    }
    case DType::kBFloat16: {
      const Spaced<BFloat16> s(first, last, steps);
      return fill_1d<float>(context, out, [&](int64_t i) { return s.at(i); });
    }
    default: break;
  }
  // Doubles, and integers: whole ends, steps in double.
  Scalar whole_first = first, whole_last = last;
  if (is_integral(out.dtype(), true)) {
    whole_first = {Scalar::Kind::kInt, first.to_int(), 0};
    whole_last = {Scalar::Kind::kInt, last.to_int(), 0};
  }
  const Spaced<double> s(whole_first, whole_last, steps);
  return fill_1d<double>(context, out, [&](int64_t i) { return s.at(i); });
}

Status logspace_kernel(KernelContext& context, TensorOrScalar start, TensorOrScalar end, int64_t steps, double base, Tensor& out) {
  PTERON_ASSIGN(const Scalar first, number_of(start));
  PTERON_ASSIGN(const Scalar last, number_of(end));
  PTERON_TRY(runtime::resize(out, std::array<int64_t, 1>{steps}));
  if (out.dtype() == DType::kFloat64) {
    const Spaced<double> s(first, last, steps);
    return fill_1d<double>(context, out, [&](int64_t i) { return std::pow(base, s.at(i)); });
  }
  const float short_base = static_cast<float>(base);
  if (is_integral(out.dtype(), true)) {
    const Spaced<float> s(first, last, steps);
    return fill_1d<float>(context, out, [&](int64_t i) { return std::pow(short_base, s.start + s.step * static_cast<float>(i)); });
  }
  if (out.dtype() == DType::kFloat16) {
    const Spaced<Half> s(first, last, steps);
    return fill_1d<float>(context, out, [&](int64_t i) { return std::pow(short_base, s.at(i)); });
  }
  if (out.dtype() == DType::kBFloat16) {
    const Spaced<BFloat16> s(first, last, steps);
    return fill_1d<float>(context, out, [&](int64_t i) { return std::pow(short_base, s.at(i)); });
  }
  const Spaced<float> s(first, last, steps);
  return fill_1d<float>(context, out, [&](int64_t i) { return std::pow(short_base, s.at(i)); });
}

Status eye(KernelContext& context, int64_t n, int64_t m, Tensor& out) {
  PTERON_TRY(fill_sized(context, IntList{n, m}, kZero, out));
  const int64_t count = std::min(n, m);
  if (count == 0) return ok_status();
  TensorView diagonal;
  diagonal.dtype = out.dtype();
  diagonal.rank = 1;
  diagonal.size_array[0] = count;
  diagonal.stride_array[0] = out.stride(0) + out.stride(1);
  diagonal.data = out.view.data;
  Tensor target;
  target.view = diagonal;
  return fill(context, target, kOne);
}
Status eye_kernel(KernelContext& context, int64_t n, Tensor& out) { return eye(context, n, n, out); }
Status eye_m_kernel(KernelContext& context, int64_t n, int64_t m, Tensor& out) { return eye(context, n, m, out); }

/// Rows and columns of the elements of a triangle, in row-major order.
Status triangle(int64_t row, int64_t col, int64_t offset, bool lower, Tensor& out) {
  const ConvertFn convert = find_convert(DType::kInt64, out.dtype());
  if (convert == nullptr) return unsupported_dtype(out.dtype());
  const auto first_of = [&](int64_t i) { return lower ? 0 : std::clamp<int64_t>(i + offset, 0, col); };
  const auto last_of = [&](int64_t i) { return lower ? std::clamp<int64_t>(i + offset + 1, 0, col) : col; };
  int64_t count = 0;
  for (int64_t i = 0; i < row; ++i) count += last_of(i) - first_of(i);
  PTERON_TRY(runtime::resize(out, std::array<int64_t, 2>{2, count}));
  const size_t bytes = dtype_size(out.dtype());
  std::byte* rows = out.as<std::byte>();
  std::byte* columns = rows + static_cast<size_t>(out.stride(0)) * bytes;
  const size_t step = static_cast<size_t>(out.stride(1)) * bytes;
  for (int64_t i = 0; i < row; ++i) {
    for (int64_t j = first_of(i); j < last_of(i); ++j) {
      convert(1, &i, rows);
      convert(1, &j, columns);
      rows += step;
      columns += step;
    }
  }
  return ok_status();
}
Status tril_indices_kernel(KernelContext&, int64_t row, int64_t col, int64_t offset, Tensor& out) { return triangle(row, col, offset, true, out); }
Status triu_indices_kernel(KernelContext&, int64_t row, int64_t col, int64_t offset, Tensor& out) { return triangle(row, col, offset, false, out); }

constexpr runtime::Kernel kRows[] = {
    {"aten::arange.out", PTERON_KERNEL(arange_kernel)},
    {"aten::arange.start_out", PTERON_KERNEL(arange_step_kernel)},
    {"aten::empty.out", PTERON_KERNEL(empty_kernel)},
    {"aten::eye.m_out", PTERON_KERNEL(eye_m_kernel)},
    {"aten::eye.out", PTERON_KERNEL(eye_kernel)},
    {"aten::fill.Scalar_out", PTERON_KERNEL(fill_kernel)},
    {"aten::fill.Tensor_out", PTERON_KERNEL(fill_kernel)},
    {"aten::full.out", PTERON_KERNEL(full_kernel)},
    {"aten::full_like.out", PTERON_KERNEL(full_like_kernel)},
    {"aten::linspace.Scalar_Tensor_out", PTERON_KERNEL(linspace_kernel)},
    {"aten::linspace.Tensor_Scalar_out", PTERON_KERNEL(linspace_kernel)},
    {"aten::linspace.Tensor_Tensor_out", PTERON_KERNEL(linspace_kernel)},
    {"aten::linspace.out", PTERON_KERNEL(linspace_kernel)},
    {"aten::logspace.Scalar_Tensor_out", PTERON_KERNEL(logspace_kernel)},
    {"aten::logspace.Tensor_Scalar_out", PTERON_KERNEL(logspace_kernel)},
    {"aten::logspace.Tensor_Tensor_out", PTERON_KERNEL(logspace_kernel)},
    {"aten::logspace.out", PTERON_KERNEL(logspace_kernel)},
    {"aten::ones.out", PTERON_KERNEL(ones_kernel)},
    {"aten::scalar_tensor.out", PTERON_KERNEL(scalar_tensor_kernel)},
    {"aten::tril_indices.out", PTERON_KERNEL(tril_indices_kernel)},
    {"aten::triu_indices.out", PTERON_KERNEL(triu_indices_kernel)},
    {"aten::zeros.out", PTERON_KERNEL(zeros_kernel)},
    {"dim_order_ops::_empty_dim_order.out", PTERON_KERNEL(empty_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::factory
