// A call, step by step: profile and sizes, addresses (staged where needed), scratch, enqueue, copies back, wait.
#include "backends/tensorrt/runtime/delegate.h"

#include <algorithm>
#include <utility>

#include "backends/tensorrt/runtime/staging.h"
#include "base/str_cat.h"
#include "runtime/value.h"

namespace pteron::tensorrt {
namespace {

using runtime::Value;

/// A tensor of the call and where the engine finds it.
struct Place {
  runtime::Tensor* tensor = nullptr;  ///< null: an output that is no argument
  std::vector<int64_t> sizes;         ///< as the engine has them
  void* address = nullptr;            ///< bound
  Home home = Home::kDirect;
};

bool is_multiple(const void* address) { return reinterpret_cast<uintptr_t>(address) % kAddressAlignment == 0; }

class EngineDelegate final : public Delegate {
 public:
  EngineDelegate(std::shared_ptr<Shared> shared, std::shared_ptr<LoadedEngine> engine, std::span<const std::byte> bytes, Ports ports, LogSink* log)
      : shared_(std::move(shared)),
        library_(shared_->library),
        engine_(std::move(engine)),
        bytes_(bytes),
        ports_(std::move(ports)),
        log_(log),
        shares_scratch_(shared_->options.shared_scratch),
        inputs_(ports_.inputs.size()),
        outputs_(ports_.outputs.size()) {
    for (size_t i = 0; i < inputs_.size() + outputs_.size(); ++i) staging_.emplace_back(library_);
  }

  ~EngineDelegate() override {
    const DeviceScope scope(library_, engine_->device);
    context_.reset();
    staging_.clear();
    shared_->engines.release(std::move(engine_), bytes_);
  }

  /// Requires: the device is current.
  Status prepare(bool host_state) {
    host_state_ = host_state;
    max_scratch_ = engine_->engine->scratch_bytes();
    const std::lock_guard<std::mutex> guard(engine_->making);
    PTERON_ASSIGN(context_, engine_->engine->make_context(!shares_scratch_));
    return ok_status();
  }

  DelegateMemory memory() const override {
    DelegateMemory out;
    for (const Staging& staging : staging_) out.own_bytes += staging.size_bytes();
    return out;
  }

  Status execute(std::span<Value* const> args) override {
    const size_t wanted = ports_.inputs.size() + ports_.passed_outputs();
    if (args.size() < wanted) return Status(Code::kInvalidFile, str_cat("the call has ", args.size(), " arguments, the engine ", wanted));
    DeviceScope scope(library_, engine_->device);
    PTERON_TRY(scope.status());
    const Stream stream = caller_stream().value_or(library_.own_stream());
    if (library_.is_capturing(stream))
      return Status(Code::kUnsupported, "the stream is being captured; an engine's call waits for its work, which a capture cannot hold");
    Status status = run(args, stream);
    if (status.ok()) return library_.wait(stream);
    // What was put on the stream reads and writes the caller's memory: it must be over before the error is seen.
    if (!library_.wait(stream).ok()) return std::move(status).with_context("the stream could not be drained");
    return status;
  }

 private:
  Status run(std::span<Value* const> args, Stream stream) {
    for (size_t i = 0; i < inputs_.size(); ++i) PTERON_TRY(take_input(i, *args[i]));
    PTERON_TRY(choose_profile(stream));
    for (size_t i = 0; i < inputs_.size(); ++i) PTERON_TRY(context_->set_sizes(ports_.inputs[i].tensor.name, inputs_[i].sizes).with_context(input_name(i)));
    PTERON_TRY(context_->infer_sizes().with_context("the sizes of the outputs do not follow from those of the inputs"));
    size_t next = inputs_.size();
    for (size_t i = 0; i < outputs_.size(); ++i) PTERON_TRY(take_output(i, ports_.outputs[i].elided ? nullptr : args[next++]));
    for (size_t i = 0; i < inputs_.size(); ++i) PTERON_TRY(bind_input(i, stream).with_context(input_name(i)));
    for (size_t i = 0; i < outputs_.size(); ++i) PTERON_TRY(bind_output(i).with_context(output_name(i)));
    PTERON_TRY(enqueue(stream));
    return bring_back(stream);
  }

  std::string input_name(size_t i) const { return str_cat("input '", ports_.inputs[i].tensor.name, "'"); }
  std::string output_name(size_t i) const { return str_cat("output '", ports_.outputs[i].tensor.name, "'"); }

  static Status check_dtype(const EngineTensor& expected, const runtime::Tensor& tensor, const std::string& what) {
    if (expected.dtype == tensor.dtype()) return ok_status();
    return Status(Code::kInvalidInput, str_cat(what, " is ", dtype_name(tensor.dtype()), ", the engine has ",
                                               expected.dtype ? dtype_name(*expected.dtype) : "a type that no tensor has"));
  }

