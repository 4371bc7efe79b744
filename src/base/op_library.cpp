// dlopen and the checks of what a library says about itself.
#include "base/op_library.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstring>

#include "base/str_cat.h"

namespace pteron {

namespace {

constexpr size_t kMaxOps = 4096;

/// Items of "a, b, c" outside of brackets; "*" does not count.
size_t count_items(std::string_view list) {
  size_t count = 0;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= list.size(); ++i) {
    if (i < list.size() && (list[i] == '(' || list[i] == '[')) ++depth;
    if (i < list.size() && (list[i] == ')' || list[i] == ']')) --depth;
    if (i < list.size() && (list[i] != ',' || depth > 0)) continue;
    std::string_view item = list.substr(begin, i - begin);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    if (!item.empty() && item != "*") ++count;
    begin = i + 1;
  }
  return count;
}

/// Name and counts of a schema; the compiler parses it whole.
Status read_schema(std::string_view schema, UserOp* op) {
  const size_t open = schema.find('(');
  const size_t arrow = schema.rfind("->");
  const size_t close = arrow == std::string_view::npos ? arrow : schema.rfind(')', arrow);
  if (open == std::string_view::npos || close == std::string_view::npos || close < open) {
    return Status(Code::kInvalidFile, "expected NAMESPACE::NAME(ARGUMENTS) -> RESULTS");
  }
  op->name = std::string(schema.substr(0, open));
  const size_t space = op->name.find("::");
  if (space == std::string::npos || space == 0 || space + 2 >= op->name.size()) return Status(Code::kInvalidFile, "the name has no namespace");
  const std::string_view owner = std::string_view(op->name).substr(0, space);
  if (owner == "aten" || owner == "pteron" || owner == "prim" || owner == "executorch_prim" || owner == "higher_order") {
    return Status(Code::kInvalidFile, str_cat("the namespace '", owner, "' is taken"));
  }
  const size_t dot = op->name.find('.', space);
  op->kernel = dot == std::string::npos ? op->name + ".out" : op->name + "_out";
  op->arg_count = count_items(schema.substr(open + 1, close - open - 1));
  std::string_view results = schema.substr(arrow + 2);
  while (!results.empty() && results.front() == ' ') results.remove_prefix(1);
  if (results.find('[') != std::string_view::npos || schema.find('!') != std::string_view::npos) {
    return Status(Code::kInvalidFile, "results must be single tensors, and no argument may be written");
  }
  const bool many = results.starts_with("(");
  op->result_count = many ? count_items(results.substr(1, results.rfind(')') == std::string_view::npos ? results.size() : results.rfind(')') - 1)) : 1;
  if (op->result_count == 0) return Status(Code::kInvalidFile, "an operator has at least one result");
  return ok_status();
}

}  // namespace

OpLibrary::~OpLibrary() {
  if (handle_ != nullptr) dlclose(handle_);
}

Result<std::shared_ptr<const OpLibrary>> OpLibrary::open(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return Status(Code::kNotFound, str_cat("operator library ", path, ": no such file"));
  if (!S_ISREG(info.st_mode)) return Status(Code::kNotFound, str_cat("operator library ", path, ": not a regular file"));
  std::shared_ptr<OpLibrary> made(new OpLibrary());
  made->path_ = path;
  // A path without a slash is a file in this folder, not a name to search for.
  const std::string exact = path.find('/') == std::string::npos ? "./" + path : path;
  made->handle_ = dlopen(exact.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (made->handle_ == nullptr) return Status(Code::kInvalidFile, str_cat("operator library ", path, ": ", dlerror()));
  using Entry = const pteron_op_library* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(made->handle_, "pteron_ops"));
  if (entry == nullptr) return Status(Code::kInvalidFile, str_cat("operator library ", path, ": it exports no pteron_ops()"));
  const pteron_op_library* library = entry();
  if (library == nullptr) return Status(Code::kInvalidFile, str_cat("operator library ", path, ": pteron_ops() gave null"));
  Status status = made->read(*library);
  if (!status.ok()) return std::move(status).with_context(str_cat("operator library ", path));
  return std::shared_ptr<const OpLibrary>(std::move(made));
}

Status OpLibrary::read(const pteron_op_library& library) {
  if (library.abi != PTERON_OPS_ABI) {
    return Status(Code::kInvalidFile, str_cat("interface version ", library.abi, ", this build has ", PTERON_OPS_ABI, ": rebuild it with this pteron/ops.h"));
  }
  if (library.op_count > kMaxOps || (library.op_count > 0 && library.ops == nullptr)) {
    return Status(Code::kInvalidFile, str_cat(library.op_count, " operators", library.ops == nullptr ? ", but no table of them" : ", at most 4096 are allowed"));
  }
  for (size_t i = 0; i < library.op_count; ++i) {
    UserOp made;
    made.op = &library.ops[i];
    if (made.op->schema == nullptr) return Status(Code::kInvalidFile, str_cat("operator ", i, " has no schema"));
    Status status = read_schema(made.op->schema, &made);
    if (status.ok() && made.op->shape == nullptr) status = Status(Code::kInvalidFile, "it has no shape function");
    if (status.ok() && made.op->kernel == nullptr) status = Status(Code::kInvalidFile, "it has no kernel");
    for (const UserOp& other : ops_) {
      if (status.ok() && other.name == made.name) status = Status(Code::kInvalidFile, "it is there twice");
    }
    if (!status.ok()) return std::move(status).with_context(str_cat("operator ", i, " \"", made.op->schema, "\""));
    ops_.push_back(std::move(made));
  }
  return ok_status();
}

const UserOp* find_user_op(const std::vector<std::shared_ptr<const OpLibrary>>& libraries, std::string_view kernel) {
  for (const auto& library : libraries) {
    for (const UserOp& op : library->ops()) {
      if (op.kernel == kernel) return &op;
    }
  }
  return nullptr;
}

}  // namespace pteron
