// Kinds of nodes, and kernels around bodies: threads, rows, vectors of neighbouring elements.
#include "backends/cuda/aot/lowering.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>

#include "backends/cuda/aot/body.h"
#include "backends/cuda/aot/scalar_ops.h"
#include "base/str_cat.h"
#include "emit/method_emitter.h"
#include "ops/infer.h"
#include "tensor/dtype.h"

namespace pteron::cuda {

using ir::Arg;
using ir::Expr;
using ir::ExprOp;
using ir::NodeView;
using ir::TensorType;
using ir::ValueId;
using ir::ViewLayout;

namespace {

constexpr std::string_view kPointOps[] = {"_fft_c2c", "_fft_c2r", "_fft_r2c", "addmm", "baddbmm", "bmm", "convolution", "grid_sampler_2d", "grid_sampler_3d", "linear", "mm", "view_as_complex", "view_as_real",
"_adaptive_avg_pool2d",
                                          "_adaptive_avg_pool3d",
                                          "_native_batch_norm_legit_no_training",
                                          "_to_copy",
                                          "_upsample_nearest_exact1d",
                                          "_upsample_nearest_exact1d.vec",
                                          "_upsample_nearest_exact2d",
                                          "_upsample_nearest_exact2d.vec",
                                          "_upsample_nearest_exact3d",
                                          "adaptive_max_pool2d",
                                          "adaptive_max_pool3d",
                                          "alias_copy",
                                          "arange",
                                          "arange.start_step",
                                          "avg_pool2d",
                                          "avg_pool3d",
                                          "bitwise_not",
                                          "cat",
                                          "clamp",
                                          "clamp.Tensor",
                                          "clone",
                                          "constant_pad_nd",
                                          "copy",
                                          "detach_copy",
                                          "div.Scalar_mode",
                                          "div.Tensor_mode",
                                          "embedding",
                                          "empty.memory_format",
                                          "eye",
                                          "eye.m",
                                          "fill.Scalar",
                                          "fill.Tensor",
                                          "flip",
                                          "full",
                                          "full_like",
                                          "gather",
                                          "gelu",
                                          "glu",
                                          "index.Tensor",
                                          "index_select",
                                          "lift_fresh_copy",
                                          "logit",
                                          "masked_fill.Scalar",
                                          "masked_fill.Tensor",
                                          "max_pool2d",
                                          "max_pool2d_with_indices",
                                          "max_pool3d",
                                          "max_pool3d_with_indices",
                                          "nan_to_num",
                                          "native_batch_norm",
                                          "ones",
                                          "pixel_shuffle",
                                          "pixel_unshuffle",
                                          "pow.Tensor_Scalar",
                                          "reflection_pad1d",
                                          "reflection_pad2d",
                                          "reflection_pad3d",
                                          "repeat",
                                          "replication_pad1d",
                                          "replication_pad2d",
                                          "replication_pad3d",
                                          "roll",
                                          "scalar_tensor",
                                          "select_scatter",
                                          "slice_scatter",
                                          "stack",
                                          "tril",
                                          "triu",
                                          "upsample_bilinear2d",
                                          "upsample_bilinear2d.vec",
                                          "upsample_linear1d",
                                          "upsample_linear1d.vec",
                                          "upsample_nearest1d",
                                          "upsample_nearest1d.vec",
                                          "upsample_nearest2d",
                                          "upsample_nearest2d.vec",
                                          "upsample_nearest3d",
                                          "upsample_trilinear3d",
                                          "zeros"};

constexpr std::string_view kRowOps[] = {"_fused_rms_norm",
                                        "_log_softmax",
                                        "_softmax",
                                        "all",
                                        "all.dim",
                                        "all.dims",
                                        "amax",
                                        "amin",
                                        "aminmax",
                                        "any",
                                        "any.dim",
                                        "any.dims",
                                        "argmax",
                                        "argmin",
                                        "count_nonzero.dim_IntList",
                                        "linalg_vector_norm",
                                        "logsumexp",
                                        "max",
                                        "max.dim",
                                        "mean",
                                        "mean.dim",
                                        "min",
                                        "min.dim",
                                        "nansum",
                                        "native_layer_norm",
                                        "prod",
                                        "prod.dim_int",
                                        "rms_norm",
                                        "std.correction",
                                        "std_mean.correction",
                                        "sum",
                                        "sum.dim_IntList",
                                        "var.correction",
                                        "var_mean.correction"};

constexpr std::string_view kUpdateOps[] = {"as_strided_scatter", "index_add", "index_copy", "index_put", "scatter.src", "scatter.value", "scatter_add", "scatter_reduce.two"};

/// Operators that take complex numbers, beside views.
constexpr std::string_view kComplexOps[] = {"_conj_physical", "_fft_c2c", "_fft_c2r", "_fft_r2c", "_to_copy", "add.Tensor", "alias_copy", "cat", "clone", "constant_pad_nd", "copy",
                                            "flip", "gather", "index.Tensor", "index_select", "lift_fresh_copy", "mul.Tensor", "neg", "repeat", "roll", "select_scatter",
                                            "slice_scatter", "stack", "sub.Tensor", "view_as_complex", "view_as_real"};
/// Most elements that a Fourier transform of all its dims goes over: every one is read for each frequency.
constexpr int64_t kMaxFourier = 16384;

constexpr std::string_view kWholeOps[] = {"cumprod", "cumsum", "sort", "sort.stable", "topk"};
/// Longest rows that are ordered: every element is compared with every other one.
constexpr int64_t kMaxOrdered = 4096;

template <size_t n>
bool is_in(const std::string_view (&list)[n], std::string_view name) {
  return std::ranges::find(list, name) != std::end(list);
}

/// Every tensor that a node reads or makes has a dtype that kernels compute with.
bool has_known_types(const ir::Graph& graph, const ir::Node& node, std::string* why) {
  const auto check = [&](ValueId id) {
    const ir::Value& value = graph[id];
    if (value.kind != ir::ValueKind::kTensor) return value.kind == ir::ValueKind::kScalar && value.scalar.type() == ir::ExprType::kInt;
    if (!has_c_type(value.type.dtype)) {
      *why = str_cat("tensors of ", dtype_name(value.type.dtype));
      return false;
    }
    if (value.type.rank() > 8) {
      *why = "a rank over 8";
      return false;
    }
    return true;
  };
  bool fine = true;
  for (const ValueId id : node.outputs) fine = fine && graph[id].kind == ir::ValueKind::kTensor && check(id);
  ir::for_each_use(node, [&](ValueId id) { fine = fine && check(id); });
  if (!fine && why->empty()) *why = "numbers that are known at run time only and no integers";
  return fine;
}

/// Numbers among the arguments are constants, or integers that are known at run time.
bool has_known_numbers(const ir::Node& node) {
  const auto known = [](Expr e) { return ir::is_number(e) || e.type() == ir::ExprType::kInt; };
  return std::ranges::all_of(node.args, [&](const Arg& arg) {
    if (const auto* e = std::get_if<Expr>(&arg)) return known(*e);
    if (const auto* list = std::get_if<std::vector<Expr>>(&arg)) return std::ranges::all_of(*list, known);
    return !std::holds_alternative<std::complex<double>>(arg);
  });
}

bool is_index_dtype(DType d) { return is_integral(d, false); }

bool is_complex_node(const ir::Graph& graph, const ir::Node& node) {
  const auto check = [&](ValueId id) { return graph[id].kind == ir::ValueKind::kTensor && is_complex(graph[id].type.dtype); };
  bool any = std::ranges::any_of(node.outputs, check);
  ir::for_each_use(node, [&](ValueId id) { any = any || check(id); });
  return any;
}

NodeKind refuse(std::string* why, std::string text) {
  *why = std::move(text);
  return NodeKind::kOther;
}

/// What the tables do not say: forms of operators that are not written.
std::string unsupported_form(const ir::Graph& graph, const NodeView& n, std::string_view op) {
  if (op == "index.Tensor" || op == "index_put") {
    for (const ValueId id : n.values("indices")) {
      if (id.valid() && !is_index_dtype(graph[id].type.dtype)) return "an index by a mask";
    }
  }
  if (op == "scatter_reduce.two" && (!n.boolean("include_self") || n.text("reduce") == "mean")) return "no kernel";
  if (op.starts_with("_fft_")) {
    if (!n.all_const("dim")) return "dims that are no constants";
    int64_t count = 1;
    const TensorType& in = n.type("self");
    const std::vector<int64_t> dims = n.integers("dim");
    for (const int64_t dim : dims) {
      const bool halved = op == "_fft_c2r" && dim == dims.back();
      const int64_t size = ir::bounds(halved ? n.expr("last_dim_size") : in.sizes[static_cast<size_t>(dim < 0 ? dim + in.rank() : dim)]).max;
      count = size > kMaxFourier ? kMaxFourier + 1 : std::min(count * std::max<int64_t>(size, 1), kMaxFourier + 1);
    }
    if (count > kMaxFourier) return str_cat("a Fourier transform of more than ", kMaxFourier, " elements");
  }
  if (op.starts_with("grid_sampler") && !is_floating(n.type("input").dtype)) return "no kernel";
  if (op.starts_with("grid_sampler") && is_reduced_float(n.type("input").dtype)) return "16-bit floats, whose positions PyTorch rounds after each step";
  if (op == "nextafter" && is_reduced_float(n.type("self").dtype)) return "16-bit floats";
  if (op.starts_with("upsample_") && op.find("linear") != std::string_view::npos && is_integral(n.type(n.has("self") ? "self" : "input").dtype, true)) {
    return "means of integers, whose weights PyTorch rounds to fixed point";
  }
  if (op == "native_batch_norm" && n.boolean("training")) return "batch statistics";
  if ((op.starts_with("sort") || op == "topk") && n.type("self").rank() > 0) {
    const int64_t dim = n.integer("dim", -1);
    const Expr size = n.type("self").sizes[static_cast<size_t>(dim < 0 ? dim + n.type("self").rank() : dim)];
    if (ir::bounds(size).max > kMaxOrdered) return str_cat("an order of more than ", kMaxOrdered, " elements");
  }
  if ((op == "flip" || op == "roll") && !n.all_const("dims")) return "dims that are no constants";
  if (n.has("dim") && !n.is_none("dim") && !n.is_value("dim")) {
    const auto* list = std::get_if<std::vector<Expr>>(&n.arg("dim"));
    if (list != nullptr ? !n.all_const("dim") : !n.expr("dim").is_const()) return "dims that are no constants";
  }
  if (op == "linalg_vector_norm" && !ir::is_number(n.expr("ord", 2))) return "an order that is no constant";
  if (op == "pow.Tensor_Scalar" && is_integral(n.type("self").dtype, true) && n.expr("exponent").is_const() && n.expr("exponent").value() < 0)
    return "integers to negative powers";
  return {};
}

}  // namespace

bool is_level_node(const ir::Node& node) { return node.op->name == "pteron::quantize" || node.op->name == "pteron::dequantize"; }

NodeKind kind_of(const ir::Graph& graph, const ir::Node& node, std::string* why) {
  std::string ignored;
  if (why == nullptr) why = &ignored;
  why->clear();
  if (!node.regions.empty() || node.outputs.empty()) return refuse(why, "no kernel");
  const std::string_view name = node.op->name;
  if (node.op->has(ir::kRandom)) return refuse(why, "random numbers");
  const bool changes_type = name == "aten::view_as_real" || name == "aten::view_as_complex";
  if ((node.op->is_view() && !changes_type) || node.op->has(ir::kAlias)) {
    if (!has_known_types(graph, node, why) || !has_known_numbers(node)) return NodeKind::kOther;
    const auto* self = node.args.empty() ? nullptr : std::get_if<ValueId>(&node.args[0]);
    if (self == nullptr || !self->valid()) return refuse(why, "a view of nothing");
    if (graph[*self].type.dtype != graph[node.outputs[0]].type.dtype) return refuse(why, "the bytes of another dtype");
    return NodeKind::kView;
  }
  if (is_level_node(node)) {
    if (!has_known_types(graph, node, why)) return NodeKind::kOther;
    return has_known_numbers(node) ? NodeKind::kPoint : refuse(why, "levels that are known at run time only");
  }
  if (!name.starts_with("aten::") && name != "pteron::as_strided_scatter") return refuse(why, "no kernel");
  const std::string_view op = name.substr(name.find(':') + 2);
  const bool is_scalar = find_scalar_op(op) != nullptr;
  const NodeKind kind = is_scalar || is_in(kPointOps, op) ? NodeKind::kPoint
                        : is_in(kRowOps, op)              ? NodeKind::kRow
                        : is_in(kWholeOps, op)            ? NodeKind::kWhole
                        : is_in(kUpdateOps, op)           ? NodeKind::kUpdate
                                                          : NodeKind::kOther;
  if (kind == NodeKind::kOther) return refuse(why, "no kernel");
  if (!has_known_types(graph, node, why)) return NodeKind::kOther;
  if (!has_known_numbers(node)) return refuse(why, "numbers that are known at run time only and no integers");
  const NodeView n(graph, *node.op, node.args);
  if (std::string form = unsupported_form(graph, n, op); !form.empty()) return refuse(why, std::move(form));
  if (is_complex_node(graph, node) && !is_in(kComplexOps, op)) return refuse(why, "complex numbers");
  if (kind == NodeKind::kRow) {
    std::vector<Expr> domain;
    uint32_t mask = 0;
    if (!row_domain(n, &domain, &mask)) return refuse(why, "dims that do not fit");
  }
  return kind;
}

bool is_costly(const ir::Graph& graph, const ir::Node& node) {
  const NodeKind kind = kind_of(graph, node);
  if (kind != NodeKind::kPoint) return kind != NodeKind::kView;
  if (is_level_node(node)) return false;
  const std::string_view op = std::string_view(node.op->name).substr(6);
  if (const ScalarOp* scalar = find_scalar_op(op)) return scalar->is_costly;
  return op.find("pool") != std::string_view::npos || op.find("linear") != std::string_view::npos || op == "gelu" || op == "glu" || op == "logit" || is_loop_op(op);
}

namespace {

constexpr int64_t kThreads = 256;

/// Prints expressions; symbols that are no variables of the kernel become values of the launch.
class Printer {
 public:
  Printer(Body& body) : body_(body) {}  // NOLINT: one use
  std::string operator()(Expr e) {
    if (e.is_const())
      return e.value() > INT32_MAX || e.value() < INT32_MIN ? str_cat("(", e.value(), "ll)")
             : e.value() < 0                                ? str_cat("(", e.value(), ")")
                                                            : str_cat(e.value());
    const ir::ExprNode& node = *e.node();
    switch (node.op) {
      case ExprOp::kConst:
        return node.number != 0 ? "1" : "0";
      case ExprOp::kSymbol:
        return symbol(e);
      case ExprOp::kAdd:
        return joined(node, " + ");
      case ExprOp::kMul:
        return joined(node, " * ");
      case ExprOp::kFloorDiv:
      case ExprOp::kMod: {
        const bool is_quotient = node.op == ExprOp::kFloorDiv;
        const ir::Range a = ir::bounds(node.args[0]), b = ir::bounds(node.args[1]);
        const std::string x = (*this)(node.args[0]), y = (*this)(node.args[1]);
        if (a.min >= 0 && b.min >= 0) {
          if (a.max <= INT32_MAX && b.max <= INT32_MAX && node.args[1].is_const())
            return str_cat("(int)((u32)(", x, ") ", is_quotient ? "/" : "%", " ", y, "u)");
          return str_cat("((", x, ") ", is_quotient ? "/" : "%", " ", y, ")");
        }
        return str_cat(is_quotient ? "p_floordiv" : "p_floormod", "((i64)(", x, "), (i64)(", y, "))");
      }
      case ExprOp::kMax:
        return folded(node, "p_larger");
      case ExprOp::kMin:
        return folded(node, "p_smaller");
      case ExprOp::kEq:
        return compared(node, "==");
      case ExprOp::kNe:
        return compared(node, "!=");
      case ExprOp::kLt:
        return compared(node, "<");
      case ExprOp::kLe:
        return compared(node, "<=");
      case ExprOp::kAnd:
        return joined(node, " && ");
      case ExprOp::kOr:
        return joined(node, " || ");
      case ExprOp::kNot:
        return str_cat("(!", (*this)(node.args[0]), ")");
      case ExprOp::kIte:
        return str_cat("((", (*this)(node.args[0]), ") ? (i64)", (*this)(node.args[1]), " : (i64)", (*this)(node.args[2]), ")");
      default:
        return value(e);
    }
  }

