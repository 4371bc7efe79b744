// Import of archives made here: every kind of argument, input, weight and sub-graph, and what must be refused. Compared as IR text.
#include "import/import.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <unistd.h>

#include "base/zip_test_writer.h"
#include "import/archive.h"
#include "import/operators.h"
#include "import/pickle.h"
#include "import/sample_inputs.h"
#include "import/source_info.h"
#include "import/srepr.h"
#include "ir/text.h"

namespace pteron::importer {
namespace {

constexpr ir::OpDef kRows[] = {
    {.schema = "aten::relu(Tensor self) -> Tensor"},
    {.schema = "aten::add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor"},
    {.schema = "aten::view(Tensor self, SymInt[] size) -> Tensor"},
    {.schema = "aten::to.dtype(Tensor self, ScalarType dtype, bool non_blocking=False, bool copy=False, MemoryFormat? memory_format=None) -> Tensor"},
    {.schema = "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]"},
    {.schema = "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor"},
    {.schema = "aten::layer_norm(Tensor input, SymInt[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05) -> Tensor"},
    {.schema = "aten::item(Tensor self) -> Scalar"},
    {.schema = "aten::_assert_scalar(Scalar self, str assert_msg) -> ()", .flags = ir::kEffect},
    {.schema = "aten::_assert_tensor_metadata(Tensor a, SymInt[]? size=None, SymInt[]? stride=None, ScalarType? dtype=None) -> ()", .flags = ir::kDrop},
    {.schema = "aten::__and__.Tensor(Tensor self, Tensor other) -> Tensor"},
    {.schema = "higher_order::cond(Scalar pred, Tensor[] operands) -> Tensor[]", .flags = ir::kRegion},
    {.schema = "higher_order::wrap_with_set_grad_enabled(bool enabled, Tensor[] operands) -> Tensor[]", .flags = ir::kRegion},
};

ir::Catalog make_catalog() {
  ir::Catalog catalog;
  EXPECT_TRUE(catalog.add(kRows).ok());
  return catalog;
}

/// Writes bytes to a file that goes away, and maps it.
std::shared_ptr<FileBytes> map_bytes(const std::string& bytes) {
  char path[] = "/tmp/pteron_import_test_XXXXXX";
  const int fd = ::mkstemp(path);
  EXPECT_GE(fd, 0);
  EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  auto file = FileBytes::map_fd(fd);
  ::close(fd);
  ::unlink(path);
  EXPECT_TRUE(file.ok());
  return *file;
}

/// An archive in parts. Quotes in JSON texts are written as '.
struct Model {
  std::string inputs, input_specs, nodes, outputs, output_specs, tensors, sym_ints, sym_floats, sym_bools, ranges, weights, constants;
  std::string version = "'schema_version': {'major': 8, 'minor': 20}";
  std::string call_graph;
  std::map<std::string, std::string> files;

  /// f32 [2] unless said otherwise.
  void tensor(const std::string& name, const std::string& sizes = "{'as_int': 2}", const std::string& strides = "{'as_int': 1}", int dtype = 7,
              const std::string& device = "{'type': 'cpu', 'index': null}") {
    add(&tensors, "'" + name + "': {'dtype': " + std::to_string(dtype) + ", 'sizes': [" + sizes + "], 'requires_grad': false, 'device': " + device +
                      ", 'strides': [" + strides + "], 'storage_offset': {'as_int': 0}, 'layout': 7}");
  }
  void input(const std::string& name) {
    tensor(name);
    add(&inputs, "{'as_tensor': {'name': '" + name + "'}}");
    add(&input_specs, "{'user_input': {'arg': {'as_tensor': {'name': '" + name + "'}}}}");
  }
  void parameter(const std::string& name, const std::string& kind, const std::string& fields) {
    add(&inputs, "{'as_tensor': {'name': '" + name + "'}}");
    add(&input_specs, "{'" + kind + "': {'arg': {'name': '" + name + "'}, " + fields + "}}");
  }
  void node(const std::string& target, const std::string& arguments, const std::string& results, const std::string& metadata = "") {
    add(&nodes, "{'target': '" + target + "', 'inputs': [" + arguments + "], 'outputs': [" + results + "], 'metadata': {" + metadata +
                    "}, 'is_hop_single_tensor_return': null, 'name': 'n" + std::to_string(count++) + "'}");
  }
  void output(const std::string& argument) {
    add(&outputs, argument);
    add(&output_specs, "{'user_output': {'arg': " + argument + "}}");
  }
  static void add(std::string* list, const std::string& item) { *list += (list->empty() ? "" : ", ") + item; }
  static std::string arg(const std::string& name, const std::string& value) { return "{'name': '" + name + "', 'arg': " + value + ", 'kind': 1}"; }
  static std::string value(const std::string& name) { return "{'as_tensor': {'name': '" + name + "'}}"; }
  static std::string meta(const std::string& path, const std::string& sizes, const std::string& strides, int offset = 0, int dtype = 7, bool pickle = false) {
    return "{'path_name': '" + path + "', 'is_param': true, 'use_pickle': " + (pickle ? "true" : "false") + ", 'tensor_meta': {'dtype': " +
           std::to_string(dtype) + ", 'sizes': [" + sizes + "], 'strides': [" + strides + "], 'storage_offset': {'as_int': " + std::to_string(offset) +
           "}, 'layout': 7, 'device': {'type': 'cpu', 'index': null}}}";
  }

