// searchsorted, bucketize, isin, histc, bincount for the compiler. Runtime half: kernel.cpp. Tests: test.cpp.
#include <limits>
#include <span>

#include "ops/reduce_infer.h"
#include "ops/search/portable.h"

namespace pteron::ops::search {
namespace {

using ir::OpDef;

DType index_dtype(const InferContext& c) { return c.boolean("out_int32") ? DType::kInt32 : DType::kInt64; }

std::vector<Expr> sizes_or_scalar(const InferContext& c, std::string_view name) {
  return c.is_value(name) && c.graph()[c.value(name)].kind == ir::ValueKind::kTensor ? c.type(name).sizes : std::vector<Expr>();
}

Status infer_searchsorted(InferContext& c) {
  if (c.type("sorted_sequence").rank() < 1) return Status(Code::kInvalidInput, "searchsorted expects sequences of at least one dim");
  if (!c.is_none("side") && c.text("side") == "left" && c.boolean("right")) {
    return Status(Code::kInvalidInput, "searchsorted: side 'left' and right=True contradict each other");
  }
  c.add(index_dtype(c), sizes_or_scalar(c, "self"));
  return ok_status();
}
Status infer_bucketize(InferContext& c) {
  if (c.type("boundaries").rank() != 1) return Status(Code::kInvalidInput, "bucketize expects one-dimensional boundaries");
  c.add(index_dtype(c), sizes_or_scalar(c, "self"));
  return ok_status();
}
Status infer_isin(InferContext& c) {
  c.add(DType::kBool, sizes_or_scalar(c, c.has("elements") ? "elements" : "element"));
  return ok_status();
}

Status infer_histc(InferContext& c) {
  const DType in = c.type("self").dtype;
  if (!is_floating(in)) return Status(Code::kInvalidInput, str_cat("histc of dtype ", dtype_name(in)));
  c.add(in, {c.expr("bins")});
  return ok_status();
}

/// The length depends on the largest element: at least minlength, without a bound of its own.
Status infer_bincount(InferContext& c) {
  const TensorType& self = c.type("self");
  if (self.rank() != 1 || !is_integral(self.dtype, false)) return Status(Code::kInvalidInput, "bincount expects a one-dimensional tensor of integers");
  DType dtype = DType::kInt64;
  if (!c.is_none("weights")) {
    dtype = c.type("weights").dtype == DType::kFloat32 ? DType::kFloat32 : DType::kFloat64;
    if (ir::dim_is(self.sizes[0], 0)) return Status(Code::kUnsupported, "with weights of no elements: PyTorch gives int64 there, the archive says a float");
  }
  int64_t largest = ir::Range::kMax;
  if (self.dtype == DType::kUInt8) largest = 255;  // what the dtype can hold
  if (self.dtype == DType::kInt8) largest = 127;
  if (self.dtype == DType::kInt16) largest = 32767;
  const ir::Range minlength = ir::bounds(c.expr("minlength"));
  const int64_t max = largest == ir::Range::kMax || minlength.max == ir::Range::kMax ? ir::Range::kMax : std::max(largest + 1, minlength.max);
  c.add(dtype, {c.exprs().fresh_symbol("u", {std::max<int64_t>(minlength.min, 0), max})});
  return ok_status();
}

constexpr OpDef kTable[] = {
    {.schema = "aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, "
               "Tensor? sorter=None) -> Tensor",
     .infer = infer_searchsorted,
     .decompose = portable_searchsorted,
     .kernel = "aten::searchsorted.Tensor_out"},
    {.schema = "aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, "
               "Tensor? sorter=None) -> Tensor",
     .infer = infer_searchsorted,
     .decompose = portable_searchsorted,
     .kernel = "aten::searchsorted.Scalar_out"},
    {.schema = "aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
     .infer = infer_bucketize,
     .decompose = portable_bucketize,
     .kernel = "aten::bucketize.Tensor_out"},
    {.schema = "aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
     .infer = infer_bucketize,
     .decompose = portable_bucketize,
     .kernel = "aten::bucketize.Scalar_out"},
    {.schema = "aten::isin.Tensor_Tensor(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor",
     .infer = infer_isin,
     .decompose = portable_isin,
     .kernel = "aten::isin.Tensor_Tensor_out"},
    {.schema = "aten::isin.Tensor_Scalar(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False) -> Tensor",
     .infer = infer_isin,
     .decompose = portable_isin,
     .kernel = "aten::isin.Tensor_Scalar_out"},
    {.schema = "aten::isin.Scalar_Tensor(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False) -> Tensor",
     .infer = infer_isin,
     .decompose = portable_isin,
     .kernel = "aten::isin.Scalar_Tensor_out"},
    {.schema = "aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor", .infer = infer_histc, .kernel = "aten::histc.out"},
    {.schema = "aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor",
     .infer = infer_bincount,
     .kernel = "aten::bincount.out",
     .flags = ir::kDataDependent},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::search
