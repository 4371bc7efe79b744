// Emit: a program in the profile dialect becomes the plain form of a .pte: values, instructions, planned memory, constants.
// Called by the compiler after the last decomposition; writing the file is format's work.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/buffer.h"
#include "format/data_file.h"
#include "format/meta.h"
#include "format/program.h"
#include "ir/graph.h"
#include "ir/guard.h"
#include "ir/op.h"
#include "plan/plan.h"
#include "pteron/status.h"

namespace pteron::emit {

/// What the emitted file may use.
enum class Profile : uint8_t {
  kPteron,      ///< all of our kernels; views that move no bytes
  kExecutorch,  ///< only operators and features of the official runtime 1.5.1
};

/// What is known of constants that payloads keep outside, over all groups of a compilation: no constant is hashed or made twice.
struct ExternalKeys {
  std::unordered_map<uint32_t, std::string> keys;  ///< by ConstantId
  uint64_t kept_bytes = 0;                         ///< of constants that were made for their key and kept for the file
};

struct EmitOptions {
  Profile profile = Profile::kPteron;
  uint64_t alignment_bytes = 64;  ///< of planned buffers; any number above 0
  /// Compiled groups by the index argument of their delegate nodes; blob i of the program must be the payload of group i.
  std::span<const format::DelegateSpec> delegates;
  /// For payloads that are programs: constants of kExternalBytes and more are row-major named data of the program around, results are memory
  /// of the caller, and mutated inputs are the caller's to write.
  bool is_payload = false;
  std::vector<std::string> shared_states = {};  ///< names of states that all methods keep in one arena (the second), at equal offsets
  std::function<bool(std::string_view kernel)> has_kernel = {};  ///< kernels that the profile's runtime has; null: no check
  const ir::Catalog* catalog = nullptr;  ///< views of the scatter operators; null: their results are never computed in place
  ExternalKeys* external_keys = nullptr; ///< of a payload; null: keys are made anew
  /// Weights stay outside: parameters and buffers of any size, other constants from kExternalWeightBytes on. Those of a program keep their names
  /// and their memory format, those of a payload have keys made of their bytes.
  bool external_weights = false;
  plan::Planner planner = {};            ///< places the buffers of methods instead of plan_memory; null: plan_memory
  const ir::Guards* guards = nullptr;    ///< what calls are checked for beside ranges of sizes; may be null
};

/// Smaller constants stay inside payloads.
inline constexpr size_t kExternalBytes = 1024;
/// Smaller constants that are no parameters or buffers stay inside programs and payloads whose weights are outside.
inline constexpr size_t kExternalWeightBytes = 64;

/// The operator of a delegated group: tensors it reads, run-time numbers that it reads, its index in EmitOptions::delegates, and pairs
/// (position among the tensors, position among the results) of results that are new values of a tensor and take its memory.
inline constexpr std::string_view kDelegateOp = "pteron::delegate";
/// The program's instance of it.
Result<const ir::Op*> delegate_op(ir::Program& program);

/// The operator that copies a tensor from the host's memory to a device's (the device of its result), or back. Its kernel is the official one.
Result<const ir::Op*> device_copy_op(ir::Program& program, bool to_device);

/// Planned memory of one method, on the host and on devices.
struct MethodReport {
  std::string name;
  uint64_t arena_bytes = 0;
  uint64_t lower_bound_bytes = 0;   ///< largest sum of live buffers; of several devices: the sum of theirs
  size_t instruction_count = 0;
  size_t constant_bytes = 0;        ///< weights that the method uses
  std::vector<uint32_t> nodes;      ///< for each instruction the position in the method's graph of the node that it is a part of, from 1; 0: of none
};

/// A constant that is stored elsewhere: one of a payload by the program around, one of a program in a data file.
struct ExternalConstant {
  std::string key;
  format::DataLayout layout;
  format::Payload payload;          ///< dense in the layout's dim order; borrows the constant's bytes, or those of `made`
  std::shared_ptr<const Buffer> made;  ///< bytes that the compiler computed
};

struct Emitted {
  format::ProgramSpec program;      ///< borrows the constants of the ir::Program
  std::vector<ExternalConstant> external;
  format::ProgramMeta meta;         ///< facts about the methods
  std::vector<MethodReport> reports;
};

/// True for the control flow operators that emit turns into jumps ("higher_order::cond").
bool is_control_flow(std::string_view op);

/// Kernels that emitted programs may call beside those of their operators.
std::span<const std::string_view> helper_kernels(Profile profile);

/// Share of the arena with the shared states in pteron.meta.
inline constexpr std::string_view kSharedArena = "state";

/// Whether buffers of these names can be one memory. Requires: functional graphs.
/// Errors: kInvalidInput (a name that no method has as state, or that differs between methods in dtype, shape or initial value).
Status check_shared_states(const ir::Program& program, std::span<const std::string> names);

/// Emits all methods.
/// Requires: options.shared_states have passed check_shared_states; functional graphs in which every op has a kernel of the profile, is a view, or is control flow.
/// Owns:    the result borrows constant bytes from `program`.
/// Errors:  kUnsupported (a dim without an upper bound, named with its symbol and node; a value kind that the format cannot hold,
///          a kernel that the profile lacks).
Result<Emitted> emit_program(const ir::Program& program, const EmitOptions& options);
/// The same for some methods, which need not be among the program's.
Result<Emitted> emit_methods(const ir::Program& program, std::span<const ir::Method* const> methods, const EmitOptions& options);

/// Stores the facts as named data of the program, which borrows the returned bytes.
Result<Buffer> add_meta(format::ProgramMeta& meta, Profile profile, std::string_view compiler_version, format::ProgramSpec& program);

}  // namespace pteron::emit
