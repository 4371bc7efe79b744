// Convolutions and memory formats. One walk makes every convolution read and write channels-last images, gives what follows the same layout, and copies where
// an operand lies otherwise; results of the graph keep the layout that they had. A second walk puts additions and activations behind a convolution into it.
#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "backends/cuda/aot/convolution_text.h"
#include "backends/cuda/aot/depthwise_text.h"
#include "backends/cuda/aot/element_text.h"
#include "backends/cuda/aot/library.h"
#include "backends/cuda/aot/quantized.h"
#include "base/buffer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cuda {
namespace {

using ir::Arg;
using ir::Builder;
using ir::Constant;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::TensorType;
using ir::ValueId;

// Operators whose result has the images' layout although their inference gives row-major.
constexpr std::string_view kImageOps[] = {
    "aten::_adaptive_avg_pool2d",
    "aten::_adaptive_avg_pool3d",
    "aten::avg_pool3d",
    "aten::max_pool3d",
    "aten::max_pool3d_with_indices",
    "aten::upsample_nearest3d",
    "aten::upsample_trilinear3d",
    "aten::adaptive_avg_pool2d",
    "aten::avg_pool2d",
    "aten::cat",
    "aten::constant_pad_nd",
    "aten::max_pool2d",
    "aten::max_pool2d_with_indices",
    "aten::mean.dim",
    "aten::native_group_norm",
    "aten::upsample_bilinear2d",
    "aten::upsample_nearest2d",
    "aten::native_batch_norm",
};

bool is_image(const TensorType& type) { return type.rank() >= 3 && type.rank() <= 5; }

std::vector<Expr> channels_last_strides(const TensorType& type) {
  std::vector<Expr> strides(type.sizes.size(), Expr(1));
  Expr stride = dim_max(type.sizes[1], 1);
  for (size_t d = type.sizes.size() - 1; d >= 2; --d) {
    strides[d] = stride;
    stride = stride * dim_max(type.sizes[d], 1);
  }
  strides[0] = stride;
  return strides;
}

/// The elements lie as in a channels-last image (dims of size 1 do not count).
bool lies_channels_last(const TensorType& type) {
  if (!is_image(type) || type.strides.size() != type.sizes.size()) return false;
  const std::vector<Expr> wanted = channels_last_strides(type);
  for (size_t d = 0; d < wanted.size(); ++d) {
    if (!dim_is(type.sizes[d], 1) && !(type.strides[d] == wanted[d])) return false;
  }
  return true;
}

/// The same, and row-major order is another one.
bool is_channels_last(const TensorType& type) { return lies_channels_last(type) && !ir::is_contiguous(type); }

/// The bytes of a constant with its dims in `order`.
Result<Buffer> reordered_bytes(const Constant& from, const std::vector<size_t>& order) {
  Buffer made;
  const std::byte* data = from.data;
  std::vector<int64_t> strides = from.strides;
  if (data == nullptr) {
    PTERON_ASSIGN(made, from.lazy());
    data = made.data();
    const Sizes dense = contiguous_strides(from.sizes);
    strides.assign(dense.begin(), dense.end());
  }
  const size_t element = dtype_size(from.dtype);
  PTERON_ASSIGN(Buffer out, Buffer::create(static_cast<uint64_t>(from.numel()) * element));
  std::vector<int64_t> index(order.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < from.numel(); ++i) {
    std::memcpy(out.data() + static_cast<size_t>(i) * element, data + static_cast<size_t>(at) * element, element);
    for (size_t d = order.size(); d-- > 0;) {
      at += strides[order[d]];
      if (++index[d] < from.sizes[order[d]]) break;
      at -= index[d] * strides[order[d]];
      index[d] = 0;
    }
  }
  return out;
}

class ConvolutionMatcher {
 public:
  ConvolutionMatcher(Graph& graph, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options)
      : graph_(graph), catalog_(catalog), tf32_(options.tf32), quantized_(graph, catalog, sources, options) {}

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    if (node.op->name != "aten::convolution") {
      follow(node);
      return Rewrite::kKeep;
    }
    const ValueId made = lower(b, node);
    if (!made.valid()) return Rewrite::kKeep;
    if (graph_[made].type.sizes != graph_[node.outputs[0]].type.sizes)
      return Status(Code::kInternal, "a convolution of other sizes than the node it stands for");
    if (graph_[made].type.strides != graph_[node.outputs[0]].type.strides) moved_.insert(made.index);
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  ValueId aten(Builder& b, std::string_view name, std::vector<Arg> args) { return add_library_node(b, catalog_, name, std::move(args)); }

