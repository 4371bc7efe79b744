// pteron_cuda::attention: one launch, or two where few rows of queries meet many keys: the keys are then split among blocks, and what they give is joined.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "backends/cuda/runtime/library_kernels.h"
#include "backends/cuda/runtime/plain.h"
#include "base/str_cat.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cuda {
namespace {

using runtime::IntList;
using runtime::KernelContext;
using runtime::KernelLoad;
using runtime::KernelState;
using runtime::Tag;
using runtime::Tensor;
using runtime::TensorList;
using runtime::Value;

/// Parts that the keys are split into at most, and tiles of keys that make it worth a second launch.
constexpr int64_t kMostSplits = 64;
constexpr int64_t kTilesToSplit = 8;
/// Blocks that a multiprocessor holds.
constexpr int64_t kBlocksEach = 2;
constexpr int64_t kMostGrid = 65535;
constexpr size_t kMostMasks = 2;

struct Launches final : KernelState {
  Function kernel = nullptr, merge = nullptr;
  int64_t rows = 0, keys = 0, shared = 0, threads = 0;
};

constexpr size_t kMasksArg = 3, kKernelArg = 7, kMergeArg = 8, kShapeArg = 9, kArgs = 11;

Result<std::shared_ptr<const KernelState>> prepare(const KernelLoad& load, std::span<Value* const> args) {
  if (args.size() < kArgs || args[kKernelArg]->tag != Tag::kString || args[kMergeArg]->tag != Tag::kString) return runtime::bad_argument(kKernelArg);
  const Value& shape = *args[kShapeArg];
  if (shape.tag != Tag::kIntList || shape.items.size() != 4) return runtime::bad_argument(kShapeArg);
  auto made = std::make_shared<Launches>();
  made->rows = shape.items[0]->integer;
  made->keys = shape.items[1]->integer;
  made->shared = shape.items[2]->integer;
  made->threads = shape.items[3]->integer;
  if (made->rows < 1 || made->keys < 1 || made->shared < 0 || made->threads < 32 || made->threads > 1024) return runtime::bad_argument(kShapeArg);
  Session& session = session_of(load);
  PTERON_ASSIGN(made->kernel, session.function(args[kKernelArg]->string, made->shared));
  PTERON_ASSIGN(made->merge, session.function(args[kMergeArg]->string, 0));
  return std::shared_ptr<const KernelState>(std::move(made));
}

/// Batch, heads, rows, columns; missing dims in front are of size 1 and stride 0, and so are those along which a tensor is repeated.
struct Shape4 {
  std::array<int64_t, 4> sizes{1, 1, 1, 1}, strides{0, 0, 0, 0};
};

bool shape_of(const Tensor& t, Shape4* out) {
  const int extra = t.rank() - 4;
  for (int d = 0; d < extra; ++d) {
    if (t.size(d) != 1) return false;
  }
  for (int d = std::max(extra, 0); d < t.rank(); ++d) {
    const auto to = static_cast<size_t>(d - extra);
    out->sizes[to] = t.size(d);
    out->strides[to] = t.size(d) == 1 ? 0 : t.stride(d);
  }
  return true;
}

bool repeats(int64_t size, int64_t whole) { return size == whole || size == 1; }

size_t workspace(std::span<Value* const> args) {
  // What the splits of few rows leave: see parts in the kernel's text.
  const Tensor &q = args[0]->tensor, &v = args[2]->tensor;
  if (args[0]->tag != Tag::kTensor || args[2]->tag != Tag::kTensor || q.rank() < 2 || v.rank() < 2) return 0;
  int64_t rows = 1;
  for (int d = 0; d + 1 < q.rank(); ++d) rows = std::min<int64_t>(rows * std::max<int64_t>(q.size(d), 1), int64_t{1} << 30);
  int64_t batch = 1;
  for (int d = 0; d + 2 < v.rank(); ++d) batch = std::min<int64_t>(batch * std::max<int64_t>(v.size(d), 1), int64_t{1} << 30);
  rows = std::max(rows, batch);
  return static_cast<size_t>(std::min<int64_t>(rows * kMostSplits * (v.size(v.rank() - 1) + 2) * 4, static_cast<int64_t>(kLibraryScratch)));
}

Status refuse(const Tensor& q, const Tensor& k, const Tensor& v, std::string_view why) {
  return Status(Code::kInvalidInput,
                str_cat("attention of query ", shape_text(q.sizes()), ", key ", shape_text(k.sizes()), ", value ", shape_text(v.sizes()), ": ", why));
}

/// Zeros: the sum over no keys.
Status clear(Session& session, const Tensor& out, const Shape4& shape) {
  const auto element = static_cast<int64_t>(dtype_size(out.dtype()));
  Product p;
  p.dtype = out.dtype();
  p.batch = shape.sizes[1];
  p.rows = shape.sizes[2];
  p.columns = shape.sizes[3];
  p.depth = 0;
  for (int64_t i = 0; i < shape.sizes[0]; ++i) {
    p.d = {static_cast<std::byte*>(out.view.data) + i * shape.strides[0] * element, shape.strides[2], shape.strides[3], shape.strides[1]};
    PTERON_TRY(plain_product(session, p));
  }
  return ok_status();
}

bool starts_whole(const Tensor& t, const Shape4& shape) {
  const auto element = static_cast<int64_t>(dtype_size(t.dtype()));
  const bool strides = std::ranges::all_of(std::span(shape.strides).first(3), [&](int64_t stride) { return stride * element % 16 == 0; });
  return strides && reinterpret_cast<uintptr_t>(t.view.data) % 16 == 0;
}

Status attention_out(KernelContext& context, const Tensor& q, const Tensor& k, const Tensor& v, TensorList masks, bool /*causal*/, double scale, bool gqa,
                     std::string_view /*kernel*/, std::string_view /*merge*/, IntList /*shape*/, Tensor& out) {
  Shape4 qs, ks, vs, os;
  if (q.rank() < 2 || k.rank() < 2 || v.rank() < 2 || q.rank() > 4 || !shape_of(q, &qs) || !shape_of(k, &ks) || !shape_of(v, &vs) ||
      masks.size() > kMostMasks) {
    return refuse(q, k, v, "the ranks do not fit");
  }
  const int64_t queries = qs.sizes[2], keys = ks.sizes[2];
  const int64_t batch = std::max(qs.sizes[0], ks.sizes[0]), heads = gqa ? qs.sizes[1] : std::max(qs.sizes[1], ks.sizes[1]);
  Sizes sizes;
  if (q.rank() > 3) sizes.push_back(batch);
  if (q.rank() > 2) sizes.push_back(heads);
  sizes.push_back(queries);
  sizes.push_back(vs.sizes[3]);
  PTERON_TRY(runtime::resize(out, sizes));
  if (out.numel() == 0) return ok_status();
  if (!shape_of(out, &os)) return refuse(q, k, v, "the result does not fit");
  if (k.dtype() != q.dtype() || v.dtype() != q.dtype() || out.dtype() != q.dtype()) return refuse(q, k, v, "the dtypes differ");
  if (ks.sizes[3] != qs.sizes[3] || vs.sizes[2] != keys || ks.sizes[0] != vs.sizes[0] || ks.sizes[1] != vs.sizes[1])
    return refuse(q, k, v, "the sizes do not fit");
  if (!repeats(qs.sizes[0], batch) || !repeats(ks.sizes[0], batch) || heads % ks.sizes[1] != 0 || (!gqa && !repeats(ks.sizes[1], heads)) ||
      !repeats(qs.sizes[1], heads)) {
    return refuse(q, k, v, "batches or heads do not fit");
  }
  for (const Shape4* s : {&qs, &ks, &vs, &os}) {
    if (s->sizes[3] > 1 && s->strides[3] != 1) return refuse(q, k, v, "rows are no runs of memory");
  }
  if (keys == 0) return clear(session_of(context), out, os);
  std::array<Shape4, kMostMasks> ms;
  for (size_t i = 0; i < masks.size(); ++i) {
    if (masks[i]->tag != Tag::kTensor || !shape_of(masks[i]->tensor, &ms[i])) return refuse(q, k, v, "a mask does not fit");
    const auto& m = ms[i].sizes;
    if (!repeats(m[0], batch) || !repeats(m[1], heads) || !repeats(m[2], queries) || !repeats(m[3], keys))
      return refuse(q, k, v, str_cat("a mask is ", shape_text(masks[i]->tensor.sizes())));
  }

  Session& session = session_of(context);
  const auto& launches = *static_cast<const Launches*>(context.state);
  const int64_t ratio = heads / ks.sizes[1];
  const int64_t group = queries * ratio <= launches.rows ? ratio : 1;
  const int64_t row_blocks = (queries * group + launches.rows - 1) / launches.rows, units = heads / group, tiles = (keys + launches.keys - 1) / launches.keys;
  const int64_t blocks = row_blocks * units * batch, wanted = kBlocksEach * session.device().multiprocessors() / blocks;
  int64_t splits = 1;
  if (tiles >= kTilesToSplit && wanted > 1) {
    const int64_t each = batch * heads * queries * (vs.sizes[3] + 2) * 4;
    splits = std::min({tiles / 2, wanted, kMostSplits, static_cast<int64_t>(context.scratch.size()) / each, kMostGrid / batch});
    splits = std::max<int64_t>(splits, 1);
  }
  const int64_t chunk = (tiles + splits - 1) / splits * launches.keys;
  splits = (keys + chunk - 1) / chunk;

  const bool whole = starts_whole(q, qs) && starts_whole(k, ks) && starts_whole(v, vs) && starts_whole(out, os);
  // A grid has 65535 blocks along its heads and batches: more are several launches. Those whose keys are split are few (kBlocksEach).
  const auto address = [](const Tensor& t, const Shape4& s, int64_t n, int64_t head) {
    return reinterpret_cast<uint64_t>(t.view.data) + static_cast<uint64_t>((n * s.strides[0] + head * s.strides[1]) * static_cast<int64_t>(dtype_size(t.dtype())));
  };
  std::vector<uint64_t> params(4 + kMostMasks, 0);
  params.push_back(reinterpret_cast<uint64_t>(context.scratch.data()));
  for (const int64_t value : {queries, keys, heads, group, ratio}) params.push_back(static_cast<uint64_t>(value));
  for (const Shape4* s : {&qs, &ks, &vs, &os}) {
    for (size_t d = 0; d < 3; ++d) params.push_back(static_cast<uint64_t>(s->strides[d]));
  }
  for (const Shape4& m : ms) {
    for (const int64_t stride : m.strides) params.push_back(static_cast<uint64_t>(stride));
  }
  for (const int64_t value : {splits, chunk, int64_t{whole}}) params.push_back(static_cast<uint64_t>(value));
  params.push_back(std::bit_cast<uint64_t>(scale));
  const int64_t most_units = splits > 1 ? units : std::max<int64_t>(kMostGrid / ratio, 1) * ratio / group, most_batch = splits > 1 ? batch : kMostGrid;
  for (int64_t n = 0; n < batch; n += most_batch) {
    for (int64_t unit = 0; unit < units; unit += most_units) {
      const int64_t head = unit * group;
      params[0] = address(q, qs, n, head);
      params[1] = address(k, ks, n, head / ratio);
      params[2] = address(v, vs, n, head / ratio);
      params[3] = address(out, os, n, head);
      for (size_t i = 0; i < masks.size(); ++i) params[4 + i] = address(masks[i]->tensor, ms[i], n, head);
      const std::array<unsigned, 3> grid{static_cast<unsigned>(row_blocks), static_cast<unsigned>(std::min(most_units, units - unit)),
                                         static_cast<unsigned>(std::min(most_batch, batch - n) * splits)};
      PTERON_TRY(session.launch(launches.kernel, grid, static_cast<unsigned>(launches.threads), static_cast<unsigned>(launches.shared), params, false));
    }
  }
  if (splits == 1) return ok_status();
  std::vector<uint64_t> joined{reinterpret_cast<uint64_t>(context.scratch.data()), address(out, os, 0, 0), static_cast<uint64_t>(queries), static_cast<uint64_t>(heads)};
  for (size_t d = 0; d < 3; ++d) joined.push_back(static_cast<uint64_t>(os.strides[d]));
  joined.push_back(static_cast<uint64_t>(splits));
  return session.launch(launches.merge, {static_cast<unsigned>(queries), static_cast<unsigned>(heads), static_cast<unsigned>(batch)}, 128, 0, joined);
}

constexpr runtime::Kernel kTable[] = {{"pteron_cuda::attention.out", PTERON_KERNEL(attention_out), workspace, prepare}};

}  // namespace

std::span<const runtime::Kernel> attention_kernels() { return kTable; }

}  // namespace pteron::cuda
