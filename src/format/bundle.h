// Bundled programs (.bpte): a program with inputs and expected outputs. Plain structs, writer and verified reader. Used by `pteron run`.
// Wire layout: schema/bundled_program.fbs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/buffer.h"
#include "format/data_file.h"
#include "pteron/status.h"

namespace pteron::format {

inline constexpr std::string_view kBundleIdentifier = "BP08";

/// Whether a file says that it is a bundle. Nothing is checked.
bool is_bundle(std::span<const std::byte> file);

/// A tensor of a bundle: bytes.size() is exactly what the layout takes.
struct BundledTensor {
  DataLayout layout;
  std::span<const std::byte> bytes;
};
using BundledValue = std::variant<BundledTensor, int64_t, bool, double>;

struct BundledCase {
  std::vector<BundledValue> inputs;
  std::vector<BundledValue> expected;
};
struct BundledSuite {
  std::string method;
  std::vector<BundledCase> cases;
};

/// A bundle. Owns: its lists; borrows the program's and the tensors' bytes, from the file or from `aligned_copy`.
struct Bundle {
  std::span<const std::byte> program;  ///< a complete .pte, not checked here
  std::vector<BundledSuite> suites;
  Buffer aligned_copy = {};            ///< of a file whose bytes are not aligned
};

/// Errors: kInvalidInput (a layout that does not describe its bytes; more than 2 GiB).
Result<Buffer> write_bundle(const Bundle& bundle);
/// Checks a whole .bpte but for the program in it. `file` must stay alive while the bundle is used; a copy of it is made if it is not aligned.
/// Errors: kInvalidFile (what was expected, found and where), kOutOfMemory.
Result<Bundle> read_bundle(std::span<const std::byte> file);

}  // namespace pteron::format
