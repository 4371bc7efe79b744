// A device that is none, for tests: memory of the host that may be touched only while the device works, and a backend whose payloads run there.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "backends/api/backend.h"
#include "backends/null/runtime/backend.h"
#include "base/str_cat.h"
#include "ops/kernels.h"
#include "pteron/device.h"
#include "pteron/program.h"
#include "runtime/program_delegate.h"

namespace pteron {

/// Counts what it does. Memory is locked (PROT_NONE) except while Work lives: whoever touches it outside ends the test with a signal.
class FakeDevice final : public DeviceAllocator {
 public:
  int from_host = 0, to_host = 0, on_device = 0, zeroed = 0;
  int live = 0;               ///< allocations
  bool fail_allocate = false; ///< the next ones
  std::vector<size_t> alignments = {};

  ~FakeDevice() override {
    for (const auto& [data, bytes] : blocks_) ::munmap(data, bytes);
  }

  /// Unlocks all memory as long as it lives.
  class Work {
   public:
    explicit Work(FakeDevice& device) : device_(device) { device_.protect(PROT_READ | PROT_WRITE); }
    ~Work() { device_.protect(PROT_NONE); }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;

   private:
    FakeDevice& device_;
  };

  DeviceType type() const override { return DeviceType::kCuda; }
  Result<void*> allocate(int8_t, size_t bytes, size_t alignment_bytes) override {
    if (fail_allocate) return Status(Code::kOutOfMemory, "the device is full");
    alignments.push_back(alignment_bytes);
    const size_t room = (bytes + 4095) / 4096 * 4096;
    void* const data = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) return Status(Code::kOutOfMemory, "no pages");
    blocks_[data] = room;
    ++live;
    Work work(*this);
    std::memset(data, 0xa5, room);
    return data;
  }
  void deallocate(int8_t, void* data) override {
    ::munmap(data, blocks_.at(data));
    blocks_.erase(data);
    --live;
  }
  Status copy_from_host(int8_t, void* to, const void* from, size_t bytes) override { return copy(to, from, bytes, from_host, true, false); }
  Status copy_to_host(int8_t, void* to, const void* from, size_t bytes) override { return copy(to, from, bytes, to_host, false, true); }
  Status copy_on_device(int8_t, void* to, const void* from, size_t bytes) override { return copy(to, from, bytes, on_device, true, true); }
  Status fill_zero(int8_t, void* data, size_t bytes) override {
    if (!owns(data)) return Status(Code::kInternal, "memory of the host is to be zeroed by the device");
    ++zeroed;
    Work work(*this);
    std::memset(data, 0, bytes);
    return ok_status();
  }

  bool owns(const void* data) const {
    auto found = blocks_.upper_bound(const_cast<void*>(data));
    if (found == blocks_.begin()) return false;
    --found;
    return static_cast<const std::byte*>(data) < static_cast<const std::byte*>(found->first) + found->second;
  }
  int copies() const { return from_host + to_host + on_device; }
  void forget() { from_host = to_host = on_device = zeroed = 0; }

 private:
  Status copy(void* to, const void* from, size_t bytes, int& count, bool to_device, bool from_device) {
    if (owns(to) != to_device || owns(from) != from_device) return Status(Code::kInternal, "a copy between other memories than it says");
    ++count;
    Work work(*this);
    std::memcpy(to, from, bytes);
    return ok_status();
  }
  void protect(int mode) {
    for (const auto& [data, bytes] : blocks_) ::mprotect(data, bytes, mode);
  }
  std::map<void*, size_t> blocks_;
};

/// The compile half: what another backend (null:all) makes, for a device. Takes what `only` names, or everything but `without`.
class FakeBackend final : public backends::Backend {
 public:
  FakeBackend(const backends::Backend& inner, std::string name, bool device_io = true) : inner_(inner), name_(std::move(name)), id_(str_cat("Fake_", name_)), device_io_(device_io) {}
  std::set<std::string> only = {}, without = {};
  std::string missing = {};     ///< what probe() misses
  mutable int probed = 0, compiled = 0;
  mutable std::vector<format::CompileSpec> probe_specs = {};

