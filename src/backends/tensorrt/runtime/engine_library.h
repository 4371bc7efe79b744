// What the TensorRT delegate asks of the world: engines, their contexts, and the device's memory and streams. tensorrt_library.cpp answers with
// TensorRT and CUDA where the build found their headers, fake_library.h in the tests; the delegate itself knows neither.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pteron/host.h"
#include "pteron/status.h"
#include "pteron/tensor.h"

namespace pteron::tensorrt {

using Stream = void*;  ///< a cudaStream_t
using Event = void*;   ///< a cudaEvent_t

/// An input or output as the engine has it.
struct EngineTensor {
  std::string name;
  bool is_input = true;
  bool is_shape = false;       ///< read on the host, as sizes
  std::optional<DType> dtype;  ///< nothing: a type that no tensor here has
  std::vector<int64_t> sizes;  ///< -1: varies
};

/// Smallest and largest sizes that an optimization profile takes for an input.
struct ProfileSizes {
  std::vector<int64_t> min, max;
};

/// An execution context. Threads: one at a time. Errors of all members: kUnavailable unless they say otherwise.
class EngineContext {
 public:
  virtual ~EngineContext() = default;
  virtual Status use_profile(int index, Stream stream) = 0;
  virtual Status set_sizes(const std::string& input, std::span<const int64_t> sizes) = 0;
  /// Errors: something is not known yet.
  virtual Status infer_sizes() = 0;
  virtual Result<std::vector<int64_t>> sizes(const std::string& tensor) const = 0;
  virtual Status set_address(const std::string& tensor, void* address) = 0;
  /// Scratch that the present sizes need. Units: bytes.
  virtual Result<int64_t> scratch_bytes() = 0;
  /// Of a context that was made without scratch of its own.
  virtual Status set_scratch(void* memory, int64_t size_bytes) = 0;
  virtual Status enqueue(Stream stream) = 0;
};

/// A deserialized engine. Threads: const members from several threads at once.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual std::vector<EngineTensor> tensors() const = 0;
  virtual int profile_count() const = 0;
  virtual std::optional<ProfileSizes> profile(int index, const std::string& input) const = 0;
  /// The input whose memory the engine writes this output to (a cache layer); nothing if it says none.
  virtual std::optional<std::string> aliased_input(const std::string& output) const = 0;
  /// Bytes of weights, and of those that a stripped plan still has; -1: the plan is not marked as stripped.
  virtual int64_t total_weight_bytes() const = 0;
  virtual int64_t kept_weight_bytes() const = 0;
  /// Of weights that can be streamed; 0: none.
  virtual int64_t streamable_bytes() const = 0;
  virtual int64_t automatic_budget() const = 0;
  virtual bool set_budget(int64_t bytes) = 0;
  /// Largest scratch of any context.
  virtual int64_t scratch_bytes() const = 0;
  virtual Result<std::unique_ptr<EngineContext>> make_context(bool own_scratch) = 0;
};

/// The library and the devices. Threads: all members from several threads at once; the current device is the calling thread's.
class EngineLibrary {
 public:
  virtual ~EngineLibrary() = default;
  /// Errors: kUnavailable with what is missing.
  virtual Status available() const = 0;
  /// Onto the current device. Errors: kInvalidFile (no engine, of another version or architecture), kOutOfMemory.
  virtual Result<std::unique_ptr<Engine>> deserialize(std::span<const std::byte> bytes, LogSink* log) const = 0;

  virtual Result<int> device() const = 0;
  virtual Status set_device(int device) const = 0;
  /// True for devices that share the host's memory: its addresses can be bound.
  virtual bool reads_host_memory(int device) const = 0;
  /// True for device and managed memory; pinned host memory is none.
  virtual bool on_device(const void* address) const = 0;

  /// On the current device, at a multiple of 256; null if there is no room.
  virtual void* allocate(size_t size_bytes) const = 0;
  virtual void free(void* memory) const = 0;
  /// Between any two of host and device, in order with the stream's other work.
  virtual Status copy(void* to, const void* from, size_t size_bytes, Stream stream) const = 0;
  /// The calling thread's default stream.
  virtual Stream own_stream() const = 0;
  virtual bool is_capturing(Stream stream) const = 0;
  virtual Status wait(Stream stream) const = 0;

  virtual Result<Event> make_event() const = 0;
  virtual void destroy(Event event) const = 0;
  virtual Status record(Event event, Stream stream) const = 0;
  /// Lets the stream, or this thread, wait for what was recorded.
  virtual Status wait_for(Event event, Stream stream) const = 0;
  virtual Status wait_for(Event event) const = 0;
};

/// What this build has; available() tells. Threads: immutable.
const EngineLibrary& engine_library();

/// Makes a device current and puts the former one back. If the device cannot be made current, status() says so.
class DeviceScope {
 public:
  DeviceScope(const EngineLibrary& library, int device);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  Status status() { return std::move(status_); }

 private:
  const EngineLibrary& library_;
  int former_ = -1;  ///< to be put back; -1: nothing
  Status status_;
};

}  // namespace pteron::tensorrt
