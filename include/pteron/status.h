// Status and Result: how every fallible function of Pteron reports failure. Included by all public headers and all rooms.
// Does not log and does not throw; the caller decides what to do with an error.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <utility>

namespace pteron {

/// What a caller can do about an error; the comment gives the exit code of the command line tool.
enum class Code : uint8_t {
  kOk = 0,
  kInvalidFile,   ///< 3: malformed, truncated or of an unknown version: get another file
  kNotFound,      ///< 3: file, method or key does not exist: name another one
  kIncompatible,  ///< 3: data file or blob that belongs to another program
  kUnsupported,   ///< 4: valid, but not supported here: change the model or the options
  kInvalidInput,  ///< 5: count, name, shape or dtype of a call's inputs: fix the call
  kIo,            ///< 6: writing failed, disk full
  kUnavailable,   ///< 6: device or library is missing
  kCancelled,     ///< 6: the caller asked to stop
  kInternal,      ///< 6: a fault of Pteron's own, or a check of the program that failed at run time
  kOutOfMemory,   ///< 7: memory could not be had
};

/// Name of a code ("invalid file"), for logs and JSON.
std::string_view code_name(Code code);

/// Exit code of the command line tool for a code (0 for kOk).
int exit_code(Code code);

/// Success, or a code with a message that names what was expected, what was found and where.
/// Owns:    its payload; 8 bytes, null when OK. Copies share nothing (deep copy).
/// Threads: a value type; distinct objects may be used from distinct threads.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::source_location where = std::source_location::current());
  Status(const Status& other);
  Status& operator=(const Status& other);
  Status(Status&& other) noexcept : payload_(std::exchange(other.payload_, nullptr)) {}
  Status& operator=(Status&& other) noexcept;
  ~Status() { release(); }

  /// The out-of-memory error; needs no memory itself.
  static Status out_of_memory();
  /// kInvalidFile with this text.
  static Status invalid_file(std::string message);

  bool ok() const { return payload_ == nullptr; }
  Code code() const;
  /// Message with the contexts added on the way up, outermost first: "loading m.pte: method forward: ...". Empty when OK.
  std::string_view message() const;
  /// Source position that made the error ("file.cpp:12"); for bug reports. Empty when OK.
  std::string where() const;
  /// Puts "context: " before the message of an error; does nothing to an OK status.
  Status with_context(std::string_view context) &&;

 private:
  struct Payload;
  void release();
  Payload* payload_ = nullptr;
};

inline Status ok_status() { return Status(); }

/// A value or the error that kept it from being made.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}              // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}      // NOLINT: implicit by design
  bool ok() const { return value_.has_value(); }
  const Status& status() const& { return status_; }
  Status&& status() && { return std::move(status_); }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace pteron

#define PTERON_CONCAT_INNER(a, b) a##b
#define PTERON_CONCAT(a, b) PTERON_CONCAT_INNER(a, b)

/// Returns from the enclosing function if `expr` (a Status) is an error.
#define PTERON_TRY(expr)                                    \
  do {                                                      \
    ::pteron::Status pteron_status_ = (expr);               \
    if (!pteron_status_.ok()) return pteron_status_;        \
  } while (false)

/// `PTERON_ASSIGN(auto x, f());` declares x from a Result or returns its error.
#define PTERON_ASSIGN(declaration, expr) PTERON_ASSIGN_INNER(PTERON_CONCAT(pteron_result_, __LINE__), declaration, expr)
#define PTERON_ASSIGN_INNER(result, declaration, expr)      \
  auto result = (expr);                                     \
  if (!result.ok()) return std::move(result).status();      \
  declaration = std::move(result).value()
