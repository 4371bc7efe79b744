// What the facade's tests share: sample archives, the bytes of files, folders of their own.
#pragma once

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

namespace pteron {

inline std::string sample(const char* name) { return std::string(PTERON_SAMPLES "/") + name + "/model.pt2"; }

inline std::vector<std::byte> content(const std::string& path) {
  std::vector<std::byte> bytes;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return bytes;
  std::byte part[4096];
  for (size_t n = 0; (n = std::fread(part, 1, sizeof part, file)) > 0;) bytes.insert(bytes.end(), part, part + n);
  std::fclose(file);
  return bytes;
}

inline bool same_bytes(std::span<const std::byte> a, std::span<const std::byte> b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

/// A folder of its own, removed with what is in it.
struct Scratch {
  std::string path;
  Scratch() {
    char name[] = "/tmp/pteron_facade_XXXXXX";
    path = ::mkdtemp(name);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> out;
    DIR* folder = ::opendir(path.c_str());
    while (const dirent* entry = ::readdir(folder)) {
      if (entry->d_name[0] != '.') out.emplace_back(entry->d_name);
    }
    ::closedir(folder);
    return out;
  }
  ~Scratch() {
    for (const std::string& name : names()) std::remove((path + "/" + name).c_str());
    ::rmdir(path.c_str());
  }
};

}  // namespace pteron
