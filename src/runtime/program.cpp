// Program: a verified file with its data files, thread pool and methods.
#include "pteron/program.h"

#include <cstring>

#include "base/processor.h"
#include "base/str_cat.h"
#include "format/meta.h"
#include "runtime/state.h"

namespace pteron {

Program::Program(std::unique_ptr<runtime::ProgramState> state) : state_(std::move(state)) {}
Program::~Program() = default;

std::span<const std::string> Program::method_names() const { return state_->method_names; }

namespace {
Result<uint32_t> find_plan(const runtime::ProgramState& state, std::string_view name) {
  const int index = state.view.find_plan(name);
  if (index >= 0) return static_cast<uint32_t>(index);
  return Status(Code::kNotFound, str_cat(state.label, ": no method \"", name, "\"; there are ", str_list(state.method_names)));
}
}  // namespace

Result<MethodInfo> Program::method_info(std::string_view name) const {
  PTERON_ASSIGN(const uint32_t index, find_plan(*state_, name));
  return runtime::describe_method(*state_, index);
}

namespace {
Result<std::unique_ptr<Method>> load(std::shared_ptr<Program> program, std::string_view name, std::shared_ptr<runtime::SharedArenas> shared) {
  runtime::ProgramState& state = program->state();
  PTERON_ASSIGN(const uint32_t index, find_plan(state, name));
  Status data = state.data.check_program(state.meta);
  if (!data.ok()) return std::move(data).with_context(state.label);
  const std::string label = state.label;
  Result<std::unique_ptr<runtime::MethodState>> built = runtime::build_method(std::move(program), index, std::move(shared));
  if (!built.ok()) return std::move(built).status().with_context(label);
  return std::make_unique<Method>(std::move(built).value());
}
}  // namespace

Result<std::unique_ptr<Method>> Program::load_method(std::string_view name) {
  return pteron::load(shared_from_this(), name, std::make_shared<runtime::SharedArenas>());
}

Result<std::unique_ptr<Method>> Program::load_method(std::string_view name, Method& peer) {
  if (peer.state().program.get() != this) {
    return Status(Code::kInvalidInput, str_cat("method \"", name, "\" cannot share state with method \"", peer.info().name, "\" of another program"));
  }
  return pteron::load(shared_from_this(), name, peer.state().shared);
}

std::optional<std::span<const std::byte>> Program::named_data(std::string_view key) const { return state_->data.find(key); }

namespace runtime {

DeviceAllocator* ProgramState::allocator(DeviceType type) const {
  for (DeviceAllocator* own : options.device_allocators) {
    if (own->type() == type) return own;
  }
  for (const DelegateBackend* backend : options.delegates) {
    DeviceAllocator* const own = backend->device_allocator();
    if (own != nullptr && own->type() == type) return own;
  }
  return nullptr;
}

DeviceAllocator& SharedArenas::session_of(DeviceAllocator& allocator) {
  const auto [found, is_new] = sessions.try_emplace(&allocator);
  if (is_new) found->second = allocator.make_session();
  return found->second == nullptr ? allocator : *found->second;
}

DeviceAllocator* MethodState::allocator(DeviceType type) const {
  DeviceAllocator* const found = program->state().allocator(type);
  return found == nullptr ? nullptr : &shared->session_of(*found);
}

namespace {

/// A program without facts of ours runs by the rules of the public format.
Status read_meta(ProgramState& state) {
  const auto bytes = state.view.named_data(format::kMetaKey);
  if (!bytes.has_value()) return ok_status();
  Result<format::ProgramMeta> meta = format::read_meta(*bytes);
  if (!meta.ok()) return std::move(meta).status().with_context(format::kMetaKey);
  state.meta = std::move(meta).value();
  return ok_status();
}

void choose_pool(ProgramState& state) {
  const LoadOptions& options = state.options;
  if (options.pool != nullptr) {
    state.pool = options.pool;
  } else if (options.threads == 1) {
    state.pool = &serial_pool();
  } else {
    state.own_pool = make_thread_pool(options.threads);
    state.pool = state.own_pool.get();
  }
}

Status fill_program(ProgramState& state, std::span<const std::byte> bytes) {
  PTERON_ASSIGN(state.view, format::verify_program(bytes));
  PTERON_TRY(read_meta(state));
  for (const std::string& path : state.options.kernel_libraries) {
    PTERON_ASSIGN(std::shared_ptr<const OpLibrary> library, OpLibrary::open(path));
    state.libraries.push_back(std::move(library));
  }
  PTERON_TRY(state.data.open(state.options, state.path, state.view, state.meta));
  for (uint32_t i = 0; i < state.view.plan_count(); ++i) state.method_names.emplace_back(format::text_of(state.view.plan(i).name()));
  choose_pool(state);
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<Program>> load_program(std::shared_ptr<FileBytes> file, std::span<const std::byte> bytes, std::string label,
                                              const LoadOptions& options, std::string path, PayloadMemory* memory) {
  PTERON_TRY(check_cpu_cap());
  auto state = std::make_unique<ProgramState>();
  state->path = std::move(path);
  state->label = std::move(label);
  state->file = std::move(file);
  state->data.set_program_file(state->file.get());
  state->options = options;
  state->memory = memory;
  Status status = fill_program(*state, bytes);
  if (!status.ok()) return std::move(status).with_context(str_cat("loading ", state->label));
  return std::make_shared<Program>(std::move(state));
}

}  // namespace runtime
}  // namespace pteron
