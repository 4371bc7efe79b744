// Passes of the caller: what they see, what they change, what is refused with which sentence, and that archives and files stay as they were.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "facade/test_files.h"
#include "pteron/compile.h"
#include "pteron/program.h"

namespace pteron {
namespace {

using PassFn = std::function<Status(GraphEditor&)>;

CompileSettings with_pass(const char* name, PassFn run) {
  CompileSettings settings;
  settings.methods = {{"forward", sample(name)}};
  settings.passes = {{"mine", std::move(run)}};
  return settings;
}

std::vector<std::byte> bytes_of(const CompileSettings& settings) {
  const auto edge = export_program(settings);
  EXPECT_TRUE(edge.ok()) << edge.status().message();
  if (!edge.ok()) return {};
  const auto program = edge->finalize();
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program.ok()) return {};
  const auto file = program->bytes();
  return {file->bytes.begin(), file->bytes.end()};
}

/// What mlp_float32 makes of numbers from 0 to 1, with the pass.
std::vector<float> run_mlp(const CompileSettings& settings) {
  const std::vector<std::byte> bytes = bytes_of(settings);
  const auto program = Program::load(bytes);
  EXPECT_TRUE(program.ok()) << program.status().message();
  if (!program.ok()) return {};
  const auto method = (*program)->load_method("forward");
  EXPECT_TRUE(method.ok()) << method.status().message();
  std::vector<float> in(64), out(40);
  for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(i % 9) / 9.f - 0.4f;
  const int64_t sizes[] = {4, 16};
  EXPECT_TRUE((*method)->set_input(0, make_contiguous_view(DType::kFloat32, sizes, in.data())).ok());
  EXPECT_TRUE((*method)->execute().ok());
  const auto result = (*method)->output(0);
  std::memcpy(out.data(), std::get<TensorView>(*result).data, out.size() * sizeof(float));
  return out;
}

void expect_pass_refused(PassFn run, Code code, std::string_view text, const char* name = "mlp_float32") {
  const std::vector<std::byte> before = content(sample(name));
  const Scratch scratch;
  const auto saved = save(with_pass(name, std::move(run)), scratch.path + "/m.pte");
  ASSERT_FALSE(saved.ok()) << text;
  EXPECT_EQ(saved.status().code(), code) << saved.status().message();
  EXPECT_TRUE(saved.status().message().starts_with("pass mine: method forward: ")) << saved.status().message();
  EXPECT_NE(saved.status().message().find(text), std::string_view::npos) << saved.status().message();
  EXPECT_TRUE(scratch.names().empty());
  EXPECT_TRUE(same_bytes(before, content(sample(name))));
}

GraphValue result_of(const GraphEditor& graph, std::string_view node) { return graph.call(graph.find_node(node)).results.at(0); }

TEST(Transform, SeesTheGraph) {
  std::string text;
  const auto edge = export_program(with_pass("dynamic_batch_mlp", [&](GraphEditor& graph) {
    EXPECT_EQ(graph.method(), "forward");
    EXPECT_EQ(graph.nodes().size(), 7u);
    const GraphCall linear = graph.call(graph.find_node("linear"));
    EXPECT_EQ(linear.op, "aten::linear");
    EXPECT_EQ(linear.source, "modules/linear.py:134");
    EXPECT_EQ(linear.module, "0");
    EXPECT_EQ(linear.argument_names, (std::vector<std::string>{"input", "weight", "bias"}));
    EXPECT_EQ(std::get<GraphValue>(linear.arguments.at(0)), graph.inputs().at(0));
    const GraphTensor weight = graph.tensor(std::get<GraphValue>(linear.arguments.at(1)));
    EXPECT_TRUE(weight.is_constant && weight.is_tensor && !weight.producer.valid());
    EXPECT_EQ(weight.weight, "0.weight");
    EXPECT_EQ(weight.sizes, (std::vector<GraphScalar>{32, 16}));
    const auto bytes = graph.constant_bytes(std::get<GraphValue>(linear.arguments.at(1)));
    EXPECT_TRUE(bytes.ok() && bytes->bytes.size() == 32 * 16 * 4);
    const GraphTensor out = graph.tensor(linear.results.at(0));
    EXPECT_EQ(graph.text(out.sizes.at(0)), "s31");
    EXPECT_FALSE(out.sizes[0].is_constant());
    EXPECT_EQ(graph.users(linear.results[0]), std::vector<GraphNode>{graph.find_node("relu")});
    const GraphCall norm = graph.call(graph.find_node("native_layer_norm"));
    EXPECT_EQ(std::get<GraphScalar>(norm.arguments.at(4)).number(), 1e-05);
    EXPECT_EQ(std::get<std::string>(graph.call(graph.find_node("gelu")).arguments.at(1)), "none");
    EXPECT_EQ(graph.outputs(), std::vector<GraphValue>{result_of(graph, "_log_softmax")});
    EXPECT_FALSE(graph.find_node("none").valid() || graph.find_value("none").valid());
    EXPECT_TRUE(graph.call({}).op.empty() && graph.tensor({}).name.empty() && graph.branch({}, 0).nodes().empty());
    text = graph.text(graph.find_node("relu"));
    return ok_status();
  }));
  ASSERT_TRUE(edge.ok()) << edge.status().message();
  EXPECT_NE(text.find("aten::relu(linear)"), std::string::npos) << text;
}

TEST(Transform, IdentityEditsGiveIdenticalBytes) {
  for (const char* name : {"mlp_float32", "dynamic_batch_mlp", "cnn", "decoder_cache", "cond", "nested_inputs_outputs", "masked_select.i64.6"}) {
    CompileSettings plain = with_pass(name, {});
    plain.passes.clear();
    size_t seen = 0;
    const CompileSettings same = with_pass(name, [&](GraphEditor& graph) {
      for (const GraphNode node : graph.nodes()) {
        const GraphCall call = graph.call(node);
        ++seen;
        if (call.branches > 0) continue;
        PTERON_TRY(graph.replace(node, call.op, call.arguments));
        for (const GraphValue result : call.results) PTERON_TRY(graph.replace_uses(result, result));
      }
      return ok_status();
    });
    EXPECT_TRUE(same_bytes(bytes_of(plain), bytes_of(same))) << name;
    EXPECT_GT(seen, 0u);
  }
}

TEST(Transform, ReplacesACall) {
  const std::vector<float> plain = run_mlp(with_pass("mlp_float32", [](GraphEditor&) { return ok_status(); }));
  std::string op;
  const CompileSettings settings = with_pass("mlp_float32", [](GraphEditor& graph) {
    const GraphNode relu = graph.find_node("relu");
    return graph.replace(relu, "aten::leaky_relu", {graph.call(relu).arguments[0], 0.0});
  });
  const std::vector<float> leaky = run_mlp(settings);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_NEAR(plain[i], leaky[i], 1e-5);
  const auto edge = export_program(with_pass("mlp_float32", [](GraphEditor& graph) {
    return graph.replace(graph.find_node("relu"), "aten::sigmoid", {graph.call(graph.find_node("relu")).arguments[0]});
  }));
  ASSERT_TRUE(edge.ok()) << edge.status().message();
}

TEST(Transform, ChangedWeightsAreNewConstants) {
  const std::vector<float> plain = run_mlp(with_pass("mlp_float32", [](GraphEditor&) { return ok_status(); }));
  // The last bias moves by 1 everywhere, which log_softmax takes back; then by 1 at one place, which it does not.
  for (const bool everywhere : {true, false}) {
    std::vector<std::byte> before, after;
    const std::vector<float> changed = run_mlp(with_pass("mlp_float32", [&](GraphEditor& graph) -> Status {
      const GraphNode node = graph.find_node("linear_2");
      GraphCall call = graph.call(node);
      const GraphValue bias = std::get<GraphValue>(call.arguments[2]);
      PTERON_ASSIGN(const SharedBytes old, graph.constant_bytes(bias));
      before.assign(old.bytes.begin(), old.bytes.end());
      std::vector<float> values(10);
      std::memcpy(values.data(), old.bytes.data(), old.bytes.size());
      for (size_t i = 0; i < (everywhere ? 10 : 1); ++i) values[i] += 1;
      PTERON_ASSIGN(call.arguments[2], graph.add_constant("new_bias", DType::kFloat32, {10}, {nullptr, std::as_bytes(std::span(values))}));
      PTERON_TRY(graph.replace(node, call.op, call.arguments));
      PTERON_ASSIGN(const SharedBytes again, graph.constant_bytes(bias));
      after.assign(again.bytes.begin(), again.bytes.end());
      return ok_status();
    }));
    EXPECT_EQ(before, after);
    for (size_t i = 0; everywhere && i < plain.size(); ++i) EXPECT_NEAR(plain[i], changed[i], 1e-5);
    EXPECT_EQ(std::abs(plain[0] - changed[0]) > 0.1, !everywhere);
  }
}

TEST(Transform, InsertsRedirectsAndErases) {
  const std::vector<float> plain = run_mlp(with_pass("mlp_float32", [](GraphEditor&) { return ok_status(); }));
  const std::vector<float> same = run_mlp(with_pass("mlp_float32", [](GraphEditor& graph) -> Status {
    // relu(relu(x)), through a composite that has to be decomposed for the kernels, then the first relu goes.
    const GraphValue relu = result_of(graph, "relu");
    const GraphNode next = graph.find_node("linear_1");
    PTERON_ASSIGN(const std::vector<GraphValue> twice, graph.insert(next, "aten::relu", {relu}, "again"));
    const GraphNode again = graph.tensor(twice.at(0)).producer;
    PTERON_TRY(graph.replace_uses(relu, twice[0], std::span(&again, 1)));
    EXPECT_EQ(graph.users(relu), std::vector<GraphNode>{again});
    EXPECT_EQ(graph.call(again).name, "again");
    const GraphNode first = graph.find_node("relu");
    PTERON_TRY(graph.replace(again, "aten::relu", {graph.call(first).arguments[0]}));
    PTERON_TRY(graph.erase(first));
    EXPECT_FALSE(graph.find_node("relu").valid());
    PTERON_ASSIGN(const std::vector<GraphValue> unused, graph.insert({}, "aten::relu", {twice[0]}));
    EXPECT_EQ(unused.size(), 1u);
    PTERON_ASSIGN(const size_t gone, graph.erase_dead());
    EXPECT_EQ(gone, 1u);
    return ok_status();
  }));
  EXPECT_EQ(plain, same);
}

TEST(Transform, RunsOnTheMethodsItNames) {
  CompileSettings settings;
  settings.methods = {{"one", sample("mlp_float32")}, {"two", sample("dynamic_batch_mlp")}};
  std::vector<std::string> seen;
  const PassFn note = [&](GraphEditor& graph) {
    seen.push_back(graph.method());
    return ok_status();
  };
  settings.passes = {{"all", note}, {"second", note, "two"}};
  ASSERT_TRUE(export_program(settings).ok());
  EXPECT_EQ(seen, (std::vector<std::string>{"one", "two", "two"}));
  settings.methods = {{"one", "/none/model.pt2"}};
  const auto refused = [&](TransformPass pass, std::string_view text) {  // before the archive is looked for
    settings.passes = {std::move(pass)};
    const auto edge = export_program(settings);
    ASSERT_FALSE(edge.ok());
    EXPECT_EQ(edge.status().code(), Code::kInvalidInput);
    EXPECT_EQ(edge.status().message(), text);
  };
  refused({"", note}, "a pass without a name");
  refused({"p", {}}, "pass p has no function to run");
  refused({"p", note, "three"}, "pass p is for method 'three', which the program does not have");
}

TEST(Transform, RefusalsNameTheNode) {
  const auto argument = [](const GraphEditor& graph, std::string_view node) { return graph.call(graph.find_node(node)).arguments.at(0); };
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "mylib::twist", {argument(g, "relu")}); }, Code::kUnsupported,
                      "node relu (modules/activation.py:143): operator mylib::twist is not known");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::relu", {argument(g, "relu"), 1}); }, Code::kInvalidInput,
                      "node relu (modules/activation.py:143): aten::relu takes 1 argument, found 2");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::relu", {}); }, Code::kInvalidInput, "argument 'self' is missing");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::relu", {"text"}); }, Code::kInvalidInput,
                      "argument 'self' cannot be a string");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::sum", {argument(g, "relu")}); }, Code::kInvalidInput,
                      "aten::sum: value relu is f32[4,32], found f32[] for it");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::gt.Scalar", {argument(g, "relu"), 0}); }, Code::kInvalidInput,
                      "found bool[4,32] for it");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::topk", {argument(g, "relu"), 1}); }, Code::kInvalidInput,
                      "gives 2 results, expected 1");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::mm", {argument(g, "relu"), argument(g, "relu")}); },
                      Code::kInvalidInput, "aten::mm");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::relu", {result_of(g, "gelu")}); }, Code::kInvalidInput, "a cycle");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("relu"), "aten::relu", {result_of(g, "relu")}); }, Code::kInvalidInput, "a cycle");
  expect_pass_refused([&](GraphEditor& g) { return g.replace_uses(result_of(g, "linear"), result_of(g, "gelu")); }, Code::kInvalidInput,
                      "node relu (modules/activation.py:143) would read value gelu, which is computed from it: a cycle");
  expect_pass_refused([&](GraphEditor& g) { return g.replace_uses(result_of(g, "relu"), result_of(g, "linear_2")); }, Code::kInvalidInput,
                      "is f32[4,32], found f32[4,10]");
  expect_pass_refused([&](GraphEditor& g) { return g.replace_uses({}, result_of(g, "linear_2")); }, Code::kInvalidInput, "does not have");
  expect_pass_refused([&](GraphEditor& g) { return g.erase(g.find_node("relu")); }, Code::kInvalidInput,
                      "node relu (modules/activation.py:143) is not erased: its result relu is read by node linear_1");
  expect_pass_refused([&](GraphEditor& g) { return g.erase(g.find_node("_log_softmax")); }, Code::kInvalidInput, "is read by the method's results");
  expect_pass_refused([&](GraphEditor& g) { return g.erase({}); }, Code::kInvalidInput, "a node that the graph does not have");
  expect_pass_refused([&](GraphEditor& g) { return g.insert({9999}, "aten::relu", {argument(g, "relu")}).status(); }, Code::kInvalidInput,
                      "a node that the graph does not have");
  expect_pass_refused([&](GraphEditor& g) { return g.insert({}, "aten::relu", {GraphValue{9999}}, "more").status(); }, Code::kInvalidInput,
                      "new node more would read a value that the graph does not have");
  expect_pass_refused([&](GraphEditor& g) { return g.insert({}, "higher_order::cond", {}).status(); }, Code::kUnsupported,
                      "control flow, which a pass cannot make");
  expect_pass_refused([&](GraphEditor& g) { return g.add_constant("c", DType::kFloat32, {3}, {}).status(); }, Code::kInvalidInput,
                      "constant c: 0 bytes are given for sizes [3] of float32");
  expect_pass_refused([&](GraphEditor& g) { return g.add_constant("c", DType::kFloat32, {-1}, {}).status(); }, Code::kInvalidInput, "constant c");
  expect_pass_refused([&](GraphEditor& g) { return g.replace(g.find_node("cond"), "aten::relu", {}); }, Code::kInvalidInput,
                      "is control flow, which a pass cannot replace", "cond");
  // What the profile cannot run is refused as everywhere else.
  const auto random = export_program(with_pass("mlp_float32", [&](GraphEditor& g) -> Status {
    PTERON_ASSIGN(const std::vector<GraphValue> made, g.insert(g.find_node("linear_1"), "aten::rand_like", {result_of(g, "relu")}));
    return g.replace(g.find_node("linear_1"), "aten::linear",
                     {made[0], g.call(g.find_node("linear_1")).arguments[1], g.call(g.find_node("linear_1")).arguments[2]});
  }));
  ASSERT_FALSE(random.ok());
  EXPECT_EQ(random.status().code(), Code::kUnsupported) << random.status().message();
}

