// Shared pieces of the verbs.
#include "cli/session.h"

#include <sys/stat.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "backends/cpu/aot/backend.h"
#include "base/str_cat.h"
#include "compiler/user_ops.h"
#include "ops/catalog.h"
#include "ops/kernels.h"
#include "runtime/prim_ops.h"

namespace pteron::cli {

Result<Session> Session::create(const std::vector<std::string>& libraries) {
  Session session;
  PTERON_ASSIGN(ir::Catalog catalog, ops::make_catalog());
  for (const std::string& path : libraries) {
    PTERON_ASSIGN(std::shared_ptr<const OpLibrary> library, OpLibrary::open(path));
    PTERON_TRY(compiler::add_user_ops(*library, catalog));
    session.libraries_.push_back(std::move(library));
  }
  session.catalog_ = std::make_unique<ir::Catalog>(std::move(catalog));
  session.environment_.libraries = session.libraries_;
  session.environment_.catalog = session.catalog_.get();
  session.environment_.has_kernel = [own = session.libraries_](std::string_view kernel) {
    return find_user_op(own, kernel) != nullptr || ops::portable_kernels().find(kernel) != nullptr || runtime::prim_kernels().find(kernel) != nullptr;
  };
  session.pool_ = make_thread_pool(0);
  session.evaluator_ = std::make_unique<interp::Evaluator>(ops::portable_kernels(), *session.pool_);
  session.environment_.evaluator = session.evaluator_.get();
  PTERON_ASSIGN(std::unique_ptr<backends::Backend> cpu, cpu::make_backend(session.environment_.has_kernel));
  session.backends_.push_back(std::move(cpu));
  return session;
}

Result<std::vector<const backends::Backend*>> Session::backends(const std::vector<std::string>& names) const {
  std::vector<const backends::Backend*> out;
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1) return Status(Code::kInvalidInput, str_cat("backend '", name, "' is named twice"));
    if (name == "portable") continue;
    const auto found = std::find_if(backends_.begin(), backends_.end(), [&](const auto& backend) { return backend->name() == name; });
    if (found == backends_.end()) {
      std::string known = "'portable'";
      for (const auto& backend : backends_) str_append(known, ", '", backend->name(), "'");
      return Status(Code::kUnsupported, str_cat("backend '", name, "' does not exist; there are ", known));
    }
    out.push_back(found->get());
  }
  return out;
}

void StderrLog::log(LogLevel level, std::string_view message) {
  if (level > level_) return;
  constexpr const char* kNames[] = {"error", "warning", "info", "trace"};
  std::fprintf(stderr, "pteron: %s: %.*s\n", kNames[static_cast<int>(level)], static_cast<int>(message.size()), message.data());
}

Status LazyFile::open() {
  if (writer_ != nullptr) return ok_status();
  PTERON_ASSIGN(writer_, FileWriter::create(path_));
  return ok_status();
}

Status LazyFile::reserve(uint64_t total_bytes) {
  PTERON_TRY(open());
  return writer_->reserve(total_bytes);
}

Status LazyFile::write(std::span<const std::byte> bytes) {
  PTERON_TRY(open());
  size_ += bytes.size();
  return writer_->write(bytes);
}

Status LazyFile::commit(bool sync) {
  PTERON_TRY(open());
  return writer_->commit(sync);
}

int usage_error(std::string_view verb, std::string_view text) {
  std::fprintf(stderr, "pteron %s: %s\n", std::string(verb).c_str(), std::string(text).c_str());
  return 2;
}

std::vector<std::string> split_list(const std::vector<std::string>& values) {
  std::vector<std::string> out;
  for (const std::string& value : values) {
    size_t begin = 0;
    for (;;) {
      const size_t comma = value.find(',', begin);
      out.push_back(value.substr(begin, comma == std::string::npos ? comma : comma - begin));
      if (comma == std::string::npos) break;
      begin = comma + 1;
    }
  }
  return out;
}

Result<uint64_t> parse_number(std::string_view text, std::string_view option) {
  uint64_t number = 0;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end.ec != std::errc() || end.ptr != text.data() + text.size()) {
    return Status(Code::kInvalidInput, str_cat(option, " expects a number, found '", text, "'"));
  }
  return number;
}

Result<double> parse_real(std::string_view text, std::string_view option) {
  const std::string copy(text);
  char* end = nullptr;
  const double number = std::strtod(copy.c_str(), &end);
  if (copy.empty() || *end != '\0' || !(number >= 0)) return Status(Code::kInvalidInput, str_cat(option, " expects a number from 0 on, found '", text, "'"));
  return number;
}

bool same_file(const std::string& a, const std::string& b) {
  struct stat x, y;
  if (::stat(a.c_str(), &x) != 0 || ::stat(b.c_str(), &y) != 0) return a == b;
  return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

}  // namespace pteron::cli
