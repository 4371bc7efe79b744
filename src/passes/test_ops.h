// A small catalog for the tests of passes: enough operators to write graphs by hand, independent of the op rooms.
#pragma once

#include <string_view>
#include <vector>

#include "ir/builder.h"

namespace pteron::passes::test {

/// add.Tensor mul.Tensor copy relu item views scatters clone _to_copy, and composite "test::double".
ir::Catalog make_catalog();

/// A program with one graph, built node by node.
struct TestGraph {
  ir::Catalog catalog = make_catalog();
  ir::Program program;
  ir::Graph& graph;
  ir::Builder builder;

  TestGraph();
  ir::ValueId input(std::string_view name, std::vector<ir::Expr> sizes, DType dtype = DType::kFloat32);
  ir::ValueId buffer(std::string_view name, std::vector<int64_t> sizes);
  /// An in-place node; returns the name of its result.
  ir::ValueId in_place(std::string_view name, std::vector<ir::Arg> args);
  /// The nodes as text, one a line: "add.Tensor(x, y) -> add".
  std::string text() const;
};

}  // namespace pteron::passes::test
