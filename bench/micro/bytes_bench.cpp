// Times of the CPU engine's 8-bit convolutions with the sizes of ResNet-50 and MobileNetV2, one thread, images channels-last and int8: `bytes_bench [PART
// OF A NAME]`.
// The end is a model's: bias, residual with levels in the middle or none, clamp, levels. Shortest calls.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/test_args.h"

namespace pteron::cpu {
namespace {

struct Conv {
  const char* what;
  int64_t size, channels, columns, kernel, stride, groups = 1;
  bool adds = false;
};
constexpr Conv kConvs[] = {
    {"7x7/2 at 224, 3 to 64", 224, 3, 64, 7, 2},
    {"1x1 at 56, 64", 56, 64, 64, 1, 1},
    {"3x3 at 56, 64", 56, 64, 64, 3, 1},
    {"1x1 at 56, 64 to 256", 56, 64, 256, 1, 1},
    {"and a residual", 56, 64, 256, 1, 1, 1, true},
    {"1x1 at 56, 256 to 64", 56, 256, 64, 1, 1},
    {"3x3/2 at 56, 128", 56, 128, 128, 3, 2},
    {"3x3 at 28, 128", 28, 128, 128, 3, 1},
    {"1x1 at 28, 128 to 512, residual", 28, 128, 512, 1, 1, 1, true},
    {"1x1 at 28, 512 to 128", 28, 512, 128, 1, 1},
    {"3x3 at 14, 256", 14, 256, 256, 3, 1},
    {"1x1 at 14, 256 to 1024, residual", 14, 256, 1024, 1, 1, 1, true},
    {"1x1 at 14, 1024 to 256", 14, 1024, 256, 1, 1},
    {"3x3 at 7, 512", 7, 512, 512, 3, 1},
    {"1x1 at 7, 512 to 2048, residual", 7, 512, 2048, 1, 1, 1, true},
    {"1x1 at 7, 2048 to 512", 7, 2048, 512, 1, 1},
    {"3x3/2 at 224, 3 to 32", 224, 3, 32, 3, 2},
    {"depthwise at 112, 32", 112, 32, 32, 3, 1, 32},
    {"1x1 at 112, 32 to 16", 112, 32, 16, 1, 1},
    {"1x1 at 112, 16 to 96", 112, 16, 96, 1, 1},
    {"depthwise/2 at 112, 96", 112, 96, 96, 3, 2, 96},
    {"1x1 at 56, 96 to 24", 56, 96, 24, 1, 1},
    {"1x1 at 56, 24 to 144", 56, 24, 144, 1, 1},
    {"depthwise at 56, 144", 56, 144, 144, 3, 1, 144},
    {"1x1 at 28, 192 to 32", 28, 192, 32, 1, 1},
    {"1x1 at 14, 384 to 64", 14, 384, 64, 1, 1},
    {"1x1 at 14, 64 to 384", 14, 64, 384, 1, 1},
    {"depthwise at 14, 384", 14, 384, 384, 3, 1, 384},
    {"1x1 at 7, 160 to 960", 7, 160, 960, 1, 1},
};

/// Seconds that this thread has had the processor: other work on the machine counts only by what it takes of the caches.
double now() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double best_seconds(const auto& fn) {
  double best = 1e9;
  const double begin = now();
  do {
    const double one = now();
    fn();
    best = std::min(best, now() - one);
  } while (now() - begin < 0.15);
  return best;
}

Status run_conv(const Conv& c, ThreadPool& pool) {
  const int64_t padding = c.kernel / 2, size = (c.size + 2 * padding - c.kernel) / c.stride + 1, inner = c.channels / c.groups;
  const auto last = [](int64_t channels, int64_t wide) { return std::vector<int64_t>{channels * wide * wide, 1, wide * channels, channels}; };
  std::vector<int8_t> x(static_cast<size_t>(c.channels * c.size * c.size), 3), w(static_cast<size_t>(c.columns * inner * c.kernel * c.kernel), 5);
  std::vector<int8_t> y(static_cast<size_t>(c.columns * size * size)), added(y.size(), 7);
  std::vector<float> scales(static_cast<size_t>(c.columns), 0.01f), bias(scales.size(), 0.1f);
  Args args;
  args.tensor(DType::kInt8, {1, c.channels, c.size, c.size}, x.data(), c.channels == 3 ? std::vector<int64_t>{} : last(c.channels, c.size));
  args.tensor(DType::kInt8, {c.columns, inner, c.kernel, c.kernel}, w.data()).read_only = true;
  args.floats({c.columns}, scales).read_only = true;
  args.floats({c.columns}, bias).read_only = true;
  if (c.adds) {
    args.tensor(DType::kInt8, {1, c.columns, size, size}, added.data(), last(c.columns, size));
  } else {
    args.none();
  }
  args.number(0.02);
  args.integer(-3);
  args.number(0.03);
  args.integer(5);
  args.ints({c.stride, c.stride});
  args.ints({padding, padding});
  args.ints({1, 1});
  args.integer(c.groups);
  const double middle[] = {-1e9, 1e9, 20, -3, -128, 127, -3, 0.05};
  args.numbers(c.adds ? std::span<const double>(middle) : std::span<const double>());
  args.text("clamp");
  args.number(0);
  args.number(1e9);
  args.number(25);
  args.integer(-128);
  args.integer(-128);
  args.integer(127);
  args.integer(static_cast<int64_t>(DType::kInt8));
  args.tensor(DType::kInt8, {1, c.columns, size, size}, y.data(), last(c.columns, size));
  const runtime::Kernel& kernel = quantized_conv_kernels()[0];
  PTERON_ASSIGN(Buffer scratch, Buffer::create(kernel.workspace(args.values())));
  runtime::StateCache cache;
  PTERON_ASSIGN(const auto state, kernel.prepare({&pool, &cache}, args.values()));
  runtime::KernelContext context;
  context.pool = &pool;
  context.scratch = scratch.span();
  context.state = state.get();
  Status status;
  const double seconds = best_seconds([&] {
    Status one = kernel.fn(context, args.values());
    if (!one.ok()) status = std::move(one);
  });
  const double sums = static_cast<double>(size * size * c.columns * inner * c.kernel * c.kernel);
  std::printf("%-34s %9.1f us %8.0f GOP/s %7.2f results/ns\n", c.what, seconds * 1e6, 2e-9 * sums / seconds, static_cast<double>(y.size()) / seconds * 1e-9);
  std::fflush(stdout);
  return status;
}

int run(const std::string& part) {
  const auto pool = make_thread_pool(1);
  for (const Conv& c : kConvs) {
    if (std::string(c.what).find(part) == std::string::npos) continue;
    const Status status = run_conv(c, *pool);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", c.what, std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace pteron::cpu

int main(int argc, char** argv) { return pteron::cpu::run(argc > 1 ? argv[1] : ""); }
