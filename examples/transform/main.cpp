// Compiles an archive with a pass of its own and prints the graph that the backends got: transform MODEL.pt2 OUT.pte
#include <pteron/compile.h>

#include <cstdio>
#include <cstring>
#include <vector>

// Linear layers without a bias get one of zeros, and every relu becomes a clamp that ends at 6.
pteron::Status prepare(pteron::GraphEditor& graph) {
  for (const pteron::GraphNode node : graph.nodes()) {
    pteron::GraphCall call = graph.call(node);
    if (call.op == "aten::relu") PTERON_TRY(graph.replace(node, "aten::hardtanh", {call.arguments[0], 0.0, 6.0}));
    const bool has_bias = call.op != "aten::linear" || !std::holds_alternative<std::monostate>(call.arguments[2]);
    if (has_bias) continue;
    const pteron::GraphTensor weight = graph.tensor(std::get<pteron::GraphValue>(call.arguments[1]));
    const std::vector<std::byte> zeros(static_cast<size_t>(weight.sizes[0].integer()) * pteron::dtype_size(weight.dtype));  // all bits 0: zero in every dtype
    PTERON_ASSIGN(call.arguments[2], graph.add_constant("zeros", weight.dtype, {weight.sizes[0].integer()}, {nullptr, zeros}));
    PTERON_TRY(graph.replace(node, call.op, call.arguments));
  }
  return pteron::ok_status();
}

int fail(const pteron::Status& status) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
  return pteron::exit_code(status.code());
}

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  pteron::CompileSettings settings;
  settings.methods = {{"forward", argv[1]}};
  settings.passes = {{"prepare", prepare}};
  settings.backends = {"portable"};
  const auto edge = pteron::export_program(settings);
  if (!edge.ok()) return fail(edge.status());
  std::printf("%s", edge->text().c_str());
  const auto program = edge->finalize();
  if (!program.ok()) return fail(program.status());
  const auto written = program->write(argv[2]);
  return written.ok() ? 0 : fail(written.status());
}
