// The matcher of quantized products, and the arithmetic behind integer sums: with x = (a - z) s and w = b t, the product is (sum of a b - z sum of b) s t.
#include "backends/cuda/aot/quantized.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "backends/cuda/aot/element_text.h"
#include "backends/cuda/aot/integer_text.h"
#include "base/buffer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cuda {

using ir::Arg;
using ir::Builder;
using ir::Constant;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;

namespace {

bool is_byte(DType d) { return d == DType::kInt8 || d == DType::kUInt8; }
bool is_tensor_core_float8(DType d) { return d == DType::kFloat8E4M3FN || d == DType::kFloat8E5M2; }

/// Bytes seen through a cast to what products are made of.
ValueId uncast(const Graph& graph, ValueId id) {
  const Node* cast = node_of(graph, id, "aten::_to_copy");
  if (cast == nullptr) return {};
  const ValueId from = std::get<ValueId>(cast->args[0]);
  const DType dtype = graph[from].type.dtype;
  return is_byte(dtype) || is_tensor_core_float8(dtype) ? from : ValueId();
}

/// A constant's bytes in row-major order.
Result<Buffer> dense_bytes(const Constant& c) {
  if (c.data == nullptr) return c.lazy();
  PTERON_ASSIGN(Buffer out, Buffer::create(c.size_bytes()));
  const size_t element = dtype_size(c.dtype);
  std::vector<int64_t> index(c.sizes.size(), 0);
  int64_t at = 0;
  for (int64_t i = 0; i < c.numel(); ++i) {
    std::memcpy(out.data() + static_cast<size_t>(i) * element, c.data + at * static_cast<int64_t>(element), element);
    for (size_t d = index.size(); d-- > 0;) {
      at += c.strides[d];
      if (++index[d] < c.sizes[d]) break;
      at -= index[d] * c.strides[d];
      index[d] = 0;
    }
  }
  return out;
}

/// Sums of the rows of int8 [rows, ...] as int32.
Result<Buffer> row_sums(const Constant& c) {
  PTERON_ASSIGN(const Buffer bytes, dense_bytes(c));
  const int64_t rows = c.sizes[0], depth = c.numel() / rows;
  PTERON_ASSIGN(Buffer out, Buffer::create(static_cast<size_t>(rows) * sizeof(int32_t)));
  const auto* from = reinterpret_cast<const int8_t*>(bytes.data());
  auto* to = reinterpret_cast<int32_t*>(out.data());
  for (int64_t i = 0; i < rows; ++i) {
    to[i] = 0;
    for (int64_t k = 0; k < depth; ++k) to[i] += from[i * depth + k];
  }
  return out;
}

/// A lazy constant of row-major bytes.
Constant made_constant(std::string name, DType dtype, std::vector<int64_t> sizes, std::function<Result<Buffer>()> bytes) {
  Constant c;
  c.name = std::move(name);
  c.dtype = dtype;
  c.sizes = std::move(sizes);
  const Sizes strides = contiguous_strides(c.sizes);
  c.strides.assign(strides.begin(), strides.end());
  c.lazy = std::move(bytes);
  return c;
}

/// Channels last: [outputs, inputs, ...] as [outputs, ..., inputs].
Constant channels_last(const Constant& c) {
  std::vector<int64_t> sizes{c.sizes[0]};
  for (size_t d = 2; d < c.sizes.size(); ++d) sizes.push_back(c.sizes[d]);
  sizes.push_back(c.sizes[1]);
  return made_constant(c.name + ".channels_last", c.dtype, sizes, [c]() -> Result<Buffer> {
    PTERON_ASSIGN(const Buffer bytes, dense_bytes(c));
    PTERON_ASSIGN(Buffer out, Buffer::create(c.size_bytes()));
    const auto outputs = static_cast<size_t>(c.sizes[0]), inputs = static_cast<size_t>(c.sizes[1]), taps = static_cast<size_t>(c.numel()) / outputs / inputs;
    for (size_t n = 0; n < outputs; ++n) {
      for (size_t t = 0; t < taps; ++t) {
        for (size_t i = 0; i < inputs; ++i) out.data()[(n * taps + t) * inputs + i] = bytes.data()[(n * inputs + i) * taps + t];
      }
    }
    return out;
  });
}

}  // namespace

