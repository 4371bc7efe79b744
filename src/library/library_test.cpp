// Program::load with the portable kernels: from a path, from memory, from a descriptor, mapped or read.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/byte_sink.h"
#include "base/str_cat.h"
#include "format/etdump.h"
#include "format/program.h"
#include "pteron/etdump.h"
#include "pteron/program.h"
#include "pteron/version.h"

namespace pteron {
namespace {

/// forward(x) = x + 2 * x for float32 [3].
std::vector<std::byte> program_bytes() {
  format::ProgramSpec program;
  format::PlanSpec plan;
  format::TensorSpec spec;
  spec.sizes = {3};
  plan.arenas = {{128, {}}};
  spec.allocation = format::Allocation{1, 0};
  plan.values = {spec, int64_t{2}};
  spec.allocation->offset = 64;
  plan.values.push_back(spec);
  plan.inputs = {0};
  plan.outputs = {2};
  plan.operators = {{"aten::add", "out"}};
  plan.instructions = {format::KernelCall{0, {0, 0, 1, 2, 2}}};
  program.plans = {plan};
  MemorySink sink;
  EXPECT_TRUE(format::write_program(program, {}, sink).ok());
  return {sink.bytes().begin(), sink.bytes().end()};
}

void expect_runs(const Result<std::shared_ptr<Program>>& program) {
  ASSERT_TRUE(program.ok()) << program.status().message();
  const auto method = program.value()->load_method("forward");
  ASSERT_TRUE(method.ok()) << method.status().message();
  float x[] = {1, 2, 3};
  const int64_t sizes[] = {3};
  ASSERT_TRUE(method.value()->set_input(0, make_contiguous_view(DType::kFloat32, sizes, x)).ok());
  const Status status = method.value()->execute();
  ASSERT_TRUE(status.ok()) << status.message();
  const auto output = method.value()->output(0);
  ASSERT_TRUE(output.ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(std::get<TensorView>(*output).as<float>()[i], 3 * x[i]);
}

TEST(Library, LoadsFromEverywhere) {
  const std::vector<std::byte> bytes = program_bytes();
  expect_runs(Program::load(bytes));
  char name[] = "/tmp/pteron_library_XXXXXX";
  const int fd = ::mkstemp(name);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  const auto from_fd = Program::load_fd(fd);
  ::close(fd);
  expect_runs(from_fd);
  for (const bool map : {true, false}) {
    LoadOptions options;
    options.map = map;
    options.threads = 2;
    expect_runs(Program::load(name, options));
  }
  std::remove(name);
  const auto gone = Program::load(name);
  EXPECT_EQ(gone.status().code(), Code::kNotFound);
  EXPECT_NE(gone.status().message().find(name), std::string_view::npos) << gone.status().message();
}

TEST(Library, VersionsAgree) { EXPECT_STREQ(version(), PTERON_VERSION_TEXT); }

/// Names of the events, run by run.
std::string events_of(const EventRecorder& recorder) {
  const auto bytes = recorder.etdump();
  if (!bytes.ok()) return std::string(bytes.status().message());
  const auto dump = format::read_etdump(*bytes);
  if (!dump.ok()) return std::string(dump.status().message());
  std::string out;
  for (const format::EtdumpRun& run : dump->runs) {
    str_append(out, run.name, run.bundled_case < 0 ? "" : str_cat(run.bundled_case), ":");
    uint64_t end = 0;
    for (const format::EtdumpEvent& event : run.events) {
      const auto& profile = std::get<format::EtdumpProfile>(event);
      EXPECT_LE(profile.start, profile.end);
      EXPECT_LE(end, profile.end);
      end = profile.end;
      str_append(out, " ", profile.name, profile.place.instruction < 0 ? "" : str_cat("@", profile.place.instruction));
    }
    out += "; ";
  }
  return out;
}

TEST(Library, RecordsLoadsAndCalls) {
  const std::vector<std::byte> bytes = program_bytes();
  EventRecorder recorder;
  EXPECT_EQ(events_of(recorder), "");
  const auto program = recorder.load(bytes);
  ASSERT_TRUE(program.ok());
  EXPECT_EQ(recorder.load("/no/such/file.pte").status().code(), Code::kNotFound);
  auto method = recorder.load_method(**program, "forward");
  ASSERT_TRUE(method.ok());
  EXPECT_EQ(recorder.load_method(**program, "backward").status().code(), Code::kNotFound);
  EXPECT_TRUE(recorder.load_method(**program, "forward", method->get()).ok());
  EXPECT_EQ(recorder.execute(**method).code(), Code::kInvalidInput);  // no input
  float x[] = {1, 2, 3};
  const int64_t sizes[] = {3};
  ASSERT_TRUE((*method)->set_input(0, make_contiguous_view(DType::kFloat32, sizes, x)).ok());
  ASSERT_TRUE(recorder.execute(**method, 7).ok());
  ASSERT_TRUE((*method)->execute().ok());  // not through the recorder
  method->reset();
  const std::string loads = "Default: Program::load; Default: Method::init Program::load_method; Default: Method::init Program::load_method; ";
  EXPECT_EQ(events_of(recorder), loads + "Execute: Method::execute; Execute7: native_call_add.out@0 OPERATOR_CALL@0 Method::execute; ");
  EXPECT_EQ(recorder.left_out(), 0u);
}

}  // namespace
}  // namespace pteron
