// One node: arguments become run-time values, outs are allocated with the types of the graph, the kernel is called.
#include "interp/evaluator.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <numeric>
#include <string>
#include <utility>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "runtime/prim_ops.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::interp {

using ir::Arg;
using ir::BaseType;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::ValueId;
using runtime::Tag;
using runtime::Value;

namespace {

Result<std::shared_ptr<Buffer>> make_bytes(uint64_t bytes) {
  PTERON_ASSIGN(Buffer buffer, Buffer::create(std::max<uint64_t>(bytes, 1)));
  return std::make_shared<Buffer>(std::move(buffer));
}

/// A tensor whose strides follow those of the type where they are dense, else row-major.
Result<HostTensor> make_out(DType dtype, std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  if (sizes.size() > kMaxRank) return Status(Code::kUnsupported, str_cat("rank ", sizes.size()));
  PTERON_ASSIGN(HostTensor out, make_tensor(dtype, sizes));
  std::array<uint8_t, kMaxRank> order{};
  if (strides.size() == sizes.size() && dim_order_of_strides(sizes, strides, {order.data(), sizes.size()})) {
    const Sizes dense = strides_of_dim_order(sizes, {order.data(), sizes.size()});
    std::copy(dense.begin(), dense.end(), out.view.stride_array.begin());
  }
  return out;
}

runtime::Tensor slot_of(const TensorView& view) {
  runtime::Tensor slot;
  slot.view = view;
  std::copy(view.sizes().begin(), view.sizes().end(), slot.bound.begin());
  std::iota(slot.dim_order.begin(), slot.dim_order.end(), uint8_t{0});
  std::array<uint8_t, kMaxRank> order{};
  if (dim_order_of_strides(view.sizes(), view.strides(), {order.data(), view.rank})) std::copy_n(order.begin(), view.rank, slot.dim_order.begin());
  return slot;
}

Status no_value(const Node& node, Expr e) { return Status(Code::kInternal, str_cat(node.op->name, ": no value for ", ir::to_text(e))); }

}  // namespace

Result<HostTensor> make_tensor(DType dtype, std::span<const int64_t> sizes) {
  int64_t count = 0;
  uint64_t bytes = 0;
  if (!checked_numel(sizes, &count) || !checked_mul(static_cast<uint64_t>(count), static_cast<uint64_t>(dtype_size(dtype)), &bytes)) {
    return Status(Code::kOutOfMemory, str_cat("out of memory: ", dtype_name(dtype), " ", shape_text(sizes), " has more bytes than can be counted"));
  }
  auto made = make_bytes(bytes);
  if (!made.ok()) return std::move(made).status().with_context(str_cat(dtype_name(dtype), " ", shape_text(sizes)));
  std::shared_ptr<Buffer> buffer = std::move(made).value();
  HostTensor tensor;
  tensor.view = make_contiguous_view(dtype, sizes, buffer->data());
  tensor.owner = std::move(buffer);
  return tensor;
}

Result<HostTensor> make_contiguous(const HostTensor& tensor) {
  if (tensor.view.is_contiguous()) return tensor;
  PTERON_ASSIGN(HostTensor copy, make_tensor(tensor.view.dtype, tensor.view.sizes()));
  copy_strided(tensor.view, copy.view);
  return copy;
}

Result<HostTensor> tensor_of(const ir::Constant& constant) {
  HostTensor tensor;
  if (constant.sizes.size() > kMaxRank) return Status(Code::kUnsupported, str_cat("constant '", constant.name, "' has rank ", constant.sizes.size()));
  if (constant.data == nullptr && constant.lazy) {
    PTERON_ASSIGN(Buffer made, constant.lazy());
    auto buffer = std::make_shared<Buffer>(std::move(made));
    tensor.view = make_contiguous_view(constant.dtype, constant.sizes, buffer->data());
    tensor.owner = std::move(buffer);
    return tensor;
  }
  if (constant.data == nullptr && constant.numel() > 0) return Status(Code::kInvalidFile, str_cat("constant '", constant.name, "' has no bytes in the archive"));
  tensor.view = make_contiguous_view(constant.dtype, constant.sizes, const_cast<std::byte*>(constant.data));  // NOLINT: kernels only read operands
  std::copy(constant.strides.begin(), constant.strides.end(), tensor.view.stride_array.begin());
  tensor.owner = constant.owner;
  return tensor;
}

