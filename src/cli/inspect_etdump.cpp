// pteron inspect RUNS.etdp: what the runs of a program took. Runs with the same events stand once, with the mean of their times.
#include <algorithm>
#include <cstdio>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/inspect.h"
#include "format/etdump.h"
#include "tensor/dtype.h"

namespace pteron::cli {

namespace {

using format::EtdumpDebug;
using format::EtdumpEvent;
using format::EtdumpPlace;
using format::EtdumpProfile;
using format::EtdumpRun;

const EtdumpPlace* place_of(const EtdumpEvent& event) {
  if (const auto* profile = std::get_if<EtdumpProfile>(&event)) return &profile->place;
  const auto* debug = std::get_if<EtdumpDebug>(&event);
  return debug == nullptr ? nullptr : &debug->place;
}

std::string_view name_of(const EtdumpEvent& event) {
  if (const auto* profile = std::get_if<EtdumpProfile>(&event)) return profile->name;
  const auto* debug = std::get_if<EtdumpDebug>(&event);
  return debug == nullptr ? std::string_view("allocation") : debug->name;
}

/// Units: of the file. A clock that went back counts as no time.
double duration(const EtdumpProfile& event) { return event.end < event.start ? 0 : static_cast<double>(event.end - event.start); }

bool same_event(const EtdumpEvent& a, const EtdumpEvent& b) {
  const EtdumpPlace *left = place_of(a), *right = place_of(b);
  if (a.index() != b.index() || name_of(a) != name_of(b)) return false;
  if (left == nullptr || right == nullptr) return left == right;
  return left->instruction == right->instruction && left->delegate_number == right->delegate_number && left->delegate_text == right->delegate_text;
}

bool same_run(const EtdumpRun& a, const EtdumpRun& b) {
  return a.name == b.name && a.bundled_case == b.bundled_case && std::ranges::equal(a.events, b.events, same_event);
}

std::string tensor_text(const format::EtdumpTensor& tensor) {
  return str_cat(dtype_name(tensor.dtype), " ", str_list(tensor.sizes), " at ", tensor.offset_bytes);
}

std::string value_text(const format::EtdumpValue& value) {
  if (const auto* tensor = std::get_if<format::EtdumpTensor>(&value)) return tensor_text(*tensor);
  if (const auto* number = std::get_if<int64_t>(&value)) return str_cat(*number);
  if (const auto* truth = std::get_if<bool>(&value)) return *truth ? "true" : "false";
  if (const auto* real = std::get_if<double>(&value)) return str_cat(*real);
  const auto* list = std::get_if<std::vector<format::EtdumpTensor>>(&value);
  if (list == nullptr) return "none";
  std::string out;
  for (const format::EtdumpTensor& tensor : *list) str_append(out, out.empty() ? "" : ", ", tensor_text(tensor));
  return str_cat("[", out, "]");
}

/// The number of the instruction, in a column.
std::string place_text(const EtdumpPlace& place) {
  if (place.instruction < 0) return "     ";
  char text[16];
  std::snprintf(text, sizeof text, "%5d", place.instruction);
  return text;
}

void print_event(std::span<const EtdumpRun* const> group, size_t index) {
  const EtdumpEvent& event = group[0]->events[index];
  if (const auto* allocation = std::get_if<format::EtdumpAllocation>(&event)) {
    std::printf("        allocator %s: %llu bytes\n", std::string(group[0]->allocators[static_cast<size_t>(allocation->allocator)]).c_str(),
                static_cast<unsigned long long>(allocation->size_bytes));
    return;
  }
  const EtdumpPlace& place = *place_of(event);
  const bool in_delegate = !place.delegate_text.empty() || place.delegate_number >= 0;
  const std::string name = in_delegate
                               ? str_cat("in the delegate: ", place.delegate_text.empty() ? str_cat(place.delegate_number) : std::string(place.delegate_text))
                               : std::string(name_of(event));
  if (const auto* debug = std::get_if<EtdumpDebug>(&event)) {
    std::printf("  %s %s%s: %s\n", place_text(place).c_str(), debug->is_output ? "output " : "", name.c_str(), value_text(debug->value).c_str());
    return;
  }
  double sum = 0;
  for (const EtdumpRun* run : group) sum += duration(std::get<EtdumpProfile>(run->events[index]));
  std::printf("  %s %12.3f us  %s\n", place_text(place).c_str(), sum / static_cast<double>(group.size()) / 1e3, name.c_str());
}

void event_json(JsonWriter& json, const EtdumpRun& run, const EtdumpEvent& event) {
  json.begin_object();
  if (const auto* allocation = std::get_if<format::EtdumpAllocation>(&event)) {
    json.field("allocator", run.allocators[static_cast<size_t>(allocation->allocator)]);
    json.field("size_bytes", allocation->size_bytes);
    return json.end_object();
  }
  const EtdumpPlace& place = *place_of(event);
  json.field("name", name_of(event));
  if (place.instruction >= 0) json.field("instruction", place.instruction);
  if (place.delegate_number >= 0) json.field("delegate_part", place.delegate_number);
  if (!place.delegate_text.empty()) json.field("delegate_part", place.delegate_text);
  if (const auto* profile = std::get_if<EtdumpProfile>(&event)) {
    json.field("start", profile->start);
    json.field("end", profile->end);
  } else {
    const EtdumpDebug& debug = std::get<EtdumpDebug>(event);
    json.field("value", value_text(debug.value));
    json.field("output", debug.is_output);
  }
  json.end_object();
}

void print_json(const FileBytes& file, const format::Etdump& dump) {
  JsonWriter json;
  json.begin_object();
  json.field("kind", "etdump");
  json.field("file_bytes", file.bytes().size());
  json.key("runs");
  json.begin_array();
  for (const EtdumpRun& run : dump.runs) {
    json.begin_object();
    json.field("name", run.name);
    if (run.bundled_case >= 0) json.field("bundled_case", run.bundled_case);
    json.key("events");
    json.begin_array();
    for (const EtdumpEvent& event : run.events) event_json(json, run, event);
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
  std::printf("%s\n", json.text().c_str());
}

}  // namespace

Result<int> inspect_etdump(const std::string& path, const FileBytes& file, const Arguments& a) {
  auto dump = format::read_etdump(file.bytes());
  if (!dump.ok()) return std::move(dump).status().with_context(path);
  if (a.flag("json")) {
    print_json(file, *dump);
    return 0;
  }
  std::printf("%s: %zu bytes, %zu runs; times as if the clock counted nanoseconds\n", path.c_str(), file.bytes().size(), dump->runs.size());
  std::vector<std::vector<const EtdumpRun*>> groups;
  for (const EtdumpRun& run : dump->runs) {
    // Runs that are alike are looked for among the last kinds only: a file may hold millions that differ.
    const auto end = groups.rbegin() + static_cast<std::ptrdiff_t>(std::min<size_t>(groups.size(), 16));
    const auto like = std::find_if(groups.rbegin(), end, [&](const auto& group) { return same_run(*group[0], run); });
    if (like == end) {
      groups.push_back({&run});
    } else {
      like->push_back(&run);
    }
  }
  for (const auto& group : groups) {
    const std::string name(group[0]->name);
    const std::string which = group[0]->bundled_case < 0 ? std::string() : str_cat(", case ", group[0]->bundled_case);
    std::printf("run %s%s: %zu %s, mean of each event:\n", name.c_str(), which.c_str(), group.size(), group.size() == 1 ? "time" : "times");
    for (size_t i = 0; i < group[0]->events.size(); ++i) print_event(group, i);
  }
  return 0;
}

}  // namespace pteron::cli
