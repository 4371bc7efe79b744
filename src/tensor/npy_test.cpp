// Tests of the .npy and .npz readers and writers and of reading by content.
#include "tensor/npy.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <numeric>
#include <string>

#include "base/file_writer.h"
#include "base/str_cat.h"
#include "tensor/safetensors.h"
#include "tensor/test_bytes.h"

namespace pteron {
namespace {

std::string npy(std::string_view dict, size_t data_bytes) {
  std::string out("\x93NUMPY\1\0", 8);
  out.push_back(static_cast<char>(dict.size()));
  out.push_back('\0');
  out.append(dict);
  for (size_t i = 0; i < data_bytes; ++i) out.push_back(static_cast<char>(i));
  return out;
}

TEST(Npy, WritesWhatNumpyWrites) {
  std::array<int32_t, 6> values = {0, 1, 2, 3, 4, 5};
  const std::array<int64_t, 2> sizes = {2, 3};
  MemorySink sink;
  ASSERT_TRUE(write_npy(make_contiguous_view(DType::kInt32, sizes, values.data()), sink).ok());
  ASSERT_EQ(sink.bytes().size(), 128u + 24u);
  const std::string_view text(reinterpret_cast<const char*>(sink.bytes().data()), 128);
  EXPECT_EQ(text.substr(10, 60), "{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), } ");
  EXPECT_EQ(text[127], '\n');
  EXPECT_EQ(std::memcmp(sink.bytes().data() + 128, values.data(), 24), 0);
}

TEST(Npy, AllDTypesAndRanksRoundTrip) {
  std::array<std::byte, 128> data{};
  for (int number = 0; number < 64; ++number) {
    if (!is_known_dtype(number)) continue;
    const DType dtype = static_cast<DType>(number);
    for (size_t rank = 0; rank < 4; ++rank) {
      const std::vector<int64_t> sizes(rank, 2);
      MemorySink sink;
      const Status status = write_npy(make_contiguous_view(dtype, sizes, data.data()), sink);
      if (!status.ok()) {
        EXPECT_TRUE(dtype_size(dtype) <= 4 && dtype != DType::kFloat32) << dtype_name(dtype);
        EXPECT_EQ(status.code(), Code::kInvalidInput);
        continue;
      }
      EXPECT_EQ((sink.bytes().size() - dtype_size(dtype) * (size_t{1} << rank)) % 64, 0u);
      auto read = read_npy(sink.bytes());
      ASSERT_TRUE(read.ok()) << read.status().message();
      EXPECT_EQ(read->dtype, dtype);
      EXPECT_EQ(std::vector<int64_t>(read->sizes().begin(), read->sizes().end()), sizes);
    }
  }
}

TEST(Npy, ColumnMajorKeepsItsStrides) {
  const std::string file = npy("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", 6);
  auto read = read_npy(bytes_of(file));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->stride(0), 1);
  EXPECT_EQ(read->stride(1), 2);
  MemorySink sink;
  ASSERT_TRUE(write_npy(*read, sink).ok());
  const auto* last = sink.bytes().data() + sink.bytes().size() - 6;
  const std::array<uint8_t, 6> expected = {0, 2, 4, 1, 3, 5};
  EXPECT_EQ(std::memcmp(last, expected.data(), 6), 0);
}

TEST(Npy, AcceptsHeadersOfOtherWriters) {
  EXPECT_TRUE(read_npy(bytes_of(npy(R"({"shape": (2L,), "fortran_order": False, "descr": "<f2"})", 4))).ok());
  EXPECT_TRUE(read_npy(bytes_of(npy("{'descr':'>u1','fortran_order':False,'shape':()}\n", 1))).ok());
  std::string second("\x93NUMPY\2\0", 8);
  const std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 5)}";
  second.push_back(static_cast<char>(dict.size()));
  second.append(3, '\0');
  auto read = read_npy(bytes_of(second + dict));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->numel(), 0);
}

