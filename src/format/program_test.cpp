// Tests of the .pte writer and verified reader: round trip, documented byte layout, and one damaged program per check.
#include "format/program.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "base/str_cat.h"
#include "format/layout.h"
#include "format/program_view.h"
#include "format/sample_program.h"

namespace pteron::format {
namespace {

namespace pte = wire::pte;

std::vector<std::byte> written(const ProgramSpec& program, uint64_t alignment = 64) {
  MemorySink sink;
  const Status status = write_program(program, {alignment}, sink);
  EXPECT_TRUE(status.ok()) << status.message();
  return {sink.bytes().begin(), sink.bytes().end()};
}

TEST(ProgramFile, HeaderHasTheDocumentedNumbers) {
  const std::vector<std::byte> file = written(sample_add_program());
  EXPECT_EQ(read_tag(file, 4), "ET12");
  EXPECT_EQ(read_tag(file, 8), "eh00");
  EXPECT_EQ(read_number<uint32_t>(file, 12), 32u);
  const uint64_t program_bytes = read_number<uint64_t>(file, 16), base = read_number<uint64_t>(file, 24);
  EXPECT_EQ(base % 128, 0u);
  EXPECT_LT(base - program_bytes, 128u);
  EXPECT_EQ(read_number<uint64_t>(file, 32), 48u);
  EXPECT_EQ(file.size(), base + 48);
  for (size_t i = 40; i < 72; ++i) EXPECT_EQ(file[i], std::byte{0}) << i;
  // With the default of the official writer there is no padding behind the header.
  const std::vector<std::byte> narrow = written(sample_add_program(), 16);
  EXPECT_EQ(read_number<uint32_t>(narrow, 0) + 32, read_number<uint32_t>(file, 0));
}

TEST(ProgramFile, ConstantsArePlacedAsDocumented) {
  // pte.md: weights of 48, 16 and 20 bytes give offsets 0,0,48,64 at alignment 16 and 0,0,64,128 at 64.
  const std::array<std::byte, 48> bytes{};
  for (const uint64_t alignment : {16u, 64u}) {
    ProgramSpec program = sample_add_program();
    program.constants = {Payload::borrow(bytes), Payload::borrow(std::span(bytes).first(16)), Payload::borrow(std::span(bytes).first(20))};
    const std::vector<std::byte> file = written(program, alignment);
    auto view = verify_program(file);
    ASSERT_TRUE(view.ok()) << view.status().message();
    const auto offsets = items_of(view->root().constant_segment()->offsets());
    const std::vector<uint64_t> expected = alignment == 16 ? std::vector<uint64_t>{0, 0, 48, 64} : std::vector<uint64_t>{0, 0, 64, 128};
    EXPECT_EQ(std::vector<uint64_t>(offsets.begin(), offsets.end()), expected);
    EXPECT_EQ(view->segment(0).size(), alignment == 16 ? 84u : 148u);
  }
}

TEST(ProgramFile, WithoutDataThereIsNoHeader) {
  ProgramSpec program = sample_add_program();
  program.constants.clear();
  std::get<TensorSpec>(program.plans[0].values[2]).data_index = 0;
  const std::vector<std::byte> file = written(program);
  EXPECT_NE(read_tag(file, 8), "eh00");
  auto view = verify_program(file);
  ASSERT_TRUE(view.ok()) << view.status().message();
  EXPECT_EQ(count_of(view->root().segments()), 1u);
  EXPECT_EQ(view->root().segments()->Get(0)->size(), 0u);
  EXPECT_EQ(count_of(view->root().constant_segment()->offsets()), 1u);
  EXPECT_EQ(view->header().header_bytes, 0u);
}

TEST(ProgramFile, EveryVectorIsWritten) {
  const std::vector<std::byte> file = written(sample_add_program());
  auto view = verify_program(file);
  ASSERT_TRUE(view.ok());
  const pte::Program& root = view->root();
  EXPECT_TRUE(root.execution_plan() && root.constant_buffer() && root.backend_delegate_data() && root.segments() && root.constant_segment() &&
              root.mutable_data_segments() && root.named_data());
  const pte::ExecutionPlan& plan = view->plan(0);
  EXPECT_TRUE(plan.values() && plan.inputs() && plan.outputs() && plan.chains() && plan.operators() && plan.delegates() &&
              plan.non_const_buffer_sizes() && plan.container_meta_type());
  const pte::Chain& chain = *plan.chains()->Get(0);
  EXPECT_TRUE(chain.inputs() && chain.outputs() && chain.instructions());
  EXPECT_EQ(plan.non_const_buffer_device(), nullptr);
}

TEST(ProgramFile, FullRoundTrip) {
  const std::vector<std::byte> file = written(sample_full_program());
  auto view = verify_program(file);
  ASSERT_TRUE(view.ok()) << view.status().message();
  ASSERT_EQ(view->plan_count(), 2u);
  EXPECT_EQ(view->find_plan("other"), 1);
  EXPECT_EQ(view->find_plan("none"), -1);
  const pte::ExecutionPlan& plan = view->plan(1);
  const auto value = [&](uint32_t i) { return plan.values()->Get(i); };
  const auto constant = view->constant(*value(2)->val_as_Tensor());
  ASSERT_EQ(constant.size(), 48u);
  EXPECT_EQ(std::memcmp(constant.data(), kSampleWeights.data(), 48), 0);
  EXPECT_EQ((constant.data() - file.data()) % 64, 0);
  const auto state = view->initial_state(*value(4)->val_as_Tensor());
  ASSERT_EQ(state.size(), 16u);
  EXPECT_EQ(std::memcmp(state.data(), kSampleState.data(), 16), 0);
  EXPECT_TRUE(is_external(*value(5)->val_as_Tensor()));
  EXPECT_EQ(text_of(value(5)->val_as_Tensor()->extra_tensor_info()->fully_qualified_name()), "layer.weight");
  EXPECT_EQ(tensor_bytes(*value(6)->val_as_Tensor()), 0u);
  EXPECT_EQ(value(7)->val_as_Bool()->bool_val(), true);
  EXPECT_EQ(value(8)->val_as_Double()->double_val(), 2.5);
  EXPECT_EQ(text_of(value(9)->val_as_String()->string_val()), "none");
  EXPECT_EQ(items_of(value(15)->val_as_OptionalTensorList()->items())[0], -1);
  EXPECT_EQ(view->delegate_payload(*plan.delegates()->Get(0)).size(), 20u);
  EXPECT_EQ(view->delegate_payload(*plan.delegates()->Get(1)).size(), 0u);
  EXPECT_EQ(plan.delegates()->Get(1)->processed()->location(), pte::DataLocation::INLINE);
  EXPECT_EQ(plan.non_const_buffer_device()->Get(0)->buffer_idx(), 2);
  EXPECT_EQ(view->arena_bytes(1, 1), 112u);
  EXPECT_EQ(view->arena_bytes(1, 2), 16u);
  ASSERT_TRUE(view->named_data("weights/a").has_value());
  EXPECT_EQ(view->named_data("weights/a")->size(), 20u);
  // A constant under a second name: the same bytes of the file, stored once.
  EXPECT_EQ(view->named_data("weights/b")->data(), constant.data());
  EXPECT_FALSE(view->named_data("weights/c").has_value());
}

TEST(ProgramFile, ReadBackAndWrittenAgain) {
  const std::vector<std::byte> add = written(sample_add_program());
  const auto view = verify_program(add);
  ASSERT_TRUE(view.ok());
  EXPECT_EQ(written(*read_program(*view)), add);
  // Equal bytes of the sample become one, so its own file is another; from then on nothing changes.
  ProgramSpec full = sample_full_program();
  std::get<TensorSpec>(full.plans[1].values[4]).buffer_name = "cache";
  const std::vector<std::byte> first = written(full);
  const auto first_view = verify_program(first);
  ASSERT_TRUE(first_view.ok());
  const auto spec = read_program(*first_view);
  ASSERT_TRUE(spec.ok());
  const std::vector<std::byte> second = written(*spec);
  const auto second_view = verify_program(second);
  ASSERT_TRUE(second_view.ok()) << second_view.status().message();
  EXPECT_EQ(written(*read_program(*second_view)), second);
  ASSERT_EQ(spec->plans.size(), full.plans.size());
  for (size_t i = 0; i < full.plans.size(); ++i) {
    const PlanSpec &a = full.plans[i], &b = spec->plans[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.input_spec, b.input_spec);
    EXPECT_EQ(a.inputs, b.inputs);
    EXPECT_EQ(a.outputs, b.outputs);
    EXPECT_EQ(a.instructions.size(), b.instructions.size());
    ASSERT_EQ(a.values.size(), b.values.size());
    for (size_t v = 0; v < a.values.size(); ++v) EXPECT_EQ(a.values[v].index(), b.values[v].index()) << v;
    ASSERT_EQ(a.delegates.size(), b.delegates.size());
    for (size_t d = 0; d < a.delegates.size(); ++d) {
      EXPECT_EQ(a.delegates[d].id, b.delegates[d].id);
      EXPECT_EQ(a.delegates[d].compile_specs.size(), b.delegates[d].compile_specs.size());
    }
    ASSERT_EQ(a.arenas.size(), b.arenas.size());
    for (size_t m = 0; m < a.arenas.size(); ++m) EXPECT_TRUE(a.arenas[m].size_bytes == b.arenas[m].size_bytes && a.arenas[m].device == b.arenas[m].device);
  }
  const auto& state = std::get<TensorSpec>(spec->plans[1].values[4]);
  EXPECT_TRUE(state.data_index == 1 && state.allocation->memory_id == 2 && state.buffer_name == "cache");
  EXPECT_EQ(std::get<TensorSpec>(spec->plans[1].values[5]).external_name, "layer.weight");
  EXPECT_EQ(std::get<TensorSpec>(spec->plans[1].values[6]).dynamism, Dynamism::kBounded);
  EXPECT_EQ(std::get<OptionalTensorListValue>(spec->plans[1].values[15]).items, (std::vector<int32_t>{-1, 0, 10}));
  EXPECT_EQ(spec->named_data.size(), 2u);
  EXPECT_EQ(second_view->named_data("weights/a")->size(), 20u);
  EXPECT_EQ(second_view->named_data("weights/b")->size(), 48u);
}

TEST(ProgramFile, OverlappingConstantsAreNotReadBack) {
  const std::vector<float> bytes(4096, 1.5f);
  ProgramSpec program;
  program.constants.push_back(Payload::borrow(std::as_bytes(std::span(bytes))));
  PlanSpec plan;
  for (int64_t i = 0; i < 8; ++i) {
    TensorSpec tensor;
    tensor.sizes = {4096 - i};
    tensor.data_index = 1;
    plan.values.emplace_back(tensor);
  }
  program.plans.push_back(std::move(plan));
  const std::vector<std::byte> file = written(program);
  const auto view = verify_program(file);
  ASSERT_TRUE(view.ok());
  const auto spec = read_program(*view);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.status().code(), Code::kInvalidFile);
}

TEST(ProgramFile, EqualInputGivesEqualBytes) { EXPECT_EQ(written(sample_full_program()), written(sample_full_program())); }

TEST(ProgramFile, ReadsFromAnyAddress) {
  const std::vector<std::byte> file = written(sample_full_program());
  std::vector<std::byte> room(file.size() + 16);
  for (size_t shift = 0; shift < 16; ++shift) {
    std::memcpy(room.data() + shift, file.data(), file.size());
    auto view = verify_program({room.data() + shift, file.size()});
    ASSERT_TRUE(view.ok()) << shift << ": " << view.status().message();
    ProgramView moved = std::move(*view);
    EXPECT_EQ(moved.named_data("weights/a")->size(), 20u);
  }
}

TEST(ProgramFile, GathersStridedConstantsInDimOrder) {
  ProgramSpec program = sample_add_program();
  StridedBytes strided;
  strided.sizes = {3, 4};
  strided.strides = {1, 3};
  strided.data = reinterpret_cast<const std::byte*>(kSampleWeights.data());
  auto row_major = Payload::gather(strided);
  strided.dim_order = {1, 0};
  auto as_stored = Payload::gather(strided);
  ASSERT_TRUE(row_major.ok() && as_stored.ok());
  program.constants = {*row_major, *as_stored};
  const std::vector<std::byte> file = written(program);
  auto view = verify_program(file);
  ASSERT_TRUE(view.ok());
  std::array<float, 12> got{};
  std::memcpy(got.data(), view->segment(0).data(), 48);
  EXPECT_EQ(got, (std::array<float, 12>{1, 4, 7, 10, 2, 5, 8, 11, 3, 6, 9, 12}));
  EXPECT_EQ(std::memcmp(view->segment(0).data() + 64, kSampleWeights.data(), 48), 0);
  strided.dim_order = {0, 0};
  EXPECT_EQ(Payload::gather(strided).status().code(), Code::kInvalidInput);
  strided.dim_order = {};
  strided.strides = {int64_t{1} << 62, int64_t{1} << 62};
  EXPECT_EQ(Payload::gather(strided).status().code(), Code::kInvalidInput);
}

TEST(ProgramFile, ProducersAreAskedOnceAndChecked) {
  ProgramSpec program = sample_add_program();
  int calls = 0;
  const auto make = [&](uint64_t bytes) {
    return [&calls, bytes]() -> Result<Buffer> {
      ++calls;
      return Buffer::create_zeroed(bytes);
    };
  };
  program.constants[0] = Payload::produce(48, make(48));
  EXPECT_EQ(written(program).size() % 4, 0u);
  EXPECT_EQ(calls, 1);
  program.constants[0] = Payload::produce(48, make(47));
  MemorySink sink;
  EXPECT_EQ(write_program(program, {}, sink).code(), Code::kInternal);
  program.constants[0] = Payload::produce(48, []() -> Result<Buffer> { return Status(Code::kUnavailable, "gone"); });
  EXPECT_EQ(write_program(program, {}, sink).code(), Code::kUnavailable);
}

TEST(ProgramFile, WriterRefusesSpecsThatNoReaderWouldTake) {
  const std::vector<std::pair<const char*, std::function<void(ProgramSpec&)>>> kFaults = {
      {"value index 9", [](ProgramSpec& p) { p.plans[0].outputs = {9}; }},
      {"operator index 1", [](ProgramSpec& p) { p.plans[0].instructions = {KernelCall{1, {}}}; }},
      {"arena index 2", [](ProgramSpec& p) { std::get<TensorSpec>(p.plans[0].values[0]).allocation->memory_id = 2; }},
      {"do not fit in arena", [](ProgramSpec& p) { std::get<TensorSpec>(p.plans[0].values[0]).allocation->offset = uint64_t{1} << 40; }},
      {"data index 2", [](ProgramSpec& p) { std::get<TensorSpec>(p.plans[0].values[2]).data_index = 2; }},
      {"do not fit in the segment", [](ProgramSpec& p) { std::get<TensorSpec>(p.plans[0].values[2]).sizes = {3, 5}; }},
      {"below 2^31", [](ProgramSpec& p) { std::get<TensorSpec>(p.plans[0].values[2]).sizes = {int64_t{1} << 31}; }},
      {"permutation", [](ProgramSpec& p) { std::get<TensorSpec>(p.plans[0].values[2]).dim_order = {1, 1}; }},
      {"names blob 0", [](ProgramSpec& p) { p.named_data = {{"x", 0}}; }},
      {"names blob 0", [](ProgramSpec& p) { p.plans[0].delegates = {{"x", 0, {}}}; }},
      {"names constant 2", [](ProgramSpec& p) { p.blobs.push_back({{}, 0, 2}); }},
      {"occurs twice", [](ProgramSpec& p) { p.plans.push_back(p.plans[0]); }},
      {"alignment 24", [](ProgramSpec& p) { p.blobs.push_back({{}, 24, 0}); }},
  };
  for (const auto& [text, damage] : kFaults) {
    ProgramSpec program = sample_add_program();
    damage(program);
    MemorySink sink;
    const Status status = write_program(program, {}, sink);
    EXPECT_EQ(status.code(), Code::kInvalidInput) << text;
    EXPECT_NE(status.message().find(text), std::string_view::npos) << text << ": " << status.message();
    EXPECT_TRUE(sink.bytes().empty());
  }
}

/// Changes one scalar of a written program through the mutable generated interface's offsets and expects an error.
class DamagedProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    file_ = written(sample_full_program());
    auto view = verify_program(file_);
    ASSERT_TRUE(view.ok()) << view.status().message();
    root_ = pte::GetProgram(file_.data());
    plan_ = root_->execution_plan()->Get(1);
  }
  const pte::Tensor* tensor(uint32_t i) { return plan_->values()->Get(i)->val_as_Tensor(); }
  template <typename T>
  static T* field(const void* table, uint16_t slot) {
    const auto* t = static_cast<const flatbuffers::Table*>(table);
    const uint8_t* address = t->GetAddressOf(slot);
    EXPECT_NE(address, nullptr) << "the field has its default value and is not stored";
    return const_cast<T*>(reinterpret_cast<const T*>(address));
  }
  template <typename T>
  static T* item(const flatbuffers::Vector<T>* vector, uint32_t i) {
    return const_cast<T*>(reinterpret_cast<const T*>(vector->Data())) + i;
  }
  /// Sets *at to value, expects the text in an error, then restores it.
  template <typename T>
  void expect_refused(T* at, T value, std::string_view text) {
    const T before = *at;
    *at = value;
    auto view = verify_program(file_);
    ASSERT_FALSE(view.ok()) << text;
    EXPECT_EQ(view.status().code(), Code::kInvalidFile) << text;
    EXPECT_NE(view.status().message().find(text), std::string_view::npos) << text << ": " << view.status().message();
    *at = before;
    EXPECT_TRUE(verify_program(file_).ok());
  }
  std::vector<std::byte> file_;
  const pte::Program* root_ = nullptr;
  const pte::ExecutionPlan* plan_ = nullptr;
};

