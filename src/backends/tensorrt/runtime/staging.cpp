// Staging buffers.
#include "backends/tensorrt/runtime/staging.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"
#include "tensor/shape.h"

namespace pteron::tensorrt {

Staging::Staging(Staging&& other) noexcept
    : library_(other.library_),
      memory_(std::exchange(other.memory_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      packed_(std::move(other.packed_)) {}

Staging::~Staging() {
  if (memory_ != nullptr) library_->free(memory_);
}

Result<void*> Staging::reserve(size_t size_bytes) {
  size_bytes = std::max<size_t>(size_bytes, 1);
  if (size_bytes <= size_bytes_) return memory_;
  if (memory_ != nullptr) library_->free(std::exchange(memory_, nullptr));
  size_bytes_ = 0;
  memory_ = library_->allocate(size_bytes);
  if (memory_ == nullptr) return Status(Code::kOutOfMemory, str_cat("no ", size_bytes, " bytes on the device"));
  size_bytes_ = size_bytes;
  return memory_;
}

Result<const void*> Staging::pack(const TensorView& from) {
  if (packed_.size() < from.size_bytes()) {
    PTERON_ASSIGN(packed_, Buffer::create(from.size_bytes()));
  }
  copy_strided(from, make_contiguous_view(from.dtype, from.sizes(), packed_.data()));
  return static_cast<const void*>(packed_.data());
}

}  // namespace pteron::tensorrt
