// View ops with one result: rows, and decompositions of the composite ones to the core set (view, permute, expand, select.int,
// slice.Tensor, squeeze.dims, unsqueeze, diagonal, unfold, view.dtype, view_as_real, view_as_complex). Splits are in ops/split.
#include <array>

#include "base/str_cat.h"
#include "ir/places.h"
#include "ops/catalog.h"
#include "ops/view/shapers.h"
#include "ops/view/storage.h"

namespace pteron::ops::view {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

template <Permutation dims>
Ids decompose_permuted(Builder& b, const NodeView& n) {
  auto order = dims(n);
  if (!order.ok()) {
    b.fail(std::move(order).status());
    return {};
  }
  return {permute_to(b, first_value(n), *order)};
}

/// mH and adjoint: transposed and conjugated.
Ids decompose_adjoint(Builder& b, const NodeView& n) {
  Ids ids = decompose_permuted<dims_last_swapped>(b, n);
  if (ids.empty() || !is_complex(b.type(ids[0]).dtype)) return ids;
  return {b.op("aten::conj", {ids[0]})};
}

/// A dim that varies stays, as the archive says. PyTorch drops it in calls where it is 1: these are refused, in profiles that can refuse a call.
void check_not_one(Builder& b, const NodeView& n, int64_t dim) {
  constexpr std::string_view kKernel = "pteron::_assert_scalar.out";
  const Expr size = n.type("self").sizes[static_cast<size_t>(dim)];
  const ir::Range range = ir::bounds(size);
  if (range.min > 1 || range.max < 1 || (b.has_kernel && !b.has_kernel(kKernel))) return;
  const std::array<Expr, 2> args = {size, Expr(1)};
  const Expr condition = b.exprs().make(ir::ExprOp::kNe, args);
  b.ops("aten::_assert_scalar", {condition, str_cat("squeeze of dim ", dim, ": expected ", ir::text_with_places(condition, n.graph()),
                                                    ": PyTorch drops a dim of size 1 there, the exported program keeps it; export a squeeze that names its dims")});
}

Ids decompose_squeeze(Builder& b, const NodeView& n) {
  const TensorType& self = n.type("self");
  std::vector<int64_t> asked;
  if (n.has("dim")) {
    asked = n.integers("dim");
  } else {
    for (int d = 0; d < self.rank(); ++d) asked.push_back(d);
  }
  std::vector<int64_t> dims;
  for (const int64_t d : asked) {
    const int64_t at = d < 0 ? d + self.rank() : d;
    if (at < 0 || at >= self.rank()) continue;
    if (dim_is(self.sizes[static_cast<size_t>(at)], 1)) {
      dims.push_back(at);
    } else {
      check_not_one(b, n, at);
    }
  }
  if (dims.empty()) return {n.value("self")};
  return {b.op("aten::squeeze.dims", {n.value("self"), expr_list(dims)})};
}

/// squeeze.dims stays when every dim it names has the static size 1.
Ids decompose_squeeze_dims(Builder& b, const NodeView& n) {
  const TensorType& self = n.type("self");
  for (const int64_t d : n.integers("dim")) {
    const int64_t at = d < 0 ? d + self.rank() : d;
    if (at < 0 || at >= self.rank() || !dim_is(self.sizes[static_cast<size_t>(at)], 1)) return decompose_squeeze(b, n);
  }
  return {};
}

template <Shaper fn>
Ids decompose_to_expand(Builder& b, const NodeView& n) {
  auto v = shaped(n, 0, fn);
  if (!v.ok()) {
    b.fail(std::move(v).status());
    return {};
  }
  return {b.op("aten::expand", {first_value(n), std::vector<Expr>(v->sizes.begin(), v->sizes.end()), b.boolean(false)})};
}

Ids decompose_narrow(Builder& b, const NodeView& n) {
  const int64_t dim = n.integer("dim");
  auto at = wrap_dim_of(dim, n.type("self").rank());
  if (!at.ok()) {
    b.fail(std::move(at).status());
    return {};
  }
  if (n.type("self").rank() == 0) {
    b.fail(Status(Code::kInvalidInput, "narrow of a tensor of rank 0"));
    return {};
  }
  const Expr start = wrapped(n.expr("start"), n.type("self").sizes[static_cast<size_t>(*at)]);
  return {slice_to(b, n.value("self"), dim, start, start + n.expr("length"))};
}

Status infer_narrow_tensor(InferContext& c) {
  PTERON_ASSIGN(Layout v, layout_of(c.type("self")));
  PTERON_ASSIGN(const int dim, wrap_dim_of(c.integer("dim"), v.rank()));
  if (v.rank() == 0) return Status(Code::kInvalidInput, "narrow of a tensor of rank 0");
  v.sizes[static_cast<size_t>(dim)] = c.expr("length");
  c.add(type_of(v, c.type("self").dtype, c.type("self").device));
  return ok_status();
}

Ids decompose_narrow_tensor(Builder& b, const NodeView& n) {
  const ValueId start = b.op("aten::_local_scalar_dense", {n.value("start")});
  if (!start.valid()) return {};
  const Expr from = b.graph()[start].scalar;
  return {slice_to(b, n.value("self"), n.integer("dim"), from, from + n.expr("length"))};
}

Ids decompose_linalg_diagonal(Builder& b, const NodeView& n) {
  return {b.op("aten::diagonal", {n.value("A"), n.expr("offset"), n.expr("dim1"), n.expr("dim2")})};
}

/// Element size of the old dtype over that of the new one changes the last dim.
Status shape_view_dtype(const NodeView& n, size_t, Layout& v, bool* aliases) {
  const auto from = static_cast<int64_t>(dtype_size(n.type("self").dtype));
  const auto to = static_cast<int64_t>(dtype_size(n.dtype("dtype", DType::kFloat32)));
  if (from == to) return ok_status();
  if (v.rank() == 0) return Status(Code::kInvalidInput, "view of a scalar tensor as a dtype of another size");
  Expr& last = v.sizes[v.sizes.size() - 1];
  *aliases = dim_is(v.strides[v.sizes.size() - 1], 1);
  for (size_t d = 0; d + 1 < v.sizes.size(); ++d) v.strides[d] = from > to ? v.strides[d] * Expr(from / to) : floor_div(v.strides[d], Expr(to / from));
  v.offset = from > to ? v.offset * Expr(from / to) : floor_div(v.offset, Expr(to / from));
  last = from > to ? last * Expr(from / to) : floor_div(last, Expr(to / from));
  return ok_status();
}

Status infer_view_dtype(InferContext& c) {
  PTERON_ASSIGN(const Layout v, shaped(c, 0, shape_view_dtype));
  c.add(type_of(v, c.dtype("dtype", DType::kFloat32), c.type("self").device));
  return ok_status();
}

Status shape_as_real(const NodeView&, size_t, Layout& v, bool*) {
  if (v.rank() >= kMaxRank) return Status(Code::kUnsupported, "rank");
  for (Expr& s : v.strides) s = s * Expr(2);
  v.offset = v.offset * Expr(2);
  v.sizes.push_back(Expr(2));
  v.strides.push_back(Expr(1));
  return ok_status();
}

Status infer_view_as_real(InferContext& c) {
  const DType dtype = c.type("self").dtype;
  if (!is_complex(dtype)) return Status(Code::kInvalidInput, str_cat("view_as_real of dtype ", dtype_name(dtype)));
  PTERON_ASSIGN(const Layout v, shaped(c, 0, shape_as_real));
  c.add(type_of(v, real_dtype(dtype), c.type("self").device));
  return ok_status();
}

/// real (part 0) and imag (part 1): every second real number. The real part of a real tensor is the tensor.
template <int part>
Status shape_part(const NodeView& n, size_t, Layout& v, bool*) {
  if (!is_complex(n.type("self").dtype)) return ok_status();
  for (Expr& s : v.strides) s = s * Expr(2);
  v.offset = v.offset * Expr(2) + Expr(part);
  return ok_status();
}
template <int part>
Status infer_part(InferContext& c) {
  const DType dtype = c.type("self").dtype;
  if (part == 1 && !is_complex(dtype)) return Status(Code::kInvalidInput, str_cat("imag of dtype ", dtype_name(dtype)));
  PTERON_ASSIGN(const Layout v, shaped(c, 0, shape_part<part>));
  c.add(type_of(v, real_dtype(dtype), c.type("self").device));
  return ok_status();
}
template <int part>
Ids decompose_part(Builder& b, const NodeView& n) {
  const ValueId self = n.value("self");
  if (!is_complex(n.type("self").dtype)) return {self};
  return {b.op("aten::select.int", {b.op("aten::view_as_real", {self}), Expr(-1), Expr(part)})};
}
template <int part>
constexpr OpDef part_of(std::string_view schema) {
  return {.schema = schema, .infer = infer_part<part>, .decompose = decompose_part<part>, .view = view_fn<shape_part<part>>};
}

Status shape_as_complex(const NodeView&, size_t, Layout& v, bool* aliases) {
  if (v.rank() == 0 || !dim_is(v.sizes.back(), 2)) return Status(Code::kInvalidInput, "view_as_complex needs a last dim of size 2");
  *aliases = dim_is(v.strides.back(), 1);
  v.sizes.pop_back();
  v.strides.pop_back();
  for (Expr& s : v.strides) s = floor_div(s, Expr(2));
  v.offset = floor_div(v.offset, Expr(2));
  return ok_status();
}

Status infer_view_as_complex(InferContext& c) {
  const DType dtype = c.type("self").dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return Status(Code::kUnsupported, str_cat("view_as_complex of dtype ", dtype_name(dtype)));
  PTERON_ASSIGN(const Layout v, shaped(c, 0, shape_as_complex));
  c.add(type_of(v, dtype == DType::kFloat32 ? DType::kComplexFloat : DType::kComplexDouble, c.type("self").device));
  return ok_status();
}

/// A view op that stays: it has a kernel for the case that memory must be copied.
template <Shaper fn>
constexpr OpDef core(std::string_view schema, std::string_view kernel) {
  return {.schema = schema, .infer = infer_view<fn>, .kernel = kernel, .view = view_fn<fn>};
}
template <Shaper fn>
constexpr OpDef composite(std::string_view schema, ir::DecomposeFn decompose) {
  return {.schema = schema, .infer = infer_view<fn>, .decompose = decompose, .view = view_fn<fn>};
}
/// X_copy: becomes the view op X, since values are immutable once the graph is functional.
template <Shaper fn>
constexpr OpDef copying(std::string_view schema) {
  return {.schema = schema, .infer = infer_copy<fn>, .decompose = decompose_copy};
}
template <Permutation dims>
constexpr OpDef permuting(std::string_view schema) {
  return composite<shape_permuted<dims>>(schema, decompose_permuted<dims>);
}
template <Shaper fn>
constexpr OpDef viewing(std::string_view schema) {
  return composite<fn>(schema, decompose_to_view<fn>);
}

constexpr OpDef kTable[] = {
    core<shape_view>("aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", "aten::view_copy.out"),
    core<shape_permuted<dims_of_permute>>("aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)", "aten::permute_copy.out"),
    core<shape_expand>("aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)", "aten::expand_copy.out"),
    core<shape_select>("aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", "aten::select_copy.int_out"),
    core<shape_slice>("aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
                      "aten::slice_copy.Tensor_out"),
    {.schema = "aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)",
     .infer = infer_view<shape_squeeze_dims>,
     .decompose = decompose_squeeze_dims,
     .kernel = "aten::squeeze_copy.dims_out",
     .view = view_fn<shape_squeeze_dims>},
    core<shape_unsqueeze>("aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", "aten::unsqueeze_copy.out"),
    core<shape_diagonal>("aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)", "aten::diagonal_copy.out"),
    core<shape_unfold>("aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)", "aten::unfold_copy.out"),
    {.schema = "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
     .infer = infer_view_dtype,
     .kernel = "aten::view_copy.dtype_out",
     .view = view_fn<shape_view_dtype>},
    {.schema = "aten::view_as_real(Tensor(a) self) -> Tensor(a)",
     .infer = infer_view_as_real,
     .kernel = "aten::view_as_real_copy.out",
     .view = view_fn<shape_as_real>},
    part_of<0>("aten::real(Tensor(a) self) -> Tensor(a)"),
    part_of<1>("aten::imag(Tensor(a) self) -> Tensor(a)"),
    {.schema = "aten::view_as_complex(Tensor(a) self) -> Tensor(a)",
     .infer = infer_view_as_complex,
     .kernel = "aten::view_as_complex_copy.out",
     .view = view_fn<shape_as_complex>},
    core<shape_as_strided_elements>("pteron::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
                                    "aten::as_strided_copy.out"),
    {.schema = "pteron::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
     .infer = infer_as_strided_scatter,
     .kernel = "aten::as_strided_scatter.out", .flags = ir::kInPlace},

    viewing<shape_view>("aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor"),
    viewing<shape_reshape>("aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)"),
    viewing<shape_reshape_alias>("aten::_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)"),
    viewing<shape_like_other>("aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)"),
    viewing<shape_like_other>("aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)"),
    viewing<shape_flatten>("aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)"),
    viewing<shape_unflatten>("aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)"),
    viewing<shape_ravel>("aten::ravel(Tensor(a) self) -> Tensor(a)"),
    viewing<shape_atleast_1d>("aten::atleast_1d(Tensor self) -> Tensor"),
    viewing<shape_atleast_2d>("aten::atleast_2d(Tensor self) -> Tensor"),
    viewing<shape_atleast_3d>("aten::atleast_3d(Tensor self) -> Tensor"),
    permuting<dims_of_transpose>("aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"),
    permuting<dims_of_transpose>("aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)"),
    permuting<dims_of_transpose>("aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)"),
    permuting<dims_of_t>("aten::t(Tensor(a) self) -> Tensor(a)"),
    permuting<dims_reversed>("aten::numpy_T(Tensor(a) self) -> Tensor(a)"),
    permuting<dims_last_swapped>("aten::mT(Tensor(a) self) -> Tensor(a)"),
    permuting<dims_of_movedim>("aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)"),
    permuting<dims_of_movedim>("aten::movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)"),
    permuting<dims_of_movedim>("aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)"),
    permuting<dims_of_movedim>("aten::moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)"),
    composite<shape_permuted<dims_last_swapped>>("aten::mH(Tensor(a) self) -> Tensor(a)", decompose_adjoint),
    composite<shape_permuted<dims_last_swapped>>("aten::matrix_H(Tensor(a) self) -> Tensor(a)", decompose_adjoint),
    composite<shape_permuted<dims_last_swapped>>("aten::adjoint(Tensor(a) self) -> Tensor(a)", decompose_adjoint),
    composite<shape_squeeze>("aten::squeeze(Tensor(a) self) -> Tensor(a)", decompose_squeeze),
    composite<shape_squeeze_dims>("aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)", decompose_squeeze),
    composite<shape_expand_as>("aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)", decompose_to_expand<shape_expand_as>),
    composite<shape_expand>("aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)", decompose_to_expand<shape_expand>),
    composite<shape_narrow>("aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)", decompose_narrow),
    {.schema = "aten::narrow.Tensor(Tensor(a) self, int dim, Tensor start, SymInt length) -> Tensor(a)",
     .infer = infer_narrow_tensor,
     .decompose = decompose_narrow_tensor},
    composite<shape_diagonal>("aten::linalg_diagonal(Tensor(a) A, *, int offset=0, int dim1=-2, int dim2=-1) -> Tensor(a)",
                              decompose_linalg_diagonal),
    composite<shape_as_strided>("aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
                                decompose_as_strided),
    {.schema = "aten::as_strided_scatter(Tensor self, Tensor src, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor",
     .infer = infer_as_strided_scatter,
     .decompose = decompose_as_strided_scatter},
    {.schema = "aten::resize(Tensor self, SymInt[] size, *, MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_resize,
     .decompose = decompose_resize},
    {.schema = "aten::resize_as(Tensor self, Tensor the_template, *, MemoryFormat? memory_format=None) -> Tensor",
     .infer = infer_resize_as,
     .decompose = decompose_resize_as},

    copying<shape_view>("aten::view_copy(Tensor self, SymInt[] size) -> Tensor"),
    copying<shape_view>("aten::_reshape_copy(Tensor self, SymInt[] size) -> Tensor"),
    copying<shape_permuted<dims_of_permute>>("aten::permute_copy(Tensor self, int[] dims) -> Tensor"),
    copying<shape_permuted<dims_of_transpose>>("aten::transpose_copy.int(Tensor self, int dim0, int dim1) -> Tensor"),
    copying<shape_permuted<dims_of_t>>("aten::t_copy(Tensor self) -> Tensor"),
    copying<shape_squeeze>("aten::squeeze_copy(Tensor self) -> Tensor"),
    copying<shape_squeeze_dims>("aten::squeeze_copy.dim(Tensor self, int dim) -> Tensor"),
    copying<shape_squeeze_dims>("aten::squeeze_copy.dims(Tensor self, int[] dim) -> Tensor"),
    copying<shape_unsqueeze>("aten::unsqueeze_copy(Tensor self, int dim) -> Tensor"),
    copying<shape_expand>("aten::expand_copy(Tensor self, SymInt[] size, *, bool implicit=False) -> Tensor"),
    copying<shape_select>("aten::select_copy.int(Tensor self, int dim, SymInt index) -> Tensor"),
    copying<shape_slice>("aten::slice_copy.Tensor(Tensor self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor"),
    copying<shape_narrow>("aten::narrow_copy(Tensor self, int dim, SymInt start, SymInt length) -> Tensor"),
    copying<shape_unfold>("aten::unfold_copy(Tensor self, int dimension, int size, int step) -> Tensor"),
    copying<shape_as_strided>("aten::as_strided_copy(Tensor self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor"),
    copying<shape_diagonal>("aten::diagonal_copy(Tensor self, int offset=0, int dim1=0, int dim2=1) -> Tensor"),
    {.schema = "aten::view_copy.dtype(Tensor self, ScalarType dtype) -> Tensor", .infer = infer_view_dtype, .decompose = decompose_copy},
    {.schema = "aten::view_as_real_copy(Tensor self) -> Tensor", .infer = infer_view_as_real, .decompose = decompose_copy},
    {.schema = "aten::view_as_complex_copy(Tensor self) -> Tensor", .infer = infer_view_as_complex, .decompose = decompose_copy},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::view