  /// Gives the results of a node the layout of the images that it reads; views of what lies otherwise now, and what is computed of those, are inferred anew.
  void follow(const Node& node) {
    if ((!node.op->is_view() && node.op->has(ir::kAlias)) || node.op->has(ir::kRegion) || node.op->def.infer == nullptr) return;
    bool reads_images = false, reads_moved = false;
    ir::for_each_use(node, [&](ValueId used) { reads_moved = reads_moved || moved_.contains(used.index); });
    ir::for_each_use(
        node, [&](ValueId used) { reads_images = reads_images || (graph_[used].kind == ir::ValueKind::kTensor && is_channels_last(graph_[used].type)); });
    if (node.op->is_view() ? !reads_moved : !reads_images && !reads_moved) return;
    const bool keeps = reads_images && std::ranges::find(kImageOps, node.op->name) != std::end(kImageOps);
    ir::InferContext context(graph_, *node.op, node.args);
    if (!keeps && !node.op->def.infer(context).ok()) return;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (graph_[node.outputs[k]].kind != ir::ValueKind::kTensor) continue;
      TensorType& type = graph_[node.outputs[k]].type;
      const std::vector<Expr> before = type.strides;
      if (keeps) {
        if (is_image(type)) type.strides = channels_last_strides(type);
      } else if (k < context.results.size() && context.results[k].type.sizes == type.sizes && context.results[k].type.dtype == type.dtype) {
        type.strides = context.results[k].type.strides;
      }
      if (type.strides != before) moved_.insert(node.outputs[k].index);
    }
  }

  ValueId image(Builder& b, ValueId x) {
    if (lies_channels_last(graph_[x].type)) return x;
    const ValueId made = aten(b, "aten::clone", {x, ir::MemoryFormat::kContiguous});
    if (made.valid()) graph_[made].type.strides = channels_last_strides(graph_[made].type);
    return made;
  }

  /// [outputs, inputs, ...] as [outputs, ..., inputs].
  ValueId weight(Builder& b, ValueId id) {
    const size_t rank = graph_[id].type.sizes.size();
    std::vector<size_t> order{0};
    for (size_t d = 2; d < rank; ++d) order.push_back(d);
    order.push_back(1);
    if (graph_[id].constant.valid()) {
      const Constant& from = (*graph_.program)[graph_[id].constant];
      if (!from.mutable_elsewhere && (from.data != nullptr || from.lazy != nullptr)) return constant(graph_[id].constant, order);
    }
    std::vector<Expr> dims;
    for (const size_t d : order) dims.push_back(Expr(static_cast<int64_t>(d)));
    const ValueId turned = aten(b, "aten::permute", {id, dims});
    if (!turned.valid() || ir::is_contiguous(graph_[turned].type)) return turned;
    return aten(b, "aten::clone", {turned, ir::MemoryFormat::kContiguous});
  }

  ValueId constant(ir::ConstantId id, const std::vector<size_t>& order) {
    for (const auto& [known, value] : made_) {
      if (known == id) return value;
    }
    const Constant from = (*graph_.program)[id];
    Constant turned;
    turned.name = from.name + ".channels_last";
    turned.dtype = from.dtype;
    for (const size_t d : order) turned.sizes.push_back(from.sizes[d]);
    const Sizes strides = contiguous_strides(turned.sizes);
    turned.strides.assign(strides.begin(), strides.end());
    turned.lazy = [from, order] { return reordered_bytes(from, order); };
    const std::string name = turned.name;
    const ValueId made = graph_.add_constant(graph_.program->add(std::move(turned)), name);
    made_.emplace_back(id, made);
    return made;
  }

  ValueId lower(Builder& b, const Node& node) {
    if (!library_supports(graph_, node).yes) return {};
    if (const ValueId made = quantized_.convolution(b, node, [&](ValueId x) { return image(b, x); }); made.valid()) return made;
    const NodeView n(graph_, *node.op, node.args);
    const size_t dims = static_cast<size_t>(n.type("input").rank()) - 2;
    const auto list = [&](std::string_view name, int64_t missing) {
      std::vector<Expr> values = n.exprs(name);
      if (values.empty()) values.push_back(Expr(missing));
      while (values.size() < dims) values.push_back(values.front());
      return values;
    };
    const ValueId x = image(b, n.value("input")), w = weight(b, n.value("weight"));
    if (!x.valid() || !w.valid()) return {};
    return b.op(kConvolution,
                {x, w, optional_arg(n.value("bias")), std::monostate(), list("stride", 1), list("padding", 0), list("dilation", 1),
                 b.boolean(n.boolean("transposed")), list("output_padding", 0), n.expr("groups"), std::string("none"), b.boolean(tf32_), std::string()});
  }

