// The compile API: settings that are wrong, what the summary says, programs that run, nothing left behind.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "facade/test_files.h"
#include "facade/toolchain.h"
#include "pteron/compile.h"
#include "pteron/program.h"

namespace pteron {
namespace {

CompileSettings settings_for(const char* name) {
  CompileSettings settings;
  settings.methods = {{"forward", sample(name)}};
  return settings;
}

/// A program in memory and what it was made of.
struct Made {
  CompiledProgram program;
  FileInMemory file;
};

Result<Made> make(const CompileSettings& settings, const FinalizeSettings& finalize = {}) {
  PTERON_ASSIGN(const EdgeProgram edge, export_program(settings));
  PTERON_ASSIGN(CompiledProgram program, edge.finalize(finalize));
  PTERON_ASSIGN(FileInMemory file, program.bytes());
  return Made{std::move(program), std::move(file)};
}

void expect_refused(const CompileSettings& settings, Code code, std::string_view text, const FinalizeSettings& finalize = {}) {
  const auto made = make(settings, finalize);
  ASSERT_FALSE(made.ok()) << text;
  EXPECT_EQ(made.status().code(), code) << made.status().message();
  EXPECT_NE(made.status().message().find(text), std::string_view::npos) << made.status().message();
}

TEST(Facade, WrongSettingsAreNamed) {
  expect_refused({}, Code::kInvalidInput, "at least one method");
  CompileSettings settings = settings_for("mlp_float32");
  settings.methods.push_back(settings.methods[0]);
  expect_refused(settings, Code::kInvalidInput, "two methods named 'forward'");
  settings = settings_for("mlp_float32");
  settings.constants = {{"forward", {1}}};
  expect_refused(settings, Code::kInvalidInput, "two methods named 'forward'");
  settings = settings_for("mlp_float32");
  settings.methods[0].name.clear();
  expect_refused(settings, Code::kInvalidInput, "without a name");
  settings.methods = {{"forward", "/none/model.pt2"}};  // before it is looked for
  for (const char* name : {"a-b", "2nd", "a b", "a.b", "w\xc3\xa4rts", "a\n"}) {
    settings.methods[0].name = name;
    expect_refused(settings, Code::kInvalidInput, "is no identifier: ASCII letters, digits and '_' are expected, no digit first");
  }
  settings.methods[0].name = "_f0";
  expect_refused(settings, Code::kNotFound, "/none/model.pt2");
  settings.constants = {{"get-size", {1}}};
  expect_refused(settings, Code::kInvalidInput, "method name 'get-size' is no identifier");
  settings.constants = {{"", {1}}};
  expect_refused(settings, Code::kInvalidInput, "a method without a name");
  settings.constants = {{"get_size", {}}};
  expect_refused(settings, Code::kInvalidInput, "constant method 'get_size' has no value");
  settings.constants.clear();
  settings.size_bounds = {{"", -1}};
  expect_refused(settings, Code::kInvalidInput, "a bound of sizes is from 0 to 2^31-1, found -1");
  settings.size_bounds.clear();
  settings.exclusions = {{"abacus", "aten::mm", false}};
  expect_refused(settings, Code::kInvalidInput, "from backend 'abacus', which is not among the program's backends");
  settings.exclusions = {{"", "", true}};
  expect_refused(settings, Code::kInvalidInput, "a node without a name is to be excluded");
  settings.exclusions.clear();
  settings.shared_states = {""};
  expect_refused(settings, Code::kInvalidInput, "a shared state without a name");
  settings.shared_states.clear();
  settings.profile = static_cast<CompileProfile>(7);
  expect_refused(settings, Code::kInvalidInput, "does not exist");
  settings.profile = CompileProfile::kPteron;
  settings.methods[0].archive.clear();
  expect_refused(settings, Code::kInvalidInput, "method '_f0' has no archive: expected a path, or bytes");
  for (const uint64_t alignment : {0, 8, 48, 8192}) {
    expect_refused(settings_for("mlp_float32"), Code::kInvalidInput, "power of two from 16 to 4096", {alignment});
  }
  settings = settings_for("mlp_float32");
  settings.backends = {"cpu", "abacus"};
  expect_refused(settings, Code::kUnsupported, "backend 'abacus' does not exist; there are 'portable', 'cpu'");
  settings.backends = {"portable", "cpu"};
  expect_refused(settings, Code::kInvalidInput, "'portable' leaves nothing for backend 'cpu'");
  settings.backends = {"cpu"};
  settings.profile = CompileProfile::kExecutorch;
  expect_refused(settings, Code::kInvalidInput, "official runtime");
  settings = settings_for("mlp_float32");
  settings.strict = true;
  settings.backends = {"portable"};
  expect_refused(settings, Code::kInvalidInput, "strict");
  settings.strict = false;
  settings.precision = CompilePrecision::kBf16;
  expect_refused(settings, Code::kInvalidInput, "kBf16");
  settings = settings_for("mlp_float32");
  settings.size_bounds = {{"s99", 4}};
  expect_refused(settings, Code::kInvalidInput, "no size named s99");
  settings = settings_for("mlp_float32");
  settings.kernel_libraries = {"/none/lib.so"};
  expect_refused(settings, Code::kNotFound, "/none/lib.so");
}

TEST(Facade, ArchivesInMemory) {
  for (const char* name : {"mlp_float32", "dynamic_batch_mlp", "cnn"}) {
    const std::vector<std::byte> before = content(sample(name));
    const auto plain = make(settings_for(name));
    ASSERT_TRUE(plain.ok());
    auto owner = std::make_shared<std::vector<std::byte>>(before);
    const std::weak_ptr<std::vector<std::byte>> alive = owner;
    CompileSettings settings;
    settings.methods = {{"forward", {}, {owner, *owner}}};
    owner.reset();
    {
      auto edge = export_program(settings);
      settings.methods.clear();  // the program keeps the bytes, which weights still lie in
      ASSERT_TRUE(edge.ok()) << edge.status().message();
      const auto program = edge->finalize();
      ASSERT_TRUE(program.ok());
      edge = Status(Code::kCancelled, "gone");
      EXPECT_TRUE(same_bytes(program->bytes()->bytes, plain->file.bytes));
      ASSERT_FALSE(alive.expired());
      EXPECT_EQ(*alive.lock(), before);
    }
    EXPECT_TRUE(alive.expired());
    settings.methods = {{"forward", "in memory.pt2", {nullptr, before}}};  // the caller keeps them
    const auto borrowed = make(settings);
    ASSERT_TRUE(borrowed.ok());
    EXPECT_TRUE(same_bytes(borrowed->file.bytes, plain->file.bytes));
    settings.methods[0].bytes.bytes = std::span(before).first(before.size() / 2);
    expect_refused(settings, Code::kInvalidFile, "loading in memory.pt2: ");
    settings.methods[0].archive.clear();
    expect_refused(settings, Code::kInvalidFile, "loading the archive of method forward in memory: ");
    settings.external_weights = true;
    expect_refused(settings, Code::kInvalidInput, "give them one of their own");
  }
}

TEST(Facade, EtrecordsLieBesideTheProgram) {
  const Scratch scratch;
  const auto saved = save(settings_for("mlp_float32"), scratch.path + "/m.pte", {}, {.etrecord = true});
  ASSERT_TRUE(saved.ok()) << saved.status().message();
  EXPECT_EQ(saved->files.etrecord_path, scratch.path + "/m_etrecord.bin");
  EXPECT_EQ(scratch.names().size(), 2u);
  const auto made = make(settings_for("mlp_float32"));
  ASSERT_TRUE(made.ok());
  EXPECT_TRUE(same_bytes(made->program.etrecord()->bytes, content(saved->files.etrecord_path)));
  EXPECT_TRUE(same_bytes(made->file.bytes, content(scratch.path + "/m.pte")));
  CompileSettings own = settings_for("mlp_float32");
  own.methods[0].archive = saved->files.etrecord_path;
  EXPECT_FALSE(save(own, scratch.path + "/m.pte", {}, {.etrecord = true}).ok());
  EXPECT_FALSE(save(settings_for("mlp_float32"), scratch.path + "/no/m.pte", {}, {.etrecord = true}).ok());
  EXPECT_EQ(scratch.names().size(), 2u);
}

TEST(Facade, PlannersOfTheCaller) {
  CompileSettings settings = settings_for("mlp_float32");
  settings.backends = {"portable"};
  settings.methods.push_back({"second", sample("cnn")});
  const auto edge = export_program(settings);
  ASSERT_TRUE(edge.ok());
  const auto plain = edge->finalize();
  ASSERT_TRUE(plain.ok());
  std::vector<std::string> methods;
  // One behind the other, with a hole between: used as it is.
  const auto stacked = [&](const PlannerRequest& request) -> Result<std::vector<uint64_t>> {
    methods.emplace_back(request.method);
    EXPECT_EQ(request.alignment_bytes, 64u);
    std::vector<uint64_t> offsets;
    uint64_t end = 0;
    for (const PlannedBuffer& buffer : request.buffers) {
      EXPECT_LE(buffer.first_step, buffer.last_step);
      offsets.push_back(end);
      end += (buffer.size_bytes + 63) / 64 * 64 + 64;
    }
    return offsets;
  };
  const auto own = edge->finalize({64, stacked});
  ASSERT_TRUE(own.ok()) << own.status().message();
  EXPECT_EQ(methods, (std::vector<std::string>{"forward", "second"}));
  EXPECT_GT(own->summary().methods[0].arena_bytes, plain->summary().methods[0].arena_bytes);
  EXPECT_EQ(own->summary().methods[0].arena_lower_bound_bytes, plain->summary().methods[0].arena_lower_bound_bytes);
  const auto bytes = own->bytes();
  const auto program = Program::load(bytes->bytes);
  ASSERT_TRUE(program.ok() && (*program)->load_method("forward").ok() && (*program)->load_method("second").ok());
  const auto refused = [&](const MemoryPlanner& planner, Code code, std::string_view text) {
    const auto made = edge->finalize({64, planner});
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.status().code(), code);
    EXPECT_TRUE(made.status().message().starts_with("method forward: planning memory: ")) << made.status().message();
    EXPECT_NE(made.status().message().find(text), std::string_view::npos) << made.status().message();
  };
  const auto changed = [&](auto change) {
    return [&stacked, change](const PlannerRequest& request) -> Result<std::vector<uint64_t>> {
      auto offsets = stacked(request);
      change(*offsets);
      return offsets;
    };
  };
  refused(changed([](std::vector<uint64_t>& o) { o.pop_back(); }), Code::kInvalidInput, "offsets for");
  refused(changed([](std::vector<uint64_t>& o) { o[1] += 32; }), Code::kInvalidInput, "a multiple of 64 is expected");
  refused(changed([](std::vector<uint64_t>& o) { o[1] = o[0]; }), Code::kInvalidInput, "are alive together and share bytes");
  refused(changed([](std::vector<uint64_t>& o) { o[0] = uint64_t{1} << 62; }), Code::kInvalidInput, "ends beyond 2^62 bytes");
  refused(changed([](std::vector<uint64_t>& o) { o[0] = ~uint64_t{63}; }), Code::kInvalidInput, "ends beyond 2^62 bytes");
  refused([](const PlannerRequest&) -> Result<std::vector<uint64_t>> { return Status(Code::kUnsupported, "no such memory"); }, Code::kUnsupported, "no such memory");
  const Scratch scratch;
  EXPECT_FALSE(save(settings, scratch.path + "/m.pte", {64, changed([](std::vector<uint64_t>& o) { o.clear(); })}).ok());
  EXPECT_TRUE(scratch.names().empty());
  EXPECT_TRUE(save(settings, scratch.path + "/m.pte", {64, stacked}).ok());
  EXPECT_TRUE(same_bytes(bytes->bytes, content(scratch.path + "/m.pte")));
}

TEST(Facade, BadArchivesAreNamed) {
  CompileSettings settings;
  settings.methods = {{"forward", "/none/model.pt2"}};
  expect_refused(settings, Code::kNotFound, "/none/model.pt2");
  expect_refused(settings_for("file_cut_half"), Code::kInvalidFile, "zip");
  expect_refused(settings_for("file_unknown_operator"), Code::kUnsupported, "mylib::twist");
}

TEST(Facade, ProgramsRunOnBothEngines) {
  for (const std::vector<std::string>& backends : {std::vector<std::string>{}, std::vector<std::string>{"cpu"}, std::vector<std::string>{"portable"}}) {
    CompileSettings settings = settings_for("mlp_float32");
    settings.backends = backends;
    settings.constants = {{"get_size", {256, "text", true, 0.5}}};
    const auto made = make(settings);
    ASSERT_TRUE(made.ok()) << made.status().message();
    const CompileSummary& summary = made->program.summary();
    EXPECT_EQ(summary.methods[0].name, "forward");
    EXPECT_GT(summary.weight_bytes, 0u);
    EXPECT_EQ(summary.external_bytes, 0u);
    EXPECT_TRUE(made->program.data_files()->empty());
    EXPECT_EQ(summary.backends.empty(), !backends.empty() && backends[0] == "portable");
    const auto program = Program::load(made->file.bytes);
    ASSERT_TRUE(program.ok()) << program.status().message();
    ASSERT_TRUE((*program)->load_method("forward").ok());
    const auto constant = (*program)->load_method("get_size");
    ASSERT_TRUE(constant.ok()) << constant.status().message();
    ASSERT_TRUE((*constant)->execute().ok());
    EXPECT_EQ(std::get<int64_t>(*(*constant)->output(0)), 256);
    EXPECT_EQ(std::get<std::string_view>(*(*constant)->output(1)), "text");
    EXPECT_EQ(std::get<bool>(*(*constant)->output(2)), true);
    EXPECT_EQ(std::get<double>(*(*constant)->output(3)), 0.5);
  }
}

TEST(Facade, FilesAppearCompleteOrNotAtAll) {
  const Scratch scratch;
  const std::string path = scratch.path + "/model.pte";
  EXPECT_FALSE(save(settings_for("file_unknown_operator"), path).ok());
  EXPECT_TRUE(scratch.names().empty());
  const auto made = save(settings_for("mlp_float32"), path);
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"model.pte"});
  const auto in_memory = make(settings_for("mlp_float32"));
  ASSERT_TRUE(in_memory.ok());
  EXPECT_EQ(made->files.program_bytes, in_memory->file.bytes.size());
  EXPECT_FALSE(save(settings_for("file_cut_half"), path).ok());
  EXPECT_TRUE(Program::load(path).ok());  // the older file stays
  CompileSettings own;
  own.methods = {{"forward", path}};
  const auto overwrites = save(own, path);
  ASSERT_FALSE(overwrites.ok());
  EXPECT_EQ(overwrites.status().code(), Code::kInvalidInput);
  EXPECT_EQ(scratch.names(), std::vector<std::string>{"model.pte"});
}

