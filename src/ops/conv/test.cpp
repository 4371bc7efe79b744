// Convolution kernels against the definition, over random shapes, layouts, groups, dilations, transposed or not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "ops/call_kernel.h"
#include "tensor/dim_math.h"

namespace pteron::ops {
namespace {

struct Spec {
  int spatial;
  bool transposed, channels_last, weight_last, out_last;
  int64_t batch, groups, in, out;  ///< channels per group
  int64_t size[3], kernel[3], stride[3], padding[3], dilation[3], extra[3];
};

/// A view over storage in row-major or channels-last order.
TensorView view_of(std::vector<float>& storage, const std::vector<int64_t>& sizes, bool last) {
  int64_t n = 1;
  for (const int64_t s : sizes) n *= s;
  storage.resize(static_cast<size_t>(n) + 1);
  TensorView v = make_contiguous_view(DType::kFloat32, sizes, storage.data());
  if (last) {
    int64_t stride = sizes[1];
    v.stride_array[1] = 1;
    for (size_t d = sizes.size(); d-- > 2;) {
      v.stride_array[d] = stride;
      stride *= sizes[d];
    }
    v.stride_array[0] = stride;
  }
  return v;
}

double at(const TensorView& v, const int64_t (&index)[5]) {
  int64_t offset = 0;
  for (int d = 0; d < v.rank; ++d) offset += index[d] * v.stride(d);
  return v.as<float>()[offset];
}

/// Adds what output (n, o, p) gets, straight from the definition.
double reference(const Spec& s, const TensorView& x, const TensorView& w, const TensorView& bias, int64_t n, int64_t o, const int64_t (&p)[3]) {
  double sum = bias.as<float>()[o];
  const int64_t group = o / s.out;
  const int64_t total = s.kernel[0] * s.kernel[1] * s.kernel[2];
  for (int64_t t = 0; t < total; ++t) {
    const int64_t tap[3] = {t / (s.kernel[1] * s.kernel[2]), t / s.kernel[2] % s.kernel[1], t % s.kernel[2]};
    int64_t from[5] = {n, 0, 0, 0, 0}, weight[5] = {0, 0, 0, 0, 0};
    bool inside = true;
    for (int d = 0; d < s.spatial; ++d) {
      int64_t pos = s.transposed ? p[d] + s.padding[d] - tap[d] * s.dilation[d] : p[d] * s.stride[d] - s.padding[d] + tap[d] * s.dilation[d];
      if (s.transposed) {
        inside = inside && floor_mod(pos, s.stride[d]) == 0;
        pos = floor_div(pos, s.stride[d]);
      }
      inside = inside && pos >= 0 && pos < s.size[d];
      from[2 + d] = pos;
      weight[2 + d] = tap[d];
    }
    if (!inside) continue;
    for (int64_t c = 0; c < s.in; ++c) {
      from[1] = group * s.in + c;
      weight[0] = s.transposed ? group * s.in + c : o;
      weight[1] = s.transposed ? o % s.out : c;
      sum += at(x, from) * at(w, weight);
    }
  }
  return sum;
}

void check(const Spec& s, ThreadPool& pool) {
  std::vector<int64_t> xs{s.batch, s.groups * s.in}, ws, ys{s.batch, s.groups * s.out};
  ws = s.transposed ? std::vector<int64_t>{s.groups * s.in, s.out} : std::vector<int64_t>{s.groups * s.out, s.in};
  std::vector<int64_t> stride, padding, dilation, extra;
  for (int d = 0; d < s.spatial; ++d) {
    xs.push_back(s.size[d]);
    ws.push_back(s.kernel[d]);
    const int64_t reach = s.dilation[d] * (s.kernel[d] - 1);
    ys.push_back(s.transposed ? (s.size[d] - 1) * s.stride[d] - 2 * s.padding[d] + reach + s.extra[d] + 1
                              : floor_div(s.size[d] + 2 * s.padding[d] - reach - 1, s.stride[d]) + 1);
    if (ys.back() < 1) return;
    stride.push_back(s.stride[d]), padding.push_back(s.padding[d]), dilation.push_back(s.dilation[d]), extra.push_back(s.extra[d]);
  }
  std::vector<float> xb, wb, yb, bb;
  const TensorView x = view_of(xb, xs, s.channels_last), w = view_of(wb, ws, s.weight_last), y = view_of(yb, ys, s.out_last);
  const TensorView bias = view_of(bb, {ys[1]}, false);
  std::mt19937 random(7);
  for (auto* storage : {&xb, &wb, &bb}) {
    for (float& v : *storage) v = static_cast<float>(static_cast<int>(random() % 17)) - 8;
  }
  std::fill(yb.begin(), yb.end(), -1e30f);
  KernelCallBuilder call;
  call.tensor(x).tensor(w).tensor(bias).integers(stride).integers(padding).integers(dilation).boolean(s.transposed).integers(extra).integer(s.groups);
  const Status status = call.tensor(y).call("aten::convolution.out", pool);
  ASSERT_TRUE(status.ok()) << status.message();
  int64_t p[3] = {0, 0, 0};
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t rest = i, index[5] = {0, 0, 0, 0, 0};
    for (int d = y.rank - 1; d >= 0; --d) {
      index[d] = rest % y.size(d);
      rest /= y.size(d);
    }
    for (int d = 0; d < s.spatial; ++d) p[d] = index[2 + d];
    const double want = reference(s, x, w, bias, index[0], index[1], p);
    ASSERT_NEAR(at(y, index), want, 1e-3) << "element " << i << " groups " << s.groups << " in " << s.in << " out " << s.out << " transposed " << s.transposed
                                          << " last " << s.channels_last << " spatial " << s.spatial << " stride " << s.stride[0];
  }
}

TEST(Convolution, RandomShapes) {
  std::mt19937 random(3);
  const auto pick = [&](int64_t low, int64_t high) { return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1)); };
  const auto two = make_thread_pool(2);
  for (int i = 0; i < 1500; ++i) {
    Spec s{};
    s.spatial = static_cast<int>(pick(1, 3));
    s.transposed = pick(0, 2) == 0;
    s.channels_last = s.spatial > 1 && pick(0, 1) == 1;
    s.weight_last = s.spatial > 1 && pick(0, 1) == 1;
    s.out_last = s.spatial > 1 && pick(0, 1) == 1;
    s.batch = pick(1, 2);
    s.groups = pick(0, 2) == 0 ? pick(2, 12) : 1;
    s.in = pick(0, 1) == 0 ? 1 : pick(1, 20);
    s.out = pick(0, 1) == 0 ? 1 : pick(1, 20);
    for (int d = 0; d < 3; ++d) {
      const bool used = d < s.spatial;
      s.size[d] = used ? pick(1, s.spatial == 3 ? 6 : 20) : 1;
      s.kernel[d] = used ? pick(1, 4) : 1;
      s.stride[d] = used ? pick(1, 3) : 1;
      s.padding[d] = used ? pick(0, 3) : 0;
      s.dilation[d] = used ? pick(1, 3) : 1;
      s.extra[d] = used ? pick(0, 1) : 0;
    }
    check(s, i % 2 == 0 ? serial_pool() : *two);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace pteron::ops
