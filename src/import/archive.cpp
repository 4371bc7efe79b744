// Recognising .pt2 archives and turning payload tables into constants.
#include "import/archive.h"

#include <algorithm>

#include "base/ascii.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "tensor/shape.h"

namespace pteron::importer {

namespace {

constexpr std::string_view kModelsFolder = "models/";

std::string_view text_of(const ZipBytes& bytes) { return {reinterpret_cast<const char*>(bytes.bytes.data()), bytes.bytes.size()}; }

bool has_file(const ZipFile& zip, std::string_view name) {
  return std::any_of(zip.entries().begin(), zip.entries().end(), [&](const ZipEntry& e) {
    return e.name == name || (e.name.size() > name.size() && e.name.ends_with(name) && e.name[e.name.size() - name.size() - 1] == '/');
  });
}

/// What a zip file without archive_format is.
Status describe_foreign(const ZipFile& zip, bool has_data) {
  if (has_file(zip, "serialized_exported_program.json")) {
    return Status(Code::kUnsupported, "archive of torch 2.7 or older (serialized_exported_program.json); export it again with torch 2.11 or newer");
  }
  if (has_data) return Status::invalid_file("no exported program in archive (torch.export.save did not finish)");
  if (has_file(zip, "constants.pkl")) return Status::invalid_file("a TorchScript archive, not one of torch.export.save");
  if (has_file(zip, "data.pkl")) return Status::invalid_file("a torch.save file (weights or objects), not an exported program of torch.export.save");
  return Status::invalid_file("a zip file, but no archive of torch.export.save: archive_format is missing");
}

/// The whole text of a small entry, e.g. "pt2" of archive_format.
Status expect_text(const ZipFile& zip, const ZipEntry* entry, std::string_view what, std::string_view expected) {
  if (entry == nullptr) return ok_status();
  PTERON_ASSIGN(const ZipBytes bytes, zip.read(*entry, true));
  const std::string_view found = text_of(bytes);
  if (found == expected) return ok_status();
  return Status::invalid_file(str_cat(what, " is '", found.substr(0, 40), "', '", expected, "' is expected"));
}

Status read_ints(JsonValue dims, std::string_view key, std::vector<int64_t>* out) {
  for (const JsonValue item : json_each(dims)) {
    std::string_view tag;
    JsonValue number;
    int64_t value = 0;
    if (!json_union(item, &tag, &number) || tag != "as_int" || !json_int(number, &value)) return Status::invalid_file(str_cat(key, ": constant ints expected"));
    if (value < 0) return Status::invalid_file(str_cat(key, ": ", value, " is negative"));
    out->push_back(value);
  }
  return ok_status();
}

/// "torchao.quantization.Int8Tensor" out of a pickle that rebuilds a subclass: the first global that is not torch's own machinery.
std::string pickled_class(const ZipFile& outer, const ZipEntry& entry) {
  auto bytes = outer.read(entry, false);
  if (!bytes.ok()) return {};
  auto inner = ZipFile::open(bytes->bytes, bytes->owner);
  if (!inner.ok()) return {};
  for (const ZipEntry& e : inner->entries()) {
    if (!e.name.ends_with("/data.pkl")) continue;
    auto pickle = inner->read(e, false);
    if (!pickle.ok()) return {};
    const std::string_view text = text_of(*pickle).substr(0, 1 << 16);
    for (size_t at = text.find('c'); at != std::string_view::npos; at = text.find('c', at + 1)) {
      const size_t first = text.find('\n', at), second = first == std::string_view::npos ? first : text.find('\n', first + 1);
      if (second == std::string_view::npos || second - at > 200) continue;
      const std::string_view module = text.substr(at + 1, first - at - 1), name = text.substr(first + 1, second - first - 1);
      const auto plain = [](std::string_view s) {
        return !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return is_word_char(c) || c == '.'; });
      };
      if (!plain(module) || !plain(name) || module == "torch" || module.starts_with("torch._") || module == "collections") continue;
      return str_cat(module, ".", name);
    }
  }
  return {};
}

}  // namespace

