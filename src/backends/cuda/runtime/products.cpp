// pteron_cuda::product: dims of the operands become rows and batches of one product, or of several where they do not join; what cuBLASLt refuses
// a plain kernel computes. pteron_cuda::row_product: one launch.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <vector>

#include "backends/cuda/runtime/library_kernels.h"
#include "backends/cuda/runtime/plain.h"
#include "base/str_cat.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cuda {

EventTimer::~EventTimer() {
  for (Event event : {begin_, end_}) {
    if (event != nullptr) static_cast<void>(session_.driver().event_destroy(event));
  }
}

Result<float> EventTimer::measure(const std::function<Status()>& work) {
  const Driver& driver = session_.driver();
  for (Event* event : {&begin_, &end_}) {
    if (*event == nullptr) PTERON_TRY(driver.check(driver.event_create(event, 0), "making an event"));
  }
  PTERON_TRY(driver.check(driver.event_record(begin_, session_.stream()), "timing"));
  PTERON_TRY(work());
  PTERON_TRY(driver.check(driver.event_record(end_, session_.stream()), "timing"));
  PTERON_TRY(driver.check(driver.event_wait(end_), "waiting for an event"));
  float milliseconds = 0;
  PTERON_TRY(driver.check(driver.event_elapsed(&milliseconds, begin_, end_), "timing"));
  return milliseconds;
}

LibraryCall library_call(const runtime::KernelContext& context, Timer& timer) {
  Session& session = session_of(context);
  return {session.stream(), context.scratch.data(), context.scratch.size(), session.capturing() ? nullptr : &timer};
}

namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

using ProductLibrary = DeviceLibrary<Blas, Product>;

/// A dim that the operands share: its size, and how far they go along it.
struct Axis {
  int64_t size = 1, a = 0, b = 0, c = 0, d = 0;
  bool follows(const Axis& inner) const {
    return a == inner.a * inner.size && b == inner.b * inner.size && c == inner.c * inner.size && d == inner.d * inner.size;
  }
};

Status refuse(const Tensor& a, const Tensor& b, std::string_view why) {
  return Status(Code::kInvalidInput, str_cat("a product of ", dtype_name(a.dtype()), " ", shape_text(a.sizes()), " and ", dtype_name(b.dtype()), " ",
                                             shape_text(b.sizes()), ": ", why));
}

size_t product_workspace(std::span<Value* const> /*args*/) { return kLibraryScratch; }

Result<std::shared_ptr<const KernelState>> product_prepare(const KernelLoad& load, std::span<Value* const> /*args*/) {
  return ProductLibrary::of(session_of(load), "products", "pteron_emulated_product");
}

/// The axes in front of the matrices, outermost first; joined where they lie one behind the other, those of size 1 left out.
std::vector<Axis> joined(std::span<const Axis> axes) {
  std::vector<Axis> out;
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].size == 1) continue;
    if (!out.empty() && axes[i].follows(out.front())) {
      out.front().size *= axes[i].size;
    } else {
      out.insert(out.begin(), axes[i]);
    }
  }
  return out;
}

Status check_product(const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor* residual, int64_t columns, int64_t depth, const Tensor& out) {
  const bool narrow = a.dtype() == DType::kInt8 || is_float8(a.dtype());
  if ((b.dtype() != a.dtype() && !(is_float8(a.dtype()) && is_float8(b.dtype()))) || out.dtype() != result_of(a.dtype())) return refuse(a, b, str_cat("into ", dtype_name(out.dtype())));
  const bool known = a.dtype() == DType::kFloat32 || a.dtype() == DType::kFloat16 || a.dtype() == DType::kBFloat16 || a.dtype() == DType::kFloat64;
  if (!known && !narrow) return refuse(a, b, "no such dtype");
  if (narrow && (bias != nullptr || residual != nullptr)) return refuse(a, b, "8-bit operands with something behind the sum");
  if (a.size(a.rank() - 1) != depth) return refuse(a, b, "the depths differ");
  if (bias != nullptr && (bias->dtype() != a.dtype() || bias->rank() != 1 || bias->size(0) != columns || (columns > 1 && bias->stride(0) != 1))) return refuse(a, b, "the bias does not fit");
  if (residual != nullptr && (residual->dtype() != a.dtype() || !std::ranges::equal(residual->sizes(), out.sizes()))) return refuse(a, b, "the residual does not fit");
  return ok_status();
}

