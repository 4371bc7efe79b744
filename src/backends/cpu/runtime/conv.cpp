// pteron_cpu::conv2d: convolution with constant weights over channels-last images, plus bias (and residual), then an activation;
// pteron_cpu::gated_conv2d: one of 1x1 windows, whose input's channels are multiplied by a gate first. Dense and
// grouped ones are products over a padded copy of one image (rows of the product are windows of it, nothing is unfolded), 3x3 ones of
// stride 1 Winograd's products (winograd.cpp); depthwise ones are sums of shifted pixels.
#include <algorithm>

#include "backends/cpu/runtime/early.h"
#include "backends/cpu/runtime/geometry.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/product.h"
#include "backends/cpu/runtime/tile.h"
#include "backends/cpu/runtime/winograd.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/copy.h"
#include "tensor/dim_math.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tensor;
using runtime::Value;

/// Depthwise weights [taps, channels] and the bias.
struct DepthwiseWeights final : KernelState {
  uint64_t memory_bytes() const override { return weights.size() + bias.size() + zeros.size(); }
  Buffer weights, bias;
  Buffer zeros;  ///< a pixel outside of the image
};

struct Conv final : KernelState, ConvGeometry {
  std::vector<std::shared_ptr<const KernelState>> weights;  ///< one per group, or one for all of a depthwise convolution
  std::shared_ptr<const KernelState> work;
  Epilogue epilogue;
  bool depthwise = false;
  bool winograd = false;
  bool joined = false;    ///< taps of a kernel row lie next to each other: one run per row
};

// x, weight, bias, residual, stride, padding, dilation, groups, activation, low, high, out
enum Position : size_t { kX, kWeight, kBias, kResidual, kStride, kPadding, kDilation, kGroups, kActivation, kLow, kHigh, kOut };

Status read_conv(std::span<Value* const> args, Conv* conv) {
  const Tensor& w = args[kWeight]->tensor;
  if (!w.read_only || w.rank() != 4 || w.dtype() != DType::kFloat32) {
    return Status(Code::kInvalidFile, str_cat("conv2d: the weight must be a float32 constant of rank 4, found ", dtype_name(w.dtype()), " ", shape_text(w.sizes())));
  }
  PTERON_TRY(conv->read("conv2d", w, false, *args[kStride], *args[kPadding], *args[kDilation], *args[kGroups]));
  conv->depthwise = w.size(1) == 1 && conv->groups == w.size(0) && conv->groups > 1;
  conv->joined = conv->groups == 1 && conv->dilation[1] == 1;
  // A depthwise pass clamps its sums at once: nothing can be added before.
  if (conv->depthwise && args[kResidual]->tag != runtime::Tag::kNone) return Status(Code::kInvalidFile, "conv2d: a depthwise convolution takes no residual");
  const Tensor* bias = runtime::Unpack<const Tensor*>::get(*args[kBias]);
  PTERON_TRY(check_bias("conv2d", bias, w.size(0)));
  PTERON_ASSIGN(conv->epilogue, epilogue_of(args[kActivation]->string, runtime::Unpack<double>::get(*args[kLow]), runtime::Unpack<double>::get(*args[kHigh])));
  return ok_status();
}

// x, gate, weight, bias, residual, activation, low, high, out
enum GatedPosition : size_t { kGatedGate = 1, kGatedWeight, kGatedBias, kGatedResidual, kGatedActivation, kGatedLow, kGatedHigh, kGatedOut };

Status read_gated(std::span<Value* const> args, Conv* conv) {
  const Tensor& w = args[kGatedWeight]->tensor;
  if (!w.read_only || w.rank() != 4 || w.dtype() != DType::kFloat32 || w.numel() == 0 || w.size(2) != 1 || w.size(3) != 1) {
    return Status(Code::kInvalidFile, str_cat("gated_conv2d: the weight must be a float32 constant [o, c, 1, 1], found ", dtype_name(w.dtype()), " ", shape_text(w.sizes())));
  }
  conv->channels = w.size(1);
  conv->out_channels = w.size(0);
  for (int d = 0; d < 2; ++d) conv->kernel[d] = conv->stride[d] = conv->dilation[d] = 1;
  PTERON_TRY(check_bias("gated_conv2d", runtime::Unpack<const Tensor*>::get(*args[kGatedBias]), w.size(0)));
  PTERON_ASSIGN(conv->epilogue, epilogue_of(args[kGatedActivation]->string, runtime::Unpack<double>::get(*args[kGatedLow]), runtime::Unpack<double>::get(*args[kGatedHigh])));
  return ok_status();
}

