// The tables of batch_rules.h. An operator that is missing here is still right, only slower.
#include "passes/batch_rules.h"

#include <algorithm>
#include <array>

#include "passes/names.h"

namespace pteron::passes {

namespace {

constexpr std::string_view kElementwiseNames[] = {
    "__and__", "__lshift__", "__or__", "__rshift__", "__xor__", "_conj", "_conj_physical", "_to_copy", "abs", "acos", "acosh", "add", "addcdiv", "addcmul", "alias",
    "angle", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and", "bitwise_left_shift", "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "ceil",
    "celu", "clamp", "clamp_max", "clamp_min", "clone", "complex", "conj", "conj_physical", "contiguous", "copy", "copysign", "cos", "cosh", "deg2rad", "detach", "digamma",
    "div", "divide", "dropout", "elu", "empty_like", "eq", "erf", "erfc", "erfinv", "exp", "exp2", "expm1", "fill", "float_power", "floor", "floor_divide", "fmax", "fmin",
    "fmod", "frac", "frexp", "full_like", "gcd", "ge", "gelu", "greater", "greater_equal", "gt", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "heaviside", "hypot",
    "i0", "igamma", "igammac", "isclose", "isfinite", "isinf", "isnan", "isneginf", "isposinf", "isreal", "lcm", "ldexp", "le", "leaky_relu", "lerp", "less", "less_equal",
    "lgamma", "lift_fresh", "lift_fresh_copy", "log", "log10", "log1p", "log2", "log_sigmoid", "logaddexp", "logaddexp2", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logit", "lt", "masked_fill", "maximum", "minimum", "mish", "mul", "multiply", "nan_to_num", "ne", "neg", "negative", "nextafter", "not_equal", "ones_like",
    "polar", "polygamma", "positive", "pow", "rad2deg", "real", "reciprocal", "relu", "relu6", "remainder", "resolve_conj", "resolve_neg", "round", "rsqrt", "rsub", "selu",
    "sgn", "sigmoid", "sign", "signbit", "silu", "sin", "sinc", "sinh", "softplus", "softshrink", "special_bessel_j0", "special_bessel_j1", "special_bessel_y0",
    "special_bessel_y1", "special_entr", "special_erfcx", "special_i0e", "special_i1", "special_i1e", "special_log_ndtr", "special_ndtr", "special_ndtri", "special_xlog1py",
    "special_zeta", "sqrt", "square", "sub", "subtract", "tan", "tanh", "threshold", "to", "true_divide", "trunc", "type_as", "where", "xlogy", "zero", "zeros_like",
};
constexpr std::string_view kDimsNames[] = {
    "_log_softmax", "_safe_softmax", "_softmax", "argmax", "argmin", "argsort", "cat", "chunk", "concat", "concatenate", "cummax", "cummin", "cumprod", "cumsum", "diagonal",
    "flip", "gather", "glu", "log_softmax", "logcumsumexp", "movedim", "narrow", "scatter", "scatter_add", "scatter_reduce", "select", "slice", "softmax", "sort", "split",
    "split_with_sizes", "stack", "swapaxes", "swapdims", "take_along_dim", "topk", "transpose", "unbind", "unfold",
};
constexpr std::string_view kReduceDimsNames[] = {"amax", "amin", "count_nonzero", "linalg_vector_norm", "logsumexp", "nansum", "std", "var"};
constexpr std::string_view kReshapeNames[] = {"_unsafe_view", "atleast_1d", "atleast_2d", "atleast_3d", "flatten", "ravel", "reshape", "reshape_as", "squeeze", "unflatten",
                                              "unsqueeze", "view", "view_as"};
constexpr std::string_view kExpandNames[] = {"broadcast_to", "expand", "expand_as"};
constexpr std::string_view kLeadingNames[] = {"adjoint", "constant_pad_nd", "embedding", "layer_norm", "linalg_inv", "mH", "mT", "native_layer_norm", "one_hot", "rms_norm", "tril", "triu"};
constexpr std::string_view kProductNames[] = {"bmm", "dot", "matmul", "mm", "mv"};
constexpr std::string_view kNewSizesNames[] = {"new_empty", "new_full", "new_ones", "new_zeros"};

struct Reduction {
  std::string_view base, with_dim;
};
constexpr std::array kReductions = std::to_array<Reduction>({
    {"all", "aten::all.dim"}, {"any", "aten::any.dim"}, {"max", "aten::amax"}, {"mean", "aten::mean.dim"},
    {"min", "aten::amin"}, {"prod", "aten::prod.dim_int"}, {"sum", "aten::sum.dim_IntList"},
});

}  // namespace

BatchRule batch_rule(std::string_view base) {
  if (is_one_of(base, kElementwiseNames)) return BatchRule::kElementwise;
  if (is_one_of(base, kDimsNames)) return BatchRule::kDims;
  if (is_one_of(base, kReduceDimsNames)) return BatchRule::kReduceDims;
  if (is_one_of(base, kReshapeNames)) return BatchRule::kReshape;
  if (is_one_of(base, kExpandNames)) return BatchRule::kExpand;
  if (is_one_of(base, kLeadingNames)) return BatchRule::kLeading;
  if (is_one_of(base, kProductNames)) return BatchRule::kProduct;
  if (is_one_of(base, kNewSizesNames)) return BatchRule::kNewSizes;
  if (base == "linear") return BatchRule::kLinear;
  if (base == "permute") return BatchRule::kPermute;
  if (base == "index") return BatchRule::kIndex;
  return reduce_one_dim(base).empty() ? BatchRule::kLoop : BatchRule::kReduceAll;
}

std::string_view reduce_one_dim(std::string_view base) {
  const auto found = std::find_if(kReductions.begin(), kReductions.end(), [&](const Reduction& row) { return row.base == base; });
  return found == kReductions.end() ? std::string_view() : found->with_dim;
}

bool names_dims(std::string_view argument) {
  constexpr std::string_view kNames[] = {"dim", "dims", "dim0", "dim1", "dim2", "axis0", "axis1", "dimension", "source", "destination"};
  return is_one_of(argument, kNames);
}

}  // namespace pteron::passes
