// Text form and verifier: what is printed is read back, what is damaged is refused with a place.
#include "ir/text.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "ir/builder.h"
#include "ir/verify.h"

namespace pteron::ir {
namespace {

Status infer_like_self(InferContext& c) {
  c.add(c.type("self"));
  return ok_status();
}

Status infer_rows(InferContext& c) {
  c.add(DType::kInt64, {c.exprs().fresh_symbol("u", {0, 8}), 1});
  return ok_status();
}

constexpr OpDef kRows[] = {
    {.schema = "aten::relu(Tensor self) -> Tensor", .infer = infer_like_self, .kernel = "aten::relu.out"},
    {.schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor", .infer = infer_like_self, .kernel = "aten::add.out"},
    {.schema = "aten::cat(Tensor[] tensors, int dim=0) -> Tensor", .kernel = "aten::cat.out"},
    {.schema = "aten::topk(Tensor self, SymInt k, int dim=-1) -> (Tensor values, Tensor indices)", .kernel = "aten::topk.values"},
    {.schema = "aten::nonzero(Tensor self) -> Tensor", .infer = infer_rows, .kernel = "aten::nonzero.out"},
    {.schema = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor", .kernel = "aten::index.Tensor_out"},
    {.schema = "aten::to.dtype(Tensor self, ScalarType dtype, *, MemoryFormat? memory_format=None, Device? device=None, Layout? layout=None, str? mode=None, float? eps=None) -> Tensor"},
    {.schema = "aten::item(Tensor self) -> Scalar"},
    {.schema = "aten::check(Tensor self) -> ()", .flags = kEffect},
    {.schema = "aten::view_copy(Tensor self, SymInt[] size) -> Tensor"},
    {.schema = "higher_order::cond(Scalar pred, Tensor[] operands) -> Tensor[]", .flags = kRegion},
};

Catalog make_catalog() {
  Catalog catalog;
  EXPECT_TRUE(catalog.add(kRows).ok());
  return catalog;
}

/// Parses, prints, and expects the same text.
void expect_round_trip(const std::string& text) {
  const Catalog catalog = make_catalog();
  Program program;
  const Status status = parse(text, catalog, program);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(print(program), text);
}

/// Parses and prints; the second text must be a fixed point.
std::string normalise(const std::string& text) {
  const Catalog catalog = make_catalog();
  Program program;
  const Status status = parse(text, catalog, program);
  EXPECT_TRUE(status.ok()) << status.message();
  const std::string printed = print(program);
  expect_round_trip(printed);
  return printed;
}

std::string parse_error(const std::string& text) {
  const Catalog catalog = make_catalog();
  Program program;
  const Status status = parse(text, catalog, program);
  return status.ok() ? "no error" : std::string(status.message());
}

std::string verify_error(const std::string& text, Dialect dialect) {
  const Catalog catalog = make_catalog();
  Program program;
  const Status parsed = parse(text, catalog, program);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  const Status status = verify(program, dialect);
  return status.ok() ? "no error" : std::string(status.message());
}

TEST(Text, EveryKindOfThing) {
  expect_round_trip(
      "symbol s77: int in [2,64]\n"
      "symbol n: int in [-inf,inf]\n"
      "symbol zuf0: float\n"
      "const 0: f32[2,2]{1,2} \"fc.weight\" parameter = {1.0,-2.5,inf,nan}\n"
      "const 1: i64[] \"steps\" buffer mutable = {-9223372036854775808}\n"
      "const 2: bf16[32] \"big\" = hash 0123456789abcdef0123456789abcdef\n"
      "const 3: c64[1] = {1.0,-0.5}\n"
      "const 4: f8e5m2[2] = {60,188}\n"
      "const 5: f32[1000000000] \"fake\" parameter = lazy\n"
      "const 6: u64[1] = {18446744073709551615}\n"
      "const 7: bool[2] = {true,false}\n"
      "const 8: f32[0,3] \"none\" = {}\n"
      "method \"forward\"\n"
      "  inputs \"[1, \\\"x\\\"]\"\n"
      "  outputs \"null\"\n"
      "graph(x: f32[2*s77,3]{1,2*s77}, %s77: f32[s77] as \"user name\", k = 5, t = \"text\\n\", m: scalar(n)) {\n"
      "  state cache: i64[] \"steps\" = const 1\n"
      "  w = const 0\n"
      "  b = const 2 on cuda:1\n"
      "  y: f32[2*s77,3] = aten::add.Tensor(x, 2, 1.5) as \"add_1\" at \"net.py:42\" in \"layers.0\"\n"
      "  a: f32[s77,3], i: i64[s77,3] = aten::topk(y, s77, -1)\n"
      "  q: f32[2] = aten::index.Tensor(w, [none, i])\n"
      "  h: f16[1] = aten::to.dtype(q, dtype:f16, format:channels_last, device:cuda:0, layout:strided, \"m\", 0.1)\n"
      "  v: scalar(zuf0) = aten::item(h)\n"
      "  aten::check(h)\n"
      "  g: none, %\"odd name\": f32[3]@cuda:0 = mylib::thing.special(b, [], [1,s77//2], complex(1.0,nan), true, none)\n"
      "  p: f32[1] = aten::add_.Tensor(h, cache, 1)\n"
      "  r: f32[1] = higher_order::cond(s77<4, [p]) regions [\n"
      "    graph(x: f32[1]) {\n"
      "      y: f32[1] = aten::relu(x)\n"
      "      return y\n"
      "    },\n"
      "    graph(x: f32[1]) {\n"
      "      return x\n"
      "    }\n"
      "  ]\n"
      "  write state \"steps\" = r\n"
      "  write input 0 = y\n"
      "  return r, s77, -0.0, \"s\", none, %s77, max(4,s77)\n"
      "}\n");
}

TEST(Text, ShortFormIsCompleted) {
  const std::string printed = normalise(
      "# comment\n"
      "graph(x: f32[1,3]) {\n"
      "  w, b = const f32[1,3]\n"
      "  y = aten::add.Tensor(x, w)  # alpha is the default\n"
      "  _ = aten::relu(b)\n"
      "  return y\n"
      "}\n");
  EXPECT_NE(printed.find("y: f32[1,3] = aten::add.Tensor(x, w, 1)"), std::string::npos) << printed;
  EXPECT_NE(printed.find("const 1: f32[1,3] = {-0.75,0.125,-0.625}"), std::string::npos) << printed;
  EXPECT_NE(printed.find("relu: f32[1,3] = aten::relu(b)"), std::string::npos) << printed;
}

TEST(Text, ConstantsKeepBytesAndStrides) {
  const Catalog catalog = make_catalog();
  Program program;
  ASSERT_TRUE(parse("const 0: f32[2,3]{1,2} \"w\" = {1.0,2.0,3.0,4.0,5.0,6.0}\n", catalog, program).ok());
  const Constant& constant = program.constants[0];
  float bytes[6];
  std::memcpy(bytes, constant.data, sizeof bytes);
  EXPECT_EQ(bytes[0], 1);
  EXPECT_EQ(bytes[1], 4);  // element [1,0] lies behind [0,0]
  EXPECT_EQ(bytes[2], 2);
}

TEST(Text, GraphAloneDefinesItsConstants) {
  const Catalog catalog = make_catalog();
  Program program;
  ASSERT_TRUE(parse("graph(x: f32[2]) { w = const f32[2] \"w\" = {1.0,2.0}\n y = aten::add.Tensor(x, w)\n return y }", catalog, program).ok());
  const std::string text = print(program.methods[0]->graph);
  EXPECT_EQ(text,
            "graph(x: f32[2]) {\n  w = const f32[2] \"w\" = {1.0,2.0}\n  y: f32[2] = aten::add.Tensor(x, w, 1)\n  return y\n}\n");
  Program again;
  ASSERT_TRUE(parse(text, catalog, again).ok());
  EXPECT_EQ(print(again.methods[0]->graph), text);
}

TEST(Text, ErrorsNameThePlace) {
  EXPECT_EQ(parse_error("graph(x: f32[2]) {\n  y = aten::relu(z)\n}"), "line 2, column 18: 'z' is neither a value nor a declared symbol");
  EXPECT_EQ(parse_error("graph(x: f33[2]) {}"), "line 1, column 10: expected a type, found 'f33[2]) {}'");
  EXPECT_EQ(parse_error("graph(x: f32[s0]) {}"), "line 1, column 14: 's0' is neither a value nor a declared symbol");
  EXPECT_NE(parse_error("graph(x: f32[2]) { x: f32[2] = aten::relu(x) return x }").find("defined twice"), std::string::npos);
  EXPECT_NE(parse_error("graph(x: f32[2]) { y = mylib::foo(x) return y }").find("types of the results"), std::string::npos);
  EXPECT_NE(parse_error("graph(x: f32[2]) { y = aten::add.Tensor(x) return y }").find("'other' is missing"), std::string::npos);
  EXPECT_NE(parse_error("symbol s: int\ngraph(x: f32[s]) { y = aten::relu(s) return y }").find("argument 'self' cannot be"), std::string::npos);
  EXPECT_NE(parse_error("graph(x: f32[2]) { return x").find("expected '}'"), std::string::npos);
  EXPECT_NE(parse_error("const 0: f32[4611686018427387904,4]").find("sensible size"), std::string::npos);
  EXPECT_NE(parse_error("const 0: f32[2] = {1.0").find("expected"), std::string::npos);
  EXPECT_NE(parse_error("graph(x: f32[" + std::string(500, '(') + "1]) {}").find("too large"), std::string::npos);
}

TEST(Text, ExpressionsReadBackCanonically) {
  expect_round_trip(
      "symbol s0: int in [0,100]\nsymbol s1: int in [1,100]\nsymbol f: float\nmethod \"forward\"\ngraph(x: f32[3+2*s0*s1,(s0+s1)//3,s0%4]) {\n"
      "  return -7+s0, ite(s0<s1,s0,1), trunc(0.5*float(s0)), and(s0==3,not(s1<=s0)), sqrt(float(s1)), s0/s1, pow(2,s0), cos(f), bitand(s0,1)\n}\n");
}

TEST(Text, BoundsOfQuotientsOfSizes) {
  const Catalog catalog = make_catalog();
  Program program;
  ASSERT_TRUE(parse("symbol a: int in [1,32]\nsymbol b: int in [0,8]\nsymbol n: int in [2,9]\ngraph(x: f32[a,b,n]) {\n"
                    "  return a//b, a//(a//4), (a+(-1*a)%4)//((a+(-1*a)%4)//4), a%b, trunc(pow(float(n),0.5)), trunc(pow(float(n),-1.0))\n}",
                    catalog, program)
                  .ok());
  const Graph& graph = program.methods[0]->graph;
  const Range expected[] = {{0, 32}, {0, 7}, {0, 7}, {0, 7}, {1, 3}, {0, 1}};
  ASSERT_EQ(graph.outputs.size(), std::size(expected));
  for (size_t i = 0; i < std::size(expected); ++i) {
    const Range found = bounds(std::get<Expr>(graph.outputs[i]));
    EXPECT_EQ(found.min, expected[i].min) << i;
    EXPECT_EQ(found.max, expected[i].max) << i;
  }
}

TEST(Verify, AcceptsGoodGraphs) {
  EXPECT_EQ(verify_error("graph(x: f32[2]) { y = aten::relu(x) return y }", Dialect::kProfile), "no error");
  EXPECT_EQ(verify_error("graph(x: f32[2]) { y: f32[2] = mylib::foo(x) return y }", Dialect::kFunctional), "no error");
}

TEST(Verify, RefusesWhatADialectForbids) {
  const std::string in_place = "graph(x: f32[2]) { y: f32[2] = aten::add_.Tensor(x, x) return y }";
  EXPECT_EQ(verify_error(in_place, Dialect::kImported), "no error");
  EXPECT_NE(verify_error(in_place, Dialect::kFunctional).find("in-place operator"), std::string::npos);
  EXPECT_NE(verify_error("graph(x: f32[2]) { y: f32[2] = mylib::foo(x) return y }", Dialect::kProfile).find("unknown operator"), std::string::npos);
  EXPECT_NE(verify_error("graph(x: f32[2]) { y: f32[2] = aten::to.dtype(x, dtype:f32) return y }", Dialect::kProfile).find("without a kernel"),
            std::string::npos);
}

TEST(Verify, RefusesWrongArguments) {
  EXPECT_NE(verify_error("graph(x: f32[2]) { y: f32[2] = aten::relu(1) return y }", Dialect::kImported).find("'self' cannot be a number"), std::string::npos);
  EXPECT_NE(verify_error("graph(x: f32[2]) { y: f32[2] = aten::cat([x], \"0\") return y }", Dialect::kImported).find("'dim' cannot be a string"),
            std::string::npos);
  EXPECT_NE(verify_error("graph(x: f32[2]) { y: f32[2] = aten::cat([x, none], 0) return y }", Dialect::kImported).find("'tensors'"), std::string::npos);
  EXPECT_NE(verify_error("graph(x: f32[2]) { y: f32[2] = aten::topk(x, 1) return y }", Dialect::kImported).find("1 results, the schema has 2"),
            std::string::npos);
  EXPECT_NE(verify_error("graph(x: f32[2]) { y: f32[2] = higher_order::cond(x, [x]) return y }", Dialect::kImported).find("no regions"), std::string::npos);
}

TEST(Verify, RefusesUseBeforeDefinition) {
  const Catalog catalog = make_catalog();
  Program program;
  ASSERT_TRUE(parse("graph(x: f32[2]) { y = aten::relu(x) z = aten::relu(y) return z }", catalog, program).ok());
  Graph& graph = program.methods[0]->graph;
  std::swap(graph.order[0], graph.order[1]);
  const Status status = verify(graph, Dialect::kImported);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.message().find("value y is used before it is produced"), std::string_view::npos) << status.message();
}

TEST(Verify, RefusesBadResultsAndStates) {
  const Catalog catalog = make_catalog();
  Program program;
  ASSERT_TRUE(parse("graph(x: f32[2]) { state s: f32[2] \"s\" = const f32[2]\n y = aten::relu(x) write state \"s\" = y\n return y }", catalog, program).ok());
  Graph& graph = program.methods[0]->graph;
  EXPECT_TRUE(verify(graph, Dialect::kImported).ok());
  graph.order.clear();
  EXPECT_FALSE(verify(graph, Dialect::kImported).ok());
  graph.outputs.clear();
  EXPECT_NE(verify(graph, Dialect::kImported).message().find("state s"), std::string_view::npos);
}

}  // namespace
}  // namespace pteron::ir
