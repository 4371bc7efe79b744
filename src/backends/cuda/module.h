// The container of a payload's kernels: one program, translated for several architectures. Written by the compile half, read by the runtime half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "pteron/status.h"

namespace pteron::cuda {

enum class ModuleKind : uint32_t {
  kCubin = 1,   ///< machine code of the architecture `sm`
  kPtx = 2,     ///< for `sm` and newer ones; ends with a zero byte
  kSource = 3,  ///< CUDA C++, without the includes that it needs: none
};

/// One translation. Units: sm is 90 for compute capability 9.0; 0 for sources. Owns: nothing.
struct ModuleEntry {
  ModuleKind kind = ModuleKind::kCubin;
  uint32_t sm = 0;
  std::span<const std::byte> bytes;
};

/// The container: magic, version, a table of the entries, then their bytes, each at a multiple of 16 from the first byte on.
/// Errors: kOutOfMemory.
Result<Buffer> write_module(std::span<const ModuleEntry> entries);

/// The entries, in the order of the file; their bytes are part of `bytes`. Every number is checked: entries lie inside, behind the table and one behind
/// the other, kinds are known, PTX ends with its zero byte.
/// Errors: kInvalidFile; kIncompatible (another version).
Result<std::vector<ModuleEntry>> read_module(std::span<const std::byte> bytes);

/// "sm_90 (cubin), sm_80 (ptx)": for messages.
std::string list_entries(std::span<const ModuleEntry> entries);

}  // namespace pteron::cuda
