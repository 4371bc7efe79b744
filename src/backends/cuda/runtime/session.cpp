// Modules, memory of payloads, launches.
#include "backends/cuda/runtime/session.h"

#include <algorithm>

#include "backends/cuda/module.h"
#include "backends/cuda/payload.h"
#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

/// Constants up to this size share blocks of kSlabBytes. Units: bytes.
constexpr size_t kSmallConstant = 64 * 1024;
constexpr size_t kSlabBytes = 1024 * 1024;
/// What a block may use without being asked for. Units: bytes; CUDA C++ Programming Guide, compute capabilities.
constexpr int64_t kUsualSharedMemory = 48 * 1024;

/// The best translation: machine code of the device's architecture (the same major number, at most its minor one), else the newest PTX that is not
/// newer than the device. A stand-in for the driver that translates sources takes these.
const ModuleEntry* choose_entry(const Device& device, std::span<const ModuleEntry> entries) {
  const auto sm = static_cast<uint32_t>(device.sm());
  const bool takes_sources = device.driver().optional_symbol("pteron_emulated_device") != nullptr;
  const ModuleEntry* best = nullptr;
  const auto rank = [&](const ModuleEntry& entry) -> uint32_t {
    if (takes_sources) return entry.kind == ModuleKind::kSource ? 1 : 0;
    if (entry.kind == ModuleKind::kCubin && entry.sm / 10 == sm / 10 && entry.sm <= sm) return 1000 + entry.sm;
    if (entry.kind == ModuleKind::kPtx && entry.sm <= sm) return entry.sm;
    return 0;
  };
  for (const ModuleEntry& entry : entries) {
    if (rank(entry) > (best == nullptr ? 0 : rank(*best))) best = &entry;
  }
  return best;
}

}  // namespace

Result<std::unique_ptr<LoadedModule>> LoadedModule::load(std::shared_ptr<Device> device, std::span<const std::byte> container) {
  PTERON_ASSIGN(const std::vector<ModuleEntry> entries, read_module(container));
  const ModuleEntry* entry = choose_entry(*device, entries);
  if (entry == nullptr) {
    return Status(Code::kUnavailable, str_cat("the program's kernels are translated for ", list_entries(entries), ", and ", device->name(), " needs sm_",
                                              device->sm(), ": compile the model for it (--arch)"));
  }
  // The driver reads PTX and stand-ins read sources up to a zero byte, which sources may lack; the container promises no alignment of its own.
  PTERON_ASSIGN(Buffer image, Buffer::create_zeroed(entry->bytes.size() + 1));
  std::ranges::copy(entry->bytes, image.data());
  Module module = nullptr;
  const int result = device->driver().module_load(&module, image.data());
  Status status = device->driver().check(result, str_cat("loading the program's kernels (", list_entries({entry, 1}), ")"));
  if (!status.ok()) return status;
  // griddepcontrol, which the kernels wait with, came with compute capability 9.0; texts for older ones leave it out.
  const bool overlaps = entry->kind != ModuleKind::kSource && entry->sm >= 90 && device->driver().launch_ex != nullptr;
  return std::make_unique<LoadedModule>(std::move(device), module, overlaps);
}

LoadedModule::~LoadedModule() {
  const ContextScope scope(*device_);
  device_->driver().module_unload(module_);
}

Result<void*> DeviceMemory::allocate(uint64_t bytes, std::string_view what) {
  Result<Block> block = device_->allocate(bytes);
  if (!block.ok()) return std::move(block).status().with_context(what);
  const Address address = block->address();
  PTERON_TRY(device_->driver().check(device_->driver().fill_bytes(address, 0, bytes, device_->stream()), "clearing device memory"));
  blocks_.push_back(std::move(block).value());
  own_bytes_ += bytes;
  return reinterpret_cast<void*>(address);
}

