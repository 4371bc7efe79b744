// Reductions of every room on the engine, against plain loops in double: all sets of dims, permuted and gapped inputs, one and two
// threads, long sums, empty inputs, NaN, narrow dtypes, and the inference of shapes and dtypes.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "ir/builder.h"
#include "ops/call_kernel.h"
#include "ops/catalog.h"

namespace pteron::ops {
namespace {

constexpr double kQuietNaN = std::numeric_limits<double>::quiet_NaN();

/// A float tensor whose dims lie in memory in `order` (outermost first), elements `gap` apart.
struct Input {
  std::vector<int64_t> sizes;
  std::vector<float> bytes;
  TensorView view;

  Input(std::vector<int64_t> s, const std::vector<int>& order, int64_t gap, unsigned seed) : sizes(std::move(s)) {
    view.rank = static_cast<uint8_t>(sizes.size());
    int64_t stride = gap;
    for (size_t i = sizes.size(); i-- > 0;) {
      const auto d = static_cast<size_t>(order[i]);
      view.size_array[d] = sizes[d];
      view.stride_array[d] = stride;
      stride *= sizes[d];
    }
    bytes.resize(static_cast<size_t>(std::max<int64_t>(stride, 1)));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (float& x : bytes) x = normal(random);
    view.data = bytes.data();
  }
  double at(const std::vector<int64_t>& index) const {
    int64_t offset = 0;
    for (size_t d = 0; d < index.size(); ++d) offset += index[d] * view.stride_array[d];
    return static_cast<double>(bytes[static_cast<size_t>(offset)]);
  }
};

/// Elements of every output in row-major order of the reduced dims, outputs in row-major order.
std::vector<std::vector<double>> groups_of(const Input& in, unsigned mask) {
  std::vector<std::vector<double>> groups;
  std::vector<int64_t> index(in.sizes.size(), 0);
  int64_t outputs = 1, total = 1;
  for (size_t d = 0; d < in.sizes.size(); ++d) {
    total *= in.sizes[d];
    if ((mask >> d & 1u) == 0) outputs *= in.sizes[d];
  }
  groups.resize(static_cast<size_t>(outputs));
  for (int64_t i = 0; i < total; ++i) {
    int64_t rest = i, output = 0;
    for (size_t d = in.sizes.size(); d-- > 0;) {
      index[d] = rest % in.sizes[d];
      rest /= in.sizes[d];
    }
    for (size_t d = 0; d < in.sizes.size(); ++d) {
      if ((mask >> d & 1u) == 0) output = output * in.sizes[d] + index[d];
    }
    groups[static_cast<size_t>(output)].push_back(in.at(index));
  }
  return groups;
}

using Plain = std::function<double(const std::vector<double>&)>;

double sum_of(const std::vector<double>& g) {
  double s = 0;
  for (const double x : g) s += x;
  return s;
}
double max_of(const std::vector<double>& g) {
  double m = g[0];
  for (const double x : g) m = std::max(m, x);
  return m;
}
double var_of(const std::vector<double>& g) {
  const double mean = sum_of(g) / static_cast<double>(g.size());
  double s = 0;
  for (const double x : g) s += (x - mean) * (x - mean);
  return s / (static_cast<double>(g.size()) - 1);
}

/// Calls a reduction with dims and keepdim; `dtype_or_other` places the arguments that differ.
void check(const Input& in, unsigned mask, std::string_view kernel, const Plain& plain, ThreadPool& pool, double tolerance) {
  std::vector<int64_t> dims, sizes;
  for (size_t d = 0; d < in.sizes.size(); ++d) {
    if ((mask >> d & 1u) != 0) {
      dims.push_back(static_cast<int64_t>(d) - static_cast<int64_t>(in.sizes.size()));
      sizes.push_back(1);
    } else {
      sizes.push_back(in.sizes[d]);
    }
  }
  const auto groups = groups_of(in, mask);
  std::vector<float> out(std::max<size_t>(groups.size(), 1), -77.0f);
  KernelCallBuilder call;
  call.tensor(in.view);
  if (kernel == "aten::linalg_vector_norm.out") call.integer(2);
  call.integers(dims);
  if (kernel == "aten::var.correction_out") call.integer(1);
  call.boolean(true);
  if (kernel == "aten::sum.IntList_out" || kernel == "aten::mean.out" || kernel == "aten::linalg_vector_norm.out") call.none();
  call.tensor(make_contiguous_view(DType::kFloat32, sizes, out.data()));
  const Status status = call.call(kernel, pool);
  ASSERT_TRUE(status.ok()) << status.message();
  for (size_t i = 0; i < groups.size(); ++i) {
    const double want = plain(groups[i]);
    // sums that cancel keep the rounding of their parts
    ASSERT_NEAR(out[i], want, tolerance * (1 + std::fabs(want)) + 2e-8 * static_cast<double>(groups[i].size())) << kernel << " mask " << mask << " output " << i;
  }
}

struct Named {
  std::string_view kernel;
  Plain plain;
};
const std::vector<Named>& named() {
  static const std::vector<Named> list = {
      {"aten::sum.IntList_out", sum_of},
      {"aten::mean.out", [](const auto& g) { return sum_of(g) / static_cast<double>(g.size()); }},
      {"aten::amax.out", max_of},
      {"aten::amin.out", [](auto g) { for (double& x : g) x = -x; return -max_of(g); }},
      {"aten::var.correction_out", var_of},
      {"aten::linalg_vector_norm.out", [](auto g) { for (double& x : g) x *= x; return std::sqrt(sum_of(g)); }},
      {"aten::logsumexp.out", [](auto g) { for (double& x : g) x = std::exp(x); return std::log(sum_of(g)); }},
  };
  return list;
}

TEST(Reduce, EverySetOfDimsAndLayout) {
  const auto two = make_thread_pool(2);
  const std::vector<std::vector<int64_t>> shapes = {{5, 3, 17}, {40, 9, 33}, {2, 1, 300}, {130, 2, 4}, {3, 2000, 2}};
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {2, 0, 1}, {1, 2, 0}};
  unsigned seed = 1;
  for (const auto& shape : shapes) {
    for (const auto& order : orders) {
      const Input in(shape, order, seed % 2 + 1, seed);
      ++seed;
      for (unsigned mask = 1; mask < 8; ++mask) {
        for (const Named& n : named()) {
          if (n.kernel == "aten::var.correction_out" && groups_of(in, mask)[0].size() < 2) continue;
          check(in, mask, n.kernel, n.plain, serial_pool(), 2e-6);
          check(in, mask, n.kernel, n.plain, *two, 2e-6);
        }
      }
    }
  }
}

TEST(Reduce, LongSumsDoNotDriftAndDoNotDependOnThreads) {
  std::vector<float> x(3'000'017, 0.1f);
  float one = 0, other = 0;
  const auto two = make_thread_pool(2);
  for (float* to : {&one, &other}) {
    KernelCallBuilder call;
    call.tensor(make_contiguous_view(DType::kFloat32, std::vector<int64_t>{static_cast<int64_t>(x.size())}, x.data())).none().boolean(false).none();
    call.tensor(make_contiguous_view(DType::kFloat32, {}, to));
    ASSERT_TRUE(call.call("aten::sum.IntList_out", to == &one ? serial_pool() : *two).ok());
  }
  EXPECT_EQ(one, other);
  EXPECT_NEAR(one, static_cast<double>(0.1f) * static_cast<double>(x.size()), 0.3);  // 1e-6 of it
}

TEST(Reduce, PositionsOfExtremes) {
  // the first of equal elements; the first NaN
  std::vector<float> x = {1, 5, 5, 2, static_cast<float>(kQuietNaN), 7, static_cast<float>(kQuietNaN), 0};
  std::vector<float> values(2);
  std::vector<int64_t> places(2, -1);
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kFloat32, std::vector<int64_t>{2, 4}, x.data())).integer(1).boolean(false);
  call.tensor(make_contiguous_view(DType::kFloat32, std::vector<int64_t>{2}, values.data()));
  call.tensor(make_contiguous_view(DType::kInt64, std::vector<int64_t>{2}, places.data()));
  ASSERT_TRUE(call.call("aten::max.dim_max", serial_pool()).ok());
  EXPECT_EQ(places, (std::vector<int64_t>{1, 0}));
  EXPECT_EQ(values[0], 5);
  EXPECT_TRUE(std::isnan(values[1]));
  // columns: every output's place in a tall matrix
  const Input tall({700, 40}, {0, 1}, 1, 9);
  std::vector<int64_t> found(40, -1);
  KernelCallBuilder arg;
  arg.tensor(tall.view).integer(0).boolean(false).tensor(make_contiguous_view(DType::kInt64, std::vector<int64_t>{40}, found.data()));
  ASSERT_TRUE(arg.call("aten::argmin.out", serial_pool()).ok());
  const auto groups = groups_of(tall, 1);
  for (size_t j = 0; j < 40; ++j) {
    int64_t best = 0;
    for (size_t r = 1; r < 700; ++r) best = groups[j][r] < groups[j][static_cast<size_t>(best)] ? static_cast<int64_t>(r) : best;
    EXPECT_EQ(found[j], best);
  }
}