  std::string json() const {
    const std::string graph = "{'inputs': [" + inputs + "], 'outputs': [" + outputs + "], 'nodes': [" + nodes + "], 'tensor_values': {" + tensors +
                              "}, 'sym_int_values': {" + sym_ints + "}, 'sym_bool_values': {" + sym_bools + "}, 'sym_float_values': {" + sym_floats +
                              "}, 'is_single_tensor_return': false, 'custom_obj_values': {}}";
    return quote("{'graph_module': {'graph': " + graph + ", 'signature': {'input_specs': [" + input_specs + "], 'output_specs': [" + output_specs +
                 "]}, 'module_call_graph': [" + call_graph + "], 'metadata': {}}, 'opset_version': {'aten': 10}, 'range_constraints': {" + ranges + "}, " +
                 version + ", 'torch_version': '2.13.0'}");
  }
  static std::string quote(std::string text) {
    for (char& c : text) {
      if (c == '\'') c = '"';
      else if (c == '`') c = '\'';
    }
    return text;
  }
  std::string archive() const {
    test::ZipWriter zip;
    for (const auto& [path, data] : files) zip.add("m/" + path, data);
    zip.add("m/data/weights/model_weights_config.json", quote("{'config': {" + weights + "}}"));
    zip.add("m/data/constants/model_constants_config.json", quote("{'config': {" + constants + "}}"));
    zip.add("m/models/model.json", json());
    zip.add("m/archive_format", "pt2");
    zip.add("m/archive_version", "0");
    zip.add("m/byteorder", "little");
    return zip.finish();
  }

