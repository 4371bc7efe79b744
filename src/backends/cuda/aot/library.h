// What the engine does with products, convolutions and attention: operators of its own that call cuBLASLt, cuDNN or hand-written kernels. Called by backend.cpp
// of this folder before the rest of the graph becomes generated kernels.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "backends/api/backend.h"
#include "backends/cuda/aot/kernel_sources.h"
#include "ir/builder.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::cuda {

inline constexpr std::string_view kProduct = "pteron_cuda::product";
inline constexpr std::string_view kRowProduct = "pteron_cuda::row_product";
inline constexpr std::string_view kNarrowRows = "pteron_cuda::narrow_rows";
inline constexpr std::string_view kIntegerSums = "pteron_cuda::integer_sums";
inline constexpr std::string_view kFewRows = "pteron_cuda::few_rows";
inline constexpr std::string_view kFewRows2 = "pteron_cuda::few_rows2";
inline constexpr std::string_view kFewRows3 = "pteron_cuda::few_rows3";
inline constexpr std::string_view kConvolution = "pteron_cuda::convolution";
inline constexpr std::string_view kDepthwise = "pteron_cuda::depthwise";
inline constexpr std::string_view kAttention = "pteron_cuda::attention";

/// Rows of these operators. Runtime kernels: runtime/library_kernels.cpp.
std::span<const ir::OpDef> library_operators();

/// What a compilation may set.
struct LibraryOptions {
  bool tf32 = false;  ///< products and convolutions of float32 may round their operands to TF32
  bool float8 = false;  ///< every device that the kernels are translated for multiplies 8-bit floats (sm_89 and later)
};

/// True for the operators that lower_library() takes: linear, mm, addmm, bmm, baddbmm, convolution, scaled_dot_product_attention.
bool is_library_node(const ir::Node& node);
/// Whether such a node can be lowered in this form. Requires: is_library_node(node).
backends::Support library_supports(const ir::Graph& graph, const ir::Node& node);

/// Makes operators of this file of all such nodes, with the bias, residual and activation around them inside where that costs nothing. `engine` has
/// library_operators(), `catalog` the operators of the graph. What is copied to another layout is an aten::clone. Nodes that are not used any more stay for
/// dce.
Status lower_library(ir::Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options);

// The parts of lower_library(), in order.

/// Attention, as one operator or spelled out in products, becomes pteron_cuda::attention.
Status lower_attention(ir::Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources);
/// Convolutions become pteron_cuda::convolution with channels-last images, with residual and relu inside. Values behind channels-last images are channels-last
/// as long as they keep the rank; results of the graph keep their layout.
Status lower_convolutions(ir::Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options);
/// Products become pteron_cuda::product, and pteron_cuda::row_product where a few rows meet a constant weight.
Status lower_products(ir::Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options);
/// Products of some rows with constant weights become pteron_cuda::few_rows, few_rows2 and few_rows3 (several weights), with norm, gate, bias, residual and
/// activation inside.
Status lower_few_rows(ir::Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources);

/// The result of a node of `catalog` at the builder's place; missing trailing arguments take their defaults. Invalid if it cannot be made.
ir::ValueId add_library_node(ir::Builder& builder, const ir::Catalog& catalog, std::string_view name, std::vector<ir::Arg> args);
/// An argument that may be missing.
ir::Arg optional_arg(ir::ValueId id);
/// The node that makes a value if it is an `op`; null otherwise.
const ir::Node* node_of(const ir::Graph& graph, ir::ValueId id, std::string_view op);
/// True for the dtypes of products: float32, float16, bfloat16 and, with `wide`, float64.
bool is_library_dtype(DType dtype, bool wide);

}  // namespace pteron::cuda
