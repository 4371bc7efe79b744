// Products through cuBLASLt. Its functions, types and constants are declared here as far as they are used (cublasLt.h, cublas_api.h and library_types.h of
// CUDA 13.0). It counts in columns: our row-major d is its transposed result, so that our b is its first operand.
#include "backends/cuda/runtime/blas.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/str_cat.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using Handle = struct LtContext*;
using Descriptor = struct LtDescriptor*;
using Layout = struct LtLayout*;
using Preference = struct LtPreference*;

struct Algorithm {
  uint64_t data[8];
};
struct Heuristic {
  Algorithm algorithm;
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

constexpr int kSuccessful = 0;
constexpr int kTypeFloat32 = 0, kTypeFloat64 = 1, kTypeFloat16 = 2, kTypeInt8 = 3, kTypeInt32 = 10, kTypeBFloat16 = 14, kTypeFloat8E4M3 = 28, kTypeFloat8E5M2 = 29;
constexpr int kComputeFloat32 = 68, kComputeTf32 = 77, kComputeFloat64 = 70, kComputeInt32 = 72;
constexpr int kDescTransA = 3, kDescTransB = 4, kDescEpilogue = 7, kDescBiasPointer = 8;
constexpr int kLayoutBatchCount = 5, kLayoutBatchStride = 6;
constexpr int kPreferenceWorkspace = 1, kPreferenceAlignmentA = 5;  // of b, c and d: the next three
constexpr int kOpNone = 0, kOpTransposed = 1;
constexpr int kEndDefault = 1, kEndRelu = 2, kEndBias = 4, kEndGelu = 32;

/// Algorithms that are measured for a shape, and how often.
constexpr int kMostAlgorithms = 8;
constexpr int kRepeats = 3;

int type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return kTypeFloat64;
    case DType::kFloat16: return kTypeFloat16;
    case DType::kBFloat16: return kTypeBFloat16;
    case DType::kInt8: return kTypeInt8;
    case DType::kInt32: return kTypeInt32;
    case DType::kFloat8E4M3FN: return kTypeFloat8E4M3;
    case DType::kFloat8E5M2: return kTypeFloat8E5M2;
    default: return kTypeFloat32;
  }
}

uint32_t alignment_of(const void* data, int64_t row, int64_t batch, size_t element) {
  uint64_t bits = reinterpret_cast<uintptr_t>(data) | static_cast<uint64_t>(row) * element | static_cast<uint64_t>(batch) * element | 256;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

/// A matrix of `rows` x `columns` as the library sees it: leading dimension, and whether our columns are its columns.
struct Operand {
  bool turned = false;  ///< our rows lie one behind the other along the first dim: column stride 1 is false
  int64_t lead = 0;
};

Operand operand_of(int64_t rows, int64_t columns, const Matrix& m) {
  if (columns == 1 || m.column == 1) {
    const bool fits = rows == 1 || m.row >= columns;
    if (fits) return {false, std::max<int64_t>(rows == 1 ? columns : m.row, 1)};
  }
  return {true, std::max<int64_t>(columns == 1 ? rows : m.column, 1)};
}

}  // namespace

struct Blas::Library {
  Handle handle = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*matmul)(Handle, Descriptor, const void*, const void*, Layout, const void*, Layout, const void*, const void*, Layout, void*, Layout, const Algorithm*, void*,
                size_t, void*) = nullptr;
  int (*layout_create)(Layout*, int, uint64_t, uint64_t, int64_t) = nullptr;
  int (*layout_destroy)(Layout) = nullptr;
  int (*layout_set)(Layout, int, const void*, size_t) = nullptr;
  int (*descriptor_create)(Descriptor*, int, int) = nullptr;
  int (*descriptor_destroy)(Descriptor) = nullptr;
  int (*descriptor_set)(Descriptor, int, const void*, size_t) = nullptr;
  int (*preference_create)(Preference*) = nullptr;
  int (*preference_destroy)(Preference) = nullptr;
  int (*preference_set)(Preference, int, const void*, size_t) = nullptr;
  int (*heuristic)(Handle, Descriptor, Layout, Layout, Layout, Layout, Preference, int, Heuristic*, int*) = nullptr;

  ~Library() {
    if (handle != nullptr) destroy(handle);
  }
};

/// What a shape is run with.
struct Blas::Plan {
  Library* library = nullptr;
  Descriptor descriptor = nullptr;
  Layout first = nullptr, second = nullptr, third = nullptr, result = nullptr;  // our b, a, c, d
  Algorithm algorithm{};
  size_t workspace_bytes = 0;

