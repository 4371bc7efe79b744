// Calls of single kernels, for the tests and benchmarks of this room.
#pragma once

#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/thread_pool.h"
#include "runtime/kernel.h"
#include "tensor/shape.h"

namespace pteron::cpu {

/// Arguments of one call, in order. Tensors borrow their data.
class Args {
 public:
  using Kernel = runtime::Kernel;
  using Tag = runtime::Tag;
  using Tensor = runtime::Tensor;
  using Value = runtime::Value;

  Tensor& tensor(DType dtype, std::vector<int64_t> sizes, void* data, std::vector<int64_t> strides = {}) {
    Value& v = add(Tag::kTensor);
    set(v.tensor, dtype, sizes, data, strides);
    return v.tensor;
  }
  Tensor& floats(std::vector<int64_t> sizes, std::vector<float>& data, std::vector<int64_t> strides = {}) { return tensor(DType::kFloat32, std::move(sizes), data.data(), std::move(strides)); }
  void none() { add(Tag::kNone); }
  void integer(int64_t v) { add(Tag::kInt).integer = v; }
  void boolean(bool v) { add(Tag::kBool).integer = v ? 1 : 0; }
  void number(double v) { add(Tag::kDouble).floating = v; }
  void text(std::string_view v) { add(Tag::kString).string = v; }
  void ints(std::initializer_list<int64_t> values) {
    list(Tag::kIntList);
    for (const int64_t v : values) integer(v);
    end_list();
  }
  void numbers(std::span<const double> values) { add(Tag::kDoubleList).doubles = values; }
  /// Starts a list: what is added until end_list() are its items.
  void list(Tag tag) {
    open_ = &add(tag);
    lists_.emplace_back();
  }
  void end_list() {
    open_->items = lists_.back();
    open_ = nullptr;
  }

  /// What a kernel gets; borrowed.
  std::span<Value* const> values() const { return args_; }

  Status run(const Kernel& kernel, int threads = 1) {
    const std::unique_ptr<ThreadPool> pool = make_thread_pool(threads);
    return run(kernel, *pool, cache_);
  }
  /// With a pool and packed weights that other calls may use at the same time.
  Status run(const Kernel& kernel, ThreadPool& pool, runtime::StateCache& cache) {
    std::shared_ptr<const runtime::KernelState> state;
    if (kernel.prepare != nullptr) {
      PTERON_ASSIGN(state, kernel.prepare({&pool, &cache}, args_));
    }
    PTERON_ASSIGN(Buffer scratch, Buffer::create(kernel.workspace != nullptr ? kernel.workspace(args_) : 0));
    runtime::KernelContext context;
    context.pool = &pool;
    context.scratch = scratch.span();
    context.state = state.get();
    return kernel.fn(context, args_);
  }

 private:
  Value& add(Tag tag) {
    Value& v = owned_.emplace_back();
    v.tag = tag;
    if (open_ != nullptr) {
      lists_.back().push_back(&v);
    } else {
      args_.push_back(&v);
    }
    return v;
  }
  static void set(Tensor& t, DType dtype, const std::vector<int64_t>& sizes, void* data, const std::vector<int64_t>& strides) {
    t.view = make_contiguous_view(dtype, sizes, data);
    for (size_t d = 0; d < sizes.size(); ++d) {
      t.bound[d] = sizes[d];
      if (!strides.empty()) t.view.stride_array[d] = strides[d];
    }
    if (!dim_order_of_strides(t.sizes(), t.strides(), std::span(t.dim_order).first(sizes.size()))) {
      for (size_t d = 0; d < sizes.size(); ++d) t.dim_order[d] = static_cast<uint8_t>(d);
    }
  }
  std::deque<Value> owned_;
  std::deque<std::vector<Value*>> lists_;
  std::vector<Value*> args_;
  Value* open_ = nullptr;
  runtime::StateCache cache_;
};

}  // namespace pteron::cpu