 private:
  int count = 0;
};

std::string import_text(const std::string& archive, const ImportOptions& options = {}) {
  const ir::Catalog catalog = make_catalog();
  ir::Program program;
  const Status status = import_archive(map_bytes(archive), catalog, options, program);
  return status.ok() ? ir::print(program) : "error " + std::to_string(exit_code(status.code())) + ": " + std::string(status.message());
}
std::string import_text(const Model& model) { return import_text(model.archive()); }
void expect_error(const Model& model, int code, const std::string& part) {
  const std::string text = import_text(model);
  EXPECT_TRUE(text.starts_with("error " + std::to_string(code) + ": ")) << text;
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

std::string floats(std::initializer_list<float> values) { return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)}; }

Model one_relu() {
  Model m;
  m.input("x");
  m.tensor("y");
  m.node("torch.ops.aten.relu.default", Model::arg("self", Model::value("x")), Model::value("y"),
         "'stack_trace': 'File \\'/home/me/net/net.py\\', line 42, in forward\\n    return y\\n  File \\'/x/torch/nn/functional.py\\', line 7, in relu', "
         "'nn_module_stack': 'L__self__,,pkg.N;L__self__seq.0,seq.0,torch.nn.ReLU'");
  m.output(Model::value("y"));
  return m;
}

TEST(Import, SmallestProgram) {
  EXPECT_EQ(import_text(one_relu()),
            "method \"forward\"\ngraph(x: f32[2]) {\n  y: f32[2] = aten::relu(x) as \"n0\" at \"net/net.py:42\" in \"seq.0\"\n  return y\n}\n");
}

TEST(Import, ArgumentsDefaultsAndEnumerations) {
  Model m;
  m.input("x");
  m.tensor("a");
  m.tensor("b", "{'as_int': 2}", "{'as_int': 1}", 6);
  m.tensor("c0"), m.tensor("c1"), m.tensor("d"), m.tensor("e");
  m.node("torch.ops.aten.add.Tensor", Model::arg("self", Model::value("x")) + "," + Model::arg("other", "{'as_int': 9223372036854775807}") + "," +
                                          Model::arg("alpha", "{'as_float': '-Infinity'}"), Model::value("a"));
  m.node("torch.ops.aten.to.dtype", Model::arg("self", Model::value("a")) + "," + Model::arg("dtype", "{'as_scalar_type': 6}") + "," +
                                        Model::arg("memory_format", "{'as_memory_format': 4}"), Model::value("b"));
  m.node("torch.ops.aten.split.Tensor", Model::arg("self", Model::value("x")) + "," + Model::arg("split_size", "{'as_int': 1}"),
         "{'as_tensors': [{'name': 'c0'}, {'name': 'c1'}]}");
  m.node("torch.ops.aten.index.Tensor", Model::arg("self", Model::value("x")) + "," +
                                            Model::arg("indices", "{'as_optional_tensors': [{'as_none': true}, {'as_tensor': {'name': 'c1'}}]}"), Model::value("d"));
  m.node("torch.ops.aten.layer_norm.default", Model::arg("input", Model::value("x")) + "," + Model::arg("normalized_shape", "{'as_ints': [2]}") + "," +
                                                  Model::arg("eps", "{'as_int': 1}"), Model::value("e"));
  m.node("torch.ops.aten._assert_tensor_metadata.default", Model::arg("a", Model::value("x")), "");
  m.output(Model::value("e"));
  m.output("{'as_none': true}"), m.output("{'as_int': -3}"), m.output("{'as_float': 'NaN'}"), m.output("{'as_string': 't'}"), m.output(Model::value("x"));
  EXPECT_EQ(import_text(m),
            "method \"forward\"\ngraph(x: f32[2]) {\n"
            "  a: f32[2] = aten::add.Tensor(x, 9223372036854775807, -inf) as \"n0\"\n"
            "  b: f16[2] = aten::to.dtype(a, dtype:f16, false, false, format:preserve) as \"n1\"\n"
            "  c0: f32[2], c1: f32[2] = aten::split.Tensor(x, 1, 0) as \"n2\"\n"
            "  d: f32[2] = aten::index.Tensor(x, [none, c1]) as \"n3\"\n"
            "  e: f32[2] = aten::layer_norm(x, [2], none, none, 1.0) as \"n4\"\n"
            "  return e, none, -3, nan, \"t\", x\n}\n");
}

TEST(Import, InPlaceAndUnknownOperators) {
  Model m;
  m.input("x");
  m.tensor("a"), m.tensor("b"), m.tensor("c");
  const std::string both = Model::arg("self", Model::value("x")) + "," + Model::arg("other", Model::value("x"));
  m.node("torch.ops.aten.add_.Tensor", both, Model::value("a"));
  m.node("torch.ops.aten.__iand__.Tensor", both, Model::value("b"));
  m.node("torch.ops.mylib.twist.default", Model::arg("x", Model::value("x")) + "," + Model::arg("names", "{'as_strings': ['p', 'q']}"), Model::value("c") + ", {'as_none': true}");
  m.output(Model::value("c"));
  const ir::Catalog catalog = make_catalog();
  ir::Program program;
  ASSERT_TRUE(import_archive(map_bytes(m.archive()), catalog, {}, program).ok());
  const ir::Graph& graph = program.methods[0]->graph;
  EXPECT_EQ(graph[graph.order[0]].op->functional, catalog.find("aten::add.Tensor"));
  EXPECT_TRUE(graph[graph.order[0]].op->schema.args[0].written);
  EXPECT_EQ(graph[graph.order[1]].op->functional, catalog.find("aten::__and__.Tensor"));
  EXPECT_FALSE(graph[graph.order[2]].op->known);
  EXPECT_NE(ir::print(program).find("c: f32[2], n2_none: none = mylib::twist(x, \"<as_strings>\")"), std::string::npos) << ir::print(program);
}

TEST(Import, WeightsOfEveryKind) {
  Model m;
  m.parameter("p_w", "parameter", "'parameter_name': 'w'");
  m.parameter("p_t", "parameter", "'parameter_name': 't'");
  m.parameter("b_s", "buffer", "'buffer_name': 's', 'persistent': true");
  m.parameter("b_n", "buffer", "'buffer_name': 'n', 'persistent': false");
  m.parameter("c_l", "tensor_constant", "'tensor_constant_name': 'lifted_tensor_0'");
  m.parameter("p_unused", "parameter", "'parameter_name': 'unused'");
  m.parameter("p_e", "parameter", "'parameter_name': 'e'");
  m.weights = "'w': " + Model::meta("weight_0", "{'as_int': 2}, {'as_int': 2}", "{'as_int': 1}, {'as_int': 2}") + ", 't': " +
              Model::meta("weight_0", "{'as_int': 2}", "{'as_int': 1}", 2) + ", 's': " + Model::meta("weight_1", "", "", 0, 5) + ", 'unused': " +
              Model::meta("weight_9", "{'as_int': 2}", "{'as_int': 1}") + ", 'e': " + Model::meta("weight_2", "{'as_int': 5}", "{'as_int': 0}", 0, 13);
  m.constants = "'n': " + Model::meta("tensor_0", "{'as_int': 0}, {'as_int': 3}", "{'as_int': 3}, {'as_int': 1}") + ", 'lifted_tensor_0': " +
                Model::meta("tensor_1", "{'as_int': 1}", "{'as_int': 1}", 0, 12);
  m.files = {{"data/weights/weight_0", floats({1, 2, 3, 4})}, {"data/weights/weight_1", std::string("\x2a\0\0\0\0\0\0\0", 8)},
             {"data/weights/weight_2", std::string("\x80\x3f", 2)}, {"data/constants/tensor_0", ""}, {"data/constants/tensor_1", "\x01"}};
  for (const char* name : {"p_w", "p_t", "b_s", "b_n", "c_l", "p_e"}) m.output(Model::value(name));
  EXPECT_EQ(import_text(m),
            "const 0: f32[2,2]{1,2} \"w\" parameter = {1.0,3.0,2.0,4.0}\n"
            "const 1: f32[2] \"t\" parameter = {3.0,4.0}\n"
            "const 2: i64[] \"s\" buffer = {42}\n"
            "const 3: f32[0,3] \"n\" buffer = {}\n"
            "const 4: bool[1] \"lifted_tensor_0\" constant = {true}\n"
            "const 5: bf16[5]{0} \"e\" parameter = {1.0,1.0,1.0,1.0,1.0}\n"
            "method \"forward\"\ngraph() {\n  p_w = const 0\n  p_t = const 1\n  b_s = const 2\n  b_n = const 3\n  c_l = const 4\n  p_e = const 5\n"
            "  return p_w, p_t, b_s, b_n, c_l, p_e\n}\n");
}

Model one_weight(const std::string& meta, const std::string& bytes) {
  Model m;
  m.parameter("p_w", "parameter", "'parameter_name': 'w'");
  m.weights = "'w': " + meta;
  m.files = {{"data/weights/weight_0", bytes}};
  m.output(Model::value("p_w"));
  return m;
}

TEST(Import, WeightsAreNotCopiedAndKeepTheirDevice) {
  Model m = one_weight(Model::meta("weight_0", "{'as_int': 2}", "{'as_int': 1}"), floats({1, 2}));
  m.tensor("p_w", "{'as_int': 2}", "{'as_int': 1}", 7, "{'type': 'cuda', 'index': 0}");
  const auto file = map_bytes(m.archive());
  const ir::Catalog catalog = make_catalog();
  ir::Program program;
  ASSERT_TRUE(import_archive(file, catalog, {}, program).ok());
  const std::byte* data = program.constants[0].data;
  EXPECT_TRUE(data >= file->bytes().data() && data < file->bytes().data() + file->bytes().size());
  EXPECT_NE(ir::print(program).find("p_w = const 0 on cuda:0"), std::string::npos);
}

TEST(Import, BadWeightsAreRefused) {
  const std::string two = "{'as_int': 2}", one = "{'as_int': 1}";
  expect_error(one_weight(Model::meta("weight_0", "{'as_int': 3}", one), floats({1, 2})), 3, "reach outside its 8 bytes");
  expect_error(one_weight(Model::meta("weight_0", two, one, 1), floats({1, 2})), 3, "reach outside");
  expect_error(one_weight(Model::meta("weight_0", two, "{'as_int': 4611686018427387904}"), floats({1, 2})), 3, "reach outside");
  expect_error(one_weight(Model::meta("weight_0", "{'as_int': -1}", one), floats({1, 2})), 3, "-1 is negative");
  expect_error(one_weight(Model::meta("weight_7", two, one), floats({1, 2})), 3, "weight_7 is missing");
  expect_error(one_weight(Model::meta("weight_0", two, one, 0, 33), floats({1, 2})), 4, "float8_e8m0fnu");
  expect_error(one_weight(Model::meta("weight_0", two, one, 0, 7, true), floats({1, 2})), 4, "weight 'w' is a pickled object");
  Model absent = one_weight(Model::meta("weight_0", two, one), floats({1, 2}));
  absent.weights = "";
  expect_error(absent, 3, "'w' is not in the archive's payload table");
}

TEST(Import, FakeWeightsFailOnlyWhenTheirBytesAreWanted) {
  const Model m = one_weight(Model::meta("weight_0", "{'as_int': 2}", "{'as_int': 1}"), "");
  const ir::Catalog catalog = make_catalog();
  ir::Program program;
  ASSERT_TRUE(import_archive(map_bytes(m.archive()), catalog, {}, program).ok());
  ASSERT_EQ(program.constants[0].data, nullptr);
  const auto bytes = program.constants[0].lazy();
  ASSERT_FALSE(bytes.ok());
  EXPECT_NE(bytes.status().message().find("no weights in this archive"), std::string_view::npos);
}

TEST(Import, SymbolsRangesAndScalarInputs) {
  Model m;
  const std::string s77 = "{'as_expr': {'expr_str': 'Symbol(`s77`, positive=True, integer=True)', 'hint': {'as_int': 4}}}";
  const std::string u0 = "{'as_expr': {'expr_str': 'Symbol(`u0`, integer=True)', 'hint': null}}";
  m.tensor("x", s77, "{'as_int': 1}");
  m.inputs = "{'as_tensor': {'name': 'x'}}, {'as_sym_int': {'as_name': 'n'}}, {'as_int': 5}";
  m.input_specs = "{'user_input': {'arg': {'as_tensor': {'name': 'x'}}}}, {'user_input': {'arg': {'as_sym_int': {'as_name': 'n'}}}}, "
                  "{'constant_input': {'name': 'k', 'value': {'as_int': 5}}}";
  m.sym_ints = "'n': {'as_expr': {'expr_str': 'Symbol(`s86`, integer=True)', 'hint': null}}, 'sym_size_int': " + s77 +
               ", 'mul': {'as_expr': {'expr_str': 'Mul(Integer(2), Symbol(`s77`, positive=True, integer=True))', 'hint': null}}, 'item': " + u0;
  m.sym_bools = "'ge': {'as_expr': {'expr_str': 'GreaterThan(Symbol(`u0`, integer=True), Integer(3))', 'hint': null}}, "
                "'ok': {'as_expr': {'expr_str': 'LessThan(Symbol(`s77`, positive=True, integer=True), Integer(9))', 'hint': null}}";
  m.ranges = "'s77': {'min_val': 2, 'max_val': 64}, 's77 + 1': {'min_val': 3, 'max_val': 65}, 'u0': {'min_val': 0, 'max_val': null}";
  m.node("torch.ops.aten.sym_size.int", Model::arg("self", Model::value("x")) + "," + Model::arg("dim", "{'as_int': 0}"), "{'as_sym_int': {'as_name': 'sym_size_int'}}");
  m.node("_operator.mul", Model::arg("a", "{'as_sym_int': {'as_name': 'sym_size_int'}}") + "," + Model::arg("b", "{'as_int': 2}"), "{'as_sym_int': {'as_name': 'mul'}}");
  m.node("torch.ops.aten.item.default", Model::arg("self", Model::value("x")), "{'as_sym_int': {'as_name': 'item'}}");
  m.node("torch.ops.aten._assert_scalar.default", Model::arg("self", "{'as_sym_bool': {'as_name': 'ge'}}") + "," + Model::arg("assert_msg", "{'as_string': 'm'}"), "");
  m.node("torch.ops.aten._assert_scalar.default", Model::arg("self", "{'as_sym_bool': {'as_name': 'ok'}}") + "," + Model::arg("assert_msg", "{'as_string': 'm'}"), "");
  m.node("torch.ops.aten.sym_constrain_range_for_size.default", Model::arg("size", "{'as_sym_int': {'as_name': 'item'}}"), "");
  m.tensor("v", "{'as_int': 1}, {'as_expr': {'expr_str': 'FloorDiv(Symbol(`s77`, positive=True, integer=True), Integer(2))', 'hint': null}}",
           "{'as_int': 1}, {'as_int': 1}");
  m.node("torch.ops.aten.view.default", Model::arg("self", Model::value("x")) + "," +
                                            Model::arg("size", "{'as_sym_ints': [{'as_int': 1}, {'as_name': 'mul'}]}"), Model::value("v"));
  m.output(Model::value("v"));
  m.output("{'as_sym_int': {'as_name': 'mul'}}");
  EXPECT_EQ(import_text(m),
            "symbol s77: int in [2,64]\nsymbol s86: int in [-inf,inf]\nsymbol u0: int in [0,inf]\n"
            "method \"forward\"\ngraph(x: f32[s77], n: scalar(s86), k = 5) {\n"
            "  item: scalar(u0) = aten::item(x) as \"n2\"\n"
            "  aten::_assert_scalar(3<=u0, \"m\") as \"n3\"\n"
            "  v: f32[1,s77//2]{1,1} = aten::view(x, [1,2*s77]) as \"n6\"\n"
            "  return v, 2*s77\n}\n");
}

/// The range of symbol s77 after an import with these range constraints.
std::string range_of_s77(const std::string& ranges) {
  Model m;
  m.tensor("x", "{'as_expr': {'expr_str': 'Symbol(`s77`, positive=True, integer=True)', 'hint': null}}");
  m.inputs = "{'as_tensor': {'name': 'x'}}";
  m.input_specs = "{'user_input': {'arg': {'as_tensor': {'name': 'x'}}}}";
  m.ranges = ranges;
  const std::string text = import_text(m);
  return text.substr(0, text.find('\n'));
}

TEST(Import, DerivedDimsKeepTheAuthorsLowerBound) {
  const std::string own = "'s77': {'min_val': 2, 'max_val': 8}";
  EXPECT_EQ(range_of_s77(own), "symbol s77: int in [2,8]");
  EXPECT_EQ(range_of_s77("'2*s77': {'min_val': 2, 'max_val': 16}, " + own), "symbol s77: int in [1,8]");
  EXPECT_EQ(range_of_s77(own + ", '2*s77 + 1': {'min_val': 1, 'max_val': 17}"), "symbol s77: int in [0,8]");
  EXPECT_EQ(range_of_s77(own + ", 's77 - 1': {'min_val': 0, 'max_val': 7}"), "symbol s77: int in [1,8]");
  EXPECT_EQ(range_of_s77(own + ", '4*s77': {'min_val': 8, 'max_val': 32}"), "symbol s77: int in [2,8]");
  EXPECT_EQ(range_of_s77("'s77': {'min_val': 5, 'max_val': 8}, '2*s77': {'min_val': 2, 'max_val': 16}"), "symbol s77: int in [5,8]");
  for (const char* odd : {"'s77*s78'", "'s77**2'", "'s77//2'", "'-s77'", "'0*s77'", "''", "'2*'", "'99999999999999999999*s77'"}) {
    EXPECT_EQ(range_of_s77(own + ", " + odd + ": {'min_val': 0, 'max_val': 9}"), "symbol s77: int in [2,8]") << odd;
  }
}

TEST(Import, MutationsBecomeStates) {
  Model m;
  m.parameter("b_c", "buffer", "'buffer_name': 'cache', 'persistent': true");
  m.input("x");
  m.tensor("b_c"), m.tensor("a");
  m.weights = "'cache': " + Model::meta("weight_0", "{'as_int': 2}", "{'as_int': 1}");
  m.files = {{"data/weights/weight_0", floats({0, 1})}};
  m.node("torch.ops.aten.add.Tensor", Model::arg("self", Model::value("b_c")) + "," + Model::arg("other", Model::value("x")), Model::value("a"));
  m.outputs = Model::value("a") + ", " + Model::value("a") + ", " + Model::value("a");
  m.output_specs = "{'buffer_mutation': {'arg': {'name': 'a'}, 'buffer_name': 'cache'}}, {'user_input_mutation': {'arg': {'name': 'a'}, 'user_input_name': 'x'}}, "
                   "{'user_output': {'arg': " + Model::value("a") + "}}";
  EXPECT_EQ(import_text(m),
            "const 0: f32[2] \"cache\" buffer mutable = {0.0,1.0}\nmethod \"forward\"\ngraph(x: f32[2]) {\n"
            "  state b_c: f32[2] \"cache\" = const 0\n  a: f32[2] = aten::add.Tensor(b_c, x, 1) as \"n0\"\n"
            "  write state \"cache\" = a\n  write input 0 = a\n  return a\n}\n");
}

TEST(Import, SubGraphsBecomeRegions) {
  Model m;
  m.input("x");
  m.tensor("r");
  const std::string sub_tensors = "'x': {'dtype': 7, 'sizes': [{'as_int': 2}], 'strides': [{'as_int': 1}], 'layout': 7}";
  const std::string body = "{'name': 'true_graph_0', 'graph': {'inputs': [{'as_tensor': {'name': 'x'}}], 'outputs': [{'as_tensor': {'name': 'x'}}], 'nodes': [], "
                           "'tensor_values': {" + sub_tensors + "}}}";
  m.node("torch.ops.higher_order.cond", Model::arg("", "{'as_bool': true}") + "," + Model::arg("", "{'as_graph': " + body + "}") + "," +
                                            Model::arg("", "{'as_graph': " + body + "}") + "," + Model::arg("", "{'as_tensors': [{'name': 'x'}]}"), Model::value("r"));
  m.tensor("g");
  m.node("torch.ops.higher_order.wrap_with_set_grad_enabled", Model::arg("", "{'as_bool': false}") + "," + Model::arg("", "{'as_graph': " + body + "}") + "," +
                                                                  Model::arg("", Model::value("r")) + "," + Model::arg("", Model::value("x")), Model::value("g"));
  m.output(Model::value("g"));
  EXPECT_EQ(import_text(m),
            "method \"forward\"\ngraph(x: f32[2]) {\n"
            "  r: f32[2] = higher_order::cond(true, [x]) as \"n0\" regions [\n"
            "    graph(x: f32[2]) {\n      return x\n    },\n    graph(x: f32[2]) {\n      return x\n    }\n  ]\n"
            "  g: f32[2] = higher_order::wrap_with_set_grad_enabled(false, [r, x]) as \"n1\" regions [\n    graph(x: f32[2]) {\n      return x\n    }\n  ]\n"
            "  return g\n}\n");
}

TEST(Import, InputNamesAreTheArguments) {
  Model m = one_relu();
  m.inputs = "", m.input_specs = "", m.tensors = "", m.nodes = "", m.outputs = "", m.output_specs = "";
  m.input("p_x_1"), m.input("d_k");
  m.output(Model::value("d_k"));
  const std::string leaf = "{\\'type\\': null, \\'context\\': null, \\'children_spec\\': []}";
  const std::string dict = "{\\'type\\': \\'builtins.dict\\', \\'context\\': \\'[]\\', \\'children_spec\\': [" + leaf + "]}";
  const std::string spec = "[1, {\\'type\\': \\'builtins.tuple\\', \\'context\\': \\'null\\', \\'children_spec\\': [{\\'type\\': \\'builtins.tuple\\', \\'context\\': \\'null\\', "
                           "\\'children_spec\\': [" + leaf + ", " + dict + "]}, {\\'type\\': \\'builtins.dict\\', \\'context\\': \\'[]\\', \\'children_spec\\': []}]}]";
  m.call_graph = "{'fqn': '', 'signature': {'inputs': [], 'outputs': [], 'in_spec': '" + spec + "', 'out_spec': '', 'forward_arg_names': ['p_x', 'd']}}";
  const std::string text = import_text(m);
  EXPECT_NE(text.find("graph(p_x_1: f32[2] as \"p_x\", d_k: f32[2])"), std::string::npos) << text;
}

TEST(Import, ProgramsThatContradictThemselvesAreRefused) {
  Model m = one_relu();
  m.version = "'schema_version': {'major': 9, 'minor': 0}";
  expect_error(m, 3, "schema version 9.0");
  m = one_relu();
  m.node("torch.ops.aten.relu.default", Model::arg("self", Model::value("nowhere")), Model::value("x"));
  expect_error(m, 3, "'nowhere' is used before it is produced");
  m = one_relu();
  m.node("torch.ops.aten.relu.default", Model::arg("self", Model::value("x")), Model::value("y"));
  expect_error(m, 3, "'y' is produced twice");
  m = one_relu();
  m.node("torch.ops.aten.relu.default", Model::arg("other", Model::value("x")), Model::value("x"));
  expect_error(m, 4, "aten::relu has no argument 'other'");
  m = one_relu();
  m.tensor("z", "{'as_int': -2}");
  m.node("torch.ops.aten.relu.default", Model::arg("self", Model::value("x")), Model::value("z"));
  expect_error(m, 3, "-2 is no dim");
  m = one_relu();
  m.tensor("z", "{'as_expr': {'expr_str': 'Zeta(Integer(2))', 'hint': null}}");
  m.node("torch.ops.aten.relu.default", Model::arg("self", Model::value("x")), Model::value("z"));
  expect_error(m, 4, "function Zeta is not known");
  m = one_relu();
  m.tensor("z");
  m.node("torch.ops.aten.relu.default", Model::arg("self", "{'as_string': 'x'}"), Model::value("z"));
  expect_error(m, 3, "argument 'self' cannot be a string");
  m = one_relu();
  m.output_specs = "";
  expect_error(m, 3, "1 graph outputs with 0");
}

TEST(Import, EveryTruncatedJsonIsAnError) {
  const std::string json = one_relu().json();
  for (size_t size = 0; size < json.size(); ++size) {
    test::ZipWriter zip;
    zip.add("m/models/model.json", json.substr(0, size));
    zip.add("m/archive_format", "pt2");
    ASSERT_TRUE(import_text(zip.finish()).starts_with("error 3")) << size;
  }
}

TEST(Import, DamagedJsonNeverCrashes) {
  Model m = one_relu();
  m.weights = "'w': " + Model::meta("weight_0", "{'as_int': 2}", "{'as_int': 1}");
  const std::string json = m.json();
  const ir::Catalog catalog = make_catalog();
  uint32_t random = 1;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = json;
    for (int k = 0; k < 2; ++k) {
      random = random * 1664525u + 1013904223u;
      damaged[(random >> 8) % damaged.size()] = "0129-{}[]\",:nxse"[random >> 28];
    }
    test::ZipWriter zip;
    zip.add("m/models/model.json", damaged);
    zip.add("m/archive_format", "pt2");
    const std::string text = import_text(zip.finish());
    ASSERT_TRUE(!text.starts_with("error ") || text[6] == '3' || text[6] == '4') << text;
  }
}

