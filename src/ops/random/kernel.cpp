// Kernels that draw random numbers from the method's stream: rand, randn, randint, randperm, native_dropout, multinomial, poisson. Every element has
// its own place in the stream (philox.h); a call takes as many places as its result has elements.
#include <algorithm>
#include <cmath>

#include "base/str_cat.h"
#include "ops/cast.h"
#include "ops/random/philox.h"
#include "ops/slices.h"
#include "ops/walk.h"
#include "runtime/random.h"

namespace pteron::ops::random {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::Tensor;
using runtime::Value;

/// Places of one call.
struct Stream {
  uint64_t seed = 0, start = 0;
  Words at(int64_t element, uint64_t draw = 0) const { return philox(seed, start + static_cast<uint64_t>(element), draw); }
};
Status take(KernelContext& context, int64_t count, Stream* stream) {
  if (context.state == nullptr) return Status(Code::kUnsupported, "random numbers outside of a loaded method");
  const auto& own = static_cast<const runtime::RandomStream&>(*context.state);
  *stream = {own.seed, own.position};
  own.position += static_cast<uint64_t>(count);
  return ok_status();
}

/// out[i] = value_at(words of element i) for all elements in row-major order.
template <typename Fn>
Status fill(KernelContext& context, Tensor& out, const Fn& value_at) {
  Stream stream;
  PTERON_TRY(take(context, out.numel(), &stream));
  const bool done = dispatch_real(out.dtype(), [&]<typename T>() {
    context.pool->parallel_for(out.numel(), 4096, [&](int64_t begin, int64_t end) {
      int64_t i = begin;
      walk<1>(out.sizes(), {Sizes(out.strides())}, begin, end, [&](const std::array<int64_t, 1>& at, const Sizes&) { out.as<T>()[at[0]] = value_at.template operator()<T>(stream.at(i++)); });
    });
  });
  return done ? ok_status() : Status(Code::kUnsupported, str_cat("random numbers of dtype ", dtype_name(out.dtype())));
}

/// Bits that a uniform number may have so that it never rounds up to 1.
template <typename T>
constexpr int kBits = std::is_same_v<T, Half> ? 11 : std::is_same_v<T, BFloat16> ? 8 : std::is_same_v<T, float> ? 24 : 53;

Status rand_kernel(KernelContext& context, IntList size, Tensor& out) {
  PTERON_TRY(runtime::resize(out, size));
  if (!is_floating(out.dtype())) return Status(Code::kUnsupported, str_cat("rand of dtype ", dtype_name(out.dtype())));
  return fill(context, out, []<typename T>(const Words& w) { return convert<T>(unit(w, kBits<T>)); });
}
/// Box and Muller.
Status randn_kernel(KernelContext& context, IntList size, Tensor& out) {
  PTERON_TRY(runtime::resize(out, size));
  if (!is_floating(out.dtype())) return Status(Code::kUnsupported, str_cat("randn of dtype ", dtype_name(out.dtype())));
  return fill(context, out, []<typename T>(const Words& w) {
    constexpr double kTwoPi = 6.28318530717958647692;
    return convert<T>(std::sqrt(-2 * std::log(other_unit(w))) * std::cos(kTwoPi * unit(w)));
  });
}
Status randint_kernel(KernelContext& context, int64_t low, int64_t high, IntList size, Tensor& out) {
  PTERON_TRY(runtime::resize(out, size));
  if (low >= high) return Status(Code::kInvalidInput, str_cat("randint expects low < high, found ", low, " and ", high));
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  return fill(context, out, [=]<typename T>(const Words& w) { return convert<T>(static_cast<int64_t>(static_cast<uint64_t>(low) + below(w, range))); });
}

/// Fisher and Yates on the out itself.
Status randperm_kernel(KernelContext& context, int64_t n, Tensor& out) {
  if (n < 0) return Status(Code::kInvalidInput, str_cat("randperm of ", n));
  PTERON_TRY(runtime::resize(out, Sizes{n}));
  Stream stream;
  PTERON_TRY(take(context, n, &stream));
  const bool done = dispatch_real(out.dtype(), [&]<typename T>() {
    T* to = out.as<T>();
    const int64_t step = n == 0 ? 1 : out.stride(0);
    for (int64_t i = 0; i < n; ++i) to[i * step] = convert<T>(i);
    for (int64_t i = 0; i + 1 < n; ++i) std::swap(to[i * step], to[(i + static_cast<int64_t>(below(stream.at(i), static_cast<uint64_t>(n - i)))) * step]);
  });
  return done ? ok_status() : Status(Code::kUnsupported, str_cat("randperm of dtype ", dtype_name(out.dtype())));
}

/// out = input * kept / (1 - p); outside of training a copy and a mask of ones.
Status dropout_kernel(KernelContext& context, const Tensor& input, double p, std::optional<bool> train, Tensor& out, Tensor& mask) {
  if (!(p >= 0 && p <= 1)) return Status(Code::kInvalidInput, str_cat("dropout with p = ", p));
  if (!is_floating(input.dtype()) || out.dtype() != input.dtype() || mask.dtype() != DType::kBool) return Status(Code::kUnsupported, str_cat("dropout of dtype ", dtype_name(input.dtype())));
  PTERON_TRY(runtime::resize(out, input.sizes()));
  PTERON_TRY(runtime::resize(mask, input.sizes()));
  const bool draws = train.value_or(true) && p > 0;
  Stream stream;
  if (draws) PTERON_TRY(take(context, input.numel(), &stream));
  const double scale = p == 1 ? 0 : draws ? 1 / (1 - p) : 1;
  const bool done = dispatch_floating(input.dtype(), [&]<typename T>() {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    context.pool->parallel_for(input.numel(), 4096, [&](int64_t begin, int64_t end) {
      int64_t i = begin;
      walk<3>(input.sizes(), {Sizes(input.strides()), Sizes(out.strides()), Sizes(mask.strides())}, begin, end, [&](const std::array<int64_t, 3>& at, const Sizes&) {
        const bool kept = !draws || unit(stream.at(i++)) >= p;
        mask.as<bool>()[at[2]] = kept;
        out.as<T>()[at[1]] = kept ? convert<T>(convert<Wide>(input.as<T>()[at[0]]) * static_cast<Wide>(scale)) : T(0);
      });
    });
  });
  return done ? ok_status() : Status(Code::kUnsupported, str_cat("dropout of dtype ", dtype_name(input.dtype())));
}

/// Knuth's product for small means, Hörmann's transformed rejection (PTRS, 1993) for others.
double poisson_number(const Stream& stream, int64_t element, double mean) {
  if (!(mean > 0)) return mean == 0 ? 0 : std::nan("");
  if (mean < 10) {
    const double limit = std::exp(-mean);
    double product = 1;
    for (uint64_t k = 0;; ++k) {
      product *= other_unit(stream.at(element, k));
      if (product <= limit) return static_cast<double>(k);
    }
  }
  const double slope = std::sqrt(mean), log_mean = std::log(mean), b = 0.931 + 2.53 * slope, a = -0.059 + 0.02483 * b;
  const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), vr = 0.9277 - 3.6224 / (b - 2);
  for (uint64_t k = 0;; ++k) {
    const Words w = stream.at(element, k);
    const double u = unit(w) - 0.5, v = other_unit(w), us = 0.5 - std::abs(u);
    const double number = std::floor((2 * a / us + b) * u + mean + 0.43);
    if (us >= 0.07 && v <= vr) return number;
    if (number < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inverse_alpha) - std::log(a / (us * us) + b) <= -mean + number * log_mean - std::lgamma(number + 1)) return number;
  }
}
Status poisson_kernel(KernelContext& context, const Tensor& self, Value&, Tensor& out) {
  PTERON_TRY(runtime::resize(out, self.sizes()));
  if (!is_floating(self.dtype()) || self.dtype() != out.dtype()) return Status(Code::kUnsupported, str_cat("poisson of dtype ", dtype_name(self.dtype())));
  Stream stream;
  PTERON_TRY(take(context, self.numel(), &stream));
  Status bad;
  const bool done = dispatch_floating(self.dtype(), [&]<typename T>() {
    int64_t i = 0;
    walk<2>(self.sizes(), {Sizes(self.strides()), Sizes(out.strides())}, 0, self.numel(), [&](const std::array<int64_t, 2>& at, const Sizes&) {
      const auto mean = convert<double>(self.as<T>()[at[0]]);
      if (!(mean >= 0 && mean <= 1e15) && bad.ok()) bad = Status(Code::kInvalidInput, str_cat("poisson with a mean of ", mean));
      out.as<T>()[at[1]] = convert<T>(bad.ok() ? poisson_number(stream, i, mean) : 0.0);
      ++i;
    });
  });
  return done ? bad : Status(Code::kUnsupported, str_cat("poisson of dtype ", dtype_name(self.dtype())));
}

