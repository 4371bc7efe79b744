// Gradients of convolutions, pools, pads, slices and embeddings (training programs hold them). Windows have kernels (kernel.cpp); the others
// put the gradient into zeros.
#include "ops/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::gradient_window {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_convolution(InferContext& c) {
  const std::vector<bool> mask = flags_of(c, "output_mask");
  const TensorType &grad = c.type("grad_output"), &in = c.type("input"), &weight = c.type("weight");
  if (mask.size() != 3 || in.rank() < 3 || in.rank() > 5 || weight.rank() != in.rank() || grad.rank() != in.rank()) {
    return Status(Code::kUnsupported, str_cat("convolution_backward of ", shape_text(in.sizes), " with a weight of ", shape_text(weight.sizes)));
  }
  if (!is_floating(in.dtype) || grad.dtype != in.dtype || weight.dtype != in.dtype) {
    return Status(Code::kInvalidInput, str_cat("convolution_backward of dtypes ", dtype_name(grad.dtype), ", ", dtype_name(in.dtype), " and ", dtype_name(weight.dtype)));
  }
  const std::vector<std::vector<Expr>> sizes{in.sizes, weight.sizes, {grad.sizes[1]}};
  for (size_t k = 0; k < 3; ++k) {
    if (mask[k]) {
      c.add(in.dtype, sizes[k]);
    } else {
      c.add_none();
    }
  }
  return ok_status();
}
Status infer_like_input(InferContext& c) {
  c.add(elementwise_type(c, c.type("self").dtype, c.type("self").sizes, {"self"}));
  return ok_status();
}
Status infer_sizes(InferContext& c) {
  c.add(c.type(c.has("grad_in") ? "grad_in" : "grad_output").dtype, c.exprs("input_sizes"));
  return ok_status();
}
Status infer_embedding(InferContext& c) {
  const TensorType& grad = c.type("grad_output");
  if (grad.rank() < 1) return Status(Code::kInvalidInput, "embedding_dense_backward of a gradient of rank 0");
  c.add(grad.dtype, {c.expr("num_weights"), grad.sizes.back()});
  return ok_status();
}

ValueId zeros(Builder& b, const NodeView& n) { return b.op("aten::full", {n.exprs("input_sizes"), Expr(0), n.type("grad_output").dtype}); }
Ids select_backward(Builder& b, const NodeView& n) { return {b.op("aten::select_scatter", {zeros(b, n), n.value("grad_output"), n.expr("dim"), n.expr("index")})}; }
Ids slice_backward(Builder& b, const NodeView& n) {
  return {b.op("aten::slice_scatter", {zeros(b, n), n.value("grad_output"), n.expr("dim"), n.expr("start"), n.expr("end"), n.expr("step")})};
}
Ids diagonal_backward(Builder& b, const NodeView& n) {
  return {b.op("aten::diagonal_scatter", {zeros(b, n), n.value("grad_output"), n.expr("offset"), n.expr("dim1"), n.expr("dim2")})};
}

/// Adds rows of `source` along `dim` to zeros of `size` rows: 16-bit floats in float.
ValueId add_rows(Portable& f, ValueId source, int dim, ValueId index, Expr size) {
  std::vector<Expr> sizes = f.sizes(source);
  if (static_cast<size_t>(dim) >= sizes.size()) return source;  // after an error, which the builder holds, nothing has sizes
  sizes[static_cast<size_t>(dim)] = size;
  const ValueId start = f.b.op("aten::full", {sizes, Expr(0), f.dtype(source)});
  return f.b.op("aten::index_add", {start, Expr(dim), index, source});
}

Ids unfold_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const std::vector<Expr> sizes = n.exprs("input_sizes");
  const ValueId grad = n.value("grad_in");
  auto dim = wrap_dim_of(n.integer("dim"), static_cast<int>(sizes.size()));
  if (!dim.ok()) return b.fail(std::move(dim).status()), Ids{};
  if (sizes.empty()) return {f.squeeze(grad, 0)};
  if (f.rank(grad) != static_cast<int>(sizes.size()) + 1) return b.fail(Status(Code::kInvalidInput, str_cat("unfold_backward of ", shape_text(f.sizes(grad))))), Ids{};
  const auto at = static_cast<size_t>(*dim);
  const ValueId windows = b.op("aten::unfold", {f.arange(sizes[at]), Expr(0), n.expr("size"), n.expr("step")});
  const ValueId index = f.view(windows, {ir::numel_of(f.sizes(windows))});
  std::vector<int64_t> order;  // [..., windows, ..., size] to [..., windows, size, ...]
  for (int d = 0; d < f.rank(grad) - 1; ++d) {
    order.push_back(d);
    if (d == *dim) order.push_back(f.rank(grad) - 1);
  }
  const ValueId moved = f.permute(grad, order);
  std::vector<Expr> flat = sizes;
  flat[at] = f.size(moved, *dim) * f.size(moved, *dim + 1);
  return {f.to(add_rows(f, f.wide(b.op("aten::reshape", {moved, flat})), *dim, index, sizes[at]), f.dtype(grad))};
}

