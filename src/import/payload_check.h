// Checksums of an archive's weights, compared while the program is read or, better, while it is written. Used by import.cpp.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/background.h"
#include "base/zip.h"
#include "pteron/status.h"

namespace pteron::importer {

/// Entries are checked in finish() by the caller, and before that by a thread beside it if start() says so.
/// Owns:    nothing of the archive, which must live longer.
class PayloadCheck {
 public:
  explicit PayloadCheck(const ZipFile& zip) : zip_(zip) {}
  ~PayloadCheck() { next_ = entries_.size(); }
  PayloadCheck(const PayloadCheck&) = delete;
  PayloadCheck& operator=(const PayloadCheck&) = delete;
  /// Before start(). Each entry is checked once; deflated ones are not, since reading them does it.
  void add(const ZipEntry& entry, std::string name);
  /// beside: whether a thread begins now; otherwise finish() does everything, and may run beside other work itself.
  void start(bool beside);
  /// The first damaged one by place in the archive; the same when it is called again, from any thread.
  /// Errors: kInvalidFile, with the weight's name.
  Status finish();

 private:
  void work();

  const ZipFile& zip_;
  std::vector<std::pair<const ZipEntry*, std::string>> entries_;  ///< after start() by place, each once
  std::vector<Status> found_;  ///< as many as entries; each written by one thread
  std::atomic<size_t> next_{0};
  std::mutex finishing_;
  std::optional<Status> result_;
  std::unique_ptr<Background> beside_;  ///< last: ends before what it uses
};

}  // namespace pteron::importer