  Status take_input(size_t i, Value& value) {
    const EngineTensor& expected = ports_.inputs[i].tensor;
    if (value.tag != runtime::Tag::kTensor || !value.tensor.has_data()) return Status(Code::kInvalidInput, str_cat(input_name(i), " is no tensor with memory"));
    PTERON_TRY(check_dtype(expected, value.tensor, input_name(i)));
    inputs_[i] = {&value.tensor, {value.tensor.sizes().begin(), value.tensor.sizes().end()}};
    if (value.tensor.rank() == 0 && expected.sizes.size() == 1) inputs_[i].sizes = {1};  // TensorRT's form of a scalar
    if (ports_.inputs[i].alias && value.tensor.numel() == 0) return Status(Code::kInvalidInput, str_cat(input_name(i), " is written in place and empty"));
    return ok_status();
  }

  /// The first input and dim that a profile does not take; empty if it fits.
  std::string misfit(size_t profile) const {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const ProfileSizes& bounds = ports_.inputs[i].profiles[profile];
      const std::vector<int64_t>& sizes = inputs_[i].sizes;
      if (sizes.size() != bounds.min.size()) return str_cat(input_name(i), " has rank ", sizes.size(), ", the engine ", bounds.min.size());
      for (size_t d = 0; d < sizes.size(); ++d) {
        if (sizes[d] >= bounds.min[d] && sizes[d] <= bounds.max[d]) continue;
        return str_cat(input_name(i), " has size ", sizes[d], " in dim ", d, ", profile ", profile, " takes ", bounds.min[d], " to ", bounds.max[d]);
      }
    }
    return {};
  }

  /// The present profile while it fits, else the first that does; the caller's, if one was asked for and the engine has several.
  Status choose_profile(Stream stream) {
    const auto count = static_cast<size_t>(std::max(engine_->engine->profile_count(), 1));
    if (ports_.inputs.empty()) return ok_status();
    const std::optional<int> pinned = count > 1 ? shared_->options.profile : std::nullopt;
    size_t chosen = pinned ? static_cast<size_t>(*pinned) : profile_;
    std::string why = misfit(chosen);
    for (size_t p = 0; !why.empty() && !pinned && p < count; ++p) {
      if (misfit(p).empty()) chosen = p, why.clear();
    }
    if (!why.empty()) return Status(Code::kInvalidInput, count > 1 && !pinned ? str_cat("no profile of the engine takes these inputs: ", why) : why);
    if (chosen != profile_) PTERON_TRY(context_->use_profile(static_cast<int>(chosen), stream));
    profile_ = chosen;
    return ok_status();
  }

  Status take_output(size_t i, Value* value) {
    const Port& port = ports_.outputs[i];
    Place& place = outputs_[i];
    place = {};
    PTERON_ASSIGN(place.sizes, context_->sizes(port.tensor.name));
    if (std::ranges::any_of(place.sizes, [](int64_t size) { return size < 0; }))
      return Status(Code::kUnavailable, str_cat(output_name(i), " has sizes that are not known"));
    if (port.elided) return ok_status();
    if (value->tag != runtime::Tag::kTensor) return Status(Code::kInvalidInput, str_cat(output_name(i), " is no tensor"));
    PTERON_TRY(check_dtype(port.tensor, value->tensor, output_name(i)));
    place.tensor = &value->tensor;
    const bool is_scalar = value->tensor.rank() == 0 && place.sizes == std::vector<int64_t>{1};
    if (!is_scalar) PTERON_TRY(runtime::resize(value->tensor, place.sizes).with_context(output_name(i)));
    if (!value->tensor.has_data()) return Status(Code::kInvalidInput, str_cat(output_name(i), " has no memory"));
    if (!value->tensor.view.is_contiguous()) return Status(Code::kUnsupported, str_cat(output_name(i), " is in another memory order than the engine writes"));
    return ok_status();
  }

  Home home_of(const void* address) const {
    const bool readable = library_.reads_host_memory(engine_->device) || library_.on_device(address);
    return !readable ? Home::kHost : is_multiple(address) ? Home::kDirect : Home::kUnaligned;
  }

  void note_staging(const Place& place, const std::string& what) {
    if (place.home != Home::kUnaligned || noted_ || log_ == nullptr) return;
    noted_ = true;
    log_->log(LogLevel::kInfo, str_cat(what, " lies at an address that is no multiple of ", kAddressAlignment, ": it is copied in every call"));
  }