 private:
  std::string symbol(Expr e) {
    if (const auto found = body_.spelled_.find(e.node()); found != body_.spelled_.end()) return found->second;
    return value(e);
  }
  /// Computed outside of the kernel.
  std::string value(Expr e) {
    for (const Expr& s : ir::symbols_in(e)) {
      if (s.type() == ir::ExprType::kInt && body_.spelled_.contains(s.node())) {
        body_.fail(ValueId(), str_cat("the expression ", ir::to_text(e), " has no spelling"));
        return "0";
      }
    }
    size_t k = static_cast<size_t>(std::ranges::find(body_.values_, e) - body_.values_.begin());
    if (k == body_.values_.size()) body_.values_.push_back(e);
    const ir::Range range = ir::bounds(e);
    return range.max <= INT32_MAX && range.min >= INT32_MIN ? str_cat("(int)s", k) : str_cat("s", k);
  }
  std::string joined(const ir::ExprNode& node, std::string_view by) {
    std::string out = "(";
    const ir::Range whole = ir::bounds(Expr(&node));
    const bool is_long = node.type == ir::ExprType::kInt && (whole.max > INT32_MAX || whole.min < INT32_MIN);
    if (is_long) out += "(i64)";
    for (size_t i = 0; i < node.args.size(); ++i) str_append(out, i == 0 ? std::string_view() : by, (*this)(node.args[i]));
    return out + ")";
  }
  std::string folded(const ir::ExprNode& node, std::string_view by) {
    std::string out = str_cat("(i64)", (*this)(node.args[0]));
    for (size_t i = 1; i < node.args.size(); ++i) out = str_cat(by, "<i64>(", out, ", ", (*this)(node.args[i]), ")");
    return out;
  }
  std::string compared(const ir::ExprNode& node, std::string_view by) { return str_cat("(", (*this)(node.args[0]), " ", by, " ", (*this)(node.args[1]), ")"); }

