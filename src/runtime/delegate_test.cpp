// Delegates and the bytes that they are given: how long they live, who may write what, payloads that are programs.
#include <cstring>

#include "base/mapped_file.h"
#include "format/meta.h"
#include "runtime/program_delegate.h"
#include "runtime/test_program.h"

namespace pteron::runtime::testing {
namespace {

using Floats = std::vector<float>;

/// Reads payload and named data at the first call only, as a backend that packs late does: adds both first bytes to its input.
class LateDelegate final : public Delegate {
 public:
  LateDelegate(std::span<const std::byte> payload, const NamedData& data) : payload_(payload), data_(data) {}
  Status execute(std::span<Value* const> args) override {
    if (addend_ < 0) addend_ = static_cast<float>(payload_[0]) + static_cast<float>((*data_.find("blob"))[0]);
    Tensor &in = args[0]->tensor, &out = args[1]->tensor;
    PTERON_TRY(resize(out, in.sizes()));
    for (int64_t i = 0; i < in.numel(); ++i) out.as<float>()[i] = in.as<float>()[i] + addend_;
    return ok_status();
  }

 private:
  std::span<const std::byte> payload_;
  const NamedData& data_;
  float addend_ = -1;
};

class LateBackend final : public DelegateBackend {
 public:
  std::string_view id() const override { return "Late"; }
  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override {
    return std::unique_ptr<Delegate>(std::make_unique<LateDelegate>(request.payload, request.named_data));
  }
};

TEST(Delegate, BytesLiveUntilTheDelegateIsGone) {
  static constexpr std::byte kPayload[] = {std::byte{5}}, kData[] = {std::byte{7}};
  PlanBuilder b;
  const int32_t x = b.value(b.planned({2})), out = b.value(b.planned({2}));
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.program.blobs = {{format::Payload::borrow(kPayload), 0, 0}, {format::Payload::borrow(kData), 0, 0}};
  b.program.named_data = {{"blob", 1}};
  b.plan.delegates = {{"Late", 0, {}}};
  b.plan.instructions = {format::DelegateCall{0, {x, out}}};
  const std::vector<std::byte> bytes = b.bytes();
  auto buffer = Buffer::create(bytes.size());
  ASSERT_TRUE(buffer.ok());
  std::memcpy(buffer->data(), bytes.data(), bytes.size());
  const std::shared_ptr<FileBytes> owner = FileBytes::from_buffer(std::move(buffer).value());
  bool released = false;
  // The last user's release overwrites the bytes: whoever reads them later computes something else.
  std::shared_ptr<FileBytes> file(owner.get(), [&](FileBytes* f) {
    std::memset(const_cast<std::byte*>(f->bytes().data()), 0xee, f->bytes().size());
    released = true;
  });
  const LateBackend backend;
  LoadOptions options = test_options();
  options.delegates = {&backend};
  const std::span<const std::byte> view = file->bytes();
  auto program = load_program(std::move(file), view, "test.pte", options);
  ASSERT_TRUE(program.ok()) << program.status().message();
  auto method = (*program)->load_method("forward");
  ASSERT_TRUE(method.ok()) << method.status().message();
  program->reset();
  EXPECT_FALSE(released);
  Floats input = {1, 2};
  EXPECT_OK((*method)->set_input(0, view_of(input, {2})));
  EXPECT_OK((*method)->execute());
  EXPECT_EQ(floats(**method, 0), (Floats{13, 14}));
  EXPECT_FALSE(released);
  method->reset();
  EXPECT_TRUE(released);
}

class ProgramBackend final : public DelegateBackend {
 public:
  std::string_view id() const override { return "Program"; }
  Result<std::unique_ptr<Delegate>> load(const DelegateLoad& request) const override { return load_program_delegate(request, test_kernels(), states_); }

 private:
  mutable StateCache states_;
};

/// A payload that adds input 1 to input 0 where that lies, and gives it back.
std::vector<std::byte> adding_payload(bool says_so) {
  PlanBuilder b;
  const int32_t state = b.value(PlanBuilder::tensor({2})), x = b.value(PlanBuilder::tensor({2})), one = b.value(int64_t{1});
  b.plan.inputs = {state, x};
  b.plan.outputs = {state};
  b.call("aten::add", "out", {state, x, one, state, state});
  format::ProgramMeta meta;
  format::MethodMeta method;
  method.name = "forward";
  for (const char* name : {"state", "x"}) {
    format::PortMeta port;
    port.name = name;
    port.dims = {format::DimExpr::constant(2)};
    method.inputs.push_back(port);
  }
  method.inputs[0].mutated = says_so;
  format::PortMeta out = method.inputs[0];
  out.mutated = false;
  out.name = "out";
  method.outputs = {out};
  meta.methods = {method};
  auto facts = format::write_meta(meta);
  EXPECT_TRUE(facts.ok());
  b.program.blobs = {{format::Payload::borrow(facts->span()), 0, 0}};
  b.program.named_data = {{std::string(format::kMetaKey), 0}};
  return b.bytes();
}

/// A program whose delegate call lists `first` as input and as output.
PlanBuilder calls_payload(std::span<const std::byte> payload, bool planned) {
  PlanBuilder b;
  const int32_t state = b.value(planned ? b.planned({2}) : PlanBuilder::tensor({2})), x = b.value(PlanBuilder::tensor({2}));
  b.plan.inputs = {x};
  if (!planned) b.plan.inputs.push_back(state);
  b.plan.outputs = {state};
  b.program.blobs = {{format::Payload::borrow(payload), 0, 0}};
  b.plan.delegates = {{"Program", 0, {}}};
  b.plan.instructions = {format::DelegateCall{0, {state, x, state}}};
  return b;
}

TEST(Delegate, APayloadUpdatesABufferWhereItLies) {
  const std::vector<std::byte> payload = adding_payload(true);
  const ProgramBackend backend;
  LoadOptions options = test_options();
  options.delegates = {&backend};
  PlanBuilder b = calls_payload(payload, true);
  Loaded loaded = load(b, options);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {1, 2};
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  for (int call = 1; call <= 3; ++call) {
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{static_cast<float>(call), static_cast<float>(2 * call)}));
  }
  loaded.method->reset();
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{1, 2}));
}

