// Rates of the CPU engine's kernels that only read and write, and of single rows times a matrix, on one thread, against a copy of as many bytes and
// against sums of what is read, each taken beside the kernel: `memory_bench [MEGABYTES OF A TENSOR...]` (8, and 96: beyond the third-level cache).
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/product.h"
#include "backends/cpu/runtime/test_args.h"

namespace pteron::cpu {
namespace {

using Clock = std::chrono::steady_clock;

/// Processor time of this thread, which everything runs on: what other processes take does not count.
double now() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}
double seconds_of(const std::function<void()>& fn) {
  const double begin = now();
  fn();
  return now() - begin;
}

/// Floats where arenas have them: at a multiple of a cache line.
struct Floats {
  std::vector<float> room;
  float* at;
  Floats(size_t n, float value) : room(n + 16, value), at(room.data() + (64 - reinterpret_cast<uintptr_t>(room.data()) % 64) % 64 / 4) {}
};

float sum_of(const std::vector<float>& data) {
  __m256 sums[8] = {};
  for (size_t i = 0; i + 64 <= data.size(); i += 64) {
    for (size_t v = 0; v < 8; ++v) sums[v] = _mm256_add_ps(sums[v], _mm256_loadu_ps(data.data() + i + v * 8));
  }
  for (size_t v = 1; v < 8; ++v) sums[0] = _mm256_add_ps(sums[0], sums[v]);
  return _mm256_cvtss_f32(sums[0]);
}
volatile float sink;

/// Shortest of the calls and of the probe in turns, over at least a second and three of each.
void show(const char* what, double bytes, double probe_bytes, const std::function<void()>& call, const std::function<void()>& probe) {
  call();
  probe();
  double best = 1e9, best_probe = 1e9;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 3 || Clock::now() - begin < std::chrono::seconds(1); ++i) {
    best = std::min(best, seconds_of(call));
    best_probe = std::min(best_probe, seconds_of(probe));
  }
  const double rate = bytes / best * 1e-9, top = probe_bytes / best_probe * 1e-9;
  std::printf("%-34s %9.1f us %7.1f GB/s of %5.1f %5.0f %%\n", what, best * 1e6, rate, top, 100 * rate / top);
  std::fflush(stdout);
}

const runtime::Kernel& kernel_of(std::span<const runtime::Kernel> rows, std::string_view name) {
  return *std::find_if(rows.begin(), rows.end(), [&](const runtime::Kernel& row) { return row.name == name; });
}

/// A call of `kernel` that can be repeated; ends the program if it fails.
class Repeated {
 public:
  Repeated(ThreadPool& pool, const runtime::Kernel& kernel, Args& args) : kernel_(kernel), args_(args) {
    if (kernel.prepare != nullptr) state_ = *kernel.prepare({&pool, &cache_}, args.values());
    context_.pool = &pool;
    scratch_ = *Buffer::create(kernel.workspace != nullptr ? kernel.workspace(args.values()) : 0);
    context_.scratch = scratch_.span();
    context_.state = state_.get();
  }
  void operator()() {
    if (!kernel_.fn(context_, args_.values()).ok()) std::abort();
  }

 private:
  const runtime::Kernel& kernel_;
  Args& args_;
  runtime::StateCache cache_;
  std::shared_ptr<const runtime::KernelState> state_;
  Buffer scratch_;
  runtime::KernelContext context_;
};

