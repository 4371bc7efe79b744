// A device: its context, memory on it, and the stream of what belongs to no session. Shared by all delegates of the process; used by the delegate and by library
// calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "backends/cuda/runtime/choices.h"
#include "backends/cuda/runtime/driver.h"
#include "backends/cuda/runtime/work.h"
#include "pteron/host.h"
#include "pteron/status.h"
#include "runtime/kernel.h"

namespace pteron::cuda {

class Device;
class Uploader;

/// Makes the device's context the calling thread's, and puts the former one back.
class ContextScope {
 public:
  explicit ContextScope(const Device& device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  Status status() { return std::move(status_); }

 private:
  const Driver& driver_;
  bool pushed_ = false;
  Status status_;
};

/// Owned memory of a device, at a multiple of 256. Move-only; keeps the device. May be destroyed on any thread, when no work on it is under way.
class Block {
 public:
  Block() = default;
  Block(Block&& other) noexcept : device_(std::move(other.device_)), address_(std::exchange(other.address_, 0)), size_(std::exchange(other.size_, 0)) {}
  Block& operator=(Block&& other) noexcept;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { release(); }

  Address address() const { return address_; }
  size_t size() const { return size_; }

 private:
  friend class Device;
  Block(std::shared_ptr<const Device> device, Address address, size_t size) : device_(std::move(device)), address_(address), size_(size) {}
  void release();

  std::shared_ptr<const Device> device_;
  Address address_ = 0;
  size_t size_ = 0;
};

/// Owned page-locked memory of the host, which copies to and from the device without the processor. As Block.
class PinnedBlock {
 public:
  PinnedBlock() = default;
  PinnedBlock(PinnedBlock&& other) noexcept : device_(std::move(other.device_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PinnedBlock& operator=(PinnedBlock&& other) noexcept;
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;
  ~PinnedBlock() { release(); }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  friend class Device;
  PinnedBlock(std::shared_ptr<const Device> device, std::byte* data, size_t size) : device_(std::move(device)), data_(data), size_(size) {}
  void release();

  std::shared_ptr<const Device> device_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Constants on the device: equal bytes are there once. Immutable.
struct ConstantBlock {
  Block block;
};

/// Threads: all members from several threads at once. Requires (of those that do not say otherwise): the context is current.
class Device : public std::enable_shared_from_this<Device> {
 public:
  /// Errors: kUnavailable (no such device; it cannot be used), kOutOfMemory.
  static Result<std::shared_ptr<Device>> open(std::shared_ptr<const Driver> driver, int index);
  Device(std::shared_ptr<const Driver> driver, int index) : driver_(std::move(driver)), index_(index) {}
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  const Driver& driver() const { return *driver_; }
  int index() const { return index_; }
  const std::string& name() const { return name_; }
  /// Compute capability: 90 for 9.0.
  int sm() const { return sm_; }
  int multiprocessors() const { return multiprocessors_; }
  const Peaks& peaks() const { return peaks_; }
  /// Most shared memory of a block. Units: bytes.
  int shared_memory_limit() const { return shared_limit_; }
  /// What loading puts on the device goes there, and copies that belong to no session. Sessions have their own (session_allocator.h).
  Stream stream() const { return stream_; }
  Context context() const { return context_; }
  /// What calls of libraries keep for this device (handles, measured choices).
  runtime::StateCache& states() { return states_; }
  /// What was measured on it, kept between processes.
  Choices& choices() { return *choices_; }

  /// Errors: kOutOfMemory, kUnavailable.
  Result<Block> allocate(size_t bytes) const;
  Result<PinnedBlock> allocate_pinned(size_t bytes) const;
  /// The bytes on the device, once for all who ask for equal ones while somebody holds them. They are there when stream() has been waited for; `bytes` was read.
  /// pool: reads them.
  Result<std::shared_ptr<const ConstantBlock>> constant(std::span<const std::byte> bytes, ThreadPool& pool, Uploader& uploader);
  /// For constant(): one for all who load at the same time.
  std::shared_ptr<Uploader> uploader();
  /// Waits for all work on stream(). Errors: what went wrong in it.
  Status wait() const { return driver().check(driver().stream_wait(stream_), "the work on the device"); }
  /// Memory of all living constants. Units: bytes.
  uint64_t constant_bytes() const;

 private:
  Status start();

  std::shared_ptr<const Driver> driver_;
  int index_ = 0;
  int handle_ = 0;
  bool retained_ = false;
  Context context_ = nullptr;
  Stream stream_ = nullptr;
  std::string name_;
  int sm_ = 0, multiprocessors_ = 0, shared_limit_ = 0;
  Peaks peaks_;
  std::unique_ptr<Choices> choices_;
  runtime::StateCache states_;
  /// A constant that somebody may hold.
  struct Known {
    std::string hash;  // of all bytes
    std::weak_ptr<const ConstantBlock> block;
  };
  mutable std::mutex mutex_;  // of what follows
  std::multimap<std::string, Known> constants_;  // by size and the hash of a few bytes: what is not found there was never seen, without reading all of it
  std::weak_ptr<Uploader> uploader_;
};

}  // namespace pteron::cuda