Result<Archive> Archive::open(std::shared_ptr<FileBytes> file) {
  Archive archive;
  const auto bytes = file->bytes();
  PTERON_ASSIGN(archive.zip_, ZipFile::open(bytes, std::move(file)));
  if (archive.zip_.entries().empty()) return Status::invalid_file("an empty zip file, no archive of torch.export.save");
  const std::string_view first = archive.zip_.entries()[0].name;
  const size_t slash = first.find('/');
  archive.root_ = std::string(first.substr(0, slash == std::string_view::npos ? 0 : slash + 1));
  bool has_data = false, has_pickled_weights = false;
  for (const ZipEntry& entry : archive.zip_.entries()) {
    if (!entry.name.starts_with(archive.root_)) continue;
    const std::string_view path = entry.name.substr(archive.root_.size());
    has_data = has_data || path.starts_with("data/weights/") || path.starts_with("data/constants/");
    has_pickled_weights = has_pickled_weights || (path.starts_with("data/weights/") && path.ends_with(".pt"));
    if (!path.starts_with(kModelsFolder) || !path.ends_with(".json")) continue;
    archive.models_.emplace_back(path.substr(kModelsFolder.size(), path.size() - kModelsFolder.size() - sizeof ".json" + 1));
  }
  const ZipEntry* format = archive.find("archive_format");
  if (format == nullptr) return describe_foreign(archive.zip_, has_data);
  PTERON_TRY(expect_text(archive.zip_, format, "archive_format", "pt2"));
  PTERON_TRY(expect_text(archive.zip_, archive.find("archive_version"), "archive_version", "0"));
  if (Status order = expect_text(archive.zip_, archive.find("byteorder"), "byteorder", "little"); !order.ok()) {
    return Status(Code::kUnsupported, str_cat(order.message(), ": only little-endian weights are read"));
  }
  if (archive.models_.empty()) return Status::invalid_file("no exported program in archive: it has no models/*.json");
  if (has_pickled_weights) {
    return Status(Code::kUnsupported, "archive of an older torch with pickled weights (data/weights/*.pt); export it again with torch 2.11 or newer");
  }
  return archive;
}

Result<std::string> Archive::choose_model(std::string_view wanted) const {
  const auto has = [&](std::string_view name) { return std::find(models_.begin(), models_.end(), name) != models_.end(); };
  if (!wanted.empty() && has(wanted)) return std::string(wanted);
  if (wanted.empty() && models_.size() == 1) return models_[0];
  if (wanted.empty() && has("model")) return std::string("model");
  return Status(Code::kNotFound, str_cat(wanted.empty() ? "the archive has several programs, name one of " : str_cat("no program '", wanted, "' in the archive, it has "),
                                         str_list(models_)));
}

const ZipEntry* Archive::find(std::string_view path) const { return zip_.find(str_cat(root_, path)); }

Result<JsonDocument> Archive::json(const std::string& path) const {
  const ZipEntry* entry = find(path);
  if (entry == nullptr) return Status::invalid_file(str_cat(path, " is missing in the archive"));
  PTERON_ASSIGN(const ZipBytes bytes, zip_.read(*entry, true));
  return JsonDocument::parse(bytes.bytes, path, bytes.readable_behind);
}

Result<PayloadTable> PayloadTable::open(const Archive& archive, std::string_view model, std::string_view folder) {
  PayloadTable table;
  table.folder_ = str_cat("data/", folder, "/");
  const std::string path = str_cat(table.folder_, model, "_", folder, "_config.json");
  if (archive.find(path) == nullptr) return table;
  PTERON_ASSIGN(table.document_, archive.json(path));
  for (const JsonMember& member : json_members(table.document_.root(), "config")) table.metas_.emplace(member.key, member.value);
  return table;
}

void PayloadTable::add_to(PayloadCheck& check, const Archive& archive) const {
  for (const auto& [fqn, meta] : metas_) {
    if (const ZipEntry* entry = archive.find(str_cat(folder_, json_text(meta, "path_name"))); entry != nullptr) check.add(*entry, std::string(fqn));
  }
}

