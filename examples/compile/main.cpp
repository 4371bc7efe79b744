// Compiles an archive in memory for the CPU engine and loads the program; with OUT.pte writes it as well: compile MODEL.pt2 [OUT.pte]
#include <pteron/compile.h>
#include <pteron/program.h>

#include <cstdio>

int fail(const pteron::Status& status) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
  return pteron::exit_code(status.code());
}

int main(int argc, char** argv) {
  pteron::CompileSettings settings;
  settings.methods = {{"forward", argc > 1 ? argv[1] : "model.pt2"}};
  settings.backends = {"cpu"};
  const auto edge = pteron::export_program(settings);
  if (!edge.ok()) return fail(edge.status());
  const auto compiled = edge->finalize();
  if (!compiled.ok()) return fail(compiled.status());
  const auto file = compiled->bytes();
  if (!file.ok()) return fail(file.status());
  const auto program = pteron::Program::load(file->bytes);
  if (!program.ok()) return fail(program.status());
  const auto method = (*program)->load_method("forward");
  if (!method.ok()) return fail(method.status());
  std::printf("%zu inputs, %zu outputs, %zu bytes\n", (*method)->input_count(), (*method)->output_count(), file->bytes.size());
  if (argc < 3) return 0;
  const auto written = compiled->write(argv[2]);
  return written.ok() ? 0 : fail(written.status());
}
