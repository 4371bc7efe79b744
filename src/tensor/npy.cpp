// The .npy header (a Python dict literal), .npz archives over base/zip.h, and choosing a reader by content.
#include "tensor/npy.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "base/zip.h"
#include "tensor/safetensors.h"
#include "tensor/shape.h"
#include "tensor/write_rows.h"

namespace pteron {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kPrefixBytes = 8;  // magic and version

struct DTypeCode {
  std::string_view code;
  DType dtype;
};
constexpr DTypeCode kCodes[] = {
    {"f4", DType::kFloat32}, {"f8", DType::kFloat64}, {"f2", DType::kFloat16},      {"i8", DType::kInt64},   {"i4", DType::kInt32},
    {"i2", DType::kInt16},   {"i1", DType::kInt8},    {"u1", DType::kUInt8},        {"u2", DType::kUInt16},  {"u4", DType::kUInt32},
    {"u8", DType::kUInt64},  {"b1", DType::kBool},    {"c8", DType::kComplexFloat}, {"c16", DType::kComplexDouble},
};

/// What a header says.
struct Header {
  std::string descr;
  bool fortran_order = false;
  std::vector<int64_t> shape;
};

/// Pull parser of the subset of Python literals that numpy writes.
class HeaderReader {
 public:
  explicit HeaderReader(std::string_view text) : text_(text) {}

  Result<Header> read() {
    Header header;
    bool has_descr = false, has_order = false, has_shape = false;
    PTERON_TRY(expect('{'));
    while (!accept('}')) {
      PTERON_ASSIGN(const std::string_view key, string());
      PTERON_TRY(expect(':'));
      if (key == "descr") {
        if (peek() == '[') return Status(Code::kUnsupported, ".npy with a structured dtype");
        PTERON_ASSIGN(const std::string_view descr, string());
        header.descr = descr;
        has_descr = true;
      } else if (key == "fortran_order") {
        PTERON_ASSIGN(header.fortran_order, boolean());
        has_order = true;
      } else if (key == "shape") {
        PTERON_TRY(tuple(&header.shape));
        has_shape = true;
      } else {
        return error(str_cat("unknown key ", key));
      }
      if (!accept(',') && peek() != '}') return error("',' or '}' is expected");
    }
    if (!has_descr || !has_order || !has_shape) return error("descr, fortran_order and shape are expected");
    return peek() == '\0' ? Result<Header>(std::move(header)) : Result<Header>(error("the end is expected"));
  }

 private:
  Status error(std::string_view what) const { return Status::invalid_file(str_cat(".npy header: ", what, " at byte ", at_)); }

  char peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  Status expect(char c) { return accept(c) ? ok_status() : error(str_cat("'", c, "' is expected")); }

  Result<std::string_view> string() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') return error("a string is expected");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return error("a string is cut off");
    const std::string_view out = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return out;
  }

  Result<bool> boolean() {
    peek();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return word == "True";
    }
    return error("True or False is expected");
  }

  Status tuple(std::vector<int64_t>* out) {
    PTERON_TRY(expect('('));
    while (!accept(')')) {
      int64_t value = 0;
      peek();
      const auto parsed = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
      if (parsed.ec != std::errc() || value < 0) return error("a size is expected");
      at_ = static_cast<size_t>(parsed.ptr - text_.data());
      if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // files of Python 2
      out->push_back(value);
      if (out->size() > static_cast<size_t>(kMaxRank)) return error(str_cat("rank over ", kMaxRank));
      if (!accept(',') && peek() != ')') return error("',' or ')' is expected");
    }
    return ok_status();
  }

  std::string_view text_;
  size_t at_ = 0;
};

/// The header's text; writes where the data starts.
Result<std::string_view> header_text(std::span<const std::byte> bytes, size_t* data_at) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic)) return Status::invalid_file(str_cat("a .npy file is expected, found ", bytes.size(), " bytes that start otherwise"));
  if (bytes.size() < kPrefixBytes + 4) return Status::invalid_file(str_cat(".npy file of ", bytes.size(), " bytes is cut off"));
  const uint8_t version = static_cast<uint8_t>(bytes[6]);
  if (version < 1 || version > 3) return Status::invalid_file(str_cat(".npy version ", version, ", 1 to 3 are known"));
  const size_t length_bytes = version == 1 ? 2 : 4;
  uint32_t length = 0;
  std::memcpy(&length, bytes.data() + kPrefixBytes, length_bytes);
  const size_t start = kPrefixBytes + length_bytes;
  if (length > bytes.size() - start) return Status::invalid_file(str_cat(".npy header of ", length, " bytes, the file has ", bytes.size(), " (cut off?)"));
  *data_at = start + length;
  return text.substr(start, length);
}

