// Loading and running .pte programs: Program (the file, shared), Method (one loaded method with its memory). See examples/embed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "pteron/delegate.h"
#include "pteron/host.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron {

namespace runtime {
class KernelTable;
class StateCache;
struct ProgramState;
struct MethodState;
}  // namespace runtime

enum class ValueKind : uint8_t { kNone, kTensor, kInt, kDouble, kBool, kString };
/// "tensor", "int", ...
std::string_view value_kind_name(ValueKind kind);

/// One dim of an input or output.
struct DimInfo {
  int64_t min = 0;
  int64_t max = 0;        ///< the bound that memory is planned for
  std::string text;       ///< "8", or an expression over named sizes ("2*s0"); empty if the file does not say
  bool is_static() const { return min == max; }
};

/// An input or output of a method.
struct ValueInfo {
  std::string name;                   ///< the program's name for it; "input_0", "output_0" if the file has none
  ValueKind kind = ValueKind::kTensor;
  DType dtype = DType::kFloat32;      ///< kTensor
  std::vector<DimInfo> dims;          ///< kTensor
  std::vector<uint8_t> dim_order;     ///< kTensor: storage order that needs no conversion, outermost first
  bool dynamic = false;               ///< kTensor: some size may vary
  bool planned = false;               ///< kTensor: lives in the method's planned memory (inputs are copied there)
  Device device = {};                 ///< kTensor: in whose memory it lies
  bool fixed = false;                 ///< scalar input that must have the value below (it was a constant for the exporter)
  int64_t integer = 0;                ///< kInt, kBool: the value in the file
  double floating = 0;                ///< kDouble
  std::string string;                 ///< kString
  int64_t int_min = std::numeric_limits<int64_t>::min();  ///< kInt that is not fixed: inclusive range
  int64_t int_max = std::numeric_limits<int64_t>::max();

  /// Bytes of the tensor at its upper bound.
  uint64_t bound_bytes() const;
  /// "float32 [s0<=8,3,224,224]", "int", "none".
  std::string type_text() const;
};

/// A method as the file describes it; needs no kernels.
struct MethodInfo {
  std::string name;
  std::vector<ValueInfo> inputs;
  std::vector<ValueInfo> outputs;
  std::string input_spec;                    ///< pytree text, as the exporter wrote it
  std::string output_spec;
  std::vector<std::string> operators;        ///< "aten::add.out", in file order
  std::vector<std::string> delegates;        ///< backend ids, one per payload
  std::vector<ValueInfo> mutable_buffers;    ///< state that lives on between calls, where the file names it
  std::vector<uint64_t> arena_bytes;         ///< planned memory, one entry per arena
  std::vector<Device> arena_devices;         ///< the same arenas: whose memory they are
  size_t value_count = 0;
  size_t instruction_count = 0;
};

/// How to load a program.
struct LoadOptions {
  /// Data files (.ptd) with weights. If none is given here nor below, those that the program names are looked for beside it.
  std::vector<std::string> data_files;
  std::vector<std::span<const std::byte>> data_in_memory;  ///< the same in memory; must outlive the program
  std::vector<int> data_fds;                       ///< the same from open descriptors, which may be closed after loading
  bool verify_data = false;                        ///< hash every byte of data files at load; else only what backends read to load
  bool map = true;                                 ///< map files; false reads them into memory (files that others may change)
  /// Backends pack weights, and compare the bytes of data files that they read, in load_method(); false: before the first execute(), which then takes
  /// longer and may fail as load_method() does, so that loading takes no time and no memory for weights.
  bool pack_at_load = false;
  int threads = 0;                                 ///< size of the program's own pool; <= 0: all CPUs of the process, 1: no pool
  ThreadPool* pool = nullptr;                      ///< the caller's pool instead; must outlive the program
  LogSink* log = nullptr;                          ///< must outlive the program
  const runtime::KernelTable* kernels = nullptr;   ///< null: the portable kernels; must outlive the program
  std::vector<const DelegateBackend*> delegates;   ///< must outlive the program
  std::vector<DeviceAllocator*> device_allocators; ///< memory of devices; asked before DelegateBackend::device_allocator(); must outlive the program
  const NamedData* outer_data = nullptr;           ///< for payloads that are programs: constants of the program around; must outlive this one
  runtime::StateCache* states = nullptr;           ///< for the library's own use: packed weights shared with other programs
  std::vector<std::string> kernel_libraries;       ///< shared libraries with users' own operators (pteron/ops.h); open as long as the program
  uint64_t seed = 0;                               ///< of operators that draw random numbers; every method starts its own stream with it, and reset() starts it anew
  uint64_t max_instructions = 10'000'000;          ///< a call that executes more fails: guard against endless loops
};

