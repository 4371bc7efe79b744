// The engine library of builds that found TensorRT and CUDA: calls and error texts, no rules.
#include <NvInfer.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <utility>

#include "backends/tensorrt/runtime/engine_library.h"
#include "base/str_cat.h"

namespace pteron::tensorrt {
namespace {

Status cuda_status(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return ok_status();
  cudaGetLastError();  // a sticky one would be met by the next call of anybody
  return Status(error == cudaErrorMemoryAllocation ? Code::kOutOfMemory : Code::kUnavailable, str_cat("CUDA: ", what, ": ", cudaGetErrorString(error)));
}

Status tensorrt_status(bool good, std::string_view what) {
  return good ? ok_status() : Status(Code::kUnavailable, str_cat("TensorRT: ", what, " failed; its own message is in the log"));
}

class Logger final : public nvinfer1::ILogger {
 public:
  explicit Logger(LogSink* sink) : sink_(sink) {}
  void log(Severity severity, char const* message) noexcept override {
    if (sink_ == nullptr || severity > Severity::kWARNING) return;
    if (severity == Severity::kWARNING)
      sink_->log(LogLevel::kInfo, str_cat("TensorRT warns: ", message));
    else
      sink_->log(LogLevel::kError, str_cat("TensorRT: ", message));
  }

 private:
  LogSink* sink_;
};

std::optional<DType> dtype_of(nvinfer1::DataType type) {
  switch (type) {
    case nvinfer1::DataType::kFLOAT:
      return DType::kFloat32;
    case nvinfer1::DataType::kHALF:
      return DType::kFloat16;
    case nvinfer1::DataType::kBF16:
      return DType::kBFloat16;
    case nvinfer1::DataType::kINT8:
      return DType::kInt8;
    case nvinfer1::DataType::kUINT8:
      return DType::kUInt8;
    case nvinfer1::DataType::kINT32:
      return DType::kInt32;
    case nvinfer1::DataType::kINT64:
      return DType::kInt64;
    case nvinfer1::DataType::kBOOL:
      return DType::kBool;
    case nvinfer1::DataType::kFP8:
      return DType::kFloat8E4M3FN;
    default:
      return std::nullopt;
  }
}

std::vector<int64_t> sizes_of(const nvinfer1::Dims& dims) { return {dims.d, dims.d + std::max<int32_t>(dims.nbDims, 0)}; }

class Context final : public EngineContext {
 public:
  explicit Context(std::unique_ptr<nvinfer1::IExecutionContext> context) : context_(std::move(context)) {}

  Status use_profile(int index, Stream stream) override {
    return tensorrt_status(context_->setOptimizationProfileAsync(index, static_cast<cudaStream_t>(stream)), str_cat("choosing profile ", index));
  }
  Status set_sizes(const std::string& input, std::span<const int64_t> sizes) override {
    nvinfer1::Dims dims{};
    if (sizes.size() > static_cast<size_t>(nvinfer1::Dims::MAX_DIMS))
      return Status(Code::kInvalidInput, str_cat("rank ", sizes.size(), ", TensorRT has at most ", int{nvinfer1::Dims::MAX_DIMS}));
    dims.nbDims = static_cast<int32_t>(sizes.size());
    std::ranges::copy(sizes, dims.d);
    return tensorrt_status(context_->setInputShape(input.c_str(), dims), str_cat("setting sizes ", str_list(sizes)));
  }
  Status infer_sizes() override {
    const int32_t missing = context_->inferShapes(0, nullptr);
    return missing == 0 ? ok_status() : Status(Code::kUnavailable, str_cat("TensorRT: ", missing, " tensors have no sizes"));
  }
  Result<std::vector<int64_t>> sizes(const std::string& tensor) const override {
    const nvinfer1::Dims dims = context_->getTensorShape(tensor.c_str());
    if (dims.nbDims < 0 || dims.nbDims > nvinfer1::Dims::MAX_DIMS) return Status(Code::kUnavailable, str_cat("TensorRT gives no sizes of '", tensor, "'"));
    return sizes_of(dims);
  }
  Status set_address(const std::string& tensor, void* address) override {
    return tensorrt_status(context_->setTensorAddress(tensor.c_str(), address), "binding its address");
  }
  Result<int64_t> scratch_bytes() override { return static_cast<int64_t>(context_->updateDeviceMemorySizeForShapes()); }
  Status set_scratch(void* memory, int64_t size_bytes) override {
    context_->setDeviceMemoryV2(memory, size_bytes);
    return ok_status();
  }
  Status enqueue(Stream stream) override { return tensorrt_status(context_->enqueueV3(static_cast<cudaStream_t>(stream)), "the enqueue"); }

