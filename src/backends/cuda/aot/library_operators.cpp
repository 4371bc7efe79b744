// Schemas and inference of products, convolutions and attention, and which nodes of a graph become them.
#include <algorithm>

#include "backends/cuda/aot/library.h"
#include "backends/cuda/plain_kernels.h"
#include "base/str_cat.h"
#include "ops/conv/shape.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using backends::Support;
using ir::Expr;
using ir::Graph;
using ir::InferContext;
using ir::Node;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;

Status infer_product(InferContext& c) {
  const TensorType &a = c.type("a"), &b = c.type("b");
  if (a.rank() < 1 || b.rank() < 2 || (b.rank() > 2 && a.rank() != b.rank())) return Status(Code::kInvalidInput, str_cat(c.op().name, ": ranks do not fit"));
  std::vector<Expr> sizes = a.sizes;
  sizes.back() = b.sizes[b.sizes.size() - (c.boolean("turned") ? 2 : 1)];
  c.add(a.dtype == DType::kInt8 ? DType::kInt32 : is_float8(a.dtype) ? DType::kFloat32 : a.dtype, std::move(sizes));
  return ok_status();
}

Status infer_narrow_rows(InferContext& c) {
  const TensorType &x = c.type("x"), &weight = c.type("weight");
  if (x.rank() < 1 || weight.rank() != 2) return Status(Code::kInvalidInput, "pteron_cuda::narrow_rows: ranks do not fit");
  std::vector<Expr> sizes = x.sizes;
  sizes.back() = weight.sizes[0];
  c.add(x.dtype, std::move(sizes));
  return ok_status();
}

Status infer_row_product(InferContext& c) {
  const TensorType &x = c.type("x"), &weight = c.type("weight");
  if (x.rank() < 1 || weight.rank() != 2) return Status(Code::kInvalidInput, "pteron_cuda::row_product: ranks do not fit");
  std::vector<Expr> sizes = x.sizes;
  sizes.back() = weight.sizes[0];
  c.add(x.dtype, std::move(sizes));
  return ok_status();
}

/// A channels-last type.
TensorType image_type(DType dtype, std::vector<Expr> sizes) {
  TensorType type = ir::contiguous_type(dtype, std::move(sizes));
  Expr stride = dim_max(type.sizes[1], 1);
  type.strides[1] = 1;
  for (size_t d = type.sizes.size() - 1; d >= 2; --d) {
    type.strides[d] = stride;
    stride = stride * dim_max(type.sizes[d], 1);
  }
  type.strides[0] = stride;
  return type;
}

/// One result a weight; the second weight of few_rows is that of a gate.
Status infer_few_rows(InferContext& c) {
  const TensorType& x = c.type("x");
  for (const char* name : {"weight", "weight1", "weight2"}) {
    if (c.op().schema.find(name) < 0) continue;
    const TensorType& weight = c.type(name);
    if (x.rank() < 1 || weight.rank() != 2) return Status(Code::kInvalidInput, str_cat(c.op().name, ": ranks do not fit"));
    std::vector<Expr> sizes = x.sizes;
    sizes.back() = weight.sizes[0];
    c.add(x.dtype, std::move(sizes));
  }
  return ok_status();
}

/// The weight is [outputs, ..., inputs of a group]; of a transposed convolution [inputs, ..., outputs of a group].
Status infer_convolution(InferContext& c) {
  const TensorType &x = c.type("x"), &weight = c.type("weight");
  if (x.rank() < 3 || x.rank() > 5 || weight.rank() != x.rank()) return Status(Code::kInvalidInput, "pteron_cuda::convolution: ranks do not fit");
  const std::vector<Expr> stride = c.exprs("stride"), padding = c.exprs("padding"), dilation = c.exprs("dilation"), extra = c.exprs("output_padding");
  const size_t dims = static_cast<size_t>(x.rank()) - 2;
  if (stride.size() != dims || padding.size() != dims || dilation.size() != dims)
    return Status(Code::kInvalidInput, "pteron_cuda::convolution: lists do not fit");
  const bool transposed = c.boolean("transposed");
  std::vector<Expr> sizes{x.sizes[0], transposed ? weight.sizes.back() * c.expr("groups") : weight.sizes[0]};
  for (size_t d = 0; d < dims; ++d) {
    const Expr in = x.sizes[d + 2], kernel = weight.sizes[d + 1];
    sizes.push_back(transposed ? ops::conv::transposed_size(in, kernel, stride[d], padding[d], dilation[d], extra.at(d))
                               : ops::conv::forward_size(in, kernel, stride[d], padding[d], dilation[d]));
  }
  c.add(image_type(x.dtype, std::move(sizes)));
  return ok_status();
}