/// Runs the product for every index of the axes that are neither rows nor the batch.
Status run_all(Session& session, const ProductLibrary& library, const LibraryCall& call, Product p, std::span<const Axis> outer) {
  if (outer.empty()) {
    const bool rows_are_runs = p.columns == 1 || (p.d.column == 1 && (p.c.data == nullptr || p.c.column == 1));
    const bool narrow = result_of(p.dtype) != p.dtype;
    if (!narrow && (p.depth == 0 || !rows_are_runs)) return plain_product(session, p);
    Status done = library.run(p, call);
    return !narrow && refuses(done) ? plain_product(session, p) : done;
  }
  const Axis& axis = outer.front();
  for (int64_t i = 0; i < axis.size; ++i) {
    PTERON_TRY(run_all(session, library, call, p, outer.subspan(1)));
    const auto move = [&](Matrix* m, int64_t stride, DType dtype) {
      if (m->data != nullptr) m->data = static_cast<const std::byte*>(m->data) + static_cast<size_t>(stride) * dtype_size(dtype);
    };
    move(&p.a, axis.a, p.dtype);
    move(&p.b, axis.b, p.b_dtype);
    move(&p.c, axis.c, result_of(p.dtype));
    move(&p.d, axis.d, result_of(p.dtype));
  }
  return ok_status();
}

Status product_out(KernelContext& context, const Tensor& a, const Tensor& b, const Tensor* bias, const Tensor* residual, double alpha, double beta,
                   std::string_view activation, bool turned, bool tf32, Tensor& out) {
  const int rank = a.rank();
  if (rank < 1 || b.rank() < 2 || (b.rank() > 2 && b.rank() != rank)) return refuse(a, b, "the ranks do not fit");
  const int n_dim = b.rank() - (turned ? 2 : 1), k_dim = b.rank() - (turned ? 1 : 2);
  const int64_t columns = b.size(n_dim), depth = b.size(k_dim);
  Sizes sizes;
  for (const int64_t size : a.sizes()) sizes.push_back(size);
  sizes[static_cast<size_t>(rank - 1)] = columns;
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  PTERON_TRY(check_product(a, b, bias, residual, columns, depth, out));
  if (result_of(a.dtype()) != a.dtype() && (alpha != 1 || activation != "none")) return refuse(a, b, "8-bit operands with something behind the sum");
  for (int d = 0; b.rank() > 2 && d + 2 < rank; ++d) {
    if (b.size(d) != a.size(d)) return refuse(a, b, "the batches differ");
  }

  Product p;
  p.dtype = a.dtype();
  p.b_dtype = b.dtype();
  p.tf32 = tf32;
  p.end = activation == "relu" ? ProductEnd::kRelu : activation == "gelu_tanh" ? ProductEnd::kGeluTanh : ProductEnd::kNone;
  p.columns = columns;
  p.depth = depth;
  p.alpha = alpha;
  p.beta = residual == nullptr ? 0 : beta;
  p.bias = bias == nullptr ? nullptr : bias->view.data;
  p.a = {a.view.data, 0, a.stride(rank - 1), 0};
  p.b = {b.view.data, b.stride(k_dim), b.stride(n_dim), 0};
  if (residual != nullptr) p.c = {residual->view.data, 0, residual->stride(rank - 1), 0};
  p.d = {out.view.data, 0, out.stride(rank - 1), 0};

  std::vector<Axis> axes;
  for (int d = 0; d + 1 < rank; ++d) {
    const bool batch = b.rank() > 2 && d + 2 < rank;
    axes.push_back({a.size(d), a.stride(d), batch ? b.stride(d) : 0, residual == nullptr ? 0 : residual->stride(d), out.stride(d)});
  }
  // With one b for all, all the axes may be rows; otherwise only the last.
  Axis rows;
  std::vector<Axis> outer;
  if (b.rank() == 2) {
    outer = joined(axes);
    if (!outer.empty()) rows = outer.back(), outer.pop_back();
  } else {
    rows = axes.back();
    axes.pop_back();
    outer = joined(axes);
  }
  p.rows = rows.size;
  p.a.row = rows.a;
  p.c.row = rows.c;
  p.d.row = rows.d;
  if (!outer.empty()) {
    const Axis batch = outer.back();
    outer.pop_back();
    p.batch = batch.size;
    p.a.batch = batch.a;
    p.b.batch = batch.b;
    p.c.batch = batch.c;
    p.d.batch = batch.d;
  }
  EventTimer timer(session_of(context));
  return run_all(session_of(context), *static_cast<const ProductLibrary*>(context.state), library_call(context, timer), p, outer);
}

