// Where the time of a method's calls goes: every instruction with its time, also those inside delegates whose payload is a program.
// Used by pteron bench.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/json_writer.h"
#include "cli/probe.h"
#include "pteron/program.h"
#include "runtime/state.h"

namespace pteron::cli {

/// One instruction over all profiled calls.
struct ProfiledNode {
  std::string kernel;      ///< "aten::add.out"; for what a delegate spends beside its instructions, its id
  std::string place;       ///< "12", "delegate 0: 12", with the line of the model where the file has it
  std::string shape;       ///< of the result
  double flops = 0;        ///< per call; a multiply-add counts two
  double bytes = 0;        ///< per call: arguments read and results written once
  double seconds = 0;      ///< over all calls
  uint64_t calls = 0;
};

/// An instruction that ran, for traces.
struct ProfiledEvent {
  size_t node = 0;
  double begin_us = 0, duration_us = 0;
};

/// Observes a method while it lives.
/// Threads: as the method.
class Profile {
 public:
  explicit Profile(Method& method);
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// Call right before Method::execute(): what runs until the first instruction has ended counts as that one's.
  void begin_call();
  /// Call right after it: what is left belongs to no instruction.
  void end_call();
  const std::vector<ProfiledNode>& nodes() const { return nodes_; }

  /// Tables per kernel and per node, and a line that says what bounds the model.
  std::string table(const Machine& machine) const;
  void to_json(const Machine& machine, JsonWriter& json) const;
  /// Chrome's and Perfetto's trace format.
  std::string trace() const;

 private:
  class Watcher;
  std::string hint(const Machine& machine) const;
  double total_seconds() const;
  void record(size_t node);

  std::vector<std::unique_ptr<Watcher>> watchers_;
  std::vector<ProfiledNode> nodes_;
  std::vector<ProfiledEvent> events_;
  std::chrono::steady_clock::time_point start_, last_;
  double outside_seconds_ = 0;
  uint64_t calls_ = 0;
};

}  // namespace pteron::cli
