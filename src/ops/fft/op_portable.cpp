// Two-sided and complex Fourier transforms from one-sided real ones, for static sizes.
#include "ops/fft/portable.h"

#include <complex>

#include "ops/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::fft {

using ir::Builder;
using Ids = std::vector<ValueId>;

namespace {

/// x with index k of a dim moved to -k modulo its size, from `first` on.
ValueId negated(Portable& f, ValueId x, int dim, int64_t size, int64_t first, int64_t count) {
  std::vector<int64_t> index;
  for (int64_t k = first; k < first + count; ++k) index.push_back((size - k) % size);
  return f.b.op("aten::index_select", {x, Expr(dim), f.ints(index)});
}

}  // namespace

/// The other half of a real signal's spectrum is the conjugate of the first at negated frequencies.
Ids portable_r2c(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId x = n.value("self");
  if (n.boolean("onesided")) return {};
  std::vector<int> dims;
  for (const int64_t d : n.integers("dim")) {
    auto dim = wrap_dim_of(d, f.rank(x));
    if (!dim.ok() || !f.size(x, *dim).is_const()) return {};
    dims.push_back(*dim);
  }
  if (dims.empty()) return {};
  const ValueId half = b.op("aten::_fft_r2c", {x, n.arg("dim"), n.arg("normalization"), b.boolean(true)});
  const int last = dims.back();
  const int64_t size = f.size(x, last).value(), have = size / 2 + 1;
  if (have >= size) return {half};
  ValueId tail = negated(f, half, last, size, have, size - have);
  for (size_t i = 0; i + 1 < dims.size(); ++i) {
    const int64_t whole = f.size(x, dims[i]).value();
    tail = negated(f, tail, dims[i], whole, 0, whole);
  }
  return {f.cat({half, b.op("aten::conj_physical", {tail})}, last)};
}

/// The transforms of the real and imaginary parts, added; an inverse one is the conjugate of the transform of the conjugate.
Ids portable_c2c(Builder& b, const NodeView& n) {
  Portable f(b);
  ValueId x = n.value("self");
  const DType dtype = f.dtype(x);
  if (dtype != DType::kComplexFloat && dtype != DType::kComplexDouble) return {};
  const bool forward = n.boolean("forward");
  if (!forward) x = b.op("aten::conj_physical", {x});
  const ValueId pairs = b.op("aten::view_as_real", {x});
  const auto part = [&](int64_t which) {
    return b.op("aten::_fft_r2c", {f.select(pairs, -1, Expr(which)), n.arg("dim"), n.arg("normalization"), b.boolean(false)});
  };
  const std::complex<double> unit(0, 1);
  const std::complex<float> unit32(0, 1);
  const ValueId i = dtype == DType::kComplexDouble ? b.constant(dtype, {1}, std::as_bytes(std::span(&unit, 1)), "i")
                                                   : b.constant(dtype, {1}, std::as_bytes(std::span(&unit32, 1)), "i");
  const ValueId sum = f.add(part(0), f.mul(part(1), f.expand(i, f.sizes(x))));  // no official product with a complex tensor of one element
  return {forward ? sum : b.op("aten::conj_physical", {sum})};
}

}  // namespace pteron::ops::fft
