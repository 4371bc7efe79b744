// Run-time checks. Compile half: op.cpp. Scalars read from tensors are prim operators of the runtime.
#include "base/str_cat.h"
#include "ops/elementwise.h"

namespace pteron::ops::guard {

namespace {

Status failed(std::string_view message) { return Status(Code::kInternal, str_cat("a check of the program failed: ", message)); }

Status assert_tensor(const Tensor& self, std::string_view message) {
  const ConvertFn convert = find_convert(self.dtype(), DType::kBool);
  if (convert == nullptr) return unsupported_dtype(self.dtype());
  if (self.numel() != 1) return Status(Code::kInvalidInput, "a check needs a tensor of one element");
  bool holds = false;
  convert(1, self.view.data, &holds);
  return holds ? ok_status() : failed(message);
}
Status assert_async_kernel(KernelContext&, const Tensor& self) { return assert_tensor(self, "assertion"); }
Status assert_async_msg_kernel(KernelContext&, const Tensor& self, std::string_view message) { return assert_tensor(self, message); }
Status assert_scalar_kernel(KernelContext&, Scalar self, std::string_view message) { return self.to_bool() ? ok_status() : failed(message); }

/// A number that the program computed, against the range of the exported model.
Status check_range_kernel(KernelContext&, int64_t value, int64_t min, int64_t max, std::string_view where) {
  if (value >= min && value <= max) return ok_status();
  return failed(str_cat(where, ": the value is ", value, ", the model was exported for ", max == INT64_MAX ? str_cat("at least ", min) : str_cat("[", min, ", ", max, "]")));
}

constexpr runtime::Kernel kRows[] = {
    {"pteron::_assert_async.msg_out", PTERON_KERNEL(assert_async_msg_kernel)},
    {"pteron::_assert_async.out", PTERON_KERNEL(assert_async_kernel)},
    {"pteron::_assert_scalar.out", PTERON_KERNEL(assert_scalar_kernel)},
    {"pteron::check_range.out", PTERON_KERNEL(check_range_kernel)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::guard
