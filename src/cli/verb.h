// Verbs of the command line tool: one constant Verb a file in verbs/, listed in verbs/all.inc. Help texts and the parser derive from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "pteron/status.h"

namespace pteron::cli {

enum class OptionKind : unsigned char {
  kFlag,    ///< --json
  kValue,   ///< --output FILE, at most once
  kList,    ///< --inputs FILE, repeatable
  kCount,   ///< --threads N: as kValue, a whole number from 0 on
  kReal,    ///< --rtol X: as kValue, a number from 0 on
  kMaybe,   ///< --external-weights or --external-weights=NAME, at most once
};

struct Option {
  std::string_view name;       ///< "output": written --output
  std::string_view short_name; ///< "o" or empty
  OptionKind kind;
  std::string_view value;      ///< placeholder in the help: "FILE"
  std::string_view help;
};

/// What the user wrote, checked against the verb's options.
class Arguments {
 public:
  bool flag(std::string_view name) const { return options_.contains(std::string(name)); }
  bool has(std::string_view name) const { return flag(name); }
  /// The value of an option, or `missing`; a kMaybe option without one has an empty list().
  std::string value(std::string_view name, std::string_view missing = {}) const;
  std::vector<std::string> list(std::string_view name) const;
  /// The value of a kCount option, or `missing`.
  uint64_t count(std::string_view name, uint64_t missing) const;
  /// The value of a kReal option, or `missing`.
  double real(std::string_view name, double missing) const;
  std::span<const std::string> positionals() const { return positionals_; }

  void add_bare(std::string name) { options_[std::move(name)]; }
  void add(std::string name, std::string value) { options_[std::move(name)].push_back(std::move(value)); }
  void add_positional(std::string value) { positionals_.push_back(std::move(value)); }

 private:
  std::unordered_map<std::string, std::vector<std::string>> options_;
  std::vector<std::string> positionals_;
};

struct Verb {
  std::string_view name;
  std::string_view summary;             ///< one line
  std::string_view usage;               ///< "MODEL.pt2 [-o OUT.pte] [options]"
  size_t min_positionals = 1;
  size_t max_positionals = 1;
  std::span<const Option> options;
  /// Returns the process's exit code, or an error that main prints and turns into one.
  Result<int> (*run)(const Arguments& arguments);
  std::string_view notes = {};          ///< what --help says behind the options; lines that end with a line break
};

/// All verbs in the order of the help text.
std::span<const Verb* const> verbs();

/// Options that every verb has: --json, --quiet, -v, --help.
std::span<const Option> common_options();

/// Reads a whole text as a number; nullopt if it is none.
std::optional<uint64_t> parse_count(std::string_view text);
std::optional<double> parse_real(std::string_view text);

/// Fills `arguments` from words. On a usage error prints it and returns false with *exit = 2; after --help false with *exit = 0.
bool parse_arguments(const Verb& verb, std::span<const std::string> words, Arguments* arguments, int* exit);

/// The candidate with the smallest edit distance to `word`, empty if none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace pteron::cli