Status infer_integer_sums(InferContext& c) {
  const TensorType &x = c.type("x"), &weight = c.type("weight");
  const std::vector<Expr> stride = c.exprs("stride"), padding = c.exprs("padding"), dilation = c.exprs("dilation");
  const size_t dims = stride.size();
  if (dims < 1 || dims > 2 || x.sizes.size() != dims + 2 || weight.sizes.size() != dims + 2 || padding.size() != dims || dilation.size() != dims) {
    return Status(Code::kInvalidInput, "pteron_cuda::integer_sums: ranks do not fit");
  }
  std::vector<Expr> sizes{x.sizes[0], weight.sizes[0]};
  for (size_t d = 0; d < dims; ++d) sizes.push_back(ops::conv::forward_size(x.sizes[d + 2], weight.sizes[d + 1], stride[d], padding[d], dilation[d]));
  c.add(image_type(DType::kInt32, std::move(sizes)));
  return ok_status();
}

Status infer_depthwise(InferContext& c) {
  const TensorType &x = c.type("x"), &weight = c.type("weight");
  const std::vector<Expr> stride = c.exprs("stride"), padding = c.exprs("padding");
  if (x.rank() != 4 || weight.rank() != 4 || stride.size() != 2 || padding.size() != 2)
    return Status(Code::kInvalidInput, "pteron_cuda::depthwise: ranks or lists do not fit");
  std::vector<Expr> sizes{x.sizes[0], weight.sizes[0]};
  for (size_t d = 0; d < 2; ++d) sizes.push_back(ops::conv::forward_size(x.sizes[d + 2], weight.sizes[d + 1], stride[d], padding[d], Expr(1)));
  TensorType type = ir::contiguous_type(x.dtype, std::move(sizes));
  const Expr channels = dim_max(type.sizes[1], 1), row = channels * dim_max(type.sizes[3], 1);
  type.strides = {row * dim_max(type.sizes[2], 1), 1, row, channels};
  c.add(std::move(type));
  return ok_status();
}

Status infer_attention(InferContext& c) {
  const TensorType &q = c.type("query"), &k = c.type("key"), &v = c.type("value");
  if (q.rank() < 2 || q.rank() > 4 || k.rank() < 2 || v.rank() != k.rank() || q.rank() < k.rank())
    return Status(Code::kInvalidInput, "pteron_cuda::attention: ranks do not fit");
  std::vector<Expr> sizes(q.sizes.begin(), q.sizes.end() - 2);
  const std::vector<Expr> own = sizes;
  if (!c.boolean("gqa")) PTERON_TRY(ops::broadcast_exprs(own, std::span(k.sizes).first(k.sizes.size() - 2), &sizes));
  sizes.push_back(q.sizes[q.sizes.size() - 2]);
  sizes.push_back(v.sizes.back());
  c.add(q.dtype, std::move(sizes));
  return ok_status();
}

