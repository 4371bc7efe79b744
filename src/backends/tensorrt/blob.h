// Payloads of the official TensorRTBackend ("TR01" and "TR02"): header, JSON, a serialized TensorRT engine. Read by `inspect` and the runtime half,
// written by the compile half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pteron/status.h"

namespace pteron::tensorrt {

inline constexpr std::string_view kBackendId = "TensorRTBackend";
/// The engine begins at a multiple of this, from the payload's first byte on.
inline constexpr size_t kEngineAlignment = 16;

/// An input or output of the engine by the name that it has there.
struct Binding {
  std::string name;
  bool is_input = true;
};

/// An engine output that is an input's memory: written where the input lies.
struct Alias {
  enum class Kind : uint8_t { kKvCacheUpdate, kUser };
  std::string output;
  std::string input;
  Kind kind = Kind::kKvCacheUpdate;
};

/// What a payload says of its engine. Bindings: inputs in the order of the delegate's arguments, then outputs in the engine's order.
struct Metadata {
  std::vector<Binding> bindings;
  std::vector<Alias> aliases;
  bool hardware_compatible = false;
  int64_t device_id = 0;            ///< CUDA ordinal, below 2^31
  std::string serialized_metadata;  ///< of the tool that built the engine (base64), passed on
  std::string target_platform;
  std::string engine_key;           ///< key of the engine in a data file; empty: the engine is in the payload
};

/// A payload that was read. Owns: its metadata; the engine's bytes are part of the payload.
struct Blob {
  Metadata metadata;
  std::span<const std::byte> engine;
};

/// True if the bytes begin as such a payload does, of whatever version.
bool is_blob(std::span<const std::byte> payload);

/// Reads a payload; every offset, size and name is checked. Bytes behind the engine are passed over, as the official readers do.
/// Where those two disagree (a binding that does not say whether it is an input, an alias without a name, an engine size that wraps), it is refused.
/// Errors: kInvalidFile.
Result<Blob> read_blob(std::span<const std::byte> payload);

/// Everything in front of the engine: header, JSON, padding, so that an engine of any size is never copied. The payload is this and then
/// `engine_bytes` bytes; byte for byte what the official writer makes. With an engine_key, `engine_bytes` is 0.
/// Errors: kInvalidInput (names that are no UTF-8, twice the same, empty or none; JSON of 4 GiB).
Result<std::string> blob_head(const Metadata& metadata, uint64_t engine_bytes);

/// An engine as exported programs carry it: the strings of the node, without the engine's bytes (slot 3, which is passed over).
struct EngineRecord {
  std::string name;
  Metadata metadata;  ///< bindings in the engine's own order
  bool needs_output_allocator = false;  ///< output sizes depend on data
};

/// Number of strings in a record.
inline constexpr size_t kRecordSlots = 13;

/// Reads a record: version "10", name, device ("id%major%minor%type%name"), engine, input and output names joined by '%', hardware compatible ("0" or
/// "1"), metadata, target platform, output allocator, resource allocation, multi-device, aliases ("output@input@kind" joined by '%').
/// Errors: kInvalidFile (another count or version, a slot that is not what it should be).
Result<EngineRecord> read_record(std::span<const std::string> slots);

}  // namespace pteron::tensorrt