  Body& body_;
};

bool divides(Expr e, int64_t by) {
  if (e.is_const()) return e.value() % by == 0;
  const ir::ExprNode& node = *e.node();
  if (node.op == ExprOp::kAdd) return std::ranges::all_of(node.args, [&](Expr a) { return divides(a, by); });
  if (node.op == ExprOp::kMul) return std::ranges::any_of(node.args, [&](Expr a) { return divides(a, by); });
  return false;
}

/// Counters of a group of dims, outermost first; merged as far as every index allows it.
struct Counters {
  std::vector<Expr> symbols, sizes;
  std::string prefix;
};

class KernelWriter {
 public:
  KernelWriter(ir::Graph& graph, ValueId value, const Memory& memory) : graph_(graph), value_(value), body_(graph, memory), memory_(memory) {}

  Launch run() {
    if (std::ranges::any_of(graph_[value_].type.sizes, [](Expr size) { return dim_is(size, 0); })) {
      launch_.grid = {0, 1, 1};
      finish("");
      return std::move(launch_);
    }
    find_rows(value_, 0);
    const TensorType& type = graph_[value_].type;
    const ir::Node* node = graph_[value_].producer.valid() ? &graph_[graph_[value_].producer] : nullptr;
    if (node != nullptr && kind_of(graph_, *node) == NodeKind::kUpdate) {
      update(NodeView(graph_, *node->op, node->args));
    } else if (node != nullptr && kind_of(graph_, *node) == NodeKind::kWhole) {
      whole(NodeView(graph_, *node->op, node->args), type, static_cast<size_t>(std::ranges::find(node->outputs, value_) - node->outputs.begin()));
    } else if (row_.valid()) {
      rows(type);
    } else {
      points(type.sizes, [&](const Index& at) { store(at); });
    }
    launch_.failure = body_.failure_;
    launch_.blamed = body_.blamed_;
    return std::move(launch_);
  }

