// Groups whose payload is a program of our own format: emitted, written, with the large constants as named data of the program around.
// Used by the compile halves of backends; the runtime half is runtime/program_delegate.h.
#pragma once

#include "backends/api/backend.h"

namespace pteron::backends {

/// Payload, named data, memory and kernels of a group in the profile dialect; id and compile specs are left to the caller.
/// Errors: those of emit and of the writer.
Result<CompiledGroup> program_group(ir::Method& group, const GroupContext& context);

}  // namespace pteron::backends
