// pteron_cpu::qconv2d: convolutions of 8-bit images with constant int8 weights, summed in integers, exactly; then scale, bias, residual, clamp and, for
// 8-bit results, quantization. Images are channels-last; what lies outside is the input's zero point.
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <vector>

#include "backends/cpu/runtime/early.h"
#include "backends/cpu/runtime/geometry.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/narrow_product.h"
#include "backends/cpu/runtime/quantized.h"
#include "base/buffer.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
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

/// What a row of a tile holds.
constexpr int64_t kRunBytes = 64;
/// Multiplications worth a thread.
constexpr int64_t kGrain = 1 << 17;

// x, weight, scale, bias, residual, x_scale, x_zero, residual_scale, residual_zero, stride, padding, dilation, groups, middle, activation, low, high, inverse,
// zero, least, most, dtype, out
enum Position : size_t { kX, kWeight, kScale, kBias, kResidual, kXScale, kXZero, kResidualScale, kResidualZero, kStride, kPadding, kDilation, kGroups, kEnd, kDtype = kEnd + 8, kOut };

/// What packing makes: matrices of groups for dense ones, [taps][channels] for depthwise ones.
struct Weights final : KernelState {
  uint64_t memory_bytes() const override {
    uint64_t sum = bytes.size() + pairs.size() + sums.size() + wide.size() + factors.size();
    for (const auto& group : groups) sum += group->memory_bytes();
    return sum;
  }
  std::vector<std::shared_ptr<const NarrowMatrix>> groups;
  Buffer bytes;    ///< depthwise
  Buffer pairs;    ///< depthwise, [blocks of 16 channels][pairs of taps][2][8 channels][2 taps] in the order of unpacklo and unpackhi, int16
  Buffer sums;     ///< depthwise: of each channel's weights, int32
  Buffer wide;     ///< depthwise, for depthwise_bytes(): [blocks of channels] weights and their sums, by place
  Buffer factors;  ///< x_scale * scale, float
};

struct QConv final : KernelState, ConvGeometry {
  std::shared_ptr<const KernelState> weights, work;
  QuantizedEnd end;
  int64_t x_zero = 0;
  bool depthwise = false;
  int64_t pixel = 0;  ///< bytes of a pixel of a padded image
  int64_t run = 0;    ///< not 0: weights of each kernel row are filled up with zeros to so many, whole chunks of a tile, so that tiles read windows where they lie
  const float* factors = nullptr;
  const float* bias = nullptr;

  const Weights& packed() const { return *static_cast<const Weights*>(weights.get()); }
};

Status read_conv(std::span<Value* const> args, QConv* conv) {
  const Tensor& w = args[kWeight]->tensor;
  if (!w.read_only || w.rank() != 4 || w.dtype() != DType::kInt8 || w.numel() == 0) {
    return Status(Code::kInvalidFile, str_cat("qconv2d: the weight must be an int8 constant of rank 4, found ", dtype_name(w.dtype()), " ", shape_text(w.sizes())));
  }
  PTERON_TRY(conv->read("qconv2d", w, false, *args[kStride], *args[kPadding], *args[kDilation], *args[kGroups]));
  if (conv->depth() > kMaxDepth) return Status(Code::kInvalidFile, str_cat("qconv2d: weight ", shape_text(w.sizes())));
  conv->depthwise = w.size(1) == 1 && conv->groups == w.size(0) && conv->groups > 1;
  conv->pixel = conv->channels;
  if (processor_units() >= Units::kAmx && conv->groups == 1 && conv->dilation[1] == 1 && conv->taps() > 1) {
    if (conv->channels == 3) conv->pixel = 4;
    conv->run = static_cast<int64_t>(align_up(static_cast<uint64_t>(conv->kernel[1] * conv->pixel), uint64_t{kRunBytes}));
  }
  conv->x_zero = args[kXZero]->integer;
  if (conv->x_zero < -128 || conv->x_zero > 255) return Status(Code::kInvalidFile, str_cat("qconv2d: the input's zero point is ", conv->x_zero));
  PTERON_TRY(check_vector("qconv2d", "scales", args[kScale]->tensor, conv->out_channels));
  const Tensor* bias = runtime::Unpack<const Tensor*>::get(*args[kBias]);
  if (bias != nullptr) PTERON_TRY(check_vector("qconv2d", "the bias", *bias, conv->out_channels));
  conv->bias = bias != nullptr ? bias->as<float>() : nullptr;
  PTERON_TRY(read_residual(*args[kResidualScale], *args[kResidualZero], &conv->end));
  return conv->end.read(args.subspan(kEnd, 9));
}

