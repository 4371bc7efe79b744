// The few functions of NVRTC (nvrtc.h of CUDA 12 and 13) by name, and where the library may be.
#include "backends/cuda/aot/nvrtc.h"

#include <dlfcn.h>
#include <glob.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <mutex>

#include "base/str_cat.h"

namespace pteron::cuda {

namespace {

/// nvrtcProgram and nvrtcResult: an opaque pointer, and 0 for success.
using Handle = void*;

struct Functions {
  int (*version)(int*, int*) = nullptr;
  int (*create)(Handle*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Handle*) = nullptr;
  int (*compile)(Handle, int, const char* const*) = nullptr;
  int (*log_size)(Handle, size_t*) = nullptr;
  int (*log)(Handle, char*) = nullptr;
  int (*cubin_size)(Handle, size_t*) = nullptr;
  int (*cubin)(Handle, char*) = nullptr;
  int (*ptx_size)(Handle, size_t*) = nullptr;
  int (*ptx)(Handle, char*) = nullptr;
  const char* (*error_text)(int) = nullptr;
  int (*architecture_count)(int*) = nullptr;
  int (*architectures)(int*) = nullptr;
};

template <typename Fn>
bool find(void* library, const char* name, Fn* out) {
  *out = reinterpret_cast<Fn>(dlsym(library, name));
  return *out != nullptr;
}

void add_matches(const std::string& pattern, std::vector<std::string>& out) {
  glob_t found;
  if (::glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
}

/// Files and names to try, in order.
std::vector<std::string> places() {
  std::vector<std::string> out;
  if (const char* path = std::getenv("PTERON_CUDA_PATH"); path != nullptr && *path != 0) {
    const std::string root = path;
    for (const char* folder : {"", "/lib64", "/lib", "/targets/x86_64-linux/lib"}) add_matches(str_cat(root, folder, "/libnvrtc.so.1[23]*"), out);
  }
  if (const char* path = std::getenv("VIRTUAL_ENV"); path != nullptr && *path != 0) {
    for (const char* folder : {"cu13", "cuda_nvrtc"}) add_matches(str_cat(path, "/lib/python3*/site-packages/nvidia/", folder, "/lib/libnvrtc.so.1[23]*"), out);
  }
  for (const char* name : {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"}) out.emplace_back(name);
  return out;
}

/// NVRTC opens its library of built-in functions by its name alone: it is found if it is loaded already.
void open_builtins(const std::string& nvrtc) {
  const size_t slash = nvrtc.rfind('/');
  std::vector<std::string> found;
  if (slash != std::string::npos) add_matches(str_cat(nvrtc.substr(0, slash), "/libnvrtc-builtins.so*"), found);
  for (const std::string& path : found) dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

class Library final : public Nvrtc {
 public:
  explicit Library(const Functions& functions) : f_(functions) {}
  const Functions f_;
};

const Functions& of(const Nvrtc& nvrtc) { return static_cast<const Library&>(nvrtc).f_; }

/// "name(12): error: ..." of a log: the line's number, 0 if there is none.
size_t line_of(std::string_view message) {
  const size_t open = message.find('(');
  size_t line = 0;
  if (open != std::string_view::npos) std::from_chars(message.data() + open + 1, message.data() + message.size(), line);
  return line;
}

}  // namespace

Result<std::vector<Target>> parse_targets(std::string_view list) {
  std::vector<Target> out;
  const auto bad = [&](std::string_view word) {
    return Status(Code::kInvalidInput,
                  str_cat("'", word, "' is no CUDA architecture: expected words like sm_90 (machine code), compute_80 (PTX) or source, separated by commas"));
  };
  while (true) {
    const size_t comma = list.find(',');
    const std::string_view word = list.substr(0, comma);
    Target target;
    target.text = word;
    std::string_view digits;
    if (word == "source") {
      target.kind = Target::Kind::kSource;
    } else if (word.starts_with("sm_")) {
      digits = word.substr(3);
    } else if (word.starts_with("compute_")) {
      target.kind = Target::Kind::kPtx;
      digits = word.substr(8);
    } else {
      return bad(word);
    }
    if (target.kind != Target::Kind::kSource) {
      const char* end = digits.data() + digits.size();
      const auto read = std::from_chars(digits.data(), end, target.sm);
      const bool is_variant = read.ptr + 1 == end && (*read.ptr == 'a' || *read.ptr == 'f');
      if (read.ec != std::errc() || (read.ptr != end && !is_variant) || target.sm < 50 || target.sm > 999) return bad(word);
    }
    if (std::ranges::any_of(out, [&](const Target& other) { return other.text == target.text; })) {
      return Status(Code::kInvalidInput, str_cat("the CUDA architecture '", word, "' is named twice"));
    }
    out.push_back(std::move(target));
    if (comma == std::string_view::npos) return out;
    list.remove_prefix(comma + 1);
  }
}

Result<std::string> architectures_of(std::string_view list) {
  PTERON_ASSIGN(const std::vector<Target> targets, parse_targets(list));
  const Target* newest = nullptr;
  for (const Target& target : targets) {
    if (target.kind != Target::Kind::kCubin) return std::string(list);
    if (newest == nullptr || target.sm > newest->sm) newest = &target;
  }
  return str_cat(list, ",compute_", newest->sm);
}

Result<std::shared_ptr<const Nvrtc>> Nvrtc::open() {
  static std::mutex mutex;
  static std::shared_ptr<const Nvrtc> opened;  // stays for the process: closing it frees nothing that is worth it
  const std::lock_guard lock(mutex);
  if (opened != nullptr) return opened;
  std::string reasons;
  for (const std::string& place : places()) {
    open_builtins(place);
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      str_append(reasons, reasons.empty() ? "" : "; ", dlerror());
      continue;
    }
    Functions f;
    const bool complete =
        find(library, "nvrtcVersion", &f.version) && find(library, "nvrtcCreateProgram", &f.create) && find(library, "nvrtcDestroyProgram", &f.destroy) &&
        find(library, "nvrtcCompileProgram", &f.compile) && find(library, "nvrtcGetProgramLogSize", &f.log_size) &&
        find(library, "nvrtcGetProgramLog", &f.log) && find(library, "nvrtcGetCUBINSize", &f.cubin_size) && find(library, "nvrtcGetCUBIN", &f.cubin) &&
        find(library, "nvrtcGetPTXSize", &f.ptx_size) && find(library, "nvrtcGetPTX", &f.ptx) && find(library, "nvrtcGetErrorString", &f.error_text) &&
        find(library, "nvrtcGetNumSupportedArchs", &f.architecture_count) && find(library, "nvrtcGetSupportedArchs", &f.architectures);
    if (complete) {
      opened = std::make_shared<const Library>(f);
      return opened;
    }
    str_append(reasons, reasons.empty() ? "" : "; ", place, " lacks functions of NVRTC");
    dlclose(library);
  }
  return Status(
      Code::kUnavailable,
      str_cat("compiling for CUDA needs NVRTC (libnvrtc.so of CUDA 12 or 13), which was not found: install the Python package nvidia-cuda-nvrtc and set "
              "VIRTUAL_ENV, or set PTERON_CUDA_PATH to a toolkit (",
              reasons, ")"));
}

Status Nvrtc::check(std::span<const Target> targets) const {
  const Functions& f = of(*this);
  int count = 0;
  if (f.architecture_count(&count) != 0 || count < 1) return ok_status();  // translate() says what it refuses
  std::vector<int> known(static_cast<size_t>(count));
  if (f.architectures(known.data()) != 0) return ok_status();
  for (const Target& target : targets) {
    if (target.kind == Target::Kind::kSource || std::ranges::find(known, static_cast<int>(target.sm)) != known.end()) continue;
    std::string list;
    for (const int sm : known) str_append(list, list.empty() ? "" : ", ", "sm_", sm);
    return Status(Code::kInvalidInput, str_cat("'", target.text, "' is no CUDA architecture that NVRTC ", version(), " knows; it knows ", list));
  }
  return ok_status();
}

std::string Nvrtc::path() const {
  Dl_info info{};
  return dladdr(reinterpret_cast<void*>(of(*this).version), &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

std::string Nvrtc::version() const {
  int major = 0, minor = 0;
  of(*this).version(&major, &minor);
  return str_cat(major, ".", minor);
}

Result<Buffer> Nvrtc::translate(const std::string& text, const Target& target, const std::function<std::string(size_t)>& node_at) const {
  const Functions& f = of(*this);
  Handle program = nullptr;
  if (const int code = f.create(&program, text.c_str(), "kernels.cu", 0, nullptr, nullptr); code != 0) {
    return Status(Code::kUnavailable, str_cat("NVRTC: ", f.error_text(code)));
  }
  const std::string architecture = str_cat("--gpu-architecture=", target.text);
  const char* options[] = {architecture.c_str(), "--std=c++17", "-DPTERON_MMA=1"};
  const int code = f.compile(program, static_cast<int>(std::size(options)), options);
  Result<Buffer> out = Buffer();
  if (code != 0) {
    size_t size = 0;
    f.log_size(program, &size);
    std::string log(size, 0);
    if (size > 0) f.log(program, log.data());
    if (log.find("invalid value for --gpu-architecture") != std::string::npos) {
      out = Status(Code::kUnsupported, str_cat("NVRTC ", version(), " does not know the architecture ", target.text));
    } else {
      const size_t error = log.find("error");
      const size_t begin = error == std::string::npos ? 0 : log.rfind('\n', error) == std::string::npos ? 0 : log.rfind('\n', error) + 1;
      const std::string message = log.substr(begin, log.find('\n', begin) - begin);
      const std::string node = node_at(line_of(message));
      out = Status(Code::kInternal,
                   str_cat("NVRTC refuses a generated kernel", node.empty() ? "" : " of node ", node, ": ", message.empty() ? f.error_text(code) : message));
    }
  } else {
    const bool is_ptx = target.kind == Target::Kind::kPtx;
    size_t size = 0;
    (is_ptx ? f.ptx_size : f.cubin_size)(program, &size);
    out = Buffer::create(size);
    if (out.ok() && (size == 0 || (is_ptx ? f.ptx : f.cubin)(program, reinterpret_cast<char*>(out.value().data())) != 0)) {
      out = Status(Code::kInternal, str_cat("NVRTC gives no code for ", target.text));
    }
  }
  f.destroy(&program);
  return out;
}

}  // namespace pteron::cuda
