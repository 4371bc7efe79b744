// pteron_cpu::linear16 and conv2d16: products and convolutions with constant weights of 16 bits; sums, bias, residual and activation are float32.
// bfloat16: operands are float32, rounded here, or bfloat16, and so is the result. float16: operands and result are float16.
// Images are channels-last, weights [out, y, x, in].
#include <algorithm>
#include <cstring>
#include <vector>

#include "backends/cpu/runtime/early.h"
#include "backends/cpu/runtime/geometry.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/narrow_product.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/copy.h"
#include "tensor/dim_math.h"
#include "tensor/half.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tensor;
using runtime::Value;

/// Operands and results of products with weights of `weight`.
bool is_operand(DType weight, DType d) { return d == weight || (weight == DType::kBFloat16 && d == DType::kFloat32); }

struct Packed final : KernelState {
  uint64_t memory_bytes() const override {
    uint64_t sum = 0;
    for (const auto& group : groups) sum += group->memory_bytes();
    return sum;
  }
  std::vector<std::shared_ptr<const NarrowMatrix>> groups;
};

/// What both operators have.
struct Product16 : KernelState {
  std::shared_ptr<const KernelState> weights, work;
  Epilogue epilogue;
  DType narrow = DType::kBFloat16;  ///< of the weight
  DType dtype = DType::kFloat32;    ///< of the result
  bool takes(DType d) const { return is_operand(narrow, d); }
  const NarrowMatrix& matrix(int64_t group) const { return *static_cast<const Packed*>(weights.get())->groups[static_cast<size_t>(group)]; }
};

struct Conv16 final : Product16, ConvGeometry {};

Status check_constants(const char* op, const Tensor& w, const Tensor* bias, int rank) {
  const bool dense = w.read_only && w.rank() == rank && is_reduced_float(w.dtype()) && w.view.is_contiguous();
  if (!dense) return Status(Code::kInvalidFile, str_cat(op, ": the weight must be a dense bfloat16 or float16 constant of rank ", rank, ", found ", dtype_name(w.dtype()), " ", shape_text(w.sizes())));
  return check_bias(op, bias, w.size(0));
}

/// activation, low, high, dtype
Status read_end(const char* op, const Tensor& weight, std::span<Value* const> args, Product16* product) {
  product->narrow = weight.dtype();
  PTERON_ASSIGN(product->epilogue, epilogue_of(args[0]->string, runtime::Unpack<double>::get(*args[1]), runtime::Unpack<double>::get(*args[2])));
  product->dtype = runtime::Unpack<DType>::get(*args[3]);
  if (!product->takes(product->dtype)) return Status(Code::kInvalidFile, str_cat(op, ": the result is ", dtype_name(product->dtype)));
  return ok_status();
}

/// Packs [groups * columns, depth] row-major.
Status pack(const KernelLoad& load, const Tensor& w, const Tensor* bias, int64_t groups, Product16* product) {
  PTERON_ASSIGN(product->work, WorkBuffers::shared(*load.cache));
  const std::string key = str_cat("weights16/", static_cast<int>(w.dtype()), "/", reinterpret_cast<uintptr_t>(w.view.data), "/", shape_text(w.sizes()), "/", bias != nullptr ? reinterpret_cast<uintptr_t>(bias->view.data) : 0, "/", groups);
  const NarrowKind kind = w.dtype() == DType::kFloat16 ? NarrowKind::kHalf : NarrowKind::kBf16;
  PTERON_ASSIGN(product->weights, load.cache->find_or_make(key, [&]() -> Result<std::shared_ptr<const KernelState>> {
    auto made = std::make_shared<Packed>();
    const int64_t columns = w.size(0) / groups, depth = w.size(0) != 0 ? w.numel() / w.size(0) : 0;
    std::vector<int64_t> offsets(static_cast<size_t>(depth));
    for (size_t k = 0; k < offsets.size(); ++k) offsets[k] = static_cast<int64_t>(k);
    for (int64_t g = 0; g < groups; ++g) {
      const float* biases = bias != nullptr ? bias->as<float>() + g * columns * bias->stride(0) : nullptr;
      PTERON_ASSIGN(auto matrix, NarrowMatrix::make(kind, w.as<uint16_t>() + g * columns * depth, columns, depth, offsets, biases, bias != nullptr ? bias->stride(0) : 0, *load.pool));
      made->groups.push_back(std::move(matrix));
    }
    return std::shared_ptr<const KernelState>(std::move(made));
  }));
  return ok_status();
}

