// Names and order of kernels; where a line of the whole text belongs.
#include "backends/cuda/aot/kernel_sources.h"

#include <algorithm>

#include "base/ascii.h"
#include "backends/cuda/copy_kernel.h"
#include "base/check.h"
#include "base/str_cat.h"

namespace pteron::cuda {

namespace {

constexpr size_t kMaxStem = 60;

size_t lines_in(std::string_view text) { return static_cast<size_t>(std::ranges::count(text, '\n')); }

}  // namespace

std::string KernelSources::add(std::string_view stem, std::string body, std::string_view node) {
  // A kernel that does not wait would read what the one before it has not written yet.
  PTERON_CHECK(body.find("PTERON_BEGIN()") != std::string::npos || body.find("PTERON_WAIT_FOR_BEFORE()") != std::string::npos);
  if (const auto found = names_.find(body); found != names_.end()) return found->second;
  std::string name(stem.substr(0, kMaxStem));
  for (char& c : name) c = is_word_char(c) ? c : '_';
  str_append(name, "_", stems_[name]++);
  names_[body] = name;
  std::string text = body;
  for (size_t at = text.find("@NAME@"); at != std::string::npos; at = text.find("@NAME@", at + name.size())) text.replace(at, 6, name);
  kernels_.push_back({name, std::move(text), std::string(node)});
  return name;
}

void KernelSources::add_shared(std::string text) {
  if (std::ranges::find(shared_, text) == shared_.end()) shared_.push_back(std::move(text));
}

std::string KernelSources::text() const {
  std::string out(prelude());
  for (const std::string& shared : shared_) str_append(out, shared, "\n");
  for (const Kernel& kernel : kernels_) str_append(out, kernel.body, "\n");
  out += kCopyKernelText;
  return out;
}

std::string KernelSources::node_at(size_t line) const {
  size_t at = 1 + lines_in(prelude());
  for (const std::string& shared : shared_) at += lines_in(shared) + 1;
  for (const Kernel& kernel : kernels_) {
    const size_t end = at + lines_in(kernel.body) + 1;
    if (line >= at && line < end) return kernel.node;
    at = end;
  }
  return {};
}

}  // namespace pteron::cuda
