// Kernels of comparisons and logical operators (rows.inc). Compile half: op.cpp.
#include "ops/binary/run.h"

namespace pteron::ops::compare {

using namespace binary;  // NOLINT: the vocabulary of two-operand kernels

namespace {

template <typename F, typename... Ts>
constexpr TileTable bool_table() {
  TileTable table;
  (table.set<Ts>(&binary_tile<F, bool, Ts>), ...);
  return table;
}
template <typename F>
constexpr TileTable ordered_table() {
  return bool_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double>();
}
template <typename F>
constexpr TileTable equality_table() {
  return bool_table<F, bool, uint8_t, int8_t, int16_t, int32_t, int64_t, float, double, CFloat, CDouble>();
}

template <typename F>
constexpr TileTable compare_table() {
  if constexpr (F::kOrdered) return ordered_table<F>();
  if constexpr (!F::kOrdered) return equality_table<F>();
}

#define PTERON_TEST(f, ordered)                  \
  struct f##_fn {                                \
    [[maybe_unused]] static constexpr bool kOrdered = ordered; \
    template <typename T>                        \
    static bool apply(T a, T b) {                \
      return binary::f(a, b);                            \
    }                                            \
  };
PTERON_TEST(equal, false)
PTERON_TEST(not_equal, false)
PTERON_TEST(less, true)
PTERON_TEST(less_equal, true)
PTERON_TEST(greater, true)
PTERON_TEST(greater_equal, true)
PTERON_TEST(logical_and, true)
PTERON_TEST(logical_or, true)
PTERON_TEST(logical_xor, true)

#define COMPARE(name, f)                                                                                    \
  constexpr TileTable k_##name = compare_table<f##_fn>();                                                   \
  Status name##_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {    \
    return run_compare(context, self, other, out, k_##name);                                                \
  }
#define LOGICAL(name, f)                                                                                    \
  Status name##_kernel(KernelContext& context, TensorOrScalar self, TensorOrScalar other, Tensor& out) {    \
    const std::array<TileInput, 2> inputs = {TileInput(self, DType::kBool), TileInput(other, DType::kBool)}; \
    return run_elementwise(context, inputs, out, DType::kBool, &binary_tile<f##_fn, bool, bool>, nullptr);  \
  }
#include "ops/compare/rows.inc"
#undef COMPARE
#undef LOGICAL

constexpr runtime::Kernel kRows[] = {
#define COMPARE(name, f)                                        \
  {"aten::" #name ".Tensor_out", PTERON_KERNEL(name##_kernel)}, \
  {"aten::" #name ".Scalar_out", PTERON_KERNEL(name##_kernel)},
#define LOGICAL(name, f) {"aten::" #name ".out", PTERON_KERNEL(name##_kernel)},
#include "ops/compare/rows.inc"
#undef COMPARE
#undef LOGICAL
};

}  // namespace

extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kRows;

}  // namespace pteron::ops::compare