TEST_F(DamagedProgram, LoopsThatNothingEnds) {
  const auto* jump = plan_->chains()->Get(0)->instructions()->Get(2)->instr_args_as_JumpFalseCall();
  auto* destination = field<int32_t>(jump, pte::JumpFalseCall::VT_DESTINATION_INSTRUCTION);
  *field<uint8_t>(plan_->values()->Get(7)->val_as_Bool(), pte::Bool::VT_BOOL_VAL) = 0;
  expect_refused<int32_t>(destination, 2, "instruction 2 jumps back to instruction 2 on a condition that is always false");
  expect_refused<int32_t>(destination, 1, "endless loop");
}

TEST(ProgramFile, LoopsThatSomethingEndsAreTaken) {
  const auto status_of = [](std::vector<InstructionSpec> instructions) {
    ProgramSpec program = sample_add_program();
    PlanSpec& plan = program.plans[0];
    const auto never = static_cast<int32_t>(plan.values.size()), known = never + 1;
    plan.values.emplace_back(false);
    plan.values.emplace_back(true);
    for (InstructionSpec& instruction : instructions) {
      if (auto* jump = std::get_if<JumpFalseCall>(&instruction)) jump->condition = jump->condition == 0 ? never : known;
      if (auto* move = std::get_if<MoveCall>(&instruction)) move->from = move->from == 0 ? never : known, move->to = move->to == 0 ? never : known;
    }
    plan.instructions = std::move(instructions);
    MemorySink sink;
    return write_program(program, {}, sink);
  };
  for (const Status& status : {status_of({JumpFalseCall{0, 0}}), status_of({MoveCall{0, 1}, JumpFalseCall{0, 0}}),
                               status_of({JumpFalseCall{1, 2}, MoveCall{0, 1}, JumpFalseCall{0, 0}})}) {
    EXPECT_NE(status.message().find("endless loop"), std::string_view::npos) << status.message();
  }
  EXPECT_TRUE(status_of({JumpFalseCall{1, 3}, MoveCall{0, 1}, JumpFalseCall{0, 0}}).ok());  // while (known) { known = false; }
  EXPECT_TRUE(status_of({MoveCall{1, 0}, JumpFalseCall{0, 0}}).ok());                       // a condition that is written
  EXPECT_TRUE(status_of({JumpFalseCall{0, 1}}).ok());                                       // ahead
}

