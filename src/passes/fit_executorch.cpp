// Calls in the form that the kernels of the official runtime take: what they refuse at run time, or what ends their process, although the
// operator has an official kernel. Found with the 1.5.1 package; forms that they compute wrongly stand in compiler/profile.cpp.
#include <algorithm>
#include <complex>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "passes/names.h"
#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::passes {

using ir::Arg;
using ir::Builder;
using ir::Expr;
using ir::Graph;
using ir::Node;
using ir::NodeId;
using ir::NodeView;
using ir::Rewrite;
using ir::ValueId;

namespace {

/// Their dim arguments refer to dims that a 0-d operand does not have.
constexpr std::string_view kAlongDims[] = {
    "aten::_log_softmax", "aten::_softmax", "aten::amax", "aten::amin", "aten::any.dim", "aten::any.dims", "aten::all.dim", "aten::argmax", "aten::argmin",
    "aten::cat", "aten::cumsum", "aten::gather", "aten::index_select", "aten::max.dim", "aten::mean.dim", "aten::min.dim", "aten::prod.dim_int", "aten::roll",
    "aten::scatter.src", "aten::scatter.value", "aten::scatter_add", "aten::sum.dim_IntList", "aten::topk", "aten::var.correction", "aten::var.dim",
    "aten::var_mean.correction", "aten::flip",
};

/// Arguments that must be int64.
struct IndexArgument {
  std::string_view op, argument;
};
constexpr IndexArgument kIndexes[] = {
    {"aten::gather", "index"}, {"aten::index_select", "index"}, {"aten::scatter.src", "index"}, {"aten::scatter.value", "index"}, {"aten::scatter_add", "index"},
};

/// Operators of a tensor and a number whose kernels want the tensor in the dtype of the result.
constexpr std::string_view kScalarArithmetic[] = {"aten::add.Scalar", "aten::mul.Scalar", "aten::rsub.Scalar", "aten::sub.Scalar"};

/// Kernels that add up half and bfloat16 in their own dtype, where ATen adds in float (layer norm of 4096 halves was off by 300).
constexpr std::string_view kInFloat[] = {
    "aten::_adaptive_avg_pool2d", "aten::_native_batch_norm_legit.no_stats", "aten::_native_batch_norm_legit_no_training",
    "aten::_upsample_bilinear2d_aa", "aten::addmm", "aten::avg_pool2d", "aten::convolution", "aten::cumsum",
    "aten::mean.dim", "aten::native_group_norm", "aten::native_layer_norm", "aten::scatter_add", "aten::sum.dim_IntList",
    "aten::var.correction", "aten::var.dim", "aten::var_mean.correction",
};

/// Their kernels promote a 0-d operand like any other: it gets the dtype of the result first.
constexpr std::string_view kInResultDType[] = {"aten::clamp.Tensor", "aten::fmod.Tensor", "aten::maximum", "aten::minimum"};

/// These do too, but what they compute in is not the dtype of the result.
constexpr std::string_view kInOtherDType[] = {
    "aten::div.Tensor_mode", "aten::eq.Tensor", "aten::floor_divide", "aten::ge.Tensor", "aten::gt.Tensor", "aten::le.Tensor", "aten::logical_and",
    "aten::logical_or", "aten::logical_xor", "aten::lt.Tensor", "aten::ne.Tensor",
};

/// Their kernels do not wrap a number that the integers of the result cannot hold, as ATen does.
struct NumberArgument {
  std::string_view op, argument;
};
constexpr NumberArgument kWrapped[] = {
    {"aten::add.Tensor", "alpha"}, {"aten::clamp", "max"}, {"aten::clamp", "min"}, {"aten::fmod.Scalar", "other"}, {"aten::sub.Tensor", "alpha"},
};

/// What a cast to an integer dtype makes of a number.
int64_t wrapped(int64_t value, DType dtype) {
  switch (dtype) {
    case DType::kUInt8: return static_cast<uint8_t>(value);
    case DType::kInt8: return static_cast<int8_t>(value);
    case DType::kInt16: return static_cast<int16_t>(value);
    case DType::kInt32: return static_cast<int32_t>(value);
    default: return value;
  }
}

/// bool, integers, floats, complex numbers.
int kind_of(DType dtype) { return is_complex(dtype) ? 3 : is_floating(dtype) ? 2 : is_integral(dtype, false) ? 1 : 0; }

bool is_tensor(const Graph& graph, ValueId id) { return id.valid() && graph[id].kind == ir::ValueKind::kTensor; }

class Fitter {
 public:
  explicit Fitter(Graph& graph) : graph_(graph) {}

