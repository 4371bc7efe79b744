// A call: arguments are bound or staged, the payload's instructions put kernels on the device's stream, results are staged back. The second call with
// the same sizes, numbers and addresses is recorded as a CUDA graph, copies included; later ones replay it.
#include "backends/cuda/runtime/delegate.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <set>

#include "backends/cuda/payload.h"
#include "backends/cuda/runtime/choices.h"
#include "backends/cuda/runtime/copies.h"
#include "backends/cuda/runtime/graphs.h"
#include "backends/cuda/runtime/kernels.h"
#include "backends/cuda/runtime/library_kernels.h"
#include "backends/cuda/runtime/session.h"
#include "backends/cuda/runtime/staging.h"
#include "backends/cuda/runtime/timing.h"
#include "base/str_cat.h"
#include "pteron/program.h"
#include "runtime/state.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using runtime::InputSlot;
using runtime::MethodState;
using runtime::OutputSlot;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }
void* pointer_to(Address address) { return reinterpret_cast<void*>(address); }
bool is_aligned(const void* memory) { return address_of(memory) % kAlignment == 0; }
bool is_on_device(const Tensor& tensor) { return tensor.view.device.type == DeviceType::kCuda; }

bool same_layout(const TensorView& a, const TensorView& b) {
  for (size_t d = 0; d < a.rank; ++d) {
    if (a.size_array[d] > 1 && a.stride_array[d] != b.stride_array[d]) return false;
  }
  return true;
}

/// A tensor among the arguments of a call: where it lies, and where the payload has it.
struct Place {
  enum class Kind : uint8_t {
    kNone,     ///< a number, or an empty tensor
    kDirect,   ///< the caller's memory on the device
    kCopied,   ///< on the device, at an address or in a layout that the payload cannot use
    kStaged,   ///< on the host
    kInput,    ///< an output that is the new value of an input: lies where that does
  } kind = Kind::kNone;
  Tensor* tensor = nullptr;   ///< the caller's
  Address address = 0;        ///< on the device
  std::byte* host = nullptr;  ///< kStaged: page-locked
  uint64_t bytes = 0;
  bool written = false;       ///< of inputs: the payload writes it where it lies
  size_t input = 0;           ///< kInput
};

constexpr std::string_view kNotRunBefore = "the program has not run with these sizes before: call it once before the capture";

/// What the marks behind phases are called.
constexpr std::string_view kBegin = "begin", kToDevice = "to device", kKernels = "kernels", kToHost = "to host";

/// Puts a mark behind each instruction that works on the device.
class MarkingObserver final : public runtime::CallObserver {
 public:
  MarkingObserver(const MethodState& state, const Session& session, Marks& marks, std::vector<Work>& works) : state_(state), session_(session), marks_(marks), works_(works) {}
  Status after(size_t at) override {
    const std::string& name = state_.info.operators[static_cast<size_t>(state_.operator_of[at])];
    const std::span<Value* const> args = state_.code[at].args;
    const bool generated = name == "pteron_cuda::launch.out" || name == "pteron_cuda::update.out";
    if (!generated && !name.starts_with("pteron_cuda::") && !name.starts_with("aten::c")) return ok_status();
    works_.push_back(work_of(name, args));
    return marks_.put(session_.stream(), generated ? std::string(args[3]->string) : name);
  }

 private:
  const MethodState& state_;
  const Session& session_;
  Marks& marks_;
  std::vector<Work>& works_;
};

class CudaDelegate final : public Delegate {
 public:
  CudaDelegate(std::shared_ptr<Queue> queue, ThreadPool& pool, LogSink* log, bool may_queue)
      : queue_(std::move(queue)), device_(queue_->device()), session_(queue_, pool), memory_(device_, pool), recorder_(device_), log_(log), may_queue_(may_queue) {}

  ~CudaDelegate() override {
    const ContextScope scope(*device_);
    queue_->finish();  // memory that kernels still use must not go
    calls_.clear();
    timed_.reset();
    marks_.reset();
    method_.reset();
  }

