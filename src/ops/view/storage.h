// Ops that count in PyTorch's storage instead of in elements: as_strided, as_strided_scatter, resize. Rows are in op.cpp.
#pragma once

#include "ops/view/symbolic.h"

namespace pteron::ops::view {

/// Layout of pteron::as_strided: strides and offset count in the row-major order of self's elements.
Status shape_as_strided_elements(const NodeView& n, size_t, Layout& v, bool* aliases);
Status infer_as_strided_scatter(InferContext& c);
Status infer_resize(InferContext& c);
Status infer_resize_as(InferContext& c);
/// To pteron::as_strided of a row-major tensor that holds the storage.
std::vector<ValueId> decompose_as_strided(ir::Builder& b, const NodeView& n);
std::vector<ValueId> decompose_as_strided_scatter(ir::Builder& b, const NodeView& n);
std::vector<ValueId> decompose_resize(ir::Builder& b, const NodeView& n);
std::vector<ValueId> decompose_resize_as(ir::Builder& b, const NodeView& n);

}  // namespace pteron::ops::view