 private:
  /// The first row operator inside, looking through what is computed here.
  void find_rows(ValueId id, int depth) {
    if (row_.valid() || (memory_.holds(id) && !(depth == 0)) || !graph_[id].producer.valid() || !seen_.insert(id.index).second) return;
    const ir::Node& node = graph_[graph_[id].producer];
    if (kind_of(graph_, node) == NodeKind::kRow) {
      row_ = id;
      return;
    }
    ir::for_each_use(node, [&](ValueId used) {
      if (!memory_.holds(used)) find_rows(used, depth + 1);
    });
  }

  void store(const Index& at) {
    const ViewLayout layout = memory_.layout(value_);
    Expr offset = layout.offset;
    for (size_t d = 0; d < at.size(); ++d) offset = offset + at[d] * layout.strides[d];
    // The value itself is in memory as far as others are concerned; here it is computed.
    const std::string x = body_.fresh(), text = body_.compute_root(value_, at);
    body_.statement(str_cat("const ", c_type(graph_[value_].type.dtype), " ", x, " = ", text, ";"));
    const std::string index = body_.index(offset);
    body_.statement(str_cat("\x05", x, "\x06", index, "\x02"));
  }

  /// A thread for some neighbouring elements.
  void points(const std::vector<Expr>& sizes, const std::function<void(const Index&)>& write) {
    Counters counters;
    counters.prefix = "c";
    Index at;
    for (size_t d = 0; d < sizes.size(); ++d) at.push_back(body_.counter(str_cat("c", d), sizes[d]));
    // Neighbouring threads write neighbours in memory.
    const TensorType& type = graph_[value_].type;
    std::vector<uint8_t> order(sizes.size());
    std::iota(order.begin(), order.end(), uint8_t{0});
    if (type.sizes == sizes) order = emit::dim_order_of(type);
    for (const uint8_t d : order) {
      if (!at[d].is_const()) counters.symbols.push_back(at[d]), counters.sizes.push_back(sizes[d]);
    }
    body_.scopes_.emplace_back();
    write(at);
    const std::string code = std::move(body_.scopes_.back().code);
    body_.scopes_.clear();
    merge(counters);
    const int64_t v = lanes(counters, code, true);
    const Expr count = ir::numel_of(sizes);
    const Expr items = v == 1 ? count : floor_div(count, v);
    launch_.grid = {ceil_div(items, kThreads), 1, 1};
    launch_.threads = kThreads;
    std::string out = str_cat("const ", wide(count), " i = ((", wide(count), ")blockIdx.x * ", kThreads, " + threadIdx.x)", v > 1 ? str_cat(" * ", v) : "",
                              ";\nif (i >= ", printer_(count), ") return;\n");
    out += counter_lines(counters, "i", v);
    out += loop_text(code, counters, v, 0);
    finish(out);
  }

  std::string wide(Expr count) const { return ir::bounds(count).max > INT32_MAX / 2 ? "i64" : "int"; }

  /// "const int c1 = i % 64;": the last of the counters is the first lane's if there are several.
  std::string counter_lines(const Counters& counters, const std::string& from, int64_t v) {
    std::string out, rest = from;
    for (size_t k = counters.symbols.size(); k-- > 0;) {
      const std::string name = body_.spelled_.at(counters.symbols[k].node());
      const std::string lane = v > 1 && k + 1 == counters.symbols.size() ? "b" : "";
      if (k == 0) {
        str_append(out, "const ", "auto ", lane, name, " = ", rest, ";\n");
        break;
      }
      const std::string size = printer_(counters.sizes[k]);
      str_append(out, "const auto ", lane, name, " = ", rest, " % ", size, ";\nconst auto q", name, " = ", rest, " / ", size, ";\n");
      rest = "q" + name;
    }
    return out;
  }

  /// Neighbouring dims whose places every index reads as one number become one.
  void merge(Counters& counters) {
    for (size_t k = counters.symbols.size(); k-- > 1;) {
      const Expr outer = counters.symbols[k - 1], inner = counters.symbols[k], size = counters.sizes[k];
      const auto joins = [&](Expr e) {
        const Expr moved = ir::substitute(e, [&](Expr s) { return s == outer ? Expr(0) : s == inner ? inner + outer * size : s; });
        return moved == e;
      };
      if (!std::ranges::all_of(body_.indices_, joins)) continue;
      const Expr both = counters.sizes[k - 1] * size;
      const std::string name = body_.spelled_.at(inner.node());
      const Expr joined = body_.counter(name + "j" + std::to_string(k), both);
      for (Expr& e : body_.indices_) e = ir::substitute(e, [&](Expr s) { return s == outer ? Expr(0) : s == inner ? joined : s; });
      counters.symbols[k - 1] = joined;
      counters.sizes[k - 1] = both;
      counters.symbols.erase(counters.symbols.begin() + static_cast<std::ptrdiff_t>(k));
      counters.sizes.erase(counters.sizes.begin() + static_cast<std::ptrdiff_t>(k));
    }
  }

  /// How e moves with the last counter: 0, 1, or -1 for anything else.
  static int step_of(Expr e, Expr inner) {
    const std::vector<Expr> symbols = ir::symbols_in(e);
    if (std::ranges::find(symbols, inner) == symbols.end()) return 0;
    const Expr rest = ir::substitute(e, [&](Expr s) { return s == inner ? Expr(0) : s; });
    return e == rest + inner ? 1 : -1;
  }

  /// A load that may stand before the lanes: not in a branch, and at a place that no number read there decides.
  bool is_movable(const Load& load) const {
    return load.plain && std::ranges::none_of(ir::symbols_in(body_.indices_[load.offset]), [&](Expr e) {
             const auto found = body_.spelled_.find(e.node());
             return found != body_.spelled_.end() && found->second.starts_with('t');
           });
  }

