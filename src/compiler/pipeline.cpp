// The main path, top to bottom: every phase of a compilation up to what the backends take. finalize.cpp goes on from there.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "compiler/compile.h"
#include "compiler/devices.h"
#include "compiler/engines.h"
#include "compiler/exclusion.h"
#include "compiler/phase_clock.h"
#include "compiler/profile.h"
#include "compiler/specs.h"
#include "compiler/user_ops.h"
#include "import/import.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "passes/registry.h"

namespace pteron::compiler {

namespace {

constexpr std::string_view kPhases[] = {"import", "resolve", "functionalize", "decompose", "optimize", "partition", "emit", "write"};

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
      if (changed.ok()) continue;
      return with_expected(std::move(changed).status().with_context(program_.methods.size() > 1 ? str_cat("method ", method->name) : std::string(name)));
    }
    if (listed(options_.dump_after, name)) dump(name);
    return options_.verify == VerifyLevel::kEach ? verify(name) : ok_status();
  }

  /// What is known to be unsupported before the check behind the last pass says so: the error of a pass before that names it too.
  void expect(Status unsupported) { expected_ = std::move(unsupported); }

  /// The dialect that graphs are in from here on.
  void enter(ir::Dialect dialect) { dialect_ = dialect; }

  /// Verifies, unless that is switched off.
  Status check(std::string_view after) { return options_.verify == VerifyLevel::kOff ? ok_status() : verify(after); }

  /// Ends a phase: verifies, dumps, takes the time. *stop is true if the compilation ends here.
  Status finish(std::string_view name, bool* stop) {
    if (options_.verify != VerifyLevel::kOff && name != kPhases[0]) PTERON_TRY(verify(name));  // the importer has verified its graph
    if (listed(options_.dump_after, name)) dump(name);
    report_.phases.push_back(clock_.lap(name));
    *stop = options_.stop_after == name;
    return ok_status();
  }

 private:
  Status with_expected(Status failed) const {
    if (failed.code() != Code::kUnsupported || expected_.ok()) return failed;
    return Status(Code::kUnsupported, str_cat(failed.message(), "\n", expected_.message()));
  }

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

  Status expected_;
  const CompileOptions& options_;
  const passes::PassContext& context_;
  ir::Program& program_;
  CompileReport& report_;
  ir::Dialect dialect_ = ir::Dialect::kImported;
  PhaseClock clock_;
};

Status import_methods(const CompileOptions& options, const ir::Catalog& catalog, EdgeProgram& edge) {
  for (const MethodSource& source : options.methods) {
    std::shared_ptr<FileBytes> archive = source.bytes;
    if (archive == nullptr) {
      PTERON_ASSIGN(archive, FileBytes::map(source.path));
    }
    importer::ImportOptions import;
    import.method = source.method;
    import.log = options.log;
    import.guards = &edge.guards;
    importer::PendingChecks checks;
    import.pending_checks = &checks;
    Status status = importer::import_archive(std::move(archive), catalog, import, edge.program);
    const std::string name = source.path.empty() ? str_cat("the archive of method ", source.method, " in memory") : source.path;
    if (!status.ok()) return std::move(status).with_context(str_cat("loading ", name));
    for (auto& check : checks) {
      edge.pending_checks.push_back([check = std::move(check), name] { return check().with_context(str_cat("loading ", name)); });
    }
  }
  return ok_status();
}