  Result<Rewrite> operator()(Builder& b, NodeId id, std::vector<ValueId>& made) {
    if (!graph_[id].op->known || graph_[id].outputs.empty() || !graph_[id].regions.empty()) return Rewrite::kKeep;
    if (give_empty(b, id, made) || multiply_nothing(b, id, made) || widen_empty(b, id, made) || sum_doubles(b, id, made) || to_complex(b, id, made) || round_minuend(b, id, made)) return Rewrite::kReplace;
    if (fit_complex(b, id, made)) return Rewrite::kReplace;
    const std::string op = graph_[id].op->name;
    std::vector<Arg> args = graph_[id].args;
    bool changed = widen_indexes(b, id, args);
    changed = widen_operand(b, id, args) || changed;
    changed = widen_item(b, id, args) || changed;
    changed = wrap_numbers(id, args) || changed;
    changed = promote_scalars(b, id, args) || changed;
    changed = widen_floats(b, id, args) || changed;
    changed = roll_flat(b, id, args) || changed;
    changed = join_as_result(b, id, args) || changed;
    const bool scalar = lift_scalars(b, id, args);
    if (!changed && !scalar) return Rewrite::kKeep;
    if (graph_[graph_[id].outputs[0]].kind != ir::ValueKind::kTensor) {
      graph_[id].args = std::move(args);  // a scalar result keeps its symbol
      return Rewrite::kKeep;
    }
    const std::vector<ValueId> old = graph_[id].outputs;
    for (const ValueId v : b.ops(op, std::move(args))) made.push_back(v);
    for (size_t k = 0; k < made.size() && b.status().ok(); ++k) {
      const ir::TensorType& want = graph_[old[k]].type;
      made[k] = cast(b, made[k], want.dtype);
      if (made[k].valid() && !(b.type(made[k]).sizes == want.sizes)) {
        made[k] = b.op("aten::view", {made[k], want.sizes});
      }
    }
    return Rewrite::kReplace;
  }

 private:
  ValueId cast(Builder& b, ValueId x, DType to) { return b.type(x).dtype == to ? x : b.op("aten::_to_copy", {x, to}); }

  /// Static results without elements are made by full.
  bool give_empty(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const Node& node = graph_[id];
    if (node.op->has(ir::kEffect) || node.op->is_view() || node.op->schema.name == "aten::full") return false;
    for (const ValueId out : node.outputs) {
      const ir::Value& value = graph_[out];
      if (value.kind != ir::ValueKind::kTensor || !value.type.is_static() || is_complex(value.type.dtype)) return false;
      const auto& sizes = value.type.sizes;
      if (std::none_of(sizes.begin(), sizes.end(), [](const Expr& e) { return dim_is(e, 0); })) return false;
    }
    const std::vector<ValueId> outputs = node.outputs;
    for (const ValueId out : outputs) made.push_back(b.op("aten::full", {graph_[out].type.sizes, Expr(0), graph_[out].type.dtype}));
    return true;
  }

  /// A product over an inner dim without elements is zeros. The official mm and bmm leave the result's bytes as they are.
  bool multiply_nothing(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const std::string name = graph_[id].op->name;
    if (name != "aten::mm" && name != "aten::bmm") return false;
    const std::vector<Arg> args = graph_[id].args;
    const ir::TensorType out = graph_[graph_[id].outputs[0]].type;
    const Expr inner = graph_[std::get<ValueId>(args[0])].type.sizes.back();
    const bool empty_too = std::find(out.sizes.begin(), out.sizes.end(), inner) != out.sizes.end();
    if (ir::bounds(inner).min > 0 || empty_too || is_complex(out.dtype)) return false;
    if (inner.is_const()) {
      made.push_back(b.op("aten::full", {out.sizes, Expr(0), out.dtype}));
      return true;
    }
    const ValueId count = b.op("aten::full", {std::vector<Expr>{Expr(1)}, inner, DType::kInt64});
    made.push_back(b.op("aten::masked_fill.Scalar", {b.op(name, args), b.op("aten::eq.Scalar", {count, Expr(0)}), Expr(0)}));
    return true;
  }