  ~Plan() {
    for (Layout layout : {first, second, third, result}) {
      if (layout != nullptr) library->layout_destroy(layout);
    }
    if (descriptor != nullptr) library->descriptor_destroy(descriptor);
  }
};

Blas::Blas() : library_(std::make_unique<Library>()) {}
Blas::~Blas() = default;

Result<std::unique_ptr<Blas>> Blas::create(Choices* choices) {
  PTERON_ASSIGN(void* const opened, open_cuda_library(kBlasLibrary));
  std::unique_ptr<Blas> made(new Blas());
  Library& l = *made->library_;
  const auto find = [&](auto& member, const char* name) -> Status {
    PTERON_ASSIGN(void* const symbol, library_symbol(opened, name));
    member = reinterpret_cast<std::remove_reference_t<decltype(member)>>(symbol);
    return ok_status();
  };
  size_t (*version)() = nullptr;
  PTERON_TRY(find(version, "cublasLtGetVersion"));
  made->choices_ = choices;
  made->version_ = str_cat("cuBLASLt ", version());
  PTERON_TRY(find(l.create, "cublasLtCreate"));
  PTERON_TRY(find(l.destroy, "cublasLtDestroy"));
  PTERON_TRY(find(l.matmul, "cublasLtMatmul"));
  PTERON_TRY(find(l.layout_create, "cublasLtMatrixLayoutCreate"));
  PTERON_TRY(find(l.layout_destroy, "cublasLtMatrixLayoutDestroy"));
  PTERON_TRY(find(l.layout_set, "cublasLtMatrixLayoutSetAttribute"));
  PTERON_TRY(find(l.descriptor_create, "cublasLtMatmulDescCreate"));
  PTERON_TRY(find(l.descriptor_destroy, "cublasLtMatmulDescDestroy"));
  PTERON_TRY(find(l.descriptor_set, "cublasLtMatmulDescSetAttribute"));
  PTERON_TRY(find(l.preference_create, "cublasLtMatmulPreferenceCreate"));
  PTERON_TRY(find(l.preference_destroy, "cublasLtMatmulPreferenceDestroy"));
  PTERON_TRY(find(l.preference_set, "cublasLtMatmulPreferenceSetAttribute"));
  PTERON_TRY(find(l.heuristic, "cublasLtMatmulAlgoGetHeuristic"));
  if (const int result = l.create(&l.handle); result != kSuccessful) {
    l.handle = nullptr;
    return Status(Code::kUnavailable, str_cat("cuBLASLt does not start (its status ", result, ")"));
  }
  return made;
}

Status Blas::run(const Product& p, const LibraryCall& call) {
  if (!is_operand(p.rows, p.depth, p.a.row, p.a.column) || !is_operand(p.depth, p.columns, p.b.row, p.b.column)) {
    return Status(Code::kUnsupported, str_cat("a product [", p.rows, ",", p.depth, "] x [", p.depth, ",", p.columns, "] of operands with strides [", p.a.row, ",", p.a.column, "] and [",
                                              p.b.row, ",", p.b.column, "]: one must be 1, and no elements overlap"));
  }
  const std::lock_guard lock(mutex_);
  PTERON_ASSIGN(Plan* const plan, plan_for(p, call));
  return launch(p, call, plan, &plan->algorithm);
}