Result<DType> dtype_of(std::string_view descr) {
  const char order = descr.empty() ? '\0' : descr[0];
  const auto found = std::ranges::find(kCodes, descr.substr(descr.empty() ? 0 : 1), &DTypeCode::code);
  if (found != std::end(kCodes)) {
    const bool one_byte = dtype_size(found->dtype) == 1;
    if (order == '<' || order == '=' || (order == '|' && one_byte) || (order == '>' && one_byte)) return found->dtype;
  }
  return Status(Code::kUnsupported, str_cat(".npy dtype ", descr, ", a little-endian number or bool is expected"));
}

}  // namespace

bool is_numpy_dtype(DType dtype) { return std::ranges::find(kCodes, dtype, &DTypeCode::dtype) != std::end(kCodes); }

namespace {

Result<std::string> npy_header(const TensorView& tensor) {
  const auto found = std::ranges::find(kCodes, tensor.dtype, &DTypeCode::dtype);
  if (found == std::end(kCodes)) {
    return Status(Code::kInvalidInput, str_cat("numpy has no dtype ", dtype_name(tensor.dtype), "; write .safetensors instead"));
  }
  std::string dict = str_cat("{'descr': '", dtype_size(tensor.dtype) == 1 ? '|' : '<', found->code, "', 'fortran_order': False, 'shape': (");
  for (int d = 0; d < tensor.rank; ++d) str_append(dict, d > 0 ? " " : "", tensor.size(d), d + 1 < tensor.rank || d == 0 ? "," : "");
  str_append(dict, "), }");
  // Magic, version, length, text and the final line break fill a multiple of 64 bytes.
  const size_t before = kPrefixBytes + 2;
  dict.resize(align_up(before + dict.size() + 1, 64) - before - 1, ' ');
  dict.push_back('\n');
  std::string out(kMagic);
  out.push_back('\1');
  out.push_back('\0');
  out.push_back(static_cast<char>(dict.size() & 0xff));
  out.push_back(static_cast<char>(dict.size() >> 8));
  return out + dict;
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// Checksum of what is written.
class CrcSink final : public ByteSink {
 public:
  Status reserve(uint64_t) override { return ok_status(); }
  Status write(std::span<const std::byte> bytes) override {
    crc_ = crc32_z(crc_, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
    return ok_status();
  }
  uint32_t crc() const { return static_cast<uint32_t>(crc_); }

 private:
  uLong crc_ = crc32_z(0, nullptr, 0);
};

void put16(std::string& out, uint64_t value) {
  for (int i = 0; i < 2; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}
void put32(std::string& out, uint64_t value) {
  for (int i = 0; i < 4; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}

constexpr uint64_t kMaxZip = 0xfffffffe;

/// The 26 bytes that local and central headers share (version needed to name length, extra length 0), then follows the name.
void put_common(std::string& out, uint32_t crc, uint64_t size, size_t name_bytes) {
  put16(out, 20);
  put16(out, 0x800);        // names are UTF-8
  put16(out, 0);            // stored
  put32(out, 0x00210000);   // 1980-01-01: no time in files
  put32(out, crc);
  put32(out, size);
  put32(out, size);
  put16(out, name_bytes);
  put16(out, 0);
}

/// Writes one stored entry; appends its directory record.
Status write_entry(const NamedTensor& tensor, uint64_t* at, std::string& directory, ByteSink& sink) {
  PTERON_ASSIGN(const std::string header, npy_header(tensor.view));
  const std::string name = tensor.name + ".npy";
  const uint64_t size = header.size() + tensor.view.size_bytes();
  if (size > kMaxZip || *at > kMaxZip - size || name.size() > 0xffff) {
    return Status(Code::kInvalidInput, str_cat("array ", tensor.name, " makes the .npz larger than 4 GiB; write .safetensors instead"));
  }
  CrcSink crc;
  PTERON_TRY(crc.write(bytes_of(header)));
  PTERON_TRY(write_row_major(tensor.view, crc));
  std::string local = "PK\3\4";
  put_common(local, crc.crc(), size, name.size());
  local += name;
  directory += "PK\1\2";
  put16(directory, 20);
  put_common(directory, crc.crc(), size, name.size());
  put16(directory, 0);  // comment
  put16(directory, 0);  // disk
  put16(directory, 0);  // attributes
  put32(directory, 0);
  put32(directory, *at);
  directory += name;
  *at += local.size() + size;
  PTERON_TRY(sink.write(bytes_of(local)));
  PTERON_TRY(sink.write(bytes_of(header)));
  return write_row_major(tensor.view, sink);
}

}  // namespace

Result<TensorView> read_npy(std::span<const std::byte> bytes) {
  size_t data_at = 0;
  PTERON_ASSIGN(const std::string_view text, header_text(bytes, &data_at));
  PTERON_ASSIGN(const Header header, HeaderReader(text).read());
  PTERON_ASSIGN(const DType dtype, dtype_of(header.descr));
  int64_t numel = 0, needed = 0;
  if (!checked_numel(header.shape, &numel) || !checked_mul(numel, static_cast<int64_t>(dtype_size(dtype)), &needed)) {
    return Status::invalid_file(str_cat(".npy shape ", str_list(header.shape), " is too large"));
  }
  const std::span<const std::byte> data = bytes.subspan(data_at);
  if (static_cast<uint64_t>(needed) != data.size()) {
    return Status::invalid_file(str_cat(".npy array ", dtype_name(dtype), shape_text(header.shape), " needs ", needed, " bytes, the file has ", data.size(),
                           static_cast<uint64_t>(needed) > data.size() ? " (cut off?)" : ""));
  }
  TensorView view = make_contiguous_view(dtype, header.shape, const_cast<std::byte*>(data.data()));  // NOLINT: documented as read-only
  if (!header.fortran_order) return view;
  int64_t stride = 1;
  for (size_t d = 0; d < header.shape.size(); ++d) {
    view.stride_array[d] = stride;
    stride *= std::max<int64_t>(header.shape[d], 1);
  }
  return view;
}

Status write_npy(const TensorView& tensor, ByteSink& sink) {
  PTERON_ASSIGN(const std::string header, npy_header(tensor));
  PTERON_TRY(sink.reserve(header.size() + tensor.size_bytes()));
  PTERON_TRY(sink.write(bytes_of(header)));
  return write_row_major(tensor, sink);
}

Status write_npz(std::span<const NamedTensor> tensors, ByteSink& sink) {
  std::unordered_set<std::string_view> names;
  for (const NamedTensor& tensor : tensors) {
    if (!names.insert(tensor.name).second) return Status(Code::kInvalidInput, str_cat("name ", tensor.name, " occurs twice"));
  }
  if (tensors.size() > 0xfffe) return Status(Code::kInvalidInput, str_cat(tensors.size(), " arrays, a .npz holds at most 65534"));
  uint64_t at = 0;
  std::string directory;
  for (const NamedTensor& tensor : tensors) PTERON_TRY(write_entry(tensor, &at, directory, sink));
  std::string end = "PK\5\6";
  put32(end, 0);
  put16(end, tensors.size());
  put16(end, tensors.size());
  put32(end, directory.size());
  put32(end, at);
  put16(end, 0);
  if (at > kMaxZip - directory.size()) return Status(Code::kInvalidInput, "the .npz is larger than 4 GiB; write .safetensors instead");
  PTERON_TRY(sink.write(bytes_of(directory)));
  return sink.write(bytes_of(end));
}

Result<TensorFile> read_npz(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
  PTERON_ASSIGN(const ZipFile zip, ZipFile::open(bytes, owner));
  TensorFile out;
  out.kind = TensorFile::Kind::kNpz;
  out.owners.push_back(std::move(owner));
  for (const ZipEntry& entry : zip.entries()) {
    if (entry.name.ends_with("/archive_format")) return Status::invalid_file("a .npz of arrays is expected, found an archive of torch.export.save (.pt2)");
    if (entry.name.ends_with("/data.pkl")) return Status::invalid_file("a .npz of arrays is expected, found a torch.save file; write tensors with safetensors.torch.save_file");
  }
  for (const ZipEntry& entry : zip.entries()) {
    PTERON_ASSIGN(ZipBytes content, zip.read(entry, true));
    auto view = read_npy(content.bytes);
    if (!view.ok()) return std::move(view).status().with_context(str_cat(".npz entry ", entry.name));
    std::string_view name = entry.name;
    if (name.ends_with(".npy")) name.remove_suffix(4);
    out.tensors.push_back({std::string(name), *view});
    out.owners.push_back(std::move(content.owner));
  }
  return out;
}

Result<TensorFile> read_tensor_file(std::shared_ptr<FileBytes> file) {
  const std::span<const std::byte> bytes = file->bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), std::min<size_t>(bytes.size(), 8));
  if (text.starts_with("PK\3\4") || text.starts_with("PK\5\6")) return read_npz(bytes, std::move(file));
  TensorFile out;
  if (text.starts_with(kMagic)) {
    out.kind = TensorFile::Kind::kNpy;
    PTERON_ASSIGN(const TensorView view, read_npy(bytes));
    out.tensors.push_back({"0", view});
  } else if (text.size() == 8 && (text.substr(4) == "ET12" || text.substr(4) == "FT01")) {
    return Status::invalid_file(text[4] == 'E' ? "tensors are expected, found a program (.pte)" : "tensors are expected, found a data file (.ptd)");
  } else {
    PTERON_ASSIGN(Safetensors read, read_safetensors(bytes));
    out.tensors = std::move(read.tensors);
  }
  out.owners.push_back(std::move(file));
  return out;
}

}  // namespace pteron
