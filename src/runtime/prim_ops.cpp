// Scalar arithmetic with Python's semantics, sizes of tensors, and the two instructions that rebind a tensor without moving bytes.
#include "runtime/prim_ops.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "runtime/device_memory.h"
#include "tensor/dim_math.h"
#include "tensor/dtype.h"

namespace pteron::runtime {
namespace {

bool is_number(const Value& v) { return v.tag == Tag::kInt || v.tag == Tag::kDouble || v.tag == Tag::kBool; }
bool is_whole(const Value& v) { return v.tag == Tag::kInt || v.tag == Tag::kBool; }
double as_double(const Value& v) { return v.tag == Tag::kDouble ? v.floating : static_cast<double>(v.integer); }

void set_int(Value& out, int64_t value) {
  out.tag = Tag::kInt;
  out.integer = value;
}
void set_double(Value& out, double value) {
  out.tag = Tag::kDouble;
  out.floating = value;
}
void set_bool(Value& out, bool value) {
  out.tag = Tag::kBool;
  out.integer = value ? 1 : 0;
}

Status not_numbers() { return Status(Code::kInvalidFile, "arguments must be numbers"); }
Status overflow() { return Status(Code::kInternal, "the integer result does not fit 64 bits"); }
Status zero_division() { return Status(Code::kInternal, "division by zero"); }

enum class Arithmetic { kAdd, kSub, kMul, kMax, kMin };

template <Arithmetic op>
Status arithmetic(KernelContext&, Value& a, Value& b, Value& out) {
  if (!is_number(a) || !is_number(b)) return not_numbers();
  if (is_whole(a) && is_whole(b)) {
    int64_t result = 0;
    bool fits = true;
    if constexpr (op == Arithmetic::kAdd) fits = checked_add(a.integer, b.integer, &result);
    if constexpr (op == Arithmetic::kSub) fits = !__builtin_sub_overflow(a.integer, b.integer, &result);
    if constexpr (op == Arithmetic::kMul) fits = checked_mul(a.integer, b.integer, &result);
    if constexpr (op == Arithmetic::kMax) result = std::max(a.integer, b.integer);
    if constexpr (op == Arithmetic::kMin) result = std::min(a.integer, b.integer);
    if (!fits) return overflow();
    set_int(out, result);
    return ok_status();
  }
  const double x = as_double(a), y = as_double(b);
  if constexpr (op == Arithmetic::kAdd) set_double(out, x + y);
  if constexpr (op == Arithmetic::kSub) set_double(out, x - y);
  if constexpr (op == Arithmetic::kMul) set_double(out, x * y);
  if constexpr (op == Arithmetic::kMax) set_double(out, std::max(x, y));
  if constexpr (op == Arithmetic::kMin) set_double(out, std::min(x, y));
  return ok_status();
}

double python_mod(double x, double y) {
  const double rest = std::fmod(x, y);
  return rest != 0 && ((rest < 0) != (y < 0)) ? rest + y : rest;
}

Status floor_divide(KernelContext&, Value& a, Value& b, Value& out) {
  if (!is_number(a) || !is_number(b)) return not_numbers();
  if (as_double(b) == 0) return zero_division();
  if (is_whole(a) && is_whole(b)) {
    if (a.integer == INT64_MIN && b.integer == -1) return overflow();
    set_int(out, floor_div(a.integer, b.integer));
    return ok_status();
  }
  const double x = as_double(a), y = as_double(b);
  set_double(out, std::floor((x - python_mod(x, y)) / y + 0.5));  // Python: the exact quotient of what mod leaves
  return ok_status();
}

Status modulo(KernelContext&, Value& a, Value& b, Value& out) {
  if (!is_number(a) || !is_number(b)) return not_numbers();
  if (as_double(b) == 0) return zero_division();
  if (is_whole(a) && is_whole(b)) {
    set_int(out, b.integer == -1 ? 0 : floor_mod(a.integer, b.integer));
    return ok_status();
  }
  set_double(out, python_mod(as_double(a), as_double(b)));
  return ok_status();
}

Status true_divide(KernelContext&, Value& a, Value& b, Value& out) {
  if (!is_number(a) || !is_number(b)) return not_numbers();
  if (as_double(b) == 0) return zero_division();
  set_double(out, as_double(a) / as_double(b));
  return ok_status();
}

Status domain_error() { return Status(Code::kInternal, "the arguments lie outside the function's domain"); }

/// Python's **, but for whole numbers with a negative exponent: programs say those in floats.
Status power(KernelContext&, Value& a, Value& b, Value& out) {
  if (!is_number(a) || !is_number(b)) return not_numbers();
  if (!is_whole(a) || !is_whole(b)) {
    const double x = as_double(a), y = as_double(b);
    if (x == 0 && y < 0) return zero_division();
    const double result = std::pow(x, y);
    if (std::isnan(result) && !std::isnan(x) && !std::isnan(y)) return domain_error();
    if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) return Status(Code::kInternal, "the result is too large for a float");
    set_double(out, result);
    return ok_status();
  }
  int64_t base = a.integer, result = 1;
  if (b.integer < 0) return domain_error();
  for (uint64_t left = static_cast<uint64_t>(b.integer); left != 0; left >>= 1) {  // by squaring
    if ((left & 1) != 0 && !checked_mul(result, base, &result)) return overflow();
    if (left > 1 && !checked_mul(base, base, &base)) return overflow();
  }
  set_int(out, result);
  return ok_status();
}

/// A function of Python's math module.
template <double (*function)(double)>
Status float_function(KernelContext&, Value& a, Value& out) {
  if (!is_number(a)) return not_numbers();
  const double x = as_double(a), result = function(x);
  if (!std::isfinite(result) && std::isfinite(x)) return domain_error();
  set_double(out, result);
  return ok_status();
}

enum class Bits { kAnd, kOr, kXor };

template <Bits op>
Status bitwise(KernelContext&, Value& a, Value& b, Value& out) {
  if (!is_whole(a) || !is_whole(b)) return not_numbers();
  if constexpr (op == Bits::kAnd) set_int(out, a.integer & b.integer);
  if constexpr (op == Bits::kOr) set_int(out, a.integer | b.integer);
  if constexpr (op == Bits::kXor) set_int(out, a.integer ^ b.integer);
  return ok_status();
}

enum class Relation { kEq, kGt, kLt, kGe, kLe };

template <Relation op, typename T>
bool related(T x, T y) {
  if constexpr (op == Relation::kEq) return x == y;
  if constexpr (op == Relation::kGt) return x > y;
  if constexpr (op == Relation::kLt) return x < y;
  if constexpr (op == Relation::kGe) return x >= y;
  if constexpr (op == Relation::kLe) return x <= y;
}

template <Relation op>
Status compare(KernelContext&, Value& a, Value& b, Value& out) {
  if (!is_number(a) || !is_number(b)) return not_numbers();
  const bool whole = is_whole(a) && is_whole(b);
  set_bool(out, whole ? related<op>(a.integer, b.integer) : related<op>(as_double(a), as_double(b)));
  return ok_status();
}

Status negate(KernelContext&, Value& a, Value& out) {
  if (!is_number(a)) return not_numbers();
  if (!is_whole(a)) {
    set_double(out, -a.floating);
    return ok_status();
  }
  if (a.integer == INT64_MIN) return overflow();
  set_int(out, -a.integer);
  return ok_status();
}

Status logical_not(KernelContext&, Value& a, Value& out) {
  if (!is_number(a)) return not_numbers();
  set_bool(out, as_double(a) == 0);
  return ok_status();
}

Status choose(KernelContext&, Value& condition, Value& a, Value& b, Value& out) {
  if (!is_number(condition) || !is_number(a) || !is_number(b)) return not_numbers();
  const Value& chosen = as_double(condition) != 0 ? a : b;
  const Value copy = chosen;
  out.tag = copy.tag;
  out.integer = copy.integer;
  out.floating = copy.floating;
  return ok_status();
}

Status to_float(KernelContext&, Value& a, Value& out) {
  if (!is_number(a)) return not_numbers();
  set_double(out, as_double(a));
  return ok_status();
}

enum class Rounding { kTrunc, kCeil, kEven };

template <Rounding mode>
Status to_integer(KernelContext&, Value& a, Value& out) {
  if (!is_number(a)) return not_numbers();
  if (is_whole(a)) {
    set_int(out, a.integer);
    return ok_status();
  }
  double x = a.floating;
  if constexpr (mode == Rounding::kTrunc) x = std::trunc(x);
  if constexpr (mode == Rounding::kCeil) x = std::ceil(x);
  if constexpr (mode == Rounding::kEven) x = std::nearbyint(x);
  if (!(x >= -0x1p63 && x < 0x1p63)) return overflow();  // also NaN
  set_int(out, static_cast<int64_t>(x));
  return ok_status();
}

/// sym_size.int reads sizes only: the tensor may have no memory yet.
Status size_of_dim(KernelContext&, Value& self, int64_t dim, Value& out) {
  if (self.tag != Tag::kTensor) return bad_argument(0);
  PTERON_ASSIGN(const int at, wrap_dim(dim, self.tensor.rank()));
  if (self.tensor.rank() == 0) return Status(Code::kInvalidFile, "the tensor has no dims");
  set_int(out, self.tensor.size(at));
  return ok_status();
}

Status count_elements(KernelContext&, Value& self, Value& out) {
  if (self.tag != Tag::kTensor) return bad_argument(0);
  set_int(out, self.tensor.numel());
  return ok_status();
}

template <typename T>
void set_item(Value& out, T item) {
  if constexpr (std::is_same_v<T, bool>) {
    set_bool(out, item);
  } else if constexpr (std::is_integral_v<T>) {
    set_int(out, static_cast<int64_t>(item));
  } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    set_double(out, static_cast<double>(static_cast<float>(item)));
  } else {
    set_double(out, static_cast<double>(item));
  }
}

