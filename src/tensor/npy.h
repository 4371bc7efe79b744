// Readers and writers of numpy's .npy and .npz, and reading a tensor file by its content. Used by the command line tool and by tests.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/byte_sink.h"
#include "base/mapped_file.h"
#include "pteron/status.h"
#include "tensor/named_tensor.h"

namespace pteron {

/// The array of a .npy file (versions 1 to 3); column-major arrays keep their strides. The view borrows `bytes` (any alignment, read-only).
/// Errors: kInvalidFile (not a .npy file, cut off), kUnsupported (big-endian, structured, object and other dtypes that are not ours).
Result<TensorView> read_npy(std::span<const std::byte> bytes);

/// Whether numpy has this dtype, so that the writers take it.
bool is_numpy_dtype(DType dtype);

/// Writes one array, row-major whatever the strides.
/// Errors: kInvalidInput (a dtype that numpy has not: bfloat16, 8-bit floats, complex32), the sink's.
Status write_npy(const TensorView& tensor, ByteSink& sink);

/// Writes the arrays in the given order as an uncompressed .npz.
/// Errors: as write_npy, and kInvalidInput (a name twice, an array or archive over 4 GiB).
Status write_npz(std::span<const NamedTensor> tensors, ByteSink& sink);

/// Tensors of a file with what keeps their bytes alive.
struct TensorFile {
  enum class Kind : uint8_t { kSafetensors, kNpy, kNpz } kind = Kind::kSafetensors;
  std::vector<NamedTensor> tensors;                  ///< in the file's order; a .npy array has the name "0"
  std::vector<std::shared_ptr<const void>> owners;   // shared: mapped bytes and inflated entries have different owners
};

/// Arrays of a .npz, stored or deflated; names without ".npy".
/// Errors: kInvalidFile, kUnsupported, kOutOfMemory.
Result<TensorFile> read_npz(std::span<const std::byte> bytes, std::shared_ptr<const void> owner);

/// Reads a .safetensors, .npy or .npz file; which one is decided by its content.
/// Errors: those of the readers; kInvalidFile if it is none of them.
Result<TensorFile> read_tensor_file(std::shared_ptr<FileBytes> file);

}  // namespace pteron
