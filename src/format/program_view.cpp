// Accessors of a verified program: ranges of segments, constants, initial states, payloads and named data.
#include "format/program_view.h"

#include <algorithm>

#include "tensor/shape.h"

namespace pteron::format {

namespace {

std::span<const std::byte> bytes_of(const flatbuffers::Vector<uint8_t>* vector) { return std::as_bytes(items_of(vector)); }

}  // namespace

uint64_t tensor_bytes(const wire::pte::Tensor& tensor) {
  uint64_t numel = 1;
  for (const int32_t size : items_of(tensor.sizes())) numel *= static_cast<uint64_t>(size);
  return numel * dtype_size(static_cast<DType>(tensor.scalar_type()));
}

bool is_external(const wire::pte::Tensor& tensor) {
  const auto* extra = tensor.extra_tensor_info();
  return extra != nullptr && extra->location() == wire::pte::TensorDataLocation::EXTERNAL;
}

bool constants_in_segment(const wire::pte::Program& root) {
  return root.constant_segment() != nullptr && count_of(root.constant_segment()->offsets()) > 1;
}

int ProgramView::find_plan(std::string_view name) const {
  for (uint32_t i = 0; i < plan_count(); ++i) {
    if (text_of(plan(i).name()) == name) return static_cast<int>(i);
  }
  return -1;
}

std::span<const std::byte> ProgramView::segment(uint32_t index) const {
  const auto* segment = root_->segments()->Get(index);
  if (segment->size() == 0) return {};
  return file_.subspan(header_.segment_base + segment->offset(), segment->size());
}

std::span<const std::byte> ProgramView::constant(const wire::pte::Tensor& tensor) const {
  const uint64_t size = tensor_bytes(tensor);
  if (size == 0) return {};
  if (constants_in_segment(*root_)) {
    const auto* places = root_->constant_segment();
    return segment(places->segment_index()).subspan(places->offsets()->Get(tensor.data_buffer_idx()), size);
  }
  return bytes_of(root_->constant_buffer()->Get(tensor.data_buffer_idx())->storage()).first(size);
}

std::span<const std::byte> ProgramView::initial_state(const wire::pte::Tensor& tensor) const {
  const uint64_t size = tensor_bytes(tensor);
  if (size == 0) return {};
  const auto* places = root_->mutable_data_segments()->Get(0);
  return segment(places->segment_index()).subspan(places->offsets()->Get(tensor.data_buffer_idx()), size);
}

std::span<const std::byte> ProgramView::delegate_payload(const wire::pte::BackendDelegate& delegate) const {
  const auto* reference = delegate.processed();
  if (reference->location() == wire::pte::DataLocation::SEGMENT) return segment(reference->index());
  return bytes_of(root_->backend_delegate_data()->Get(reference->index())->data());
}

std::optional<std::span<const std::byte>> ProgramView::named_data(std::string_view key) const {
  const auto found = std::ranges::lower_bound(named_, key, {}, &NamedRange::key);
  if (found == named_.end() || found->key != key) return std::nullopt;
  return found->bytes;
}

}  // namespace pteron::format
