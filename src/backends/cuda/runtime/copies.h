// Copies between tensors on the device, whatever their strides.
#pragma once

#include "backends/cuda/runtime/session.h"
#include "pteron/tensor.h"

namespace pteron::cuda {

/// Puts the copy on the session's stream. The two have one dtype and one shape and do not overlap, unless they are the same tensor.
/// Errors: kInvalidFile (the payload's module lacks the kernel for tensors that lie differently), kUnsupported (more than 8 dims that lie differently), kUnavailable.
Status copy_tensor(Session& session, const TensorView& from, const TensorView& to);

}  // namespace pteron::cuda
