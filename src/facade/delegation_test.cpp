// Rules of delegation, and programs with tensors in a device's memory, from the archive to the results: with backends of the test's own (test_device.h) on
// archives of tests/archives/make_delegates.py.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/byte_sink.h"
#include "facade/test_device.h"
#include "facade/test_files.h"
#include "facade/toolchain.h"
#include "pteron/compile.h"
#include "pteron/program.h"

namespace pteron {
namespace {

using Floats = std::vector<float>;

std::string archive(const char* name) { return std::string(PTERON_DELEGATES "/") + name + ".pt2"; }

void expect_error(const Status& status, Code code, std::string_view part) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_NE(status.message().find(part), std::string_view::npos) << status.message();
}

Floats values(size_t count, float step = 0.37f) {
  Floats out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5) * step;
  return out;
}

class Delegation : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = facade::Toolchain::create({}, 1);
    ASSERT_TRUE(made.ok()) << made.status().message();
    toolchain = std::make_unique<facade::Toolchain>(std::move(made).value());
  }

  /// One more backend of the program, on the device unless told otherwise.
  FakeBackend& add(const std::string& name, bool device_io = true) {
    backends.push_back(std::make_unique<FakeBackend>(*toolchain->backends({"null:all"}).value()[0], name, device_io));
    runtimes.push_back(std::make_unique<FakeRuntime>(name, device_io ? &device : nullptr));
    options.backends.push_back(backends.back().get());
    return *backends.back();
  }
  void give_device(const std::string& backend, std::string_view name) {
    const auto bytes = std::as_bytes(std::span(name));
    options.specs.push_back({backend, {}, std::string(backends::kDeviceSpec), {bytes.begin(), bytes.end()}});
  }

  Status export_all() {
    PTERON_ASSIGN(edge, compiler::export_program(options, toolchain->environment()));
    return ok_status();
  }
  Status finish(const compiler::FinalizeOptions& settings = {}) {
    PTERON_ASSIGN(finished, compiler::finalize(*edge, options, toolchain->environment(), settings));
    MemorySink sink;
    PTERON_TRY(compiler::write_program(finished, sink));
    file.assign(sink.bytes().begin(), sink.bytes().end());
    MemorySink data_sink;
    data.clear();
    if (!finished.data_name.empty()) {
      PTERON_TRY(compiler::write_data(finished, data_sink));
      data.assign(data_sink.bytes().begin(), data_sink.bytes().end());
    }
    return ok_status();
  }
  Status compile(const std::string& path, const compiler::FinalizeOptions& settings = {}) {
    options.methods = {{"forward", path}};
    PTERON_TRY(export_all());
    return finish(settings);
  }
  Status load() {
    LoadOptions load;
    load.threads = 1;
    for (const auto& runtime : runtimes) load.delegates.push_back(runtime.get());
    if (!data.empty()) load.data_in_memory.push_back(data);
    PTERON_ASSIGN(program, Program::load(file, load));
    return ok_status();
  }
  std::unique_ptr<Method> method(const char* name = "forward") {
    const Status loaded = load();
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    if (!loaded.ok()) return nullptr;
    auto made = program->load_method(name);
    EXPECT_TRUE(made.ok()) << made.status().message();
    device.forget();
    return made.ok() ? std::move(made).value() : nullptr;
  }

  /// What the portable kernels give.
  Floats expected(const std::string& path, const std::vector<std::pair<Floats, std::vector<int64_t>>>& calls) {
    CompileSettings settings;
    settings.methods = {{"forward", path}};
    settings.backends = {"portable"};
    settings.threads = 1;
    const auto made = export_program(settings);
    EXPECT_TRUE(made.ok()) << made.status().message();
    const auto bytes = made->finalize()->bytes();
    const auto reference = Program::load(bytes->bytes);
    auto run_of = reference.value()->load_method("forward");
    Floats last;
    for (const auto& [x, sizes] : calls) last = run(**run_of, x, sizes);
    return last;
  }

  Floats run(Method& method, const Floats& x, const std::vector<int64_t>& sizes) {
    input = x;
    Status status = method.set_input(0, make_contiguous_view(DType::kFloat32, sizes, input.data()));
    if (status.ok()) status = method.execute();
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return {};
    return output(method);
  }
  Floats output(Method& method) {
    const auto value = method.output(0);
    EXPECT_TRUE(value.ok()) << value.status().message();
    const TensorView view = std::get<TensorView>(*value);
    Floats out(static_cast<size_t>(view.numel()));
    const Status status = method.copy_to_host(view, out.data(), out.size() * sizeof(float));
    EXPECT_TRUE(status.ok()) << status.message();
    return out;
  }
  static void expect_near(const Floats& a, const Floats& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << i;
  }
  size_t count(std::string_view part) const {
    const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
    size_t found = 0;
    for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) ++found;
    return found;
  }
  size_t delegate_calls(size_t plan = 0) const {
    return static_cast<size_t>(
        std::ranges::count_if(finished.program.plans[plan].instructions, [](const auto& i) { return std::holds_alternative<format::DelegateCall>(i); }));
  }

  FakeDevice device;  // outlives what is loaded
  std::unique_ptr<facade::Toolchain> toolchain;
  std::vector<std::unique_ptr<FakeBackend>> backends;
  std::vector<std::unique_ptr<FakeRuntime>> runtimes;
  compiler::CompileOptions options;
  std::unique_ptr<compiler::EdgeProgram> edge;
  compiler::FinishedProgram finished;
  std::vector<std::byte> file, data;
  std::shared_ptr<Program> program;
  Floats input;
};

