// pteron_cpu::attention: softmax(query key^T * scale + masks) value in float, without the matrix of scores. A part of the queries of one head goes
// over blocks of keys; sums and results so far are rescaled when a larger score appears. Operands are read with any strides.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>

#include "backends/cpu/runtime/attention_ops.h"
#include "backends/cpu/runtime/kernels.h"
#include "base/checked_math.h"
#include "base/str_cat.h"
#include "tensor/dim_math.h"
#include "tensor/shape.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::Tensor;
using runtime::TensorList;
using runtime::Value;

// A block of keys and what belongs to it stay in the first two caches.
constexpr int64_t kKeyBlock = 256;
constexpr int64_t kMaxPart = 256;
// So few queries leave most of a block's lanes empty: each goes over the keys by itself.
constexpr int64_t kFewRows = 4;
constexpr int kMaxMasks = 4;
/// Multiplications worth a thread.
constexpr int64_t kGrain = 1 << 17;
constexpr float kLow = -std::numeric_limits<float>::infinity();

using Strides = std::array<int64_t, kMaxRank>;

struct Mask {
  const void* data = nullptr;
  bool is_bool = false;
  Strides batch{};
  int64_t row = 0, column = 0;
};

/// Sizes and strides of one call; batch dims (heads included) are walked as one index.
struct Problem {
  int dims = 0;  ///< batch dims
  Strides batch{}, q{}, k{}, v{}, out{};
  int64_t share = 1;  ///< query heads per key head
  int64_t rows = 0, keys = 0, width = 0, value_width = 0;
  int64_t q_row = 0, q_col = 0, k_row = 0, k_col = 0, v_row = 0, v_col = 0, out_row = 0, out_col = 0;
  const float* q_data = nullptr;
  const float* k_data = nullptr;
  const float* v_data = nullptr;
  float* out_data = nullptr;
  Mask masks[kMaxMasks];
  int mask_count = 0;
  bool causal = false, zero_rows = false;
  float scale = 1;

  int64_t batches() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= batch[static_cast<size_t>(d)];
    return n;
  }
};

/// One head's operands.
struct Head {
  const float *q, *k, *v;
  float* out;
  int64_t mask[kMaxMasks];  ///< element offsets
};
Head head_at(const Problem& p, int64_t index) {
  int64_t q = 0, k = 0, v = 0, out = 0;
  Head h{};
  for (int d = p.dims - 1; d >= 0; --d) {
    const auto i = static_cast<size_t>(d);
    const int64_t at = index % p.batch[i];
    index /= p.batch[i];
    const int64_t shared = d == p.dims - 1 ? at / p.share : at;
    q += at * p.q[i], k += shared * p.k[i], v += shared * p.v[i], out += at * p.out[i];
    for (int m = 0; m < p.mask_count; ++m) h.mask[m] += at * p.masks[m].batch[i];
  }
  h.q = p.q_data + q, h.k = p.k_data + k, h.v = p.v_data + v, h.out = p.out_data + out;
  return h;
}

/// One thread's scratch, in floats.
struct Slot {
  int64_t panels, keys, values, scores, row_mask, block_mask, out, top, sum, factor, total;
};
Slot slot_of(int64_t width, int64_t value_width) {
  const int64_t queries = attention_set().queries;
  const int64_t padded = ceil_div(value_width, queries) * queries;
  Slot s{};
  int64_t at = 0;
  const auto place = [&](int64_t floats) {
    const int64_t here = at;
    at += static_cast<int64_t>(align_up(static_cast<uint64_t>(std::max<int64_t>(floats, 0)), uint64_t{16}));
    return here;
  };
  const int64_t part = kMaxPart + queries;
  s.panels = place(part * width);
  s.keys = place(kKeyBlock * width);
  s.values = place(kKeyBlock * padded);
  s.scores = place(kKeyBlock * queries);
  s.row_mask = place(kKeyBlock);
  s.block_mask = place(kKeyBlock * queries);
  s.out = place(part * padded);
  s.top = place(part);
  s.sum = place(part);
  s.factor = place(queries);
  s.total = at;
  return s;
}

/// The queries [begin, begin + rows) of one head.
class Part {
 public:
  Part(const Problem& problem, const Slot& slot, float* scratch, int64_t index, int64_t begin, int64_t rows)
      : p_(problem), slot_(slot), scratch_(scratch), head_(head_at(problem, index)), begin_(begin), rows_(rows) {}

