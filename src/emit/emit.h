// Emit: a program in the profile dialect becomes the plain form of a .pte: values, instructions, planned memory, constants.
// Called by the compiler after the last decomposition; writing the file is format's work.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "format/meta.h"
#include "format/program.h"
#include "ir/graph.h"
#include "pteron/status.h"

namespace pteron::emit {

/// What the emitted file may use.
enum class Profile : uint8_t {
  kPteron,      ///< all of our kernels; views that move no bytes
  kExecutorch,  ///< only operators and features of the official runtime 1.5.1
};

struct EmitOptions {
  Profile profile = Profile::kPteron;
  uint64_t alignment_bytes = 64;  ///< of planned buffers
};

/// Planned memory of one method.
struct MethodReport {
  std::string name;
  uint64_t arena_bytes = 0;
  uint64_t lower_bound_bytes = 0;   ///< largest sum of live buffers
  size_t instruction_count = 0;
  size_t constant_bytes = 0;        ///< weights that the method uses
};

struct Emitted {
  format::ProgramSpec program;      ///< borrows the constants of the ir::Program
  format::ProgramMeta meta;         ///< facts about the methods
  std::vector<MethodReport> reports;
};

/// True for the control flow operators that emit turns into jumps ("higher_order::cond").
bool is_control_flow(std::string_view op);

/// Emits all methods.
/// Requires: functional graphs in which every op has a kernel of the profile, is a view, or is control flow.
/// Owns:    the result borrows constant bytes from `program`.
/// Errors:  kUnsupported (a dim without an upper bound, named with its symbol and node; a value kind that the format cannot hold).
Result<Emitted> emit_program(const ir::Program& program, const EmitOptions& options);

}  // namespace pteron::emit