/// The values of one call; lists point into the deques, which never move their items.
class CallFrame {
 public:
  CallFrame(const Graph& graph, const Node& node, const Lookup& lookup, const Symbols& symbols) : graph_(graph), node_(node), lookup_(lookup), symbols_(symbols) {}

  Status add_args() {
    const auto& schema = node_.op->schema.args;
    const bool factory = node_.op->schema.find("pin_memory") >= 0 || node_.op->schema.find("layout") >= 0;
    for (size_t i = 0; i < schema.size(); ++i) {
      const std::string& name = schema[i].name;
      if (factory && (name == "dtype" || name == "layout" || name == "device" || name == "pin_memory")) continue;
      PTERON_TRY(add_arg(node_.args[i], schema[i].type));
    }
    return ok_status();
  }

  /// Allocates the results and lists them as emit does.
  Status add_outs() {
    std::vector<Value*> outs;
    for (const ValueId id : node_.outputs) {
      PTERON_ASSIGN(Value* const out, make_out_value(graph_[id]));
      outs.push_back(out);
    }
    const bool list_result = node_.op->schema.returns.size() == 1 && node_.op->schema.returns[0].type.list;
    if (list_result) {
      Value* list = new_list(Tag::kTensorList, outs);
      args_.push_back(list);
      args_.push_back(list);
      return ok_status();
    }
    args_.insert(args_.end(), outs.begin(), outs.end());
    if (outs.size() == 1) args_.push_back(outs[0]);
    const bool all_tensors = std::all_of(outs.begin(), outs.end(), [](const Value* v) { return v->tag == Tag::kTensor; });
    if (outs.size() > 1 && all_tensors) args_.push_back(new_list(Tag::kTensorList, outs));
    return ok_status();
  }

  Status call(const runtime::Kernel& kernel, ThreadPool& pool) {
    runtime::KernelContext context;
    context.pool = &pool;
    Buffer scratch;
    if (kernel.workspace != nullptr) {
      PTERON_ASSIGN(scratch, Buffer::create(kernel.workspace(args_)));
      context.scratch = scratch.span();
    }
    return kernel.fn(context, args_);
  }

  /// The results after the call; learns the symbols that they carry.
  Result<std::vector<NodeValue>> take_results(Symbols* symbols) {
    std::vector<NodeValue> results;
    for (size_t k = 0; k < outs_.size(); ++k) {
      const ir::Value& type = graph_[node_.outputs[k]];
      const Value& value = *outs_[k];
      if (value.tag == Tag::kTensor) {
        for (size_t d = 0; d < type.type.sizes.size(); ++d) {
          if (!learn_size(type.type.sizes[d], value.tensor.view.size_array[d], symbols)) {
            return Status(Code::kInternal, str_cat(node_.op->name, ": result of shape ", shape_text(value.tensor.sizes()), " where inference said dim ", d, " is ",
                                                   ir::to_text(type.type.sizes[d])));
          }
        }
        results.emplace_back(HostTensor{value.tensor.view, owners_[k]});
      } else if (value.tag == Tag::kNone) {
        results.emplace_back(std::monostate());
      } else {
        const Number number = value.tag == Tag::kDouble ? Number::of(value.floating) : value.tag == Tag::kBool ? Number::of(value.integer != 0) : Number::of(value.integer);
        if (type.scalar.is_symbol()) (*symbols)[type.scalar.node()] = number;
        results.emplace_back(number);
      }
    }
    return results;
  }

 private:
  Value* new_value(Tag tag) {
    values_.emplace_back();
    values_.back().tag = tag;
    return &values_.back();
  }

  Value* new_list(Tag tag, std::vector<Value*> items) {
    lists_.push_back(std::move(items));
    Value* value = new_value(tag);
    value->items = lists_.back();
    return value;
  }

  Value* new_number(const Number& number) {
    Value* value = new_value(number.type == ir::ExprType::kFloat ? Tag::kDouble : number.type == ir::ExprType::kBool ? Tag::kBool : Tag::kInt);
    value->integer = number.integer;
    value->floating = number.floating;
    return value;
  }

  Value* new_int(int64_t number) { return new_number(Number::of(number)); }

