// Inputs and outputs of a delegate, matched with those of its engine: all checks of a load that concern names, aliases and profiles.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/tensorrt/blob.h"
#include "backends/tensorrt/runtime/engine_library.h"

namespace pteron::tensorrt {

/// An input or output of the delegate.
struct Port {
  EngineTensor tensor;
  std::vector<ProfileSizes> profiles;  ///< of an input, by profile
  std::optional<size_t> alias;         ///< of an output: the input whose memory it is; of an input: the output in it
  bool elided = false;                 ///< of an output: it is no argument of the call
};

struct Ports {
  std::vector<Port> inputs;   ///< in the order of the arguments
  std::vector<Port> outputs;  ///< in the order of the arguments, then the elided ones
  size_t passed_outputs() const;
};

/// Errors: kInvalidFile (names that the engine does not have, or that the payload does not list; aliases that it contradicts; sizes read on the host;
///         a payload without names whose engine numbers its own with gaps), kInvalidInput (a profile that the engine does not have).
Result<Ports> match_ports(const Metadata& metadata, const Engine& engine, std::optional<int> profile);

}  // namespace pteron::tensorrt
