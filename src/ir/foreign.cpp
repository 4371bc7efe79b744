// In-place and unknown operators.
#include "ir/foreign.h"

#include <memory>

#include "base/str_cat.h"

namespace pteron::ir {

OperatorTable::OperatorTable(const Catalog& catalog, Program& program) : catalog_(&catalog), program_(&program) {
  for (const auto& op : program.foreign_ops) foreign_.emplace(op->name, op.get());
}

namespace {

/// "aten::__iand__.Tensor" -> "aten::__and__.Tensor"; empty if the name is of another form.
std::string without_double_underscore_i(std::string_view name) {
  constexpr std::string_view kPrefix = "aten::__i";
  if (!name.starts_with(kPrefix) || name.find("__", kPrefix.size()) == std::string_view::npos) return {};
  return str_cat("aten::__", name.substr(kPrefix.size()));
}

/// The functional operator behind an out variant ("aten::mul.out"): the one that this kernel computes. Single tensor results only.
const Op* find_by_kernel(const Catalog& catalog, std::string_view name) {
  if (name.find("out") == std::string_view::npos) return nullptr;
  for (const Op* op : catalog.all()) {
    const auto& returns = op->schema.returns;
    if (op->kernel == name && returns.size() == 1 && returns[0].type.base == BaseType::kTensor && !returns[0].type.list) return op;
  }
  return nullptr;
}

/// The argument that an out variant has behind those of the functional operator.
SchemaArg out_argument() {
  SchemaArg arg;
  arg.name = "out";
  arg.type.base = BaseType::kTensor;
  arg.keyword_only = true;
  arg.alias = "a";
  arg.written = true;
  return arg;
}

}  // namespace

const Op* OperatorTable::find(const std::string& name) {
  if (const Op* op = catalog_->find(name)) return op;
  const auto found = foreign_.find(name);
  if (found != foreign_.end()) return found->second;
  const Op* functional = catalog_->find_functional(name);
  if (functional == nullptr) {
    if (const std::string plain = without_double_underscore_i(name); !plain.empty()) functional = catalog_->find(plain);
  }
  auto op = std::make_unique<Op>();
  op->name = name;
  const size_t dot = name.find('.', name.find("::") == std::string::npos ? 0 : name.find("::"));
  if (functional != nullptr && !functional->schema.args.empty()) {
    op->schema = functional->schema;
    op->schema.args[0].name = "self";  // whatever the functional one calls it (dropout: input)
    op->schema.args[0].written = true;
    op->schema.args[0].alias = "a";
    if (!op->schema.returns.empty()) {
      op->schema.returns[0].alias = "a";
      op->schema.returns[0].written = true;
    }
    op->functional = functional;
  } else if (const Op* behind = find_by_kernel(*catalog_, name); behind != nullptr) {
    op->schema = behind->schema;
    op->schema.args.push_back(out_argument());
    op->functional = behind;
  } else {
    op->known = false;
  }
  op->schema.name = name.substr(0, dot);
  op->schema.overload = dot == std::string::npos ? std::string() : name.substr(dot + 1);
  const Op* made = op.get();
  program_->foreign_ops.push_back(std::move(op));
  foreign_.emplace(name, made);
  return made;
}

}  // namespace pteron::ir
