// Emits every method of a program and gathers their shared constants.
#include "emit/emit.h"

#include <algorithm>
#include <set>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "emit/method_emitter.h"
#include "tensor/dtype.h"

namespace pteron::emit {

namespace {

/// The program's own operator of that name, made at the first call.
Result<const ir::Op*> own_op(ir::Program& program, std::string_view name, std::string_view arguments, std::string_view kernel) {
  for (const auto& op : program.foreign_ops) {
    if (op->name == name) return op.get();
  }
  auto op = std::make_unique<ir::Op>();
  PTERON_ASSIGN(op->schema, ir::parse_schema(str_cat(name, arguments)));
  op->name = name;
  op->kernel = kernel;
  program.foreign_ops.push_back(std::move(op));
  return program.foreign_ops.back().get();
}

}  // namespace

Result<const ir::Op*> delegate_op(ir::Program& program) {
  return own_op(program, kDelegateOp, "(Tensor[] inputs, Scalar[] numbers, int index, int[] in_place) -> Tensor[]", kDelegateOp);
}

Result<const ir::Op*> device_copy_op(ir::Program& program, bool to_device) {
  const std::string_view name = to_device ? "et_copy::_h2d_copy" : "et_copy::_d2h_copy";
  return own_op(program, name, "(Tensor self) -> Tensor", str_cat(name, ".out"));
}

namespace {

constexpr std::string_view kOwnHelpers[] = {
#define HELPER(name) name,
#define OWN_HELPER(name) name,
#include "emit/helpers.inc"
#undef OWN_HELPER
#define OWN_HELPER(name)
};
constexpr std::string_view kOfficialHelpers[] = {
#include "emit/helpers.inc"
#undef HELPER
#undef OWN_HELPER
};

Result<Buffer> initial_bytes(const ir::Constant& constant) {
  if (constant.data == nullptr && constant.lazy) return constant.lazy();
  format::StridedBytes bytes{constant.dtype, constant.sizes, constant.strides, {}, constant.data};
  for (size_t d = 0; d < constant.sizes.size(); ++d) bytes.dim_order.push_back(static_cast<uint8_t>(d));
  PTERON_ASSIGN(const format::Payload payload, format::Payload::gather(std::move(bytes)));
  return format::payload_bytes(payload);
}

Status check_equal(const ir::Program& program, const std::string& name, const ir::State& first, const ir::State& second) {
  const ir::Constant& a = program[first.initial];
  const ir::Constant& b = program[second.initial];
  if (a.dtype != b.dtype || a.sizes != b.sizes) {
    return Status(Code::kInvalidInput, str_cat("shared state '", name, "' is ", dtype_name(a.dtype), " ", str_list(a.sizes), " in one method and ",
                                               dtype_name(b.dtype), " ", str_list(b.sizes), " in another"));
  }
  PTERON_ASSIGN(const Buffer x, initial_bytes(a));
  PTERON_ASSIGN(const Buffer y, initial_bytes(b));
  if (std::equal(x.span().begin(), x.span().end(), y.span().begin(), y.span().end())) return ok_status();
  return Status(Code::kInvalidInput, str_cat("shared state '", name, "' has different initial values in two methods"));
}

/// The states of that name in all methods.
std::vector<const ir::State*> states_named(const ir::Program& program, const std::string& name) {
  std::vector<const ir::State*> found;
  for (const auto& method : program.methods) {
    for (const ir::State& state : method->graph.states) {
      if (state.name == name) found.push_back(&state);
    }
  }
  return found;
}

Result<SharedStates> place_shared(const ir::Program& program, const EmitOptions& options) {
  SharedStates shared;
  for (const std::string& name : options.shared_states) {
    const std::vector<const ir::State*> states = states_named(program, name);
    if (states.empty()) return Status(Code::kInternal, str_cat("no method has a buffer '", name, "' to share"));
    const ir::State* first = states[0];
    if (!shared.offsets.emplace(name, shared.arena_bytes).second) continue;
    uint64_t size = 0;
    if (!checked_align(program[first->initial].size_bytes(), options.alignment_bytes, &size) || !checked_add(shared.arena_bytes, size, &shared.arena_bytes)) {
      return Status(Code::kUnsupported, "shared states are too large");
    }
  }
  return shared;
}

/// Constants stored outside that the methods' nodes read, each once. Those of control flow are left to be found later.
std::vector<ir::ConstantId> external_constants(const ir::Program& program, std::span<const ir::Method* const> methods, const EmitOptions& options) {
  std::vector<ir::ConstantId> ids;
  std::set<uint32_t> seen;
  for (const ir::Method* method : methods) {
    const ir::Graph& graph = method->graph;
    for (const ir::NodeId node : graph.order) {
      ir::for_each_use(graph[node], [&](ir::ValueId value) {
        const ir::ConstantId id = graph[value].constant;
        if (id.valid() && is_external(program[id], options) && seen.insert(id.index).second) ids.push_back(id);
      });
    }
  }
  return ids;
}

}  // namespace

std::span<const std::string_view> helper_kernels(Profile profile) {
  if (profile == Profile::kPteron) return kOwnHelpers;
  return kOfficialHelpers;
}

Status check_shared_states(const ir::Program& program, std::span<const std::string> names) {
  for (const std::string& name : names) {
    const std::vector<const ir::State*> states = states_named(program, name);
    if (states.empty()) return Status(Code::kInvalidInput, str_cat("no method has a buffer '", name, "' to share"));
    for (size_t i = 1; i < states.size(); ++i) PTERON_TRY(check_equal(program, name, *states[0], *states[i]));
  }
  return ok_status();
}

Result<Emitted> emit_program(const ir::Program& program, const EmitOptions& options) {
  std::vector<const ir::Method*> methods;
  for (const auto& method : program.methods) methods.push_back(method.get());
  return emit_methods(program, methods, options);
}

Result<Emitted> emit_methods(const ir::Program& program, std::span<const ir::Method* const> methods, const EmitOptions& options) {
  Emitted out;
  ConstantPool pool(program, options.external_keys);
  PTERON_ASSIGN(const SharedStates shared, place_shared(program, options));
  if (options.is_payload) PTERON_TRY(pool.make_keys(external_constants(program, methods, options)));
  for (const ir::Method* method : methods) {
    MethodReport report;
    format::MethodMeta meta;
    auto plan = MethodEmitter(program, *method, options, shared, pool).run(&report, &meta);
    if (!plan.ok()) return std::move(plan).status().with_context(str_cat("method ", method->name));
    out.program.plans.push_back(std::move(plan).value());
    out.reports.push_back(std::move(report));
    out.meta.methods.push_back(std::move(meta));
  }
  // Methods are written in name order, as the official exporter does.
  std::stable_sort(out.program.plans.begin(), out.program.plans.end(),
                   [](const format::PlanSpec& a, const format::PlanSpec& b) { return a.name < b.name; });
  out.program.constants = std::move(pool.constants);
  out.program.initial_states = std::move(pool.initial_states);
  out.external = std::move(pool.external);
  return out;
}

Result<Buffer> add_meta(format::ProgramMeta& meta, Profile profile, std::string_view compiler_version, format::ProgramSpec& program) {
  meta.compiler_version = compiler_version;
  meta.profile = profile == Profile::kExecutorch ? "executorch" : "pteron";
  PTERON_ASSIGN(Buffer bytes, format::write_meta(meta));
  program.blobs.push_back({format::Payload::borrow(bytes.span()), 0, 0});
  program.named_data.push_back({std::string(format::kMetaKey), static_cast<uint32_t>(program.blobs.size() - 1)});
  return bytes;
}

}  // namespace pteron::emit
