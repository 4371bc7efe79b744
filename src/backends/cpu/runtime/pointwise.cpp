// pteron_cpu::pointwise: a chain of elementwise operators in one pass over memory. Blocks of the result are made by the program's machine code
// (pointwise_code.h) or, without it, by its instructions on registers of a few hundred floats that stay in the first-level cache; operands are read where
// they lie, broadcast, strided or of another dtype.
// pteron_cpu::pointwise_sum adds up the last dims of such a result, which is never in memory as a whole.
#include <algorithm>
#include <limits>
#include <vector>

#include "backends/cpu/pointwise_program.h"
#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/pointwise_ops.h"
#include "backends/cpu/runtime/pointwise_state.h"
#include "base/str_cat.h"
#include "ops/copy.h"
#include "ops/elementwise.h"
#include "tensor/dim_math.h"

namespace pteron::cpu {
namespace {

using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tensor;
using runtime::TensorList;
using runtime::Value;

constexpr int64_t kBlock = 512;
/// Elements of a block where one loop makes the result of operands that lie in memory as it wants them.
constexpr int64_t kLongBlock = 4096;
/// Results of this size do not stay in the first two caches, of that size not in the last one.
constexpr int64_t kPrefetchBytes = 128 << 10;
constexpr int64_t kStreamBytes = 12 << 20;
/// Elements times instructions worth a thread.
constexpr int64_t kGrain = 1 << 17;

/// One operand over the merged index space.
struct Access {
  std::byte* data = nullptr;
  size_t bytes = 4;                  ///< of an element
  ops::ConvertFn convert = nullptr;  ///< null: float
  int64_t stride[kMaxRank];          ///< elements, outermost first; access() sets as many as there are dims
};

/// The index space of a call: dims merged where all operands allow it, the result's innermost last.
struct Space {
  int rank = 1;
  int64_t size[kMaxRank] = {1};
  Access out;
  Access inputs[kMaxPointwiseInputs];
  int input_count = 0;
  int64_t block_rows = 1;  ///< rows of the innermost dim in a block
  int64_t block_columns = 1;
  int64_t column_blocks = 1, row_blocks = 1;
  bool prefetches = false;  ///< more than the caches hold
  bool streams = false;     ///< the result is large: it goes past the caches
  int64_t outer = 1;        ///< indices of the dims outside the two innermost
  int64_t rows() const { return rank > 1 ? size[rank - 2] : 1; }
  int64_t columns() const { return size[rank - 1]; }
};

/// Bytes to floats and back, as find_convert() has them; these loops are vectors.
template <typename T>
void bytes_to_floats(int64_t n, const void* from, void* to) {
  const auto* source = static_cast<const T*>(from);
  auto* target = static_cast<float*>(to);
  for (int64_t i = 0; i < n; ++i) target[i] = static_cast<float>(source[i]);
}
template <typename T>
void floats_to_bytes(int64_t n, const void* from, void* to) {
  const auto* source = static_cast<const float*>(from);
  auto* target = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) target[i] = static_cast<T>(static_cast<int32_t>(source[i]));
}
ops::ConvertFn conversion(DType dtype, bool is_out) {
  if (dtype == DType::kInt8) return is_out ? floats_to_bytes<int8_t> : bytes_to_floats<int8_t>;
  if (dtype == DType::kUInt8) return is_out ? floats_to_bytes<uint8_t> : bytes_to_floats<uint8_t>;
  return is_out ? ops::find_convert(DType::kFloat32, dtype) : ops::find_convert(dtype, DType::kFloat32);
}

Status access(const Tensor& t, std::span<const int64_t> sizes, bool is_out, Access* a) {
  a->data = t.as<std::byte>();
  a->bytes = dtype_size(t.dtype());
  if (t.dtype() != DType::kFloat32) {
    a->convert = conversion(t.dtype(), is_out);
    if (a->convert == nullptr || is_complex(t.dtype())) return Status(Code::kUnsupported, str_cat("pointwise: dtype ", dtype_name(t.dtype())));
  }
  const size_t shift = sizes.size() - static_cast<size_t>(t.rank());
  std::fill_n(a->stride, shift, 0);
  for (size_t d = shift; d < sizes.size(); ++d) {
    const int own = static_cast<int>(d - shift);
    a->stride[d] = t.size(own) == 1 ? 0 : t.stride(own);
  }
  return ok_status();
}

/// Calls fn for the result's access and every input's.
template <class Fn>
void each_access(Space& s, Fn fn) {
  fn(s.out);
  for (int i = 0; i < s.input_count; ++i) fn(s.inputs[i]);
}

/// Sorts dims by the result's strides and merges neighbours.
void merge_dims(Space& s, std::span<const int64_t> sizes) {
  int order[kMaxRank], count = 0;
  for (size_t d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    int at = count++;
    for (; at > 0 && s.out.stride[order[at - 1]] < s.out.stride[d]; --at) order[at] = order[at - 1];
    order[at] = static_cast<int>(d);
  }
  // Of each merged dim its innermost one, whose strides are those of the whole.
  int inner[kMaxRank];
  s.rank = 0;
  for (int i = 0; i < count; ++i) {
    const int from = order[i], last = s.rank - 1;
    const int64_t size = sizes[static_cast<size_t>(from)];
    bool joins = last >= 0;
    each_access(s, [&](const Access& a) { joins = joins && a.stride[inner[last]] == a.stride[from] * size; });
    const int to = joins ? last : s.rank++;
    s.size[to] = joins ? s.size[to] * size : size;
    inner[to] = from;
  }
  each_access(s, [&](Access& a) {
    int64_t strides[kMaxRank];
    for (int d = 0; d < s.rank; ++d) strides[d] = a.stride[inner[d]];
    std::copy_n(strides, s.rank, a.stride);
    if (s.rank == 0) a.stride[0] = 0;
  });
  if (s.rank > 0) return;
  s.rank = 1;
  s.size[0] = 1;
}

void choose_blocks(Space& s, bool is_compiled) {
  bool lies_ready = is_compiled && s.columns() >= kBlock;
  each_access(s, [&](const Access& a) { lies_ready = lies_ready && a.convert == nullptr && a.stride[s.rank - 1] == 1; });
  s.block_columns = std::min(lies_ready ? kLongBlock : kBlock, s.columns());
  s.block_rows = std::clamp<int64_t>(kBlock / s.columns(), 1, s.rows());
  s.column_blocks = ceil_div(s.columns(), s.block_columns);
  s.row_blocks = ceil_div(s.rows(), s.block_rows);
  for (int d = 0; d + 2 < s.rank; ++d) s.outer *= s.size[d];
}

/// The part of the index space that one block covers.
struct Block {
  int64_t rows = 0, columns = 0;
  int64_t index[kMaxRank] = {};  ///< of its first element
  int64_t elements() const { return rows * columns; }
};

Block block_at(const Space& s, int64_t number) {
  Block b;
  const int64_t column = number % s.column_blocks * s.block_columns;
  number /= s.column_blocks;
  const int64_t row = number % s.row_blocks * s.block_rows;
  number /= s.row_blocks;
  b.columns = std::min(s.block_columns, s.columns() - column);
  b.rows = std::min(s.block_rows, s.rows() - row);
  b.index[s.rank - 1] = column;
  if (s.rank > 1) b.index[s.rank - 2] = row;
  for (int d = s.rank - 2; d-- > 0;) {
    b.index[d] = number % s.size[d];
    number /= s.size[d];
  }
  return b;
}

std::byte* first_of(const Space& s, const Access& a, const Block& b) {
  int64_t offset = 0;
  for (int d = 0; d < s.rank; ++d) offset += b.index[d] * a.stride[d];
  return a.data + offset * static_cast<int64_t>(a.bytes);
}

template <typename T>
void gather(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) target[i] = source[i * stride];
}
template <typename T>
void scatter(const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) target[i * stride] = source[i];
}
template <bool kGather>
void move_elements(size_t bytes, const std::byte* from, int64_t stride, int64_t count, std::byte* to) {
  const auto move = [&]<typename T>(T) {
    if constexpr (kGather) {
      gather<T>(from, stride, count, to);
    } else {
      scatter<T>(from, stride, count, to);
    }
  };
  if (bytes == 1) return move(uint8_t{});
  if (bytes == 2) return move(uint16_t{});
  if (bytes == 4) return move(uint32_t{});
  move(uint64_t{});
}