struct Weighed {
  double key;
  int64_t index;
};
size_t multinomial_workspace(std::span<Value* const> args) {
  const Tensor& self = args[0]->tensor;
  return self.rank() == 0 ? 0 : static_cast<size_t>(self.size(self.rank() - 1)) * sizeof(Weighed);
}
/// One row: with replacement by the running sums, without by the largest p / exponential number.
Status sample_row(const Stream& stream, int64_t row, int64_t n, int64_t samples, bool replacement, Weighed* w, int64_t* to, int64_t step) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (!(w[i].key >= 0) || std::isinf(w[i].key)) return Status(Code::kInvalidInput, "multinomial: a probability is negative, infinite or NaN");
    total += w[i].key;
  }
  if (!(total > 0)) return Status(Code::kInvalidInput, "multinomial: the probabilities of a row add up to zero");
  if (replacement) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) w[i].key = sum += w[i].key;
    for (int64_t s = 0; s < samples; ++s) {
      const double u = unit(stream.at(row * samples + s)) * sum;
      to[s * step] = std::upper_bound(w, w + n, u, [](double value, const Weighed& x) { return value < x.key; }) - w;
    }
    return ok_status();
  }
  for (int64_t i = 0; i < n; ++i) w[i].key /= -std::log(other_unit(stream.at(row * n + i)));
  std::partial_sort(w, w + samples, w + n, [](const Weighed& a, const Weighed& b) { return a.key > b.key || (a.key == b.key && a.index < b.index); });
  for (int64_t s = 0; s < samples; ++s) to[s * step] = w[s].index;
  return ok_status();
}
Status multinomial_kernel(KernelContext& context, const Tensor& self, int64_t samples, bool replacement, Value&, Tensor& out) {
  const LoadFn<double> load = load_fn<double>(self.dtype());
  const int rank = self.rank();
  if ((rank != 1 && rank != 2) || !is_floating(self.dtype()) || load == nullptr || out.dtype() != DType::kInt64) {
    return Status(Code::kUnsupported, str_cat("multinomial of ", dtype_name(self.dtype()), " ", shape_text(self.sizes())));
  }
  const int64_t n = self.size(rank - 1), rows = rank == 2 ? self.size(0) : 1;
  if (samples < 1 || (!replacement && samples > n)) return Status(Code::kInvalidInput, str_cat("multinomial draws ", samples, " of ", n, replacement ? "" : " without replacement"));
  Sizes sizes(self.sizes());
  sizes.back() = samples;
  PTERON_TRY(runtime::resize(out, sizes));
  Stream stream;
  PTERON_TRY(take(context, rows * std::max(n, samples), &stream));
  auto* w = reinterpret_cast<Weighed*>(context.scratch.data());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t i = 0; i < n; ++i) {
      double one = 0;
      w[i] = {*load(self.view.data, (rank == 2 ? r * self.stride(0) : 0) + i * self.stride(rank - 1), 1, 1, &one), i};
    }
    PTERON_TRY(sample_row(stream, r, n, samples, replacement, w, out.as<int64_t>() + (rank == 2 ? r * out.stride(0) : 0), out.stride(rank - 1)));
  }
  return ok_status();
}

constexpr runtime::Kernel kRows[] = {
    {"aten::multinomial.out", PTERON_KERNEL(multinomial_kernel), multinomial_workspace, runtime::uses_random_stream},
    {"aten::native_dropout.out", PTERON_KERNEL(dropout_kernel), nullptr, runtime::uses_random_stream},
    {"aten::poisson.out", PTERON_KERNEL(poisson_kernel), nullptr, runtime::uses_random_stream},
    {"aten::rand.out", PTERON_KERNEL(rand_kernel), nullptr, runtime::uses_random_stream},
    {"aten::randint.low_out", PTERON_KERNEL(randint_kernel), nullptr, runtime::uses_random_stream},
    {"aten::randn.out", PTERON_KERNEL(randn_kernel), nullptr, runtime::uses_random_stream},
    {"aten::randperm.out", PTERON_KERNEL(randperm_kernel), nullptr, runtime::uses_random_stream},
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::random
