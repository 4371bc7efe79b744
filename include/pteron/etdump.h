// EventRecorder: what loading a program and its calls take, event by event, as an ETDump (.etdp) that the official inspector reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pteron/program.h"
#include "pteron/status.h"

namespace pteron {

/// Loads and runs programs and takes the time of it. Events: Program::load, Program::load_method and Method::init in a run "Default" for each load; one run
/// "Execute" a call, with native_call_NAME and OPERATOR_CALL for each kernel, the parts of a delegate ("3: pteron_cpu::linear.out") and DELEGATE_CALL for
/// each delegate, Method::execute for the whole. Only calls made through the recorder are recorded and pay for it.
/// Units:   nanoseconds since the recorder was made.
/// Owns:    nothing of the programs; it may outlive them.
/// Threads: one thread at a time.
/// Example: EventRecorder recorder; auto program = recorder.load("m.pte"); auto method = recorder.load_method(**program, "forward");
///          recorder.execute(**method); auto bytes = recorder.etdump();
class EventRecorder {
 public:
  EventRecorder();
  ~EventRecorder();
  EventRecorder(const EventRecorder&) = delete;
  EventRecorder& operator=(const EventRecorder&) = delete;

  /// As Program::load, from a path or from memory.
  Result<std::shared_ptr<Program>> load(const std::string& path, const LoadOptions& options = {});
  Result<std::shared_ptr<Program>> load(std::span<const std::byte> bytes, const LoadOptions& options = {});
  /// As Program::load_method; peer may be null.
  Result<std::unique_ptr<Method>> load_method(Program& program, std::string_view name, Method* peer = nullptr);
  /// As Method::execute. A call that fails is recorded up to where it failed. bundled_case: the case of a bundled program that is called, -1 for none.
  Status execute(Method& method, int bundled_case = -1);

  /// Events that were not recorded because there were more than four million.
  uint64_t left_out() const;
  /// The bytes of a .etdp file with everything so far.
  /// Errors: kInvalidInput (more than 1 GiB), kOutOfMemory.
  Result<std::vector<std::byte>> etdump() const;

 private:
  class Watcher;
  struct Records;
  std::unique_ptr<Records> records_;
};

}  // namespace pteron