TEST_F(DamagedProgram, Header) {
  auto* bytes = file_.data();
  expect_refused<uint8_t>(reinterpret_cast<uint8_t*>(bytes) + 4, 'X', "identifier ET12");
  expect_refused<uint8_t>(reinterpret_cast<uint8_t*>(bytes) + 8, 'x', "no extended header");
  expect_refused<uint32_t>(reinterpret_cast<uint32_t*>(bytes) + 3, 16, "found 16");
  expect_refused<uint32_t>(reinterpret_cast<uint32_t*>(bytes) + 3, 0xffffffff, "found 4294967295");
  expect_refused<uint64_t>(reinterpret_cast<uint64_t*>(bytes) + 2, 1 << 20, "program size");
  expect_refused<uint64_t>(reinterpret_cast<uint64_t*>(bytes) + 2, 200, "flatbuffer");
  expect_refused<uint64_t>(reinterpret_cast<uint64_t*>(bytes) + 3, ~uint64_t{0}, "segments at byte");
  expect_refused<uint64_t>(reinterpret_cast<uint64_t*>(bytes) + 3, 64, "segments at byte");
  expect_refused<uint64_t>(reinterpret_cast<uint64_t*>(bytes) + 4, ~uint64_t{0}, "cut off");
  // A header of 24 bytes has no size of the segments; the one behind it is then ignored.
  auto* length = reinterpret_cast<uint32_t*>(bytes) + 3;
  auto* size = reinterpret_cast<uint64_t*>(bytes) + 4;
  *length = 24;
  *size = ~uint64_t{0};
  EXPECT_TRUE(verify_program(file_).ok());
}

