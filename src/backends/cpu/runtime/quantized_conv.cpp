// pteron_cpu::qconv2d: convolutions of 8-bit images with constant int8 weights, summed in integers, exactly; then scale, bias, residual, clamp and, for
// 8-bit results, quantization. Images are channels-last; what lies outside is the input's zero point.
#include <algorithm>
#include <bit>
#include <cstring>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/quantized.h"
#include "base/buffer.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/conv/shape.h"
#include "ops/copy.h"
#include "tensor/dim_math.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tensor;
using runtime::Value;

constexpr int64_t kMaxTaps = 256;
/// Sums of products of 8-bit numbers up to this depth fit into 32 bits.
constexpr int64_t kMaxDepth = 65536;
/// Multiplications worth a thread.
constexpr int64_t kGrain = 1 << 17;

// x, weight, scale, bias, residual, x_scale, x_zero, residual_scale, residual_zero, stride, padding, dilation, groups, activation, low, high, inverse,
// zero, least, most, dtype, out
enum Position : size_t { kX, kWeight, kScale, kBias, kResidual, kXScale, kXZero, kResidualScale, kResidualZero, kStride, kPadding, kDilation, kGroups, kEnd, kDtype = kEnd + 7, kOut };

/// Weights in the order in which windows lie: dense ones [out_channels][taps][channels of a group], depthwise ones [taps][channels].
struct Weights final : KernelState {
  Buffer bytes;
  Buffer sums;     ///< of each output channel's weights, int32
  Buffer factors;  ///< x_scale * scale, float
};

struct QConv final : KernelState {
  std::shared_ptr<const KernelState> weights;
  QuantizedEnd end;
  int64_t channels = 0, out_channels = 0, groups = 1, x_zero = 0;
  int64_t kernel[2], stride[2], padding[2], dilation[2];
  bool depthwise = false;
  const int8_t* bytes = nullptr;
  const int32_t* sums = nullptr;
  const float* factors = nullptr;
  const float* bias = nullptr;

  int64_t taps() const { return kernel[0] * kernel[1]; }
  int64_t depth() const { return channels / groups * taps(); }
  int64_t out_size(size_t d, int64_t in) const { return ops::conv::forward_size(in, kernel[d], stride[d], padding[d], dilation[d]); }
};

bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUInt8; }

Status read_list(const char* name, const Value& value, int64_t lowest, int64_t* to) {
  const IntList list = runtime::Unpack<IntList>::get(const_cast<Value&>(value));
  if (list.size() != 2 || list[0] < lowest || list[1] < lowest || list[0] > 65536 || list[1] > 65536) {
    return Status(Code::kInvalidFile, str_cat("qconv2d: ", name, " is ", shape_text(list)));
  }
  to[0] = list[0];
  to[1] = list[1];
  return ok_status();
}
Status check_vector(const char* name, const Tensor& t, int64_t count) {
  if (t.read_only && t.rank() == 1 && t.size(0) == count && t.dtype() == DType::kFloat32 && (t.stride(0) == 1 || count == 1)) return ok_status();
  return Status(Code::kInvalidFile, str_cat("qconv2d: ", name, " must be a float32 constant [", count, "], found ", dtype_name(t.dtype()), " ", shape_text(t.sizes())));
}

Status read_conv(std::span<Value* const> args, QConv* conv) {
  const Tensor& w = args[kWeight]->tensor;
  if (!w.read_only || w.rank() != 4 || w.dtype() != DType::kInt8 || w.numel() == 0) {
    return Status(Code::kInvalidFile, str_cat("qconv2d: the weight must be an int8 constant of rank 4, found ", dtype_name(w.dtype()), " ", shape_text(w.sizes())));
  }
  conv->groups = args[kGroups]->integer;
  conv->out_channels = w.size(0);
  if (conv->groups < 1 || conv->groups > w.size(0) || w.size(0) % conv->groups != 0) {
    return Status(Code::kInvalidFile, str_cat("qconv2d: ", conv->groups, " groups for weight ", shape_text(w.sizes())));
  }
  conv->channels = w.size(1) * conv->groups;
  conv->kernel[0] = w.size(2);
  conv->kernel[1] = w.size(3);
  if (conv->taps() > kMaxTaps || conv->depth() > kMaxDepth) return Status(Code::kInvalidFile, str_cat("qconv2d: weight ", shape_text(w.sizes())));
  PTERON_TRY(read_list("stride", *args[kStride], 1, conv->stride));
  PTERON_TRY(read_list("padding", *args[kPadding], 0, conv->padding));
  PTERON_TRY(read_list("dilation", *args[kDilation], 1, conv->dilation));
  conv->depthwise = w.size(1) == 1 && conv->groups == w.size(0) && conv->groups > 1;
  conv->x_zero = args[kXZero]->integer;
  if (conv->x_zero < -128 || conv->x_zero > 255) return Status(Code::kInvalidFile, str_cat("qconv2d: the input's zero point is ", conv->x_zero));
  PTERON_TRY(check_vector("scales", args[kScale]->tensor, conv->out_channels));
  const Tensor* bias = runtime::Unpack<const Tensor*>::get(*args[kBias]);
  if (bias != nullptr) PTERON_TRY(check_vector("the bias", *bias, conv->out_channels));
  conv->bias = bias != nullptr ? bias->as<float>() : nullptr;
  PTERON_TRY(read_residual(*args[kResidualScale], *args[kResidualZero], &conv->end));
  return conv->end.read(args.subspan(kEnd, 8));
}

