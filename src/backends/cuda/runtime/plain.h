// Products and convolutions without a library: the kernels of plain_kernels.h, for what cuBLASLt or cuDNN refuses in a call. Called by products.cpp and
// convolution.cpp.
#pragma once

#include "backends/cuda/runtime/blas.h"
#include "backends/cuda/runtime/dnn.h"
#include "backends/cuda/runtime/session.h"

namespace pteron::cuda {

/// Queues a product of any strides and a depth of any size. gate: null, or a second b that lies like b: d = silu(a gate) * (a b) then.
/// Errors: kInvalidFile (the payload's module has no such kernel), kUnavailable.
Status plain_product(Session& session, const Product& product, const void* gate = nullptr);
/// Queues a convolution of any geometry and strides. Errors: as above.
Status plain_convolution(Session& session, const Convolution& convolution);

/// True for an answer of a library after which the plain kernel is asked: nothing fits, or what was chosen does not run.
inline bool refuses(const Status& status) { return status.code() == Code::kUnsupported || status.code() == Code::kInternal; }

}  // namespace pteron::cuda
