// Elements of tensors in the texts of hand-written kernels: 16-byte loads, widening and narrowing, and how a text is filled in. Used by the *_text.cpp files.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "pteron/tensor.h"

namespace pteron::cuda {

/// Functions that the kernels call, for KernelSources::add_shared: pteron_load16, pteron_stream16, pteron_widen_X, pteron_narrow_X, pteron_unpack_X, pteron_pack2_X
/// for X of f32, f16, bf16.
std::string_view element_text();
/// The type that an element has in parameters: float, or unsigned short for 16-bit floats. Requires: is_library_dtype(dtype, false).
std::string element_type(DType dtype);
/// f32, f16 or bf16.
std::string element_name(DType dtype);
/// `text` with "@KEY@" replaced for every pair; "@NAME@" stays.
std::string fill_text(std::string_view text, std::initializer_list<std::pair<std::string_view, std::string>> values);

}  // namespace pteron::cuda
