// The front of a backend, and the checks of what the caller excludes.
#include "compiler/exclusion.h"

#include <algorithm>

#include "base/str_cat.h"

namespace pteron::compiler {

namespace {

/// "aten::mm" names all overloads, "aten::add.Tensor" one; the namespace may be left out.
bool names_operator(std::string_view wanted, std::string_view op) {
  const auto matches = [&](std::string_view name) { return name == wanted || (name.starts_with(wanted) && name.size() > wanted.size() && name[wanted.size()] == '.'); };
  const size_t colons = op.find("::");
  return matches(op) || (colons != std::string_view::npos && matches(op.substr(colons + 2)));
}

bool applies(const Exclusion& exclusion, const ir::Node& node) {
  return exclusion.is_node ? node.name == exclusion.name : names_operator(exclusion.name, node.op->name);
}

class Front final : public backends::Backend {
 public:
  Front(const backends::Backend& inner, std::vector<Exclusion> exclusions) : inner_(inner), exclusions_(std::move(exclusions)) {}
  std::string_view name() const override { return inner_.name(); }
  std::string_view id() const override { return inner_.id(); }
  uint64_t alignment_bytes() const override { return inner_.alignment_bytes(); }
  bool external_data() const override { return inner_.external_data(); }
  std::span<const std::string_view> spec_keys() const override { return inner_.spec_keys(); }
  Status probe(std::span<const format::CompileSpec> specs) const override { return inner_.probe(specs); }
  backends::Support supports(const ir::Graph& graph, const ir::Node& node) const override {
    if (std::ranges::any_of(exclusions_, [&](const Exclusion& e) { return applies(e, node); })) return backends::Support::no("excluded by the user");
    return inner_.supports(graph, node);
  }
  Result<backends::CompiledGroup> compile(ir::Method& group, const backends::GroupContext& context) const override { return inner_.compile(group, context); }

 private:
  const backends::Backend& inner_;
  std::vector<Exclusion> exclusions_;
};

Status check_exclusion(const CompileOptions& options, const Exclusion& exclusion) {
  const std::string_view what = exclusion.is_node ? "node" : "operator";
  if (exclusion.name.empty()) return Status(Code::kInvalidInput, str_cat("a ", what, " without a name is to be excluded"));
  if (options.backends.empty()) return Status(Code::kInvalidInput, str_cat(what, " '", exclusion.name, "' is to be excluded, and there is no backend to exclude it from"));
  const bool known = exclusion.backend.empty() || std::ranges::any_of(options.backends, [&](const auto* b) { return b->name() == exclusion.backend; });
  if (known) return ok_status();
  return Status(Code::kInvalidInput, str_cat(what, " '", exclusion.name, "' is to be excluded from backend '", exclusion.backend, "', which is not among the program's backends"));
}

Status check(const Exclusion& exclusion, const ir::Program& program) {
  const std::string_view what = exclusion.is_node ? "node" : "operator";
  for (const auto& method : program.methods) {
    for (const ir::NodeId id : method->graph.order) {
      if (applies(exclusion, method->graph[id])) return ok_status();
    }
  }
  return Status(Code::kInvalidInput, str_cat("no ", what, " '", exclusion.name, "' to exclude: no method has one when the backends are asked (compile --dump-after optimize shows them)"));
}

}  // namespace

Status check_exclusions(const CompileOptions& options) {
  for (const Exclusion& exclusion : options.exclusions) PTERON_TRY(check_exclusion(options, exclusion));
  return ok_status();
}

Result<std::vector<const backends::Backend*>> exclude(const CompileOptions& options, const ir::Program& program, std::vector<std::unique_ptr<backends::Backend>>& fronts) {
  for (const Exclusion& exclusion : options.exclusions) PTERON_TRY(check(exclusion, program));
  std::vector<const backends::Backend*> out = options.backends;
  for (const backends::Backend*& backend : out) {
    std::vector<Exclusion> own;
    for (const Exclusion& exclusion : options.exclusions) {
      if (exclusion.backend.empty() ? backend == options.backends[0] : exclusion.backend == backend->name()) own.push_back(exclusion);
    }
    if (own.empty()) continue;
    fronts.push_back(std::make_unique<Front>(*backend, std::move(own)));
    backend = fronts.back().get();
  }
  return out;
}

}  // namespace pteron::compiler