/// `count` elements as floats.
void load_run(const Access& a, const std::byte* from, int64_t stride, int64_t count, float* to) {
  if (stride == 0) {
    float value = 0;
    if (a.convert != nullptr) {
      a.convert(1, from, &value);
    } else {
      value = *reinterpret_cast<const float*>(from);
    }
    std::fill(to, to + count, value);
    return;
  }
  if (a.convert == nullptr) {
    if (stride == 1) {
      std::copy_n(reinterpret_cast<const float*>(from), count, to);
    } else {
      gather<float>(from, stride, count, reinterpret_cast<std::byte*>(to));
    }
    return;
  }
  alignas(64) std::byte packed[kBlock * 8];
  if (stride != 1) {
    move_elements<true>(a.bytes, from, stride, count, packed);
    from = packed;
  }
  a.convert(count, from, to);
}
void store_run(const Access& a, const float* from, int64_t count, int64_t stride, std::byte* to) {
  alignas(64) std::byte packed[kBlock * 8];
  const auto* source = reinterpret_cast<const std::byte*>(from);
  if (a.convert != nullptr) {
    a.convert(count, from, stride == 1 ? to : packed);
    if (stride == 1) return;
    source = packed;
  }
  move_elements<false>(a.bytes, source, stride, count, to);
}

