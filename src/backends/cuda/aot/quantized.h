// Products and convolutions of 8-bit values: sums in integers (or of 8-bit floats), and behind them the arithmetic of scales and zero points as ordinary nodes,
// which become part of generated kernels. Called by products.cpp and convolutions.cpp; what does not fit stays a product of dequantized values.
#pragma once

#include <functional>
#include <optional>

#include "backends/cuda/aot/library.h"

namespace pteron::cuda {

/// What a value stands for: (bytes - zero) * scale.
struct Levels {
  ir::ValueId bytes;  ///< int8, uint8, float8_e4m3fn or float8_e5m2
  ir::ValueId scale;  ///< invalid: 1
  ir::ValueId zero;   ///< invalid: 0
};
/// A value as levels: pteron::dequantize, or a cast with a subtraction and a product behind it. Casts between floats behind that are looked through.
std::optional<Levels> levels_of(const ir::Graph& graph, ir::ValueId value);

/// A weight [outputs, depth] of 8-bit integers with scales for groups of columns.
struct GroupedWeight {
  ir::Constant bytes;  ///< row-major
  ir::ValueId scale;   ///< [outputs * groups] elements in order, one element, or invalid: 1
  int64_t groups = 1;
};
std::optional<GroupedWeight> grouped_weight(const ir::Graph& graph, ir::ValueId value);
/// Values from -8 to 7 of [rows, columns] as value + 8, two to a byte, the first in the low half; nothing if there are others or an odd number of columns.
std::optional<ir::Constant> packed_nibbles(const ir::Constant& bytes);

class QuantizedLowering {
 public:
  QuantizedLowering(ir::Graph& graph, const ir::Catalog& catalog, KernelSources& sources, const LibraryOptions& options)
      : graph_(graph), catalog_(catalog), sources_(sources), options_(options) {}

  /// aten::linear, mm or addmm of levels that have a scale a tensor or row, with a constant weight whose rows have a scale each or one for all. Invalid if it
  /// is none.
  ir::ValueId product(ir::Builder& b, const ir::Node& node);
  /// aten::convolution of levels of a whole image and a constant weight. `image` gives a channels-last form of a value. Invalid if it is none.
  ir::ValueId convolution(ir::Builder& b, const ir::Node& node, const std::function<ir::ValueId(ir::ValueId)>& image);

 private:
  struct Weight {
    ir::Constant bytes;  ///< [outputs, inputs, ...]
    ir::ValueId scale;   ///< invalid: 1
  };
  const ir::TensorType& type(ir::ValueId id) const { return graph_[id].type; }
  ir::ValueId aten(ir::Builder& b, std::string_view name, std::vector<ir::Arg> args) { return add_library_node(b, catalog_, name, std::move(args)); }
  ir::ValueId to(ir::Builder& b, ir::ValueId id, DType dtype);
  std::optional<Weight> weight_of(ir::ValueId value, bool turned) const;
  bool is_parameter_of_rows(ir::ValueId parameter, const ir::TensorType& x) const;
  bool is_zero(ir::ValueId zero) const;
  ir::ValueId sums_of(const Weight& weight);
  ir::ValueId added(const ir::Constant& constant);
  ir::ValueId integer_sums(ir::Builder& b, ir::ValueId x, const ir::Constant& weight, const struct IntegerForm& form, std::span<const ir::Expr> dims);
  ir::ValueId scaled(ir::Builder& b, ir::ValueId sums, const Levels& x, const Weight& weight, ir::ValueId bias, int64_t spatial, int64_t shift, DType to);

  ir::Graph& graph_;
  const ir::Catalog& catalog_;
  KernelSources& sources_;
  const LibraryOptions& options_;
};

}  // namespace pteron::cuda
