// pteron merge: several .pte files to one.
#include <cstdio>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "cli/verb.h"
#include "facade/merge.h"
#include "facade/save.h"
#include "facade/toolchain.h"
#include "format/data_name.h"

namespace pteron::cli {

namespace {

constexpr Option kMergeOptions[] = {
    {"output", "o", OptionKind::kValue, "FILE", "the program to write"},
    {"rename", "", OptionKind::kList, "[PROGRAM:]OLD=NEW", "another name for a method; PROGRAM is a path as given, or its name without folder and .pte"},
    {"data", "d", OptionKind::kList, "FILE", "data files (.ptd) of programs that record none, or that do not lie beside their program"},
    {"data-name", "", OptionKind::kValue, "NAME", "the merged data file is NAME.ptd, default: the program's name; none is written if no program has one"},
    {"alignment", "", OptionKind::kCount, "BYTES", "alignment of weights and payloads in the file, default 64"},
    {"force", "", OptionKind::kFlag, "", "replace a data file that another program uses, or that none records"},
    {"no-sync", "", OptionKind::kFlag, "", "do not wait until the files are on the disk"},
};

/// [PROGRAM:]OLD=NEW; what is wrong with it, nothing if it is fine. Paths may have a colon, names of methods hardly.
std::string read_rename(const std::string& text, facade::MergeOptions* options) {
  const size_t equals = text.rfind('=');
  const size_t colon = equals == std::string::npos ? equals : text.rfind(':', equals);
  const size_t begin = colon == std::string::npos ? 0 : colon + 1;
  if (equals == std::string::npos || begin == equals || equals + 1 == text.size() || colon == 0)
    return str_cat("--rename expects [PROGRAM:]OLD=NEW, found '", text, "'");
  options->renames.push_back({colon == std::string::npos ? "" : text.substr(0, colon), text.substr(begin, equals - begin), text.substr(equals + 1)});
  return {};
}

void print_report(const facade::Merged& merged, const std::string& output, const facade::SavedFiles& files, bool as_json) {
  if (!as_json) {
    std::printf("wrote %s: %llu bytes; methods %s; %llu bytes that were there several times are stored once\n", output.c_str(),
                static_cast<unsigned long long>(files.program_bytes), str_list(merged.methods).c_str(), static_cast<unsigned long long>(merged.shared_bytes));
    if (!files.data_path.empty())
      std::printf("wrote %s: %llu bytes; loaders take this file, or find it beside the program\n", files.data_path.c_str(),
                  static_cast<unsigned long long>(files.data_bytes));
    return;
  }
  JsonWriter json;
  json.begin_object();
  json.field("output", output);
  json.field("file_bytes", files.program_bytes);
  json.field("shared_bytes", merged.shared_bytes);
  json.key("methods");
  json.begin_array();
  for (const std::string& method : merged.methods) json.string(method);
  json.end_array();
  json.key("data_files");
  json.begin_array();
  if (!files.data_path.empty()) {
    json.begin_object();
    json.field("path", files.data_path);
    json.field("file_bytes", files.data_bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
  std::printf("%s\n", json.text().c_str());
}

Result<int> run_merge(const Arguments& a) {
  facade::MergeOptions options;
  options.programs = {a.positionals().begin(), a.positionals().end()};
  options.data_files = a.list("data");
  options.alignment_bytes = a.count("alignment", 64);
  if (const Status status = facade::check_alignment(options.alignment_bytes); !status.ok()) return usage_error("merge", str_cat("--", status.message()));
  for (const std::string& text : a.list("rename")) {
    if (const std::string problem = read_rename(text, &options); !problem.empty()) return usage_error("merge", problem);
  }
  const std::string output = a.value("output");
  if (output.empty()) return usage_error("merge", "name the program to write: -o OUT.pte");
  if (const Status status = facade::check_save_path(output, options.programs); !status.ok()) return usage_error("merge", str_cat(status.message(), " (-o)"));
  for (size_t i = 0; i < options.programs.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (facade::same_file(options.programs[i], options.programs[k])) return usage_error("merge", str_cat(options.programs[i], " is given twice"));
    }
  }
  if (a.has("data-name")) {
    options.data_name = a.value("data-name");
    if (const Status status = format::check_data_name(options.data_name); !status.ok())
      return usage_error("merge", str_cat(status.message(), " (--data-name)"));
  } else if (auto name = facade::default_data_name(output); name.ok()) {
    options.data_name = std::move(name).value();
  } else {
    options.no_data_name = str_cat(name.status().message(), " (--data-name NAME)");
  }
  StderrLog log(a.flag("quiet") ? LogLevel::kError : LogLevel::kWarning);
  auto merged = facade::merge_programs(options);
  if (merged.status().code() == Code::kInvalidInput) return usage_error("merge", merged.status().message());
  if (!merged.ok()) return std::move(merged).status();
  if (!(*merged)->bundles.empty()) log.log(LogLevel::kWarning, "merge takes the programs of bundles; their cases stay in the bundles");
  const auto saved = facade::save_files((*merged)->finished, {output, !a.flag("no-sync"), a.flag("force"), {}, &log});
  if (saved.status().code() == Code::kInvalidInput) return usage_error("merge", str_cat(saved.status().message(), " (--data-name NAME, --force)"));
  if (!saved.ok()) return saved.status();
  if (!a.flag("quiet") || a.flag("json")) print_report(**merged, output, *saved, a.flag("json"));
  return 0;
}

}  // namespace

extern const Verb k_merge_verb;
const Verb k_merge_verb = {"merge", "make one program of several .pte files", "A.pte B.pte... -o OUT.pte [options]", 1, 256, kMergeOptions, run_merge};

}  // namespace pteron::cli
