// What the kernels of one delegate work with: its device, its module, and the stream that a call runs on. Kernels find it through their thread pool,
// which it is: the runtime hands a payload's pool to everything that it prepares and calls.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cuda/runtime/device.h"
#include "backends/cuda/runtime/queue.h"
#include "backends/cuda/runtime/upload.h"
#include "pteron/host.h"
#include "runtime/payload_memory.h"

namespace pteron::cuda {

/// A loaded module of kernels. Owns it; keeps the device.
class LoadedModule {
 public:
  /// The translation for the device among those in `container` (module.h).
  /// Errors: kInvalidFile, kIncompatible (of the container), kUnavailable (no translation fits; the driver refuses it), kOutOfMemory.
  static Result<std::unique_ptr<LoadedModule>> load(std::shared_ptr<Device> device, std::span<const std::byte> container);
  /// overlaps: its kernels wait themselves for what was queued before them (PTERON_BEGIN in their text), so they may be started early.
  LoadedModule(std::shared_ptr<Device> device, Module module, bool overlaps = false) : device_(std::move(device)), module_(module), overlaps_(overlaps) {}
  ~LoadedModule();
  LoadedModule(const LoadedModule&) = delete;
  LoadedModule& operator=(const LoadedModule&) = delete;

  Module handle() const { return module_; }
  bool overlaps() const { return overlaps_; }

 private:
  std::shared_ptr<Device> device_;
  Module module_;
  bool overlaps_;
};

/// Device memory of a delegate's payload: one block for each arena, small constants together.
/// Requires: the context is current in all members.
class DeviceMemory final : public runtime::PayloadMemory {
 public:
  /// pool: reads large constants; outlives it.
  DeviceMemory(std::shared_ptr<Device> device, ThreadPool& pool) : device_(std::move(device)), pool_(pool) {}
  Result<void*> allocate(uint64_t bytes, std::string_view what) override;
  Result<const void*> constant(std::span<const std::byte> bytes) override;
  Status initialise(void* to, std::span<const std::byte> bytes) override;
  /// Waits until everything that was written at load is there. Errors: kUnavailable.
  Status finish() {
    Status status = device_->wait();
    uploader_.reset();
    return status;
  }
  /// Of this delegate alone; constants of more than a few bytes are shared. Units: bytes.
  uint64_t own_bytes() const { return own_bytes_; }

 private:
  std::shared_ptr<Device> device_;
  ThreadPool& pool_;
  std::shared_ptr<Uploader> uploader_;  // while something is loaded
  std::vector<Block> blocks_;
  std::vector<std::shared_ptr<const ConstantBlock>> constants_;
  Address slab_ = 0;  // of small constants: the next free byte
  size_t slab_left_ = 0;
  uint64_t own_bytes_ = 0;
};

/// Threads: one at a time, but for the members of ThreadPool.
class Session final : public ThreadPool {
 public:
  Session(std::shared_ptr<Queue> queue, ThreadPool& host_pool) : queue_(std::move(queue)), device_(queue_->device()), host_pool_(host_pool) {}

  int thread_count() const override { return host_pool_.thread_count(); }
  void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& part) override { host_pool_.parallel_for(count, grain, part); }

  Device& device() const { return *device_; }
  const std::shared_ptr<Device>& shared_device() const { return device_; }
  const Driver& driver() const { return device_->driver(); }
  const Queue& queue() const { return *queue_; }
  /// Where a call's work goes: the queue's stream, or the one that records.
  Stream stream() const { return recorded_ != nullptr ? recorded_ : queue_->stream(); }
  /// True while the work of a call is recorded, by this engine or by the caller, not run: nothing may be waited for or read back.
  bool capturing() const { return recorded_ != nullptr || caller_records_; }
  /// Says at load that a kernel has to wait for the device within a call: calls are never recorded.
  void forbid_graph() { graphs_allowed_ = false; }
  bool graphs_allowed() const { return graphs_allowed_; }

  void use_module(std::unique_ptr<LoadedModule> module) { module_ = std::move(module); }
  /// A kernel of the module that may use `dynamic_shared` bytes of shared memory beside its own.
  /// Errors: kInvalidFile (no such kernel), kUnavailable (more shared memory than the device has).
  Result<Function> function(std::string_view name, int64_t dynamic_shared);
  /// Puts a kernel on stream(), to be started while the one before it runs if the module allows that, `may_overlap`, and its blocks find multiprocessors of
  /// their own: blocks that come early share those that are free, and many would be waited for. params: one entry a parameter, each of 8 bytes: an address, an
  /// int64_t or the bits of a double. Errors: kUnavailable.
  Status launch(Function function, std::array<unsigned, 3> grid, unsigned threads, unsigned shared, std::span<const uint64_t> params, bool may_overlap = true);
  /// Kernels that were launched since the beginning, for reports.
  uint64_t launches() const { return launches_; }

  /// For the delegate: what is put on the session's stream from now on is recorded (stream: the one that is captured) or goes to the queue (null).
  void record_on(Stream stream) { recorded_ = stream; }
  /// For the delegate: whether the queue's stream is the caller's and is captured.
  void note_capture(bool caller_records) { caller_records_ = caller_records; }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Device> device_;
  ThreadPool& host_pool_;
  std::unique_ptr<LoadedModule> module_;
  std::map<std::string, int64_t, std::less<>> shared_of_;  // dynamic shared memory that a function was allowed
  Stream recorded_ = nullptr;
  bool caller_records_ = false;
  bool graphs_allowed_ = true;
  uint64_t launches_ = 0;
};

/// The session of a kernel that is prepared or called. Requires: it is a kernel of this engine, in a payload that the engine loaded.
inline Session& session_of(const runtime::KernelLoad& load) { return *static_cast<Session*>(load.pool); }
inline Session& session_of(const runtime::KernelContext& context) { return *static_cast<Session*>(context.pool); }

}  // namespace pteron::cuda
