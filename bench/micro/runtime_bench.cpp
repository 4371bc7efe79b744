// Costs of the runtime itself: a call of a one-operator program, setting an input, a loop of primitive instructions, loading.
#include <benchmark/benchmark.h>

#include <string>
#include <utility>
#include <vector>

#include "base/byte_sink.h"
#include "base/check.h"
#include "format/program.h"
#include "pteron/program.h"
#include "tensor/shape.h"

namespace pteron {
namespace {

constexpr int64_t kElements = 16;

format::TensorSpec planned(format::PlanSpec& plan) {
  format::TensorSpec spec;
  spec.sizes = {kElements};
  if (plan.arenas.empty()) plan.arenas.push_back({});
  spec.allocation = format::Allocation{1, static_cast<uint64_t>(plan.arenas[0].size_bytes)};
  plan.arenas[0].size_bytes += 64;
  return spec;
}

/// forward(x, y) = x + y, `repeats` times.
std::vector<std::byte> add_program(int repeats) {
  format::ProgramSpec program;
  format::PlanSpec plan;
  plan.values = {planned(plan), planned(plan), int64_t{1}, planned(plan)};
  plan.inputs = {0, 1};
  plan.outputs = {3};
  plan.operators = {{"aten::add", "out"}};
  for (int i = 0; i < repeats; ++i) plan.instructions.push_back(format::KernelCall{0, {0, 1, 2, 3, 3}});
  program.plans.push_back(std::move(plan));
  MemorySink sink;
  PTERON_CHECK(format::write_program(program, {}, sink).ok());
  return {sink.bytes().begin(), sink.bytes().end()};
}

LoadOptions one_thread() {
  LoadOptions options;
  options.threads = 1;
  return options;
}

/// Set both inputs, execute, read the output. The bar: at most 2 microseconds.
void call_of_one_op(benchmark::State& state) {
  const std::vector<std::byte> bytes = add_program(1);
  const auto program = Program::load(bytes, one_thread());
  PTERON_CHECK(program.ok());
  const auto method = program.value()->load_method("forward");
  PTERON_CHECK(method.ok());
  std::vector<float> x(kElements, 1), y(kElements, 2);
  const std::vector<int64_t> sizes = {kElements};
  const TensorView x_view = make_contiguous_view(DType::kFloat32, sizes, x.data()), y_view = make_contiguous_view(DType::kFloat32, sizes, y.data());
  for (auto _ : state) {
    PTERON_CHECK(method.value()->set_input(0, x_view).ok());
    PTERON_CHECK(method.value()->set_input(1, y_view).ok());
    PTERON_CHECK(method.value()->execute().ok());
    const auto output = method.value()->output(0);
    benchmark::DoNotOptimize(std::get<TensorView>(*output).as<float>()[0]);
  }
}
BENCHMARK(call_of_one_op);

/// execute() alone; range = instructions.
void execute_only(benchmark::State& state) {
  const std::vector<std::byte> bytes = add_program(static_cast<int>(state.range(0)));
  const auto program = Program::load(bytes, one_thread());
  PTERON_CHECK(program.ok());
  const auto method = program.value()->load_method("forward");
  PTERON_CHECK(method.ok());
  std::vector<float> x(kElements, 1);
  const std::vector<int64_t> sizes = {kElements};
  for (size_t i = 0; i < 2; ++i) PTERON_CHECK(method.value()->set_input(i, make_contiguous_view(DType::kFloat32, sizes, x.data())).ok());
  for (auto _ : state) PTERON_CHECK(method.value()->execute().ok());
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(execute_only)->Arg(1)->Arg(100);

/// Verify and build; range = instructions.
void load_from_memory(benchmark::State& state) {
  const std::vector<std::byte> bytes = add_program(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    const auto program = Program::load(bytes, one_thread());
    PTERON_CHECK(program.ok());
    const auto method = program.value()->load_method("forward");
    PTERON_CHECK(method.ok());
  }
}
BENCHMARK(load_from_memory)->Arg(1)->Arg(1000);

}  // namespace
}  // namespace pteron

BENCHMARK_MAIN();
