// A name among names: tables of operators in passes.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <string_view>

namespace pteron::passes {

template <typename Names = std::initializer_list<std::string_view>>
bool is_one_of(std::string_view name, const Names& names) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

}  // namespace pteron::passes
