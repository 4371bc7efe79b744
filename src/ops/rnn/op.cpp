// Recurrent networks for the compiler: layers and directions become one product for all inputs and one scan over time each
// (pteron::lstm_scan, gru_scan, rnn_scan); where a profile lacks the scans, steps are unrolled for a static length.
#include "base/str_cat.h"
#include "ops/compose.h"

namespace pteron::ops::rnn {
namespace {

using ir::Builder;
using ir::OpDef;

enum class Kind : uint8_t { kLstm, kGru, kTanh, kRelu };

/// Weights of one direction of one layer; biases and projection may be invalid.
struct Weights {
  ValueId input, hidden, input_bias, hidden_bias, projection;
};

/// State of one direction: c is for LSTM only.
struct State {
  ValueId h, c;
};

/// linear with an optional bias.
ValueId linear(Compose& f, ValueId x, ValueId w, ValueId bias) {
  if (!bias.valid()) return f.b.op("aten::linear", {x, w});
  return f.b.op("aten::linear", {x, w, bias});
}

ValueId gate(Compose& f, ValueId gates, int index, Expr width) { return f.slice(gates, -1, width * Expr(index), width * Expr(index + 1)); }

/// One step from the products of input and state. `hidden` has the state's product with its bias; for LSTM and plain RNN only the sum counts.
State step(Compose& f, Kind kind, ValueId from_input, ValueId from_hidden, State s, ValueId projection) {
  if (kind == Kind::kTanh || kind == Kind::kRelu) {
    return {f.unary(kind == Kind::kTanh ? "aten::tanh" : "aten::relu", f.add(from_input, from_hidden)), {}};
  }
  if (kind == Kind::kGru) {
    const Expr width = f.size(s.h, -1);
    const ValueId reset = f.unary("aten::sigmoid", f.add(gate(f, from_input, 0, width), gate(f, from_hidden, 0, width)));
    const ValueId keep = f.unary("aten::sigmoid", f.add(gate(f, from_input, 1, width), gate(f, from_hidden, 1, width)));
    const ValueId fresh = f.unary("aten::tanh", f.add(gate(f, from_input, 2, width), f.mul(reset, gate(f, from_hidden, 2, width))));
    return {f.add(f.mul(f.sub(s.h, fresh), keep), fresh), {}};
  }
  const Expr width = f.size(s.c, -1);
  const ValueId gates = f.add(from_input, from_hidden);
  const ValueId in = f.unary("aten::sigmoid", gate(f, gates, 0, width)), forget = f.unary("aten::sigmoid", gate(f, gates, 1, width));
  const ValueId cell = f.unary("aten::tanh", gate(f, gates, 2, width)), out = f.unary("aten::sigmoid", gate(f, gates, 3, width));
  const ValueId c = f.add(f.mul(forget, s.c), f.mul(in, cell));
  ValueId h = f.mul(out, f.unary("aten::tanh", c));
  if (projection.valid()) h = linear(f, h, projection, {});
  return {h, c};
}

/// All steps of one direction, unrolled. Returns the stacked outputs and the last state; invalid if the length is symbolic.
ValueId unroll(Compose& f, Kind kind, ValueId from_input, const Weights& w, bool reverse, State* s) {
  const Expr length = f.size(from_input, 0);
  if (!length.is_const()) {
    f.b.fail(Status(Code::kUnsupported, str_cat("a recurrent network over the dynamic length ", ir::to_text(length), " needs the kernels of the pteron profile, which compute in one dtype (not inside autocast)")));
    return {};
  }
  std::vector<ValueId> outs(static_cast<size_t>(length.value()));
  for (int64_t i = 0; i < length.value() && f.b.status().ok(); ++i) {
    const int64_t t = reverse ? length.value() - 1 - i : i;
    *s = step(f, kind, f.select(from_input, 0, Expr(t)), linear(f, s->h, w.hidden, w.hidden_bias), *s, w.projection);
    outs[static_cast<size_t>(t)] = s->h;
  }
  return f.b.status().ok() ? f.stack(outs, 0) : ValueId{};
}

/// One direction of one layer over x [T, B, in].
ValueId direction(Compose& f, Kind kind, ValueId x, Weights w, bool reverse, State* s) {
  Builder& b = f.b;
  const std::string_view name = kind == Kind::kLstm ? "pteron::lstm_scan" : kind == Kind::kGru ? "pteron::gru_scan" : "pteron::rnn_scan";
  const bool scans = b.has_kernel == nullptr || b.has_kernel(str_cat(name, ".out"));
  if (scans && kind != Kind::kGru && w.input_bias.valid() && w.hidden_bias.valid()) {
    // Both biases only ever appear as their sum.
    w.input_bias = f.add(w.input_bias, w.hidden_bias);
    w.hidden_bias = {};
  }
  const ValueId from_input = linear(f, x, w.input, w.input_bias);
  if (!scans) return unroll(f, kind, from_input, w, reverse, s);
  ir::Arg bias, projection;
  if (w.hidden_bias.valid()) bias = w.hidden_bias;
  if (w.projection.valid()) projection = w.projection;
  std::vector<ValueId> made;
  if (kind == Kind::kLstm) {
    made = b.ops(name, {from_input, s->h, s->c, w.hidden, projection, b.boolean(reverse)});
  } else if (kind == Kind::kGru) {
    made = b.ops(name, {from_input, s->h, w.hidden, bias, b.boolean(reverse)});
  } else {
    made = b.ops(name, {from_input, s->h, w.hidden, b.boolean(kind == Kind::kRelu), b.boolean(reverse)});
  }
  if (made.empty()) return {};
  s->h = made[1];
  if (kind == Kind::kLstm) s->c = made[2];
  return made[0];
}

bool projected(const NodeView& n) {
  const std::vector<ValueId> hx = n.values("hx");
  return hx.size() == 2 && !(n.type(hx[0]).sizes.back() == n.type(hx[1]).sizes.back());
}

template <Kind kind>
std::vector<ValueId> decompose_layers(Builder& b, const NodeView& n) {
  Compose f(b);
  const std::vector<ValueId> params = n.values("params"), hx = n.values("hx");
  const bool biases = n.boolean("has_biases"), both = n.boolean("bidirectional"), batch_first = n.boolean("batch_first");
  const bool projection = kind == Kind::kLstm && projected(n);
  const size_t each = (biases ? 4u : 2u) + (projection ? 1u : 0u);
  const auto layers = static_cast<size_t>(n.integer("num_layers"));
  const size_t directions = both ? 2 : 1;
  if (params.size() != layers * directions * each) {
    b.fail(Status(Code::kInvalidInput, str_cat(n.op().name, ": expected ", layers * directions * each, " weights, found ", params.size())));
    return {};
  }
  ValueId x = n.value("input");
  if (batch_first) x = f.transpose(x, 0, 1);
  std::vector<ValueId> last_h, last_c;
  for (size_t layer = 0; layer < layers; ++layer) {
    std::vector<ValueId> outs;
    for (size_t d = 0; d < directions; ++d) {
      const size_t index = layer * directions + d;
      const ValueId* p = params.data() + index * each;
      Weights w{p[0], p[1], biases ? p[2] : ValueId{}, biases ? p[3] : ValueId{}, projection ? p[each - 1] : ValueId{}};
      State s{f.select(hx[0], 0, Expr(static_cast<int64_t>(index))), {}};
      if (kind == Kind::kLstm) s.c = f.select(hx[1], 0, Expr(static_cast<int64_t>(index)));
      outs.push_back(direction(f, kind, x, w, d == 1, &s));
      last_h.push_back(s.h);
      last_c.push_back(s.c);
    }
    if (!b.status().ok()) return {};
    x = f.cat(outs, 2);
  }
  if (batch_first) x = f.transpose(x, 0, 1);
  std::vector<ValueId> out{x, f.stack(last_h, 0)};
  if (kind == Kind::kLstm) out.push_back(f.stack(last_c, 0));
  return out;
}

template <Kind kind>
Status infer_layers(InferContext& c) {
  const TensorType x = c.type("input");
  const std::vector<ValueId> hx = c.values("hx");
  if (x.rank() != 3 || hx.size() != (kind == Kind::kLstm ? 2u : 1u)) {
    return Status(Code::kInvalidInput, str_cat("expected an input of rank 3, found ", shape_text(x.sizes), " with ", hx.size(), " states"));
  }
  if (c.boolean("train") && c.number("dropout") > 0 && c.integer("num_layers") > 1) {
    return Status(Code::kUnsupported, "dropout between layers in training form gives random results");
  }
  const TensorType h = c.type(hx[0]);
  std::vector<Expr> sizes = x.sizes;
  sizes[2] = h.sizes.back() * Expr(c.boolean("bidirectional") ? 2 : 1);
  const TensorType cell = c.type(hx.back());
  c.add(x.dtype, std::move(sizes));
  c.add(x.dtype, h.sizes);
  if (kind == Kind::kLstm) c.add(x.dtype, cell.sizes);
  return ok_status();
}

template <Kind kind>
std::vector<ValueId> decompose_cell(Builder& b, const NodeView& n) {
  Compose f(b);
  const std::vector<ValueId> hx = n.values("hx");
  const ValueId from_input = linear(f, n.value("input"), n.value("w_ih"), n.value("b_ih"));
  const ValueId from_hidden = linear(f, hx[0], n.value("w_hh"), n.value("b_hh"));
  const State s = step(f, kind, from_input, from_hidden, {hx[0], kind == Kind::kLstm ? hx[1] : ValueId{}}, {});
  if (kind == Kind::kLstm) return {s.h, s.c};
  return {s.h};
}

Status infer_cell(InferContext& c) {
  for (const ValueId v : c.values("hx")) {
    const TensorType t = c.type(v);
    c.add(t.dtype, t.sizes);
  }
  return ok_status();
}

Status infer_scan(InferContext& c) {
  const TensorType gates = c.type("gates"), h = c.type("h");
  if (gates.rank() != 3 || h.rank() != 2) return Status(Code::kInvalidInput, str_cat("gates ", shape_text(gates.sizes), " and state ", shape_text(h.sizes)));
  c.add(h.dtype, {gates.sizes[0], h.sizes[0], h.sizes[1]});
  c.add(h.dtype, h.sizes);
  if (c.has("c")) c.add(h.dtype, c.type("c").sizes);
  return ok_status();
}

constexpr OpDef kTable[] = {
    {.schema = "aten::lstm.input(Tensor input, Tensor[] hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
               "bool bidirectional, bool batch_first) -> (Tensor, Tensor, Tensor)",
     .infer = infer_layers<Kind::kLstm>, .decompose = decompose_layers<Kind::kLstm>},
    {.schema = "aten::gru.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
               "bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
     .infer = infer_layers<Kind::kGru>, .decompose = decompose_layers<Kind::kGru>},
    {.schema = "aten::rnn_tanh.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
               "bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
     .infer = infer_layers<Kind::kTanh>, .decompose = decompose_layers<Kind::kTanh>},
    {.schema = "aten::rnn_relu.input(Tensor input, Tensor hx, Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, "
               "bool bidirectional, bool batch_first) -> (Tensor, Tensor)",
     .infer = infer_layers<Kind::kRelu>, .decompose = decompose_layers<Kind::kRelu>},
    {.schema = "aten::lstm_cell(Tensor input, Tensor[] hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> (Tensor, Tensor)",
     .infer = infer_cell, .decompose = decompose_cell<Kind::kLstm>},
    {.schema = "aten::gru_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
     .infer = infer_cell, .decompose = decompose_cell<Kind::kGru>},
    {.schema = "aten::rnn_tanh_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
     .infer = infer_cell, .decompose = decompose_cell<Kind::kTanh>},
    {.schema = "aten::rnn_relu_cell(Tensor input, Tensor hx, Tensor w_ih, Tensor w_hh, Tensor? b_ih=None, Tensor? b_hh=None) -> Tensor",
     .infer = infer_cell, .decompose = decompose_cell<Kind::kRelu>},
    {.schema = "pteron::lstm_scan(Tensor gates, Tensor h, Tensor c, Tensor weight, Tensor? projection, bool reverse) -> (Tensor, Tensor, Tensor)",
     .infer = infer_scan, .kernel = "pteron::lstm_scan.out"},
    {.schema = "pteron::gru_scan(Tensor gates, Tensor h, Tensor weight, Tensor? bias, bool reverse) -> (Tensor, Tensor)",
     .infer = infer_scan, .kernel = "pteron::gru_scan.out"},
    {.schema = "pteron::rnn_scan(Tensor gates, Tensor h, Tensor weight, bool relu, bool reverse) -> (Tensor, Tensor)",
     .infer = infer_scan, .kernel = "pteron::rnn_scan.out"},
};

}  // namespace

extern const std::span<const OpDef> kOps;
const std::span<const OpDef> kOps = kTable;

}  // namespace pteron::ops::rnn
