// Catalog, kernels, evaluator, backends; output files.
#include "facade/toolchain.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "backends/cpu/aot/backend.h"
#include "backends/cuda/aot/backend.h"
#include "backends/null/aot/backend.h"
#include "backends/tensorrt/aot/backend.h"
#include "base/str_cat.h"
#include "compiler/user_ops.h"
#include "ops/catalog.h"
#include "ops/kernels.h"
#include "runtime/prim_ops.h"

namespace pteron::facade {

Result<Toolchain> Toolchain::create(const std::vector<std::string>& libraries, int threads) {
  Toolchain made;
  PTERON_ASSIGN(ir::Catalog catalog, ops::make_catalog());
  for (const std::string& path : libraries) {
    PTERON_ASSIGN(std::shared_ptr<const OpLibrary> library, OpLibrary::open(path));
    PTERON_TRY(compiler::add_user_ops(*library, catalog));
    made.libraries_.push_back(std::move(library));
  }
  made.catalog_ = std::make_unique<ir::Catalog>(std::move(catalog));
  made.environment_.libraries = made.libraries_;
  made.environment_.catalog = made.catalog_.get();
  made.environment_.has_kernel = [own = made.libraries_](std::string_view kernel) {
    return find_user_op(own, kernel) != nullptr || ops::portable_kernels().find(kernel) != nullptr || runtime::prim_kernels().find(kernel) != nullptr;
  };
  made.pool_ = make_thread_pool(threads);
  made.evaluator_ = std::make_unique<interp::Evaluator>(ops::portable_kernels(), *made.pool_);
  made.environment_.evaluator = made.evaluator_.get();
  // Payloads do not see users' libraries: their operators stay outside.
  const auto has_kernel = [](std::string_view kernel) { return ops::portable_kernels().find(kernel) != nullptr || runtime::prim_kernels().find(kernel) != nullptr; };
  PTERON_ASSIGN(std::unique_ptr<backends::Backend> cpu, cpu::make_backend(has_kernel));
  made.backends_.push_back(std::move(cpu));
  PTERON_ASSIGN(std::unique_ptr<backends::Backend> cuda, cuda::make_backend());
  made.backends_.push_back(std::move(cuda));
  made.backends_.push_back(null::make_backend(null::Take::kNothing, has_kernel));
  made.backends_.push_back(null::make_backend(null::Take::kEverything, has_kernel));
  made.backends_.push_back(tensorrt::make_backend());
  made.environment_.prebuilt = made.backends_.back().get();
  return made;
}

std::vector<std::string> default_backends(compiler::Profile profile) {
  if (profile == compiler::Profile::kExecutorch) return {};
  return {"cpu"};
}

Result<std::vector<const backends::Backend*>> Toolchain::backends(const std::vector<std::string>& names) const {
  std::vector<const backends::Backend*> out;
  for (const std::string& name : names) {
    if (std::count(names.begin(), names.end(), name) > 1) return Status(Code::kInvalidInput, str_cat("backend '", name, "' is named twice: the first takes every node that it can, nothing is left for the second"));
    if (name == "portable") {  // takes all that is left
      if (&name != &names.back()) return Status(Code::kInvalidInput, str_cat("'portable' leaves nothing for backend '", names.back(), "': expected it last"));
      continue;
    }
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

void split_devices(std::vector<std::string>& backends, std::vector<compiler::BackendSpec>& specs) {
  for (std::string& name : backends) {
    const size_t colon = name.rfind(':');
    const bool has_number = colon != std::string::npos && colon > 0 && colon + 1 < name.size() && name.find_first_not_of("0123456789", colon + 1) == std::string::npos;
    if (!has_number) continue;
    const std::string device = str_cat("cuda", name.substr(colon));
    name.resize(colon);
    const auto bytes = std::as_bytes(std::span(device));
    specs.push_back({name, {}, std::string(backends::kDeviceSpec), {bytes.begin(), bytes.end()}});
  }
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

bool same_file(const std::string& a, const std::string& b) {
  struct stat x, y;
  if (::stat(a.c_str(), &x) != 0 || ::stat(b.c_str(), &y) != 0) return a == b;
  return x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

Status check_alignment(uint64_t bytes) {
  if (bytes >= 16 && bytes <= 4096 && (bytes & (bytes - 1)) == 0) return ok_status();
  return Status(Code::kInvalidInput, str_cat("alignment ", bytes, " is no power of two from 16 to 4096"));
}

}  // namespace pteron::facade
