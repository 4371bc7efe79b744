// Device memory that stands in for tensors which TensorRT cannot read or write where they lie: host memory, addresses that are no multiple of 256,
// and empty tensors.
#pragma once

#include "base/buffer.h"
#include "backends/tensorrt/runtime/engine_library.h"

namespace pteron::tensorrt {

/// What TensorRT asks of addresses, which it does not check.
inline constexpr uintptr_t kAddressAlignment = 256;

/// Where tensors of a call lie.
enum class Home : uint8_t {
  kDirect,     ///< bound as it is
  kUnaligned,  ///< readable by the device, at an address that is no multiple of 256
  kHost,       ///< not readable by the device
};

/// Device memory of one binding: grows when it is too small, is never given back before the delegate is gone.
class Staging {
 public:
  explicit Staging(const EngineLibrary& library) : library_(&library) {}
  Staging(Staging&& other) noexcept;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging();  ///< Requires: the device is current

  /// At least one byte. Errors: kOutOfMemory; the memory before is then gone too.
  Result<void*> reserve(size_t size_bytes);
  /// Row-major copy in host memory of a tensor with gaps or in another order. Errors: kOutOfMemory.
  Result<const void*> pack(const TensorView& from);
  size_t size_bytes() const { return size_bytes_; }

 private:
  const EngineLibrary* library_;
  void* memory_ = nullptr;
  size_t size_bytes_ = 0;
  Buffer packed_;
};

}  // namespace pteron::tensorrt
