// Parameters and grids of the plain kernels.
#include "backends/cuda/runtime/plain.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "backends/cuda/plain_kernels.h"

namespace pteron::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr int64_t kMostBlocks = int64_t{1} << 20;

uint64_t type_code(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return static_cast<uint64_t>(PlainType::kFloat16);
    case DType::kBFloat16:
      return static_cast<uint64_t>(PlainType::kBFloat16);
    case DType::kFloat64:
      return static_cast<uint64_t>(PlainType::kFloat64);
    default:
      return static_cast<uint64_t>(PlainType::kFloat32);
  }
}

uint64_t address(const void* data) { return reinterpret_cast<uint64_t>(data); }

/// Arguments in order, all as 8 bytes.
class Params {
 public:
  void add(const void* data) { list_.push_back(address(data)); }
  void add_int(int64_t value) { list_.push_back(static_cast<uint64_t>(value)); }
  void add_all(std::span<const int64_t> values) {
    for (const int64_t value : values) add_int(value);
  }
  void add_double(double value) { list_.push_back(std::bit_cast<uint64_t>(value)); }
  std::span<const uint64_t> list() const { return list_; }

 private:
  std::vector<uint64_t> list_;
};

Status start(Session& session, std::string_view name, int64_t count, const Params& params) {
  if (count <= 0) return ok_status();
  PTERON_ASSIGN(const Function function, session.function(name, 0));
  const int64_t blocks = std::min((count + kThreads - 1) / kThreads, kMostBlocks);
  return session.launch(function, {static_cast<unsigned>(blocks), 1, 1}, kThreads, 0, params.list());
}

}  // namespace

Status plain_product(Session& session, const Product& p, const void* gate) {
  Params params;
  for (const void* data : {p.a.data, p.b.data, gate, p.c.data, p.bias, p.d.data}) params.add(data);
  params.add_int(static_cast<int64_t>(type_code(p.dtype)));
  params.add_int(static_cast<int64_t>(p.end));
  for (const int64_t size : {p.batch, p.rows, p.columns, p.depth}) params.add_int(size);
  for (const Matrix* m : {&p.a, &p.b, &p.c, &p.d}) {
    for (const int64_t stride : {m->batch, m->row, m->column}) params.add_int(stride);
  }
  params.add_double(p.alpha);
  params.add_double(p.beta);
  return start(session, kPlainProductName, p.batch * p.rows * p.columns, params);
}

Status plain_convolution(Session& session, const Convolution& c) {
  Params params;
  for (const void* data : {c.x.data, c.weight.data, c.bias, c.residual.data, c.y.data}) params.add(data);
  params.add_int(static_cast<int64_t>(type_code(c.dtype)));
  params.add_int(c.transposed ? 1 : 0);
  params.add_int(c.relu ? 1 : 0);
  params.add_int(c.groups);
  for (const Image* image : {&c.y, &c.x, &c.weight}) params.add_all(image->sizes);
  for (const Image* image : {&c.y, &c.x, &c.weight, &c.residual}) params.add_all(image->strides);
  for (const auto* list : {&c.stride, &c.padding, &c.dilation}) params.add_all(*list);
  const auto& s = c.y.sizes;
  return start(session, kPlainConvolutionName, s[0] * s[1] * s[2] * s[3] * s[4], params);
}

}  // namespace pteron::cuda
