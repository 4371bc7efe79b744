// Engines that are deserialized once for all delegates with equal bytes, device and streaming request, and the scratch that engines of one device may
// share. One pool a backend object.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "backends/tensorrt/runtime/engine_library.h"

namespace pteron::tensorrt {

/// A deserialized engine and the bytes of those who use it: one of them at least is alive as long as the engine is.
struct LoadedEngine {
  std::unique_ptr<Engine> engine;
  int device = 0;
  std::optional<int64_t> budget;
  std::vector<std::span<const std::byte>> users;  ///< guarded by EnginePool's lock
  std::mutex making;                              ///< contexts are made one at a time
  ~LoadedEngine();
  const EngineLibrary* library = nullptr;
};

/// What an engine needs to be deserialized.
struct EngineRequest {
  std::span<const std::byte> bytes;  ///< alive until release()
  int device = 0;
  std::optional<int64_t> budget;  ///< nullopt: the library's own choice
  bool shared = true;
  LogSink* log = nullptr;
};

/// Threads: all members from several threads at once.
class EnginePool {
 public:
  explicit EnginePool(const EngineLibrary& library) : library_(library) {}

  /// An engine with these bytes: one that is there, if both may be shared, or a new one. The bytes are compared, not a hash of them.
  /// Requires: the device is current. Errors: those of deserializing; kInvalidFile (a plan stripped of weights); kUnavailable (a budget refused).
  Result<std::shared_ptr<LoadedEngine>> take(const EngineRequest& request);
  /// The counterpart of take, with the same bytes.
  void release(std::shared_ptr<LoadedEngine> engine, std::span<const std::byte> bytes);

 private:
  const EngineLibrary& library_;
  std::mutex lock_;
  std::vector<std::weak_ptr<LoadedEngine>> engines_;
};

/// One buffer a device that only grows.
/// Threads: all members from several threads at once.
class ScratchPool {
 public:
  explicit ScratchPool(const EngineLibrary& library) : library_(library) {}
  ~ScratchPool();

  /// Gives `context` at least `size_bytes` of scratch and runs `enqueue`; the work of the call before is over when this one's begins. The lock is
  /// held from the wait to the record, so that no other call comes between. Requires: the device is current.
  /// Errors: kOutOfMemory; enqueue's.
  Status run(int device, int64_t size_bytes, EngineContext& context, Stream stream);

 private:
  struct Room {
    void* memory = nullptr;
    int64_t size_bytes = 0;
    Event last = nullptr;  ///< records the last call's work
    bool recorded = false;
    std::mutex lock;
  };
  Status grow(Room& room, int64_t size_bytes) const;

  const EngineLibrary& library_;
  std::mutex lock_;
  std::map<int, std::unique_ptr<Room>> rooms_;
};

}  // namespace pteron::tensorrt