  Graph& graph_;
  const ir::Catalog& catalog_;
  bool tf32_;
  QuantizedLowering quantized_;
  std::vector<std::pair<ir::ConstantId, ValueId>> made_;
  std::unordered_set<uint32_t> moved_;  ///< values with other strides than the program was exported with
};

/// Copies at the end for results of the graph that lie in another order than before.
Status keep_results(Graph& graph, const ir::Catalog& catalog, const std::vector<TensorType>& before) {
  const ir::Op* clone = catalog.find("aten::clone");
  if (clone == nullptr) return Status(Code::kInternal, "the catalog has no aten::clone");
  std::vector<std::pair<ValueId, ValueId>> made;
  size_t at = 0;
  Status status;
  ir::for_each_result(graph, [&](ValueId& used) {
    const TensorType& wanted = before[at++];
    if (!status.ok() || graph[used].kind != ir::ValueKind::kTensor || graph[used].type.strides == wanted.strides) return;
    const auto known = std::ranges::find_if(made, [&](const auto& pair) { return pair.first == used && graph[pair.second].type.strides == wanted.strides; });
    if (known != made.end()) {
      used = known->second;
      return;
    }
    Result<ir::NodeId> node = ir::make_node(graph, *clone, {used, ir::MemoryFormat::kContiguous}, "clone");
    if (!node.ok()) {
      status = std::move(node).status();
      return;
    }
    graph.order.push_back(node.value());
    const ValueId copy = graph[node.value()].outputs[0];
    graph[copy].type.strides = wanted.strides;
    made.emplace_back(used, copy);
    used = copy;
  });
  return status;
}

class EndMatcher {
 public:
  EndMatcher(Graph& graph, KernelSources& sources) : graph_(graph), sources_(sources), uses_(ir::count_uses(graph)) {}

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    ValueId made;
    if (node.op->name == "aten::add.Tensor") made = sum(b, node);
    if (node.op->name == "aten::relu") made = relu(b, node);
    if (!made.valid()) return Rewrite::kKeep;
    if (made.index >= uses_.size()) uses_.resize(made.index + 1, 0);
    uses_[made.index] = uses_[node.outputs[0].index];
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  /// The convolution that makes `id`, if nothing else reads it.
  const Node* own_node(ValueId id) const {
    const Node* node = node_of(graph_, id, kConvolution);
    return node != nullptr && id.index < uses_.size() && uses_[id.index] == 1 ? node : nullptr;
  }

  ValueId sum(Builder& b, const Node& node) {
    const NodeView n(graph_, *node.op, node.args);
    if (!n.is_value("self") || !n.is_value("other") || !ir::is_number(n.expr("alpha")) || ir::number_of(n.expr("alpha")) != 1) return {};
    const ValueId left = n.value("self"), right = n.value("other");
    const TensorType& out = graph_[node.outputs[0]].type;
    for (const auto& [sum, other] : {std::pair(left, right), std::pair(right, left)}) {
      const Node* open = own_node(sum);
      if (open == nullptr || sum == other) continue;
      const TensorType& type = graph_[other].type;
      if (type.dtype != out.dtype || graph_[sum].type.dtype != out.dtype || type.sizes != out.sizes || graph_[sum].type.sizes != out.sizes ||
          type.strides != graph_[sum].type.strides)
        continue;
      const NodeView view(graph_, *open->op, open->args);
      if (view.value("residual").valid() || view.text("activation") != "none") continue;
      return with(b, *open, "residual", other);
    }
    return {};
  }

  ValueId relu(Builder& b, const Node& node) {
    const auto* self = std::get_if<ValueId>(&node.args[0]);
    const Node* open = self == nullptr ? nullptr : own_node(*self);
    if (open == nullptr || NodeView(graph_, *open->op, open->args).text("activation") != "none") return {};
    return with(b, *open, "activation", std::string("relu"));
  }

  /// The convolution with one argument replaced, and the kernel that does what follows the sum where cuDNN cannot.
  ValueId with(Builder& b, const Node& open, std::string_view name, Arg value) {
    std::vector<Arg> args = open.args;
    args[static_cast<size_t>(open.op->schema.find(name))] = std::move(value);
    return b.op(kConvolution, std::move(args));
  }

  Graph& graph_;
  KernelSources& sources_;
  std::vector<uint32_t> uses_;
};

/// Convolutions of each channel alone become pteron_cuda::depthwise: what libraries have for them is far from the memory's speed.
class DepthwiseMatcher {
 public:
  DepthwiseMatcher(Graph& graph, KernelSources& sources) : graph_(graph), sources_(sources) {}

