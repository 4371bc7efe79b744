// Delegates whose payloads take tensors of a device: copies between its memory and the host's, and state that stays there. Internal to the compiler room.
#pragma once

#include <string_view>

#include "compiler/compile.h"

namespace pteron::compiler {

/// Errors: kInvalidInput (delegates of different devices, one of which has its backend's default: with both; CompileOptions::device, and no delegate has one).
Status check_devices(const CompileOptions& options, const EdgeProgram& edge);

/// Nothing if `text` names a device: "cuda:" and a number below 128, in any case. Errors: kInvalidInput (`what` is no such text).
Status check_device_name(std::string_view what, std::string_view text);

/// What the file says of a group's device, in lower case; empty: the host.
std::string device_label(const EdgeProgram::Group& group);

/// Where a model was exported is not where it runs: all values are the host's.
void forget_devices(ir::Program& program);

/// Gives every value that such a delegate makes or reads its device (TensorType::device), and puts the copies in between where a value is needed in other
/// memory: none between two delegates of one device; between two devices over the host. A mutable buffer that only delegates of one device use
/// lives there; one that methods share does so if all of them agree. CompileOptions::device_inputs and device_outputs leave out the copies at the
/// program's edge.
/// Errors: kInternal (our own bug).
Status place_on_devices(const CompileOptions& options, EdgeProgram& edge);

}  // namespace pteron::compiler
