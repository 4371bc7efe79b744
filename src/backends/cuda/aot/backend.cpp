// The backend object: what it takes, and the way from a group to its payload.
#include "backends/cuda/aot/backend.h"

#include <algorithm>
#include <utility>

#include "backends/api/program_group.h"
#include "backends/cuda/aot/fusion.h"
#include "backends/cuda/aot/kernel_sources.h"
#include "backends/cuda/aot/library.h"
#include "backends/cuda/aot/lowering.h"
#include "backends/cuda/aot/nvrtc.h"
#include "backends/cuda/aot/operators.h"
#include "backends/cuda/aot/spelled.h"
#include "backends/cuda/module.h"
#include "backends/cuda/payload.h"
#include "base/file_writer.h"
#include "base/str_cat.h"
#include "format/content_hash.h"
#include "ops/catalog.h"
#include "passes/passes.h"
#include "tensor/dtype.h"

namespace pteron::cuda {
namespace {

using backends::CompiledGroup;
using backends::GroupContext;
using backends::Support;

/// Compile specs: what the kernels are translated for, and a folder for their text.
constexpr std::string_view kArchSpec = "arch", kDumpSpec = "dump_kernels", kTf32Spec = "tf32";
constexpr std::string_view kSpecs[] = {kArchSpec, backends::kDeviceSpec, kDumpSpec, kTf32Spec};
constexpr std::string_view kDefaultArchitectures = "sm_90,compute_80";

/// The first architecture whose tensor cores multiply 8-bit floats.
constexpr unsigned kFloat8Architecture = 89;

/// Norms that are spelled out in others; those of 16-bit floats in float32, rounded once at the end as PyTorch does.
constexpr std::string_view kSpelledNorms[] = {"aten::native_group_norm", "aten::_native_batch_norm_legit.no_stats"};

bool is_spelled_norm(const ir::Node& node) { return std::ranges::find(kSpelledNorms, node.op->name) != std::end(kSpelledNorms); }

/// A norm that is computed in float32 between casts.
bool is_widened(const ir::Graph& graph, const ir::Node& node) { return is_spelled_norm(node) && is_reduced_float(graph[node.outputs[0]].type.dtype); }

/// True if the node is computed as it stands.
bool has_kernel(const ir::Graph& graph, const ir::Node& node, std::string* why) {
  if (is_library_node(node)) {
    Support support = library_supports(graph, node);
    if (support.yes || kind_of(graph, node) != NodeKind::kOther) return true;
    *why = std::move(support.reason);
    return false;
  }
  if (is_widened(graph, node)) return true;
  if (!is_spelled_norm(node)) return kind_of(graph, node, why) != NodeKind::kOther;
  *why = "no kernel";
  return false;
}

/// Puts casts around the norms that are computed in float32.
Status widen(ir::Graph& graph, const ir::Catalog& catalog) {
  const auto visit = [&](ir::Builder& builder, ir::NodeId id, std::vector<ir::ValueId>& replacements) -> Result<ir::Rewrite> {
    if (!is_widened(graph, graph[id])) return ir::Rewrite::kKeep;
    const auto cast = [&](ir::ValueId value, DType to) { return builder.op("aten::_to_copy", {value, to}); };
    std::vector<ir::Arg> args = graph[id].args;
    for (ir::Arg& arg : args) {
      const auto* value = std::get_if<ir::ValueId>(&arg);
      if (value != nullptr && value->valid() && is_reduced_float(graph[*value].type.dtype)) arg = cast(*value, DType::kFloat32);
    }
    const std::vector<ir::ValueId> before = graph[id].outputs, made = builder.ops(graph[id].op->name, std::move(args));
    if (made.size() != before.size()) return builder.take_status();
    for (size_t k = 0; k < made.size(); ++k) {
      const ir::TensorType type = graph[before[k]].type;
      replacements.push_back(type.dtype == DType::kFloat32 ? made[k] : cast(made[k], type.dtype));
      if (!replacements.back().valid()) return builder.take_status();
      graph[replacements.back()].type = type;
    }
    return ir::Rewrite::kReplace;
  };
  return ir::rewrite(graph, catalog, visit).status();
}

std::string_view setting(std::span<const format::CompileSpec> specs, std::string_view key, std::string_view missing) {
  for (const format::CompileSpec& spec : specs) {
    if (spec.key == key) return {reinterpret_cast<const char*>(spec.value.data()), spec.value.size()};
  }
  return missing;
}

format::CompileSpec text_spec(std::string_view key, std::string_view text) {
  const auto* bytes = reinterpret_cast<const std::byte*>(text.data());
  return {std::string(key), {bytes, bytes + text.size()}};
}

/// Errors: kInvalidInput unless it is "cuda" or "cuda:" and a number.
Status check_device(std::string_view text) {
  std::string_view digits = text.starts_with("cuda:") ? text.substr(5) : text == "cuda" ? std::string_view("0") : std::string_view();
  const bool fits = !digits.empty() && digits.size() <= 2 && digits.find_first_not_of("0123456789") == std::string_view::npos;
  return fits ? ok_status() : Status(Code::kInvalidInput, str_cat("compile spec ", backends::kDeviceSpec, " is \"cuda:\" and a number, found '", text, "'"));
}

/// Of a text that check_device took.
int8_t device_index(std::string_view text) {
  int index = 0;
  for (const char digit : text.starts_with("cuda:") ? text.substr(5) : std::string_view()) index = 10 * index + (digit - '0');
  return static_cast<int8_t>(std::min(index, 127));
}

Status write_text(const std::string& path, std::string_view text) {
  PTERON_ASSIGN(auto writer, FileWriter::create(path));
  PTERON_TRY(writer->write({reinterpret_cast<const std::byte*>(text.data()), text.size()}));
  return writer->commit(false);
}

/// Errors: kInvalidInput (no list of architectures, or one that NVRTC does not know); kUnavailable (no NVRTC, and something is to be translated).
Status check_architectures(std::string_view list) {
  PTERON_ASSIGN(const std::vector<Target> targets, parse_targets(list));
  const bool translates = std::ranges::any_of(targets, [](const Target& target) { return target.kind != Target::Kind::kSource; });
  if (!translates) return ok_status();
  PTERON_ASSIGN(const auto nvrtc, Nvrtc::open());
  return nvrtc->check(targets);
}

/// Pools of whole images become means, which share their work between threads.
Status spell_global_pools(ir::Graph& graph, const ir::Catalog& catalog) {
  return ir::rewrite(graph, catalog,
                     [&](ir::Builder& builder, ir::NodeId id, std::vector<ir::ValueId>& replacements) -> Result<ir::Rewrite> {
                       if (graph[id].op->name != "aten::_adaptive_avg_pool2d") return ir::Rewrite::kKeep;
                       const ir::NodeView n(graph, *graph[id].op, graph[id].args);
                       const std::vector<ir::Expr> to = n.exprs("output_size");
                       if (to.size() != 2 || !dim_is(to[0], 1) || !dim_is(to[1], 1)) return ir::Rewrite::kKeep;
                       const ir::TensorType type = graph[graph[id].outputs[0]].type;
                       const ir::ValueId made = builder.op("aten::mean.dim", {n.value("self"), std::vector<ir::Expr>{-2, -1}, builder.boolean(true)});
                       if (!made.valid()) return builder.take_status();
                       graph[made].type = type;
                       replacements = {made};
                       return ir::Rewrite::kReplace;
                     })
      .status();
}

class CudaBackend final : public backends::Backend {
 public:
  CudaBackend(ir::Catalog engine, ir::Catalog operators) : engine_(std::move(engine)), speller_(std::move(operators), has_kernel) {}
  std::string_view name() const override { return "cuda"; }
  std::string_view id() const override { return kBackendId; }
  uint64_t alignment_bytes() const override { return kAlignment; }
  std::span<const std::string_view> spec_keys() const override { return kSpecs; }

