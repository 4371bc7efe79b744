// Reader and writer of .safetensors: u64 header length, JSON header, then the tensors' row-major bytes.
// Used by the command line tool and by tests; needs no JSON library.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/byte_sink.h"
#include "pteron/status.h"
#include "tensor/named_tensor.h"

namespace pteron {

/// The tensors of a file in the order of its header.
/// Owns:    names; the views borrow the file's bytes (any alignment, read-only).
struct Safetensors {
  std::vector<NamedTensor> tensors;
  std::vector<std::pair<std::string, std::string>> metadata;

  /// Null if there is no tensor of that name.
  const TensorView* find(std::string_view name) const;
};

/// Reads a whole file; `bytes` must stay alive while the views are used.
/// Errors: kInvalidFile (not a safetensors file, cut off, ranges that do not fit), kUnsupported (a dtype that is not known).
Result<Safetensors> read_safetensors(std::span<const std::byte> bytes);

/// Whether the format has a name for this dtype, so that the writer takes it.
bool is_safetensors_dtype(DType dtype);

/// Writes the tensors in the given order, values row-major whatever the strides; equal input gives equal bytes.
/// Errors: kInvalidInput (a name twice, a dtype without a name in the format), the sink's.
Status write_safetensors(std::span<const NamedTensor> tensors, ByteSink& sink);

}  // namespace pteron