std::optional<Levels> levels_of(const Graph& graph, ValueId value) {
  if (!value.valid() || !graph[value].producer.valid()) return std::nullopt;
  if (const ValueId bytes = uncast(graph, value); bytes.valid()) return Levels{bytes, {}, {}};
  const Node& node = graph[graph[value].producer];
  const NodeView n(graph, *node.op, node.args);
  const std::string& name = node.op->name;
  if (name == "pteron::dequantize") return Levels{n.value("self"), n.value("scale"), n.value("zero_point")};
  if (name == "aten::_to_copy" && is_floating(n.type("self").dtype) && is_floating(graph[value].type.dtype)) return levels_of(graph, n.value("self"));
  if (name == "aten::sub.Tensor" && n.is_value("other") && n.number("alpha") == 1) {
    const ValueId bytes = uncast(graph, n.value("self"));
    return bytes.valid() ? std::optional(Levels{bytes, {}, n.value("other")}) : std::nullopt;
  }
  if (name != "aten::mul.Tensor" || !n.is_value("self") || !n.is_value("other")) return std::nullopt;
  for (const auto& [inner, scale] : {std::pair(n.value("self"), n.value("other")), std::pair(n.value("other"), n.value("self"))}) {
    const std::optional<Levels> found = graph[inner].type.sizes == graph[value].type.sizes ? levels_of(graph, inner) : std::nullopt;
    if (found && !found->scale.valid()) return Levels{found->bytes, scale, found->zero};
  }
  return std::nullopt;
}

namespace {

/// True for a constant whose bytes are all zero.
bool is_zero_constant(const Graph& graph, ValueId id) {
  if (!graph[id].constant.valid()) return false;
  const Constant& c = (*graph.program)[graph[id].constant];
  if (c.data == nullptr) return false;
  const Result<Buffer> bytes = dense_bytes(c);
  return bytes.ok() && std::ranges::all_of(bytes.value().span(), [](std::byte x) { return x == std::byte{0}; });
}

/// Scales of `bytes`-shaped levels stand in the order of rows and, in a row, of groups: every dim in front is whole, the last one that has several may be in
/// blocks.
bool are_in_order(const std::vector<int64_t>& bytes, const TensorType& scale, int64_t count) {
  if (scale.sizes.size() != bytes.size() || !ir::is_contiguous(scale)) return false;
  int64_t before = 1;
  for (size_t d = 0; d < bytes.size() && before < count; ++d) {
    const int64_t here = scale.sizes[d].value();
    before *= here;
    if (here != bytes[d] && !(before == count && bytes[d] % here == 0)) return false;
  }
  return before == count;
}

/// What a matrix is seen through: groups as a dim of their own, a cast behind them.
ValueId behind_views(const Graph& graph, ValueId id) {
  for (int step = 0; step < 3; ++step) {
    const Node* node = graph[id].producer.valid() ? &graph[graph[id].producer] : nullptr;
    if (node == nullptr || node->args.empty() || !std::holds_alternative<ValueId>(node->args[0])) break;
    const ValueId from = std::get<ValueId>(node->args[0]);
    const bool reshapes = node->op->name == "aten::view" || node->op->name == "aten::reshape" || node->op->name == "aten::_unsafe_view";
    const DType dtype = graph[from].type.dtype;
    if (!reshapes && !(node->op->name == "aten::_to_copy" && is_floating(dtype) && !is_float8(dtype))) break;
    id = from;
  }
  return id;
}

}  // namespace