/// Runs blocks on one thread.
class Runner {
 public:
  Runner(const PointwiseState& program, const Space& space) : program_(program), space_(space) {
    // Registers where the inputs' blocks lie, as far as the low address bits go: a load never waits for a store of the instruction before then.
    const auto input = reinterpret_cast<uintptr_t>(space.inputs[0].data), own = reinterpret_cast<uintptr_t>(memory_);
    registers_ = memory_ + (input - own) % (kBlock * sizeof(float)) / 64 * 16;
    if (!program.compiled) {
      for (const Operand& number : program.numbers) std::fill_n(register_at(number.index), kBlock, number.value);
    }
  }

  /// The values of a block in row-major order, valid until the next call; for spaces without a result in memory.
  const float* values(const Block& block) {
    for (int i = 0; i < space_.input_count; ++i) inputs_[i] = load(i, block);
    const auto n = static_cast<size_t>(block.elements());
    if (program_.compiled) {
      run_compiled(program_.compiled.store(), register_at(0), n);
      return register_at(0);
    }
    for (const Instruction& in : program_.code) {
      in.fn(operand(in.operands[0]), operand(in.operands[1]), operand(in.operands[2]), in.value, register_at(in.target), n);
    }
    return register_at(program_.code.back().target);
  }

  void run(int64_t number) {
    const Block block = block_at(space_, number);
    for (int i = 0; i < space_.input_count; ++i) inputs_[i] = load(i, block);
    const Access& out = space_.out;
    std::byte* to = first_of(space_, out, block);
    const bool direct = out.convert == nullptr && is_run(out, block);
    const size_t n = static_cast<size_t>(block.elements());
    const bool streams = direct && space_.streams;
    if (program_.compiled) {
      if (streams) return stream_compiled(reinterpret_cast<float*>(to), n);
      run_compiled(program_.compiled.store(), direct ? reinterpret_cast<float*>(to) : register_at(0), n);
      if (!direct) store(block, register_at(0), to);
      return;
    }
    const size_t last = program_.code.size() - 1;
    for (size_t i = 0; i <= last; ++i) {
      const Instruction& in = program_.code[i];
      float* target = i == last && direct && !streams ? reinterpret_cast<float*>(to) : register_at(in.target);
      if (space_.prefetches) prefetch(i, last + 1, n, direct && !streams ? to : nullptr);
      in.fn(operand(in.operands[0]), operand(in.operands[1]), operand(in.operands[2]), in.value, target, n);
    }
    if (streams) {
      pointwise_set().stream(register_at(program_.code[last].target), reinterpret_cast<float*>(to), n);
    } else if (!direct) {
      store(block, register_at(program_.code[last].target), to);
    }
  }

 private:
  /// Asks for a part of what the next block reads and writes: instructions that compute leave the memory idle otherwise.
  void prefetch(size_t part, size_t parts, size_t n, std::byte* out) const {
    constexpr size_t kLine = 64;
    const size_t lines = n * sizeof(float) / kLine, from = lines * part / parts, end = lines * (part + 1) / parts;
    for (int i = 0; i < space_.input_count; ++i) {
      if (!direct_[i]) continue;
      const auto* next = reinterpret_cast<const std::byte*>(inputs_[i] + n);
      for (size_t line = from; line < end; ++line) __builtin_prefetch(next + line * kLine, 0, 3);
    }
    for (size_t line = from; out != nullptr && line < end; ++line) __builtin_prefetch(out + n * sizeof(float) + line * kLine, 1, 3);
  }

