// The .safetensors format: header parsing with checks of every range, and writing.
#include "tensor/safetensors.h"

#include <algorithm>
#include <cstring>
#include <unordered_set>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "tensor/json_reader.h"
#include "tensor/shape.h"
#include "tensor/write_rows.h"

namespace pteron {

namespace {

/// The format's own limit of the header.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

struct DTypeTag {
  std::string_view tag;
  DType dtype;
};
constexpr DTypeTag kTags[] = {
    {"F32", DType::kFloat32},       {"F64", DType::kFloat64},           {"F16", DType::kFloat16},
    {"BF16", DType::kBFloat16},     {"I64", DType::kInt64},             {"I32", DType::kInt32},
    {"I16", DType::kInt16},         {"I8", DType::kInt8},               {"U8", DType::kUInt8},
    {"BOOL", DType::kBool},         {"U16", DType::kUInt16},            {"U32", DType::kUInt32},
    {"U64", DType::kUInt64},        {"F8_E4M3", DType::kFloat8E4M3FN},  {"F8_E5M2", DType::kFloat8E5M2},
    {"C64", DType::kComplexFloat},  {"F8_E4M3FNUZ", DType::kFloat8E4M3FNUZ},
    {"F8_E5M2FNUZ", DType::kFloat8E5M2FNUZ},
};

/// A tensor's line in the header.
struct Entry {
  std::string name;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> offsets;
};

Result<Entry> read_entry(JsonReader& json, std::string name) {
  Entry entry{std::move(name), {}, {}, {}};
  bool has_shape = false;
  PTERON_TRY(json.expect('{'));
  if (json.accept('}')) return json.error(str_cat("tensor ", entry.name, " has no dtype, shape and data_offsets"));
  do {
    PTERON_ASSIGN(const std::string key, json.string());
    PTERON_TRY(json.expect(':'));
    if (key == "dtype") {
      PTERON_ASSIGN(entry.dtype, json.string());
    } else if (key == "shape") {
      PTERON_ASSIGN(entry.shape, json.unsigned_list());
      has_shape = true;
    } else if (key == "data_offsets") {
      PTERON_ASSIGN(entry.offsets, json.unsigned_list());
    } else {
      PTERON_TRY(json.skip_value());
    }
  } while (json.accept(','));
  PTERON_TRY(json.expect('}'));
  if (entry.dtype.empty() || !has_shape || entry.offsets.size() != 2) {
    return json.error(str_cat("tensor ", entry.name, " lacks dtype, shape or two data_offsets"));
  }
  return entry;
}

Status read_metadata(JsonReader& json, Safetensors& out) {
  PTERON_TRY(json.expect('{'));
  if (json.accept('}')) return ok_status();
  do {
    PTERON_ASSIGN(std::string key, json.string());
    PTERON_TRY(json.expect(':'));
    PTERON_ASSIGN(std::string value, json.string());
    out.metadata.emplace_back(std::move(key), std::move(value));
  } while (json.accept(','));
  return json.expect('}');
}

Result<TensorView> view_of(const Entry& entry, std::span<const std::byte> data) {
  const auto tag = std::ranges::find(kTags, entry.dtype, &DTypeTag::tag);
  if (tag == std::end(kTags)) return Status(Code::kUnsupported, str_cat("tensor ", entry.name, " has dtype ", entry.dtype, ", which is not supported"));
  if (entry.shape.size() > static_cast<size_t>(kMaxRank)) {
    return Status::invalid_file(str_cat("tensor ", entry.name, " has rank ", entry.shape.size(), ", at most ", kMaxRank, " is allowed"));
  }
  int64_t numel = 0, bytes = 0;
  const int64_t begin = entry.offsets[0], end = entry.offsets[1];
  if (!checked_numel(entry.shape, &numel) || !checked_mul(numel, static_cast<int64_t>(dtype_size(tag->dtype)), &bytes) || begin > end ||
      end - begin != bytes) {
    return Status::invalid_file(str_cat("tensor ", entry.name, ": ", entry.dtype, shape_text(entry.shape), " does not fit data offsets [", begin, ",", end, "]"));
  }
  if (static_cast<uint64_t>(end) > data.size()) {
    return Status::invalid_file(str_cat("tensor ", entry.name, " ends at data byte ", end, ", the file has ", data.size(), " data bytes (cut off?)"));
  }
  auto* first = const_cast<std::byte*>(data.data() + begin);  // NOLINT: documented as read-only
  return make_contiguous_view(tag->dtype, entry.shape, first);
}

/// Tensors must cover the data one after another: nothing shared, nothing left over.
Status check_cover(std::vector<std::pair<int64_t, int64_t>> ranges, uint64_t data_bytes) {
  std::ranges::sort(ranges);
  int64_t at = 0;
  for (const auto& [begin, end] : ranges) {
    if (begin != at) return Status::invalid_file(str_cat("data offsets are not contiguous: a tensor starts at ", begin, ", ", at, " is expected"));
    at = end;
  }
  if (static_cast<uint64_t>(at) == data_bytes) return ok_status();
  return Status::invalid_file(str_cat("the header describes ", at, " data bytes, the file has ", data_bytes));
}

Status read_header(std::string_view text, std::span<const std::byte> data, Safetensors& out) {
  JsonReader json(text);
  PTERON_TRY(json.expect('{'));
  std::vector<std::pair<int64_t, int64_t>> ranges;
  std::unordered_set<std::string> names;
  if (!json.accept('}')) {
    do {
      PTERON_ASSIGN(std::string name, json.string());
      PTERON_TRY(json.expect(':'));
      if (!names.insert(name).second) return json.error(str_cat("name ", name, " occurs twice"));
      if (name == "__metadata__") {
        PTERON_TRY(read_metadata(json, out));
        continue;
      }
      PTERON_ASSIGN(Entry entry, read_entry(json, std::move(name)));
      PTERON_ASSIGN(const TensorView view, view_of(entry, data));
      ranges.emplace_back(entry.offsets[0], entry.offsets[1]);
      out.tensors.push_back({std::move(entry.name), view});
    } while (json.accept(','));
    PTERON_TRY(json.expect('}'));
  }
  PTERON_TRY(json.expect_end());
  return check_cover(std::move(ranges), data.size());
}

std::string_view tag_of(DType dtype) {
  const auto found = std::ranges::find(kTags, dtype, &DTypeTag::dtype);
  return found == std::end(kTags) ? std::string_view() : found->tag;
}

}  // namespace

bool is_safetensors_dtype(DType dtype) { return !tag_of(dtype).empty(); }

const TensorView* Safetensors::find(std::string_view name) const {
  for (const NamedTensor& tensor : tensors) {
    if (tensor.name == name) return &tensor.view;
  }
  return nullptr;
}

Result<Safetensors> read_safetensors(std::span<const std::byte> bytes) {
  if (bytes.size() < 8) return Status::invalid_file(str_cat("a safetensors file is expected, found only ", bytes.size(), " bytes"));
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8) {
    return Status::invalid_file(str_cat("safetensors header of ", header_bytes, " bytes is announced, the file has ", bytes.size(), " bytes (cut off, or another format?)"));
  }
  Safetensors out;
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, header_bytes);
  Status status = read_header(text, bytes.subspan(8 + header_bytes), out);
  if (!status.ok()) return std::move(status).with_context("safetensors file");
  return out;
}