 private:
  std::unique_ptr<nvinfer1::IExecutionContext> context_;
};

class LoadedPlan final : public Engine {
 public:
  LoadedPlan(std::unique_ptr<Logger> logger, std::unique_ptr<nvinfer1::IRuntime> runtime, std::unique_ptr<nvinfer1::ICudaEngine> engine)
      : logger_(std::move(logger)), runtime_(std::move(runtime)), engine_(std::move(engine)) {}

  std::vector<EngineTensor> tensors() const override {
    std::vector<EngineTensor> out;
    for (int32_t i = 0; i < engine_->getNbIOTensors(); ++i) {
      const char* name = engine_->getIOTensorName(i);
      out.push_back({name, engine_->getTensorIOMode(name) == nvinfer1::TensorIOMode::kINPUT, engine_->isShapeInferenceIO(name),
                     dtype_of(engine_->getTensorDataType(name)), sizes_of(engine_->getTensorShape(name))});
    }
    return out;
  }
  int profile_count() const override { return engine_->getNbOptimizationProfiles(); }
  std::optional<ProfileSizes> profile(int index, const std::string& input) const override {
    const nvinfer1::Dims min = engine_->getProfileShape(input.c_str(), index, nvinfer1::OptProfileSelector::kMIN);
    const nvinfer1::Dims max = engine_->getProfileShape(input.c_str(), index, nvinfer1::OptProfileSelector::kMAX);
    if (min.nbDims < 0 || max.nbDims < 0) return std::nullopt;
    return ProfileSizes{sizes_of(min), sizes_of(max)};
  }
  std::optional<std::string> aliased_input(const std::string& output) const override {
    const char* input = engine_->getAliasedInputTensor(output.c_str());
    return input == nullptr ? std::nullopt : std::optional<std::string>(input);
  }
  int64_t total_weight_bytes() const override { return engine_->getEngineStat(nvinfer1::EngineStat::kTOTAL_WEIGHTS_SIZE); }
  int64_t kept_weight_bytes() const override { return engine_->getEngineStat(nvinfer1::EngineStat::kSTRIPPED_WEIGHTS_SIZE); }
  int64_t streamable_bytes() const override { return engine_->getStreamableWeightsSize(); }
  int64_t automatic_budget() const override { return engine_->getWeightStreamingAutomaticBudget(); }
  bool set_budget(int64_t bytes) override { return engine_->setWeightStreamingBudgetV2(bytes); }
  int64_t scratch_bytes() const override { return engine_->getDeviceMemorySizeV2(); }
  Result<std::unique_ptr<EngineContext>> make_context(bool own_scratch) override {
    using Strategy = nvinfer1::ExecutionContextAllocationStrategy;
    std::unique_ptr<nvinfer1::IExecutionContext> context(engine_->createExecutionContext(own_scratch ? Strategy::kSTATIC : Strategy::kUSER_MANAGED));
    PTERON_TRY(tensorrt_status(context != nullptr, "making an execution context"));
    return std::unique_ptr<EngineContext>(std::make_unique<Context>(std::move(context)));
  }

