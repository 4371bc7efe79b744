// pteron inspect WEIGHTS.ptd: what a data file holds.
#include <cstdio>

#include "base/json_writer.h"
#include "base/str_cat.h"
#include "cli/inspect.h"
#include "format/data_file.h"
#include "tensor/shape.h"

namespace pteron::cli {

namespace {

std::string layout_text(const format::DataEntry& entry) {
  return entry.layout ? str_cat(dtype_name(entry.layout->dtype), " ", shape_text(entry.layout->sizes)) : std::string("bytes");
}

void print_json(const FileBytes& file, const format::DataFileView& view, const std::optional<format::Manifest>& manifest, bool verified) {
  JsonWriter json;
  json.begin_object();
  json.field("kind", "ptd");
  json.field("file_bytes", file.bytes().size());
  if (manifest) json.field("manifest", manifest->hash);
  json.field("payloads_verified", manifest.has_value() && verified);
  json.key("entries");
  json.begin_array();
  for (const format::DataEntry& entry : view.entries()) {
    json.begin_object();
    json.field("key", entry.key);
    json.field("size_bytes", entry.bytes.size());
    if (entry.layout) {
      json.field("dtype", dtype_name(entry.layout->dtype));
      json.key("sizes");
      json.begin_array();
      for (const int64_t size : entry.layout->sizes) json.integer(size);
      json.end_array();
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  std::printf("%s\n", json.text().c_str());
}

}  // namespace

Result<int> inspect_data(const std::string& path, const FileBytes& file, const Arguments& a) {
  auto view = format::verify_data_file(file.bytes());
  if (!view.ok()) return std::move(view).status().with_context(path);
  const bool verify = a.flag("verify-data");
  auto manifest = format::check_manifest(*view, verify);
  if (!manifest.ok()) return std::move(manifest).status().with_context(path);
  if (a.flag("json")) {
    print_json(file, *view, *manifest, verify);
    return 0;
  }
  std::printf("%s: %zu bytes, %zu entries, %s\n", path.c_str(), file.bytes().size(), view->entries().size(),
              *manifest ? str_cat("manifest ", (*manifest)->hash, verify ? ", payloads verified" : "").c_str() : "no manifest");
  for (const format::DataEntry& entry : view->entries()) {
    std::printf("  %s: %s, %zu bytes\n", std::string(entry.key).c_str(), layout_text(entry).c_str(), entry.bytes.size());
  }
  return 0;
}

}  // namespace pteron::cli
