// Compiling torch.export archives (.pt2) to programs (.pte, weights beside them in a .ptd if wanted) from C++, in three steps: export_program,
// EdgeProgram::finalize, CompiledProgram::write; or all at once: save. In a library of its own, libpteron-compiler (target pteron::compiler):
// programs that only run models need libpteron alone. See examples/compile and docs/weights-files.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pteron/host.h"
#include "pteron/status.h"
#include "pteron/tensor.h"
#include "pteron/transform.h"

namespace pteron {

/// What the program may use.
enum class CompileProfile : uint8_t {
  kPteron,      ///< everything that this library runs
  kExecutorch,  ///< only what the official runtime 1.5.1 loads
};

/// In what backends compute what the archive has in float32. Dtypes of inputs and outputs never change.
enum class CompilePrecision : uint8_t {
  kFloat32,
  /// Linear layers and dense convolutions with constant weights round weights and operands to bfloat16 (half the file) and sum in float32;
  /// everything else, depthwise and very narrow convolutions too, stays float32.
  kBf16,
};

/// A method of the program and the archive it comes from. Names are identifiers: ASCII letters, digits and '_', no digit first.
struct CompileMethod {
  std::string name = "forward";
  std::string archive = {};        ///< path of a .pt2; with `bytes` only its name in messages
  /// The .pt2 itself, instead of a file. Without an owner the caller keeps it alive and unchanged until the programs made of it are gone.
  SharedBytes bytes = {};
};

/// A method without inputs that gives back fixed values, e.g. {"get_vocab_size", {int64_t{256}}}.
struct CompileConstant {
  std::string name;
  std::vector<std::variant<int64_t, double, bool, std::string>> values;
};

/// An upper bound for sizes: calls beyond it fail. The archive's own bound stays where it is smaller.
struct CompileSizeBound {
  std::string size;                ///< name as `pteron inspect` shows it; empty: every size that may vary
  int64_t max = 0;                 ///< at most 2^31 - 1
};

/// A setting of one backend. Every backend whose data may lie outside knows "data_name": the name of the data file for its data alone.
struct CompileSpec {
  std::string backend;
  std::string method = {};             ///< empty: all methods
  std::string key;
  std::vector<std::byte> value;
};

/// An operator ("aten::mm") or a node, by name, that a backend must not take; the next one is asked.
struct CompileExclusion {
  std::string backend = {};            ///< empty: the first
  std::string name;
  bool is_node = false;
};

/// What is decided before memory is planned.
struct CompileSettings {
  std::vector<CompileMethod> methods = {};     ///< at least one; names differ
  std::vector<CompileConstant> constants = {};
  std::vector<std::string> shared_states = {};     ///< buffers, by name, that are the same memory in all methods that have them
  CompileProfile profile = CompileProfile::kPteron;
  /// In order of preference; empty: "cpu" (none with kExecutorch); "portable": kernels alone; "cuda:1": one that computes on a device, on its second.
  std::vector<std::string> backends = {};
  std::string device = {};                     ///< "cuda:1": of every backend that computes on a device, also of prebuilt engines; one alone: "cuda:1" in `backends`
  bool device_inputs = false;                  ///< inputs that delegates of a device read are tensors of that device: no copy (docs/devices.md)
  bool device_outputs = false;                 ///< outputs that delegates of a device make stay there: no copy
  std::vector<CompileSpec> specs = {};           ///< of those backends
  std::vector<CompileExclusion> exclusions = {}; ///< from those backends
  CompilePrecision precision = CompilePrecision::kFloat32;
  bool allow_random = false;                   ///< compile operators that draw random numbers; they are not PyTorch's (LoadOptions::seed)
  bool strict = false;                         ///< refuse a program of which some node stays outside the backends
  std::vector<std::string> kernel_libraries = {};  ///< shared libraries with own operators (pteron/ops.h)
  std::vector<CompileSizeBound> size_bounds = {};
  std::vector<TransformPass> passes = {};      ///< the caller's own, in this order, on the optimized graphs before backends are asked (docs/transform.md)
  bool external_weights = false;               ///< weights go to a data file: those of the program and those of every backend
  /// Its name, without folder and ".ptd": ASCII letters, digits, '.', '-', '_', at most 200 characters (docs/weights-files.md has all rules).
  /// nullopt: the stem of the program's path in save(), of the first archive's path in export_program().
  std::optional<std::string> data_name = {};
  int threads = 0;                             ///< for folding constants; <= 0: all CPUs of the process
  LogSink* log = nullptr;                      ///< gets warnings; must outlive the program
};

/// A buffer of a method's arena.
/// Units: steps of the method: 0 is before its first instruction, instruction i is step i + 1; both ends are part of its life.
struct PlannedBuffer {
  uint64_t size_bytes = 0;
  uint32_t first_step = 0;
  uint32_t last_step = 0;
};

/// What a planner of the caller's places: buffers that are alive in one step must not share bytes.
struct PlannerRequest {
  std::string_view method;
  std::span<const PlannedBuffer> buffers;
  uint64_t alignment_bytes = 64;               ///< every offset is a multiple; what backends ask of their buffers is in it
  Device device = {};                          ///< whose memory it is: a method with buffers on several devices is planned for each
};

/// Gives the offset of each buffer in the arena, which is as large as the last end. May be called for several methods, one after the other.
using MemoryPlanner = std::function<Result<std::vector<uint64_t>>(const PlannerRequest& request)>;

/// How memory is planned and files are laid out.
struct FinalizeSettings {
  uint64_t alignment_bytes = 64;               ///< of planned buffers and weights: a power of two from 16 to 4096
  MemoryPlanner planner = {};                  ///< null: Pteron's. Its result is checked, and used as it is. Backends plan what is inside their groups.
};

/// How files are written.
struct WriteSettings {
  bool sync = true;                            ///< wait until the files are on the disk
  bool force = false;                          ///< replace a data file that is another program's, or nobody's
  bool etrecord = false;                       ///< also write "<program without .pte>_etrecord.bin" (docs/etrecord.md)
};

/// What was compiled.
struct CompiledMethod {
  std::string name;
  uint64_t arena_bytes = 0;                    ///< planned memory
  uint64_t arena_lower_bound_bytes = 0;        ///< largest sum of live buffers
  size_t instructions = 0;
};
struct CompileSummary {
  std::vector<CompiledMethod> methods;
  std::vector<std::string> operators;          ///< kernels that the program needs at load, sorted
  std::vector<std::string> backends;           ///< ids of delegates that the program needs at load, sorted
  uint64_t weight_bytes = 0;
  uint64_t external_bytes = 0;                 ///< of these, in the data file
};

/// What one backend took of one method.
struct BackendClaim {
  std::string method;
  std::string backend;
  uint32_t nodes = 0;
  uint32_t groups = 0;                         ///< delegate calls that these nodes became
  std::vector<std::string> devices = {};       ///< "cuda:1": of those calls, each once; empty: the host
};

/// A file in memory.
/// Owns: `owner` keeps `bytes` alive.
struct FileInMemory {
  std::string name;                            ///< of a data file: "model.ptd"; empty for programs
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

/// Files that were written.
struct WrittenFiles {
  uint64_t program_bytes = 0;
  std::vector<std::string> data_paths;         ///< absolute; what LoadOptions::data_files takes
  uint64_t data_bytes = 0;
  std::string etrecord_path = {};              ///< empty: none was written
};

/// A program whose every byte is known.
/// Owns:    what it is made of; weights stay in the mapped archives until they are written.
/// Threads: const members may be called from several threads at once.
class CompiledProgram {
 public:
  const CompileSummary& summary() const;
  /// The program, for Program::load. Errors: kOutOfMemory, those of weights that are made on demand.
  Result<FileInMemory> bytes() const;
  /// Its data files (one or none), for LoadOptions::data_in_memory.
  Result<std::vector<FileInMemory>> data_files() const;
  /// The ETRecord: what the official inspector needs to find the nodes of events (docs/etrecord.md). Errors: kInvalidInput (over 4 GiB).
  Result<FileInMemory> etrecord() const;
  /// Writes the data file and then the program, each complete or not at all.
  /// Errors: kInvalidInput (the path of an archive or with the name of a data file; a data file there that is another program's or nobody's, see
  ///         WriteSettings::force), kIo, kOutOfMemory.
  Result<WrittenFiles> write(const std::string& path, const WriteSettings& settings = {}) const;

