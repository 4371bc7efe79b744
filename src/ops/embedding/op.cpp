// embedding, embedding_bag and its private forms.
#include "base/str_cat.h"
#include "ops/catalog.h"
#include "ops/infer.h"

namespace pteron::ops::embedding {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_embedding(InferContext& c) {
  const TensorType& weight = c.type("weight");
  if (weight.rank() != 2) return Status(Code::kInvalidInput, str_cat("embedding: weight of shape ", shape_text(weight.sizes), ", expected rank 2"));
  std::vector<Expr> sizes = c.type("indices").sizes;
  sizes.push_back(weight.sizes[1]);
  c.add(weight.dtype, std::move(sizes));
  return ok_status();
}

constexpr int64_t kSum = 0, kMax = 2;

/// Sizes of the four results as ATen's CPU kernel makes them.
Status infer_bag(InferContext& c) {
  const TensorType& weight = c.type("weight");
  const TensorType& indices = c.type("indices");
  const TensorType& offsets = c.type("offsets");
  if (weight.rank() != 2 || indices.rank() != 1 || offsets.rank() != 1) {
    return Status(Code::kInvalidInput, str_cat("embedding_bag: weight ", shape_text(weight.sizes), ", indices ", shape_text(indices.sizes), ", offsets ", shape_text(offsets.sizes)));
  }
  const int64_t mode = c.integer("mode");
  const Expr bags = c.boolean("include_last_offset") ? offsets.sizes[0] - Expr(1) : offsets.sizes[0];
  const bool weighted = !c.is_none("per_sample_weights");
  if (weighted && mode != kSum) return Status(Code::kInvalidInput, "embedding_bag: per_sample_weights only with mode 'sum'");
  const bool fast_dtype = weight.dtype == DType::kFloat32 || weight.dtype == DType::kFloat16;
  const bool fast_strides = dim_is(weight.strides[1], 1) && (!weighted || dim_is(c.type("per_sample_weights").strides[0], 1));
  const bool fast = mode == kSum && fast_dtype && fast_strides && (!c.has("padding_idx") || c.integer("padding_idx", -1) < 0);
  c.add(weight.dtype, {bags, weight.sizes[1]});
  c.add(offsets.dtype, {fast ? Expr(0) : indices.sizes[0]});
  c.add(offsets.dtype, {bags});
  if (mode == kMax) {
    c.add(offsets.dtype, {bags, weight.sizes[1]});
  } else {
    c.add(offsets.dtype, {bags});
  }
  return ok_status();
}

/// The public forms: padding_idx None means -1, a negative one counts from the end.
Ids decompose_bag(Builder& b, const NodeView& n) {
  Expr padding = -1;
  if (n.has("padding_idx") && !n.is_none("padding_idx")) {
    padding = n.expr("padding_idx");
    if (padding.is_const() && padding.value() < 0 && !n.type("weight").sizes.empty()) padding = n.type("weight").sizes[0] + padding;
  }
  return b.ops("aten::_embedding_bag_forward_only", {n.arg("weight"), n.arg("indices"), n.arg("offsets"), n.arg("scale_grad_by_freq"), n.arg("mode"), n.arg("sparse"),
                                                     n.arg("per_sample_weights"), n.arg("include_last_offset"), padding});
}

constexpr OpDef kTable[] = {
    {.schema = "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor",
     .infer = infer_embedding,
     .kernel = "aten::embedding.out"},
    {.schema = "aten::_embedding_bag_forward_only(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, "
               "Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)",
     .infer = infer_bag,
     .kernel = "aten::_embedding_bag_forward_only.out"},
    {.schema = "aten::_embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, "
               "Tensor? per_sample_weights=None, bool include_last_offset=False, int padding_idx=-1) -> (Tensor, Tensor, Tensor, Tensor)",
     .infer = infer_bag,
     .decompose = decompose_bag},
    {.schema = "aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, "
               "Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor, Tensor)",
     .infer = infer_bag,
     .decompose = decompose_bag},
    {.schema = "aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode, bool sparse, "
               "Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
     .infer = infer_bag,
     .decompose = decompose_bag},
};

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::embedding
