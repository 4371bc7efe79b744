// The insides of Program and Method: what loading builds and calls use. Shared by the files of this room only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/mapped_file.h"
#include "base/op_library.h"
#include "base/thread_pool.h"
#include "format/meta.h"
#include "format/program_view.h"
#include "pteron/program.h"
#include "runtime/constraints.h"
#include "runtime/data_map.h"
#include "runtime/device_memory.h"
#include "runtime/kernel.h"
#include "runtime/payload_memory.h"
#include "runtime/random.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// A verified program and what its methods share.
struct ProgramState {
  std::string label;                       ///< path, for messages
  std::string path;                        ///< of the file; empty if it has none: then no data file is looked for beside it
  std::shared_ptr<FileBytes> file;         ///< null if the caller owns the bytes
  format::ProgramView view;
  DataMap data;                            ///< data files and the program's named data
  format::ProgramMeta meta;                ///< empty if the file has none
  LoadOptions options;
  std::vector<std::shared_ptr<const OpLibrary>> libraries;  ///< of LoadOptions::kernel_libraries
  std::unique_ptr<ThreadPool> own_pool;
  ThreadPool* pool = nullptr;
  StateCache own_states;
  PayloadMemory* memory = nullptr;         ///< of a payload whose tensors do not lie in the host's memory; null otherwise

  /// Memory of devices of that type; null: nobody has any.
  DeviceAllocator* allocator(DeviceType type) const;
  StateCache* states() { return options.states != nullptr ? options.states : &own_states; }
  std::vector<std::string> method_names;
};

/// One step of a method, with everything found beforehand.
struct Instruction {
  enum class Kind : uint8_t { kKernel, kSizedKernel, kUserOp, kDelegate, kDeviceCopy, kMove, kJumpFalse, kFree } kind = Kind::kFree;
  uint32_t target = 0;                ///< kJumpFalse: index in MethodState::code
  KernelFn fn = nullptr;              ///< kKernel, kSizedKernel
  WorkspaceFn workspace = nullptr;    ///< kSizedKernel: what it asks for depends on numbers that the program or the caller may change
  const KernelState* state = nullptr; ///< kKernel, kSizedKernel: owned by MethodState::kernel_states
  Delegate* delegate = nullptr;       ///< kDelegate
  const UserOp* user_op = nullptr;    ///< kUserOp
  DeviceCopy* copy = nullptr;         ///< kDeviceCopy: of args[0] to args.back()
  std::span<Value* const> args;       ///< kMove: from, to; kJumpFalse: condition
};

/// An input: where it goes and what it must look like.
struct InputSlot {
  Value* value = nullptr;
  Tag tag = Tag::kNone;               ///< as in the file
  bool planned = false;
  bool keeps = false;                 ///< planned memory is used by nothing else: the bytes survive a call
  bool lent = false;                  ///< unplanned, of a payload: the call writes the caller's tensor (a mutable buffer of the program around)
  bool written = false;               ///< unplanned, and an instruction writes it: the method works on a copy
  bool fixed = false;                 ///< scalar that must equal the file's value
  bool set = false;
  int64_t integer = 0;                ///< the file's value
  double floating = 0;
  Buffer converted;                   ///< unplanned: copy of tensors that cannot be used in place
  DeviceBlock on_device = {};         ///< the same of an input of a device
  DeviceCopy copy = {};               ///< of an input of a device: the way there
};

/// An output: where it comes from and where the caller wants it.
struct OutputSlot {
  Value* value = nullptr;
  Tensor initial;                     ///< kTensor: as in the file, with the upper bound
  bool is_tensor = false;
  bool direct = false;                ///< kernels write to memory that is this output's alone: the caller's buffer can be put there
  uint64_t bound_bytes = 0;
  Buffer own;                         ///< direct, without a buffer of the caller
  DeviceBlock on_device = {};         ///< the same of an output of a device
  void* caller_data = nullptr;
  TensorView delivered;               ///< the last call's result at caller_data
  bool is_delivered = false;
};

/// A value that a call may rebind, and what it was at load.
struct SavedValue {
  Value* value = nullptr;
  Value initial;
};
struct SavedScalar {
  Value* value = nullptr;
  Tag tag = Tag::kNone;
  int64_t integer = 0;
  double floating = 0;
};

/// Initial bytes of a mutable buffer.
struct InitialState {
  std::byte* target = nullptr;
  std::span<const std::byte> bytes;
  DeviceAllocator* allocator = nullptr;  ///< of the target; null: the host's
  int8_t index = 0;
};

/// Sees what a method computes (pteron compare --bisect).
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  /// Kernel or delegate call `instruction` has just run. Errors: end the call.
  virtual Status after(size_t instruction) = 0;
};

/// Memory that methods of one session share, by the name that pteron.meta gives the arena.
struct SharedArenas {
  std::map<DeviceAllocator*, std::unique_ptr<DeviceAllocator>> sessions;  ///< of this session, by those of the program; goes last
  std::map<std::string, Buffer, std::less<>> buffers;
  std::map<std::string, DeviceBlock, std::less<>> on_devices;

