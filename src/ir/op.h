// Operators: the row an op room writes (OpDef), the same with its parsed schema (Op), and the set of them (Catalog).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ir/graph.h"
#include "ir/schema.h"
#include "pteron/status.h"

namespace pteron::ir {

class Builder;
class NodeView;
class InferContext;

/// Fills the types of a node's results from its arguments. Errors: kInvalidInput (shapes or dtypes that ATen refuses).
using InferFn = Status (*)(InferContext&);
/// Builds the node's results from other functional ops; returns one value per result. An empty vector without an error in the
/// builder means "not in this form": the node stays as it is.
using DecomposeFn = std::vector<ValueId> (*)(Builder&, const NodeView&);
/// For view ops: strides and offset (elements) of the result in the memory of argument 0, whose actual layout is given.
/// False if this layout cannot express the view (the result is then a copy).
struct ViewLayout {
  std::vector<Expr> sizes, strides;
  Expr offset = 0;
};
using ViewFn = bool (*)(const NodeView&, const ViewLayout& input, size_t result, ViewLayout* out);

enum OpFlags : uint32_t {
  kNoFlags = 0,
  kRandom = 1u << 0,       ///< results differ from call to call: refused unless asked for
  kEffect = 1u << 1,       ///< run-time check or other effect: never removed, never folded
  kDrop = 1u << 2,         ///< carries no data flow: removed on import (_assert_tensor_metadata)
  kAlias = 1u << 3,        ///< result is argument 0 itself (detach, alias, lift_fresh on functional graphs)
  kRegion = 1u << 4,       ///< control flow: has regions
  kDataDependent = 1u << 5,///< result sizes depend on data (nonzero, masked_select)
  kInPlace = 1u << 6,      ///< the kernel's out may be argument 0's memory (same dtype and sizes); the other arguments must not share it
  kWidens = 1u << 7,       ///< the result says in more bytes what its operands say: not folded where it would be larger than they are
};

/// A row of an op room.
struct OpDef {
  std::string_view schema;              ///< ATen text with defaults
  InferFn infer = nullptr;
  DecomposeFn decompose = nullptr;      ///< null: core here
  std::string_view kernel = {};         ///< out variant that computes it ("aten::add.out"); empty: none
  ViewFn view = nullptr;                ///< set for view ops
  uint32_t flags = kNoFlags;
};

/// An operator of a catalog.
struct Op {
  OpDef def;
  Schema schema;
  std::string name;          ///< "aten::add.Tensor"
  std::string kernel;        ///< copy of def.kernel
  bool known = true;         ///< false for operators that the catalog does not have (Program::foreign_ops)
  /// In-place operators ("aten::add_.Tensor", made by the importer in Program::foreign_ops): the functional operator with the same
  /// arguments whose result is written into argument 0. Null for all others.
  const Op* functional = nullptr;
  bool has(OpFlags flag) const { return (def.flags & flag) != 0; }
  bool is_view() const { return def.view != nullptr; }
};

/// The operators a compilation knows. Built from op rooms' rows; users may add their own to a copy.
/// Threads: immutable while compilations use it.
class Catalog {
 public:
  /// Errors: kInternal (a schema that does not parse, or a name twice).
  Status add(std::span<const OpDef> rows);
  /// Operator by full name ("aten::relu", "aten::add.Tensor"); null if unknown.
  const Op* find(std::string_view name) const;
  /// The functional operator behind an in-place one: "aten::add_.Tensor" -> aten::add.Tensor; null if there is none.
  const Op* find_functional(std::string_view in_place_name) const;
  /// All, sorted by name.
  std::vector<const Op*> all() const;

 private:
  std::unordered_map<std::string, std::unique_ptr<Op>> ops_;
};

}  // namespace pteron::ir