  /// The official amax, amin and log softmax end the process if a call has no elements. Dims that may be empty get one more place, whose number
  /// changes no other result.
  bool widen_empty(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const std::string name = graph_[id].op->name;
    if (name != "aten::amax" && name != "aten::amin" && name != "aten::_log_softmax") return false;
    std::vector<Arg> args = graph_[id].args;
    const ValueId self = std::get<ValueId>(args[0]);
    const ir::TensorType type = graph_[self].type, out = graph_[graph_[id].outputs[0]].type;
    const size_t rank = type.sizes.size();
    if (rank == 0) return false;
    std::vector<bool> reduced(rank, false);
    if (const auto* dims = std::get_if<std::vector<Expr>>(&args[1]); dims != nullptr) {
      reduced.assign(rank, dims->empty());
      for (const Expr& dim : *dims) reduced[static_cast<size_t>(dim.value() < 0 ? dim.value() + static_cast<int64_t>(rank) : dim.value())] = true;
    }
    std::vector<Expr> pads(2 * rank, Expr(0));
    bool may_be_empty = false;
    for (size_t d = 0; d < rank; ++d) {
      if (ir::bounds(type.sizes[d]).min > 0) continue;
      pads[2 * (rank - 1 - d) + 1] = Expr(1);
      may_be_empty = true;
    }
    if (!may_be_empty) return false;
    args[0] = b.op("aten::constant_pad_nd", {self, pads, extreme(b, type.dtype, name == "aten::amin")});
    ValueId result = b.op(name, std::move(args));
    const bool same_dims = out.sizes.size() == rank;
    for (size_t d = 0, to = 0; d < rank; ++d) {
      if (!reduced[d] && dim_is(pads[2 * (rank - 1 - d) + 1], 1)) result = b.op("aten::slice.Tensor", {result, Expr(static_cast<int64_t>(to)), Expr(0), out.sizes[to], Expr(1)});
      if (same_dims || !reduced[d]) ++to;
    }
    made.push_back(result);
    return true;
  }

  /// The largest number of a dtype, or the smallest.
  static Expr extreme(Builder& b, DType dtype, bool largest) {
    if (dtype == DType::kBool) return b.boolean(largest);
    if (!is_integral(dtype, false)) return b.floating(largest ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity());
    const bool is_signed = dtype != DType::kUInt8;
    const auto bits = static_cast<unsigned>(8 * dtype_size(dtype));
    const int64_t most = static_cast<int64_t>(~uint64_t{0} >> (64 - bits + (is_signed ? 1 : 0)));
    return Expr(largest ? most : is_signed ? -most - 1 : 0);
  }

  /// The official sum along dims adds float64 in float32, its mean does not.
  bool sum_doubles(Builder& b, NodeId id, std::vector<ValueId>& made) {
    if (graph_[id].op->name != "aten::sum.dim_IntList") return false;
    const std::vector<Arg> args = graph_[id].args;
    const ir::TensorType out = graph_[graph_[id].outputs[0]].type;
    const auto* self = std::get_if<ValueId>(&args[0]);
    if (out.dtype != DType::kFloat64 || self == nullptr || b.type(*self).sizes.empty()) return false;
    const Expr from = ir::numel_of(b.type(*self).sizes), to = ir::numel_of(out.sizes);
    if (!from.is_const() || !to.is_const() || from.value() < 1 || to.value() < 1) return false;
    std::vector<Arg> mean{cast(b, *self, DType::kFloat64), args[1], args[2]};
    if (const auto* dims = std::get_if<std::vector<Expr>>(&args[1]); dims == nullptr || dims->empty()) {
      std::vector<Expr> all;
      for (size_t d = 0; d < b.type(*self).sizes.size(); ++d) all.emplace_back(static_cast<int64_t>(d));
      mean[1] = all;
    }
    const double count = static_cast<double>(from.value() / to.value());
    made.push_back(b.op("aten::mul.Scalar", {b.op("aten::mean.dim", std::move(mean)), b.floating(count)}));
    return true;
  }

  /// The number in every place of `sizes`: the official sums and products have no complex form for tensors of one element.
  ValueId complex_number(Builder& b, double value, const ir::TensorType& like) { return b.op("aten::expand", {complex_one(b, value, like.dtype), like.sizes}); }

