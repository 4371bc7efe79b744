// Scans of recurrent networks for the runtime: the state goes through all time steps of one direction; the inputs' products come in as gates.
// Compile half: op.cpp.
#include <algorithm>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/gemm.h"
#include "ops/gemm_pack.h"
#include "ops/math.h"
#include "runtime/kernel.h"

namespace pteron::ops::rnn {
namespace {

using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

template <typename C>
C sigmoid(C x) {
  return C{1} / (C{1} + math::exp(-x));
}

/// Parts of the scratch: products of the state, hidden values before a projection, the cell state, then the product's own.
struct Layout {
  size_t gates, hidden, cell, gemm;
};
Layout layout_of(DType dtype, int64_t batch, int64_t gates, int64_t width) {
  Layout l{};
  const auto rows = static_cast<size_t>(batch);
  size_t at = 0;
  const auto place = [&](size_t bytes) {
    const size_t here = at;
    at = align_up(at + bytes, 64);
    return here;
  };
  l.gates = place(rows * static_cast<size_t>(gates) * dtype_size(dtype));
  l.hidden = place(rows * static_cast<size_t>(width) * dtype_size(dtype));
  l.cell = place(rows * static_cast<size_t>(width) * compute_size(dtype));
  l.gemm = at;
  return l;
}

/// What all scans have.
struct Scan {
  const Tensor& gates;   ///< [T, B, G]
  const Tensor& h0;      ///< [B, P]
  const Tensor& weight;  ///< [G, P]
  Tensor& out;           ///< [T, B, P]
  Tensor& last;          ///< [B, P]
  bool reverse;

  int64_t steps() const { return gates.size(0); }
  int64_t batch() const { return gates.size(1); }
  int64_t time(int64_t i) const { return reverse ? steps() - 1 - i : i; }
};

Status prepare(const Scan& s, int64_t gates_per_unit, int64_t width) {
  const Tensor& g = s.gates;
  const bool fits = g.rank() == 3 && s.h0.rank() == 2 && s.weight.rank() == 2 && s.h0.size(0) == g.size(1) && s.weight.size(0) == g.size(2) &&
                    s.weight.size(1) == s.h0.size(1) && g.size(2) == gates_per_unit * width && s.h0.dtype() == g.dtype() && s.weight.dtype() == g.dtype();
  if (!fits) {
    return Status(Code::kInvalidInput, str_cat("recurrent scan: gates ", shape_text(g.sizes()), ", state ", shape_text(s.h0.sizes()), ", weight ", shape_text(s.weight.sizes())));
  }
  if (s.out.dtype() != g.dtype() || s.last.dtype() != g.dtype()) {
    return Status(Code::kInvalidInput, str_cat("recurrent scan of ", dtype_name(g.dtype()), ": results of ", dtype_name(s.out.dtype()), " and ", dtype_name(s.last.dtype())));
  }
  PTERON_TRY(runtime::resize(s.out, Sizes{g.size(0), g.size(1), s.h0.size(1)}));
  return runtime::resize(s.last, s.h0.sizes());
}

/// Where the state before step i lies.
template <typename T>
const T* state_before(const Scan& s, int64_t i, int64_t* row, int64_t* col) {
  if (i == 0) {
    *row = s.h0.stride(0), *col = s.h0.stride(1);
    return s.h0.as<T>();
  }
  *row = s.out.stride(1), *col = s.out.stride(2);
  return s.out.as<T>() + s.time(i - 1) * s.out.stride(0);
}

/// products[B, G] = state @ weight^T + init (rows of init_row, init_col apart; null: none).
template <typename T>
void multiply_state(KernelContext& context, const Scan& s, int64_t i, const T* init, int64_t init_row, int64_t init_col, T* products, size_t gemm_at) {
  int64_t row = 0, col = 0;
  const T* state = state_before<T>(s, i, &row, &col);
  GemmCall call;
  call.dtype = kDTypeOf<T>;
  call.m = s.batch(), call.n = s.weight.size(0), call.k = s.weight.size(1);
  call.a = {state, row, col, nullptr, nullptr};
  call.b = {s.weight.view.data, s.weight.stride(0), s.weight.stride(1), nullptr, nullptr};
  call.c = products, call.c_m = call.n, call.c_n = 1;
  call.init = init, call.init_m = init_row, call.init_n = init_col;
  gemm(call, *context.pool, context.scratch.subspan(gemm_at));
}

template <typename T>
void copy_last(const Scan& s) {
  int64_t row = 0, col = 0;
  const T* state = state_before<T>(s, s.steps(), &row, &col);
  for (int64_t b = 0; b < s.batch(); ++b) {
    for (int64_t j = 0; j < s.last.size(1); ++j) s.last.as<T>()[b * s.last.stride(0) + j * s.last.stride(1)] = state[b * row + j * col];
  }
}

template <typename T>
void lstm(KernelContext& context, const Scan& s, const Tensor& c0, const Tensor* projection, Tensor& last_c) {
  using C = Compute<T>;
  const int64_t batch = s.batch(), width = c0.size(1);
  const Layout l = layout_of(s.gates.dtype(), batch, s.gates.size(2), width);
  std::byte* base = context.scratch.data();
  T* products = reinterpret_cast<T*>(base + l.gates);
  T* hidden = reinterpret_cast<T*>(base + l.hidden);
  C* cell = reinterpret_cast<C*>(base + l.cell);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t j = 0; j < width; ++j) cell[b * width + j] = convert_value<C>(c0.as<T>()[b * c0.stride(0) + j * c0.stride(1)]);
  }
  for (int64_t i = 0; i < s.steps(); ++i) {
    const int64_t t = s.time(i);
    multiply_state<T>(context, s, i, s.gates.as<T>() + t * s.gates.stride(0), s.gates.stride(1), s.gates.stride(2), products, l.gemm);
    T* out = s.out.as<T>() + t * s.out.stride(0);
    const bool direct = projection == nullptr;
    T* to = direct ? out : hidden;
    const int64_t row = direct ? s.out.stride(1) : width, col = direct ? s.out.stride(2) : 1;
    for (int64_t b = 0; b < batch; ++b) {
      const T* g = products + b * 4 * width;
      C* c = cell + b * width;
      for (int64_t j = 0; j < width; ++j) {
        const C in = sigmoid(convert_value<C>(g[j])), forget = sigmoid(convert_value<C>(g[width + j]));
        const C fresh = math::tanh(convert_value<C>(g[2 * width + j])), shown = sigmoid(convert_value<C>(g[3 * width + j]));
        c[j] = forget * c[j] + in * fresh;
        to[b * row + j * col] = store_value<T>(shown * math::tanh(c[j]));
      }
    }
    if (direct) continue;
    GemmCall call;
    call.dtype = kDTypeOf<T>;
    call.m = batch, call.n = projection->size(0), call.k = width;
    call.a = {hidden, width, 1, nullptr, nullptr};
    call.b = {projection->view.data, projection->stride(0), projection->stride(1), nullptr, nullptr};
    call.c = out, call.c_m = s.out.stride(1), call.c_n = s.out.stride(2);
    gemm(call, *context.pool, context.scratch.subspan(l.gemm));
  }
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t j = 0; j < width; ++j) last_c.as<T>()[b * last_c.stride(0) + j * last_c.stride(1)] = store_value<T>(cell[b * width + j]);
  }
  copy_last<T>(s);
}

