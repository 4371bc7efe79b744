// The compiler as a library: .pt2 archives in, a .pte (and a .ptd with weights) out, in three steps: export_program, finalize, write.
// pipeline.cpp is the first, finalize.cpp the others. Called by the facade, the command line tool and tests.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/api/backend.h"
#include "base/byte_sink.h"
#include "base/log.h"
#include "base/mapped_file.h"
#include "base/op_library.h"
#include "emit/emit.h"
#include "format/data_file.h"
#include "format/program.h"
#include "ir/graph.h"
#include "ir/guard.h"
#include "ir/op.h"
#include "partition/partition.h"
#include "plan/plan.h"
#include "pteron/status.h"

namespace pteron::interp {
class Evaluator;
}

namespace pteron::compiler {

using emit::Profile;

/// One method of the program and the archive it comes from.
struct MethodSource {
  std::string method = "forward";
  std::string path;                         ///< of a file; of `bytes` a name for messages
  std::shared_ptr<FileBytes> bytes = {};    ///< the archive, if it is in memory; shared: weights stay in it
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

/// A compile spec: a setting of one backend, for one method or for all.
struct BackendSpec {
  std::string backend;           ///< name
  std::string method;            ///< empty: all
  std::string key;
  std::vector<std::byte> value;
};

/// What a backend must not take; the next backend is asked.
struct Exclusion {
  std::string backend;   ///< name; empty: the first of the program's
  std::string name;      ///< of an operator ("aten::mm", "mm", "aten::add.Tensor"), or of a node
  bool is_node = false;
};

/// A pass from outside: runs over the optimized graphs before backends are asked. Gives back whether it has changed the graph.
struct Transform {
  std::string name;
  std::string method;   ///< empty: all
  std::function<Result<bool>(ir::Method& method, const ir::Catalog& catalog)> run;
};

enum class VerifyLevel : uint8_t { kOff, kPhase, kEach };

struct CompileOptions {
  std::vector<MethodSource> methods;
  std::vector<ConstantMethod> constants;
  std::vector<std::string> shared_states;  ///< buffers, by name, that are one and the same in all methods that have them
  Profile profile = Profile::kPteron;
  std::vector<SizeBound> size_bounds;      ///< a call that exceeds one fails
  std::vector<const backends::Backend*> backends;  ///< in order of preference; empty: all nodes run on the kernels of the profile
  std::vector<BackendSpec> specs;          ///< of those backends
  std::vector<Exclusion> exclusions;       ///< from those backends
  /// Name of the data file, without ".ptd", that takes the weights: those of the program itself and those of every backend. A backend's spec
  /// kDataNameSpec moves its data alone. nullopt: the weights stay in the program.
  std::optional<std::string> external_weights;
  bool bf16 = false;                       ///< backends may round operands of products and convolutions to bfloat16
  bool allow_random = false;               ///< operators that draw random numbers are compiled; their numbers are not PyTorch's
  bool strict = false;                     ///< kUnsupported if some node stays outside the backends
  std::string device;                      ///< "cuda:1": of every backend that computes on a device and has no spec of its own for it; empty: theirs
  bool device_inputs = false;              ///< inputs that delegates of a device read are tensors of that device: no copy
  bool device_outputs = false;             ///< outputs that delegates of a device make stay there: no copy
  std::vector<Transform> transforms;       ///< in order
  std::string stop_after;                  ///< name of a phase; empty: run all
  std::vector<std::string> dump_after;     ///< names of phases or passes whose result goes to `dump`
  std::vector<std::string> disabled;       ///< passes to leave out
  VerifyLevel verify = VerifyLevel::kPhase;
  std::function<void(std::string_view pass, std::string_view text)> dump;
  bool* wrong_option = nullptr;            ///< set to true if the error lies in these options (a name that no method has, a name twice), not in the archives
  LogSink* log = nullptr;