struct RowLaunch final : KernelState {
  Function function = nullptr;
};

Result<std::shared_ptr<const KernelState>> row_prepare(const KernelLoad& load, std::span<Value* const> args) {
  if (args.size() < 6 || args[5]->tag != Tag::kString) return runtime::bad_argument(5);
  auto made = std::make_shared<RowLaunch>();
  PTERON_ASSIGN(made->function, session_of(load).function(args[5]->string, 0));
  return std::shared_ptr<const KernelState>(std::move(made));
}

/// The same without vectors, a row at a time.
Status plain_rows(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor* gate, const Tensor* bias, const Tensor* residual, Tensor& out) {
  const int last = x.rank() - 1;
  const auto element = dtype_size(x.dtype());
  if (gate != nullptr && !std::ranges::equal(gate->strides(), weight.strides())) return refuse(x, weight, "the second weight lies otherwise");
  Product p;
  p.dtype = x.dtype();
  p.columns = weight.size(0);
  p.depth = weight.size(1);
  p.beta = residual == nullptr ? 0 : 1;
  p.bias = bias == nullptr ? nullptr : bias->view.data;
  const int64_t rows = out.numel() / p.columns;
  for (int64_t i = 0; i < rows; ++i) {
    const auto row_of = [&](const Tensor* t) -> Matrix {
      if (t == nullptr) return {};
      int64_t at = 0, rest = i;
      for (int d = last; d-- > 0; rest /= t->size(d)) at += rest % t->size(d) * t->stride(d);
      return {static_cast<const std::byte*>(static_cast<const void*>(t->view.data)) + static_cast<size_t>(at) * element, 0, t->stride(last), 0};
    };
    p.a = row_of(&x);
    p.b = {weight.view.data, weight.stride(1), weight.stride(0), 0};
    p.c = row_of(residual);
    p.d = row_of(&out);
    PTERON_TRY(plain_product(session_of(context), p, gate == nullptr ? nullptr : gate->view.data));
  }
  return ok_status();
}

Status narrow_rows_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor* scale, const Tensor* bias, const Tensor* residual, std::string_view /*kernel*/,
                       int64_t columns_a_block, Tensor& out) {
  if (x.rank() < 1 || weight.rank() != 2 || columns_a_block < 1) return refuse(x, weight, "the ranks do not fit");
  const int64_t columns = weight.size(0), depth = weight.size(1) * (weight.dtype() == DType::kUInt8 ? 2 : 1);
  if (weight.dtype() != DType::kInt8 && weight.dtype() != DType::kUInt8) return refuse(x, weight, "no weight of 8 or 4 bits");
  Sizes sizes;
  for (const int64_t size : x.sizes()) sizes.push_back(size);
  sizes[static_cast<size_t>(x.rank() - 1)] = columns;
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  if (out.dtype() != x.dtype() || dtype_size(x.dtype()) > 4 || !is_floating(x.dtype()) || is_float8(x.dtype())) return refuse(x, weight, "no such dtype");
  if (x.size(x.rank() - 1) != depth) return refuse(x, weight, "the depths differ");
  if (bias != nullptr && (bias->dtype() != x.dtype() || bias->rank() != 1 || bias->size(0) != columns)) return refuse(x, weight, "the bias does not fit");
  if (residual != nullptr && (residual->dtype() != x.dtype() || !std::ranges::equal(residual->sizes(), out.sizes()))) return refuse(x, weight, "the residual does not fit");
  if (scale != nullptr && scale->numel() != 1 && scale->numel() % columns != 0) return refuse(x, weight, "the scales do not fit");
  for (const Tensor* t : {&x, &weight, scale, bias, residual, static_cast<const Tensor*>(&out)}) {
    if (t != nullptr && !t->view.is_contiguous()) return refuse(x, weight, "an operand has gaps");
  }
  if (reinterpret_cast<uintptr_t>(weight.view.data) % 16 != 0) return refuse(x, weight, "the weight does not start at a multiple of 16 bytes");
  const auto address = [](const Tensor* t) { return t == nullptr ? uint64_t{0} : reinterpret_cast<uint64_t>(t->view.data); };
  const std::array<uint64_t, 6> params{address(&x), address(&weight), address(scale), address(bias), address(residual), address(&out)};
  const auto blocks = static_cast<unsigned>((columns + columns_a_block - 1) / columns_a_block);
  return session_of(context).launch(static_cast<const RowLaunch*>(context.state)->function, {blocks, 1, 1}, 128, 0, params, false);
}