  void run() {
    if (rows_ <= kFewRows && p_.k_col == 1 && p_.v_col == 1) return run_few();
    pack_queries();
    block_.width = p_.width;
    block_.panels = ceil_div(p_.value_width, width_);
    block_.factor = scratch_ + slot_.factor;
    block_.scores = scratch_ + slot_.scores;
    block_.values = scratch_ + slot_.values;
    const int64_t keys = p_.causal ? std::min(p_.keys, begin_ + rows_) : p_.keys;
    for (int64_t key = 0; key < keys; key += kKeyBlock) {
      block_.count = std::min(kKeyBlock, keys - key);
      block_.first = key == 0;
      take_keys(key);
      pack_values(key);
      for (int64_t row = 0; row < rows_; row += width_) attend(key, row);
    }
    store(keys);
  }

 private:
  float* panel(int64_t row) const { return scratch_ + slot_.panels + row * p_.width; }
  float* result(int64_t row) const { return scratch_ + slot_.out + row * ceil_div(p_.value_width, width_) * width_; }

  void pack_queries() {
    for (int64_t row = 0; row < rows_; row += width_) {
      const int64_t count = std::min(width_, rows_ - row);
      const float* from = head_.q + (begin_ + row) * p_.q_row;
      float* to = panel(row);
      if (count < width_) std::fill_n(to, p_.width * width_, 0.0f);
      if (p_.q_col == 1) {
        set_.transpose(from, p_.q_row, count, p_.width, p_.scale, to, width_);
        continue;
      }
      for (int64_t c = 0; c < p_.width; ++c) {
        for (int64_t r = 0; r < count; ++r) to[c * width_ + r] = from[r * p_.q_row + c * p_.q_col] * p_.scale;
      }
    }
  }

  /// Rows of keys where they lie, if their elements are neighbours.
  void take_keys(int64_t key) {
    const float* from = head_.k + key * p_.k_row;
    block_.keys = from;
    block_.key_row = p_.k_row;
    if (p_.k_col == 1 || p_.width == 1) return;
    float* to = scratch_ + slot_.keys;
    block_.keys = to;
    block_.key_row = p_.width;
    if (p_.k_row == 1) return set_.transpose(from, p_.k_col, p_.width, block_.count, 1.0f, to, p_.width);
    for (int64_t j = 0; j < block_.count; ++j) {
      for (int64_t c = 0; c < p_.width; ++c) to[j * p_.width + c] = from[j * p_.k_row + c * p_.k_col];
    }
  }

  void pack_values(int64_t key) {
    float* to = scratch_ + slot_.values;
    if (p_.v_col == 1) return set_.pack(head_.v + key * p_.v_row, p_.v_row, block_.count, p_.value_width, to);
    for (int64_t column = 0; column < p_.value_width; column += width_) {
      const int64_t count = std::min(width_, p_.value_width - column);
      const float* from = head_.v + key * p_.v_row + column * p_.v_col;
      for (int64_t j = 0; j < block_.count; ++j, to += width_, from += p_.v_row) {
        for (int64_t c = 0; c < count; ++c) to[c] = from[c * p_.v_col];
        std::fill(to + count, to + width_, 0.0f);
      }
    }
  }

  void attend(int64_t key, int64_t row) {
    block_.rows = static_cast<int>(std::min(width_, rows_ - row));
    block_.vectors = block_.rows * 2 <= width_ ? 1 : 2;
    block_.panel = panel(row);
    block_.top = scratch_ + slot_.top + row;
    block_.sum = scratch_ + slot_.sum + row;
    block_.out = result(row);
    set_.scores(block_);
    if (p_.mask_count > 0) add_masks(key, row);
    // Query i of the block sees keys up to begin + row + i.
    const int64_t last = begin_ + row - key;
    if (p_.causal && last + 1 < block_.count) set_.hide_later(block_, last);
    set_.exponentials(block_);
    set_.values(block_);
  }