TEST(Facade, SaveIsExportFinalizeAndWrite) {
  CompileSettings both = settings_for("mlp_float32");
  both.methods.push_back({"dynamic", sample("dynamic_batch_mlp")});
  for (CompileSettings settings : {settings_for("mlp_float32"), settings_for("dynamic_batch_mlp"), both}) {
    for (const char* backend : {"cpu", "portable"}) {
      for (const bool external : {false, true}) {
        const Scratch scratch;
        settings.backends = {backend};
        settings.external_weights = external;
        settings.data_name.reset();
        const auto saved = save(settings, scratch.path + "/a.pte");
        ASSERT_TRUE(saved.ok()) << saved.status().message();
        if (external) settings.data_name = "a";
        const auto edge = export_program(settings);
        ASSERT_TRUE(edge.ok()) << edge.status().message();
        EXPECT_EQ(edge->methods().size(), settings.methods.size());
        EXPECT_EQ(edge->claims().empty(), std::string_view(backend) == "portable");
        const std::string text = edge->text();
        const auto wide = edge->finalize({4096});  // settings of one finalize leave the next alone
        const auto program = edge->finalize();
        ASSERT_TRUE(wide.ok() && program.ok()) << program.status().message();
        EXPECT_EQ(edge->text(), text);
        const auto bytes = program->bytes();
        ASSERT_TRUE(bytes.ok());
        EXPECT_TRUE(same_bytes(bytes->bytes, content(scratch.path + "/a.pte")));
        EXPECT_FALSE(same_bytes(bytes->bytes, wide->bytes()->bytes));
        const auto data = program->data_files();
        ASSERT_TRUE(data.ok());
        EXPECT_EQ(data->size(), external ? 1u : 0u);
        EXPECT_EQ(saved->files.data_paths.size(), data->size());
        LoadOptions options;
        for (const FileInMemory& file : *data) {
          EXPECT_EQ(file.name, "a.ptd");
          EXPECT_TRUE(same_bytes(file.bytes, content(scratch.path + "/a.ptd")));
          options.data_in_memory.push_back(file.bytes);
        }
        const auto loaded = Program::load(bytes->bytes, options);
        ASSERT_TRUE(loaded.ok()) << loaded.status().message();
        EXPECT_TRUE((*loaded)->load_method(settings.methods[0].name).ok());
        const auto beside = Program::load(scratch.path + "/a.pte");
        ASSERT_TRUE(beside.ok() && (*beside)->load_method(settings.methods[0].name).ok());
        const auto written = program->write(scratch.path + "/a.pte");  // the same program again
        ASSERT_TRUE(written.ok()) << written.status().message();
        EXPECT_EQ(written->program_bytes, saved->files.program_bytes);
      }
    }
  }
}