Result<std::shared_ptr<const KernelState>> pack_depthwise(const Tensor& w, const Tensor* bias) {
  auto made = std::make_shared<DepthwiseWeights>();
  const int64_t channels = w.size(0), taps = w.size(2) * w.size(3);
  PTERON_ASSIGN(made->weights, Buffer::create(static_cast<size_t>(channels * taps) * sizeof(float)));
  PTERON_ASSIGN(made->bias, Buffer::create_zeroed(static_cast<size_t>(channels) * sizeof(float)));
  PTERON_ASSIGN(made->zeros, Buffer::create_zeroed(static_cast<size_t>(channels) * sizeof(float)));
  float* to = reinterpret_cast<float*>(made->weights.data());
  float* biases = reinterpret_cast<float*>(made->bias.data());
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < taps; ++t) {
      to[t * channels + c] = w.as<float>()[c * w.stride(0) + t / w.size(3) * w.stride(2) + t % w.size(3) * w.stride(3)];
    }
    if (bias != nullptr) biases[c] = bias->as<float>()[c * bias->stride(0)];
  }
  return std::shared_ptr<const KernelState>(std::move(made));
}

Result<std::shared_ptr<const KernelState>> pack_group(const Conv& conv, const Tensor& w, const Tensor* bias, int64_t group, ThreadPool& pool) {
  std::vector<int64_t> offsets;
  for (int64_t y = 0; y < w.size(2); ++y) {
    for (int64_t x = 0; x < w.size(3); ++x) {
      for (int64_t c = 0; c < w.size(1); ++c) offsets.push_back(y * w.stride(2) + x * w.stride(3) + c * w.stride(1));
    }
  }
  const int64_t columns = conv.out_channels / conv.groups;
  const float* biases = bias != nullptr ? bias->as<float>() + group * columns * bias->stride(0) : nullptr;
  PTERON_ASSIGN(auto packed, PackedMatrix::make(w.as<float>() + group * columns * w.stride(0), columns, w.stride(0), offsets, biases,
                                                bias != nullptr ? bias->stride(0) : 0, pool));
  return std::shared_ptr<const KernelState>(std::move(packed));
}

/// Channels-last images with any strides of rows, pixels and batch.
struct Images {
  const float* data = nullptr;
  int64_t batch = 0, row = 0, pixel = 0;
};

bool is_channels_last(const Tensor& t) { return t.stride(1) == 1 || t.size(1) == 1; }

/// One state for all groups, made as Winograd's points.
Result<std::shared_ptr<const KernelState>> pack_winograd(const Tensor& w, const Tensor* bias, ThreadPool& pool) {
  const int64_t strides[4] = {w.stride(0), w.stride(1), w.stride(2), w.stride(3)};
  return WinogradWeights::make(w.as<float>(), w.size(0), w.size(1), strides, bias != nullptr ? bias->as<float>() : nullptr, bias != nullptr ? bias->stride(0) : 0, pool);
}

/// Whether the convolution runs as Winograd's products, from the largest sizes that its input can have.
bool takes_winograd(const Conv& conv, const Tensor& x) {
  for (int d = 0; d < 2; ++d) {
    const auto i = static_cast<size_t>(d);
    if (conv.kernel[i] != 3 || conv.stride[i] != 1 || conv.dilation[i] != 1) return false;
  }
  if (conv.groups != 1 || x.rank() != 4) return false;
  return winograd_pays(x.size(0), conv.out_size(0, x.size(2)), conv.out_size(1, x.size(3)), conv.channels, conv.out_channels);
}

