// Inference helpers shared by op rooms.
#include "ops/infer.h"

#include <algorithm>
#include <numeric>

#include "base/str_cat.h"

namespace pteron::ops {

using ir::Arg;

DType scalar_dtype(Expr e) {
  if (e.type() == ir::ExprType::kFloat) return DType::kFloat32;
  return e.type() == ir::ExprType::kBool ? DType::kBool : DType::kInt64;
}

namespace {

void add_value(Promotion& p, const ir::Value& value) {
  if (value.kind == ir::ValueKind::kTensor) {
    p.add_tensor(value.type.dtype, value.type.rank());
    return;
  }
  if (value.kind == ir::ValueKind::kNone) return;
  const DType d = scalar_dtype(value.scalar);
  if (d == DType::kInt64) p.add_int();
  if (d == DType::kFloat32) p.add_float();
  if (d == DType::kBool) p.add_bool();
}

}  // namespace

DType result_type(const NodeView& node, std::initializer_list<std::string_view> names) {
  Promotion p;
  for (const std::string_view name : names) {
    const Arg& arg = node.arg(name);
    if (const auto* e = std::get_if<Expr>(&arg)) {
      const DType d = scalar_dtype(*e);
      if (d == DType::kInt64) p.add_int();
      if (d == DType::kFloat32) p.add_float();
      if (d == DType::kBool) p.add_bool();
    } else if (std::holds_alternative<std::complex<double>>(arg)) {
      p.add_complex();
    }
    ir::for_each_value(arg, std::function<void(ValueId)>([&](ValueId id) { add_value(p, node.graph()[id]); }));
  }
  return p.result();
}

DType to_float_dtype(DType dtype) { return is_integral(dtype, true) ? DType::kFloat32 : dtype; }

std::string shape_text(std::span<const Expr> sizes) {
  std::vector<std::string> texts;
  for (const Expr& s : sizes) texts.push_back(ir::to_text(s));
  return str_list(texts);
}

Status broadcast_exprs(std::span<const Expr> a, std::span<const Expr> b, std::vector<Expr>* out) {
  const size_t rank = std::max(a.size(), b.size());
  std::vector<Expr> result(rank, Expr(1));
  for (size_t i = 0; i < rank; ++i) {
    const Expr x = i < a.size() ? a[a.size() - 1 - i] : Expr(1);
    const Expr y = i < b.size() ? b[b.size() - 1 - i] : Expr(1);
    Expr& to = result[rank - 1 - i];
    if (dim_is(x, 1)) {
      to = y;
    } else if (dim_is(y, 1) || x == y || !dim_differ(x, y)) {
      // Dims that are not known to differ are equal in every program that torch.export accepted; a constant is the better name.
      to = !x.is_const() && y.is_const() && !dim_is(y, 1) ? y : x;
    } else {
      return Status(Code::kInvalidInput, str_cat("shapes ", shape_text(a), " and ", shape_text(b), " do not broadcast"));
    }
  }
  *out = std::move(result);
  return ok_status();
}

Status broadcast_args(const NodeView& node, std::initializer_list<std::string_view> names, std::vector<Expr>* out) {
  std::vector<Expr> sizes;
  for (const std::string_view name : names) {
    const ValueId id = node.value(name);
    if (!id.valid() || node.graph()[id].kind != ir::ValueKind::kTensor) continue;
    PTERON_TRY(broadcast_exprs(sizes, node.type(id).sizes, &sizes));
  }
  *out = std::move(sizes);
  return ok_status();
}

namespace {

/// Strides of a dense tensor with the dim order of `like`; false if `like` is not dense and non-overlapping.
bool strides_like(const TensorType& like, std::span<const Expr> sizes, std::vector<Expr>* out) {
  const size_t rank = sizes.size();
  std::vector<size_t> order(rank);
  std::iota(order.begin(), order.end(), size_t{0});
  if (!std::all_of(like.strides.begin(), like.strides.end(), [](const Expr& e) { return ir::bounds(e).min >= 0; })) return false;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return ir::bounds(like.strides[a] - like.strides[b]).min > 0;
  });
  std::vector<Expr> strides(rank, Expr(1));
  Expr stride = 1;
  for (size_t i = rank; i-- > 0;) {
    const size_t d = order[i];
    if (!dim_is(sizes[d], 1) && !(like.strides[d] == stride)) return false;
    strides[d] = stride;
    stride = stride * dim_max(sizes[d], 1);
  }
  *out = std::move(strides);
  return true;
}

}  // namespace

TensorType elementwise_type(const NodeView& node, DType dtype, std::vector<Expr> sizes, std::initializer_list<std::string_view> names) {
  TensorType type = ir::contiguous_type(dtype, std::move(sizes));
  for (const std::string_view name : names) {
    const ValueId id = node.value(name);
    if (!id.valid() || node.graph()[id].kind != ir::ValueKind::kTensor) continue;
    const TensorType& like = node.type(id);
    type.device = like.device;
    if (like.sizes != type.sizes) continue;
    if (ir::is_contiguous(like)) return type;
    std::vector<Expr> strides;
    if (strides_like(like, type.sizes, &strides)) {
      type.strides = std::move(strides);
      return type;
    }
  }
  return type;
}

Result<int> wrap_dim_of(int64_t dim, int rank) {
  const int64_t limit = std::max(rank, 1);
  if (dim < -limit || dim >= limit) return Status(Code::kInvalidInput, str_cat("dim ", dim, " is outside [", -limit, ",", limit - 1, "]"));
  return static_cast<int>(dim < 0 ? dim + limit : dim);
}

namespace {

Status like_self(InferContext& c, DType dtype) {
  const std::string_view name = c.op().schema.args[0].name;
  c.add(elementwise_type(c, dtype, c.type(name).sizes, {name}));
  return ok_status();
}

DType self_dtype(InferContext& c) { return c.type(c.op().schema.args[0].name).dtype; }

Status binary(InferContext& c, DType dtype) {
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {"self", "other"}, &sizes));
  c.add(elementwise_type(c, dtype, std::move(sizes), {"self", "other"}));
  return ok_status();
}

}  // namespace

Status infer_like_self(InferContext& c) { return like_self(c, self_dtype(c)); }
Status infer_float_like_self(InferContext& c) { return like_self(c, to_float_dtype(self_dtype(c))); }
Status infer_bool_like_self(InferContext& c) { return like_self(c, DType::kBool); }
Status infer_binary(InferContext& c) { return binary(c, result_type(c, {"self", "other"})); }
Status infer_binary_float(InferContext& c) { return binary(c, to_float_dtype(result_type(c, {"self", "other"}))); }
Status infer_binary_bool(InferContext& c) { return binary(c, DType::kBool); }

}  // namespace pteron::ops