  /// Elements a thread handles at once: as many as 16 bytes hold, if every operand that moves with them lies side by side at a multiple of them.
  int64_t lanes(const Counters& counters, const std::string& code, bool stores) {
    if (counters.symbols.empty() || !counters.sizes.back().is_const()) return 1;
    const Expr inner = counters.symbols.back();
    const int64_t size = counters.sizes.back().value();
    int64_t widest = 1;
    bool any = false;
    std::vector<Expr> moving;
    for (size_t i = 0; i < body_.loads_.size(); ++i) {
      const Load& load = body_.loads_[i];
      if (!is_movable(load) || step_of(body_.indices_[load.offset], inner) != 1) continue;
      moving.push_back(body_.indices_[load.offset]);
      widest = std::max<int64_t>(widest, static_cast<int64_t>(dtype_size(load.dtype)));
      any = true;
    }
    if (stores && code.find('\x05') != std::string::npos) {
      const Expr to = stored_offset(code);
      if (step_of(to, inner) == 1) {
        moving.push_back(to);
        widest = std::max<int64_t>(widest, static_cast<int64_t>(dtype_size(graph_[value_].type.dtype)));
        any = true;
      }
    }
    if (!any) return 1;
    const ir::Range total = ir::bounds(ir::numel_of(domain_sizes()));
    for (int64_t v = std::min<int64_t>(16 / widest, 8); v > 1; v /= 2) {
      if (size % v != 0 || total.max / v < 8192) continue;
      const bool fits = std::ranges::all_of(moving, [&](Expr e) { return divides(ir::substitute(e, [&](Expr s) { return s == inner ? Expr(0) : s; }), v); });
      if (fits) return v;
    }
    return 1;
  }
  std::vector<Expr> domain_sizes() const { return row_.valid() ? body_.domain_ : graph_[value_].type.sizes; }

  Expr stored_offset(const std::string& code) const {
    const size_t mark = code.find('\x06');
    const size_t begin = code.find('\x01', mark);
    if (mark == std::string::npos || begin == std::string::npos || begin != mark + 1) return 0;
    return body_.indices_[std::stoul(code.substr(begin + 1, code.find('\x02', begin) - begin - 1))];
  }

  /// A loop's statements with loads and indices spelled out; several lanes read and write vectors.
  std::string loop_text(const std::string& code, const Counters& counters, int64_t v, size_t loop) {
    const Expr inner = counters.symbols.empty() ? Expr(0) : counters.symbols.back();
    std::string head, tail;
    std::set<std::pair<size_t, size_t>> vectors;
    const auto base_text = [&](Expr e) {  // at the first lane
      const std::string name = body_.spelled_.at(inner.node());
      body_.spelled_[inner.node()] = "b" + name;
      std::string text = printer_(e);
      body_.spelled_[inner.node()] = name;
      return text;
    };
    std::string out;
    for (size_t i = 0; i < code.size(); ++i) {
      const char c = code[i];
      if (c != '\x01' && c != '\x03' && c != '\x05') {
        out += c;
        continue;
      }
      if (c == '\x05') {
        const size_t mark = code.find('\x06', i);
        const std::string x = code.substr(i + 1, mark - i - 1);
        const std::string type(memory_type(graph_[value_].type.dtype));
        std::string place = code.substr(mark + 1, code.find('\x02', mark) - mark - 1);
        Expr offset = 0;
        if (place.starts_with('\x01'))
          offset = body_.indices_[std::stoul(place.substr(1))];
        else
          offset = Expr(static_cast<int64_t>(std::stoll(place)));
        i = code.find('\n', mark) - 1;
        if (v > 1 && step_of(offset, inner) == 1) {
          str_append(head, "Vec<", type, ", ", v, "> made;\n");
          str_append(out, "made.at[k] = P_STORE(", type, ", ", x, ");");
          str_append(tail, "*(Vec<", type, ", ", v, ">*)(out + ", base_text(offset), ") = made;\n");
        } else {
          str_append(out, "out[", printer_(offset), "] = P_STORE(", type, ", ", x, ");");
        }
        continue;
      }
      const size_t end = code.find('\x02', i);
      const size_t k = std::stoul(code.substr(i + 1, end - i - 1));
      i = end;
      if (c == '\x01') {
        out += printer_(body_.indices_[k]);
        continue;
      }
      const Load& load = body_.loads_[k];
      const Expr offset = body_.indices_[load.offset];
      if (v > 1 && is_movable(load) && step_of(offset, inner) == 1) {
        const std::string name = str_cat("v", load.input, "_", load.offset, "_", loop);
        const std::string type(memory_type(load.dtype));
        if (vectors.insert({load.input, load.offset}).second) {
          str_append(head, "const Vec<", type, ", ", v, "> ", name, " = *(const Vec<", type, ", ", v, ">*)(in", load.input, " + ", base_text(offset), ");\n");
        }
        str_append(out, "p_read(", name, ".at[k])");
      } else {
        str_append(out, "p_read(in", load.input, "[", printer_(offset), "])");
      }
    }
    if (v == 1) return out;
    const std::string name = body_.spelled_.at(inner.node());
    return str_cat(head, "#pragma unroll\nfor (int k = 0; k < ", v, "; ++k) {\nconst auto ", name, " = b", name, " + k;\n", out, "}\n", tail);
  }