  /// Requires: the context is current.
  Status load(const DelegateLoad& request, const runtime::KernelTable& kernels) {
    const auto setting = std::ranges::find(request.settings, kModuleKey, &DelegateSetting::key);
    if (setting != request.settings.end()) {
      const std::string_view key(reinterpret_cast<const char*>(setting->value.data()), setting->value.size());
      const auto bytes = request.named_data.find(key);
      if (!bytes.has_value()) return Status(Code::kInvalidFile, str_cat("the payload's kernels (", key, ") are missing"));
      PTERON_ASSIGN(std::unique_ptr<LoadedModule> module, LoadedModule::load(device_, *bytes));
      session_.use_module(std::move(module));
    }
    LoadOptions options;
    options.pool = &session_;
    options.log = request.log;
    options.kernels = &kernels;
    options.outer_data = &request.named_data;
    options.states = &states_;
    PTERON_ASSIGN(const std::shared_ptr<Program> program, runtime::load_program(nullptr, request.payload, "payload", options, {}, &memory_));
    if (program->method_names().size() != 1) return Status(Code::kInvalidFile, str_cat("the payload has ", program->method_names().size(), " methods, expected 1"));
    PTERON_ASSIGN(method_, program->load_method(program->method_names()[0]));
    state_ = &method_->state();
    inputs_.resize(state_->inputs.size());
    outputs_.resize(state_->outputs.size());
    staging_.resize(inputs_.size() + outputs_.size());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!state_->outputs[i].is_tensor) return Status(Code::kInvalidFile, str_cat("output ", i, " of the payload is no tensor"));
    }
    return memory_.finish();
  }

  DelegateMemory memory() const override {
    DelegateMemory found;
    found.own_bytes = memory_.own_bytes();
    for (const Staging& staging : staging_) found.own_bytes += staging.size_bytes();
    found.shared_bytes = device_->constant_bytes();
    return found;
  }

  void time_calls(bool by_kernel) {
    timing_ = by_kernel ? Timing::kKernels : Timing::kPhases;
    timed_.reset();
    times_ = {};
  }
  const CallTimes& times() const { return times_; }

  Status execute(std::span<Value* const> args) override {
    begin_ = std::chrono::steady_clock::now();
    if (args.size() != inputs_.size() + outputs_.size()) {
      return Status(Code::kInvalidFile, str_cat("the call has ", args.size(), " arguments, the payload ", inputs_.size(), " inputs and ", outputs_.size(), " outputs"));
    }
    ContextScope scope(*device_);
    PTERON_TRY(scope.status());
    Status status = run(args);
    if (status.ok()) return status;
    // What is on the stream reads and writes memory of the call: it must be over before the error is seen.
    if (!session_.capturing()) static_cast<void>(queue_->wait().ok());
    return status;
  }

 private:
  Status run(std::span<Value* const> args) {
    PTERON_ASSIGN(const bool caller_records, queue_->is_captured());
    session_.note_capture(caller_records);
    key_.clear();
    for (size_t i = 0; i < inputs_.size(); ++i) PTERON_TRY(take_input(i, *args[i]));
    for (size_t i = 0; i < outputs_.size(); ++i) PTERON_TRY(take_output(i, args[inputs_.size() + i]));
    forget_moved();
    PTERON_TRY(run_or_replay());
    return bring_back();
  }

  // --- arguments ---

  std::string input_name(size_t i) const { return str_cat("input ", i, " (", state_->info.inputs[i].name, ")"); }
  std::string output_name(size_t i) const { return str_cat("output ", i, " (", state_->info.outputs[i].name, ")"); }

  Status take_input(size_t i, Value& value) {
    inputs_[i] = {};
    switch (value.tag) {
      case Tag::kInt: PTERON_TRY(method_->set_int_input(i, value.integer)); break;
      case Tag::kBool: PTERON_TRY(method_->set_bool_input(i, value.integer != 0)); break;
      case Tag::kDouble: PTERON_TRY(method_->set_double_input(i, value.floating)); break;
      case Tag::kTensor: return take_tensor(i, value.tensor);
      default: return Status(Code::kInvalidFile, str_cat(input_name(i), " is neither a tensor nor a number"));
    }
    uint64_t bits = static_cast<uint64_t>(value.integer);
    if (value.tag == Tag::kDouble) std::memcpy(&bits, &value.floating, sizeof bits);
    key_.push_back(bits);
    return ok_status();
  }

  Status check_tensor(size_t i, const Tensor& tensor) const {
    const ValueInfo& info = state_->info.inputs[i];
    bool fits = info.kind == ValueKind::kTensor && tensor.dtype() == info.dtype && tensor.view.rank == info.dims.size();
    for (size_t d = 0; fits && d < info.dims.size(); ++d) fits = tensor.view.size_array[d] >= info.dims[d].min && tensor.view.size_array[d] <= info.dims[d].max;
    if (!fits) return Status(Code::kInvalidFile, str_cat(input_name(i), " is not the tensor that the payload takes: ", info.type_text()));
    if (is_on_device(tensor) && tensor.view.device.index >= 0 && tensor.view.device.index != device_->index()) {
      return Status(Code::kInvalidInput, str_cat(input_name(i), " lies on CUDA device ", static_cast<int>(tensor.view.device.index), ", the program runs on device ", device_->index()));
    }
    return ok_status();
  }

  Status take_tensor(size_t i, Tensor& tensor) {
    PTERON_TRY(check_tensor(i, tensor));
    InputSlot& slot = state_->inputs[i];
    Place& place = inputs_[i];
    place.tensor = &tensor;
    place.written = slot.lent;
    if (slot.lent && tensor.read_only) return Status(Code::kInvalidFile, str_cat(input_name(i), " is written by the payload, and may only be read"));
    Tensor& target = slot.value->tensor;
    target.capacity_bytes = UINT64_MAX;
    PTERON_TRY(runtime::resize(target, tensor.sizes()));
    place.bytes = target.view.size_bytes();
    target.view.data = nullptr;
    target.capacity_bytes = place.bytes;
    slot.set = true;
    key_.insert(key_.end(), tensor.sizes().begin(), tensor.sizes().end());
    if (place.bytes == 0) return ok_status();
    if (tensor.view.data == nullptr) return Status(Code::kInvalidFile, str_cat(input_name(i), " has no memory"));
    Status placed = is_on_device(tensor) ? place_device_input(i, tensor, target) : place_host_input(i, tensor, target);
    if (!placed.ok()) return std::move(placed).with_context(input_name(i));
    target.view.data = pointer_to(place.address);
    key_.push_back(place.address);
    return ok_status();
  }

  Status place_device_input(size_t i, const Tensor& tensor, const Tensor& target) {
    Place& place = inputs_[i];
    if (same_layout(tensor.view, target.view) && is_aligned(tensor.view.data)) {
      place.kind = Place::Kind::kDirect;
      place.address = address_of(tensor.view.data);
      return ok_status();
    }
    note_copy(input_name(i));
    place.kind = Place::Kind::kCopied;
    PTERON_ASSIGN(place.address, staged_on_device(i, place.bytes, bound_of_input(i)));
    key_.push_back(address_of(tensor.view.data));  // a recorded call copies from there
    key_.insert(key_.end(), tensor.strides().begin(), tensor.strides().end());
    return ok_status();
  }

  /// Into page-locked memory, dense in the payload's order of dims.
  Status place_host_input(size_t i, const Tensor& tensor, const Tensor& target) {
    Place& place = inputs_[i];
    place.kind = Place::Kind::kStaged;
    if (session_.capturing()) return refuse_capture("it lies on the host: expected memory of the device (compile --device-inputs)");
    PTERON_ASSIGN(place.address, staging_[i].on_device(*device_, place.bytes, bound_of_input(i)));
    PTERON_ASSIGN(place.host, staging_[i].on_host(*device_, place.bytes, bound_of_input(i)));
    TensorView to = target.view;
    to.data = place.host;
    if (same_layout(tensor.view, to)) {
      std::memcpy(place.host, tensor.view.data, place.bytes);
    } else {
      copy_strided(tensor.view, to);
    }
    if (to.dtype == DType::kBool) {
      for (std::byte& b : std::span(place.host, place.bytes)) b = std::byte{b != std::byte{0}};
    }
    return ok_status();
  }

  static Status refuse_capture(std::string_view why) { return Status(Code::kInvalidInput, str_cat("the caller's stream is being captured, and ", why)); }

  /// Memory that stands in for argument i. Errors: kInvalidInput (it would have to grow while the caller captures).
  Result<Address> staged_on_device(size_t i, uint64_t bytes, uint64_t bound) {
    if (session_.capturing() && staging_[i].device_bytes() < bytes) return refuse_capture(kNotRunBefore);
    return staging_[i].on_device(*device_, bytes, bound);
  }

  uint64_t bound_of_input(size_t i) const { return state_->info.inputs[i].bound_bytes(); }

  void note_copy(const std::string& what) {
    if (noted_ || log_ == nullptr) return;
    noted_ = true;
    log_->log(LogLevel::kInfo, str_cat(what, " lies at an address that is no multiple of ", kAlignment, ", or in another order: it is copied in every call"));
  }

  Status take_output(size_t i, Value* value) {
    const ValueInfo& info = state_->info.outputs[i];
    OutputSlot& slot = state_->outputs[i];
    Place& place = outputs_[i];
    place = {};
    if (value->tag != Tag::kTensor || value->tensor.read_only || value->tensor.dtype() != info.dtype || value->tensor.view.rank != info.dims.size()) {
      return Status(Code::kInvalidFile, str_cat(output_name(i), " is not the tensor that the payload makes: ", info.type_text()));
    }
    Tensor& out = value->tensor;
    place.tensor = &out;
    const auto input = std::ranges::find_if(inputs_, [&](const Place& in) { return in.written && in.address != 0 && in.tensor->view.data == out.view.data; });
    if (input != inputs_.end()) {
      place.kind = Place::Kind::kInput;
      place.input = static_cast<size_t>(input - inputs_.begin());
      place.address = input->address;
    } else if (slot.bound_bytes != 0) {
      Status placed = is_on_device(out) ? place_device_output(i, out, info) : place_host_output(i);
      if (!placed.ok()) return std::move(placed).with_context(output_name(i));
    }
    slot.caller_data = pointer_to(place.address);
    slot.is_delivered = false;
    key_.push_back(place.address);
    return ok_status();
  }

  Status place_host_output(size_t i) {
    Place& place = outputs_[i];
    const uint64_t bound = state_->outputs[i].bound_bytes;
    place.kind = Place::Kind::kStaged;
    if (session_.capturing()) return refuse_capture("it lies on the host: expected memory of the device (compile --device-outputs)");
    if (!state_->outputs[i].direct) return ok_status();  // read from where the payload has it
    PTERON_ASSIGN(place.address, staged_on_device(inputs_.size() + i, bound, bound));
    return ok_status();
  }

  Status place_device_output(size_t i, const Tensor& out, const ValueInfo& info) {
    Place& place = outputs_[i];
    const OutputSlot& slot = state_->outputs[i];
    const bool same_order = std::equal(info.dim_order.begin(), info.dim_order.end(), out.dim_order.begin());
    if (slot.direct && same_order && out.view.data != nullptr && is_aligned(out.view.data) && out.capacity_bytes >= slot.bound_bytes) {
      place.kind = Place::Kind::kDirect;
      place.address = address_of(out.view.data);
      return ok_status();
    }
    if (slot.direct) note_copy(output_name(i));
    place.kind = Place::Kind::kCopied;
    key_.push_back(address_of(out.view.data));
    if (!slot.direct) return ok_status();
    PTERON_ASSIGN(place.address, staged_on_device(inputs_.size() + i, slot.bound_bytes, slot.bound_bytes));
    return ok_status();
  }

  // --- the call ---

  /// Recorded calls know the addresses of staging memory: none stays when one has moved.
  void forget_moved() {
    uint64_t growths = 0;
    for (const Staging& staging : staging_) growths += staging.growths();
    if (growths == growths_) return;
    growths_ = growths;
    calls_.clear();
  }

  Status run_or_replay() {
    if (session_.capturing()) return put_on_callers_graph();
    if (timing_ != Timing::kOff && session_.graphs_allowed()) return run_timed();
    KnownCall* known = calls_.find(key_);
    if (known != nullptr && known->recorded != nullptr) {
      PTERON_TRY(known->recorded->replay(queue_->stream()));
      results_ = known->results;
      return ok_status();
    }
    if (known == nullptr || !session_.graphs_allowed()) {
      PTERON_TRY(put_on_stream());
      note_run();
      keep_choices();
      forget_moved();
      if (known == nullptr && session_.graphs_allowed()) calls_.add(key_);
      return ok_status();
    }
    Status recorded = record(*known);
    if (!recorded.ok()) {
      // The call itself may well work: it runs as the first one did, from now on.
      session_.forbid_graph();
      if (log_ != nullptr) log_->log(LogLevel::kWarning, str_cat("calls are not recorded as CUDA graphs: ", recorded.message()));
      return put_on_stream();
    }
    return known->recorded->replay(queue_->stream());
  }

  /// The caller records what is put on its stream: this call becomes a part of its graph.
  Status put_on_callers_graph() {
    if (!session_.graphs_allowed()) return refuse_capture("this program has an operator that waits for the device in every call");
    if (timing_ != Timing::kOff) return refuse_capture("calls of this program are being timed");
    // The first call with new sizes measures library calls and makes memory, which a capture does not allow.
    if (!sizes_run_.contains(sizes_key())) return refuse_capture(kNotRunBefore);
    return put_on_stream();
  }

  /// Sizes and numbers of the call's inputs.
  CallKey sizes_key() const {
    CallKey key;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Value& value = *state_->inputs[i].value;
      if (inputs_[i].tensor != nullptr) {
        key.insert(key.end(), value.tensor.sizes().begin(), value.tensor.sizes().end());
      } else {
        key.push_back(value.tag == Tag::kDouble ? std::bit_cast<uint64_t>(value.floating) : static_cast<uint64_t>(value.integer));
      }
    }
    return key;
  }

  /// Writes what was measured in the call.
  void keep_choices() {
    device_->choices().save();
    const std::string note = device_->choices().take_note();
    if (!note.empty() && log_ != nullptr) log_->log(LogLevel::kInfo, note);
  }

  void note_run() {
    constexpr size_t kMost = 1024;
    if (sizes_run_.size() == kMost) sizes_run_.clear();
    sizes_run_.insert(sizes_key());
  }

  /// A recorded call of its own, with marks.
  Status run_timed() {
    if (timed_ == nullptr || timed_key_ != key_) {
      timed_.reset();
      marks_ = std::make_unique<Marks>(device_);
      works_.clear();
      KnownCall call;
      PTERON_TRY(record(call));
      timed_ = std::move(call.recorded);
      timed_key_ = key_;
      timed_results_ = std::move(call.results);
    }
    PTERON_TRY(timed_->replay(queue_->stream()));
    const std::chrono::duration<double, std::milli> enqueue = std::chrono::steady_clock::now() - begin_;
    results_ = timed_results_;
    PTERON_TRY(queue_->wait());
    PTERON_ASSIGN(const std::vector<Marks::Step> steps, marks_->steps());
    times_ = {};
    times_.enqueue_ms = enqueue.count();
    for (const Marks::Step& step : steps) {
      if (step.what == kToDevice) {
        times_.to_device_ms += step.ms;
      } else if (step.what == kToHost) {
        times_.to_host_ms += step.ms;
      } else {
        times_.kernels_ms += step.ms;
        if (step.what == kKernels || times_.kernels.size() == works_.size()) continue;
        const Work& work = works_[times_.kernels.size()];
        times_.kernels.push_back({step.what, step.ms, work.bytes, work.flops, least_ms(work, device_->peaks())});
      }
    }
    return ok_status();
  }

  /// Under time_calls() only.
  Status mark(std::string_view what) {
    if (timing_ == Timing::kOff || !session_.capturing()) return ok_status();
    return marks_->put(session_.stream(), std::string(what));
  }

  Status run_marked() {
    if (timing_ != Timing::kKernels || !session_.capturing()) return runtime::run_instructions(*state_);
    MarkingObserver observer(*state_, session_, *marks_, works_);
    state_->observer = &observer;
    Status status = runtime::run_instructions(*state_);
    state_->observer = nullptr;
    return status;
  }

  Status record(KnownCall& call) {
    PTERON_ASSIGN(const Stream stream, recorder_.begin());
    session_.record_on(stream);
    Status status = put_on_stream();
    session_.record_on(nullptr);
    if (!status.ok()) {
      recorder_.drop();
      return status;
    }
    PTERON_ASSIGN(call.recorded, recorder_.end());
    call.results = results_;
    return ok_status();
  }

  /// An input as the payload has it.
  const TensorView& payload_view(const Place& input) const { return state_->inputs[static_cast<size_t>(&input - inputs_.data())].value->tensor.view; }

  /// Copies to the device, instructions, copies back.
  Status put_on_stream() {
    const Driver& d = device_->driver();
    const Stream stream = session_.stream();
    PTERON_TRY(mark(kBegin));
    for (const Place& place : inputs_) {
      if (place.kind == Place::Kind::kStaged) PTERON_TRY(d.check(d.copy_to_device(place.address, place.host, place.bytes, stream), "copying to the device"));
      if (place.kind == Place::Kind::kCopied) PTERON_TRY(copy_tensor(session_, place.tensor->view, payload_view(place)));
    }
    PTERON_TRY(mark(kToDevice));
    state_->inputs_changed = true;
    PTERON_TRY(runtime::prepare_call(*state_));
    for (OutputSlot& slot : state_->outputs) {
      if (!slot.direct) continue;
      slot.value->tensor.capacity_bytes = slot.bound_bytes;
      slot.value->tensor.view.data = slot.caller_data;
    }
    PTERON_TRY(run_marked());
    PTERON_TRY(mark(kKernels));
    results_.clear();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Status status = put_result(i, stream);
      if (!status.ok()) return std::move(status).with_context(output_name(i));
    }
    for (const Place& place : inputs_) {
      if (!place.written) continue;
      if (place.kind == Place::Kind::kStaged) PTERON_TRY(d.check(d.copy_to_host(place.host, place.address, place.bytes, stream), "copying to the host"));
      if (place.kind == Place::Kind::kCopied) PTERON_TRY(copy_tensor(session_, payload_view(place), place.tensor->view));
    }
    return mark(kToHost);
  }

  /// Puts the copy of a result on the stream that the caller's tensor needs, and notes what it is.
  Status put_result(size_t i, Stream stream) {
    const Driver& d = device_->driver();
    Place& place = outputs_[i];
    const Value& value = *state_->outputs[i].value;
    if (value.tag != Tag::kTensor || !value.tensor.has_data()) return Status(Code::kInvalidFile, "the payload did not make it");
    TensorView made = value.tensor.view;
    results_.push_back(made);
    if (made.numel() == 0) return ok_status();
    const bool in_place = address_of(made.data) == place.address;
    switch (place.kind) {
      case Place::Kind::kNone:
        return Status(Code::kInvalidFile, "it is not empty, and may not have any element");
      case Place::Kind::kStaged: {
        uint64_t extent = 0;
        if (!strided_extent_bytes(made.sizes(), made.strides(), dtype_size(made.dtype), &extent)) return Status(Code::kInvalidFile, "its strides are too large");
        // Under capture it is there already: the call before had the same sizes.
        PTERON_ASSIGN(place.host, staging_[inputs_.size() + i].on_host(*device_, extent, std::max(extent, state_->outputs[i].bound_bytes)));
        results_.back().data = place.host;
        return d.check(d.copy_to_host(place.host, address_of(made.data), extent, stream), "copying to the host");
      }
      case Place::Kind::kDirect:
        if (in_place) return ok_status();
        return copy_result(made, *place.tensor, place.address);
      case Place::Kind::kInput:
        if (in_place) return ok_status();
        return copy_result(made, state_->inputs[place.input].value->tensor, place.address);
      case Place::Kind::kCopied: return copy_result(made, *place.tensor, address_of(place.tensor->view.data));
    }
    return ok_status();
  }

  /// To another place on the device, in the order of dims of `like`, which has room for the result.
  Status copy_result(const TensorView& made, Tensor& like, Address to) {
    PTERON_TRY(runtime::resize(like, made.sizes()));
    TensorView target = like.view;
    target.data = pointer_to(to);
    return copy_tensor(session_, made, target);
  }

  // --- afterwards ---

  /// Sizes of the outputs, and results that the host wants, once they are there.
  Status bring_back() {
    const auto is_staged = [](const Place& place) { return place.kind == Place::Kind::kStaged && place.bytes != 0; };
    // The next call writes the memory from which inputs of the host are copied.
    bool wait = std::ranges::any_of(inputs_, is_staged);
    for (size_t i = 0; i < outputs_.size(); ++i) {
      Place& place = outputs_[i];
      Status status = runtime::resize(*place.tensor, results_[i].sizes());
      if (!status.ok()) return std::move(status).with_context(output_name(i));
      place.bytes = place.tensor->view.size_bytes();
      wait = wait || is_staged(place);
    }
    if (session_.capturing() || (!wait && (may_queue_ || queue_->is_callers()))) return ok_status();
    PTERON_TRY(queue_->wait());
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (!is_staged(outputs_[i])) continue;
      Tensor& out = *outputs_[i].tensor;
      if (!out.has_data()) return Status(Code::kInvalidFile, str_cat(output_name(i), " has no memory"));
      unpack(results_[i], out.view);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      if (!inputs_[i].written || !is_staged(inputs_[i])) continue;
      TensorView from = state_->inputs[i].value->tensor.view;
      from.data = inputs_[i].host;
      unpack(from, inputs_[i].tensor->view);
    }
    return ok_status();
  }

  static void unpack(const TensorView& from, const TensorView& to) {
    if (same_layout(from, to) && from.is_contiguous()) {
      std::memcpy(to.data, from.data, to.size_bytes());
    } else {
      copy_strided(from, to);
    }
  }

  std::shared_ptr<Queue> queue_;
  std::shared_ptr<Device> device_;
  Session session_;
  DeviceMemory memory_;
  runtime::StateCache states_;
  std::unique_ptr<Method> method_;
  MethodState* state_ = nullptr;
  std::vector<Place> inputs_, outputs_;
  std::vector<Staging> staging_;  ///< inputs, then outputs
  std::vector<TensorView> results_;
  CallKey key_;
  KnownCalls calls_;
  std::set<CallKey> sizes_run_;  ///< of calls that were no replays
  Recorder recorder_;
  enum class Timing : uint8_t { kOff, kPhases, kKernels } timing_ = Timing::kOff;
  std::chrono::steady_clock::time_point begin_;  ///< of the last call
  CallTimes times_;
  std::unique_ptr<Marks> marks_;
  std::vector<Work> works_;  ///< of the instructions behind which there are marks
  std::unique_ptr<RecordedCall> timed_;
  CallKey timed_key_;
  std::vector<TensorView> timed_results_;
  LogSink* log_;
  uint64_t growths_ = 0;          ///< of all staging memory, when calls_ was last looked at
  bool noted_ = false;
  bool may_queue_;                ///< work may still run when a call returns
};