std::optional<GroupedWeight> grouped_weight(const Graph& graph, ValueId value) {
  const TensorType& type = graph[value].type;
  if (type.rank() != 2 || !type.is_static()) return std::nullopt;
  const std::optional<Levels> found = levels_of(graph, behind_views(graph, value));
  if (!found || !graph[found->bytes].constant.valid() || (found->zero.valid() && !is_zero_constant(graph, found->zero))) return std::nullopt;
  GroupedWeight made{(*graph.program)[graph[found->bytes].constant], found->scale, 1};
  Constant& c = made.bytes;
  const int64_t outputs = type.sizes[0].value(), depth = type.sizes[1].value();
  if (c.dtype != DType::kInt8 || c.mutable_elsewhere || (c.data == nullptr && c.lazy == nullptr) || c.numel() != outputs * depth) return std::nullopt;
  const std::vector<int64_t> sizes = c.sizes;
  if (c.data != nullptr && !std::ranges::equal(c.strides, contiguous_strides(sizes))) {
    const Constant from = c;
    c = made_constant(from.name + ".rows", from.dtype, from.sizes, [from] { return dense_bytes(from); });
  }
  c.sizes = {outputs, depth};
  c.strides = {depth, 1};
  if (!made.scale.valid()) return made;
  const TensorType& scale = graph[made.scale].type;
  if (!scale.is_static()) return std::nullopt;
  const int64_t count = ir::numel_of(scale.sizes).value();
  if (count == 1) return made;
  if (count % outputs != 0 || depth % (count / outputs) != 0 || !are_in_order(sizes, scale, count)) return std::nullopt;
  made.groups = count / outputs;
  return made;
}

std::optional<Constant> packed_nibbles(const Constant& c) {
  if (c.sizes.size() != 2 || c.sizes[1] % 2 != 0) return std::nullopt;
  const Result<Buffer> bytes = dense_bytes(c);
  if (!bytes.ok()) return std::nullopt;
  const bool small = std::ranges::all_of(bytes.value().span(), [](std::byte x) { return static_cast<int8_t>(x) >= -8 && static_cast<int8_t>(x) <= 7; });
  if (!small) return std::nullopt;
  return made_constant(c.name + ".nibbles", DType::kUInt8, {c.sizes[0], c.sizes[1] / 2}, [c]() -> Result<Buffer> {
    PTERON_ASSIGN(const Buffer from, dense_bytes(c));
    PTERON_ASSIGN(Buffer out, Buffer::create(from.size() / 2));
    for (size_t i = 0; i < out.size(); ++i) {
      const int low = static_cast<int8_t>(from.data()[2 * i]) + 8, high = static_cast<int8_t>(from.data()[2 * i + 1]) + 8;
      out.data()[i] = static_cast<std::byte>(low | high << 4);
    }
    return out;
  });
}

ValueId QuantizedLowering::to(Builder& b, ValueId id, DType dtype) { return type(id).dtype == dtype ? id : aten(b, "aten::_to_copy", {id, dtype}); }

ValueId QuantizedLowering::added(const Constant& constant) {
  const std::string name = constant.name;
  return graph_.add_constant(graph_.program->add(constant), name);
}

/// `turned`: the value is [inputs, outputs].
std::optional<QuantizedLowering::Weight> QuantizedLowering::weight_of(ValueId value, bool turned) const {
  if (turned) {
    for (const char* name : {"aten::t", "aten::permute", "aten::transpose.int"}) {
      const Node* turn = node_of(graph_, value, name);
      if (turn == nullptr) continue;
      const ValueId inner = std::get<ValueId>(turn->args[0]);
      if (type(inner).rank() != 2 || type(inner).sizes[0] != type(value).sizes[1] || type(inner).sizes[1] != type(value).sizes[0]) return std::nullopt;
      if (type(inner).strides[0] == type(value).strides[0]) return std::nullopt;  // a permutation that changes nothing
      return weight_of(inner, false);
    }
  }
  const std::optional<Levels> found = levels_of(graph_, value);
  if (!found || !is_zero(found->zero) || !graph_[found->bytes].constant.valid()) return std::nullopt;
  Weight made{(*graph_.program)[graph_[found->bytes].constant], found->scale};
  Constant& c = made.bytes;
  if (c.mutable_elsewhere || (c.data == nullptr && c.lazy == nullptr) || c.sizes.size() < 2 || c.numel() == 0 || c.dtype == DType::kUInt8) return std::nullopt;
  if (turned) {
    if (c.data != nullptr) {
      std::swap(c.sizes[0], c.sizes[1]);
      std::swap(c.strides[0], c.strides[1]);
    } else {
      return std::nullopt;
    }
  }
  if (!std::ranges::equal(c.strides, contiguous_strides(c.sizes))) {
    const Constant from = c;
    c = made_constant(from.name + ".rows", from.dtype, from.sizes, [from] { return dense_bytes(from); });
  }
  if (!made.scale.valid()) return made;
  const std::vector<Expr>& sizes = type(made.scale).sizes;
  if (dim_is(ir::numel_of(sizes), 1)) return made;
  if (sizes.size() != c.sizes.size() || !dim_is(ir::numel_of(sizes), c.sizes[0]) || !dim_is(sizes[turned ? 1 : 0], c.sizes[0])) return std::nullopt;
  return made;
}

