// pteron_cpu::linear: x @ weight^T + bias (+ residual), then an activation; weight and bias are constants.
#include <algorithm>

#include "backends/cpu/runtime/early.h"
#include "backends/cpu/runtime/geometry.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/product.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/copy.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tensor;
using runtime::Value;

struct Linear final : KernelState {
  std::shared_ptr<const KernelState> weights;
  const PackedMatrix* matrix = nullptr;
  std::shared_ptr<const KernelState> work;
  Epilogue epilogue;
};

Status check_constants(const Tensor& weight, const Tensor* bias) {
  if (!weight.read_only || weight.rank() != 2 || weight.dtype() != DType::kFloat32) {
    return Status(Code::kInvalidFile, str_cat("linear: the weight must be a float32 constant of rank 2, found ", dtype_name(weight.dtype()), " ", shape_text(weight.sizes())));
  }
  return check_bias("linear", bias, weight.size(0));
}

// x, weight, bias, residual, activation, low, high, out
Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  const Tensor& weight = args[1]->tensor;
  const Tensor* bias = runtime::Unpack<const Tensor*>::get(*args[2]);
  PTERON_TRY(check_constants(weight, bias));
  auto made = std::make_shared<Linear>();
  PTERON_ASSIGN(made->epilogue, epilogue_of(args[4]->string, runtime::Unpack<double>::get(*args[5]), runtime::Unpack<double>::get(*args[6])));
  if (is_early(load)) return std::shared_ptr<const KernelState>();
  const std::string key = str_cat("linear/", reinterpret_cast<uintptr_t>(weight.view.data), "/", shape_text(weight.sizes()), "/", shape_text(weight.strides()),
                                  "/", bias != nullptr ? reinterpret_cast<uintptr_t>(bias->view.data) : 0);
  PTERON_ASSIGN(made->weights, load.cache->find_or_make(key, [&]() -> Result<std::shared_ptr<const KernelState>> {
    std::vector<int64_t> offsets(static_cast<size_t>(weight.size(1)));
    for (size_t k = 0; k < offsets.size(); ++k) offsets[k] = static_cast<int64_t>(k) * weight.stride(1);
    PTERON_ASSIGN(auto packed, PackedMatrix::make(weight.as<float>(), weight.size(0), weight.stride(0), offsets, bias != nullptr ? bias->as<float>() : nullptr,
                                                  bias != nullptr ? bias->stride(0) : 0, *load.pool));
    return std::shared_ptr<const KernelState>(std::move(packed));
  }));
  PTERON_ASSIGN(made->work, WorkBuffers::shared(*load.cache));
  made->matrix = static_cast<const PackedMatrix*>(made->weights.get());
  return std::shared_ptr<const KernelState>(std::move(made));
}

/// The tensor's rows, copied to `scratch` (which has room for `sizes`) if they do not lie evenly.
Result<EvenRows> rows_in(KernelContext& context, const Tensor& t, std::span<const int64_t> sizes, float* scratch) {
  EvenRows rows{t.as<float>(), 0};
  if (std::ranges::equal(t.sizes(), sizes) && row_stride(t.sizes(), t.strides(), &rows.stride)) return rows;
  const TensorView dense = make_contiguous_view(DType::kFloat32, sizes, scratch);
  PTERON_TRY(ops::copy_tensor(context, t.view, dense));
  return EvenRows{scratch, sizes.back()};
}

size_t bytes_of(std::span<const int64_t> sizes) {
  size_t bytes = sizeof(float);
  for (const int64_t s : sizes) bytes *= static_cast<size_t>(std::max<int64_t>(s, 0));
  return align_up(bytes, uint64_t{64});
}

size_t workspace(std::span<Value* const> args) {
  size_t bytes = bytes_of(args[0]->tensor.sizes()) + bytes_of(args[7]->tensor.sizes());
  if (args[3]->tag == runtime::Tag::kTensor) bytes += bytes_of(args[7]->tensor.sizes());
  return bytes;
}

Status linear_out(KernelContext& context, const Tensor& x, const Tensor&, const Tensor*, const Tensor* residual, std::string_view, double, double, Tensor& out) {
  const Linear& linear = *static_cast<const Linear*>(context.state);
  const int64_t depth = linear.matrix->depth(), columns = linear.matrix->columns();
  if (x.dtype() != DType::kFloat32 || out.dtype() != DType::kFloat32 || x.rank() < 1 || x.size(x.rank() - 1) != depth) {
    return Status(Code::kInvalidInput, str_cat("linear: input ", dtype_name(x.dtype()), " ", shape_text(x.sizes()), ", expected float32 [..., ", depth, "]"));
  }
  if (residual != nullptr && residual->dtype() != DType::kFloat32) return Status(Code::kInvalidInput, "linear: the residual is not float32");
  Sizes sizes;
  for (const int64_t s : x.sizes()) sizes.push_back(s);
  sizes.back() = columns;
  PTERON_TRY(resize(out, sizes));
  Product product;
  product.weights = linear.matrix;
  product.rows = 1;
  for (int d = 0; d + 1 < x.rank(); ++d) product.rows *= x.size(d);
  if (product.rows == 0 || columns == 0) return ok_status();
  std::byte* scratch = context.scratch.data();
  PTERON_ASSIGN(const EvenRows rows, rows_in(context, x, x.sizes(), reinterpret_cast<float*>(scratch)));
  scratch += bytes_of(x.sizes());
  product.rows_of = EvenRows::get;
  product.context = &rows;
  product.epilogue = linear.epilogue;
  product.work = static_cast<const WorkBuffers*>(linear.work.get());
  int64_t out_row = 0;
  const bool direct = row_stride(out.sizes(), out.strides(), &out_row);
  product.c = direct ? out.as<float>() : reinterpret_cast<float*>(scratch);
  product.c_row = direct ? out_row : columns;
  scratch += bytes_of(sizes);
  if (residual != nullptr) {
    PTERON_ASSIGN(const EvenRows added, rows_in(context, *residual, sizes, reinterpret_cast<float*>(scratch)));
    product.residual = added.data;
    product.residual_row = added.stride;
  }
  run_product(product, *context.pool);
  return direct ? ok_status() : ops::copy_tensor(context, make_contiguous_view(DType::kFloat32, sizes, product.c), out.view);
}

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::linear.out", PTERON_KERNEL(linear_out), workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> linear_kernels() { return kRows; }

}  // namespace pteron::cpu
