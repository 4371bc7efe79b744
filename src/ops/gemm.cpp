// The blocked matrix product: packing, blocks, threads, matrix-vector forms. Inner tiles are in gemm_micro.cpp.
#include "ops/gemm.h"

#include <algorithm>

#include "base/check.h"
#include "base/checked_math.h"
#include "ops/gemm_micro.h"
#include "ops/gemm_pack.h"
#include "tensor/dim_math.h"

namespace pteron::ops {
namespace {

// Blocks: an A block (kBlockM x kBlockK floats, 147 KB) stays in the second-level cache, a B panel in the first, a B block in the third.
constexpr int64_t kBlockK = 256;
constexpr int64_t kBlockM = 144;
constexpr int64_t kBlockN = 1536;
// For c narrower than the compute type the sum must stay in registers over the whole k: panels get long, so blocks get small.
constexpr int64_t kLongBlockBytesA = 256 << 10;
constexpr int64_t kLongBlockBytesB = 2 << 20;
// Below this many multiplications a second thread costs more than it saves.
constexpr double kThreadGrain = 1 << 17;
// Rows of x up to which a product is treated as matrix-vector products.
constexpr int64_t kSkinny = 4;

template <typename C>
C scalar_as(double v) {
  return static_cast<C>(v);
}
template <>
std::complex<float> scalar_as<std::complex<float>>(double v) {
  return {static_cast<float>(v), 0.0f};
}

/// Generic tile for compute types without vector kernels.
template <typename C>
void plain_tile(int64_t depth, const C* a, const C* b, C* c, int64_t ldc, const C* init, int64_t init_m, int64_t init_n) {
  constexpr int kMr = 4, kNr = 4;
  using U = std::conditional_t<std::is_same_v<C, int64_t>, uint64_t, C>;  // wraps without undefined behaviour
  U acc[kMr][kNr] = {};
  for (int64_t k = 0; k < depth; ++k) {
    for (int i = 0; i < kMr; ++i) {
      for (int j = 0; j < kNr; ++j) acc[i][j] += static_cast<U>(a[k * kMr + i]) * static_cast<U>(b[k * kNr + j]);
    }
  }
  for (int i = 0; i < kMr; ++i) {
    for (int j = 0; j < kNr; ++j) {
      U v = acc[i][j];
      if (init != nullptr) v += static_cast<U>(init[i * init_m + j * init_n]);
      c[i * ldc + j] = static_cast<C>(v);
    }
  }
}
template <typename C>
C plain_dot(const C* x, const C* y, int64_t n) {
  using U = std::conditional_t<std::is_same_v<C, int64_t>, uint64_t, C>;
  U sum{};
  for (int64_t i = 0; i < n; ++i) sum += static_cast<U>(x[i]) * static_cast<U>(y[i]);
  return static_cast<C>(sum);
}
template <typename C>
void plain_axpy(C alpha, const C* x, C* y, int64_t n) {
  using U = std::conditional_t<std::is_same_v<C, int64_t>, uint64_t, C>;
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<C>(static_cast<U>(y[i]) + static_cast<U>(alpha) * static_cast<U>(x[i]));
}

template <typename C>
GemmMicro<C> micro_of() {
  if constexpr (std::is_same_v<C, float> || std::is_same_v<C, double>) {
    return gemm_micro<C>();
  } else {
    return {4, 4, plain_tile<C>, plain_dot<C>, plain_axpy<C>};
  }
}

/// Packs rows [r0, r0 + rows) and depth [k0, k0 + depth) of a strided operand into one panel.
template <typename C, typename T>
void pack_strided(const GemmOperand& x, C* panel, int width, int64_t r0, int64_t rows, int64_t k0, int64_t depth) {
  if (depth == 0) return;  // an operand without elements may have no address
  const T* from = static_cast<const T*>(x.data) + r0 * x.stride_r + k0 * x.stride_k;
  if (rows < width) {
    for (int64_t k = 0; k < depth; ++k) std::fill(panel + k * width + rows, panel + (k + 1) * width, C{});
  }
  pack_block<C, T>(from, x.stride_r, x.stride_k, panel, width, rows, depth);
}

/// Sizes of the blocks of one call.
struct Blocks {
  int64_t m, n, k;
};

template <typename C>
Blocks blocks_of(bool narrow, int64_t m, int64_t n, int64_t k, int mr, int nr) {
  Blocks b{kBlockM, kBlockN, kBlockK};
  if (narrow) {
    b.k = std::max<int64_t>(k, 1);
    const auto bytes = static_cast<int64_t>(sizeof(C)) * b.k;
    b.m = std::clamp<int64_t>(kLongBlockBytesA / bytes / mr * mr, mr, kBlockM);
    b.n = std::clamp<int64_t>(kLongBlockBytesB / bytes / nr * nr, nr, kBlockN);
  }
  b.m = std::min(b.m, static_cast<int64_t>(align_up(static_cast<uint64_t>(std::max<int64_t>(m, 1)), static_cast<uint64_t>(mr))));
  b.n = std::min(b.n, static_cast<int64_t>(align_up(static_cast<uint64_t>(std::max<int64_t>(n, 1)), static_cast<uint64_t>(nr))));
  b.k = std::min(b.k, std::max<int64_t>(k, 1));
  return b;
}

/// One call with its types fixed.
template <typename T>
struct Product {
  using C = Compute<T>;
  static constexpr bool kNarrow = !std::is_same_v<T, C>;