// x, weight, bias, residual, activation, low, high, dtype, out
Result<std::shared_ptr<const KernelState>> prepare_linear(const KernelLoad& load, std::span<Value* const> args) {
  const Tensor& weight = args[1]->tensor;
  const Tensor* bias = runtime::Unpack<const Tensor*>::get(*args[2]);
  PTERON_TRY(check_constants("linear16", weight, bias, 2));
  auto made = std::make_shared<Product16>();
  PTERON_TRY(read_end("linear16", weight, args.subspan(4, 4), made.get()));
  if (is_early(load)) return std::shared_ptr<const KernelState>();
  PTERON_TRY(pack(load, weight, bias, 1, made.get()));
  return std::shared_ptr<const KernelState>(std::move(made));
}

/// The tensor's rows, copied to `scratch` if they do not lie evenly or have other sizes.
Result<EvenNarrowRows> rows_in(KernelContext& context, const Tensor& t, std::span<const int64_t> sizes, std::byte* scratch) {
  const auto size = static_cast<int64_t>(dtype_size(t.dtype()));
  int64_t stride = 0;
  if (std::ranges::equal(t.sizes(), sizes) && row_stride(t.sizes(), t.strides(), &stride)) return EvenNarrowRows{t.as<std::byte>(), stride * size};
  PTERON_TRY(ops::copy_tensor(context, t.view, make_contiguous_view(t.dtype(), sizes, scratch)));
  return EvenNarrowRows{scratch, sizes.back() * size};
}

size_t line(int64_t count) { return line_bytes(count, sizeof(float)); }

size_t linear_workspace(std::span<Value* const> args) { return line(args[0]->tensor.numel()) + 2 * line(args[8]->tensor.numel()); }