/// Places of taps for depthwise_bytes(): columns of three have quads of their own.
bool has_columns(const QConv& conv) { return conv.kernel[0] == 3 && conv.kernel[1] == 3; }
int64_t tap_place(const QConv& conv, int64_t tap) { return has_columns(conv) ? tap % 3 * 4 + tap / 3 : tap; }
int64_t wide_taps(const QConv& conv) { return has_columns(conv) ? 12 : static_cast<int64_t>(align_up(static_cast<uint64_t>(conv.taps()), uint64_t{4})); }
/// Bytes of one block of channels in Weights::wide: the weights, then int32 sums of them.
int64_t wide_block_bytes(const QConv& conv) { return kDepthwiseChannels * (wide_taps(conv) + static_cast<int64_t>(sizeof(int32_t))); }

Status pack_wide_depthwise(const QConv& conv, Weights* made) {
  const int64_t block = wide_block_bytes(conv), channels = conv.out_channels, taps = conv.taps();
  PTERON_ASSIGN(made->wide, Buffer::create_zeroed(static_cast<size_t>(ceil_div(channels, kDepthwiseChannels) * block)));
  for (int64_t j = 0; j < channels; ++j) {
    const int64_t place = depthwise_place(j % kDepthwiseChannels);
    std::byte* to = made->wide.data() + j / kDepthwiseChannels * block;
    for (int64_t t = 0; t < taps; ++t) {
      const int64_t at = tap_place(conv, t);
      to[(at / 4 * kDepthwiseChannels + place) * 4 + at % 4] = made->bytes.data()[t * channels + j];
    }
    reinterpret_cast<int32_t*>(to + block - kDepthwiseChannels * static_cast<int64_t>(sizeof(int32_t)))[place] = reinterpret_cast<const int32_t*>(made->sums.data())[j];
  }
  return ok_status();
}

Status pack_depthwise(const QConv& conv, const Tensor& w, Weights* made) {
  const int64_t n = conv.out_channels;
  PTERON_ASSIGN(made->bytes, Buffer::create(static_cast<size_t>(w.numel())));
  PTERON_ASSIGN(made->sums, Buffer::create_zeroed(static_cast<size_t>(n) * sizeof(int32_t)));
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t t = 0; t < conv.taps(); ++t) {
      const int8_t value = w.as<int8_t>()[j * w.stride(0) + t / w.size(3) * w.stride(2) + t % w.size(3) * w.stride(3)];
      reinterpret_cast<int8_t*>(made->bytes.data())[t * n + j] = value;
      reinterpret_cast<int32_t*>(made->sums.data())[j] += value;
    }
  }
  if (has_wide_bytes()) PTERON_TRY(pack_wide_depthwise(conv, made));
  const int64_t pairs = ceil_div(conv.taps(), int64_t{2});
  PTERON_ASSIGN(made->pairs, Buffer::create_zeroed(static_cast<size_t>(align_up(static_cast<uint64_t>(n), uint64_t{16})) * static_cast<size_t>(pairs) * 2 * sizeof(int16_t)));
  auto* to = reinterpret_cast<int16_t*>(made->pairs.data());
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t t = 0; t < conv.taps(); ++t) {
      const int64_t c = j % 16, half = c / 4 % 2, lane = c / 8 * 4 + c % 4;
      to[j / 16 * 16 * pairs * 2 + t / 2 * 32 + half * 16 + lane * 2 + t % 2] = reinterpret_cast<const int8_t*>(made->bytes.data())[t * n + j];
    }
  }
  return ok_status();
}

