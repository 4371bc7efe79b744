// Convolutions through cuDNN's backend API. Its functions, types and constants are declared here as far as they are used (cudnn_graph.h of cuDNN 9). A graph is
// the convolution, the addition of the residual, that of the bias, and the end; engines are taken in the order of the heuristics, and measured.
#include "backends/cuda/runtime/dnn.h"

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "base/str_cat.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cuda {
namespace {

using Handle = struct DnnContext*;
using Descriptor = void*;

constexpr int kSuccessful = 0;
// Types of attributes.
constexpr int kHandle = 0, kDataType = 1, kBoolean = 2, kInt64 = 3, kFloat = 4, kPointer = 6, kConvolutionMode = 7, kHeuristicMode = 8, kNumericalNote = 11, kPointwiseMode = 14,
              kDescriptor = 15;
// Data types.
constexpr int kFloat32 = 0, kFloat16 = 2, kBFloat16 = 9;
// Kinds of descriptors.
constexpr int kPointwiseDesc = 0, kConvolutionDesc = 1, kEngineDesc = 2, kConfigDesc = 3, kHeuristicDesc = 4, kPlanDesc = 5, kForwardOp = 10, kBackwardDataOp = 12, kPointwiseOp = 13,
              kGraphDesc = 15, kVariantDesc = 16, kTensorDesc = 17;
// Attributes.
constexpr int kPointwiseModeAttr = 0, kPointwisePrecision = 1, kConvolutionType = 100, kConvolutionModeAttr = 101, kConvolutionDilations = 102, kConvolutionStrides = 103,
              kConvolutionPost = 104, kConvolutionPre = 105, kConvolutionDims = 106, kHeuristicModeAttr = 200, kHeuristicGraph = 201, kHeuristicResults = 202, kConfigEngine = 300,
              kPlanHandle = 400, kPlanConfig = 401, kPlanWorkspace = 402, kForwardAlpha = 700, kForwardBeta = 701, kForwardDesc = 702, kForwardW = 703, kForwardX = 704, kForwardY = 705,
              kDataAlpha = 706, kDataBeta = 707, kDataDesc = 708, kDataW = 709, kDataDx = 710, kDataDy = 711, kPointwiseDescAttr = 750, kPointwiseX = 751, kPointwiseB = 752,
              kPointwiseY = 753, kGraphHandle = 800, kGraphOps = 801, kTensorAlignment = 900, kTensorType = 901, kTensorSizes = 902, kTensorStrides = 903, kTensorId = 906,
              kTensorVirtual = 907, kVariantIds = 1000, kVariantPointers = 1001, kVariantWorkspace = 1003, kEngineNotes = 1303;
constexpr int kCrossCorrelation = 1, kModeAdd = 0, kModeRelu = 100, kHeuristicA = 3, kHeuristicFallback = 2;
constexpr int kNoteTensorCore = 0, kNoteDownConverts = 1;

// Names of tensors in a graph.
constexpr int64_t kIdX = 1, kIdWeight = 2, kIdY = 3, kIdResidual = 4, kIdBias = 5, kIdFirstVirtual = 10;

/// Engines that are measured for a shape, how many are asked for, and how often each runs.
constexpr int kMostEngines = 8;
constexpr int64_t kMostOffers = 32;
constexpr int kRepeats = 3;

int type_of(DType dtype) { return dtype == DType::kFloat16 ? kFloat16 : dtype == DType::kBFloat16 ? kBFloat16 : kFloat32; }

}  // namespace

struct Dnn::Library {
  Handle handle = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*set_stream)(Handle, void*) = nullptr;
  int (*make)(int, Descriptor*) = nullptr;
  int (*drop)(Descriptor) = nullptr;
  int (*finalize)(Descriptor) = nullptr;
  int (*set)(Descriptor, int, int, int64_t, const void*) = nullptr;
  int (*get)(Descriptor, int, int, int64_t, int64_t*, void*) = nullptr;
  int (*execute)(Handle, Descriptor, Descriptor) = nullptr;

  ~Library() {
    if (handle != nullptr) destroy(handle);
  }
};

struct Dnn::Plan {
  Library* library = nullptr;
  std::vector<Descriptor> descriptors;  // all that the execution plan may refer to
  Descriptor execution = nullptr;
  std::string refusal;                  // why there is none

  ~Plan() {
    for (auto at = descriptors.rbegin(); at != descriptors.rend(); ++at) library->drop(*at);
  }
};

