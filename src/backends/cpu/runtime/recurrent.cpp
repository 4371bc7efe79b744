// Scans of LSTMs and GRUs in float with a few sequences at a time: constant weights of the state are packed once at load, a step is one pass over them.
// pteron::lstm_scan and pteron::gru_scan take the place of the portable kernels; other calls go on to those.
#include <algorithm>
#include <vector>

#include "backends/cpu/runtime/early.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/portable.h"
#include "backends/cpu/runtime/row_ops.h"
#include "base/buffer.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "tensor/dim_math.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

/// More sequences than this are products of their own.
constexpr int64_t kMaxBatch = 4;
/// Multiplications of a step worth a thread.
constexpr int64_t kGrain = 1 << 16;

/// A weight [gates, depth] as panels of row_set().panel gates.
struct Panels final : KernelState {
  uint64_t memory_bytes() const override { return bytes.size(); }
  Buffer bytes;
  int64_t gates = 0, depth = 0, count = 0;
  const float* data() const { return reinterpret_cast<const float*>(bytes.data()); }
};

bool is_float(const Value& v) { return v.tag == Tag::kTensor && v.tensor.dtype() == DType::kFloat32 && v.tensor.has_data(); }

Result<std::shared_ptr<const KernelState>> pack(const KernelLoad& load, const Tensor& weight) {
  const std::string key = str_cat("recurrent/", reinterpret_cast<uintptr_t>(weight.view.data), "/", shape_text(weight.sizes()), "/", shape_text(weight.strides()));
  return load.cache->find_or_make(key, [&]() -> Result<std::shared_ptr<const KernelState>> {
    const int64_t width = row_set().panel;
    auto made = std::make_shared<Panels>();
    made->gates = weight.size(0);
    made->depth = weight.size(1);
    made->count = ceil_div(made->gates, width);
    PTERON_ASSIGN(made->bytes, Buffer::create_zeroed(static_cast<size_t>(made->count * width * std::max<int64_t>(made->depth, 1)) * sizeof(float)));
    float* to = reinterpret_cast<float*>(made->bytes.data());
    for (int64_t g = 0; g < made->gates; ++g) {
      for (int64_t k = 0; k < made->depth; ++k) {
        to[(g / width * made->depth + k) * width + g % width] = weight.as<float>()[g * weight.stride(0) + k * weight.stride(1)];
      }
    }
    return std::shared_ptr<const KernelState>(std::move(made));
  });
}

// gates, h, c, weight, ... or gates, h, weight, ...
template <size_t kWeight>
Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  const Value& weight = *args[kWeight];
  if (!is_float(weight) || !weight.tensor.read_only || weight.tensor.rank() != 2 || weight.tensor.numel() == 0 || is_early(load)) {
    return std::shared_ptr<const KernelState>();
  }
  return pack(load, weight.tensor);
}

struct Scan {
  const Panels& panels;
  const Tensor& gates;  ///< [T, B, G]
  const Tensor& h0;     ///< [B, H]
  Tensor& out;          ///< [T, B, H]
  Tensor& last;         ///< [B, H]
  bool reverse;
  int64_t steps() const { return gates.size(0); }
  int64_t batch() const { return gates.size(1); }
  int64_t width() const { return h0.size(1); }
  int64_t time(int64_t i) const { return reverse ? steps() - 1 - i : i; }
};

/// True if this file's loops can run the call; outs are resized then.
Result<bool> fits(const Scan& s, int64_t gates_per_unit) {
  const Tensor& g = s.gates;
  if (g.rank() != 3 || s.h0.rank() != 2 || g.size(0) == 0 || g.size(1) == 0 || g.size(1) > kMaxBatch || s.h0.size(0) != g.size(1)) return false;
  const int64_t width = s.h0.size(1);
  if (g.size(2) != gates_per_unit * width || s.panels.gates != g.size(2) || s.panels.depth != width || g.stride(2) != 1) return false;
  if (s.out.read_only || s.last.read_only) return false;
  PTERON_TRY(resize(s.out, Sizes{g.size(0), g.size(1), width}));
  PTERON_TRY(resize(s.last, s.h0.sizes()));
  return s.out.stride(2) == 1 || width == 1;
}

/// products = init + weight x state, over the threads if it is worth them.
void multiply(KernelContext& context, const Panels& p, const float* state, const float* init, float* products) {
  const RowSet& rows = row_set();
  const auto run = [&](int64_t begin, int64_t end) {
    rows.product(p.data() + begin * p.depth * rows.panel, end - begin, p.depth, state, init != nullptr ? init + begin * rows.panel : nullptr, products + begin * rows.panel);
  };
  const int64_t grain = std::max<int64_t>(1, kGrain / (p.depth * rows.panel));
  if (p.count <= grain) return run(0, p.count);
  context.pool->parallel_for(p.count, grain, run);
}

/// Parts of the scratch in floats: products of one sequence, its gates (padded), states and cells of all.
struct Layout {
  int64_t products, init, state, cell, total;
};
Layout layout_of(int64_t gates, int64_t batch) {
  const int64_t padded = ceil_div(gates, row_set().panel) * row_set().panel;
  return {0, padded, 2 * padded, 2 * padded + batch * padded, 2 * padded + 2 * batch * padded};
}

void load_rows(const Tensor& t, float* to) {
  for (int64_t b = 0; b < t.size(0); ++b) {
    for (int64_t j = 0; j < t.size(1); ++j) to[b * t.size(1) + j] = t.as<float>()[b * t.stride(0) + j * t.stride(1)];
  }
}
void store_rows(const float* from, const Tensor& t) {
  for (int64_t b = 0; b < t.size(0); ++b) {
    for (int64_t j = 0; j < t.size(1); ++j) t.as<float>()[b * t.stride(0) + j * t.stride(1)] = from[b * t.size(1) + j];
  }
}

