// Control flow operators (torch.ops.higher_order): their branches and bodies are Node::regions in the order named here. The schema lists the other
// arguments only. Scalars are not among the operands: a region sees the symbols of the graph around it. And prebuilt engines, which no kernel runs either.
#include <span>

#include "ir/op.h"

namespace pteron::ops::control {

namespace {

constexpr ir::OpDef kTable[] = {
    // Regions: true, false. pred: a bool tensor or a symbolic bool.
    {.schema = "higher_order::cond(Scalar pred, Tensor[] operands) -> Tensor[]", .flags = ir::kRegion},
    // Regions: condition, body; inputs of both: carried, then additional.
    {.schema = "higher_order::while_loop(Tensor[] carried, Tensor[] additional) -> Tensor[]", .flags = ir::kRegion},
    // Region: body on (carry, slice of xs along dim 0, additional) -> (carry, ys). Results: carries, then stacked ys.
    {.schema = "higher_order::scan(Tensor[] init, Tensor[] xs, Tensor[] additional) -> Tensor[]", .flags = ir::kRegion},
    // Region: body on (slice of xs along dim 0, additional). Results: stacked.
    {.schema = "higher_order::map_impl(Tensor[] xs, Tensor[] additional) -> Tensor[]", .flags = ir::kRegion},
    // Region: the body; inlined by a pass.
    {.schema = "higher_order::wrap_with_set_grad_enabled(bool enabled, Tensor[] operands) -> Tensor[]", .flags = ir::kRegion},
    {.schema = "higher_order::wrap_with_autocast(str device_type, ScalarType? dtype, bool enabled, bool? cache_enabled, Tensor[] operands) -> Tensor[]",
     .flags = ir::kRegion},
    // No region: an engine that another tool compiled (ir/engine.h). Sizes of its results are those of the archive, a delegate runs it.
    {.schema = "pteron::tensorrt_engine(Tensor[] inputs, Tensor engine, str abi_version, str name, str device, str input_names, str output_names, "
               "str hardware_compatible, str metadata, str target_platform, str output_allocator, str resource_allocation, str multi_device, "
               "str aliases) -> Tensor[]"},
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;

}  // namespace pteron::ops::control