/// Packed weights of what is read already.
Status pack(const KernelLoad& load, const Tensor& w, const Tensor* bias, Conv* conv) {
  PTERON_ASSIGN(conv->work, WorkBuffers::shared(*load.cache));
  const int64_t count = conv->depthwise ? 1 : conv->groups;
  for (int64_t g = 0; g < count; ++g) {
    const std::string key = str_cat(conv->winograd ? "winograd/" : "conv2d/", reinterpret_cast<uintptr_t>(w.view.data), "/", shape_text(w.sizes()), "/", shape_text(w.strides()), "/",
                                    bias != nullptr ? reinterpret_cast<uintptr_t>(bias->view.data) : 0, "/", conv->groups, "/", g);
    PTERON_ASSIGN(auto packed, load.cache->find_or_make(key, [&] {
      if (conv->winograd) return pack_winograd(w, bias, *load.pool);
      return conv->depthwise ? pack_depthwise(w, bias) : pack_group(*conv, w, bias, g, *load.pool);
    }));
    conv->weights.push_back(std::move(packed));
  }
  return ok_status();
}

Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  auto conv = std::make_shared<Conv>();
  PTERON_TRY(read_conv(args, conv.get()));
  if (is_early(load)) return std::shared_ptr<const KernelState>();
  conv->winograd = takes_winograd(*conv, args[kX]->tensor);
  PTERON_TRY(pack(load, args[kWeight]->tensor, runtime::Unpack<const Tensor*>::get(*args[kBias]), conv.get()));
  return std::shared_ptr<const KernelState>(std::move(conv));
}

Result<std::shared_ptr<const KernelState>> prepare_gated(const KernelLoad& load, std::span<Value* const> args) {
  auto conv = std::make_shared<Conv>();
  PTERON_TRY(read_gated(args, conv.get()));
  if (is_early(load)) return std::shared_ptr<const KernelState>();
  PTERON_TRY(pack(load, args[kGatedWeight]->tensor, runtime::Unpack<const Tensor*>::get(*args[kGatedBias]), conv.get()));
  return std::shared_ptr<const KernelState>(std::move(conv));
}

/// Copies image n of x to `to` as channels-last with zeros around it.
void pad_image(ThreadPool& pool, const Tensor& x, int64_t n, const int64_t* padding, float* to) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t row_elements = (width + 2 * padding[1]) * channels;
  const float* from = x.as<float>() + n * x.stride(0);
  const bool last = is_channels_last(x), dense = last && (x.stride(3) == channels || width == 1);
  const auto part = [&](int64_t begin, int64_t end) {
    for (int64_t y = begin; y < end; ++y) {
      float* row = to + y * row_elements;
      const int64_t source_y = y - padding[0];
      if (source_y < 0 || source_y >= height) {
        std::fill(row, row + row_elements, 0.0f);
        continue;
      }
      const float* source = from + source_y * x.stride(2);
      const int64_t border = padding[1] * channels;
      std::fill(row, row + border, 0.0f);
      std::fill(row + border + width * channels, row + row_elements, 0.0f);
      row += border;
      if (dense) {
        std::copy(source, source + width * channels, row);
      } else if (last) {
        for (int64_t i = 0; i < width; ++i) std::copy(source + i * x.stride(3), source + i * x.stride(3) + channels, row + i * channels);
      } else if (channels == 3 && x.stride(3) == 1) {
        tile_set().interleave3(source, source + x.stride(1), source + 2 * x.stride(1), row, width);
      } else {
        constexpr int64_t kBlock = 16;  // lines of source and target that stay in the first-level cache
        for (int64_t c0 = 0; c0 < channels; c0 += kBlock) {
          const int64_t c1 = std::min(channels, c0 + kBlock);
          for (int64_t i = 0; i < width; ++i) {
            for (int64_t c = c0; c < c1; ++c) row[i * channels + c] = source[c * x.stride(1) + i * x.stride(3)];
          }
        }
      }
    }
  };
  pool.parallel_for(height + 2 * padding[0], std::max<int64_t>(8192 / std::max<int64_t>(row_elements, 1), 1), part);
}

/// Windows of channels-last images, output pixel by output pixel.
struct Windows {
  Images images;
  int64_t step_y = 0, step_x = 0;  ///< elements from one output row or pixel to the next
  int64_t height = 0, width = 0;   ///< of the output
  int64_t first = 0;               ///< elements before each window (the group's channels)
};
void windows_of(const void* context, int64_t first, int64_t count, const float** out) {
  const Windows& w = *static_cast<const Windows*>(context);
  for_windows(w.height, w.width, first, count, [&](int64_t i, int64_t n, int64_t y, int64_t x) {
    out[i] = w.images.data + n * w.images.batch + y * w.step_y + x * w.step_x + w.first;
  });
}

