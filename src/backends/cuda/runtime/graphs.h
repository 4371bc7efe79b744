// Recorded calls: a CUDA graph for each combination of sizes, numbers and addresses that came twice.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backends/cuda/runtime/device.h"
#include "pteron/tensor.h"

namespace pteron::cuda {

/// A recorded call, ready to be put on a stream. Owns it; keeps the device.
class RecordedCall {
 public:
  RecordedCall(std::shared_ptr<Device> device, GraphExec exec) : device_(std::move(device)), exec_(exec) {}
  ~RecordedCall();
  RecordedCall(const RecordedCall&) = delete;
  RecordedCall& operator=(const RecordedCall&) = delete;
  Status replay(Stream stream) const { return device_->driver().check(device_->driver().graph_launch(exec_, stream), "starting a recorded call"); }

 private:
  std::shared_ptr<Device> device_;
  GraphExec exec_;
};

/// Records what is put on its stream. Requires: the context is current in all members.
class Recorder {
 public:
  explicit Recorder(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  /// The stream to be used until end(). Errors: kUnavailable, kOutOfMemory.
  Result<Stream> begin();
  /// Errors: kUnavailable (something was done that cannot be recorded), kOutOfMemory.
  Result<std::unique_ptr<RecordedCall>> end();
  /// Ends without a result, after an error.
  void drop();

 private:
  std::shared_ptr<Device> device_;
  Stream stream_ = nullptr;
};

/// What a call depends on beside the bytes of its arguments.
using CallKey = std::vector<uint64_t>;

/// What a call with some key has been, so far.
struct KnownCall {
  CallKey key;
  uint64_t last_use = 0;
  std::unique_ptr<RecordedCall> recorded;  ///< null: it came once
  std::vector<TensorView> results;         ///< of the recorded call, in the order of the outputs
};

/// The last calls with different keys. Threads: one at a time.
class KnownCalls {
 public:
  /// The call with this key, which counts as used; null if it is not known.
  KnownCall* find(const CallKey& key);
  /// Remembers it; forgets the one that was not used for longest, where there are many. Requires: find() gave null; no recorded call is under way.
  KnownCall& add(CallKey key);
  void clear() { calls_.clear(); }

 private:
  static constexpr size_t kMost = 16;
  std::vector<KnownCall> calls_;
  uint64_t clock_ = 0;
};

}  // namespace pteron::cuda
