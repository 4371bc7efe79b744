// Compiling torch.export archives (.pt2) to programs (.pte) from C++. In a library of its own, libpteron-compiler (target pteron::compiler): programs
// that only run models need libpteron alone. See examples/compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "pteron/host.h"
#include "pteron/status.h"

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

/// A method of the program and the archive it comes from.
struct CompileMethod {
  std::string name = "forward";
  std::string archive = {};        ///< path of a .pt2
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

struct CompileSettings {
  std::vector<CompileMethod> methods = {};     ///< at least one; names differ
  std::vector<CompileConstant> constants = {};
  std::vector<std::string> shared_states = {};     ///< buffers, by name, that are the same memory in all methods that have them
  CompileProfile profile = CompileProfile::kPteron;
  std::vector<std::string> backends = {};        ///< in order of preference; empty: "cpu" (none with kExecutorch); "portable": kernels alone
  CompilePrecision precision = CompilePrecision::kFloat32;
  bool allow_random = false;                   ///< compile operators that draw random numbers; they are not PyTorch's (LoadOptions::seed)
  bool strict = false;                         ///< refuse a program of which some node stays outside the backends
  std::vector<std::string> kernel_libraries = {};  ///< shared libraries with own operators (pteron/ops.h)
  uint64_t alignment_bytes = 64;               ///< of planned buffers and weights: a power of two from 16 to 4096
  std::vector<CompileSizeBound> size_bounds = {};
  bool sync = true;                            ///< compile_to_file: wait until the file is on the disk
  int threads = 0;                             ///< for folding constants; <= 0: all CPUs of the process
  LogSink* log = nullptr;                      ///< gets warnings; must outlive the call
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
  uint64_t file_bytes = 0;
};

/// A program in memory, for Program::load.
/// Owns: `owner` keeps `bytes` alive.
struct CompiledProgram {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
  CompileSummary summary;
};

/// Compiles to a file, which appears complete or not at all; an older file of that name stays if the compilation fails.
/// Errors: kInvalidInput (settings; the output is an input), kNotFound (no such archive), kInvalidFile (a damaged one, or of another version),
///         kUnsupported (lists every operator that cannot run, with its first source line; a backend that does not exist), kIo, kOutOfMemory.
/// Threads: independent calls may run at once.
/// Example: compile_to_file({.methods = {{"forward", "model.pt2"}}}, "model.pte");
Result<CompileSummary> compile_to_file(const CompileSettings& settings, const std::string& path);

/// The same into memory.
/// Errors: as above, without kIo for the output.
Result<CompiledProgram> compile_to_memory(const CompileSettings& settings);

}  // namespace pteron
