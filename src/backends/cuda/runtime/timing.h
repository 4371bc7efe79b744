// Where the time of a call goes, for `pteron bench`: events in a recorded call, after each copy and kernel.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda/runtime/device.h"

namespace pteron::cuda {

/// Events on the device, in the order in which they were put on a stream. Requires: the context is current in all members.
class Marks {
 public:
  explicit Marks(std::shared_ptr<const Device> device) : device_(std::move(device)) {}
  ~Marks();
  Marks(const Marks&) = delete;
  Marks& operator=(const Marks&) = delete;
  /// Notes the moment when everything before it on the stream is done; what: that which ends there. Errors: kUnavailable, kOutOfMemory.
  Status put(Stream stream, std::string what);
  /// From the mark before to this one, in every replay anew. Errors: kUnavailable. Units: milliseconds.
  struct Step {
    std::string what;
    double ms = 0;
  };
  Result<std::vector<Step>> steps() const;

 private:
  struct Mark {
    std::string what;
    Event event = nullptr;
  };
  std::shared_ptr<const Device> device_;
  std::vector<Mark> marks_;
};

}  // namespace pteron::cuda
