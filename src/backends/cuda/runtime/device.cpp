// Contexts, memory and constants of a device.
#include "backends/cuda/runtime/device.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/runtime/upload.h"
#include "base/str_cat.h"
#include "format/content_hash.h"

namespace pteron::cuda {
namespace {

/// Size, and a hash of the bytes at the beginning, in the middle and at the end.
std::string mark_of(std::span<const std::byte> bytes) {
  constexpr size_t kPart = 4096;
  const size_t part = std::min(kPart, bytes.size()), middle = (bytes.size() - part) / 2;
  return str_cat(bytes.size(), ":", format::hash_hex(bytes.first(part)), format::hash_hex(bytes.subspan(middle, part)), format::hash_hex(bytes.last(part)));
}

}  // namespace

ContextScope::ContextScope(const Device& device) : driver_(device.driver()) {
  status_ = driver_.check(driver_.context_push(device.context()), "making the device current");
  pushed_ = status_.ok();
}

ContextScope::~ContextScope() {
  Context former = nullptr;
  if (pushed_) driver_.context_pop(&former);
}

Block& Block::operator=(Block&& other) noexcept {
  if (this != &other) {
    release();
    device_ = std::move(other.device_);
    address_ = std::exchange(other.address_, 0);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void Block::release() {
  if (address_ == 0) return;
  const ContextScope scope(*device_);
  device_->driver().mem_free(address_);
  address_ = 0;
}

PinnedBlock& PinnedBlock::operator=(PinnedBlock&& other) noexcept {
  if (this != &other) {
    release();
    device_ = std::move(other.device_);
    data_ = std::exchange(other.data_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void PinnedBlock::release() {
  if (data_ == nullptr) return;
  const ContextScope scope(*device_);
  device_->driver().host_free(data_);
  data_ = nullptr;
}

Result<std::shared_ptr<Device>> Device::open(std::shared_ptr<const Driver> driver, int index) {
  int count = 0;
  PTERON_TRY(driver->check(driver->device_count(&count), "counting CUDA devices"));
  if (count == 0) return Status(Code::kUnavailable, "there is no CUDA device");
  if (index < 0 || index >= count) return Status(Code::kUnavailable, str_cat("there is no CUDA device ", index, "; there are ", count, ", counted from 0"));
  auto device = std::make_shared<Device>(std::move(driver), index);
  Status status = device->start();
  if (!status.ok()) return std::move(status).with_context(str_cat("CUDA device ", index));
  return device;
}

Status Device::start() {
  const Driver& d = *driver_;
  char name[256] = {};
  int major = 0, minor = 0;
  PTERON_TRY(d.check(d.device_get(&handle_, index_), "finding the device"));
  PTERON_TRY(d.check(d.device_name(name, sizeof name - 1, handle_), "reading the device's name"));
  PTERON_TRY(d.check(d.device_attribute(&major, kAttributeMajor, handle_), "reading the device's facts"));
  PTERON_TRY(d.check(d.device_attribute(&minor, kAttributeMinor, handle_), "reading the device's facts"));
  PTERON_TRY(d.check(d.device_attribute(&multiprocessors_, kAttributeMultiprocessors, handle_), "reading the device's facts"));
  PTERON_TRY(d.check(d.device_attribute(&shared_limit_, kAttributeSharedLimit, handle_), "reading the device's facts"));
  int version = 0;
  PTERON_TRY(d.check(d.driver_version(&version), "asking for the driver's version"));
  name_ = name;
  sm_ = major * 10 + minor;
  // For reports alone: a driver need not say it.
  int clock = 0, memory_clock = 0, bus_bits = 0;
  if (d.device_attribute(&clock, kAttributeClock, handle_) != kSuccess) clock = 0;
  if (d.device_attribute(&memory_clock, kAttributeMemoryClock, handle_) != kSuccess) memory_clock = 0;
  if (d.device_attribute(&bus_bits, kAttributeBusBits, handle_) != kSuccess) bus_bits = 0;
  peaks_ = peaks_of(sm_, multiprocessors_, clock, memory_clock, bus_bits);
  choices_ = std::make_unique<Choices>(Choices::default_folder(), str_cat(name_, ", sm_", sm_, ", ", multiprocessors_, " multiprocessors, driver ", version));
  PTERON_TRY(d.check(d.context_retain(&context_, handle_), "making the device's context"));
  retained_ = true;
  ContextScope scope(*this);
  PTERON_TRY(scope.status());
  return d.check(d.stream_create(&stream_, kStreamNonBlocking), "making a stream");
}

Device::~Device() {
  if (stream_ != nullptr) {
    const ContextScope scope(*this);
    driver_->stream_destroy(stream_);
  }
  if (retained_) driver_->context_release(handle_);
}

Result<Block> Device::allocate(size_t bytes) const {
  if (bytes == 0) return Block();
  Address address = 0;
  Status status = driver_->check(driver_->mem_alloc(&address, bytes), str_cat("allocating ", bytes, " bytes on ", name_));
  if (!status.ok()) return status;
  return Block(shared_from_this(), address, bytes);
}

Result<PinnedBlock> Device::allocate_pinned(size_t bytes) const {
  if (bytes == 0) return PinnedBlock();
  void* memory = nullptr;
  PTERON_TRY(driver_->check(driver_->host_alloc(&memory, bytes, 0), str_cat("allocating ", bytes, " bytes of page-locked memory")));
  return PinnedBlock(shared_from_this(), static_cast<std::byte*>(memory), bytes);
}

Result<std::shared_ptr<const ConstantBlock>> Device::constant(std::span<const std::byte> bytes, ThreadPool& pool, Uploader& uploader) {
  const std::string mark = mark_of(bytes);
  const std::lock_guard<std::mutex> guard(mutex_);
  std::erase_if(constants_, [](const auto& entry) { return entry.second.block.expired(); });
  if (const auto [first, last] = constants_.equal_range(mark); first != last) {
    const std::string hash = Uploader::hash(bytes, pool);
    for (auto at = first; at != last; ++at) {
      if (at->second.hash != hash) continue;
      if (auto block = at->second.block.lock()) return block;
    }
  }
  auto made = std::make_shared<ConstantBlock>();
  PTERON_ASSIGN(made->block, allocate(bytes.size()));
  PTERON_ASSIGN(std::string hash, uploader.upload(made->block.address(), bytes, pool));
  constants_.emplace(mark, Known{std::move(hash), made});
  return std::shared_ptr<const ConstantBlock>(std::move(made));
}

std::shared_ptr<Uploader> Device::uploader() {
  const std::lock_guard<std::mutex> guard(mutex_);
  std::shared_ptr<Uploader> found = uploader_.lock();
  if (found == nullptr) uploader_ = found = std::make_shared<Uploader>(*this);
  return found;
}

uint64_t Device::constant_bytes() const {
  const std::lock_guard<std::mutex> guard(mutex_);
  uint64_t sum = 0;
  for (const auto& [mark, known] : constants_) {
    if (const auto block = known.block.lock()) sum += block->block.size();
  }
  return sum;
}

}  // namespace pteron::cuda
