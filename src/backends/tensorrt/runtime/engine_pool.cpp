// Deserializing with the checks that belong to the engine alone (stripped weights, streaming), sharing, and shared scratch.
#include "backends/tensorrt/runtime/engine_pool.h"

#include <algorithm>
#include <utility>

#include "base/str_cat.h"

namespace pteron::tensorrt {

DeviceScope::DeviceScope(const EngineLibrary& library, int device) : library_(library) {
  const Result<int> present = library.device();
  if (!present.ok()) {
    status_ = Status(Code::kUnavailable, str_cat("the current CUDA device is unknown: ", present.status().message()));
    return;
  }
  if (*present == device) return;
  status_ = library.set_device(device);
  if (!status_.ok()) {
    status_ = std::move(status_).with_context(str_cat("CUDA device ", device, " cannot be made current"));
    return;
  }
  former_ = *present;
}

DeviceScope::~DeviceScope() {
  if (former_ >= 0 && !library_.set_device(former_).ok()) return;  // nobody to tell
}

LoadedEngine::~LoadedEngine() {
  const DeviceScope scope(*library, device);
  engine.reset();
}

namespace {

void note(LogSink* log, LogLevel level, std::string text) {
  if (log != nullptr) log->log(level, text);
}

/// A plan that was built without its weights computes garbage. -1 means that it is not marked, which a plan that was stripped, saved again without the
/// mark and never refitted is not either: that cannot be told.
Status check_weights(const Engine& engine) {
  const int64_t kept = engine.kept_weight_bytes(), total = engine.total_weight_bytes();
  if (kept < 0 || kept >= total) return ok_status();
  return Status(Code::kInvalidFile,
                str_cat("the engine is a stripped plan with ", kept, " of its ", total, " bytes of weights; refit it and save it with its weights"));
}

/// Before any context is there.
Status set_streaming(Engine& engine, std::optional<int64_t> wanted, LogSink* log) {
  const int64_t streamable = engine.streamable_bytes();
  if (streamable <= 0) {
    if (wanted) note(log, LogLevel::kWarning, str_cat("the engine has no weights that can be streamed: the budget of ", *wanted, " bytes is passed over"));
    return ok_status();
  }
  int64_t budget = wanted ? std::min(*wanted, streamable) : engine.automatic_budget();
  if (!engine.set_budget(budget)) {
    if (wanted) return Status(Code::kUnavailable, str_cat("TensorRT refuses a budget of ", budget, " bytes for weights"));
    note(log, LogLevel::kInfo, str_cat("TensorRT refuses its own budget of ", budget, " bytes for weights: everything is streamed"));
    budget = 0;
    if (!engine.set_budget(budget)) return Status(Code::kUnavailable, "TensorRT refuses every budget for weights");
  }
  note(log, LogLevel::kInfo, str_cat("weights: ", budget, " of ", streamable, " bytes stay on the device, scratch ", engine.scratch_bytes(), " bytes"));
  return ok_status();
}

bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) { return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin()); }

}  // namespace

Result<std::shared_ptr<LoadedEngine>> EnginePool::take(const EngineRequest& request) {
  const std::lock_guard<std::mutex> guard(lock_);
  std::erase_if(engines_, [](const auto& engine) { return engine.expired(); });
  for (const auto& weak : engines_) {
    const std::shared_ptr<LoadedEngine> found = weak.lock();
    if (found == nullptr || found->users.empty() || found->device != request.device || found->budget != request.budget ||
        !same_bytes(found->users[0], request.bytes))
      continue;
    found->users.push_back(request.bytes);
    return found;
  }
  auto made = std::make_shared<LoadedEngine>();  // shared by the delegates of equal engines
  made->library = &library_;
  made->device = request.device;
  made->budget = request.budget;
  PTERON_ASSIGN(made->engine, library_.deserialize(request.bytes, request.log));
  PTERON_TRY(check_weights(*made->engine));
  PTERON_TRY(set_streaming(*made->engine, request.budget, request.log));
  made->users.push_back(request.bytes);
  if (request.shared) engines_.push_back(made);  // others are never found
  return made;
}

void EnginePool::release(std::shared_ptr<LoadedEngine> engine, std::span<const std::byte> bytes) {
  const std::lock_guard<std::mutex> guard(lock_);
  const auto user = std::ranges::find_if(engine->users, [&](std::span<const std::byte> u) { return u.data() == bytes.data(); });
  if (user != engine->users.end()) engine->users.erase(user);
}

ScratchPool::~ScratchPool() {
  for (const auto& [device, room] : rooms_) {
    const DeviceScope scope(library_, device);
    if (room->recorded && !library_.wait_for(room->last).ok()) continue;
    if (room->last != nullptr) library_.destroy(room->last);
    if (room->memory != nullptr) library_.free(room->memory);
  }
}

Status ScratchPool::grow(Room& room, int64_t size_bytes) const {
  void* memory = library_.allocate(static_cast<size_t>(size_bytes));
  if (memory == nullptr) return Status(Code::kOutOfMemory, str_cat("no ", size_bytes, " bytes of shared scratch on the device"));
  if (room.recorded) {
    Status status = library_.wait_for(room.last);
    if (!status.ok()) {
      library_.free(memory);
      return status;
    }
  }
  if (room.memory != nullptr) library_.free(room.memory);
  room.memory = memory;
  room.size_bytes = size_bytes;
  return ok_status();
}

Status ScratchPool::run(int device, int64_t size_bytes, EngineContext& context, Stream stream) {
  Room* room = nullptr;
  {
    const std::lock_guard<std::mutex> guard(lock_);
    std::unique_ptr<Room>& found = rooms_[device];
    if (found == nullptr) found = std::make_unique<Room>();
    room = found.get();
  }
  const std::lock_guard<std::mutex> guard(room->lock);
  if (room->last == nullptr) {
    PTERON_ASSIGN(room->last, library_.make_event());
  }
  if (size_bytes > room->size_bytes) PTERON_TRY(grow(*room, size_bytes));
  if (room->recorded) PTERON_TRY(library_.wait_for(room->last, stream));
  PTERON_TRY(context.set_scratch(room->memory, room->size_bytes));
  PTERON_TRY(context.enqueue(stream));
  Status status = library_.record(room->last, stream);
  room->recorded = status.ok();
  if (!status.ok()) return library_.wait(stream).ok() ? ok_status() : std::move(status);
  return ok_status();
}

}  // namespace pteron::tensorrt
