// Control flow operators (torch.ops.higher_order): their branches and bodies are Node::regions in the order named here.
// The schema lists the other arguments only. Scalars are not among the operands: a region sees the symbols of the graph around it.
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
};

}  // namespace

extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;

}  // namespace pteron::ops::control