  void run_few() {
    float *queries = scratch_ + slot_.panels, *scores = scratch_ + slot_.scores, *top = scratch_ + slot_.top, *sum = scratch_ + slot_.sum;
    std::fill_n(top, rows_, kLow);
    std::fill_n(sum, rows_, 0.0f);
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < p_.width; ++c) queries[r * p_.width + c] = head_.q[(begin_ + r) * p_.q_row + c * p_.q_col] * p_.scale;
    }
    const int64_t keys = p_.causal ? std::min(p_.keys, begin_ + rows_) : p_.keys;
    for (int64_t key = 0; key < keys; key += kKeyBlock) {
      const int64_t count = std::min(kKeyBlock, keys - key);
      for (int64_t r = 0; r < rows_; ++r) {
        set_.dots(queries + r * p_.width, p_.width, head_.k + key * p_.k_row, p_.k_row, count, scores);
        for (int i = 0; i < p_.mask_count; ++i) {
          const Mask& m = p_.masks[i];
          const int64_t base = head_.mask[i] + (begin_ + r) * m.row + key * m.column;
          for (int64_t j = 0; j < count; ++j) scores[j] += mask_value(m, base + j * m.column);
        }
        for (int64_t j = std::max<int64_t>(0, begin_ + r + 1 - key); p_.causal && j < count; ++j) scores[j] = kLow;
        const float factor = set_.exponentials_row(scores, count, top + r, sum + r);
        set_.sum_rows(scores, count, head_.v + key * p_.v_row, p_.v_row, p_.value_width, key == 0 ? 0.0f : factor, result(r));
      }
    }
    store(keys);
  }

  static float mask_value(const Mask& m, int64_t at) {
    if (m.is_bool) return static_cast<const bool*>(m.data)[at] ? 0.0f : kLow;
    return static_cast<const float*>(m.data)[at];
  }

  void add_masks(int64_t key, int64_t row) {
    float *by_row = nullptr, *by_block = nullptr;
    for (int i = 0; i < p_.mask_count; ++i) {
      const Mask& m = p_.masks[i];
      const int64_t base = head_.mask[i] + (begin_ + row) * m.row + key * m.column;
      if (m.row == 0) {
        by_row = scratch_ + slot_.row_mask;
        add_row_mask(m, base, by_row, i, m.column);
      } else {
        by_block = block_mask(m, base, by_block);
      }
    }
    set_.add_masks(block_, by_row, by_block);
  }

  /// The masks without a row stride so far, and this one.
  void add_row_mask(const Mask& m, int64_t base, float* to, int index, int64_t column) const {
    bool is_first = true;
    for (int i = 0; i < index; ++i) is_first = is_first && p_.masks[i].row != 0;
    for (int64_t j = 0; j < block_.count; ++j) to[j] = mask_value(m, base + j * column) + (is_first ? 0.0f : to[j]);
  }

  /// The mask with queries in lanes, added to what is there.
  float* block_mask(const Mask& m, int64_t base, float* before) const {
    float* to = scratch_ + slot_.block_mask;
    if (before == nullptr && !m.is_bool && m.column == 1) {
      set_.transpose(static_cast<const float*>(m.data) + base, m.row, block_.rows, block_.count, 1.0f, to, width_);
    } else {
      for (int64_t j = 0; j < block_.count; ++j) {
        for (int64_t r = 0; r < block_.rows; ++r) {
          const float value = mask_value(m, base + r * m.row + j * m.column);
          to[j * width_ + r] = before == nullptr ? value : to[j * width_ + r] + value;
        }
      }
    }
    if (before != nullptr) return to;
    for (int64_t j = 0; j < block_.count; ++j) std::fill(to + j * width_ + block_.rows, to + (j + 1) * width_, 0.0f);
    return to;
  }

  void store(int64_t keys) const {
    for (int64_t r = 0; r < rows_; ++r) {
      float* to = head_.out + (begin_ + r) * p_.out_row;
      const float* from = result(r);
      const float sum = keys > 0 ? scratch_[slot_.sum + r] : 0.0f;
      const float nothing = p_.zero_rows ? 0.0f : std::numeric_limits<float>::quiet_NaN();
      if (sum == 0) {
        for (int64_t c = 0; c < p_.value_width; ++c) to[c * p_.out_col] = keys > 0 ? nothing : 0.0f;
        continue;
      }
      const float factor = 1.0f / sum;
      if (p_.out_col == 1) {
        for (int64_t c = 0; c < p_.value_width; ++c) to[c] = from[c] * factor;
      } else {
        for (int64_t c = 0; c < p_.value_width; ++c) to[c * p_.out_col] = from[c] * factor;
      }
    }
  }

  const AttentionSet& set_ = attention_set();
  const int64_t width_ = attention_set().queries;
  const Problem& p_;
  const Slot& slot_;
  float* scratch_;
  const Head head_;
  const int64_t begin_, rows_;
  AttentionBlock block_;
};