namespace {

/// Makes and fills descriptors; after the first failure nothing more is done.
template <typename Library>
class Maker {
 public:
  Maker(Library& library, std::vector<Descriptor>& owned) : library_(library), owned_(owned) {}
  bool good() const { return good_; }
  /// Starts anew after a failure.
  void forgive() { good_ = true; }

  Descriptor make(int kind) {
    Descriptor made = nullptr;
    good_ = good_ && library_.make(kind, &made) == kSuccessful;
    if (good_) owned_.push_back(made);
    return made;
  }
  void set(Descriptor to, int attribute, int type, int64_t count, const void* values) { good_ = good_ && library_.set(to, attribute, type, count, values) == kSuccessful; }
  void set_int(Descriptor to, int attribute, int type, int value) { set(to, attribute, type, 1, &value); }
  void set_ints(Descriptor to, int attribute, std::span<const int64_t> values) { set(to, attribute, kInt64, static_cast<int64_t>(values.size()), values.data()); }
  void set_float(Descriptor to, int attribute, float value) { set(to, attribute, kFloat, 1, &value); }
  void set_descriptor(Descriptor to, int attribute, Descriptor value) { set(to, attribute, kDescriptor, 1, &value); }
  /// Reads up to `room` values; gives how many, -1 if there are none to read.
  int64_t get(Descriptor from, int attribute, int type, int64_t room, void* values) {
    int64_t count = 0;
    return good_ && library_.get(from, attribute, type, room, &count, values) == kSuccessful ? count : -1;
  }
  void finalize(Descriptor made) { good_ = good_ && library_.finalize(made) == kSuccessful; }

  Descriptor tensor(int64_t id, int type, std::span<const int64_t> sizes, std::span<const int64_t> strides, int64_t alignment, bool is_virtual) {
    Descriptor made = make(kTensorDesc);
    set_int(made, kTensorType, kDataType, type);
    set_ints(made, kTensorSizes, sizes);
    set_ints(made, kTensorStrides, strides);
    set(made, kTensorId, kInt64, 1, &id);
    set(made, kTensorAlignment, kInt64, 1, &alignment);
    if (is_virtual) set(made, kTensorVirtual, kBoolean, 1, &is_virtual);
    finalize(made);
    return made;
  }

  Descriptor pointwise(int mode, Descriptor x, Descriptor b, Descriptor y) {
    Descriptor form = make(kPointwiseDesc);
    set_int(form, kPointwiseModeAttr, kPointwiseMode, mode);
    set_int(form, kPointwisePrecision, kDataType, kFloat32);
    finalize(form);
    Descriptor made = make(kPointwiseOp);
    set_descriptor(made, kPointwiseDescAttr, form);
    set_descriptor(made, kPointwiseX, x);
    if (b != nullptr) set_descriptor(made, kPointwiseB, b);
    set_descriptor(made, kPointwiseY, y);
    finalize(made);
    return made;
  }