Result<Blas::Plan*> Blas::plan_for(const Product& p, const LibraryCall& call) {
  const size_t element = dtype_size(p.dtype), result_element = dtype_size(result_of(p.dtype));
  const Operand a = operand_of(p.rows, p.depth, p.a), b = operand_of(p.depth, p.columns, p.b);
  const std::array<uint32_t, 4> alignment{alignment_of(p.b.data, b.lead, p.b.batch, element), alignment_of(p.a.data, a.lead, p.a.batch, element),
                                          alignment_of(p.c.data, p.c.row, p.c.batch, result_element), alignment_of(p.d.data, p.d.row, p.d.batch, result_element)};
  uint64_t alignments = 0;
  for (const uint32_t bytes : alignment) alignments = alignments << 16 | bytes;
  const int64_t flags = static_cast<int64_t>(p.b_dtype) << 16 | static_cast<int64_t>(p.dtype) << 8 | static_cast<int64_t>(p.end) << 4 | (p.tf32 ? 8 : 0) | (p.bias != nullptr ? 4 : 0) | (p.c.data != nullptr ? 2 : 0);
  const Key key{flags,     p.batch,   p.rows,    p.columns, p.depth,   a.lead, a.turned ? 1 : 0, p.a.batch, b.lead, b.turned ? 1 : 0, p.b.batch, p.c.data == nullptr ? 0 : p.c.row,
                p.c.batch, p.d.row,   p.d.batch, static_cast<int64_t>(alignments), static_cast<int64_t>(call.scratch_bytes), 0};
  if (const auto found = plans_.find(key); found != plans_.end()) return found->second.get();

  auto plan = std::make_unique<Plan>();
  Library& l = *library_;
  plan->library = &l;
  const DType result = result_of(p.dtype);
  const bool integers = result == DType::kInt32;
  const int compute = integers ? kComputeInt32 : p.dtype == DType::kFloat64 ? kComputeFloat64 : p.dtype == DType::kFloat32 && p.tf32 ? kComputeTf32 : kComputeFloat32;
  bool good = l.descriptor_create(&plan->descriptor, compute, integers ? kTypeInt32 : p.dtype == DType::kFloat64 ? kTypeFloat64 : kTypeFloat32) == kSuccessful;
  const auto set = [&](int attribute, const auto& value) { good = good && l.descriptor_set(plan->descriptor, attribute, &value, sizeof value) == kSuccessful; };
  const int32_t first_op = b.turned ? kOpTransposed : kOpNone, second_op = a.turned ? kOpTransposed : kOpNone;
  set(kDescTransA, first_op);
  set(kDescTransB, second_op);
  int32_t end = p.end == ProductEnd::kRelu ? kEndRelu : p.end == ProductEnd::kGeluTanh ? kEndGelu : 0;
  if (p.bias != nullptr) end |= kEndBias;
  if (end == 0) end = kEndDefault;
  set(kDescEpilogue, end);
  if (p.bias != nullptr) set(kDescBiasPointer, p.bias);
  const auto layout = [&](Layout* made, DType dtype, int64_t rows, int64_t columns, int64_t lead, int64_t batch_stride) {
    good = good && l.layout_create(made, type_of(dtype), static_cast<uint64_t>(rows), static_cast<uint64_t>(columns), lead) == kSuccessful;
    const auto count = static_cast<int32_t>(p.batch);
    if (p.batch > 1) {
      good = good && l.layout_set(*made, kLayoutBatchCount, &count, sizeof count) == kSuccessful;
      good = good && l.layout_set(*made, kLayoutBatchStride, &batch_stride, sizeof batch_stride) == kSuccessful;
    }
  };
  // In its columns: b is [columns, depth], or [depth, columns] to be transposed.
  layout(&plan->first, p.b_dtype, b.turned ? p.depth : p.columns, b.turned ? p.columns : p.depth, b.lead, p.b.batch);
  layout(&plan->second, p.dtype, a.turned ? p.rows : p.depth, a.turned ? p.depth : p.rows, a.lead, p.a.batch);
  const int64_t d_lead = p.rows == 1 ? std::max(p.d.row, p.columns) : p.d.row;
  const int64_t c_lead = p.c.data == nullptr ? d_lead : p.rows == 1 ? std::max(p.c.row, p.columns) : p.c.row;
  layout(&plan->third, result, p.columns, p.rows, c_lead, p.c.data == nullptr ? p.d.batch : p.c.batch);
  layout(&plan->result, result, p.columns, p.rows, d_lead, p.d.batch);
  if (!good) return Status(Code::kInternal, "cuBLASLt refuses the description of a product");
  PTERON_TRY(choose(p, call, key, plan.get()));
  return (plans_[key] = std::move(plan)).get();
}