/// Stride of batch dim d of `dims`, 0 where it broadcasts or is missing; false if the size fits neither.
bool batch_stride(const Tensor& t, int d, int dims, int64_t size, int64_t* stride) {
  const int own = d - (dims - (t.rank() - 2));
  *stride = 0;
  if (own < 0 || t.size(own) == 1) return true;
  *stride = t.stride(own);
  return t.size(own) == size;
}

Status add_mask(const Tensor& t, Problem* p) {
  Tensor own = t;
  while (own.rank() > p->dims + 2 && own.size(0) == 1) {  // leading dims that say nothing
    std::rotate(own.view.size_array.begin(), own.view.size_array.begin() + 1, own.view.size_array.end());
    std::rotate(own.view.stride_array.begin(), own.view.stride_array.begin() + 1, own.view.stride_array.end());
    --own.view.rank;
  }
  const int rank = own.rank();
  Mask& m = p->masks[p->mask_count++];
  m.data = own.view.data;
  m.is_bool = own.dtype() == DType::kBool;
  bool fits = (m.is_bool || own.dtype() == DType::kFloat32) && rank <= p->dims + 2;
  if (rank >= 1 && own.size(rank - 1) != 1) {
    fits = fits && own.size(rank - 1) == p->keys;
    m.column = own.stride(rank - 1);
  }
  if (rank >= 2 && own.size(rank - 2) != 1) {
    fits = fits && own.size(rank - 2) == p->rows;
    m.row = own.stride(rank - 2);
  }
  for (int d = 0; d < p->dims && fits && rank > 2; ++d) {
    fits = batch_stride(own, d, p->dims, p->batch[static_cast<size_t>(d)], &m.batch[static_cast<size_t>(d)]);
  }
  return fits ? ok_status() : Status(Code::kInvalidInput, str_cat("attention: mask ", dtype_name(t.dtype()), " ", shape_text(t.sizes())));
}

Status make_problem(const Tensor& q, const Tensor& k, const Tensor& v, bool gqa, Problem* p, Sizes* out) {
  const auto bad = [&] {
    return Status(Code::kInvalidInput, str_cat("attention: query ", shape_text(q.sizes()), ", key ", shape_text(k.sizes()), ", value ", shape_text(v.sizes())));
  };
  const bool floats = q.dtype() == DType::kFloat32 && k.dtype() == DType::kFloat32 && v.dtype() == DType::kFloat32;
  const bool ranks = q.rank() >= 2 && k.rank() >= 2 && k.rank() == v.rank() && q.rank() >= k.rank();
  if (!floats || !ranks || q.size(q.rank() - 1) != k.size(k.rank() - 1) || k.size(k.rank() - 2) != v.size(v.rank() - 2)) return bad();
  const int dims = q.rank() - 2;
  p->dims = dims;
  p->rows = q.size(dims), p->width = q.size(dims + 1);
  p->keys = k.size(k.rank() - 2), p->value_width = v.size(v.rank() - 1);
  if (gqa && k.rank() >= 3) {
    const int64_t own = k.size(k.rank() - 3);
    if (own <= 0 || q.size(dims - 1) % own != 0) return bad();
    p->share = q.size(dims - 1) / own;
  }
  for (int d = 0; d < dims; ++d) {
    const auto i = static_cast<size_t>(d);
    int64_t size = q.size(d);
    if (const int own = d - (dims - (k.rank() - 2)); size == 1 && own >= 0 && !gqa) size = k.size(own);
    p->batch[i] = size;
    const int64_t shared = d == dims - 1 ? size / p->share : size;
    if (!batch_stride(q, d, dims, size, &p->q[i]) || !batch_stride(k, d, dims, shared, &p->k[i]) || !batch_stride(v, d, dims, shared, &p->v[i])) return bad();
    out->push_back(size);
  }
  out->push_back(p->rows);
  out->push_back(p->value_width);
  p->q_row = q.stride(dims), p->q_col = q.stride(dims + 1), p->q_data = q.as<float>();
  p->k_row = k.stride(k.rank() - 2), p->k_col = k.stride(k.rank() - 1), p->k_data = k.as<float>();
  p->v_row = v.stride(v.rank() - 2), p->v_col = v.stride(v.rank() - 1), p->v_data = v.as<float>();
  return ok_status();
}