TEST(Npy, RefusesBadFiles) {
  const struct {
    std::string file;
    Code code;
    const char* text;
  } kBad[] = {
      {"", Code::kInvalidFile, "is expected"},
      {"\x93NUMPY", Code::kInvalidFile, "cut off"},
      {std::string("\x93NUMPY\4\0\0\0\0\0", 12), Code::kInvalidFile, "version 4"},
      {std::string("\x93NUMPY\1\0\xff\xff{}", 12), Code::kInvalidFile, "cut off"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7), Code::kInvalidFile, "cut off"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 9), Code::kInvalidFile, "needs 8 bytes, the file has 9"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 8)}", 9), Code::kInvalidFile, "too large"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", 0), Code::kInvalidFile, "size is expected"},
      {npy("{'descr': '<f4', 'fortran_order': False}", 0), Code::kInvalidFile, "shape are expected"},
      {npy("{'descr': '<f4', 'fortran_order': 1, 'shape': ()}", 4), Code::kInvalidFile, "True or False"},
      {npy("{'descr': '<f4', 'x': 1}", 4), Code::kInvalidFile, "unknown key x"},
      {npy("{'descr: ", 4), Code::kInvalidFile, "cut off"},
      {npy("{'descr': '>f4', 'fortran_order': False, 'shape': ()}", 4), Code::kUnsupported, ">f4"},
      {npy("{'descr': '|O', 'fortran_order': False, 'shape': ()}", 4), Code::kUnsupported, "|O"},
      {npy("{'descr': '', 'fortran_order': False, 'shape': ()}", 4), Code::kUnsupported, "dtype"},
      {npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", 4), Code::kUnsupported, "structured"},
      {npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1)}", 4), Code::kInvalidFile, "rank over 16"},
  };
  for (const auto& bad : kBad) {
    auto read = read_npy(bytes_of(bad.file));
    ASSERT_FALSE(read.ok()) << bad.text;
    EXPECT_EQ(read.status().code(), bad.code) << bad.text;
    EXPECT_NE(read.status().message().find(bad.text), std::string_view::npos) << read.status().message();
  }
}

TEST(Npz, RoundTripAndReadingByContent) {
  std::array<float, 4> a = {1, 2, 3, 4};
  std::array<uint8_t, 1> b = {1};
  const std::array<int64_t, 2> sizes = {2, 2};
  const std::vector<NamedTensor> tensors = {{"weights/a", make_contiguous_view(DType::kFloat32, sizes, a.data())},
                                            {"b", make_contiguous_view(DType::kBool, {}, b.data())}};
  MemorySink npz, npy_file, safe;
  ASSERT_TRUE(write_npz(tensors, npz).ok());
  ASSERT_TRUE(write_npy(tensors[0].view, npy_file).ok());
  ASSERT_TRUE(write_safetensors(tensors, safe).ok());
  const std::string path = str_cat(::testing::TempDir(), "pteron_npz_test.", static_cast<int64_t>(::getpid()));
  using Kind = TensorFile::Kind;
  for (const auto& [bytes, kind] : {std::pair{npz.bytes(), Kind::kNpz}, std::pair{npy_file.bytes(), Kind::kNpy}, std::pair{safe.bytes(), Kind::kSafetensors}}) {
    auto writer = FileWriter::create(path);
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE((*writer)->write(bytes).ok() && (*writer)->commit(false).ok());
    auto file = FileBytes::map(path);
    ASSERT_TRUE(file.ok());
    auto read = read_tensor_file(std::move(*file));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->kind, kind);
    EXPECT_EQ(read->tensors.size(), kind == Kind::kNpy ? 1u : 2u);
    EXPECT_EQ(read->tensors[0].name, kind == Kind::kNpy ? "0" : "weights/a");
    EXPECT_EQ(std::memcmp(read->tensors[0].view.data, a.data(), sizeof a), 0);
  }
  ::unlink(path.c_str());
  const std::vector<NamedTensor> twice = {tensors[0], tensors[0]};
  EXPECT_EQ(write_npz(twice, npz).code(), Code::kInvalidInput);
}

/// np.savez_compressed of {"x": arange(3, dtype=uint8)}, made by hand with a stored deflate block.
TEST(Npz, ReadsDeflatedEntriesAndChecksThem) {
  MemorySink sink;
  std::array<uint8_t, 3> values = {0, 1, 2};
  const std::array<int64_t, 1> sizes = {3};
  const NamedTensor tensor{"x", make_contiguous_view(DType::kUInt8, sizes, values.data())};
  ASSERT_TRUE(write_npz({&tensor, 1}, sink).ok());
  std::string file(reinterpret_cast<const char*>(sink.bytes().data()), sink.bytes().size());
  // Local header 30 + name 5, then the entry's 131 bytes: put a deflate block header of 5 bytes before them.
  const size_t size = 131, data_at = 35;
  const std::string block = {1, static_cast<char>(size & 0xff), 0, static_cast<char>(0xff - (size & 0xff)), static_cast<char>(0xff)};
  file.insert(data_at, block);
  const size_t directory = data_at + 5 + size;
  const uint32_t packed = size + 5, start = directory;
  file[8] = file[directory + 10] = 8;
  std::memcpy(file.data() + 18, &packed, 4);
  std::memcpy(file.data() + directory + 20, &packed, 4);
  std::memcpy(file.data() + file.size() - 6, &start, 4);
  auto read = read_npz(bytes_of(file), nullptr);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(std::memcmp(read->tensors[0].view.data, values.data(), 3), 0);
  file[data_at + 5 + size - 1] ^= 1;
  EXPECT_EQ(read_npz(bytes_of(file), nullptr).status().code(), Code::kInvalidFile);
}

}  // namespace
}  // namespace pteron