TEST(Archive, ForeignFilesAreNamed) {
  const auto error = [](std::initializer_list<std::pair<const char*, const char*>> entries) {
    test::ZipWriter zip;
    for (const auto& [name, data] : entries) zip.add(name, data);
    return import_text(zip.finish());
  };
  EXPECT_NE(error({{"serialized_exported_program.json", "{}"}}).find("error 4: archive of torch 2.7 or older"), std::string::npos);
  EXPECT_NE(error({{"archive/data.pkl", ""}}).find("torch.save file"), std::string::npos);
  EXPECT_NE(error({{"m/data.pkl", ""}, {"m/constants.pkl", ""}}).find("TorchScript"), std::string::npos);
  EXPECT_NE(error({{"m/data/weights/weight_0", ""}}).find("no exported program in archive"), std::string::npos);
  EXPECT_NE(error({{"m/archive_format", "pt2"}}).find("no exported program in archive"), std::string::npos);
  EXPECT_NE(error({{"m/archive_format", "pt3"}}).find("archive_format is 'pt3'"), std::string::npos);
  EXPECT_NE(error({{"m/archive_format", "pt2"}, {"m/archive_version", "1"}}).find("archive_version is '1'"), std::string::npos);
  EXPECT_NE(error({{"m/archive_format", "pt2"}, {"m/byteorder", "big"}}).find("error 4"), std::string::npos);
  EXPECT_NE(error({{"m/readme", "hi"}}).find("archive_format is missing"), std::string::npos);
}