Status local_scalar(KernelContext&, const Tensor& self, Value& out) {
  if (self.numel() < 1) return Status(Code::kInvalidInput, "item() of an empty tensor");
  const bool known = dispatch_real(self.dtype(), [&]<typename T>() {
    if constexpr (std::is_same_v<T, bool>) {
      set_bool(out, *self.as<uint8_t>() != 0);  // a byte from outside need not be 0 or 1
    } else {
      T item;
      std::memcpy(&item, self.view.data, sizeof item);
      set_item(out, item);
    }
  });
  if (!known) return Status(Code::kUnsupported, str_cat("item() of ", dtype_name(self.dtype())));
  return ok_status();
}

/// True if the elements of `self` may be read as those of `out`: bytes of another dtype need not be bools, nor be aligned for it.
bool same_elements(const Tensor& self, const Tensor& out) {
  if (self.dtype() == out.dtype()) return true;
  const size_t size = dtype_size(out.dtype()), alignment = is_complex(out.dtype()) ? size / 2 : size;
  return dtype_size(self.dtype()) == size && out.dtype() != DType::kBool && reinterpret_cast<uintptr_t>(self.view.data) % alignment == 0;
}

/// Gives `out` sizes, strides and the bytes of `self` from `offset_elems` on. Never resizes memory, so everything is checked.
Status bind_view(const Tensor& self, std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t offset_elems, Tensor& out) {
  if (!same_elements(self, out)) return Status(Code::kInvalidFile, str_cat("a view of ", dtype_name(self.dtype()), " as ", dtype_name(out.dtype())));
  if (static_cast<int>(sizes.size()) != out.rank() || strides.size() != sizes.size()) {
    return Status(Code::kInvalidFile, str_cat("a view of rank ", sizes.size(), " for a tensor of rank ", out.rank()));
  }
  for (size_t d = 0; d < sizes.size(); ++d) {
    const bool fits = sizes[d] >= 0 && (out.dynamic ? sizes[d] <= out.bound[d] : sizes[d] == out.bound[d]);
    if (!fits) {
      return Status(Code::kInvalidInput, str_cat("a view of shape ", shape_text(sizes), " for a tensor ", out.dynamic ? "bounded by " : "of fixed shape ",
                                                 shape_text({out.bound.data(), sizes.size()})));
    }
  }
  const uint64_t element = dtype_size(self.dtype());
  uint64_t extent = 0, start = 0;
  if (offset_elems < 0 || !strided_extent_bytes(sizes, strides, element, &extent) ||
      !checked_mul(static_cast<uint64_t>(offset_elems), element, &start)) {
    return Status(Code::kInvalidInput, "negative or too large view");
  }
  if (extent == 0) start = 0;  // an empty view may name any place
  if (!range_inside(start, extent, self.capacity_bytes)) {
    return Status(Code::kInvalidInput, str_cat("a view of shape ", shape_text(sizes), ", strides ", shape_text(strides), " at element ", offset_elems,
                                               " reaches outside the ", self.capacity_bytes, " bytes of its base"));
  }
  std::copy(sizes.begin(), sizes.end(), out.view.size_array.begin());
  std::copy(strides.begin(), strides.end(), out.view.stride_array.begin());
  out.view.data = self.view.data == nullptr ? nullptr : self.as<std::byte>() + start;
  out.view.device = self.view.device;
  out.capacity_bytes = self.capacity_bytes - start;
  out.read_only = self.read_only;
  return ok_status();
}