class Method;

/// A verified .pte file, shared by its methods.
/// Owns:    the mapping or bytes of the file and of its data files; everything made from it keeps it alive.
/// Threads: immutable after loading; all members may be called from several threads at once.
class Program : public std::enable_shared_from_this<Program> {
 public:
  /// Maps (or reads) and verifies a file.
  /// Errors: kNotFound (no such file), kInvalidFile (also of a data file), kIncompatible (two data files with one key), kUnsupported (a feature of the file), kIo, kOutOfMemory.
  static Result<std::shared_ptr<Program>> load(const std::string& path, const LoadOptions& options = {});
  /// The same from memory. Owns: borrows `bytes`, which must outlive the program and everything made from it.
  static Result<std::shared_ptr<Program>> load(std::span<const std::byte> bytes, const LoadOptions& options = {});
  /// The same from an open descriptor of a regular file; it may be closed afterwards.
  static Result<std::shared_ptr<Program>> load_fd(int fd, const LoadOptions& options = {});

  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Methods in file order.
  std::span<const std::string> method_names() const;
  /// Errors: kNotFound (lists the methods there are), kInvalidFile.
  Result<MethodInfo> method_info(std::string_view name) const;
  /// Allocates memory, finds all kernels and loads all delegates.
  /// Errors: kNotFound (method, or a key of a data file), kUnsupported (names every operator and delegate that is missing), kInvalidFile,
  ///         kIncompatible (a data file of another program; all files that were tried are named), kUnavailable, kOutOfMemory.
  Result<std::unique_ptr<Method>> load_method(std::string_view name);
  /// The same, in one session with `peer`: the buffers that the file shares between methods (compile --share-state) are those of `peer`.
  /// Methods of one session are used by one thread at a time. Errors: as above; kInvalidInput (`peer` belongs to another program).
  Result<std::unique_ptr<Method>> load_method(std::string_view name, Method& peer);
  /// Bytes stored under a key, in the data files or in the program.
  std::optional<std::span<const std::byte>> named_data(std::string_view key) const;

  /// For the library's own use.
  explicit Program(std::unique_ptr<runtime::ProgramState> state);
  runtime::ProgramState& state() { return *state_; }
  const runtime::ProgramState& state() const { return *state_; }

 private:
  std::unique_ptr<runtime::ProgramState> state_;
};

/// What an output is: none, a tensor, or a number, bool or string.
/// Owns:    tensors and strings point into the method (or to the caller's buffer).
using OutputValue = std::variant<std::monostate, TensorView, int64_t, double, bool, std::string_view>;

/// A loaded method: its values, planned memory and state.
/// Owns:    its memory; keeps the program alive.
/// Threads: one thread at a time; different Methods of one Program may run at once.
/// Example: method->set_input(0, x); method->execute(); auto y = method->output(0);
class Method {
 public:
  ~Method();
  Method(const Method&) = delete;
  Method& operator=(const Method&) = delete;

  /// Inputs, outputs and sizes, as Program::method_info.
  const MethodInfo& info() const;
  size_t input_count() const;
  size_t output_count() const;
  /// Position of an input by its name, or by its decimal position ("0").
  /// Errors: kInvalidInput with the names there are.
  Result<size_t> input_index(std::string_view name) const;
  Result<size_t> output_index(std::string_view name) const;

