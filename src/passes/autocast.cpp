// The CPU cast policies of PyTorch's autocast (aten/src/ATen/autocast_mode.h), by operator.
#include "passes/autocast.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/str_cat.h"
#include "passes/names.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Builder;
using ir::Node;
using ir::ValueId;

namespace {

/// Run in the lower precision. The last is a composite that always ends in products of PyTorch's list.
constexpr std::array kLower = std::to_array<std::string_view>({
    "_addmm_activation", "_convolution", "_native_multi_head_attention", "addbmm", "addmm", "baddbmm", "bmm", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "linalg_vecdot", "linear", "matmul", "mkldnn_rnn_layer", "mm", "prelu",
    "scaled_dot_product_attention", "linalg_multi_dot",
});

/// Run in float32.
constexpr std::array kFloat = std::to_array<std::string_view>({
    "_grid_sampler_2d_cpu_fallback", "_lu_with_info", "adaptive_avg_pool3d", "adaptive_max_pool3d", "avg_pool3d", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "cdist", "cholesky", "cholesky_inverse", "cholesky_solve", "cosine_embedding_loss", "cross_entropy_loss", "ctc_loss",
    "fake_quantize_per_tensor_affine", "fft_fft", "fft_fft2", "fft_fftn", "fft_hfft", "fft_ifft", "fft_ifft2", "fft_ifftn", "fft_ihfft", "fft_irfft",
    "fft_irfft2", "fft_irfftn", "fft_rfft", "fft_rfft2", "fft_rfftn", "fractional_max_pool2d", "fractional_max_pool3d", "geqrf", "grid_sampler",
    "grid_sampler_2d", "grid_sampler_3d", "hinge_embedding_loss", "huber_loss", "inverse", "kl_div", "l1_loss", "linalg_cholesky", "linalg_cholesky_ex",
    "linalg_cond", "linalg_eig", "linalg_eigh", "linalg_eigvals", "linalg_eigvalsh", "linalg_householder_product", "linalg_inv", "linalg_inv_ex",
    "linalg_lstsq", "linalg_matrix_rank", "linalg_qr", "linalg_solve", "linalg_svd", "linalg_svdvals", "linalg_tensorinv", "linalg_tensorsolve", "lu_solve",
    "margin_ranking_loss", "max_pool3d", "max_unpool2d", "max_unpool3d", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_margin_loss_forward", "nanquantile", "nll_loss", "nll_loss2d", "orgqr", "ormqr", "pinverse", "poisson_nll_loss", "polar", "prod", "qr",
    "quantile", "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "smooth_l1_loss", "soft_margin_loss",
    "stft", "svd", "trace", "triangular_solve", "triplet_margin_loss", "view_as_complex",
});

/// Run in the widest dtype of their floating arguments.
constexpr std::array kPromote = std::to_array<std::string_view>({"cat", "index_copy", "stack"});

/// Composites whose inner products are cast one by one.
constexpr std::array kInside = std::to_array<std::string_view>({
    "bilinear", "chain_matmul", "corrcoef", "cov", "einsum", "gru", "gru_cell", "inner", "linalg_matrix_power", "linalg_pinv", "lstm_cell", "matrix_power",
    "rnn_relu", "rnn_relu_cell", "rnn_tanh", "rnn_tanh_cell", "tensordot",
});

/// With casts that no row here knows.
constexpr std::array kRefused = std::to_array<std::string_view>({"linear_cross_entropy"});

/// An LSTM layer whose output is projected: steps of products there. Others are one call of oneDNN's layer, which rounds by rules of its own and
/// which PyTorch runs on processors with AVX-512 only.
bool is_projected_lstm(const ir::Graph& graph, const Node& node) {
  const auto* hx = node.args.size() < 2 ? nullptr : std::get_if<std::vector<ValueId>>(&node.args[1]);
  if (hx == nullptr || hx->size() != 2) return false;
  const auto& h = graph[(*hx)[0]].type.sizes;
  const auto& c = graph[(*hx)[1]].type.sizes;
  return !h.empty() && !c.empty() && !(h.back() == c.back());
}

bool is_eligible(const Builder& builder, ValueId id) {
  const ir::Value& value = const_cast<Builder&>(builder).graph()[id];  // NOLINT: read only
  return value.kind == ir::ValueKind::kTensor && is_floating(value.type.dtype) && value.type.dtype != DType::kFloat64;
}

void cast_args(Builder& builder, std::vector<ir::Arg>& args, DType dtype) {
  for (ir::Arg& arg : args) {
    ir::for_each_value(arg, [&](ValueId& id) {
      if (is_eligible(builder, id) && builder.type(id).dtype != dtype) id = builder.op("aten::_to_copy", {id, dtype});
    });
  }
}

DType widest(const Builder& builder, std::vector<ir::Arg>& args, DType lower) {
  bool any_float32 = false;
  for (ir::Arg& arg : args) {
    ir::for_each_value(arg, [&](ValueId& id) { any_float32 = any_float32 || (is_eligible(builder, id) && builder.type(id).dtype == DType::kFloat32); });
  }
  return any_float32 ? DType::kFloat32 : lower;
}

/// dtypes that inference gives to the node's results; empty if it has no inference.
Result<std::vector<DType>> inferred_dtypes(Builder& builder, const Node& node) {
  if (node.op->def.infer == nullptr) return std::vector<DType>();
  ir::InferContext context(builder.graph(), *node.op, node.args);
  PTERON_TRY(node.op->def.infer(context));
  std::vector<DType> dtypes;
  for (const ir::InferredValue& result : context.results) dtypes.push_back(result.type.dtype);
  return dtypes;
}

bool gives_recorded_dtypes(Builder& builder, const Node& node) {
  const auto dtypes = inferred_dtypes(builder, node);
  if (!dtypes.ok() || dtypes->empty()) return dtypes.ok();
  for (size_t k = 0; k < dtypes->size() && k < node.outputs.size(); ++k) {
    const ir::Value& out = builder.graph()[node.outputs[k]];
    if (out.kind == ir::ValueKind::kTensor && out.type.dtype != (*dtypes)[k]) return false;
  }
  return true;
}

/// A composite that pads in a mode of the float32 list.
bool pads_in_float(const Node& node, std::string_view name) {
  return name == "pad" && node.args.size() > 2 && node.args[2] != ir::Arg(std::string("constant"));
}

std::string_view aten_name(const ir::Op& op) {
  std::string_view name = op.schema.name;
  if (!name.starts_with("aten::")) return {};
  name.remove_prefix(6);
  return name;
}

/// The casts of PyTorch's lists.
void cast_by_list(Builder& builder, const Autocast& autocast, std::string_view name, std::vector<ir::Arg>& args) {
  if (is_one_of(name, kLower)) cast_args(builder, args, autocast.dtype);
  if (is_one_of(name, kFloat)) cast_args(builder, args, DType::kFloat32);
  if (is_one_of(name, kPromote)) cast_args(builder, args, widest(builder, args, autocast.dtype));
}

}  // namespace

