// softmax, log_softmax and logsumexp for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <limits>
#include <span>

#include "ops/reduce_infer.h"

namespace pteron::ops::softmax {
namespace {

using ir::Arg;
using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_softmax(InferContext& c) {
  const TensorType& self = c.type("self");
  PTERON_TRY(wrap_dim_of(c.integer("dim"), self.rank()).status());
  DType dtype = self.dtype;
  if (c.has("dtype")) dtype = c.dtype("dtype", dtype);
  if (c.has("half_to_float") && c.boolean("half_to_float")) dtype = DType::kFloat32;
  if (!is_floating(dtype)) return Status(Code::kInvalidInput, str_cat("softmax of dtype ", dtype_name(dtype), ": the dtype must be floating"));
  c.add(dtype, self.sizes);
  return ok_status();
}

Status infer_logsumexp(InferContext& c) {
  if (c.type("self").dtype == DType::kComplexHalf) return Status(Code::kUnsupported, "logsumexp of complex numbers of 16 bits");
  return add_reduced(c, to_float_dtype(c.type("self").dtype));
}

ValueId converted(Builder& b, const NodeView& n) { return cast_to(b, n.value("self"), n.dtype("dtype", n.type("self").dtype)); }

Ids decompose_softmax(Builder& b, const NodeView& n) {
  return {b.op("aten::_softmax", {converted(b, n), n.expr("dim"), b.boolean(false)})};
}
Ids decompose_log_softmax(Builder& b, const NodeView& n) {
  return {b.op("aten::_log_softmax", {converted(b, n), n.expr("dim"), b.boolean(false)})};
}

/// x - max - log(sum(exp(x - max))). For profiles without the kernel of this dtype.
Ids decompose_plain_log_softmax(Builder& b, const NodeView& n) {
  const ValueId x = n.value("self");
  if (n.boolean("half_to_float") || is_reduced_float(b.type(x).dtype)) return {};
  if (dim_is(ir::numel_of(b.type(x).sizes), 0)) return {x};
  const std::vector<Expr> dim{n.expr("dim")};
  const ValueId centered = b.op("aten::sub.Tensor", {x, b.op("aten::amax", {x, dim, b.boolean(true)})});
  const ValueId sum = b.op("aten::sum.dim_IntList", {b.op("aten::exp", {centered}), dim, b.boolean(true)});
  return {b.op("aten::sub.Tensor", {centered, b.op("aten::log", {sum})})};
}

/// softmax with zeros in slices that are -inf throughout.
Ids decompose_safe_softmax(Builder& b, const NodeView& n) {
  const ValueId x = converted(b, n);
  const ValueId softmax = b.op("aten::_softmax", {x, n.expr("dim"), b.boolean(false)});
  const ValueId masked = b.op("aten::eq.Scalar", {x, b.floating(-std::numeric_limits<double>::infinity())});
  const ValueId whole = b.op("aten::logical_not", {b.op("aten::any.dim", {b.op("aten::logical_not", {masked}), n.expr("dim"), b.boolean(true)})});
  return {b.op("aten::where.self", {whole, b.scalar_tensor(0, b.type(softmax).dtype), softmax})};
}

Ids decompose_special_logsumexp(Builder& b, const NodeView& n) {
  return {b.op("aten::logsumexp", {n.value("self"), n.arg("dim"), n.arg("keepdim")})};
}

/// For profiles without the kernel.
Ids decompose_logsumexp(Builder& b, const NodeView& n) {
  if (is_complex(n.type("self").dtype)) return {};
  const DType out = to_float_dtype(n.type("self").dtype);
  const DType compute = is_reduced_float(out) ? DType::kFloat32 : out;
  const ValueId x = cast_to(b, n.value("self"), compute);
  const TensorType& self = n.type("self");
  auto mask = dims_mask(n, "dim", self.rank());
  if (!mask.ok()) {
    b.fail(std::move(mask).status());
    return {};
  }
  const std::vector<Expr> dims = mask_dims(*mask, self.rank());
  if (dim_is(reduced_count(self.sizes, *mask), 0)) {  // no maximum of nothing
    const ValueId sum = b.op("aten::sum.dim_IntList", {b.op("aten::exp", {x}), dims, n.arg("keepdim")});
    return {cast_to(b, b.op("aten::log", {sum}), out)};
  }
  const ValueId max = b.op("aten::amax", {x, dims, b.boolean(true)});
  const ValueId infinite = b.op("aten::eq.Scalar", {b.op("aten::abs", {max}), b.floating(std::numeric_limits<double>::infinity())});
  const ValueId shift = b.op("aten::where.self", {infinite, b.scalar_tensor(0, compute), max});
  const ValueId exps = b.op("aten::exp", {b.op("aten::sub.Tensor", {x, shift})});
  const ValueId sum = b.op("aten::sum.dim_IntList", {exps, dims, n.arg("keepdim")});
  const bool keepdim = n.boolean("keepdim");
  const ValueId back = keepdim ? shift : b.op("aten::view", {shift, reduced_exprs(self.sizes, *mask, false)});
  return {cast_to(b, b.op("aten::add.Tensor", {b.op("aten::log", {sum}), back}), out)};
}

constexpr OpDef kTable[] = {
    {.schema = "aten::_softmax(Tensor self, int dim, bool half_to_float) -> Tensor", .infer = infer_softmax, .kernel = "aten::_softmax.out"},
    {.schema = "aten::_log_softmax(Tensor self, int dim, bool half_to_float) -> Tensor",
     .infer = infer_softmax,
     .decompose = decompose_plain_log_softmax,
     .kernel = "aten::_log_softmax.out"},
    {.schema = "aten::softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     .infer = infer_softmax,
     .decompose = decompose_softmax},
    {.schema = "aten::log_softmax.int(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     .infer = infer_softmax,
     .decompose = decompose_log_softmax},
    {.schema = "aten::special_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     .infer = infer_softmax,
     .decompose = decompose_softmax},
    {.schema = "aten::special_log_softmax(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
     .infer = infer_softmax,
     .decompose = decompose_log_softmax},
    {.schema = "aten::_safe_softmax(Tensor self, int dim, ScalarType? dtype=None) -> Tensor",
     .infer = infer_softmax,
     .decompose = decompose_safe_softmax},
    {.schema = "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
     .infer = infer_logsumexp,
     .decompose = decompose_logsumexp,
     .kernel = "aten::logsumexp.out"},
    {.schema = "aten::special_logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
     .infer = infer_logsumexp,
     .decompose = decompose_special_logsumexp},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::softmax
