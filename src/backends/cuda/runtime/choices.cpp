// The file: a line that says what it is, then a line for each choice: 32 hex digits of the key's hash, the value in hex, 32 digits of the hash of both.
#include "backends/cuda/runtime/choices.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/ascii.h"
#include "base/file_writer.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "format/content_hash.h"

namespace pteron::cuda {
namespace {

constexpr std::string_view kHead = "pteron cuda choices 1";
/// A file that is larger is none of ours. Units: bytes.
constexpr uint64_t kMostFileBytes = uint64_t{16} << 20;
constexpr size_t kHashDigits = 32;

std::string hash_of(std::string_view text) { return format::hash_hex(std::as_bytes(std::span(text))); }

std::string hex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    out.push_back(kDigits[static_cast<unsigned char>(c) >> 4]);
    out.push_back(kDigits[static_cast<unsigned char>(c) & 15]);
  }
  return out;
}

std::optional<std::string> from_hex(std::string_view digits) {
  if (digits.size() % 2 != 0 || digits.size() > 2 * Choices::kMostBytes) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = hex_value(digits[i]), low = hex_value(digits[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out.push_back(static_cast<char>(high << 4 | low));
  }
  return out;
}

std::string line_of(std::string_view key, std::string_view value) {
  const std::string body = str_cat(key, " ", hex(value));
  return str_cat(body, " ", hash_of(body), "\n");
}

}  // namespace

Choices::Choices(std::string folder, std::string_view machine) : folder_(std::move(folder)), machine_(machine) {
  if (!folder_.empty()) path_ = str_cat(folder_, "/cuda_choices.txt");
}

std::string Choices::default_folder() {
  const auto variable = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  const std::string own = variable("PTERON_CUDA_CACHE");
  if (own == "off") return {};
  if (!own.empty()) return own;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty()) return str_cat(cache, "/pteron");
  const std::string home = variable("HOME");
  return home.empty() ? std::string() : str_cat(home, "/.cache/pteron");
}

std::string Choices::key(std::string_view library, std::span<const int64_t> description) const {
  std::string text = str_cat(machine_, "\n", library, "\n");
  for (const int64_t number : description) str_append(text, number, ",");
  return hash_of(text);
}

std::optional<std::string> Choices::find(const std::string& key) {
  const std::lock_guard guard(mutex_);
  read_once();
  const auto found = known_.find(key);
  if (found == known_.end()) return std::nullopt;
  return found->second;
}

void Choices::put(const std::string& key, std::string_view value) {
  const std::lock_guard guard(mutex_);
  known_.insert_or_assign(key, std::string(value.substr(0, kMostBytes)));
  is_changed_ = true;
}

void Choices::forget(const std::string& key) {
  const std::lock_guard guard(mutex_);
  known_.erase(key);
}

void Choices::read_once() {
  if (was_read_) return;
  was_read_ = true;
  read();
}

/// Adds what the file has and this process does not.
void Choices::read() {
  std::error_code ignored;
  if (path_.empty() || !std::filesystem::exists(path_, ignored)) return;
  auto file = FileBytes::read(path_);
  if (!file.ok()) {
    note_ = str_cat("choices of algorithms are measured anew: ", file.status().message());
    return;
  }
  const std::span<const std::byte> bytes = (*file)->bytes();
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const auto next_line = [&] {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    return line;
  };
  if (text.size() > kMostFileBytes || next_line() != kHead) {
    note_ = str_cat(path_, " is no file of measured choices of this version: it is ignored, and replaced when there is something to write");
    return;
  }
  size_t damaged = 0;
  while (!text.empty()) {
    const std::string_view line = next_line();
    const size_t body = line.size() < kHashDigits + 1 ? 0 : line.size() - kHashDigits - 1;
    const bool is_whole = body > kHashDigits && line[kHashDigits] == ' ' && hash_of(line.substr(0, body)) == line.substr(body + 1);
    const std::optional<std::string> value = is_whole ? from_hex(line.substr(kHashDigits + 1, body - kHashDigits - 1)) : std::nullopt;
    if (value.has_value()) {
      known_.try_emplace(std::string(line.substr(0, kHashDigits)), *value);
    } else {
      ++damaged;
    }
  }
  if (damaged > 0) note_ = str_cat(path_, ": ", damaged, damaged == 1 ? " line is" : " lines are", " damaged and ignored");
}

void Choices::save() {
  const std::lock_guard guard(mutex_);
  if (!is_changed_ || path_.empty()) return;
  is_changed_ = false;
  read();  // of other processes
  std::string text = str_cat(kHead, "\n");
  for (const auto& [key, value] : known_) text += line_of(key, value);
  const auto write = [&]() -> Status {
    std::error_code error;
    std::filesystem::create_directories(folder_, error);
    if (error) return Status(Code::kIo, str_cat("cannot make ", folder_, ": ", error.message()));
    PTERON_ASSIGN(const auto writer, FileWriter::create(path_));
    PTERON_TRY(writer->write(std::as_bytes(std::span(text))));
    return writer->commit(false);
  };
  const Status written = write();
  if (!written.ok()) note_ = str_cat("choices of algorithms are not kept: ", written.message());
}

std::string Choices::take_note() {
  const std::lock_guard guard(mutex_);
  return std::exchange(note_, {});
}

}  // namespace pteron::cuda
