// Conditions on the sizes of a method's inputs that an export relied on. Made by import, written by emit into the program's facts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ir/expr.h"

namespace pteron::ir {

/// What must hold at every call, by name of the method.
using Guards = std::map<std::string, std::vector<Expr>>;

}  // namespace pteron::ir