  ValueId complex_one(Builder& b, double value, DType dtype) {
    const std::complex<double> wide(value, 0);
    const std::complex<float> narrow(wide);
    if (dtype == DType::kComplexDouble) return b.constant(dtype, {1}, std::as_bytes(std::span(&wide, 1)), "number");
    return b.constant(dtype, {1}, std::as_bytes(std::span(&narrow, 1)), "number");
  }

  /// Few official kernels take complex numbers: sums and products of tensors, cat and bmm among them. Others are said with those.
  bool fit_complex(Builder& b, NodeId id, std::vector<ValueId>& made) {
    const std::string name = graph_[id].op->name;
    const std::vector<Arg> args = graph_[id].args;
    const ir::TensorType out = graph_[graph_[id].outputs[0]].type;
    if (out.dtype != DType::kComplexFloat && out.dtype != DType::kComplexDouble) return false;
    const auto* self = args.empty() ? nullptr : std::get_if<ValueId>(&args[0]);
    const auto* number = args.size() < 2 ? nullptr : std::get_if<Expr>(&args[1]);
    if (name == "aten::neg") {
      made.push_back(b.op("aten::mul.Tensor", {*self, complex_number(b, -1, out)}));
    } else if (name == "aten::mm") {
      const ValueId product = b.op("aten::bmm", {b.op("aten::unsqueeze", {args[0], Expr(0)}), b.op("aten::unsqueeze", {args[1], Expr(0)})});
      made.push_back(b.op("aten::view", {product, out.sizes}));
    } else if (name == "aten::stack") {
      std::vector<ValueId> parts = std::get<std::vector<ValueId>>(args[0]);
      for (ValueId& part : parts) part = b.op("aten::unsqueeze", {part, args[1]});
      const int64_t dim = std::get<Expr>(args[1]).value();
      made.push_back(b.op("aten::cat", {parts, Expr(dim < 0 ? dim + static_cast<int64_t>(out.sizes.size()) : dim)}));
    } else if ((name == "aten::mul.Scalar" || name == "aten::add.Scalar" || name == "aten::sub.Scalar") && number != nullptr && ir::is_number(*number)) {
      std::vector<Arg> given{*self, complex_number(b, ir::number_of(*number), out)};
      if (args.size() > 2) given.push_back(args[2]);
      made.push_back(b.op(name.substr(0, 9) + ".Tensor", std::move(given)));
    } else if ((name == "aten::mul.Tensor" || name == "aten::add.Tensor" || name == "aten::sub.Tensor") &&
               (mixed(b, args, out.dtype) || is_lone_constant(b, args[0], out) || is_lone_constant(b, args[1], out))) {
      std::vector<Arg> given = args;
      for (size_t i = 0; i < 2; ++i) {
        const auto* value = std::get_if<ValueId>(&given[i]);
        if (value == nullptr) continue;
        const ValueId operand = is_lone_constant(b, *value, out) ? b.op("aten::expand", {*value, out.sizes}) : *value;
        given[i] = as_complex(b, operand, out.dtype);
      }
      made.push_back(b.op(name, std::move(given)));
    } else {
      return false;
    }
    if (made[0].valid() && !(b.type(made[0]).sizes == out.sizes)) made[0] = b.op("aten::view", {made[0], out.sizes});
    return true;
  }

  /// A constant with one element beside a tensor with more (or as many as the call says).
  bool is_lone_constant(Builder& b, const Arg& arg, const ir::TensorType& out) {
    const auto* value = std::get_if<ValueId>(&arg);
    if (value == nullptr || !value->valid() || !graph_[*value].constant.valid()) return false;
    return ir::dim_is(ir::numel_of(b.type(*value).sizes), 1) && !ir::dim_is(ir::numel_of(out.sizes), 1);
  }

  static bool mixed(Builder& b, const std::vector<Arg>& args, DType dtype) {
    return std::any_of(args.begin(), args.end(), [&](const Arg& arg) {
      const auto* value = std::get_if<ValueId>(&arg);
      return value != nullptr && value->valid() && !is_complex(b.type(*value).dtype) && is_complex(dtype);
    });
  }

  ValueId as_complex(Builder& b, ValueId x, DType dtype) {
    if (is_complex(b.type(x).dtype)) return x;
    const std::vector<Expr> sizes = b.type(x).sizes;
    const auto rank = static_cast<int64_t>(sizes.size());
    const ValueId column = b.op("aten::unsqueeze", {cast(b, x, dtype == DType::kComplexDouble ? DType::kFloat64 : DType::kFloat32), Expr(rank)});
    return b.op("aten::view", {b.op("aten::_fft_r2c", {column, std::vector<Expr>{Expr(rank)}, Expr(0), b.boolean(true)}), sizes});
  }

