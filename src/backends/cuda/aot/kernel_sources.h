// The kernels of one payload while it is compiled: CUDA C++ texts with names. Filled by what lowers nodes, translated by compiler.h.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pteron::cuda {

/// Texts of kernels. A text is one `extern "C" __global__` function (helpers before it belong to it and must have the name inside theirs) and may use what
/// prelude() declares.
class KernelSources {
 public:
  /// The name of the kernel whose text is `body` with "@NAME@" where the name stands. Equal bodies share one name, which is made of `stem` (letters,
  /// digits, underscores; others are replaced) and a number. `node` is who needs it, for messages.
  std::string add(std::string_view stem, std::string body, std::string_view node = {});
  /// Text that every kernel may use, once per payload: structs and device functions that several kernels share. Equal ones are there once.
  void add_shared(std::string text);

  bool empty() const { return kernels_.empty(); }
  size_t size() const { return kernels_.size(); }
  /// The whole program: prelude, shared texts, kernels, and the copy that every module has (copy_kernel.h).
  std::string text() const;
  /// The nodes that need the kernel whose text stands at line `line` (from 1) of text(); empty if that is no kernel's.
  std::string node_at(size_t line) const;

  struct Kernel {
    std::string name, body, node;
  };
  const std::vector<Kernel>& kernels() const { return kernels_; }

 private:
  std::vector<Kernel> kernels_;
  std::vector<std::string> shared_;
  std::unordered_map<std::string, std::string> names_;  ///< by body
  std::unordered_map<std::string, size_t> stems_;
};

/// What stands in front of every program: conversions of 16-bit floats, vectors of elements, division as Python and ATen have it, sums over a block.
/// Needs no header, with NVRTC or a host's compiler.
std::string_view prelude();

}  // namespace pteron::cuda