  /// Threads for each row; a row's numbers first, then its elements or its one result.
  void rows(const TensorType& type) {
    const NodeView n(graph_, *graph_[graph_[row_].producer].op, graph_[graph_[row_].producer].args);
    std::vector<Expr> domain;
    uint32_t mask = 0;
    row_domain(n, &domain, &mask);
    body_.set_rows(domain, mask);
    Counters row, col;
    Expr row_count = 1, col_count = 1;
    bool last_folded = false;
    size_t r = 0, c = 0;
    Index symbols;
    for (size_t d = 0; d < domain.size(); ++d) symbols.push_back((mask >> d & 1u) != 0 ? body_.col_at_[c++] : body_.row_at_[r++]);
    for (const uint8_t d : emit::dim_order_of(n.type(n.has("input") ? "input" : "self"))) {
      const bool folded = (mask >> d & 1u) != 0;
      (folded ? col_count : row_count) = (folded ? col_count : row_count) * domain[d];
      if (symbols[d].is_const()) continue;
      Counters& to = folded ? col : row;
      to.symbols.push_back(symbols[d]), to.sizes.push_back(domain[d]);
      last_folded = folded;
    }
    const ir::Range cols = ir::bounds(col_count), row_range = ir::bounds(row_count);
    // Rows whose neighbours lie side by side are summed by a thread each; others by a warp or a block.
    // Neighbouring long rows are summed by the lanes of warps, whose parts are added then.
    beside_ = !last_folded && row_count.is_const() && row_count.value() > 0 && row_count.value() % 32 == 0 && cols.max > 32 && row_range.max < (1 << 20);
    const bool alone = !last_folded && !beside_ && (row_range.max >= 4096 || cols.max <= 32);
    const int64_t team = beside_                  ? (cols.max <= 256    ? 8
                                                     : cols.max <= 2048 ? 16
                                                                        : 32)
                         : alone || cols.max <= 1 ? 1
                         : cols.max <= 512        ? 32
                         : cols.max <= 1024       ? 128
                         : cols.max <= 4096       ? 256
                         : cols.max <= 16384      ? 512
                                                  : 1024;
    // A row of one element has no place of its own: what reads it may stand outside of the loops.
    body_.caches_ = col_count.is_const() && cols.max > 1 && cols.max <= team * 16;
    // What the kernel gives: every element of the rows, or one number a row.
    const bool whole = type.sizes == domain;
    std::vector<Expr> reduced, kept;
    Index at_kept, at_reduced;
    r = 0, c = 0;
    for (size_t d = 0; d < domain.size(); ++d) {
      const bool folded = (mask >> d & 1u) != 0;
      kept.push_back(folded ? Expr(1) : domain[d]);
      at_kept.push_back(folded ? Expr(0) : body_.row_at_[r]);
      if (!folded) reduced.push_back(domain[d]), at_reduced.push_back(body_.row_at_[r++]);
    }
    Index at;
    if (whole) {
      at = body_.whole_index(body_.row_at_);
    } else if (type.sizes == kept) {
      at = at_kept;
    } else if (type.sizes == reduced) {
      at = at_reduced;
    } else {
      body_.fail(row_, "rows that do not fit the result");
      return;
    }
    const bool per_row = !whole;
    body_.scopes_.emplace_back();
    store(at);
    const std::string code = std::move(body_.scopes_.back().code);
    body_.scopes_.clear();
    for (size_t i = 0; i < body_.loads_.size(); ++i) {
      if (code.find(str_cat("\x03", i, "\x02")) != std::string::npos) body_.loads_[i].loop = body_.loops_.size();
    }
    merge(row);
    merge(col);
    int64_t v = last_folded ? lanes(col, per_row ? std::string() : code, !per_row) : 1;
    while (v > 1 && (!cols_fit(cols, team, v) || !loops_step(col, v))) v /= 2;
    if (v == 1 || !col_count.is_const()) v = col_count.is_const() ? v : 1;
    const int64_t alone_threads = row_range.max < 65536 ? 64 : kThreads;
    const std::string tid = beside_ ? "(threadIdx.x >> 5)" : team == 1 ? "0" : team == 32 ? "(threadIdx.x & 31)" : "threadIdx.x";
    const int64_t teams = beside_ ? 32 : team == 1 ? alone_threads : team == 32 ? 4 : 1;
    launch_.threads = beside_ ? 32 * team : team == 1 ? alone_threads : team == 32 ? 128 : team;
    launch_.grid = {ceil_div(row_count, teams), 1, 1};
    const std::string type_i = wide(row_count);
    std::string out = str_cat("const ", type_i, " row = ",
                              teams == 1 ? std::string("blockIdx.x")
                                         : str_cat("(", type_i, ")blockIdx.x * ", teams, " + ",
                                                   beside_     ? "(threadIdx.x & 31)"
                                                   : team == 1 ? "threadIdx.x"
                                                               : "(threadIdx.x >> 5)"),
                              ";\n");
    if (teams > 1 && !beside_) str_append(out, "if (row >= ", printer_(row_count), ") return;\n");
    str_append(out, "const int tid = ", tid, ";\n", counter_lines(row, "row", 1));
    const int64_t room = body_.caches_ ? std::max<int64_t>((cols.max + team * v - 1) / (team * v) * v, 1) : 1;
    out += replaced(body_.cache_declarations_, "P_ROOM", str_cat(room));
    for (size_t l = 0; l < body_.loops_.size(); ++l) {
      LoopText& loop = body_.loops_[l];
      out += indices_only(loop.before);
      out += loop_over(loop.body, col, col_count, cols, team, v, l);
      out += fold_lines(indices_only(loop.after), team);
    }
    if (per_row) {
      str_append(out, team == 1 ? "{\n" : "if (tid == 0) {\n", loop_text(code, Counters{{}, {}, {}}, 1, body_.loops_.size()), "}\n");
    } else {
      out += loop_over(code, col, col_count, cols, team, v, body_.loops_.size());
    }
    finish(out);
  }

  bool cols_fit(ir::Range cols, int64_t team, int64_t v) const { return cols.max >= team * v || v == 2; }
  /// Every loop's operands allow vectors of v; lanes() has looked at all of them already.
  bool loops_step(const Counters&, int64_t) const { return true; }

  std::string indices_only(const std::string& text) { return loop_text(text, Counters{{}, {}, {}}, 1, 0); }

  static std::string replaced(std::string text, std::string_view what, const std::string& by) {
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) text.replace(at, what.size(), by);
    return text;
  }

  /// P_FOLD_ROW(how, type, x): the fold over the team.
  std::string fold_lines(std::string text, int64_t team) {
    for (size_t at = text.find("P_FOLD_ROW("); at != std::string::npos; at = text.find("P_FOLD_ROW(")) {
      const size_t end = text.find(");", at);
      const std::string inside = text.substr(at + 11, end - at - 11);
      const size_t first = inside.find(", "), last = inside.rfind(", ");
      const std::string how = inside.substr(0, first), type = inside.substr(first + 2, last - first - 2), x = inside.substr(last + 2);
      std::string call = x;
      if (beside_) {
        const std::string room = "room" + std::to_string(rooms_++);
        text.insert(text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1, str_cat("__shared__ ", type, " ", room, "[", team * 32, "];\n"));
        at = text.find("P_FOLD_ROW(");
        call = str_cat("p_fold_beside<", how, ", ", team, ">(", x, ", ", room, ")");
      } else if (team == 32) {
        call = str_cat("p_fold_block<", how, ", 32>(", x, ", (", type, "*)0)");
      } else if (team > 32) {
        const std::string room = "room" + std::to_string(rooms_++);
        text.insert(text.rfind('\n', at) == std::string::npos ? 0 : text.rfind('\n', at) + 1, str_cat("__shared__ ", type, " ", room, "[", team / 32, "];\n"));
        at = text.find("P_FOLD_ROW(");
        call = str_cat("p_fold_block<", how, ", ", team, ">(", x, ", ", room, ")");
      }
      text.replace(at, text.find(");", at) + 1 - at, call);
    }
    return text;
  }

