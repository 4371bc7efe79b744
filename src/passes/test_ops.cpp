// The test catalog and a printer for expectations.
#include "passes/test_ops.h"

#include "base/check.h"
#include "base/str_cat.h"
#include "passes/alias_ops.h"

namespace pteron::passes::test {

using ir::Arg;
using ir::Expr;
using ir::InferContext;
using ir::NodeView;
using ir::ValueId;
using ir::ViewLayout;

namespace {

Status like_self(InferContext& c) {
  c.add(c.type(std::get<ValueId>(c.args()[0])));
  return ok_status();
}
Status infer_cast(InferContext& c) {
  c.add(c.dtype("dtype", c.type("self").dtype), c.type("self").sizes);
  return ok_status();
}
Status infer_sizes(InferContext& c) {
  c.add(c.type("self").dtype, c.exprs("size"));
  return ok_status();
}
std::vector<Expr> sliced(const NodeView& c) {
  std::vector<Expr> sizes = c.type("self").sizes;
  sizes[static_cast<size_t>(c.integer("dim"))] = c.expr("end") - c.expr("start");
  return sizes;
}
Status infer_slice(InferContext& c) {
  c.add(c.type("self").dtype, sliced(c));
  return ok_status();
}
Status infer_select(InferContext& c) {
  std::vector<Expr> sizes = c.type("self").sizes;
  sizes.erase(sizes.begin() + c.integer("dim"));
  c.add(c.type("self").dtype, sizes);
  return ok_status();
}
Status infer_transpose(InferContext& c) {
  std::vector<Expr> sizes = c.type("self").sizes;
  std::swap(sizes[static_cast<size_t>(c.integer("dim0"))], sizes[static_cast<size_t>(c.integer("dim1"))]);
  c.add(c.type("self").dtype, sizes);
  return ok_status();
}
Status infer_permute(InferContext& c) {
  std::vector<Expr> sizes;
  for (const int64_t dim : c.integers("dims")) sizes.push_back(c.type("self").sizes[static_cast<size_t>(dim)]);
  c.add(c.type("self").dtype, sizes);
  return ok_status();
}
Status infer_unsqueeze(InferContext& c) {
  std::vector<Expr> sizes = c.type("self").sizes;
  sizes.insert(sizes.begin() + c.integer("dim"), Expr(1));
  c.add(c.type("self").dtype, sizes);
  return ok_status();
}
Status infer_split(InferContext& c) {
  for (int k = 0; k < 2; ++k) {
    std::vector<Expr> sizes = c.type("self").sizes;
    sizes[static_cast<size_t>(c.integer("dim"))] = c.expr("split_size");
    c.add(c.type("self").dtype, sizes);
  }
  return ok_status();
}
Status infer_item(InferContext& c) {
  c.add_scalar(c.exprs().fresh_symbol("u", {}));
  return ok_status();
}
bool any_view(const NodeView&, const ViewLayout& input, size_t, ViewLayout* out) {
  *out = input;
  return true;
}
std::vector<ValueId> double_it(ir::Builder& b, const NodeView& node) { return {b.op("aten::add.Tensor", {node.arg("self"), node.arg("self")})}; }
std::vector<ValueId> endless(ir::Builder& b, const NodeView& node) { return {b.op("test::endless", {node.arg("self")})}; }

const ir::OpDef kRows[] = {
    {.schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", .infer = like_self, .kernel = "aten::add.out"},
    {.schema = "aten::add.Scalar(Tensor self, Scalar other, Scalar alpha=1) -> Tensor", .infer = like_self, .kernel = "aten::add.Scalar_out"},
    {.schema = "aten::mul.Scalar(Tensor self, Scalar other) -> Tensor", .infer = like_self, .kernel = "aten::mul.Scalar_out"},
    {.schema = "aten::conv2d(Tensor input, Tensor weight, Tensor? bias=None, SymInt[2] stride=1) -> Tensor", .infer = like_self},
    {.schema = "aten::batch_norm(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled) -> Tensor",
     .infer = like_self},
    {.schema = "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)", .infer = infer_permute, .view = any_view},
    {.schema = "aten::mul.Tensor(Tensor self, Tensor other) -> Tensor", .infer = like_self, .kernel = "aten::mul.out"},
    {.schema = "aten::copy(Tensor self, Tensor src, bool non_blocking=False) -> Tensor", .infer = like_self, .kernel = "aten::copy.out"},
    {.schema = "aten::relu(Tensor self) -> Tensor", .infer = like_self, .kernel = "aten::relu.out"},
    {.schema = "aten::clone(Tensor self, *, MemoryFormat? memory_format=None) -> Tensor", .infer = like_self, .kernel = "aten::clone.out"},
    {.schema = "aten::detach(Tensor(a) self) -> Tensor(a)", .infer = like_self, .flags = ir::kAlias},
    {.schema = "aten::_to_copy(Tensor self, *, ScalarType? dtype=None) -> Tensor", .infer = infer_cast, .kernel = "aten::_to_copy.out"},
    {.schema = "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", .infer = infer_sizes, .view = any_view},
    {.schema = "aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)", .infer = infer_sizes, .view = any_view},
    {.schema = "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)", .infer = infer_slice, .view = any_view},
    {.schema = "aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)", .infer = infer_select, .view = any_view},
    {.schema = "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)", .infer = infer_transpose, .view = any_view},
    {.schema = "aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)", .infer = infer_unsqueeze, .view = any_view},
    {.schema = "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]", .infer = infer_split, .view = any_view},
    {.schema = "aten::slice_scatter(Tensor self, Tensor src, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor", .infer = like_self},
    {.schema = "aten::select_scatter(Tensor self, Tensor src, int dim, SymInt index) -> Tensor", .infer = like_self},
    {.schema = "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", .infer = nullptr},
    {.schema = "aten::item(Tensor self) -> Scalar", .infer = infer_item, .kernel = "prim"},
    {.schema = "test::double(Tensor self) -> Tensor", .infer = like_self, .decompose = double_it},
    {.schema = "test::endless(Tensor self) -> Tensor", .infer = like_self, .decompose = endless},
};

}  // namespace

ir::Catalog make_catalog() {
  ir::Catalog catalog;
  PTERON_CHECK(catalog.add(kRows).ok());
  return catalog;
}

namespace {
ir::Graph& add_graph(ir::Program& program) {
  program.methods.push_back(std::make_unique<ir::Method>(program));
  return program.methods.back()->graph;
}
}  // namespace

TestGraph::TestGraph() : graph(add_graph(program)), builder(graph, catalog, graph.order) {}

ValueId TestGraph::input(std::string_view name, std::vector<Expr> sizes, DType dtype) {
  const ValueId id = graph.add_tensor(ir::contiguous_type(dtype, std::move(sizes)), name);
  graph.inputs.push_back({std::string(name), id, {}});
  return id;
}

ValueId TestGraph::buffer(std::string_view name, std::vector<int64_t> sizes) {
  int64_t numel = 1;
  for (const int64_t s : sizes) numel *= s;
  const std::vector<float> data(static_cast<size_t>(numel), 0.0f);
  return builder.constant(DType::kFloat32, std::move(sizes), std::as_bytes(std::span(data)), name);
}

ValueId TestGraph::in_place(std::string_view name, std::vector<Arg> args) {
  ir::Node node;
  node.op = in_place_op(program, catalog, name);
  PTERON_CHECK(node.op != nullptr);
  const ValueId target = std::get<ValueId>(args[0]);
  auto complete = ir::complete_args(*node.op, std::move(args), program.exprs);
  PTERON_CHECK(complete.ok());
  node.args = std::move(complete).value();
  ir::TensorType type = graph[target].type;
  if (is_metadata_write(*node.op) && node.op->functional->def.infer != nullptr) {
    InferContext context(graph, *node.op->functional, node.args);
    PTERON_CHECK(node.op->functional->def.infer(context).ok());
    type = context.results[0].type;
  }
  node.outputs = {graph.add_tensor(type, "w")};
  node.name = graph[node.outputs[0]].name;
  const ValueId result = node.outputs[0];
  graph.order.push_back(graph.add_node(std::move(node)));
  return result;
}

std::string TestGraph::text() const {
  std::string out;
  for (const ir::NodeId id : graph.order) {
    const ir::Node& node = graph[id];
    str_append(out, std::string_view(node.op->name).substr(node.op->name.find(':') + 2), "(");
    std::string args;
    for (const Arg& arg : node.args) {
      ir::for_each_value(arg, std::function<void(ValueId)>([&](ValueId v) { str_append(args, args.empty() ? "" : ", ", graph[v].name); }));
    }
    str_append(out, args, ") ->");
    for (const ValueId v : node.outputs) str_append(out, " ", graph[v].name);
    out += "\n";
  }
  return out;
}

}  // namespace pteron::passes::test
