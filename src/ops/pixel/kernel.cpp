// pixel_shuffle and pixel_unshuffle (one strided copy), im2col and col2im.
#include "ops/element.h"
#include "ops/kernels.h"
#include "ops/view/run.h"
#include "ops/walk.h"

namespace pteron::ops::pixel {
namespace {

using runtime::IntList;
using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tensor;
using view::Placed;

/// The fine tensor [.., C, H*r, W*r] as [.., C, r, r, H, W], the dims in which the coarse tensor [.., C*r*r, H, W] is split.
Placed fine_layout(const TensorView& fine, int64_t r) {
  Placed v = view::placed(fine);
  const size_t c = v.sizes.size() - 3;
  const int64_t row = v.strides[c + 1], column = v.strides[c + 2], height = v.sizes[c + 1] / r, width = v.sizes[c + 2] / r;
  v.sizes.resize(c + 1);
  v.strides.resize(c + 1);
  for (const int64_t n : {r, r, height, width}) v.sizes.push_back(n);
  for (const int64_t s : {row, column, row * r, column * r}) v.strides.push_back(s);
  return v;
}

Placed coarse_layout(const TensorView& coarse, int64_t r) {
  Placed v = view::placed(coarse);
  const size_t c = v.sizes.size() - 3;
  const int64_t stride = v.strides[c];
  v.sizes[c] /= r * r;
  v.strides[c] = stride * r * r;
  v.sizes.insert(c + 1, r);
  v.strides.insert(c + 1, stride);
  v.sizes.insert(c + 1, r);
  v.strides.insert(c + 1, stride * r);
  return v;
}

Status check_pixel(const Tensor& self, int64_t factor) {
  if (self.rank() < 3 || self.rank() + 2 > kMaxRank || factor <= 0 || factor > (1 << 20)) {
    return Status(Code::kInvalidInput, str_cat("pixel shuffle by ", factor, " of shape ", shape_text(self.sizes())));
  }
  return ok_status();
}

Status pixel_shuffle(KernelContext& context, const Tensor& self, int64_t factor, Tensor& out) {
  PTERON_TRY(check_pixel(self, factor));
  Sizes sizes(self.sizes());
  const size_t c = sizes.size() - 3;
  if (sizes[c] % (factor * factor) != 0) return Status(Code::kInvalidInput, str_cat(sizes[c], " channels do not divide by ", factor * factor));
  sizes[c] /= factor * factor;
  sizes[c + 1] *= factor;
  sizes[c + 2] *= factor;
  PTERON_TRY(resize(out, sizes));
  return copy_tensor(context, view::view_of(self.view, coarse_layout(self.view, factor)), view::view_of(out.view, fine_layout(out.view, factor)));
}

Status pixel_unshuffle(KernelContext& context, const Tensor& self, int64_t factor, Tensor& out) {
  PTERON_TRY(check_pixel(self, factor));
  Sizes sizes(self.sizes());
  const size_t c = sizes.size() - 3;
  if (sizes[c + 1] % factor != 0 || sizes[c + 2] % factor != 0) {
    return Status(Code::kInvalidInput, str_cat("shape ", shape_text(sizes), " does not divide by ", factor));
  }
  sizes[c] *= factor * factor;
  sizes[c + 1] /= factor;
  sizes[c + 2] /= factor;
  PTERON_TRY(resize(out, sizes));
  return copy_tensor(context, view::view_of(self.view, fine_layout(self.view, factor)), view::view_of(out.view, coarse_layout(out.view, factor)));
}

/// Geometry of sliding windows over an image [H, W].
struct Windows {
  int64_t kernel[2], dilation[2], padding[2], stride[2], size[2], count[2];
};

int64_t entry(const IntList& list, size_t i) { return list.size() == 1 ? list[0] : list[i]; }

Status make_windows(const IntList& kernel, const IntList& dilation, const IntList& padding, const IntList& stride, int64_t height, int64_t width,
                    Windows* w) {
  for (const IntList* list : {&kernel, &dilation, &padding, &stride}) {
    if (list->empty() || list->size() > 2) return Status(Code::kInvalidInput, str_cat(list->size(), " numbers for two dims"));
  }
  for (size_t i = 0; i < 2; ++i) {
    w->kernel[i] = entry(kernel, i);
    w->dilation[i] = entry(dilation, i);
    w->padding[i] = entry(padding, i);
    w->stride[i] = entry(stride, i);
    w->size[i] = i == 0 ? height : width;
    if (w->kernel[i] <= 0 || w->dilation[i] <= 0 || w->stride[i] <= 0 || w->padding[i] < 0) {
      return Status(Code::kInvalidInput, str_cat("window of ", w->kernel[i], ", dilation ", w->dilation[i], ", stride ", w->stride[i], ", padding ", w->padding[i]));
    }
    w->count[i] = floor_div(w->size[i] + 2 * w->padding[i] - w->dilation[i] * (w->kernel[i] - 1) - 1, w->stride[i]) + 1;
    if (w->count[i] <= 0) return Status(Code::kInvalidInput, str_cat("no window of size ", w->kernel[i], " fits a dim of size ", w->size[i]));
  }
  return ok_status();
}

/// Range [begin, end) of window positions along dim i whose tap `k` lies inside the image.
void inside(const Windows& w, int i, int64_t k, int64_t* begin, int64_t* end) {
  const int64_t shift = k * w.dilation[i] - w.padding[i];  // position p reads p * stride + shift
  *begin = std::clamp<int64_t>(ceil_div(-shift, w.stride[i]), 0, w.count[i]);
  *end = std::clamp<int64_t>(ceil_div(w.size[i] - shift, w.stride[i]), *begin, w.count[i]);
}

/// A view with rank 4: batch dims of size 1 in front.
TensorView with_batch(const TensorView& t, int rank) {
  TensorView view = t;
  if (t.rank == rank) return view;
  for (int d = t.rank; d > 0; --d) {
    view.size_array[static_cast<size_t>(d)] = t.size_array[static_cast<size_t>(d - 1)];
    view.stride_array[static_cast<size_t>(d)] = t.stride_array[static_cast<size_t>(d - 1)];
  }
  view.size_array[0] = 1;
  view.stride_array[0] = 0;
  view.rank = static_cast<uint8_t>(rank);
  return view;
}

/// One row of columns: image `channel` seen through tap (ky, kx).
template <typename T>
void column_row(const Windows& w, const TensorView& image, const T* from, int64_t ky, int64_t kx, T* to, int64_t step) {
  int64_t y0 = 0, y1 = 0, x0 = 0, x1 = 0;
  inside(w, 0, ky, &y0, &y1);
  inside(w, 1, kx, &x0, &x1);
  const T zero{};
  for (int64_t y = 0; y < w.count[0]; ++y) {
    T* row = to + y * w.count[1] * step;
    const bool empty = y < y0 || y >= y1;
    const int64_t begin = empty ? w.count[1] : x0, end = empty ? w.count[1] : x1;
    for (int64_t x = 0; x < begin; ++x) row[x * step] = zero;
    const T* source = from + (y * w.stride[0] + ky * w.dilation[0] - w.padding[0]) * image.stride(2) + (kx * w.dilation[1] - w.padding[1]) * image.stride(3);
    const int64_t source_step = w.stride[1] * image.stride(3);
    for (int64_t x = begin; x < end; ++x) row[x * step] = source[x * source_step];
    for (int64_t x = end; x < w.count[1]; ++x) row[x * step] = zero;
  }
}

Status im2col(KernelContext& context, const Tensor& self, IntList kernel, IntList dilation, IntList padding, IntList stride, Tensor& out) {
  if (self.rank() != 3 && self.rank() != 4) return Status(Code::kInvalidInput, str_cat("im2col of a tensor of rank ", self.rank()));
  const TensorView image = with_batch(self.view, 4);
  Windows w;
  PTERON_TRY(make_windows(kernel, dilation, padding, stride, image.size(2), image.size(3), &w));
  const int64_t taps = w.kernel[0] * w.kernel[1];
  Sizes sizes{image.size(1) * taps, w.count[0] * w.count[1]};
  if (self.rank() == 4) sizes.insert(0, image.size(0));
  PTERON_TRY(resize(out, sizes));
  const TensorView columns = with_batch(out.view, 3);
  if (columns.numel() == 0) return ok_status();
  dispatch_size(dtype_size(self.dtype()), [&]<typename T>() {
    context.pool->parallel_for(columns.size(0) * columns.size(1), row_grain(columns.size(2)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t batch = i / columns.size(1), row = i % columns.size(1), channel = row / taps, tap = row % taps;
        column_row(w, image, image.as<T>() + batch * image.stride(0) + channel * image.stride(1), tap / w.kernel[1], tap % w.kernel[1],
                   columns.as<T>() + batch * columns.stride(0) + row * columns.stride(1), columns.stride(2));
      }
    });
  });
  return ok_status();
}

/// One pixel of the image: the sum of all column entries that lie on it, in order of the taps.
template <typename T>
MathOf<T> folded(const Windows& w, const T* columns, int64_t row_step, int64_t step, int64_t y, int64_t x) {
  MathOf<T> sum{};
  for (int64_t ky = 0; ky < w.kernel[0]; ++ky) {
    const int64_t py = y + w.padding[0] - ky * w.dilation[0];
    if (py < 0 || py % w.stride[0] != 0 || py / w.stride[0] >= w.count[0]) continue;
    for (int64_t kx = 0; kx < w.kernel[1]; ++kx) {
      const int64_t px = x + w.padding[1] - kx * w.dilation[1];
      if (px < 0 || px % w.stride[1] != 0 || px / w.stride[1] >= w.count[1]) continue;
      sum = static_cast<MathOf<T>>(sum + to_math(columns[(ky * w.kernel[1] + kx) * row_step + (py / w.stride[0] * w.count[1] + px / w.stride[1]) * step]));
    }
  }
  return sum;
}

/// A whole image, tap by tap: every pixel gets its summands in the same order. For types that are their own accumulator.
template <typename T>
void fold_plane(const Windows& w, const TensorView& image, const T* columns, int64_t row_step, int64_t step, T* to) {
  for (int64_t y = 0; y < image.size(2); ++y) {
    for (int64_t x = 0; x < image.size(3); ++x) to[y * image.stride(2) + x * image.stride(3)] = T{};
  }
  for (int64_t tap = 0; tap < w.kernel[0] * w.kernel[1]; ++tap) {
    const int64_t ky = tap / w.kernel[1], kx = tap % w.kernel[1];
    int64_t y0 = 0, y1 = 0, x0 = 0, x1 = 0;
    inside(w, 0, ky, &y0, &y1);
    inside(w, 1, kx, &x0, &x1);
    const int64_t pixel_step = w.stride[1] * image.stride(3);
    for (int64_t y = y0; y < y1; ++y) {
      const T* from = columns + tap * row_step + y * w.count[1] * step;
      T* row = to + (y * w.stride[0] + ky * w.dilation[0] - w.padding[0]) * image.stride(2) + (kx * w.dilation[1] - w.padding[1]) * image.stride(3);
      if (step == 1 && pixel_step == 1) {
        for (int64_t x = x0; x < x1; ++x) row[x] = static_cast<T>(row[x] + from[x]);
      } else {
        for (int64_t x = x0; x < x1; ++x) row[x * pixel_step] = static_cast<T>(row[x * pixel_step] + from[x * step]);
      }
    }
  }
}

Status col2im(KernelContext& context, const Tensor& self, IntList output, IntList kernel, IntList dilation, IntList padding, IntList stride, Tensor& out) {
  if (self.rank() != 2 && self.rank() != 3) return Status(Code::kInvalidInput, str_cat("col2im of a tensor of rank ", self.rank()));
  if (output.size() != 2) return Status(Code::kInvalidInput, str_cat("col2im with ", output.size(), " output sizes"));
  const TensorView columns = with_batch(self.view, 3);
  Windows w;
  PTERON_TRY(make_windows(kernel, dilation, padding, stride, output[0], output[1], &w));
  const int64_t taps = w.kernel[0] * w.kernel[1];
  if (columns.size(1) % taps != 0 || columns.size(2) != w.count[0] * w.count[1]) {
    return Status(Code::kInvalidInput, str_cat("col2im: shape ", shape_text(self.sizes()), " does not fit ", taps, " taps at ", w.count[0] * w.count[1], " positions"));
  }
  Sizes sizes{columns.size(1) / taps, output[0], output[1]};
  if (self.rank() == 3) sizes.insert(0, columns.size(0));
  PTERON_TRY(resize(out, sizes));
  const TensorView image = with_batch(out.view, 4);
  const bool done = dispatch_dtype(self.dtype(), [&]<typename T>() {
    context.pool->parallel_for(image.size(0) * image.size(1), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t batch = i / image.size(1), channel = i % image.size(1);
        const T* from = columns.as<T>() + batch * columns.stride(0) + channel * taps * columns.stride(1);
        T* to = image.as<T>() + batch * image.stride(0) + channel * image.stride(1);
        if constexpr (std::is_same_v<MathOf<T>, T> && !std::is_same_v<T, bool>) {
          fold_plane(w, image, from, columns.stride(1), columns.stride(2), to);
          continue;
        }
        for (int64_t y = 0; y < image.size(2); ++y) {
          for (int64_t x = 0; x < image.size(3); ++x) {
            to[y * image.stride(2) + x * image.stride(3)] = from_math<T>(folded(w, from, columns.stride(1), columns.stride(2), y, x));
          }
        }
      }
    });
  });
  return done ? ok_status() : Status(Code::kUnsupported, str_cat("col2im of dtype ", dtype_name(self.dtype())));
}

constexpr Kernel kTable[] = {
    {"aten::pixel_shuffle.out", PTERON_KERNEL(pixel_shuffle)},
    {"aten::pixel_unshuffle.out", PTERON_KERNEL(pixel_unshuffle)},
    {"aten::im2col.out", PTERON_KERNEL(im2col)},
    {"aten::col2im.out", PTERON_KERNEL(col2im)},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::pixel