Status row_product_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor* gate, const Tensor* bias, const Tensor* residual, std::string_view /*kernel*/,
                       int64_t columns_a_block, Tensor& out) {
  if (x.rank() < 1 || weight.rank() != 2 || columns_a_block < 1) return refuse(x, weight, "the ranks do not fit");
  const int64_t columns = weight.size(0), depth = weight.size(1);
  Sizes sizes;
  for (const int64_t size : x.sizes()) sizes.push_back(size);
  sizes[static_cast<size_t>(x.rank() - 1)] = columns;
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  PTERON_TRY(check_product(x, weight, bias, residual, columns, depth, out));
  if (result_of(x.dtype()) != x.dtype()) return refuse(x, weight, "no such dtype");
  if (gate != nullptr && (gate->dtype() != x.dtype() || !std::ranges::equal(gate->sizes(), weight.sizes()))) return refuse(x, weight, "the second weight does not fit");
  bool fits = true;  // the kernel reads rows of weights by vectors
  for (const Tensor* t : {&x, &weight, gate, residual, static_cast<const Tensor*>(&out)}) fits = fits && (t == nullptr || t->view.is_contiguous());
  for (const Tensor* t : {&weight, gate}) fits = fits && (t == nullptr || reinterpret_cast<uintptr_t>(t->view.data) % 16 == 0);
  if (!fits) return plain_rows(context, x, weight, gate, bias, residual, out);
  const auto address = [](const Tensor* t) { return t == nullptr ? uint64_t{0} : reinterpret_cast<uint64_t>(t->view.data); };
  const std::array<uint64_t, 6> params{address(&x), address(&weight), address(gate), address(bias), address(residual), address(&out)};
  const auto blocks = static_cast<unsigned>((columns + columns_a_block - 1) / columns_a_block);
  return session_of(context).launch(static_cast<const RowLaunch*>(context.state)->function, {blocks, 1, 1}, 128, 0, params, false);
}

struct FewRowsLaunch final : KernelState {
  Function function = nullptr;
  unsigned blocks = 0, row_blocks = 0, threads = 0, shared = 0;
};

/// The last two arguments before the results are the kernel's name and its shape: blocks, blocks of rows, threads, bytes of shared memory.
Result<std::shared_ptr<const KernelState>> few_rows_prepare(const KernelLoad& load, std::span<Value* const> args, size_t kernel_arg) {
  if (args.size() < kernel_arg + 3 || args[kernel_arg]->tag != Tag::kString) return runtime::bad_argument(kernel_arg);
  const Value& shape = *args[kernel_arg + 1];
  if (shape.tag != Tag::kIntList || shape.items.size() != 4) return runtime::bad_argument(kernel_arg + 1);
  for (const Value* item : shape.items) {
    if (item->integer < 1 || item->integer > std::numeric_limits<int32_t>::max()) return runtime::bad_argument(kernel_arg + 1);
  }
  auto made = std::make_shared<FewRowsLaunch>();
  made->blocks = static_cast<unsigned>(shape.items[0]->integer);
  made->row_blocks = static_cast<unsigned>(shape.items[1]->integer);
  made->threads = static_cast<unsigned>(shape.items[2]->integer);
  made->shared = static_cast<unsigned>(shape.items[3]->integer);
  PTERON_ASSIGN(made->function, session_of(load).function(args[kernel_arg]->string, shape.items[3]->integer));
  return std::shared_ptr<const KernelState>(std::move(made));
}
Result<std::shared_ptr<const KernelState>> few_rows1_prepare(const KernelLoad& load, std::span<Value* const> args) { return few_rows_prepare(load, args, 7); }
Result<std::shared_ptr<const KernelState>> few_rows2_prepare(const KernelLoad& load, std::span<Value* const> args) { return few_rows_prepare(load, args, 5); }
Result<std::shared_ptr<const KernelState>> few_rows3_prepare(const KernelLoad& load, std::span<Value* const> args) { return few_rows_prepare(load, args, 6); }

struct FewRowsCall {
  const Tensor& x;
  std::array<const Tensor*, 3> weights;
  const Tensor *factors, *bias, *residual;
  double eps;
  std::array<Tensor*, 3> outs;
};

