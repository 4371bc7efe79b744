// Machine code of a pointwise program: one loop that keeps values in vector registers, made when a payload is loaded and never written to a file.
// Made by pointwise_load.cpp, called by pointwise.cpp. Elementary functions are those of pointwise_ops.cpp, called vector by vector, so that results are
// the same bits as those of the program run block by block, which stands in where no code can be made.
#pragma once

#include <cstddef>

namespace pteron::cpu {

struct PointwiseState;

/// Owns: pages that can be read and executed, not written.
class PointwiseCode {
 public:
  /// out[i] = the program of inputs[0][i], inputs[1][i], ... for `bytes` bytes of floats, a multiple of vector_bytes(). out may be an input.
  using Fn = void (*)(const float* const* inputs, float* out, size_t bytes);

  PointwiseCode() = default;
  /// Without code (not true) on other processors than x86-64, in builds without Xbyak, and where the system refuses such pages.
  explicit PointwiseCode(const PointwiseState& program);
  PointwiseCode(PointwiseCode&& other) noexcept { *this = static_cast<PointwiseCode&&>(other); }
  PointwiseCode& operator=(PointwiseCode&& other) noexcept;
  ~PointwiseCode();

  explicit operator bool() const { return store_ != nullptr; }
  size_t vector_bytes() const { return vector_bytes_; }
  /// Threads: any.
  Fn store() const { return store_; }
  /// The same past the caches: out is a multiple of vector_bytes(), and other threads see it after PointwiseSet::flush().
  Fn stream() const { return stream_; }

 private:
  void* pages_ = nullptr;
  size_t bytes_ = 0, vector_bytes_ = 0;
  Fn store_ = nullptr, stream_ = nullptr;
};

}  // namespace pteron::cpu
