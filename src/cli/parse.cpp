// Command line parsing: the one file that knows CLI11 (and has exceptions on). Verbs stay plain tables.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>

#include "cli/verb.h"

namespace pteron::cli {

std::string Arguments::value(std::string_view name, std::string_view missing) const {
  const auto found = options_.find(std::string(name));
  return found == options_.end() || found->second.empty() ? std::string(missing) : found->second.back();
}

std::vector<std::string> Arguments::list(std::string_view name) const {
  const auto found = options_.find(std::string(name));
  return found == options_.end() ? std::vector<std::string>() : found->second;
}

uint64_t Arguments::count(std::string_view name, uint64_t missing) const { return has(name) ? parse_count(value(name)).value_or(missing) : missing; }

double Arguments::real(std::string_view name, double missing) const { return has(name) ? parse_real(value(name)).value_or(missing) : missing; }

std::optional<uint64_t> parse_count(std::string_view text) {
  uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

std::optional<double> parse_real(std::string_view text) {
  double number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  return end.ec == std::errc() && end.ptr == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

namespace {

constexpr Option kCommon[] = {
    {"json", "", OptionKind::kFlag, "", "print the result as JSON on stdout"},
    {"quiet", "q", OptionKind::kFlag, "", "print errors only"},
    {"verbose", "v", OptionKind::kFlag, "", "print more to stderr"},
};

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] == b[j - 1] ? 0u : 1u)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

/// The first word that looks like an option the verb does not have, with the nearest one it has.
std::string unknown_option_hint(const Verb& verb, std::span<const std::string> words) {
  std::vector<std::string_view> known = {"help"};
  for (const Option& o : verb.options) known.push_back(o.name);
  for (const Option& o : kCommon) known.push_back(o.name);
  for (const std::string& word : words) {
    if (word == "--") break;
    if (!word.starts_with("--") || word.size() < 3) continue;
    const std::string_view name = std::string_view(word).substr(2, word.find('=') == std::string::npos ? std::string::npos : word.find('=') - 2);
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string_view near = nearest(name, known);
    return "unknown option --" + std::string(name) + (near.empty() ? "" : "; did you mean --" + std::string(near) + "?");
  }
  return {};
}

/// What is wrong with the value of an option; empty if nothing.
std::string value_problem(const Option& option, const std::string& value) {
  if (option.kind == OptionKind::kCount && !parse_count(value)) return "--" + std::string(option.name) + " expects a number, found '" + value + "'";
  if (option.kind == OptionKind::kReal && !parse_real(value)) return "--" + std::string(option.name) + " expects a number from 0 on, found '" + value + "'";
  return {};
}

/// Takes "--name" and "--name=value" of kMaybe options out of the words, since CLI11 would take the next word as the value.
std::vector<std::string> take_maybe_options(const Verb& verb, std::span<const std::string> words, Arguments* arguments) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      rest.insert(rest.end(), words.begin() + static_cast<ptrdiff_t>(i), words.end());
      break;
    }
    const auto option = std::ranges::find_if(verb.options, [&](const Option& o) {
      if (o.kind != OptionKind::kMaybe || !word.starts_with("--") || !std::string_view(word).substr(2).starts_with(o.name)) return false;
      return word.size() == o.name.size() + 2 || word[o.name.size() + 2] == '=';
    });
    if (option == verb.options.end()) {
      rest.push_back(word);
    } else if (word.size() == option->name.size() + 2) {
      arguments->add_bare(std::string(option->name));
    } else {
      arguments->add(std::string(option->name), word.substr(option->name.size() + 3));
    }
  }
  return rest;
}

}  // namespace