Status few_rows(KernelContext& context, const FewRowsCall& call) {
  const Tensor& x = call.x;
  if (x.rank() < 1) return Status(Code::kInvalidInput, "few_rows: the rows have no dims");
  const int64_t depth = x.size(x.rank() - 1);
  const auto address = [](const Tensor* t) { return t == nullptr ? uint64_t{0} : reinterpret_cast<uint64_t>(t->view.data); };
  for (const Tensor* w : call.weights) {
    if (w == nullptr) continue;
    if (w->rank() != 2 || w->dtype() != x.dtype() || w->size(1) != depth || !w->view.is_contiguous() || address(w) % 16 != 0)
      return refuse(x, *w, "the weight does not fit");
  }
  for (size_t i = 0; i < call.outs.size(); ++i) {
    if (call.outs[i] == nullptr) continue;
    Tensor& out = *call.outs[i];
    Sizes sizes;
    for (const int64_t size : x.sizes()) sizes.push_back(size);
    sizes[static_cast<size_t>(x.rank() - 1)] = call.weights[i]->size(0);
    PTERON_TRY(runtime::resize(out, sizes));
    PTERON_TRY(check_product(x, *call.weights[i], call.bias, call.residual, call.weights[i]->size(0), depth, out));
    if (address(&out) % 4 != 0) return refuse(x, *call.weights[i], "a result does not start at a multiple of 4 bytes");
  }
  if (call.factors != nullptr && (call.factors->dtype() != x.dtype() || call.factors->numel() != depth))
    return refuse(x, *call.weights[0], "the norm's factors do not fit");
  for (const Tensor* t : {&x, call.factors, call.residual, static_cast<const Tensor*>(call.outs[0])}) {
    if (t != nullptr && !t->view.is_contiguous()) return refuse(x, *call.weights[0], "an operand has gaps");
  }
  std::vector<uint64_t> params{address(&x)};
  for (const Tensor* w : call.weights) params.push_back(address(w));
  for (const Tensor* t : {call.factors, call.bias, call.residual}) params.push_back(address(t));
  for (const Tensor* t : call.outs) params.push_back(address(t));
  params.push_back(std::bit_cast<uint64_t>(call.eps));
  const auto& launch = *static_cast<const FewRowsLaunch*>(context.state);
  return session_of(context).launch(launch.function, {launch.blocks, launch.row_blocks, 1}, launch.threads, launch.shared, params);
}

Status few_rows1_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor* up, const Tensor* factors, const Tensor* bias,
                     const Tensor* residual, double eps, std::string_view /*kernel*/, IntList /*shape*/, Tensor& out) {
  return few_rows(context, {x, {&weight, up, nullptr}, factors, bias, residual, eps, {&out, nullptr, nullptr}});
}
Status few_rows2_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor& weight1, const Tensor* factors, double eps,
                     std::string_view /*kernel*/, IntList /*shape*/, Tensor& out, Tensor& out1) {
  return few_rows(context, {x, {&weight, &weight1, nullptr}, factors, nullptr, nullptr, eps, {&out, &out1, nullptr}});
}
Status few_rows3_out(KernelContext& context, const Tensor& x, const Tensor& weight, const Tensor& weight1, const Tensor& weight2, const Tensor* factors,
                     double eps, std::string_view /*kernel*/, IntList /*shape*/, Tensor& out, Tensor& out1, Tensor& out2) {
  return few_rows(context, {x, {&weight, &weight1, &weight2}, factors, nullptr, nullptr, eps, {&out, &out1, &out2}});
}

constexpr runtime::Kernel kTable[] = {
    {"pteron_cuda::few_rows.out", PTERON_KERNEL(few_rows1_out), nullptr, few_rows1_prepare},
    {"pteron_cuda::few_rows2.out", PTERON_KERNEL(few_rows2_out), nullptr, few_rows2_prepare},
    {"pteron_cuda::few_rows3.out", PTERON_KERNEL(few_rows3_out), nullptr, few_rows3_prepare},
    {"pteron_cuda::product.out", PTERON_KERNEL(product_out), product_workspace, product_prepare},
    {"pteron_cuda::narrow_rows.out", PTERON_KERNEL(narrow_rows_out), nullptr, row_prepare},
    {"pteron_cuda::row_product.out", PTERON_KERNEL(row_product_out), nullptr, row_prepare},
};

}  // namespace

std::span<const runtime::Kernel> product_kernels() { return kTable; }

}  // namespace pteron::cuda