Result<std::shared_ptr<const KernelState>> pack(const QConv& conv, const Tensor& w, const Tensor& scale, float x_scale, ThreadPool& pool) {
  auto made = std::make_shared<Weights>();
  const int64_t n = conv.out_channels, columns = n / conv.groups;
  PTERON_ASSIGN(made->factors, Buffer::create(static_cast<size_t>(n) * sizeof(float)));
  for (int64_t j = 0; j < n; ++j) reinterpret_cast<float*>(made->factors.data())[j] = scale.as<float>()[j] * x_scale;
  if (conv.depthwise) {
    PTERON_TRY(pack_depthwise(conv, w, made.get()));
    return std::shared_ptr<const KernelState>(std::move(made));
  }
  std::vector<int64_t> offsets;
  for (int64_t y = 0; y < w.size(2); ++y) {
    for (int64_t x = 0; x < w.size(3); ++x) {
      for (int64_t c = 0; c < w.size(1); ++c) offsets.push_back(y * w.stride(2) + x * w.stride(3) + c * w.stride(1));
      if (conv.run != 0) offsets.insert(offsets.end(), static_cast<size_t>(conv.pixel - w.size(1)), -1);
    }
    if (conv.run != 0) offsets.resize(static_cast<size_t>((y + 1) * conv.run), -1);
  }
  for (int64_t g = 0; g < conv.groups; ++g) {
    PTERON_ASSIGN(auto matrix, NarrowMatrix::make(NarrowKind::kInt8, w.as<int8_t>() + g * columns * w.stride(0), columns, w.stride(0), offsets, nullptr, 0, pool));
    made->groups.push_back(std::move(matrix));
  }
  return std::shared_ptr<const KernelState>(std::move(made));
}

Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  auto conv = std::make_shared<QConv>();
  PTERON_TRY(read_conv(args, conv.get()));
  if (is_early(load)) return std::shared_ptr<const KernelState>();
  const Tensor &w = args[kWeight]->tensor, &scale = args[kScale]->tensor;
  const auto x_scale = static_cast<float>(runtime::Unpack<double>::get(*args[kXScale]));
  const std::string key = str_cat("qconv2d/", reinterpret_cast<uintptr_t>(w.view.data), "/", shape_text(w.sizes()), "/", shape_text(w.strides()), "/",
                                  reinterpret_cast<uintptr_t>(scale.view.data), "/", conv->groups, "/", std::bit_cast<uint32_t>(x_scale));
  PTERON_ASSIGN(conv->weights, load.cache->find_or_make(key, [&] { return pack(*conv, w, scale, x_scale, *load.pool); }));
  conv->factors = reinterpret_cast<const float*>(conv->packed().factors.data());
  PTERON_ASSIGN(conv->work, WorkBuffers::shared(*load.cache));
  return std::shared_ptr<const KernelState>(std::move(conv));
}

/// Three planes of `width` bytes as pixels of four, the last of them `outside`.
void interleave_three(const uint8_t* planes, int64_t step, int64_t width, uint8_t outside, uint8_t* to) {
  const __m128i fourth = _mm_set1_epi8(static_cast<char>(outside));
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const auto load = [&](int64_t plane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes + plane * step + i)); };
    const __m128i a = load(0), b = load(1), c = load(2);
    const __m128i ab[2] = {_mm_unpacklo_epi8(a, b), _mm_unpackhi_epi8(a, b)}, cd[2] = {_mm_unpacklo_epi8(c, fourth), _mm_unpackhi_epi8(c, fourth)};
    auto* out = reinterpret_cast<__m128i*>(to + 4 * i);
    for (int half = 0; half < 2; ++half) {
      _mm_storeu_si128(out + 2 * half, _mm_unpacklo_epi16(ab[half], cd[half]));
      _mm_storeu_si128(out + 2 * half + 1, _mm_unpackhi_epi16(ab[half], cd[half]));
    }
  }
  for (; i < width; ++i) {
    for (int64_t c = 0; c < 3; ++c) to[4 * i + c] = planes[c * step + i];
    to[4 * i + 3] = outside;
  }
}