TEST(Reduce, EmptyReductions) {
  float out = 3;
  const auto run = [&](std::string_view kernel, bool with_dtype) {
    KernelCallBuilder call;
    call.tensor(make_contiguous_view(DType::kFloat32, std::vector<int64_t>{0}, nullptr)).integers({0}).boolean(false);
    if (with_dtype) call.none();
    call.tensor(make_contiguous_view(DType::kFloat32, {}, &out));
    return call.call(kernel, serial_pool());
  };
  ASSERT_TRUE(run("aten::sum.IntList_out", true).ok());
  EXPECT_EQ(out, 0);
  ASSERT_TRUE(run("aten::mean.out", true).ok());
  EXPECT_TRUE(std::isnan(out));
  EXPECT_EQ(run("aten::amax.out", false).code(), Code::kInvalidInput);
}

TEST(Reduce, IntegersWrapAndTruthCounts) {
  std::vector<int8_t> x = {100, 100, -3};
  int64_t sum = 0;
  KernelCallBuilder call;
  call.tensor(make_contiguous_view(DType::kInt8, std::vector<int64_t>{3}, x.data())).none().boolean(false).none();
  call.tensor(make_contiguous_view(DType::kInt64, {}, &sum));
  ASSERT_TRUE(call.call("aten::sum.IntList_out", serial_pool()).ok());
  EXPECT_EQ(sum, 197);
  std::vector<float> mixed(5000, 1.0f);
  mixed[17] = 0;
  mixed[18] = static_cast<float>(kQuietNaN);
  int64_t count = 0;
  KernelCallBuilder truth;
  truth.tensor(make_contiguous_view(DType::kFloat32, std::vector<int64_t>{5000}, mixed.data())).integers({});
  truth.tensor(make_contiguous_view(DType::kInt64, {}, &count));
  ASSERT_TRUE(truth.call("aten::count_nonzero.dim_IntList_out", serial_pool()).ok());
  EXPECT_EQ(count, 4999);
}