constexpr ir::OpDef kRows[] = {
    {.schema =
         "pteron_cuda::product(Tensor a, Tensor b, Tensor? bias, Tensor? residual, float alpha, float beta, str activation, bool turned, bool tf32) -> Tensor",
     .infer = infer_product,
     .kernel = "pteron_cuda::product.out"},
    {.schema = "pteron_cuda::row_product(Tensor x, Tensor weight, Tensor? gate_weight, Tensor? bias, Tensor? residual, str kernel, int rows_a_block) -> Tensor",
     .infer = infer_row_product,
     .kernel = "pteron_cuda::row_product.out"},
    {.schema = "pteron_cuda::narrow_rows(Tensor x, Tensor weight, Tensor? scale, Tensor? bias, Tensor? residual, str kernel, int columns_a_block) -> Tensor",
     .infer = infer_narrow_rows,
     .kernel = "pteron_cuda::narrow_rows.out"},
    {.schema = "pteron_cuda::few_rows(Tensor x, Tensor weight, Tensor? up_weight, Tensor? factors, Tensor? bias, Tensor? residual, float eps, str kernel, "
               "int[] shape) -> Tensor",
     .infer = infer_few_rows,
     .kernel = "pteron_cuda::few_rows.out"},
    {.schema = "pteron_cuda::few_rows2(Tensor x, Tensor weight, Tensor weight1, Tensor? factors, float eps, str kernel, int[] shape) -> (Tensor, Tensor)",
     .infer = infer_few_rows,
     .kernel = "pteron_cuda::few_rows2.out"},
    {.schema = "pteron_cuda::few_rows3(Tensor x, Tensor weight, Tensor weight1, Tensor weight2, Tensor? factors, float eps, str kernel, int[] shape) -> "
               "(Tensor, Tensor, Tensor)",
     .infer = infer_few_rows,
     .kernel = "pteron_cuda::few_rows3.out"},
    {.schema =
         "pteron_cuda::convolution(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int[] stride, int[] padding, int[] dilation, bool transposed, "
         "int[] output_padding, int groups, str activation, bool tf32, str tail) -> Tensor",
     .infer = infer_convolution,
     .kernel = "pteron_cuda::convolution.out"},
    {.schema = "pteron_cuda::integer_sums(Tensor x, Tensor weight, int[] stride, int[] padding, int[] dilation, int groups, str kernel, int[] block) -> Tensor",
     .infer = infer_integer_sums,
     .kernel = "pteron_cuda::integer_sums.out"},
    {.schema =
         "pteron_cuda::depthwise(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, int[] stride, int[] padding, str kernel, int[] shape) -> Tensor",
     .infer = infer_depthwise,
     .kernel = "pteron_cuda::depthwise.out"},
    {.schema = "pteron_cuda::attention(Tensor query, Tensor key, Tensor value, Tensor[] masks, bool causal, float scale, bool gqa, str kernel, str merge, "
               "int[] shape) -> Tensor",
     .infer = infer_attention,
     .kernel = "pteron_cuda::attention.out"},
};

constexpr std::string_view kProducts[] = {"aten::linear", "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"};

bool is_product(const Node& node) { return std::ranges::find(kProducts, node.op->name) != std::end(kProducts); }

Support supports_product(const NodeView& n) {
  DType dtype = DType::kFloat32;
  bool first = true;
  for (const ir::SchemaArg& arg : n.op().schema.args) {
    if (!n.is_value(arg.name)) continue;
    const TensorType& type = n.type(arg.name);
    if (!first && type.dtype != dtype) return Support::no("a product of different dtypes");
    dtype = type.dtype;
    first = false;
    for (const Expr& size : type.sizes) {
      if (dim_is(size, 0)) return Support::no("a product of empty tensors");
    }
  }
  const bool integers = is_integral(dtype, false) && (n.op().name == "aten::mm" || n.op().name == "aten::bmm");
  if (!is_library_dtype(dtype, true) && !integers) return Support::no(str_cat("a product of ", dtype_name(dtype)));
  for (const char* factor : {"alpha", "beta"}) {
    if (n.has(factor) && !ir::is_number(n.expr(factor))) return Support::no(str_cat("a product whose ", factor, " is computed"));
  }
  return {};
}

Support supports_convolution(const NodeView& n) {
  const TensorType &x = n.type("input"), &weight = n.type("weight");
  if (!is_library_dtype(x.dtype, false) || weight.dtype != x.dtype) return Support::no(str_cat("a convolution of ", dtype_name(x.dtype)));
  if (x.rank() < 3 || x.rank() > 5 || weight.rank() != x.rank()) return Support::no(str_cat("a convolution of rank ", x.rank()));
  if (n.value("bias").valid() && n.type("bias").dtype != x.dtype) return Support::no("a convolution with a bias of another dtype");
  for (const char* list : {"stride", "padding", "dilation", "output_padding"}) {
    if (!n.all_const(list)) return Support::no(str_cat("a convolution whose ", list, " is computed"));
  }
  if (!n.expr("groups").is_const()) return Support::no("a convolution whose number of groups is computed");
  if (!weight.is_static()) return Support::no("a convolution with a weight of varying size");
  for (const TensorType* type : {&x, &weight}) {
    for (const Expr& size : type->sizes) {
      if (dim_is(size, 0)) return Support::no("a convolution of empty tensors");
    }
  }
  return {};
}

