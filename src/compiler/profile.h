// What a file for the official runtime 1.5.1 may use. Read by pipeline.cpp.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "compiler/compile.h"
#include "ir/graph.h"
#include "pteron/status.h"

namespace pteron::compiler {

/// True if the official runtime 1.5.1 has this kernel.
bool executorch_has_kernel(std::string_view kernel);

/// True for a node in a form that the official kernel refuses or gets wrong: it is decomposed, or refused if it has no decomposition.
bool executorch_avoids(const ir::Graph& graph, const ir::Node& node);

/// All of them, sorted; and the operators that torch tags as core ATen, sorted.
std::span<const std::string_view> executorch_kernels();
std::span<const std::string_view> core_aten();

/// A form that an official kernel refuses or gets wrong.
struct FormLimit {
  std::string_view op;
  std::string_view reason;
};
std::vector<FormLimit> executorch_limits();

/// Errors: kUnsupported naming every node in a form that an official kernel refuses at run time.
Status check_executorch_limits(const ir::Program& program);

/// Kernels that programs of the profile may call.
std::function<bool(std::string_view kernel)> kernels_of(const CompileOptions& options, const Environment& environment);

}  // namespace pteron::compiler
