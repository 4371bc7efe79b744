// The kernels that a file for the official runtime may use.
#include <algorithm>
#include <iterator>

#include "compiler/compile.h"

namespace pteron::compiler {

namespace {
constexpr std::string_view kNames[] = {
#define EXECUTORCH_KERNEL(name) name,
#include "compiler/executorch_kernels.inc"
#undef EXECUTORCH_KERNEL
};
}  // namespace

bool executorch_has_kernel(std::string_view kernel) { return std::binary_search(std::begin(kNames), std::end(kNames), kernel); }

}  // namespace pteron::compiler