  const GemmCall& call;
  GemmMicro<C> micro = micro_of<C>();
  Blocks blocks = blocks_of<C>(kNarrow, call.m, call.n, call.k, micro.mr, micro.nr);

  static void pack(const GemmOperand& x, C* block, int width, int64_t r0, int64_t rows, int64_t k0, int64_t depth, C scale) {
    for (int64_t i = 0; i < rows; i += width, block += width * depth) {
      const int64_t part = std::min<int64_t>(width, rows - i);
      if (x.pack != nullptr) {
        x.pack(x.context, block, width, r0 + i, part, k0, depth);
      } else {
        pack_strided<C, T>(x, block, width, r0 + i, part, k0, depth);
      }
      if (scale != C{1}) {
        for (int64_t e = 0; e < width * depth; ++e) block[e] *= scale;
      }
    }
  }

  /// c(m0.., n0..) = tile (+ c, + beta * init).
  void store_tile(const C* tile, int64_t m0, int64_t rows, int64_t n0, int64_t columns, bool first) const {
    const T* init = static_cast<const T*>(call.init);
    const C beta = scalar_as<C>(call.beta);
    for (int64_t i = 0; i < rows; ++i) {
      T* out = static_cast<T*>(call.c) + (m0 + i) * call.c_m + n0 * call.c_n;
      for (int64_t j = 0; j < columns; ++j) {
        C v = tile[i * micro.nr + j];
        if (!first) {
          v += convert_value<C>(out[j * call.c_n]);
        } else if (init != nullptr) {
          v += beta * convert_value<C>(init[(m0 + i) * call.init_m + (n0 + j) * call.init_n]);
        }
        out[j * call.c_n] = store_value<T>(v);
      }
    }
  }

  /// Rows [m0, m1) and columns [n0, n1) of c.
  void run(int64_t m0, int64_t m1, int64_t n0, int64_t n1, std::byte* scratch) const {
    C* pack_a = reinterpret_cast<C*>(scratch);
    C* pack_b = pack_a + blocks.m * blocks.k;
    for (int64_t jc = n0; jc < n1; jc += blocks.n) {
      const int64_t nc = std::min(blocks.n, n1 - jc);
      for (int64_t pc = 0; pc < std::max<int64_t>(call.k, 1); pc += blocks.k) {
        const int64_t kc = std::min(blocks.k, call.k - pc);
        pack(call.b, pack_b, micro.nr, jc, nc, pc, kc, C{1});
        for (int64_t ic = m0; ic < m1; ic += blocks.m) {
          const int64_t mc = std::min(blocks.m, m1 - ic);
          pack(call.a, pack_a, micro.mr, ic, mc, pc, kc, scalar_as<C>(call.alpha));
          multiply_block(pack_a, pack_b, ic, mc, jc, nc, kc, pc == 0);
        }
      }
    }
  }