template <typename T>
void gru(KernelContext& context, const Scan& s, const Tensor* bias) {
  using C = Compute<T>;
  const int64_t batch = s.batch(), width = s.h0.size(1);
  const Layout l = layout_of(s.gates.dtype(), batch, 3 * width, width);
  T* products = reinterpret_cast<T*>(context.scratch.data() + l.gates);
  for (int64_t i = 0; i < s.steps(); ++i) {
    const int64_t t = s.time(i);
    multiply_state<T>(context, s, i, bias != nullptr ? bias->as<T>() : nullptr, 0, bias != nullptr ? bias->stride(0) : 0, products, l.gemm);
    int64_t row = 0, col = 0;
    const T* state = state_before<T>(s, i, &row, &col);
    const int64_t step = s.gates.stride(2);
    for (int64_t b = 0; b < batch; ++b) {
      const T* x = s.gates.as<T>() + t * s.gates.stride(0) + b * s.gates.stride(1);
      const T* h = products + b * 3 * width;
      T* to = s.out.as<T>() + t * s.out.stride(0) + b * s.out.stride(1);
      for (int64_t j = 0; j < width; ++j) {
        const C reset = sigmoid(convert_value<C>(x[j * step]) + convert_value<C>(h[j]));
        const C keep = sigmoid(convert_value<C>(x[(width + j) * step]) + convert_value<C>(h[width + j]));
        const C fresh = math::tanh(convert_value<C>(x[(2 * width + j) * step]) + reset * convert_value<C>(h[2 * width + j]));
        to[j * s.out.stride(2)] = store_value<T>((convert_value<C>(state[b * row + j * col]) - fresh) * keep + fresh);
      }
    }
  }
  copy_last<T>(s);
}

