// Rates of the CPU engine's products and convolutions against the processor's multiply-add peak, taken in turns in one process: `product_bench
// [THREADS [bf16]]`. Each runs with weights that are near, and with weights that come from memory, as in a model. Convolutions are channels-last and
// counted as direct ones. With bf16 products are those of `--precision bf16`, the peak is that of float32 all the same. One thread is timed by the time
// that it had the processor, so that other work on the machine counts only by what it takes of the caches.
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/narrow_product.h"
#include "backends/cpu/runtime/product.h"
#include "backends/cpu/runtime/test_args.h"
#include "backends/cpu/runtime/tile.h"

namespace pteron::cpu {
namespace {

/// Seconds from some time on: of this thread on its processor, or with several threads of all.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Shape {
  const char* what;
  int64_t rows, depth, columns;
};
constexpr Shape kShapes[] = {
    {"square 512", 512, 512, 512},
    {"square 1024", 1024, 1024, 1024},
    {"square 2048", 2048, 2048, 2048},
    {"BERT 768 to 768", 128, 768, 768},
    {"BERT 768 to 3072", 128, 768, 3072},
    {"BERT 3072 to 768", 128, 3072, 768},
    {"ViT 768 to 3072", 197, 768, 3072},
    {"1x1 at 56, 64 to 256", 3136, 64, 256},
    {"1x1 at 56, 256 to 64", 3136, 256, 64},
    {"1x1 at 28, 512 to 128", 784, 512, 128},
    {"1x1 at 14, 256 to 1024", 196, 256, 1024},
    {"1x1 at 7, 512 to 2048", 49, 512, 2048},
    {"1x1 at 7, 2048 to 512", 49, 2048, 512},
    {"1x1 at 56, 24 to 144", 3136, 24, 144},
    {"one row 576 to 1024", 1, 576, 1024},
    {"one row 1024 to 1000", 1, 1024, 1000},
    {"one row 4096 to 4096", 1, 4096, 4096},
    {"one row 256 to 1024", 1, 256, 1024},
    {"one row 64 to 128", 1, 64, 128},
};

struct Conv {
  const char* what;
  int64_t size, channels, columns, kernel, stride;
};
constexpr Conv kConvs[] = {
    {"7x7/2 at 224, 3 to 64", 224, 3, 64, 7, 2}, {"3x3 at 56, 64", 56, 64, 64, 3, 1},
    {"3x3 at 28, 128", 28, 128, 128, 3, 1},      {"3x3 at 14, 256", 14, 256, 256, 3, 1},
    {"3x3 at 7, 512", 7, 512, 512, 3, 1},        {"3x3/2 at 28, 256", 28, 256, 256, 3, 2},
    {"3x3 at 28, 512", 28, 512, 512, 3, 1},      {"3x3/2 at 56, 512", 56, 512, 512, 3, 2},
    {"1x1 at 28, 512", 28, 512, 512, 1, 1},      {"1x1/2 at 28, 512 to 1024", 28, 512, 1024, 1, 2},
};

/// Shortest time of a call in seconds, over at least 0.2 s.
template <typename Fn>
double best_seconds(int threads, Fn&& fn) {
  double best = 1e9;
  const double begin = now(threads);
  do {
    const double one = now(threads);
    fn();
    best = std::min(best, now(threads) - one);
  } while (now(threads) - begin < 0.2);
  return best;
}

/// So many bytes of weights pass by before the same ones are read again.
constexpr int64_t kFarBytes = int64_t{256} << 20;
constexpr int64_t kMaxCopies = 512;

/// Multiply-adds of a full tile on data of the first-level cache, GFLOP/s.
double peak() {
  const TileSet& tiles = tile_set();
  std::vector<float> a(static_cast<size_t>(kMaxTileRows) * 64, 0.5f), b(static_cast<size_t>(kMaxTileColumns) * 64, 0.5f),
      c(static_cast<size_t>(kMaxTileRows) * kMaxTileColumns);
  std::array<const float*, kMaxTileRows> rows;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = a.data() + i * 64;
  // The same row and panel again and again, as taps that go nowhere.
  std::vector<int64_t> steps(64, 0);
  Tile tile;
  tile.rows = rows.data();
  tile.steps = steps.data();
  tile.taps = 1;
  tile.run = 64;
  tile.panel = tile.next = b.data();
  tile.c = c.data();
  tile.c_row = kMaxTileColumns;
  tile.low = -1e30f;
  tile.high = 1e30f;
  tile.bias = b.data();
  tile.columns = tiles.columns;
  const double seconds = best_seconds(1, [&] {
    for (int i = 0; i < 1000; ++i) tiles.full[tiles.rows](tile);
  });
  return 2.0 * 1000 * 64 * tiles.rows * tiles.columns / seconds * 1e-9;
}

void show(const char* what, double gflop, double near, double far, double top) {
  std::printf("%-26s %10.1f %10.1f %7.0f%% %10.1f %7.0f%%\n", what, near * 1e6, gflop / near, 100 * gflop / near / top, gflop / far, 100 * gflop / far / top);
  std::fflush(stdout);
}

Status run_conv(const Conv& c, ThreadPool& pool) {
  const int64_t padding = c.kernel / 2, size = (c.size + 2 * padding - c.kernel) / c.stride + 1;
  const int64_t weights = c.columns * c.channels * c.kernel * c.kernel;
  const auto last = [](int64_t channels, int64_t wide) { return std::vector<int64_t>{channels * wide * wide, 1, wide * channels, channels}; };
  std::vector<float> x(static_cast<size_t>(c.channels * c.size * c.size), 0.25f), w(static_cast<size_t>(weights), 0.5f),
      y(static_cast<size_t>(c.columns * size * size));
  Args args;
  args.floats({1, c.channels, c.size, c.size}, x, c.channels == 3 ? std::vector<int64_t>{} : last(c.channels, c.size));
  args.floats({c.columns, c.channels, c.kernel, c.kernel}, w).read_only = true;
  args.none();
  args.none();
  args.ints({c.stride, c.stride});
  args.ints({padding, padding});
  args.ints({1, 1});
  args.integer(1);
  args.text("none");
  args.number(0);
  args.number(0);
  args.floats({1, c.columns, size, size}, y, last(c.columns, size));
  const runtime::Kernel& kernel = conv_kernels()[0];
  PTERON_ASSIGN(Buffer scratch, Buffer::create(kernel.workspace(args.values())));
  // Every cache packs the weights anew.
  std::deque<runtime::StateCache> caches;
  std::vector<std::shared_ptr<const runtime::KernelState>> copies;
  for (int64_t i = 0; i < std::clamp<int64_t>(kFarBytes / (weights * 4), 1, kMaxCopies / 8); ++i) {
    PTERON_ASSIGN(auto state, kernel.prepare({&pool, &caches.emplace_back()}, args.values()));
    copies.push_back(std::move(state));
  }
  const double top = peak() * pool.thread_count(), gflop = 2e-9 * static_cast<double>(size * size * weights);
  Status status;
  runtime::KernelContext context;
  context.pool = &pool;
  context.scratch = scratch.span();
  const auto call = [&](const std::shared_ptr<const runtime::KernelState>& state) {
    context.state = state.get();
    Status one = kernel.fn(context, args.values());
    if (!one.ok()) status = std::move(one);
  };
  const int threads = pool.thread_count();
  const double near = best_seconds(threads, [&] { call(copies[0]); });
  const double far = best_seconds(threads,
                                  [&] {
                                    for (const auto& copy : copies) call(copy);
                                  }) /
                     static_cast<double>(copies.size());
  show(c.what, gflop, near, far, top);
  return status;
}

/// The products in bfloat16, rows and results too. Errors: kOutOfMemory.
Status run_bf16(const Shape& s, const WorkBuffers& work, ThreadPool& pool) {
  const int threads = pool.thread_count();
  constexpr uint16_t kOne = 0x3f80;
  std::vector<uint16_t> x(static_cast<size_t>(s.rows * s.depth), kOne), w(static_cast<size_t>(s.columns * s.depth), kOne),
      y(static_cast<size_t>(s.rows * s.columns));
  std::vector<int64_t> offsets(static_cast<size_t>(s.depth));
  std::iota(offsets.begin(), offsets.end(), 0);
  std::vector<std::shared_ptr<const NarrowMatrix>> copies;
  for (int64_t i = 0; i < std::clamp<int64_t>(kFarBytes / (s.columns * s.depth * 2), 1, kMaxCopies); ++i) {
    PTERON_ASSIGN(auto packed, NarrowMatrix::make(NarrowKind::kBf16, w.data(), s.columns, s.depth, offsets, nullptr, 0, pool));
    copies.push_back(std::move(packed));
  }
  const EvenNarrowRows rows{reinterpret_cast<const std::byte*>(x.data()), s.depth * 2};
  FloatStore store;
  store.c = y.data();
  store.c_type = DType::kBFloat16;
  store.c_row = s.columns;
  NarrowProduct p;
  p.type = DType::kBFloat16;
  p.rows = s.rows;
  p.rows_of = EvenNarrowRows::get;
  p.context = &rows;
  p.store = FloatStore::store;
  p.fetch = FloatStore::fetch;
  p.store_context = &store;
  p.work = &work;
  Status status;
  const auto call = [&](const std::shared_ptr<const NarrowMatrix>& weights) {
    p.weights = weights.get();
    Status one = run_narrow_product(p, pool);
    if (!one.ok()) status = std::move(one);
  };
  const double top = peak() * threads, gflop = 2e-9 * static_cast<double>(s.rows * s.depth * s.columns);
  const double near = best_seconds(threads, [&] { call(copies[0]); });
  const double far = best_seconds(threads,
                                  [&] {
                                    for (const auto& copy : copies) call(copy);
                                  }) /
                     static_cast<double>(copies.size());
  show(s.what, gflop, near, far, top);
  return status;
}

int run(int threads, bool bf16) {
  const auto pool = make_thread_pool(threads);
  runtime::StateCache cache;
  const auto work = WorkBuffers::shared(cache);
  if (!work.ok()) return 1;
  std::printf("%-26s %10s %10s %8s %10s %8s\n", "product", "us", "GFLOP/s", "of peak", "far", "of peak");
  for (const Shape& s : kShapes) {
    if (!bf16) break;
    const Status status = run_bf16(s, *static_cast<const WorkBuffers*>(work->get()), *pool);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", s.what, std::string(status.message()).c_str());
    return 1;
  }
  if (bf16) return 0;
  for (const Shape& s : kShapes) {
    std::vector<float> x(static_cast<size_t>(s.rows * s.depth), 0.25f), w(static_cast<size_t>(s.columns * s.depth), 0.5f),
        y(static_cast<size_t>(s.rows * s.columns));
    std::vector<int64_t> offsets(static_cast<size_t>(s.depth));
    std::iota(offsets.begin(), offsets.end(), 0);
    std::vector<std::shared_ptr<const PackedMatrix>> copies;
    for (int64_t i = 0; i < std::clamp<int64_t>(kFarBytes / (s.columns * s.depth * 4), 1, kMaxCopies); ++i) {
      auto packed = PackedMatrix::make(w.data(), s.columns, s.depth, offsets, nullptr, 0, *pool);
      if (!packed.ok()) return 1;
      copies.push_back(std::move(*packed));
    }
    const EvenRows rows{x.data(), s.depth};
    Product p;
    p.rows = s.rows;
    p.rows_of = EvenRows::get;
    p.context = &rows;
    p.c = y.data();
    p.c_row = s.columns;
    p.work = static_cast<const WorkBuffers*>(work->get());
    const double top = peak() * threads, flops = 2e-9 * static_cast<double>(s.rows * s.depth * s.columns);
    p.weights = copies[0].get();
    const double near = best_seconds(threads, [&] { run_product(p, *pool); });
    const double far = best_seconds(threads,
                                    [&] {
                                      for (const auto& copy : copies) {
                                        p.weights = copy.get();
                                        run_product(p, *pool);
                                      }
                                    }) /
                       static_cast<double>(copies.size());
    show(s.what, flops, near, far, top);
  }
  for (const Conv& c : kConvs) {
    const Status status = run_conv(c, *pool);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", c.what, std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace pteron::cpu

int main(int argc, char** argv) { return pteron::cpu::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 1, argc > 2 && std::string_view(argv[2]) == "bf16"); }
