// Tests of the .safetensors reader and writer and of the JSON pull parser.
#include "tensor/safetensors.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "base/str_cat.h"
#include "tensor/json_reader.h"
#include "tensor/test_bytes.h"

namespace pteron {
namespace {

std::string file_of(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string out(reinterpret_cast<const char*>(&length), 8);
  out.append(header);
  out.append(data_bytes, '\1');
  return out;
}

TEST(Safetensors, WritesTheDocumentedBytes) {
  std::array<float, 2> values = {1.0f, -2.0f};
  const std::array<int64_t, 1> sizes = {2};
  const NamedTensor tensor{"a\"b", make_contiguous_view(DType::kFloat32, sizes, values.data())};
  MemorySink sink;
  ASSERT_TRUE(write_safetensors({&tensor, 1}, sink).ok());
  const std::string_view text(reinterpret_cast<const char*>(sink.bytes().data()), sink.bytes().size());
  const std::string header = R"({"a\"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  EXPECT_EQ(text.size() % 8, 0u);
  EXPECT_EQ(text.substr(8, header.size()), header);
  EXPECT_EQ(std::memcmp(text.data() + text.size() - 8, values.data(), 8), 0);
}

TEST(Safetensors, KeepsOrderAndGathersStrides) {
  std::array<int64_t, 6> values = {0, 1, 2, 3, 4, 5};
  TensorView transposed;
  transposed.dtype = DType::kInt64;
  transposed.rank = 2;
  transposed.size_array = {3, 2};
  transposed.stride_array = {1, 3};
  transposed.data = values.data();
  std::array<uint8_t, 1> flag = {1};
  const std::vector<NamedTensor> tensors = {{"z", transposed}, {"a", make_contiguous_view(DType::kBool, {}, flag.data())}};
  MemorySink sink;
  ASSERT_TRUE(write_safetensors(tensors, sink).ok());
  auto read = read_safetensors(sink.bytes());
  ASSERT_TRUE(read.ok()) << read.status().message();
  ASSERT_EQ(read->tensors.size(), 2u);
  EXPECT_EQ(read->tensors[0].name, "z");
  EXPECT_EQ(read->tensors[1].view.rank, 0);
  std::array<int64_t, 6> got{};
  std::memcpy(got.data(), read->find("z")->data, sizeof got);
  EXPECT_EQ(got, (std::array<int64_t, 6>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(read->find("missing"), nullptr);
}

TEST(Safetensors, AllDTypesRoundTrip) {
  std::array<std::byte, 64> data{};
  for (int number = 0; number < 64; ++number) {
    if (!is_known_dtype(number)) continue;
    const DType dtype = static_cast<DType>(number);
    const std::array<int64_t, 2> sizes = {2, 1};
    const NamedTensor tensor{"x", make_contiguous_view(dtype, sizes, data.data())};
    MemorySink sink;
    const Status status = write_safetensors({&tensor, 1}, sink);
    if (dtype == DType::kComplexHalf || dtype == DType::kComplexDouble) {
      EXPECT_EQ(status.code(), Code::kInvalidInput);
      continue;
    }
    ASSERT_TRUE(status.ok()) << dtype_name(dtype);
    auto read = read_safetensors(sink.bytes());
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(read->tensors[0].view.dtype, dtype);
  }
}

TEST(Safetensors, ReadsMetadataEmptyTensorsAndUnknownKeys) {
  const std::string file =
      file_of(R"( {"__metadata__":{"format":"p\u00e9\ud83d\ude00t"},"e":{"x":[{"y":[]},1.5e3,true,null,{}],"shape":[0,7],"dtype":"I8","data_offsets":[0,0]}}  )", 0);
  auto read = read_safetensors(bytes_of(file));
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->metadata[0].second, "p\xc3\xa9\xf0\x9f\x98\x80t");
  EXPECT_EQ(read->tensors[0].view.numel(), 0);
}

struct BadFile {
  const char* header;
  size_t data_bytes;
  Code code;
  const char* text;
};

TEST(Safetensors, RefusesBadFiles) {
  const BadFile kBad[] = {
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 7, Code::kInvalidFile, "cut off"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 9, Code::kInvalidFile, "describes 8 data bytes"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", 8, Code::kInvalidFile, "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]}})", 8, Code::kInvalidFile, "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", 8, Code::kInvalidFile, "does not fit"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", 8, Code::kInvalidFile, "non-negative"},
      {R"({"a":{"dtype":"F32","shape":[2.5],"data_offsets":[0,8]}})", 8, Code::kInvalidFile, "integer"},
      {R"({"a":{"dtype":"Q7","shape":[2],"data_offsets":[0,8]}})", 8, Code::kUnsupported, "Q7"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})", 4, Code::kInvalidFile, "twice"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})", 3, Code::kInvalidFile, "contiguous"},
      {R"({"a":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, Code::kInvalidFile, "rank 17"},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, Code::kInvalidFile, "lacks"},
      {R"({"a":{}})", 0, Code::kInvalidFile, "no dtype"},
      {R"({"a)", 0, Code::kInvalidFile, "cut off"},
      {R"({"a":[1]})", 0, Code::kInvalidFile, "'{'"},
      {R"({} x)", 0, Code::kInvalidFile, "end is expected"},
      {"", 0, Code::kInvalidFile, "'{'"},
  };
  for (const BadFile& bad : kBad) {
    const std::string file = file_of(bad.header, bad.data_bytes);
    auto read = read_safetensors(bytes_of(file));
    ASSERT_FALSE(read.ok()) << bad.header;
    EXPECT_EQ(read.status().code(), bad.code) << bad.header;
    EXPECT_NE(read.status().message().find(bad.text), std::string_view::npos) << read.status().message();
  }
  EXPECT_EQ(read_safetensors(bytes_of("1234567")).status().code(), Code::kInvalidFile);
  EXPECT_EQ(read_safetensors(bytes_of("\xff\xff\xff\xff\xff\xff\xff\xff{}")).status().code(), Code::kInvalidFile);
}

TEST(JsonReader, SkipsValuesAndRefusesDeepNesting) {
  JsonReader good(R"([{"a":[1,-2.5e+3,"x\\\"",{}],"b":{}},[],null] ,)");
  EXPECT_TRUE(good.skip_value().ok());
  EXPECT_TRUE(good.accept(','));
  EXPECT_TRUE(good.expect_end().ok());
  const std::string nested(10000, '[');
  JsonReader deep(nested);
  EXPECT_EQ(deep.skip_value().code(), Code::kInvalidFile);
  for (const char* bad : {"", "[1", "{\"a\"}", "{1:2}", "[1 2]", "tru", "\"\\x\"", "\"\\ud800\"", "[,]"}) {
    JsonReader reader(bad);
    EXPECT_FALSE(reader.skip_value().ok()) << bad;
  }
}

}  // namespace
}  // namespace pteron