TEST(Transform, ARefusedEditEndsTheCompilationEvenIfThePassGoesOn) {
  expect_pass_refused(
      [](GraphEditor& graph) {
        EXPECT_FALSE(graph.erase(graph.find_node("relu")).ok());
        return ok_status();
      },
      Code::kInvalidInput, "node relu");
  expect_pass_refused([](GraphEditor&) { return Status(Code::kCancelled, "enough"); }, Code::kCancelled, "enough");
}

TEST(Transform, EditorsEndWithTheirPass) {
  std::shared_ptr<GraphEditor> kept;
  GraphNode node;
  ASSERT_TRUE(export_program(with_pass("mlp_float32", [&](GraphEditor& graph) {
                kept = std::make_shared<GraphEditor>(graph);
                node = graph.find_node("relu");
                return ok_status();
              })).ok());
  EXPECT_TRUE(kept->nodes().empty() && kept->call(node).op.empty() && kept->inputs().empty());
  EXPECT_FALSE(kept->erase(node).ok());
  EXPECT_FALSE(kept->insert({}, "aten::relu", {}).ok());
}

TEST(Transform, SourcesStayAsTheyWereWhateverFails) {
  const std::vector<std::byte> before = content(sample("mlp_float32"));
  const Scratch scratch;
  const PassFn edit = [](GraphEditor& graph) {
    return graph.replace(graph.find_node("relu"), "aten::sigmoid", {graph.call(graph.find_node("relu")).arguments[0]});
  };
  CompileSettings settings = with_pass("mlp_float32", edit);
  settings.methods.push_back({"broken", sample("file_cut_half")});  // the import of a later method
  EXPECT_FALSE(save(settings, scratch.path + "/m.pte").ok());
  settings.methods.back().archive = sample("file_unknown_operator");  // decomposition
  EXPECT_FALSE(save(settings, scratch.path + "/m.pte").ok());
  settings.methods.pop_back();
  settings.passes.push_back({"fails", [](GraphEditor&) { return Status(Code::kInternal, "no"); }});  // a later pass
  EXPECT_FALSE(save(settings, scratch.path + "/m.pte").ok());
  settings.passes.pop_back();
  settings.exclusions = {{"", "aten::linear", false}};
  settings.strict = true;  // partition
  EXPECT_FALSE(save(settings, scratch.path + "/m.pte").ok());
  settings.exclusions.clear();
  settings.strict = false;
  EXPECT_FALSE(save(settings, scratch.path + "/none/m.pte").ok());  // writing
  EXPECT_TRUE(scratch.names().empty());
  EXPECT_TRUE(save(settings, scratch.path + "/m.pte").ok());
  EXPECT_TRUE(same_bytes(before, content(sample("mlp_float32"))));
}

}  // namespace
}  // namespace pteron
