// Fourier transforms for the compiler: everything becomes _fft_r2c, _fft_c2c or _fft_c2r with resized inputs.
#include "base/str_cat.h"
#include "ops/compose.h"
#include "ops/fft/portable.h"

namespace pteron::ops::fft {
namespace {

using ir::Builder;
using ir::OpDef;

DType complex_of(DType d) { return d == DType::kFloat64 || d == DType::kComplexDouble ? DType::kComplexDouble : DType::kComplexFloat; }

/// Float dtype that a transform of `d` is computed in; integers become float32.
Result<DType> transform_dtype(DType d) {
  if (is_integral(d, true)) return DType::kFloat32;
  if (d == DType::kFloat32 || d == DType::kFloat64 || d == DType::kComplexFloat || d == DType::kComplexDouble) return d;
  return Status(Code::kUnsupported, str_cat("fft of ", dtype_name(d)));
}

// What the family's members differ in: `real` transforms (rfft, irfft) against full ones, and which side is real.
enum class Kind : uint8_t { kFft, kIfft, kRfft, kIrfft, kHfft, kIhfft };
constexpr bool is_inverse(Kind k) { return k == Kind::kIfft || k == Kind::kIrfft || k == Kind::kIhfft; }
constexpr bool to_real(Kind k) { return k == Kind::kIrfft || k == Kind::kHfft; }
constexpr bool from_real(Kind k) { return k == Kind::kRfft || k == Kind::kIhfft; }

/// _fft_*'s normalization from the norm string: 0 none, 1 by the root of n, 2 by n.
int64_t normalization(const NodeView& n, Kind kind) {
  const std::string_view norm = n.is_none("norm") ? "backward" : n.text("norm");
  if (norm == "ortho") return 1;
  return (norm == "forward") != is_inverse(kind) ? 2 : 0;
}

/// Dims and the sizes that the signal has (or is resized to) along them.
struct Signal {
  std::vector<int64_t> dims;
  std::vector<Expr> sizes;  ///< of the input before the transform; for to_real: of the output
};

Status read_dims(const NodeView& n, const TensorType& x, Kind kind, Signal* out) {
  const auto rank = static_cast<int>(x.sizes.size());
  const bool single = n.has("n");
  std::vector<Expr> given;
  if (single) {
    out->dims = {n.integer("dim", -1)};
    if (!n.is_none("n")) given = {n.expr("n")};
  } else {
    if (!n.is_none("s")) given = n.exprs("s");
    if (!n.is_none("dim")) {
      out->dims = n.integers("dim");
    } else {
      const auto count = given.empty() ? rank : static_cast<int>(given.size());
      for (int d = rank - count; d < rank; ++d) out->dims.push_back(d);
    }
  }
  if (out->dims.empty() || (!given.empty() && given.size() != out->dims.size())) {
    return Status(Code::kInvalidInput, str_cat("fft of ", shape_text(x.sizes), " over ", out->dims.size(), " dims with ", given.size(), " sizes"));
  }
  for (size_t i = 0; i < out->dims.size(); ++i) {
    PTERON_ASSIGN(const int dim, wrap_dim_of(out->dims[i], rank));
    out->dims[i] = dim;
    Expr size = x.sizes[static_cast<size_t>(dim)];
    if (to_real(kind) && i + 1 == out->dims.size()) size = (size - Expr(1)) * Expr(2);
    if (!given.empty() && !dim_is(given[i], -1)) size = given[i];
    out->sizes.push_back(size);
  }
  return ok_status();
}

template <Kind kind>
Status infer(InferContext& c) {
  const TensorType x = c.type("self");
  PTERON_ASSIGN(const DType dtype, transform_dtype(x.dtype));
  Signal s;
  PTERON_TRY(read_dims(c, x, kind, &s));
  std::vector<Expr> sizes = x.sizes;
  for (size_t i = 0; i < s.dims.size(); ++i) sizes[static_cast<size_t>(s.dims[i])] = s.sizes[i];
  Expr& last = sizes[static_cast<size_t>(s.dims.back())];
  if (from_real(kind)) last = floor_div(last, Expr(2)) + Expr(1);
  c.add(to_real(kind) ? real_dtype(complex_of(dtype)) : complex_of(dtype), std::move(sizes));
  return ok_status();
}

/// x cut or padded with zeros to `size` along `dim`.
ValueId fit(Compose& f, ValueId x, int64_t dim, Expr size) {
  const Expr have = f.size(x, static_cast<int>(dim));
  if (have == size) return x;
  if (have.is_const() && size.is_const() && size.value() < have.value()) return f.slice(x, static_cast<int>(dim), 0, size);
  std::vector<Expr> pad(2 * (static_cast<size_t>(f.rank(x)) - static_cast<size_t>(dim)), Expr(0));
  pad.back() = size - have;  // negative cuts
  return f.b.op("aten::constant_pad_nd", {x, pad, Expr(0)});
}

template <Kind kind>
std::vector<ValueId> decompose(Builder& b, const NodeView& n) {
  Compose f(b);
  ValueId x = n.value("self");
  Signal s;
  if (Status status = read_dims(n, f.b.type(x), kind, &s); !status.ok()) {
    b.fail(std::move(status));
    return {};
  }
  if (is_integral(f.dtype(x), true)) x = f.to(x, DType::kFloat32);
  for (size_t i = 0; i < s.dims.size(); ++i) {
    const bool half = to_real(kind) && i + 1 == s.dims.size();
    x = fit(f, x, s.dims[i], half ? floor_div(s.sizes[i], Expr(2)) + Expr(1) : s.sizes[i]);
  }
  const Expr norm = normalization(n, kind);
  const std::vector<Expr> dims(s.dims.begin(), s.dims.end());
  if (to_real(kind)) {
    if (!is_complex(f.dtype(x))) {
      x = f.to(x, complex_of(f.dtype(x)));
    } else if (kind == Kind::kHfft) {
      x = b.op("aten::conj_physical", {x});
    }
    return {b.op("aten::_fft_c2r", {x, dims, norm, s.sizes.back()})};
  }
  if (is_complex(f.dtype(x))) return {b.op("aten::_fft_c2c", {x, dims, norm, b.boolean(!is_inverse(kind))})};
  const ValueId out = b.op("aten::_fft_r2c", {x, dims, norm, b.boolean(from_real(kind))});
  return {is_inverse(kind) ? b.op("aten::conj_physical", {out}) : out};
}

Status infer_c2c(InferContext& c) {
  const TensorType x = c.type("self");
  if (!is_complex(x.dtype)) return Status(Code::kInvalidInput, str_cat("expected a complex tensor, found ", dtype_name(x.dtype)));
  c.add(x.dtype, x.sizes);
  return ok_status();
}

Status resized(InferContext& c, DType dtype, const std::function<Expr(Expr)>& size_of) {
  const TensorType x = c.type("self");
  const std::vector<int64_t> dims = c.integers("dim");
  if (dims.empty()) return Status(Code::kInvalidInput, "fft: no dims");
  PTERON_ASSIGN(const int dim, wrap_dim_of(dims.back(), x.rank()));
  std::vector<Expr> sizes = x.sizes;
  if (!sizes.empty()) sizes[static_cast<size_t>(dim)] = size_of(sizes[static_cast<size_t>(dim)]);
  c.add(dtype, std::move(sizes));
  return ok_status();
}
Status infer_r2c(InferContext& c) {
  const DType dtype = c.type("self").dtype;
  if (dtype != DType::kFloat32 && dtype != DType::kFloat64) return Status(Code::kUnsupported, str_cat("fft of ", dtype_name(dtype)));
  const bool half = c.boolean("onesided");
  return resized(c, complex_of(dtype), [half](Expr e) { return half ? floor_div(e, Expr(2)) + Expr(1) : e; });
}
Status infer_c2r(InferContext& c) {
  const Expr last = c.expr("last_dim_size");
  return resized(c, real_dtype(c.type("self").dtype), [last](Expr) { return last; });
}

template <bool inverse>
std::vector<ValueId> decompose_shift(Builder& b, const NodeView& n) {
  Compose f(b);
  const ValueId x = n.value("self");
  std::vector<int64_t> dims = n.integers("dim");
  if (n.is_none("dim")) {
    for (int d = 0; d < f.rank(x); ++d) dims.push_back(d);
  }
  std::vector<Expr> shifts, list;
  for (const int64_t d : dims) {
    shifts.push_back(floor_div(f.size(x, static_cast<int>(d)) + Expr(inverse ? 1 : 0), Expr(2)));
    list.emplace_back(d);
  }
  if (dims.empty()) return {b.op("aten::clone", {x})};
  return {b.op("aten::roll", {x, shifts, list})};
}

/// fftfreq (both halves) and rfftfreq: n of them, 1 / (n * d) apart.
template <bool both>
Status infer_frequencies(InferContext& c) {
  const Expr n = c.expr("n");
  if (ir::bounds(n).max < 1) return Status(Code::kInvalidInput, str_cat("frequencies of a transform of ", ir::to_text(n), " elements"));
  c.add(c.dtype("dtype", DType::kFloat32), {both ? n : floor_div(n, Expr(2)) + Expr(1)});
  return ok_status();
}
template <bool both>
std::vector<ValueId> decompose_frequencies(Builder& b, const NodeView& n) {
  const Expr count = n.expr("n"), half = floor_div(count, Expr(2));
  if (!count.is_const()) {
    b.fail(Status(Code::kUnsupported, "frequencies of a transform whose size may vary"));
    return {};
  }
  const DType dtype = n.dtype("dtype", DType::kFloat32);
  const auto range = [&](Expr from, Expr to) { return b.op("aten::arange.start_step", {from, to, Expr(1), dtype}); };
  const double step = 1.0 / (static_cast<double>(count.value()) * n.number("d"));
  const ValueId steps = both ? Compose(b).cat({range(Expr(0), count - half), range(Expr(0) - half, Expr(0))}, 0) : range(Expr(0), half + Expr(1));
  return {b.op("aten::mul.Scalar", {steps, b.floating(step)})};
}

/// The numbers of an stft call.
struct Stft {
  Expr size, hop, window;
  bool onesided = true, complex_result = true;
};
Stft read_stft(const NodeView& n) {
  Stft s;
  s.size = n.expr("n_fft");
  s.hop = n.is_none("hop_length") ? floor_div(s.size, Expr(4)) : n.expr("hop_length");
  s.window = n.is_none("win_length") ? s.size : n.expr("win_length");
  s.onesided = n.boolean("onesided", !is_complex(n.type("self").dtype));
  s.complex_result = n.boolean("return_complex", is_complex(n.type("self").dtype));
  return s;
}

Status infer_stft(InferContext& c) {
  const TensorType x = c.type("self");
  if (x.rank() != 1 && x.rank() != 2) return Status(Code::kInvalidInput, str_cat("stft of ", shape_text(x.sizes)));
  const Stft s = read_stft(c);
  if (ir::bounds(s.size).max < 1 || ir::bounds(s.hop).min < 1) {
    return Status(Code::kInvalidInput, str_cat("stft with n_fft ", ir::to_text(s.size), " and hop_length ", ir::to_text(s.hop), ", both must be positive"));
  }
  std::vector<Expr> sizes;
  if (x.rank() == 2) sizes.push_back(x.sizes[0]);
  sizes.push_back(s.onesided ? floor_div(s.size, Expr(2)) + Expr(1) : s.size);
  sizes.push_back(floor_div(x.sizes.back() - s.size, s.hop) + Expr(1));
  if (s.complex_result) {
    c.add(complex_of(x.dtype), std::move(sizes));
    return ok_status();
  }
  sizes.emplace_back(2);
  c.add(real_dtype(complex_of(x.dtype)), std::move(sizes));
  return ok_status();
}

std::vector<ValueId> decompose_stft(Builder& b, const NodeView& n) {
  Compose f(b);
  ValueId x = n.value("self");
  const Stft s = read_stft(n);
  const bool batched = f.rank(x) == 2;
  if (!batched) x = f.unsqueeze(x, 0);
  ValueId frames = b.op("aten::unfold", {x, Expr(1), s.size, s.hop});
  ValueId window = n.value("window");
  if (!window.valid() && !(s.window == s.size)) {
    window = b.op("aten::full", {std::vector<Expr>{s.window}, b.floating(1), real_dtype(complex_of(f.dtype(x)))});
  }
  if (window.valid() && !(s.window == s.size)) {
    const Expr left = floor_div(s.size - s.window, Expr(2));
    window = b.op("aten::constant_pad_nd", {window, std::vector<Expr>{left, s.size - s.window - left}, Expr(0)});
  }
  if (window.valid()) frames = f.mul(frames, window);
  const std::vector<Expr> dim{Expr(2)};
  const Expr norm = n.boolean("normalized") ? 1 : 0;
  ValueId out = is_complex(f.dtype(frames)) ? b.op("aten::_fft_c2c", {frames, dim, norm, b.boolean(true)})
                                            : b.op("aten::_fft_r2c", {frames, dim, norm, b.boolean(s.onesided)});
  out = f.transpose(out, 1, 2);
  if (!batched) out = f.squeeze(out, 0);
  return {s.complex_result ? out : b.op("aten::view_as_real", {out})};
}

Status infer_centred_stft(InferContext& c) {
  PTERON_TRY(infer_stft(c));
  if (!c.boolean("center")) return ok_status();
  const Stft s = read_stft(c);
  const TensorType x = c.type("self");
  const Expr length = x.sizes.back() + floor_div(s.size, Expr(2)) * Expr(2);
  TensorType& out = c.results[0].type;
  std::vector<Expr> sizes = out.sizes;
  sizes[x.sizes.size()] = floor_div(length - s.size, s.hop) + Expr(1);
  out = ir::contiguous_type(out.dtype, std::move(sizes));
  return ok_status();
}
/// The signal padded by half a frame on both sides, then stft.
std::vector<ValueId> decompose_centred_stft(Builder& b, const NodeView& n) {
  Compose f(b);
  ValueId x = n.value("self");
  if (n.boolean("center")) {
    const Expr half = floor_div(n.expr("n_fft"), Expr(2)), batch = f.rank(x) == 2 ? f.size(x, 0) : Expr(1), length = f.size(x, -1) + half + half;
    const bool batched = f.rank(x) == 2;
    x = b.op("aten::pad", {f.view(x, {Expr(1), batch, f.size(x, -1)}), std::vector<Expr>{half, half}, n.arg("pad_mode")});
    x = f.view(x, batched ? std::vector<Expr>{batch, length} : std::vector<Expr>{length});
  }
  return {b.op("aten::stft", {x, n.arg("n_fft"), n.arg("hop_length"), n.arg("win_length"), n.arg("window"), n.arg("normalized"), n.arg("onesided"), n.arg("return_complex"),
                              n.arg("align_to_window")})};
}

/// The numbers of an istft call: frames [B, frames, bins] become a signal of `whole` elements, of which [start, end) counts.
struct Inverse {
  Stft s;
  Expr whole, start, end;
  bool batched = false, real = true;
};
Inverse read_istft(const NodeView& n) {
  Inverse v;
  const TensorType& x = n.type("self");
  v.batched = x.rank() == 3;
  v.s.size = n.expr("n_fft");
  v.s.hop = n.is_none("hop_length") ? floor_div(v.s.size, Expr(4)) : n.expr("hop_length");
  v.s.window = n.is_none("win_length") ? v.s.size : n.expr("win_length");
  const size_t first = v.batched ? 1 : 0;
  if (x.sizes.size() < first + 2) return v;
  v.s.onesided = n.boolean("onesided", !(x.sizes[first] == v.s.size));
  v.real = !n.boolean("return_complex");
  v.whole = v.s.size + v.s.hop * (x.sizes[first + 1] - Expr(1));
  const bool centred = n.boolean("center");
  v.start = centred ? floor_div(v.s.size, Expr(2)) : Expr(0);
  v.end = !n.is_none("length") ? v.start + n.expr("length") : centred ? v.whole - floor_div(v.s.size, Expr(2)) : v.whole;
  return v;
}
Status infer_istft(InferContext& c) {
  const TensorType x = c.type("self");
  if (!is_complex(x.dtype) || (x.rank() != 2 && x.rank() != 3)) return Status(Code::kInvalidInput, str_cat("istft of ", dtype_name(x.dtype), " ", shape_text(x.sizes)));
  const Inverse v = read_istft(c);
  std::vector<Expr> sizes;
  if (v.batched) sizes.push_back(x.sizes[0]);
  sizes.push_back(v.end - v.start);
  c.add(v.real ? real_dtype(x.dtype) : x.dtype, std::move(sizes));
  return ok_status();
}
/// Inverse transforms of the frames, windowed and added where they overlap, over the sum of the squared windows.
std::vector<ValueId> decompose_istft(Builder& b, const NodeView& n) {
  Compose f(b);
  const Inverse v = read_istft(n);
  ValueId x = n.value("self");
  if (f.rank(x) != 2 && f.rank(x) != 3) return b.fail(Status(Code::kInvalidInput, str_cat("istft of ", shape_text(f.sizes(x))))), std::vector<ValueId>{};
  if (!v.batched) x = f.unsqueeze(x, 0);
  x = f.transpose(x, 1, 2);  // [B, frames, bins]
  const Expr frames = f.size(x, 1);
  const std::vector<Expr> dim{Expr(2)};
  const Expr norm = n.boolean("normalized") ? 1 : 2;
  const DType dtype = v.real ? real_dtype(f.dtype(x)) : f.dtype(x);
  if (v.real) {
    if (!v.s.onesided) x = f.slice(x, 2, 0, floor_div(v.s.size, Expr(2)) + Expr(1));
    x = b.op("aten::_fft_c2r", {x, dim, norm, v.s.size});
  } else {
    x = b.op("aten::_fft_c2c", {x, dim, norm, b.boolean(false)});
  }
  ValueId window = n.value("window");
  if (!window.valid()) window = b.op("aten::full", {std::vector<Expr>{v.s.window}, b.floating(1), real_dtype(dtype)});
  if (!(v.s.window == v.s.size)) {
    const Expr left = floor_div(v.s.size - v.s.window, Expr(2));
    window = b.op("aten::constant_pad_nd", {window, std::vector<Expr>{left, v.s.size - v.s.window - left}, Expr(0)});
  }
  const auto overlap = [&](ValueId pieces) {
    return b.op("aten::unfold_backward", {pieces, std::vector<Expr>{f.size(pieces, 0), v.whole}, Expr(1), v.s.size, v.s.hop});
  };
  const ValueId signal = overlap(f.mul(x, window));
  const ValueId weight = overlap(f.expand(f.unsqueeze(f.unsqueeze(f.mul(window, window), 0), 0), {Expr(1), frames, v.s.size}));
  const Expr end = dim_min(v.end, v.whole);
  ValueId out = f.div(f.slice(signal, 1, v.start, end), f.slice(weight, 1, v.start, end));
  out = f.to(fit(f, out, 1, v.end - v.start), dtype);
  return {v.batched ? out : f.squeeze(out, 0)};
}

#define PTERON_FFT(name, kind)                                                                                                    \
  {.schema = "aten::fft_" name "(Tensor self, SymInt? n=None, int dim=-1, str? norm=None) -> Tensor",                            \
   .infer = infer<Kind::kind>, .decompose = decompose<Kind::kind>},                                                              \
      {.schema = "aten::fft_" name "2(Tensor self, SymInt[1]? s=None, int[1] dim=[-2, -1], str? norm=None) -> Tensor",            \
       .infer = infer<Kind::kind>, .decompose = decompose<Kind::kind>},                                                          \
      {.schema = "aten::fft_" name "n(Tensor self, SymInt[1]? s=None, int[1]? dim=None, str? norm=None) -> Tensor",               \
       .infer = infer<Kind::kind>, .decompose = decompose<Kind::kind>}

constexpr OpDef kTable[] = {
    PTERON_FFT("fft", kFft),
    PTERON_FFT("ifft", kIfft),
    PTERON_FFT("rfft", kRfft),
    PTERON_FFT("irfft", kIrfft),
    PTERON_FFT("hfft", kHfft),
    PTERON_FFT("ihfft", kIhfft),
    {.schema = "aten::fft_fftfreq(SymInt n, float d=1.0, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
     .infer = infer_frequencies<true>, .decompose = decompose_frequencies<true>},
    {.schema = "aten::fft_rfftfreq(SymInt n, float d=1.0, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None) -> Tensor",
     .infer = infer_frequencies<false>, .decompose = decompose_frequencies<false>},
    {.schema = "aten::fft_fftshift(Tensor self, int[1]? dim=None) -> Tensor", .infer = infer_like_self, .decompose = decompose_shift<false>},
    {.schema = "aten::fft_ifftshift(Tensor self, int[1]? dim=None) -> Tensor", .infer = infer_like_self, .decompose = decompose_shift<true>},
    {.schema = "aten::_fft_c2c(Tensor self, SymInt[] dim, int normalization, bool forward) -> Tensor", .infer = infer_c2c, .decompose = portable_c2c, .kernel = "aten::_fft_c2c.out"},
    {.schema = "aten::_fft_r2c(Tensor self, int[] dim, int normalization, bool onesided) -> Tensor", .infer = infer_r2c, .decompose = portable_r2c, .kernel = "aten::_fft_r2c.out"},
    {.schema = "aten::_fft_c2r(Tensor self, int[] dim, int normalization, SymInt last_dim_size) -> Tensor", .infer = infer_c2r,
     .kernel = "aten::_fft_c2r.out"},
    {.schema = "aten::stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool normalized=False, "
               "bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor",
     .infer = infer_stft, .decompose = decompose_stft},
    {.schema = "aten::stft.center(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, "
               "str pad_mode='reflect', bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor",
     .infer = infer_centred_stft, .decompose = decompose_centred_stft},
    {.schema = "aten::istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, bool normalized=False, "
               "bool? onesided=None, int? length=None, bool return_complex=False) -> Tensor",
     .infer = infer_istft, .decompose = decompose_istft},
};
#undef PTERON_FFT

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::fft
