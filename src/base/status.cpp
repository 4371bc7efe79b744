// Payload and texts of Status. One table holds name and exit code of every code.
#include "pteron/status.h"

#include <iterator>
#include <new>

namespace pteron {

struct Status::Payload {
  Code code;
  std::string message;
  const char* file;
  uint32_t line;
};

namespace {

struct CodeRow {
  std::string_view name;
  int exit;
};

constexpr CodeRow kCodes[] = {
    {"ok", 0},          {"invalid file", 3},  {"not found", 3}, {"incompatible", 3}, {"unsupported", 4},   {"invalid input", 5},
    {"i/o error", 6},   {"unavailable", 6},   {"cancelled", 6}, {"internal error", 6}, {"out of memory", 7},
};
static_assert(std::size(kCodes) == static_cast<size_t>(Code::kOutOfMemory) + 1);

// A Status of this address carries no heap payload, so that running out of memory can be reported without any.
alignas(8) char out_of_memory_tag;

}  // namespace

std::string_view code_name(Code code) { return kCodes[static_cast<size_t>(code)].name; }
int exit_code(Code code) { return kCodes[static_cast<size_t>(code)].exit; }

namespace {
template <typename P>
P* static_payload() {
  return reinterpret_cast<P*>(&out_of_memory_tag);
}
}  // namespace

Status::Status(Code code, std::string message, std::source_location where) {
  if (code == Code::kOk) return;
  payload_ = new (std::nothrow) Payload{code, std::move(message), where.file_name(), where.line()};
  if (payload_ == nullptr) payload_ = static_payload<Payload>();
}

Status::Status(const Status& other) {
  if (other.payload_ == nullptr) return;
  if (other.payload_ == static_payload<Payload>()) {
    payload_ = other.payload_;
    return;
  }
  payload_ = new (std::nothrow) Payload(*other.payload_);
  if (payload_ == nullptr) payload_ = static_payload<Payload>();
}

Status& Status::operator=(const Status& other) {
  if (this != &other) *this = Status(other);
  return *this;
}

Status& Status::operator=(Status&& other) noexcept {
  if (this == &other) return *this;
  release();
  payload_ = std::exchange(other.payload_, nullptr);
  return *this;
}

void Status::release() {
  if (payload_ != nullptr && payload_ != static_payload<Payload>()) delete payload_;
  payload_ = nullptr;
}

Status Status::invalid_file(std::string message) { return Status(Code::kInvalidFile, std::move(message)); }

Status Status::out_of_memory() {
  Status status;
  status.payload_ = static_payload<Payload>();
  return status;
}

Code Status::code() const {
  if (payload_ == nullptr) return Code::kOk;
  return payload_ == static_payload<Payload>() ? Code::kOutOfMemory : payload_->code;
}

std::string_view Status::message() const {
  if (payload_ == nullptr) return {};
  if (payload_ == static_payload<Payload>()) return "out of memory";
  return payload_->message;
}

std::string Status::where() const {
  if (payload_ == nullptr || payload_ == static_payload<Payload>()) return {};
  std::string_view file = payload_->file;
  if (const size_t slash = file.find_last_of('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return std::string(file) + ":" + std::to_string(payload_->line);
}

Status Status::with_context(std::string_view context) && {
  if (payload_ != nullptr && payload_ != static_payload<Payload>()) {
    payload_->message = std::string(context) + ": " + payload_->message;
  }
  return std::move(*this);
}

}  // namespace pteron