/// Three planes of `width` bytes as pixels of three.
void pack_three(const uint8_t* planes, int64_t step, int64_t width, uint8_t* to) {
  // Byte j of the 48 that sixteen pixels make is byte j / 3 of plane j % 3.
  alignas(16) static constexpr auto kPlaces = [] {
    std::array<std::array<uint8_t, 16>, 9> places{};
    for (size_t j = 0; j < 48; ++j) {
      for (size_t plane = 0; plane < 3; ++plane) places[j / 16 * 3 + plane][j % 16] = static_cast<uint8_t>(j % 3 == plane ? j / 3 : 128);  // 128: a zero
    }
    return places;
  }();
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    const auto load = [&](int64_t plane) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(planes + plane * step + i)); };
    const __m128i from[3] = {load(0), load(1), load(2)};
    for (size_t part = 0; part < 3; ++part) {
      const auto moved = [&](size_t plane) { return _mm_shuffle_epi8(from[plane], _mm_load_si128(reinterpret_cast<const __m128i*>(kPlaces[part * 3 + plane].data()))); };
      _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 3 * i) + part, _mm_or_si128(_mm_or_si128(moved(0), moved(1)), moved(2)));
    }
  }
  for (; i < width; ++i) {
    for (int64_t c = 0; c < 3; ++c) to[3 * i + c] = planes[c * step + i];
  }
}

/// Copies image n of x to `to` as pixels of `pixel` bytes with the zero point around it.
void pad_image(ThreadPool& pool, const Tensor& x, int64_t n, const int64_t* padding, int64_t pixel, uint8_t outside, uint8_t* to) {
  const int64_t channels = x.size(1), height = x.size(2), width = x.size(3);
  const int64_t row_bytes = (width + 2 * padding[1]) * pixel;
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
      const int64_t border = padding[1] * pixel;
      std::memset(row, outside, static_cast<size_t>(border));
      std::memset(row + border + width * pixel, outside, static_cast<size_t>(border));
      row += border;
      const bool last = x.stride(1) == 1 || channels == 1;
      if (pixel == channels && last && (x.stride(3) == channels || width == 1)) {
        std::memcpy(row, source, static_cast<size_t>(width * channels));
        continue;
      }
      if (channels == 3 && x.stride(3) == 1) {
        pixel == 4 ? interleave_three(source, x.stride(1), width, outside, row) : pack_three(source, x.stride(1), width, row);
        continue;
      }
      if (pixel != channels) std::memset(row, outside, static_cast<size_t>(width * pixel));
      for (int64_t c = 0; c < channels; ++c) {
        for (int64_t i = 0; i < width; ++i) row[i * pixel + c] = source[c * x.stride(1) + i * x.stride(3)];
      }
    }
  });
}

/// One padded image and where its results go.
struct Image {
  const uint8_t* x = nullptr;        ///< channels-last
  int64_t row = 0;                   ///< bytes from one row to the next; pixels are as wide as they have channels
  int64_t bytes = 0;                 ///< that may be read
  std::byte* out = nullptr;          ///< dense channels-last
  const std::byte* residual = nullptr;
  DType residual_dtype = DType::kFloat32;
  int64_t height = 0, width = 0;     ///< of the output
};

/// Windows of a padded image, output pixel by output pixel.
struct Windows {
  const uint8_t* data = nullptr;
  int64_t step_y = 0, step_x = 0, height = 0, width = 0;
  static void get(const void* context, int64_t first, int64_t count, const std::byte** out) {
    const Windows& w = *static_cast<const Windows*>(context);
    for_windows(w.height, w.width, first, count, [&](int64_t i, int64_t, int64_t y, int64_t x) {
      out[i] = reinterpret_cast<const std::byte*>(w.data + y * w.step_y + x * w.step_x);
    });
  }
};