void run_rows(ThreadPool& pool, int64_t megabytes) {
  constexpr int64_t kColumns = 1024;
  const int64_t rows = (megabytes << 20) / (kColumns * 4);
  const auto count = static_cast<size_t>(rows * kColumns);
  const Floats x(count, 0.25f), y(count, 0), other(count, 0.5f);
  std::vector<float> weight(kColumns, 1.5f), bias(kColumns, 0.1f), mean(static_cast<size_t>(rows)), rstd(mean.size());
  const auto bytes = static_cast<double>(count * 4);
  const auto copy = [&] { std::memcpy(y.at, x.at, count * 4); };
  std::printf("tensors of %ld MB\n", static_cast<long>(megabytes));
  const auto line = [&](const char* what, double tensors, const runtime::Kernel& kernel, Args& args) {
    Repeated call(pool, kernel, args);
    show(what, tensors * bytes, 2 * bytes, [&] { call(); }, copy);
  };
  {
    Args args;
    args.tensor(DType::kFloat32, {rows, kColumns}, x.at);
    args.ints({kColumns});
    args.floats({kColumns}, weight);
    args.floats({kColumns}, bias);
    args.number(1e-5);
    args.tensor(DType::kFloat32, {rows, kColumns}, y.at);
    args.floats({rows, 1}, mean);
    args.floats({rows, 1}, rstd);
    line("layer norm of 1024", 2, kernel_of(norm_kernels(), "aten::native_layer_norm.out"), args);
  }
  {
    Args args;
    args.tensor(DType::kFloat32, {rows, kColumns}, x.at);
    args.floats({kColumns}, weight);
    args.number(1e-5);
    args.tensor(DType::kFloat32, {rows, kColumns}, y.at);
    line("rms norm of 1024", 2, kernel_of(norm_kernels(), "pteron_cpu::rms_norm.out"), args);
  }
  {
    Args args;
    args.tensor(DType::kFloat32, {rows, kColumns}, x.at);
    args.integer(1);
    args.boolean(false);
    args.tensor(DType::kFloat32, {rows, kColumns}, y.at);
    line("softmax of 1024", 2, kernel_of(norm_kernels(), "aten::_softmax.out"), args);
  }
  const auto chain = [&](const char* what, const char* program, int inputs) {
    Args args;
    args.tensor(DType::kFloat32, {rows, kColumns}, x.at);
    args.list(runtime::Tag::kTensorList);
    for (int i = 1; i < inputs; ++i) args.tensor(DType::kFloat32, {rows, kColumns}, other.at);
    args.end_list();
    args.text(program);
    args.integer(static_cast<int64_t>(DType::kFloat32));
    args.tensor(DType::kFloat32, {rows, kColumns}, y.at);
    line(what, inputs + 1, pointwise_kernels()[0], args);
  };
  chain("x * y + x", "mul 0 1;add 2 0", 2);
  chain("sigmoid(x) * y", "sigmoid 0;mul 2 1", 2);
  chain("gelu(x y + x) / (1 + exp(-y))", "mul 0 1;add 2 0;gelu 3;neg 1;exp 5;add 6 #3f800000;div 4 7", 2);
  chain("relu(x * 2 + 1)", "mul 0 #40000000;add 1 #3f800000;relu 2", 1);
}

/// A row times matrices that take turns, as weights of a decoder do.
void run_decode(ThreadPool& pool, int64_t depth, int64_t columns) {
  constexpr int64_t kFarBytes = int64_t{256} << 20;
  std::vector<float> x(static_cast<size_t>(depth), 0.25f), w(static_cast<size_t>(depth * columns), 0.5f), y(static_cast<size_t>(columns));
  std::vector<float> far(static_cast<size_t>(kFarBytes / 4), 0.5f);
  std::vector<int64_t> offsets(static_cast<size_t>(depth));
  std::iota(offsets.begin(), offsets.end(), 0);
  std::vector<std::shared_ptr<const PackedMatrix>> copies;
  for (int64_t i = 0; i < kFarBytes / (depth * columns * 4); ++i) copies.push_back(*PackedMatrix::make(w.data(), columns, depth, offsets, nullptr, 0, pool));
  const EvenRows rows{x.data(), depth};
  Product p;
  p.rows = 1;
  p.rows_of = EvenRows::get;
  p.context = &rows;
  p.c = y.data();
  p.c_row = columns;
  const std::string what = std::to_string(depth) + " to " + std::to_string(columns) + ", one row";
  show(what.c_str(), static_cast<double>(copies.size()) * static_cast<double>(w.size() * 4), static_cast<double>(kFarBytes),
       [&] {
         for (const auto& copy : copies) {
           p.weights = copy.get();
           run_product(p, pool);
         }
       },
       [&] { sink = sum_of(far); });
}

int run(int count, char** sizes) {
  const auto pool = make_thread_pool(1);
  std::vector<int64_t> megabytes = {8, 96};
  if (count > 0) megabytes.clear();
  for (int i = 0; i < count; ++i) megabytes.push_back(std::max(1, std::atoi(sizes[i])));
  for (const int64_t size : megabytes) run_rows(*pool, size);
  std::printf("weights of 256 MB in turns, against sums\n");
  for (const auto& [depth, columns] : {std::pair<int64_t, int64_t>{4096, 4096}, {576, 1536}, {576, 576}, {1024, 1000}}) run_decode(*pool, depth, columns);
  return 0;
}

}  // namespace
}  // namespace pteron::cpu

int main(int argc, char** argv) { return pteron::cpu::run(argc - 1, argv + 1); }