Status write_safetensors(std::span<const NamedTensor> tensors, ByteSink& sink) {
  std::string header = "{";
  std::unordered_set<std::string_view> names;
  uint64_t at = 0;
  for (const NamedTensor& tensor : tensors) {
    const std::string_view tag = tag_of(tensor.view.dtype);
    if (tag.empty()) {
      return Status(Code::kInvalidInput, str_cat("tensor ", tensor.name, " has dtype ", dtype_name(tensor.view.dtype), ", which safetensors cannot hold"));
    }
    if (!names.insert(tensor.name).second) return Status(Code::kInvalidInput, str_cat("name ", tensor.name, " occurs twice"));
    const uint64_t end = at + tensor.view.size_bytes();
    if (header.size() > 1) header.push_back(',');
    append_json_string(header, tensor.name);
    str_append(header, ":{\"dtype\":\"", tag, "\",\"shape\":", shape_text(tensor.view.sizes()), ",\"data_offsets\":[", at, ",", end, "]}");
    at = end;
  }
  header.push_back('}');
  header.resize(align_up(header.size(), 8), ' ');
  const uint64_t header_bytes = header.size();
  PTERON_TRY(sink.reserve(8 + header_bytes + at));
  PTERON_TRY(sink.write(std::as_bytes(std::span(&header_bytes, 1))));
  PTERON_TRY(sink.write(std::as_bytes(std::span(header.data(), header.size()))));
  for (const NamedTensor& tensor : tensors) PTERON_TRY(write_row_major(tensor.view, sink));
  return ok_status();
}

}  // namespace pteron