Result<std::shared_ptr<const KernelState>> pack(const QConv& conv, const Tensor& w, const Tensor& scale, float x_scale) {
  auto made = std::make_shared<Weights>();
  const int64_t n = conv.out_channels, inner = w.size(1), taps = conv.taps();
  PTERON_ASSIGN(made->bytes, Buffer::create(static_cast<size_t>(w.numel())));
  PTERON_ASSIGN(made->sums, Buffer::create(static_cast<size_t>(n) * sizeof(int32_t)));
  PTERON_ASSIGN(made->factors, Buffer::create(static_cast<size_t>(n) * sizeof(float)));
  auto* bytes = reinterpret_cast<int8_t*>(made->bytes.data());
  for (int64_t j = 0; j < n; ++j) {
    int32_t sum = 0;
    for (int64_t t = 0; t < taps; ++t) {
      for (int64_t c = 0; c < inner; ++c) {
        const int8_t value = w.as<int8_t>()[j * w.stride(0) + c * w.stride(1) + t / w.size(3) * w.stride(2) + t % w.size(3) * w.stride(3)];
        bytes[conv.depthwise ? t * n + j : (j * taps + t) * inner + c] = value;
        sum += value;
      }
    }
    reinterpret_cast<int32_t*>(made->sums.data())[j] = sum;
    reinterpret_cast<float*>(made->factors.data())[j] = scale.as<float>()[j] * x_scale;
  }
  return std::shared_ptr<const KernelState>(std::move(made));
}

Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  auto conv = std::make_shared<QConv>();
  PTERON_TRY(read_conv(args, conv.get()));
  const Tensor &w = args[kWeight]->tensor, &scale = args[kScale]->tensor;
  const auto x_scale = static_cast<float>(runtime::Unpack<double>::get(*args[kXScale]));
  const std::string key = str_cat("qconv2d/", reinterpret_cast<uintptr_t>(w.view.data), "/", shape_text(w.sizes()), "/", shape_text(w.strides()), "/",
                                  reinterpret_cast<uintptr_t>(scale.view.data), "/", conv->groups, "/", std::bit_cast<uint32_t>(x_scale));
  PTERON_ASSIGN(conv->weights, load.cache->find_or_make(key, [&] { return pack(*conv, w, scale, x_scale); }));
  const auto& weights = *static_cast<const Weights*>(conv->weights.get());
  conv->bytes = reinterpret_cast<const int8_t*>(weights.bytes.data());
  conv->sums = reinterpret_cast<const int32_t*>(weights.sums.data());
  conv->factors = reinterpret_cast<const float*>(weights.factors.data());
  return std::shared_ptr<const KernelState>(std::move(conv));
}

/// Copies image n of x to `to` as channels-last with the zero point around it.
void pad_image(ThreadPool& pool, const Tensor& x, int64_t n, const int64_t* padding, uint8_t outside, uint8_t* to) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t row_bytes = (width + 2 * padding[1]) * channels;
  const uint8_t* from = x.as<uint8_t>() + n * x.stride(0);
  pool.parallel_for(height + 2 * padding[0], std::max<int64_t>(32768 / std::max<int64_t>(row_bytes, 1), 1), [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      uint8_t* row = to + y * row_bytes;
      const int64_t source_y = y - padding[0];
      if (source_y < 0 || source_y >= height) {
        std::memset(row, outside, static_cast<size_t>(row_bytes));
        continue;
      }
      const uint8_t* source = from + source_y * x.stride(2);
      const int64_t border = padding[1] * channels;
      std::memset(row, outside, static_cast<size_t>(border));
      std::memset(row + border + width * channels, outside, static_cast<size_t>(border));
      row += border;
      const bool last = x.stride(1) == 1 || channels == 1;
      if (last && (x.stride(3) == channels || width == 1)) {
        std::memcpy(row, source, static_cast<size_t>(width * channels));
        continue;
      }
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t i = 0; i < width; ++i) row[i * channels + c] = source[c * x.stride(1) + i * x.stride(3)];
      }
    }
  });
}

