// Writer and verified reader of .ptd files.
#include "format/data_file.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "format/layout.h"
#include "format/program_view.h"
#include "schema/flat_tensor_generated.h"

namespace pteron::format {

namespace ptd = wire::ptd;

namespace {

using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

Status refused(std::string message) { return Status(Code::kInvalidInput, std::move(message)); }

/// Offsets of the blobs relative to the segment base, and the end of the last.
struct Places {
  std::vector<uint64_t> offsets;
  uint64_t total_bytes = 0;
  uint64_t base_alignment = kSegmentAlignment;
};

Result<Places> place_blobs(const DataFileSpec& data, const WriteOptions& options) {
  Places places;
  for (const DataBlobSpec& blob : data.blobs) {
    const uint64_t alignment = blob.alignment == 0 ? options.alignment : blob.alignment;
    if (!std::has_single_bit(alignment) || alignment < 16 || alignment > 4096) {
      return refused(str_cat("alignment ", alignment, " is not a power of two from 16 to 4096"));
    }
    const uint64_t step = std::max(alignment, kSegmentAlignment);
    uint64_t start = places.total_bytes;
    if (blob.payload.size_bytes > 0 && !checked_align(start, step, &start)) return refused("the data does not fit a file");
    if (!checked_add(start, blob.payload.size_bytes, &places.total_bytes)) return refused("the data does not fit a file");
    places.base_alignment = std::max(places.base_alignment, step);
    places.offsets.push_back(start);
  }
  return places;
}

Result<Offset<ptd::TensorLayout>> build_layout(FlatBufferBuilder& fbb, const DataEntrySpec& entry, uint64_t blob_bytes) {
  if (!entry.layout.has_value()) return Offset<ptd::TensorLayout>();
  const DataLayout& layout = *entry.layout;
  uint64_t bytes = 0;
  if (!layout_bytes(layout, &bytes) || bytes != blob_bytes) {
    return refused(str_cat("data ", entry.key, ": a tensor of sizes ", str_list(layout.sizes), " does not describe ", blob_bytes, " bytes"));
  }
  std::vector<int32_t> sizes;
  for (const int64_t size : layout.sizes) {
    if (size > std::numeric_limits<int32_t>::max()) return refused(str_cat("data ", entry.key, ": size ", size, " is not below 2^31"));
    sizes.push_back(static_cast<int32_t>(size));
  }
  std::vector<uint8_t> order = layout.dim_order;
  for (size_t d = 0; layout.dim_order.empty() && d < sizes.size(); ++d) order.push_back(static_cast<uint8_t>(d));
  const auto size_list = fbb.CreateVector(sizes);
  const auto order_list = fbb.CreateVector(order);
  return ptd::CreateTensorLayout(fbb, static_cast<wire::ScalarType>(layout.dtype), size_list, order_list);
}

Status build_flatbuffer(FlatBufferBuilder& fbb, const DataFileSpec& data, const Places& places) {
  std::vector<Offset<ptd::NamedData>> entries;
  for (const DataEntrySpec& entry : data.entries) {
    if (entry.blob >= data.blobs.size()) return refused(str_cat("data ", entry.key, " names blob ", entry.blob, " of ", data.blobs.size()));
    PTERON_ASSIGN(const Offset<ptd::TensorLayout> layout, build_layout(fbb, entry, data.blobs[entry.blob].payload.size_bytes));
    entries.push_back(ptd::CreateNamedData(fbb, fbb.CreateString(entry.key), entry.blob, layout));
  }
  std::vector<Offset<ptd::DataSegment>> segments;
  for (size_t i = 0; i < data.blobs.size(); ++i) {
    segments.push_back(ptd::CreateDataSegment(fbb, places.offsets[i], data.blobs[i].payload.size_bytes));
  }
  const auto segment_list = fbb.CreateVector(segments);
  fbb.Finish(ptd::CreateFlatTensor(fbb, 0, segment_list, fbb.CreateVector(entries)), ptd::FlatTensorIdentifier());
  return ok_status();
}

Status check_keys(const DataFileSpec& data) {
  std::vector<std::string_view> keys;
  for (const DataEntrySpec& entry : data.entries) keys.push_back(entry.key);
  std::ranges::sort(keys);
  const auto twice = std::ranges::adjacent_find(keys);
  return twice == keys.end() ? ok_status() : refused(str_cat("data ", *twice, " occurs twice"));
}

/// All of a data file but its blobs.
struct FileLayout {
  Places places;
  Buffer part;              ///< header and table: what stands first
  uint64_t base = 0;        ///< of the blobs
  uint64_t file_bytes = 0;
};

Result<FileLayout> lay_out(const DataFileSpec& data, const WriteOptions& options) {
  PTERON_TRY(check_keys(data));
  FileLayout file;
  PTERON_ASSIGN(file.places, place_blobs(data, options));
  FlatBufferBuilder fbb;
  PTERON_TRY(build_flatbuffer(fbb, data, file.places));
  const std::span<const std::byte> flatbuffer(reinterpret_cast<const std::byte*>(fbb.GetBufferPointer()), fbb.GetSize());
  const uint64_t block = align_up(kDataHeaderBytes, std::max(options.alignment, kFlatbufferAlignment));
  if (flatbuffer.size() > kMaxFlatbufferBytes - block) return refused("the table of a data file must be smaller than 2 GiB");
  const uint64_t part_bytes = block + flatbuffer.size();
  file.base = align_up(part_bytes, file.places.base_alignment);
  if (!checked_add(file.base, file.places.total_bytes, &file.file_bytes)) return refused("the data does not fit a file");
  PTERON_ASSIGN(file.part, Buffer::create_zeroed(part_bytes));
  const std::span<std::byte> bytes = file.part.span();
  std::memcpy(bytes.data(), flatbuffer.data(), kPrefixBytes);
  std::memcpy(bytes.data() + kPrefixBytes + block, flatbuffer.data() + kPrefixBytes, flatbuffer.size() - kPrefixBytes);
  write_number<uint32_t>(bytes, 0, read_number<uint32_t>(flatbuffer, 0) + static_cast<uint32_t>(block));
  std::memcpy(bytes.data() + 8, kDataHeaderMagic.data(), kDataHeaderMagic.size());
  write_number<uint32_t>(bytes, 12, kDataHeaderBytes);
  write_number<uint64_t>(bytes, 16, block);
  write_number<uint64_t>(bytes, 24, flatbuffer.size());
  write_number<uint64_t>(bytes, 32, file.base);
  write_number<uint64_t>(bytes, 40, file.places.total_bytes);
  return file;
}

}  // namespace

bool layout_bytes(const DataLayout& layout, uint64_t* out) {
  int64_t numel = 0, bytes = 0;
  if (layout.sizes.size() > static_cast<size_t>(kMaxRank) || !checked_numel(layout.sizes, &numel)) return false;
  if (!checked_mul(numel, static_cast<int64_t>(dtype_size(layout.dtype)), &bytes)) return false;
  std::array<bool, kMaxRank> seen{};
  for (const uint8_t d : layout.dim_order) {
    if (d >= layout.sizes.size() || std::exchange(seen[d], true)) return false;
  }
  *out = static_cast<uint64_t>(bytes);
  return layout.dim_order.empty() || layout.dim_order.size() == layout.sizes.size();
}

Result<uint64_t> data_file_size(const DataFileSpec& data, const WriteOptions& options) {
  PTERON_ASSIGN(const FileLayout file, lay_out(data, options));
  return file.file_bytes;
}

Status write_data_file(const DataFileSpec& data, const WriteOptions& options, ByteSink& sink) {
  PTERON_ASSIGN(const FileLayout file, lay_out(data, options));
  PTERON_TRY(sink.reserve(file.file_bytes));
  PTERON_TRY(sink.write(file.part.span()));
  uint64_t at = file.part.size();
  for (size_t i = 0; i < data.blobs.size(); ++i) {
    const uint64_t start = file.base + file.places.offsets[i];
    PTERON_TRY(write_zeros(start - at, sink));
    PTERON_TRY(write_payload(data.blobs[i].payload, sink));
    at = start + data.blobs[i].payload.size_bytes;
  }
  return write_zeros(file.file_bytes - at, sink);
}

/// Walks one file; see ProgramVerifier for the ideas.
class DataVerifier {
 public:
  explicit DataVerifier(std::span<const std::byte> file) : file_(file) {}

