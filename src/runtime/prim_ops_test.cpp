// The primitive operators, called as instructions call them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "runtime/prim_ops.h"

namespace pteron::runtime {
namespace {

Value number(int64_t i) {
  Value v;
  v.tag = Tag::kInt;
  v.integer = i;
  return v;
}
Value number(double d) {
  Value v;
  v.tag = Tag::kDouble;
  v.floating = d;
  return v;
}
Value boolean(bool b) {
  Value v;
  v.tag = Tag::kBool;
  v.integer = b;
  return v;
}

/// Calls a primitive; the result, or kNone with an error.
Value call(std::string_view name, std::vector<Value> args, Code* code = nullptr) {
  const Kernel* kernel = prim_kernels().find(name);
  EXPECT_NE(kernel, nullptr) << name;
  Value out;
  if (kernel == nullptr) return out;
  std::vector<Value*> pointers;
  for (Value& arg : args) pointers.push_back(&arg);
  pointers.push_back(&out);
  KernelContext context;
  const Status status = kernel->fn(context, pointers);
  if (code != nullptr) {
    *code = status.code();
  } else {
    EXPECT_TRUE(status.ok()) << name << ": " << status.message();
  }
  return out;
}

std::string text(const Value& v) {
  switch (v.tag) {
    case Tag::kInt: return std::to_string(v.integer);
    case Tag::kBool: return v.integer != 0 ? "True" : "False";
    case Tag::kDouble: return "f" + std::to_string(v.floating);
    default: return "none";
  }
}

TEST(PrimOps, AllOfExecutorchAndOurs) {
  EXPECT_EQ(prim_kernels().rows().size(), 28u + 19u);  // ours: view_strided and what executorch_prim lacks
}

TEST(PrimOps, PythonArithmetic) {
  struct Row {
    const char* name;
    std::vector<Value> args;
    const char* expected;  // what Python prints, floats with six digits
  };
  const Row rows[] = {
      {"executorch_prim::add.Scalar", {number(int64_t{2}), number(int64_t{3})}, "5"},
      {"executorch_prim::add.Scalar", {number(int64_t{2}), number(0.5)}, "f2.500000"},
      {"executorch_prim::sub.Scalar", {number(int64_t{2}), number(int64_t{3})}, "-1"},
      {"executorch_prim::mul.Scalar", {number(int64_t{-2}), number(int64_t{3})}, "-6"},
      {"executorch_prim::floordiv.Scalar", {number(int64_t{-7}), number(int64_t{2})}, "-4"},
      {"executorch_prim::floordiv.int", {number(int64_t{7}), number(int64_t{-2})}, "-4"},
      {"executorch_prim::floordiv.Scalar", {number(-7.5), number(2.0)}, "f-4.000000"},
      {"executorch_prim::mod.Scalar", {number(int64_t{-7}), number(int64_t{3})}, "2"},
      {"executorch_prim::mod.int", {number(int64_t{7}), number(int64_t{-3})}, "-2"},
      {"executorch_prim::mod.int", {number(std::numeric_limits<int64_t>::min()), number(int64_t{-1})}, "0"},
      {"executorch_prim::mod.Scalar", {number(-7.5), number(2.0)}, "f0.500000"},
      {"executorch_prim::truediv.Scalar", {number(int64_t{7}), number(int64_t{2})}, "f3.500000"},
      {"executorch_prim::sym_max.Scalar", {number(int64_t{7}), number(int64_t{2})}, "7"},
      {"executorch_prim::sym_min.Scalar", {number(int64_t{7}), number(2.0)}, "f2.000000"},
      {"executorch_prim::eq.Scalar", {number(int64_t{2}), number(2.0)}, "True"},
      {"executorch_prim::gt.Scalar", {number(int64_t{2}), number(int64_t{2})}, "False"},
      {"executorch_prim::ge.Scalar", {number(int64_t{2}), number(int64_t{2})}, "True"},
      {"executorch_prim::lt.Scalar", {number(1.5), number(int64_t{2})}, "True"},
      {"executorch_prim::le.Scalar", {number(int64_t{3}), number(int64_t{2})}, "False"},
      {"executorch_prim::neg.Scalar", {number(int64_t{3})}, "-3"},
      {"executorch_prim::neg.Scalar", {number(1.5)}, "f-1.500000"},
      {"executorch_prim::sym_not.Scalar", {boolean(true)}, "False"},
      {"executorch_prim::sym_float.Scalar", {number(int64_t{3})}, "f3.000000"},
      {"executorch_prim::sym_int.Scalar", {number(-2.7)}, "-2"},
      {"executorch_prim::trunc.Scalar", {number(2.7)}, "2"},
      {"executorch_prim::ceil.Scalar", {number(2.1)}, "3"},
      {"executorch_prim::round.Scalar", {number(2.5)}, "2"},
      {"executorch_prim::round.Scalar", {number(3.5)}, "4"},
      {"executorch_prim::sym_ite.Scalar", {boolean(true), number(int64_t{1}), number(2.0)}, "1"},
      {"executorch_prim::sym_ite.Scalar", {boolean(false), number(int64_t{1}), number(2.0)}, "f2.000000"},
      {"pteron::pow.Scalar", {number(6.0), number(0.5)}, "f2.449490"},
      {"pteron::pow.Scalar", {number(int64_t{4}), number(-0.5)}, "f0.500000"},
      {"pteron::pow.Scalar", {number(int64_t{-3}), number(int64_t{5})}, "-243"},
      {"pteron::pow.Scalar", {number(int64_t{0}), number(int64_t{0})}, "1"},
      {"pteron::pow.Scalar", {number(int64_t{-1}), number(std::numeric_limits<int64_t>::max())}, "-1"},
      {"pteron::pow.Scalar", {number(int64_t{-2}), number(int64_t{63})}, "-9223372036854775808"},
      {"pteron::sqrt.Scalar", {number(int64_t{9})}, "f3.000000"},
      {"pteron::log2.Scalar", {number(int64_t{8})}, "f3.000000"},
      {"pteron::atan.Scalar", {number(1.0)}, "f0.785398"},
      {"pteron::bitwise_and.Scalar", {number(int64_t{-2}), number(int64_t{7})}, "6"},
      {"pteron::bitwise_or.Scalar", {number(int64_t{6}), number(int64_t{1})}, "7"},
      {"pteron::bitwise_xor.Scalar", {number(int64_t{6}), number(int64_t{3})}, "5"},
  };
  for (const Row& row : rows) EXPECT_EQ(text(call(row.name, row.args)), row.expected) << row.name;
}

TEST(PrimOps, RefuseWhatHasNoAnswer) {
  const auto code = [](std::string_view name, std::vector<Value> args) {
    Code made = Code::kOk;
    call(name, std::move(args), &made);
    return made;
  };
  const int64_t smallest = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(code("executorch_prim::add.Scalar", {number(smallest), number(int64_t{-1})}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::mul.Scalar", {number(smallest), number(int64_t{2})}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::neg.Scalar", {number(smallest)}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::floordiv.int", {number(smallest), number(int64_t{-1})}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::floordiv.Scalar", {number(int64_t{1}), number(int64_t{0})}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::mod.Scalar", {number(1.0), number(0.0)}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::truediv.Scalar", {number(1.0), number(int64_t{0})}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::sym_int.Scalar", {number(std::nan(""))}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::ceil.Scalar", {number(1e300)}), Code::kInternal);
  EXPECT_EQ(code("executorch_prim::add.Scalar", {Value(), number(1.0)}), Code::kInvalidFile);
  EXPECT_EQ(code("pteron::pow.Scalar", {number(int64_t{2}), number(int64_t{63})}), Code::kInternal);
  EXPECT_EQ(code("pteron::pow.Scalar", {number(int64_t{2}), number(int64_t{-1})}), Code::kInternal);
  EXPECT_EQ(code("pteron::pow.Scalar", {number(-2.0), number(0.5)}), Code::kInternal);
  EXPECT_EQ(code("pteron::pow.Scalar", {number(0.0), number(-0.5)}), Code::kInternal);
  EXPECT_EQ(code("pteron::pow.Scalar", {number(1e300), number(2.0)}), Code::kInternal);
  EXPECT_EQ(code("pteron::sqrt.Scalar", {number(int64_t{-1})}), Code::kInternal);
  EXPECT_EQ(code("pteron::log.Scalar", {number(int64_t{0})}), Code::kInternal);
  EXPECT_EQ(code("pteron::bitwise_or.Scalar", {number(1.0), number(int64_t{1})}), Code::kInvalidFile);
}

Value tensor(std::vector<float>& data, std::vector<int64_t> sizes, std::vector<int64_t> bound = {}) {
  Value v;
  v.tag = Tag::kTensor;
  v.tensor.view = make_contiguous_view(DType::kFloat32, sizes, data.data());
  v.tensor.dynamic = !bound.empty();
  if (bound.empty()) bound = sizes;
  for (size_t d = 0; d < bound.size(); ++d) {
    v.tensor.bound[d] = bound[d];
    v.tensor.dim_order[d] = static_cast<uint8_t>(d);
  }
  v.tensor.capacity_bytes = data.size() * sizeof(float);
  return v;
}

TEST(PrimOps, SizesAndItems) {
  std::vector<float> data(6, 2.5f);
  EXPECT_EQ(text(call("aten::sym_size.int", {tensor(data, {2, 3}), number(int64_t{-1})})), "3");
  EXPECT_EQ(text(call("aten::sym_numel", {tensor(data, {2, 3})})), "6");
  EXPECT_EQ(text(call("aten::_local_scalar_dense", {tensor(data, {1})})), "f2.500000");
  Code code = Code::kOk;
  call("aten::sym_size.int", {tensor(data, {2, 3}), number(int64_t{2})}, &code);
  EXPECT_EQ(code, Code::kInvalidInput);
  call("aten::_local_scalar_dense", {tensor(data, {0})}, &code);
  EXPECT_EQ(code, Code::kInvalidInput);
}

TEST(PrimOps, CopyIndexGrowsItsTarget) {
  std::vector<float> to_data(6, 0), from_data = {1, 2};
  Value to = tensor(to_data, {3, 2}, {3, 2}), from = tensor(from_data, {2}), index = number(int64_t{0});
  KernelContext context;
  Value* arg_list[] = {&to, &from, &index};
  const std::span<Value* const> args(arg_list);
  const KernelFn copy = prim_kernels().find("executorch_prim::et_copy_index.tensor")->fn;
  for (int64_t i = 0; i < 3; ++i) {
    index.integer = i;
    ASSERT_TRUE(copy(context, args).ok());
    EXPECT_EQ(to.tensor.size(0), i + 1);
  }
  EXPECT_EQ(to_data, (std::vector<float>{1, 2, 1, 2, 1, 2}));
  index.integer = 3;
  EXPECT_EQ(copy(context, args).code(), Code::kInvalidInput);
  index.integer = std::numeric_limits<int64_t>::max();
  EXPECT_FALSE(copy(context, args).ok());
}

TEST(PrimOps, ReshapesWithoutCopy) {
  std::vector<float> data(6, 0), none;
  Value self = tensor(data, {2, 3}), out = tensor(none, {3, 2});
  out.tensor.view.data = nullptr;
  Value three = number(int64_t{3}), any = number(int64_t{-1}), bad = number(int64_t{4});
  Value* items[] = {&three, &any};
  Value sizes;
  sizes.tag = Tag::kIntList;
  sizes.items = items;
  KernelContext context;
  Value* arg_list[] = {&self, &sizes, &out, &out};
  const std::span<Value* const> args(arg_list);
  const KernelFn view = prim_kernels().find("executorch_prim::et_view.default")->fn;
  ASSERT_TRUE(view(context, args).ok());
  EXPECT_EQ(out.tensor.view.data, data.data());
  EXPECT_EQ(out.tensor.capacity_bytes, 24u);
  items[0] = &bad;
  EXPECT_EQ(view(context, args).code(), Code::kInvalidInput);
}

TEST(Resize, NeverGrowsBeyondWhatAViewHolds) {
  std::vector<float> data(4, 0);
  Value v = tensor(data, {2}, {8});
  EXPECT_TRUE(resize(v.tensor, std::vector<int64_t>{4}).ok());
  EXPECT_EQ(resize(v.tensor, std::vector<int64_t>{5}).code(), Code::kInvalidInput);  // within the bound, not within the bytes
  EXPECT_EQ(resize(v.tensor, std::vector<int64_t>{9}).code(), Code::kInvalidInput);
}

}  // namespace
}  // namespace pteron::runtime
