// Finds the driver's library and its functions.
#include "backends/cuda/runtime/driver.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

struct Symbol {
  const char* name;
  void** target;
};

Status find_functions(Driver& driver) {
  const Symbol symbols[] = {
#define PTERON_CUDA_DRIVER(member, symbol, parameters) {#symbol, reinterpret_cast<void**>(&driver.member)},
#include "backends/cuda/runtime/driver_functions.inc"
#undef PTERON_CUDA_DRIVER
  };
  for (const Symbol& symbol : symbols) {
    *symbol.target = dlsym(driver.library.get(), symbol.name);
    if (*symbol.target == nullptr) {
      return Status(Code::kUnavailable, str_cat("the CUDA driver (", driver.path, ") lacks ", symbol.name, ": the CUDA engine needs a driver of CUDA 12 or newer"));
    }
  }
  return ok_status();
}

}  // namespace

Result<std::shared_ptr<const Driver>> Driver::open() {
  auto driver = std::make_shared<Driver>();
  const char* chosen = std::getenv("PTERON_CUDA_DRIVER");
  driver->path = chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
  void* handle = dlopen(driver->path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* why = dlerror();
    return Status(Code::kUnavailable, str_cat("the CUDA driver was not found: ", why != nullptr ? why : driver->path.c_str(),
                                              "; programs for the CUDA engine need an NVIDIA device with its driver"));
  }
  driver->library = std::shared_ptr<void>(handle, [](void* library) { dlclose(library); });
  PTERON_TRY(find_functions(*driver));
  driver->launch_ex = reinterpret_cast<LaunchEx>(driver->optional_symbol("cuLaunchKernelEx"));
  PTERON_TRY(driver->check(driver->init(0), "starting the CUDA driver"));
  return std::shared_ptr<const Driver>(std::move(driver));
}

Status Driver::failure(int result, std::string_view what) const {
  const char* text = nullptr;
  if (error_text == nullptr || error_text(result, &text) != kSuccess || text == nullptr) text = "no text";
  const Code code = result == kErrorOutOfMemory ? Code::kOutOfMemory : Code::kUnavailable;
  return Status(code, str_cat(what, " failed: the CUDA driver reports error ", result, " (", text, ")"));
}

void* Driver::optional_symbol(const char* name) const { return library == nullptr ? nullptr : dlsym(library.get(), name); }

}  // namespace pteron::cuda