  Result<DataFileView> verify() {
    PTERON_TRY(read_header());
    PTERON_TRY(check_flatbuffer());
    for (uint32_t i = 0; i < count_of(root_->segments()); ++i) {
      const ptd::DataSegment& segment = *root_->segments()->Get(i);
      if (segment.size() > 0 && !range_inside(segment.offset(), segment.size(), data_bytes_)) {
        return Status::invalid_file(str_cat("segment ", i, ": ", segment.size(), " bytes at offset ", segment.offset(), " do not fit in the ", data_bytes_,
                               " bytes of data"));
      }
    }
    for (uint32_t i = 0; i < count_of(root_->named_data()); ++i) PTERON_TRY(check_entry(i, *root_->named_data()->Get(i)));
    std::ranges::stable_sort(view_.entries_, {}, &DataEntry::key);
    const auto twice = std::ranges::adjacent_find(view_.entries_, {}, &DataEntry::key);
    if (twice != view_.entries_.end()) return Status::invalid_file(str_cat("data ", twice->key, " occurs twice"));
    return std::move(view_);
  }

 private:
  Status read_header() {
    if (file_.size() < kPrefixBytes + kDataHeaderBytes) return Status::invalid_file(str_cat("a data file is expected, found only ", file_.size(), " bytes"));
    if (read_tag(file_, 4) != kDataIdentifier || read_tag(file_, 8) != kDataHeaderMagic) {
      return Status::invalid_file(str_cat("a data file with identifier FT01 at byte 4 and header FH01 at byte 8 is expected, found ", kind_of_file(file_)));
    }
    const uint32_t header_bytes = read_number<uint32_t>(file_, 12);
    const uint64_t block = read_number<uint64_t>(file_, 16);
    const uint64_t size = read_number<uint64_t>(file_, 24);
    base_ = read_number<uint64_t>(file_, 32);
    data_bytes_ = read_number<uint64_t>(file_, 40);
    if (header_bytes < kDataHeaderBytes) return Status::invalid_file(str_cat("data file header of ", header_bytes, " bytes, at least 40 are expected"));
    if (!checked_add(block, size, &part_bytes_) || part_bytes_ > kMaxFlatbufferBytes || part_bytes_ > file_.size() || block < kDataHeaderBytes ||
        size < kPrefixBytes) {
      return Status::invalid_file(str_cat("data file header: a table of ", size, " bytes at ", block, " does not fit a file of ", file_.size(), " bytes (cut off?)"));
    }
    if (!range_inside(base_, data_bytes_, file_.size()) || (data_bytes_ > 0 && base_ < part_bytes_)) {
      return Status::invalid_file(str_cat("data file header: ", data_bytes_, " bytes of data at byte ", base_, " do not fit between the table's end at ",
                             part_bytes_, " and the file's end at ", file_.size(), " (cut off?)"));
    }
    return ok_status();
  }

