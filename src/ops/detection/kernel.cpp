// Kernels of torchvision's detection operators, in float (float64 in double): nms goes through the boxes by falling score, roi_align samples its
// bins bilinearly, roi_pool takes maxima. Compile half: op.cpp.
#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "ops/cast.h"
#include "ops/slices.h"
#include "runtime/kernel.h"

namespace pteron::ops::detection {
namespace {

using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

template <typename P>
struct Box {
  P x1, y1, x2, y2, area, score;
  int64_t index;
  bool gone;
};

size_t nms_workspace(std::span<Value* const> args) { return args[0]->tensor.rank() < 1 ? 0 : static_cast<size_t>(args[0]->tensor.size(0)) * sizeof(Box<double>); }

template <typename P>
int64_t keep_boxes(const Tensor& boxes, const Tensor& scores, double limit, Box<P>* list) {
  const LoadFn<P> load = load_fn<P>(boxes.dtype()), load_score = load_fn<P>(scores.dtype());
  const int64_t n = boxes.size(0);
  for (int64_t i = 0; i < n; ++i) {
    P corner[4], score;
    const P* c = load(boxes.view.data, i * boxes.stride(0), boxes.stride(1), 4, corner);
    list[i] = {c[0], c[1], c[2], c[3], (c[2] - c[0]) * (c[3] - c[1]), *load_score(scores.view.data, i * scores.stride(0), 1, 1, &score), i, false};
  }
  // Falling scores, NaN first as in ATen's sort; equal ones in their order.
  std::sort(list, list + n, [](const Box<P>& a, const Box<P>& b) {
    const bool a_nan = std::isnan(a.score), b_nan = std::isnan(b.score);
    if (a_nan != b_nan) return a_nan;
    if (!a_nan && a.score != b.score) return a.score > b.score;
    return a.index < b.index;
  });
  int64_t kept = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (list[i].gone) continue;
    const Box<P> best = list[i];
    for (int64_t j = i + 1; j < n; ++j) {
      const Box<P>& other = list[j];
      const P width = std::max(P(0), std::min(best.x2, other.x2) - std::max(best.x1, other.x1));
      const P height = std::max(P(0), std::min(best.y2, other.y2) - std::max(best.y1, other.y1));
      const P shared = width * height;
      if (static_cast<double>(shared / (best.area + other.area - shared)) > limit) list[j].gone = true;
    }
    list[kept++] = best;
  }
  return kept;
}

Status nms(KernelContext& context, const Tensor& boxes, const Tensor& scores, double limit, Tensor& out) {
  if (boxes.rank() != 2 || boxes.size(1) != 4 || scores.rank() != 1 || scores.size(0) != boxes.size(0)) {
    return Status(Code::kInvalidInput, str_cat("nms: boxes ", shape_text(boxes.sizes()), " and scores ", shape_text(scores.sizes()), ", expected [N,4] and [N]"));
  }
  if (!is_floating(boxes.dtype()) || is_float8(boxes.dtype()) || load_fn<float>(scores.dtype()) == nullptr || out.dtype() != DType::kInt64) {
    return Status(Code::kUnsupported, str_cat("nms of ", dtype_name(boxes.dtype())));
  }
  const auto finish = [&](const auto* list, int64_t kept) {
    PTERON_TRY(runtime::resize(out, Sizes{kept}));
    for (int64_t i = 0; i < kept; ++i) out.as<int64_t>()[i * out.stride(0)] = list[i].index;
    return ok_status();
  };
  if (boxes.dtype() == DType::kFloat64) {
    auto* list = reinterpret_cast<Box<double>*>(context.scratch.data());
    return finish(list, keep_boxes<double>(boxes, scores, limit, list));
  }
  auto* list = reinterpret_cast<Box<float>*>(context.scratch.data());
  return finish(list, keep_boxes<float>(boxes, scores, limit, list));
}

/// The operands of a roi operator, checked.
struct Regions {
  const Tensor& input;
  const Tensor& rois;
  int64_t count, channels, height, width, pooled_height, pooled_width;
};
Status check_regions(const Tensor& input, const Tensor& rois, int64_t pooled_height, int64_t pooled_width, Tensor& out) {
  if (input.rank() != 4 || rois.rank() != 2 || rois.size(1) != 5 || pooled_height < 1 || pooled_width < 1) {
    return Status(Code::kInvalidInput, str_cat("roi operator: input ", shape_text(input.sizes()), ", boxes ", shape_text(rois.sizes()), ", bins ", pooled_height, " x ", pooled_width));
  }
  if (!is_floating(input.dtype()) || is_float8(input.dtype()) || rois.dtype() != input.dtype() || out.dtype() != input.dtype()) {
    return Status(Code::kUnsupported, str_cat("roi operator of ", dtype_name(input.dtype())));
  }
  return runtime::resize(out, Sizes{rois.size(0), input.size(1), pooled_height, pooled_width});
}
/// Box `index` as [image, x1, y1, x2, y2]. Errors: kInvalidInput (no such image).
template <typename P>
Status read_region(const Regions& r, int64_t index, P box[5]) {
  P buffer[5];
  const P* from = load_fn<P>(r.rois.dtype())(r.rois.view.data, index * r.rois.stride(0), r.rois.stride(1), 5, buffer);
  std::copy(from, from + 5, box);
  if (box[0] >= 0 && box[0] < static_cast<P>(r.input.size(0))) return ok_status();
  return Status(Code::kInvalidInput, str_cat("roi operator: box ", index, " names image ", static_cast<double>(box[0]), " of ", r.input.size(0)));
}

/// Four neighbours of a sample and their weights; weights of 0 outside of the image.
template <typename P>
struct Sample {
  int64_t at[4];
  P weight[4];
};
template <typename P>
Sample<P> sample_at(const Regions& r, P y, P x) {
  Sample<P> s{};
  if (!(y >= -1 && y <= static_cast<P>(r.height) && x >= -1 && x <= static_cast<P>(r.width))) return s;
  y = std::max(y, P(0));
  x = std::max(x, P(0));
  int64_t y0 = static_cast<int64_t>(y), x0 = static_cast<int64_t>(x), y1 = y0 + 1, x1 = x0 + 1;
  if (y0 >= r.height - 1) y0 = y1 = r.height - 1, y = static_cast<P>(y0);
  if (x0 >= r.width - 1) x0 = x1 = r.width - 1, x = static_cast<P>(x0);
  const P ly = y - static_cast<P>(y0), lx = x - static_cast<P>(x0), hy = 1 - ly, hx = 1 - lx;
  const int64_t row = r.input.stride(2), column = r.input.stride(3);
  return {{y0 * row + x0 * column, y0 * row + x1 * column, y1 * row + x0 * column, y1 * row + x1 * column}, {hy * hx, hy * lx, ly * hx, ly * lx}};
}

template <typename T, typename P>
void align_region(const Regions& r, const P box[5], double scale, int64_t sampling, bool aligned, const T* image, T* out, std::span<const int64_t> step) {
  const P offset = aligned ? P(0.5) : P(0), by = static_cast<P>(scale);
  const P x0 = box[1] * by - offset, y0 = box[2] * by - offset;
  P width = box[3] * by - offset - x0, height = box[4] * by - offset - y0;
  if (!aligned) width = std::max(width, P(1)), height = std::max(height, P(1));
  const P bin_h = height / static_cast<P>(r.pooled_height), bin_w = width / static_cast<P>(r.pooled_width);
  const auto grid_of = [&](P size, int64_t bins) { return sampling > 0 ? sampling : static_cast<int64_t>(std::ceil(size / static_cast<P>(bins))); };
  const int64_t grid_h = grid_of(height, r.pooled_height), grid_w = grid_of(width, r.pooled_width);
  const P count = static_cast<P>(std::max<int64_t>(grid_h * grid_w, 1));
  constexpr int64_t kMany = 64;
  Sample<P> samples[kMany];
  const auto place = [&](int64_t ph, int64_t pw, int64_t k) {
    const P y = y0 + static_cast<P>(ph) * bin_h + (static_cast<P>(k / grid_w) + P(0.5)) * bin_h / static_cast<P>(grid_h);
    const P x = x0 + static_cast<P>(pw) * bin_w + (static_cast<P>(k % grid_w) + P(0.5)) * bin_w / static_cast<P>(grid_w);
    return sample_at<P>(r, y, x);
  };
  const int64_t total = grid_h > 0 && grid_w > 0 ? grid_h * grid_w : 0;
  for (int64_t ph = 0; ph < r.pooled_height; ++ph) {
    for (int64_t pw = 0; pw < r.pooled_width; ++pw) {
      for (int64_t k = 0; k < std::min(total, kMany); ++k) samples[k] = place(ph, pw, k);  // the same for all channels
      for (int64_t c = 0; c < r.channels; ++c) {
        const T* plane = image + c * r.input.stride(1);
        P sum = 0;
        for (int64_t k = 0; k < total; ++k) {
          const Sample<P> s = k < kMany ? samples[k] : place(ph, pw, k);
          sum += s.weight[0] * convert<P>(plane[s.at[0]]) + s.weight[1] * convert<P>(plane[s.at[1]]) + s.weight[2] * convert<P>(plane[s.at[2]]) + s.weight[3] * convert<P>(plane[s.at[3]]);
        }
        out[c * step[1] + ph * step[2] + pw * step[3]] = convert<T>(sum / count);
      }
    }
  }
}

template <typename T>
using PartOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// fn(T, box index, box, image, out of the box) for all boxes; the first error stops.
template <typename Fn>
Status for_regions(KernelContext& context, const Regions& r, Tensor& out, const Fn& fn) {
  Status status;
  const bool done = dispatch_floating(r.input.dtype(), [&]<typename T>() {
    using P = PartOf<T>;
    P box[5];
    for (int64_t i = 0; i < r.count && status.ok(); ++i) status = read_region<P>(r, i, box);  // before any write
    if (!status.ok() || r.height == 0 || r.width == 0) return;
    context.pool->parallel_for(r.count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        P own[5];
        if (!read_region<P>(r, i, own).ok()) continue;
        fn.template operator()<T, P>(i, own, r.input.as<T>() + static_cast<int64_t>(own[0]) * r.input.stride(0), out.as<T>() + i * out.stride(0));
      }
    });
  });
  return done ? status : Status(Code::kUnsupported, str_cat("roi operator of ", dtype_name(r.input.dtype())));
}
Regions regions_of(const Tensor& input, const Tensor& rois, int64_t pooled_height, int64_t pooled_width) {
  return {input, rois, rois.size(0), input.size(1), input.size(2), input.size(3), pooled_height, pooled_width};
}

