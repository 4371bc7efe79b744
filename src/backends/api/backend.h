// What a backend tells the compiler: which nodes it takes, and how it turns a group of them into a payload. The runtime half is
// include/pteron/delegate.h. Implemented by src/backends/*/aot, called by partition and by compiler/pipeline.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "emit/emit.h"
#include "format/data_file.h"
#include "format/payload.h"
#include "format/program.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "pteron/status.h"

namespace pteron::backends {

/// Whether a backend takes a node, and why not.
struct Support {
  bool yes = true;
  std::string reason;  ///< of a refusal
  static Support no(std::string why) { return {false, std::move(why)}; }
};

/// Bytes that the program stores under a key for a payload. Equal keys are stored once.
/// Owns:    borrows bytes of the ir::Program, or those of `owner`.
struct NamedBlob {
  std::string key;
  std::optional<format::DataLayout> layout;  ///< of a tensor
  format::Payload payload;
  std::shared_ptr<const Buffer> owner;
};

/// A group, compiled.
/// Owns:    its members; `data` as NamedBlob says.
struct CompiledGroup {
  std::string id;  ///< of the backend in the file
  Buffer payload;
  std::span<const std::byte> payload_tail;  ///< behind `payload`, for payloads too large to be copied: bytes of a constant of the ir::Program
  std::shared_ptr<const void> tail_owner;   ///< keeps payload_tail alive where the constant does not
  std::vector<format::CompileSpec> specs;
  std::vector<NamedBlob> data;
  uint64_t memory_bytes = 0;          ///< planned memory that the payload has at run time beside the call's arguments
  uint64_t lower_bound_bytes = 0;     ///< largest sum of live buffers in it; 0 if the backend does not know
  std::vector<std::string> kernels;   ///< what runs inside, for reports; one entry a call
  /// In whose memory the payload takes all tensors of a call, inputs and outputs. The host's: Pteron copies nothing, the payload does what it needs. A
  /// device's: Pteron plans buffers there and puts copies where other nodes need the tensors; the runtime half must have a device_allocator().
  Device io_device = {};
  /// A device whose tensors the payload takes as well as the host's: io_device becomes it if another delegate of the program has its tensors there, or if
  /// the program's inputs or outputs may be on a device.
  Device possible_device = {};
};

/// What compiling a group may use.
struct GroupContext {
  const ir::Catalog* catalog = nullptr;
  emit::ExternalKeys* external_keys = nullptr;  ///< of the whole compilation, for backends whose payloads are programs
  bool bf16 = false;                            ///< products and convolutions may round their operands to bfloat16
  bool external_weights = false;                ///< the data goes to a data file: small weights as well
  std::span<const format::CompileSpec> specs;   ///< what the caller set for this backend, without kDataNameSpec
};

/// The compile spec that every backend with external_data() has: name of the data file for its data (format/data_name.h).
inline constexpr std::string_view kDataNameSpec = "data_name";
/// The compile spec of backends that compute on a device: "cuda:1". Which those are their spec_keys() say. It stays in the file.
inline constexpr std::string_view kDeviceSpec = "target_device";

/// Threads: const members may be called from several threads at once.
class Backend {
 public:
  virtual ~Backend() = default;
  /// On the command line: "cpu".
  virtual std::string_view name() const = 0;
  /// In the file: "PteronCpuBackend".
  virtual std::string_view id() const = 0;
  /// Addresses of tensors that its payloads read and write, and planned memory in them, are multiples of this.
  /// Units: bytes.
  virtual uint64_t alignment_bytes() const { return 64; }
  /// Whether its payloads' data may lie in a data file beside the program. If not, a name for one is refused before anything is compiled.
  virtual bool external_data() const { return true; }
  /// Keys of the compile specs that it understands, beside kDataNameSpec.
  virtual std::span<const std::string_view> spec_keys() const { return {}; }
  /// Whether everything that compiling needs is there; asked once before any archive is read. specs: those that the caller gave for this backend, of
  /// all methods.
  /// Errors: kUnavailable (what is missing), kInvalidInput (a spec).
  virtual Status probe(std::span<const format::CompileSpec> /*specs*/) const { return ok_status(); }
  /// Asked for every node of a functional graph that no earlier backend took, except control flow, run-time checks and nodes with results
  /// that are no tensors.
  virtual Support supports(const ir::Graph& graph, const ir::Node& node) const = 0;
  /// Compiles the group's graph, which it may change. Inputs are what the group reads, outputs what others read of it, in the order of
  /// the call's arguments; weights are constants. An input mutation (input, result) means that the call gets one tensor for the input and for
  /// the output that is `result`: the payload reads the old value there and leaves the new one (a mutable buffer is never copied).
  /// Errors: kUnsupported, kUnavailable (something that compiling needs is missing).
  virtual Result<CompiledGroup> compile(ir::Method& group, const GroupContext& context) const = 0;
  /// Called for the backend that claims prebuilt engines, right after import: their nodes get the form that passes expect.
  virtual Status prepare(ir::Method& /*method*/, const ir::Catalog& /*catalog*/) const { return ok_status(); }
  /// Takes the nodes that were compiled before, by another tool, before any backend is asked: each becomes a delegate node (emit::kDelegateOp);
  /// group i of the result belongs to the node whose index argument is first_index + i.
  /// Errors: kInvalidFile (a damaged or inconsistent one), kUnsupported, each with the node.
  virtual Result<std::vector<CompiledGroup>> claim(ir::Method& /*method*/, uint32_t /*first_index*/, const GroupContext& /*context*/) const {
    return std::vector<CompiledGroup>();
  }
};

}  // namespace pteron::backends
