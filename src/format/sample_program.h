// Small programs that tests and fuzz seeds share: every kind of value, instruction and segment occurs at least once.
#pragma once

#include <array>
#include <span>

#include "format/program.h"

namespace pteron::format {

inline constexpr std::array<float, 12> kSampleWeights = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
inline constexpr std::array<float, 4> kSampleState = {3, 3, 3, 3};

/// x + w: the smallest program with a constant; runs in any runtime that has aten::add.out.
inline ProgramSpec sample_add_program() {
  ProgramSpec program;
  program.constants.push_back(Payload::borrow(std::as_bytes(std::span(kSampleWeights))));
  PlanSpec plan;
  TensorSpec tensor;
  tensor.sizes = {3, 4};
  tensor.allocation = Allocation{1, 0};
  plan.values.emplace_back(tensor);
  tensor.allocation = Allocation{1, 64};
  plan.values.emplace_back(tensor);
  tensor.allocation.reset();
  tensor.data_index = 1;
  plan.values.emplace_back(tensor);
  plan.values.emplace_back(int64_t{1});
  plan.inputs = {0};
  plan.outputs = {1};
  plan.operators = {{"aten::add", "out"}};
  plan.instructions = {KernelCall{0, {0, 2, 3, 1, 1}}};
  plan.arenas = {{128, {}}};
  program.plans.push_back(std::move(plan));
  return program;
}

/// Everything the format can say; its kernels and delegates do not exist.
inline ProgramSpec sample_full_program() {
  ProgramSpec program = sample_add_program();
  program.initial_states.push_back(Payload::borrow(std::as_bytes(std::span(kSampleState))));
  program.blobs.push_back({Payload::borrow(std::as_bytes(std::span(kSampleWeights)).first(20)), 256, 0});
  program.blobs.push_back({{}, 0, 1});
  program.blobs.push_back({});
  program.named_data = {{"weights/b", 1}, {"weights/a", 0}};
  PlanSpec plan = program.plans[0];
  plan.name = "other";
  plan.input_spec = "in";
  plan.output_spec = "out";
  TensorSpec state;
  state.sizes = {4};
  state.data_index = 1;
  state.allocation = Allocation{2, 0};
  plan.values.emplace_back(state);                                           // 4
  TensorSpec external;
  external.dtype = DType::kBFloat16;
  external.sizes = {2, 2};
  external.dim_order = {1, 0};
  external.external_name = "layer.weight";
  plan.values.emplace_back(external);                                        // 5
  TensorSpec dynamic;
  dynamic.sizes = {2, 0, 7};
  dynamic.dynamism = Dynamism::kBounded;
  plan.values.emplace_back(dynamic);                                         // 6
  plan.values.emplace_back(true);                                            // 7
  plan.values.emplace_back(2.5);                                             // 8
  plan.values.emplace_back(std::string("none"));                             // 9
  plan.values.emplace_back(NullValue{});                                     // 10
  plan.values.emplace_back(IntListValue{{3, 3}});                            // 11
  plan.values.emplace_back(DoubleListValue{{0.5, -1.0}});                    // 12
  plan.values.emplace_back(BoolListValue{{1, 0, 1}});                        // 13
  plan.values.emplace_back(TensorListValue{{0, 4}});                         // 14
  plan.values.emplace_back(OptionalTensorListValue{{-1, 0, 10}});            // 15
  plan.inputs = {0, 6};
  plan.outputs = {1, 4};
  plan.arenas = {{128, {}}, {16, Device{DeviceType::kCuda, 0}}};
  plan.delegates.push_back({"SampleBackend", 0, {{"key", {std::byte{1}, std::byte{2}}}}});
  plan.delegates.push_back({"EmptyBackend", 2, {}});
  plan.instructions.emplace_back(DelegateCall{0, {0, 1}});
  plan.instructions.emplace_back(JumpFalseCall{7, 5});
  plan.instructions.emplace_back(MoveCall{0, 1});
  plan.instructions.emplace_back(FreeCall{6});
  program.plans.push_back(std::move(plan));
  return program;
}

}  // namespace pteron::format
