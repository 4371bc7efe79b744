// Parsing of stack_trace and nn_module_stack.
#include "import/source_info.h"

#include <algorithm>

#include "base/str_cat.h"

namespace pteron::importer {

namespace {

/// Position of the last `word` that begins before `end`; npos if there is none. (string_view::rfind compares at every position.)
size_t find_last(std::string_view text, std::string_view word, size_t end) {
  if (text.size() < word.size()) return std::string_view::npos;
  for (size_t i = std::min(end, text.size() - word.size() + 1); i-- > 0;) {
    if (text[i] == word[0] && text.substr(i, word.size()) == word) return i;
  }
  return std::string_view::npos;
}

/// A traceback frame: `File "PATH", line N, in f`.
struct Frame {
  std::string_view path, line;
};

/// The frame that begins at or before `*end`; moves *end before it. False if there is none.
bool previous_frame(std::string_view trace, size_t* end, Frame* out) {
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  while (*end != 0) {
    const size_t at = find_last(trace, kFile, *end);
    if (at == std::string_view::npos) return false;
    *end = at;
    const std::string_view frame = trace.substr(at + kFile.size());
    const size_t path_end = frame.find(kLine);
    if (path_end == std::string_view::npos) continue;
    const std::string_view rest = frame.substr(path_end + kLine.size());
    *out = {frame.substr(0, path_end), rest.substr(0, rest.find_first_not_of("0123456789"))};
    return true;
  }
  return false;
}

/// Frames inside PyTorch or in generated code say little to the user.
bool is_user_code(std::string_view path) {
  if (path.starts_with('<')) return false;
  constexpr std::string_view kTorch = "/torch/";
  for (size_t at = path.find(kTorch); at != std::string_view::npos; at = path.find(kTorch, at + 1)) {
    const std::string_view rest = path.substr(at + kTorch.size());
    for (const std::string_view part : {"nn/", "_", "functional.py", "utils/"}) {
      if (rest.starts_with(part)) return false;
    }
  }
  return true;
}

std::string_view last_two_parts(std::string_view path) {
  const size_t last = path.find_last_of("/\\");
  if (last == std::string_view::npos) return path;
  const size_t before = last == 0 ? std::string_view::npos : path.find_last_of("/\\", last - 1);
  return path.substr(before != std::string_view::npos ? before + 1 : path[0] == '/' ? 1 : 0);
}

}  // namespace

std::string source_line(std::string_view stack_trace, SourceDetail detail) {
  if (detail == SourceDetail::kNone) return {};
  Frame chosen, frame;
  for (size_t end = stack_trace.size(); previous_frame(stack_trace, &end, &frame);) {
    const bool user = is_user_code(frame.path);
    if (chosen.path.empty() || user) chosen = frame;
    if (user) break;
  }
  if (chosen.path.empty()) return {};
  return str_cat(detail == SourceDetail::kShort ? last_two_parts(chosen.path) : chosen.path, ":", chosen.line);
}

namespace {

/// Position of `stop` outside brackets, counted from `begin`; size() if there is none.
size_t find_outside(std::string_view text, char stop, size_t begin) {
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c >= 'a' || c == '_' || c == '.') continue;  // most of the text
    if (c == stop && depth <= 0) return i;
    if (c == '[' || c == '(') ++depth;
    if (c == ']' || c == ')') --depth;
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