TEST_F(DamagedProgram, SegmentsAndNamedData) {
  const auto* segment = root_->segments()->Get(2);
  expect_refused<uint64_t>(field<uint64_t>(segment, pte::DataSegment::VT_SIZE), 1 << 20, "segment 2");
  expect_refused<uint64_t>(field<uint64_t>(segment, pte::DataSegment::VT_OFFSET), ~uint64_t{0} - 8, "segment 2");
  expect_refused<uint64_t>(item(root_->constant_segment()->offsets(), 1), 16, "constant 1");
  expect_refused<uint64_t>(item(root_->constant_segment()->offsets(), 1), ~uint64_t{0}, "constant segment");
  const auto* states = root_->mutable_data_segments()->Get(0);
  expect_refused<uint32_t>(field<uint32_t>(states, pte::SubsegmentOffsets::VT_SEGMENT_INDEX), 9, "segment index 9");
  const auto* named = root_->named_data()->Get(0);
  expect_refused<uint32_t>(field<uint32_t>(named, pte::NamedData::VT_SEGMENT_INDEX), 9, "segment index 9");
  auto* key = const_cast<char*>(named->key()->c_str());
  expect_refused<char>(key + 8, 'a', "weights/a occurs twice");
}

TEST_F(DamagedProgram, Values) {
  expect_refused<uint8_t>(field<uint8_t>(plan_->values()->Get(7), pte::EValue::VT_VAL_TYPE), 12, "kind 12");
  expect_refused<uint8_t>(field<uint8_t>(plan_->values()->Get(7), pte::EValue::VT_VAL_TYPE), 0, "kind 0");
  expect_refused<int8_t>(field<int8_t>(tensor(5), pte::Tensor::VT_SCALAR_TYPE), 12, "scalar type 12");
  expect_refused<int32_t>(item(tensor(5)->sizes(), 0), -1, "negative");
  expect_refused<uint8_t>(item(tensor(5)->dim_order(), 0), 0, "permutation");
  expect_refused<uint8_t>(item(tensor(5)->dim_order(), 0), 2, "permutation");
  expect_refused<int8_t>(field<int8_t>(tensor(6), pte::Tensor::VT_SHAPE_DYNAMISM), 3, "dynamism 3");
  expect_refused<int8_t>(field<int8_t>(tensor(5)->extra_tensor_info(), pte::ExtraTensorInfo::VT_LOCATION), 2, "location 2");
  expect_refused<uint32_t>(field<uint32_t>(tensor(2), pte::Tensor::VT_DATA_BUFFER_IDX), 2, "data index 2");
  expect_refused<uint32_t>(field<uint32_t>(tensor(4), pte::Tensor::VT_DATA_BUFFER_IDX), 2, "data index 2");
  expect_refused<uint32_t>(field<uint32_t>(tensor(4)->allocation_info(), pte::AllocationDetails::VT_MEMORY_ID), 3, "arena index 3");
  expect_refused<int64_t>(item(plan_->non_const_buffer_sizes(), 2), -1, "size -1");
  expect_refused<int64_t>(item(plan_->non_const_buffer_sizes(), 2), 15, "arena 2 of 15");
  expect_refused<int64_t>(item(plan_->values()->Get(11)->val_as_IntList()->items(), 1), 16, "value index 16");
  expect_refused<int64_t>(item(plan_->values()->Get(11)->val_as_IntList()->items(), 1), 8, "has kind 4");
  expect_refused<int32_t>(item(plan_->values()->Get(14)->val_as_TensorList()->items(), 1), -1, "value index -1");
  expect_refused<int32_t>(item(plan_->values()->Get(15)->val_as_OptionalTensorList()->items(), 1), -2, "value index -2");
}

