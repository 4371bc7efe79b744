// Payloads that are programs of our own format: what the runtime halves of backends load and run them with. Uses Method's insides, so that
// a call costs little more than its instructions.
#pragma once

#include <memory>

#include "pteron/delegate.h"
#include "runtime/kernel.h"

namespace pteron::runtime {

/// Loads `request.payload`, a program with one method, whose external constants are named data of the program around.
/// kernels, states: outlive the delegate; states keep what kernels prepare, shared between payloads.
/// Errors: kInvalidFile (also: not exactly one method), kUnsupported (a kernel is missing), kOutOfMemory.
Result<std::unique_ptr<Delegate>> load_program_delegate(const DelegateLoad& request, const KernelTable& kernels, StateCache& states);

}  // namespace pteron::runtime
