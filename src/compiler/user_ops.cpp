// See user_ops.h. Only tensors with fixed sizes can be shown to a shape function; the others are checked when the program runs.
#include "compiler/user_ops.h"

#include <array>
#include <cstring>
#include <deque>

#include "base/str_cat.h"
#include "ir/builder.h"
#include "tensor/dtype.h"

namespace pteron::compiler {

namespace {

/// The arguments of a node for a shape function.
class ShapeCall {
 public:
  /// False if some argument is known only at run time.
  bool add(const ir::Graph& graph, const ir::Arg& arg) {
    pteron_value made;
    std::memset(&made, 0, sizeof made);
    if (const auto* id = std::get_if<ir::ValueId>(&arg)) {
      tensors_.emplace_back();
      if (!add_tensor(graph, *id)) return false;
      made.kind = PTERON_TENSOR;
      made.count = 1;
      made.tensors = tensors_.back().data();
    } else if (const auto* ids = std::get_if<std::vector<ir::ValueId>>(&arg)) {
      tensors_.emplace_back();
      for (const ir::ValueId item : *ids) {
        if (!add_tensor(graph, item)) return false;
      }
      made.kind = PTERON_TENSOR_LIST;
      made.count = tensors_.back().size();
      made.tensors = tensors_.back().data();
    } else if (const auto* e = std::get_if<ir::Expr>(&arg)) {
      if (!ir::is_number(*e)) return false;
      made.kind = e->type() == ir::ExprType::kFloat ? PTERON_DOUBLE : e->type() == ir::ExprType::kBool ? PTERON_BOOLEAN : PTERON_INT;
      made.number = ir::number_of(*e);
      made.integer = e->is_const() ? e->value() : static_cast<int64_t>(made.number);
    } else if (const auto* list = std::get_if<std::vector<ir::Expr>>(&arg)) {
      if (!add_list(*list, &made)) return false;
    } else if (const auto* text = std::get_if<std::string>(&arg)) {
      made.kind = PTERON_STRING;
      made.string = text->data();
      made.count = text->size();
    } else if (const auto* dtype = std::get_if<DType>(&arg)) {
      made.kind = PTERON_INT;
      made.integer = static_cast<int64_t>(*dtype);
    }
    values_.push_back(made);
    return true;
  }

  const std::vector<pteron_value>& values() const { return values_; }

 private:
  bool add_tensor(const ir::Graph& graph, ir::ValueId id) {
    pteron_tensor made;
    std::memset(&made, 0, sizeof made);
    made.rank = -1;
    if (id.valid()) {
      const ir::Value& value = graph[id];
      if (value.kind != ir::ValueKind::kTensor || !value.type.is_static() || value.type.rank() > PTERON_MAX_RANK) return false;
      made.dtype = static_cast<int32_t>(value.type.dtype);
      made.rank = value.type.rank();
      int64_t stride = 1;
      for (size_t d = value.type.sizes.size(); d-- > 0;) {
        made.sizes[d] = value.type.sizes[d].value();
        made.strides[d] = stride;
        stride *= std::max<int64_t>(made.sizes[d], 1);
      }
    }
    tensors_.back().push_back(made);
    return true;
  }

  bool add_list(const std::vector<ir::Expr>& list, pteron_value* made) {
    const bool floats = !list.empty() && list[0].type() == ir::ExprType::kFloat;
    integers_.emplace_back();
    numbers_.emplace_back();
    for (const ir::Expr& e : list) {
      if (!ir::is_number(e)) return false;
      numbers_.back().push_back(ir::number_of(e));
      integers_.back().push_back(e.is_const() ? e.value() : static_cast<int64_t>(ir::number_of(e)));
    }
    made->kind = floats ? PTERON_DOUBLE_LIST : PTERON_INT_LIST;
    made->count = list.size();
    made->integers = integers_.back().data();
    made->numbers = numbers_.back().data();
    return true;
  }