  Status bind_input(size_t i, Stream stream) {
    Place& place = inputs_[i];
    Staging& staging = staging_[i];
    const TensorView& view = place.tensor->view;
    const bool in_place = ports_.inputs[i].alias.has_value();
    place.home = view.numel() == 0 ? Home::kDirect : home_of(view.data);
    if (in_place && place.tensor->read_only) return Status(Code::kInvalidFile, "it is written in place and may only be read");
    if (in_place && place.home == Home::kHost && !host_state_) {
      return Status(Code::kInvalidInput, "it is written in place and lies in host memory, where the program would not see the update");
    }
    const void* from = view.data;
    if (view.numel() > 0 && !view.is_contiguous()) {
      const bool on_host = place.home == Home::kHost || (library_.reads_host_memory(engine_->device) && !library_.on_device(view.data));
      if (in_place || !on_host) return Status(Code::kUnsupported, "it is in another memory order than the engine reads");
      PTERON_ASSIGN(from, staging.pack(view));
      place.home = Home::kHost;
    }
    if (place.home == Home::kDirect && view.numel() > 0) {
      place.address = view.data;
    } else {
      PTERON_ASSIGN(place.address, staging.reserve(view.size_bytes()));
      if (view.numel() > 0) PTERON_TRY(library_.copy(place.address, from, view.size_bytes(), stream));
    }
    note_staging(place, input_name(i));
    return context_->set_address(ports_.inputs[i].tensor.name, place.address);
  }

  Status bind_output(size_t i) {
    Place& place = outputs_[i];
    const Port& port = ports_.outputs[i];
    if (port.alias) {
      place.address = inputs_[*port.alias].address;
      return context_->set_address(port.tensor.name, place.address);
    }
    const TensorView& view = place.tensor->view;
    place.home = view.numel() == 0 ? Home::kDirect : home_of(view.data);
    if (place.home == Home::kDirect && view.numel() > 0) {
      place.address = view.data;
    } else {
      PTERON_ASSIGN(place.address, staging_[inputs_.size() + i].reserve(view.size_bytes()));
    }
    note_staging(place, output_name(i));
    return context_->set_address(port.tensor.name, place.address);
  }

  Status enqueue(Stream stream) {
    const auto failed = [&](Status status) {
      return std::move(status).with_context("TensorRT did not take the call (is the stream one of the engine's device?)");
    };
    // A context without scratch of its own is refused as soon as the engine can need any, even if these sizes need none.
    if (!shares_scratch_ || max_scratch_ == 0) return failed(context_->enqueue(stream));
    PTERON_ASSIGN(const int64_t needed, context_->scratch_bytes());
    return failed(shared_->scratch.run(engine_->device, std::max<int64_t>(needed, 1), *context_, stream));
  }

  /// Staged outputs, and inputs that were written in place, to where the call has them.
  Status bring_back(Stream stream) {
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const Place& place = inputs_[i];
      if (!ports_.inputs[i].alias || place.address == place.tensor->view.data) continue;
      PTERON_TRY(library_.copy(place.tensor->view.data, place.address, place.tensor->view.size_bytes(), stream).with_context(input_name(i)));
    }
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const Place& place = outputs_[i];
      if (place.tensor == nullptr) continue;
      const TensorView& view = place.tensor->view;
      const bool is_there = view.data == place.address || (ports_.outputs[i].alias && view.data == inputs_[*ports_.outputs[i].alias].tensor->view.data);
      if (view.numel() == 0 || is_there) continue;
      PTERON_TRY(library_.copy(view.data, place.address, view.size_bytes(), stream).with_context(output_name(i)));
    }
    return ok_status();
  }

  std::shared_ptr<Shared> shared_;
  const EngineLibrary& library_;
  std::shared_ptr<LoadedEngine> engine_;
  std::span<const std::byte> bytes_;  ///< of the engine, which the program keeps alive
  Ports ports_;
  LogSink* log_;
  bool shares_scratch_;
  bool host_state_ = false;
  bool noted_ = false;
  int64_t max_scratch_ = 0;
  size_t profile_ = 0;
  std::unique_ptr<EngineContext> context_;
  std::vector<Place> inputs_, outputs_;
  std::vector<Staging> staging_;  ///< inputs, then outputs
};

}  // namespace

Result<std::unique_ptr<Delegate>> make_delegate(std::shared_ptr<Shared> shared, std::shared_ptr<LoadedEngine> engine, std::span<const std::byte> bytes,
                                                Ports ports, LogSink* log, bool host_state) {
  auto delegate = std::make_unique<EngineDelegate>(std::move(shared), std::move(engine), bytes, std::move(ports), log);
  PTERON_TRY(delegate->prepare(host_state));
  return std::unique_ptr<Delegate>(std::move(delegate));
}

}  // namespace pteron::tensorrt
