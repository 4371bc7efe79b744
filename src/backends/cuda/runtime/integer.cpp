// pteron_cuda::integer_sums: one launch of a kernel that sums products of 8-bit integers over windows (aot/integer_text.h says its parameters).
#include <algorithm>
#include <array>

#include "backends/cuda/runtime/library_kernels.h"
#include "base/str_cat.h"
#include "ops/conv/shape.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cuda {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

constexpr size_t kKernelArg = 6;

struct Launch final : KernelState {
  Function function = nullptr;
};

Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  if (args.size() <= kKernelArg || args[kKernelArg]->tag != Tag::kString) return runtime::bad_argument(kKernelArg);
  auto made = std::make_shared<Launch>();
  PTERON_ASSIGN(made->function, session_of(load).function(args[kKernelArg]->string, 0));
  return std::shared_ptr<const KernelState>(std::move(made));
}

Status refuse(const Tensor& x, const Tensor& weight, std::string_view why) {
  return Status(Code::kInvalidInput, str_cat("integer sums of ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), " with ", shape_text(weight.sizes()), ": ", why));
}

/// Pixels lie one behind the other with their channels (dims of size 1 do not count).
bool lies_channels_last(const Tensor& t) {
  int64_t stride = 1;
  const auto fits = [&](int d) {
    const bool good = t.size(d) == 1 || t.stride(d) == stride;
    stride *= t.size(d);
    return good;
  };
  bool good = fits(1);
  for (int d = t.rank() - 1; d >= 2; --d) good = good && fits(d);
  return good && fits(0);
}

Status integer_sums_out(KernelContext& context, const Tensor& x, const Tensor& weight, IntList stride, IntList padding, IntList dilation, int64_t groups,
                        std::string_view /*kernel*/, IntList block, Tensor& out) {
  const int rank = x.rank();
  const auto dims = static_cast<size_t>(std::max(rank - 2, 0));
  if (rank < 3 || rank > 4 || weight.rank() != rank || stride.size() != dims || padding.size() != dims || dilation.size() != dims || groups < 1 || block.size() != 3 ||
      block[0] < 1 || block[1] < 0 || block[2] < 1 || block[2] > 1024) {
    return refuse(x, weight, "ranks or lists do not fit");
  }
  if ((x.dtype() != DType::kInt8 && x.dtype() != DType::kUInt8) || weight.dtype() != DType::kInt8 || out.dtype() != DType::kInt32) return refuse(x, weight, "the dtypes do not fit");
  if (weight.size(0) % groups != 0 || x.size(1) != weight.size(rank - 1) * groups) return refuse(x, weight, "the channels do not fit");
  Sizes sizes;
  sizes.push_back(x.size(0));
  sizes.push_back(weight.size(0));
  for (size_t d = 0; d < dims; ++d) {
    const int at = static_cast<int>(d);
    if (stride[d] < 1 || dilation[d] < 1 || padding[d] < 0 || weight.size(at + 1) < 1) return refuse(x, weight, "a list has values that make no sense");
    const int64_t size = ops::conv::forward_size(x.size(at + 2), weight.size(at + 1), stride[d], padding[d], dilation[d]);
    if (size < 0) return refuse(x, weight, "the windows are larger than the image");
    sizes.push_back(size);
  }
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  if (x.numel() == 0 || weight.numel() == 0) return Status(Code::kUnsupported, "integer sums of an empty tensor");
  if (!weight.view.is_contiguous() || !lies_channels_last(x) || !lies_channels_last(out)) return refuse(x, weight, "an operand is not channels-last");
  for (const Tensor* t : {&x, &weight}) {
    if (reinterpret_cast<uintptr_t>(t->view.data) % 16 != 0) return refuse(x, weight, "an operand does not start at a multiple of 16 bytes");
  }
  const bool line = rank == 3;
  const auto number = [](int64_t n) { return static_cast<uint64_t>(n); };
  const std::array<uint64_t, 8> params{reinterpret_cast<uint64_t>(x.view.data), reinterpret_cast<uint64_t>(weight.view.data), reinterpret_cast<uint64_t>(out.view.data), number(x.size(0)),
                                       number(line ? 1 : x.size(2)), number(x.size(rank - 1)), number(line ? 1 : out.size(2)), number(out.size(rank - 1))};
  const auto parts = [](int64_t count, int64_t size) { return (count + size - 1) / size; };
  const int64_t pixels = out.numel() / out.size(1), outputs = weight.size(0) / groups;
  const std::array<int64_t, 3> grid = block[1] == 0 ? std::array<int64_t, 3>{parts(out.numel(), block[0]), 1, 1} : std::array<int64_t, 3>{parts(pixels, block[0]), parts(outputs, block[1]), groups};
  if (grid[0] > INT32_MAX || grid[1] > 65535 || grid[2] > 65535) return refuse(x, weight, "more blocks than a device takes");
  return session_of(context).launch(static_cast<const Launch*>(context.state)->function, {static_cast<unsigned>(grid[0]), static_cast<unsigned>(grid[1]), static_cast<unsigned>(grid[2])},
                                    static_cast<unsigned>(block[2]), 0, params);
}

constexpr runtime::Kernel kTable[] = {{"pteron_cuda::integer_sums.out", PTERON_KERNEL(integer_sums_out), nullptr, prepare}};

}  // namespace

std::span<const runtime::Kernel> integer_kernels() { return kTable; }

}  // namespace pteron::cuda