TEST(Facade, NamesAreCheckedBeforeArchivesAreRead) {
  CompileSettings settings;
  settings.methods = {{"forward", "/none/model.pt2"}};
  settings.data_name = "x";
  expect_refused(settings, Code::kInvalidInput, "expects external_weights");
  settings.external_weights = true;
  settings.data_name = "a/b";
  expect_refused(settings, Code::kInvalidInput, "names a folder");
  settings.data_name.reset();
  settings.methods[0].archive = "/none/my model.pt2";
  expect_refused(settings, Code::kInvalidInput, "give them one of their own");
  settings.external_weights = false;
  settings.specs = {{"cpu", "", "speed", {}}};
  expect_refused(settings, Code::kInvalidInput, "no compile spec 'speed'");
  const Scratch scratch;
  for (const char* name : {"/m.ptd", "/m.Ptd. "}) {
    const auto saved = save(settings, scratch.path + name);
    ASSERT_FALSE(saved.ok());
    EXPECT_NE(saved.status().message().find("(.ptd)"), std::string_view::npos) << saved.status().message();
  }
  EXPECT_TRUE(scratch.names().empty());
}

/// Offsets of all planned tensors of all methods.
std::vector<uint64_t> offsets_of(const format::ProgramSpec& program) {
  std::vector<uint64_t> offsets;
  for (const format::PlanSpec& plan : program.plans) {
    for (const format::ValueSpec& value : plan.values) {
      const auto* tensor = std::get_if<format::TensorSpec>(&value);
      if (tensor != nullptr && tensor->allocation.has_value()) offsets.push_back(tensor->allocation->offset);
    }
  }
  return offsets;
}

