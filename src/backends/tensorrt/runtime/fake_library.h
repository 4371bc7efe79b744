// An engine library for tests: engines are texts, the device is host memory that it keeps a list of, work waits in a queue until somebody waits for
// it. Stricter than TensorRT: an address that the device could not use is an error of the enqueue. Lines of an engine:
//   in NAME TYPE SIZES          out NAME (add|sub|scale|copy) A [B or FACTOR]         f32, i32, i64; -1: varies. Results look like A.
//   alias OUTPUT INPUT          profile MIN MAX [MIN MAX ...]  (4,2; a pair for every input)
//   weights TOTAL KEPT          stream BYTES AUTOMATIC        scratch BYTES_PER_ROW     shape INPUT
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "backends/tensorrt/runtime/engine_library.h"
#include "base/str_cat.h"

namespace pteron::tensorrt::testing {

/// Everything that a test may look at or break. Threads: one.
struct FakeWorld {
  int device = 0, devices = 2;
  bool integrated = false;  ///< the device reads host memory
  bool capturing = false;
  std::set<int> refused_budgets;  ///< sizes that set_budget refuses; -1: every one
  int allocations_left = -1;      ///< allocate() gives null when none is left; -1: no limit
  int copies_left = -1;
  bool enqueue_fails = false, wait_fails = false;
  std::vector<std::function<void()>> queue;
  std::map<char*, size_t> memory;  ///< of the devices: aligned blocks
  std::map<char*, int> device_of;  ///< of the same
  int misplaced = 0;               ///< blocks that were freed while another device was current
  std::vector<void*> streams;      ///< of the enqueues, in order
  int deserialized = 0, copies = 0, live_engines = 0, live_contexts = 0, live_events = 0;
  int64_t budget = -1;
  std::vector<int> profiles;     ///< of use_profile
  std::vector<int64_t> scratch;  ///< sizes given by set_scratch
  void run() {
    for (const auto& work : std::exchange(queue, {})) work();
  }
};

struct FakeResult {
  std::string op, a, b;
};

struct FakePlan {
  std::vector<EngineTensor> tensors;
  std::map<std::string, FakeResult> results;
  std::map<std::string, std::string> aliases;
  std::vector<std::vector<ProfileSizes>> profiles;
  int64_t total_weights = 100, kept_weights = -1, streamable = 0, automatic = 0, scratch_per_row = 0;
};

inline std::vector<int64_t> fake_sizes(const std::string& text) {
  std::vector<int64_t> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) out.push_back(std::stoll(part));
  return out;
}

inline FakePlan fake_plan(std::string_view text) {
  FakePlan plan;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string kind, name, type;
    words >> kind >> name;
    if (kind == "in") {
      words >> type;
      EngineTensor tensor{name, true, false, type == "f32" ? DType::kFloat32 : type == "i32" ? DType::kInt32 : DType::kInt64, {}};
      for (int64_t size = 0; words >> size;) tensor.sizes.push_back(size);
      plan.tensors.push_back(tensor);
    } else if (kind == "out") {
      FakeResult result;
      words >> result.op >> result.a >> result.b;
      EngineTensor tensor = *std::ranges::find(plan.tensors, result.a, &EngineTensor::name);
      tensor.name = name;
      tensor.is_input = false;
      plan.tensors.push_back(tensor);
      plan.results[name] = result;
    } else if (kind == "alias") {
      words >> plan.aliases[name];
    } else if (kind == "profile") {
      std::vector<ProfileSizes> profile;
      for (std::string min = name, max; words >> max; words >> min) profile.push_back({fake_sizes(min), fake_sizes(max)});
      plan.profiles.push_back(profile);
    } else if (kind == "weights") {
      plan.total_weights = std::stoll(name);
      words >> plan.kept_weights;
    } else if (kind == "stream") {
      plan.streamable = std::stoll(name);
      words >> plan.automatic;
    } else if (kind == "scratch") {
      plan.scratch_per_row = std::stoll(name);
    } else if (kind == "shape") {
      std::ranges::find(plan.tensors, name, &EngineTensor::name)->is_shape = true;
    }
  }
  return plan;
}

inline bool fake_on_device(const FakeWorld& world, const void* address) {
  return std::ranges::any_of(world.memory,
                             [&](const auto& block) { return address >= block.first && address < block.first + std::max<size_t>(block.second, 1); });
}