const std::vector<int64_t> kResidual = {3, 10};

TEST_F(Delegation, CopiesStandWhereTheHostNeedsATensor) {
  add("dev").without = {"aten::mul"};
  ASSERT_TRUE(compile(archive("residual")).ok());
  ASSERT_EQ(delegate_calls(), 2u);
  const Floats x = values(30);
  {
    auto m = method();
    ASSERT_NE(m, nullptr);
    expect_near(run(*m, x, kResidual), expected(archive("residual"), {{x, kResidual}}));
    EXPECT_EQ(device.from_host, 2);  // x once for both groups, and the product
    EXPECT_EQ(device.to_host, 2);    // what the product reads, and the output
    EXPECT_EQ(m->info().outputs[0].name.find("_on_host"), std::string::npos) << m->info().outputs[0].name;
    EXPECT_EQ(device.on_device, 0);
    EXPECT_EQ(m->info().arena_devices, (std::vector<Device>{{}, {DeviceType::kCuda, 0}}));
    EXPECT_EQ(runtimes[0]->may_queue, (std::vector<bool>{true, true}));  // nobody else is on the device
    EXPECT_EQ(runtimes[0]->unaligned, 0);
    for (const size_t alignment : device.alignments) EXPECT_EQ(alignment % 256, 0u);
  }
  EXPECT_EQ(device.live, 0);  // everything was given back
  FakeDevice other;  // memory that is not the backend's own: its work is in no order with such copies
  LoadOptions load;
  load.delegates = {runtimes[0].get()};
  load.device_allocators = {&other};
  const auto again = Program::load(file, load);
  ASSERT_TRUE(again.ok());
  runtimes[0]->may_queue.clear();
  EXPECT_TRUE(again.value()->load_method("forward").ok());
  EXPECT_EQ(runtimes[0]->may_queue, (std::vector<bool>{false, false}));
  const format::PlanSpec& plan = finished.program.plans[0];
  for (const format::ValueSpec& value : plan.values) {  // each planned tensor lies on its arena's device
    const auto* tensor = std::get_if<format::TensorSpec>(&value);
    if (tensor == nullptr || !tensor->allocation.has_value()) continue;
    EXPECT_TRUE(tensor->device == plan.arenas[tensor->allocation->memory_id - 1].device);
  }
}

