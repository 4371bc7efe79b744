// Fourier transforms of tensors for the runtime: line by line along each dim. Transform of a line: kernel_transform.cpp. Compile half: op.cpp.
#include <algorithm>
#include <cmath>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ops/fft/lanes.h"
#include "runtime/kernel.h"
#include "tensor/dim_math.h"
#include "tensor/dtype.h"

namespace pteron::ops::fft {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

/// How one line is read and written.
enum class Side : uint8_t { kComplex, kReal, kHalf };

/// A tensor as lines along one dim. Half: the first n/2+1 values of a line of n that is conjugate symmetric.
struct Lines {
  TensorView view;
  Side side = Side::kComplex;
};

template <typename T>
Complex read_one(const void* data, int64_t at, Side side) {
  if (side == Side::kReal) return {static_cast<double>(static_cast<const T*>(data)[at]), 0.0};
  const auto v = static_cast<const std::complex<T>*>(data)[at];
  return {static_cast<double>(v.real()), static_cast<double>(v.imag())};
}

template <typename T>
void read_line(const Lines& from, int64_t offset, int64_t stride, int64_t n, Complex* line) {
  const void* data = from.view.data;
  if (from.side != Side::kHalf) {
    for (int64_t k = 0; k < n; ++k) line[k] = read_one<T>(data, offset + k * stride, from.side);
    return;
  }
  for (int64_t k = 0; k <= n / 2; ++k) line[k] = read_one<T>(data, offset + k * stride, Side::kComplex);
  line[0] = line[0].real();
  if (n % 2 == 0) line[n / 2] = line[n / 2].real();
  for (int64_t k = n / 2 + 1; k < n; ++k) line[k] = std::conj(line[n - k]);
}

template <typename T>
void write_line(const Lines& to, int64_t offset, int64_t stride, int64_t n, double scale, const Complex* line) {
  const int64_t count = to.side == Side::kHalf ? n / 2 + 1 : n;
  if (to.side == Side::kReal) {
    for (int64_t k = 0; k < count; ++k) to.view.as<T>()[offset + k * stride] = static_cast<T>(line[k].real() * scale);
    return;
  }
  auto* data = to.view.as<std::complex<T>>();
  for (int64_t k = 0; k < count; ++k) data[offset + k * stride] = {static_cast<T>(line[k].real() * scale), static_cast<T>(line[k].imag() * scale)};
}

/// Longest lines whose chirp product is done several lines at once.
constexpr int64_t kMaxChirpLanes = 16384;

/// Scratch: the tables of one dim, then per-thread work, then (for c2r) a copy of the input.
size_t tables_bytes(int64_t n) { return align_up(static_cast<size_t>(table_size(n)) * sizeof(Complex), 64); }
size_t slot_bytes(int64_t n) {
  const auto one_line = static_cast<size_t>(std::max<int64_t>(n, 1) + work_size(n)) * sizeof(Complex);
  const auto lanes = static_cast<size_t>(n + 1) * 2 * 64;  // two buffers of kLanes complex values an element
  const auto chirp_lanes = static_cast<size_t>(work_size(std::min(n, kMaxChirpLanes))) * 64;
  return align_up(std::max({one_line, lanes, chirp_lanes}), 64);
}

/// Offsets of the lines of one group.
template <typename R>
struct Group {
  int64_t count = 0;
  int64_t from[kLanes<R>] = {}, to[kLanes<R>] = {};
};

/// Offsets as the lanes read them: lanes without a line read the first one again.
template <typename T>
Group<T> full_group(const Group<T>& group) {
  Group<T> full = group;
  for (int64_t l = group.count; l < kLanes<T>; ++l) full.from[l] = full.from[0];
  return full;
}
template <typename T>
bool are_near(int64_t count, const int64_t* offsets) {
  for (int64_t l = 1; l < kLanes<T>; ++l) {
    if (l >= count || offsets[l] != offsets[0] + l) return false;
  }
  return true;
}

/// count complex elements of every line, `stride` apart.
template <typename T>
void read_complex(const Group<T>& group, const std::complex<T>* data, int64_t stride, int64_t count, T* line) {
  constexpr int64_t L = kLanes<T>;
  const auto* numbers = reinterpret_cast<const T*>(data);
  if (stride == 1) {
    const T* lines[L];
    for (int64_t l = 0; l < L; ++l) lines[l] = numbers + 2 * group.from[l];
    return read_dense_lines(lines, 2 * count, line);
  }
  if (are_near<T>(group.count, group.from)) return read_near_lines(numbers + 2 * group.from[0], 2 * stride, count, line);
  for (int64_t k = 0; k < count; ++k, line += 2 * L) {
    for (int64_t l = 0; l < L; ++l) {
      const std::complex<T> v = data[group.from[l] + k * stride];
      line[l] = v.real(), line[L + l] = v.imag();
    }
  }
}
/// count real numbers of every line: number k comes to line[k * kLanes].
template <typename T>
void read_real(const Group<T>& group, const T* data, int64_t stride, int64_t count, T* line) {
  constexpr int64_t L = kLanes<T>;
  if (stride == 1) {
    const T* lines[L];
    for (int64_t l = 0; l < L; ++l) lines[l] = data + group.from[l];
    return read_dense_lines(lines, count, line);
  }
  const bool near = are_near<T>(group.count, group.from);
  for (int64_t k = 0; k < count; ++k, line += L) {
    if (near) {
      store_lane(line, load_lane(data + group.from[0] + k * stride));
      continue;
    }
    for (int64_t l = 0; l < L; ++l) line[l] = data[group.from[l] + k * stride];
  }
}

template <typename T>
void write_complex(const Group<T>& group, const T* line, int64_t count, T factor, std::complex<T>* data, int64_t stride) {
  constexpr int64_t L = kLanes<T>;
  auto* numbers = reinterpret_cast<T*>(data);
  if (stride == 1 && group.count == L) {
    T* lines[L];
    for (int64_t l = 0; l < L; ++l) lines[l] = numbers + 2 * group.to[l];
    return write_dense_lines(line, 2 * count, factor, lines);
  }
  if (are_near<T>(group.count, group.to)) return write_near_lines(line, count, factor, numbers + 2 * group.to[0], 2 * stride);
  for (int64_t k = 0; k < count; ++k, line += 2 * L) {
    for (int64_t l = 0; l < group.count; ++l) data[group.to[l] + k * stride] = {line[l] * factor, line[L + l] * factor};
  }
}
template <typename T>
void write_real(const Group<T>& group, const T* line, int64_t count, T factor, T* data, int64_t stride) {
  constexpr int64_t L = kLanes<T>;
  if (stride == 1 && group.count == L) {
    T* lines[L];
    for (int64_t l = 0; l < L; ++l) lines[l] = data + group.to[l];
    return write_dense_lines(line, count, factor, lines);
  }
  const bool near = are_near<T>(group.count, group.to);
  for (int64_t k = 0; k < count; ++k, line += L) {
    if (near) {
      store_lane(data + group.to[0] + k * stride, load_lane(line) * factor);
      continue;
    }
    for (int64_t l = 0; l < group.count; ++l) data[group.to[l] + k * stride] = line[l] * factor;
  }
}

/// Elements m + 1 .. n - 1 of a conjugate symmetric spectrum from the others.
template <typename T>
void mirror_lanes(int64_t n, T* line) {
  constexpr int64_t L = kLanes<T>;
  for (int64_t k = n / 2 + 1; k < n; ++k) {
    const auto v = LaneComplex<T>::load(line + 2 * L * (n - k));
    LaneComplex<T>{v.re, -v.im}.store(line + 2 * L * k);
  }
}
/// The imaginary parts of what is real in the spectrum of a real line: its first value, and the middle one if n is even.
template <typename T>
void clear_imaginary(int64_t n, T* line) {
  constexpr int64_t L = kLanes<T>;
  std::fill_n(line + L, L, T(0));
  if (n % 2 == 0) std::fill_n(line + L * n + L, L, T(0));
}

/// All lines of a group, through buffers of the slot. Requires: no chirp.
template <typename T>
void run_group(const Plan& plan, const Lines& from, const Lines& to, int dim, int64_t n, double scale, const Group<T>& lines, T* line) {
  constexpr int64_t L = kLanes<T>;
  const int64_t in = from.view.stride(dim), out = to.view.stride(dim), m = n / 2;
  T* const other = line + 2 * L * (n + 1);
  const auto factor = static_cast<T>(scale);
  const Group<T> group = full_group(lines);
  const T* real = static_cast<const T*>(from.view.data);
  const auto* complex = static_cast<const std::complex<T>*>(from.view.data);
  auto* target = static_cast<std::complex<T>*>(to.view.data);
  if (from.side == Side::kReal && n % 2 == 0) {  // neighbours as one complex number
    read_real(group, real, in, n, line);
    T* done = lanes_transform(plan.roots, 2, m, line, other);
    lanes_split_real(plan.roots, m, done);
    if (to.side != Side::kHalf) mirror_lanes(n, done);
    return write_complex(group, done, to.side == Side::kHalf ? m + 1 : n, factor, target, out);
  }
  if (from.side == Side::kHalf && to.side == Side::kReal && n % 2 == 0) {
    read_complex(group, complex, in, m + 1, line);
    clear_imaginary(n, line);
    lanes_join_real(plan.roots, m, line);
    return write_real(group, lanes_transform(plan.roots, 2, m, line, other), n, factor, static_cast<T*>(to.view.data), out);
  }
  if (from.side == Side::kReal) {
    read_real(group, real, in, n, other);
    for (int64_t k = 0; k < n; ++k) LaneComplex<T>{load_lane(other + k * L), Lane<T>{}}.store(line + 2 * L * k);
  } else if (from.side == Side::kComplex) {
    read_complex(group, complex, in, n, line);
  } else {
    read_complex(group, complex, in, m + 1, line);
    clear_imaginary(n, line);
    mirror_lanes(n, line);
  }
  T* done = lanes_transform(plan.roots, 1, n, line, other);
  if (to.side != Side::kReal) return write_complex(group, done, to.side == Side::kHalf ? m + 1 : n, factor, target, out);
  for (int64_t k = 0; k < n; ++k) store_lane(done + k * L, load_lane(done + 2 * L * k));
  write_real(group, done, n, factor, static_cast<T*>(to.view.data), out);
}

/// Lines of a length with large prime factors, in double: kLanes<double> of them, or twice as many where real lines go in pairs as the two parts of one.
struct ChirpGroup {
  static constexpr int64_t kMost = 2 * kLanes<double>;
  int64_t count = 0;
  bool paired = false;
  int64_t from[kMost] = {}, to[kMost] = {};
};

bool chirp_pairs(const Lines& from, const Lines& to) { return from.side == Side::kReal || (from.side == Side::kHalf && to.side == Side::kReal); }

/// Element k of line i of a group.
template <typename T>
Complex chirp_element(const Lines& from, int64_t offset, int64_t stride, int64_t n, int64_t k) {
  if (from.side != Side::kHalf) return read_one<T>(from.view.data, offset + k * stride, from.side);
  const Complex v = read_one<T>(from.view.data, offset + std::min(k, n - k) * stride, Side::kComplex);
  if (k == 0 || 2 * k == n) return v.real();
  return k <= n / 2 ? v : std::conj(v);
}

/// line *= factors (conjugated afterwards if `flip`), over n elements of all lanes.
void multiply_lanes(const Complex* factors, int64_t n, bool flip, double* line) {
  constexpr int64_t L = kLanes<double>;
  const double sign = flip ? -1 : 1;
  for (int64_t k = 0; k < n; ++k, line += 2 * L) {
    const double re = factors[k].real(), im = factors[k].imag();
    for (int64_t l = 0; l < L; ++l) {
      const double a = line[l], b = line[L + l];
      line[l] = a * re - b * im;
      line[L + l] = sign * (a * im + b * re);
    }
  }
}

template <typename T>
void write_chirp(const Lines& to, const ChirpGroup& group, int64_t stride, int64_t n, double scale, const double* line) {
  constexpr int64_t L = kLanes<double>;
  const int64_t count = to.side == Side::kHalf ? n / 2 + 1 : n;
  const auto value = [&](int64_t lane, int64_t k) { return Complex(line[2 * L * k + lane], line[2 * L * k + L + lane]) * scale; };
  for (int64_t i = 0; i < group.count; ++i) {
    const int64_t lane = group.paired ? i / 2 : i;
    if (to.side == Side::kReal) {
      for (int64_t k = 0; k < count; ++k) {
        const Complex v = value(lane, k);
        to.view.as<T>()[group.to[i] + k * stride] = static_cast<T>(group.paired && i % 2 != 0 ? v.imag() : v.real());
      }
      continue;
    }
    auto* target = to.view.as<std::complex<T>>() + group.to[i];
    for (int64_t k = 0; k < count; ++k) {
      Complex v = value(lane, k);
      if (group.paired) {  // the spectra of the two real lines: the conjugate symmetric part, and the other
        const Complex mirrored = std::conj(value(lane, k == 0 ? 0 : n - k));
        const Complex sum = v + mirrored, difference = v - mirrored;
        v = i % 2 == 0 ? 0.5 * sum : Complex(0.5 * difference.imag(), -0.5 * difference.real());
      }
      target[k * stride] = {static_cast<T>(v.real()), static_cast<T>(v.imag())};
    }
  }
}

/// All lines of a group: see transform().
template <typename T>
void run_chirp_group(const Plan& plan, const Lines& from, const Lines& to, int dim, double scale, const ChirpGroup& group, double* line) {
  constexpr int64_t L = kLanes<double>;
  const int64_t n = plan.n, in = from.view.stride(dim);
  double* other = line + 2 * L * plan.padded;
  std::fill_n(line, 2 * L * plan.padded, 0.0);
  for (int64_t i = 0; i < group.count; ++i) {
    double* to_lane = line + (group.paired ? i / 2 : i);
    const bool second = group.paired && i % 2 != 0;
    for (int64_t k = 0; k < n; ++k) {
      const Complex v = chirp_element<T>(from, group.from[i], in, n, k);
      double* at = to_lane + 2 * L * k;
      if (second) {  // plus i times this line
        at[0] -= v.imag(), at[L] += v.real();
      } else {
        at[0] = v.real(), at[L] = v.imag();
      }
    }
  }
  multiply_lanes(plan.phases, n, false, line);
  double* done = lanes_transform(plan.roots, 1, plan.padded, line, other);
  multiply_lanes(plan.kernel, plan.padded, true, done);
  done = lanes_transform(plan.roots, 1, plan.padded, done, done == line ? other : line);
  for (int64_t k = 0; k < n; ++k) {
    for (int64_t l = 0; l < L; ++l) done[2 * L * k + L + l] = -done[2 * L * k + L + l];
  }
  multiply_lanes(plan.phases, n, false, done);
  write_chirp<T>(to, group, to.view.stride(dim), n, scale, done);
}

int64_t align_up_count(int64_t count, int64_t multiple) { return ceil_div(count, multiple) * multiple; }

/// Transforms all lines along `dim` (length n) from one tensor to another of the same other sizes; they may be one memory.
template <typename T>
void run_dim(KernelContext& context, std::span<std::byte> scratch, const Lines& from, const Lines& to, int dim, int64_t n, bool forward, double scale) {
  int64_t lines = 1;
  for (int d = 0; d < from.view.rank; ++d) {
    if (d != dim) lines *= from.view.size(d);
  }
  if (lines == 0 || n == 0) return;
  auto* table = reinterpret_cast<Complex*>(scratch.data());
  std::byte* slots = scratch.data() + tables_bytes(n);
  const Plan plan = make_plan(n, forward, table, reinterpret_cast<Complex*>(slots));
  const size_t slot = slot_bytes(n);
  const int64_t room = std::max<int64_t>(static_cast<int64_t>((scratch.size() - tables_bytes(n)) / slot), 1);
  const auto offsets = [&](int64_t i, int64_t* from_offset, int64_t* to_offset) {
    *from_offset = *to_offset = 0;
    for (int d = from.view.rank - 1; d >= 0; --d) {
      if (d == dim) continue;
      *from_offset += i % from.view.size(d) * from.view.stride(d);
      *to_offset += i % from.view.size(d) * to.view.stride(d);
      i /= from.view.size(d);
    }
  };
  const int64_t parts = std::clamp<int64_t>(lines * n / 4096, 1, std::min<int64_t>(std::min<int64_t>(room, context.pool->thread_count()), lines));
  const int64_t each = align_up_count(ceil_div(lines, parts), kLanes<float>);
  if (plan.chirp && lines > 1 && n <= kMaxChirpLanes) {
    const bool paired = chirp_pairs(from, to);
    const int64_t most = paired ? ChirpGroup::kMost : kLanes<double>;
    context.pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        auto* buffers = reinterpret_cast<double*>(slots + static_cast<size_t>(part) * slot);
        for (int64_t i = part * each; i < std::min(lines, (part + 1) * each); i += most) {
          ChirpGroup group;
          group.paired = paired;
          group.count = std::min(most, std::min(lines, (part + 1) * each) - i);
          for (int64_t l = 0; l < group.count; ++l) offsets(i + l, &group.from[l], &group.to[l]);
          run_chirp_group<T>(plan, from, to, dim, scale, group, buffers);
        }
      }
    });
    return;
  }
  if (!plan.chirp && lines >= kLanes<T> / 2) {
    context.pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t part = begin; part < end; ++part) {
        auto* buffers = reinterpret_cast<T*>(slots + static_cast<size_t>(part) * slot);
        for (int64_t i = part * each; i < std::min(lines, (part + 1) * each); i += kLanes<T>) {
          Group<T> group;
          group.count = std::min(kLanes<T>, std::min(lines, (part + 1) * each) - i);
          for (int64_t l = 0; l < group.count; ++l) offsets(i + l, &group.from[l], &group.to[l]);
          run_group<T>(plan, from, to, dim, n, scale, group, buffers);
        }
      }
    });
    return;
  }
  context.pool->parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      auto* line = reinterpret_cast<Complex*>(slots + static_cast<size_t>(part) * slot);
      for (int64_t i = part * each; i < std::min(lines, (part + 1) * each); ++i) {
        int64_t from_offset = 0, to_offset = 0;
        offsets(i, &from_offset, &to_offset);
        read_line<T>(from, from_offset, from.view.stride(dim), n, line);
        transform(plan, line, line + n);
        write_line<T>(to, to_offset, to.view.stride(dim), n, scale, line);
      }
    }
  });
}

