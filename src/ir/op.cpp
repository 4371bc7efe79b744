// The operator catalog.
#include "ir/op.h"

#include <algorithm>

#include "base/str_cat.h"

namespace pteron::ir {

Status Catalog::add(std::span<const OpDef> rows) {
  for (const OpDef& row : rows) {
    auto op = std::make_unique<Op>();
    op->def = row;
    PTERON_ASSIGN(op->schema, parse_schema(row.schema));
    op->name = op->schema.full_name();
    op->kernel = std::string(row.kernel);
    std::string name = op->name;
    if (!ops_.emplace(name, std::move(op)).second) return Status(Code::kInternal, str_cat("operator ", name, " is in the catalog twice"));
  }
  return ok_status();
}

const Op* Catalog::find(std::string_view name) const {
  const auto found = ops_.find(std::string(name));
  return found == ops_.end() ? nullptr : found->second.get();
}

const Op* Catalog::find_functional(std::string_view in_place_name) const {
  const size_t space = in_place_name.find("::");
  const size_t dot = in_place_name.find('.', space == std::string_view::npos ? 0 : space);
  const std::string_view base = in_place_name.substr(0, dot);
  if (!base.ends_with('_') || base.ends_with("__")) return nullptr;
  const std::string name(base.substr(0, base.size() - 1));
  const std::string overload(dot == std::string_view::npos ? std::string_view() : in_place_name.substr(dot));
  // A few pairs differ in the overload's name: pow_.Scalar and pow.Tensor_Scalar, ldexp_ and ldexp.Tensor, floor_divide_.Tensor and
  // floor_divide, transpose_ and transpose.int.
  for (const std::string& candidate : {name + overload, name + (overload == ".Scalar" ? ".Tensor_Scalar" : ".Tensor_Tensor"), name, name + ".Tensor", name + ".int"}) {
    if (const Op* op = find(candidate); op != nullptr) return op;
  }
  return nullptr;
}

std::vector<const Op*> Catalog::all() const {
  std::vector<const Op*> out;
  for (const auto& [name, op] : ops_) out.push_back(op.get());
  std::sort(out.begin(), out.end(), [](const Op* a, const Op* b) { return a->name < b->name; });
  return out;
}

}  // namespace pteron::ir
