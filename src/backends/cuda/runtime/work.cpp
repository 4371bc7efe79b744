// Sizes of operands, and peaks of architectures.
#include "backends/cuda/runtime/work.h"

#include <algorithm>
#include <vector>

#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

double elements(const Tensor& tensor) { return static_cast<double>(tensor.numel()); }

double bytes_of(std::span<Value* const> args) {
  std::vector<const void*> seen;
  double sum = 0;
  const auto add = [&](const Value& value) {
    if (value.tag != Tag::kTensor || !value.tensor.has_data() || std::ranges::find(seen, value.tensor.view.data) != seen.end()) return;
    seen.push_back(value.tensor.view.data);
    sum += static_cast<double>(value.tensor.view.size_bytes());
  };
  for (const Value* arg : args) {
    if (arg->tag != Tag::kTensorList) {
      add(*arg);
      continue;
    }
    for (const Value* item : arg->items) add(*item);
  }
  return sum;
}

const Tensor* tensor_at(std::span<Value* const> args, size_t index) { return index < args.size() && args[index]->tag == Tag::kTensor ? &args[index]->tensor : nullptr; }

double flops_of(std::string_view name, std::span<Value* const> args) {
  const Tensor *first = tensor_at(args, 0), *second = tensor_at(args, 1), *out = tensor_at(args, args.size() - 1);
  if (first == nullptr || second == nullptr || out == nullptr || first->rank() < 1 || second->rank() < 2) return 0;
  const bool is_rows = name == "pteron_cuda::row_product.out";
  if (is_rows || name == "pteron_cuda::product.out" || name == "pteron_cuda::narrow_rows.out") {
    const bool has_gate = is_rows && tensor_at(args, 2) != nullptr;
    return (has_gate ? 4 : 2) * elements(*out) * static_cast<double>(first->size(first->rank() - 1));
  }
  if (name == "pteron_cuda::convolution.out") {
    // Each element of the result (of a transposed one: of x) meets the weights of one of its channels.
    const bool transposed = args.size() > 7 && args[7]->tag == Tag::kBool && args[7]->integer != 0;
    const auto channels = static_cast<double>(std::max<int64_t>(second->size(0), 1));
    return 2 * elements(transposed ? *first : *out) * elements(*second) / channels;
  }
  if (name == "pteron_cuda::attention.out") return 4 * elements(*first) * static_cast<double>(second->size(second->rank() - 2));
  return 0;
}

/// Dense multiply-adds of 16-bit floats that a multiprocessor makes in a clock, and of float32; NVIDIA's architecture whitepapers (A100, GA102, AD102, H100, B200).
struct Rate {
  int sm;
  double adds16, adds32;
};
constexpr Rate kRates[] = {{75, 512, 64}, {80, 1024, 64}, {86, 512, 128}, {89, 512, 128}, {90, 2048, 128}, {100, 4096, 128}, {120, 512, 128}};

}  // namespace

Work work_of(std::string_view name, std::span<Value* const> args) {
  Work work;
  if (args.empty()) return work;
  work.bytes = bytes_of(args);
  work.flops = flops_of(name, args);
  if (const Tensor* first = tensor_at(args, 0)) work.dtype = first->dtype();
  return work;
}

Peaks peaks_of(int sm, int multiprocessors, int clock_khz, int memory_clock_khz, int bus_bits) {
  Peaks peaks;
  peaks.bytes = 2.0 * 1e3 * memory_clock_khz * bus_bits / 8;  // twice a clock
  const Rate* rate = nullptr;
  for (const Rate& known : kRates) {
    if (known.sm <= sm) rate = &known;
  }
  if (rate == nullptr) return peaks;
  const double clocks = 1e3 * clock_khz * multiprocessors;
  peaks.flops16 = 2 * rate->adds16 * clocks;
  peaks.flops32 = 2 * rate->adds32 * clocks;
  return peaks;
}

double least_ms(const Work& work, const Peaks& peaks) {
  const size_t size = dtype_size(work.dtype);
  const double flops = size == 1 ? 2 * peaks.flops16 : size == 2 ? peaks.flops16 : size == 8 ? peaks.flops32 / 2 : peaks.flops32;
  const double memory = peaks.bytes > 0 ? work.bytes / peaks.bytes : 0, arithmetic = flops > 0 ? work.flops / flops : 0;
  return 1e3 * std::max(memory, arithmetic);
}

}  // namespace pteron::cuda