const runtime::KernelTable& kernel_table() {
  static const runtime::KernelTable table = [] {
    runtime::KernelTable made;
    made.add(launch_kernels());
    made.add(product_kernels());
    made.add(integer_kernels());
    made.add(convolution_kernels());
    made.add(attention_kernels());
    made.add(copy_kernels());
    return made;
  }();
  return table;
}

}  // namespace

void time_calls(Delegate& delegate, bool by_kernel) { static_cast<CudaDelegate&>(delegate).time_calls(by_kernel); }
CallTimes times_of(const Delegate& delegate) { return static_cast<const CudaDelegate&>(delegate).times(); }

Result<std::unique_ptr<Delegate>> load_delegate(const DelegateLoad& request, std::shared_ptr<Device> device) {
  ContextScope scope(*device);
  PTERON_TRY(scope.status());
  std::shared_ptr<Queue> queue;
  if (request.session != nullptr) {
    PTERON_ASSIGN(queue, static_cast<SessionAllocator*>(request.session)->queue(device->index()));
  } else {
    PTERON_ASSIGN(queue, Queue::create(device));
  }
  auto made = std::make_unique<CudaDelegate>(std::move(queue), request.pool, request.log, request.may_queue);
  PTERON_TRY(made->load(request, kernel_table()));
  return std::unique_ptr<Delegate>(std::move(made));
}

}  // namespace pteron::cuda
