// Runs the first method of a program on inputs full of zeros and prints the shape of its first output.
#include <pteron/program.h>

#include <cstdio>
#include <variant>
#include <vector>

int fail(const pteron::Status& status) {
  std::fprintf(stderr, "%.*s\n", static_cast<int>(status.message().size()), status.message().data());
  return pteron::exit_code(status.code());
}

int main(int argc, char** argv) {
  const auto program = pteron::Program::load(argc > 1 ? argv[1] : "model.pte");
  if (!program.ok()) return fail(program.status());
  const auto method = (*program)->load_method((*program)->method_names()[0]);
  if (!method.ok()) return fail(method.status());
  std::vector<std::vector<std::byte>> storage;
  for (size_t i = 0; i < (*method)->input_count(); ++i) {
    const pteron::ValueInfo& info = (*method)->info().inputs[i];
    std::vector<int64_t> sizes;
    for (const pteron::DimInfo& dim : info.dims) sizes.push_back(dim.max);
    storage.emplace_back(info.bound_bytes() + 1);
    const auto status = (*method)->set_input(i, pteron::make_contiguous_view(info.dtype, sizes, storage.back().data()));
    if (!status.ok()) return fail(status);
  }
  if (const auto status = (*method)->execute(); !status.ok()) return fail(status);
  const auto output = (*method)->output(0);
  if (!output.ok()) return fail(output.status());
  if (const auto* tensor = std::get_if<pteron::TensorView>(&*output)) std::printf("%zu elements\n", static_cast<size_t>(tensor->numel()));
  return 0;
}
