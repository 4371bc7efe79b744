// Builds without TensorRT: nothing is available, and nothing else is ever asked.
#include "backends/tensorrt/runtime/engine_library.h"

namespace pteron::tensorrt {
namespace {

Status missing() {
  return Status(Code::kUnavailable,
                "this build has no TensorRT: its headers were not found when Pteron was built (CMake: -DTensorRT_ROOT=... and a CUDA toolkit)");
}

class NoLibrary final : public EngineLibrary {
 public:
  Status available() const override { return missing(); }
  Result<std::unique_ptr<Engine>> deserialize(std::span<const std::byte>, LogSink*) const override { return missing(); }
  Result<int> device() const override { return missing(); }
  Status set_device(int) const override { return missing(); }
  bool reads_host_memory(int) const override { return false; }
  bool on_device(const void*) const override { return false; }
  void* allocate(size_t) const override { return nullptr; }
  void free(void*) const override {}
  Status copy(void*, const void*, size_t, Stream) const override { return missing(); }
  Stream own_stream() const override { return nullptr; }
  bool is_capturing(Stream) const override { return false; }
  Status wait(Stream) const override { return missing(); }
  Result<Event> make_event() const override { return missing(); }
  void destroy(Event) const override {}
  Status record(Event, Stream) const override { return missing(); }
  Status wait_for(Event, Stream) const override { return missing(); }
  Status wait_for(Event) const override { return missing(); }
};

}  // namespace

const EngineLibrary& engine_library() {
  static const NoLibrary instance;
  return instance;
}

}  // namespace pteron::tensorrt