  /// The session's own form of an allocator, or the allocator itself.
  DeviceAllocator& session_of(DeviceAllocator& allocator);
};

/// What loading left for the first call: a kernel's state. Its prepare() was called without a pool, checked its arguments and gave null, since making
/// the state takes time or memory; it is called again, with the pool and the same arguments.
struct LateKernel {
  size_t instruction = 0;
  PrepareFn prepare = nullptr;
  std::vector<Value> values;   ///< the arguments as they were at load: tensors have their upper bounds
};

/// A loaded method.
struct MethodState {
  std::shared_ptr<Program> program;   ///< keeps the mapping and the pool alive
  std::shared_ptr<SharedArenas> shared;      ///< kept alive by every method of the session; goes after all memory
  MethodInfo info;
  std::vector<Value> values;
  std::vector<Value*> pointers;       ///< all argument lists and list items, one after another
  std::vector<double> doubles;
  std::unique_ptr<bool[]> bools;
  std::unique_ptr<Value> none;        ///< what -1 in an optional list points to
  std::vector<Buffer> memory;         ///< arenas, then memory of unplanned values and aligned copies of constants
  std::vector<Arena> arenas;          ///< planned memory by memory_id - 1: parts of `memory`, `device_memory` or `shared`
  std::vector<DeviceBlock> device_memory;    ///< as `memory`
  std::deque<DeviceCopy> copies;             ///< of the copy instructions
  Status reset_status;                       ///< of the last reset(): a device that failed
  std::vector<Instruction> code;
  std::vector<int32_t> operator_of;   ///< per instruction: index in info.operators or info.delegates, -1
  std::vector<std::unique_ptr<Delegate>> delegates;
  std::vector<std::shared_ptr<const KernelState>> kernel_states;
  Buffer scratch;
  RandomStream random;
  KernelContext context;
  std::vector<InputSlot> inputs;
  std::vector<OutputSlot> outputs;
  std::vector<Value*> input_values;        ///< of `inputs`, in order
  std::vector<SavedValue> saved_values;    ///< targets of moves, and views that have memory of their own
  std::vector<SavedScalar> saved_scalars;  ///< numbers that primitive operators set
  std::vector<Tensor*> unbound_views;      ///< targets of view instructions without memory
  std::vector<InitialState> initial_states;
  Constraints constraints;
  bool inputs_changed = true;         ///< sizes must be checked against each other before the next call
  bool executed = false;
  CallObserver* observer = nullptr;   ///< may be null; outlives the calls
  std::vector<LateKernel> late_kernels;    ///< until the first call
  std::vector<std::string> late_checks;    ///< until the first call: constants of the program around whose bytes nobody has compared yet

  /// Memory of devices of that type, in the order of this session; null: nobody has any.
  DeviceAllocator* allocator(DeviceType type) const;
};

/// Reads and verifies a program. `label` names it in messages; options.kernels must be set. `path`: where its data files may lie beside it.
/// memory: for a payload whose tensors lie elsewhere than in the host's memory: its arenas, constants and scratch come from there, and its method is
/// run by prepare_call() and run_instructions(), not by Method::execute(). Outlives the method; null otherwise.
/// Errors: as Program::load.
Result<std::shared_ptr<Program>> load_program(std::shared_ptr<FileBytes> file, std::span<const std::byte> bytes, std::string label,
                                              const LoadOptions& options, std::string path = {}, PayloadMemory* memory = nullptr);

/// What the file says about plan `index`.
/// Errors: kInvalidFile (pteron.meta contradicts the plan).
Result<MethodInfo> describe_method(const ProgramState& program, uint32_t index);

/// Builds a method from plan `index`: memory, values, kernels, delegates. `shared` holds the session's shared memory; what is missing is added.
/// Errors: as Program::load_method.
Result<std::unique_ptr<MethodState>> build_method(std::shared_ptr<Program> program, uint32_t index, std::shared_ptr<SharedArenas> shared);

/// What a kernel has packed it hardly reads again: the constants among its arguments may leave the memory.
void release_constants(const ProgramState& program, std::span<Value* const> args);

/// Does what loading left for the first call: compares the bytes of data files that payloads read, and makes the kernels' states (packed weights).
/// After an error the next call tries again.
/// Errors: kInvalidFile (a data file that was changed), kOutOfMemory, the kernels'.
Status finish_loading(MethodState& method);

/// What a call does before its instructions: checks the sizes of the inputs against each other, and lets values that the last call rebound start anew.
/// Errors: kInvalidInput (sizes that do not fit).
Status prepare_call(MethodState& method);

/// Puts the initial bytes where they belong. Errors: the device's.
Status write_initial(const InitialState& initial);

/// Runs the instructions. Inputs must be in place.
/// Errors: the kernels', with method, instruction and operator; kInternal (instruction budget).
Status run_instructions(MethodState& method);

}  // namespace pteron::runtime