/// Where parts of one group's product go.
struct Target {
  const QConv* conv = nullptr;
  const Image* image = nullptr;
  int64_t first = 0;  ///< output channel
  static void store(const void* context, const NarrowResult& part) {
    const Target& t = *static_cast<const Target*>(context);
    const QConv& conv = *t.conv;
    const int64_t channel = t.first + part.column;
    const auto out_bytes = static_cast<int64_t>(dtype_size(conv.end.dtype)), residual_bytes = static_cast<int64_t>(dtype_size(t.image->residual_dtype));
    const int64_t at = part.row * conv.out_channels + channel;
    SumBlock block;
    block.sums = static_cast<const int32_t*>(part.values);
    block.sum_row = kNarrowResultRow;
    block.rows = part.rows;
    block.columns = part.columns;
    block.factors = conv.factors + channel;
    block.bias = conv.bias != nullptr ? conv.bias + channel : nullptr;
    block.residual = t.image->residual != nullptr ? t.image->residual + at * residual_bytes : nullptr;
    block.residual_dtype = t.image->residual_dtype;
    block.out = t.image->out + at * out_bytes;
    block.row = conv.out_channels;
    finish_block(conv.end, block);
  }
};

Status run_dense(KernelContext& context, const QConv& conv, DType dtype, const Image& image) {
  int64_t steps[kMaxTaps];
  const int64_t inner = conv.channels / conv.groups;
  NarrowProduct p;
  if (conv.groups == 1 && conv.dilation[1] == 1) {  // taps of a kernel row lie next to each other
    p.taps = conv.kernel[0];
    for (int64_t t = 0; t < p.taps; ++t) steps[t] = conv.dilation[0] * image.row;
  } else {
    p.taps = conv.taps();
    const int64_t step_x = conv.dilation[1] * conv.channels;
    for (int64_t t = 0; t < p.taps; ++t) steps[t] = (t + 1) % conv.kernel[1] != 0 ? step_x : conv.dilation[0] * image.row - (conv.kernel[1] - 1) * step_x;
  }
  p.steps = steps;
  p.type = dtype;
  p.rows = image.height * image.width;
  p.rows_of = Windows::get;
  p.zero_point = static_cast<int32_t>(conv.x_zero);
  p.store = Target::store;
  p.work = static_cast<const WorkBuffers*>(conv.work.get());
  for (int64_t g = 0; g < conv.groups; ++g) {
    const Windows windows{image.x + g * inner, conv.stride[0] * image.row, conv.stride[1] * conv.pixel, image.height, image.width};
    const Target target{&conv, &image, g * (conv.out_channels / conv.groups)};
    p.context = &windows;
    p.store_context = &target;
    p.weights = conv.packed().groups[static_cast<size_t>(g)].get();
    NarrowLines lines;
    if (conv.run != 0 || conv.taps() == 1) {
      // If no pixel of a row is left out, all windows of one pixel lie in one line.
      const bool one_line = conv.taps() == 1 && windows.step_y == image.width * windows.step_x;
      lines.data = reinterpret_cast<const std::byte*>(windows.data);
      lines.length = one_line ? p.rows : image.width;
      lines.line_step = windows.step_y;
      lines.row_step = windows.step_x;
      lines.run_chunks = conv.run != 0 ? conv.run / kRunBytes : p.weights->chunks();
      lines.tap_step = conv.dilation[0] * image.row;
      lines.end = reinterpret_cast<const std::byte*>(image.x + image.bytes);
      p.lines = &lines;
    }
    PTERON_TRY(run_narrow_product(p, *context.pool));
  }
  return ok_status();
}

/// Channels of a depthwise sum that are done at once, and output pixels before they are finished.
constexpr int64_t kChannelBlock = 16;
constexpr int64_t kPixelBlock = 32;

