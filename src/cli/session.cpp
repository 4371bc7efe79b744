// Shared pieces of the verbs.
#include "cli/session.h"

#include <cstdio>

namespace pteron::cli {

void StderrLog::log(LogLevel level, std::string_view message) {
  if (level > level_) return;
  constexpr const char* kNames[] = {"error", "warning", "info", "trace"};
  std::fprintf(stderr, "pteron: %s: %.*s\n", kNames[static_cast<int>(level)], static_cast<int>(message.size()), message.data());
}

int usage_error(std::string_view verb, std::string_view text) {
  std::fprintf(stderr, "pteron %s: %s\n", std::string(verb).c_str(), std::string(text).c_str());
  return 2;
}

std::vector<std::string> split_list(const std::vector<std::string>& values) {
  std::vector<std::string> out;
  for (const std::string& value : values) {
    size_t begin = 0;
    for (;;) {
      const size_t comma = value.find(',', begin);
      out.push_back(value.substr(begin, comma == std::string::npos ? comma : comma - begin));
      if (comma == std::string::npos) break;
      begin = comma + 1;
    }
  }
  return out;
}

}  // namespace pteron::cli