 private:
  // In this order: the runtime needs its logger as long as it lives, the engine its runtime.
  std::unique_ptr<Logger> logger_;
  std::unique_ptr<nvinfer1::IRuntime> runtime_;
  std::unique_ptr<nvinfer1::ICudaEngine> engine_;
};

class TensorRtLibrary final : public EngineLibrary {
 public:
  Status available() const override {
    int count = 0;
    PTERON_TRY(cuda_status(cudaGetDeviceCount(&count), "looking for devices"));
    return count > 0 ? ok_status() : Status(Code::kUnavailable, "there is no CUDA device");
  }
  Result<std::unique_ptr<Engine>> deserialize(std::span<const std::byte> bytes, LogSink* log) const override {
    auto logger = std::make_unique<Logger>(log);
    std::unique_ptr<nvinfer1::IRuntime> runtime(nvinfer1::createInferRuntime(*logger));
    PTERON_TRY(tensorrt_status(runtime != nullptr, "making a runtime"));
    std::unique_ptr<nvinfer1::ICudaEngine> engine(runtime->deserializeCudaEngine(bytes.data(), bytes.size()));
    if (engine == nullptr)
      return Status(Code::kInvalidFile, "TensorRT cannot read the engine (built for another version or GPU?); its own message is in the log");
    return std::unique_ptr<Engine>(std::make_unique<LoadedPlan>(std::move(logger), std::move(runtime), std::move(engine)));
  }

  Result<int> device() const override {
    int present = 0;
    PTERON_TRY(cuda_status(cudaGetDevice(&present), "asking for the device"));
    return present;
  }
  Status set_device(int device) const override { return cuda_status(cudaSetDevice(device), str_cat("choosing device ", device)); }
  bool reads_host_memory(int device) const override {
    int integrated = 0;
    return cuda_status(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, device), "asking").ok() && integrated != 0;
  }
  bool on_device(const void* address) const override {
    cudaPointerAttributes attributes{};
    if (!cuda_status(cudaPointerGetAttributes(&attributes, address), "asking").ok()) return false;
    return attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged;
  }
  void* allocate(size_t size_bytes) const override {
    void* memory = nullptr;
    return cuda_status(cudaMalloc(&memory, size_bytes), "allocating").ok() ? memory : nullptr;
  }
  void free(void* memory) const override { cudaFree(memory); }
  Status copy(void* to, const void* from, size_t size_bytes, Stream stream) const override {
    return cuda_status(cudaMemcpyAsync(to, from, size_bytes, cudaMemcpyDefault, static_cast<cudaStream_t>(stream)), str_cat("copying ", size_bytes, " bytes"));
  }
  Stream own_stream() const override { return cudaStreamPerThread; }
  bool is_capturing(Stream stream) const override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &status) == cudaSuccess && status != cudaStreamCaptureStatusNone;
  }
  Status wait(Stream stream) const override { return cuda_status(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)), "waiting for the engine"); }

  Result<Event> make_event() const override {
    cudaEvent_t event = nullptr;
    PTERON_TRY(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "making an event"));
    return Event(event);
  }
  void destroy(Event event) const override { cudaEventDestroy(static_cast<cudaEvent_t>(event)); }
  Status record(Event event, Stream stream) const override {
    return cuda_status(cudaEventRecord(static_cast<cudaEvent_t>(event), static_cast<cudaStream_t>(stream)), "recording an event");
  }
  Status wait_for(Event event, Stream stream) const override {
    return cuda_status(cudaStreamWaitEvent(static_cast<cudaStream_t>(stream), static_cast<cudaEvent_t>(event), 0), "waiting for an event");
  }
  Status wait_for(Event event) const override { return cuda_status(cudaEventSynchronize(static_cast<cudaEvent_t>(event)), "waiting for an event"); }
};

}  // namespace

const EngineLibrary& engine_library() {
  static const TensorRtLibrary instance;
  return instance;
}

}  // namespace pteron::tensorrt