template <typename T>
void plain(KernelContext& context, const Scan& s, bool relu) {
  using C = Compute<T>;
  const int64_t batch = s.batch(), width = s.h0.size(1);
  const Layout l = layout_of(s.gates.dtype(), batch, width, width);
  T* products = reinterpret_cast<T*>(context.scratch.data() + l.gates);
  for (int64_t i = 0; i < s.steps(); ++i) {
    const int64_t t = s.time(i);
    multiply_state<T>(context, s, i, s.gates.as<T>() + t * s.gates.stride(0), s.gates.stride(1), s.gates.stride(2), products, l.gemm);
    for (int64_t b = 0; b < batch; ++b) {
      T* to = s.out.as<T>() + t * s.out.stride(0) + b * s.out.stride(1);
      for (int64_t j = 0; j < width; ++j) {
        const C v = convert_value<C>(products[b * width + j]);
        to[j * s.out.stride(2)] = store_value<T>(relu ? (v < C{0} ? C{0} : v) : math::tanh(v));
      }
    }
  }
  copy_last<T>(s);
}

Status unsupported(DType dtype) { return Status(Code::kUnsupported, str_cat("recurrent scan of ", dtype_name(dtype))); }

Status lstm_out(KernelContext& context, const Tensor& gates, const Tensor& h, const Tensor& c, const Tensor& weight, const Tensor* projection, bool reverse,
                Tensor& out, Tensor& last_h, Tensor& last_c) {
  const Scan s{gates, h, weight, out, last_h, reverse};
  const bool fits = c.rank() == 2 && h.rank() == 2 && c.size(0) == h.size(0) && c.dtype() == h.dtype() && last_c.dtype() == h.dtype() &&
                    (projection == nullptr ? c.size(1) == h.size(1)
                                           : projection->rank() == 2 && projection->dtype() == h.dtype() && projection->size(0) == h.size(1) && projection->size(1) == c.size(1));
  if (!fits) return Status(Code::kInvalidInput, str_cat("lstm: states ", shape_text(h.sizes()), " and ", shape_text(c.sizes())));
  PTERON_TRY(prepare(s, 4, c.size(1)));
  PTERON_TRY(runtime::resize(last_c, c.sizes()));
  return dispatch_floating(gates.dtype(), [&]<typename T>() { lstm<T>(context, s, c, projection, last_c); }) ? ok_status() : unsupported(gates.dtype());
}

Status gru_out(KernelContext& context, const Tensor& gates, const Tensor& h, const Tensor& weight, const Tensor* bias, bool reverse, Tensor& out, Tensor& last_h) {
  const Scan s{gates, h, weight, out, last_h, reverse};
  PTERON_TRY(prepare(s, 3, h.rank() == 2 ? h.size(1) : 0));
  if (bias != nullptr && (bias->rank() != 1 || bias->size(0) != weight.size(0) || bias->dtype() != gates.dtype())) {
    return Status(Code::kInvalidInput, str_cat("gru: bias ", shape_text(bias->sizes()), " for weight ", shape_text(weight.sizes())));
  }
  return dispatch_floating(gates.dtype(), [&]<typename T>() { gru<T>(context, s, bias); }) ? ok_status() : unsupported(gates.dtype());
}

Status rnn_out(KernelContext& context, const Tensor& gates, const Tensor& h, const Tensor& weight, bool relu, bool reverse, Tensor& out, Tensor& last_h) {
  const Scan s{gates, h, weight, out, last_h, reverse};
  PTERON_TRY(prepare(s, 1, h.rank() == 2 ? h.size(1) : 0));
  return dispatch_floating(gates.dtype(), [&]<typename T>() { plain<T>(context, s, relu); }) ? ok_status() : unsupported(gates.dtype());
}

size_t workspace(std::span<Value* const> args) {
  const Tensor& gates = args[0]->tensor;
  const Tensor& h = args[1]->tensor;
  if (gates.rank() != 3 || h.rank() != 2) return 0;
  // The cell is at most as wide as all gates; a projection is [h, cell].
  const int64_t wide = gates.size(2);
  const size_t product = gemm_workspace(gates.dtype(), gates.size(1), wide, std::max(h.size(1), wide));
  return layout_of(gates.dtype(), gates.size(1), wide, wide).gemm + product;
}

constexpr runtime::Kernel kTable[] = {
    {"pteron::gru_scan.out", PTERON_KERNEL(gru_out), workspace},
    {"pteron::lstm_scan.out", PTERON_KERNEL(lstm_out), workspace},
    {"pteron::rnn_scan.out", PTERON_KERNEL(rnn_out), workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::rnn