 private:
  Library& library_;
  std::vector<Descriptor>& owned_;
  bool good_ = true;
};

int64_t alignment_of(const void* data) {
  const uint64_t bits = reinterpret_cast<uintptr_t>(data) | 16;
  return static_cast<int64_t>(bits & (~bits + 1));
}

/// Images and lists with a third spatial dim that counts.
bool has_depth(const Convolution& c) { return c.x.sizes[2] != 1 || c.y.sizes[2] != 1 || c.weight.sizes[2] != 1; }

/// What the library gets of five entries (N, C, D, H, W) or three (D, H, W): all, or those without D.
template <size_t n>
std::vector<int64_t> cut(const std::array<int64_t, n>& list, bool deep) {
  std::vector<int64_t> out(list.begin(), list.end());
  if (!deep) out.erase(out.begin() + (n == 5 ? 2 : 0));
  return out;
}

std::string text_of(const Convolution& c) {
  return str_cat(c.transposed ? "a transposed convolution of " : "a convolution of ", dtype_name(c.dtype), " ", shape_text(cut(c.x.sizes, has_depth(c))), " with ", shape_text(cut(c.weight.sizes, has_depth(c))), " in ",
                 c.groups, " groups");
}

/// The graph of the convolution and what follows it; not to be used unless m.good().
template <typename Library>
Descriptor describe(Maker<Library>& m, Handle handle, const Convolution& c) {
  const int type = type_of(c.dtype);
  const bool deep = has_depth(c);
  const auto tensor = [&](int64_t id, const Image& image) {
    return m.tensor(id, type, cut(image.sizes, deep), cut(image.strides, deep), alignment_of(image.data), false);
  };
  const std::vector<int64_t> result_sizes = cut(c.y.sizes, deep), result_strides = cut(c.y.strides, deep);
  const Descriptor x = tensor(kIdX, c.x), weight = tensor(kIdWeight, c.weight), y = tensor(kIdY, c.y);
  Descriptor form = m.make(kConvolutionDesc);
  const int64_t dims = deep ? 3 : 2;
  m.set_int(form, kConvolutionType, kDataType, kFloat32);
  m.set_int(form, kConvolutionModeAttr, kConvolutionMode, kCrossCorrelation);
  m.set(form, kConvolutionDims, kInt64, 1, &dims);
  m.set_ints(form, kConvolutionDilations, cut(c.dilation, deep));
  m.set_ints(form, kConvolutionStrides, cut(c.stride, deep));
  m.set_ints(form, kConvolutionPre, cut(c.padding, deep));
  m.set_ints(form, kConvolutionPost, cut(c.padding, deep));
  m.finalize(form);

  int64_t next_virtual = kIdFirstVirtual;
  int left = (c.residual.data != nullptr ? 1 : 0) + (c.bias != nullptr ? 1 : 0) + (c.relu ? 1 : 0);
  // What an operation gives: the result, or something float32 that only the next one reads.
  const auto result_of_step = [&]() { return left == 0 ? y : m.tensor(next_virtual++, kFloat32, result_sizes, result_strides, 16, true); };
  std::vector<Descriptor> operations;
  Descriptor last = result_of_step();
  Descriptor first = m.make(c.transposed ? kBackwardDataOp : kForwardOp);
  m.set_float(first, c.transposed ? kDataAlpha : kForwardAlpha, 1.0f);
  m.set_float(first, c.transposed ? kDataBeta : kForwardBeta, 0.0f);
  m.set_descriptor(first, c.transposed ? kDataDesc : kForwardDesc, form);
  m.set_descriptor(first, c.transposed ? kDataW : kForwardW, weight);
  m.set_descriptor(first, c.transposed ? kDataDy : kForwardX, x);
  m.set_descriptor(first, c.transposed ? kDataDx : kForwardY, last);
  m.finalize(first);
  operations.push_back(first);
  const auto add = [&](int mode, Descriptor other) {
    --left;
    const Descriptor made = result_of_step();
    operations.push_back(m.pointwise(mode, last, other, made));
    last = made;
  };
  if (c.residual.data != nullptr) add(kModeAdd, tensor(kIdResidual, c.residual));
  if (c.bias != nullptr) {
    std::vector<int64_t> sizes(result_sizes.size(), 1), strides(result_sizes.size(), c.y.sizes[1]);
    sizes[1] = c.y.sizes[1];
    strides[1] = 1;
    add(kModeAdd, m.tensor(kIdBias, type, sizes, strides, alignment_of(c.bias), false));
  }
  if (c.relu) add(kModeRelu, nullptr);
  Descriptor graph = m.make(kGraphDesc);
  m.set(graph, kGraphHandle, kHandle, 1, &handle);
  m.set(graph, kGraphOps, kDescriptor, static_cast<int64_t>(operations.size()), operations.data());
  m.finalize(graph);
  return graph;
}

/// Without TF32 asked for, engines that use tensor cores for float32 are out.
template <typename Library>
bool is_exact(Maker<Library>& m, const Convolution& c, Descriptor config) {
  if (c.dtype != DType::kFloat32 || c.tf32) return true;
  Descriptor engine = m.make(kEngineDesc);
  std::array<int, 16> notes{};
  int64_t noted = 0;
  if (m.get(config, kConfigEngine, kDescriptor, 1, &engine) < 0) return false;
  noted = m.get(engine, kEngineNotes, kNumericalNote, static_cast<int64_t>(notes.size()), notes.data());
  if (noted < 0) return false;
  return std::none_of(notes.begin(), notes.begin() + std::min<int64_t>(noted, 16), [](int note) { return note == kNoteTensorCore || note == kNoteDownConverts; });
}

/// What the library's heuristics of a kind offer for a graph, the best first.
template <typename Library>
std::vector<Descriptor> offers(Maker<Library>& m, Descriptor graph, int heuristics) {
  m.forgive();
  Descriptor heuristic = m.make(kHeuristicDesc);
  m.set_descriptor(heuristic, kHeuristicGraph, graph);
  m.set_int(heuristic, kHeuristicModeAttr, kHeuristicMode, heuristics);
  m.finalize(heuristic);
  if (!m.good()) return {};
  std::vector<Descriptor> configs;
  for (int64_t i = 0; i < kMostOffers; ++i) configs.push_back(m.make(kConfigDesc));
  const int64_t count = m.get(heuristic, kHeuristicResults, kDescriptor, kMostOffers, configs.data());
  configs.resize(static_cast<size_t>(std::clamp<int64_t>(count, 0, kMostOffers)));
  return configs;
}

/// An offer as something that runs; null if it cannot, or not in this scratch memory.
template <typename Library>
Descriptor plan_of(Maker<Library>& m, Handle handle, Descriptor config, uint64_t scratch_bytes) {
  m.forgive();
  Descriptor execution = m.make(kPlanDesc);
  m.set(execution, kPlanHandle, kHandle, 1, &handle);
  m.set_descriptor(execution, kPlanConfig, config);
  m.finalize(execution);
  int64_t bytes = 0;
  if (m.get(execution, kPlanWorkspace, kInt64, 1, &bytes) < 0 || bytes > static_cast<int64_t>(scratch_bytes)) return nullptr;
  return execution;
}

}  // namespace

