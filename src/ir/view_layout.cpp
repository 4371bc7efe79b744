// Dims from the outermost stride to the innermost: each must step over everything inside of it.
#include "ir/view_layout.h"

#include <algorithm>
#include <vector>

namespace pteron::ir {

bool is_one_to_one(const ViewLayout& layout) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < layout.sizes.size(); ++d) {
    if (!dim_is(layout.sizes[d], 1)) dims.push_back(d);
  }
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return bounds(layout.strides[a] - layout.strides[b]).min > 0; });
  for (size_t i = 0; i < dims.size(); ++i) {
    const Expr inner = i + 1 < dims.size() ? layout.sizes[dims[i + 1]] * layout.strides[dims[i + 1]] : Expr(1);
    if (bounds(layout.strides[dims[i]] - inner).min < 0) return false;
  }
  return true;
}

}  // namespace pteron::ir
