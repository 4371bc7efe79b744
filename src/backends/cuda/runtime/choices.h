// Which algorithm of a library was the fastest for a shape, kept in a file: a second process need not measure. Used by blas.cpp and dnn.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace pteron::cuda {

/// The choices of one device. The file may be deleted at any time; what is damaged in it, or was written by something else, is ignored.
/// Threads: all members from several threads at once.
class Choices {
 public:
  /// folder: where the file lies, made when something is written; empty: nothing is kept. machine: device and driver, a part of every key.
  Choices(std::string folder, std::string_view machine);
  /// PTERON_CUDA_CACHE ("off" or a folder), else the folder pteron in XDG_CACHE_HOME or ~/.cache; empty if there is none of them.
  static std::string default_folder();

  /// A key of find() and put(): the same only for the same machine, library ("cuBLASLt 130100") and description.
  std::string key(std::string_view library, std::span<const int64_t> description) const;
  /// What was put there, in this process or before. It comes from a file: check it before use.
  std::optional<std::string> find(const std::string& key);
  /// value: at most kMostBytes.
  void put(const std::string& key, std::string_view value);
  /// Drops a value that turned out to be useless.
  void forget(const std::string& key);
  /// Writes what is new, complete or not at all, with what others wrote meanwhile.
  void save();
  /// What there is to say about the file since the last call, for a log; empty: nothing.
  std::string take_note();

  static constexpr size_t kMostBytes = 256;

 private:
  void read_once();
  void read();

  std::string folder_, path_, machine_;
  std::mutex mutex_;
  std::map<std::string, std::string, std::less<>> known_;
  bool was_read_ = false, is_changed_ = false;
  std::string note_;
};

}  // namespace pteron::cuda