  std::string_view name() const override { return name_; }
  std::string_view id() const override { return id_; }
  uint64_t alignment_bytes() const override { return 256; }
  std::span<const std::string_view> spec_keys() const override {
    static constexpr std::string_view kKeys[] = {backends::kDeviceSpec};
    return kKeys;
  }
  Status probe(std::span<const format::CompileSpec> specs) const override {
    ++probed;
    probe_specs.assign(specs.begin(), specs.end());
    return missing.empty() ? ok_status() : Status(Code::kUnavailable, missing);
  }
  backends::Support supports(const ir::Graph& graph, const ir::Node& node) const override {
    const std::string name = node.op->name.substr(0, node.op->name.find('.'));  // of all overloads
    if (!only.empty() && !only.contains(name)) return backends::Support::no("not one of the few");
    if (without.contains(name)) return backends::Support::no("a gap");
    return inner_.supports(graph, node);
  }
  Result<backends::CompiledGroup> compile(ir::Method& group, const backends::GroupContext& context) const override {
    ++compiled;
    std::string device = "cuda:0";
    for (const format::CompileSpec& spec : context.specs) device.assign(reinterpret_cast<const char*>(spec.value.data()), spec.value.size());
    backends::GroupContext inner = context;
    inner.specs = {};
    PTERON_ASSIGN(backends::CompiledGroup made, inner_.compile(group, inner));
    made.id = id_;
    const auto bytes = std::as_bytes(std::span(device));
    made.specs.push_back({std::string(backends::kDeviceSpec), {bytes.begin(), bytes.end()}});
    if (device_io_) made.io_device = {DeviceType::kCuda, static_cast<int8_t>(device.back() - '0')};
    return made;
  }

 private:
  const backends::Backend& inner_;
  std::string name_, id_;
  bool device_io_;
};

/// The runtime half.
class FakeRuntime final : public DelegateBackend {
 public:
  /// device: null: payloads take tensors of the host.
  FakeRuntime(std::string name, FakeDevice* device) : id_(str_cat("Fake_", name)), device_(device) {}
  mutable int calls = 0;
  mutable std::vector<bool> may_queue = {};  ///< what each load was told
  mutable int unaligned = 0;  ///< tensors of calls that are no multiple of 256: what a backend would have to copy

  std::string_view id() const override { return id_; }
  DeviceAllocator* device_allocator() const override { return device_; }
  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override {
    may_queue.push_back(request.may_queue);
    std::vector<DelegateSetting> settings;
    for (const DelegateSetting& setting : request.settings) {
      if (setting.key != backends::kDeviceSpec) settings.push_back(setting);
    }
    PTERON_ASSIGN(std::unique_ptr<Delegate> inner,
                  null::backend().load({request.payload, settings, request.method, request.named_data, request.pool, request.log}));
    return std::unique_ptr<Delegate>(std::make_unique<Call>(*this, std::move(inner)));
  }

 private:
  /// Runs the payload on the memory that the call gives, unlocked.
  class Call final : public Delegate {
   public:
    Call(const FakeRuntime& backend, std::unique_ptr<Delegate> inner) : backend_(backend), inner_(std::move(inner)) {}
    Status execute(std::span<runtime::Value* const> args) override {
      ++backend_.calls;
      std::vector<runtime::Value> values;
      for (const runtime::Value* arg : args) values.push_back(*arg);
      std::vector<runtime::Value*> pointers;
      for (runtime::Value& value : values) {
        const auto first = std::ranges::find(args, args[static_cast<size_t>(&value - values.data())]);  // one value may stand there twice
        pointers.push_back(&values[static_cast<size_t>(first - args.begin())]);
        if (value.tag != runtime::Tag::kTensor || value.tensor.numel() == 0) continue;
        const bool on_device = value.tensor.view.device.type == DeviceType::kCuda;
        if (on_device != (backend_.device_ != nullptr)) return Status(Code::kInternal, "a tensor of other memory than asked for");
        if (on_device && !backend_.device_->owns(value.tensor.view.data)) return Status(Code::kInternal, "a tensor says that it is the device's, and is not");
        if (reinterpret_cast<uintptr_t>(value.tensor.view.data) % 256 != 0) ++backend_.unaligned;
        value.tensor.view.device = {};
      }
      std::unique_ptr<FakeDevice::Work> work;
      if (backend_.device_ != nullptr) work = std::make_unique<FakeDevice::Work>(*backend_.device_);
      PTERON_TRY(inner_->execute(pointers));
      for (size_t i = 0; i < args.size(); ++i) {
        if (args[i]->tag != runtime::Tag::kTensor) continue;
        const Device device = args[i]->tensor.view.device;
        args[i]->tensor = pointers[i]->tensor;
        args[i]->tensor.view.device = device;
      }
      return ok_status();
    }

   private:
    const FakeRuntime& backend_;
    std::unique_ptr<Delegate> inner_;
  };

  std::string id_;
  FakeDevice* device_;
};

}  // namespace pteron
