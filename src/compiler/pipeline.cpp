// The main path, top to bottom: every phase of a compilation in order.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <set>

#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "compiler/compile.h"
#include "compiler/profile.h"
#include "compiler/user_ops.h"
#include "format/meta.h"
#include "format/program.h"
#include "import/import.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/registry.h"
#include "pteron/version.h"

namespace pteron::compiler {

namespace {

constexpr std::string_view kPhases[] = {"import", "resolve", "functionalize", "decompose", "optimize", "partition", "emit", "write"};

uint64_t peak_resident_bytes() {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

/// Runs passes over all methods; knows what is disabled, dumped and verified, and keeps the time of the running phase.
class Driver {
 public:
  Driver(const CompileOptions& options, const passes::PassContext& context, ir::Program& program, CompileReport& report)
      : options_(options), context_(context), program_(program), report_(report) {}

  /// A pass of the registry, on every method.
  Status pass(std::string_view name) {
    if (listed(options_.disabled, name)) return ok_status();
    const passes::Pass* found = passes::find_pass(name);
    if (found == nullptr) return Status(Code::kInternal, str_cat("no pass is named ", name));
    for (const auto& method : program_.methods) {
      auto changed = found->run(method->graph, context_);
      if (!changed.ok()) return std::move(changed).status().with_context(program_.methods.size() > 1 ? str_cat("method ", method->name) : std::string(name));
    }
    if (listed(options_.dump_after, name)) dump(name);
    return options_.verify == VerifyLevel::kEach ? verify(name) : ok_status();
  }

  /// The dialect that graphs are in from here on.
  void enter(ir::Dialect dialect) { dialect_ = dialect; }

  /// Ends a phase: verifies, dumps, takes the time. *stop is true if the compilation ends here.
  Status finish(std::string_view name, bool* stop) {
    if (options_.verify != VerifyLevel::kOff && name != kPhases[0]) PTERON_TRY(verify(name));  // the importer has verified its graph
    if (listed(options_.dump_after, name)) dump(name);
    const auto now = std::chrono::steady_clock::now();
    report_.phases.push_back({std::string(name), std::chrono::duration<double>(now - begin_).count(), peak_resident_bytes()});
    begin_ = now;
    *stop = options_.stop_after == name;
    return *stop && options_.observe ? options_.observe(program_) : ok_status();
  }

 private:
  static bool listed(const std::vector<std::string>& names, std::string_view name) { return std::find(names.begin(), names.end(), name) != names.end(); }

  Status verify(std::string_view after) {
    for (const auto& method : program_.methods) {
      Status status = ir::verify(method->graph, dialect_);
      if (!status.ok()) return std::move(status).with_context(str_cat("after ", after));
    }
    return ok_status();
  }

  void dump(std::string_view after) {
    if (options_.dump) options_.dump(after, ir::print(program_));
  }

  const CompileOptions& options_;
  const passes::PassContext& context_;
  ir::Program& program_;
  CompileReport& report_;
  ir::Dialect dialect_ = ir::Dialect::kImported;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

Status import_methods(const CompileOptions& options, const ir::Catalog& catalog, ir::Program& program, ir::Guards& guards) {
  for (const MethodSource& source : options.methods) {
    PTERON_ASSIGN(std::shared_ptr<FileBytes> archive, FileBytes::map(source.path));
    importer::ImportOptions import;
    import.method = source.method;
    import.log = options.log;
    import.guards = &guards;
    Status status = importer::import_archive(std::move(archive), catalog, import, program);
    if (!status.ok()) return std::move(status).with_context(str_cat("loading ", source.path));
  }
  return ok_status();
}

void collect_sizes(const ir::Graph& graph, std::set<const ir::ExprNode*>* symbols) {
  for (const ir::Value& value : graph.values) {
    for (const ir::Expr size : value.type.sizes) {
      if (size.is_const()) continue;
      for (const ir::Expr symbol : ir::symbols_in(size)) symbols->insert(symbol.node());
    }
  }
  for (const ir::NodeId id : graph.order) {
    for (const auto& region : graph[id].regions) collect_sizes(*region, symbols);
  }
}

/// The official runtime takes the bytes of an input as they lie: strided and channels-last tensors would be misread there.
void warn_of_layouts(const CompileOptions& options, const ir::Program& program) {
  if (options.log == nullptr) return;
  for (const auto& method : program.methods) {
    for (const ir::Input& input : method->graph.inputs) {
      if (!input.value.valid() || method->graph[input.value].kind != ir::ValueKind::kTensor || ir::is_contiguous(method->graph[input.value].type)) continue;
      options.log->log(LogLevel::kWarning, str_cat("method ", method->name, ": input '", input.name,
                                                   "' was exported in another layout; the file takes it contiguous, and the official runtime converts nothing: call .contiguous() there"));
    }
  }
}

/// Gives sizes the upper bounds that the user chose where they have no smaller one.
/// Errors: kInvalidInput (a name that the program does not have, a bound below what a size is at least).
Status bound_sizes(const CompileOptions& options, ir::Program& program) {
  if (options.size_bounds.empty()) return ok_status();
  std::set<const ir::ExprNode*> sizes;
  for (const auto& method : program.methods) collect_sizes(method->graph, &sizes);
  for (const SizeBound& bound : options.size_bounds) {
    if (bound.max < 0 || bound.max > INT32_MAX) return Status(Code::kInvalidInput, str_cat("a bound of sizes is from 0 to 2^31-1, found ", bound.max));
    bool found = false;
    std::vector<std::string> names;
    for (const ir::Expr symbol : program.exprs.symbols()) {
      if (symbol.type() != ir::ExprType::kInt) continue;
      names.push_back(symbol.node()->name);
      if (bound.symbol.empty() ? !sizes.contains(symbol.node()) : symbol.node()->name != bound.symbol) continue;
      found = true;
      const ir::Range range = program.exprs.range_of(symbol);
      if (range.min > bound.max) return Status(Code::kInvalidInput, str_cat("size ", symbol.node()->name, " is at least ", range.min, ", a bound of ", bound.max, " is given"));
      program.exprs.set_range(symbol, {range.min, std::min(range.max, bound.max)});
    }
    if (found) continue;
    if (!bound.symbol.empty()) return Status(Code::kInvalidInput, str_cat("the program has no size named ", bound.symbol, "; those that may vary are ", str_list(names)));
    if (options.log != nullptr) options.log->log(LogLevel::kWarning, "no size of the program may vary: a bound of sizes changes nothing");
  }
  return ok_status();
}

/// Makes the constant `name`, if the graph has it, a state that the graph leaves as it is.
void share_constant(std::string_view name, ir::Graph& graph) {
  for (uint32_t i = 0; i < graph.values.size(); ++i) {
    const ir::ConstantId id = graph.values[i].constant;
    if (!id.valid() || (*graph.program)[id].name != name || (*graph.program)[id].origin != ir::Constant::Origin::kBuffer) continue;
    const ir::ValueId constant{i};
    const ir::ValueId value = graph.add_tensor(ir::contiguous_type(graph[constant].type.dtype, graph[constant].type.sizes), graph[constant].name);
    const std::function<void(ir::ValueId&)> replace = [&](ir::ValueId& use) { use = use == constant ? value : use; };
    for (const ir::NodeId node : graph.order) {
      for (ir::Arg& arg : graph[node].args) ir::for_each_value(arg, replace);
    }
    ir::for_each_result(graph, replace);
    (*graph.program)[id].mutable_elsewhere = true;
    graph.states.push_back({std::string(name), value, value, id});
    return;
  }
}

std::vector<std::string> operators_of(const format::ProgramSpec& program) {
  std::set<std::string> names;
  for (const format::PlanSpec& plan : program.plans) {
    for (const format::OperatorSpec& op : plan.operators) names.insert(op.overload.empty() ? op.name : str_cat(op.name, ".", op.overload));
  }
  return {names.begin(), names.end()};
}

Status check_all_taken(const MethodPartition& part) {
  if (part.report.nodes_outside == 0) return ok_status();
  std::string text = str_cat("method ", part.method, ": no backend takes ", part.report.nodes_outside, part.report.nodes_outside == 1 ? " node:" : " nodes:");
  for (const partition::Refusal& refusal : part.report.refusals) {
    if (refusal.outside > 0) str_append(text, " ", refusal.op, " (", refusal.outside, ", first ", refusal.first, "), ", refusal.backend, ": ", refusal.reason, ";");
  }
  text.pop_back();
  return Status(Code::kUnsupported, text);
}

/// Groups that backends took and compiled.
Result<std::vector<backends::CompiledGroup>> compile_groups(const CompileOptions& options, const ir::Catalog& catalog, ir::Program& program, CompileReport& report) {
  std::vector<backends::CompiledGroup> compiled;
  if (options.backends.empty()) return compiled;
  emit::ExternalKeys keys;
  for (const auto& method : program.methods) {
    report.partitions.push_back({method->name, {}, {}});
    PTERON_ASSIGN(const std::vector<partition::Group> groups,
                  partition::partition(*method, options.backends, static_cast<uint32_t>(compiled.size()), &report.partitions.back().report));
    if (options.strict) PTERON_TRY(check_all_taken(report.partitions.back()));
    for (const partition::Group& group : groups) {
      auto made = group.backend->compile(*group.method, {&catalog, options.alignment_bytes, &keys, options.bf16});
      if (!made.ok()) return std::move(made).status().with_context(str_cat("method ", method->name, ": backend ", group.backend->name()));
      report.partitions.back().groups.push_back({std::string(group.backend->name()), made->payload.size(), made->memory_bytes, made->lower_bound_bytes, std::move(made->kernels)});
      compiled.push_back(std::move(made).value());
    }
  }
  return compiled;
}

std::vector<std::string> delegate_ids(const std::vector<backends::CompiledGroup>& groups) {
  std::set<std::string> ids;
  for (const backends::CompiledGroup& group : groups) ids.insert(group.id);
  return {ids.begin(), ids.end()};
}

/// Payloads become the first blobs of the program, their weights named data that is stored once.
void add_groups(std::vector<backends::CompiledGroup>& groups, format::ProgramSpec& program) {
  for (const backends::CompiledGroup& group : groups) program.blobs.push_back({format::Payload::borrow(group.payload.span()), 0, 0});
  std::set<std::string> keys;
  for (backends::CompiledGroup& group : groups) {
    for (backends::NamedBlob& blob : group.data) {
      if (!keys.insert(blob.key).second) continue;
      program.blobs.push_back({std::move(blob.payload), 0, 0});
      program.named_data.push_back({std::move(blob.key), static_cast<uint32_t>(program.blobs.size() - 1)});
    }
  }
}

/// A shared buffer that a method only reads is a state there as well: another method writes it.
void share_states(const std::vector<std::string>& names, ir::Program& program) {
  for (const auto& method : program.methods) {
    ir::Graph& graph = method->graph;
    for (const std::string& name : names) {
      const bool is_state = std::any_of(graph.states.begin(), graph.states.end(), [&](const ir::State& state) { return state.name == name; });
      if (!is_state) share_constant(name, graph);
    }
  }
}

/// The same methods as the official exporter's constant methods: values and nothing else.
Status add_constant_methods(const CompileOptions& options, emit::Emitted& emitted) {
  for (const ConstantMethod& constant : options.constants) {
    const bool taken = std::any_of(emitted.program.plans.begin(), emitted.program.plans.end(), [&](const auto& plan) { return plan.name == constant.name; });
    if (taken) return Status(Code::kInvalidInput, str_cat("two methods named '", constant.name, "'"));
    format::PlanSpec plan;
    plan.name = constant.name;
    format::MethodMeta meta;
    meta.name = constant.name;
    for (const format::ValueSpec& value : constant.values) {
      plan.outputs.push_back(static_cast<int32_t>(plan.values.size()));
      plan.values.push_back(value);
      format::PortMeta port;
      port.name = constant.values.size() == 1 ? "value" : str_cat("value_", meta.outputs.size());
      port.kind = std::holds_alternative<int64_t>(value)  ? format::PortKind::kInt
                  : std::holds_alternative<double>(value) ? format::PortKind::kFloat
                  : std::holds_alternative<bool>(value)   ? format::PortKind::kBool
                                                          : format::PortKind::kString;
      meta.outputs.push_back(std::move(port));
    }
    emitted.program.plans.push_back(std::move(plan));
    emitted.meta.methods.push_back(std::move(meta));
  }
  return ok_status();
}

}  // namespace

std::vector<std::string_view> phase_names() { return {std::begin(kPhases), std::end(kPhases)}; }

Result<CompileReport> compile(const CompileOptions& options, const Environment& environment, ByteSink& sink) {
  CompileReport report;
  ir::Program program;
  passes::PassContext context;
  context.catalog = environment.catalog;
  context.evaluator = environment.evaluator;
  context.allow_random = options.allow_random;
  context.has_kernel = [&](std::string_view kernel) {
    if (emit::is_control_flow(kernel)) return true;
    return options.profile == Profile::kExecutorch ? executorch_has_kernel(kernel) : environment.has_kernel(kernel);
  };
  context.keep_narrow = options.profile == Profile::kPteron;
  if (options.profile == Profile::kExecutorch) context.avoid = executorch_avoids;
  Driver driver(options, context, program, report);
  bool stop = false;

  ir::Guards guards;
  PTERON_TRY(import_methods(options, *environment.catalog, program, guards));
  PTERON_TRY(check_user_shapes(program, environment.libraries));
  PTERON_TRY(driver.finish("import", &stop));
  if (stop) return report;

  PTERON_TRY(driver.pass("inline_wrappers"));
  PTERON_TRY(driver.pass("batch_vmap"));
  PTERON_TRY(driver.pass("resolve"));
  PTERON_TRY(driver.finish("resolve", &stop));
  if (stop) return report;

  PTERON_TRY(driver.pass("functionalize"));
  share_states(options.shared_states, program);
  PTERON_TRY(driver.pass("dce"));
  driver.enter(ir::Dialect::kFunctional);
  PTERON_TRY(driver.finish("functionalize", &stop));
  if (stop) return report;

  PTERON_TRY(driver.pass("fold_conv_bn"));
  // The official kernels are fewer than ours: what is constant is computed here, before and after operators fall apart.
  const bool executorch = options.profile == Profile::kExecutorch;
  if (executorch) PTERON_TRY(driver.pass("fold_constants"));
  PTERON_TRY(driver.pass("decompose"));
  if (executorch) PTERON_TRY(driver.pass("fit_executorch"));
  if (executorch) PTERON_TRY(driver.pass("fold_constants"));
  PTERON_TRY(driver.pass("dce"));
  PTERON_TRY(passes::check_supported(program, context.has_kernel, options.allow_random));
  if (executorch) PTERON_TRY(check_executorch_limits(program));
  if (executorch) warn_of_layouts(options, program);
  PTERON_TRY(bound_sizes(options, program));
  driver.enter(ir::Dialect::kProfile);
  PTERON_TRY(driver.finish("decompose", &stop));
  if (stop) return report;

  PTERON_TRY(driver.pass("remove_noops"));
  PTERON_TRY(driver.pass("fold_casts_views"));
  PTERON_TRY(driver.pass("fold_constants"));
  PTERON_TRY(driver.pass("cse"));
  PTERON_TRY(driver.pass("merge_constants"));
  PTERON_TRY(driver.pass("dce"));
  PTERON_TRY(driver.finish("optimize", &stop));
  if (stop) return report;

  PTERON_ASSIGN(std::vector<backends::CompiledGroup> groups, compile_groups(options, *environment.catalog, program, report));
  PTERON_TRY(driver.finish("partition", &stop));
  if (stop) return report;

  std::vector<format::DelegateSpec> delegates;
  for (const backends::CompiledGroup& group : groups) delegates.push_back({group.id, 0, group.specs});
  report.delegates = delegate_ids(groups);
  PTERON_ASSIGN(emit::Emitted emitted, emit::emit_program(program, {options.profile, options.alignment_bytes, delegates, false, options.shared_states, context.has_kernel, environment.catalog,
                                                                       nullptr, &guards}));
  add_groups(groups, emitted.program);
  PTERON_TRY(add_constant_methods(options, emitted));
  report.methods = std::move(emitted.reports);
  report.operators = operators_of(emitted.program);
  for (const format::Payload& constant : emitted.program.constants) report.weight_bytes += constant.size_bytes;
  for (const format::NamedDataSpec& data : emitted.program.named_data) report.weight_bytes += emitted.program.blobs[data.blob].payload.size_bytes;
  PTERON_TRY(driver.finish("emit", &stop));
  if (stop) return report;

  PTERON_ASSIGN(const Buffer facts, emit::add_meta(emitted, options.profile, PTERON_VERSION_TEXT));
  PTERON_TRY(format::write_program(emitted.program, {options.alignment_bytes}, sink));
  PTERON_TRY(driver.finish("write", &stop));
  return report;
}

}  // namespace pteron::compiler