// gates, h, c, weight, projection, reverse, out, last_h, last_c
Status lstm_scan(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable("pteron::lstm_scan.out");
  const auto hand_on = [&] { return other.fn(context, args); };
  if (context.check_only || context.state == nullptr || args.size() < 9 || args[4]->tag != Tag::kNone) return hand_on();
  for (const size_t i : {0, 1, 2, 6, 7, 8}) {
    if (!is_float(*args[i])) return hand_on();
  }
  const Tensor& c0 = args[2]->tensor;
  Tensor& last_c = args[8]->tensor;
  const Scan s{*static_cast<const Panels*>(context.state), args[0]->tensor, args[1]->tensor, args[6]->tensor, args[7]->tensor, args[5]->integer != 0};
  if (c0.rank() != 2 || !std::ranges::equal(c0.sizes(), s.h0.sizes()) || last_c.read_only) return hand_on();
  PTERON_ASSIGN(const bool ours, fits(s, 4));
  if (!ours) return hand_on();
  PTERON_TRY(resize(last_c, c0.sizes()));
  const Layout l = layout_of(s.gates.size(2), s.batch());
  float* base = reinterpret_cast<float*>(context.scratch.data());
  float *products = base + l.products, *init = base + l.init, *state = base + l.state, *cell = base + l.cell;
  load_rows(s.h0, state);
  load_rows(c0, cell);
  const RowSet& rows = row_set();
  const int64_t width = s.width(), gates = s.gates.size(2);
  for (int64_t i = 0; i < s.steps(); ++i) {
    const int64_t t = s.time(i);
    for (int64_t b = 0; b < s.batch(); ++b) {
      std::copy_n(s.gates.as<float>() + t * s.gates.stride(0) + b * s.gates.stride(1), gates, init);
      multiply(context, s.panels, state + b * width, init, products);
      rows.lstm(products, cell + b * width, state + b * width, width);
      std::copy_n(state + b * width, width, s.out.as<float>() + t * s.out.stride(0) + b * s.out.stride(1));
    }
  }
  store_rows(state, s.last);
  store_rows(cell, last_c);
  return ok_status();
}

// gates, h, weight, bias, reverse, out, last_h
Status gru_scan(KernelContext& context, std::span<Value* const> args) {
  static const runtime::Kernel& other = portable("pteron::gru_scan.out");
  const auto hand_on = [&] { return other.fn(context, args); };
  if (context.check_only || context.state == nullptr || args.size() < 7) return hand_on();
  for (const size_t i : {0, 1, 5, 6}) {
    if (!is_float(*args[i])) return hand_on();
  }
  const Scan s{*static_cast<const Panels*>(context.state), args[0]->tensor, args[1]->tensor, args[5]->tensor, args[6]->tensor, args[4]->integer != 0};
  const bool has_bias = args[3]->tag == Tag::kTensor;
  if (has_bias && (!is_float(*args[3]) || args[3]->tensor.rank() != 1 || args[3]->tensor.size(0) != s.panels.gates)) return hand_on();
  PTERON_ASSIGN(const bool ours, fits(s, 3));
  if (!ours) return hand_on();
  const Layout l = layout_of(s.gates.size(2), s.batch());
  float* base = reinterpret_cast<float*>(context.scratch.data());
  float *products = base + l.products, *init = base + l.init, *state = base + l.state;
  load_rows(s.h0, state);
  const RowSet& rows = row_set();
  const int64_t width = s.width();
  for (int64_t j = 0; has_bias && j < s.panels.gates; ++j) init[j] = args[3]->tensor.as<float>()[j * args[3]->tensor.stride(0)];
  for (int64_t i = 0; i < s.steps(); ++i) {
    const int64_t t = s.time(i);
    for (int64_t b = 0; b < s.batch(); ++b) {
      float* h = state + b * width;
      multiply(context, s.panels, h, has_bias ? init : nullptr, products);
      rows.gru(s.gates.as<float>() + t * s.gates.stride(0) + b * s.gates.stride(1), products, h, h, width);
      std::copy_n(h, width, s.out.as<float>() + t * s.out.stride(0) + b * s.out.stride(1));
    }
  }
  store_rows(state, s.last);
  return ok_status();
}

size_t own_bytes(std::span<Value* const> args) {
  const Tensor& gates = args[0]->tensor;
  if (args[0]->tag != Tag::kTensor || gates.rank() != 3 || gates.size(1) > kMaxBatch) return 0;
  return static_cast<size_t>(layout_of(gates.size(2), std::max<int64_t>(gates.size(1), 1)).total) * sizeof(float);
}
size_t lstm_workspace(std::span<Value* const> args) { return std::max(own_bytes(args), portable("pteron::lstm_scan.out").workspace(args)); }
size_t gru_workspace(std::span<Value* const> args) { return std::max(own_bytes(args), portable("pteron::gru_scan.out").workspace(args)); }

constexpr runtime::Kernel kRows[] = {
    {"pteron::gru_scan.out", gru_scan, gru_workspace, prepare<2>},
    {"pteron::lstm_scan.out", lstm_scan, lstm_workspace, prepare<3>},
};

}  // namespace

std::span<const runtime::Kernel> recurrent_kernels() { return kRows; }

}  // namespace pteron::cpu
