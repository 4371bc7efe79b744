// Fast strided copies and casts for kernels of all rooms. Same-dtype copies move bytes: rows by memcpy, transposes in cache-sized blocks;
// others go through the tile engine.
#pragma once

#include "pteron/status.h"
#include "pteron/tensor.h"
#include "runtime/kernel.h"

namespace pteron::ops {

/// Copies `from` into `to`, converting dtype as ATen's `to`. `from` broadcasts to the sizes of `to`. They must not overlap.
/// Errors: kInvalidInput (does not broadcast), kUnsupported (no conversion).
Status copy_tensor(runtime::KernelContext& context, const TensorView& from, const TensorView& to);

}  // namespace pteron::ops
