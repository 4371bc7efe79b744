// A loaded engine with its context: binds the tensors of a call, runs, and brings back what it staged. Knows TensorRT and CUDA by engine_library.h only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backends/tensorrt/runtime/bindings.h"
#include "backends/tensorrt/runtime/engine_pool.h"
#include "pteron/delegate.h"
#include "pteron/tensorrt.h"

namespace pteron::tensorrt {

/// What delegates of one backend object have in common.
struct Shared {
  explicit Shared(const EngineLibrary& l) : library(l), engines(l), scratch(l) {}
  const EngineLibrary& library;
  EnginePool engines;
  ScratchPool scratch;
  TensorRtOptions options;
};

/// The stream that the calling thread has chosen (TensorRtStream); nothing: its default stream.
std::optional<Stream> caller_stream();

/// Requires: the device is current.
Result<std::unique_ptr<Delegate>> make_delegate(std::shared_ptr<Shared> shared, std::shared_ptr<LoadedEngine> engine, std::span<const std::byte> bytes,
                                                Ports ports, LogSink* log, bool host_state);

/// Errors: kUnavailable (no TensorRT, no such device), kInvalidFile (payload, engine, compile specs), kNotFound (an engine in a data file that is not
///         there), kInvalidInput (options), kOutOfMemory.
/// Owns:   the delegate keeps `shared` alive; the device that was current is current again.
Result<std::unique_ptr<Delegate>> load_engine(const DelegateLoad& request, std::shared_ptr<Shared> shared);

}  // namespace pteron::tensorrt