/// A window's taps for 16 channels: sums[c] = start[c] + sum over taps of x * w. `offsets` are bytes of the taps, an even number; the last may be a
/// tap twice, with a weight of zero.
template <typename T>
void depthwise_sums(const uint8_t* window, const int64_t* offsets, int64_t pairs, const int16_t* weights, const int32_t* start, int32_t* sums) {
  const auto wide = [&](int64_t offset) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(window + offset));
    if constexpr (std::is_signed_v<T>) return _mm256_cvtepi8_epi16(bytes);
    return _mm256_cvtepu8_epi16(bytes);
  };
  // Lanes hold channels 0-3, 8-11 and 4-7, 12-15.
  const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start)), high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(start + 8));
  __m256i a = _mm256_permute2x128_si256(low, high, 0x20), b = _mm256_permute2x128_si256(low, high, 0x31);
  for (int64_t p = 0; p < pairs; ++p, weights += 32) {
    const __m256i x = wide(offsets[2 * p]), y = wide(offsets[2 * p + 1]);
    a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_unpacklo_epi16(x, y), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights))));
    b = _mm256_add_epi32(b, _mm256_madd_epi16(_mm256_unpackhi_epi16(x, y), _mm256_loadu_si256(reinterpret_cast<const __m256i*>(weights + 16))));
  }
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums), _mm256_permute2x128_si256(a, b, 0x20));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(sums + 8), _mm256_permute2x128_si256(a, b, 0x31));
}

/// The same for `count` channels, one by one.
template <typename T>
void depthwise_rest(const QConv& conv, const uint8_t* window, const int64_t* offsets, int64_t first, int64_t count, int32_t* sums) {
  const auto* w = reinterpret_cast<const int8_t*>(conv.packed().bytes.data());
  for (int64_t c = 0; c < count; ++c) sums[c] = -static_cast<int32_t>(conv.x_zero) * reinterpret_cast<const int32_t*>(conv.packed().sums.data())[first + c];
  for (int64_t t = 0; t < conv.taps(); ++t) {
    const T* x = reinterpret_cast<const T*>(window + offsets[t]);
    for (int64_t c = 0; c < count; ++c) sums[c] += static_cast<int32_t>(x[c]) * w[t * conv.channels + first + c];
  }
}

template <typename T>
void depthwise_pixels(const QConv& conv, const Image& image, int64_t first, int64_t last) {
  const int64_t channels = conv.channels, taps = conv.taps(), pairs = ceil_div(taps, int64_t{2});
  const auto out_bytes = static_cast<int64_t>(dtype_size(conv.end.dtype)), residual_bytes = static_cast<int64_t>(dtype_size(image.residual_dtype));
  int64_t offsets[kMaxTaps + 1];
  for (int64_t t = 0; t < taps; ++t) offsets[t] = t / conv.kernel[1] * conv.dilation[0] * image.row + t % conv.kernel[1] * conv.dilation[1] * channels;
  offsets[taps] = offsets[taps - 1];
  int32_t sums[kPixelBlock * kChannelBlock];
  for (int64_t p0 = first; p0 < last; p0 += kPixelBlock) {
    const int64_t pixels = std::min(kPixelBlock, last - p0);
    for (int64_t c0 = 0; c0 < channels; c0 += kChannelBlock) {
      const int64_t count = std::min(kChannelBlock, channels - c0);
      const auto* weights = reinterpret_cast<const int16_t*>(conv.packed().pairs.data()) + c0 * pairs * 2;
      int32_t start[kChannelBlock];
      for (int64_t c = 0; c < count; ++c) start[c] = -static_cast<int32_t>(conv.x_zero) * reinterpret_cast<const int32_t*>(conv.packed().sums.data())[c0 + c];
      for (int64_t i = 0; i < pixels; ++i) {
        const int64_t p = p0 + i;
        const uint8_t* window = image.x + p / image.width * conv.stride[0] * image.row + p % image.width * conv.stride[1] * channels + c0;
        if (count == kChannelBlock) {
          depthwise_sums<T>(window, offsets, pairs, weights, start, sums + i * kChannelBlock);
        } else {
          depthwise_rest<T>(conv, window, offsets, c0, count, sums + i * kChannelBlock);
        }
      }
      const int64_t at = p0 * channels + c0;
      SumBlock block;
      block.sums = sums;
      block.sum_row = kChannelBlock;
      block.rows = pixels;
      block.columns = count;
      block.factors = conv.factors + c0;
      block.bias = conv.bias != nullptr ? conv.bias + c0 : nullptr;
      block.residual = image.residual != nullptr ? image.residual + at * residual_bytes : nullptr;
      block.residual_dtype = image.residual_dtype;
      block.out = image.out + at * out_bytes;
      block.row = channels;
      finish_block(conv.end, block);
    }
  }
}

