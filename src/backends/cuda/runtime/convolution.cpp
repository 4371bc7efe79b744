// pteron_cuda::convolution: one call of cuDNN with everything inside, or a plain one and the kernel that does the rest, where no engine does all. What cuDNN refuses
// altogether (an output padding of a whole stride, an empty image) a plain kernel computes.
#include <algorithm>
#include <array>
#include <limits>

#include "backends/cuda/runtime/library_kernels.h"
#include "backends/cuda/runtime/plain.h"
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
  return Status(Code::kInvalidInput,
                str_cat("a convolution of ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), " with ", shape_text(weight.sizes()), ": ", why));
}

/// Strides of a channels-last image.
std::array<int64_t, 5> dense_strides(const std::array<int64_t, 5>& s) { return {s[1] * s[2] * s[3] * s[4], 1, s[1] * s[3] * s[4], s[1] * s[4], s[1]}; }

/// A tensor [N, C, L], [N, C, H, W] or [N, C, D, H, W] as five dims. Strides of dims of size 1 are what a channels-last image has.
Image image_of(const Tensor& t) {
  Image image;
  image.data = t.view.data;
  image.sizes = {t.size(0), t.size(1), 1, 1, 1};
  std::array<int64_t, 5> given{t.stride(0), t.stride(1), 0, 0, 0};
  for (int d = 2; d < t.rank(); ++d) {
    const auto to = static_cast<size_t>(d + 5 - t.rank());
    image.sizes[to] = t.size(d);
    given[to] = t.stride(d);
  }
  const std::array<int64_t, 5> dense = dense_strides(image.sizes);
  for (size_t d = 0; d < 5; ++d) image.strides[d] = image.sizes[d] == 1 ? dense[d] : given[d];
  return image;
}

/// A weight [outputs, Q, R, S, inputs] with one to three spatial dims in the order [outputs, inputs, Q, R, S].
Image weight_of(const Tensor& t) {
  Image image;
  image.data = t.view.data;
  image.sizes = {t.size(0), t.size(t.rank() - 1), 1, 1, 1};
  for (int d = 1; d + 1 < t.rank(); ++d) image.sizes[static_cast<size_t>(d + 6 - t.rank())] = t.size(d);
  image.strides = dense_strides(image.sizes);
  return image;
}

Status convolution_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor* bias, const Tensor* residual, IntList stride,
                       IntList padding, IntList dilation, bool transposed, IntList output_padding, int64_t groups, std::string_view activation, bool tf32,
                       std::string_view /*tail*/, Tensor& out) {
  const int rank = x.rank();
  const auto dims = static_cast<size_t>(rank - 2);
  if (rank < 3 || rank > 5 || weight.rank() != rank || stride.size() != dims || padding.size() != dims || dilation.size() != dims || output_padding.size() != dims || groups < 1) {
    return refuse(x, weight, "ranks or lists do not fit");
  }
  if (weight.dtype() != x.dtype() || out.dtype() != x.dtype()) return refuse(x, weight, "the dtypes differ");
  if (x.size(1) % groups != 0 || weight.size(0) % groups != 0 || x.size(1) != (transposed ? weight.size(0) : weight.size(rank - 1) * groups))
    return refuse(x, weight, "the channels do not fit");
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
    if (stride[d] < 1 || dilation[d] < 1 || padding[d] < 0 || output_padding[d] < 0 || kernel < 1)
      return refuse(x, weight, "a list has values that make no sense");
    const int64_t size = transposed ? ops::conv::transposed_size(in, kernel, stride[d], padding[d], dilation[d], output_padding[d])
                                    : ops::conv::forward_size(in, kernel, stride[d], padding[d], dilation[d]);
    if (size < 0) return refuse(x, weight, "the windows are larger than the image");
    sizes.push_back(size);
    const size_t to = d + 3 - dims;
    c.stride[to] = stride[d];
    c.padding[to] = padding[d];
    c.dilation[to] = dilation[d];
  }
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  if (!weight.view.is_contiguous()) return refuse(x, weight, "the weight has gaps");
  if (bias != nullptr && (bias->dtype() != x.dtype() || bias->rank() != 1 || bias->size(0) != out.size(1) || (bias->size(0) > 1 && bias->stride(0) != 1))) {
    return refuse(x, weight, "the bias does not fit");
  }
  if (residual != nullptr && (residual->dtype() != x.dtype() || !std::ranges::equal(residual->sizes(), out.sizes())))
    return refuse(x, weight, "the residual does not fit");
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
  if (x.numel() == 0 || weight.numel() == 0) return plain_convolution(session_of(context), c);
  const Status done = library.run(c, call);
  if (!refuses(done)) return done;
  const std::array<int64_t, 5> dense = dense_strides(c.y.sizes);
  if (parts.tail == nullptr || c.y.strides != dense || (residual != nullptr && c.residual.strides != dense)) return plain_convolution(session_of(context), c);
  Convolution sums = c;
  sums.residual = {};
  sums.bias = nullptr;
  sums.relu = false;
  if (const Status bare = library.run(sums, call); !bare.ok()) return refuses(bare) ? plain_convolution(session_of(context), c) : bare;
  const int64_t count = out.numel();
  const std::array<uint64_t, 5> params{reinterpret_cast<uint64_t>(out.view.data), reinterpret_cast<uint64_t>(c.bias),
                                       reinterpret_cast<uint64_t>(c.residual.data), static_cast<uint64_t>(count), static_cast<uint64_t>(c.y.sizes[1])};
  const int64_t blocks = (count + 1023) / 1024;
  return session_of(context).launch(parts.tail, {static_cast<unsigned>(blocks), 1, 1}, 256, 0, params);
}

