// Output sizes of resizes from scale factors, as ATen computes them.
#pragma once

#include <cstdint>

namespace pteron::ops::resize {

/// size * scale, truncated; the product is taken in double.
inline int64_t scaled_size(int64_t size, double scale) { return static_cast<int64_t>(static_cast<double>(size) * scale); }

}  // namespace pteron::ops::resize
