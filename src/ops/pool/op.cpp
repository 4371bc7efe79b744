// Pools for the compiler. One-dimensional forms decompose to two-dimensional ones with a height of 1.
#include <algorithm>

#include "base/str_cat.h"
#include "ops/compose.h"
#include "ops/pool/portable.h"
#include "ops/pool/shape.h"
#include "tensor/dtype.h"

namespace pteron::ops::pool {
namespace {

using ir::Builder;
using ir::OpDef;

Status spread(const NodeView& c, std::string_view name, size_t count, std::vector<Expr>* out) {
  *out = c.exprs(name);
  if (out->size() == 1) out->assign(count, (*out)[0]);
  if (out->size() == count) return ok_status();
  return Status(Code::kInvalidInput, str_cat(name, " has ", out->size(), " entries for ", count, " dims"));
}

Status check_rank(const TensorType& x, size_t spatial) {
  if (x.sizes.size() == spatial + 1 || x.sizes.size() == spatial + 2) return ok_status();
  return Status(Code::kInvalidInput, str_cat("expected an input of rank ", spatial + 1, " or ", spatial + 2, ", found ", shape_text(x.sizes)));
}

Status window_sizes(const NodeView& c, size_t spatial, bool dilated, std::vector<Expr>* sizes) {
  const TensorType& x = c.type("self");
  PTERON_TRY(check_rank(x, spatial));
  std::vector<Expr> kernel, stride, padding, dilation(spatial, Expr(1));
  PTERON_TRY(spread(c, "kernel_size", spatial, &kernel));
  stride = kernel;
  if (!c.exprs("stride").empty()) PTERON_TRY(spread(c, "stride", spatial, &stride));
  PTERON_TRY(spread(c, "padding", spatial, &padding));
  if (dilated) PTERON_TRY(spread(c, "dilation", spatial, &dilation));
  *sizes = x.sizes;
  const size_t first = sizes->size() - spatial;
  for (size_t i = 0; i < spatial; ++i) {
    Expr& size = (*sizes)[first + i];
    size = window_size(size, kernel[i], stride[i], padding[i], dilation[i], c.boolean("ceil_mode"));
    if (size.is_const() && size.value() < 1) {
      return Status(Code::kInvalidInput, str_cat("input ", shape_text(x.sizes), " is smaller than the window"));
    }
  }
  return ok_status();
}

template <size_t spatial, bool dilated, bool indices>
Status infer_window(InferContext& c) {
  std::vector<Expr> sizes;
  PTERON_TRY(window_sizes(c, spatial, dilated, &sizes));
  const DType dtype = c.type("self").dtype;
  c.add(dtype, sizes);
  if (indices) c.add(DType::kInt64, sizes);
  return ok_status();
}

template <size_t spatial, bool indices>
Status infer_adaptive(InferContext& c) {
  const TensorType& x = c.type("self");
  PTERON_TRY(check_rank(x, spatial));
  std::vector<Expr> to;
  PTERON_TRY(spread(c, "output_size", spatial, &to));
  std::vector<Expr> sizes = x.sizes;
  std::copy(to.begin(), to.end(), sizes.end() - static_cast<std::ptrdiff_t>(spatial));
  const DType dtype = x.dtype;
  c.add(dtype, sizes);
  if (indices) c.add(DType::kInt64, sizes);
  return ok_status();
}

/// Windows in places that the samples choose; every plane of [N, C, ...] has its own.
template <size_t spatial>
Status infer_fractional(InferContext& c) {
  PTERON_TRY((infer_adaptive<spatial, true>(c)));
  const TensorType& x = c.type("self");
  const TensorType& samples = c.type("random_samples");
  std::vector<Expr> kernel, to;
  PTERON_TRY(spread(c, "kernel_size", spatial, &kernel));
  PTERON_TRY(spread(c, "output_size", spatial, &to));
  for (size_t d = 0; d < spatial; ++d) {
    const Expr room = x.sizes[x.sizes.size() - spatial + d] - to[d] - kernel[d] + Expr(1);
    if (ir::bounds(room).max < 0) return Status(Code::kInvalidInput, str_cat("input ", shape_text(x.sizes), " is smaller than its windows"));
  }
  if (samples.dtype == x.dtype && samples.rank() == 3) return ok_status();
  return Status(Code::kInvalidInput, str_cat("random samples ", dtype_name(samples.dtype), " ", shape_text(samples.sizes), ", expected ", dtype_name(x.dtype), " of rank 3"));
}

/// A list argument with `first` put before its single entry; an empty list stays empty.
std::vector<Expr> widen(const NodeView& n, std::string_view name, int64_t first) {
  std::vector<Expr> list = n.exprs(name);
  if (!list.empty()) list.insert(list.begin(), Expr(first));
  return list;
}

std::vector<ValueId> decompose_max1(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = f.unsqueeze(n.value("self"), -2);
  const std::vector<ValueId> made = b.ops("aten::max_pool2d_with_indices", {x, widen(n, "kernel_size", 1), widen(n, "stride", 1), widen(n, "padding", 0),
                                                                            widen(n, "dilation", 1), n.arg("ceil_mode")});
  std::vector<ValueId> out;
  for (const ValueId v : made) out.push_back(f.squeeze(v, -2));
  if (n.op().schema.returns.size() == 1) out.resize(std::min<size_t>(out.size(), 1));
  return out;
}

std::vector<ValueId> decompose_max2(Builder& b, const NodeView& n) {
  return {b.op("aten::max_pool2d_with_indices", {n.args().begin(), n.args().end()})};
}
std::vector<ValueId> decompose_max3(Builder& b, const NodeView& n) {
  return {b.op("aten::max_pool3d_with_indices", {n.args().begin(), n.args().end()})};
}

std::vector<ValueId> decompose_avg1(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = f.unsqueeze(n.value("self"), -2);
  const ValueId y = b.op("aten::avg_pool2d", {x, widen(n, "kernel_size", 1), widen(n, "stride", 1), widen(n, "padding", 0), n.arg("ceil_mode"),
                                              n.arg("count_include_pad")});
  return {f.squeeze(y, -2)};
}

std::vector<ValueId> decompose_adaptive_avg1(Builder& b, const NodeView& n) {
  Compose f(b);
  return {f.squeeze(b.op("aten::_adaptive_avg_pool2d", {f.unsqueeze(n.value("self"), -2), widen(n, "output_size", 1)}), -2)};
}
std::vector<ValueId> decompose_adaptive_avg2(Builder& b, const NodeView& n) {
  return {b.op("aten::_adaptive_avg_pool2d", {n.args().begin(), n.args().end()})};
}
std::vector<ValueId> decompose_adaptive_avg3(Builder& b, const NodeView& n) {
  return {b.op("aten::_adaptive_avg_pool3d", {n.args().begin(), n.args().end()})};
}
std::vector<ValueId> decompose_adaptive_max1(Builder& b, const NodeView& n) {
  Compose f(b);
  std::vector<ValueId> out;
  for (const ValueId v : b.ops("aten::adaptive_max_pool2d", {f.unsqueeze(n.value("self"), -2), widen(n, "output_size", 1)})) out.push_back(f.squeeze(v, -2));
  return out;
}

constexpr OpDef kTable[] = {
    {.schema = "aten::max_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1], bool ceil_mode=False) -> Tensor",
     .infer = infer_window<1, true, false>, .decompose = decompose_max1, .kernel = "pteron::max_pool1d.out"},
    {.schema = "aten::max_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> Tensor",
     .infer = infer_window<2, true, false>, .decompose = decompose_max2, .kernel = "pteron::max_pool2d.out"},
    {.schema = "aten::max_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> Tensor",
     .infer = infer_window<3, true, false>, .decompose = decompose_max3, .kernel = "pteron::max_pool3d.out"},
    {.schema = "aten::max_pool1d_with_indices(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], int[1] dilation=[1], "
               "bool ceil_mode=False) -> (Tensor, Tensor)",
     .infer = infer_window<1, true, true>, .decompose = decompose_max1},
    {.schema = "aten::max_pool2d_with_indices(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, "
               "bool ceil_mode=False) -> (Tensor, Tensor)",
     .infer = infer_window<2, true, true>, .kernel = "aten::max_pool2d_with_indices.out"},
    {.schema = "aten::max_pool3d_with_indices(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, "
               "bool ceil_mode=False) -> (Tensor, Tensor)",
     .infer = infer_window<3, true, true>, .decompose = portable_max_pool3d, .kernel = "aten::max_pool3d_with_indices.out"},
    {.schema = "aten::avg_pool1d(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=[0], bool ceil_mode=False, "
               "bool count_include_pad=True) -> Tensor",
     .infer = infer_window<1, false, false>, .decompose = decompose_avg1},
    {.schema = "aten::avg_pool2d(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, bool ceil_mode=False, "
               "bool count_include_pad=True, int? divisor_override=None) -> Tensor",
     .infer = infer_window<2, false, false>, .kernel = "aten::avg_pool2d.out"},
    {.schema = "aten::avg_pool3d(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, bool ceil_mode=False, "
               "bool count_include_pad=True, int? divisor_override=None) -> Tensor",
     .infer = infer_window<3, false, false>, .decompose = portable_avg_pool3d, .kernel = "aten::avg_pool3d.out"},
    {.schema = "aten::adaptive_avg_pool1d(Tensor self, int[1] output_size) -> Tensor", .infer = infer_adaptive<1, false>, .decompose = decompose_adaptive_avg1},
    {.schema = "aten::adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor", .infer = infer_adaptive<2, false>, .decompose = decompose_adaptive_avg2},
    {.schema = "aten::adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor", .infer = infer_adaptive<3, false>, .decompose = decompose_adaptive_avg3},
    {.schema = "aten::_adaptive_avg_pool2d(Tensor self, SymInt[2] output_size) -> Tensor", .infer = infer_adaptive<2, false>,
     .kernel = "aten::_adaptive_avg_pool2d.out"},
    {.schema = "aten::_adaptive_avg_pool3d(Tensor self, SymInt[3] output_size) -> Tensor", .infer = infer_adaptive<3, false>,
     .decompose = portable_adaptive_avg_pool3d,
     .kernel = "aten::_adaptive_avg_pool3d.out"},
    {.schema = "aten::adaptive_max_pool1d(Tensor self, int[1] output_size) -> (Tensor, Tensor)", .infer = infer_adaptive<1, true>,
     .decompose = decompose_adaptive_max1},
    {.schema = "aten::adaptive_max_pool2d(Tensor self, int[2] output_size) -> (Tensor, Tensor)", .infer = infer_adaptive<2, true>,
     .decompose = portable_adaptive_max_pool,
     .kernel = "aten::adaptive_max_pool2d.out"},
    {.schema = "aten::adaptive_max_pool3d(Tensor self, int[3] output_size) -> (Tensor, Tensor)", .infer = infer_adaptive<3, true>,
     .decompose = portable_adaptive_max_pool,
     .kernel = "aten::adaptive_max_pool3d.out"},
    {.schema = "aten::fractional_max_pool2d(Tensor self, int[2] kernel_size, int[2] output_size, Tensor random_samples) -> (Tensor, Tensor)",
     .infer = infer_fractional<2>, .kernel = "aten::fractional_max_pool2d.output"},
    {.schema = "aten::fractional_max_pool3d(Tensor self, int[3] kernel_size, int[3] output_size, Tensor random_samples) -> (Tensor, Tensor)",
     .infer = infer_fractional<3>, .kernel = "aten::fractional_max_pool3d.output"},
    {.schema = "aten::max_unpool2d(Tensor self, Tensor indices, SymInt[2] output_size) -> Tensor", .infer = infer_adaptive<2, false>,
     .decompose = portable_max_unpool,
     .kernel = "aten::max_unpool2d.out"},
    {.schema = "aten::max_unpool3d(Tensor self, Tensor indices, SymInt[3] output_size, int[3] stride, int[3] padding) -> Tensor",
     .infer = infer_adaptive<3, false>, .decompose = portable_max_unpool, .kernel = "aten::max_unpool3d.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::pool