TEST(Delegate, MissingOrReorderedOutputsAreRefused) {
  PlanBuilder inside;  // gives back its input and, of another dtype, a flag
  format::TensorSpec flag_spec = inside.planned({1});
  flag_spec.dtype = DType::kBool;
  const int32_t x = inside.value(PlanBuilder::tensor({2})), flag = inside.value(flag_spec), sum = inside.value(PlanBuilder::tensor({2})), one = inside.value(int64_t{1});
  inside.plan.inputs = {x};
  inside.plan.outputs = {sum, flag};
  inside.call("aten::add", "out", {x, x, one, sum, sum});
  const std::vector<std::byte> payload = inside.bytes();
  const ProgramBackend backend;
  LoadOptions options = test_options();
  options.delegates = {&backend};
  enum class Form { kRight, kReordered, kMissing, kMore };
  for (const Form form : {Form::kRight, Form::kReordered, Form::kMissing, Form::kMore}) {
    PlanBuilder b;
    format::TensorSpec outer_flag = b.planned({1});
    outer_flag.dtype = DType::kBool;
    const int32_t in = b.value(PlanBuilder::tensor({2})), y = b.value(b.planned({2})), f = b.value(outer_flag);
    b.plan.inputs = {in};
    b.plan.outputs = {y};
    b.program.blobs = {{format::Payload::borrow(payload), 0, 0}};
    b.plan.delegates = {{"Program", 0, {}}};
    std::vector<int32_t> args = {in, y, f};
    if (form == Form::kReordered) args = {in, f, y};
    if (form == Form::kMissing) args = {in, y};
    if (form == Form::kMore) args = {in, y, f, f};
    b.plan.instructions = {format::DelegateCall{0, args}};
    Loaded loaded = load(b, options);
    ASSERT_NE(loaded.method, nullptr);
    Floats data = {1, 2};
    EXPECT_OK(loaded.method->set_input(0, view_of(data, {2})));
    const Status status = loaded.method->execute();
    if (form == Form::kRight) {
      EXPECT_OK(Status(status));
      EXPECT_EQ(floats(*loaded.method, 0), (Floats{2, 4}));
    } else if (form == Form::kReordered) {
      EXPECT_ERROR(Status(status), Code::kInvalidFile, "output 0 is not the tensor that the payload makes");
    } else {
      EXPECT_ERROR(Status(status), Code::kInvalidFile, form == Form::kMissing ? "the call has 2 arguments, the payload 1 inputs and 2 outputs" : "the call has 4 arguments");
    }
  }
}

TEST(Delegate, TheCallersInputIsNotWritten) {
  const ProgramBackend backend;
  LoadOptions options = test_options();
  options.delegates = {&backend};
  const std::vector<std::byte> payload = adding_payload(true);
  PlanBuilder b = calls_payload(payload, false);
  Loaded loaded = load(b, options);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {1, 2}, mine = {3, 4};
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  EXPECT_OK(loaded.method->set_input(1, view_of(mine, {2})));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidFile, "may only be read");
  EXPECT_EQ(mine, (Floats{3, 4}));
}

TEST(Delegate, AWriteThatThePayloadDoesNotDeclareGoesToACopy) {
  const ProgramBackend backend;
  LoadOptions options = test_options();
  options.delegates = {&backend};
  const std::vector<std::byte> payload = adding_payload(false);
  PlanBuilder b = calls_payload(payload, false);
  Loaded loaded = load(b, options);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {1, 2}, mine = {3, 4};
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  EXPECT_OK(loaded.method->set_input(1, view_of(mine, {2})));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidFile, "output 0 is not the tensor");
  EXPECT_EQ(mine, (Floats{3, 4}));
}

TEST(Method, AnInputThatAKernelWritesIsACopy) {
  PlanBuilder b;
  const int32_t x = b.value(PlanBuilder::tensor({2})), one = b.value(int64_t{1});
  b.plan.inputs = {x};
  b.plan.outputs = {x};
  b.call("aten::add", "out", {x, x, one, x, x});
  Loaded loaded = load(b);
  ASSERT_NE(loaded.method, nullptr);
  Floats mine = {3, 4};
  EXPECT_OK(loaded.method->set_input(0, view_of(mine, {2})));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(mine, (Floats{3, 4}));
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{6, 8}));
}

}  // namespace
}  // namespace pteron::runtime::testing