  Result<Rewrite> visit(Builder& b, NodeId id, std::vector<ValueId>& replacements) {
    const Node& node = graph_[id];
    if (node.op->name != kConvolution) return Rewrite::kKeep;
    const NodeView n(graph_, *node.op, node.args);
    const TensorType &x = n.type("x"), &weight = n.type("weight"), &out = graph_[node.outputs[0]].type;
    if ((x.dtype != DType::kBFloat16 && x.dtype != DType::kFloat16) || x.rank() != 4 || !x.is_static() || n.boolean("transposed")) return Rewrite::kKeep;
    const int64_t channels = x.sizes[1].value();
    if (channels % 2 != 0 || n.integer("groups") != channels || weight.sizes[0].value() != channels || weight.sizes[3].value() != 1) return Rewrite::kKeep;
    const int64_t height = weight.sizes[1].value(), width = weight.sizes[2].value();
    if (height * width > kMostFilter || !is_constant(n.value("weight")) || (n.value("bias").valid() && !is_constant(n.value("bias")))) return Rewrite::kKeep;
    const std::vector<Expr> stride = n.exprs("stride"), padding = n.exprs("padding"), dilation = n.exprs("dilation");
    if (!dim_is(dilation[0], 1) || !dim_is(dilation[1], 1) || stride[0].value() > kMostStride || stride[1].value() > kMostStride) return Rewrite::kKeep;
    if (!lies_channels_last(x) || !lies_channels_last(out)) return Rewrite::kKeep;
    if (n.value("residual").valid() && !lies_channels_last(n.type("residual"))) return Rewrite::kKeep;
    DepthwiseForm form;
    form.dtype = x.dtype;
    form.channels = channels;
    form.height = height;
    form.width = width;
    form.stride_y = stride[0].value();
    form.stride_x = stride[1].value();
    form.padding_y = padding[0].value();
    form.padding_x = padding[1].value();
    form.bias = n.value("bias").valid();
    form.residual = n.value("residual").valid();
    form.relu = n.text("activation") == "relu";
    choose_depthwise(&form, out.sizes[0].value() * out.sizes[2].value(), out.sizes[3].value());
    sources_.add_shared(std::string(element_text()));
    const std::string name = sources_.add("depthwise", depthwise_text(form), node.name);
    const ValueId made = b.op(kDepthwise, {n.value("x"), n.value("weight"), optional_arg(n.value("bias")), optional_arg(n.value("residual")), stride, padding,
                                           name, std::vector<Expr>{Expr(form.strip), Expr(form.pairs), Expr(form.strips), Expr(form.shared_bytes())}});
    if (!made.valid()) return b.take_status();
    replacements = {made};
    return Rewrite::kReplace;
  }

 private:
  static constexpr int64_t kMostFilter = 121, kMostStride = 3;
  bool is_constant(ValueId id) const { return graph_[id].constant.valid() && !(*graph_.program)[graph_[id].constant].mutable_elsewhere; }

  Graph& graph_;
  KernelSources& sources_;
};

/// Convolutions with something behind the sum get the name of a kernel that does it alone.
void add_tails(Graph& graph, KernelSources& sources) {
  for (const NodeId id : graph.order) {
    Node& node = graph[id];
    if (node.op->name != kConvolution) continue;
    const NodeView n(graph, *node.op, node.args);
    TailForm form;
    form.dtype = n.type("x").dtype;
    form.bias = n.value("bias").valid();
    form.residual = n.value("residual").valid();
    form.relu = n.text("activation") == "relu";
    if (!form.bias && !form.residual && !form.relu) continue;
    sources.add_shared(std::string(element_text()));
    node.args[static_cast<size_t>(node.op->schema.find("tail"))] = sources.add("convolution_tail", tail_text(form), node.name);
  }
}

}  // namespace

Status lower_convolutions(Graph& graph, const ir::Catalog& engine, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options) {
  const bool has_any = std::ranges::any_of(graph.order, [&](NodeId id) { return graph[id].op->name == "aten::convolution"; });
  if (!has_any) return ok_status();
  std::vector<TensorType> results;
  ir::for_each_result(graph, [&](ValueId& used) { results.push_back(graph[used].type); });
  ConvolutionMatcher matcher(graph, catalog, sources, options);
  PTERON_TRY(
      ir::rewrite(graph, engine, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) { return matcher.visit(b, id, replacements); }).status());
  PTERON_TRY(keep_results(graph, catalog, results));
  EndMatcher ends(graph, sources);
  PTERON_TRY(ir::rewrite(graph, engine, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) { return ends.visit(b, id, replacements); }).status());
  DepthwiseMatcher depthwise(graph, sources);
  PTERON_TRY(
      ir::rewrite(graph, engine, [&](Builder& b, NodeId id, std::vector<ValueId>& replacements) { return depthwise.visit(b, id, replacements); }).status());
  add_tails(graph, sources);
  return ok_status();
}

}  // namespace pteron::cuda
