// Conditions on the sizes of a method's inputs that an export relied on. Made by import, written by emit into the program's facts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/expr.h"

namespace pteron::ir {

/// Must hold at every call; `text` are the archive's words for it.
struct Guard {
  Expr condition;
  std::string text;
};

/// By name of the method.
using Guards = std::map<std::string, std::vector<Guard>>;

}  // namespace pteron::ir