/// dims wrapped and checked.
Status wrap_dims(const Tensor& x, const IntList& dim, RankList<int>* out) {
  for (const int64_t d : dim) {
    PTERON_ASSIGN(const int wrapped, wrap_dim(d, x.rank()));
    if (x.rank() == 0) return Status(Code::kInvalidInput, "fft of a tensor of rank 0");
    out->push_back(wrapped);
  }
  if (out->empty()) return Status(Code::kInvalidInput, "fft: no dims");
  return ok_status();
}

double scale_of(int64_t normalization, const RankList<int>& dims, const TensorView& sizes) {
  double n = 1;
  for (const int d : dims) n *= static_cast<double>(sizes.size(d));
  if (normalization == 1) return 1 / std::sqrt(n);
  return normalization == 2 ? 1 / n : 1;
}

template <typename Fn>
Status for_real(DType dtype, Fn&& fn) {
  if (dtype == DType::kFloat32 || dtype == DType::kComplexFloat) {
    fn.template operator()<float>();
    return ok_status();
  }
  if (dtype == DType::kFloat64 || dtype == DType::kComplexDouble) {
    fn.template operator()<double>();
    return ok_status();
  }
  return Status(Code::kUnsupported, str_cat("fft of ", dtype_name(dtype)));
}

bool pairs(DType real, DType complex) {
  return (real == DType::kFloat32 && complex == DType::kComplexFloat) || (real == DType::kFloat64 && complex == DType::kComplexDouble);
}