  /// There is no official cast from real to complex: the Fourier transform of one element is that element.
  bool to_complex(Builder& b, NodeId id, std::vector<ValueId>& made) {
    if (graph_[id].op->name != "aten::_to_copy") return false;
    const std::vector<Arg> args = graph_[id].args;
    const ir::TensorType out = graph_[graph_[id].outputs[0]].type;
    const auto* self = std::get_if<ValueId>(&args[0]);
    if (self == nullptr || !is_complex(out.dtype) || is_complex(b.type(*self).dtype) || out.dtype == DType::kComplexHalf) return false;
    made.push_back(as_complex(b, *self, out.dtype));
    return true;
  }

  bool widen_indexes(Builder& b, NodeId id, std::vector<Arg>& args) {
    const ir::Op& op = *graph_[id].op;
    bool changed = false;
    for (const IndexArgument& row : kIndexes) {
      if (row.op != op.name) continue;
      Arg& arg = args[static_cast<size_t>(op.schema.find(row.argument))];
      const auto* value = std::get_if<ValueId>(&arg);
      if (value == nullptr || b.type(*value).dtype == DType::kInt64) continue;
      arg = cast(b, *value, DType::kInt64);
      changed = true;
    }
    return changed;
  }

  /// ATen rounds the number of rsub to half or bfloat16, the official kernel does not: it becomes a 0-d tensor.
  bool round_minuend(Builder& b, NodeId id, std::vector<ValueId>& made) {
    if (graph_[id].op->name != "aten::rsub.Scalar") return false;
    const std::vector<Arg> args = graph_[id].args;
    const DType dtype = graph_[graph_[id].outputs[0]].type.dtype;
    const auto* self = std::get_if<ValueId>(&args[0]);
    const auto* number = std::get_if<Expr>(&args[1]);
    if (self == nullptr || number == nullptr || !is_reduced_float(dtype) || b.type(*self).dtype != dtype || !ir::is_number(*number)) return false;
    made.push_back(b.op("aten::sub.Tensor", {b.scalar_tensor(ir::number_of(*number), dtype), *self, args[2]}));
    return true;
  }

  bool widen_operand(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (!is_one_of(graph_[id].op->name, kScalarArithmetic)) return false;
    const auto* self = std::get_if<ValueId>(&args[0]);
    const DType to = graph_[graph_[id].outputs[0]].type.dtype;
    if (self == nullptr || b.type(*self).dtype == to) return false;
    args[0] = cast(b, *self, to);
    return true;
  }

  bool accumulates(NodeId id, const std::vector<Arg>& args) {
    if (graph_[id].op->name != "aten::index_put") return is_one_of(graph_[id].op->name, kInFloat);
    const auto* flag = std::get_if<Expr>(&args[3]);
    return flag != nullptr && ir::is_number(*flag) && ir::number_of(*flag) != 0;
  }

  bool widen_floats(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (!accumulates(id, args)) return false;
    bool changed = false;
    for (Arg& arg : args) {
      if (auto* dtype = std::get_if<DType>(&arg); dtype != nullptr && is_reduced_float(*dtype)) arg = DType::kFloat32;
      const auto* value = std::get_if<ValueId>(&arg);
      if (value == nullptr || !is_tensor(graph_, *value) || !is_reduced_float(b.type(*value).dtype)) continue;
      arg = cast(b, *value, DType::kFloat32);
      changed = true;
    }
    return changed;
  }

  /// Without dims a roll moves the elements in row-major order; the official kernel wants a dim for every shift.
  bool roll_flat(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (graph_[id].op->name != "aten::roll") return false;
    const auto* dims = std::get_if<std::vector<Expr>>(&args[2]);
    const auto* self = std::get_if<ValueId>(&args[0]);
    if (self == nullptr || (dims != nullptr && !dims->empty())) return false;
    args[0] = b.op("aten::view", {*self, std::vector<Expr>{ir::numel_of(b.type(*self).sizes)}});
    args[2] = std::vector<Expr>{Expr(0)};
    return true;
  }