  /// The block's results by one loop; a part of a vector goes through copies.
  void run_compiled(PointwiseCode::Fn fn, float* to, size_t n) {
    const size_t lanes = program_.compiled.vector_bytes() / sizeof(float), whole = n / lanes * lanes;
    if (whole > 0) fn(inputs_, to, whole * sizeof(float));
    if (whole < n) part_of_vector(whole, n - whole, to);
  }
  void stream_compiled(float* to, size_t n) {
    const size_t bytes = program_.compiled.vector_bytes(), lanes = bytes / sizeof(float);
    const size_t head = std::min(n, (bytes - reinterpret_cast<uintptr_t>(to) % bytes) % bytes / sizeof(float));
    if (head > 0) part_of_vector(0, head, to);
    const float* from[kMaxPointwiseInputs];
    for (int i = 0; i < space_.input_count; ++i) from[i] = inputs_[i] + head;
    const size_t whole = (n - head) / lanes * lanes;
    if (whole > 0) program_.compiled.stream()(from, to + head, whole * sizeof(float));
    if (head + whole < n) part_of_vector(head + whole, n - head - whole, to);
  }
  void part_of_vector(size_t first, size_t n, float* to) {
    alignas(64) float parts[kMaxPointwiseInputs][16] = {}, made[16];
    const float* from[kMaxPointwiseInputs];
    for (int i = 0; i < space_.input_count; ++i) {
      std::copy_n(inputs_[i] + first, n, parts[i]);
      from[i] = parts[i];
    }
    program_.compiled.store()(from, made, program_.compiled.vector_bytes());
    std::copy_n(made, n, to + first);
  }

  float* register_at(int index) { return registers_ + index * kBlock; }
  const float* operand(const Operand& o) { return o.kind == Operand::Kind::kInput ? inputs_[o.index] : register_at(std::max(o.index, 0)); }
  int64_t row_stride(const Access& a) const { return space_.rank > 1 ? a.stride[space_.rank - 2] : 0; }
  int64_t column_stride(const Access& a) const { return a.stride[space_.rank - 1]; }
  /// True if the block's elements lie one after the other.
  bool is_run(const Access& a, const Block& b) const {
    return (column_stride(a) == 1 || b.columns == 1) && (b.rows == 1 || row_stride(a) == b.columns) && (b.columns > 1 || b.rows == 1 || row_stride(a) == 1);
  }

  const float* load(int i, const Block& block) {
    const Access& a = space_.inputs[i];
    const std::byte* from = first_of(space_, a, block);
    direct_[i] = a.convert == nullptr && is_run(a, block);
    if (direct_[i]) return reinterpret_cast<const float*>(from);
    const int64_t step = row_stride(a), column = column_stride(a);
    float* to = staged_ + i * kBlock;
    // The same bytes again: rows that repeat, or one value for all.
    const bool repeats = step == 0 || block.rows == 1;
    Staged& staged = what_[i];
    if (repeats && staged.from == from && staged.columns == block.columns && staged.rows >= block.rows) return to;
    staged = {from, block.columns, block.rows};
    if (!repeats) staged.from = nullptr;
    if (column == 0 && step == 0) {
      load_run(a, from, 0, block.elements(), to);
      return to;
    }
    if (a.convert == nullptr && column == 1) {
      pointwise_set().gather_rows(reinterpret_cast<const float*>(from), step, block.rows, block.columns, to);
      return to;
    }
    for (int64_t r = 0; r < block.rows; ++r) {
      if (step == 0 && r > 0) {
        std::copy_n(to, block.columns, to + r * block.columns);
      } else {
        load_run(a, from + r * step * static_cast<int64_t>(a.bytes), column, block.columns, to + r * block.columns);
      }
    }
    return to;
  }

  void store(const Block& block, const float* from, std::byte* to) {
    const Access& out = space_.out;
    if (is_run(out, block)) return store_run(out, from, block.elements(), 1, to);
    for (int64_t r = 0; r < block.rows; ++r) {
      store_run(out, from + r * block.columns, block.columns, column_stride(out), to + r * row_stride(out) * static_cast<int64_t>(out.bytes));
    }
  }

  struct Staged {
    const std::byte* from = nullptr;
    int64_t columns = 0, rows = 0;
  };
  const PointwiseState& program_;
  const Space& space_;
  const float* inputs_[kMaxPointwiseInputs] = {};
  bool direct_[kMaxPointwiseInputs] = {};
  Staged what_[kMaxPointwiseInputs];
  float* registers_ = nullptr;
  alignas(64) float memory_[(kMaxRegisters + 1) * kBlock];
  alignas(64) float staged_[kMaxPointwiseInputs * kBlock];
};