Status linear_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor*, const Tensor* residual, std::string_view, double, double, DType, Tensor& out) {
  const auto& linear = *static_cast<const Product16*>(context.state);
  const NarrowMatrix& matrix = linear.matrix(0);
  if (!linear.takes(x.dtype()) || out.dtype() != linear.dtype || x.rank() < 1 || x.size(x.rank() - 1) != matrix.depth() || weight.size(0) != matrix.columns()) {
    return Status(Code::kInvalidInput, str_cat("linear16: input ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ", expected [..., ", matrix.depth(), "]"));
  }
  if (residual != nullptr && !linear.takes(residual->dtype())) return Status(Code::kInvalidInput, str_cat("linear16: the residual is ", dtype_name(residual->dtype())));
  Sizes sizes;
  for (const int64_t s : x.sizes()) sizes.push_back(s);
  sizes.back() = matrix.columns();
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  std::byte* scratch = context.scratch.data();
  PTERON_ASSIGN(const EvenNarrowRows rows, rows_in(context, x, x.sizes(), scratch));
  scratch += line(x.numel());
  FloatStore store;
  const bool direct = row_stride(out.sizes(), out.strides(), &store.c_row);
  store.c = direct ? out.as<std::byte>() : scratch;
  if (!direct) store.c_row = matrix.columns();
  store.c_type = out.dtype();
  store.epilogue = linear.epilogue;
  if (residual != nullptr) {
    PTERON_ASSIGN(const EvenNarrowRows added, rows_in(context, *residual, sizes, scratch + line(out.numel())));
    store.residual = added.data;
    store.residual_type = residual->dtype();
    store.residual_row = added.stride_bytes / static_cast<int64_t>(dtype_size(residual->dtype()));
  }
  NarrowProduct product;
  product.weights = &matrix;
  product.type = x.dtype();
  product.rows = out.numel() / matrix.columns();
  product.rows_of = EvenNarrowRows::get;
  product.context = &rows;
  product.store = FloatStore::store;
  product.fetch = FloatStore::fetch;
  product.store_context = &store;
  product.work = static_cast<const WorkBuffers*>(linear.work.get());
  PTERON_TRY(run_narrow_product(product, *context.pool));
  return direct ? ok_status() : ops::copy_tensor(context, make_contiguous_view(out.dtype(), sizes, store.c), out.view);
}

// x, weight, bias, residual, stride, padding, dilation, groups, activation, low, high, dtype, out
enum Position : size_t { kX, kWeight, kBias, kResidual, kStride, kPadding, kDilation, kGroups, kEnd, kOut = kEnd + 4 };

Status read_conv(std::span<Value* const> args, Conv16* conv) {
  const Tensor& w = args[kWeight]->tensor;
  PTERON_TRY(check_constants("conv2d16", w, runtime::Unpack<const Tensor*>::get(*args[kBias]), 4));
  PTERON_TRY(conv->read("conv2d16", w, true, *args[kStride], *args[kPadding], *args[kDilation], *args[kGroups]));
  return read_end("conv2d16", w, args.subspan(kEnd, 4), conv);
}

Result<std::shared_ptr<const KernelState>> prepare_conv(const KernelLoad& load, std::span<Value* const> args) {
  auto conv = std::make_shared<Conv16>();
  PTERON_TRY(read_conv(args, conv.get()));
  if (is_early(load)) return std::shared_ptr<const KernelState>();
  PTERON_TRY(pack(load, args[kWeight]->tensor, runtime::Unpack<const Tensor*>::get(*args[kBias]), conv->groups, conv.get()));
  return std::shared_ptr<const KernelState>(std::move(conv));
}

/// Element i of a run of an image, rounded.
template <typename T>
inline uint16_t rounded(T value) {
  if constexpr (std::is_same_v<T, float>) return float_to_bfloat16_bits(value);
  return value;
}

/// Copies image n of x to `to` as channels-last in 16 bits (floats are rounded to bfloat16) with zeros around it.
template <typename T>
void pad_image(ThreadPool& pool, const Tensor& x, int64_t n, const int64_t* padding, uint16_t* to) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t row_elements = (width + 2 * padding[1]) * channels;
  const T* from = reinterpret_cast<const T*>(x.as<std::byte>()) + n * x.stride(0);
  const NarrowKernels& kernels = narrow_kernels(NarrowKind::kBf16, processor_units());
  const auto copy = [&](const T* source, uint16_t* target, int64_t count) {
    if constexpr (std::is_same_v<T, float>) {
      kernels.float_to_bf16(source, target, count);
    } else {
      std::memcpy(target, source, static_cast<size_t>(count) * sizeof(T));
    }
  };
  pool.parallel_for(height + 2 * padding[0], std::max<int64_t>(16384 / std::max<int64_t>(row_elements, 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      uint16_t* row = to + y * row_elements;
      const int64_t source_y = y - padding[0], border = padding[1] * channels;
      if (source_y < 0 || source_y >= height) {
        std::fill(row, row + row_elements, uint16_t{0});
        continue;
      }
      const T* source = from + source_y * x.stride(2);
      std::fill(row, row + border, uint16_t{0});
      std::fill(row + border + width * channels, row + row_elements, uint16_t{0});
      row += border;
      const bool last = x.stride(1) == 1 || channels == 1;
      if (last && (x.stride(3) == channels || width == 1)) {
        copy(source, row, width * channels);
      } else if (last) {
        for (int64_t i = 0; i < width; ++i) copy(source + i * x.stride(3), row + i * channels, channels);
      } else {
        constexpr int64_t kBlock = 16;  // lines of source and target that stay in the first-level cache
        for (int64_t c0 = 0; c0 < channels; c0 += kBlock) {
          const int64_t c1 = std::min(channels, c0 + kBlock);
          for (int64_t i = 0; i < width; ++i) {
            for (int64_t c = c0; c < c1; ++c) row[i * channels + c] = rounded(source[c * x.stride(1) + i * x.stride(3)]);
          }
        }
      }
    }
  });
}

/// Windows of channels-last images, output pixel by output pixel.
struct Windows {
  const std::byte* data = nullptr;
  int64_t batch = 0, step_y = 0, step_x = 0;  ///< bytes
  int64_t height = 0, width = 0;              ///< of the output
  static void get(const void* context, int64_t first, int64_t count, const std::byte** out) {
    const Windows& w = *static_cast<const Windows*>(context);
    for_windows(w.height, w.width, first, count, [&](int64_t i, int64_t n, int64_t y, int64_t x) { out[i] = w.data + n * w.batch + y * w.step_y + x * w.step_x; });
  }
};

/// Channels-last images of the product: strides in elements.
struct Images {
  const std::byte* data = nullptr;
  DType dtype = DType::kBFloat16;
  int64_t batch = 0, row = 0, pixel = 0, count = 0;
};

Status run_dense(KernelContext& context, const Conv16& conv, const Images& images, int64_t height, int64_t width, const FloatStore& target) {
  int64_t steps[kMaxTaps];
  const int64_t in_group = conv.channels / conv.groups, out_group = conv.out_channels / conv.groups;
  const auto size = static_cast<int64_t>(dtype_size(images.dtype));
  NarrowProduct p;
  if (conv.groups == 1 && conv.dilation[1] == 1 && images.pixel == conv.channels) {  // taps of a kernel row lie next to each other
    p.taps = conv.kernel[0];
    for (int64_t t = 0; t < p.taps; ++t) steps[t] = conv.dilation[0] * images.row;
  } else {
    p.taps = conv.kernel[0] * conv.kernel[1];
    const int64_t step_x = conv.dilation[1] * images.pixel;
    for (int64_t t = 0; t < p.taps; ++t) steps[t] = (t + 1) % conv.kernel[1] != 0 ? step_x : conv.dilation[0] * images.row - (conv.kernel[1] - 1) * step_x;
  }
  p.steps = steps;
  p.type = images.dtype;
  p.rows = images.count * height * width;
  p.rows_of = Windows::get;
  p.store = FloatStore::store;
  p.fetch = FloatStore::fetch;
  p.work = static_cast<const WorkBuffers*>(conv.work.get());
  for (int64_t g = 0; g < conv.groups; ++g) {
    const Windows windows{images.data + g * in_group * size, images.batch * size, conv.stride[0] * images.row * size, conv.stride[1] * images.pixel * size, height, width};
    FloatStore store = target;
    store.c = static_cast<std::byte*>(target.c) + g * out_group * static_cast<int64_t>(dtype_size(target.c_type));
    if (target.residual != nullptr) store.residual = static_cast<const std::byte*>(target.residual) + g * out_group * static_cast<int64_t>(dtype_size(target.residual_type));
    p.context = &windows;
    p.store_context = &store;
    p.weights = &conv.matrix(g);
    PTERON_TRY(run_narrow_product(p, *context.pool));
  }
  return ok_status();
}

size_t conv_workspace(std::span<Value* const> args) {
  Conv16 conv;
  const Tensor &x = args[kX]->tensor, &out = args[kOut]->tensor;
  if (x.rank() != 4 || out.rank() != 4 || !read_conv(args, &conv).ok()) return 0;
  return line(conv.padded_elements(x)) + 2 * line(out.numel());
}

Status conv2d_out(KernelContext& context, const Tensor& x, const Tensor&, const Tensor*, const Tensor* residual, IntList, IntList, IntList, int64_t, std::string_view, double, double,
                  DType, Tensor& out) {
  const auto& conv = *static_cast<const Conv16*>(context.state);
  if (x.rank() != 4 || !conv.takes(x.dtype()) || out.rank() != 4 || out.dtype() != conv.dtype || x.size(1) != conv.channels) {
    return Status(Code::kInvalidInput, str_cat("conv2d16: input ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ", expected [n, ", conv.channels, ", h, w]"));
  }
  const int64_t height = conv.out_size(0, x.size(2)), width = conv.out_size(1, x.size(3));
  if (height < 0 || width < 0) return Status(Code::kInvalidInput, str_cat("conv2d16: input ", shape_text(x.sizes()), " is smaller than the kernel"));
  const Sizes sizes{x.size(0), conv.out_channels, height, width};
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  std::byte* const padded = context.scratch.data();
  std::byte* const made = padded + line(conv.padded_elements(x));
  const bool direct = is_dense_channels_last(out);
  FloatStore store;
  store.c = direct ? out.as<std::byte>() : made;
  store.c_type = out.dtype();
  store.c_row = store.residual_row = conv.out_channels;
  store.epilogue = conv.epilogue;
  if (residual != nullptr) {
    if (!conv.takes(residual->dtype())) return Status(Code::kInvalidInput, str_cat("conv2d16: the residual is ", dtype_name(residual->dtype())));
    store.residual = residual->as<std::byte>();
    store.residual_type = residual->dtype();
    if (!std::ranges::equal(residual->sizes(), std::span<const int64_t>(sizes)) || !is_dense_channels_last(*residual)) {
      std::byte* copy = made + line(out.numel());
      PTERON_TRY(ops::copy_tensor(context, residual->view, channels_last_view(residual->dtype(), sizes, copy)));
      store.residual = copy;
    }
  }
  if (conv.padding[0] == 0 && conv.padding[1] == 0 && (x.stride(1) == 1 || conv.channels == 1)) {
    PTERON_TRY(run_dense(context, conv, {x.as<std::byte>(), x.dtype(), x.stride(0), x.stride(2), x.stride(3), x.size(0)}, height, width, store));
  } else {
    const int64_t elements = conv.out_channels * height * width;
    for (int64_t n = 0; n < x.size(0); ++n) {
      auto* image = reinterpret_cast<uint16_t*>(padded);
      x.dtype() == DType::kFloat32 ? pad_image<float>(*context.pool, x, n, conv.padding, image) : pad_image<uint16_t>(*context.pool, x, n, conv.padding, image);
      FloatStore part = store;
      part.c = static_cast<std::byte*>(store.c) + n * elements * static_cast<int64_t>(dtype_size(store.c_type));
      if (store.residual != nullptr) part.residual = static_cast<const std::byte*>(store.residual) + n * elements * static_cast<int64_t>(dtype_size(store.residual_type));
      PTERON_TRY(run_dense(context, conv, {padded, conv.narrow, 0, (x.size(3) + 2 * conv.padding[1]) * conv.channels, conv.channels, 1}, height, width, part));
    }
  }
  return direct ? ok_status() : ops::copy_tensor(context, channels_last_view(out.dtype(), sizes, made), out.view);
}

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::linear16.out", PTERON_KERNEL(linear_out), linear_workspace, prepare_linear},
                                     {"pteron_cpu::conv2d16.out", PTERON_KERNEL(conv2d_out), conv_workspace, prepare_conv}};

}  // namespace

std::span<const runtime::Kernel> product16_kernels() { return kRows; }

}  // namespace pteron::cpu