struct Target {
  float* y = nullptr;                ///< channels-last, pixels at even distances
  const float* residual = nullptr;   ///< the same, or null
  int64_t pixel = 0, residual_pixel = 0;  ///< elements from one pixel to the next
  const float* gate = nullptr;            ///< factors of the input's channels, or null
  int64_t height = 0, width = 0;
};

/// Products for `count` images at once.
void run_dense(KernelContext& context, const Conv& conv, const Images& images, int64_t count, const Target& target) {
  int64_t steps[kMaxTaps];
  const int64_t in_group = conv.channels / conv.groups, out_group = conv.out_channels / conv.groups;
  Product p;
  if (conv.joined && images.pixel == conv.channels) {
    p.taps = conv.kernel[0];
    for (int64_t t = 0; t < p.taps; ++t) steps[t] = conv.dilation[0] * images.row;
  } else {
    p.taps = conv.kernel[0] * conv.kernel[1];
    const int64_t step_x = conv.dilation[1] * images.pixel;
    for (int64_t t = 0; t < p.taps; ++t) {
      steps[t] = (t + 1) % conv.kernel[1] != 0 ? step_x : conv.dilation[0] * images.row - (conv.kernel[1] - 1) * step_x;
    }
  }
  p.steps = steps;
  p.rows = count * target.height * target.width;
  p.c_row = target.pixel;
  p.residual_row = target.residual_pixel;
  p.scale = target.gate;
  p.epilogue = conv.epilogue;
  p.work = static_cast<const WorkBuffers*>(conv.work.get());
  p.rows_of = windows_of;
  for (int64_t g = 0; g < conv.groups; ++g) {
    const Windows windows{images, conv.stride[0] * images.row, conv.stride[1] * images.pixel, target.height, target.width, g * in_group};
    p.context = &windows;
    p.weights = static_cast<const PackedMatrix*>(conv.weights[static_cast<size_t>(g)].get());
    p.c = target.y + g * out_group;
    if (target.residual != nullptr) p.residual = target.residual + g * out_group;
    run_product(p, *context.pool);
  }
}

/// First and past-the-last kernel tap that reads inside for output position o.
void tap_range(const Conv& conv, int d, int64_t o, int64_t in, int64_t* first, int64_t* last) {
  const auto i = static_cast<size_t>(d);
  const int64_t start = o * conv.stride[i] - conv.padding[i];
  *first = std::clamp<int64_t>(ceil_div(-start, conv.dilation[i]), 0, conv.kernel[i]);
  *last = std::clamp<int64_t>(ceil_div(in - start, conv.dilation[i]), *first, conv.kernel[i]);
}

/// Depthwise sums for kernels that have blocks of their own (DepthwiseFn).
void run_depthwise_blocks(KernelContext& context, const Conv& conv, DepthwiseFn fn, const Images& images, int64_t count, int64_t height, int64_t width, const Target& target) {
  const auto& weights = *static_cast<const DepthwiseWeights*>(conv.weights[0].get());
  const float* const taps = reinterpret_cast<const float*>(weights.weights.data());
  const float* const zeros = reinterpret_cast<const float*>(weights.zeros.data());
  const int64_t columns = (kDepthwisePixels - 1) * conv.stride[1] + conv.kernel[1];
  const auto part = [&](int64_t begin, int64_t end) {
    const float* pointers[kMaxTaps / 3 * ((kDepthwisePixels - 1) * 2 + kMaxDepthwiseWidth)];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / target.height, y = i % target.height;
      int64_t first, last;
      tap_range(conv, 0, y, height, &first, &last);
      DepthwiseBlock block;
      block.columns = pointers;
      block.rows = last - first;
      block.weights = taps + first * conv.kernel[1] * conv.channels;
      block.bias = reinterpret_cast<const float*>(weights.bias.data());
      block.channels = conv.channels;
      block.out_pixel = target.pixel;
      block.low = conv.epilogue.low;
      block.high = conv.epilogue.high;
      float* const out_row = target.y + i * target.width * target.pixel;
      const float* const image = images.data + n * images.batch + (y * conv.stride[0] - conv.padding[0] + first * conv.dilation[0]) * images.row;
      for (int64_t x = 0; x < target.width; x += kDepthwisePixels) {
        const int64_t from = x * conv.stride[1] - conv.padding[1];
        for (int64_t r = 0; r < block.rows; ++r) {
          const float* row = image + r * conv.dilation[0] * images.row;
          for (int64_t k = 0; k < columns; ++k) pointers[r * columns + k] = from + k >= 0 && from + k < width ? row + (from + k) * images.pixel : zeros;
        }
        block.out = out_row + x * target.pixel;
        block.pixels = std::min<int64_t>(kDepthwisePixels, target.width - x);
        fn(block);
      }
      conv.epilogue.apply(out_row, target.pixel, target.width, conv.channels);
    }
  };
  const int64_t row_work = std::max<int64_t>(target.width * conv.channels * conv.kernel[0] * conv.kernel[1], 1);
  context.pool->parallel_for(count * target.height, std::max<int64_t>(65536 / row_work, 1), part);
}

