// JSON graphs to ir::Graph: value tables, arguments, nodes, regions. Used by import.cpp, which handles signatures.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "import/archive.h"
#include "import/import.h"
#include "import/json.h"
#include "import/operators.h"
#include "import/srepr.h"
#include "ir/foreign.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace pteron::importer {

/// What all graphs of one import share.
struct ImportContext {
  const Archive& archive;
  const ImportOptions& options;
  ir::Program& program;
  ir::OperatorTable operators;
  ExprReader exprs;
  PayloadTable weights;
  PayloadTable constants;
  std::unordered_set<const ir::ExprNode*> input_symbols;  ///< symbols that the caller's inputs determine
};

/// A parameter, buffer or literal that has a payload; becomes a constant at its first use.
struct PendingConstant {
  std::string_view fqn;
  ir::Constant::Origin origin = ir::Constant::Origin::kConstant;
  bool in_constants = false;  ///< payload in data/constants instead of data/weights
};

/// Reads one graph.
/// Owns:    nothing; borrows the context, the graph and the JSON document.
class GraphReader {
 public:
  GraphReader(ImportContext& context, ir::Graph& graph, JsonValue json);

  /// Reads the nodes of the graph in order. Errors: kInvalidFile, kUnsupported, each with node name and source line.
  Status read_nodes();
  /// Inputs, nodes and outputs of a branch or body. Scalars are not passed: they are the same symbols inside and outside.
  Status read_region();

  /// Type of a tensor value. Errors: kInvalidFile (missing, malformed), kUnsupported (dtype, layout, rank).
  Result<ir::TensorType> tensor_type(std::string_view name);
  /// Expression of a symbolic value by name (int, float or bool).
  Result<ir::Expr> symbolic(std::string_view name);
  /// Value by name; makes pending constants. Errors: kInvalidFile (never produced), those of PayloadTable::make.
  Result<ir::ValueId> value(std::string_view name);
  /// The id of a constant of the program, with its origin. Errors: those of PayloadTable::make.
  Result<ir::ConstantId> add_constant(const PendingConstant& pending);
  /// Any argument but a graph. Literals, values, lists.
  Result<ir::Arg> argument(JsonValue arg);

  void define(std::string_view name, ir::ValueId id) { values_[name] = id; }
  void define_pending(std::string_view name, const PendingConstant& pending) { pending_[name] = pending; }
  void define_token(std::string_view name) { tokens_.insert(name); }
  /// An object of a custom class: `name` in the graph, `fqn` in the archive's payload table.
  void define_object(std::string_view name, std::string_view fqn) { objects_[name] = fqn; }
  ir::Graph& graph() { return graph_; }

 private:
  Status read_node(JsonValue json);
  Status read_arguments(JsonValue json, size_t skipped, ir::Node* node);
  /// Arguments of an engine node of either kind, as those of ir::kEngineOp (engine.cpp).
  Status read_engine_arguments(JsonValue json, size_t skipped, ir::Node* node);
  /// The engine's bytes as a constant, and the other slots of its record.
  Status read_engine_object(std::string_view name, ir::Node* node);
  Result<ir::ValueId> engine_constant(std::string_view name, std::string_view base64);
  Status place_argument(std::string_view name, ir::Arg arg, std::vector<ir::Arg>* args, std::vector<bool>* given, size_t* next, const ir::Op& op);
  Status read_region_argument(JsonValue payload, ir::Node* node);
  Status complete(const ir::Op& op, std::vector<ir::Arg>* args, const std::vector<bool>& given);
  Status read_outputs(JsonValue json, bool gives_token, ir::Node* node);
  Status read_output(std::string_view tag, JsonValue payload, ir::Node* node);
  bool is_dropped(const std::string& name, const ir::Op& op, JsonValue json);
  Result<ir::Expr> scalar(std::string_view tag, JsonValue payload);
  Result<ir::Arg> list(std::string_view tag, JsonValue payload);
  Result<ir::Expr> sym_value(JsonValue sym);
  Status fill_dims(JsonValue dims, std::string_view key, std::vector<ir::Expr>* out);

  ImportContext& context_;
  ir::Graph& graph_;
  JsonValue json_;
  std::unordered_map<std::string_view, JsonValue> tensor_values_, sym_values_;
  std::unordered_map<std::string_view, ir::ValueId> values_;
  std::unordered_map<std::string_view, PendingConstant> pending_;
  std::unordered_map<std::string_view, std::string_view> objects_;  ///< payload names
  /// An engine that was read from an object: the slots of its record without that of the bytes.
  struct EngineObject {
    ir::ValueId bytes;
    std::vector<std::string> slots;
  };
  std::unordered_map<std::string_view, EngineObject> engines_;
  bool in_autocast_ = false;  ///< reads the body of an autocast region
  std::unordered_set<std::string_view> tokens_;
};

}  // namespace pteron::importer