// self, others, program, dtype, out
Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad&, std::span<Value* const> args) {
  const size_t inputs = 1 + args[1]->items.size();
  if (inputs > kMaxPointwiseInputs) return Status(Code::kInvalidFile, str_cat("pointwise: ", inputs, " inputs, at most ", int{kMaxPointwiseInputs}));
  auto state = load_pointwise(args[2]->string, static_cast<int>(inputs));
  if (!state.ok()) return state.status();
  return std::shared_ptr<const KernelState>(std::move(*state));
}

Status pointwise_out(KernelContext& context, const Tensor& self, TensorList others, std::string_view, DType dtype, Tensor& out) {
  const PointwiseState& program = *static_cast<const PointwiseState*>(context.state);
  if (out.dtype() != dtype) return Status(Code::kInvalidInput, str_cat("pointwise: the result is ", dtype_name(out.dtype()), ", expected ", dtype_name(dtype)));
  Sizes sizes(self.sizes());
  for (const Value* item : others) {
    if (item->tag != runtime::Tag::kTensor) return Status(Code::kInvalidFile, "pointwise: an input is None");
    const Sizes before = sizes;
    PTERON_TRY(broadcast_sizes(before, item->tensor.sizes(), &sizes));
  }
  PTERON_TRY(resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  Space space;
  PTERON_TRY(access(out, sizes, true, &space.out));
  PTERON_TRY(access(self, sizes, false, &space.inputs[space.input_count++]));
  for (const Value* item : others) PTERON_TRY(access(item->tensor, sizes, false, &space.inputs[space.input_count++]));
  merge_dims(space, sizes);
  choose_blocks(space, static_cast<bool>(program.compiled));
  space.prefetches = out.numel() * 4 >= kPrefetchBytes;
  space.streams = out.numel() * 4 >= kStreamBytes && space.block_columns % 16 == 0;
  const int64_t blocks = space.outer * space.row_blocks * space.column_blocks;
  const int64_t work = space.block_rows * space.block_columns * static_cast<int64_t>(program.code.size() + 2);
  const auto run = [&](int64_t begin, int64_t end) {
    Runner runner(program, space);
    for (int64_t i = begin; i < end; ++i) runner.run(i);
    if (space.streams) pointwise_set().flush();
  };
  const int64_t grain = std::max<int64_t>(1, kGrain / work);
  if (blocks <= grain) {
    run(0, blocks);
  } else {
    context.pool->parallel_for(blocks, grain, run);
  }
  return ok_status();
}

/// A sum over the last dims: where its parts are in the index space.
struct SumSpace : Space {
  int inner = 1;            ///< merged dims that are added up
  int64_t outputs = 1;      ///< numbers that come out
  int64_t blocks_each = 1;  ///< blocks for block_rows of them
  /// Blocks have several rows, a number each.
  bool many() const { return inner == 1 && rank > 1; }
};

/// Lays out a space that has its inputs. `sizes` is not empty of elements; its last `summed` dims are added up.
void lay_out_sum(SumSpace& s, std::span<const int64_t> sizes, size_t summed) {
  int64_t stride = 1;
  for (size_t d = sizes.size(); d-- > 0;) {
    // A gap between what stays and what is added up keeps merge_dims() from joining them.
    if (d + summed + 1 == sizes.size()) stride *= 2;
    s.out.stride[d] = stride;
    stride *= sizes[d];
  }
  int64_t elements = 1;
  for (size_t d = 0; d < sizes.size(); ++d) (d + summed < sizes.size() ? s.outputs : elements) *= sizes[d];
  merge_dims(s, sizes);
  s.inner = 0;
  for (int d = 0; d < s.rank; ++d) s.inner += s.size[d] > 1 && s.out.stride[d] < elements ? 1 : 0;
  if (s.inner == 0) {  // one element each: a dim for it
    if (s.outputs > 1) s.rank += 1;
    s.size[s.rank - 1] = 1;
    each_access(s, [&](Access& a) { a.stride[s.rank - 1] = 0; });
    s.inner = 1;
  }
  s.block_columns = std::min(kBlock, s.columns());
  s.block_rows = s.many() ? std::clamp<int64_t>(kBlock / s.columns(), 1, s.rows()) : 1;
  s.column_blocks = ceil_div(s.columns(), s.block_columns);
  s.row_blocks = s.rank > 1 ? ceil_div(s.rows(), s.block_rows) : 1;
  s.blocks_each = s.column_blocks;
  for (int d = s.rank - s.inner; d + 1 < s.rank; ++d) s.blocks_each *= s.size[d];
}

/// Sums [task * block_rows, ...) of the space's tasks, each times `scale`.
void run_sums(const PointwiseState& program, const SumSpace& s, int64_t begin, int64_t end, double scale, float* out) {
  Runner runner(program, s);
  double sums[kBlock];
  for (int64_t task = begin; task < end; ++task) {
    int64_t rows = 1;
    std::fill_n(sums, s.block_rows, 0.0);
    for (int64_t b = 0; b < s.blocks_each; ++b) {
      const Block block = block_at(s, task * s.blocks_each + b);
      const float* values = runner.values(block);
      rows = block.rows;
      for (int64_t r = 0; r < rows; ++r) sums[r] += static_cast<double>(pointwise_set().sum(values + r * block.columns, block.columns));
    }
    const int64_t first = s.many() ? task / s.row_blocks * s.rows() + task % s.row_blocks * s.block_rows : task;
    for (int64_t r = 0; r < rows; ++r) out[first + r] = static_cast<float>(sums[r] * scale);
  }
}

// self, others, program, dims, mean, keepdim, out
Status pointwise_sum_out(KernelContext& context, const Tensor& self, TensorList others, std::string_view, int64_t dims, bool mean, bool keepdim, Tensor& out) {
  const PointwiseState& program = *static_cast<const PointwiseState*>(context.state);
  Sizes sizes(self.sizes());
  for (const Value* item : others) {
    if (item->tag != runtime::Tag::kTensor) return Status(Code::kInvalidFile, "pointwise_sum: an input is None");
    const Sizes before = sizes;
    PTERON_TRY(broadcast_sizes(before, item->tensor.sizes(), &sizes));
  }
  if (out.dtype() != DType::kFloat32 || dims < 1 || dims > static_cast<int64_t>(sizes.size()) || sizes.size() + 1 > kMaxRank) {
    return Status(Code::kInvalidInput, str_cat("pointwise_sum: ", dims, " dims of ", shape_text(sizes), " into ", dtype_name(out.dtype())));
  }
  const auto summed = static_cast<size_t>(dims);
  Sizes left(std::span<const int64_t>(sizes).first(sizes.size() - summed));
  int64_t elements = 1;
  for (const int64_t size : std::span<const int64_t>(sizes).last(summed)) elements *= size;
  for (size_t d = 0; keepdim && d < summed; ++d) left.push_back(1);
  PTERON_TRY(resize(out, left));
  if (out.numel() == 0) return ok_status();
  const bool dense = out.view.is_contiguous();
  float* to = dense ? out.as<float>() : reinterpret_cast<float*>(context.scratch.data());
  if (elements == 0) {
    std::fill_n(to, out.numel(), mean ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  } else {
    SumSpace space;
    PTERON_TRY(access(self, sizes, false, &space.inputs[space.input_count++]));
    for (const Value* item : others) PTERON_TRY(access(item->tensor, sizes, false, &space.inputs[space.input_count++]));
    lay_out_sum(space, sizes, summed);
    const int64_t tasks = space.many() ? space.outputs / space.rows() * space.row_blocks : space.outputs;
    const int64_t work = space.blocks_each * space.block_rows * space.block_columns * static_cast<int64_t>(program.code.size() + 2);
    const auto run = [&](int64_t begin, int64_t end) { run_sums(program, space, begin, end, mean ? 1.0 / static_cast<double>(elements) : 1.0, to); };
    const int64_t grain = std::max<int64_t>(1, kGrain / work);
    tasks <= grain ? run(0, tasks) : context.pool->parallel_for(tasks, grain, run);
  }
  return dense ? ok_status() : ops::copy_tensor(context, make_contiguous_view(DType::kFloat32, left, to), out.view);
}

size_t sum_workspace(std::span<Value* const> args) { return static_cast<size_t>(args[6]->tensor.numel()) * sizeof(float); }

constexpr runtime::Kernel kRows[] = {{"pteron_cpu::pointwise.out", PTERON_KERNEL(pointwise_out), nullptr, prepare},
                                     {"pteron_cpu::pointwise_sum.out", PTERON_KERNEL(pointwise_sum_out), sum_workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> pointwise_kernels() { return kRows; }

}  // namespace pteron::cpu