  Result<Value*> tensor_value(ValueId id) {
    if (!id.valid()) return new_value(Tag::kNone);
    if (graph_[id].kind == ir::ValueKind::kScalar) return scalar_value(graph_[id].scalar, BaseType::kScalar);
    if (graph_[id].kind == ir::ValueKind::kNone) return new_value(Tag::kNone);
    PTERON_ASSIGN(HostTensor tensor, lookup_(id));
    operands_.push_back(tensor);
    Value* value = new_value(Tag::kTensor);
    value->tensor = slot_of(tensor.view);
    value->tensor.read_only = true;
    return value;
  }

  Result<Value*> scalar_value(Expr e, BaseType base) {
    const auto number = evaluate_number(e, symbols_);
    if (!number) return no_value(node_, e);
    switch (base) {
      case BaseType::kFloat: return new_number(Number::of(number->to_double()));
      case BaseType::kBool: return new_number(Number::of(number->to_bool()));
      case BaseType::kInt: return new_number(Number::of(number->to_int()));
      default: return new_number(*number);
    }
  }

  Result<Value*> scalar_list(std::span<const Expr> list, BaseType base) {
    std::vector<Value*> items;
    for (const Expr& e : list) {
      PTERON_ASSIGN(Value* const item, scalar_value(e, base == BaseType::kFloat || base == BaseType::kBool ? base : BaseType::kInt));
      items.push_back(item);
    }
    if (base == BaseType::kFloat) {
      std::vector<double>& doubles = doubles_.emplace_back();
      for (const Value* item : items) doubles.push_back(item->floating);
      Value* value = new_value(Tag::kDoubleList);
      value->doubles = doubles;
      return value;
    }
    if (base == BaseType::kBool) {
      auto& bools = bools_.emplace_back(std::make_unique<bool[]>(items.size()));
      for (size_t i = 0; i < items.size(); ++i) bools[i] = items[i]->integer != 0;
      Value* value = new_value(Tag::kBoolList);
      value->bools = {bools.get(), items.size()};
      return value;
    }
    return new_list(Tag::kIntList, std::move(items));
  }

  Result<Value*> arg_value(const Arg& arg, const ir::SchemaType& type) {
    if (const auto* id = std::get_if<ValueId>(&arg)) return tensor_value(*id);
    if (const auto* ids = std::get_if<std::vector<ValueId>>(&arg)) {
      std::vector<Value*> items;
      for (const ValueId id : *ids) {
        PTERON_ASSIGN(Value* const item, tensor_value(id));
        items.push_back(item);
      }
      return new_list(Tag::kTensorList, std::move(items));
    }
    if (const auto* e = std::get_if<Expr>(&arg)) return type.list ? scalar_list({e, 1}, type.base) : scalar_value(*e, type.base);
    if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) return scalar_list(*list, type.base);
    if (const auto* text = std::get_if<std::string>(&arg)) {
      Value* value = new_value(Tag::kString);
      value->string = *text;
      return value;
    }
    if (const auto* dtype = std::get_if<DType>(&arg)) return new_int(static_cast<int64_t>(*dtype));
    if (const auto* format = std::get_if<ir::MemoryFormat>(&arg)) return new_int(static_cast<int64_t>(*format));
    if (const auto* layout = std::get_if<ir::Layout>(&arg)) return new_int(static_cast<int64_t>(*layout));
    if (std::holds_alternative<std::complex<double>>(arg)) return Status(Code::kUnsupported, str_cat(node_.op->name, ": a complex number as argument"));
    return new_value(Tag::kNone);
  }

  Status add_arg(const Arg& arg, const ir::SchemaType& type) {
    PTERON_ASSIGN(Value* const value, arg_value(arg, type));
    args_.push_back(value);
    return ok_status();
  }

  Result<Value*> make_out_value(const ir::Value& out) {
    std::shared_ptr<const void> owner;
    Value* value = nullptr;
    if (out.kind == ir::ValueKind::kScalar) {
      const ir::ExprType type = out.scalar.type();
      value = new_value(type == ir::ExprType::kFloat ? Tag::kDouble : type == ir::ExprType::kBool ? Tag::kBool : Tag::kInt);
    } else if (out.kind == ir::ValueKind::kNone) {
      value = new_value(Tag::kNone);
    } else {
      bool dynamic = false;
      PTERON_ASSIGN(HostTensor tensor, allocate(out.type, &dynamic));
      owner = tensor.owner;
      value = new_value(Tag::kTensor);
      value->tensor = slot_of(tensor.view);
      value->tensor.dynamic = dynamic;
    }
    owners_.push_back(std::move(owner));
    outs_.push_back(value);
    return value;
  }

  Result<HostTensor> allocate(const ir::TensorType& type, bool* dynamic) {
    std::vector<int64_t> sizes, strides;
    for (const Expr& e : type.sizes) {
      if (const auto size = evaluate_number(e, symbols_)) {
        sizes.push_back(size->to_int());
        continue;
      }
      *dynamic = true;  // known after the call: at most the largest operand's number of elements
      int64_t most = 1;
      for (const HostTensor& operand : operands_) most = std::max(most, operand.view.numel());
      sizes.push_back(std::min(most, std::max<int64_t>(ir::bounds(e).max, 0)));
    }
    for (const Expr& e : type.strides) {
      const auto stride = evaluate_number(e, symbols_);
      if (stride) strides.push_back(stride->to_int());
    }
    if (*dynamic) strides.clear();
    return make_out(type.dtype, sizes, strides);
  }

  const Graph& graph_;
  const Node& node_;
  const Lookup& lookup_;
  const Symbols& symbols_;
  std::vector<Value*> args_;
  std::vector<Value*> outs_;
  std::vector<std::shared_ptr<const void>> owners_;
  std::vector<HostTensor> operands_;
  std::deque<Value> values_;
  std::deque<std::vector<Value*>> lists_;
  std::deque<std::vector<double>> doubles_;
  std::deque<std::unique_ptr<bool[]>> bools_;
};

