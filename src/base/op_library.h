// Shared libraries with users' own operators (pteron/ops.h): opened and checked here, used by the compiler (schemas, shapes) and by the
// runtime (kernels).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pteron/ops.h"
#include "pteron/status.h"

namespace pteron {

/// An operator of a library.
/// Owns:    borrows from its OpLibrary.
struct UserOp {
  const pteron_op* op = nullptr;
  std::string name;          ///< "mine::scaled_add"
  std::string kernel;        ///< "mine::scaled_add.out"
  size_t arg_count = 0;
  size_t result_count = 0;
};

/// An open library. Closed when the object goes.
class OpLibrary {
 public:
  /// Errors: kNotFound (no such file), kInvalidFile (not a library, no pteron_ops(), another interface version, a malformed operator); the
  ///         message names file, operator and what is wrong.
  static Result<std::shared_ptr<const OpLibrary>> open(const std::string& path);
  ~OpLibrary();
  OpLibrary(const OpLibrary&) = delete;
  OpLibrary& operator=(const OpLibrary&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<UserOp>& ops() const { return ops_; }

 private:
  OpLibrary() = default;
  Status read(const pteron_op_library& library);
  void* handle_ = nullptr;
  std::string path_;
  std::vector<UserOp> ops_;
};

/// Operator by the name of its kernel; null if no library has it.
const UserOp* find_user_op(const std::vector<std::shared_ptr<const OpLibrary>>& libraries, std::string_view kernel);

}  // namespace pteron