Result<ir::Constant> PayloadTable::make(const Archive& archive, std::string_view fqn) {
  const auto found = metas_.find(fqn);
  if (found == metas_.end()) return Status::invalid_file(str_cat("weight '", fqn, "' is not in the archive's payload table"));
  const std::string path = str_cat(folder_, json_text(found->second, "path_name"));
  const ZipEntry* entry = archive.find(path);
  JsonValue meta, field;
  bool pickled = false;
  if (json_field(found->second, "use_pickle", &field)) json_bool(field, &pickled);
  if (!json_field(found->second, "tensor_meta", &meta) || pickled) {
    const std::string type = entry == nullptr ? std::string() : pickled_class(archive.zip(), *entry);
    return Status(Code::kUnsupported, str_cat("weight '", fqn, "' is a pickled object", type.empty() ? "" : " of class ", type,
                                              "; unwrap tensor subclasses before export (run_decompositions() does)"));
  }
  if (entry == nullptr) return Status::invalid_file(str_cat("weight '", fqn, "': its file ", path, " is missing in the archive"));
  ir::Constant constant;
  constant.name = std::string(fqn);
  TensorMeta fields;
  Status status = read_tensor_meta(meta, &fields);
  if (status.ok()) status = read_ints(fields.sizes, "sizes", &constant.sizes);
  if (status.ok()) status = read_ints(fields.strides, "strides", &constant.strides);
  if (!status.ok()) return std::move(status).with_context(str_cat("weight '", fqn, "'"));
  constant.dtype = fields.dtype;
  const int64_t offset = fields.storage_offset;
  int64_t numel = 0, total_bytes = 0;
  const auto item_bytes = static_cast<int64_t>(dtype_size(constant.dtype));
  if (constant.sizes.size() != constant.strides.size() || constant.sizes.size() > kMaxRank || offset < 0 ||
      !checked_numel(constant.sizes, &numel) || !checked_mul(numel, item_bytes, &total_bytes)) {
    return Status::invalid_file(str_cat("weight '", fqn, "': sizes ", str_list(constant.sizes), ", strides ", str_list(constant.strides), ", offset ", offset,
                           " are no tensor"));
  }
  auto read = archive.zip().read(*entry, false);
  if (!read.ok()) return std::move(read).status().with_context(str_cat("weight '", fqn, "'"));
  ZipBytes payload = std::move(read).value();
  constant.owner = payload.owner;
  constant.data = payload.bytes.data();
  if (numel == 0) {
    static constexpr std::byte kNothing{};
    if (constant.data == nullptr) constant.data = &kNothing;
    return constant;
  }
  if (payload.bytes.empty()) {
    constant.data = nullptr;
    constant.lazy = [name = constant.name]() -> Result<Buffer> {
      return Status(Code::kInvalidFile, str_cat("weight '", name, "': no weights in this archive (exported from fake or meta tensors)"));
    };
    return constant;
  }
  uint64_t extent = 0;
  const auto offset_bytes = static_cast<uint64_t>(offset) * static_cast<uint64_t>(item_bytes);
  if (!strided_extent_bytes(constant.sizes, constant.strides, static_cast<size_t>(item_bytes), &extent) ||
      static_cast<uint64_t>(offset) > payload.bytes.size() || !range_inside(offset_bytes, extent, payload.bytes.size())) {
    return Status::invalid_file(str_cat("weight '", fqn, "': sizes ", str_list(constant.sizes), ", strides ", str_list(constant.strides), ", offset ", offset,
                           " reach outside its ", payload.bytes.size(), " bytes in ", path));
  }
  constant.data = payload.bytes.data() + offset_bytes;
  return constant;
}

Result<DType> read_dtype(JsonValue number) {
  // torch._export.serde.schema.ScalarType to c10::ScalarType (reference: pt2.md section 4).
  constexpr std::pair<int, DType> kTypes[] = {
      {1, DType::kUInt8},         {2, DType::kInt8},           {3, DType::kInt16},           {4, DType::kInt32},           {5, DType::kInt64},
      {6, DType::kFloat16},       {7, DType::kFloat32},        {8, DType::kFloat64},         {9, DType::kComplexHalf},     {10, DType::kComplexFloat},
      {11, DType::kComplexDouble}, {12, DType::kBool},         {13, DType::kBFloat16},       {28, DType::kUInt16},         {29, DType::kFloat8E4M3FN},
      {30, DType::kFloat8E5M2},   {31, DType::kFloat8E4M3FNUZ}, {32, DType::kFloat8E5M2FNUZ}, {34, DType::kUInt32},        {35, DType::kUInt64}};
  int64_t value = -1;
  if (!json_int(number, &value)) return Status::invalid_file("a dtype number is expected");
  for (const auto& [n, dtype] : kTypes) {
    if (n == value) return dtype;
  }
  return Status(Code::kUnsupported, str_cat("dtype number ", value, " of the archive", value == 33 ? " (float8_e8m0fnu)" : "", " is not supported"));
}

Device read_device(JsonValue device) {
  Device out;
  JsonValue field;
  int64_t index = 0;
  if (json_text(device, "type") == "cuda") out.type = DeviceType::kCuda;
  if (json_field(device, "index", &field) && json_int(field, &index) && index >= 0 && index < 128) out.index = static_cast<int8_t>(index);
  return out;
}

Status read_tensor_meta(JsonValue meta, TensorMeta* out) {
  constexpr int64_t kStrided = 7;
  int64_t layout = kStrided;
  JsonValue dtype, field;
  bool has_dtype = false, has_sizes = false, has_strides = false;
  simdjson::dom::object fields;
  if (meta.get_object().get(fields) != simdjson::SUCCESS) return Status::invalid_file("a tensor's description is expected");
  for (const auto [key, value] : fields) {
    if (key == "dtype") has_dtype = true, dtype = value;
    else if (key == "sizes") has_sizes = true, out->sizes = value;
    else if (key == "strides") has_strides = true, out->strides = value;
    else if (key == "device") out->device = read_device(value);
    else if (key == "layout") json_int(value, &layout);
    else if (key == "storage_offset" && json_field(value, "as_int", &field)) json_int(field, &out->storage_offset);
  }
  if (layout != kStrided) return Status(Code::kUnsupported, str_cat("a sparse or other layout (number ", layout, "); only strided tensors are supported"));
  if (!has_sizes || !has_strides) return Status::invalid_file(has_sizes ? "strides are missing" : "sizes are missing");
  if (!has_dtype) return Status::invalid_file("dtype is missing");
  PTERON_ASSIGN(out->dtype, read_dtype(dtype));
  return ok_status();
}

}  // namespace pteron::importer