void run_depthwise(KernelContext& context, const Conv& conv, const Images& images, int64_t count, int64_t height, int64_t width, const Target& target) {
  if (conv.dilation[1] == 1 && conv.stride[1] <= 2 && conv.kernel[1] <= kMaxDepthwiseWidth) {
    const DepthwiseFn fn = tile_set().depthwise_blocks[conv.stride[1]][conv.kernel[1]];
    if (fn != nullptr) return run_depthwise_blocks(context, conv, fn, images, count, height, width, target);
  }
  const auto& weights = *static_cast<const DepthwiseWeights*>(conv.weights[0].get());
  // Output columns whose windows lie inside as a whole.
  int64_t inner_first = 0, inner_last = 0;
  for (int64_t x = 0; x < target.width; ++x) {
    int64_t first, last;
    tap_range(conv, 1, x, width, &first, &last);
    if (first != 0 || last != conv.kernel[1]) continue;
    if (inner_last == 0) inner_first = x;
    inner_last = x + 1;
  }
  const auto part = [&](int64_t begin, int64_t end) {
    int64_t offsets[kMaxTaps], weight_offsets[kMaxTaps];
    for (int64_t i = begin; i < end; ++i) {
      const int64_t n = i / target.height, y = i % target.height;
      int64_t y_first, y_last;
      tap_range(conv, 0, y, height, &y_first, &y_last);
      DepthwiseRun run;
      run.x_step = conv.stride[1] * images.pixel;
      run.offsets = offsets;
      run.weights = reinterpret_cast<const float*>(weights.weights.data());
      run.weight_offsets = weight_offsets;
      run.bias = reinterpret_cast<const float*>(weights.bias.data());
      run.channels = conv.channels;
      run.out_pixel = target.pixel;
      run.low = conv.epilogue.low;
      run.high = conv.epilogue.high;
      float* out_row = target.y + i * target.width * target.pixel;
      const float* image = images.data + n * images.batch;
      const auto pixels = [&](int64_t x, int64_t past) {
        int64_t x_first, x_last;
        tap_range(conv, 1, x, width, &x_first, &x_last);
        run.taps = 0;
        for (int64_t ky = y_first; ky < y_last; ++ky) {
          for (int64_t kx = x_first; kx < x_last; ++kx, ++run.taps) {
            offsets[run.taps] = (ky - y_first) * conv.dilation[0] * images.row + (kx - x_first) * conv.dilation[1] * images.pixel;
            weight_offsets[run.taps] = (ky * conv.kernel[1] + kx) * conv.channels;
          }
        }
        const int64_t in_y = y * conv.stride[0] - conv.padding[0] + y_first * conv.dilation[0];
        const int64_t in_x = x * conv.stride[1] - conv.padding[1] + x_first * conv.dilation[1];
        run.x = run.taps > 0 ? image + in_y * images.row + in_x * images.pixel : image;
        run.out = out_row + x * target.pixel;
        run.pixels = past - x;
        tile_set().depthwise(run);
      };
      for (int64_t x = 0; x < target.width;) {
        const int64_t past = x == inner_first && inner_last > inner_first ? inner_last : x + 1;
        pixels(x, past);
        x = past;
      }
      conv.epilogue.apply(out_row, target.pixel, target.width, conv.channels);
    }
  };
  const int64_t row_work = std::max<int64_t>(target.width * conv.channels * conv.kernel[0] * conv.kernel[1], 1);
  context.pool->parallel_for(count * target.height, std::max<int64_t>(65536 / row_work, 1), part);
}