/// Pixels of a depthwise sum that go through all channels together: what they read is then near.
constexpr int64_t kWidePixels = 256;

/// The same with the sums of 64 channels finished in registers. False, and nothing done, where depthwise_bytes() does not apply.
bool depthwise_wide(const QConv& conv, const Image& image, bool is_signed, int64_t first, int64_t last) {
  const int64_t channels = conv.channels, block = wide_block_bytes(conv);
  int64_t offsets[kMaxTaps + 4];
  DepthwiseBytes d;
  d.offsets = offsets;
  d.taps = wide_taps(conv);
  for (int64_t t = 0; t < d.taps; ++t) offsets[t] = 0;
  for (int64_t t = 0; t < conv.taps(); ++t) {
    offsets[tap_place(conv, t)] = t / conv.kernel[1] * conv.dilation[0] * image.row + t % conv.kernel[1] * conv.dilation[1] * channels;
  }
  d.step = conv.stride[1] * channels;
  d.column_stride = has_columns(conv) && conv.dilation[1] == 1 && conv.stride[1] <= 2 ? conv.stride[1] : 0;
  d.out_step = channels;
  const uint32_t shift = static_cast<uint32_t>(conv.x_zero) + (is_signed ? 128u : 0u);
  const int64_t batch = ceil_div(kWidePixels, image.width) * image.width;
  for (int64_t begin = first; begin < last; begin += batch) {
    for (int64_t c0 = 0; c0 < channels; c0 += kDepthwiseChannels) {
      alignas(64) int32_t start[kDepthwiseChannels];
      alignas(64) float factors[kDepthwiseChannels] = {}, bias[kDepthwiseChannels] = {};
      d.channels = std::min(kDepthwiseChannels, channels - c0);
      const std::byte* packed = conv.packed().wide.data() + c0 / kDepthwiseChannels * block;
      const auto* sums = reinterpret_cast<const int32_t*>(packed + block - sizeof start);
      for (int64_t i = 0; i < kDepthwiseChannels; ++i) start[i] = static_cast<int32_t>(0u - static_cast<uint32_t>(sums[i]) * shift);
      for (int64_t c = 0; c < d.channels; ++c) {
        factors[depthwise_place(c)] = conv.factors[c0 + c];
        if (conv.bias != nullptr) bias[depthwise_place(c)] = conv.bias[c0 + c];
      }
      d.weights = reinterpret_cast<const int8_t*>(packed);
      d.start = start;
      d.factors = factors;
      d.bias = bias;
      for (int64_t p = begin; p < std::min(last, begin + batch); p += d.pixels) {
        const int64_t y = p / image.width, x = p % image.width;
        d.pixels = std::min(image.width - x, std::min(last, begin + batch) - p);
        d.window = image.x + y * conv.stride[0] * image.row + x * d.step + c0;
        d.out = image.out + p * channels + c0;
        if (!depthwise_bytes(conv.end, d, is_signed)) return false;
      }
    }
  }
  return true;
}

/// Room for one image of x with the padding around it, and for what tiles read behind a window.
size_t padded_bytes(const QConv& conv, const Tensor& x) { return line_bytes(conv.padded_elements(x) / conv.channels * conv.pixel, 1) + kRunBytes; }