  void multiply_block(const C* pack_a, const C* pack_b, int64_t ic, int64_t mc, int64_t jc, int64_t nc, int64_t kc, bool first) const {
    alignas(64) C tile[kGemmMaxMr * kGemmMaxNr];
    const bool direct_init = call.init == nullptr || ((call.init_n == 1 || call.init_n == 0) && call.beta == 1);
    const bool direct = !kNarrow && call.c_n == 1 && (!first || direct_init);
    for (int64_t j = 0; j < nc; j += micro.nr) {
      const int64_t columns = std::min<int64_t>(micro.nr, nc - j);
      for (int64_t i = 0; i < mc; i += micro.mr) {
        const int64_t rows = std::min<int64_t>(micro.mr, mc - i);
        const C* a = pack_a + i * kc;
        const C* b = pack_b + j * kc;
        if constexpr (!kNarrow) {
          if (direct && rows == micro.mr && columns == micro.nr) {
            C* out = static_cast<C*>(call.c) + (ic + i) * call.c_m + (jc + j);
            if (!first) {
              micro.tile(kc, a, b, out, call.c_m, out, call.c_m, 1);
              continue;
            }
            const C* init = static_cast<const C*>(call.init);
            if (init != nullptr) init += (ic + i) * call.init_m + (jc + j) * call.init_n;
            micro.tile(kc, a, b, out, call.c_m, init, call.init_m, call.init_n);
            continue;
          }
        }
        micro.tile(kc, a, b, tile, micro.nr, nullptr, 0, 0);
        store_tile(tile, ic + i, rows, jc + j, columns, first);
      }
    }
  }

  /// Copies the rows of a (at most kSkinny) to contiguous compute values, alpha applied.
  void copy_rows(C* x) const {
    const C alpha = scalar_as<C>(call.alpha);
    for (int64_t i = 0; i < call.m; ++i) {
      const T* from = static_cast<const T*>(call.a.data) + i * call.a.stride_r;
      C* to = x + i * call.k;
      for (int64_t k = 0; k < call.k; ++k) to[k] = convert_value<C>(from[k * call.a.stride_k]);
      if (alpha != C{1}) {
        for (int64_t k = 0; k < call.k; ++k) to[k] *= alpha;
      }
    }
  }

  void finish(C sum, int64_t i, int64_t j) const {
    if (call.init != nullptr) sum += scalar_as<C>(call.beta) * convert_value<C>(static_cast<const T*>(call.init)[i * call.init_m + j * call.init_n]);
    static_cast<T*>(call.c)[i * call.c_m + j * call.c_n] = store_value<T>(sum);
  }

  /// Columns [n0, n1) for few rows x, columns of b contiguous along k.
  void dots(const C* x, int64_t n0, int64_t n1) const {
    constexpr int64_t kRun = 1024;
    for (int64_t j = n0; j < n1; ++j) {
      const T* column = static_cast<const T*>(call.b.data) + j * call.b.stride_r;
      C sums[kSkinny] = {};
      if constexpr (kNarrow) {
        C run[kRun];
        for (int64_t k = 0; k < call.k; k += kRun) {
          const int64_t count = std::min(kRun, call.k - k);
          convert_run(column + k, run, count);
          for (int64_t i = 0; i < call.m; ++i) sums[i] += micro.dot(x + i * call.k + k, run, count);
        }
      } else {
        for (int64_t i = 0; i < call.m; ++i) sums[i] = micro.dot(x + i * call.k, column, call.k);
      }
      for (int64_t i = 0; i < call.m; ++i) finish(sums[i], i, j);
    }
  }

  /// Columns [n0, n1) for few rows x, rows of b contiguous along n.
  void sums_of_rows(const C* x, int64_t n0, int64_t n1) const {
    constexpr int64_t kRun = 256;
    C sums[kSkinny][kRun];
    C row[kRun];
    for (int64_t j = n0; j < n1; j += kRun) {
      const int64_t count = std::min(kRun, n1 - j);
      for (int64_t i = 0; i < call.m; ++i) std::fill(sums[i], sums[i] + count, C{});
      for (int64_t k = 0; k < call.k; ++k) {
        const T* from = static_cast<const T*>(call.b.data) + k * call.b.stride_k + j;
        const C* run = row;
        if constexpr (kNarrow) {
          convert_run(from, row, count);
        } else {
          run = from;
        }
        for (int64_t i = 0; i < call.m; ++i) micro.axpy(x[i * call.k + k], run, sums[i], count);
      }
      for (int64_t i = 0; i < call.m; ++i) {
        for (int64_t e = 0; e < count; ++e) finish(sums[i][e], i, j + e);
      }
    }
  }