bool is_cast_inside(const ir::Graph& graph, const Node& node) {
  const std::string_view name = aten_name(*node.op);
  return node.op->functional == nullptr && (is_one_of(name, kInside) || (name == "lstm" && is_projected_lstm(graph, node)));
}

Result<std::vector<ValueId>> expand_in_autocast(Builder& builder, const Autocast& autocast, const Node& node) {
  const Status unknown(Code::kUnsupported, str_cat("autocast of ", node.op->name));
  if (node.op->def.decompose == nullptr) return unknown;
  bool nested = false;
  builder.has_kernel = [](std::string_view kernel) { return !kernel.starts_with("pteron::"); };  // a scan of a recurrent layer takes one dtype only
  builder.before = [&](const ir::Op& op, std::vector<ir::Arg>& args) {
    const std::string_view name = aten_name(op);
    nested = nested || is_one_of(name, kInside) || is_one_of(name, kRefused);
    cast_by_list(builder, autocast, name, args);
  };
  std::vector<ValueId> results = node.op->def.decompose(builder, ir::NodeView(builder.graph(), *node.op, node.args));
  builder.before = nullptr;
  builder.has_kernel = nullptr;
  PTERON_TRY(builder.take_status());
  if (nested || results.size() != node.outputs.size()) return unknown;
  return results;
}

Status retype(Builder& builder, const Node& node) {
  ir::Graph& graph = builder.graph();
  if (!node.regions.empty()) return Status(Code::kUnsupported, "control flow behind an autocast region with other dtypes than the archive records");
  if (node.op->functional != nullptr) {  // in place: self keeps its dtype
    const auto* self = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (self != nullptr && node.outputs.size() == 1) graph[node.outputs[0]].type.dtype = builder.type(*self).dtype;
    return ok_status();
  }
  PTERON_ASSIGN(const std::vector<DType> dtypes, inferred_dtypes(builder, node));
  for (size_t k = 0; k < dtypes.size() && k < node.outputs.size(); ++k) graph[node.outputs[k]].type.dtype = dtypes[k];
  return ok_status();
}

Status apply_autocast(Builder& builder, const Autocast& autocast, Node& node, bool* stale) {
  if (!autocast.enabled || node.op->functional != nullptr) return *stale ? retype(builder, node) : ok_status();
  const std::string_view name = aten_name(*node.op);
  if (name.empty()) return ok_status();
  if (name == "lstm") return Status(Code::kUnsupported, str_cat("autocast of ", node.op->name, ": PyTorch leaves it to oneDNN, on processors with AVX-512 only"));
  if (is_one_of(name, kRefused)) return Status(Code::kUnsupported, str_cat("autocast of ", node.op->name));
  const bool lower = is_one_of(name, kLower);
  cast_by_list(builder, autocast, name, node.args);
  if (pads_in_float(node, name)) cast_args(builder, node.args, DType::kFloat32);
  PTERON_TRY(builder.take_status());
  if (*stale) return retype(builder, node);
  if (node.op->is_view() || gives_recorded_dtypes(builder, node)) return ok_status();
  if (lower) {
    *stale = true;
    return retype(builder, node);
  }
  // A composite that calls an operator of the float32 list inside (pad in reflect mode): the archive recorded float32.
  cast_args(builder, node.args, DType::kFloat32);
  PTERON_TRY(builder.take_status());
  if (gives_recorded_dtypes(builder, node)) return ok_status();
  return Status(Code::kUnsupported, str_cat("autocast of ", node.op->name, ": the archive has another result dtype than its casts give"));
}

}  // namespace pteron::passes