Status c2c_out(KernelContext& context, const Tensor& x, IntList dim, int64_t normalization, bool forward, Tensor& out) {
  RankList<int> dims;
  PTERON_TRY(wrap_dims(x, dim, &dims));
  if (!is_complex(x.dtype()) || x.dtype() != out.dtype()) return Status(Code::kUnsupported, str_cat("c2c fft of ", dtype_name(x.dtype())));
  PTERON_TRY(resize(out, x.sizes()));
  const double scale = scale_of(normalization, dims, x.view);
  return for_real(x.dtype(), [&]<typename T>() {
    for (size_t i = dims.size(); i-- > 0;) {
      const bool first = i + 1 == dims.size();
      run_dim<T>(context, context.scratch, {first ? x.view : out.view, Side::kComplex}, {out.view, Side::kComplex}, dims[i], x.size(dims[i]), forward,
                 i == 0 ? scale : 1);
    }
  });
}

Status r2c_out(KernelContext& context, const Tensor& x, IntList dim, int64_t normalization, bool onesided, Tensor& out) {
  RankList<int> dims;
  PTERON_TRY(wrap_dims(x, dim, &dims));
  if (!pairs(x.dtype(), out.dtype())) return Status(Code::kUnsupported, str_cat("r2c fft of ", dtype_name(x.dtype()), " into ", dtype_name(out.dtype())));
  Sizes sizes(x.sizes());
  const int last = dims.back();
  if (onesided) sizes[static_cast<size_t>(last)] = x.size(last) / 2 + 1;
  PTERON_TRY(resize(out, sizes));
  const double scale = scale_of(normalization, dims, x.view);
  return for_real(x.dtype(), [&]<typename T>() {
    run_dim<T>(context, context.scratch, {x.view, Side::kReal}, {out.view, onesided ? Side::kHalf : Side::kComplex}, last, x.size(last), true,
               dims.size() == 1 ? scale : 1);
    for (size_t i = dims.size() - 1; i-- > 0;) {
      const Lines lines{out.view, Side::kComplex};
      run_dim<T>(context, context.scratch, lines, lines, dims[i], out.size(dims[i]), true, i == 0 ? scale : 1);
    }
  });
}