  struct State;  ///< for the library's own use
  explicit CompiledProgram(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

/// A program after all passes, with what the backends took already compiled; memory is not planned.
/// Threads: const members may be called from several threads at once.
class EdgeProgram {
 public:
  std::vector<std::string> methods() const;
  /// The program in text form (src/ir/README.md); delegated groups are single nodes.
  std::string text() const;
  /// By method, then in the order of the backends.
  std::vector<BackendClaim> claims() const;
  /// Plans memory and lays out the files. May be called again with other settings.
  /// Errors: kInvalidInput (settings; a planner's result that does not fit, with the buffer), the planner's own, kUnsupported (a dim without an upper bound), kOutOfMemory.
  Result<CompiledProgram> finalize(const FinalizeSettings& settings = {}) const;

  struct State;  ///< for the library's own use
  explicit EdgeProgram(std::shared_ptr<const State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<const State> state_;
};

/// Imports the methods, runs all passes and lets the backends take and compile their groups. The archives are only read.
/// Errors: kInvalidInput (settings; all of them are checked before anything is read), kNotFound (no such archive), kInvalidFile (a damaged one, or
///         of another version), kUnsupported (lists every operator that cannot run, with its first source line; a backend that does not exist), kIo,
///         kOutOfMemory.
/// Threads: independent calls may run at once.
Result<EdgeProgram> export_program(const CompileSettings& settings);

/// What was saved.
struct SavedProgram {
  CompileSummary summary;
  WrittenFiles files;
};

/// export_program, finalize and write with the same bytes as those three; an older file of that name stays if any of them fails.
/// Errors: those of all three.
/// Example: save({.methods = {{"forward", "model.pt2"}}}, "model.pte");
Result<SavedProgram> save(const CompileSettings& settings, const std::string& path, const FinalizeSettings& finalize = {}, const WriteSettings& write = {});

}  // namespace pteron
