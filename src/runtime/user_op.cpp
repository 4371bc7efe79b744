// The bridge between values of a method and the C structs of pteron/ops.h.
#include "runtime/user_op.h"

#include <array>
#include <cstring>
#include <deque>
#include <vector>

#include "base/str_cat.h"
#include "tensor/dtype.h"

namespace pteron::runtime {

static_assert(PTERON_MAX_RANK == kMaxRank);

namespace {

pteron_tensor tensor_of(const Tensor& tensor) {
  pteron_tensor made;
  std::memset(&made, 0, sizeof made);
  made.dtype = static_cast<int32_t>(tensor.dtype());
  made.rank = tensor.rank();
  for (int d = 0; d < tensor.rank(); ++d) {
    made.sizes[d] = tensor.size(d);
    made.strides[d] = tensor.stride(d);
  }
  made.data = tensor.view.data;
  return made;
}

pteron_tensor no_tensor() {
  pteron_tensor made;
  std::memset(&made, 0, sizeof made);
  made.rank = -1;
  return made;
}

/// Arguments of one call. Lists live as long as the object: a call of a user's operator may allocate.
class Arguments {
 public:
  explicit Arguments(size_t count) { values_.reserve(count); }

  void add(const Value& from) {
    pteron_value made;
    std::memset(&made, 0, sizeof made);
    switch (from.tag) {
      case Tag::kTensor:
        made.kind = PTERON_TENSOR;
        made.count = 1;
        tensors_.push_back({tensor_of(from.tensor)});
        made.tensors = tensors_.back().data();
        break;
      case Tag::kInt:
      case Tag::kBool:
        made.kind = from.tag == Tag::kInt ? PTERON_INT : PTERON_BOOLEAN;
        made.integer = from.integer;
        break;
      case Tag::kDouble:
        made.kind = PTERON_DOUBLE;
        made.number = from.floating;
        break;
      case Tag::kString:
        made.kind = PTERON_STRING;
        made.string = from.string.data();
        made.count = from.string.size();
        break;
      case Tag::kIntList:
        integers_.emplace_back();
        for (const Value* item : from.items) integers_.back().push_back(item->integer);
        made.kind = PTERON_INT_LIST;
        made.integers = integers_.back().data();
        made.count = integers_.back().size();
        break;
      case Tag::kDoubleList:
        made.kind = PTERON_DOUBLE_LIST;
        made.numbers = from.doubles.data();
        made.count = from.doubles.size();
        break;
      case Tag::kBoolList:
        integers_.emplace_back();
        for (const bool item : from.bools) integers_.back().push_back(item ? 1 : 0);
        made.kind = PTERON_INT_LIST;
        made.integers = integers_.back().data();
        made.count = integers_.back().size();
        break;
      case Tag::kTensorList:
        tensors_.emplace_back();
        for (const Value* item : from.items) tensors_.back().push_back(item->tag == Tag::kTensor ? tensor_of(item->tensor) : no_tensor());
        made.kind = PTERON_TENSOR_LIST;
        made.tensors = tensors_.back().data();
        made.count = tensors_.back().size();
        break;
      case Tag::kNone: break;
    }
    values_.push_back(made);
  }

  const pteron_value* data() const { return values_.data(); }

 private:
  std::vector<pteron_value> values_;
  std::deque<std::vector<pteron_tensor>> tensors_;
  std::deque<std::vector<int64_t>> integers_;
};

Status said(const UserOp& op, Code code, std::string_view what, const std::array<char, 512>& text) {
  const std::string_view message(text.data(), strnlen(text.data(), text.size()));
  return Status(code, str_cat(op.name, ": ", what, message.empty() ? std::string(" failed without a message") : str_cat(": ", message)));
}

}  // namespace

Status check_user_call(const UserOp& op, std::span<Value* const> args) {
  if (args.size() < op.arg_count + op.result_count) {
    return Status(Code::kInvalidFile, str_cat("a call of ", op.name, " lists ", args.size(), " values, expected at least ", op.arg_count + op.result_count));
  }
  for (size_t k = 0; k < op.result_count; ++k) {
    const Value& out = *args[op.arg_count + k];
    if (out.tag != Tag::kTensor || out.tensor.read_only) return Status(Code::kInvalidFile, str_cat("result ", k, " of ", op.name, " is not a tensor to write"));
  }
  return ok_status();
}

Status run_user_op(const UserOp& op, std::span<Value* const> args) {
  Arguments passed(op.arg_count);
  for (const Value* arg : args.first(op.arg_count)) {
    if (arg->tag == Tag::kTensor && !arg->tensor.has_data()) return Status(Code::kInvalidFile, str_cat("an argument of ", op.name, " has no memory"));
    passed.add(*arg);
  }
  std::vector<pteron_tensor> results(op.result_count);
  std::memset(results.data(), 0, results.size() * sizeof(pteron_tensor));
  std::array<char, 512> text{};
  if (op.op->shape(passed.data(), op.arg_count, results.data(), results.size(), {text.data(), text.size()}) != 0) {
    return said(op, Code::kInvalidInput, "shape()", text);
  }
  for (size_t k = 0; k < results.size(); ++k) {
    Tensor& out = args[op.arg_count + k]->tensor;
    if (results[k].dtype != static_cast<int32_t>(out.dtype()) || results[k].rank != out.rank()) {
      return Status(Code::kInvalidInput, str_cat(op.name, ": shape() gives result ", k, " dtype ", results[k].dtype, " and rank ", results[k].rank, ", the program has ",
                                                 dtype_name(out.dtype()), " and rank ", out.rank()));
    }
    Status status = resize(out, {results[k].sizes, static_cast<size_t>(results[k].rank)});
    if (!status.ok()) return std::move(status).with_context(op.name);
    if (!out.has_data()) return Status(Code::kInvalidFile, str_cat("result ", k, " of ", op.name, " has no memory"));
    results[k] = tensor_of(out);
  }
  if (op.op->kernel(passed.data(), op.arg_count, results.data(), results.size(), {text.data(), text.size()}) != 0) {
    return said(op, Code::kInternal, "its kernel", text);
  }
  return ok_status();
}

}  // namespace pteron::runtime