TEST(Archive, SeveralModelsNeedAName) {
  test::ZipWriter zip;
  zip.add("m/models/a.json", one_relu().json());
  zip.add("m/models/b.json", one_relu().json());
  zip.add("m/archive_format", "pt2");
  const std::string archive = zip.finish();
  EXPECT_NE(import_text(archive).find("error 3: the archive has several programs, name one of [a,b]"), std::string::npos);
  ImportOptions options;
  options.model = "b";
  EXPECT_NE(import_text(archive, options).find("graph(x: f32[2])"), std::string::npos);
  options.model = "c";
  EXPECT_NE(import_text(archive, options).find("no program 'c'"), std::string::npos);
}

std::string read_expr(const std::string& text) {
  ir::ExprContext exprs;
  ExprReader reader(exprs, {{"s", {2, 64}}});
  const auto e = reader.read(text);
  return e.ok() ? ir::to_text(*e) : "error " + std::to_string(exit_code(e.status().code()));
}

TEST(Srepr, HeadsOfTheFormat) {
  const std::string s = "Symbol('s', positive=True, integer=True)";
  EXPECT_EQ(read_expr(s), "s");
  EXPECT_EQ(read_expr("Integer(-9223372036854775808)"), "-9223372036854775808");
  EXPECT_EQ(read_expr("Add(Integer(1), Mul(Integer(-1), " + s + "))"), "1+-1*s");
  EXPECT_EQ(read_expr("FloorDiv(Add(" + s + ", Integer(6)), Integer(7))"), "(6+s)//7");
  EXPECT_EQ(read_expr("Max(Integer(7), " + s + ", Add(FloorDiv(" + s + ", Integer(2)), Integer(20)))"), "max(s,20+s//2)");
  EXPECT_EQ(read_expr("PythonMod(" + s + ", Integer(7))"), "s%7");
  EXPECT_EQ(read_expr("TruncToInt(Mul(Float('1.5', precision=53), ToFloat(" + s + ")))"), "trunc(1.5*float(s))");
  EXPECT_EQ(read_expr("IntTrueDiv(" + s + ", Integer(2))"), "s/2");
  EXPECT_EQ(read_expr("PowByNatural(" + s + ", Integer(2))"), "s*s");
  EXPECT_EQ(read_expr("OpaqueUnaryFn_sqrt(ToFloat(" + s + "))"), "sqrt(float(s))");
  EXPECT_EQ(read_expr("BitwiseFn_bitwise_and(" + s + ", Integer(3))"), "bitand(s,3)");
  EXPECT_EQ(read_expr("Piecewise(ExprCondPair(" + s + ", StrictGreaterThan(" + s + ", Integer(30))), ExprCondPair(Add(" + s + ", Integer(1)), true))"),
            "ite(30<s,s,1+s)");
  EXPECT_EQ(read_expr("And(GreaterThan(" + s + ", Integer(3)), Not(Equality(" + s + ", Integer(5))))"), "and(3<=s,not(s==5))");
  EXPECT_EQ(read_expr("CeilDiv(" + s + ", Integer(2))"), "-1*((-1*s)//2)");
  EXPECT_EQ(read_expr("Symbol('zuf0')"), "zuf0");
  EXPECT_EQ(read_expr("Min(int_oo, " + s + ")"), "s");
  EXPECT_EQ(read_expr("Equality(" + s + ", Integer(1))"), "false");  // outside the range
}

