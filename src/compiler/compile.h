// The compiler as a library: .pt2 archives in, a .pte out. pipeline.cpp is the main path, top to bottom.
// Called by the command line tool, by the Python module and by tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/api/backend.h"
#include "base/byte_sink.h"
#include "base/log.h"
#include "base/op_library.h"
#include "emit/emit.h"
#include "format/program.h"
#include "ir/op.h"
#include "partition/partition.h"
#include "pteron/status.h"

namespace pteron::interp {
class Evaluator;
}

namespace pteron::compiler {

using emit::Profile;

/// One method of the program and the archive it comes from.
struct MethodSource {
  std::string method = "forward";
  std::string path;
};

/// An upper bound for sizes, by symbol name; an empty name means every size that may vary. The archive's own bound stays if it is smaller.
struct SizeBound {
  std::string symbol;
  int64_t max = 0;
};

/// A method without inputs and instructions that gives back fixed values; several values are several outputs.
struct ConstantMethod {
  std::string name;
  std::vector<format::ValueSpec> values;  ///< ints, floats, bools, strings
};

enum class VerifyLevel : uint8_t { kOff, kPhase, kEach };

struct CompileOptions {
  std::vector<MethodSource> methods;
  std::vector<ConstantMethod> constants;
  std::vector<std::string> shared_states;  ///< buffers, by name, that are one and the same in all methods that have them
  Profile profile = Profile::kPteron;
  std::vector<SizeBound> size_bounds;      ///< a call that exceeds one fails
  uint64_t alignment_bytes = 64;           ///< of planned buffers, constants and named data
  std::vector<const backends::Backend*> backends;  ///< in order of preference; empty: all nodes run on the kernels of the profile
  bool bf16 = false;                       ///< backends may round operands of products and convolutions to bfloat16
  bool allow_random = false;               ///< operators that draw random numbers are compiled; their numbers are not PyTorch's
  bool strict = false;                     ///< kUnsupported if some node stays outside the backends
  std::string stop_after;                  ///< name of a phase; empty: run all
  std::vector<std::string> dump_after;     ///< names of phases or passes whose result goes to `dump`
  std::vector<std::string> disabled;       ///< passes to leave out
  VerifyLevel verify = VerifyLevel::kPhase;
  std::function<void(std::string_view pass, std::string_view text)> dump;
  /// Sees the program when the compilation stops after `stop_after`; the program is gone afterwards.
  std::function<Status(const ir::Program& program)> observe;
  LogSink* log = nullptr;
};

/// What a compilation needs to know of the world; objects passed in so that users can extend copies of them.
struct Environment {
  const ir::Catalog* catalog = nullptr;
  std::function<bool(std::string_view kernel)> has_kernel;   ///< kernels of our runtime
  const interp::Evaluator* evaluator = nullptr;                  ///< constant folding; null: none
  std::vector<std::shared_ptr<const OpLibrary>> libraries;       ///< users' own operators; their rows are in `catalog`
};

struct PhaseReport {
  std::string name;
  double seconds = 0;
  uint64_t peak_bytes = 0;  ///< largest resident memory of the process so far
};

/// A group, compiled.
struct GroupReport {
  std::string backend;
  uint64_t payload_bytes = 0;
  uint64_t memory_bytes = 0;          ///< planned memory beside the call's arguments
  uint64_t lower_bound_bytes = 0;     ///< largest sum of live buffers in it; 0 if unknown
  std::vector<std::string> kernels;   ///< what runs inside; one entry a call
};

/// What the backends took of one method.
struct MethodPartition {
  std::string method;
  partition::PartitionReport report;
  std::vector<GroupReport> groups;
};

struct CompileReport {
  std::vector<PhaseReport> phases;
  std::vector<emit::MethodReport> methods;
  std::vector<MethodPartition> partitions;   ///< if there were backends
  std::vector<std::string> delegates;        ///< backend ids the file needs at load, sorted
  std::vector<std::string> operators;   ///< kernels the file needs at load, sorted
  size_t weight_bytes = 0;              ///< constants written
};

/// Names of all phases in order.
std::vector<std::string_view> phase_names();

/// Compiles the methods and writes the program to `sink` (nothing is written if it fails or stops early).
/// Errors: those of import, passes and emit, with the phase or pass in front; kUnsupported lists every operator that cannot run.
/// Threads: independent calls may run at once if their environments are distinct or only read.
Result<CompileReport> compile(const CompileOptions& options, const Environment& environment, ByteSink& sink);

}  // namespace pteron::compiler