TEST_F(Delegation, NothingIsCopiedBetweenDelegatesOfOneDevice) {
  add("one").without = {"aten::linear"};
  add("two");
  ASSERT_TRUE(compile(archive("residual")).ok());
  ASSERT_GE(delegate_calls(), 4u);
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats x = values(30);
  expect_near(run(*m, x, kResidual), expected(archive("residual"), {{x, kResidual}}));
  EXPECT_EQ(std::pair(device.from_host, device.to_host), std::pair(1, 1));  // the input, the output
  EXPECT_EQ(device.on_device, 0);
  for (const auto& runtime : runtimes) EXPECT_TRUE(std::ranges::count(runtime->may_queue, true) == 0);  // each is read by the other
  runtimes[1] = std::make_unique<FakeRuntime>("two", &device);
  LoadOptions load;
  load.delegates = {runtimes[0].get(), runtimes[1].get()};
  FakeDevice other;  // somebody else's memory
  load.device_allocators = {&other};
  const auto again = Program::load(file, load);
  ASSERT_TRUE(again.ok());
  {
    const auto theirs = again.value()->load_method("forward");
    ASSERT_TRUE(theirs.ok()) << theirs.status().message();
    EXPECT_GT(other.live, 0);
  }
  EXPECT_TRUE(std::ranges::count(runtimes[1]->may_queue, true) == 0);
}

TEST_F(Delegation, BetweenTwoDevicesTheWayIsOverTheHost) {
  add("one").without = {"aten::linear"};
  add("two");
  give_device("one", "cuda:0");
  give_device("two", "cuda:1");
  ASSERT_TRUE(compile(archive("residual")).ok());
  EXPECT_EQ(count("cuda:0"), 2u + 1u);  // specs of a spelling are stored per delegate
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats x = values(30);
  expect_near(run(*m, x, kResidual), expected(archive("residual"), {{x, kResidual}}));
  EXPECT_EQ(device.from_host, device.to_host);
  EXPECT_GT(device.to_host, 3);
  EXPECT_EQ(device.on_device, 0);
  std::vector<Device> devices = m->info().arena_devices;
  EXPECT_EQ(devices.size(), 3u);
  EXPECT_TRUE(std::ranges::count(devices, Device{DeviceType::kCuda, 1}) == 1);
}

TEST_F(Delegation, DifferentDevicesAreRefusedUnlessEachWasGiven) {
  add("one").without = {"aten::linear"};
  add("two");
  give_device("two", "cuda:1");
  bool wrong = false;
  options.wrong_option = &wrong;
  expect_error(compile(archive("residual")), Code::kInvalidInput, "delegates on different devices: two on cuda:1, and one, which was given no device, on cuda:0; give one to each backend, or one to the program");
  EXPECT_TRUE(wrong);
  options.device = "cuda:1";  // the program's: of those that have none of their own
  ASSERT_TRUE(compile(archive("residual")).ok());
  options.device = "cuda:2";
  ASSERT_TRUE(compile(archive("residual")).ok());
  EXPECT_GE(count("cuda:2"), 1u);
  EXPECT_GE(count("cuda:1"), 1u);  // a backend's own stays
  options.specs.clear();
  ASSERT_TRUE(compile(archive("residual")).ok());
  EXPECT_EQ(count("cuda:1"), 0u);
  const std::vector<std::string> devices = compiler::devices_of(edge->report.partitions[0], "one");
  EXPECT_EQ(devices, (std::vector<std::string>{"cuda:2"}));
  for (const char* name : {"gpu:0", "cuda", "cuda:", "cuda:128", "cuda:0x", "cuda:1000"}) {
    options.device = name;
    expect_error(compile("/none.pt2"), Code::kInvalidInput, "the device is cuda:NUMBER");
  }
}

TEST_F(Delegation, ADeviceThatNobodyComputesOnIsRefused) {
  options.device = "cuda:1";
  expect_error(compile(archive("residual")), Code::kInvalidInput, "device cuda:1 is given, and no delegate of the program computes on a device");
}

TEST_F(Delegation, ViewsBetweenDelegatesOfOneDeviceStayThere) {
  const Floats x = values(24);
  add("one").only = {"aten::tanh"};
  add("two").only = {"aten::cos"};
  for (const bool official : {false, true}) {
    options.profile = official ? emit::Profile::kExecutorch : emit::Profile::kPteron;
    for (const char* name : {"views", "views_dynamic"}) {
      ASSERT_TRUE(compile(archive(name)).ok()) << name;
      EXPECT_EQ(delegate_calls(), 2u);
      auto m = method();
      ASSERT_NE(m, nullptr) << name;
      expect_near(run(*m, x, {4, 6}), expected(archive(name), {{x, {4, 6}}}));
      // The program's input and its output, and nothing between them; views of varying size have no form in the official format.
      const int between = official && std::string_view(name) == "views_dynamic" ? 1 : 0;
      EXPECT_EQ(std::pair(device.from_host, device.to_host), std::pair(1 + between, 1 + between)) << name;
      EXPECT_EQ(device.on_device, 0);
    }
  }
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats shorter = values(12);
  expect_near(run(*m, shorter, {2, 6}), expected(archive("views_dynamic"), {{shorter, {2, 6}}}));
}

