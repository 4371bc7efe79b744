// Nearest upsampling of channels-last float images by whole factors: pixels are copied as they are. Other calls go on to the portable kernels of the
// same names.
#include <algorithm>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/portable.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

/// Floats worth a thread.
constexpr int64_t kGrain = 1 << 14;

bool is_image(const Value& v) { return v.tag == Tag::kTensor && v.tensor.dtype() == DType::kFloat32 && v.tensor.rank() == 4 && v.tensor.has_data() && v.tensor.numel() > 0; }

/// Every pixel of x becomes a block of `high` x `wide` pixels. False if the layouts are others.
Result<bool> repeat_pixels(KernelContext& context, const Tensor& x, int64_t high, int64_t wide, Tensor& y) {
  if (y.read_only || x.stride(1) != 1 || x.size(1) < 4) return false;
  PTERON_TRY(resize(y, Sizes{x.size(0), x.size(1), x.size(2) * high, x.size(3) * wide}));
  if (y.stride(1) != 1) return false;
  const int64_t channels = x.size(1), rows = y.size(2), width = x.size(3);
  context.pool->parallel_for(x.size(0) * rows, std::max<int64_t>(1, kGrain / (channels * y.size(3))), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float* from = x.as<float>() + i / rows * x.stride(0) + i % rows / high * x.stride(2);
      float* to = y.as<float>() + i / rows * y.stride(0) + i % rows * y.stride(2);
      for (int64_t p = 0; p < width; ++p, from += x.stride(3)) {
        for (int64_t k = 0; k < wide; ++k, to += y.stride(3)) std::copy_n(from, channels, to);
      }
    }
  });
  return true;
}

/// The factor if `to` (0: not given) and `scale` (0: not given) say a whole one; 0 otherwise.
int64_t factor_of(int64_t from, int64_t to, double scale) {
  if (to == 0) to = scale >= 1 && scale < 1024 ? from * static_cast<int64_t>(scale) : 0;
  if (from <= 0 || to <= 0 || to % from != 0) return 0;
  return scale == 0 || scale == static_cast<double>(to / from) ? to / from : 0;
}

double number_or_zero(const Value& v) { return v.tag == Tag::kDouble ? v.floating : 0.0; }

// self, output_size, scale_factors, out
Status nearest_vec(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable("aten::upsample_nearest2d.vec_out");
  if (context.check_only || args.size() < 4 || !is_image(*args[0]) || args[3]->tag != Tag::kTensor || args[3]->tensor.dtype() != DType::kFloat32) return other.fn(context, args);
  const Tensor& x = args[0]->tensor;
  int64_t high = 0, wide = 0;
  if (args[1]->tag == Tag::kNone && args[2]->tag == Tag::kDoubleList && args[2]->doubles.size() == 2) {
    high = factor_of(x.size(2), 0, args[2]->doubles[0]);
    wide = factor_of(x.size(3), 0, args[2]->doubles[1]);
  } else if (args[2]->tag == Tag::kNone && runtime::Unpack<runtime::IntList>::fits(*args[1])) {
    const runtime::IntList size = runtime::Unpack<runtime::IntList>::get(*args[1]);
    if (size.size() == 2) high = factor_of(x.size(2), size[0], 0), wide = factor_of(x.size(3), size[1], 0);
  }
  if (high == 0 || wide == 0) return other.fn(context, args);
  PTERON_ASSIGN(const bool done, repeat_pixels(context, x, high, wide, args[3]->tensor));
  return done ? ok_status() : other.fn(context, args);
}

// self, output_size, scales_h, scales_w, out
Status nearest(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable("aten::upsample_nearest2d.out");
  if (context.check_only || args.size() < 5 || !is_image(*args[0]) || args[4]->tag != Tag::kTensor || args[4]->tensor.dtype() != DType::kFloat32) return other.fn(context, args);
  if (!runtime::Unpack<runtime::IntList>::fits(*args[1])) return other.fn(context, args);
  const Tensor& x = args[0]->tensor;
  const runtime::IntList size = runtime::Unpack<runtime::IntList>::get(*args[1]);
  if (size.size() != 2) return other.fn(context, args);
  const int64_t high = factor_of(x.size(2), size[0], number_or_zero(*args[2])), wide = factor_of(x.size(3), size[1], number_or_zero(*args[3]));
  if (high == 0 || wide == 0) return other.fn(context, args);
  PTERON_ASSIGN(const bool done, repeat_pixels(context, x, high, wide, args[4]->tensor));
  return done ? ok_status() : other.fn(context, args);
}

size_t vec_workspace(std::span<Value* const> args) { return portable("aten::upsample_nearest2d.vec_out").workspace(args); }
size_t workspace(std::span<Value* const> args) { return portable("aten::upsample_nearest2d.out").workspace(args); }

constexpr runtime::Kernel kRows[] = {
    {"aten::upsample_nearest2d.out", nearest, workspace},
    {"aten::upsample_nearest2d.vec_out", nearest_vec, vec_workspace},
};

}  // namespace

std::span<const runtime::Kernel> image_kernels() { return kRows; }

}  // namespace pteron::cpu