bool dense_channels_last(const Tensor& t) {
  const int64_t c = t.size(1), h = t.size(2), w = t.size(3);
  return (t.stride(1) == 1 || c == 1) && (t.stride(3) == c || w == 1) && (t.stride(2) == w * c || h == 1) && (t.stride(0) == h * w * c || t.size(0) == 1);
}

/// One padded image and where its results go.
struct Image {
  const uint8_t* x = nullptr;        ///< channels-last
  int64_t row = 0;                   ///< bytes from one row to the next; pixels are as wide as they have channels
  std::byte* out = nullptr;          ///< dense channels-last
  const std::byte* residual = nullptr;
  DType residual_dtype = DType::kFloat32;
  int64_t height = 0, width = 0;     ///< of the output
};

/// Sums of one output pixel, for all channels.
template <typename T>
void dense_pixel(const QConv& conv, const uint8_t* window, int64_t row, T* gathered, int32_t* sums) {
  const int64_t inner = conv.channels / conv.groups, per_group = conv.out_channels / conv.groups, depth = conv.depth();
  for (int64_t g = 0; g < conv.groups; ++g) {
    T* to = gathered;
    for (int64_t ky = 0; ky < conv.kernel[0]; ++ky) {
      for (int64_t kx = 0; kx < conv.kernel[1]; ++kx, to += inner) {
        std::memcpy(to, window + ky * conv.dilation[0] * row + kx * conv.dilation[1] * conv.channels + g * inner, static_cast<size_t>(inner));
      }
    }
    for (int64_t j = g * per_group; j < (g + 1) * per_group; ++j) sums[j] = dot(gathered, conv.bytes + j * depth, depth);
  }
}
template <typename T>
void depthwise_pixel(const QConv& conv, const uint8_t* window, int64_t row, int32_t* sums) {
  const int64_t channels = conv.channels;
  std::fill(sums, sums + channels, 0);
  const int8_t* w = conv.bytes;
  for (int64_t ky = 0; ky < conv.kernel[0]; ++ky) {
    for (int64_t kx = 0; kx < conv.kernel[1]; ++kx, w += channels) {
      const T* x = reinterpret_cast<const T*>(window + ky * conv.dilation[0] * row + kx * conv.dilation[1] * channels);
      for (int64_t c = 0; c < channels; ++c) sums[c] += static_cast<int32_t>(x[c]) * w[c];
    }
  }
}

template <typename T>
void run_pixels(const QConv& conv, const Image& image, int64_t first, int64_t last, std::byte* memory) {
  const int64_t n = conv.out_channels;
  const auto out_bytes = static_cast<int64_t>(dtype_size(conv.end.dtype)), residual_bytes = static_cast<int64_t>(dtype_size(image.residual_dtype));
  auto* sums = reinterpret_cast<int32_t*>(memory);
  auto* y = reinterpret_cast<float*>(memory + n * 4);
  auto* gathered = reinterpret_cast<T*>(memory + n * 8);
  const auto zero = static_cast<int32_t>(conv.x_zero);
  for (int64_t p = first; p < last; ++p) {
    const uint8_t* window = image.x + p / image.width * conv.stride[0] * image.row + p % image.width * conv.stride[1] * conv.channels;
    if (conv.depthwise) {
      depthwise_pixel<T>(conv, window, image.row, sums);
    } else {
      dense_pixel<T>(conv, window, image.row, gathered, sums);
    }
    for (int64_t j = 0; j < n; ++j) y[j] = static_cast<float>(sums[j] - zero * conv.sums[j]) * conv.factors[j];
    for (int64_t j = 0; conv.bias != nullptr && j < n; ++j) y[j] += conv.bias[j];
    conv.end.finish(y, image.residual != nullptr ? image.residual + p * n * residual_bytes : nullptr, image.residual_dtype, n, image.out + p * n * out_bytes);
  }
}

size_t line(int64_t count, size_t bytes) { return align_up(static_cast<size_t>(std::max<int64_t>(count, 0)) * bytes, uint64_t{64}); }
int64_t padded_elements(const Tensor& x, const int64_t* padding) {
  return (std::max<int64_t>(x.size(2), 0) + 2 * padding[0]) * (std::max<int64_t>(x.size(3), 0) + 2 * padding[1]) * std::max<int64_t>(x.size(1), 0);
}

size_t workspace(std::span<Value* const> args) {
  QConv conv;
  const Tensor &x = args[kX]->tensor, &out = args[kOut]->tensor;
  if (x.rank() != 4 || out.rank() != 4 || !read_conv(args, &conv).ok()) return 0;
  return line(padded_elements(x, conv.padding), 1) + 2 * line(out.numel(), sizeof(float));
}

