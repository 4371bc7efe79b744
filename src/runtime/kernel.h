// The kernel interface: one for our files, official files and users' own ops. PTERON_KERNEL makes a KernelFn from a typed function,
// so that kernels never see values' tags or the file format.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "pteron/status.h"
#include "runtime/value.h"

namespace pteron::runtime {

/// What a kernel made of its constant arguments at load (packed weights). Immutable once made, shared by methods.
class KernelState {
 public:
  virtual ~KernelState() = default;
  /// Memory of its own, for reports.
  virtual uint64_t memory_bytes() const { return 0; }
};

/// Kernel states by what they were made from, so that methods and sessions share them. A state lives as long as somebody uses it.
/// Threads: find_or_make may be called from several threads at once; states are made one at a time.
class StateCache {
 public:
  using Make = std::function<Result<std::shared_ptr<const KernelState>>()>;
  /// The living state under `key`, or what `make` gives. Errors: make's.
  Result<std::shared_ptr<const KernelState>> find_or_make(const std::string& key, const Make& make);
  /// Memory of all living states.
  uint64_t memory_bytes();

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::weak_ptr<const KernelState>> states_;
};

/// What preparing a kernel may use.
struct KernelLoad {
  ThreadPool* pool = nullptr;
  StateCache* cache = nullptr;
};

/// What a kernel may use besides its arguments.
struct KernelContext {
  ThreadPool* pool = nullptr;          ///< never null during a call
  std::span<std::byte> scratch;        ///< at least what the row's workspace() asked for, 64-byte aligned
  const KernelState* state = nullptr;  ///< what the row's prepare() made for this call; null if it made nothing
  bool check_only = false;             ///< only look whether count and kinds of the arguments fit (asked at load, before workspace())
};

/// args: every schema argument in schema order, then the out argument(s) again, exactly as a KernelCall lists them.
using KernelFn = Status (*)(KernelContext&, std::span<Value* const> args);
/// Scratch bytes that a call needs; asked at load with the upper bounds of all sizes.
using WorkspaceFn = size_t (*)(std::span<Value* const> args);
/// Makes the state of one call at load; constants have their bytes, other tensors only their upper bounds. May give null.
using PrepareFn = Result<std::shared_ptr<const KernelState>> (*)(const KernelLoad& load, std::span<Value* const> args);

/// One row of a kernel table.
struct Kernel {
  std::string_view name;   ///< "aten::add.out", "aten::copy_", "pteron::view_strided.out"
  KernelFn fn = nullptr;
  WorkspaceFn workspace = nullptr;
  PrepareFn prepare = nullptr;
};

/// A list of ints that may be computed at run time.
using IntList = Sizes;
struct OptionalIntList {
  bool has = false;
  IntList list;
};
using TensorList = std::span<Value* const>;  ///< items are tensors, or None in Tensor?[]

/// Conversion of one argument, specialised per parameter type. fits: the value's tag is right; ready (optional): it can be used in this call.
template <typename T>
struct Unpack;

template <>
struct Unpack<const Tensor&> {
  static bool fits(const Value& v) { return v.tag == Tag::kTensor; }
  static bool ready(const Value& v) { return v.tensor.has_data(); }
  static const Tensor& get(Value& v) { return v.tensor; }
};
template <>
struct Unpack<Tensor&> {  // an out: never a constant
  static bool fits(const Value& v) { return v.tag == Tag::kTensor; }
  static bool ready(const Value& v) { return v.tensor.has_data() && !v.tensor.read_only; }
  static Tensor& get(Value& v) { return v.tensor; }
};
template <>
struct Unpack<const Tensor*> {  // Tensor?
  static bool fits(const Value& v) { return v.tag == Tag::kNone || v.tag == Tag::kTensor; }
  static bool ready(const Value& v) { return v.tag == Tag::kNone || v.tensor.has_data(); }
  static const Tensor* get(Value& v) { return v.tag == Tag::kNone ? nullptr : &v.tensor; }
};
template <>
struct Unpack<Value&> {  // anything: the kernel looks at the tag (out scalars of prim ops, arguments that it ignores)
  static bool fits(const Value&) { return true; }
  static Value& get(Value& v) { return v; }
};
template <>
struct Unpack<int64_t> {
  static bool fits(const Value& v) { return v.tag == Tag::kInt || v.tag == Tag::kBool; }
  static int64_t get(Value& v) { return v.integer; }
};
template <>
struct Unpack<bool> {
  static bool fits(const Value& v) { return v.tag == Tag::kBool || v.tag == Tag::kInt; }
  static bool get(Value& v) { return v.integer != 0; }
};
template <>
struct Unpack<double> {
  static bool fits(const Value& v) { return v.tag == Tag::kDouble || v.tag == Tag::kInt || v.tag == Tag::kBool; }
  static double get(Value& v) { return v.tag == Tag::kDouble ? v.floating : static_cast<double>(v.integer); }
};
template <>
struct Unpack<Scalar> {
  static bool fits(const Value& v) { return v.tag == Tag::kDouble || v.tag == Tag::kInt || v.tag == Tag::kBool; }
  static Scalar get(Value& v) {
    if (v.tag == Tag::kDouble) return {Scalar::Kind::kDouble, 0, v.floating};
    return {v.tag == Tag::kInt ? Scalar::Kind::kInt : Scalar::Kind::kBool, v.integer, 0};
  }
};
template <>
struct Unpack<std::string_view> {
  static bool fits(const Value& v) { return v.tag == Tag::kString; }
  static std::string_view get(Value& v) { return v.string; }
};
template <>
struct Unpack<DType> {
  static bool fits(const Value& v) { return v.tag == Tag::kInt && is_known_dtype(static_cast<int>(v.integer)); }
  static DType get(Value& v) { return static_cast<DType>(v.integer); }
};
template <>
struct Unpack<TensorList> {
  static bool fits(const Value& v) {
    if (v.tag != Tag::kTensorList) return false;
    for (const Value* item : v.items) {
      if (item->tag != Tag::kNone && item->tag != Tag::kTensor) return false;
    }
    return true;
  }
  static bool ready(const Value& v) {
    for (const Value* item : v.items) {
      if (item->tag == Tag::kTensor && !item->tensor.has_data()) return false;
    }
    return true;
  }
  static TensorList get(Value& v) { return v.items; }
};
template <>
struct Unpack<std::span<const double>> {
  static bool fits(const Value& v) { return v.tag == Tag::kDoubleList; }
  static std::span<const double> get(Value& v) { return v.doubles; }
};
template <>
struct Unpack<std::span<const bool>> {
  static bool fits(const Value& v) { return v.tag == Tag::kBoolList; }
  static std::span<const bool> get(Value& v) { return v.bools; }
};
template <>
struct Unpack<IntList> {  // at most kMaxRank items
  static bool fits(const Value& v) {
    if (v.tag == Tag::kInt) return true;
    if (v.tag != Tag::kIntList || v.items.size() > kMaxRank) return false;
    for (const Value* item : v.items) {
      if (item->tag != Tag::kInt) return false;
    }
    return true;
  }
  static IntList get(Value& v) {
    IntList list;
    if (v.tag == Tag::kInt) {
      list.push_back(v.integer);
      return list;
    }
    for (const Value* item : v.items) list.push_back(item->integer);
    return list;
  }
};
template <>
struct Unpack<OptionalIntList> {
  static bool fits(const Value& v) { return v.tag == Tag::kNone || Unpack<IntList>::fits(v); }
  static OptionalIntList get(Value& v) {
    if (v.tag == Tag::kNone) return {};
    return {true, Unpack<IntList>::get(v)};
  }
};
template <typename T>
struct Unpack<std::optional<T>> {
  static bool fits(const Value& v) { return v.tag == Tag::kNone || Unpack<T>::fits(v); }
  static std::optional<T> get(Value& v) {
    if (v.tag == Tag::kNone) return std::nullopt;
    return Unpack<T>::get(v);
  }
};

/// Errors: kInvalidFile when a call lists too few arguments or one of the wrong kind.
Status bad_argument(size_t index);
/// Errors: kInvalidFile when a tensor argument has no memory, or an out is a constant.
Status argument_not_ready(size_t index);

template <typename T>
bool is_ready(const Value& v) {
  if constexpr (requires { Unpack<T>::ready(v); }) {
    return Unpack<T>::ready(v);
  } else {
    return true;
  }
}

template <auto fn, typename... Params>
struct TypedCall {
  template <size_t... I>
  static Status call(KernelContext& context, std::span<Value* const> args, std::index_sequence<I...>) {
    if (args.size() < sizeof...(Params)) return bad_argument(args.size());
    size_t bad = sizeof...(Params);
    ((Unpack<Params>::fits(*args[I]) || bad != sizeof...(Params) ? void() : void(bad = I)), ...);
    if (bad != sizeof...(Params)) [[unlikely]] return bad_argument(bad);
    if (context.check_only) [[unlikely]] return ok_status();
    ((is_ready<Params>(*args[I]) || bad != sizeof...(Params) ? void() : void(bad = I)), ...);
    if (bad != sizeof...(Params)) [[unlikely]] return argument_not_ready(bad);
    return fn(context, Unpack<Params>::get(*args[I])...);
  }
};

template <auto fn, typename Signature>
struct TypedKernel;
template <auto fn, typename... Params>
struct TypedKernel<fn, Status (*)(KernelContext&, Params...)> {
  static Status call(KernelContext& context, std::span<Value* const> args) {
    return TypedCall<fn, Params...>::call(context, args, std::index_sequence_for<Params...>());
  }
};

/// KernelFn for `Status f(KernelContext&, const Tensor& self, Scalar alpha, Tensor& out)`. Parameter types: const Tensor&, Tensor& (out),
/// const Tensor* (Tensor?), Scalar, int64_t, double, bool, std::string_view, DType, IntList, OptionalIntList, TensorList,
/// std::span<const double>, std::span<const bool>, std::optional<T> of these, Value& (anything). All schema arguments in order, then outs.
#define PTERON_KERNEL(function) (&::pteron::runtime::TypedKernel<&(function), decltype(&(function))>::call)

/// Kernels by name. Built from rows; users may add theirs to a copy.
/// Threads: immutable while programs use it.
class KernelTable {
 public:
  /// Adds rows; a name already present is replaced.
  void add(std::span<const Kernel> rows);
  /// Null if there is no such kernel.
  const Kernel* find(std::string_view name) const;
  /// Sorted by name.
  std::span<const Kernel> rows() const { return rows_; }

 private:
  std::vector<Kernel> rows_;
};

}  // namespace pteron::runtime