/// Sizes as seen by the longest dim: the tables and slots must hold it.
int64_t longest(std::initializer_list<std::span<const int64_t>> lists) {
  int64_t n = 1;
  for (const auto& sizes : lists) {
    for (const int64_t s : sizes) n = std::max(n, s);
  }
  return n;
}
size_t line_bytes(int64_t n) { return tables_bytes(n) + slot_bytes(n) * static_cast<size_t>(std::clamp(usable_cpu_count(), 1, 64)); }

Status c2r_out(KernelContext& context, const Tensor& x, IntList dim, int64_t normalization, int64_t last_size, Tensor& out) {
  RankList<int> dims;
  PTERON_TRY(wrap_dims(x, dim, &dims));
  if (!pairs(out.dtype(), x.dtype())) return Status(Code::kUnsupported, str_cat("c2r fft of ", dtype_name(x.dtype()), " into ", dtype_name(out.dtype())));
  const int last = dims.back();
  if (last_size < 1 || x.size(last) != last_size / 2 + 1) {
    return Status(Code::kInvalidInput, str_cat("c2r fft: input ", shape_text(x.sizes()), " for an output of ", last_size));
  }
  Sizes sizes(x.sizes());
  sizes[static_cast<size_t>(last)] = last_size;
  PTERON_TRY(resize(out, sizes));
  const double scale = scale_of(normalization, dims, out.view);
  const size_t copy_bytes = align_up(x.view.size_bytes(), 64);
  if (copy_bytes > context.scratch.size()) return Status(Code::kInternal, "c2r fft: scratch is too small");
  TensorView copy = make_contiguous_view(x.dtype(), x.sizes(), context.scratch.data());
  const std::span<std::byte> rest = context.scratch.subspan(copy_bytes);
  return for_real(x.dtype(), [&]<typename T>() {
    // All other dims first, on a copy; the last one gives real values.
    TensorView from = x.view;
    for (size_t i = 0; i + 1 < dims.size(); ++i) {
      run_dim<T>(context, rest, {from, Side::kComplex}, {copy, Side::kComplex}, dims[i], x.size(dims[i]), false, 1);
      from = copy;
    }
    run_dim<T>(context, rest, {from, Side::kHalf}, {out.view, Side::kReal}, last, last_size, false, scale);
  });
}

size_t workspace(std::span<Value* const> args) {
  return line_bytes(longest({args[0]->tensor.sizes(), args.back()->tensor.sizes()}));
}
size_t c2r_workspace(std::span<Value* const> args) { return workspace(args) + align_up(args[0]->tensor.view.size_bytes(), 64); }

constexpr runtime::Kernel kTable[] = {
    {"aten::_fft_c2c.out", PTERON_KERNEL(c2c_out), workspace},
    {"aten::_fft_c2r.out", PTERON_KERNEL(c2r_out), c2r_workspace},
    {"aten::_fft_r2c.out", PTERON_KERNEL(r2c_out), workspace},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;

}  // namespace pteron::ops::fft