TEST_F(Delegation, ViewsThatTheHostReadsAreCopiedOnce) {
  add("one").only = {"aten::tanh"};
  add("two").only = {"aten::cos", "aten::sin"};
  ASSERT_TRUE(compile(archive("views_shared")).ok());
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats x = values(24);
  expect_near(run(*m, x, {4, 6}), expected(archive("views_shared"), {{x, {4, 6}}}));
  EXPECT_EQ(device.from_host, 1);
  EXPECT_EQ(device.to_host, 3);  // the cosine, the sine, and the half that the host reads
  EXPECT_EQ(device.on_device, 0);
}

TEST_F(Delegation, ViewsWithGapsOrInAnotherOrderGoOverTheHost) {
  add("one").only = {"aten::tanh"};
  add("two").only = {"aten::cos"};
  ASSERT_TRUE(compile(archive("views_turned")).ok());
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats x = values(24);
  expect_near(run(*m, x, {4, 6}), expected(archive("views_turned"), {{x, {4, 6}}}));
  EXPECT_EQ(std::pair(device.from_host, device.to_host), std::pair(2, 2));
}

TEST_F(Delegation, InputsAndOutputsMayStayOnTheDevice) {
  add("one").without = {"aten::linear"};
  add("two");
  options.device_inputs = options.device_outputs = true;
  ASSERT_TRUE(compile(archive("residual")).ok());
  EXPECT_EQ(count("et_copy"), 0u);
  auto m = method();
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->info().inputs[0].device, (Device{DeviceType::kCuda, 0}));
  EXPECT_EQ(m->info().outputs[0].device, (Device{DeviceType::kCuda, 0}));
  EXPECT_EQ(m->info().inputs[0].type_text(), "float32 [3,10] on cuda:0");
  const Floats x = values(30), wanted = expected(archive("residual"), {{x, kResidual}});
  // A tensor of the host is copied there.
  expect_near(run(*m, x, kResidual), wanted);
  EXPECT_EQ(std::pair(device.from_host, device.to_host), std::pair(1, 1));  // the second by the test itself
  // The caller's own memory on the device: nothing is copied.
  void* const in = device.allocate(0, 120, 256).value();
  void* const out = device.allocate(0, 120, 256).value();
  ASSERT_TRUE(device.copy_from_host(0, in, x.data(), 120).ok());
  device.forget();
  TensorView view = make_contiguous_view(DType::kFloat32, kResidual, in);
  view.device = {DeviceType::kCuda, 0};
  ASSERT_TRUE(m->set_input(0, view).ok());
  ASSERT_TRUE(m->set_output_data_ptr(0, out, 120).ok());
  const Status status = m->execute();
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(device.copies(), 0);
  Floats got(30);
  ASSERT_TRUE(device.copy_to_host(0, got.data(), out, 120).ok());
  expect_near(got, wanted);
  EXPECT_EQ(std::get<TensorView>(*m->output(0)).data, out);
  // Wrong memory.
  view.device.index = 1;
  expect_error(m->set_input(0, view), Code::kInvalidInput, "expected memory of cuda:0, found cuda:1");
  view.device.index = 0;
  view.stride_array[0] = 20;
  expect_error(m->set_input(0, view), Code::kInvalidInput, "must be dense");
  expect_error(m->copy_to_host(std::get<TensorView>(*m->output(0)), got.data(), 119), Code::kInvalidInput, "a copy of 120 bytes into 119");
  m.reset();
  device.deallocate(0, in);
  device.deallocate(0, out);
}