  bool skinny() const {
    return call.m <= kSkinny && call.a.pack == nullptr && call.b.pack == nullptr && (call.b.stride_k == 1 || call.b.stride_r == 1);
  }
  size_t rows_bytes() const { return align_up(static_cast<size_t>(call.m * call.k) * sizeof(C), 64); }
  void skinny_part(const C* x, int64_t n0, int64_t n1) const {
    if (call.b.stride_k == 1) {
      dots(x, n0, n1);
      return;
    }
    sums_of_rows(x, n0, n1);
  }
};

template <typename C>
size_t slot_bytes(bool narrow, int64_t m, int64_t n, int64_t k) {
  // Sizes for both orientations: a call may swap its operands.
  const GemmMicro<C> micro = micro_of<C>();
  size_t bytes = 0;
  for (int turn = 0; turn < 2; ++turn, std::swap(m, n)) {
    const Blocks b = blocks_of<C>(narrow, m, n, k, micro.mr, micro.nr);
    bytes = std::max(bytes, static_cast<size_t>(b.m + b.n) * static_cast<size_t>(b.k) * sizeof(C));
  }
  const size_t rows = static_cast<size_t>(kSkinny) * static_cast<size_t>(std::max<int64_t>(k, 0)) * sizeof(C);
  return align_up(std::max(bytes, rows), 64) + 64;
}

/// The same product transposed.
GemmCall swapped(const GemmCall& call) {
  GemmCall out = call;
  std::swap(out.m, out.n);
  std::swap(out.a, out.b);
  std::swap(out.c_m, out.c_n);
  std::swap(out.init_m, out.init_n);
  return out;
}

/// c's rows should be the contiguous direction; few rows are better than few columns.
GemmCall oriented(const GemmCall& call) {
  if (call.m > kSkinny && call.n <= kSkinny) return swapped(call);
  if (call.n > kSkinny && call.m <= kSkinny) return call;
  return call.c_n != 1 && call.c_m == 1 ? swapped(call) : call;
}

template <typename Fn>
void for_dtype(DType dtype, Fn&& fn) {
  const bool known = dispatch_dtype(dtype, [&]<typename T>() {
    if constexpr (!std::is_same_v<T, bool>) fn.template operator()<T>();
  });
  PTERON_DCHECK(known);
}

template <typename T>
void serial(const GemmCall& given, std::span<std::byte> scratch) {
  const GemmCall call = oriented(given);
  const Product<T> product{call};
  if (product.skinny()) {
    auto* x = reinterpret_cast<typename Product<T>::C*>(scratch.data());
    product.copy_rows(x);
    product.skinny_part(x, 0, call.n);
    return;
  }
  product.run(0, call.m, 0, call.n, scratch.data());
}

/// Splits c into parts_m x parts_n blocks for `threads` threads, as square as the sizes allow.
void split(int64_t threads, int64_t m, int64_t n, int64_t* parts_m, int64_t* parts_n) {
  *parts_m = 1;
  *parts_n = threads;
  double best = 0;
  for (int64_t pm = 1; pm <= threads; ++pm) {
    if (threads % pm != 0) continue;
    const double height = static_cast<double>(ceil_div(m, pm)), width = static_cast<double>(ceil_div(n, threads / pm));
    const double cost = height * width * 16 + height + width;  // work of the largest part, then packing
    if (best == 0 || cost < best) {
      best = cost;
      *parts_m = pm;
      *parts_n = threads / pm;
    }
  }
}

template <typename T>
void parallel(const GemmCall& given, ThreadPool& pool, std::span<std::byte> scratch) {
  const GemmCall call = oriented(given);
  const Product<T> product{call};
  const double work = static_cast<double>(call.m) * static_cast<double>(call.n) * static_cast<double>(call.k);
  const auto useful = static_cast<int64_t>(std::min(work / kThreadGrain, 1024.0));
  int64_t threads = std::min<int64_t>(pool.thread_count(), useful);
  if (product.skinny()) {
    auto* x = reinterpret_cast<typename Product<T>::C*>(scratch.data());
    product.copy_rows(x);
    if (threads <= 1) return product.skinny_part(x, 0, call.n);
    pool.parallel_for(call.n, std::max<int64_t>(ceil_div(call.n, threads), 1), [&](int64_t begin, int64_t end) { product.skinny_part(x, begin, end); });
    return;
  }
  const size_t slot = gemm_slot_bytes(call.dtype, call.m, call.n, call.k);
  threads = std::min<int64_t>(threads, static_cast<int64_t>(scratch.size() / slot));
  if (threads <= 1) return product.run(0, call.m, 0, call.n, scratch.data());
  int64_t parts_m = 1, parts_n = 1;
  split(threads, call.m, call.n, &parts_m, &parts_n);
  const int64_t height = ceil_div(ceil_div(call.m, parts_m), product.micro.mr) * product.micro.mr;
  const int64_t width = ceil_div(ceil_div(call.n, parts_n), product.micro.nr) * product.micro.nr;
  pool.parallel_for(parts_m * parts_n, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      const int64_t m0 = part / parts_n * height, n0 = part % parts_n * width;
      if (m0 >= call.m || n0 >= call.n) continue;
      product.run(m0, std::min(call.m, m0 + height), n0, std::min(call.n, n0 + width), scratch.data() + static_cast<size_t>(part) * slot);
    }
  });
}

}  // namespace