  /// The official cat moves the bytes of an int16 that joins a half.
  bool join_as_result(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (graph_[id].op->name == "aten::where.self") return choose_as_result(b, id, args);
    if (graph_[id].op->name != "aten::cat") return false;
    auto* parts = std::get_if<std::vector<ValueId>>(&args[0]);
    const DType to = graph_[graph_[id].outputs[0]].type.dtype;
    bool changed = false;
    for (size_t i = 0; parts != nullptr && i < parts->size(); ++i) {
      if (b.type((*parts)[i]).dtype == to) continue;
      (*parts)[i] = cast(b, (*parts)[i], to);
      changed = true;
    }
    return changed;
  }

  /// where promotes a 0-d operand like any other there.
  bool choose_as_result(Builder& b, NodeId id, std::vector<Arg>& args) {
    const DType to = graph_[graph_[id].outputs[0]].type.dtype;
    bool changed = false;
    for (const size_t i : {size_t{1}, size_t{2}}) {
      const auto* operand = std::get_if<ValueId>(&args[i]);
      if (operand == nullptr || b.type(*operand).dtype == to) continue;
      args[i] = cast(b, *operand, to);
      changed = true;
    }
    return changed;
  }

  bool wrap_numbers(NodeId id, std::vector<Arg>& args) {
    const ir::Op& op = *graph_[id].op;
    bool changed = false;
    for (const NumberArgument& row : kWrapped) {
      if (row.op != op.name) continue;
      auto* number = std::get_if<Expr>(&args[static_cast<size_t>(op.schema.find(row.argument))]);
      if (number == nullptr || !number->is_const()) continue;
      const int64_t value = wrapped(number->value(), graph_[graph_[id].outputs[0]].type.dtype);
      changed = changed || value != number->value();
      *number = Expr(value);
    }
    return changed;
  }

  bool promote_scalars(Builder& b, NodeId id, std::vector<Arg>& args) {
    const bool differs = is_one_of(graph_[id].op->name, kInOtherDType);
    if (!differs && !is_one_of(graph_[id].op->name, kInResultDType)) return false;
    bool changed = false;
    for (size_t i = 0; i < args.size(); ++i) {
      const auto* operand = std::get_if<ValueId>(&args[i]);
      if (operand == nullptr || !operand->valid() || !b.type(*operand).sizes.empty()) continue;
      DType to = graph_[graph_[id].outputs[0]].type.dtype;
      if (differs) {
        const ir::TensorType& other = b.type(std::get<ValueId>(args[1 - i]));
        to = other.dtype;
        if (other.sizes.empty() || kind_of(b.type(*operand).dtype) > kind_of(to)) continue;
      }
      if (b.type(*operand).dtype == to) continue;
      args[i] = cast(b, *operand, to);
      changed = true;
    }
    return changed;
  }

  /// The official reader of a scalar knows no half and bfloat16.
  bool widen_item(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (graph_[id].op->kernel != "aten::_local_scalar_dense") return false;
    const auto* self = std::get_if<ValueId>(&args[0]);
    if (self == nullptr || !is_reduced_float(b.type(*self).dtype)) return false;
    args[0] = cast(b, *self, DType::kFloat32);
    return true;
  }

  /// 0-d operands become one element of one dim.
  bool lift_scalars(Builder& b, NodeId id, std::vector<Arg>& args) {
    if (!is_one_of(graph_[id].op->name, kAlongDims)) return false;
    const auto* first = std::get_if<ValueId>(&args[0]);
    if (first == nullptr || !is_tensor(graph_, *first) || !b.type(*first).sizes.empty()) return false;
    for (Arg& arg : args) {
      auto* value = std::get_if<ValueId>(&arg);
      if (value != nullptr && is_tensor(graph_, *value) && b.type(*value).sizes.empty()) *value = b.op("aten::view", {*value, std::vector<Expr>{Expr(1)}});
    }
    return true;
  }

  Graph& graph_;
};

}  // namespace

Result<bool> fit_executorch(Graph& graph, const ir::Catalog& catalog) {
  bool changed = false;
  Status status = ir::for_each_graph(graph, [&](Graph& inner) -> Status {
    Fitter fitter(inner);
    PTERON_ASSIGN(const bool one, ir::rewrite(inner, catalog, [&](Builder& b, NodeId id, std::vector<ValueId>& made) { return fitter(b, id, made); }));
    changed = changed || one;
    return ok_status();
  });
  if (!status.ok()) return status;
  return changed;
}

}  // namespace pteron::passes
