// From target strings of an archive ("torch.ops.aten.add_.Tensor") to operator names, and which of them carry no data flow. Used by graph_reader.cpp.
#pragma once

#include <string>
#include <string_view>

namespace pteron::importer {

/// "torch.ops.aten.add.Tensor" -> "aten::add.Tensor", "torch.ops.aten.relu.default" -> "aten::relu",
/// "torch.ops.higher_order.cond" -> "higher_order::cond"; anything else unchanged.
std::string operator_name(std::string_view target);

/// True for functions on symbolic numbers (`_operator.mul`, `torch.sym_max`, `aten::sym_size.int`): their results are expressions.
bool is_symbolic_function(std::string_view name);

/// True for run-time checks that may be dropped: asserts and range constraints.
bool is_check(std::string_view name);

/// True for the two operators that run a prebuilt TensorRT engine: with the engine as an object, and with its record as arguments.
bool is_engine_operator(std::string_view name);

}  // namespace pteron::importer