TEST(Srepr, DamagedAndHugeTexts) {
  EXPECT_EQ(read_expr(""), "error 3");
  EXPECT_EQ(read_expr("Add("), "error 3");
  EXPECT_EQ(read_expr("Integer(x)"), "error 3");
  EXPECT_EQ(read_expr("Integer(1) "), "error 3");
  EXPECT_EQ(read_expr("Symbol('a b')"), "error 3");
  EXPECT_EQ(read_expr("Symbol('s', integer="), "error 3");
  EXPECT_EQ(read_expr("FloorDiv(Integer(1))"), "error 3");
  EXPECT_EQ(read_expr("Integer(99999999999999999999)"), "error 4");
  EXPECT_EQ(read_expr("Unheard(Integer(1))"), "error 4");
  std::string deep, many = "Mul(Integer(1)";
  for (int i = 0; i < 5000; ++i) deep += "Not(";
  for (int i = 0; i < 60; ++i) many += ", Add(Symbol('a" + std::to_string(i) + "', integer=True), Integer(1))";
  EXPECT_EQ(read_expr(deep), "error 4");
  EXPECT_EQ(read_expr(many + ")"), "error 4");
  EXPECT_EQ(read_expr("Mul(Integer(9223372036854775807), Integer(9223372036854775807), Symbol('q', integer=True))"), "q");  // wraps, no undefined behaviour
  EXPECT_EQ(read_expr("FloorDiv(Integer(-9223372036854775808), Integer(-1))"), "-9223372036854775808");
  EXPECT_EQ(read_expr("Pow(Integer(1), Integer(9223372036854775807))"), "1");
  EXPECT_EQ(read_expr("Mod(Integer(5), Integer(0))"), "5%0");
}

