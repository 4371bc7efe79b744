// Prebuilt engines of a program: claimed before any backend is asked. Used by pipeline.cpp.
#pragma once

#include <vector>

#include "compiler/compile.h"

namespace pteron::compiler {

/// Lets environment.prebuilt claim its nodes in every method; its groups go to edge.groups. One entry a method that has such nodes.
/// Errors: Backend::claim()'s with the method's name; kUnsupported (an engine in a branch or loop body; nobody who claims them).
Result<std::vector<MethodPartition>> claim_engines(const CompileOptions& options, const Environment& environment, EdgeProgram& edge);

/// Puts what was claimed in front of what the backends took.
void add_claimed(std::vector<MethodPartition> claimed, CompileReport& report);

}  // namespace pteron::compiler