  std::string loop_over(const std::string& code, const Counters& col, Expr count, ir::Range range, int64_t team, int64_t v, size_t loop) {
    std::string head;
    const std::string total = printer_(count);
    const bool unrolled = body_.caches_;
    const std::string type = range.max > INT32_MAX / 2 ? "i64" : "int";
    if (unrolled) {
      const int64_t turns = std::max<int64_t>((range.max + team * v - 1) / (team * v), 1);
      str_append(head, "#pragma unroll\nfor (int j = 0; j < ", turns, "; ++j) {\nconst int i = (j * ", team, " + tid)", v > 1 ? str_cat(" * ", v) : "", ";\n");
      if (range.max % (team * v) != 0 || range.max == 0) str_append(head, "if (i >= ", total, ") break;\n");
    } else {
      str_append(head, "for (", type, " i = (", type, ")tid", v > 1 ? str_cat(" * ", v) : "", "; i < ", total, "; i += ", team * v, ") {\n");
    }
    std::string text = loop_text(code, col, v, loop);
    text = replaced(std::move(text), "P_SLOT", v > 1 ? str_cat("j * ", v, " + k") : "j");
    return str_cat(head, counter_lines(col, "i", v), text, "}\n");
  }

  /// Scans and orders along one dim.
  void whole(const NodeView& n, const TensorType& type, size_t output) {
    const std::string_view op = std::string_view(n.op().name).substr(6);
    const TensorType& in = n.type("self");
    const ValueId self = n.value("self");
    const int64_t dim = n.integer("dim", -1);
    const size_t d = in.sizes.empty() ? 0 : static_cast<size_t>(dim < 0 ? dim + in.rank() : dim);
    body_.stem_.emplace_back(op);
    body_.set_rows(in.sizes, in.sizes.empty() ? 0 : 1u << d);
    Counters row;
    Expr rows = 1;
    for (size_t k = 0, r = 0; k < in.sizes.size(); ++k) {
      if (k == d) continue;
      rows = rows * in.sizes[k];
      if (!body_.row_at_[r].is_const()) row.symbols.push_back(body_.row_at_[r]), row.sizes.push_back(in.sizes[k]);
      ++r;
    }
    const Expr count = in.sizes.empty() ? Expr(1) : in.sizes[d];
    const std::string total = printer_(count), kind(memory_type(type.dtype));
    const bool scans = op.starts_with("cum");
    const bool alone = scans && (ir::bounds(rows).max >= 4096 || ir::bounds(count).max <= 32);
    const int64_t team = alone ? 1 : 32, teams = alone ? kThreads : 4;
    const auto place = [&](Expr at_dim) {
      const ViewLayout layout = memory_.layout(value_);
      Index at = body_.whole_index(body_.row_at_);
      if (!at.empty()) at[d] = at_dim;
      Expr offset = layout.offset;
      for (size_t k = 0; k < at.size(); ++k) offset = offset + at[k] * layout.strides[k];
      return body_.index(offset);
    };
    const Expr here = in.sizes.empty() ? Expr(0) : body_.col_at_[0];
    const std::string here_name = here.is_const() ? "c_none" : body_.spelled_.at(here.node());
    const auto element = [&](Expr at_dim) {
      Index at = body_.whole_index(body_.row_at_);
      if (!at.empty()) at[d] = at_dim;
      return body_.element(self, at);
    };
    body_.scopes_.emplace_back();
    if (scans) {
      const DType sum = is_integral(type.dtype, true) ? DType::kInt64 : c_type(type.dtype) == "float" ? DType::kFloat32 : type.dtype;
      const std::string t(c_type(sum)), how = op == "cumsum" ? "FoldSum" : "FoldProd", start = literal(op == "cumsum" ? 0 : 1, sum);
      body_.statement(str_cat(t, " carry = ", start, ";"));
      body_.open(str_cat("for (i64 begin = 0; begin < ", total, "; begin += ", team, ") {"));
      body_.statement(str_cat("const auto ", here_name, " = (int)begin + tid;\n", t, " x = ", start, ";"));
      body_.open(str_cat("if (", here_name, " < ", total, ") {"));
      body_.statement(str_cat("x = ", converted(element(here), in.dtype, sum), ";"));
      body_.close();
      body_.statement(team == 1 ? str_cat("carry = ", how, "::of(carry, x);\nx = carry;")
                                : str_cat("x = ", how, "::of(carry, p_scan_warp<", how, ">(x));\ncarry = p_last(x);"));
      body_.statement(str_cat("if (", here_name, " < ", total, ") out[", place(here), "] = P_STORE(", kind, ", ", converted("x", sum, type.dtype), ");"));
      body_.close();
    } else {
      const bool descending = op == "topk" ? n.boolean("largest") : n.boolean("descending");
      const Expr kept = op == "topk" ? n.expr("k") : count;
      body_.open(str_cat("for (int ", here_name, " = tid; ", here_name, " < ", total, "; ", here_name, " += ", team, ") {"));
      const std::string x = element(here);
      body_.statement("int rank = 0;");
      const Expr other = body_.counter("other", count);
      body_.open(str_cat("for (int other = 0; other < ", total, "; ++other) {"));
      const std::string y = element(other);
      body_.statement(str_cat("rank += p_before<", descending, ">(", y, ", other, ", x, ", ", here_name, ");"));
      body_.close();
      const Expr rank = body_.loaded("rank", kept);
      body_.statement(
          str_cat("if (rank < ", printer_(kept), ") out[", place(rank), "] = P_STORE(", kind, ", ", output == 0 ? x : str_cat("(i64)", here_name), ");"));
      body_.close();
    }
    const std::string code = std::move(body_.scopes_.back().code);
    body_.scopes_.clear();
    merge(row);
    launch_.threads = team == 1 ? kThreads : 128;
    launch_.grid = {ceil_div(rows, teams), 1, 1};
    const std::string type_i = wide(rows);
    std::string out =
        str_cat("const ", type_i, " row = (", type_i, ")blockIdx.x * ", teams, " + ", team == 1 ? "threadIdx.x" : "(threadIdx.x >> 5)",
                ";\nif (row >= ", printer_(rows), ") return;\nconst int tid = ", team == 1 ? "0" : "(threadIdx.x & 31)", ";\n", counter_lines(row, "row", 1));
    finish(out + loop_text(code, Counters{{}, {}, {}}, 1, 0));
  }

