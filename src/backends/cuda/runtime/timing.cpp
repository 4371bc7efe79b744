// Events and the times between them.
#include "backends/cuda/runtime/timing.h"

namespace pteron::cuda {

Marks::~Marks() {
  const ContextScope scope(*device_);
  for (const Mark& mark : marks_) device_->driver().event_destroy(mark.event);
}

Status Marks::put(Stream stream, std::string what) {
  const Driver& d = device_->driver();
  Mark mark{std::move(what)};
  PTERON_TRY(d.check(d.event_create(&mark.event, 0), "making an event"));
  marks_.push_back(std::move(mark));
  return d.check(d.event_mark(marks_.back().event, stream, kEventExternal), "recording an event");
}

Result<std::vector<Marks::Step>> Marks::steps() const {
  const Driver& d = device_->driver();
  std::vector<Step> found;
  for (size_t i = 1; i < marks_.size(); ++i) {
    float ms = 0;
    PTERON_TRY(d.check(d.event_elapsed(&ms, marks_[i - 1].event, marks_[i].event), "reading an event"));
    found.push_back({marks_[i].what, static_cast<double>(ms)});
  }
  return found;
}

}  // namespace pteron::cuda
