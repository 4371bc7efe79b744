// What op_affine.cpp defines for the table in op.cpp. Compile half only.
#pragma once

#include <vector>

#include "ops/infer.h"

namespace pteron::ops::quantize {

Status infer_tensor_params(InferContext& c);
Status infer_token_scales(InferContext& c);
Status infer_block_params(InferContext& c);
Status infer_affine(InferContext& c);
Status infer_fake(InferContext& c);

std::vector<ValueId> choose_per_tensor(ir::Builder& b, const NodeView& n);
std::vector<ValueId> choose_per_token(ir::Builder& b, const NodeView& n);
std::vector<ValueId> choose_affine(ir::Builder& b, const NodeView& n);
std::vector<ValueId> quantize_affine(ir::Builder& b, const NodeView& n);
std::vector<ValueId> dequantize_affine(ir::Builder& b, const NodeView& n);
std::vector<ValueId> fake_quantize(ir::Builder& b, const NodeView& n);

}  // namespace pteron::ops::quantize