/// Every padded position along a dim adds to the input position that it shows.
Ids pad_backward(Builder& b, const NodeView& n, bool reflect) {
  Portable f(b);
  const std::vector<Expr> pads = n.exprs("padding");
  const TensorType& in = n.type("self");
  ValueId grad = f.wide(n.value("grad_output"));
  if (pads.size() / 2 > in.sizes.size() || f.rank(grad) != in.rank()) return b.fail(Status(Code::kInvalidInput, str_cat("padding of ", shape_text(in.sizes)))), Ids{};
  for (size_t k = 0; k * 2 + 1 < pads.size(); ++k) {
    const int dim = in.rank() - 1 - static_cast<int>(k);
    const Expr size = in.sizes[static_cast<size_t>(dim)];
    ValueId at = f.add(f.arange(size + pads[2 * k] + pads[2 * k + 1]), Expr(0) - pads[2 * k]);
    if (reflect) {
      const ValueId folded = f.unary("aten::abs", f.add(f.unary("aten::abs", at), Expr(1) - size));
      at = b.op("aten::rsub.Scalar", {folded, size - Expr(1)});
    } else {
      at = b.op("aten::clamp", {at, Expr(0), size - Expr(1)});
    }
    grad = add_rows(f, grad, dim, at, size);
  }
  return {f.to(grad, in.dtype)};
}
Ids reflection_backward(Builder& b, const NodeView& n) { return pad_backward(b, n, true); }
Ids replication_backward(Builder& b, const NodeView& n) { return pad_backward(b, n, false); }

Ids embedding_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId grad = f.wide(n.value("grad_output"));
  const ValueId indices = f.to(n.value("indices"), DType::kInt64);
  const Expr count = ir::numel_of(f.sizes(indices)), width = f.size(grad, -1), rows = n.expr("num_weights");
  const ValueId index = f.view(indices, {count});
  ValueId source = f.view(grad, {count, width});
  if (n.boolean("scale_grad_by_freq")) {
    const ValueId one = b.op("aten::full", {std::vector<Expr>{count}, Expr(1), DType::kInt64});
    const ValueId often = b.op("aten::index_select", {add_rows(f, one, 0, index, rows), Expr(0), index});
    source = f.div(source, f.unsqueeze(often, 1));
  }
  source = f.where(f.unsqueeze(f.compare("eq", index, n.expr("padding_idx")), 1), 0.0, source);
  return {f.to(add_rows(f, source, 0, index, rows), n.type("grad_output").dtype)};
}

/// Indices count in the plane of their channel.
Ids max_pool_backward(Builder& b, const NodeView& n) {
  Portable f(b);
  const std::vector<Expr>& sizes = n.type("self").sizes;
  const auto planes = [&](ValueId x) {
    std::vector<Expr> flat(f.sizes(x).begin(), f.sizes(x).end() - 2);
    flat.push_back(f.size(x, -2) * f.size(x, -1));
    return f.view(x, std::move(flat));
  };
  const ValueId zeros = b.op("aten::full", {sizes, Expr(0), n.type("grad_output").dtype});
  return {f.view(b.op("aten::scatter_add", {planes(zeros), Expr(-1), planes(n.value("indices")), planes(n.value("grad_output"))}), sizes)};
}

#define OF_SIZES(text, how) {.schema = "aten::" text " -> Tensor", .infer = infer_sizes, .decompose = how}
#define OF_INPUT(text, how) {.schema = "aten::" text " -> Tensor", .infer = infer_like_input, .decompose = how}
constexpr OpDef kTable[] = {
    {.schema = "aten::_adaptive_avg_pool2d_backward(Tensor grad_output, Tensor self) -> Tensor", .infer = infer_like_input,
     .kernel = "aten::_adaptive_avg_pool2d_backward.out"},
    {.schema = "aten::avg_pool2d_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, "
               "bool count_include_pad, int? divisor_override) -> Tensor",
     .infer = infer_like_input, .kernel = "aten::avg_pool2d_backward.grad_input"},
    {.schema = "aten::convolution_backward(Tensor grad_output, Tensor input, Tensor weight, SymInt[]? bias_sizes, SymInt[] stride, SymInt[] padding, "
               "SymInt[] dilation, bool transposed, SymInt[] output_padding, SymInt groups, bool[3] output_mask) -> (Tensor, Tensor, Tensor)",
     .infer = infer_convolution, .kernel = "aten::convolution_backward.out"},
    OF_SIZES("diagonal_backward(Tensor grad_output, SymInt[] input_sizes, int offset, int dim1, int dim2)", diagonal_backward),
    {.schema = "aten::embedding_dense_backward(Tensor grad_output, Tensor indices, SymInt num_weights, SymInt padding_idx, bool scale_grad_by_freq) -> Tensor",
     .infer = infer_embedding, .decompose = embedding_backward},
    {.schema = "aten::max_pool2d_with_indices_backward(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, "
               "bool ceil_mode, Tensor indices) -> Tensor",
     .infer = infer_like_input, .decompose = max_pool_backward, .kernel = "aten::max_pool2d_with_indices_backward.grad_input"},
    OF_INPUT("reflection_pad1d_backward(Tensor grad_output, Tensor self, SymInt[2] padding)", reflection_backward),
    OF_INPUT("reflection_pad2d_backward(Tensor grad_output, Tensor self, SymInt[4] padding)", reflection_backward),
    OF_INPUT("reflection_pad3d_backward(Tensor grad_output, Tensor self, SymInt[6] padding)", reflection_backward),
    OF_INPUT("replication_pad1d_backward(Tensor grad_output, Tensor self, SymInt[2] padding)", replication_backward),
    OF_INPUT("replication_pad2d_backward(Tensor grad_output, Tensor self, SymInt[4] padding)", replication_backward),
    OF_INPUT("replication_pad3d_backward(Tensor grad_output, Tensor self, SymInt[6] padding)", replication_backward),
    OF_SIZES("select_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt index)", select_backward),
    OF_SIZES("slice_backward(Tensor grad_output, SymInt[] input_sizes, int dim, SymInt start, SymInt end, SymInt step)", slice_backward),
    OF_SIZES("unfold_backward(Tensor grad_in, SymInt[] input_sizes, int dim, int size, int step)", unfold_backward),
};
#undef OF_SIZES
#undef OF_INPUT

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::gradient_window
