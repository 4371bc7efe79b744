// Pools of three dims and adaptive maxima in terms of the two-dimensional ones, or of index and max for static sizes.
#include "ops/pool/portable.h"

#include "ops/portable.h"

namespace pteron::ops::pool {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

constexpr int64_t kMaxTable = 1 << 20;  // entries of a table of window positions

std::vector<int64_t> spread(const NodeView& n, std::string_view name, size_t count) {
  std::vector<int64_t> list = n.integers(name);
  if (list.size() == 1) list.assign(count, list[0]);
  return list;
}

/// Input positions of one dim for every window; all windows of a dim get the same length by repeating their last position.
using Windows = std::vector<std::vector<int64_t>>;
void pad_windows(Windows* windows) {
  size_t longest = 0;
  for (const auto& w : *windows) longest = std::max(longest, w.size());
  for (auto& w : *windows) w.resize(longest, w.empty() ? 0 : w.back());
}

/// [outputs, positions in a window] of flat input positions, windows of the first dim outermost.
std::vector<int64_t> table_of(std::span<const Windows> dims, std::span<const int64_t> in) {
  std::vector<int64_t> flat{0};
  std::vector<std::vector<int64_t>> outputs{{0}};
  for (size_t d = 0; d < dims.size(); ++d) {
    std::vector<std::vector<int64_t>> next;
    for (const auto& prefix : outputs) {
      for (const auto& window : dims[d]) {
        std::vector<int64_t> joined;
        for (const int64_t p : prefix) {
          for (const int64_t q : window) joined.push_back(p * in[d] + q);
        }
        next.push_back(std::move(joined));
      }
    }
    outputs = std::move(next);
  }
  std::vector<int64_t> table;
  for (const auto& o : outputs) table.insert(table.end(), o.begin(), o.end());
  return table;
}

/// Maxima and their flat positions over windows given per dim.
Ids max_over(Builder& b, ValueId x, std::vector<Windows> dims) {
  Portable f(b);
  const size_t spatial = dims.size(), first = f.sizes(x).size() - spatial;
  std::vector<int64_t> in;
  std::vector<Expr> lead = sub_sizes(f.sizes(x), 0, first), out_sizes = lead, flat_sizes = lead;
  int64_t total = 1, outputs = 1, length = 1, area = 1;
  for (size_t d = 0; d < spatial; ++d) {
    pad_windows(&dims[d]);
    if (dims[d].empty() || dims[d][0].empty()) return {};
    in.push_back(f.sizes(x)[first + d].value());
    outputs *= static_cast<int64_t>(dims[d].size());
    length *= static_cast<int64_t>(dims[d][0].size());
    area *= in.back();
    out_sizes.emplace_back(static_cast<int64_t>(dims[d].size()));
  }
  if (__builtin_mul_overflow(outputs, length, &total) || total > kMaxTable) return {};
  const std::vector<int64_t> table = table_of(dims, in);
  flat_sizes.emplace_back(area);
  const ValueId positions = b.constant(DType::kInt64, {outputs, length}, std::as_bytes(std::span(table)), "windows");
  Ids indices(first);
  indices.push_back(positions);
  const ValueId windows = b.op("aten::index.Tensor", {f.view(x, flat_sizes), indices});
  const Ids best = b.ops("aten::max.dim", {windows, Expr(-1), b.boolean(true)});
  if (best.size() != 2) return {};
  std::vector<Expr> wide = lead;
  wide.emplace_back(outputs);
  wide.emplace_back(length);
  const ValueId where = b.op("aten::gather", {f.expand(positions, wide), Expr(-1), best[1]});
  return {f.view(best[0], out_sizes), f.view(where, out_sizes)};
}

bool static_spatial(const Portable& f, ValueId x, size_t spatial) {
  const auto& sizes = f.sizes(x);
  if (sizes.size() < spatial) return false;
  for (size_t d = sizes.size() - spatial; d < sizes.size(); ++d) {
    if (!sizes[d].is_const() || sizes[d].value() < 1) return false;
  }
  return true;
}

/// [..., D, H, W] as [lead, D, H, W].
ValueId merged(Portable& f, ValueId x) {
  const std::vector<Expr> sizes = f.sizes(x);
  const size_t first = sizes.size() - 3;
  const std::vector<Expr> lead = sub_sizes(sizes, 0, first);
  return f.view(x, {ir::numel_of(lead), sizes[first], sizes[first + 1], sizes[first + 2]});
}

/// fn over the last two dims of [lead, D, H, W], then another over D; the results have the lead dims of x.
template <typename Plane, typename Depth>
Ids plane_then_depth(Builder& b, ValueId x, Plane&& plane, Depth&& depth) {
  Portable f(b);
  const std::vector<Expr> lead = sub_sizes(f.sizes(x), 0, f.sizes(x).size() - 3);
  const ValueId flat = plane(merged(f, x));  // [lead, D, h, w]
  const Expr h = f.size(flat, 2), w = f.size(flat, 3);
  const ValueId columns = f.view(flat, {f.size(flat, 0), f.size(flat, 1), h * w});
  const ValueId out = depth(f.unsqueeze(columns, 1));  // [lead, 1, d, h*w]
  std::vector<Expr> sizes = lead;
  for (const Expr& e : {f.size(out, 2), h, w}) sizes.push_back(e);
  return {f.view(out, sizes)};
}

}  // namespace