bool QuantizedLowering::is_zero(ValueId zero) const {
  if (!zero.valid()) return true;
  if (!graph_[zero].constant.valid()) {
    const Node* full = node_of(graph_, zero, "aten::full");
    return full != nullptr && full->args.size() > 1 && std::holds_alternative<Expr>(full->args[1]) && ir::is_number(std::get<Expr>(full->args[1])) &&
           ir::number_of(std::get<Expr>(full->args[1])) == 0;
  }
  return is_zero_constant(graph_, zero);
}

/// One for all, or one for each row.
bool QuantizedLowering::is_parameter_of_rows(ValueId parameter, const TensorType& x) const {
  if (!parameter.valid()) return true;
  const std::vector<Expr>& sizes = type(parameter).sizes;
  if (dim_is(ir::numel_of(sizes), 1)) return true;
  return sizes.size() == x.sizes.size() && std::equal(sizes.begin(), sizes.end() - 1, x.sizes.begin()) && dim_is(sizes.back(), 1);
}

ValueId QuantizedLowering::sums_of(const Weight& weight) {
  return added(made_constant(weight.bytes.name + ".sums", DType::kInt32, {weight.bytes.sizes[0]}, [c = weight.bytes] { return row_sums(c); }));
}

/// What follows the sums: zero points less `shift`, scales, bias; vectors of channels stand in front of `spatial` dims.
ValueId QuantizedLowering::scaled(Builder& b, ValueId sums, const Levels& x, const Weight& weight, ValueId bias, int64_t spatial, int64_t shift, DType dtype) {
  const auto channels = [&](ValueId v) {
    std::vector<Expr> sizes{ir::numel_of(type(v).sizes)};
    if (dim_is(sizes[0], 1) && weight.bytes.sizes[0] != 1) sizes.clear();
    for (int64_t d = 0; d < spatial && !sizes.empty(); ++d) sizes.push_back(Expr(1));
    return type(v).sizes == sizes ? v : aten(b, "aten::view", {v, sizes});
  };
  const auto of_x = [&](ValueId v) {
    return dim_is(ir::numel_of(type(v).sizes), 1) && type(v).rank() != 0 ? aten(b, "aten::view", {v, std::vector<Expr>()}) : v;
  };
  ValueId y = sums;
  const bool has_zero = !is_zero(x.zero) || shift != 0;
  if (has_zero && type(sums).dtype == DType::kInt32) {
    ValueId zero = x.zero.valid() ? to(b, of_x(x.zero), DType::kInt32) : b.scalar_tensor(0, DType::kInt32);
    if (shift != 0) zero = aten(b, "aten::sub.Scalar", {zero, Expr(shift)});
    y = aten(b, "aten::sub.Tensor", {y, aten(b, "aten::mul.Tensor", {channels(sums_of(weight)), zero})});
  }
  if (dtype == DType::kInt32) return y;
  y = to(b, y, DType::kFloat32);
  if (weight.scale.valid()) y = aten(b, "aten::mul.Tensor", {y, channels(to(b, weight.scale, DType::kFloat32))});
  if (x.scale.valid()) y = aten(b, "aten::mul.Tensor", {y, of_x(to(b, x.scale, DType::kFloat32))});
  if (bias.valid()) y = aten(b, "aten::add.Tensor", {y, channels(to(b, bias, DType::kFloat32))});
  return to(b, y, dtype);
}