TEST_F(DamagedProgram, PlanAndInstructions) {
  expect_refused<int32_t>(item(plan_->inputs(), 0), 16, "input");
  expect_refused<int32_t>(item(plan_->outputs(), 0), -1, "output");
  const auto* list = plan_->chains()->Get(0)->instructions();
  expect_refused<uint8_t>(field<uint8_t>(list->Get(1), pte::Instruction::VT_INSTR_ARGS_TYPE), 6, "kind 6");
  expect_refused<int32_t>(item(list->Get(0)->instr_args_as_KernelCall()->args(), 4), 16, "argument");
  expect_refused<int32_t>(item(list->Get(1)->instr_args_as_DelegateCall()->args(), 1), 16, "argument");
  expect_refused<int32_t>(field<int32_t>(list->Get(2)->instr_args(), pte::JumpFalseCall::VT_DESTINATION_INSTRUCTION), 6, "jump destination");
  expect_refused<int32_t>(field<int32_t>(list->Get(2)->instr_args(), pte::JumpFalseCall::VT_COND_VALUE_INDEX), 8, "condition");
  expect_refused<int32_t>(field<int32_t>(list->Get(3)->instr_args(), pte::MoveCall::VT_MOVE_TO), 16, "move target");
  expect_refused<int32_t>(field<int32_t>(list->Get(4)->instr_args(), pte::FreeCall::VT_VALUE_INDEX), -1, "freed value");
  expect_refused<uint32_t>(field<uint32_t>(plan_->delegates()->Get(0)->processed(), pte::BackendDelegateDataReference::VT_INDEX), 7, "payload index 7");
}

