// pteron_cuda::convolution: one call of cuDNN with everything inside, or a plain one and the kernel that does the rest, where no engine does all.
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

using ConvolutionLibrary = DeviceLibrary<Dnn, Convolution>;

struct Parts final : KernelState {
  std::shared_ptr<const KernelState> library;
  Function tail = nullptr;  ///< null if nothing follows the sum
};

constexpr size_t kTailArg = 12;

size_t workspace(std::span<Value* const> /*args*/) { return kLibraryScratch; }

Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  if (args.size() <= kTailArg || args[kTailArg]->tag != Tag::kString) return runtime::bad_argument(kTailArg);
  auto made = std::make_shared<Parts>();
  Session& session = session_of(load);
  PTERON_ASSIGN(made->library, ConvolutionLibrary::of(session, "convolutions", "pteron_emulated_convolution"));
  if (!args[kTailArg]->string.empty()) {
    PTERON_ASSIGN(made->tail, session.function(args[kTailArg]->string, 0));
  }
  return std::shared_ptr<const KernelState>(std::move(made));
}

Status refuse(const Tensor& x, const Tensor& weight, std::string_view why) {
  return Status(Code::kInvalidInput, str_cat("a convolution of ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), " with ", shape_text(weight.sizes()), ": ", why));
}

/// A tensor [N, C, L] or [N, C, H, W] as four dims. Strides of dims of size 1 are what a channels-last image has.
Image image_of(const Tensor& t) {
  Image image;
  image.data = t.view.data;
  const bool line = t.rank() == 3;
  image.sizes = {t.size(0), t.size(1), line ? 1 : t.size(2), t.size(t.rank() - 1)};
  std::array<int64_t, 4> given{t.stride(0), t.stride(1), line ? 0 : t.stride(2), t.stride(t.rank() - 1)};
  const auto& s = image.sizes;
  const std::array<int64_t, 4> dense{s[1] * s[2] * s[3], 1, s[1] * s[3], s[1]};
  for (size_t d = 0; d < 4; ++d) image.strides[d] = s[d] == 1 ? dense[d] : given[d];
  return image;
}

/// A weight [outputs, R, S, inputs] or [outputs, S, inputs] in the order [outputs, inputs, R, S].
Image weight_of(const Tensor& t) {
  Image image;
  image.data = t.view.data;
  const bool line = t.rank() == 3;
  const int64_t outputs = t.size(0), height = line ? 1 : t.size(1), width = t.size(t.rank() - 2), inputs = t.size(t.rank() - 1);
  image.sizes = {outputs, inputs, height, width};
  image.strides = {inputs * height * width, 1, inputs * width, inputs};
  return image;
}

Status convolution_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor* bias, const Tensor* residual, IntList stride, IntList padding, IntList dilation,
                       bool transposed, IntList output_padding, int64_t groups, std::string_view activation, bool tf32, std::string_view /*tail*/, Tensor& out) {
  const int rank = x.rank();
  const auto dims = static_cast<size_t>(rank - 2);
  if (rank < 3 || rank > 4 || weight.rank() != rank || stride.size() != dims || padding.size() != dims || dilation.size() != dims || output_padding.size() != dims || groups < 1) {
    return refuse(x, weight, "ranks or lists do not fit");
  }
  if (weight.dtype() != x.dtype() || out.dtype() != x.dtype()) return refuse(x, weight, "the dtypes differ");
  if (x.size(1) % groups != 0 || weight.size(0) % groups != 0 || x.size(1) != (transposed ? weight.size(0) : weight.size(rank - 1) * groups)) return refuse(x, weight, "the channels do not fit");
  Convolution c;
  c.dtype = x.dtype();
  c.tf32 = tf32;
  c.transposed = transposed;
  c.groups = groups;
  Sizes sizes;
  sizes.push_back(x.size(0));
  sizes.push_back(transposed ? weight.size(rank - 1) * groups : weight.size(0));
  for (size_t d = 0; d < dims; ++d) {
    const int64_t in = x.size(static_cast<int>(d) + 2), kernel = weight.size(static_cast<int>(d) + 1);
    if (stride[d] < 1 || dilation[d] < 1 || padding[d] < 0 || output_padding[d] < 0 || kernel < 1) return refuse(x, weight, "a list has values that make no sense");
    const int64_t size = transposed ? ops::conv::transposed_size(in, kernel, stride[d], padding[d], dilation[d], output_padding[d])
                                    : ops::conv::forward_size(in, kernel, stride[d], padding[d], dilation[d]);
    if (size < 0) return refuse(x, weight, "the windows are larger than the image");
    sizes.push_back(size);
    const size_t to = d + 2 - dims;
    c.stride[to] = stride[d];
    c.padding[to] = padding[d];
    c.dilation[to] = dilation[d];
  }
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  if (x.numel() == 0 || weight.numel() == 0) return Status(Code::kUnsupported, "a convolution of an empty tensor");
  if (!weight.view.is_contiguous()) return refuse(x, weight, "the weight has gaps");
  if (bias != nullptr && (bias->dtype() != x.dtype() || bias->rank() != 1 || bias->size(0) != out.size(1) || (bias->size(0) > 1 && bias->stride(0) != 1))) {
    return refuse(x, weight, "the bias does not fit");
  }
  if (residual != nullptr && (residual->dtype() != x.dtype() || !std::ranges::equal(residual->sizes(), out.sizes()))) return refuse(x, weight, "the residual does not fit");
  c.x = image_of(x);
  c.weight = weight_of(weight);
  c.y = image_of(out);
  if (residual != nullptr) c.residual = image_of(*residual);
  c.bias = bias == nullptr ? nullptr : bias->view.data;
  c.relu = activation == "relu";

  const auto& parts = *static_cast<const Parts*>(context.state);
  const auto& library = *static_cast<const ConvolutionLibrary*>(parts.library.get());
  EventTimer timer(session_of(context));
  const LibraryCall call = library_call(context, timer);
  Status done = library.run(c, call);
  if (done.ok() || done.code() != Code::kUnsupported || parts.tail == nullptr) return done;
  Convolution plain = c;
  plain.residual = {};
  plain.bias = nullptr;
  plain.relu = false;
  PTERON_TRY(library.run(plain, call));
  const std::array<int64_t, 4> dense{c.y.sizes[1] * c.y.sizes[2] * c.y.sizes[3], 1, c.y.sizes[1] * c.y.sizes[3], c.y.sizes[1]};
  if (c.y.strides != dense || (residual != nullptr && c.residual.strides != dense)) return Status(Code::kUnsupported, "a convolution whose result or residual is not channels-last");
  const int64_t count = out.numel();
  const std::array<uint64_t, 5> params{reinterpret_cast<uint64_t>(out.view.data), reinterpret_cast<uint64_t>(c.bias), reinterpret_cast<uint64_t>(c.residual.data), static_cast<uint64_t>(count),
                                       static_cast<uint64_t>(c.y.sizes[1])};
  const int64_t blocks = (count + 1023) / 1024;
  return session_of(context).launch(parts.tail, {static_cast<unsigned>(blocks), 1, 1}, 256, 0, params);
}

constexpr runtime::Kernel kTable[] = {{"pteron_cuda::convolution.out", PTERON_KERNEL(convolution_out), workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> convolution_kernels() { return kTable; }

}  // namespace pteron::cuda