struct DepthwiseLaunch final : KernelState {
  Function function = nullptr;
  int64_t strip = 0, pairs = 0, strips = 0, shared = 0;
};

constexpr size_t kDepthwiseKernelArg = 6, kDepthwiseShapeArg = 7;

Result<std::shared_ptr<const KernelState>> depthwise_prepare(const KernelLoad& load, std::span<Value* const> args) {
  if (args.size() <= kDepthwiseShapeArg || args[kDepthwiseKernelArg]->tag != Tag::kString) return runtime::bad_argument(kDepthwiseKernelArg);
  const Value& shape = *args[kDepthwiseShapeArg];
  if (shape.tag != Tag::kIntList || shape.items.size() != 4) return runtime::bad_argument(kDepthwiseShapeArg);
  auto made = std::make_shared<DepthwiseLaunch>();
  made->strip = shape.items[0]->integer;
  made->pairs = shape.items[1]->integer;
  made->strips = shape.items[2]->integer;
  made->shared = shape.items[3]->integer;
  if (made->strip < 1 || made->pairs < 1 || made->strips < 1 || made->pairs > 1024 || made->strips > 1024 || made->pairs * made->strips > 1024) {
    return runtime::bad_argument(kDepthwiseShapeArg);
  }
  PTERON_ASSIGN(made->function, session_of(load).function(args[kDepthwiseKernelArg]->string, made->shared));
  return std::shared_ptr<const KernelState>(std::move(made));
}

Status depthwise_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor* bias, const Tensor* residual, IntList stride, IntList padding,
                     std::string_view /*kernel*/, IntList /*shape*/, Tensor& out) {
  if (x.rank() != 4 || weight.rank() != 4 || stride.size() != 2 || padding.size() != 2) return refuse(x, weight, "ranks or lists do not fit");
  if (weight.dtype() != x.dtype() || out.dtype() != x.dtype()) return refuse(x, weight, "the dtypes differ");
  const auto& launch = *static_cast<const DepthwiseLaunch*>(context.state);
  const int64_t channels = x.size(1);
  if (weight.size(0) != channels || weight.size(3) != 1 || channels % (2 * launch.pairs) != 0) return refuse(x, weight, "the channels do not fit");
  Sizes sizes;
  sizes.push_back(x.size(0));
  sizes.push_back(channels);
  for (size_t d = 0; d < 2; ++d) {
    if (stride[d] < 1 || padding[d] < 0) return refuse(x, weight, "a list has values that make no sense");
    const int64_t size = ops::conv::forward_size(x.size(static_cast<int>(d) + 2), weight.size(static_cast<int>(d) + 1), stride[d], padding[d], int64_t{1});
    if (size < 0) return refuse(x, weight, "the windows are larger than the image");
    sizes.push_back(size);
  }
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  if (!weight.view.is_contiguous()) return refuse(x, weight, "the weight has gaps");
  if (bias != nullptr && (bias->dtype() != x.dtype() || bias->rank() != 1 || bias->size(0) != channels || bias->stride(0) != 1))
    return refuse(x, weight, "the bias does not fit");
  if (residual != nullptr && (residual->dtype() != x.dtype() || !std::ranges::equal(residual->sizes(), out.sizes())))
    return refuse(x, weight, "the residual does not fit");
  for (const Tensor* t : {&x, residual, static_cast<const Tensor*>(&out)}) {
    if (t == nullptr) continue;
    const Image image = image_of(*t);
    if (image.strides != dense_strides(image.sizes)) return refuse(x, weight, "an image is not channels-last");
    if (reinterpret_cast<uintptr_t>(t->view.data) % 4 != 0) return refuse(x, weight, "an image does not start at a multiple of 4 bytes");
  }
  const int64_t strips = out.size(0) * out.size(2) * ((out.size(3) + launch.strip - 1) / launch.strip), blocks = (strips + launch.strips - 1) / launch.strips;
  if (blocks > std::numeric_limits<int32_t>::max()) return refuse(x, weight, "the images are too many");
  const auto address = [](const Tensor* t) { return t == nullptr ? uint64_t{0} : reinterpret_cast<uint64_t>(t->view.data); };
  const std::array<uint64_t, 10> params{address(&x),
                                        address(&weight),
                                        address(bias),
                                        address(residual),
                                        address(&out),
                                        static_cast<uint64_t>(x.size(2)),
                                        static_cast<uint64_t>(x.size(3)),
                                        static_cast<uint64_t>(out.size(2)),
                                        static_cast<uint64_t>(out.size(3)),
                                        static_cast<uint64_t>(strips)};
  return session_of(context).launch(launch.function, {static_cast<unsigned>(blocks), static_cast<unsigned>(channels / 2 / launch.pairs), 1},
                                    static_cast<unsigned>(launch.pairs * launch.strips), static_cast<unsigned>(launch.shared), params);
}

constexpr runtime::Kernel kTable[] = {{"pteron_cuda::depthwise.out", PTERON_KERNEL(depthwise_out), nullptr, depthwise_prepare},
                                      {"pteron_cuda::convolution.out", PTERON_KERNEL(convolution_out), workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> convolution_kernels() { return kTable; }

}  // namespace pteron::cuda