/// The sums by the engine's own kernel. x: channels-last, with 1 or 2 dims behind the channels. dims: stride, padding, dilation, that many each.
ValueId QuantizedLowering::integer_sums(Builder& b, ValueId x, const Constant& weight, const IntegerForm& form, std::span<const Expr> dims) {
  sources_.add_shared(std::string(element_text()));
  const std::string name = sources_.add(form.tiled() ? "integer_sums" : "integer_window", integer_text(form));
  const auto count = dims.size() / 3;
  const auto list = [&](size_t i) {
    return std::vector<Expr>(dims.begin() + static_cast<std::ptrdiff_t>(i * count), dims.begin() + static_cast<std::ptrdiff_t>((i + 1) * count));
  };
  const std::array<int64_t, 3> block = form.block();
  return b.op(kIntegerSums, {x, added(weight), list(0), list(1), list(2), Expr(form.groups), name, std::vector<Expr>{block[0], block[1], block[2]}});
}

ValueId QuantizedLowering::product(Builder& b, const Node& node) {
  const NodeView n(graph_, *node.op, node.args);
  const std::string& name = node.op->name;
  const bool is_linear = name == "aten::linear", with_bias = name == "aten::addmm";
  if (!is_linear && !with_bias && name != "aten::mm") return {};
  if (with_bias && (n.number("alpha") != 1 || n.number("beta") != 1 || n.type("self").rank() != 1)) return {};
  const ValueId input = n.value(is_linear   ? "input"
                                : with_bias ? "mat1"
                                            : "self"),
                bias = is_linear || with_bias ? n.value(is_linear ? "bias" : "self") : ValueId();
  const DType out = type(node.outputs[0]).dtype;
  if (type(input).rank() < 1 || type(n.value(is_linear ? "weight" : "mat2")).rank() != 2) return {};
  const std::optional<Levels> x = levels_of(graph_, input);
  if (!x || type(x->bytes).sizes != type(input).sizes || !is_parameter_of_rows(x->scale, type(input)) || !is_parameter_of_rows(x->zero, type(input))) return {};
  const std::optional<Weight> w = weight_of(n.value(is_linear ? "weight" : "mat2"), !is_linear);
  if (!w || w->bytes.sizes.size() != 2) return {};
  const int64_t outputs = w->bytes.sizes[0], depth = w->bytes.sizes[1];
  const bool fits = outputs % 16 == 0 && depth % 16 == 0;
  const DType bytes = type(x->bytes).dtype;
  const auto dense = [&](ValueId v) {
    const bool is_view = graph_[v].producer.valid() && graph_[graph_[v].producer].op->is_view();
    return ir::is_contiguous(type(v)) && !is_view ? v : aten(b, "aten::clone", {v, ir::MemoryFormat::kContiguous});
  };
  const auto library = [&](ValueId a) {
    return b.op(kProduct,
                {a, added(w->bytes), std::monostate(), std::monostate(), b.floating(1), b.floating(0), std::string("none"), b.boolean(true), b.boolean(false)});
  };
  if (is_tensor_core_float8(bytes)) {
    const bool two = w->bytes.dtype == DType::kFloat8E4M3FN || (w->bytes.dtype == DType::kFloat8E5M2 && bytes == DType::kFloat8E4M3FN);
    if (!options_.float8 || !two || !fits || x->zero.valid() || !is_floating(out)) return {};
    return scaled(b, library(dense(x->bytes)), *x, *w, bias, 0, 0, out);
  }
  if (!is_byte(bytes) || w->bytes.dtype != DType::kInt8 ||
      !(is_floating(out) || (out == DType::kInt32 && !x->scale.valid() && !w->scale.valid() && !bias.valid())))
    return {};
  if (fits) {
    ValueId a = x->bytes;
    if (bytes == DType::kUInt8) a = aten(b, "aten::_to_copy", {aten(b, "aten::bitwise_xor.Scalar", {a, Expr(128)}), DType::kInt8});
    return scaled(b, library(dense(a)), *x, *w, bias, 0, bytes == DType::kUInt8 ? 128 : 0, out);
  }
  // Images of one pixel.
  IntegerForm form;
  form.is_signed = bytes == DType::kInt8;
  form.inputs = depth;
  form.outputs = outputs;
  std::vector<Expr> rows(type(input).sizes.begin(), type(input).sizes.end() - 1);
  const ValueId image = aten(b, "aten::view", {dense(x->bytes), std::vector<Expr>{ir::numel_of(rows), Expr(depth), Expr(1)}});
  const Constant kernel = [&] {
    Constant c = w->bytes;
    c.sizes = {outputs, 1, depth};
    c.strides = {depth, depth, 1};
    return c;
  }();
  const std::vector<Expr> dims{1, 0, 1};
  const ValueId sums = integer_sums(b, image, kernel, form, dims);
  rows.push_back(Expr(outputs));
  return scaled(b, aten(b, "aten::view", {sums, rows}), *x, *w, bias, 0, 0, out);
}

