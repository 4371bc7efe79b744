// NodeView, default arguments, node construction with inference, and the rewrite walk.
#include "ir/builder.h"

#include <algorithm>
#include <charconv>
#include <cstring>

#include "base/check.h"
#include "base/str_cat.h"
#include "tensor/dtype.h"

namespace pteron::ir {

const Arg& NodeView::arg(std::string_view name) const {
  const int at = op_->schema.find(name);
  PTERON_CHECK(at >= 0 && static_cast<size_t>(at) < args_.size());
  return args_[static_cast<size_t>(at)];
}

ValueId NodeView::value(std::string_view name) const {
  const auto* id = std::get_if<ValueId>(&arg(name));
  return id == nullptr ? ValueId{} : *id;
}

std::vector<ValueId> NodeView::values(std::string_view name) const {
  const Arg& a = arg(name);
  if (const auto* list = std::get_if<std::vector<ValueId>>(&a)) return *list;
  if (const auto* one = std::get_if<ValueId>(&a)) return {*one};
  return {};
}

const TensorType& NodeView::type(std::string_view name) const {
  const ValueId id = value(name);
  if (id.valid()) return (*graph_)[id].type;
  // A Python number in place of a tensor: add.Tensor(x, 2).
  static const TensorType kInt{DType::kInt64, {}, {}, {}}, kFloat{DType::kFloat32, {}, {}, {}}, kBool{DType::kBool, {}, {}, {}}, kComplex{DType::kComplexFloat, {}, {}, {}};
  if (std::holds_alternative<std::complex<double>>(arg(name))) return kComplex;
  const auto* e = std::get_if<Expr>(&arg(name));
  if (e == nullptr) return kFloat;
  return e->type() == ExprType::kInt ? kInt : e->type() == ExprType::kFloat ? kFloat : kBool;
}

Expr NodeView::expr(std::string_view name, Expr missing) const {
  const Arg& a = arg(name);
  if (const auto* e = std::get_if<Expr>(&a)) return *e;
  if (const auto* id = std::get_if<ValueId>(&a)) return (*graph_)[*id].scalar;
  if (const auto* list = std::get_if<std::vector<Expr>>(&a); list != nullptr && list->size() == 1) return (*list)[0];
  return missing;
}

std::vector<Expr> NodeView::exprs(std::string_view name) const {
  const Arg& a = arg(name);
  if (const auto* list = std::get_if<std::vector<Expr>>(&a)) return *list;
  if (const auto* e = std::get_if<Expr>(&a)) return {*e};
  return {};
}

int64_t NodeView::integer(std::string_view name, int64_t missing) const {
  const Expr e = expr(name, missing);
  return is_number(e) ? static_cast<int64_t>(number_of(e)) : missing;
}

std::vector<int64_t> NodeView::integers(std::string_view name) const {
  std::vector<int64_t> out;
  for (const Expr& e : exprs(name)) out.push_back(e.is_const() ? e.value() : static_cast<int64_t>(is_number(e) ? number_of(e) : 0));
  return out;
}

bool NodeView::all_const(std::string_view name) const {
  const std::vector<Expr> list = exprs(name);
  return std::all_of(list.begin(), list.end(), [](const Expr& e) { return e.is_const(); });
}

double NodeView::number(std::string_view name, double missing) const {
  if (is_none(name)) return missing;
  const Expr e = expr(name);
  return is_number(e) ? number_of(e) : missing;
}

bool NodeView::boolean(std::string_view name, bool missing) const {
  if (is_none(name)) return missing;
  const Expr e = expr(name);
  return is_number(e) ? number_of(e) != 0 : missing;
}

std::string_view NodeView::text(std::string_view name) const {
  const auto* s = std::get_if<std::string>(&arg(name));
  return s == nullptr ? std::string_view() : *s;
}

DType NodeView::dtype(std::string_view name, DType missing) const {
  const auto* d = std::get_if<DType>(&arg(name));
  return d == nullptr ? missing : *d;
}

namespace {

/// One number of a default: "1", "2.", "1e-05", "True".
Expr parse_number(std::string_view text, BaseType base, ExprContext& exprs) {
  if (text == "True" || text == "False") return exprs.boolean(text == "True");
  int64_t integer = 0;
  const auto whole = std::from_chars(text.data(), text.data() + text.size(), integer);
  const bool is_int = whole.ec == std::errc() && whole.ptr == text.data() + text.size();
  if (is_int && base != BaseType::kFloat) return integer;
  double number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return exprs.floating(number);
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Arg default_argument(const SchemaArg& arg, ExprContext& exprs) {
  const std::string_view text = arg.default_text;
  if (text == "None") return std::monostate();
  if (!text.empty() && (text[0] == '"' || text[0] == '\'')) return std::string(text.substr(1, text.size() - 2));
  if (arg.type.base == BaseType::kMemoryFormat) return MemoryFormat::kContiguous;  // "contiguous_format" is the only written default
  if (arg.type.base == BaseType::kScalarType) return text == "long" ? DType::kInt64 : DType::kFloat32;
  if (arg.type.base == BaseType::kTensor) return std::vector<ValueId>{};
  if (!arg.type.list) {
    if (text == "Mean") return Expr(1);  // at::Reduction::Mean
    return parse_number(text, arg.type.base, exprs);
  }
  std::vector<Expr> list;
  std::string_view inner = text;
  if (inner.starts_with('[')) {
    inner = inner.substr(1, inner.size() - 2);
    while (!trim(inner).empty()) {
      const size_t comma = inner.find(',');
      list.push_back(parse_number(trim(inner.substr(0, comma)), arg.type.base, exprs));
      inner = comma == std::string_view::npos ? std::string_view() : inner.substr(comma + 1);
    }
    return list;
  }
  list.push_back(parse_number(inner, arg.type.base, exprs));  // int[2] stride=1: a scalar stands for every entry
  return list;
}

namespace {

/// An int, float or bool constant as the base type that the schema asks for.
Expr coerce_number(Expr e, BaseType base, ExprContext& exprs) {
  if (base == BaseType::kFloat && e.type() == ExprType::kInt) {
    const Expr one[] = {e};
    return e.is_const() ? exprs.floating(static_cast<double>(e.value())) : exprs.make(ExprOp::kToFloat, one);
  }
  if (base == BaseType::kBool && e.is_const()) return exprs.boolean(e.value() != 0);
  if (base == BaseType::kInt && e.type() == ExprType::kBool && is_number(e)) return static_cast<int64_t>(number_of(e));
  return e;
}

}  // namespace

void coerce_argument(Arg* arg, const SchemaType& type, ExprContext& exprs) {
  if (type.list) {
    if (const auto* e = std::get_if<Expr>(arg)) *arg = std::vector<Expr>{*e};
    if (const auto* id = std::get_if<ValueId>(arg); id != nullptr && type.base == BaseType::kTensor) *arg = std::vector<ValueId>{*id};
    if (const auto* list = std::get_if<std::vector<ValueId>>(arg); list != nullptr && list->empty() && type.base != BaseType::kTensor) {
      *arg = std::vector<Expr>();  // an empty list has no type in the archive
    }
  }
  if (auto* e = std::get_if<Expr>(arg)) *e = coerce_number(*e, type.base, exprs);
  if (auto* list = std::get_if<std::vector<Expr>>(arg)) {
    if (list->empty() && type.base == BaseType::kTensor) {
      *arg = std::vector<ValueId>();
      return;
    }
    for (Expr& e : *list) e = coerce_number(e, type.base, exprs);
  }
}

Result<std::vector<Arg>> complete_args(const Op& op, std::vector<Arg> args, ExprContext& exprs) {
  const auto& schema = op.schema.args;
  if (args.size() > schema.size()) return Status(Code::kInternal, str_cat(op.name, ": ", args.size(), " arguments, the schema has ", schema.size()));
  for (size_t i = args.size(); i < schema.size(); ++i) {
    if (schema[i].has_default) {
      args.push_back(default_argument(schema[i], exprs));
    } else if (schema[i].type.optional) {
      args.emplace_back(std::monostate());
    } else {
      return Status(Code::kInvalidInput, str_cat(op.name, ": argument '", schema[i].name, "' is missing"));
    }
  }
  return args;
}

Result<NodeId> make_node(Graph& graph, const Op& op, std::vector<Arg> args, std::string_view name) {
  PTERON_ASSIGN(args, complete_args(op, std::move(args), graph.program->exprs));
  if (op.def.infer == nullptr) return Status(Code::kInternal, str_cat(op.name, ": no shape inference"));
  InferContext context(graph, op, args);
  if (Status status = op.def.infer(context); !status.ok()) return std::move(status).with_context(op.name);
  Node node;
  node.op = &op;
  node.args = std::move(args);
  node.name = std::string(name);
  for (InferredValue& result : context.results) {
    switch (result.kind) {
      case ValueKind::kTensor: node.outputs.push_back(graph.add_tensor(std::move(result.type), name)); break;
      case ValueKind::kScalar: node.outputs.push_back(graph.add_scalar(result.scalar, name)); break;
      case ValueKind::kNone: node.outputs.push_back(graph.add_none(name)); break;
    }
  }
  return graph.add_node(std::move(node));
}

const TensorType& Builder::type(ValueId id) const {
  static const TensorType kNothing;
  return id.valid() ? (*graph_)[id].type : kNothing;
}

std::vector<ValueId> Builder::ops(std::string_view name, std::vector<Arg> args) {
  if (!status_.ok()) return {};
  const Op* op = catalog_->find(name);
  if (op == nullptr) {
    fail(Status(Code::kUnsupported, str_cat("operator ", name, " is not in the catalog")));
    return {};
  }
  if (before) before(*op, args);
  if (!status_.ok()) return {};
  std::string_view short_name = op->schema.name;
  if (const size_t colon = short_name.rfind(':'); colon != std::string_view::npos) short_name.remove_prefix(colon + 1);
  auto node = make_node(*graph_, *op, std::move(args), short_name);
  if (!node.ok()) {
    fail(std::move(node).status());
    return {};
  }
  sink_->push_back(*node);
  Node& made = (*graph_)[*node];
  made.source = origin_source_;
  made.module = origin_module_;
  return made.outputs;
}

ValueId Builder::op(std::string_view name, std::vector<Arg> args) {
  const std::vector<ValueId> results = ops(name, std::move(args));
  return results.empty() ? ValueId{} : results[0];
}

ValueId Builder::constant(DType dtype, std::vector<int64_t> sizes, std::span<const std::byte> bytes, std::string_view name) {
  if (!status_.ok()) return {};
  auto made = Buffer::create(bytes.size());
  if (!made.ok()) {
    fail(std::move(made).status());
    return {};
  }
  auto buffer = std::make_shared<Buffer>(std::move(made).value());
  if (!bytes.empty()) std::memcpy(buffer->data(), bytes.data(), bytes.size());
  Constant constant;
  constant.name = std::string(name);
  constant.dtype = dtype;
  constant.sizes = std::move(sizes);
  int64_t stride = 1;
  constant.strides.resize(constant.sizes.size());
  for (size_t d = constant.sizes.size(); d-- > 0;) {
    constant.strides[d] = stride;
    stride *= std::max<int64_t>(constant.sizes[d], 1);
  }
  constant.data = buffer->data();
  constant.owner = buffer;
  return graph_->add_constant(graph_->program->add(std::move(constant)), name);
}

ValueId Builder::scalar_tensor(double value, DType dtype) {
  std::byte bytes[16] = {};
  const bool known = dispatch_dtype(dtype, [&]<typename T>() {
    T typed{};
    if constexpr (std::is_same_v<T, bool>) {
      typed = value != 0;
    } else if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
      typed = T(static_cast<float>(value));
    } else if constexpr (std::is_same_v<T, std::complex<float>>) {
      typed = std::complex<float>(static_cast<float>(value));
    } else {
      typed = static_cast<T>(value);  // NOLINT: the caller chose the dtype
    }
    std::memcpy(bytes, &typed, sizeof typed);
  });
  if (!known) {
    fail(Status(Code::kUnsupported, str_cat("a scalar of dtype ", dtype_name(dtype))));
    return {};
  }
  return constant(dtype, {}, std::span(bytes, dtype_size(dtype)), "scalar");
}

void Builder::fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

Result<bool> rewrite(Graph& graph, const Catalog& catalog, const RewriteFn& fn) {
  const std::vector<NodeId> old_order = std::move(graph.order);
  graph.order.clear();
  std::vector<NodeId> new_order;
  new_order.reserve(old_order.size());
  std::unordered_map<uint32_t, ValueId> replaced;
  const auto current = [&](ValueId& id) {
    for (auto found = replaced.find(id.index); found != replaced.end(); found = replaced.find(id.index)) id = found->second;
  };
  Builder builder(graph, catalog, new_order);
  bool changed = false;
  for (size_t i = 0; i < old_order.size(); ++i) {
    const NodeId id = old_order[i];
    for (Arg& arg : graph[id].args) for_each_value(arg, std::function<void(ValueId&)>(current));
    builder.set_origin(graph[id]);
    std::vector<ValueId> replacements;
    const size_t before = new_order.size();
    auto answer = fn(builder, id, replacements);
    Status status = answer.ok() ? builder.take_status() : std::move(answer).status();
    if (!status.ok()) {
      graph.order = std::move(new_order);
      graph.order.insert(graph.order.end(), old_order.begin() + static_cast<std::ptrdiff_t>(i), old_order.end());
      const Node& node = graph[id];
      return std::move(status).with_context(node.source.empty() ? str_cat("node ", node.name) : str_cat("node ", node.name, " (", node.source, ")"));
    }
    if (*answer == Rewrite::kReplace) {
      PTERON_CHECK(replacements.size() == graph[id].outputs.size());
      for (size_t k = 0; k < replacements.size(); ++k) {
        if (replacements[k].valid() && replacements[k] != graph[id].outputs[k]) replaced[graph[id].outputs[k].index] = replacements[k];
      }
    }
    if (*answer == Rewrite::kKeep) new_order.push_back(id);
    changed = changed || *answer != Rewrite::kKeep || new_order.size() != before + 1;
  }
  graph.order = std::move(new_order);
  for_each_result(graph, current);
  return changed;
}

Status for_each_graph(Graph& graph, const std::function<Status(Graph&)>& fn) {
  for (const NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) PTERON_TRY(for_each_graph(*region, fn));
  }
  return fn(graph);
}

}  // namespace pteron::ir