class FakeContext final : public EngineContext {
 public:
  FakeContext(FakeWorld& world, const FakePlan& plan, bool own_scratch) : world_(world), plan_(plan), own_scratch_(own_scratch) { ++world_.live_contexts; }
  ~FakeContext() override { --world_.live_contexts; }

  Status use_profile(int index, Stream) override {
    world_.profiles.push_back(index);
    return ok_status();
  }
  Status set_sizes(const std::string& input, std::span<const int64_t> sizes) override {
    sizes_[input] = {sizes.begin(), sizes.end()};
    return ok_status();
  }
  Status infer_sizes() override {
    for (const auto& [name, result] : plan_.results) sizes_[name] = sizes_[result.a];
    return ok_status();
  }
  Result<std::vector<int64_t>> sizes(const std::string& tensor) const override { return sizes_.at(tensor); }
  Status set_address(const std::string& tensor, void* address) override {
    addresses_[tensor] = address;
    return ok_status();
  }
  Result<int64_t> scratch_bytes() override { return plan_.scratch_per_row * sizes_[plan_.tensors[0].name][0]; }
  Status set_scratch(void* memory, int64_t size_bytes) override {
    scratch_ = memory;
    scratch_bytes_ = size_bytes;
    world_.scratch.push_back(size_bytes);
    return ok_status();
  }
  Status enqueue(Stream stream) override {
    world_.streams.push_back(stream);
    if (world_.enqueue_fails) return Status(Code::kUnavailable, "the enqueue fails");
    const int64_t needed = plan_.scratch_per_row * sizes_[plan_.tensors[0].name][0];
    if (!own_scratch_ && plan_.scratch_per_row > 0 && (scratch_ == nullptr || scratch_bytes_ < needed)) {
      return Status(Code::kUnavailable, str_cat("a context with ", scratch_ == nullptr ? 0 : scratch_bytes_, " bytes of scratch needs ", needed));
    }
    for (const auto& [name, address] : addresses_) {
      if (!world_.integrated && !fake_on_device(world_, address)) return Status(Code::kUnavailable, str_cat(name, " is bound to host memory"));
      if (reinterpret_cast<uintptr_t>(address) % 256 != 0) return Status(Code::kUnavailable, str_cat(name, " is bound to an unaligned address"));
    }
    world_.queue.push_back([plan = plan_, sizes = sizes_, addresses = addresses_] { compute(plan, sizes, addresses); });
    return ok_status();
  }

 private:
  static void compute(const FakePlan& plan, const std::map<std::string, std::vector<int64_t>>& sizes, const std::map<std::string, void*>& addresses) {
    std::vector<std::pair<std::string, std::vector<float>>> made;  // all operands are read before any result is written
    for (const auto& [name, result] : plan.results) {
      size_t count = 1;
      for (const int64_t size : sizes.at(name)) count *= static_cast<size_t>(size);
      std::vector<float> out(count);
      const auto* a = static_cast<const float*>(addresses.at(result.a));
      const bool binary = result.op == "add" || result.op == "sub";
      const auto* b = binary ? static_cast<const float*>(addresses.at(result.b)) : nullptr;
      const float factor = result.op == "scale" ? std::stof(result.b) : result.op == "sub" ? -1.0f : 1.0f;
      for (size_t i = 0; i < count; ++i) out[i] = binary ? a[i] + factor * b[i] : a[i] * factor;
      made.emplace_back(name, std::move(out));
    }
    for (const auto& [name, values] : made) std::copy(values.begin(), values.end(), static_cast<float*>(addresses.at(name)));
  }

  FakeWorld& world_;
  const FakePlan plan_;
  bool own_scratch_;
  void* scratch_ = nullptr;
  int64_t scratch_bytes_ = 0;
  std::map<std::string, std::vector<int64_t>> sizes_;
  std::map<std::string, void*> addresses_;
};

