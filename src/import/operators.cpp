// Operator names and operators that only the importer makes.
#include "import/operators.h"

#include <memory>

#include "base/str_cat.h"

namespace pteron::importer {

std::string operator_name(std::string_view target) {
  constexpr std::string_view kOps = "torch.ops.";
  if (!target.starts_with(kOps)) return std::string(target);
  const std::string_view rest = target.substr(kOps.size());
  const size_t space_end = rest.find('.');
  if (space_end == std::string_view::npos) return std::string(target);
  const std::string_view space = rest.substr(0, space_end);
  std::string_view name = rest.substr(space_end + 1);
  if (space != "higher_order" && name.ends_with(".default")) name.remove_suffix(sizeof ".default" - 1);
  return str_cat(space, "::", name);
}

bool is_symbolic_function(std::string_view name) {
  for (const std::string_view prefix : {"_operator.", "torch.sym_", "torch._sym_", "math.", "aten::sym_size", "aten::sym_stride", "aten::sym_numel",
                                        "aten::sym_storage_offset", "aten::size.", "aten::stride.", "aten::sym_is_contiguous"}) {
    if (name.starts_with(prefix)) return true;
  }
  return name == "aten::numel" || name == "aten::size" || name == "aten::stride" || name == "aten::dim" || name == "aten::promote_types";
}

bool is_check(std::string_view name) {
  for (const std::string_view prefix : {"aten::_assert_", "aten::sym_constrain_range", "aten::_functional_assert_", "aten::_functional_sym_constrain_range"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

OperatorTable::OperatorTable(const ir::Catalog& catalog, ir::Program& program) : catalog_(&catalog), program_(&program) {
  for (const auto& op : program.foreign_ops) foreign_.emplace(op->name, op.get());
}

namespace {

/// "aten::__iand__.Tensor" -> "aten::__and__.Tensor"; empty if the name is of another form.
std::string without_double_underscore_i(std::string_view name) {
  constexpr std::string_view kPrefix = "aten::__i";
  if (!name.starts_with(kPrefix) || name.find("__", kPrefix.size()) == std::string_view::npos) return {};
  return str_cat("aten::__", name.substr(kPrefix.size()));
}

}  // namespace

const ir::Op* OperatorTable::find(const std::string& name) {
  if (const ir::Op* op = catalog_->find(name)) return op;
  const auto found = foreign_.find(name);
  if (found != foreign_.end()) return found->second;
  const ir::Op* functional = catalog_->find_functional(name);
  if (functional == nullptr) {
    if (const std::string plain = without_double_underscore_i(name); !plain.empty()) functional = catalog_->find(plain);
  }
  auto op = std::make_unique<ir::Op>();
  op->name = name;
  const size_t dot = name.find('.', name.find("::") == std::string::npos ? 0 : name.find("::"));
  if (functional != nullptr && !functional->schema.args.empty()) {
    op->schema = functional->schema;
    op->schema.args[0].written = true;
    op->schema.args[0].alias = "a";
    if (!op->schema.returns.empty()) {
      op->schema.returns[0].alias = "a";
      op->schema.returns[0].written = true;
    }
    op->functional = functional;
  } else {
    op->known = false;
  }
  op->schema.name = name.substr(0, dot);
  op->schema.overload = dot == std::string::npos ? std::string() : name.substr(dot + 1);
  const ir::Op* made = op.get();
  program_->foreign_ops.push_back(std::move(op));
  foreign_.emplace(name, made);
  return made;
}

}  // namespace pteron::importer
