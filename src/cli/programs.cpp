// Programs and made-up inputs.
#include "cli/programs.h"

#include <algorithm>
#include <cstring>

#include "backends/null/runtime/backend.h"
#include "base/no_memory.h"
#include "base/str_cat.h"
#include "cli/session.h"
#include "tensor/dtype.h"

namespace pteron::cli {

LoadOptions load_options(const Arguments& arguments) {
  LoadOptions load;
  load.data_files = arguments.list("data");
  load.map = !arguments.flag("no-map");
  load.verify_data = arguments.flag("verify-data");
  load.kernel_libraries = arguments.list("kernels");
  load.seed = arguments.count("seed", 0);
  load.delegates.push_back(&null::backend());
  load.threads = static_cast<int>(std::min<uint64_t>(arguments.count("threads", 0), 4096));
  return load;
}

Result<std::string> pick_method(const Program& program, const std::string& wanted) {
  if (!wanted.empty()) return wanted;
  const auto names = program.method_names();
  if (names.empty()) return Status(Code::kInvalidFile, "the program has no methods");
  return std::find(names.begin(), names.end(), "forward") != names.end() ? std::string("forward") : names[0];
}

Result<SyntheticInputs> SyntheticInputs::make(const Method& method) {
  SyntheticInputs made;
  const MethodInfo& info = method.info();
  uint32_t random = 12345;
  for (size_t i = 0; i < info.inputs.size(); ++i) {
    const ValueInfo& input = info.inputs[i];
    if (input.kind != ValueKind::kTensor) continue;
    std::vector<int64_t> sizes;
    for (const DimInfo& dim : input.dims) sizes.push_back(dim.max);
    PTERON_ASSIGN(Buffer bytes, buffer_for(str_cat("input ", i, " (", input.name, ")"), Buffer::create_zeroed(std::max<uint64_t>(input.bound_bytes(), 1))));
    const TensorView view = make_contiguous_view(input.dtype, sizes, bytes.data());
    const int64_t count = view.numel();
    dispatch_floating(input.dtype, [&]<typename T>() {
      for (int64_t k = 0; k < count; ++k) {
        random = random * 1664525u + 1013904223u;
        view.as<T>()[k] = T(static_cast<float>(static_cast<int32_t>(random)) * 0x1p-31f);
      }
    });
    made.entries_.push_back({i, view});
    made.buffers_.push_back(std::move(bytes));
  }
  return made;
}

Status SyntheticInputs::set(Method& method) const {
  for (const Entry& entry : entries_) PTERON_TRY(method.set_input(entry.index, entry.view));
  return ok_status();
}

}  // namespace pteron::cli
