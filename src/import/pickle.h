// A reader of the pickle subset that torch.save writes for tensors in plain containers. It builds data, never calls anything:
// a global is a name, a call of it stays a record for the caller to judge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "pteron/status.h"

namespace pteron::importer {

/// A value of a pickle.
/// Owns:    nothing; values of one pickle point to each other (in rings, if the bytes say so) and live in one arena.
struct PickleValue {
  enum class Kind : uint8_t { kNone, kBool, kInt, kFloat, kString, kTuple, kList, kDict, kGlobal, kPersistent, kCall };
  Kind kind = Kind::kNone;
  int64_t integer = 0;                            ///< kBool, kInt
  double number = 0;                              ///< kFloat
  std::string text;                               ///< kString, kGlobal ("torch.FloatStorage")
  std::vector<PickleValue*> items;                ///< kTuple, kList; kDict: key, value, key, value; kPersistent: the id; kCall: function, arguments
  bool is_new_object = false;                     ///< kCall: made by NEWOBJ (named tuples), not by REDUCE
  PickleValue* state = nullptr;                   ///< what BUILD has set, of any kind; null if nothing
};
using PickleArena = std::deque<PickleValue>;

/// Reads a whole pickle; the values live in `arena`. Errors: kUnsupported (an opcode outside the subset), kInvalidFile (damaged).
Result<const PickleValue*> read_pickle(std::span<const std::byte> bytes, PickleArena& arena);

}  // namespace pteron::importer