/// pteron::device_copy.out of tensors of the host; those of a device are copied by the runtime itself (runtime/device_memory.h).
Status host_copy(KernelContext&, const Tensor& self, Tensor& out) {
  DeviceCopy none;
  return run_device_copy(none, self, out);
}

/// pteron::view_strided.out: torch.as_strided relative to the start of `self`.
Status view_strided(KernelContext&, const Tensor& self, IntList size, IntList stride, int64_t storage_offset, Value& out) {
  if (out.tag != Tag::kTensor) return bad_argument(4);
  return bind_view(self, size, stride, storage_offset, out.tensor);
}

/// executorch_prim::et_view.default: a reshape of a dense tensor; one size may be -1.
Status reshape_view(KernelContext&, const Tensor& self, IntList size, Value& out) {
  if (out.tag != Tag::kTensor) return bad_argument(2);
  int64_t known = 1;
  size_t inferred = size.size();
  for (size_t d = 0; d < size.size(); ++d) {
    if (size[d] == -1 && inferred == size.size()) {
      inferred = d;
      continue;
    }
    if (size[d] < 0 || !checked_mul(known, size[d], &known)) return Status(Code::kInvalidInput, str_cat("sizes ", shape_text(size), " of a view"));
  }
  const int64_t count = self.numel();
  if (inferred != size.size()) {
    if (known == 0 || count % known != 0) {
      return Status(Code::kInvalidInput, str_cat("shape ", shape_text(self.sizes()), " viewed as ", shape_text(size)));
    }
    size[inferred] = count / known;
    known = count;
  }
  if (known != count) return Status(Code::kInvalidInput, str_cat("shape ", shape_text(self.sizes()), " viewed as ", shape_text(size)));
  if (!self.view.is_contiguous()) return Status(Code::kUnsupported, "a reshape of a tensor that is not row-major");
  return bind_view(self, size, contiguous_strides(size), 0, out.tensor);
}