Dnn::Dnn() : library_(std::make_unique<Library>()) {}
Dnn::~Dnn() { plans_.clear(); }

Result<std::unique_ptr<Dnn>> Dnn::create(Choices* choices) {
  PTERON_ASSIGN(void* const opened, open_cuda_library(kDnnLibrary));
  std::unique_ptr<Dnn> made(new Dnn());
  Library& l = *made->library_;
  const auto find = [&](auto& member, const char* name) -> Status {
    PTERON_ASSIGN(void* const symbol, library_symbol(opened, name));
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(symbol);
    return ok_status();
  };
  size_t (*version)() = nullptr;
  PTERON_TRY(find(version, "cudnnGetVersion"));
  made->choices_ = choices;
  made->version_ = str_cat("cuDNN ", version());
  PTERON_TRY(find(l.create, "cudnnCreate"));
  PTERON_TRY(find(l.destroy, "cudnnDestroy"));
  PTERON_TRY(find(l.set_stream, "cudnnSetStream"));
  PTERON_TRY(find(l.make, "cudnnBackendCreateDescriptor"));
  PTERON_TRY(find(l.drop, "cudnnBackendDestroyDescriptor"));
  PTERON_TRY(find(l.finalize, "cudnnBackendFinalize"));
  PTERON_TRY(find(l.set, "cudnnBackendSetAttribute"));
  PTERON_TRY(find(l.get, "cudnnBackendGetAttribute"));
  PTERON_TRY(find(l.execute, "cudnnBackendExecute"));
  if (const int result = l.create(&l.handle); result != kSuccessful) {
    l.handle = nullptr;
    return Status(Code::kUnavailable, str_cat("cuDNN does not start (its status ", result, ")"));
  }
  return made;
}

Status Dnn::run(const Convolution& c, const LibraryCall& call) {
  const std::lock_guard lock(mutex_);
  if (library_->set_stream(library_->handle, call.stream) != kSuccessful) return Status(Code::kInternal, "cuDNN refuses the stream");
  PTERON_ASSIGN(Plan* const plan, plan_for(c, call));
  return launch(c, call, plan->execution);
}

Result<Dnn::Plan*> Dnn::plan_for(const Convolution& c, const LibraryCall& call) {
  Key key{};
  size_t at = 0;
  key[at++] = static_cast<int64_t>(c.dtype) << 8 | (c.tf32 ? 1 : 0) | (c.transposed ? 2 : 0) | (c.relu ? 4 : 0) | (c.bias != nullptr ? 8 : 0) | (c.residual.data != nullptr ? 16 : 0);
  key[at++] = c.groups;
  int64_t alignments = 0;
  for (const void* data : {c.x.data, c.weight.data, static_cast<const void*>(c.y.data), c.residual.data, c.bias}) alignments = alignments << 8 | alignment_of(data);
  key[at++] = alignments;
  key[at++] = static_cast<int64_t>(call.scratch_bytes);
  for (const Image* image : {&c.x, &c.weight, &c.y, &c.residual}) {
    for (size_t d = 0; d < 5; ++d) key[at++] = image->sizes[d], key[at++] = image->strides[d];
  }
  for (const auto* list : {&c.stride, &c.padding, &c.dilation}) {
    for (const int64_t entry : *list) key[at++] = entry;
  }
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    auto plan = std::make_unique<Plan>();
    plan->library = library_.get();
    const Status built = build(c, call, key, plan.get());
    if (!built.ok() && built.code() != Code::kUnsupported) return built;
    if (!built.ok()) plan->refusal = built.message();
    found = plans_.emplace(key, std::move(plan)).first;
  }
  if (found->second->execution == nullptr) return Status(Code::kUnsupported, found->second->refusal);
  return found->second.get();
}