  Status check_flatbuffer() {
    const std::byte* data = file_.data();
    if (reinterpret_cast<uintptr_t>(data) % kFlatbufferAlignment != 0) {
      PTERON_ASSIGN(view_.aligned_copy_, Buffer::create(part_bytes_));
      std::memcpy(view_.aligned_copy_.data(), data, part_bytes_);
      data = view_.aligned_copy_.data();
    }
    flatbuffers::Verifier::Options options;
    options.max_tables = static_cast<flatbuffers::uoffset_t>(part_bytes_ / 8 + 1);
    flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(data), part_bytes_, options);
    if (!verifier.VerifyBuffer<ptd::FlatTensor>(ptd::FlatTensorIdentifier())) {
      return Status::invalid_file(str_cat("the table of the data file (", part_bytes_, " bytes) is not a well-formed flatbuffer"));
    }
    root_ = ptd::GetFlatTensor(data);
    return ok_status();
  }

  Status check_entry(uint32_t index, const ptd::NamedData& item) {
    if (item.key() == nullptr) return Status::invalid_file(str_cat("data ", index, " has no key"));
    const uint32_t count = count_of(root_->segments());
    if (item.segment_index() >= count) {
      return Status::invalid_file(str_cat("data ", text_of(item.key()), ": segment index ", item.segment_index(), " is outside the ", count, " there are"));
    }
    const ptd::DataSegment& segment = *root_->segments()->Get(item.segment_index());
    DataEntry entry;
    entry.key = text_of(item.key());
    if (segment.size() > 0) entry.bytes = file_.subspan(base_ + segment.offset(), segment.size());
    if (item.tensor_layout() != nullptr) PTERON_TRY(check_layout(*item.tensor_layout(), entry));
    view_.entries_.push_back(std::move(entry));
    return ok_status();
  }

  Status check_layout(const ptd::TensorLayout& wire_layout, DataEntry& entry) {
    const int dtype = static_cast<int>(wire_layout.scalar_type());
    if (!is_known_dtype(dtype)) return Status::invalid_file(str_cat("data ", entry.key, " has scalar type ", dtype, ", which is not known"));
    const std::span<const int32_t> sizes = items_of(wire_layout.sizes());
    const std::span<const uint8_t> order = items_of(wire_layout.dim_order());
    if (sizes.size() > static_cast<size_t>(kMaxRank) || order.size() != sizes.size()) {
      return Status::invalid_file(str_cat("data ", entry.key, " has rank ", sizes.size(), " and a dim order of ", order.size(), " dims"));
    }
    DataLayout layout{static_cast<DType>(dtype), {sizes.begin(), sizes.end()}, {order.begin(), order.end()}};
    uint64_t bytes = 0;
    if (!layout_bytes(layout, &bytes) || bytes > entry.bytes.size()) {
      return Status::invalid_file(str_cat("data ", entry.key, ": a tensor of sizes ", str_list(sizes), " does not describe the ", entry.bytes.size(), " bytes stored"));
    }
    entry.layout = std::move(layout);
    return ok_status();
  }

  std::span<const std::byte> file_;
  uint64_t part_bytes_ = 0;
  uint64_t base_ = 0;
  uint64_t data_bytes_ = 0;
  const ptd::FlatTensor* root_ = nullptr;
  DataFileView view_;
};

const DataEntry* DataFileView::find(std::string_view key) const {
  const auto found = std::ranges::lower_bound(entries_, key, {}, &DataEntry::key);
  return found == entries_.end() || found->key != key ? nullptr : &*found;
}

Result<DataFileView> verify_data_file(std::span<const std::byte> file) { return DataVerifier(file).verify(); }

}  // namespace pteron::format