Status run_winograd(KernelContext& context, const Conv& conv, const Images& images, int64_t count, int64_t height, int64_t width, const Target& target) {
  WinogradConv c;
  c.weights = static_cast<const WinogradWeights*>(conv.weights[0].get());
  c.x = images.data;
  c.batch = images.batch;
  c.row = images.row;
  c.pixel = images.pixel;
  c.count = count;
  c.height = height;
  c.width = width;
  c.channels = conv.channels;
  std::copy(conv.padding, conv.padding + 2, c.padding);
  c.y = target.y;
  c.residual = target.residual;
  c.out_pixel = target.pixel;
  c.residual_pixel = target.residual_pixel;
  c.out_height = target.height;
  c.out_width = target.width;
  c.out_channels = conv.out_channels;
  c.epilogue = conv.epilogue;
  c.work = static_cast<const WorkBuffers*>(conv.work.get());
  return run_winograd(c, *context.pool);
}

/// The convolution of `count` images of x's size.
Status run_images(KernelContext& context, const Conv& conv, const Images& images, const Tensor& x, int64_t count, const Target& target) {
  if (conv.winograd) return run_winograd(context, conv, images, count, x.size(2), x.size(3), target);
  if (conv.depthwise) {
    run_depthwise(context, conv, images, count, x.size(2), x.size(3), target);
  } else {
    run_dense(context, conv, images, count, target);
  }
  return ok_status();
}

size_t float_bytes(int64_t count) { return line_bytes(count, sizeof(float)); }

size_t workspace(std::span<Value* const> args) {
  Conv conv;
  const Tensor &x = args[kX]->tensor, &out = args[kOut]->tensor;
  if (x.rank() != 4 || out.rank() != 4 || !read_conv(args, &conv).ok()) return 0;
  size_t bytes = float_bytes(conv.padded_elements(x)) + float_bytes(out.numel());
  if (args[kResidual]->tag == runtime::Tag::kTensor) bytes += float_bytes(out.numel());
  return bytes;
}

size_t gated_workspace(std::span<Value* const> args) {
  Conv conv;
  const Tensor &x = args[kX]->tensor, &gate = args[kGatedGate]->tensor, &out = args[kGatedOut]->tensor;
  if (x.rank() != 4 || out.rank() != 4 || !read_gated(args, &conv).ok()) return 0;
  return float_bytes(conv.padded_elements(x)) + 2 * float_bytes(out.numel()) + float_bytes(gate.numel());
}

