// pixel_shuffle, pixel_unshuffle, channel_shuffle, im2col, col2im.
#include "ops/catalog.h"
#include "ops/pixel/portable.h"
#include "ops/view/symbolic.h"

namespace pteron::ops::pixel {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_pixel(InferContext& c, bool shuffle) {
  const TensorType& self = c.type("self");
  const int64_t factor = c.integer(shuffle ? "upscale_factor" : "downscale_factor");
  if (self.rank() < 3 || factor <= 0 || factor > (1 << 20)) {
    return Status(Code::kInvalidInput, str_cat("pixel shuffle by ", factor, " of a tensor of rank ", self.rank()));
  }
  std::vector<Expr> sizes = self.sizes;
  const size_t channel = sizes.size() - 3;
  const Expr area = factor * factor, f = factor;
  const Expr rest = shuffle ? floor_mod(sizes[channel], area) : floor_mod(sizes[channel + 1], f) + floor_mod(sizes[channel + 2], f);
  if (ir::bounds(rest).min > 0) return Status(Code::kInvalidInput, str_cat("shape ", shape_text(sizes), " does not divide by the factor ", factor));
  sizes[channel] = shuffle ? floor_div(sizes[channel], area) : sizes[channel] * area;
  for (const size_t d : {channel + 1, channel + 2}) sizes[d] = shuffle ? sizes[d] * f : floor_div(sizes[d], f);
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}
Status infer_pixel_shuffle(InferContext& c) { return infer_pixel(c, true); }
Status infer_pixel_unshuffle(InferContext& c) { return infer_pixel(c, false); }

Status infer_channel_shuffle(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() < 3) return Status(Code::kInvalidInput, str_cat("channel_shuffle of a tensor of rank ", self.rank()));
  c.add(self.dtype, self.sizes);
  return ok_status();
}

/// [N, g*c, ...] as [N, g, c, ...], the two dims swapped, merged again.
Ids decompose_channel_shuffle(Builder& b, const NodeView& n) {
  const std::vector<Expr> sizes = n.type("self").sizes;
  if (sizes.size() < 3) return {};
  const Expr groups = n.expr("groups");
  std::vector<Expr> split = sizes;
  split[1] = groups;
  split.insert(split.begin() + 2, floor_div(sizes[1], groups));
  std::vector<int64_t> order;
  for (size_t d = 0; d < split.size(); ++d) order.push_back(static_cast<int64_t>(d));
  std::swap(order[1], order[2]);
  const ValueId grouped = b.op("aten::view", {n.value("self"), std::move(split)});
  if (!grouped.valid()) return {};
  return {b.op("aten::view", {view::permute_to(b, grouped, order), sizes})};
}

/// Both entries of an int[2] argument (one given value stands for both).
std::vector<int64_t> pair_of(const NodeView& n, std::string_view name) {
  std::vector<int64_t> pair = n.integers(name);
  if (pair.size() == 1) pair.push_back(pair[0]);
  pair.resize(2, 0);
  return pair;
}

/// Number of window positions along a dim.
Expr positions(Expr size, int64_t kernel, int64_t dilation, int64_t padding, int64_t stride) {
  return floor_div(size + Expr(2 * padding - dilation * (kernel - 1) - 1), Expr(stride)) + Expr(1);
}

Status check_window(const NodeView& n) {
  for (const std::string_view name : {"kernel_size", "dilation", "stride"}) {
    for (const int64_t v : pair_of(n, name)) {
      if (v <= 0 || v > (int64_t{1} << 31)) return Status(Code::kInvalidInput, str_cat(name, " ", v));
    }
  }
  for (const int64_t v : pair_of(n, "padding")) {
    if (v < 0 || v > (int64_t{1} << 31)) return Status(Code::kInvalidInput, str_cat("padding ", v));
  }
  return ok_status();
}

Status infer_im2col(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() != 3 && self.rank() != 4) return Status(Code::kInvalidInput, str_cat("im2col of a tensor of rank ", self.rank()));
  PTERON_TRY(check_window(c));
  const std::vector<int64_t> kernel = pair_of(c, "kernel_size"), dilation = pair_of(c, "dilation"), padding = pair_of(c, "padding"), stride = pair_of(c, "stride");
  const size_t channel = self.sizes.size() - 3;
  std::vector<Expr> sizes(self.sizes.begin(), self.sizes.begin() + static_cast<std::ptrdiff_t>(channel));
  Expr count = 1;
  for (size_t i = 0; i < 2; ++i) count = count * positions(self.sizes[channel + 1 + i], kernel[i], dilation[i], padding[i], stride[i]);
  sizes.push_back(self.sizes[channel] * Expr(kernel[0] * kernel[1]));
  sizes.push_back(count);
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

Status infer_col2im(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() != 2 && self.rank() != 3) return Status(Code::kInvalidInput, str_cat("col2im of a tensor of rank ", self.rank()));
  PTERON_TRY(check_window(c));
  const std::vector<int64_t> kernel = pair_of(c, "kernel_size");
  const std::vector<Expr> output = c.NodeView::exprs("output_size");
  if (output.size() != 2) return Status(Code::kInvalidInput, str_cat("col2im with ", output.size(), " output sizes"));
  std::vector<Expr> sizes(self.sizes.begin(), self.sizes.end() - 2);
  sizes.push_back(floor_div(self.sizes[self.sizes.size() - 2], Expr(kernel[0] * kernel[1])));
  sizes.insert(sizes.end(), output.begin(), output.end());
  c.add(self.dtype, std::move(sizes));
  return ok_status();
}

constexpr OpDef kTable[] = {
    {.schema = "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor", .infer = infer_pixel_shuffle, .kernel = "aten::pixel_shuffle.out"},
    {.schema = "aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor", .infer = infer_pixel_unshuffle, .kernel = "aten::pixel_unshuffle.out"},
    {.schema = "aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor", .infer = infer_channel_shuffle, .decompose = decompose_channel_shuffle},
    {.schema = "aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor",
     .infer = infer_channel_shuffle,
     .decompose = decompose_channel_shuffle},
    {.schema = "aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
     .infer = infer_im2col,
     .decompose = portable_im2col,
     .kernel = "aten::im2col.out"},
    {.schema = "aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
     .infer = infer_col2im,
     .decompose = portable_col2im,
     .kernel = "aten::col2im.out"},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::pixel
