// The node of an engine that another tool compiled: what the importer makes of both kinds of TensorRT node. It stays as it is until its backend
// claims it (backends/tensorrt/aot); no kernel runs it and no pass looks inside. The row is in ops/control.
#pragma once

#include <cstddef>
#include <string_view>

namespace pteron::ir {

/// Arguments: `inputs` (tensors in the engine's order), `engine` (a uint8 constant with the engine's bytes), then the engine's record: its slots
/// in order without that of the bytes.
inline constexpr std::string_view kEngineOp = "pteron::tensorrt_engine";
/// Slots of a record, and which of them is the engine.
inline constexpr size_t kEngineSlots = 13, kEngineBytesSlot = 3;

}  // namespace pteron::ir
