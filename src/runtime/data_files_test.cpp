// Data files: external constants from paths, memory and descriptors, what is refused, and how their bytes are shared.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <thread>

#include "base/str_cat.h"
#include "format/data_file.h"
#include "format/meta.h"
#include "runtime/test_program.h"

namespace pteron::runtime::testing {
namespace {

using Floats = std::vector<float>;

/// A file that is removed at the end.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(std::span<const std::byte> bytes) {
    char name[] = "/tmp/pteron_test_XXXXXX";
    const int fd = ::mkstemp(name);
    EXPECT_GE(fd, 0);
    path = name;
    EXPECT_EQ(::write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    ::close(fd);
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
};

format::DataFileSpec data_with(const Floats& values, std::vector<int64_t> sizes) {
  format::DataFileSpec data;
  data.blobs.push_back({format::Payload::borrow(std::as_bytes(std::span(values))), 0});
  data.entries.push_back({"weight", 0, format::DataLayout{DType::kFloat32, std::move(sizes), {}}});
  return data;
}

std::vector<std::byte> written(const format::DataFileSpec& data) {
  MemorySink sink;
  const Status status = format::write_data_file(data, {}, sink);
  EXPECT_TRUE(status.ok()) << status.message();
  return {sink.bytes().begin(), sink.bytes().end()};
}

/// forward(x) = x + weight, the weight in a data file.
PlanBuilder external_program() {
  PlanBuilder b;
  format::TensorSpec weight = PlanBuilder::tensor({2});
  weight.external_name = "weight";
  const int32_t x = b.value(b.planned({2})), w = b.value(weight), one = b.value(int64_t{1}), out = b.value(b.planned({2}));
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("aten::add", "out", {x, w, one, out, out});
  return b;
}

TEST(DataFiles, HoldExternalConstants) {
  const Floats weight = {10, 20};
  const TemporaryFile file(written(data_with(weight, {2})));
  for (const bool map : {true, false}) {
    LoadOptions options = test_options();
    options.data_files = {file.path};
    options.map = map;
    PlanBuilder b = external_program();
    Loaded loaded = load(b, options);
    ASSERT_NE(loaded.method, nullptr);
    Floats x = {1, 2};
    EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
    EXPECT_OK(loaded.method->execute());
    EXPECT_EQ(floats(*loaded.method, 0), (Floats{11, 22}));
    EXPECT_EQ(loaded.program->named_data("weight")->size(), 8u);
    EXPECT_FALSE(loaded.program->named_data("bias").has_value());
  }
}

TEST(DataFiles, AreRefusedWithReason) {
  const Floats weight = {10, 20, 30};
  const TemporaryFile other_shape(written(data_with(weight, {3})));
  const TemporaryFile junk(std::as_bytes(std::span(weight)));
  format::DataFileSpec renamed = data_with(weight, {3});
  renamed.entries[0].key = "bias";
  const TemporaryFile no_key(written(renamed));
  format::DataFileSpec opaque = data_with(weight, {3});
  opaque.entries[0].layout.reset();
  const TemporaryFile no_layout(written(opaque));
  format::DataFileSpec retyped = data_with(weight, {3});
  retyped.entries[0].layout = format::DataLayout{DType::kInt32, {3}, {}};
  const TemporaryFile other_dtype(written(retyped));
  struct Row {
    std::vector<std::string> files;
    Code code;
    const char* part;
  };
  const Row rows[] = {
      {{}, Code::kNotFound, "constant \"weight\" is in a data file (.ptd), and none was given"},
      {{no_key.path}, Code::kNotFound, "constant \"weight\" is in none of the 1 data files given"},
      {{other_shape.path}, Code::kIncompatible, "\"weight\" is float32 [3], the program expects float32 [2]"},
      {{other_dtype.path}, Code::kIncompatible, "\"weight\" is int32 [3], the program expects float32 [2]"},
      {{no_key.path, other_shape.path}, Code::kIncompatible, "\"weight\" is float32 [3], the program expects float32 [2]"},
      {{"/"}, Code::kNotFound, "/ is a directory, a regular file is expected"},
      {{no_layout.path}, Code::kIncompatible, "\"weight\" has no tensor layout"},
      {{other_shape.path, other_shape.path}, Code::kIncompatible, "both hold \"weight\""},
      {{junk.path}, Code::kInvalidFile, junk.path.c_str()},
      {{"/nowhere/missing.ptd"}, Code::kNotFound, "/nowhere/missing.ptd"},
  };
  for (const Row& row : rows) {
    LoadOptions options = test_options();
    options.data_files = row.files;
    PlanBuilder b = external_program();
    EXPECT_ERROR(load_error(b, options), row.code, row.part);
  }
}

TEST(DataFiles, AreRecognisedByTheirManifest) {
  const Floats weight = {10, 20}, other = {30, 40};
  format::DataFileSpec data = data_with(weight, {2}), wrong = data_with(other, {2});
  auto hash = format::add_manifest(data), wrong_hash = format::add_manifest(wrong);
  ASSERT_TRUE(hash.ok() && wrong_hash.ok());
  const auto right_bytes = written(data), wrong_bytes = written(wrong);
  const TemporaryFile right_file(right_bytes), wrong_file(wrong_bytes);
  auto changed_bytes = right_bytes;  // one bit of the weight
  auto longer_bytes = right_bytes;
  longer_bytes.push_back(std::byte{0});
  auto view = format::verify_data_file(right_bytes);
  ASSERT_TRUE(view.ok());
  changed_bytes[static_cast<size_t>(view->find("weight")->bytes.data() - right_bytes.data())] ^= std::byte{1};
  format::ProgramMeta meta;
  meta.data_files = {{"model.ptd", right_bytes.size(), *hash}};
  auto bytes = format::write_meta(meta);
  ASSERT_TRUE(bytes.ok());
  const auto loaded = [&](auto&& set) {
    PlanBuilder b = external_program();
    format::BlobSpec blob;
    blob.payload = format::Payload::borrow(bytes->span());
    b.program.blobs = {blob};
    b.program.named_data = {{std::string(format::kMetaKey), 0}};
    LoadOptions options = test_options();
    set(options);
    return load_error(b, options);
  };
  const auto file = [&](const TemporaryFile& given) { return loaded([&](LoadOptions& o) { o.data_files = {given.path}; }); };
  const auto memory = [&](std::span<const std::byte> given, bool verify = false) {
    return loaded([&](LoadOptions& o) {
      o.data_in_memory = {given};
      o.verify_data = verify;
    });
  };
  const auto descriptor = [&](const TemporaryFile& given) {
    const int fd = ::open(given.path.c_str(), O_RDONLY);
    const Status status = loaded([&](LoadOptions& o) { o.data_fds = {fd}; });
    ::close(fd);
    return status;
  };
  EXPECT_OK(file(right_file));
  EXPECT_OK(memory(right_bytes, true));
  EXPECT_OK(descriptor(right_file));
  EXPECT_ERROR(file(wrong_file), Code::kIncompatible, wrong_file.path);
  EXPECT_ERROR(memory(wrong_bytes), Code::kIncompatible, "data file 0 in memory (manifest ");
  EXPECT_ERROR(descriptor(wrong_file), Code::kIncompatible, "data file from descriptor ");
  EXPECT_ERROR(loaded([](LoadOptions& o) { o.data_fds = {-1}; }), Code::kIo, "descriptor -1");
  EXPECT_ERROR(loaded([](LoadOptions&) {}), Code::kNotFound, "needs its data file model.ptd (");
  EXPECT_ERROR(memory(longer_bytes), Code::kIncompatible, "data file 0 in memory has ");
  EXPECT_ERROR(loaded([&](LoadOptions& o) { o.data_files = {wrong_file.path}, o.data_in_memory = {longer_bytes}; }), Code::kIncompatible, "both hold");
  const std::span<const std::byte> right = right_bytes;
  const TemporaryFile longer_file(longer_bytes), cut_file(right.first(right.size() - 1)), no_file(right.first(0));
  EXPECT_ERROR(file(longer_file), Code::kIncompatible, longer_file.path);
  EXPECT_ERROR(descriptor(longer_file), Code::kIncompatible, "data file from descriptor ");
  for (size_t size = 0; size < right_bytes.size(); ++size) EXPECT_FALSE(memory(std::span(right_bytes).first(size)).ok()) << size;
  EXPECT_ERROR(memory(std::span(right_bytes).first(right_bytes.size() - 1)), Code::kInvalidFile, "data file 0 in memory: ");
  EXPECT_ERROR(file(cut_file), Code::kInvalidFile, cut_file.path);
  EXPECT_ERROR(descriptor(cut_file), Code::kInvalidFile, "data file from descriptor ");
  EXPECT_ERROR(file(no_file), Code::kInvalidFile, no_file.path);
  const int folder = ::open("/", O_RDONLY | O_DIRECTORY);
  EXPECT_ERROR(loaded([&](LoadOptions& o) { o.data_fds = {folder}; }), Code::kInvalidInput, "is not a regular file");
  ::close(folder);
  EXPECT_OK(memory(changed_bytes));  // read by kernels only: bytes are hashed on demand
  EXPECT_ERROR(memory(changed_bytes, true), Code::kInvalidFile, "data weight has other bytes than its manifest says");
}

TEST(DataFiles, AreTheSameFromMemoryAndDescriptors) {
  const Floats weight = {10, 20, 30};
  format::DataFileSpec renamed = data_with(weight, {3}), retyped = data_with(weight, {3});
  renamed.entries[0].key = "bias";
  retyped.entries[0].layout = format::DataLayout{DType::kInt32, {3}, {}};
  struct Row {
    std::vector<std::byte> bytes;
    Code code;
    const char* part;
  };
  const Row rows[] = {{written(renamed), Code::kNotFound, "\"weight\" is in none of the 1 data files given"},
                      {written(data_with(weight, {3})), Code::kIncompatible, "is float32 [3], the program expects float32 [2]"},
                      {written(retyped), Code::kIncompatible, "is int32 [3], the program expects float32 [2]"}};
  for (const Row& row : rows) {
    LoadOptions memory = test_options(), descriptor = test_options();
    memory.data_in_memory = {row.bytes};
    const TemporaryFile file(row.bytes);
    const int fd = ::open(file.path.c_str(), O_RDONLY);
    descriptor.data_fds = {fd};
    PlanBuilder a = external_program(), b = external_program();
    EXPECT_ERROR(load_error(a, memory), row.code, row.part);
    EXPECT_ERROR(load_error(b, descriptor), row.code, row.part);
    ::close(fd);
  }
}

/// What a payload finds in the program around it.
struct OuterData final : NamedData {
  std::span<const std::byte> bytes;
  bool is_changed = false;
  std::optional<std::span<const std::byte>> find(std::string_view key) const override {
    return key == "weight" && bytes.data() != nullptr ? std::optional(bytes) : std::nullopt;
  }
  Status verify(std::string_view) const override { return is_changed ? Status::invalid_file("other bytes than its manifest says") : ok_status(); }
};

TEST(DataFiles, OfThePayloadsProgramHaveTheWholeWeight) {
  const Floats weight = {10, 20, 30};
  OuterData outer;
  const auto error = [&] {
    LoadOptions options = test_options();
    options.outer_data = &outer;
    PlanBuilder b = external_program();
    return load_error(b, options);
  };
  EXPECT_ERROR(error(), Code::kNotFound, "\"weight\" is neither in the program nor in a data file");
  for (const size_t count : {size_t{0}, size_t{1}, size_t{3}}) {
    outer.bytes = std::as_bytes(std::span(weight)).first(4 * count);
    EXPECT_ERROR(error(), Code::kIncompatible, str_cat("has ", 4 * count, " bytes, expected 8"));
  }
  outer.bytes = std::as_bytes(std::span(weight)).first(8);
  EXPECT_OK(error());
  outer.is_changed = true;
  LoadOptions options = test_options();
  options.outer_data = &outer;
  options.pack_at_load = true;
  PlanBuilder at_load = external_program();
  EXPECT_ERROR(load_error(at_load, options), Code::kInvalidFile, "other bytes than its manifest says");

  // Without that, before the first call makes a result.
  options.pack_at_load = false;
  PlanBuilder late = external_program();
  Loaded loaded = load(late, options);
  ASSERT_NE(loaded.method, nullptr);
  Floats x = {1, 2};
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  EXPECT_ERROR(loaded.method->execute(), Code::kInvalidFile, "other bytes than its manifest says");
  EXPECT_FALSE(loaded.method->output(0).ok());
  outer.is_changed = false;
  EXPECT_OK(loaded.method->set_input(0, view_of(x, {2})));
  EXPECT_OK(loaded.method->execute());
  EXPECT_EQ(floats(*loaded.method, 0), (Floats{11, 22}));
}

/// forward(x) = x + weight for the sizes {2, 3}, the weight in a data file and expected in `dim_order`.
PlanBuilder matrix_program(std::vector<uint8_t> dim_order) {
  PlanBuilder b;
  format::TensorSpec weight = PlanBuilder::tensor({2, 3});
  weight.external_name = "weight";
  weight.dim_order = std::move(dim_order);
  const int32_t x = b.value(b.planned({2, 3})), w = b.value(weight), one = b.value(int64_t{1}), out = b.value(b.planned({2, 3}));
  b.plan.inputs = {x};
  b.plan.outputs = {out};
  b.call("aten::add", "out", {x, w, one, out, out});
  return b;
}

TEST(DataFiles, InAnotherDimOrderAreRefused) {
  const Floats weight = {1, 2, 3, 4, 5, 6};
  using Order = std::vector<uint8_t>;
  const Order none, rows = {0, 1}, columns = {1, 0};
  for (const Order& expected : {none, rows, columns}) {
    for (const Order& stored : {none, rows, columns}) {
      format::DataFileSpec data = data_with(weight, {2, 3});
      data.entries[0].layout->dim_order = stored;
      const std::vector<std::byte> bytes = written(data);
      LoadOptions options = test_options();
      options.data_in_memory = {bytes};
      PlanBuilder b = matrix_program(expected);
      if ((expected == columns) != (stored == columns)) {
        EXPECT_ERROR(load_error(b, options), Code::kIncompatible,
                     expected == columns ? "is float32 [2,3], the program expects float32 [2,3] in dim order [1,0]"
                                         : "is float32 [2,3] in dim order [1,0], the program expects float32 [2,3]");
        continue;
      }
      Loaded loaded = load(b, options);
      ASSERT_NE(loaded.method, nullptr);
      Floats x(6, 0);
      EXPECT_OK(loaded.method->set_input(0, view_of(x, {2, 3})));
      EXPECT_OK(loaded.method->execute());
      EXPECT_EQ(floats(*loaded.method, 0), expected == columns ? (Floats{1, 3, 5, 2, 4, 6}) : weight);
    }
  }
}

/// What the system says of this process's mappings of a file. Units: bytes.
struct Mappings {
  size_t count = 0;
  uint64_t resident = 0, proportional = 0, dirty = 0;
  bool holds_all = true;  ///< every one of the given addresses lies in one of them
};

Mappings mappings_of(const std::string& path, const std::vector<const std::byte*>& addresses) {
  Mappings found;
  std::vector<bool> held(addresses.size(), false);
  std::ifstream smaps("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(smaps, line);) {
    unsigned long long begin = 0, end = 0, kilobytes = 0;
    char label[64];
    if (std::sscanf(line.c_str(), "%llx-%llx ", &begin, &end) == 2) {
      inside = line.ends_with(path);
      found.count += inside;
      for (size_t i = 0; inside && i < addresses.size(); ++i) {
        const auto address = reinterpret_cast<uintptr_t>(addresses[i]);
        if (address >= begin && address < end) held[i] = true;
      }
    } else if (inside && std::sscanf(line.c_str(), "%63s %llu kB", label, &kilobytes) == 2) {
      const std::string_view name = label;
      if (name == "Rss:") found.resident += 1024 * kilobytes;
      if (name == "Pss:") found.proportional += 1024 * kilobytes;
      if (name == "Private_Dirty:" || name == "Shared_Dirty:") found.dirty += 1024 * kilobytes;
    }
  }
  found.holds_all = std::ranges::all_of(held, [](bool one) { return one; });
  return found;
}

TEST(DataFiles, AreMappedAndSharedBetweenPrograms) {
  constexpr size_t kCount = 1 << 16;
  constexpr size_t kPrograms = 3;
  const Floats weight(kCount, 2);
  const TemporaryFile file(written(data_with(weight, {kCount})));
  const int fd = ::open(file.path.c_str(), O_RDONLY);
  ASSERT_EQ(::fsync(fd), 0);
  ::close(fd);
  std::vector<Loaded> loaded(kPrograms);
  std::vector<Floats> results(kPrograms);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kPrograms; ++i) {
    threads.emplace_back([&, i] {  // each reads the file while the others do
      PlanBuilder b;
      format::TensorSpec spec = PlanBuilder::tensor({kCount});
      spec.external_name = "weight";
      const int32_t x = b.value(b.planned({kCount})), w = b.value(spec), factor = b.value(static_cast<int64_t>(i)), out = b.value(b.planned({kCount}));
      b.plan.inputs = {x};
      b.plan.outputs = {out};
      b.call("aten::add", "out", {x, w, factor, out, out});
      LoadOptions options = test_options();
      options.data_files = {file.path};
      options.verify_data = true;
      loaded[i] = load(b, options);
      Floats ones(kCount, 1);
      EXPECT_OK(loaded[i].method->set_input(0, view_of(ones, {kCount})));
      EXPECT_OK(loaded[i].method->execute());
      results[i] = floats(*loaded[i].method, 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<const std::byte*> addresses;
  for (size_t i = 0; i < kPrograms; ++i) {
    EXPECT_EQ(results[i], Floats(kCount, 1 + 2 * static_cast<float>(i)));
    const auto bytes = loaded[i].program->named_data("weight");
    ASSERT_TRUE(bytes.has_value());
    addresses.push_back(bytes->data());
    addresses.push_back(bytes->data() + bytes->size() - 1);
  }
  const Mappings mappings = mappings_of(file.path, addresses);
  EXPECT_TRUE(mappings.holds_all);
  EXPECT_LE(mappings.count, kPrograms);
  EXPECT_EQ(mappings.dirty, 0u);
  EXPECT_GE(mappings.resident, kPrograms * kCount * sizeof(float));
  EXPECT_LE(mappings.proportional, mappings.resident / kPrograms + 4096 * kPrograms);  // every page is in memory once
  loaded.clear();
  EXPECT_EQ(mappings_of(file.path, {}).count, 0u);
}

}  // namespace
}  // namespace pteron::runtime::testing
