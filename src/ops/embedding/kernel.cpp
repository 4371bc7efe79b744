// embedding (rows by index), and the bag forms (sum, mean, max over runs of rows; float accumulation).
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/copy.h"
#include "ops/element.h"
#include "ops/index/reader.h"
#include "ops/kernels.h"
#include "ops/walk.h"

namespace pteron::ops::embedding {
namespace {

using index::BadIndex;
using index::Block;
using index::Reader;
using runtime::Kernel;
using runtime::KernelContext;
using runtime::Tag;
using runtime::Tensor;
using runtime::Value;

Status embedding(KernelContext& context, const Tensor& weight, const Tensor& indices, int64_t, bool, bool, Tensor& out) {
  if (weight.rank() != 2) return Status(Code::kInvalidInput, str_cat("embedding: weight of shape ", shape_text(weight.sizes()), ", expected rank 2"));
  if (indices.rank() >= kMaxRank) return Status(Code::kUnsupported, str_cat("rank over ", kMaxRank));
  Reader reader;
  PTERON_TRY(index::make_reader(indices, &reader));
  Sizes sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  PTERON_TRY(resize(out, sizes));
  const int64_t width = weight.size(1), rows = weight.size(0);
  const Block block = index::merged_block(Sizes{width}, Sizes{out.stride(out.rank() - 1)}, Sizes{weight.stride(1)});
  if (out.numel() == 0) return ok_status();
  BadIndex bad;
  dispatch_size(dtype_size(weight.dtype()), [&]<typename T>() {
    context.pool->parallel_for(indices.numel(), row_grain(width), [&](int64_t begin, int64_t end) {
      walk<2>(indices.sizes(), {Sizes(indices.strides()), without_last(out.strides())}, begin, end, [&](const std::array<int64_t, 2>& at, const Sizes&) {
        const int64_t row = reader.at(at[0]);
        if (row < 0 || row >= rows) return bad.note(row, 0, rows);
        index::copy_block(block, out.as<T>() + at[1], weight.as<T>() + row * weight.stride(0));
      });
    });
  });
  return bad.status();
}

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

struct Bags {
  const Tensor& weight;
  const Tensor* sample_weights;
  Reader indices, offsets;
  int64_t index_stride, offset_stride, index_count, bag_count, offset_count, mode, padding;
  int64_t begin(int64_t bag) const { return offsets.at(bag * offset_stride); }
  int64_t end(int64_t bag) const { return bag + 1 < offset_count ? offsets.at((bag + 1) * offset_stride) : index_count; }
};

/// Writes an integer into an index-typed tensor.
void store(const Tensor& t, int64_t offset, int64_t value) {
  if (t.dtype() == DType::kInt32) {
    t.as<int32_t>()[offset] = static_cast<int32_t>(value);
  } else {
    t.as<int64_t>()[offset] = value;
  }
}

/// One bag into `row` (float or double sums): returns how many rows counted.
template <typename T, typename M>
int64_t reduce_bag(const Bags& bags, int64_t bag, M* sums, int64_t* winners, BadIndex& bad) {
  const int64_t width = bags.weight.size(1);
  int64_t counted = 0;
  std::fill(sums, sums + width, M(0));
  if (bags.mode == kMax) std::fill(winners, winners + width, bags.padding >= 0 ? int64_t{-1} : int64_t{0});
  for (int64_t i = bags.begin(bag); i < bags.end(bag); ++i) {
    const int64_t row = bags.indices.at(i * bags.index_stride);
    if (row < 0 || row >= bags.weight.size(0)) {
      bad.note(row, 0, bags.weight.size(0));
      return counted;
    }
    if (row == bags.padding) continue;
    const T* from = bags.weight.as<T>() + row * bags.weight.stride(0);
    const int64_t step = bags.weight.stride(1);
    if (bags.mode == kMax) {
      for (int64_t d = 0; d < width; ++d) {
        const M x = static_cast<M>(to_math(from[d * step]));
        if (counted != 0 && !(x > sums[d])) continue;
        sums[d] = x;
        winners[d] = row;
      }
    } else {
      M scale = 1;
      if (bags.sample_weights != nullptr) scale = static_cast<M>(to_math(bags.sample_weights->as<T>()[i * bags.sample_weights->stride(0)]));
      for (int64_t d = 0; d < width; ++d) sums[d] += static_cast<M>(to_math(from[d * step])) * scale;
    }
    ++counted;
  }
  if (bags.mode == kMean && counted > 0) {
    for (int64_t d = 0; d < width; ++d) sums[d] /= static_cast<M>(counted);
  }
  return counted;
}

size_t bag_workspace(std::span<Value* const> args) {
  const Tensor& weight = args[0]->tensor;
  if (args[0]->tag != Tag::kTensor || weight.rank() != 2) return 0;
  return static_cast<size_t>(weight.size(1)) * (sizeof(double) + sizeof(int64_t)) + 64;
}

Status check_bags(const Bags& bags) {
  for (int64_t bag = 0; bag < bags.bag_count; ++bag) {
    const int64_t begin = bags.begin(bag), end = bags.end(bag);
    if (begin < 0 || end < begin || end > bags.index_count) {
      return Status(Code::kInvalidInput, str_cat("embedding_bag: bag ", bag, " covers [", begin, ",", end, ") of ", bags.index_count, " indices"));
    }
  }
  if (bags.bag_count > 0 && bags.begin(0) != 0) return Status(Code::kInvalidInput, "embedding_bag: the first offset must be 0");
  return ok_status();
}

Status embedding_bag(KernelContext& context, const Tensor& weight, const Tensor& indices, const Tensor& offsets, bool, int64_t mode, bool,
                     const Tensor* sample_weights, bool include_last_offset, int64_t padding, Tensor& out, Tensor& offset2bag, Tensor& bag_size,
                     Tensor& max_indices) {
  if (weight.rank() != 2 || indices.rank() != 1 || offsets.rank() != 1 || mode < kSum || mode > kMax) {
    return Status(Code::kInvalidInput, str_cat("embedding_bag: weight ", shape_text(weight.sizes()), ", indices ", shape_text(indices.sizes()), ", offsets ",
                                               shape_text(offsets.sizes()), ", mode ", mode));
  }
  if (sample_weights != nullptr && (sample_weights->numel() != indices.numel() || sample_weights->rank() != 1 || sample_weights->dtype() != weight.dtype())) {
    return Status(Code::kInvalidInput, str_cat("embedding_bag: per_sample_weights of shape ", shape_text(sample_weights->sizes())));
  }
  const int64_t offset_count = offsets.size(0), width = weight.size(1);
  Bags bags{weight, sample_weights, {}, {}, indices.stride(0), offsets.stride(0), indices.size(0), include_last_offset ? offset_count - 1 : offset_count, offset_count, mode, padding};
  if (bags.bag_count < 0) return Status(Code::kInvalidInput, "embedding_bag: include_last_offset without offsets");
  PTERON_TRY(index::make_reader(indices, &bags.indices));
  PTERON_TRY(index::make_reader(offsets, &bags.offsets));
  PTERON_TRY(check_bags(bags));
  PTERON_TRY(resize(out, Sizes{bags.bag_count, width}));
  PTERON_TRY(resize(bag_size, Sizes{bags.bag_count}));
  PTERON_TRY(mode == kMax ? resize(max_indices, Sizes{bags.bag_count, width}) : resize(max_indices, Sizes{bags.bag_count}));
  const bool has_bags_of_indices = !(offset2bag.rank() == 1 && offset2bag.size(0) == 0);
  if (has_bags_of_indices) PTERON_TRY(resize(offset2bag, Sizes{bags.index_count}));
  if (context.scratch.size() < static_cast<size_t>(width) * (sizeof(double) + sizeof(int64_t))) return Status(Code::kInternal, "embedding_bag: scratch is too small");
  auto* winners = reinterpret_cast<int64_t*>(context.scratch.data());
  BadIndex bad;
  const bool done = dispatch_floating(weight.dtype(), [&]<typename T>() {
    using M = MathOf<T>;
    M* sums = reinterpret_cast<M*>(winners + width);
    for (int64_t bag = 0; bag < bags.bag_count; ++bag) {
      const int64_t counted = reduce_bag<T, M>(bags, bag, sums, winners, bad);
      for (int64_t d = 0; d < width; ++d) out.as<T>()[bag * out.stride(0) + d * out.stride(1)] = from_math<T>(sums[d]);
      const int64_t length = mode == kSum && !has_bags_of_indices ? 0 : counted;
      store(bag_size, bag * bag_size.stride(0), length);
      if (mode == kMax) {
        for (int64_t d = 0; d < width; ++d) store(max_indices, bag * max_indices.stride(0) + d * max_indices.stride(1), winners[d]);
      } else {
        store(max_indices, bag * max_indices.stride(0), 0);
      }
      for (int64_t i = bags.begin(bag); has_bags_of_indices && i < bags.end(bag); ++i) store(offset2bag, i * offset2bag.stride(0), bag);
    }
  });
  if (!done) return Status(Code::kUnsupported, str_cat("embedding_bag of dtype ", dtype_name(weight.dtype())));
  return bad.status();
}

constexpr Kernel kTable[] = {
    {"aten::embedding.out", PTERON_KERNEL(embedding)},
    {"aten::_embedding_bag.out", PTERON_KERNEL(embedding_bag), bag_workspace},
    {"aten::_embedding_bag_forward_only.out", PTERON_KERNEL(embedding_bag), bag_workspace},
};

}  // namespace
extern const std::span<const runtime::Kernel> kKernels;
const std::span<const runtime::Kernel> kKernels = kTable;
}  // namespace pteron::ops::embedding