TEST(Facade, BuffersLieAtMultiplesOfPlannerAndBackend) {
  const auto toolchain = facade::Toolchain::create();
  ASSERT_TRUE(toolchain.ok());
  compiler::CompileOptions options;
  options.methods = {{"forward", sample("mlp_float32")}};
  options.backends = *toolchain->backends({"null:all"});
  options.exclusions = {{"", "aten::linear", false}};  // linear layers outside: several groups with buffers between
  const auto edge = compiler::export_program(options, toolchain->environment());
  ASSERT_TRUE(edge.ok()) << edge.status().message();
  const auto arena_of = [](const compiler::FinishedProgram& p) { return p.report.methods[0].arena_bytes; };
  const auto plain = compiler::finalize(**edge, options, toolchain->environment(), {16});
  ASSERT_TRUE(plain.ok());
  const size_t buffers = offsets_of(plain->program).size();
  ASSERT_GT(buffers, 1u);
  for (auto& group : (*edge)->groups) group.alignment_bytes = 1;
  const auto control = compiler::finalize(**edge, options, toolchain->environment(), {16});
  ASSERT_TRUE(control.ok());
  EXPECT_TRUE(std::ranges::any_of(offsets_of(control->program), [](uint64_t offset) { return offset % 64 != 0; }));
  for (const auto& [planner, backend, both] : {std::tuple<uint64_t, uint64_t, uint64_t>{16, 64, 64}, {64, 256, 256}, {256, 64, 256}, {64, 48, 192}, {32, 96, 96}}) {
    for (auto& group : (*edge)->groups) group.alignment_bytes = backend;
    const auto finished = compiler::finalize(**edge, options, toolchain->environment(), {planner});
    ASSERT_TRUE(finished.ok()) << finished.status().message();
    for (const uint64_t offset : offsets_of(finished->program)) EXPECT_EQ(offset % both, 0u) << planner << ", " << backend;
    EXPECT_LE(arena_of(*finished), arena_of(*plain) + buffers * both);  // padding only
  }
}

}  // namespace
}  // namespace pteron
