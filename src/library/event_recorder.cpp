// Observers on the method and on the payloads inside note when each instruction ended; texts are made after the call. What lies between two instructions
// (jumps, moves) counts to the later one, noting an event to none.
#include <algorithm>
#include <chrono>
#include <deque>
#include <map>

#include "base/str_cat.h"
#include "format/etdump.h"
#include "pteron/etdump.h"
#include "runtime/state.h"

namespace pteron {

namespace {

using Clock = std::chrono::steady_clock;
using format::EtdumpPlace;
using format::EtdumpProfile;
using runtime::MethodState;

constexpr size_t kMaxEvents = 4'000'000;

/// An instruction that ran. Units: nanoseconds.
struct Step {
  const MethodState* method = nullptr;
  uint32_t instruction = 0;
  uint64_t begin = 0, end = 0;
};

bool is_delegate(const Step& step) { return step.method->code[step.instruction].kind == runtime::Instruction::Kind::kDelegate; }

/// "aten::add.out"; of a delegate its id.
const std::string& operator_name(const Step& step) {
  const auto index = static_cast<size_t>(step.method->operator_of[step.instruction]);
  return (is_delegate(step) ? step.method->info.delegates : step.method->info.operators)[index];
}

}  // namespace

struct EventRecorder::Records {
  Clock::time_point start = Clock::now();
  std::deque<std::string> texts;                                     ///< stable places for what events borrow
  std::map<std::string, std::string_view, std::less<>> known_texts;  ///< into `texts`
  std::vector<Step> steps;                                           ///< of the call that runs
  format::Etdump dump;
  size_t events = 0;
  uint64_t left_out = 0;

  uint64_t now() const { return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count()); }

  std::string_view keep(const std::string& text) {
    const auto [at, fresh] = known_texts.try_emplace(text);
    if (fresh) at->second = texts.emplace_back(text);
    return at->second;
  }

  /// A kernel and a delegate make two events at most.
  bool has_room() const { return events + 2 * steps.size() + 4 < kMaxEvents; }

  void add(std::string_view name, const EtdumpPlace& place, uint64_t begin, uint64_t end) {
    ++events;
    dump.runs.back().events.emplace_back(EtdumpProfile{name, place, begin, end});
  }

  /// A run with one event of the library itself, which began at `begin` and ends now.
  void add_phase(std::initializer_list<std::string_view> names, uint64_t begin) {
    const uint64_t end = now();
    if (!has_room()) {
      left_out += names.size();
      return;
    }
    dump.runs.push_back({"Default"});
    for (const std::string_view name : names) add(name, {}, begin, end);
  }

  /// The steps as events; those of a delegate come before its call.
  void add_steps(const MethodState& method) {
    size_t inner = 0;  // steps of the delegate whose call has not ended yet begin here
    for (size_t i = 0; i < steps.size(); ++i) {
      if (steps[i].method != &method) continue;
      const EtdumpPlace place{0, static_cast<int32_t>(steps[i].instruction)};
      for (size_t k = inner; k < i; ++k) add_inner(steps[k], place);
      inner = i + 1;
      add_outer(steps[i], place);
    }
    for (size_t k = inner; k < steps.size(); ++k) add_inner(steps[k], {0});  // of a delegate that failed
    steps.clear();
  }

  void add_inner(const Step& step, EtdumpPlace place) {
    place.delegate_text = keep(str_cat(step.instruction, ": ", operator_name(step)));
    add(place.delegate_text, place, step.begin, step.end);
  }

  void add_outer(const Step& step, const EtdumpPlace& place) {
    if (is_delegate(step)) return add("DELEGATE_CALL", place, step.begin, step.end);
    const std::string& op = operator_name(step);
    const size_t colons = op.find("::");  // names of the official runtime have no namespace
    add(keep(str_cat("native_call_", colons == std::string::npos ? op : op.substr(colons + 2))), place, step.begin, step.end);
    add("OPERATOR_CALL", place, step.begin, step.end);
  }
};

/// Observes a method and the payloads inside it while it lives.
class EventRecorder::Watcher final : public runtime::CallObserver {
 public:
  Watcher(Records& records, MethodState& method) : records_(records), method_(method), before_(std::exchange(method.observer, this)) {
    for (const auto& delegate : method.delegates) {
      if (MethodState* payload = delegate->payload()) inner_.push_back(std::make_unique<Watcher>(records, *payload));
    }
  }
  ~Watcher() override { method_.observer = before_; }

  /// What runs next begins now.
  void begin() {
    last_ = records_.now();
    for (const auto& inner : inner_) inner->begin();
  }

  Status after(size_t instruction) override {
    const uint64_t end = records_.now();
    if (records_.has_room()) {
      records_.steps.push_back({&method_, static_cast<uint32_t>(instruction), last_, end});
    } else {
      ++records_.left_out;
    }
    begin();
    return ok_status();
  }

 private:
  Records& records_;
  MethodState& method_;
  runtime::CallObserver* before_;
  std::vector<std::unique_ptr<Watcher>> inner_;
  uint64_t last_ = 0;
};

EventRecorder::EventRecorder() : records_(std::make_unique<Records>()) {}
EventRecorder::~EventRecorder() = default;

Result<std::shared_ptr<Program>> EventRecorder::load(const std::string& path, const LoadOptions& options) {
  const uint64_t begin = records_->now();
  PTERON_ASSIGN(std::shared_ptr<Program> program, Program::load(path, options));
  records_->add_phase({"Program::load"}, begin);
  return program;
}

Result<std::shared_ptr<Program>> EventRecorder::load(std::span<const std::byte> bytes, const LoadOptions& options) {
  const uint64_t begin = records_->now();
  PTERON_ASSIGN(std::shared_ptr<Program> program, Program::load(bytes, options));
  records_->add_phase({"Program::load"}, begin);
  return program;
}

Result<std::unique_ptr<Method>> EventRecorder::load_method(Program& program, std::string_view name, Method* peer) {
  const uint64_t begin = records_->now();
  PTERON_ASSIGN(std::unique_ptr<Method> method, peer == nullptr ? program.load_method(name) : program.load_method(name, *peer));
  records_->add_phase({"Method::init", "Program::load_method"}, begin);
  return method;
}

Status EventRecorder::execute(Method& method, int bundled_case) {
  MethodState& state = method.state();
  Status status;
  uint64_t begin = 0, end = 0;
  {
    Watcher watcher(*records_, state);
    begin = records_->now();
    watcher.begin();
    status = method.execute();
    end = records_->now();
  }
  if (!records_->has_room() && records_->steps.empty()) {
    ++records_->left_out;
    return status;
  }
  records_->dump.runs.push_back({"Execute", bundled_case});
  records_->add_steps(state);
  records_->add("Method::execute", {}, begin, end);
  return status;
}

uint64_t EventRecorder::left_out() const { return records_->left_out; }

Result<std::vector<std::byte>> EventRecorder::etdump() const {
  PTERON_ASSIGN(const Buffer bytes, format::write_etdump(records_->dump));
  return std::vector<std::byte>(bytes.span().begin(), bytes.span().end());
}

}  // namespace pteron
