// NamedTensor: a tensor with its key in a tensor file; shared by the readers and writers of .safetensors, .npy and .npz.
#pragma once

#include <string>

#include "pteron/tensor.h"

namespace pteron {

/// A tensor under a name.
/// Owns:    the name; `view` borrows. What a reader returns points into the file's bytes, at any alignment, and must not be written.
struct NamedTensor {
  std::string name;
  TensorView view;
};

}  // namespace pteron
