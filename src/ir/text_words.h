// What printer and parser of the text form share: names, words, escapes.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/ascii.h"
#include "ir/graph.h"

namespace pteron::ir {

/// Words that cannot be names of values without a '%' in front.
inline constexpr std::string_view kTextWords[] = {"as",    "at",     "complex", "const", "device", "dtype", "false", "format", "graph",   "in",   "inf",
                                                  "input", "layout", "nan",     "none",  "regions", "return", "state", "symbol", "true", "write"};

inline bool is_text_word(std::string_view name) {
  for (const std::string_view word : kTextWords) {
    if (word == name) return true;
  }
  return false;
}

/// Number of elements up to which the values of a constant are written out; larger ones are hashed.
inline constexpr int64_t kInlineElements = 16;

inline constexpr std::string_view kMemoryFormatNames[] = {"contiguous", "preserve", "channels_last", "channels_last_3d"};
inline constexpr std::string_view kLayoutNames[] = {"strided", "sparse"};
inline constexpr std::string_view kOriginNames[] = {"folded", "parameter", "buffer", "constant"};

}  // namespace pteron::ir