Result<const void*> DeviceMemory::constant(std::span<const std::byte> bytes) {
  if (bytes.size() > kSmallConstant) {
    if (uploader_ == nullptr) uploader_ = device_->uploader();
    Result<std::shared_ptr<const ConstantBlock>> made = device_->constant(bytes, pool_, *uploader_);
    if (!made.ok()) return std::move(made).status().with_context("weights");
    const Address address = (*made)->block.address();
    constants_.push_back(std::move(made).value());
    return reinterpret_cast<const void*>(address);
  }
  const size_t padded = (bytes.size() + kAlignment - 1) / kAlignment * kAlignment;
  if (slab_left_ < padded) {
    Result<Block> block = device_->allocate(kSlabBytes);
    if (!block.ok()) return std::move(block).status().with_context("small constants");
    slab_ = block->address();
    slab_left_ = kSlabBytes;
    own_bytes_ += kSlabBytes;
    blocks_.push_back(std::move(block).value());
  }
  const Address address = slab_;
  PTERON_TRY(initialise(reinterpret_cast<void*>(address), bytes));
  slab_ += padded;
  slab_left_ -= padded;
  return reinterpret_cast<const void*>(address);
}

Status DeviceMemory::initialise(void* to, std::span<const std::byte> bytes) {
  // Bytes that are not page-locked are read before the call returns.
  return device_->driver().check(device_->driver().copy_to_device(reinterpret_cast<Address>(to), bytes.data(), bytes.size(), device_->stream()),
                                 "copying constants to the device");
}

Result<Function> Session::function(std::string_view name, int64_t dynamic_shared) {
  const Driver& d = driver();
  if (module_ == nullptr) return Status(Code::kInvalidFile, str_cat("kernel ", name, " is called and the payload has no module"));
  if (dynamic_shared < 0 || dynamic_shared > device_->shared_memory_limit()) {
    return Status(Code::kUnavailable,
                  str_cat("kernel ", name, " needs ", dynamic_shared, " bytes of shared memory, ", device_->name(), " has ", device_->shared_memory_limit()));
  }
  const std::string key(name);
  Function function = nullptr;
  const int result = d.module_function(&function, module_->handle(), key.c_str());
  if (result == kErrorNotFound) return Status(Code::kInvalidFile, str_cat("the payload's module has no kernel ", name));
  PTERON_TRY(d.check(result, str_cat("finding kernel ", name)));
  int64_t& allowed = shared_of_[key];
  if (dynamic_shared > std::max(allowed, kUsualSharedMemory)) {
    PTERON_TRY(d.check(d.function_attribute(function, kFunctionDynamicShared, static_cast<int>(dynamic_shared)),
                       str_cat("giving kernel ", name, " its shared memory")));
    allowed = dynamic_shared;
  }
  return function;
}

Status Session::launch(Function function, std::array<unsigned, 3> grid, unsigned threads, unsigned shared, std::span<const uint64_t> params, bool may_overlap) {
  // A buffer of parameters, as the driver takes it: pairs of a number and a pointer, then a null.
  size_t bytes = params.size_bytes();
  void* extra[] = {reinterpret_cast<void*>(1), const_cast<uint64_t*>(params.data()), reinterpret_cast<void*>(2), &bytes, nullptr};
  ++launches_;
  const uint64_t blocks = uint64_t{grid[0]} * grid[1] * grid[2], places = static_cast<uint64_t>(device_->multiprocessors());
  const bool alone = static_cast<int64_t>(shared) > device_->shared_memory_limit() / 2;
  if (may_overlap && module_ != nullptr && module_->overlaps() && (2 * blocks <= places || (alone && blocks <= places))) {
    LaunchAttribute overlap{.id = kLaunchOverlaps, .padding = 0, .value = 1};
    const LaunchConfig config{{grid[0], grid[1], grid[2]}, {threads, 1, 1}, shared, stream(), &overlap, 1};
    return driver().check(driver().launch_ex(&config, function, nullptr, extra), "starting a kernel");
  }
  const int result = driver().launch_kernel(function, grid[0], grid[1], grid[2], threads, 1, 1, shared, stream(), nullptr, extra);
  if (result != kSuccess) [[unlikely]]
    return driver().failure(result, "starting a kernel");
  return ok_status();
}

}  // namespace pteron::cuda