Status run_image(KernelContext& context, const QConv& conv, DType dtype, const Image& image) {
  const int64_t pixels = image.height * image.width;
  const int64_t work = std::max<int64_t>(conv.out_channels * conv.depth(), 1);
  const size_t bytes = static_cast<size_t>(conv.out_channels) * 8 + static_cast<size_t>(conv.depth());
  bool failed = false;
  context.pool->parallel_for(pixels, std::max<int64_t>(kGrain / work, 1), [&](int64_t first, int64_t last) {
    auto memory = Buffer::create(bytes);
    if (!memory.ok()) {
      failed = true;
      return;
    }
    if (dtype == DType::kInt8) return run_pixels<int8_t>(conv, image, first, last, memory->data());
    run_pixels<uint8_t>(conv, image, first, last, memory->data());
  });
  return failed ? Status(Code::kOutOfMemory, "qconv2d: no memory for sums") : ok_status();
}

Status qconv2d_out(KernelContext& context, const Tensor& x, const Tensor&, const Tensor&, const Tensor*, const Tensor* residual, double, int64_t, double, int64_t, IntList, IntList,
                   IntList, int64_t, std::string_view, double, double, double, int64_t, int64_t, int64_t, DType, Tensor& out) {
  const QConv& conv = *static_cast<const QConv*>(context.state);
  if (x.rank() != 4 || !is_byte(x.dtype()) || out.rank() != 4 || out.dtype() != conv.end.dtype || x.size(1) != conv.channels) {
    return Status(Code::kInvalidInput, str_cat("qconv2d: input ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ", expected int8 or uint8 [n, ", conv.channels, ", h, w]"));
  }
  Image image;
  image.height = conv.out_size(0, x.size(2));
  image.width = conv.out_size(1, x.size(3));
  if (image.height < 0 || image.width < 0) return Status(Code::kInvalidInput, str_cat("qconv2d: input ", shape_text(x.sizes()), " is smaller than the kernel"));
  const Sizes sizes{x.size(0), conv.out_channels, image.height, image.width};
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  auto* padded = reinterpret_cast<uint8_t*>(context.scratch.data());
  std::byte* made = context.scratch.data() + line(padded_elements(x, conv.padding), 1);
  std::byte* copy = made + line(out.numel(), sizeof(float));
  const int64_t strides[4] = {conv.out_channels * image.height * image.width, 1, image.width * conv.out_channels, conv.out_channels};
  const auto images_at = [&](DType dtype, std::byte* at) {
    TensorView view = make_contiguous_view(dtype, sizes, at);
    std::copy(strides, strides + 4, view.stride_array.begin());
    return view;
  };
  const std::byte* added = nullptr;
  if (residual != nullptr) {
    if (!is_result_dtype(residual->dtype()) || !std::ranges::equal(residual->sizes(), std::span<const int64_t>(sizes))) {
      return Status(Code::kInvalidInput, str_cat("qconv2d: residual ", dtype_name(residual->dtype()), " ", shape_text(residual->sizes())));
    }
    image.residual_dtype = residual->dtype();
    added = residual->as<std::byte>();
    if (!dense_channels_last(*residual)) {
      PTERON_TRY(ops::copy_tensor(context, residual->view, images_at(residual->dtype(), copy)));
      added = copy;
    }
  }
  const bool direct = dense_channels_last(out);
  std::byte* result = direct ? out.as<std::byte>() : made;
  const bool in_place = conv.padding[0] == 0 && conv.padding[1] == 0 && dense_channels_last(x);
  const int64_t elements = conv.out_channels * image.height * image.width;
  for (int64_t n = 0; n < x.size(0); ++n) {
    if (in_place) {
      image.x = x.as<uint8_t>() + n * x.stride(0);
      image.row = x.size(3) * conv.channels;
    } else {
      pad_image(*context.pool, x, n, conv.padding, static_cast<uint8_t>(conv.x_zero), padded);
      image.x = padded;
      image.row = (x.size(3) + 2 * conv.padding[1]) * conv.channels;
    }
    image.out = result + n * elements * static_cast<int64_t>(dtype_size(out.dtype()));
    if (added != nullptr) image.residual = added + n * elements * static_cast<int64_t>(dtype_size(image.residual_dtype));
    PTERON_TRY(run_image(context, conv, x.dtype(), image));
  }
  return direct ? ok_status() : ops::copy_tensor(context, images_at(out.dtype(), made), out.view);
}

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::qconv2d.out", PTERON_KERNEL(qconv2d_out), workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> quantized_conv_kernels() { return kRows; }

}  // namespace pteron::cpu
