// Text form of the intermediate form: printer and parser. print(parse(text)) == text for every text that print() made.
// Used by `pteron opt`, by pass tests, --dump-after and fuzz targets. The grammar stands in README.md of this folder.
#pragma once

#include <string>
#include <string_view>

#include "ir/expr.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::ir {

struct PrintOptions {
  bool types = true;     ///< types of results (the parser infers them when they are missing)
  bool origins = true;   ///< node names, source lines and module paths
  bool hashes = true;    ///< hashes of large constants (reads all their bytes)
};

/// The whole program: symbols with ranges, constants, methods.
std::string print(const Program& program, const PrintOptions& options = {});
/// One graph, with its constants defined where they are used.
std::string print(const Graph& graph, const PrintOptions& options = {});
/// One line of a node, without regions.
std::string print_node(const Graph& graph, NodeId node, const PrintOptions& options = {});
/// "f32[1,s0]{s0,1}@cuda:0": strides only if not row-major, device only if not the CPU.
std::string print_type(const TensorType& type);

/// Appends the symbols, constants and methods of `text` to `program`. A bare `graph(...) {...}` becomes a method "forward".
/// Operators that the catalog lacks become foreign ones.
/// Errors:  kInvalidFile with line and column; kInvalidInput from shape inference.
Status parse(std::string_view text, const Catalog& catalog, Program& program);

/// "f32", "i64", "bool": names of dtypes in the text form.
std::string_view short_name(DType dtype);
/// False if no dtype has that short name.
bool dtype_from_short_name(std::string_view name, DType* out);

}  // namespace pteron::ir