/// Result type of an op on a symbolic matrix [s0, 4].
Result<ir::TensorType> infer(std::string_view name, DType dtype, std::vector<ir::Arg> rest) {
  PTERON_ASSIGN(const ir::Catalog catalog, make_catalog());
  const ir::Op* op = catalog.find(name);
  if (op == nullptr) return Status(Code::kNotFound, "no such op");
  ir::Program program;
  ir::Graph graph(program);
  const ir::Expr s0 = program.exprs.symbol("s0");
  program.exprs.set_range(s0, {2, 64});
  std::vector<ir::Arg> args = {graph.add_tensor(ir::contiguous_type(dtype, {s0, 4}), "x")};
  for (ir::Arg& arg : rest) args.push_back(std::move(arg));
  PTERON_ASSIGN(args, ir::complete_args(*op, std::move(args), program.exprs));
  ir::InferContext context(graph, *op, args);
  PTERON_TRY(op->def.infer(context));
  ir::TensorType type = context.results[0].type;
  for (ir::Expr& size : type.sizes) size = size == s0 ? ir::Expr(-1) : size;  // symbols die with the program
  type.strides.clear();
  return type;
}

TEST(Reduce, InferenceFollowsATen) {
  const auto one = std::vector<ir::Expr>{ir::Expr(1)};
  auto sum = infer("aten::sum.dim_IntList", DType::kBool, {one});
  ASSERT_TRUE(sum.ok());
  EXPECT_EQ(sum->dtype, DType::kInt64);
  EXPECT_EQ(sum->sizes, (std::vector<ir::Expr>{-1}));
  auto all = infer("aten::any.dims", DType::kUInt8, {std::vector<ir::Expr>{}});
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->dtype, DType::kUInt8);
  EXPECT_EQ(all->sizes, (std::vector<ir::Expr>{-1, 4}));  // an empty list reduces nothing here
  auto topk = infer("aten::topk", DType::kFloat16, {ir::Expr(3)});
  ASSERT_TRUE(topk.ok());
  EXPECT_EQ(topk->sizes, (std::vector<ir::Expr>{-1, 3}));
  EXPECT_EQ(infer("aten::mean", DType::kInt32, {}).status().code(), Code::kInvalidInput);
  EXPECT_EQ(infer("aten::sum.dim_IntList", DType::kFloat32, {std::vector<ir::Expr>{1, -1}}).status().code(), Code::kInvalidInput);
  EXPECT_EQ(infer("aten::topk", DType::kFloat16, {ir::Expr(5)}).status().code(), Code::kInvalidInput);
}

}  // namespace
}  // namespace pteron::ops