TEST_F(Delegation, AStridedInputIsLaidOutOnItsWayToTheDevice) {
  add("dev");
  ASSERT_TRUE(compile(archive("residual")).ok());
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats x = values(30);
  Floats turned(30);
  for (size_t i = 0; i < 3; ++i) {
    for (size_t k = 0; k < 10; ++k) turned[k * 3 + i] = x[i * 10 + k];
  }
  TensorView view = make_contiguous_view(DType::kFloat32, kResidual, turned.data());
  view.stride_array[0] = 1;
  view.stride_array[1] = 3;
  ASSERT_TRUE(m->set_input(0, view).ok());
  ASSERT_TRUE(m->execute().ok());
  expect_near(output(*m), expected(archive("residual"), {{x, kResidual}}));
}

TEST_F(Delegation, StateThatOnlyDelegatesUseLivesOnTheDevice) {
  add("dev");
  ASSERT_TRUE(compile(archive("counter")).ok());
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats x = values(4), y = values(4, 0.11f);
  const Floats once = run(*m, x, {4});
  EXPECT_EQ(std::pair(device.from_host, device.to_host), std::pair(1, 1));
  expect_near(once, expected(archive("counter"), {{x, {4}}}));
  expect_near(run(*m, y, {4}), expected(archive("counter"), {{x, {4}}, {y, {4}}}));
  EXPECT_EQ(device.on_device, 0);
  ASSERT_EQ(m->info().mutable_buffers.size(), 1u);
  EXPECT_EQ(m->info().mutable_buffers[0].device, (Device{DeviceType::kCuda, 0}));
  m->reset();
  expect_near(run(*m, x, {4}), once);
}

TEST_F(Delegation, StateThatTheHostUsesLivesThere) {
  for (const bool reads_old : {true, false}) {  // the host reads the old value, or only what the new one is made of
    options = {};
    backends.clear();
    runtimes.clear();
    add("dev").without = {reads_old ? "aten::mul" : "aten::tanh"};
    ASSERT_TRUE(compile(archive("counter")).ok());
    auto m = method();
    ASSERT_NE(m, nullptr);
    EXPECT_EQ(m->info().mutable_buffers[0].device, reads_old ? Device() : (Device{DeviceType::kCuda, 0}));
    const Floats x = values(4), y = values(4, 0.11f);
    expect_near(run(*m, x, {4}), expected(archive("counter"), {{x, {4}}}));
    expect_near(run(*m, y, {4}), expected(archive("counter"), {{x, {4}}, {y, {4}}}));
    m.reset();
    program.reset();
  }
}

TEST_F(Delegation, MethodsShareStateOnTheDevice) {
  add("dev");
  options.methods = {{"a", archive("counter")}, {"b", archive("counter")}};
  options.shared_states = {"sum"};
  ASSERT_TRUE(export_all().ok());
  ASSERT_TRUE(finish().ok());
  auto a = method("a");
  ASSERT_NE(a, nullptr);
  auto b = program->load_method("b", *a);
  ASSERT_TRUE(b.ok()) << b.status().message();
  const Floats x = values(4), y = values(4, 0.11f);
  run(*a, x, {4});
  expect_near(run(**b, y, {4}), expected(archive("counter"), {{x, {4}}, {y, {4}}}));
  auto alone = program->load_method("b");  // a session of its own
  ASSERT_TRUE(alone.ok());
  expect_near(run(**alone, y, {4}), expected(archive("counter"), {{y, {4}}}));
  EXPECT_EQ(a->info().mutable_buffers[0].device, (Device{DeviceType::kCuda, 0}));
}

TEST_F(Delegation, SizesThatVaryTravelWithTheirTensors) {
  add("one").without = {"aten::linear"};
  add("two");
  ASSERT_TRUE(compile(sample("dynamic_batch_mlp")).ok());
  auto m = method();
  ASSERT_NE(m, nullptr);
  const int64_t width = m->info().inputs[0].dims[1].max;
  for (const int64_t batch : {2, 5, 3}) {
    const Floats x = values(static_cast<size_t>(batch * width));
    device.forget();
    const Floats got = run(*m, x, {batch, width});
    EXPECT_EQ(std::pair(device.from_host, device.to_host), std::pair(1, 1));
    expect_near(got, expected(sample("dynamic_batch_mlp"), {{x, {batch, width}}}));
  }
}