TEST(SourceInfo, LinesAndModules) {
  const std::string trace = "  File \"/home/me/project/net.py\", line 42, in forward\n    y = f(x)\n  File \"/v/lib/torch/nn/modules/linear.py\", line 9, in forward\n"
                            "  File \"<eval_with_key>.5\", line 3, in forward\n";
  EXPECT_EQ(source_line(trace, SourceDetail::kShort), "project/net.py:42");
  EXPECT_EQ(source_line(trace, SourceDetail::kFull), "/home/me/project/net.py:42");
  EXPECT_EQ(source_line(trace, SourceDetail::kNone), "");
  EXPECT_EQ(source_line("File \"/a/torch/nn/f.py\", line 1, in g", SourceDetail::kShort), "nn/f.py:1");
  EXPECT_EQ(source_line("File \"net.py\", line", SourceDetail::kShort), "");
  EXPECT_EQ(source_line("", SourceDetail::kShort), "");
  EXPECT_EQ(module_path("L__self__,,pkg.N;L__self__seq.0,seq.0,torch.nn.modules.conv.Conv2d"), "seq.0");
  EXPECT_EQ(module_path("L['self'].m[\"a,b\"],m.x,pkg.N"), "m.x");
  EXPECT_EQ(module_path("garbage"), "");
}