std::span<const Option> common_options() { return kCommon; }

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  size_t best_distance = word.size() / 2 + 1;
  for (const std::string_view candidate : candidates) {
    const size_t d = distance(word, candidate);
    if (d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

bool parse_arguments(const Verb& verb, std::span<const std::string> words, Arguments* arguments, int* exit) {
  CLI::App app(std::string(verb.summary), "pteron " + std::string(verb.name));
  std::vector<std::string> positionals;
  app.add_option("arguments", positionals)->group("");
  struct Slot {
    const Option* option;
    bool flag = false;
    std::vector<std::string> values;
  };
  std::vector<Slot> slots;
  for (const Option& o : verb.options) slots.push_back({&o, false, {}});
  for (const Option& o : kCommon) slots.push_back({&o, false, {}});
  for (Slot& slot : slots) {
    const std::string name = (slot.option->short_name.empty() ? "" : "-" + std::string(slot.option->short_name) + ",") + "--" + std::string(slot.option->name);
    if (slot.option->kind == OptionKind::kMaybe) {
      app.add_flag(name, slot.flag, std::string(slot.option->help))->type_name(std::string(slot.option->value));  // for the help: its words are taken below
      continue;
    }
    if (slot.option->kind == OptionKind::kFlag) {
      app.add_flag(name, slot.flag, std::string(slot.option->help));
      continue;
    }
    CLI::Option* added = app.add_option(name, slot.values, std::string(slot.option->help));
    added->type_name(std::string(slot.option->value))->expected(1)->allow_extra_args(false);  // what follows the value is not the option's
    added->multi_option_policy(slot.option->kind == OptionKind::kList ? CLI::MultiOptionPolicy::TakeAll : CLI::MultiOptionPolicy::Throw);
  }
  const auto dashes = std::find(words.begin(), words.end(), "--");  // what stands behind are names, whatever they look like
  try {
    std::vector<std::string> reversed = take_maybe_options(verb, words.first(static_cast<size_t>(dashes - words.begin())), arguments);
    std::ranges::reverse(reversed);  // CLI11 takes them from the back
    app.parse(reversed);
    if (dashes != words.end()) positionals.insert(positionals.end(), dashes + 1, words.end());
  } catch (const CLI::CallForHelp&) {
    std::string options = app.help();
    options.erase(0, std::min(options.find("Options:"), options.size()));  // what stands before is CLI11's own usage line
    while (options.ends_with("\n\n")) options.pop_back();
    std::printf("usage: pteron %s %s\n%s\n\n%s", std::string(verb.name).c_str(), std::string(verb.usage).c_str(), std::string(verb.summary).c_str(), options.c_str());
    if (!verb.notes.empty()) std::printf("\n%s", std::string(verb.notes).c_str());
    *exit = 0;
    return false;
  } catch (const CLI::ParseError& error) {
    const std::string hint = unknown_option_hint(verb, words);
    std::fprintf(stderr, "pteron %s: %s\nusage: pteron %s %s\n", std::string(verb.name).c_str(), hint.empty() ? error.what() : hint.c_str(),
                 std::string(verb.name).c_str(), std::string(verb.usage).c_str());
    *exit = 2;
    return false;
  }
  if (positionals.size() < verb.min_positionals || positionals.size() > verb.max_positionals) {
    std::fprintf(stderr, "pteron %s: %zu arguments given\nusage: pteron %s %s\n", std::string(verb.name).c_str(), positionals.size(),
                 std::string(verb.name).c_str(), std::string(verb.usage).c_str());
    *exit = 2;
    return false;
  }
  for (const Slot& slot : slots) {
    for (const std::string& value : slot.values) {
      const std::string problem = value_problem(*slot.option, value);
      if (problem.empty()) continue;
      std::fprintf(stderr, "pteron %s: %s\n", std::string(verb.name).c_str(), problem.c_str());
      *exit = 2;
      return false;
    }
  }
  for (std::string& p : positionals) arguments->add_positional(std::move(p));
  for (Slot& slot : slots) {
    if (slot.flag) arguments->add(std::string(slot.option->name), "true");
    for (std::string& v : slot.values) arguments->add(std::string(slot.option->name), std::move(v));
  }
  return true;
}

}  // namespace pteron::cli