Status Dnn::build(const Convolution& c, const LibraryCall& call, const Key& key, Plan* plan) {
  Library& l = *library_;
  Maker<Library> m(l, plan->descriptors);
  const Descriptor graph = describe(m, l.handle, c);
  if (!m.good()) return Status(Code::kUnsupported, str_cat("cuDNN refuses the description of ", text_of(c)));
  const std::string name = choices_ == nullptr ? std::string() : choices_->key(version_, key);
  const std::optional<std::string> chosen = name.empty() ? std::nullopt : choices_->find(name);
  const bool has_end = c.residual.data != nullptr || c.bias != nullptr || c.relu;
  int tried = 0;
  float least = std::numeric_limits<float>::infinity();
  std::string choice;
  for (const int heuristics : {kHeuristicA, kHeuristicFallback}) {
    if (plan->execution != nullptr) break;  // the fallback is for what the heuristic knows nothing about
    const std::vector<Descriptor> configs = offers(m, graph, heuristics);
    for (size_t i = 0; i < configs.size() && tried < kMostEngines; ++i) {
      const std::string offer = str_cat(heuristics, ":", i);
      if (chosen.has_value() && offer != *chosen) continue;
      if (!is_exact(m, c, configs[i])) continue;
      const Descriptor execution = plan_of(m, l.handle, configs[i], call.scratch_bytes);
      if (execution == nullptr) continue;
      ++tried;
      if (chosen.has_value() || call.timer == nullptr) {
        plan->execution = execution;
        return ok_status();
      }
      PTERON_ASSIGN(const float time, shortest_time(c, call, execution));
      if (time < least) plan->execution = execution, least = time, choice = offer;
    }
  }
  if (plan->execution == nullptr && chosen.has_value()) {  // the file says what the library does not offer
    choices_->forget(name);
    return build(c, call, key, plan);
  }
  if (plan->execution == nullptr) return Status(Code::kUnsupported, str_cat("cuDNN has no engine for ", text_of(c), has_end ? " with what follows it" : ""));
  if (!name.empty()) choices_->put(name, choice);
  return ok_status();
}

Result<float> Dnn::shortest_time(const Convolution& c, const LibraryCall& call, void* execution) {
  float shortest = std::numeric_limits<float>::infinity();
  if (!launch(c, call, execution).ok()) return shortest;
  for (int k = 0; k < kRepeats; ++k) {
    PTERON_ASSIGN(const float time, call.timer->measure([&] { return launch(c, call, execution); }));
    shortest = std::min(shortest, time);
  }
  return shortest;
}

Status Dnn::launch(const Convolution& c, const LibraryCall& call, void* execution) {
  Library& l = *library_;
  std::vector<Descriptor> owned;
  Maker<Library> m(l, owned);
  std::vector<int64_t> ids{kIdX, kIdWeight, kIdY};
  std::vector<const void*> data{c.x.data, c.weight.data, c.y.data};
  if (c.residual.data != nullptr) ids.push_back(kIdResidual), data.push_back(c.residual.data);
  if (c.bias != nullptr) ids.push_back(kIdBias), data.push_back(c.bias);
  Descriptor variant = m.make(kVariantDesc);
  m.set(variant, kVariantIds, kInt64, static_cast<int64_t>(ids.size()), ids.data());
  m.set(variant, kVariantPointers, kPointer, static_cast<int64_t>(data.size()), data.data());
  m.set(variant, kVariantWorkspace, kPointer, 1, &call.scratch);
  m.finalize(variant);
  const int result = m.good() ? l.execute(l.handle, execution, variant) : -1;
  for (Descriptor made : owned) l.drop(made);
  if (result == kSuccessful) return ok_status();
  return Status(Code::kInternal, str_cat("cuDNN fails in ", text_of(c), " (its status ", result, ")"));
}

}  // namespace pteron::cuda