TEST_F(Delegation, BuffersOfDelegatesNeedNoCopy) {
  for (const bool on_device : {false, true}) {
    options = {};
    backends.clear();
    runtimes.clear();
    add("dev", on_device).without = {"aten::mul"};  // LayerNorm, Linear, GELU; Linear, residual
    ASSERT_TRUE(compile(archive("residual"), {16}).ok());
    ASSERT_EQ(delegate_calls(), 2u);
    const uint64_t aligned = finished.report.methods[0].arena_bytes;
    auto m = method();
    ASSERT_NE(m, nullptr);
    alignas(256) float x[30];
    const Floats given = values(30);
    std::ranges::copy(given, x);
    const auto call = [&] {
      runtimes[0]->calls = runtimes[0]->unaligned = 0;
      ASSERT_TRUE(m->set_input(0, make_contiguous_view(DType::kFloat32, kResidual, x)).ok());
      const Status status = m->execute();
      ASSERT_TRUE(status.ok()) << status.message();
      expect_near(output(*m), expected(archive("residual"), {{given, kResidual}}));
    };
    for (int i = 0; i < 2; ++i) {
      call();
      EXPECT_EQ(runtimes[0]->calls, 2);
      EXPECT_EQ(runtimes[0]->unaligned, 0);
    }
    size_t buffers = 0;
    for (const format::ValueSpec& value : finished.program.plans[0].values) {
      const auto* tensor = std::get_if<format::TensorSpec>(&value);
      if (tensor == nullptr || !tensor->allocation.has_value()) continue;
      EXPECT_EQ(tensor->allocation->offset % 256, 0u);
      ++buffers;
    }
    // The control: what the planner alone asks.
    m.reset();
    for (auto& group : edge->groups) group.alignment_bytes = 1;
    ASSERT_TRUE(finish({16}).ok());
    EXPECT_LE(aligned, finished.report.methods[0].arena_bytes + buffers * 256);  // padding only
    EXPECT_GT(aligned, finished.report.methods[0].arena_bytes);
    m = method();
    ASSERT_NE(m, nullptr);
    call();
    EXPECT_GT(runtimes[0]->unaligned, 0);
    m.reset();
  }
}

TEST_F(Delegation, ACallersPlannerSeesEachDeviceAndIsLeftAlone) {
  add("dev").without = {"aten::mul"};
  std::vector<Device> asked;
  compiler::FinalizeOptions settings;
  settings.planner = [&](std::string_view, std::span<const plan::BufferRequest> requests, uint64_t alignment, Device device) -> Result<std::vector<uint64_t>> {
    asked.push_back(device);
    EXPECT_EQ(alignment, 192u);  // of 64 and 48
    std::vector<uint64_t> offsets;
    for (size_t i = 0; i < requests.size(); ++i) offsets.push_back(i * 1536);
    return offsets;
  };
  options.methods = {{"forward", archive("residual")}};
  ASSERT_TRUE(export_all().ok());
  for (auto& group : edge->groups) group.alignment_bytes = 48;
  const Status status = finish(settings);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(asked, (std::vector<Device>{{}, {DeviceType::kCuda, 0}}));
  EXPECT_EQ(settings.alignment_bytes, 64u);
  const format::PlanSpec& plan = finished.program.plans[0];
  for (const format::ValueSpec& value : plan.values) {
    const auto* tensor = std::get_if<format::TensorSpec>(&value);
    if (tensor == nullptr || !tensor->allocation.has_value()) continue;
    EXPECT_EQ(tensor->allocation->offset % 1536, 0u);
  }
  auto m = method();
  ASSERT_NE(m, nullptr);
  const Floats x = values(30);
  expect_near(run(*m, x, kResidual), expected(archive("residual"), {{x, kResidual}}));
}