const runtime::Kernel* Evaluator::find_kernel(std::string_view name) const {
  if (name.empty()) return nullptr;
  const runtime::Kernel* kernel = runtime::prim_kernels().find(name);
  return kernel != nullptr ? kernel : kernels_->find(name);
}

bool Evaluator::can_run(const Node& node) const {
  const ir::Op& op = *node.op;
  if (op.functional != nullptr || !op.known || op.has(ir::kRegion)) return false;
  return op.is_view() || op.has(ir::kAlias) || find_kernel(op.kernel) != nullptr;
}

namespace {

/// A graph with the node's operands alone, their types and the arguments as numbers: what view functions are asked with.
struct Concrete {
  explicit Concrete(ir::Program& program) : graph(program) {}
  ir::Graph graph;
  std::vector<Arg> args;
};

Result<Expr> concrete_expr(const Node& node, Expr e, const Symbols& symbols, ir::ExprContext& exprs) {
  if (e.is_const()) return e;
  const auto number = evaluate_number(e, symbols);
  if (!number) return no_value(node, e);
  if (number->type == ir::ExprType::kFloat) return exprs.floating(number->floating);
  return number->type == ir::ExprType::kBool ? exprs.boolean(number->integer != 0) : Expr(number->integer);
}

ir::TensorType type_of(const TensorView& view) {
  ir::TensorType type;
  type.dtype = view.dtype;
  type.sizes.assign(view.sizes().begin(), view.sizes().end());
  type.strides.assign(view.strides().begin(), view.strides().end());
  return type;
}

Status make_concrete(const Node& node, const Lookup& lookup, const Symbols& symbols, Concrete* out) {
  ir::ExprContext& exprs = out->graph.program->exprs;
  for (const Arg& arg : node.args) {
    if (const auto* id = std::get_if<ValueId>(&arg); id != nullptr && id->valid()) {
      PTERON_ASSIGN(const HostTensor tensor, lookup(*id));
      out->args.emplace_back(out->graph.add_tensor(type_of(tensor.view), "operand"));
    } else if (const auto* e = std::get_if<Expr>(&arg)) {
      PTERON_ASSIGN(const Expr number, concrete_expr(node, *e, symbols, exprs));
      out->args.emplace_back(number);
    } else if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) {
      std::vector<Expr> numbers;
      for (const Expr& e : *list) {
        PTERON_ASSIGN(const Expr number, concrete_expr(node, e, symbols, exprs));
        numbers.push_back(number);
      }
      out->args.emplace_back(std::move(numbers));
    } else {
      out->args.push_back(arg);
    }
  }
  return ok_status();
}