  Status probe(std::span<const format::CompileSpec> specs) const override {
    for (const format::CompileSpec& spec : specs) {  // each method's own
      const std::string_view text(reinterpret_cast<const char*>(spec.value.data()), spec.value.size());
      if (spec.key == backends::kDeviceSpec) PTERON_TRY(check_device(text));
      if (spec.key == kTf32Spec && text != "0" && text != "1")
        return Status(Code::kInvalidInput, str_cat("compile spec ", kTf32Spec, " is 0 or 1, found '", text, "'"));
    }
    PTERON_TRY(check_architectures(setting(specs, kArchSpec, kDefaultArchitectures)));
    for (const format::CompileSpec& spec : specs) {
      if (spec.key == kArchSpec) PTERON_TRY(check_architectures({reinterpret_cast<const char*>(spec.value.data()), spec.value.size()}));
    }
    return ok_status();
  }

  Support supports(const ir::Graph& graph, const ir::Node& node) const override {
    std::string why;
    if (has_kernel(graph, node, &why)) return {};
    const Support spelled = speller_.supports(graph, node);
    return spelled.yes || why == "no kernel" ? spelled : Support::no(std::move(why));
  }

  Result<CompiledGroup> compile(ir::Method& group, const GroupContext& context) const override {
    PTERON_ASSIGN(const std::vector<Target> targets, parse_targets(setting(context.specs, kArchSpec, kDefaultArchitectures)));
    PTERON_TRY(speller_.spell(group.graph));
    PTERON_TRY(widen(group.graph, *context.catalog));
    PTERON_TRY(speller_.spell(group.graph));  // the widened norms
    // What was equal but for constants that are one by now: tables in every step of an unrolled loop.
    PTERON_TRY(passes::cse(group.graph, *context.catalog).status());
    PTERON_TRY(spell_global_pools(group.graph, *context.catalog));
    KernelSources sources;
    const bool float8 =
        std::ranges::all_of(targets, [](const Target& target) { return target.kind == Target::Kind::kSource || target.sm >= kFloat8Architecture; });
    PTERON_TRY(lower_library(group.graph, engine_, *context.catalog, sources, {setting(context.specs, kTf32Spec, "") == "1", float8}));
    PTERON_TRY(passes::dce(group.graph, *context.catalog).status());
    PTERON_TRY(make_launches(group.graph, engine_, sources,
                             {context.external_weights, [](const ir::Node& node) { return node.op->name.starts_with("pteron_cuda::"); }}));
    const bool has_state = !group.graph.input_mutations.empty();
    PTERON_ASSIGN(CompiledGroup made, backends::program_group(group, context));
    made.id = kBackendId;
    made.specs.push_back({std::string(kVersionKey), {std::byte{kVersion}}});
    const std::string_view device = setting(context.specs, backends::kDeviceSpec, "cuda:0");
    made.specs.push_back(text_spec(backends::kDeviceSpec, device));
    // The payload stages tensors of the host within its recorded calls, which costs less than copies around it; a buffer that it updates must not be copied at
    // all.
    (has_state ? made.io_device : made.possible_device) = {DeviceType::kCuda, device_index(device)};
    PTERON_TRY(add_module(sources, targets, setting(context.specs, kDumpSpec, ""), made));
    return made;
  }

