// What is said when memory cannot be had. Used by Buffer and by who allocates one whose size comes from outside.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/buffer.h"
#include "pteron/status.h"

namespace pteron {

/// kOutOfMemory that says how many bytes were asked for and what the machine and the limits of the process are; the bare error for small sizes,
/// where there may be no memory for words.
Status no_memory(uint64_t size_bytes);

/// The buffer, or the error with what it was for in front: "arena 1 (planned memory): out of memory: ...".
Result<Buffer> buffer_for(std::string_view what, Result<Buffer> made);

}  // namespace pteron