  std::vector<pteron_value> values_;
  std::deque<std::vector<pteron_tensor>> tensors_;
  std::deque<std::vector<int64_t>> integers_;
  std::deque<std::vector<double>> numbers_;
};

std::string shape_of(const pteron_tensor& tensor) {
  if (tensor.rank < 0 || tensor.rank > PTERON_MAX_RANK) return str_cat("rank ", tensor.rank);
  const std::vector<int64_t> sizes(tensor.sizes, tensor.sizes + tensor.rank);
  return str_cat("dtype ", tensor.dtype, " ", str_list(sizes));
}

Status check_node(const ir::Graph& graph, const ir::Node& node, const UserOp& op) {
  ShapeCall call;
  for (const ir::Arg& arg : node.args) {
    if (!call.add(graph, arg)) return ok_status();
  }
  std::vector<pteron_tensor> results(op.result_count);
  std::memset(results.data(), 0, results.size() * sizeof(pteron_tensor));
  std::array<char, 512> text{};
  if (op.op->shape(call.values().data(), call.values().size(), results.data(), results.size(), {text.data(), text.size()}) != 0) {
    return Status(Code::kInvalidInput, str_cat("its shape function refuses the arguments: ", std::string_view(text.data(), strnlen(text.data(), text.size()))));
  }
  for (size_t k = 0; k < results.size() && k < node.outputs.size(); ++k) {
    const ir::TensorType& type = graph[node.outputs[k]].type;
    if (!type.is_static()) continue;
    bool equal = results[k].dtype == static_cast<int32_t>(type.dtype) && results[k].rank == type.rank();
    for (size_t d = 0; equal && d < type.sizes.size(); ++d) equal = results[k].sizes[d] == type.sizes[d].value();
    if (equal) continue;
    pteron_tensor exported = results[k];
    exported.dtype = static_cast<int32_t>(type.dtype);
    exported.rank = type.rank();
    for (size_t d = 0; d < type.sizes.size(); ++d) exported.sizes[d] = type.sizes[d].value();
    return Status(Code::kInvalidInput, str_cat("its shape function gives result ", k, " as ", shape_of(results[k]), ", the exported model has ", shape_of(exported)));
  }
  return ok_status();
}

Status check_graph(const ir::Graph& graph, const std::vector<std::shared_ptr<const OpLibrary>>& libraries) {
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    for (const auto& region : node.regions) PTERON_TRY(check_graph(*region, libraries));
    const UserOp* op = find_user_op(libraries, node.op->kernel);
    if (op == nullptr) continue;
    Status status = check_node(graph, node, *op);
    if (!status.ok()) return std::move(status).with_context(str_cat("node ", node.name, node.source.empty() ? "" : str_cat(" (", node.source, ")"), ": ", node.op->name));
  }
  return ok_status();
}

}  // namespace

Status add_user_ops(const OpLibrary& library, ir::Catalog& catalog) {
  for (const UserOp& op : library.ops()) {
    const ir::OpDef row = {.schema = op.op->schema, .kernel = op.kernel};
    Status status = catalog.add({&row, 1});
    if (!status.ok()) return Status(Code::kInvalidFile, std::string(status.message())).with_context(str_cat("operator library ", library.path()));
    const ir::Op* added = catalog.find(op.name);
    const bool agrees = added != nullptr && added->schema.args.size() == op.arg_count && added->schema.returns.size() == op.result_count;
    if (!agrees) return Status(Code::kInvalidFile, str_cat("operator library ", library.path(), ": operator ", op.name, ": the schema cannot be read"));
  }
  return ok_status();
}

Status check_user_shapes(const ir::Program& program, const std::vector<std::shared_ptr<const OpLibrary>>& libraries) {
  if (libraries.empty()) return ok_status();
  for (const auto& method : program.methods) PTERON_TRY(check_graph(method->graph, libraries));
  return ok_status();
}

}  // namespace pteron::compiler
