// repeat, repeat_interleave, roll and flip. All move bytes; repeat and roll are strided copies of parts.
#include <algorithm>

#include "ops/kernels.h"
#include "ops/view/run.h"
#include "ops/walk.h"
#include "tensor/dtype.h"

namespace pteron::ops::repeat {
namespace {

using runtime::IntList;
using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tensor;
using view::Placed;

/// The result is seen as [count, size] per dim; the input has stride 0 along the counts.
Status repeat(KernelContext& context, const Tensor& self, IntList repeats, Tensor& out) {
  if (static_cast<int>(repeats.size()) < self.rank()) return Status(Code::kInvalidInput, str_cat("repeat with ", repeats.size(), " counts for a tensor of rank ", self.rank()));
  const size_t lead = repeats.size() - self.sizes().size();
  Sizes sizes = repeats;
  for (size_t d = 0; d < repeats.size(); ++d) {
    if (repeats[d] < 0) return Status(Code::kInvalidInput, str_cat("repeat count ", repeats[d]));
    if (d >= lead) sizes[d] *= self.size(static_cast<int>(d - lead));
  }
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  Placed from, to;
  for (size_t d = 0; d < repeats.size(); ++d) {
    const bool own = d >= lead;
    const int64_t size = own ? self.size(static_cast<int>(d - lead)) : 1, stride = own ? self.stride(static_cast<int>(d - lead)) : 0;
    const int64_t out_stride = out.stride(static_cast<int>(d));
    for (const bool is_count : {true, false}) {
      const int64_t n = is_count ? repeats[d] : size;
      if (n == 1) continue;
      if (to.rank() >= kMaxRank) return Status(Code::kUnsupported, "repeat of a tensor of high rank along most of its dims");
      to.sizes.push_back(n);
      to.strides.push_back(is_count ? out_stride * size : out_stride);
      from.strides.push_back(is_count ? 0 : stride);
    }
  }
  from.sizes = to.sizes;
  return copy_tensor(context, view::view_of(self.view, from), view::view_of(out.view, to));
}

Status repeat_interleave(KernelContext&, const Tensor& repeats, std::optional<int64_t> output_size, Tensor& out) {
  if (repeats.rank() != 1) return Status(Code::kInvalidInput, str_cat("repeats of rank ", repeats.rank(), ", expected 1"));
  Status status = ok_status();
  const bool known = dispatch_real(repeats.dtype(), [&]<typename T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const T* counts = repeats.as<T>();
      const int64_t stride = repeats.stride(0), n = repeats.size(0);
      int64_t total = 0;
      for (int64_t i = 0; i < n; ++i) {
        const auto count = static_cast<int64_t>(counts[i * stride]);
        if (count < 0 || __builtin_add_overflow(total, count, &total)) {
          status = Status(Code::kInvalidInput, str_cat("repeat count ", count, " at ", i));
          return;
        }
      }
      if (output_size && *output_size != total) {
        status = Status(Code::kInvalidInput, str_cat("repeats sum to ", total, ", output_size says ", *output_size));
        return;
      }
      status = resize(out, Sizes{total});
      if (!status.ok()) return;
      const auto write = [&]<typename O>(O* to) {
        int64_t at = 0;
        for (int64_t i = 0; i < n; ++i) {
          for (int64_t k = static_cast<int64_t>(counts[i * stride]); k > 0; --k) to[at++ * out.stride(0)] = static_cast<O>(i);
        }
      };
      if (out.dtype() == DType::kInt64) return write(out.as<int64_t>());
      if (out.dtype() == DType::kInt32) return write(out.as<int32_t>());
      status = Status(Code::kUnsupported, str_cat("repeat_interleave into dtype ", dtype_name(out.dtype())));
    }
  });
  if (!known || repeats.dtype() == DType::kBool || is_floating(repeats.dtype())) return Status(Code::kInvalidInput, str_cat("repeats of dtype ", dtype_name(repeats.dtype())));
  return status;
}

