// Plain structs that mirror a .pte program, and its writer. Filled by emit; read back through format/program_view.h.
// Wire layout: schema/program.fbs and schema/README.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/byte_sink.h"
#include "format/payload.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::format {

/// Place of a planned tensor.
struct Allocation {
  uint32_t memory_id = 1;  ///< from 1; arena_sizes[memory_id - 1]
  uint64_t offset = 0;     ///< bytes from the arena's start
};

enum class Dynamism : uint8_t { kStatic = 0, kBounded = 1, kUnbounded = 2 };

/// A tensor value. What it is follows from data_index and allocation:
/// data_index only = constant; allocation only = planned; both = planned with initial state; none = the caller supplies the pointer.
struct TensorSpec {
  DType dtype = DType::kFloat32;
  std::vector<int64_t> sizes;       ///< upper bounds unless kStatic; each below 2^31
  std::vector<uint8_t> dim_order;   ///< empty = row-major
  uint32_t data_index = 0;          ///< with allocation: index from 1 in ProgramSpec::initial_states; without: from 1 in constants
  std::optional<Allocation> allocation;
  Dynamism dynamism = Dynamism::kStatic;
  Device device;
  std::string external_name;        ///< non-empty: the bytes come from a data file under this name (data_index is ignored)
  std::string buffer_name = {};     ///< of a mutable buffer in official files; empty if unknown. Only without external_name
};

struct NullValue {};
/// A list of ints as indices of int values.
struct IntListValue {
  std::vector<int64_t> items;
};
struct DoubleListValue {
  std::vector<double> items;
};
struct BoolListValue {
  std::vector<uint8_t> items;
};
/// Indices of tensor values.
struct TensorListValue {
  std::vector<int32_t> items;
};
/// Indices of tensor values, -1 = None.
struct OptionalTensorListValue {
  std::vector<int32_t> items;
};

using ValueSpec = std::variant<NullValue, int64_t, bool, double, TensorSpec, std::string, IntListValue, DoubleListValue, BoolListValue,
                               TensorListValue, OptionalTensorListValue>;

struct KernelCall {
  int32_t op_index = 0;
  std::vector<int32_t> args;
};
struct DelegateCall {
  int32_t delegate_index = 0;
  std::vector<int32_t> args;
};
struct MoveCall {
  int32_t from = 0;
  int32_t to = 0;
};
struct JumpFalseCall {
  int32_t condition = 0;
  int32_t destination = 0;
};
struct FreeCall {
  int32_t value = 0;
};
using InstructionSpec = std::variant<KernelCall, DelegateCall, MoveCall, JumpFalseCall, FreeCall>;

struct OperatorSpec {
  std::string name;      ///< "aten::add"
  std::string overload;  ///< "out"; empty for the default overload
};

struct CompileSpec {
  std::string key;
  std::vector<std::byte> value;
};

struct DelegateSpec {
  std::string id;
  uint32_t blob = 0;  ///< index in ProgramSpec::blobs; an empty blob is stored inline
  std::vector<CompileSpec> compile_specs;
};

/// One arena of planned memory.
struct ArenaSpec {
  int64_t size_bytes = 0;
  Device device;
};

struct PlanSpec {
  std::string name = "forward";
  std::string input_spec;   ///< pytree text of the inputs
  std::string output_spec;
  std::vector<ValueSpec> values;
  std::vector<int32_t> inputs;
  std::vector<int32_t> outputs;
  std::vector<InstructionSpec> instructions;
  std::vector<OperatorSpec> operators;
  std::vector<DelegateSpec> delegates;
  std::vector<ArenaSpec> arenas;  ///< without the format's reserved entry 0
};

/// Bytes in a segment of their own (delegate payloads, named data), or a constant's bytes under a second name.
struct BlobSpec {
  Payload payload;
  uint64_t alignment = 0;        ///< 0 = WriteOptions::alignment
  uint32_t constant_index = 0;   ///< > 0: no own bytes, the segment lies inside the constant segment (constants[constant_index - 1])
};

struct NamedDataSpec {
  std::string key;
  uint32_t blob = 0;
};

/// A whole program. Equal constants are expected to be merged already.
struct ProgramSpec {
  std::vector<PlanSpec> plans;          ///< written in this order
  std::vector<Payload> constants;       ///< TensorSpec::data_index i is constants[i - 1]
  std::vector<Payload> initial_states;  ///< the same for planned tensors with initial state
  std::vector<BlobSpec> blobs;
  std::vector<NamedDataSpec> named_data;
};

struct WriteOptions {
  uint64_t alignment = 64;  ///< of constants and blobs in the file; a power of two from 16 to 4096
};

/// Writes the program as a .pte: equal input gives equal bytes.
/// Requires: indices inside the spec are in range (checked).
/// Errors: kInvalidInput (an index, size or rank that the format cannot hold), kInternal (a producer's size), the producers' and the sink's.
Status write_program(const ProgramSpec& program, const WriteOptions& options, ByteSink& sink);

class ProgramView;

/// A verified program as the structs that write_program takes; what is equal byte for byte in it becomes one constant, state or blob.
/// Payloads that were inline get a segment; source lines of official files are left out.
/// Owns:   its tables; borrows constants, states, payloads and named data from the file's bytes.
/// Errors: kUnsupported (a method with several chains), kInvalidFile (constants that overlap).
Result<ProgramSpec> read_program(const ProgramView& view);

}  // namespace pteron::format
