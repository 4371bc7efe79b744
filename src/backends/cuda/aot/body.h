// The body of one kernel while it is written: statements, loops over a row, loads, indices. Nodes are written by elements.cpp, kernels by lowering.cpp.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "backends/cuda/aot/lowering.h"

namespace pteron::cuda {

using Index = std::vector<ir::Expr>;

/// An operand or a result while it is written.
struct Load {
  size_t input = 0;   ///< position among the kernel's inputs
  size_t offset = 0;  ///< position in Body::indices
  DType dtype = DType::kFloat32;
  size_t loop = 0;
  bool plain = false;  ///< not inside a branch or an inner loop
};

/// Text of a loop over the columns of a row, and what comes before and behind.
struct LoopText {
  std::string before, body, after;
};

class Body {
 public:
  Body(ir::Graph& graph, const Memory& memory) : graph_(graph), exprs_(graph.program->exprs), memory_(memory) {}

  /// The name (or number) of an element in the current scope, of type c_type of the value's dtype.
  std::string element(ir::ValueId value, const Index& at);

  /// A symbol for a variable of the kernel that counts from 0 to below `size`.
  ir::Expr counter(std::string_view name, ir::Expr size);
  /// Rows and columns: symbols by dim of the domain; `mask` has the dims that are folded.
  void set_rows(std::vector<ir::Expr> domain, uint32_t mask);

  std::string index(ir::Expr e);                            ///< text of an integer expression
  ir::Expr loaded(const std::string& name, ir::Expr size);  ///< an integer variable below size as expression
  void statement(std::string_view text) { scopes_.back().code += std::string(text) + "\n"; }
  std::string fresh() { return "t" + std::to_string(names_used_++); }
  void open(std::string_view head);  ///< "if (...) {" with a scope of its own
  void close(std::string_view tail = "}");
  ir::ValueId fail(ir::ValueId value, std::string why);

  ir::Graph& graph_;
  ir::ExprContext& exprs_;
  const Memory& memory_;
  struct Scope {
    std::string code;
    std::unordered_map<std::string, std::string> known;
  };
  std::vector<Scope> scopes_;
  std::vector<LoopText> loops_;
  std::vector<ir::Expr> indices_;
  std::vector<Load> loads_;
  std::vector<ir::ValueId> inputs_;
  std::vector<ir::Expr> values_;
  std::unordered_map<const ir::ExprNode*, std::string> spelled_;  ///< names of symbols
  std::vector<ir::Expr> domain_, row_at_, col_at_;                ///< sizes; symbols of unmasked and masked dims
  uint32_t mask_ = 0;
  bool has_rows_ = false, caches_ = false;
  std::unordered_map<std::string, std::string> cached_;  ///< elements of the row that stay in registers
  std::vector<std::pair<std::string, std::string>> pending_cache_;
  std::string cache_declarations_;
  size_t cache_count_ = 0;
  std::string failure_;
  ir::ValueId blamed_, root_;
  size_t names_used_ = 0;
  std::vector<std::string> stem_;

  // elements.cpp
  std::string compute_root(ir::ValueId value, const Index& at);  ///< of the kernel's own value, which is one in memory
  std::string compute(ir::ValueId value, const Index& at);
  std::string load(ir::ValueId base, ir::Expr offset);
  std::string operand(const ir::NodeView& n, std::string_view name, const Index& at, DType to, bool rounds);
  std::string scalar_op(const ir::NodeView& n, ir::ValueId result, const Index& at);
  std::string point(const ir::NodeView& n, ir::ValueId result, size_t output, const Index& at);
  std::string pool(const ir::NodeView& n, ir::ValueId result, size_t output, const Index& at);
  std::string resize(const ir::NodeView& n, ir::ValueId result, const Index& at);
  std::string level(const ir::NodeView& n, ir::ValueId result, const Index& at);  ///< pteron::quantize and pteron::dequantize
  // loops.cpp
  std::string loop(const ir::NodeView& n, ir::ValueId result, const Index& at);
  std::string product_sum(const ir::NodeView& n, ir::ValueId result, const Index& at);
  std::string convolution_sum(const ir::NodeView& n, ir::ValueId result, const Index& at);
  std::string fourier_sum(const ir::NodeView& n, ir::ValueId result, const Index& at);
  std::string grid_sample(const ir::NodeView& n, ir::ValueId result, const Index& at);

  ir::Expr position(ir::ValueId indices, const Index& at, ir::Expr size);

  // rows.cpp
  std::string row(const ir::NodeView& n, ir::ValueId result, size_t output, const Index& at);
  std::string fold(std::string_view how, std::string_view type, const std::string& start, const std::function<std::string()>& element);
  std::string row_constant(std::string_view type, const std::string& text);
  Index whole_index(const Index& rows) const;
  std::unordered_map<std::string, std::string> row_values_;
};

/// Sizes that an operator's rows are folded over: the domain and the folded dims. False if the node is no row operator in a form that is supported.
bool row_domain(const ir::NodeView& n, std::vector<ir::Expr>* domain, uint32_t* mask);
/// Index of an operand of `sizes` that is broadcast to a result at `at`.
Index broadcast_index(std::span<const ir::Expr> sizes, const Index& at);
/// Row-major number of a place, and back.
ir::Expr linear_index(std::span<const ir::Expr> sizes, const Index& at);
Index split_index(std::span<const ir::Expr> sizes, ir::Expr linear);

}  // namespace pteron::cuda