size_t compute_size(DType dtype) {
  size_t size = 8;
  for_dtype(dtype, [&]<typename T>() { size = sizeof(Compute<T>); });
  return size;
}

size_t gemm_slot_bytes(DType dtype, int64_t m, int64_t n, int64_t k) {
  size_t bytes = 0;
  for_dtype(dtype, [&]<typename T>() { bytes = slot_bytes<Compute<T>>(!std::is_same_v<T, Compute<T>>, m, n, k); });
  return bytes;
}

size_t gemm_workspace(DType dtype, int64_t m, int64_t n, int64_t k) {
  return gemm_slot_bytes(dtype, m, n, k) * static_cast<size_t>(std::clamp(usable_cpu_count(), 1, 64));
}

void gemm_serial(const GemmCall& call, std::span<std::byte> scratch) {
  if (call.m == 0 || call.n == 0) return;
  for_dtype(call.dtype, [&]<typename T>() { serial<T>(call, scratch); });
}

void gemm(const GemmCall& call, ThreadPool& pool, std::span<std::byte> scratch) {
  if (call.m == 0 || call.n == 0) return;
  for_dtype(call.dtype, [&]<typename T>() { parallel<T>(call, pool, scratch); });
}

void gemm_batched(const GemmCall& largest, int64_t count, const std::function<GemmCall(int64_t)>& call_of, ThreadPool& pool,
                  std::span<std::byte> scratch) {
  const size_t slot = gemm_slot_bytes(largest.dtype, largest.m, largest.n, largest.k);
  const int64_t slots = std::min<int64_t>(pool.thread_count(), static_cast<int64_t>(scratch.size() / slot));
  if (slots <= 1 || count < slots) {
    for (int64_t i = 0; i < count; ++i) gemm(call_of(i), pool, scratch);
    return;
  }
  const double work = static_cast<double>(largest.m) * static_cast<double>(largest.n) * static_cast<double>(std::max<int64_t>(largest.k, 1));
  const int64_t parts = std::clamp<int64_t>(static_cast<int64_t>(work * static_cast<double>(count) / kThreadGrain), 1, slots);
  const int64_t each = ceil_div(count, parts);
  pool.parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      for (int64_t i = part * each; i < std::min(count, (part + 1) * each); ++i) {
        gemm_serial(call_of(i), scratch.subspan(static_cast<size_t>(part) * slot, slot));
      }
    }
  });
}

}  // namespace pteron::ops