/// A vector reference that points at another vector makes a small file ask for much work.
TEST_F(DamagedProgram, SharedVectors) {
  ProgramSpec program;
  PlanSpec plan;
  std::vector<int64_t> items(4096, 0);
  plan.values.emplace_back(int64_t{1});
  for (int i = 0; i < 64; ++i) plan.values.emplace_back(IntListValue{i == 0 ? items : std::vector<int64_t>()});
  program.plans.push_back(plan);
  std::vector<std::byte> file = written(program);
  const auto* values = pte::GetProgram(file.data())->execution_plan()->Get(0)->values();
  const auto* large = values->Get(1)->val_as_IntList()->items();
  for (uint32_t i = 2; i < 65; ++i) {
    auto* at = field<uint32_t>(values->Get(i)->val(), pte::IntList::VT_ITEMS);
    *at = static_cast<uint32_t>(reinterpret_cast<const uint8_t*>(large) - reinterpret_cast<const uint8_t*>(at));
  }
  auto view = verify_program(file);
  ASSERT_FALSE(view.ok());
  EXPECT_EQ(view.status().code(), Code::kInvalidFile);
}

/// Old files keep constants inside the flatbuffer and have no extended header.
TEST(ProgramFile, ReadsInlineConstants) {
  flatbuffers::FlatBufferBuilder fbb;
  const std::vector<int32_t> sizes = {2};
  const std::vector<uint8_t> order = {0};
  const auto size_list = fbb.CreateVector(sizes);
  const auto order_list = fbb.CreateVector(order);
  // complex64 (9) is absent from the public schema text but occurs in files.
  const auto tensor = pte::CreateTensor(fbb, wire::ScalarType::COMPLEX_FLOAT, 0, size_list, order_list, false, 1);
  const std::vector<flatbuffers::Offset<pte::EValue>> values = {pte::CreateEValue(fbb, pte::KernelTypes::Tensor, tensor.Union())};
  const auto value_list = fbb.CreateVector(values);
  const auto name = fbb.CreateString("forward");
  const std::vector<flatbuffers::Offset<pte::ExecutionPlan>> plans = {pte::CreateExecutionPlan(fbb, name, 0, value_list)};
  const auto plan_list = fbb.CreateVector(plans);
  const std::vector<uint8_t> data(16, 7);
  fbb.ForceVectorAlignment(data.size(), 1, 16);
  const auto storage = fbb.CreateVector(data);
  const std::vector<flatbuffers::Offset<pte::Buffer>> buffers = {pte::CreateBuffer(fbb), pte::CreateBuffer(fbb, storage)};
  fbb.Finish(pte::CreateProgram(fbb, 0, plan_list, fbb.CreateVector(buffers)), pte::ProgramIdentifier());
  const std::span<const std::byte> file(reinterpret_cast<const std::byte*>(fbb.GetBufferPointer()), fbb.GetSize());
  auto view = verify_program(file);
  ASSERT_TRUE(view.ok()) << view.status().message();
  const auto bytes = view->constant(*view->plan(0).values()->Get(0)->val_as_Tensor());
  ASSERT_EQ(bytes.size(), 16u);
  EXPECT_EQ(bytes[15], std::byte{7});
  EXPECT_EQ(view->arena_count(0), 1u);
}

TEST(ProgramFile, RefusesShortFiles) {
  const std::vector<std::byte> file = written(sample_full_program());
  for (size_t size = 0; size < file.size(); ++size) {
    const std::vector<std::byte> cut(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    auto view = verify_program(cut);
    ASSERT_FALSE(view.ok()) << size;
    EXPECT_EQ(view.status().code(), Code::kInvalidFile);
  }
}

}  // namespace
}  // namespace pteron::format