size_t workspace(std::span<Value* const> args) {
  QConv conv;
  const Tensor &x = args[kX]->tensor, &out = args[kOut]->tensor;
  if (x.rank() != 4 || out.rank() != 4 || !read_conv(args, &conv).ok()) return 0;
  return padded_bytes(conv, x) + 2 * line_bytes(out.numel(), sizeof(float));
}

Status run_image(KernelContext& context, const QConv& conv, DType dtype, const Image& image) {
  if (!conv.depthwise) return run_dense(context, conv, dtype, image);
  const int64_t work = std::max<int64_t>(conv.out_channels * conv.depth(), 1);
  context.pool->parallel_for(image.height * image.width, std::max<int64_t>(kGrain / work, 1), [&](int64_t first, int64_t last) {
    const bool to_bytes = conv.end.dtype != DType::kFloat32 && image.residual == nullptr;
    if (to_bytes && conv.packed().wide.size() != 0 && depthwise_wide(conv, image, dtype == DType::kInt8, first, last)) return;
    if (dtype == DType::kInt8) return depthwise_pixels<int8_t>(conv, image, first, last);
    depthwise_pixels<uint8_t>(conv, image, first, last);
  });
  return ok_status();
}

Status qconv2d_out(KernelContext& context, const Tensor& x, const Tensor&, const Tensor&, const Tensor*, const Tensor* residual, double, int64_t, double, int64_t, IntList, IntList,
                   IntList, int64_t, Value&, std::string_view, double, double, double, int64_t, int64_t, int64_t, DType, Tensor& out) {
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
  std::byte* made = context.scratch.data() + padded_bytes(conv, x);
  std::byte* copy = made + line_bytes(out.numel(), sizeof(float));
  const std::byte* added = nullptr;
  if (residual != nullptr) {
    if (!is_result_dtype(residual->dtype()) || !std::ranges::equal(residual->sizes(), std::span<const int64_t>(sizes))) {
      return Status(Code::kInvalidInput, str_cat("qconv2d: residual ", dtype_name(residual->dtype()), " ", shape_text(residual->sizes())));
    }
    image.residual_dtype = residual->dtype();
    added = residual->as<std::byte>();
    if (!is_dense_channels_last(*residual)) {
      PTERON_TRY(ops::copy_tensor(context, residual->view, channels_last_view(residual->dtype(), sizes, copy)));
      added = copy;
    }
  }
  const bool direct = is_dense_channels_last(out);
  std::byte* result = direct ? out.as<std::byte>() : made;
  const bool in_place = conv.run == 0 && conv.padding[0] == 0 && conv.padding[1] == 0 && is_dense_channels_last(x);
  const int64_t elements = conv.out_channels * image.height * image.width;
  for (int64_t n = 0; n < x.size(0); ++n) {
    if (in_place) {
      image.x = x.as<uint8_t>() + n * x.stride(0);
      image.row = x.size(3) * conv.channels;
      image.bytes = x.size(2) * image.row;
    } else {
      pad_image(*context.pool, x, n, conv.padding, conv.pixel, static_cast<uint8_t>(conv.x_zero), padded);
      image.x = padded;
      image.row = (x.size(3) + 2 * conv.padding[1]) * conv.pixel;
      image.bytes = (x.size(2) + 2 * conv.padding[0]) * image.row + kRunBytes;
    }
    image.out = result + n * elements * static_cast<int64_t>(dtype_size(out.dtype()));
    if (added != nullptr) image.residual = added + n * elements * static_cast<int64_t>(dtype_size(image.residual_dtype));
    PTERON_TRY(run_image(context, conv, x.dtype(), image));
  }
  return direct ? ok_status() : ops::copy_tensor(context, channels_last_view(out.dtype(), sizes, made), out.view);
}

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::qconv2d.out", PTERON_KERNEL(qconv2d_out), workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> quantized_conv_kernels() { return kRows; }

}  // namespace pteron::cpu