Status Blas::choose(const Product& p, const LibraryCall& call, const Key& key, Plan* plan) {
  Library& l = *library_;
  const size_t element = dtype_size(p.dtype), result_element = dtype_size(result_of(p.dtype));
  Preference preference = nullptr;
  bool good = l.preference_create(&preference) == kSuccessful;
  const auto set = [&](int attribute, const auto& value) { good = good && l.preference_set(preference, attribute, &value, sizeof value) == kSuccessful; };
  set(kPreferenceWorkspace, call.scratch_bytes);
  const Operand a = operand_of(p.rows, p.depth, p.a), b = operand_of(p.depth, p.columns, p.b);
  const Matrix& c = p.c.data == nullptr ? p.d : p.c;
  set(kPreferenceAlignmentA, alignment_of(p.b.data, b.lead, p.b.batch, element));
  set(kPreferenceAlignmentA + 1, alignment_of(p.a.data, a.lead, p.a.batch, element));
  set(kPreferenceAlignmentA + 2, alignment_of(c.data, c.row, c.batch, result_element));
  set(kPreferenceAlignmentA + 3, alignment_of(p.d.data, p.d.row, p.d.batch, result_element));
  std::array<Heuristic, kMostAlgorithms> found{};
  int count = 0;
  int result = -1;
  if (good) result = l.heuristic(l.handle, plan->descriptor, plan->first, plan->second, plan->third, plan->result, preference, kMostAlgorithms, found.data(), &count);
  if (preference != nullptr) l.preference_destroy(preference);
  if (result != kSuccessful || count < 1) {
    return Status(Code::kUnsupported, str_cat("cuBLASLt has no algorithm for a product of ", dtype_name(p.dtype), " [", p.rows, ",", p.depth, "] x [", p.depth, ",", p.columns,
                                              "] in ", p.batch, " batches (its status ", result, ")"));
  }
  // A choice is one of the offers, byte for byte; anything else is none.
  const auto bytes_of = [](const Algorithm& algorithm) { return std::string_view(reinterpret_cast<const char*>(algorithm.data), sizeof algorithm.data); };
  const std::string name = choices_ == nullptr || count == 1 ? std::string() : choices_->key(version_, key);
  const std::optional<std::string> chosen = name.empty() ? std::nullopt : choices_->find(name);
  int best = -1;
  for (int i = 0; i < count && chosen.has_value(); ++i) {
    if (found[static_cast<size_t>(i)].state == kSuccessful && bytes_of(found[static_cast<size_t>(i)].algorithm) == *chosen) best = i;
  }
  const bool is_known = best >= 0;
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < count && !is_known; ++i) {
    if (found[static_cast<size_t>(i)].state != kSuccessful) continue;
    const Heuristic& offer = found[static_cast<size_t>(i)];
    if (best < 0) best = i;  // the heuristic's favourite, if nothing can be measured
    if (call.timer == nullptr || count == 1) break;
    plan->workspace_bytes = offer.workspace_bytes;
    if (!launch(p, call, plan, &offer.algorithm).ok()) {
      if (best == i) best = -1;
      continue;
    }
    float shortest = std::numeric_limits<float>::infinity();
    for (int k = 0; k < kRepeats; ++k) {
      PTERON_ASSIGN(const float time, call.timer->measure([&] { return launch(p, call, plan, &offer.algorithm); }));
      shortest = std::min(shortest, time);
    }
    if (shortest < least) best = i, least = shortest;
  }
  if (best < 0) return Status(Code::kUnsupported, str_cat("no algorithm of cuBLASLt runs a product of ", dtype_name(p.dtype), " [", p.rows, ",", p.depth, "] x [", p.depth, ",", p.columns, "]"));
  if (!is_known && !name.empty() && call.timer != nullptr) choices_->put(name, bytes_of(found[static_cast<size_t>(best)].algorithm));
  plan->algorithm = found[static_cast<size_t>(best)].algorithm;
  plan->workspace_bytes = found[static_cast<size_t>(best)].workspace_bytes;
  return ok_status();
}

Status Blas::launch(const Product& p, const LibraryCall& call, Plan* plan, const void* algorithm) {
  Library& l = *library_;
  const auto alpha = static_cast<float>(p.alpha), beta = static_cast<float>(p.c.data == nullptr ? 0 : p.beta);
  const double wide_alpha = p.alpha, wide_beta = p.c.data == nullptr ? 0 : p.beta;
  const auto whole_alpha = static_cast<int32_t>(p.alpha);
  const int32_t whole_beta = 0;
  const bool wide = p.dtype == DType::kFloat64, integers = p.dtype == DType::kInt8;
  const void* const first = wide ? static_cast<const void*>(&wide_alpha) : integers ? static_cast<const void*>(&whole_alpha) : &alpha;
  const void* const second = wide ? static_cast<const void*>(&wide_beta) : integers ? static_cast<const void*>(&whole_beta) : &beta;
  if (p.bias != nullptr && l.descriptor_set(plan->descriptor, kDescBiasPointer, &p.bias, sizeof p.bias) != kSuccessful) return Status(Code::kInternal, "cuBLASLt refuses a bias");
  const void* c = p.c.data == nullptr ? p.d.data : p.c.data;
  const int result = l.matmul(l.handle, plan->descriptor, first, p.b.data, plan->first, p.a.data, plan->second,
                              second, c, plan->third, const_cast<void*>(p.d.data), plan->result,
                              static_cast<const Algorithm*>(algorithm), call.scratch, std::min<size_t>(plan->workspace_bytes, call.scratch_bytes), call.stream);
  if (result == kSuccessful) return ok_status();
  return Status(Code::kInternal, str_cat("cuBLASLt fails in a product of ", dtype_name(p.dtype), " [", p.rows, ",", p.depth, "] x [", p.depth, ",", p.columns, "] (its status ", result, ")"));
}

}  // namespace pteron::cuda