class FakeEngine final : public Engine {
 public:
  FakeEngine(FakeWorld& world, FakePlan plan) : world_(world), plan_(std::move(plan)) { ++world_.live_engines; }
  ~FakeEngine() override { --world_.live_engines; }
  std::vector<EngineTensor> tensors() const override { return plan_.tensors; }
  int profile_count() const override { return std::max(1, static_cast<int>(plan_.profiles.size())); }
  std::optional<ProfileSizes> profile(int index, const std::string& input) const override {
    size_t position = 0;
    for (const EngineTensor& tensor : plan_.tensors) {
      if (tensor.name == input) {
        if (plan_.profiles.empty()) return ProfileSizes{tensor.sizes, tensor.sizes};
        return plan_.profiles[static_cast<size_t>(index)][position];
      }
      position += tensor.is_input ? 1 : 0;
    }
    return std::nullopt;
  }
  std::optional<std::string> aliased_input(const std::string& output) const override {
    const auto found = plan_.aliases.find(output);
    return found == plan_.aliases.end() ? std::nullopt : std::optional(found->second);
  }
  int64_t total_weight_bytes() const override { return plan_.total_weights; }
  int64_t kept_weight_bytes() const override { return plan_.kept_weights; }
  int64_t streamable_bytes() const override { return plan_.streamable; }
  int64_t automatic_budget() const override { return plan_.automatic; }
  bool set_budget(int64_t bytes) override {
    if (world_.refused_budgets.contains(static_cast<int>(bytes)) || world_.refused_budgets.contains(-1)) return false;
    world_.budget = bytes;
    return true;
  }
  int64_t scratch_bytes() const override { return plan_.scratch_per_row * 1024; }
  Result<std::unique_ptr<EngineContext>> make_context(bool own_scratch) override {
    return std::unique_ptr<EngineContext>(std::make_unique<FakeContext>(world_, plan_, own_scratch));
  }

 private:
  FakeWorld& world_;
  FakePlan plan_;
};

class FakeLibrary final : public EngineLibrary {
 public:
  explicit FakeLibrary(FakeWorld& world) : world_(world) {}
  Status available() const override { return ok_status(); }
  Result<std::unique_ptr<Engine>> deserialize(std::span<const std::byte> bytes, LogSink*) const override {
    ++world_.deserialized;
    const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (!text.starts_with("in ")) return Status(Code::kInvalidFile, "TensorRT cannot read the engine");
    return std::unique_ptr<Engine>(std::make_unique<FakeEngine>(world_, fake_plan(text)));
  }
  Result<int> device() const override { return world_.device; }
  Status set_device(int device) const override {
    if (device >= world_.devices) return Status(Code::kUnavailable, str_cat("there are ", world_.devices, " devices"));
    world_.device = device;
    return ok_status();
  }
  bool reads_host_memory(int) const override { return world_.integrated; }
  bool on_device(const void* address) const override { return fake_on_device(world_, address); }
  void* allocate(size_t size_bytes) const override {
    if (world_.allocations_left == 0) return nullptr;
    if (world_.allocations_left > 0) --world_.allocations_left;
    auto* memory = static_cast<char*>(std::aligned_alloc(256, (size_bytes + 255) / 256 * 256));
    world_.memory[memory] = size_bytes;
    world_.device_of[memory] = world_.device;
    return memory;
  }
  void free(void* memory) const override {
    world_.misplaced += world_.device_of[static_cast<char*>(memory)] == world_.device ? 0 : 1;
    world_.memory.erase(static_cast<char*>(memory));
    std::free(memory);
  }
  Status copy(void* to, const void* from, size_t size_bytes, Stream) const override {
    if (world_.copies_left == 0) return Status(Code::kUnavailable, "the copy fails");
    if (world_.copies_left > 0) --world_.copies_left;
    ++world_.copies;
    world_.queue.push_back([=] {
      if (size_bytes > 0) std::memcpy(to, from, size_bytes);
    });
    return ok_status();
  }
  Stream own_stream() const override { return &world_; }
  bool is_capturing(Stream) const override { return world_.capturing; }
  Status wait(Stream) const override {
    world_.run();
    return world_.wait_fails ? Status(Code::kUnavailable, "the wait fails") : ok_status();
  }
  Result<Event> make_event() const override {
    ++world_.live_events;
    return Event(&world_);
  }
  void destroy(Event) const override { --world_.live_events; }
  Status record(Event, Stream) const override { return ok_status(); }
  Status wait_for(Event, Stream) const override { return ok_status(); }
  Status wait_for(Event) const override {
    world_.run();
    return ok_status();
  }

 private:
  FakeWorld& world_;
};

}  // namespace pteron::tensorrt::testing