ValueId QuantizedLowering::convolution(Builder& b, const Node& node, const std::function<ValueId(ValueId)>& image) {
  const NodeView n(graph_, *node.op, node.args);
  const std::optional<Levels> x = levels_of(graph_, n.value("input"));
  if (!x || !is_byte(type(x->bytes).dtype) || n.boolean("transposed") || !is_floating(type(node.outputs[0]).dtype)) return {};
  const std::optional<Weight> w = weight_of(n.value("weight"), false);
  const size_t rank = type(x->bytes).sizes.size();
  if (!w || w->bytes.dtype != DType::kInt8 || rank < 3 || rank > 4 || w->bytes.sizes.size() != rank || type(x->bytes).sizes != n.type("input").sizes) return {};
  for (const ValueId parameter : {x->scale, x->zero}) {
    if (parameter.valid() && !dim_is(ir::numel_of(type(parameter).sizes), 1)) return {};
  }
  IntegerForm form;
  form.is_signed = type(x->bytes).dtype == DType::kInt8;
  if (!is_zero(x->zero)) {  // what stands for 0 outside of the image
    const Constant* c = graph_[x->zero].constant.valid() ? &(*graph_.program)[graph_[x->zero].constant] : nullptr;
    if (c == nullptr || c->data == nullptr || !is_integral(c->dtype, false)) return {};
    std::memcpy(&form.zero, c->data, dtype_size(c->dtype));
    if (c->dtype == DType::kInt8) form.zero = static_cast<int8_t>(form.zero);
    if (c->dtype == DType::kInt16) form.zero = static_cast<int16_t>(form.zero);
    if (c->dtype == DType::kInt32) form.zero = static_cast<int32_t>(form.zero);
    if (form.zero < (form.is_signed ? -128 : 0) || form.zero > (form.is_signed ? 127 : 255)) return {};
  }
  const size_t spatial = rank - 2;
  std::vector<Expr> dims;
  for (const char* name : {"stride", "padding", "dilation"}) {
    std::vector<Expr> list = n.exprs(name);
    if (list.empty() || !n.all_const(name)) return {};
    while (list.size() < spatial) list.push_back(list.front());
    dims.insert(dims.end(), list.begin(), list.end());
  }
  for (size_t d = 0; d < spatial; ++d) {
    const size_t at = d + 2 - spatial;
    form.kernel[at] = w->bytes.sizes[2 + d];
    form.stride[at] = dims[d].value();
    form.padding[at] = dims[spatial + d].value();
    form.dilation[at] = dims[2 * spatial + d].value();
  }
  form.groups = n.expr("groups").value();
  form.inputs = w->bytes.sizes[1];
  form.outputs = w->bytes.sizes[0] / form.groups;
  const ValueId from = image(x->bytes);
  if (!from.valid()) return {};
  const ValueId sums = integer_sums(b, from, channels_last(w->bytes), form, dims);
  return scaled(b, sums, *x, *w, n.value("bias"), static_cast<int64_t>(spatial), 0, type(node.outputs[0]).dtype);
}

}  // namespace pteron::cuda
