// One case of a program with inputs and outputs on a device, in a process of its own: a fault of a device spoils all that follows. Runs on the emulator
// (tests/programs/test_cuda_device.py) and on a device. Usage: cuda_device_cases CASE MODEL.pte. The program has one input x of rows [n, ...] with n up to 8 and at
// least 5, its first output has rows too. Ends with 0, or says what was wrong.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "backends/cuda/runtime/backend.h"
#include "backends/cuda/runtime/driver.h"
#include "pteron/program.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using Bytes = std::vector<std::byte>;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  std::_Exit(1);  // nothing of the device is waited for
}
void check(const Status& status, const char* what) {
  if (!status.ok()) fail(std::string(what) + ": " + std::string(status.message()));
}
void check(int result, const char* what) {
  if (result != 0) fail(std::string(what) + ": error " + std::to_string(result));
}
void check(bool holds, const char* what) {
  if (!holds) fail(what);
}
template <typename T>
T take(Result<T> result, const char* what) {
  if (!result.ok()) fail(std::string(what) + ": " + std::string(result.status().message()));
  return std::move(result).value();
}

DeviceAllocator& allocator() { return *backend().device_allocator(); }
const Driver& driver() {
  static const std::shared_ptr<const Driver> opened = take(Driver::open(), "the driver");
  return *opened;
}
bool is_emulated() { return driver().optional_symbol("pteron_emulated_device") != nullptr; }
/// Bytes that were copied on the device so far, as the emulator counts them; 0 on a device.
uint64_t copied() {
  auto* count = reinterpret_cast<uint64_t (*)(int)>(driver().optional_symbol("pteron_emulator_copied"));
  return count == nullptr ? 0 : count(2);
}

