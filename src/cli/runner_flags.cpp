// One table of flags. Source: executor_runner of ExecuTorch 1.5.1.
#include "cli/runner_flags.h"

#include <algorithm>
#include <string_view>

namespace pteron::cli {

namespace {

struct RunnerFlag {
  std::string_view name;
  std::string_view ours;  ///< empty: the value is the program
};
constexpr RunnerFlag kFlags[] = {{"model_path", ""},          {"data_path", "--data"},        {"method_name", "--method"}, {"output_file", "--raw-outputs"},
                                 {"print_output", "--print"}, {"num_executions", "--repeat"}, {"cpu_threads", "--threads"},
                                 {"etdump_path", "--etdump"},  {"bundleio_rtol", "--rtol"}, {"bundleio_atol", "--atol"}};

const RunnerFlag* find_flag(std::string_view word) {
  if (!word.starts_with('-')) return nullptr;
  word.remove_prefix(word.starts_with("--") ? 2 : 1);
  word = word.substr(0, word.find('='));
  const auto found = std::ranges::find(kFlags, word, &RunnerFlag::name);
  return found == std::end(kFlags) ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> translate_runner_flags(std::span<const std::string> words) {
  std::vector<std::string> out;
  for (size_t i = 0; i < words.size(); ++i) {
    const RunnerFlag* flag = find_flag(words[i]);
    if (words[i] == "--") {
      out.insert(out.end(), words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    if (flag == nullptr) {
      out.push_back(words[i]);
      continue;
    }
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos && i + 1 == words.size()) {
      out.push_back(words[i]);  // without its value: an unknown option, which says so
      continue;
    }
    std::string value = equals == std::string::npos ? words[++i] : words[i].substr(equals + 1);
    if (flag->name == "cpu_threads" && value.starts_with('-')) value = "0";  // the runner's own choice
    if (!flag->ours.empty()) out.emplace_back(flag->ours);
    out.push_back(std::move(value));
  }
  return out;
}

}  // namespace pteron::cli