  /// Of the archives that are files.
  std::vector<std::string> paths() const {
    std::vector<std::string> out;
    for (const MethodSource& source : methods) {
      if (source.bytes == nullptr) out.push_back(source.path);
    }
    return out;
  }
};

/// What a compilation needs to know of the world; objects passed in so that users can extend copies of them.
struct Environment {
  const ir::Catalog* catalog = nullptr;
  std::function<bool(std::string_view kernel)> has_kernel;   ///< kernels of our runtime
  const interp::Evaluator* evaluator = nullptr;                  ///< constant folding; null: none
  const backends::Backend* prebuilt = nullptr;                   ///< claims engines that another tool compiled; null: they are refused by name
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
  std::string device = {};            ///< "cuda:1"; empty: the host
};

/// What the backends took of one method.
struct MethodPartition {
  std::string method;
  partition::PartitionReport report;
  std::vector<GroupReport> groups;
};

/// Devices of the groups that a backend compiled, each once, in their order; none: all on the host.
std::vector<std::string> devices_of(const MethodPartition& part, std::string_view backend);

struct CompileReport {
  std::vector<PhaseReport> phases;
  std::vector<emit::MethodReport> methods;
  std::vector<MethodPartition> partitions;   ///< if there were backends
  std::vector<std::string> delegates;        ///< backend ids the file needs at load, sorted
  std::vector<std::string> operators;   ///< kernels the file needs at load, sorted
  size_t weight_bytes = 0;              ///< constants written
  size_t external_bytes = 0;            ///< of these, in the data file
};

/// A program between export and finalize: the backends have compiled what they took, memory is not planned.
/// Owns:    everything it refers to; archives stay mapped while weights lie in them.
struct EdgeProgram {
  ir::Program program;
  ir::Guards guards;
  /// A compiled group and whether its data goes outside.
  struct Group {
    backends::CompiledGroup compiled;
    bool external = false;
    uint64_t alignment_bytes = 1;  ///< what the backend asks of the tensors it reads and writes
    std::string backend = {};      ///< name
    bool device_given = false;     ///< its device was given: by the caller, or by the engine that was compiled before
  };
  std::vector<Group> groups;     ///< by the index argument of their delegate nodes
  std::string data_name;         ///< of the data file; empty: none was asked for
  bool external_constants = false;
  CompileReport report;
  /// Comparisons of the archives' checksums, which go on while the program is compiled and written; write_data() and write_program() wait for them.
  std::vector<std::function<Status()>> pending_checks;
  bool stopped = false;          ///< at CompileOptions::stop_after: not for finalize()
};

struct FinalizeOptions {
  /// Of constants and named data, and of planned buffers; if there are delegates, these lie at multiples of what the backends ask as well.
  uint64_t alignment_bytes = 64;
  plan::Planner planner = {};   ///< of the caller's; null: Pteron's. Payloads of backends plan their own memory when they are compiled.
};

/// A program whose every byte is known.
/// Owns:    its own tables; borrows weights and payloads of the EdgeProgram, which must outlive it unchanged.
struct FinishedProgram {
  format::ProgramSpec program;
  format::DataFileSpec data;       ///< empty: no data file
  std::string data_name;           ///< without ".ptd"; empty: no data file
  uint64_t data_bytes = 0;         ///< of the data file
  std::string manifest_hash;       ///< of the data file
  uint64_t alignment_bytes = 64;
  Buffer facts;                    ///< pteron.meta, which `program` borrows
  std::vector<std::function<Status()>> pending_checks;  ///< as EdgeProgram::pending_checks
  CompileReport report;
};

/// Names of all phases in order.
std::vector<std::string_view> phase_names();

/// Errors: kInvalidInput (an empty name, or one that is no identifier).
Status check_method_name(std::string_view name);

/// What can be told without reading anything: names of methods, archives, bounds. export_program begins with it.
/// Errors: kInvalidInput.
Status check_options(const CompileOptions& options);

/// The data file that the options ask for (empty: none), checked without reading anything. prebuilt: Environment::prebuilt, which has specs as well.
/// Errors: kInvalidInput (a name that breaks the rules of format/data_name.h; two different ones, with both; a backend that keeps its data in the
///         program; a spec of a backend or method that there is not, or that the backend does not know).
Result<std::string> data_file_name(const CompileOptions& options, const backends::Backend* prebuilt);

/// Imports the methods, runs all passes and lets the backends take and compile their groups; up to the end of options.stop_after, if that is
/// one of these phases.
/// Errors: data_file_name()'s; those of import and passes, with the phase or pass in front; kUnsupported lists every operator that cannot run.
/// Threads: independent calls may run at once if their environments are distinct or only read.
Result<std::unique_ptr<EdgeProgram>> export_program(const CompileOptions& options, const Environment& environment);

/// Plans memory and lays out the files. May be called several times with different settings.
/// Errors: those of emit; kInvalidInput (two methods of one name).
Result<FinishedProgram> finalize(const EdgeProgram& edge, const CompileOptions& options, const Environment& environment, const FinalizeOptions& settings);

/// Write the files; each call writes the same bytes. Errors: the sink's, those of weights that are made on demand.
Status write_data(const FinishedProgram& finished, ByteSink& sink);
Status write_program(const FinishedProgram& finished, ByteSink& sink);

}  // namespace pteron::compiler
