// Parsing of stack_trace and nn_module_stack.
#include "import/source_info.h"

#include "base/str_cat.h"

namespace pteron::importer {

std::string source_line(std::string_view stack_trace, SourceDetail detail) {
  if (detail == SourceDetail::kNone) return {};
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  const size_t file = stack_trace.rfind(kFile);
  if (file == std::string_view::npos) return {};
  const std::string_view frame = stack_trace.substr(file + kFile.size());
  const size_t path_end = frame.find(kLine);
  if (path_end == std::string_view::npos) return {};
  std::string_view path = frame.substr(0, path_end);
  const std::string_view rest = frame.substr(path_end + kLine.size());
  const std::string_view number = rest.substr(0, rest.find_first_not_of("0123456789"));
  if (detail == SourceDetail::kShort) {
    const size_t last = path.find_last_of("/\\");
    const size_t before_last = last == std::string_view::npos || last == 0 ? std::string_view::npos : path.find_last_of("/\\", last - 1);
    if (before_last != std::string_view::npos) path.remove_prefix(before_last + 1);
    else if (last == 0) path.remove_prefix(1);
  }
  return str_cat(path, ":", number);
}

namespace {

/// Position of `stop` outside brackets, counted from `begin`; size() if there is none.
size_t find_outside(std::string_view text, char stop, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
    if (c == stop && depth <= 0) return i;
  }
  return text.size();
}

}  // namespace

std::string module_path(std::string_view nn_module_stack) {
  std::string_view innermost;
  for (size_t at = 0; at < nn_module_stack.size();) {
    const size_t end = find_outside(nn_module_stack, ';', at);
    innermost = nn_module_stack.substr(at, end - at);
    at = end + 1;
  }
  const size_t begin = find_outside(innermost, ',', 0);
  if (begin >= innermost.size()) return {};
  const size_t end = find_outside(innermost, ',', begin + 1);
  return std::string(innermost.substr(begin + 1, end - begin - 1));
}

}  // namespace pteron::importer
