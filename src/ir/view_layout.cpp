// Dims from the innermost stride to the outermost: each must step over everything inside of it.
#include "ir/view_layout.h"

#include <algorithm>
#include <vector>

namespace pteron::ir {

bool is_one_to_one(const ViewLayout& layout) {
  std::vector<size_t> dims;
  for (size_t d = 0; d < layout.sizes.size(); ++d) {
    if (dim_is(layout.sizes[d], 0)) return true;  // no elements
    if (!dim_is(layout.sizes[d], 1)) dims.push_back(d);
  }
  std::stable_sort(dims.begin(), dims.end(), [&](size_t a, size_t b) { return bounds(layout.strides[b] - layout.strides[a]).min > 0; });
  Expr reach = 1;  // elements from the first to the last of all dims inside
  for (const size_t d : dims) {
    if (bounds(layout.strides[d] - reach).min < 0) return false;
    reach += (layout.sizes[d] - Expr(1)) * layout.strides[d];
  }
  return true;
}

}  // namespace pteron::ir