Support supports_attention(const NodeView& n) {
  const TensorType &q = n.type("query"), &k = n.type("key"), &v = n.type("value");
  if (!is_library_dtype(q.dtype, false) || k.dtype != q.dtype || v.dtype != q.dtype) return Support::no(str_cat("attention of ", dtype_name(q.dtype)));
  if (n.number("dropout_p") != 0) return Support::no("attention with dropout");
  if (q.rank() > 4 || q.rank() < 2 || k.rank() != q.rank() || v.rank() != q.rank()) return Support::no("attention of such ranks");
  if (!q.sizes.back().is_const() || !v.sizes.back().is_const()) return Support::no("attention of varying width");
  if (q.sizes.back().value() < 1 || q.sizes.back().value() > 256 || v.sizes.back().value() < 1 || v.sizes.back().value() > 256) {
    return Support::no("attention with heads wider than 256");
  }
  if (!n.is_none("scale") && !ir::is_number(n.expr("scale"))) return Support::no("attention with a computed scale");
  if (!ir::is_number(n.expr("is_causal")) || !ir::is_number(n.expr("enable_gqa"))) return Support::no("attention that is causal or grouped by a computed flag");
  const ValueId mask = n.value("attn_mask");
  if (mask.valid() && n.type("attn_mask").dtype != DType::kBool && n.type("attn_mask").dtype != q.dtype && n.type("attn_mask").dtype != DType::kFloat32) {
    return Support::no(str_cat("attention with a mask of ", dtype_name(n.type("attn_mask").dtype)));
  }
  if (mask.valid() && (n.type("attn_mask").rank() < 1 || n.type("attn_mask").rank() > 4)) return Support::no("attention with a mask of such a rank");
  return {};
}

}  // namespace

std::span<const ir::OpDef> library_operators() { return kRows; }

bool is_library_dtype(DType dtype, bool wide) {
  return dtype == DType::kFloat32 || dtype == DType::kFloat16 || dtype == DType::kBFloat16 || (wide && dtype == DType::kFloat64);
}

bool is_library_node(const Node& node) {
  return is_product(node) || node.op->name == "aten::convolution" || node.op->name == "aten::scaled_dot_product_attention";
}

Support library_supports(const Graph& graph, const Node& node) {
  const NodeView view(graph, *node.op, node.args);
  if (is_product(node)) return supports_product(view);
  return node.op->name == "aten::convolution" ? supports_convolution(view) : supports_attention(view);
}

ValueId add_library_node(ir::Builder& builder, const ir::Catalog& catalog, std::string_view name, std::vector<ir::Arg> args) {
  const ir::Op* op = catalog.find(name);
  if (op == nullptr) return {};
  Result<std::vector<ir::Arg>> completed = ir::complete_args(*op, std::move(args), builder.exprs());
  if (!completed.ok()) return {};
  Graph& graph = builder.graph();
  const Result<ir::NodeId> made = ir::make_node(graph, *op, std::move(completed).value(), name.substr(name.find("::") + 2));
  if (!made.ok()) return {};
  builder.append(made.value());
  return graph[made.value()].outputs[0];
}

ir::Arg optional_arg(ValueId id) {
  if (id.valid()) return id;
  return std::monostate();
}

const Node* node_of(const Graph& graph, ValueId id, std::string_view op) {
  if (!id.valid() || !graph[id].producer.valid()) return nullptr;
  const Node& node = graph[graph[id].producer];
  return node.op->name == op ? &node : nullptr;
}

Status lower_library(Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options) {
  PTERON_TRY(lower_attention(graph, engine, catalog, sources));
  PTERON_TRY(lower_convolutions(graph, engine, catalog, sources, options));
  PTERON_TRY(lower_products(graph, engine, catalog, sources, options));
  // Behind every library call stands a kernel that takes what the library refuses.
  const bool calls_library = std::ranges::any_of(graph.order, [&](ir::NodeId id) { return graph[id].op->name.starts_with("pteron_cuda::"); });
  if (calls_library) sources.add_shared(std::string(kPlainKernelsText));
  return ok_status();
}

}  // namespace pteron::cuda
