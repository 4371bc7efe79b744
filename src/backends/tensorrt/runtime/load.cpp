// Loading: the payload, the engine's bytes, the streaming budget, and what the backend object is made of.
#include <algorithm>
#include <utility>

#include "backends/tensorrt/runtime/allocator.h"
#include "backends/tensorrt/runtime/backend.h"
#include "backends/tensorrt/runtime/delegate.h"
#include "backends/tensorrt/specs.h"
#include "base/str_cat.h"

namespace pteron::tensorrt {

namespace {

thread_local std::optional<Stream> chosen_stream;

/// Errors: kInvalidFile (the key twice).
Result<std::optional<std::string_view>> setting(std::span<const DelegateSetting> settings, std::string_view key) {
  std::optional<std::string_view> found;
  for (const DelegateSetting& entry : settings) {
    if (entry.key != key) continue;
    if (found) return Status(Code::kInvalidFile, str_cat("compile spec ", key, " stands there twice"));
    found = std::string_view(reinterpret_cast<const char*>(entry.value.data()), entry.value.size());
  }
  return found;
}

/// The caller's, else that of the file, else none: the library decides.
Result<std::optional<int64_t>> choose_budget(const TensorRtOptions& options, std::span<const DelegateSetting> settings, LogSink* log) {
  const auto malformed = [](Code code, std::string_view where, std::string_view text) {
    return Status(code, str_cat(where, " is a number of bytes below 2^63, found '", text.substr(0, 40), "'"));
  };
  if (options.weight_streaming_budget && !options.weight_streaming_budget->empty()) {
    const std::optional<int64_t> budget = read_budget(*options.weight_streaming_budget);
    if (!budget) return malformed(Code::kInvalidInput, "option weight_streaming_budget", *options.weight_streaming_budget);
    return budget;
  }
  if (options.weight_streaming_budget && log != nullptr) log->log(LogLevel::kWarning, "option weight_streaming_budget is empty: passed over");
  PTERON_ASSIGN(const std::optional<std::string_view> text, setting(settings, kBudgetSpec));
  if (!text) return std::optional<int64_t>();
  const std::optional<int64_t> budget = read_budget(*text);
  if (!budget) return malformed(Code::kInvalidFile, str_cat("compile spec ", kBudgetSpec), *text);
  return budget;
}

Result<std::span<const std::byte>> find_engine(const Blob& blob, const NamedData& data) {
  if (blob.metadata.engine_key.empty()) return blob.engine;
  const std::optional<std::span<const std::byte>> found = data.find(blob.metadata.engine_key);
  if (!found || found->empty()) {
    return Status(Code::kNotFound, str_cat("the engine '", blob.metadata.engine_key,
                                           "' is neither in a data file nor in the program; load it with the .ptd that was saved with it"));
  }
  PTERON_TRY(data.verify(blob.metadata.engine_key));
  return *found;
}

class TensorRtBackend final : public DelegateBackend {
 public:
  TensorRtBackend(const EngineLibrary& library, const TensorRtOptions& options) : shared_(std::make_shared<Shared>(library)), allocator_(library) {
    shared_->options = options;
  }
  std::string_view id() const override { return kBackendId; }
  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override { return load_engine(request, shared_); }
  DeviceAllocator* device_allocator() const override { return shared_->library.available().ok() ? &allocator_ : nullptr; }

 private:
  std::shared_ptr<Shared> shared_;  // delegates may outlive the backend object
  mutable LibraryAllocator allocator_;  // mutable: of a const backend; it has no state
};

}  // namespace

std::optional<Stream> caller_stream() { return chosen_stream; }

Result<std::unique_ptr<Delegate>> load_engine(const DelegateLoad& request, std::shared_ptr<Shared> shared) {
  const EngineLibrary& library = shared->library;
  PTERON_ASSIGN(const Blob blob, read_blob(request.payload));
  PTERON_TRY(library.available());
  PTERON_ASSIGN(const std::span<const std::byte> bytes, find_engine(blob, request.named_data));
  PTERON_ASSIGN(const std::optional<int64_t> budget, choose_budget(shared->options, request.settings, request.log));
  PTERON_ASSIGN(const std::optional<std::string_view> in_place, setting(request.settings, kInPlaceSpec));
  const auto device = static_cast<int>(blob.metadata.device_id);
  DeviceScope scope(library, device);
  PTERON_TRY(scope.status());
  PTERON_ASSIGN(std::shared_ptr<LoadedEngine> engine, shared->engines.take({bytes, device, budget, shared->options.shared_engines, request.log}));
  auto ports = match_ports(blob.metadata, *engine->engine, shared->options.profile);
  if (!ports.ok()) {
    shared->engines.release(std::move(engine), bytes);
    return std::move(ports).status();
  }
  const size_t inputs = ports->inputs.size(), outputs = ports->outputs.size();
  PTERON_ASSIGN(std::unique_ptr<Delegate> made, make_delegate(shared, std::move(engine), bytes, std::move(ports).value(), request.log, in_place == kHostState));
  request.named_data.release(bytes);
  if (request.log != nullptr)
    request.log->log(LogLevel::kInfo,
                     str_cat("TensorRT engine on cuda:", device, ": ", inputs, " inputs, ", outputs, " outputs, ", blob.metadata.aliases.size(), " in place"));
  return made;
}

std::unique_ptr<DelegateBackend> make_backend(const EngineLibrary& library, const TensorRtOptions& options) {
  return std::make_unique<TensorRtBackend>(library, options);
}

const DelegateBackend& backend() {
  static const TensorRtBackend instance(engine_library(), {});
  return instance;
}

}  // namespace pteron::tensorrt

namespace pteron {

std::unique_ptr<DelegateBackend> make_tensorrt_backend(const TensorRtOptions& options) { return tensorrt::make_backend(tensorrt::engine_library(), options); }

TensorRtStream::TensorRtStream(void* stream) : former_(tensorrt::chosen_stream) { tensorrt::chosen_stream = stream; }
TensorRtStream::~TensorRtStream() { tensorrt::chosen_stream = former_; }

}  // namespace pteron
