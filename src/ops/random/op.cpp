// Operators that draw random numbers: refused unless a program is compiled with --allow-random. Uniform and normal numbers, permutations, samples
// and dropout have kernels (kernel.cpp); other distributions are made of uniform and normal numbers. Numbers differ from PyTorch's.
#include <cmath>

#include "ops/layout.h"
#include "ops/portable.h"
#include "tensor/dtype.h"

namespace pteron::ops::random {
namespace {

using ir::Builder;
using ir::OpDef;
using Ids = std::vector<ValueId>;

Status infer_sized(InferContext& c) {
  const DType missing = c.has("high") || c.op().name == "aten::randperm" ? DType::kInt64 : DType::kFloat32;
  std::vector<Expr> sizes = c.has("n") ? std::vector<Expr>{c.expr("n")} : c.exprs("size");
  for (const Expr& size : sizes) {
    if (size.is_const() && size.value() < 0) return Status(Code::kInvalidInput, str_cat("negative size in ", shape_text(sizes)));
  }
  c.add(c.dtype("dtype", missing), std::move(sizes));
  return ok_status();
}
Status infer_like(InferContext& c) {
  const TensorType& self = c.type("self");
  c.add(elementwise_type(c, c.has("dtype") ? c.dtype("dtype", self.dtype) : self.dtype, self.sizes, {"self"}));
  return ok_status();
}
Status infer_pair(InferContext& c) {
  const std::string_view first = c.has("mean") ? "mean" : "self", second = c.has("std") ? "std" : "p";
  std::vector<Expr> sizes;
  PTERON_TRY(broadcast_args(c, {first, second}, &sizes));
  c.add(c.type(c.is_value(first) ? first : second).dtype, std::move(sizes));
  return ok_status();
}
Status infer_samples(InferContext& c) {
  std::vector<Expr> sizes = c.type("self").sizes;
  if (sizes.size() != 1 && sizes.size() != 2) return Status(Code::kInvalidInput, str_cat("multinomial of ", shape_text(sizes), ", expected rank 1 or 2"));
  sizes.back() = c.expr("num_samples");
  c.add(DType::kInt64, std::move(sizes));
  return ok_status();
}

/// Numbers like `self`: uniform in [0, 1) or standard normal, float32 at least.
ValueId draw(Portable& f, std::string_view name, std::vector<Expr> sizes, DType dtype) { return f.b.op(name, {std::move(sizes), Portable::wide_dtype(dtype)}); }
ValueId uniform(Portable& f, const NodeView& n) { return draw(f, "aten::rand", n.type("self").sizes, n.type("self").dtype); }
ValueId normal(Portable& f, const NodeView& n) { return draw(f, "aten::randn", n.type("self").sizes, n.type("self").dtype); }
DType self_dtype(const NodeView& n) { return n.type("self").dtype; }

Ids rand_like(Builder& b, const NodeView& n) { return {b.op("aten::rand", {n.type("self").sizes, n.dtype("dtype", self_dtype(n))})}; }
Ids randn_like(Builder& b, const NodeView& n) { return {b.op("aten::randn", {n.type("self").sizes, n.dtype("dtype", self_dtype(n))})}; }
Ids randint(Builder& b, const NodeView& n) { return {b.op("aten::randint.low", {Expr(0), n.expr("high"), n.exprs("size"), n.dtype("dtype", DType::kInt64)})}; }
Ids randint_like(Builder& b, const NodeView& n) {
  return {b.op("aten::randint.low", {n.has("low") ? n.expr("low") : Expr(0), n.expr("high"), n.type("self").sizes, n.dtype("dtype", self_dtype(n))})};
}
Ids to_uniform(Builder& b, const NodeView& n) {
  Portable f(b);
  return {f.to(f.shift(f.scale(uniform(f, n), n.number("to") - n.number("from")), n.number("from")), self_dtype(n))};
}
Ids to_normal(Builder& b, const NodeView& n) {
  Portable f(b);
  return {f.to(f.shift(f.scale(normal(f, n), n.number("std")), n.number("mean")), self_dtype(n))};
}
Ids to_log_normal(Builder& b, const NodeView& n) {
  Portable f(b);
  return {f.to(f.unary("aten::exp", f.shift(f.scale(normal(f, n), n.number("std")), n.number("mean"))), self_dtype(n))};
}
/// -log(1 - u) / lambd.
Ids to_exponential(Builder& b, const NodeView& n) {
  Portable f(b);
  return {f.to(f.scale(f.unary("aten::log1p", f.unary("aten::neg", uniform(f, n))), -1 / n.number("lambd")), self_dtype(n))};
}
/// median + sigma * tan(pi * (u - 1/2)).
Ids to_cauchy(Builder& b, const NodeView& n) {
  Portable f(b);
  const ValueId angle = f.scale(f.shift(uniform(f, n), -0.5), 3.14159265358979323846);
  return {f.to(f.shift(f.scale(f.unary("aten::tan", angle), n.number("sigma")), n.number("median")), self_dtype(n))};
}
/// ceil(log(1 - u) / log(1 - p)), at least 1.
Ids to_geometric(Builder& b, const NodeView& n) {
  Portable f(b);
  const double p = n.number("p");
  if (!(p > 0 && p < 1)) return b.fail(Status(Code::kInvalidInput, str_cat("geometric with p = ", p))), Ids{};
  const ValueId tries = f.scale(f.unary("aten::log1p", f.unary("aten::neg", uniform(f, n))), 1 / std::log1p(-p));
  return {f.to(b.op("aten::clamp_min", {f.unary("aten::ceil", tries), Expr(1)}), self_dtype(n))};
}
/// All values of the dtype that `random_` draws from: up to the largest integer that a float holds exactly.
Ids to_integers(Builder& b, const NodeView& n) {
  const DType dtype = self_dtype(n);
  Expr low = n.has("from") ? n.expr("from") : Expr(0), high = n.has("to") && !n.is_none("to") ? n.expr("to") : Expr(0);
  if (!n.has("to") || n.is_none("to")) {
    switch (dtype) {
      case DType::kBool: high = Expr(2); break;
      case DType::kUInt8: high = Expr(256); break;
      case DType::kInt8: high = Expr(128); break;
      case DType::kInt16: high = Expr(32768); break;
      case DType::kInt32: high = Expr(int64_t{1} << 31); break;
      case DType::kFloat16: high = Expr((1 << 11) + 1); break;
      case DType::kBFloat16: high = Expr((1 << 8) + 1); break;
      case DType::kFloat32: high = Expr((1 << 24) + 1); break;
      case DType::kFloat64: high = Expr((int64_t{1} << 53) + 1); break;
      default: high = Expr(INT64_MAX); break;
    }
  }
  return {b.op("aten::randint.low", {low, high, n.type("self").sizes, dtype})};
}
Ids bernoulli(Builder& b, const NodeView& n) {
  Portable f(b);
  const std::string_view name = n.has("p") ? "p" : "self";
  ValueId drawn;
  if (n.is_value(name)) {
    const ValueId p = n.value(name);
    const DType wide = Portable::wide_dtype(f.dtype(p));
    drawn = b.op("aten::lt.Tensor", {draw(f, "aten::rand", n.type("self").sizes, f.dtype(p)), f.to(p, wide)});
  } else {
    drawn = f.compare("lt", draw(f, "aten::rand", n.type("self").sizes, DType::kFloat32), n.number("p"));
  }
  return {f.to(drawn, self_dtype(n))};
}
/// mean + std * normal, each a tensor or a number.
Ids normal_of(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = n.type(n.is_value("mean") ? "mean" : "std").dtype;
  std::vector<Expr> sizes;
  if (Status status = broadcast_args(n, {"mean", "std"}, &sizes); !status.ok()) return b.fail(std::move(status)), Ids{};
  ValueId y = draw(f, "aten::randn", sizes, dtype);
  y = n.is_value("std") ? f.mul(y, f.wide(n.value("std"))) : f.scale(y, n.number("std"));
  y = n.is_value("mean") ? f.add(y, f.wide(n.value("mean"))) : f.shift(y, n.number("mean"));
  return {f.to(y, dtype)};
}
Ids normal_sized(Builder& b, const NodeView& n) {
  Portable f(b);
  const DType dtype = n.dtype("dtype", DType::kFloat32);
  return {f.to(f.shift(f.scale(draw(f, "aten::randn", n.exprs("size"), dtype), n.number("std")), n.number("mean")), dtype)};
}

#define OPTIONS "ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None"
#define LONG_OPTIONS "ScalarType? dtype=long, Layout? layout=None, Device? device=None, bool? pin_memory=None"
#define LIKE_OPTIONS OPTIONS ", MemoryFormat? memory_format=None"
#define RANDOM(text, how_infer, how) {.schema = "aten::" text " -> Tensor", .infer = how_infer, .decompose = how, .flags = ir::kRandom}
#define KERNEL(text, how_infer, name) {.schema = "aten::" text " -> Tensor", .infer = how_infer, .kernel = name, .flags = ir::kRandom}
// The functional names of in-place forms are ATen's except for bernoulli.float and normal, whose in-place forms have no functional one of their name.
constexpr OpDef kTable[] = {
    RANDOM("bernoulli(Tensor self, *, Generator? generator=None)", infer_like, bernoulli),
    RANDOM("bernoulli.Tensor(Tensor self, Tensor p, *, Generator? generator=None)", infer_like, bernoulli),
    RANDOM("bernoulli.float(Tensor self, float p=0.5, *, Generator? generator=None)", infer_like, bernoulli),
    RANDOM("bernoulli.p(Tensor self, float p, *, Generator? generator=None)", infer_like, bernoulli),
    RANDOM("cauchy(Tensor self, float median=0, float sigma=1, *, Generator? generator=None)", infer_like, to_cauchy),
    RANDOM("exponential(Tensor self, float lambd=1, *, Generator? generator=None)", infer_like, to_exponential),
    RANDOM("geometric(Tensor self, float p, *, Generator? generator=None)", infer_like, to_geometric),
    RANDOM("log_normal(Tensor self, float mean=1, float std=2, *, Generator? generator=None)", infer_like, to_log_normal),
    KERNEL("multinomial(Tensor self, SymInt num_samples, bool replacement=False, *, Generator? generator=None)", infer_samples, "aten::multinomial.out"),
    RANDOM("normal(Tensor self, float mean=0, float std=1, *, Generator? generator=None)", infer_like, to_normal),
    RANDOM("normal.Tensor_Tensor(Tensor mean, Tensor std, *, Generator? generator=None)", infer_pair, normal_of),
    RANDOM("normal.Tensor_float(Tensor mean, float std=1, *, Generator? generator=None)", infer_pair, normal_of),
    RANDOM("normal.float_Tensor(float mean, Tensor std, *, Generator? generator=None)", infer_pair, normal_of),
    RANDOM("normal.float_float(float mean, float std, SymInt[] size, *, Generator? generator=None, " OPTIONS ")", infer_sized, normal_sized),
    RANDOM("normal_functional(Tensor self, float mean=0, float std=1, *, Generator? generator=None)", infer_like, to_normal),
    KERNEL("poisson(Tensor self, Generator? generator=None)", infer_like, "aten::poisson.out"),
    KERNEL("rand(SymInt[] size, *, " OPTIONS ")", infer_sized, "aten::rand.out"),
    RANDOM("rand_like(Tensor self, *, " LIKE_OPTIONS ")", infer_like, rand_like),
    RANDOM("randint(SymInt high, SymInt[] size, *, " LONG_OPTIONS ")", infer_sized, randint),
    KERNEL("randint.low(SymInt low, SymInt high, SymInt[] size, *, " LONG_OPTIONS ")", infer_sized, "aten::randint.low_out"),
    RANDOM("randint_like(Tensor self, SymInt high, *, " LIKE_OPTIONS ")", infer_like, randint_like),
    RANDOM("randint_like.low_dtype(Tensor self, SymInt low, SymInt high, *, " LIKE_OPTIONS ")", infer_like, randint_like),
    KERNEL("randn(SymInt[] size, *, " OPTIONS ")", infer_sized, "aten::randn.out"),
    RANDOM("randn_like(Tensor self, *, " LIKE_OPTIONS ")", infer_like, randn_like),
    RANDOM("random(Tensor self, *, Generator? generator=None)", infer_like, to_integers),
    RANDOM("random.from(Tensor self, int from, int? to, *, Generator? generator=None)", infer_like, to_integers),
    RANDOM("random.to(Tensor self, int to, *, Generator? generator=None)", infer_like, to_integers),
    KERNEL("randperm(SymInt n, *, " LONG_OPTIONS ")", infer_sized, "aten::randperm.out"),
    RANDOM("uniform(Tensor self, float from=0, float to=1, *, Generator? generator=None)", infer_like, to_uniform),
};
#undef OPTIONS
#undef LONG_OPTIONS
#undef LIKE_OPTIONS
#undef RANDOM
#undef KERNEL

}  // namespace
extern const std::span<const ir::OpDef> kOps;
const std::span<const ir::OpDef> kOps = kTable;
}  // namespace pteron::ops::random