TEST(Operators, NamesOfTargets) {
  EXPECT_EQ(operator_name("torch.ops.aten.add.Tensor"), "aten::add.Tensor");
  EXPECT_EQ(operator_name("torch.ops.aten.relu.default"), "aten::relu");
  EXPECT_EQ(operator_name("torch.ops.higher_order.cond"), "higher_order::cond");
  EXPECT_EQ(operator_name("torch._functorch.predispatch._add_batch_dim"), "torch._functorch.predispatch._add_batch_dim");
  EXPECT_TRUE(is_symbolic_function("_operator.mul"));
  EXPECT_FALSE(is_symbolic_function("aten::add.Tensor"));
}

/// The annotated pickle of the format's description: one float tensor [2,3] as argument, {"k": (True, 2**40, None)} as keywords.
std::string sample_pickle() {
  std::string p("\x80\x02", 2);
  const auto text = [](std::string_view s) {
    const auto n = static_cast<uint32_t>(s.size());
    return "X" + std::string(reinterpret_cast<const char*>(&n), 4) + std::string(s);
  };
  p += "ctorch._utils\n_rebuild_tensor_v2\nq\x01((" + text("storage") + "ctorch\nFloatStorage\n" + text("0") + text("cpu") + "K\x06tQK";
  p += std::string("\0K\x02K\x03\x86K\x03K\x01\x86\x89" "ccollections\nOrderedDict\n)RtR\x85", 42);
  p += "}" + text("k") + "\x88\x8a\x06" + std::string("\0\0\0\0\0\x01", 6) + "N\x87s\x86.";
  return p;
}

TEST(SampleInputs, TensorsAndNumbers) {
  test::ZipWriter inner;
  inner.add("archive/data.pkl", sample_pickle());
  inner.add("archive/data/0", floats({1, 2, 3, 4, 5, 6}));
  Model m = one_relu();
  m.files["data/sample_inputs/model.pt"] = inner.finish();
  const auto inputs = read_sample_inputs(map_bytes(m.archive()), "");
  ASSERT_TRUE(inputs.ok()) << inputs.status().message();
  ASSERT_EQ(inputs->size(), 4u);
  const auto& tensor = std::get<ir::Constant>((*inputs)[0].value);
  EXPECT_EQ(tensor.sizes, (std::vector<int64_t>{2, 3}));
  float last = 0;
  std::memcpy(&last, tensor.data + 20, 4);
  EXPECT_EQ(last, 6);
  EXPECT_EQ((*inputs)[1].path, "kw.k.0");
  EXPECT_EQ(std::get<bool>((*inputs)[1].value), true);
  EXPECT_EQ(std::get<int64_t>((*inputs)[2].value), int64_t{1} << 40);
  EXPECT_TRUE(std::holds_alternative<std::monostate>((*inputs)[3].value));
}

TEST(SampleInputs, EverythingElseIsNone) {
  const auto message = [](const std::string& pickle, const std::string& data) {
    test::ZipWriter inner;
    inner.add("archive/data.pkl", pickle);
    inner.add("archive/data/0", data);
    Model m = one_relu();
    m.files["data/sample_inputs/model.pt"] = inner.finish();
    const auto inputs = read_sample_inputs(map_bytes(m.archive()), "");
    return inputs.ok() ? std::string("inputs") : std::string(inputs.status().message());
  };
  EXPECT_NE(message(sample_pickle(), floats({1})).find("reaches outside its data"), std::string::npos);
  EXPECT_NE(message("\x80\x02" "cos\nsystem\nX\x01" + std::string("\0\0\0", 3) + "xR.", "").find("no sample inputs"), std::string::npos);
  for (size_t size = 0; size < sample_pickle().size(); ++size) {
    ASSERT_NE(message(sample_pickle().substr(0, size), floats({1, 2, 3, 4, 5, 6})), "inputs") << size;
  }
  std::string twice = "((]q";  // a list that holds another one twice, which holds another one twice, ...
  twice += std::string("\0", 1);
  for (int i = 1; i < 60; ++i) twice += "]q" + std::string(1, static_cast<char>(i)) + "h" + std::string(1, static_cast<char>(i - 1)) + "ah" + std::string(1, static_cast<char>(i - 1)) + "a";
  EXPECT_NE(message(twice + "t}t.", "").find("no sample inputs"), std::string::npos);
  EXPECT_NE(import_text(one_relu()).find("graph"), std::string::npos);
  EXPECT_EQ(read_sample_inputs(map_bytes(one_relu().archive()), "").status().message(), "no sample inputs: the program was saved without them");
}

}  // namespace
}  // namespace pteron::importer
