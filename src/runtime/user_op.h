// Calls of users' own operators (pteron/ops.h): values become C structs, results get the sizes that the library's shape function gives.
// Called by the execution loop.
#pragma once

#include <span>

#include "base/op_library.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// Checks at load that a call lists the operator's arguments and results, and that their kinds can be passed on.
/// Errors: kInvalidFile.
Status check_user_call(const UserOp& op, std::span<Value* const> args);

/// Runs one call. args: the schema's arguments, then the results (and whatever the file repeats behind them).
/// Errors: kInvalidInput (shape() refuses, or gives sizes that the result cannot take), kInternal (the kernel failed); with the library's message.
Status run_user_op(const UserOp& op, std::span<Value* const> args);

}  // namespace pteron::runtime