bool is_inside(const HostTensor& base, const ir::ViewLayout& layout) {
  uint64_t base_extent = 0, extent = 0;
  std::vector<int64_t> sizes, strides;
  for (const Expr& e : layout.sizes) sizes.push_back(e.is_const() ? e.value() : -1);
  for (const Expr& e : layout.strides) strides.push_back(e.is_const() ? e.value() : -1);
  if (!layout.offset.is_const() || layout.offset.value() < 0) return false;
  const size_t element = dtype_size(base.view.dtype);
  if (!strided_extent_bytes(base.view.sizes(), base.view.strides(), element, &base_extent)) return false;
  if (!strided_extent_bytes(sizes, strides, element, &extent)) return false;
  return extent == 0 || range_inside(static_cast<uint64_t>(layout.offset.value()) * element, extent, base_extent);
}

HostTensor apply_layout(const HostTensor& base, const ir::ViewLayout& layout, DType dtype) {
  HostTensor out = base;
  out.view.dtype = dtype;
  out.view.rank = static_cast<uint8_t>(layout.sizes.size());
  for (size_t d = 0; d < layout.sizes.size(); ++d) {
    out.view.size_array[d] = layout.sizes[d].value();
    out.view.stride_array[d] = layout.strides[d].value();
  }
  if (out.view.data != nullptr && out.view.numel() > 0) {
    out.view.data = base.view.as<std::byte>() + static_cast<uint64_t>(layout.offset.value()) * dtype_size(base.view.dtype);
  }
  return out;
}

}  // namespace

Result<std::vector<NodeValue>> Evaluator::run_view(const Graph& graph, const Node& node, const Lookup& lookup, const Symbols& symbols) const {
  const auto* self = std::get_if<ValueId>(&node.args[0]);
  if (self == nullptr) return Status(Code::kInternal, str_cat(node.op->name, ": argument 0 is no tensor"));
  PTERON_ASSIGN(HostTensor base, lookup(*self));
  if (node.op->has(ir::kAlias)) return std::vector<NodeValue>{base};
  Concrete concrete(*graph.program);
  PTERON_TRY(make_concrete(node, lookup, symbols, &concrete));
  const ir::NodeView view(concrete.graph, *node.op, concrete.args);
  const bool same_size = dtype_size(graph[node.outputs[0]].type.dtype) == dtype_size(base.view.dtype);
  for (int attempt = 0; attempt < 2 && same_size; ++attempt) {
    const ir::TensorType type = type_of(base.view);
    const ir::ViewLayout input{type.sizes, type.strides, 0};
    std::vector<NodeValue> results;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      ir::ViewLayout layout;
      if (!node.op->def.view(view, input, k, &layout) || !is_inside(base, layout)) break;
      results.emplace_back(apply_layout(base, layout, graph[node.outputs[k]].type.dtype));
    }
    if (results.size() == node.outputs.size()) return results;
    if (base.view.is_contiguous()) break;
    PTERON_ASSIGN(base, make_contiguous(base));
    std::get<ir::ValueId>(concrete.args[0]) = concrete.graph.add_tensor(type_of(base.view), "operand");
  }
  return std::vector<NodeValue>();
}

Result<std::vector<NodeValue>> Evaluator::run(const Graph& graph, const Node& node, const Lookup& lookup, Symbols* symbols) const {
  const ir::Op& op = *node.op;
  if (op.functional != nullptr || op.has(ir::kRegion)) return Status(Code::kUnsupported, str_cat("the evaluator cannot run ", op.name));
  if (op.is_view() || op.has(ir::kAlias)) {
    PTERON_ASSIGN(std::vector<NodeValue> results, run_view(graph, node, lookup, *symbols));
    if (!results.empty()) return results;
  }
  const runtime::Kernel* kernel = find_kernel(op.kernel);
  if (kernel == nullptr) return Status(Code::kUnsupported, str_cat(op.name, ": no kernel ", op.kernel));
  CallFrame frame(graph, node, lookup, *symbols);
  PTERON_TRY(frame.add_args());
  PTERON_TRY(frame.add_outs());
  if (Status status = frame.call(*kernel, *pool_); !status.ok()) return std::move(status).with_context(op.kernel);
  return frame.take_results(symbols);
}

}  // namespace pteron::interp
