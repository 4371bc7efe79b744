// pteron inspect: the delegates of a method with their compile specs, and what a payload of a known format says of itself.
#include <algorithm>
#include <cstdio>

#include "backends/tensorrt/blob.h"
#include "base/str_cat.h"
#include "cli/inspect.h"

namespace pteron::cli {

namespace {

const wire::pte::ExecutionPlan* plan_named(const format::ProgramView& view, std::string_view method) {
  for (uint32_t p = 0; p < view.plan_count(); ++p) {
    if (format::text_of(view.plan(p).name()) == method) return &view.plan(p);
  }
  return nullptr;
}

/// Text as it is, other values as a count of bytes.
std::string spec_text(std::span<const std::byte> value) {
  const bool printable = std::all_of(value.begin(), value.end(), [](std::byte b) { return b >= std::byte{0x20} && b < std::byte{0x7f}; });
  if (!printable || value.size() > 80) return str_cat(value.size(), " bytes");
  return std::string(reinterpret_cast<const char*>(value.data()), value.size());
}

/// One line about the engine inside, or why it cannot be read.
std::string engine_text(std::span<const std::byte> payload) {
  const auto blob = tensorrt::read_blob(payload);
  if (!blob.ok()) return std::string(blob.status().message());
  std::vector<std::string> inputs, outputs;
  for (const tensorrt::Binding& binding : blob->metadata.bindings) (binding.is_input ? inputs : outputs).push_back(binding.name);
  std::string text = str_cat("engine for cuda:", blob->metadata.device_id, ", ", blob->engine.size(), " bytes, inputs ", str_list(inputs), ", outputs ", str_list(outputs));
  if (!blob->metadata.engine_key.empty()) str_append(text, ", engine in a data file under ", blob->metadata.engine_key);
  for (const tensorrt::Alias& alias : blob->metadata.aliases) str_append(text, ", ", alias.output, " written in place of ", alias.input);
  return text;
}

bool is_engine(const wire::pte::BackendDelegate& delegate) { return format::text_of(delegate.id()) == tensorrt::kBackendId; }

}  // namespace

void print_delegates(const format::ProgramView& view, std::string_view method) {
  const auto* plan = plan_named(view, method);
  for (uint32_t i = 0; plan != nullptr && i < format::count_of(plan->delegates()); ++i) {
    const auto& delegate = *plan->delegates()->Get(i);
    const std::span<const std::byte> payload = view.delegate_payload(delegate);
    std::printf("  delegate %u %s: %zu bytes\n", i, std::string(format::text_of(delegate.id())).c_str(), payload.size());
    for (uint32_t s = 0; s < format::count_of(delegate.compile_specs()); ++s) {
      const auto& spec = *delegate.compile_specs()->Get(s);
      std::printf("    %s = %s\n", std::string(format::text_of(spec.key())).c_str(), spec_text(std::as_bytes(format::items_of(spec.value()))).c_str());
    }
    if (is_engine(delegate)) std::printf("    %s\n", engine_text(payload).c_str());
  }
}

void delegates_json(JsonWriter& json, const format::ProgramView& view, std::string_view method) {
  json.key("payloads");
  json.begin_array();
  const auto* plan = plan_named(view, method);
  for (uint32_t i = 0; plan != nullptr && i < format::count_of(plan->delegates()); ++i) {
    const auto& delegate = *plan->delegates()->Get(i);
    const std::span<const std::byte> payload = view.delegate_payload(delegate);
    json.begin_object();
    json.field("backend", format::text_of(delegate.id()));
    json.field("size_bytes", payload.size());
    json.key("specs");
    json.begin_array();
    for (uint32_t s = 0; s < format::count_of(delegate.compile_specs()); ++s) {
      const auto& spec = *delegate.compile_specs()->Get(s);
      json.begin_object();
      json.field("key", format::text_of(spec.key()));
      json.field("value", spec_text(std::as_bytes(format::items_of(spec.value()))));
      json.end_object();
    }
    json.end_array();
    if (is_engine(delegate)) json.field("engine", engine_text(payload));
    json.end_object();
  }
  json.end_array();
}

}  // namespace pteron::cli