/// An error that the options caused, not the archives: notes it for the caller.
Status blame_options(const CompileOptions& options, Status status) {
  if (!status.ok() && options.wrong_option != nullptr) *options.wrong_option = true;
  return status;
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

/// Sizes that have no bound in the file format, each with where it is met first.
class UnboundedSizes {
 public:
  void look(const ir::Graph& graph) {
    for (const ir::NodeId id : graph.order) {
      const ir::Node& node = graph[id];
      for (const ir::ValueId out : node.outputs) look(graph[out], str_cat(node.op->name, " at ", node.source.empty() ? str_cat("node ", node.name) : node.source));
      for (const auto& region : node.regions) look(*region);
    }
  }
  void look(const ir::Value& value, const std::string& where) {
    if (value.kind != ir::ValueKind::kTensor) return;
    for (const ir::Expr size : value.type.sizes) {
      if (size.is_const() || ir::bounds(size).max <= INT32_MAX) continue;
      Entry& entry = sizes_[name_of(size)];
      if (entry.count++ == 0) entry.first = where;
    }
  }
  std::string lines() const {
    std::string out;
    for (const auto& [name, entry] : sizes_) str_append(out, "\n  size ", name, "  x", entry.count, "  first in ", entry.first);
    return out;
  }

 private:
  struct Entry {
    uint32_t count = 0;
    std::string first;
  };
  /// The symbol without a bound, else the whole expression.
  static std::string name_of(ir::Expr size) {
    for (const ir::Expr symbol : ir::symbols_in(size)) {
      if (ir::bounds(symbol).max > INT32_MAX) return symbol.node()->name;
    }
    return ir::to_text(size);
  }
  std::map<std::string, Entry> sizes_;
};

/// No memory can be planned for sizes without an upper bound.
/// Errors: kUnsupported naming every such size and where it is met first.
Status check_bounds(const ir::Program& program) {
  UnboundedSizes sizes;
  for (const auto& method : program.methods) {
    for (const ir::Input& input : method->graph.inputs) {
      if (input.value.valid()) sizes.look(method->graph[input.value], str_cat("input '", input.name, "' of method ", method->name));
    }
    sizes.look(method->graph);
  }
  const std::string lines = sizes.lines();
  if (lines.empty()) return ok_status();
  return Status(Code::kUnsupported, str_cat("sizes without an upper bound below 2^31; export with a maximum (Dim(max=...)), or compile with --max-size:", lines));
}

/// All that the profile cannot run, in one error.
Status check_all(ir::Program& program, const passes::PassContext& context, bool executorch) {
  std::string text;
  const auto note = [&](const Status& status) {
    if (!status.ok()) str_append(text, text.empty() ? "" : "\n", status.message());
  };
  note(passes::check_supported(program, context.has_kernel, context.allow_random, executorch ? nullptr : context.evaluator));
  if (executorch) note(check_executorch_limits(program));
  if (text.empty()) return ok_status();
  note(check_bounds(program));
  return Status(Code::kUnsupported, std::move(text));
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

Status check_all_taken(const MethodPartition& part) {
  if (part.report.nodes_outside == 0) return ok_status();
  std::string text = str_cat("method ", part.method, ": no backend takes ", part.report.nodes_outside, part.report.nodes_outside == 1 ? " node:" : " nodes:");
  for (const partition::Refusal& refusal : part.report.refusals) {
    if (refusal.outside > 0) str_append(text, " ", refusal.op, " (", refusal.outside, ", first ", refusal.first, "), ", refusal.backend, ": ", refusal.reason, ";");
  }
  text.pop_back();
  return Status(Code::kUnsupported, text);
}

/// Errors: a backend's, with its name, before anything is read.
Status probe_backends(const CompileOptions& options) {
  for (const backends::Backend* backend : options.backends) {
    std::vector<format::CompileSpec> specs;
    for (const MethodSource& source : options.methods) {
      for (format::CompileSpec& spec : specs_for(options, *backend, source.method)) specs.push_back(std::move(spec));
    }
    Status status = backend->probe(specs);
    if (status.code() == Code::kInvalidInput) status = blame_options(options, std::move(status));
    if (!status.ok()) return std::move(status).with_context(str_cat("backend ", backend->name()));
  }
  return ok_status();
}

/// Lets the backends take and compile their groups.
Status compile_groups(const CompileOptions& options, const ir::Catalog& catalog, EdgeProgram& edge) {
  if (options.backends.empty()) return ok_status();
  std::vector<std::unique_ptr<backends::Backend>> fronts;
  auto left = exclude(options, edge.program, fronts);
  if (!left.ok()) return blame_options(options, std::move(left).status());
  const std::vector<const backends::Backend*> asked = std::move(left).value();
  emit::ExternalKeys keys;
  for (const auto& method : edge.program.methods) {
    edge.report.partitions.push_back({method->name, {}, {}});
    MethodPartition& part = edge.report.partitions.back();
    PTERON_ASSIGN(const std::vector<partition::Group> groups,
                  partition::partition(*method, asked, static_cast<uint32_t>(edge.groups.size()), &part.report));
    if (options.strict) PTERON_TRY(check_all_taken(part));
    for (const partition::Group& group : groups) {
      const std::string_view backend = group.backend->name();
      const std::vector<format::CompileSpec> specs = specs_for(options, *group.backend, method->name);
      const bool external = is_data_external(options, backend, method->name);
      auto made = group.backend->compile(*group.method, {&catalog, &keys, options.bf16, external, specs});
      if (!made.ok()) return std::move(made).status().with_context(str_cat("method ", method->name, ": backend ", backend));
      part.groups.push_back({std::string(backend), made->payload.size(), made->memory_bytes, made->lower_bound_bytes, std::move(made->kernels)});
      edge.groups.push_back({std::move(made).value(), external, group.backend->alignment_bytes(), std::string(backend), std::ranges::find(specs, backends::kDeviceSpec, &format::CompileSpec::key) != specs.end()});
      part.groups.back().device = device_label(edge.groups.back());
    }
  }
  return ok_status();
}

/// Runs the passes from outside; what they made is decomposed, folded and checked like the rest. Without a change the graphs stay as they are.
Status run_transforms(const CompileOptions& options, const passes::PassContext& context, Driver& driver, ir::Program& program) {
  bool changed = false;
  for (const Transform& transform : options.transforms) {
    for (const auto& method : program.methods) {
      if (!transform.method.empty() && transform.method != method->name) continue;
      auto done = transform.run(*method, *context.catalog);
      if (!done.ok()) return std::move(done).status().with_context(str_cat("pass ", transform.name, ": method ", method->name));
      changed = changed || *done;
    }
  }
  if (!changed) return ok_status();
  const bool executorch = options.profile == Profile::kExecutorch;
  driver.enter(ir::Dialect::kFunctional);
  PTERON_TRY(driver.pass("decompose"));
  if (executorch) PTERON_TRY(driver.pass("fit_executorch"));
  PTERON_TRY(driver.pass("fold_constants"));
  PTERON_TRY(driver.pass("dce"));
  PTERON_TRY(check_all(program, context, executorch));
  driver.enter(ir::Dialect::kProfile);
  return driver.check("the passes of the caller");
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

}  // namespace

std::vector<std::string_view> phase_names() { return {std::begin(kPhases), std::end(kPhases)}; }

namespace {

/// The phases up to the backends' groups; edge.stopped says whether one of them was the last.
Status export_into(const CompileOptions& options, const Environment& environment, EdgeProgram& edge) {
  PTERON_TRY(blame_options(options, check_options(options)));
  PTERON_TRY(blame_options(options, check_exclusions(options)));
  auto name = data_file_name(options, environment.prebuilt);
  if (!name.ok()) return blame_options(options, std::move(name).status());
  edge.data_name = std::move(name).value();
  PTERON_TRY(probe_backends(options));
  edge.external_constants = options.external_weights.has_value();
  ir::Program& program = edge.program;
  passes::PassContext context;
  context.catalog = environment.catalog;
  context.evaluator = environment.evaluator;
  context.allow_random = options.allow_random;
  context.has_kernel = kernels_of(options, environment);
  context.keep_narrow = options.profile == Profile::kPteron;
  if (options.profile == Profile::kExecutorch) context.avoid = executorch_avoids;
  Driver driver(options, context, program, edge.report);
  bool& stop = edge.stopped;

  PTERON_TRY(import_methods(options, *environment.catalog, edge));
  for (const auto& method : program.methods) {
    if (environment.prebuilt != nullptr) PTERON_TRY(environment.prebuilt->prepare(*method, *environment.catalog));
  }
  PTERON_TRY(check_user_shapes(program, environment.libraries));
  PTERON_TRY(driver.finish("import", &stop));
  if (stop) return ok_status();

  driver.expect(passes::check_known(program, options.allow_random));
  PTERON_TRY(driver.pass("inline_wrappers"));
  PTERON_TRY(driver.pass("batch_vmap"));
  PTERON_TRY(driver.pass("resolve"));
  PTERON_TRY(driver.finish("resolve", &stop));
  if (stop) return ok_status();

  PTERON_TRY(driver.pass("functionalize"));
  share_states(options.shared_states, program);
  PTERON_TRY(blame_options(options, emit::check_shared_states(program, options.shared_states)));
  PTERON_TRY(driver.pass("dce"));
  driver.enter(ir::Dialect::kFunctional);
  PTERON_TRY(driver.finish("functionalize", &stop));
  if (stop) return ok_status();

  PTERON_TRY(driver.pass("fold_conv_bn"));
  PTERON_TRY(driver.pass("signed_products"));
  // The official kernels are fewer than ours: what is constant is computed here, before and after operators fall apart.
  const bool executorch = options.profile == Profile::kExecutorch;
  if (executorch) PTERON_TRY(driver.pass("fold_constants"));
  PTERON_TRY(driver.pass("decompose"));
  if (executorch) PTERON_TRY(driver.pass("fit_executorch"));
  if (executorch) PTERON_TRY(driver.pass("fold_constants"));
  PTERON_TRY(driver.pass("dce"));
  PTERON_TRY(blame_options(options, bound_sizes(options, program)));
  PTERON_TRY(check_all(program, context, executorch));
  if (executorch) warn_of_layouts(options, program);
  driver.enter(ir::Dialect::kProfile);
  PTERON_TRY(driver.finish("decompose", &stop));
  if (stop) return ok_status();

  PTERON_TRY(driver.pass("remove_noops"));
  PTERON_TRY(driver.pass("fold_casts_views"));
  PTERON_TRY(driver.pass("fold_constants"));
  PTERON_TRY(driver.pass("cse"));
  PTERON_TRY(driver.pass("merge_constants"));
  PTERON_TRY(driver.pass("dce"));
  PTERON_TRY(driver.finish("optimize", &stop));
  if (stop) return ok_status();
  PTERON_TRY(run_transforms(options, context, driver, program));
  PTERON_TRY(check_bounds(program));

  forget_devices(program);
  PTERON_ASSIGN(std::vector<MethodPartition> claimed, claim_engines(options, environment, edge));
  PTERON_TRY(compile_groups(options, *environment.catalog, edge));
  add_claimed(std::move(claimed), edge.report);
  PTERON_TRY(blame_options(options, check_devices(options, edge)));
  PTERON_TRY(place_on_devices(options, edge));
  return driver.finish("partition", &stop);
}

}  // namespace

Result<std::unique_ptr<EdgeProgram>> export_program(const CompileOptions& options, const Environment& environment) {
  auto edge = std::make_unique<EdgeProgram>();
  PTERON_TRY(export_into(options, environment, *edge));
  for (size_t i = 0; edge->stopped && i < edge->pending_checks.size(); ++i) PTERON_TRY(edge->pending_checks[i]());  // finalize() will not
  return edge;
}

}  // namespace pteron::compiler
