// What the CPU engine does to a group's graph before it is emitted. Called by backend.cpp of this folder.
#pragma once

#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::cpu {

/// Rows of the engine's own operators.
std::span<const ir::OpDef> operators();

/// Products and convolutions of dequantized operands become the engine's on integers, with what follows them inside; views, max pools and
/// joins of dequantized tensors run on the integers. `catalog` has the operators of the graph. The nodes that are not used any more stay for dce.
Result<bool> fuse_quantized(ir::Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog);

/// What is left of quantizing and dequantizing becomes arithmetic, where its parameters broadcast; fuse_pointwise() takes it from there.
Result<bool> spell_quantized(ir::Graph& graph, const ir::Catalog& catalog);

/// Convolutions of lines become ones of images, transposed ones whose windows do not overlap become products; fuse() takes it from there.
Result<bool> plain_convolutions(ir::Graph& graph, const ir::Catalog& catalog);

/// Neighbouring parts of one tensor that aten::cat joins are that tensor.
Result<bool> join_parts(ir::Graph& graph, const ir::Catalog& catalog);

/// Products and convolutions with constant float32 weights become the engine's operators, with bias, a residual that is added to the sum, and
/// the activation behind it; with `gates`, 1x1 convolutions have the product before them inside. `engine` holds operators().
Result<bool> fuse(ir::Graph& graph, const ir::Catalog& engine, bool gates);

/// Products and convolutions with constant bfloat16 weights become the engine's operators; with `float_too`, those that fuse() made as well, with
/// operands rounded to bfloat16.
Result<bool> narrow_products(ir::Graph& graph, const ir::Catalog& engine, bool float_too);

/// Attention in float, as one operator or spelled out in products, becomes pteron_cpu::attention. `catalog` has the operators of the graph.
Result<bool> fuse_attention(ir::Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog);

/// Root-mean-square norms that are spelled out become pteron_cpu::rms_norm.
Result<bool> fuse_norms(ir::Graph& graph, const ir::Catalog& engine);

/// Elementwise operators in float become pteron_cpu::pointwise, chains of them one. The nodes that are not used any more stay for dce.
Result<bool> fuse_pointwise(ir::Graph& graph, const ir::Catalog& engine);

/// Convolutions give channels-last images, and so does what follows them as long as it keeps the images' rank.
Status choose_layouts(ir::Graph& graph);

/// Sums and means over the last dims of what a pointwise program makes become part of it, where its operands lie row-major. After choose_layouts(),
/// which says how they lie.
Result<bool> fuse_sums(ir::Graph& graph, const ir::Catalog& engine);

}  // namespace pteron::cpu