Ids portable_avg_pool3d(Builder& b, const NodeView& n) {
  const std::vector<int64_t> kernel = spread(n, "kernel_size", 3), padding = spread(n, "padding", 3);
  std::vector<int64_t> stride = spread(n, "stride", 3);
  if (stride.empty()) stride = kernel;
  const bool given = !n.is_none("divisor_override");
  const auto pair = [](int64_t x, int64_t y) { return std::vector<Expr>{Expr(x), Expr(y)}; };
  const ir::Arg whole = n.arg("ceil_mode"), counted = n.arg("count_include_pad");
  const auto plane = [&](ValueId x) {
    return b.op("aten::avg_pool2d", {x, pair(kernel[1], kernel[2]), pair(stride[1], stride[2]), pair(padding[1], padding[2]), whole, counted,
                                     given ? ir::Arg(Expr(1)) : ir::Arg()});
  };
  const auto depth = [&](ValueId x) {
    return b.op("aten::avg_pool2d", {x, pair(kernel[0], 1), pair(stride[0], 1), pair(padding[0], 0), whole, counted,
                                     given ? ir::Arg(n.expr("divisor_override")) : ir::Arg()});
  };
  return plane_then_depth(b, n.value("self"), plane, depth);
}

Ids portable_adaptive_avg_pool3d(Builder& b, const NodeView& n) {
  std::vector<Expr> to = n.exprs("output_size");
  if (to.size() == 1) to.assign(3, to[0]);
  const auto plane = [&](ValueId x) { return b.op("aten::_adaptive_avg_pool2d", {x, std::vector<Expr>{to[1], to[2]}}); };
  const auto depth = [&](ValueId x) { return b.op("aten::_adaptive_avg_pool2d", {x, std::vector<Expr>{to[0], Compose(b).size(x, 3)}}); };
  return plane_then_depth(b, n.value("self"), plane, depth);
}

Ids portable_adaptive_max_pool(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  const size_t spatial = n.op().name.find("3d") != std::string::npos ? 3 : 2;
  if (!static_spatial(f, x, spatial)) return {};
  const std::vector<int64_t> to = spread(n, "output_size", spatial);
  std::vector<Windows> dims;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t in = f.size(x, static_cast<int>(d) - static_cast<int>(spatial)).value();
    Windows windows;
    for (int64_t o = 0; o < to[d]; ++o) {
      windows.emplace_back();
      for (int64_t i = o * in / to[d]; i < ((o + 1) * in + to[d] - 1) / to[d]; ++i) windows.back().push_back(i);
    }
    dims.push_back(std::move(windows));
  }
  return max_over(b, x, std::move(dims));
}

Ids portable_max_pool3d(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  if (!static_spatial(f, x, 3)) return {};
  const std::vector<int64_t> kernel = spread(n, "kernel_size", 3), padding = spread(n, "padding", 3), dilation = spread(n, "dilation", 3);
  std::vector<int64_t> stride = spread(n, "stride", 3);
  if (stride.empty()) stride = kernel;
  std::vector<Windows> dims;
  for (size_t d = 0; d < 3; ++d) {
    const int64_t in = f.size(x, static_cast<int>(d) - 3).value(), reach = in + 2 * padding[d] - dilation[d] * (kernel[d] - 1) - 1;
    int64_t count = reach / stride[d] + 1;
    if (n.boolean("ceil_mode")) count = std::min((reach + stride[d] - 1) / stride[d] + 1, (in + padding[d] - 1) / stride[d] + 1);
    Windows windows;
    for (int64_t o = 0; o < count; ++o) {
      windows.emplace_back();
      for (int64_t k = 0; k < kernel[d]; ++k) {
        const int64_t at = o * stride[d] - padding[d] + k * dilation[d];
        if (at >= 0 && at < in) windows.back().push_back(at);
      }
      if (windows.back().empty()) return {};
    }
    dims.push_back(std::move(windows));
  }
  return max_over(b, x, std::move(dims));
}

/// Zeros with the values put at their positions.
Ids portable_max_unpool(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  const std::vector<Expr> to = n.exprs("output_size");
  const size_t spatial = to.size();
  const std::vector<Expr> lead = sub_sizes(f.sizes(x), 0, f.sizes(x).size() - spatial);
  const Expr planes = ir::numel_of(lead), inside = ir::numel_of(sub_sizes(f.sizes(x), lead.size(), f.sizes(x).size())), area = ir::numel_of(to);
  const ValueId zeros = b.op("aten::full", {std::vector<Expr>{planes, area}, Expr(0), f.dtype(x)});
  const ValueId put = b.op("aten::scatter.src", {zeros, Expr(1), f.view(n.value("indices"), {planes, inside}), f.view(x, {planes, inside})});
  std::vector<Expr> sizes = lead;
  sizes.insert(sizes.end(), to.begin(), to.end());
  return {f.view(put, sizes)};
}

}  // namespace pteron::ops::pool