/// Copies the part of `from` that starts at dim `depth` into its rolled place: two ranges per rolled dim.
Status roll_from(KernelContext& context, const TensorView& from, const TensorView& to, const Sizes& shifts, size_t depth) {
  if (depth == shifts.size()) return copy_tensor(context, from, to);
  const int64_t size = from.size(static_cast<int>(depth)), shift = shifts[depth];
  if (shift == 0) return roll_from(context, from, to, shifts, depth + 1);
  for (const bool head : {true, false}) {  // [0, size-shift) moves to [shift, size); [size-shift, size) moves to [0, shift)
    Placed source = view::placed(from), target = view::placed(to);
    const int64_t length = head ? size - shift : shift;
    PTERON_TRY(view::narrow(source, static_cast<int64_t>(depth), head ? 0 : size - shift, length));
    PTERON_TRY(view::narrow(target, static_cast<int64_t>(depth), head ? shift : 0, length));
    PTERON_TRY(roll_from(context, view::view_of(from, source), view::view_of(to, target), shifts, depth + 1));
  }
  return ok_status();
}

Status roll(KernelContext& context, const Tensor& self, IntList shifts, IntList dims, Tensor& out) {
  PTERON_TRY(resize(out, self.sizes()));
  const int64_t count = self.numel();
  if (count == 0) return ok_status();
  if (dims.empty()) {
    if (shifts.size() != 1) return Status(Code::kInvalidInput, "roll of the flattened tensor takes one shift");
    const Sizes flat_shift{floor_mod(shifts[0], count)};
    if (self.view.is_contiguous() && out.view.is_contiguous()) {
      const Sizes flat{count};
      return roll_from(context, make_contiguous_view(self.dtype(), flat, self.view.data), make_contiguous_view(out.dtype(), flat, out.view.data), flat_shift, 0);
    }
    dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
      for (int64_t i = 0; i < count; ++i) {
        out.as<T>()[view::offset_of(out.view, (i + flat_shift[0]) % count)] = self.as<T>()[view::offset_of(self.view, i)];
      }
    });
    return ok_status();
  }
  if (dims.size() != shifts.size()) return Status(Code::kInvalidInput, str_cat("roll with ", shifts.size(), " shifts for ", dims.size(), " dims"));
  Sizes by_dim(self.sizes().size(), 0);
  for (size_t i = 0; i < dims.size(); ++i) {
    PTERON_ASSIGN(const int d, wrap_dim(dims[i], self.rank()));
    if (self.rank() == 0) continue;
    int64_t& shift = by_dim[static_cast<size_t>(d)];
    shift = floor_mod(shift + shifts[i] % self.size(d), self.size(d));
  }
  return roll_from(context, self.view, out.view, by_dim, 0);
}

Status flip(KernelContext& context, const Tensor& self, IntList dims, Tensor& out) {
  uint32_t flipped = 0;
  for (const int64_t dim : dims) {
    PTERON_ASSIGN(const int d, wrap_dim(dim, self.rank()));
    if ((flipped & (1u << d)) != 0) return Status(Code::kInvalidInput, str_cat("flip names dim ", d, " twice"));
    flipped |= 1u << d;
  }
  PTERON_TRY(resize(out, self.sizes()));
  if (self.numel() == 0) return ok_status();
  Sizes strides(self.sizes().size(), 0);
  int64_t start = 0;
  for (int d = 0; d < self.rank(); ++d) {
    const bool turn = (flipped & (1u << d)) != 0;
    strides[static_cast<size_t>(d)] = turn ? -self.stride(d) : self.stride(d);
    if (turn) start += (self.size(d) - 1) * self.stride(d);
  }
  const Sizes outer = without_last(self.sizes());
  const int64_t n = self.rank() == 0 ? 1 : self.size(self.rank() - 1);
  const int64_t step = self.rank() == 0 ? 0 : strides.back(), out_step = self.rank() == 0 ? 0 : out.stride(out.rank() - 1);
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    context.pool->parallel_for(index_count(outer), row_grain(n), [&](int64_t begin, int64_t end) {
      walk<2>(outer, {without_last(strides), without_last(out.strides())}, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes&) {
        const T* from = self.as<T>() + start + at[0];
        T* to = out.as<T>() + at[1];
        if (step == 1 && out_step == 1) {
          std::copy(from, from + n, to);
          return;
        }
        if (step == -1 && out_step == 1) {  // the compiler knows how to turn a vector round
          for (int64_t i = 0; i < n; ++i) to[i] = from[-i];
          return;
        }
        for (int64_t i = 0; i < n; ++i) to[i * out_step] = from[i * step];
      });
    });
  });
  return ok_status();
}

constexpr Kernel kTable[] = {
    {"aten::repeat.out", PTERON_KERNEL(repeat)},
    {"aten::repeat_interleave.Tensor_out", PTERON_KERNEL(repeat_interleave)},
    {"aten::roll.out", PTERON_KERNEL(roll)},
    {"aten::flip.out", PTERON_KERNEL(flip)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::repeat
