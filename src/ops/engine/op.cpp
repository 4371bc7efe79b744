// Engines that another tool compiled. Sizes of their results are those of the archive; a delegate runs them (ir/engine.h).
#include "ops/infer.h"

namespace pteron::ops::engine {

namespace {

constexpr ir::OpDef kRows[] = {
    {.schema = "pteron::tensorrt_engine(Tensor[] inputs, Tensor engine, str abi_version, str name, str device, str input_names, str output_names, "
               "str hardware_compatible, str metadata, str target_platform, str output_allocator, str resource_allocation, str multi_device, "
               "str aliases) -> Tensor[]"},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kRows;

}  // namespace pteron::ops::engine
