// pteron.meta: Pteron's own facts about a program as plain structs, their writer and verified reader, and the evaluator of dim expressions.
// Written by emit, read by the runtime and inspect. Wire layout: schema/pteron_meta.fbs.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "pteron/status.h"
#include "pteron/tensor.h"
#include "schema/pteron_meta_generated.h"

namespace pteron::format {

/// Named data under which the facts are stored.
inline constexpr std::string_view kMetaKey = "pteron.meta";

/// Operations of a DimExpr; numbers are those of the file.
enum class DimOp : uint8_t {
  kConst = 0,  ///< pushes the operand
  kSymbol,     ///< pushes the value of symbols[operand]
  kAdd,
  kSub,
  kMul,
  kFloorDiv,   ///< Python's //
  kMod,        ///< Python's %
  kMax,
  kMin,
  kEq,         ///< comparisons push 0 or 1
  kNe,
  kLt,
  kLe,
  kAnd,
  kOr,
  kNot,
  kIte,        ///< condition, then, else
  kPow,        ///< exponent >= 0
};
inline constexpr uint8_t kDimOpCount = static_cast<uint8_t>(DimOp::kPow) + 1;

/// An integer expression over a method's symbols in postfix order.
struct DimExpr {
  struct Step {
    DimOp op = DimOp::kConst;
    int64_t operand = 0;  ///< kConst and kSymbol only
    bool operator==(const Step&) const = default;
  };
  std::vector<Step> steps;
  std::string text;  ///< for messages; empty for constants

  static DimExpr constant(int64_t value) { return {{{DimOp::kConst, value}}, {}}; }
  static DimExpr symbol(int64_t index, std::string name) { return {{{DimOp::kSymbol, index}}, std::move(name)}; }
  bool is_constant() const { return steps.size() == 1 && steps[0].op == DimOp::kConst; }
  /// Index of the symbol that the expression is, or -1.
  int64_t symbol_index() const { return steps.size() == 1 && steps[0].op == DimOp::kSymbol ? steps[0].operand : -1; }
  bool operator==(const DimExpr&) const = default;
};

/// Largest number of values on the stack while an expression is evaluated.
inline constexpr size_t kMaxDimDepth = 64;

/// True if the steps leave exactly one value, never more than kMaxDimDepth, and name symbols below `symbol_count`.
bool is_well_formed(const DimExpr& expr, size_t symbol_count);
/// Value of a well-formed expression; nullopt on overflow, division by zero or a negative exponent. Allocates nothing.
std::optional<int64_t> evaluate(const DimExpr& expr, std::span<const int64_t> symbols);

/// A named size with its inclusive range.
struct SymbolMeta {
  std::string name;
  int64_t min = 0;
  int64_t max = std::numeric_limits<int64_t>::max();  ///< that value = unbounded
  int64_t divisor = 1;                                ///< value % divisor == remainder
  int64_t remainder = 0;
  bool operator==(const SymbolMeta&) const = default;
};

/// What must hold between sizes.
struct ConstraintMeta {
  DimExpr condition;  ///< non-zero = holds
  std::string text;   ///< printed when it does not
  bool operator==(const ConstraintMeta&) const = default;
};

enum class PortKind : uint8_t { kTensor = 0, kInt, kFloat, kBool, kNone, kString };

/// An input or output of a method, in flattened order.
struct PortMeta {
  std::string name;
  PortKind kind = PortKind::kTensor;
  DType dtype = DType::kFloat32;
  std::vector<DimExpr> dims;
  std::vector<uint8_t> dim_order;    ///< empty = row-major
  std::vector<DimExpr> strides;      ///< empty = dense in dim_order
  int64_t int_min = std::numeric_limits<int64_t>::min();
  int64_t int_max = std::numeric_limits<int64_t>::max();
  double float_min = -std::numeric_limits<double>::infinity();
  double float_max = std::numeric_limits<double>::infinity();
  int32_t symbol = -1;               ///< kInt inputs: the symbol that the value defines
  bool mutated = false;              ///< the call writes into this input
  bool varies = false;               ///< kFloat and kBool inputs that hold any value; otherwise only the one in the file
  bool operator==(const PortMeta&) const = default;
};

struct ArenaMeta {
  uint32_t alignment = 64;
  std::string share;  ///< equal non-empty names in several methods mean the same bytes
  bool operator==(const ArenaMeta&) const = default;
};

/// A delegate argument that is read and written in place.
struct InPlaceArgument {
  int32_t instruction = 0;
  int32_t input_arg = 0;
  int32_t output_arg = 0;
  bool operator==(const InPlaceArgument&) const = default;
};

/// A planned value that lives on between calls.
struct MutableBufferMeta {
  std::string name;
  int32_t value_index = 0;
  bool initialized = false;
  std::vector<InPlaceArgument> in_place;
  bool operator==(const MutableBufferMeta&) const = default;
};

/// Where an instruction comes from.
struct SourceLineMeta {
  int32_t instruction = 0;
  std::string location;     ///< "net/model.py:42"
  std::string module_path;
  bool operator==(const SourceLineMeta&) const = default;
};

struct MethodMeta {
  std::string name;
  std::vector<PortMeta> inputs;
  std::vector<PortMeta> outputs;
  std::string input_spec;   ///< pytree specs as exported
  std::string output_spec;
  std::vector<SymbolMeta> symbols;
  std::vector<ConstraintMeta> constraints;
  std::vector<ArenaMeta> arenas;    ///< arena i is memory_id i + 1
  std::vector<MutableBufferMeta> mutable_buffers;
  std::vector<SourceLineMeta> source_lines;
  bool operator==(const MethodMeta&) const = default;
};

/// A data file that the program needs.
struct DataFileMeta {
  std::string name;
  uint64_t size_bytes = 0;
  std::string manifest_hash;
  bool operator==(const DataFileMeta&) const = default;
};

struct ProgramMeta {
  std::string compiler_version;
  std::string profile;
  std::vector<MethodMeta> methods;
  std::vector<DataFileMeta> data_files;

  /// Null if there is none of that name.
  const MethodMeta* find(std::string_view method) const;
  bool operator==(const ProgramMeta&) const = default;
};

/// The blob's bytes: equal input gives equal bytes.
/// Errors: kInvalidInput (an expression that is not well formed), kOutOfMemory.
Result<Buffer> write_meta(const ProgramMeta& meta);
/// Reads and checks a blob: known dtypes and kinds, well-formed expressions, symbols in range, dim orders that are permutations.
/// Value and instruction indices are the program's business: the caller compares them with it.
/// Errors: kInvalidFile, kOutOfMemory.
Result<ProgramMeta> read_meta(std::span<const std::byte> bytes);

/// A checked blob for use in place, without plain copies.
/// Owns:    a copy of the bytes if they were not 16-byte aligned, else nothing.
struct MetaView {
  const wire::meta::Meta* root = nullptr;
  Buffer copy;
};
/// The checks of read_meta; beyond them, every vector, string and expression that the schema names is present, so that the generated accessors
/// may be used freely.
/// Errors: as read_meta.
Result<MetaView> verify_meta(std::span<const std::byte> bytes);

}  // namespace pteron::format