  /// Sets an input from a tensor of any strides at any address. Planned inputs are copied (converted to the program's memory format);
  /// others are used in place if format and alignment fit, so the bytes must stay alive and unchanged until execute() has returned.
  /// An input of a device (ValueInfo::device) takes a dense tensor of that device, in place, or one of the host, which is copied there.
  /// A scalar input takes a tensor with one element. Inputs stay set for later calls; an input whose memory the program reuses must be
  /// set anew before each call (execute() says so).
  /// Errors: kInvalidInput (index, dtype, rank, a size outside the compiled range, device, another value than a fixed scalar's).
  Status set_input(size_t index, const TensorView& tensor);
  Status set_input(std::string_view name, const TensorView& tensor);
  /// Sets an int, float or bool input. Errors: as above.
  Status set_int_input(size_t index, int64_t value);
  Status set_double_input(size_t index, double value);
  Status set_bool_input(size_t index, bool value);

  /// Lets the program write an output to the caller's memory, from the next execute() on; null returns to the method's own.
  /// The tensor is dense in the output's dim order, at any address; of an output of a device (ValueInfo::device) in that device's memory. Must stay
  /// alive as long as it is set.
  /// Errors: kInvalidInput (index, not a tensor, or fewer bytes than the output may ever need: ValueInfo::bound_bytes).
  Status set_output_data_ptr(size_t index, void* data, size_t size_bytes);

  /// Puts what this method's session computes on a device on a stream of the caller's from the next call on; null: on the session's own again. CUDA: a CUstream
  /// (cudaStream_t) of the device's primary context, which must be alive in calls. Then execute() does not wait for results that stay on the device, which are
  /// in order with the stream; results of the host are there when it returns. What was computed on the stream before must be over, or in order with the new one.
  /// A stream that the caller captures (cuStreamBeginCapture) records the call instead of running it, with the addresses that are set: all inputs and outputs
  /// must lie on the device, and the method must have run once with these sizes. Errors of such a call leave the capture as it was.
  /// Errors: kInvalidInput (no backend of the program computes there), kUnsupported (a backend that takes no streams), kUnavailable.
  Status set_stream(Device device, void* stream);

  /// Runs the method. After an error, outputs are undefined and state may be half updated.
  /// Errors: kInvalidInput (an input not set, sizes that do not fit each other, data a kernel refuses), kInternal, kUnavailable, kOutOfMemory.
  ///         Messages name method, instruction and operator.
  Status execute();

  /// An output of the last execute(), valid until the next set_input(), execute() or reset(): planned memory is shared. TensorView::device says whose
  /// memory it is; copy_to_host() reads that of a device.
  /// Errors: kInvalidInput (index; nothing was executed yet).
  Result<OutputValue> output(size_t index) const;

  /// The present contents of a tensor input: for an input that the program writes (it was mutated in the model) the value after the call. The
  /// caller's own tensor is never written. Such an input stays set, with its new contents, until it is set again.
  /// Errors: kInvalidInput (index, not a tensor, not set).
  Result<TensorView> input(size_t index) const;

  /// Copies the bytes of a tensor that output() or input() gave, as they lie there (dense), from the memory of its device or the host's.
  /// Errors: kInvalidInput (fewer than size_bytes() of room), those of the device.
  Status copy_to_host(const TensorView& from, void* to, size_t room_bytes) const;

  /// Returns mutable buffers to their initial values, shared ones for all methods of the session; inputs must be set again, outputs
  /// become invalid.
  void reset();

  /// For the library's own use.
  explicit Method(std::unique_ptr<runtime::MethodState> state);
  runtime::MethodState& state() { return *state_; }

 private:
  std::unique_ptr<runtime::MethodState> state_;
};

}  // namespace pteron