TEST_F(Delegation, ProgramsOfADeviceAreRefusedWithoutIt) {
  ASSERT_EQ(::setenv("PTERON_CUDA_DRIVER", "/none/libcuda.so", 1), 0);
  add("dev");
  ASSERT_TRUE(compile(archive("residual")).ok());
  runtimes[0] = std::make_unique<FakeRuntime>("dev", nullptr);
  ASSERT_TRUE(load().ok());
  // The CUDA engine has such memory where there is a driver.
  expect_error(program->load_method("forward").status(), Code::kUnavailable, "(planned memory) on cuda:0: the CUDA driver was not found: /none/libcuda.so");
  // Somebody has such memory, but not the backend whose payloads get it.
  LoadOptions load;
  load.delegates = {runtimes[0].get()};
  load.device_allocators = {&device};
  const auto other = Program::load(file, load);
  ASSERT_TRUE(other.ok());
  expect_error(other.value()->load_method("forward").status(), Code::kInvalidFile, "(delegate \"Fake_dev\") gets a tensor on cuda:0, and takes tensors of the host only");
  runtimes[0] = std::make_unique<FakeRuntime>("dev", &device);
  ASSERT_TRUE(this->load().ok());
  device.fail_allocate = true;
  expect_error(program->load_method("forward").status(), Code::kOutOfMemory, "(planned memory) on cuda:0: the device is full");
  EXPECT_EQ(device.live, 0);
}

TEST_F(Delegation, WhatIsMissingIsSaidBeforeAnythingIsRead) {
  FakeBackend& one = add("one");
  FakeBackend& two = add("two");
  two.missing = "the library of kernels is not installed";
  options.device = "cuda:3";
  options.exclusions = {{"two", "aten::mm", false}};
  expect_error(compile("/none/such.pt2"), Code::kUnavailable, "backend two: the library of kernels is not installed");
  EXPECT_EQ(exit_code(Code::kUnavailable), 6);
  EXPECT_EQ(std::pair(one.probed, two.probed), std::pair(1, 1));
  EXPECT_EQ(one.compiled + two.compiled, 0);
  ASSERT_EQ(two.probe_specs.size(), 1u);
  EXPECT_EQ(two.probe_specs[0].key, backends::kDeviceSpec);
  two.missing.clear();
  expect_error(compile("/none/such.pt2"), Code::kNotFound, "/none/such.pt2");
}

TEST_F(Delegation, AMixedProgramRunsLikeTheModel) {
  for (const bool external : {false, true}) {
    options = {};
    backends.clear();
    runtimes.clear();
    FakeBackend& first = add("first");
    first.without = {"aten::erfinv"};
    add("second", false);
    options.exclusions = {{"first", "mm", false}};
    if (external) options.external_weights = "w";
    ASSERT_TRUE(compile(archive("mixed")).ok());
    for (const auto& [backend, ops] : {std::pair<std::string, std::vector<std::string>>{"first", {"aten::tanh", "aten::cos"}}, {"second", {"aten::mm", "aten::erfinv"}}}) {
      for (const std::string& op : ops) {
        const bool inside = std::ranges::any_of(edge->report.partitions[0].groups, [&](const compiler::GroupReport& group) {
          return group.backend == backend && std::ranges::any_of(group.kernels, [&](const std::string& kernel) { return kernel.starts_with(op); });
        });
        EXPECT_TRUE(inside) << op << " in " << backend;
      }
    }
    EXPECT_EQ(finished.report.delegates, (std::vector<std::string>{"Fake_first", "Fake_second"}));
    EXPECT_EQ(data.empty(), !external);
    const auto has_weight = std::ranges::any_of(finished.data.blobs, [](const format::DataBlobSpec& blob) { return blob.payload.size_bytes == 6 * 6 * 4; });
    EXPECT_EQ(has_weight, external);
    auto m = method();
    ASSERT_NE(m, nullptr);
    const Floats x = values(24);
    expect_near(run(*m, x, {4, 6}), expected(archive("mixed"), {{x, {4, 6}}}));
    m.reset();
    program.reset();
  }
}

TEST_F(Delegation, OneDelegateHasNoDataFileAndNoOtherId) {
  add("dev", false);
  ASSERT_TRUE(compile(archive("mixed")).ok());
  EXPECT_EQ(finished.report.delegates, (std::vector<std::string>{"Fake_dev"}));
  EXPECT_TRUE(data.empty());
  EXPECT_EQ(count("Fake_"), 1u);
  EXPECT_EQ(delegate_calls(), 1u);
}

