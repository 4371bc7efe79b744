// Calls a portable kernel by name with plain values; for tests and micro benchmarks only.
#pragma once

#include <deque>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/str_cat.h"
#include "ops/kernels.h"

namespace pteron::ops {

/// Arguments of one call, in schema order, then the outs.
class KernelCallBuilder {
 public:
  KernelCallBuilder& tensor(const TensorView& view) {
    runtime::Value& v = add(runtime::Tag::kTensor);
    v.tensor.view = view;
    for (int d = 0; d < view.rank; ++d) {
      v.tensor.bound[static_cast<size_t>(d)] = view.size(d);
      v.tensor.dim_order[static_cast<size_t>(d)] = static_cast<uint8_t>(d);
    }
    std::array<uint8_t, kMaxRank> order{};
    if (dim_order_of_strides(view.sizes(), view.strides(), std::span(order).first(view.rank))) v.tensor.dim_order = order;
    v.tensor.capacity_bytes = view.size_bytes();
    return *this;
  }
  KernelCallBuilder& none() { return add(runtime::Tag::kNone), *this; }
  KernelCallBuilder& integer(int64_t x) { return add(runtime::Tag::kInt).integer = x, *this; }
  KernelCallBuilder& boolean(bool x) { return add(runtime::Tag::kBool).integer = x ? 1 : 0, *this; }
  KernelCallBuilder& text(std::string_view x) { return add(runtime::Tag::kString).string = x, *this; }
  KernelCallBuilder& number(double x) { return add(runtime::Tag::kDouble).floating = x, *this; }
  KernelCallBuilder& integers(const std::vector<int64_t>& list) {
    std::vector<runtime::Value*> items;
    for (const int64_t x : list) {
      runtime::Value& item = values_.emplace_back();
      item.tag = runtime::Tag::kInt;
      item.integer = x;
      items.push_back(&item);
    }
    lists_.push_back(std::move(items));
    add(runtime::Tag::kIntList).items = lists_.back();
    return *this;
  }

  Status call(std::string_view name, ThreadPool& pool) {
    const runtime::Kernel* kernel = portable_kernels().find(name);
    if (kernel == nullptr) return Status(Code::kNotFound, str_cat("no kernel ", name));
    if (scratch_.size() == 0 && kernel->workspace != nullptr) {
      PTERON_ASSIGN(scratch_, Buffer::create(kernel->workspace(args_) + 64));
    }
    runtime::KernelContext context{&pool, std::span(scratch_.data(), scratch_.size())};
    return kernel->fn(context, args_);
  }

 private:
  runtime::Value& add(runtime::Tag tag) {
    runtime::Value& v = values_.emplace_back();
    v.tag = tag;
    args_.push_back(&v);
    return v;
  }
  std::deque<runtime::Value> values_;
  std::deque<std::vector<runtime::Value*>> lists_;
  std::vector<runtime::Value*> args_;
  Buffer scratch_;
};

}  // namespace pteron::ops