  /// Writes of a part: one thread for each element that is written.
  void update(const NodeView& n) {
    const std::string_view op = std::string_view(n.op().name).substr(n.op().name.find(':') + 2);
    const ValueId self = n.value("self");
    launch_.self = self;
    const TensorType type = graph_[self].type;
    const ViewLayout layout = memory_.layout(value_);
    body_.stem_.emplace_back(op);
    std::vector<Expr> sizes;
    const auto put = [&](const Index& where, const std::string& x, std::string_view fold = {}) {
      Expr offset = layout.offset;
      for (size_t d = 0; d < where.size(); ++d) offset = offset + where[d] * layout.strides[d];
      const std::string place = body_.index(offset), kind(memory_type(type.dtype));
      const bool adds = fold == "FoldSum" && (type.dtype == DType::kFloat32 || type.dtype == DType::kFloat64 || type.dtype == DType::kInt32);
      body_.statement(adds           ? str_cat("atomicAdd(&out[", place, "], ", x, ");")
                      : fold.empty() ? str_cat("out[", place, "] = P_STORE(", kind, ", ", x, ");")
                                     : str_cat("p_atomic<", fold, ">(&out[", place, "], (", c_type(type.dtype), ")", x, ");"));
    };
    const auto source = [&](std::string_view name, const Index& at) {
      if (!n.is_value(name)) return literal(n.expr(name), type.dtype, true);
      return converted(body_.element(n.value(name), at), n.type(name).dtype, type.dtype);
    };
    const size_t rank = type.sizes.size();
    if (op == "index_put") {
      const std::vector<ValueId> indices = n.values("indices");
      size_t first = rank, last = 0, count = 0;
      std::vector<Expr> among_sizes;
      for (size_t d = 0; d < indices.size(); ++d) {
        if (!indices[d].valid()) continue;
        first = std::min(first, d), last = d, ++count;
        const std::vector<Expr> before = among_sizes;
        if (!ops::broadcast_exprs(before, graph_[indices[d]].type.sizes, &among_sizes).ok()) {
          body_.fail(value_, "indices that do not fit each other");
          return;
        }
      }
      const size_t place = last - first + 1 == count ? first : 0;
      std::vector<Expr> rest;
      for (size_t d = 0; d < rank; ++d) {
        if (d >= indices.size() || !indices[d].valid()) rest.push_back(type.sizes[d]);
      }
      sizes.assign(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(place));
      sizes.insert(sizes.end(), among_sizes.begin(), among_sizes.end());
      sizes.insert(sizes.end(), rest.begin() + static_cast<std::ptrdiff_t>(place), rest.end());
      points(sizes, [&](const Index& at) {
        const Index among(at.begin() + static_cast<std::ptrdiff_t>(place), at.begin() + static_cast<std::ptrdiff_t>(place + among_sizes.size()));
        Index where;
        size_t next = 0;
        for (size_t d = 0; d < rank; ++d) {
          if (d < indices.size() && indices[d].valid()) {
            where.push_back(body_.position(indices[d], broadcast_index(graph_[indices[d]].type.sizes, among), type.sizes[d]));
            continue;
          }
          if (next == place) next += among_sizes.size();
          where.push_back(at[next++]);
        }
        put(where, source("values", broadcast_index(n.type("values").sizes, at)), n.boolean("accumulate") ? "FoldSum" : "");
      });
      return;
    }
    if (op == "as_strided_scatter") {  // places count in self's row-major elements
      const std::vector<Expr> stride = n.exprs("stride");
      points(n.type("src").sizes, [&](const Index& at) {
        Expr offset = n.is_none("storage_offset") ? Expr(0) : n.expr("storage_offset");
        for (size_t d = 0; d < at.size(); ++d) offset = offset + at[d] * stride[d];
        put(split_index(type.sizes, offset), source("src", at));
      });
      return;
    }
    const int64_t dim = n.integer("dim");
    const size_t d = static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(std::max<size_t>(rank, 1)) : dim);
    const bool along = op.starts_with("index_");
    const std::string_view from = op == "scatter.value" ? "value" : along ? "source" : "src";
    sizes = along ? n.type(from).sizes : n.type("index").sizes;
    points(sizes, [&](const Index& at) {
      Index where = at;
      if (rank > 0) {
        const ValueId index = n.value("index");
        where[d] = body_.position(index, along ? broadcast_index(graph_[index].type.sizes, {at[d]}) : at, type.sizes[d]);
      }
      std::string x = source(from, at);
      if (op == "index_add" && n.number("alpha", 1) != 1) x = str_cat("p_mul(", x, ", ", literal(n.expr("alpha"), type.dtype), ")");
      const std::string_view reduce = op == "scatter_reduce.two" ? n.text("reduce") : op == "scatter_add" || op == "index_add" ? "sum" : "";
      put(where, x, reduce == "sum" ? "FoldSum" : reduce == "prod" ? "FoldProd" : reduce == "amax" ? "FoldMax" : reduce == "amin" ? "FoldMin" : "");
    });
  }

  void finish(const std::string& code) {
    std::string stem;
    for (const std::string& part : body_.stem_) str_append(stem, stem.empty() ? "" : "_", part);
    launch_.stem = stem.empty() ? "copy" : stem;
    launch_.inputs = body_.inputs_;
    std::string head = "PTERON_KERNEL @NAME@(";
    const bool is_update = launch_.self.valid();
    const std::string type(memory_type(graph_[value_].type.dtype));
    std::vector<std::string> parameters;
    if (is_update) parameters.push_back(str_cat(type, "* out"));
    for (size_t i = 0; i < body_.inputs_.size(); ++i) parameters.push_back(str_cat("const ", memory_type(graph_[body_.inputs_[i]].type.dtype), "* in", i));
    if (!is_update) parameters.push_back(str_cat(type, "* out"));
    for (size_t i = 0; i < body_.values_.size(); ++i) parameters.push_back(str_cat("i64 s", i));
    for (size_t i = 0; i < parameters.size(); ++i) str_append(head, i == 0 ? "" : ", ", parameters[i]);
    launch_.values = body_.values_;
    launch_.body = str_cat(head, ") {\nPTERON_BEGIN();\n", code, "}\n");
    constexpr std::string_view kPlaceholders[] = {"\x01", "\x03", "\x05", "P_SLOT", "P_ROOM", "P_FOLD_ROW"};
    for (const std::string_view placeholder : kPlaceholders) {
      if (launch_.body.find(placeholder) != std::string::npos) body_.fail(ValueId(), str_cat("a placeholder is left in the text of ", launch_.stem));
    }
  }

  ir::Graph& graph_;
  ValueId value_, row_;
  Body body_;
  const Memory& memory_;
  Launch launch_;
  Printer printer_{body_};
  std::set<uint32_t> seen_;
  size_t rooms_ = 0;
  bool beside_ = false;  ///< lanes of a warp have neighbouring rows, warps the columns
};

}  // namespace

Launch lower(ir::Graph& graph, ValueId value, const Memory& memory) { return KernelWriter(graph, value, memory).run(); }

}  // namespace pteron::cuda