 private:
  /// The kernels, translated for every target, as named data.
  Status add_module(const KernelSources& sources, const std::vector<Target>& targets, std::string_view dump, CompiledGroup& made) const {
    const std::string text = sources.text();
    if (!dump.empty()) PTERON_TRY(write_text(str_cat(dump, "/", made.id, ".", format::hash_hex(std::as_bytes(std::span(text))), ".cu"), text));
    std::vector<Buffer> translated;
    std::vector<ModuleEntry> entries;
    for (const Target& target : targets) {
      if (target.kind == Target::Kind::kSource) {
        entries.push_back({ModuleKind::kSource, 0, std::as_bytes(std::span(text))});
        continue;
      }
      PTERON_ASSIGN(const auto nvrtc, Nvrtc::open());
      PTERON_ASSIGN(Buffer code, nvrtc->translate(text, target, [&](size_t line) { return sources.node_at(line); }));
      translated.push_back(std::move(code));
      entries.push_back({target.kind == Target::Kind::kPtx ? ModuleKind::kPtx : ModuleKind::kCubin, target.sm, translated.back().span()});
    }
    PTERON_ASSIGN(Buffer module, write_module(entries));
    auto owner = std::make_shared<const Buffer>(std::move(module));
    const std::string key = str_cat(kModulePrefix, format::hash_hex(owner->span()));
    made.specs.push_back(text_spec(kModuleKey, key));
    made.data.push_back({key, std::nullopt, format::Payload::borrow(owner->span()), owner});
    return ok_status();
  }

  ir::Catalog engine_;
  Speller speller_;
};

}  // namespace

Result<std::unique_ptr<backends::Backend>> make_backend() {
  ir::Catalog engine;
  PTERON_TRY(engine.add(operators()));
  PTERON_TRY(engine.add(library_operators()));
  PTERON_ASSIGN(ir::Catalog aten, ops::make_catalog());
  return std::unique_ptr<backends::Backend>(std::make_unique<CudaBackend>(std::move(engine), std::move(aten)));
}

}  // namespace pteron::cuda
