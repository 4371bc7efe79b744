// Where the libraries of CUDA lie: in a toolkit, in the Python packages of the environment that runs, or where the loader looks.
#include "backends/cuda/runtime/library_call.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "base/str_cat.h"

namespace pteron::cuda {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// Folders that may have it, the likeliest first; an empty one stands for the loader's own.
std::vector<std::string> places_of(std::string_view package_folder) {
  std::vector<std::string> places;
  if (const std::string path = environment("PTERON_CUDA_PATH"); !path.empty()) {
    for (const char* inside : {"", "/lib", "/lib64"}) places.push_back(str_cat(path, inside));
  }
  if (const std::string venv = environment("VIRTUAL_ENV"); !venv.empty()) {
    std::error_code ignored;
    for (const std::filesystem::directory_entry& python : std::filesystem::directory_iterator(str_cat(venv, "/lib"), ignored)) {
      places.push_back(str_cat(python.path().string(), "/site-packages/", package_folder));
    }
  }
  places.emplace_back();
  return places;
}

}  // namespace

Result<void*> open_cuda_library(const LibraryName& library) {
  std::string tried;
  for (const std::string& place : places_of(library.package_folder)) {
    const std::string path = place.empty() ? std::string(library.file) : str_cat(place, "/", library.file);
    std::error_code ignored;
    if (!place.empty() && !std::filesystem::exists(path, ignored)) continue;
    if (void* opened = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return opened;
    const char* why = dlerror();
    str_append(tried, tried.empty() ? "" : "; ", why == nullptr ? path.c_str() : why);
  }
  return Status(Code::kUnavailable, str_cat(library.file, " is missing (", tried, "); install the package that has ", library.package_folder,
                                            ", or set PTERON_CUDA_PATH to its folder"));
}

std::string file_of(const void* function) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

Result<void*> library_symbol(void* library, const char* name) {
  if (void* symbol = dlsym(library, name)) return symbol;
  return Status(Code::kUnavailable, str_cat("a library of CUDA has no function ", name, ": its version is another one"));
}

}  // namespace pteron::cuda