Status roi_align(KernelContext& context, const Tensor& input, const Tensor& rois, double scale, int64_t pooled_height, int64_t pooled_width, int64_t sampling, bool aligned, Tensor& out) {
  PTERON_TRY(check_regions(input, rois, pooled_height, pooled_width, out));
  const Regions r = regions_of(input, rois, pooled_height, pooled_width);
  return for_regions(context, r, out, [&]<typename T, typename P>(int64_t, const P* box, const T* image, T* to) { align_region<T, P>(r, box, scale, sampling, aligned, image, to, out.strides()); });
}

Status roi_pool(KernelContext& context, const Tensor& input, const Tensor& rois, double scale, int64_t pooled_height, int64_t pooled_width, Tensor& out, Tensor& where) {
  PTERON_TRY(check_regions(input, rois, pooled_height, pooled_width, out));
  PTERON_TRY(runtime::resize(where, out.sizes()));
  if (where.dtype() != DType::kInt32) return Status(Code::kInvalidInput, str_cat("roi_pool: positions of ", dtype_name(where.dtype())));
  const Regions r = regions_of(input, rois, pooled_height, pooled_width);
  return for_regions(context, r, out, [&]<typename T, typename P>(int64_t index, const P* box, const T* image, T* to) {
    const auto edge = [&](int k) { return static_cast<int64_t>(std::round(box[k] * static_cast<P>(scale))); };
    const int64_t x0 = edge(1), y0 = edge(2);
    const P width = static_cast<P>(std::max<int64_t>(edge(3) - x0 + 1, 1)) / static_cast<P>(r.pooled_width);
    const P height = static_cast<P>(std::max<int64_t>(edge(4) - y0 + 1, 1)) / static_cast<P>(r.pooled_height);
    const auto clip = [](P position, int64_t start, int64_t limit) { return std::clamp<int64_t>(static_cast<int64_t>(position) + start, 0, limit); };
    for (int64_t ph = 0; ph < r.pooled_height; ++ph) {
      const int64_t top = clip(std::floor(static_cast<P>(ph) * height), y0, r.height), bottom = clip(std::ceil(static_cast<P>(ph + 1) * height), y0, r.height);
      for (int64_t pw = 0; pw < r.pooled_width; ++pw) {
        const int64_t left = clip(std::floor(static_cast<P>(pw) * width), x0, r.width), right = clip(std::ceil(static_cast<P>(pw + 1) * width), x0, r.width);
        for (int64_t c = 0; c < r.channels; ++c) {
          const T* plane = image + c * r.input.stride(1);
          const bool empty = bottom <= top || right <= left;
          P best = empty ? P(0) : -std::numeric_limits<P>::max();
          int64_t at = -1;
          for (int64_t y = top; y < bottom; ++y) {
            for (int64_t x = left; x < right; ++x) {
              const P value = convert<P>(plane[y * r.input.stride(2) + x * r.input.stride(3)]);
              if (value > best) best = value, at = y * r.width + x;
            }
          }
          to[c * out.stride(1) + ph * out.stride(2) + pw * out.stride(3)] = convert<T>(best);
          where.as<int32_t>()[index * where.stride(0) + c * where.stride(1) + ph * where.stride(2) + pw * where.stride(3)] = static_cast<int32_t>(at);
        }
      }
    }
  });
}

constexpr runtime::Kernel kRows[] = {
    {"torchvision::nms.out", PTERON_KERNEL(nms), nms_workspace},
    {"torchvision::roi_align.out", PTERON_KERNEL(roi_align)},
    {"torchvision::roi_pool.out", PTERON_KERNEL(roi_pool)},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::detection
