// Operator schemas in ATen's text form: parsed once per operator, used to fill defaults and to know what aliases and what is written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pteron/status.h"

namespace pteron::ir {

/// Base types of schema arguments and results. SymInt is kInt.
enum class BaseType : uint8_t {
  kTensor, kInt, kFloat, kBool, kScalar, kString, kScalarType, kLayout, kDevice, kMemoryFormat, kGenerator, kGraph, kOther,
};

struct SchemaType {
  BaseType base = BaseType::kOther;
  bool list = false;              ///< T[] or T[n]
  bool optional = false;          ///< T? or T[]?
  bool optional_elements = false; ///< T?[]
  bool operator==(const SchemaType&) const = default;
};

struct SchemaArg {
  std::string name;
  SchemaType type;
  std::string default_text;  ///< "0", "None", "[0, 0]", "\"none\""; meaningful if has_default
  bool has_default = false;
  bool keyword_only = false;
  std::string alias;         ///< "a" from Tensor(a!) ; empty if none. "a -> *" keeps "a"
  bool written = false;      ///< '!' in the alias annotation
};

struct SchemaReturn {
  SchemaType type;
  std::string name;
  std::string alias;
  bool written = false;
};

struct Schema {
  std::string name;       ///< "aten::add"
  std::string overload;   ///< "Tensor"; empty for the default overload
  std::vector<SchemaArg> args;
  std::vector<SchemaReturn> returns;

  /// "aten::add.Tensor" or "aten::relu".
  std::string full_name() const;
  /// Position of an argument by name, -1 if there is none.
  int find(std::string_view arg_name) const;
};

/// Parses "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor".
/// Errors: kInternal with the text and the position (schemas are our own data).
Result<Schema> parse_schema(std::string_view text);

}  // namespace pteron::ir
