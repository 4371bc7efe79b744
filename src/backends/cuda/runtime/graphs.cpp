// Capture into CUDA graphs, and which calls have one.
#include "backends/cuda/runtime/graphs.h"

#include <algorithm>

namespace pteron::cuda {

RecordedCall::~RecordedCall() {
  const ContextScope scope(*device_);
  device_->driver().graph_exec_destroy(exec_);
}

Recorder::~Recorder() {
  if (stream_ == nullptr) return;
  const ContextScope scope(*device_);
  device_->driver().stream_destroy(stream_);
}

Result<Stream> Recorder::begin() {
  const Driver& d = device_->driver();
  // A stream of its own: what other threads put on the device's stream must not end up in the recording.
  if (stream_ == nullptr) PTERON_TRY(d.check(d.stream_create(&stream_, kStreamNonBlocking), "making a stream"));
  PTERON_TRY(d.check(d.capture_begin(stream_, kCaptureThreadLocal), "recording a call"));
  return stream_;
}

Result<std::unique_ptr<RecordedCall>> Recorder::end() {
  const Driver& d = device_->driver();
  Graph graph = nullptr;
  PTERON_TRY(d.check(d.capture_end(stream_, &graph), "recording a call"));
  GraphExec exec = nullptr;
  const int result = d.graph_instantiate(&exec, graph, 0);
  d.graph_destroy(graph);
  PTERON_TRY(d.check(result, "making a recorded call ready"));
  return std::make_unique<RecordedCall>(device_, exec);
}

void Recorder::drop() {
  const Driver& d = device_->driver();
  Graph graph = nullptr;
  if (d.capture_end(stream_, &graph) == kSuccess && graph != nullptr) d.graph_destroy(graph);
}

KnownCall* KnownCalls::find(const CallKey& key) {
  for (KnownCall& call : calls_) {
    if (call.key != key) continue;
    call.last_use = ++clock_;
    return &call;
  }
  return nullptr;
}

KnownCall& KnownCalls::add(CallKey key) {
  if (calls_.size() == kMost) {
    // Calls that came once go first: numbers that are others in every call must not push out those that come again.
    const auto before = [](const KnownCall& a, const KnownCall& b) {
      if ((a.recorded == nullptr) != (b.recorded == nullptr)) return a.recorded == nullptr;
      return a.last_use < b.last_use;
    };
    calls_.erase(std::ranges::min_element(calls_, before));
  }
  KnownCall call;
  call.key = std::move(key);
  call.last_use = ++clock_;
  calls_.push_back(std::move(call));
  return calls_.back();
}

}  // namespace pteron::cuda
