// What runs a part of a program that a backend compiled (a DelegateCall of the .pte). Implemented by backends inside the library;
// handed to the runtime through LoadOptions::delegates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "pteron/device.h"
#include "pteron/host.h"
#include "pteron/status.h"

namespace pteron {

namespace runtime {
struct MethodState;
struct Value;
}  // namespace runtime

/// One entry of a delegate's compile specs.
struct DelegateSetting {
  std::string_view key;
  std::span<const std::byte> value;
};

/// Finds named bytes: first in the data files, then in the program.
/// Owns:    spans stay valid as long as the Program.
class NamedData {
 public:
  virtual ~NamedData() = default;
  virtual std::optional<std::span<const std::byte>> find(std::string_view key) const = 0;
  /// That the bytes of a key from find() are those the program was compiled with; to be called before the first use, when they are read anyway.
  /// Errors: kInvalidFile (a data file that was changed).
  virtual Status verify(std::string_view /*key*/) const { return ok_status(); }
  /// A hint: bytes from find() that are hardly read again, since the backend has its own form of them. They stay valid.
  virtual void release(std::span<const std::byte> /*bytes*/) const {}
};

/// What a backend gets to load one payload.
struct DelegateLoad {
  std::span<const std::byte> payload;               ///< valid as long as the Program
  std::span<const DelegateSetting> settings;
  std::string_view method;
  const NamedData& named_data;
  ThreadPool& pool;
  LogSink* log = nullptr;                           ///< may be null
  /// Work may still run on the device when Delegate::execute() returns: all that uses the method's tensors there is this backend and its allocator. Else it
  /// must be over by then.
  bool may_queue = false;
  /// What DelegateBackend::device_allocator() of this backend made for the session (DeviceAllocator::make_session); null if it makes none.
  DeviceAllocator* session = nullptr;
  bool pack_at_load = false;                        ///< LoadOptions::pack_at_load
};

/// What a delegate holds beside its payload, named data and arguments.
struct DelegateMemory {
  uint64_t own_bytes = 0;     ///< planned memory, copies of constants, room to work in
  uint64_t shared_bytes = 0;  ///< what all delegates of the backend in this process share: packed weights
};

/// A loaded payload.
/// Threads: one call at a time.
class Delegate {
 public:
  virtual ~Delegate() = default;
  /// Runs it. args: the inputs, then the outputs, which it resizes and fills (runtime/value.h). A value may stand among both: a mutable
  /// buffer that the payload updates where it lies.
  virtual Status execute(std::span<runtime::Value* const> args) = 0;
  /// For reports; all zeros where a backend does not say.
  virtual DelegateMemory memory() const { return {}; }
  /// The method inside, for profiles, if the payload is a program; null otherwise.
  virtual runtime::MethodState* payload() { return nullptr; }
};

/// A backend that can load payloads with its id. Tensors of a call say whose memory they are (TensorView::device).
/// Threads: load() may be called from several threads at once.
class DelegateBackend {
 public:
  virtual ~DelegateBackend() = default;
  /// Id in the file ("PteronCpu").
  virtual std::string_view id() const = 0;
  /// Errors: kUnavailable (device or library missing), kInvalidFile, kIncompatible, kOutOfMemory.
  virtual Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const = 0;
  /// Memory of the devices whose tensors its payloads take; null: payloads take tensors of the host only, and a program that gives them others is refused
  /// at load. Must outlive everything that was loaded.
  virtual DeviceAllocator* device_allocator() const { return nullptr; }
};

}  // namespace pteron
