// A bundled program (.bpte) made of a program and calls of its methods: what `pteron bundle` writes.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "base/buffer.h"
#include "cli/tensors.h"
#include "format/bundle.h"
#include "pteron/program.h"
#include "pteron/status.h"

namespace pteron::cli {

/// Collects cases.
/// Owns: the bytes that the bundle borrows, but for the program's.
class BundleMaker {
 public:
  explicit BundleMaker(std::shared_ptr<Program> program) : program_(std::move(program)) {}

  /// Adds a case: the tensors of `inputs` (as `pteron run` takes them), and those of `expected`, by position or name; if that names no file, what the
  /// method gives here from its initial state. Prints nothing.
  /// Errors: those of reading, loading and running; kInvalidInput (an output missing, of another dtype or rank, or one that a bundle cannot hold:
  ///         text, None).
  Status add(const std::string& method, const std::string& inputs, const std::string& expected);
  /// The file's bytes. Errors: those of format::write_bundle.
  Result<Buffer> write(std::span<const std::byte> program);
  size_t case_count() const { return case_count_; }

 private:
  Result<Method*> load(const std::string& name);
  Result<format::BundledValue> tensor(const TensorView& view, const std::vector<uint8_t>& dim_order);
  Result<format::BundledValue> input(const Method& method, size_t index, const TensorFile& file);
  Result<format::BundledValue> computed(const Method& method, size_t index);
  Result<format::BundledValue> expected(const Method& method, size_t index, const TensorFile& file);

  std::shared_ptr<Program> program_;  // shared: with its methods
  std::deque<std::pair<std::string, std::unique_ptr<Method>>> methods_;
  format::Bundle bundle_;
  std::deque<Buffer> bytes_;
  size_t case_count_ = 0;
};

}  // namespace pteron::cli
