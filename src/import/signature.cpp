// Walks the JSON text of a pytree specification.
#include "import/signature.h"

#include <cstddef>

#include "base/str_cat.h"

namespace pteron::importer {

namespace {

bool is_leaf(JsonValue node) {
  JsonValue type;
  return !json_field(node, "type", &type);
}

size_t count_leaves(JsonValue node) {
  if (is_leaf(node)) return 1;
  size_t count = 0;
  for (const JsonValue child : json_items(node, "children_spec")) count += count_leaves(child);
  return count;
}

void append_leaves(JsonValue argument, std::string_view name, std::vector<std::string>* names) {
  if (is_leaf(argument)) {
    names->emplace_back(name);
    return;
  }
  names->resize(names->size() + count_leaves(argument));
}

}  // namespace

std::vector<std::string> argument_names(std::string_view in_spec, const std::vector<JsonValue>& forward_arg_names) {
  auto document = JsonDocument::parse(std::as_bytes(std::span(in_spec.data(), in_spec.size())), "in_spec");
  if (!document.ok()) return {};
  const std::vector<JsonValue> top = json_items(document->root());  // [version, node]
  if (top.size() != 2) return {};
  const std::vector<JsonValue> parts = json_items(top[1], "children_spec");  // positional arguments, keyword arguments
  if (parts.size() != 2) return {};
  std::vector<std::string> names;
  size_t next = 0;
  for (const JsonValue part : parts) {
    for (const JsonValue argument : json_items(part, "children_spec")) {
      const std::string_view name = next < forward_arg_names.size() ? json_text(forward_arg_names[next]) : std::string_view();
      append_leaves(argument, name, &names);
      ++next;
    }
  }
  if (next != forward_arg_names.size()) return {};  // *args or **kwargs: positions say nothing about names
  return names;
}

}  // namespace pteron::importer
