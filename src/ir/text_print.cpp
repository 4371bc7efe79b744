// Printer of the text form.
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_set>

#include "base/str_cat.h"
#include "ir/op.h"
#include "ir/text.h"
#include "ir/text_words.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::ir {

namespace {

constexpr std::pair<DType, std::string_view> kShortNames[] = {
    {DType::kUInt8, "u8"},          {DType::kInt8, "i8"},           {DType::kInt16, "i16"},          {DType::kInt32, "i32"},
    {DType::kInt64, "i64"},         {DType::kFloat16, "f16"},       {DType::kFloat32, "f32"},        {DType::kFloat64, "f64"},
    {DType::kComplexHalf, "c32"},   {DType::kComplexFloat, "c64"},  {DType::kComplexDouble, "c128"}, {DType::kBool, "bool"},
    {DType::kBFloat16, "bf16"},     {DType::kFloat8E5M2, "f8e5m2"}, {DType::kFloat8E4M3FN, "f8e4m3fn"}, {DType::kFloat8E5M2FNUZ, "f8e5m2fnuz"},
    {DType::kFloat8E4M3FNUZ, "f8e4m3fnuz"}, {DType::kUInt16, "u16"}, {DType::kUInt32, "u32"},        {DType::kUInt64, "u64"},
};

std::string quoted(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = str_cat(value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

/// Shortest text of a float32 (and of the 16-bit floats, which are exact in it).
std::string float_text(float value) {
  if (std::isnan(value)) return "nan";
  std::string text = str_cat(value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

template <typename T>
std::string element_text(const T& value) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return float_text(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return float_text(value);
  } else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return str_cat(float_text(value.real()), ",", float_text(value.imag()));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else {
    return str_cat(static_cast<std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>>(value));
  }
}

/// Row-major bytes of a constant with data; false if they cannot be had.
bool dense_bytes(const Constant& constant, Buffer* out) {
  auto made = Buffer::create(constant.size_bytes());
  if (!made.ok() || constant.sizes.size() > kMaxRank) return false;
  *out = std::move(*made);
  TensorView from = make_contiguous_view(constant.dtype, constant.sizes, const_cast<std::byte*>(constant.data));
  const TensorView to = make_contiguous_view(constant.dtype, constant.sizes, out->data());
  std::copy(constant.strides.begin(), constant.strides.end(), from.stride_array.begin());
  copy_strided(from, to);
  return true;
}

std::string hash_text(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const uint64_t half : {hash.high64, hash.low64}) {
    for (int shift = 60; shift >= 0; shift -= 4) out += kHex[(half >> shift) & 15];
  }
  return out;
}

/// "= {1.0,2.0}", "= hash 0123..", "= lazy", or nothing if the bytes are unknown.
std::string contents_text(const Constant& constant, const PrintOptions& options) {
  if (constant.numel() == 0) return " = {}";
  if (constant.data == nullptr) {
    if (!constant.hash.empty()) return str_cat(" = hash ", constant.hash);
    return constant.lazy ? " = lazy" : " = unknown";
  }
  Buffer dense;
  const bool small = constant.numel() <= kInlineElements;
  if (!small && !options.hashes) return " = unknown";
  if (!dense_bytes(constant, &dense)) return " = unknown";
  if (!small) return str_cat(" = hash ", hash_text(dense.span()));
  std::string out = " = {";
  const bool typed = dispatch_dtype(constant.dtype, [&]<typename T>() {
    for (int64_t i = 0; i < constant.numel(); ++i) {
      T value;
      std::memcpy(&value, dense.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
      if (i > 0) out += ",";
      out += element_text(value);
    }
  });
  if (!typed) {  // fp8, complex half: bytes
    for (size_t i = 0; i < dense.size(); ++i) str_append(out, i > 0 ? "," : "", static_cast<int>(dense.data()[i]));
  }
  return out + "}";
}

std::string constant_type_text(const Constant& constant) {
  return print_type(TensorType{constant.dtype, {constant.sizes.begin(), constant.sizes.end()}, {constant.strides.begin(), constant.strides.end()}, {}});
}

/// `f32[4] "fc.bias" parameter = {...}`.
std::string constant_text(const Constant& constant, const PrintOptions& options) {
  std::string out = constant_type_text(constant);
  if (!constant.name.empty()) str_append(out, " ", quoted(constant.name));
  if (constant.origin != Constant::Origin::kFolded) str_append(out, " ", kOriginNames[static_cast<size_t>(constant.origin)]);
  if (constant.mutable_elsewhere) out += " mutable";
  return out + contents_text(constant, options);
}

/// Operator names that need no quotes: a word that is none of the text form's, then more words, ':' and '.'.
bool is_plain_operator(std::string_view name) {
  const size_t first = std::min(name.find_first_of(":."), name.size());
  return is_identifier(name.substr(0, first)) && !is_text_word(name.substr(0, first)) &&
         std::all_of(name.begin(), name.end(), [](char c) { return is_word_char(c) || c == ':' || c == '.'; });
}

/// Prints one graph and those below it.
class GraphPrinter {
 public:
  /// by_number: constants are given by their number in the program's table.
  GraphPrinter(const Graph& graph, const PrintOptions& options, bool by_number, int indent)
      : graph_(graph), options_(options), by_number_(by_number), indent_(indent) {
    for (const Expr& symbol : graph.program->exprs.symbols()) symbols_.insert(symbol.node()->name);
  }

  std::string print() {
    out_ = "graph(";
    for (size_t i = 0; i < graph_.inputs.size(); ++i) str_append(out_, i > 0 ? ", " : "", input_text(graph_.inputs[i]));
    out_ += ") {\n";
    for (const State& state : graph_.states) line(state_text(state));
    print_constants();
    for (const NodeId id : graph_.order) print_node(id);
    for (const State& state : graph_.states) {
      if (state.result != state.value) line(str_cat("write state ", quoted(state.name), " = ", value_name(state.result)));
    }
    for (const InputMutation& mutation : graph_.input_mutations) line(str_cat("write input ", mutation.input, " = ", value_name(mutation.result)));
    std::string results;
    for (const Arg& output : graph_.outputs) str_append(results, results.empty() ? " " : ", ", arg_text(output));
    line(str_cat("return", results));
    str_append(out_, std::string(static_cast<size_t>(indent_) * 2, ' '), "}");
    return std::move(out_);
  }

  std::string node_text(NodeId id) const {
    const Node& node = graph_[id];
    std::string out;
    for (const ValueId result : node.outputs) str_append(out, out.empty() ? "" : ", ", result_text(result));
    if (!node.outputs.empty()) out += " = ";
    str_append(out, is_plain_operator(node.op->name) ? node.op->name : quoted(node.op->name), "(");
    for (size_t i = 0; i < node.args.size(); ++i) str_append(out, i > 0 ? ", " : "", arg_text(node.args[i]));
    return out + ")";
  }

  std::string origin_text(NodeId id) const {
    const Node& node = graph_[id];
    if (!options_.origins) return {};
    std::string out;
    const std::string_view usual = node.outputs.empty() ? std::string_view() : std::string_view(graph_[node.outputs[0]].name);
    if (node.name != usual) str_append(out, " as ", quoted(node.name));
    if (!node.source.empty()) str_append(out, " at ", quoted(node.source));
    if (!node.module.empty()) str_append(out, " in ", quoted(node.module));
    return out;
  }

 private:
  void line(std::string_view text) { str_append(out_, std::string(static_cast<size_t>(indent_ + 1) * 2, ' '), text, "\n"); }

  std::string name_text(const std::string& name) const {
    if (is_identifier(name) && !is_text_word(name) && name != "_" && !symbols_.contains(name)) return name;
    return str_cat("%", is_identifier(name) ? name : quoted(name));
  }
  std::string value_name(ValueId id) const { return id.valid() && id.index < graph_.values.size() ? name_text(graph_[id].name) : "none"; }

  std::string value_type_text(const Value& value) const {
    switch (value.kind) {
      case ValueKind::kTensor: return print_type(value.type);
      case ValueKind::kScalar: return str_cat("scalar(", to_text(value.scalar), ")");
      case ValueKind::kNone: break;
    }
    return "none";
  }

  std::string result_text(ValueId id) const {
    const Value& value = graph_[id];
    if (!options_.types && value.kind == ValueKind::kTensor) return value_name(id);
    return str_cat(value_name(id), ": ", value_type_text(value));
  }

  std::string input_text(const Input& input) const {
    if (!input.value.valid()) return str_cat(name_text(input.name), " = ", arg_text(input.literal));
    const Value& value = graph_[input.value];
    return str_cat(value_name(input.value), ": ", value_type_text(value), input.name == value.name ? "" : str_cat(" as ", quoted(input.name)));
  }

  std::string constant_reference(ConstantId id) const {
    return by_number_ ? str_cat("const ", id.index) : str_cat("const ", constant_text((*graph_.program)[id], options_));
  }

  std::string state_text(const State& state) const {
    std::string out = str_cat("state ", value_name(state.value), ": ", print_type(graph_[state.value].type), " ", quoted(state.name));
    if (state.initial.valid()) str_append(out, " = ", constant_reference(state.initial));
    return out;
  }

  void print_constants() {
    std::vector<bool> used(graph_.values.size(), false);
    const auto note = [&](ValueId id) { used[id.index] = true; };
    for (const NodeId id : graph_.order) for_each_use(graph_[id], note);
    for_each_result(const_cast<Graph&>(graph_), [&](ValueId& id) { used[id.index] = true; });
    for (uint32_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (!used[i] || !value.constant.valid()) continue;
      std::string device;
      if (value.type.device != Device()) device = str_cat(" on ", device_text(value.type.device));
      line(str_cat(name_text(value.name), " = ", constant_reference(value.constant), device));
    }
  }

  void print_node(NodeId id) {
    const Node& node = graph_[id];
    if (node.regions.empty()) return line(str_cat(node_text(id), origin_text(id)));
    std::string text = str_cat(node_text(id), origin_text(id), " regions [\n");
    const std::string pad(static_cast<size_t>(indent_ + 2) * 2, ' ');
    for (size_t i = 0; i < node.regions.size(); ++i) {
      GraphPrinter inner(*node.regions[i], options_, by_number_, indent_ + 2);
      str_append(text, pad, inner.print(), i + 1 < node.regions.size() ? "," : "", "\n");
    }
    line(str_cat(text, std::string(static_cast<size_t>(indent_ + 1) * 2, ' '), "]"));
  }

  static std::string device_text(Device device) { return str_cat(device.type == DeviceType::kCuda ? "cuda:" : "cpu:", static_cast<int>(device.index)); }

  std::string arg_text(const Arg& arg) const {
    struct Visitor {
      const GraphPrinter& p;
      std::string operator()(std::monostate) const { return "none"; }
      std::string operator()(ValueId id) const { return p.value_name(id); }
      std::string operator()(const std::vector<ValueId>& ids) const {
        std::string out = "[";
        for (const ValueId id : ids) str_append(out, out.size() > 1 ? ", " : "", p.value_name(id));
        return out + "]";
      }
      std::string operator()(const Expr& e) const { return to_text(e); }
      std::string operator()(const std::vector<Expr>& list) const {
        std::string out = "[";
        for (const Expr& e : list) str_append(out, out.size() > 1 ? "," : "", to_text(e));
        return out + "]";
      }
      std::string operator()(const std::string& text) const { return quoted(text); }
      std::string operator()(DType dtype) const { return str_cat("dtype:", short_name(dtype)); }
      std::string operator()(MemoryFormat format) const { return str_cat("format:", kMemoryFormatNames[static_cast<size_t>(format)]); }
      std::string operator()(Layout layout) const { return str_cat("layout:", kLayoutNames[static_cast<size_t>(layout)]); }
      std::string operator()(Device device) const { return str_cat("device:", device_text(device)); }
      std::string operator()(std::complex<double> value) const {
        return str_cat("complex(", float_text(value.real()), ",", float_text(value.imag()), ")");
      }
    };
    return std::visit(Visitor{*this}, arg);
  }

  const Graph& graph_;
  const PrintOptions& options_;
  bool by_number_;
  int indent_;
  std::unordered_set<std::string_view> symbols_;
  std::string out_;
};

std::string range_text(Range range) {
  const std::string low = range.min == Range::kMin ? "-inf" : str_cat(range.min), high = range.max == Range::kMax ? "inf" : str_cat(range.max);
  return str_cat(" in [", low, ",", high, "]");
}

std::string symbols_text(const ExprContext& exprs) {
  std::string out;
  for (const Expr& symbol : exprs.symbols()) {
    const char* type = symbol.type() == ExprType::kInt ? "int" : symbol.type() == ExprType::kFloat ? "float" : "bool";
    str_append(out, "symbol ", symbol.node()->name, ": ", type, symbol.type() == ExprType::kInt ? range_text(exprs.range_of(symbol)) : "", "\n");
  }
  return out;
}

}  // namespace

std::string_view short_name(DType dtype) {
  for (const auto& [d, name] : kShortNames) {
    if (d == dtype) return name;
  }
  return "unknown";
}

bool dtype_from_short_name(std::string_view name, DType* out) {
  for (const auto& [d, text] : kShortNames) {
    if (text != name) continue;
    *out = d;
    return true;
  }
  return false;
}

std::string print_type(const TensorType& type) {
  const auto dims = [](const std::vector<Expr>& list) {
    std::string out;
    for (const Expr& e : list) str_append(out, out.empty() ? "" : ",", to_text(e));
    return out;
  };
  std::string out = str_cat(short_name(type.dtype), "[", dims(type.sizes), "]");
  if (type.strides != contiguous_strides_of(type.sizes)) str_append(out, "{", dims(type.strides), "}");
  if (type.device != Device()) str_append(out, "@", type.device.type == DeviceType::kCuda ? "cuda:" : "cpu:", static_cast<int>(type.device.index));
  return out;
}

std::string print_node(const Graph& graph, NodeId node, const PrintOptions& options) {
  const GraphPrinter printer(graph, options, true, 0);
  return printer.node_text(node) + printer.origin_text(node);
}

std::string print(const Graph& graph, const PrintOptions& options) { return symbols_text(graph.program->exprs) + GraphPrinter(graph, options, false, 0).print() + "\n"; }

std::string print(const Program& program, const PrintOptions& options) {
  std::string out = symbols_text(program.exprs);
  for (size_t i = 0; i < program.constants.size(); ++i) str_append(out, "const ", i, ": ", constant_text(program.constants[i], options), "\n");
  for (const auto& method : program.methods) {
    str_append(out, "method ", quoted(method->name));
    if (!method->in_spec.empty()) str_append(out, "\n  inputs ", quoted(method->in_spec));
    if (!method->out_spec.empty()) str_append(out, "\n  outputs ", quoted(method->out_spec));
    str_append(out, "\n", GraphPrinter(method->graph, options, true, 0).print(), "\n");
  }
  return out;
}

}  // namespace pteron::ir
