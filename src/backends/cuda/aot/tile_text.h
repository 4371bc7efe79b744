// What kernels with tensor cores share: fragments, products of fragments, copies into shared memory, clusters. Called by few_rows.cpp and attention_text.cpp.
#pragma once

#include <string_view>

namespace pteron::cuda {

/// The functions. The text needs element_text() in front.
std::string_view tile_text();

}  // namespace pteron::cuda
