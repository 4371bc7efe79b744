// Tensors on devices in files: what load refuses, so that no kernel ever touches such memory; and copies.
#include <gtest/gtest.h>

#include <functional>

#include "runtime/test_host_device.h"
#include "runtime/test_program.h"

namespace pteron::runtime::testing {
namespace {

constexpr Device kCuda0{DeviceType::kCuda, 0}, kCuda1{DeviceType::kCuda, 1};

/// A program with a host arena (1) and one of cuda:0 (2), each of 256 bytes.
struct DevicePlan : PlanBuilder {
  DevicePlan() { plan.arenas = {{256, {}}, {256, kCuda0}}; }
  static format::TensorSpec on_device(uint64_t offset = 0, Device device = kCuda0) {
    format::TensorSpec spec = tensor({3});
    spec.device = device;
    spec.allocation = format::Allocation{2, offset};
    return spec;
  }
  static format::TensorSpec on_host(uint64_t offset = 0) {
    format::TensorSpec spec = tensor({3});
    spec.allocation = format::Allocation{1, offset};
    return spec;
  }
};

TEST(Devices, ACopyThereAndBack) {
  HostDevice device;
  LoadOptions options = test_options();
  options.device_allocators = {&device};
  DevicePlan plan;
  const int32_t x = plan.value(DevicePlan::tensor({3})), there = plan.value(DevicePlan::on_device()), other = plan.value(DevicePlan::on_device(128)), back = plan.value(DevicePlan::on_host());
  plan.plan.inputs = {x};
  plan.plan.outputs = {back};
  plan.call("et_copy::_h2d_copy", "out", {x, there, there});
  plan.call("pteron::device_copy", "out", {there, other, other});
  plan.call("et_copy::_d2h_copy", "out", {other, back});  // once is enough
  {
    Loaded loaded = load(plan, options);
    ASSERT_NE(loaded.method, nullptr);
    std::vector<float> data = {1, 2, 3};
    EXPECT_OK(loaded.method->set_input(0, view_of(data, {3})));
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), data);
    EXPECT_EQ(device.copies, 3);
    EXPECT_EQ(device.zeroed, 1);
    device.fail = true;
    loaded.method->reset();
    EXPECT_EQ(device.zeroed, 2);
    EXPECT_OK(loaded.method->set_input(0, view_of(data, {3})));
    EXPECT_ERROR(loaded.method->execute(), Code::kUnavailable, "reset: the device is gone");
    device.fail = false;
    loaded.method->reset();
    EXPECT_OK(loaded.method->set_input(0, view_of(data, {3})));
    EXPECT_OK(loaded.method->execute());
  }
  EXPECT_EQ(device.live, 0);
}

TEST(Devices, WhatLoadRefuses) {
  HostDevice device;
  struct Row {
    Code code;
    const char* part;
    std::function<void(DevicePlan&)> make;
    bool has_device = true;
  };
  const Row rows[] = {
      {Code::kUnavailable, "arena 2 (planned memory) lies on cuda:0, and no backend of this runtime has memory of such a device", [](DevicePlan&) {}, false},
      {Code::kInvalidFile, "instruction 0 (aten::add.out) gets a tensor on cuda:0, and takes tensors of the host only",
       [](DevicePlan& p) {
         const int32_t a = p.value(DevicePlan::on_host()), b = p.value(DevicePlan::on_device()), one = p.value(int64_t{1}), c = p.value(DevicePlan::on_host(64));
         p.call("aten::add", "out", {a, b, one, c, c});
       }},
      {Code::kInvalidFile, "gets a tensor on cuda:0",
       [](DevicePlan& p) {
         const int32_t a = p.value(DevicePlan::on_host()), one = p.value(int64_t{1}), c = p.value(DevicePlan::on_device());
         p.call("aten::add", "out", {a, a, one, c, c});
       }},
      {Code::kInvalidFile, "a tensor on cuda:0 is planned in arena 1, which lies on cpu",
       [](DevicePlan& p) {
         format::TensorSpec spec = DevicePlan::on_host();
         spec.device = kCuda0;
         p.value(spec);
       }},
      {Code::kInvalidFile, "a tensor on cpu is planned in arena 2, which lies on cuda:0",
       [](DevicePlan& p) {
         format::TensorSpec spec = DevicePlan::on_device();
         spec.device = {};
         p.value(spec);
       }},
      {Code::kInvalidFile, "a tensor on cuda:1 is planned in arena 2, which lies on cuda:0", [](DevicePlan& p) { p.value(DevicePlan::on_device(0, kCuda1)); }},
      {Code::kInvalidFile, "a copy from cuda:0 to cuda:1",
       [](DevicePlan& p) {
         p.plan.arenas.push_back({64, kCuda1});
         format::TensorSpec to = DevicePlan::on_device(0, kCuda1);
         to.allocation->memory_id = 3;
         const int32_t a = p.value(DevicePlan::on_device()), b = p.value(to);
         p.call("pteron::device_copy", "out", {a, b, b});
       }},
      {Code::kInvalidFile, "expected a tensor and where it goes",
       [](DevicePlan& p) {
         const int32_t a = p.value(DevicePlan::on_device());
         p.call("et_copy::_h2d_copy", "out", {a});
       }},
      {Code::kInvalidFile, "expected a tensor and where it goes",
       [](DevicePlan& p) {
         const int32_t a = p.value(DevicePlan::on_host()), one = p.value(int64_t{1});
         p.call("et_copy::_h2d_copy", "out", {a, one, one});
       }},
      {Code::kInvalidFile, "expected a tensor and where it goes",
       [](DevicePlan& p) {
         const int32_t a = p.value(DevicePlan::on_host()), b = p.value(DevicePlan::on_device()), c = p.value(DevicePlan::on_device(64));
         p.call("et_copy::_h2d_copy", "out", {a, b, c});
       }},
      {Code::kInvalidFile, "tensors of different dtypes or ranks",
       [](DevicePlan& p) {
         format::TensorSpec spec = DevicePlan::on_device();
         spec.dtype = DType::kInt32;
         const int32_t a = p.value(DevicePlan::on_host()), b = p.value(spec);
         p.call("et_copy::_h2d_copy", "out", {a, b, b});
       }},
      {Code::kInvalidFile, "move) gets a tensor on cuda:0",
       [](DevicePlan& p) {
         const int32_t a = p.value(DevicePlan::on_device()), b = p.value(DevicePlan::on_device(64));
         p.plan.instructions.push_back(format::MoveCall{a, b});
       }},
      {Code::kUnsupported, "is written by an instruction: only planned ones may be",
       [](DevicePlan& p) {
         format::TensorSpec spec = DevicePlan::tensor({3});
         spec.device = kCuda0;
         const int32_t a = p.value(DevicePlan::on_host()), b = p.value(spec);
         p.plan.inputs = {b};
         p.call("et_copy::_h2d_copy", "out", {a, b, b});
       }},
  };
  for (const Row& row : rows) {
    DevicePlan plan;
    row.make(plan);
    LoadOptions options = test_options();
    if (row.has_device) options.device_allocators = {&device};
    EXPECT_ERROR(load_error(plan, options), row.code, row.part);
    EXPECT_EQ(device.live, 0) << row.part;
  }
}

}  // namespace
}  // namespace pteron::runtime::testing