/// The convolution of x, its channels multiplied by `gate` if there is one: one number for every channel and image, image by image.
Status run_conv(KernelContext& context, const Tensor& x, const float* gate, const Tensor* residual, Tensor& out) {
  const Conv& conv = *static_cast<const Conv*>(context.state);
  if (x.rank() != 4 || x.dtype() != DType::kFloat32 || out.rank() != 4 || out.dtype() != DType::kFloat32 || x.size(1) != conv.channels) {
    return Status(Code::kInvalidInput, str_cat("conv2d: input ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ", expected float32 [n, ", conv.channels, ", h, w]"));
  }
  if (residual != nullptr && residual->dtype() != DType::kFloat32) return Status(Code::kInvalidInput, "conv2d: the residual is not float32");
  Target target;
  target.height = conv.out_size(0, x.size(2));
  target.width = conv.out_size(1, x.size(3));
  if (target.height < 0 || target.width < 0) return Status(Code::kInvalidInput, str_cat("conv2d: input ", shape_text(x.sizes()), " is smaller than the kernel"));
  const Sizes sizes{x.size(0), conv.out_channels, target.height, target.width};
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  float* const padded = reinterpret_cast<float*>(context.scratch.data());
  float* const made = reinterpret_cast<float*>(context.scratch.data() + float_bytes(conv.padded_elements(x)));
  const bool direct = pixel_stride(out, &target.pixel);
  target.y = direct ? out.as<float>() : made;
  if (!direct) target.pixel = conv.out_channels;
  if (residual != nullptr) {
    target.residual = residual->as<float>();
    if (!std::ranges::equal(residual->sizes(), std::span<const int64_t>(sizes)) || !pixel_stride(*residual, &target.residual_pixel)) {
      float* copy = made + float_bytes(out.numel()) / sizeof(float);
      PTERON_TRY(ops::copy_tensor(context, residual->view, channels_last_view(DType::kFloat32, sizes, copy)));
      target.residual = copy;
      target.residual_pixel = conv.out_channels;
    }
  }
  const Images as_is{x.as<float>(), x.stride(0), x.stride(2), x.stride(3)};
  const bool padding = conv.padding[0] != 0 || conv.padding[1] != 0;
  // These two know what lies outside of an image; products read windows of a padded copy.
  const bool reads_outside = conv.depthwise || conv.winograd;
  const bool stays = is_channels_last(x) && (reads_outside || !padding);
  if (stays && gate == nullptr) {
    PTERON_TRY(run_images(context, conv, as_is, x, x.size(0), target));
  } else {
    static constexpr int64_t kNone[2] = {0, 0};
    const int64_t* around = reads_outside ? kNone : conv.padding;
    const int64_t pixels = target.height * target.width;
    for (int64_t n = 0; n < x.size(0); ++n) {
      Images one{padded, 0, (x.size(3) + 2 * around[1]) * conv.channels, conv.channels};
      if (stays) {
        one = as_is;
        one.data += n * as_is.batch;
      } else {
        pad_image(*context.pool, x, n, around, padded);
      }
      Target part = target;
      if (gate != nullptr) part.gate = gate + n * conv.channels;
      part.y += n * pixels * target.pixel;
      if (part.residual != nullptr) part.residual += n * pixels * target.residual_pixel;
      PTERON_TRY(run_images(context, conv, one, x, 1, part));
    }
  }
  return direct ? ok_status() : ops::copy_tensor(context, channels_last_view(DType::kFloat32, sizes, made), out.view);
}

Status conv2d_out(KernelContext& context, const Tensor& x, const Tensor&, const Tensor*, const Tensor* residual, IntList, IntList, IntList, int64_t,
                  std::string_view, double, double, Tensor& out) {
  return run_conv(context, x, nullptr, residual, out);
}

Status gated_out(KernelContext& context, const Tensor& x, const Tensor& gate, const Tensor&, const Tensor*, const Tensor* residual, std::string_view, double, double, Tensor& out) {
  const Conv& conv = *static_cast<const Conv*>(context.state);
  const bool fits = x.rank() == 4 && gate.rank() == 4 && gate.dtype() == DType::kFloat32 && gate.size(0) == x.size(0) && gate.size(1) == conv.channels && gate.size(2) == 1 && gate.size(3) == 1;
  if (!fits) return Status(Code::kInvalidInput, str_cat("gated_conv2d: gate ", dtype_name(gate.dtype()), " ", shape_text(gate.sizes()), ", expected float32 [n, ", conv.channels, ", 1, 1]"));
  const bool dense = (gate.stride(1) == 1 || conv.channels == 1) && (gate.stride(0) == conv.channels || gate.size(0) == 1);
  if (dense) return run_conv(context, x, gate.as<float>(), residual, out);
  const size_t before = float_bytes(conv.padded_elements(x)) + 2 * float_bytes(x.size(0) * conv.out_channels * x.size(2) * x.size(3));
  auto* copy = reinterpret_cast<float*>(context.scratch.data() + before);
  PTERON_TRY(ops::copy_tensor(context, gate.view, make_contiguous_view(DType::kFloat32, gate.sizes(), copy)));
  return run_conv(context, x, copy, residual, out);
}

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::conv2d.out", PTERON_KERNEL(conv2d_out), workspace, prepare},
                                     {"pteron_cpu::gated_conv2d.out", PTERON_KERNEL(gated_out), gated_workspace, prepare_gated}};

}  // namespace

std::span<const runtime::Kernel> conv_kernels() { return kRows; }

}  // namespace pteron::cpu
