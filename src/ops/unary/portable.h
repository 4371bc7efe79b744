// Operators of one tensor in terms of the kernels that the official runtime has. Defined in op_portable.cpp and op_special.cpp, named by the rows of op.cpp.
#pragma once

#include <string_view>
#include <vector>

#include "ir/builder.h"
#include "ir/op.h"

namespace pteron::ops::unary {

using Decomposition = std::vector<ir::ValueId>(ir::Builder& b, const ir::NodeView& n);
Decomposition portable_angle, portable_conj_physical, portable_deg2rad, portable_exp2, portable_frac, portable_isfinite, portable_isneginf,
    portable_isposinf, portable_logit, portable_nan_to_num, portable_rad2deg, portable_round_decimals, portable_sgn, portable_sign, portable_sinc, portable_square,
    portable_entr, portable_erfc, portable_erfcx, portable_lgamma, portable_digamma, portable_erfinv, portable_i0, portable_i0e, portable_i1, portable_i1e, portable_log_ndtr,
    portable_ndtri, portable_signbit;

/// The decomposition of a row of rows.inc; null if there is none.
constexpr ir::DecomposeFn portable_row(std::string_view name) {
  struct Entry {
    std::string_view name;
    ir::DecomposeFn fn;
  };
  constexpr Entry kEntries[] = {
      {"conj_physical", portable_conj_physical}, {"deg2rad", portable_deg2rad},   {"exp2", portable_exp2},         {"frac", portable_frac},
      {"isfinite", portable_isfinite},           {"isneginf", portable_isneginf}, {"isposinf", portable_isposinf}, {"rad2deg", portable_rad2deg},
      {"sgn", portable_sgn},                     {"sinc", portable_sinc},         {"special_entr", portable_entr},
      {"sign", portable_sign},                   {"erfc", portable_erfc},         {"lgamma", portable_lgamma},     {"digamma", portable_digamma},
      {"erfinv", portable_erfinv},               {"i0", portable_i0},             {"special_i0e", portable_i0e},   {"special_i1", portable_i1},
      {"special_i1e", portable_i1e},             {"special_log_ndtr", portable_log_ndtr}, {"special_erfcx", portable_erfcx}, {"special_ndtri", portable_ndtri}, {"signbit", portable_signbit},
  };
  for (const Entry& entry : kEntries) {
    if (entry.name == name) return entry.fn;
  }
  return nullptr;
}

}  // namespace pteron::ops::unary