void run(KernelContext& context, const Problem& p) {
  const int64_t heads = p.batches();
  if (heads == 0 || p.rows == 0 || p.value_width == 0) return;
  const Slot slot = slot_of(p.width, p.value_width);
  const int64_t slots = std::max<int64_t>(1, static_cast<int64_t>(context.scratch.size() / (static_cast<size_t>(slot.total) * sizeof(float))));
  const double work = static_cast<double>(heads) * static_cast<double>(p.rows) * static_cast<double>(p.keys) * static_cast<double>(p.width + p.value_width);
  const auto threads = static_cast<int64_t>(std::clamp(work / kGrain, 1.0, static_cast<double>(std::min<int64_t>(slots, context.pool->thread_count()))));
  // Few heads: smaller parts, so that every thread has some. Parts of nearly the same size: a short one at the end packs all keys for a few queries.
  const int64_t queries = attention_set().queries;
  int64_t part = kMaxPart;
  if (threads > 1) part = std::clamp(ceil_div(ceil_div(p.rows * heads, threads * 2), queries) * queries, queries, kMaxPart);
  part = ceil_div(ceil_div(p.rows, ceil_div(p.rows, part)), queries) * queries;
  const int64_t parts = ceil_div(p.rows, part), count = heads * parts;
  // Whoever is free takes the next one, since causal parts get longer.
  std::atomic<int64_t> next{0};
  const auto work_on = [&](int64_t begin, int64_t end) {
    for (int64_t thread = begin; thread < end; ++thread) {
      float* scratch = reinterpret_cast<float*>(context.scratch.data()) + thread * slot.total;
      for (int64_t i = next.fetch_add(1, std::memory_order_relaxed); i < count; i = next.fetch_add(1, std::memory_order_relaxed)) {
        const int64_t first = i % parts * part;
        Part(p, slot, scratch, i / parts, first, std::min(part, p.rows - first)).run();
      }
    }
  };
  if (threads == 1) return work_on(0, 1);
  context.pool->parallel_for(threads, 1, work_on);
}

Status attention_out(KernelContext& context, const Tensor& q, const Tensor& k, const Tensor& v, TensorList masks, bool causal, std::optional<double> scale,
                     bool gqa, bool zero_rows, Tensor& out) {
  Problem p;
  Sizes sizes;
  PTERON_TRY(make_problem(q, k, v, gqa, &p, &sizes));
  if (masks.size() > kMaxMasks) return Status(Code::kInvalidFile, str_cat("attention: ", masks.size(), " masks"));
  for (const Value* mask : masks) {
    if (mask->tag != runtime::Tag::kTensor) return Status(Code::kInvalidFile, "attention: a mask is None");
    PTERON_TRY(add_mask(mask->tensor, &p));
  }
  p.causal = causal;
  p.zero_rows = zero_rows;
  p.scale = static_cast<float>(scale.value_or(p.width > 0 ? 1.0 / std::sqrt(static_cast<double>(p.width)) : 1.0));
  if (out.dtype() != DType::kFloat32) return Status(Code::kInvalidInput, str_cat("attention into ", dtype_name(out.dtype())));
  PTERON_TRY(resize(out, sizes));
  p.out_data = out.as<float>();
  for (int d = 0; d < p.dims; ++d) p.out[static_cast<size_t>(d)] = out.stride(d);
  p.out_row = out.stride(p.dims), p.out_col = out.stride(p.dims + 1);
  run(context, p);
  return ok_status();
}

size_t workspace(std::span<Value* const> args) {
  const Tensor& q = args[0]->tensor;
  const Tensor& v = args[2]->tensor;
  if (q.rank() < 2 || v.rank() < 2) return 0;
  const Slot slot = slot_of(q.size(q.rank() - 1), v.size(v.rank() - 1));
  return static_cast<size_t>(slot.total) * sizeof(float) * static_cast<size_t>(std::clamp(usable_cpu_count(), 1, 64));
}

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::attention.out", PTERON_KERNEL(attention_out), workspace}};

}  // namespace

std::span<const runtime::Kernel> attention_kernels() { return kRows; }

}  // namespace pteron::cpu
