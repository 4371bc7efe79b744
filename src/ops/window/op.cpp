// Window functions (hann, hamming, blackman, bartlett, kaiser) as decompositions into arange and pointwise operators, in ATen's order.
#include <cmath>

#include "ops/compose.h"
#include "ops/infer.h"

namespace pteron::ops::window {

namespace {

using ir::Builder;

constexpr double kPi = 3.14159265358979323846;

Status infer_window(InferContext& c) {
  const Expr length = c.expr("window_length");
  if (!length.is_const()) return Status(Code::kUnsupported, "a window whose length is known only at run time");
  if (length.value() < 0) return Status(Code::kInvalidInput, "negative window length");
  c.add(c.dtype("dtype", DType::kFloat32), {length});
  return ok_status();
}

/// arange(length) in the window's dtype, one longer if periodic (the last one is cut off at the end); invalid for lengths 0 and 1.
struct Ramp {
  ValueId index;
  int64_t length = 0;   ///< of the symmetric window
  bool periodic = true;
};
Ramp make_ramp(Builder& b, const NodeView& n) {
  Ramp ramp;
  ramp.periodic = !n.has("periodic") || n.boolean("periodic");
  ramp.length = n.integer("window_length") + (ramp.periodic ? 1 : 0);
  ramp.index = b.op("aten::arange", {Expr(ramp.length), n.dtype("dtype", DType::kFloat32)});
  return ramp;
}
/// Windows of length 0 and 1 are ones.
ValueId ones(Builder& b, const NodeView& n) { return b.op("aten::ones", {std::vector<Expr>{n.expr("window_length")}, n.dtype("dtype", DType::kFloat32)}); }
bool is_short(const NodeView& n) { return n.integer("window_length") <= 1; }
ValueId cut(Builder& b, const Ramp& ramp, ValueId window) {
  return ramp.periodic ? b.op("aten::slice.Tensor", {window, Expr(0), Expr(0), Expr(ramp.length - 1)}) : window;
}

ValueId general_cosine(Builder& b, const NodeView& n, double alpha, double beta) {
  if (is_short(n)) return ones(b, n);
  Compose c(b);
  const Ramp ramp = make_ramp(b, n);
  const ValueId angle = c.mul(ramp.index, b.floating(kPi * 2 / static_cast<double>(ramp.length - 1)));
  return cut(b, ramp, c.add(c.mul(c.unary("aten::cos", angle), b.floating(-beta)), b.floating(alpha)));
}
std::vector<ValueId> decompose_hann(Builder& b, const NodeView& n) { return {general_cosine(b, n, 0.5, 0.5)}; }
std::vector<ValueId> decompose_hamming(Builder& b, const NodeView& n) {
  const double alpha = n.has("alpha") ? n.number("alpha") : 0.54;
  return {general_cosine(b, n, alpha, n.has("beta") ? n.number("beta") : 0.46)};
}
std::vector<ValueId> decompose_blackman(Builder& b, const NodeView& n) {
  if (is_short(n)) return {ones(b, n)};
  Compose c(b);
  const Ramp ramp = make_ramp(b, n);
  const ValueId step = c.mul(ramp.index, b.floating(kPi / static_cast<double>(ramp.length - 1)));
  const ValueId second = c.mul(c.unary("aten::cos", c.mul(step, Expr(4))), b.floating(0.08));
  const ValueId first = c.mul(c.unary("aten::cos", c.mul(step, Expr(2))), b.floating(0.5));
  return {cut(b, ramp, c.add(c.sub(second, first), b.floating(0.42)))};
}
std::vector<ValueId> decompose_bartlett(Builder& b, const NodeView& n) {
  if (is_short(n)) return {ones(b, n)};
  Compose c(b);
  const Ramp ramp = make_ramp(b, n);
  const ValueId up = c.mul(ramp.index, b.floating(2.0 / static_cast<double>(ramp.length - 1)));
  const ValueId down = b.op("aten::rsub.Scalar", {up, Expr(2)});
  return {cut(b, ramp, b.op("aten::minimum", {up, down}))};
}
std::vector<ValueId> decompose_kaiser(Builder& b, const NodeView& n) {
  if (is_short(n)) return {ones(b, n)};
  Compose c(b);
  const double beta = n.has("beta") ? n.number("beta") : 12.0;
  const Ramp ramp = make_ramp(b, n);
  // i0(beta * sqrt(1 - ((2k - (n-1)) / (n-1))^2)) / i0(beta)
  const ValueId side = c.add(c.mul(ramp.index, b.floating(2.0 / static_cast<double>(ramp.length - 1))), b.floating(-1.0));
  const ValueId inside = b.op("aten::clamp_min", {b.op("aten::rsub.Scalar", {c.mul(side, side), Expr(1)}), Expr(0)});
  const ValueId shape = c.unary("aten::i0", c.mul(c.unary("aten::sqrt", inside), b.floating(beta)));
  double term = 1, total = 1;  // i0(beta) by its series
  for (int k = 1; k < 200 && term > total * 1e-18; ++k) {
    term *= beta * beta / (4.0 * k * k);
    total += term;
  }
  return {cut(b, ramp, c.mul(shape, b.floating(1 / total)))};
}

#define PTERON_OPTIONS ", *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor"
#define WINDOW(name, more, decomposition) \
  {.schema = "aten::" name "(int window_length" more PTERON_OPTIONS, .infer = infer_window, .decompose = decomposition}
constexpr ir::OpDef kRows[] = {
    WINDOW("bartlett_window", "", decompose_bartlett),
    WINDOW("bartlett_window.periodic", ", bool periodic", decompose_bartlett),
    WINDOW("blackman_window", "", decompose_blackman),
    WINDOW("blackman_window.periodic", ", bool periodic", decompose_blackman),
    WINDOW("hamming_window", "", decompose_hamming),
    WINDOW("hamming_window.periodic", ", bool periodic", decompose_hamming),
    WINDOW("hamming_window.periodic_alpha", ", bool periodic, float alpha", decompose_hamming),
    WINDOW("hamming_window.periodic_alpha_beta", ", bool periodic, float alpha, float beta", decompose_hamming),
    WINDOW("hann_window", "", decompose_hann),
    WINDOW("hann_window.periodic", ", bool periodic", decompose_hann),
    WINDOW("kaiser_window", "", decompose_kaiser),
    WINDOW("kaiser_window.beta", ", bool periodic, float beta", decompose_kaiser),
    WINDOW("kaiser_window.periodic", ", bool periodic", decompose_kaiser),
};
#undef WINDOW
#undef PTERON_OPTIONS

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::window
