// The rules, one after the other; each has a sentence of its own.
#include "format/data_name.h"

#include <algorithm>
#include <string>

#include "base/ascii.h"
#include "base/str_cat.h"

namespace pteron::format {

namespace {

constexpr std::string_view kExtension = ".ptd";

bool ends_in_extension(std::string_view name) { return name.size() >= kExtension.size() && equal_but_for_case(name.substr(name.size() - kExtension.size()), kExtension); }

/// Source: "Naming Files, Paths, and Namespaces" of the Windows documentation: reserved with any extension.
bool is_windows_device(std::string_view name) {
  const std::string_view stem = name.substr(0, name.find('.'));
  for (const std::string_view device : {"con", "prn", "aux", "nul"}) {
    if (equal_but_for_case(stem, device)) return true;
  }
  const bool numbered = stem.size() == 4 && is_digit(stem[3]) && stem[3] != '0';
  return numbered && (equal_but_for_case(stem.substr(0, 3), "com") || equal_but_for_case(stem.substr(0, 3), "lpt"));
}

Status refused(std::string_view name, std::string_view why) { return Status(Code::kInvalidInput, str_cat("'", name, "' cannot name a data file: ", why)); }

/// "'x'", or the byte's number if it does not print.
std::string shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0x20 && byte < 0x7f ? str_cat("'", std::string_view(&c, 1), "'") : str_cat("byte ", static_cast<int>(byte));
}

}  // namespace

bool equal_but_for_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return to_lower(x) == to_lower(y); });
}

std::string_view path_stem(std::string_view path) {
  const std::string_view name = path.substr(path.find_last_of('/') + 1);  // npos + 1 is 0
  const size_t dot = name.rfind('.');
  return dot == std::string_view::npos || dot == 0 ? name : name.substr(0, dot);
}

Status check_data_name(std::string_view name) {
  if (name.empty()) return Status(Code::kInvalidInput, "a data file needs a name: the one given is empty");
  if (name.find_first_of("/\\") != std::string_view::npos) return refused(name, "it names a folder; the file lies beside the program");
  if (name.size() >= 2 && is_letter(name[0]) && name[1] == ':') return refused(name, "it names a drive; the file lies beside the program");
  for (const char c : name) {
    if (is_letter(c) || is_digit(c) || c == '.' || c == '-' || c == '_') continue;
    return refused(name, str_cat("expected ASCII letters, digits, '.', '-' and '_', found ", shown(c)));
  }
  if (!is_letter(name[0]) && !is_digit(name[0]) && name[0] != '_') return refused(name, str_cat("expected a letter, digit or '_' first, found ", shown(name[0])));
  if (name.size() > kMaxDataName) return refused(name, str_cat("it has ", name.size(), " characters, at most ", kMaxDataName, " are allowed"));
  if (ends_in_extension(name)) return refused(name, "leave '.ptd' away, it is added");
  if (is_windows_device(name)) return refused(name, "Windows keeps this name for a device");
  return ok_status();
}

Status check_program_path(std::string_view path) {
  const size_t end = path.find_last_not_of(". ");
  const std::string_view bare = path.substr(0, end == std::string_view::npos ? 0 : end + 1);
  if (!ends_in_extension(bare)) return ok_status();
  return Status(Code::kInvalidInput, str_cat("the program ", path, " would have the name of a data file (.ptd): name it .pte"));
}

}  // namespace pteron::format