/// executorch_prim::et_copy_index.tensor: copy_to[index] = copy_from, growing the outermost dim to index + 1.
Status copy_index(KernelContext&, Tensor& copy_to, const Tensor& copy_from, int64_t index) {
  if (index < 0) return Status(Code::kInvalidInput, str_cat("index ", index, " is negative"));
  if (copy_to.rank() != copy_from.rank() + 1 || copy_to.dtype() != copy_from.dtype()) {
    return Status(Code::kInvalidFile, "copy_to must have the dtype of copy_from and one more dim");
  }
  if (index == INT64_MAX) return overflow();
  Sizes sizes;
  sizes.push_back(index + 1);
  for (const int64_t size : copy_from.sizes()) sizes.push_back(size);
  PTERON_TRY(resize(copy_to, sizes));
  TensorView slot = copy_from.view;
  for (int d = 0; d < copy_from.rank(); ++d) slot.stride_array[static_cast<size_t>(d)] = copy_to.stride(d + 1);
  slot.data = copy_to.as<std::byte>() + static_cast<uint64_t>(index * copy_to.stride(0)) * dtype_size(copy_to.dtype());
  copy_strided(copy_from.view, slot);
  return ok_status();
}

constexpr Kernel kRows[] = {
    {"aten::_local_scalar_dense", PTERON_KERNEL(local_scalar)},
    {"aten::sym_numel", PTERON_KERNEL(count_elements)},
    {"aten::sym_size.int", PTERON_KERNEL(size_of_dim)},
    {"executorch_prim::add.Scalar", PTERON_KERNEL(arithmetic<Arithmetic::kAdd>)},
    {"executorch_prim::ceil.Scalar", PTERON_KERNEL(to_integer<Rounding::kCeil>)},
    {"executorch_prim::eq.Scalar", PTERON_KERNEL(compare<Relation::kEq>)},
    {"executorch_prim::et_copy_index.tensor", PTERON_KERNEL(copy_index)},
    {"executorch_prim::et_view.default", PTERON_KERNEL(reshape_view)},
    {"executorch_prim::floordiv.Scalar", PTERON_KERNEL(floor_divide)},
    {"executorch_prim::floordiv.int", PTERON_KERNEL(floor_divide)},
    {"executorch_prim::ge.Scalar", PTERON_KERNEL(compare<Relation::kGe>)},
    {"executorch_prim::gt.Scalar", PTERON_KERNEL(compare<Relation::kGt>)},
    {"executorch_prim::le.Scalar", PTERON_KERNEL(compare<Relation::kLe>)},
    {"executorch_prim::lt.Scalar", PTERON_KERNEL(compare<Relation::kLt>)},
    {"executorch_prim::mod.Scalar", PTERON_KERNEL(modulo)},
    {"executorch_prim::mod.int", PTERON_KERNEL(modulo)},
    {"executorch_prim::mul.Scalar", PTERON_KERNEL(arithmetic<Arithmetic::kMul>)},
    {"executorch_prim::neg.Scalar", PTERON_KERNEL(negate)},
    {"executorch_prim::round.Scalar", PTERON_KERNEL(to_integer<Rounding::kEven>)},
    {"executorch_prim::sub.Scalar", PTERON_KERNEL(arithmetic<Arithmetic::kSub>)},
    {"executorch_prim::sym_float.Scalar", PTERON_KERNEL(to_float)},
    {"executorch_prim::sym_int.Scalar", PTERON_KERNEL(to_integer<Rounding::kTrunc>)},
    {"executorch_prim::sym_ite.Scalar", PTERON_KERNEL(choose)},
    {"executorch_prim::sym_max.Scalar", PTERON_KERNEL(arithmetic<Arithmetic::kMax>)},
    {"executorch_prim::sym_min.Scalar", PTERON_KERNEL(arithmetic<Arithmetic::kMin>)},
    {"executorch_prim::sym_not.Scalar", PTERON_KERNEL(logical_not)},
    {"executorch_prim::truediv.Scalar", PTERON_KERNEL(true_divide)},
    {"executorch_prim::trunc.Scalar", PTERON_KERNEL(to_integer<Rounding::kTrunc>)},
    {"pteron::acos.Scalar", PTERON_KERNEL(float_function<std::acos>)},
    {"pteron::asin.Scalar", PTERON_KERNEL(float_function<std::asin>)},
    {"pteron::atan.Scalar", PTERON_KERNEL(float_function<std::atan>)},
    {"pteron::bitwise_and.Scalar", PTERON_KERNEL(bitwise<Bits::kAnd>)},
    {"pteron::bitwise_or.Scalar", PTERON_KERNEL(bitwise<Bits::kOr>)},
    {"pteron::bitwise_xor.Scalar", PTERON_KERNEL(bitwise<Bits::kXor>)},
    {"pteron::cos.Scalar", PTERON_KERNEL(float_function<std::cos>)},
    {"pteron::cosh.Scalar", PTERON_KERNEL(float_function<std::cosh>)},
    {"pteron::device_copy.out", PTERON_KERNEL(host_copy)},
    {"pteron::exp.Scalar", PTERON_KERNEL(float_function<std::exp>)},
    {"pteron::log.Scalar", PTERON_KERNEL(float_function<std::log>)},
    {"pteron::log2.Scalar", PTERON_KERNEL(float_function<std::log2>)},
    {"pteron::pow.Scalar", PTERON_KERNEL(power)},
    {"pteron::sin.Scalar", PTERON_KERNEL(float_function<std::sin>)},
    {"pteron::sinh.Scalar", PTERON_KERNEL(float_function<std::sinh>)},
    {"pteron::sqrt.Scalar", PTERON_KERNEL(float_function<std::sqrt>)},
    {"pteron::tan.Scalar", PTERON_KERNEL(float_function<std::tan>)},
    {"pteron::tanh.Scalar", PTERON_KERNEL(float_function<std::tanh>)},
    {"pteron::view_strided.out", PTERON_KERNEL(view_strided)},
};

}  // namespace

const KernelTable& prim_kernels() {
  static const KernelTable table = [] {
    KernelTable made;
    made.add(kRows);
    return made;
  }();
  return table;
}

PrimEffect prim_effect(std::string_view name) {
  if (is_device_copy(name)) return PrimEffect::kNone;
  if (name == "executorch_prim::et_copy_index.tensor") return PrimEffect::kNone;
  if (name == "executorch_prim::et_view.default" || name == "pteron::view_strided.out") return PrimEffect::kView;
  return PrimEffect::kScalar;
}

}  // namespace pteron::runtime