/// A program, its method and room for its tensors on the device, at any offset.
class Model {
 public:
  explicit Model(const char* path) : program_(take(Program::load(path), "loading")), method_(take(program_->load_method(program_->method_names()[0]), "loading the method")) {
    const ValueInfo& in = method_->info().inputs[0];
    const ValueInfo& out = method_->info().outputs[0];
    element_ = dtype_size(in.dtype);
    check(in.device.type == DeviceType::kCuda && out.device.type == DeviceType::kCuda, "the program was not compiled with --device-inputs --device-outputs");
    room_ = std::max(in.bound_bytes(), out.bound_bytes()) + 1024;
    memory_in_ = static_cast<std::byte*>(take(allocator().allocate(0, room_, 256), "memory"));
    memory_out_ = static_cast<std::byte*>(take(allocator().allocate(0, room_, 256), "memory"));
  }
  ~Model() {
    method_.reset();
    allocator().deallocate(0, memory_in_);
    allocator().deallocate(0, memory_out_);
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  Method& method() { return *method_; }
  size_t element() const { return element_; }
  std::byte* memory_in() const { return memory_in_; }
  std::byte* memory_out() const { return memory_out_; }

  TensorView input(int64_t rows, size_t offset) const {
    const ValueInfo& in = method_->info().inputs[0];
    std::vector<int64_t> sizes = {rows};
    for (size_t d = 1; d < in.dims.size(); ++d) sizes.push_back(in.dims[d].max);
    TensorView view = make_contiguous_view(in.dtype, sizes, memory_in_ + offset);
    view.device = {DeviceType::kCuda, 0};
    return view;
  }
  /// Small numbers in every float format: the bytes of 1 to 2.
  void fill(const TensorView& view, unsigned seed) const {
    Bytes bytes(view.size_bytes());
    for (size_t i = 0; i < bytes.size(); i += element_) {
      const unsigned random = (static_cast<unsigned>(i / element_) * 2654435761u + seed * 40503u) >> 9;
      if (element_ == 4) {
        const uint32_t bits = 0x3f800000u | (random & 0x7fffffu);
        std::memcpy(bytes.data() + i, &bits, 4);
      } else {
        const auto bits = static_cast<uint16_t>(0x3c00u | (random & 0x3ffu));
        std::memcpy(bytes.data() + i, &bits, 2);
      }
    }
    check(allocator().copy_from_host(0, view.data, bytes.data(), bytes.size()), "filling");
  }
  /// Sets the input and where the output goes.
  void bind(const TensorView& view, size_t output_offset) {
    check(method_->set_input(0, view), "set_input");
    check(method_->set_output_data_ptr(0, memory_out_ + output_offset, room_ - output_offset), "set_output_data_ptr");
  }
  Bytes result() {
    const auto output = take(method_->output(0), "output");
    const auto* view = std::get_if<TensorView>(&output);
    check(view != nullptr, "the output is no tensor");
    Bytes bytes(view->size_bytes());
    check(method_->copy_to_host(*view, bytes.data(), bytes.size()), "copy_to_host");
    return bytes;
  }
  Bytes call(int64_t rows, unsigned seed, size_t input_offset = 0, size_t output_offset = 0) {
    const TensorView view = input(rows, input_offset);
    fill(view, seed);
    bind(view, output_offset);
    check(method_->execute(), "execute");
    return result();
  }

 private:
  std::shared_ptr<Program> program_;
  std::unique_ptr<Method> method_;
  size_t element_ = 0, room_ = 0;
  std::byte* memory_in_ = nullptr;
  std::byte* memory_out_ = nullptr;
};

/// What aligned addresses give, bit for bit, and no more copies than need be: in the first call, in the one that is recorded, in replays.
void offsets(const char* path, bool in, bool out) {
  Model model(path);
  const size_t off_in = in ? model.element() : 0, off_out = out ? model.element() : 0;
  const Bytes want = model.call(5, 1);
  const uint64_t start = copied();
  check(model.call(5, 1) == want && copied() == start, "aligned tensors are copied");
  for (const unsigned seed : {1u, 2u, 1u, 3u, 1u}) {
    const uint64_t before = copied();
    const Bytes got = model.call(5, seed, off_in, off_out);
    const uint64_t bytes = copied() - before;
    if (seed == 1) check(got == want, "another result than with aligned addresses");
    // A device does not say what it copies.
    const uint64_t most = (in ? model.input(5, 0).size_bytes() : 0) + (out ? got.size() : 0);
    check(bytes == most || !is_emulated(), "not one copy for each tensor off the boundary");
  }
}

/// Sizes that come anew, are recorded, and come again.
void sizes(const char* path) {
  Model model(path);
  std::vector<Bytes> want(9);
  for (const int64_t rows : {3, 5}) {
    Model fresh(path);
    want[static_cast<size_t>(rows)] = fresh.call(rows, 7);
  }
  for (const int64_t rows : {3, 3, 5, 5, 3, 5, 3}) check(model.call(rows, 7) == want[static_cast<size_t>(rows)], "another result after a change of size");
  for (const int64_t rows : {5, 5, 3, 3, 5}) check(model.call(rows, 7, model.element(), model.element()) == want[static_cast<size_t>(rows)], "another result off the boundary after a change of size");
}

void expect_refusal(const Status& status, std::initializer_list<const char*> words) {
  check(!status.ok(), "it was not refused");
  for (const char* word : words) {
    if (status.message().find(word) == std::string_view::npos) fail("the refusal lacks '" + std::string(word) + "': " + std::string(status.message()));
  }
}

/// Wrong memory is refused with name, expected and found; the method works afterwards.
void refusals(const char* path) {
  Model model(path);
  const Bytes want = model.call(5, 1);
  Bytes host(1 << 16);
  expect_refusal(model.method().set_output_data_ptr(0, host.data(), host.size()), {"output 0", "expected memory of cuda:0", "found memory of cpu"});
  expect_refusal(model.method().set_output_data_ptr(0, model.memory_out(), 4), {"output 0", "the buffer has 4"});
  TensorView view = model.input(5, 0);
  view.data = host.data();
  expect_refusal(model.method().set_input(0, view), {"input 0", "expected memory of cuda:0", "found memory of cpu"});
  view = model.input(5, 0);
  view.device.index = 7;
  expect_refusal(model.method().set_input(0, view), {"input 0", "expected memory of cuda:0", "found cuda:7"});
  check(model.call(5, 1) == want, "another result after refusals");
}

/// The caller's stream, and its graph.
void stream(const char* path) {
  Model model(path);
  const Bytes want = model.call(5, 1), other = model.call(5, 2);
  const Driver& d = driver();
  Context context = nullptr;
  check(d.context_retain(&context, 0), "the context");
  check(d.context_push(context), "the context");
  Stream own = nullptr;
  check(d.stream_create(&own, kStreamNonBlocking), "a stream");
  check(model.method().set_stream({DeviceType::kCuda, 0}, own), "set_stream");
  const TensorView view = model.input(5, 0);
  const auto read = [&] {
    Bytes bytes(want.size());
    check(d.stream_wait(own), "waiting");
    check(allocator().copy_to_host(0, bytes.data(), model.memory_out(), bytes.size()), "reading");
    return bytes;
  };
  for (const unsigned seed : {1u, 2u, 1u, 2u}) {
    model.fill(view, seed);
    model.bind(view, 0);
    check(model.method().execute(), "execute on a stream");
    check(read() == (seed == 1 ? want : other), "another result on the caller's stream");
  }
  check(d.capture_begin(own, kCaptureThreadLocal), "capture");
  check(model.method().execute(), "execute while the caller captures");
  float number = 0;
  expect_refusal(model.method().copy_to_host(view, &number, 1 << 20), {"is being captured"});
  Graph graph = nullptr;
  GraphExec exec = nullptr;
  check(d.capture_end(own, &graph), "the end of the capture");
  check(d.graph_instantiate(&exec, graph, 0), "the graph");
  for (const unsigned seed : {1u, 2u}) {
    model.fill(view, seed);
    check(d.graph_launch(exec, own), "replay");
    check(read() == (seed == 1 ? want : other), "another result in the caller's graph");
  }
  d.graph_exec_destroy(exec);
  d.graph_destroy(graph);
  check(model.method().set_stream({DeviceType::kCuda, 0}, nullptr), "set_stream");
  d.stream_destroy(own);
  d.context_pop(&context);
  check(model.call(5, 2) == other, "another result after the caller's stream");
  d.context_release(0);
}

/// Sessions on threads of their own.
void sessions(const char* path) {
  Model reference(path);
  std::vector<Bytes> want;
  for (unsigned seed = 0; seed < 4; ++seed) want.push_back(reference.call(5, seed));
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      Model model(path);
      for (unsigned i = 0; i < 20; ++i) check(model.call(5, (t + i) % 4) == want[(t + i) % 4], "another result beside other sessions");
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace pteron::cuda

int main(int argc, char** argv) {
  using namespace pteron::cuda;
  if (argc != 3) fail("usage: cuda_device_cases input|output|both|sizes|refusals|stream|sessions MODEL.pte");
  const std::string name = argv[1];
  if (name == "input") return offsets(argv[2], true, false), 0;
  if (name == "output") return offsets(argv[2], false, true), 0;
  if (name == "both") return offsets(argv[2], true, true), 0;
  if (name == "sizes") return sizes(argv[2]), 0;
  if (name == "refusals") return refusals(argv[2]), 0;
  if (name == "stream") return stream(argv[2]), 0;
  if (name == "sessions") return sessions(argv[2]), 0;
  fail("no case " + name);
}