TEST_F(Delegation, MethodsWithoutADelegateAreFine) {
  add("dev").only = {"aten::erfinv"};
  options.methods = {{"plain", archive("residual")}, {"mixed", archive("mixed")}};
  ASSERT_TRUE(export_all().ok());
  ASSERT_TRUE(finish().ok());
  const auto plain = std::ranges::find(finished.program.plans, "plain", &format::PlanSpec::name);
  EXPECT_TRUE(plain->delegates.empty());
  auto m = method("plain");
  ASSERT_NE(m, nullptr);
  const Floats x = values(30);
  expect_near(run(*m, x, kResidual), expected(archive("residual"), {{x, kResidual}}));
  EXPECT_EQ(device.copies(), 0);
  auto mixed = program->load_method("mixed");
  ASSERT_TRUE(mixed.ok());
  const Floats z = values(24);
  expect_near(run(**mixed, z, {4, 6}), expected(archive("mixed"), {{z, {4, 6}}}));
}

TEST_F(Delegation, OutputsStandLast) {
  add("one").without = {"aten::linear"};
  add("two");
  ASSERT_TRUE(compile(archive("residual")).ok());
  // The last instruction makes the output, and nothing is read that was not made before.
  const format::PlanSpec& plan = finished.program.plans[0];
  const auto* last = std::get_if<format::KernelCall>(&plan.instructions.back());
  ASSERT_NE(last, nullptr);
  EXPECT_EQ(last->args.back(), plan.outputs[0]);
  EXPECT_EQ(plan.operators[static_cast<size_t>(last->op_index)].name, "et_copy::_d2h_copy");
}

TEST_F(Delegation, ABackendTwiceIsRefused) {
  FakeBackend& one = add("one");
  options.backends.push_back(&one);
  expect_error(compile("/none.pt2"), Code::kInvalidInput, "backend 'one' is named twice: the first takes every node that it can, nothing is left for the second");
  const auto chosen = toolchain->backends({"null:all", "cpu", "null:all"});
  expect_error(chosen.status(), Code::kInvalidInput, "'null:all' is named twice: the first takes every node that it can");
  std::vector<std::string> names = {"cpu", "null:all:1", "cuda:12", "null:all", ":1", "a:"};
  std::vector<compiler::BackendSpec> specs;
  facade::split_devices(names, specs);
  EXPECT_EQ(names, (std::vector<std::string>{"cpu", "null:all", "cuda", "null:all", ":1", "a:"}));
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[1].backend, "cuda");
  EXPECT_EQ(specs[1].key, backends::kDeviceSpec);
  EXPECT_EQ(specs[1].value.size(), 7u);
}

TEST_F(Delegation, DevicesOfTheHostsBackendsAreRefused) {
  const auto refused = [&](const std::vector<std::string>& backends, std::string_view device, Code code, std::string_view text) {
    CompileSettings settings;
    settings.methods = {{"forward", "/none.pt2"}};
    settings.backends = backends;
    settings.device = device;
    expect_error(export_program(settings).status(), code, text);
  };
  refused({"cpu:1"}, "", Code::kInvalidInput, "backend cpu computes on the host: it takes no device");
  refused({"null:all:1", "null:all:2"}, "", Code::kInvalidInput, "'null:all' is named twice");
  refused({"null:all:200"}, "", Code::kInvalidInput, "target_device is cuda:NUMBER, with a number below 128; found 'cuda:200'");
  refused({"cpu"}, "cuda:x", Code::kInvalidInput, "the device is cuda:NUMBER");
  CompileSettings settings;
  settings.methods = {{"forward", archive("residual")}};
  settings.backends = {"cpu"};
  settings.device = "cuda:0";
  expect_error(export_program(settings).status(), Code::kInvalidInput, "no delegate of the program computes on a device");
  settings.backends = {"null:all:1"};
  settings.device.clear();
  const auto edge = export_program(settings);
  ASSERT_TRUE(edge.ok()) << edge.status().message();
  ASSERT_EQ(edge->claims().size(), 1u);
  EXPECT_EQ(edge->claims()[0].devices, (std::vector<std::string>{"cuda:1"}));
}

}  // namespace
}  // namespace pteron
