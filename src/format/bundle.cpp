// FlatBuffers' verifier first, then what it does not see: absent tables, unknown dtypes, sizes against bytes.
#include "format/bundle.h"

#include <algorithm>
#include <cstring>

#include "base/str_cat.h"
#include "format/layout.h"
#include "format/program_view.h"
#include "schema/bundled_program_generated.h"
#include "tensor/dtype.h"

namespace pteron::format {

namespace {

namespace wb = wire::bundle;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;

constexpr uint32_t kBundleVersion = 2;

Result<Offset<wb::Value>> build_value(FlatBufferBuilder& fbb, const BundledValue& value) {
  if (const auto* number = std::get_if<int64_t>(&value)) return wb::CreateValue(fbb, wb::ValueUnion::Int, wb::CreateInt(fbb, *number).Union());
  if (const auto* truth = std::get_if<bool>(&value)) return wb::CreateValue(fbb, wb::ValueUnion::Bool, wb::CreateBool(fbb, *truth).Union());
  if (const auto* real = std::get_if<double>(&value)) return wb::CreateValue(fbb, wb::ValueUnion::Double, wb::CreateDouble(fbb, *real).Union());
  const BundledTensor& tensor = std::get<BundledTensor>(value);
  uint64_t bytes = 0;
  if (!layout_bytes(tensor.layout, &bytes) || bytes != tensor.bytes.size()) return Status(Code::kInvalidInput, "a tensor's sizes do not describe its bytes");
  std::vector<int32_t> sizes;
  for (const int64_t size : tensor.layout.sizes) sizes.push_back(static_cast<int32_t>(size));
  std::vector<uint8_t> order = tensor.layout.dim_order;
  for (size_t d = order.size(); d < sizes.size(); ++d) order.push_back(static_cast<uint8_t>(d));
  const auto size_list = fbb.CreateVector(sizes);
  fbb.ForceVectorAlignment(tensor.bytes.size(), 1, 16);
  const auto data = fbb.CreateVector(reinterpret_cast<const uint8_t*>(tensor.bytes.data()), tensor.bytes.size());
  const auto made = wb::CreateTensor(fbb, static_cast<wire::ScalarType>(tensor.layout.dtype), size_list, data, fbb.CreateVector(order));
  return wb::CreateValue(fbb, wb::ValueUnion::Tensor, made.Union());
}

Result<Offset<flatbuffers::Vector<Offset<wb::Value>>>> build_values(FlatBufferBuilder& fbb, const std::vector<BundledValue>& values) {
  std::vector<Offset<wb::Value>> made;
  for (const BundledValue& value : values) {
    PTERON_ASSIGN(const Offset<wb::Value> one, build_value(fbb, value));
    made.push_back(one);
  }
  return fbb.CreateVector(made);
}

Result<BundledValue> read_value(const wb::Value& value, std::string_view where) {
  if (const auto* number = value.val_as_Int()) return BundledValue(number->int_val());
  if (const auto* truth = value.val_as_Bool()) return BundledValue(truth->bool_val());
  if (const auto* real = value.val_as_Double()) return BundledValue(real->double_val());
  const auto* tensor = value.val_as_Tensor();
  if (tensor == nullptr) return Status::invalid_file(str_cat(where, ": a tensor, int, bool or double is expected"));
  BundledTensor out;
  if (!is_known_dtype(static_cast<int>(tensor->scalar_type()))) {
    return Status::invalid_file(str_cat(where, ": dtype ", static_cast<int>(tensor->scalar_type()), " is unknown"));
  }
  out.layout.dtype = static_cast<DType>(tensor->scalar_type());
  for (const int32_t size : items_of(tensor->sizes())) out.layout.sizes.push_back(size);
  for (uint32_t d = 0; d < count_of(tensor->dim_order()); ++d) out.layout.dim_order.push_back(tensor->dim_order()->Get(d));
  uint64_t bytes = 0;
  const bool fits = layout_bytes(out.layout, &bytes);
  if (tensor->data() != nullptr) out.bytes = std::as_bytes(std::span(tensor->data()->data(), tensor->data()->size()));
  if (!fits || bytes != out.bytes.size()) {
    return Status::invalid_file(str_cat(where, ": ", dtype_name(out.layout.dtype), " of sizes ", str_list(out.layout.sizes), " does not describe ", out.bytes.size(), " bytes"));
  }
  return BundledValue(std::move(out));
}

Status read_values(const flatbuffers::Vector<Offset<wb::Value>>* list, const std::string& where, std::vector<BundledValue>& out) {
  for (uint32_t i = 0; i < count_of(list); ++i) {
    PTERON_ASSIGN(BundledValue value, read_value(*list->Get(i), str_cat(where, " ", i)));
    out.push_back(std::move(value));
  }
  return ok_status();
}

Result<BundledSuite> read_suite(const wb::TestSuite& suite) {
  BundledSuite out{std::string(text_of(suite.method_name())), {}};
  for (uint32_t i = 0; i < count_of(suite.test_cases()); ++i) {
    const wb::TestCase& one = *suite.test_cases()->Get(i);
    out.cases.emplace_back();
    PTERON_TRY(read_values(one.inputs(), str_cat("method ", out.method, ", case ", i, ", input"), out.cases.back().inputs));
    PTERON_TRY(read_values(one.expected_outputs(), str_cat("method ", out.method, ", case ", i, ", expected output"), out.cases.back().expected));
  }
  return out;
}

}  // namespace

bool is_bundle(std::span<const std::byte> file) {
  return file.size() >= 8 && std::memcmp(file.data() + 4, kBundleIdentifier.data(), kBundleIdentifier.size()) == 0;
}

Result<Buffer> write_bundle(const Bundle& bundle) {
  uint64_t total = bundle.program.size();
  for (const BundledSuite& suite : bundle.suites) {
    for (const BundledCase& one : suite.cases) {
      for (const auto* list : {&one.inputs, &one.expected}) {
        for (const BundledValue& value : *list) total += std::holds_alternative<BundledTensor>(value) ? std::get<BundledTensor>(value).bytes.size() + 64 : 64;
      }
    }
  }
  if (total > kMaxFlatbufferBytes / 2) return Status(Code::kInvalidInput, str_cat("a bundle of ", total, " bytes is too large for its format"));
  FlatBufferBuilder fbb;
  std::vector<Offset<wb::TestSuite>> suites;
  for (const BundledSuite& suite : bundle.suites) {
    std::vector<Offset<wb::TestCase>> cases;
    for (const BundledCase& one : suite.cases) {
      PTERON_ASSIGN(const auto inputs, build_values(fbb, one.inputs));
      PTERON_ASSIGN(const auto expected, build_values(fbb, one.expected));
      cases.push_back(wb::CreateTestCase(fbb, inputs, expected));
    }
    const auto name = fbb.CreateString(suite.method);
    suites.push_back(wb::CreateTestSuite(fbb, name, fbb.CreateVector(cases)));
  }
  const auto suite_list = fbb.CreateVector(suites);
  fbb.ForceVectorAlignment(bundle.program.size(), 1, 32);
  const auto program = fbb.CreateVector(reinterpret_cast<const uint8_t*>(bundle.program.data()), bundle.program.size());
  fbb.Finish(wb::CreateBundledProgram(fbb, kBundleVersion, suite_list, program), wb::BundledProgramIdentifier());
  PTERON_ASSIGN(Buffer out, Buffer::create(fbb.GetSize()));
  std::copy_n(reinterpret_cast<const std::byte*>(fbb.GetBufferPointer()), fbb.GetSize(), out.data());
  return out;
}

Result<Bundle> read_bundle(std::span<const std::byte> file) {
  if (file.size() < 2 * kPrefixBytes || read_tag(file, 4) != kBundleIdentifier) {
    return Status::invalid_file(str_cat("a bundled program with identifier BP08 at byte 4 is expected, found ", kind_of_file(file)));
  }
  if (file.size() > kMaxFlatbufferBytes) return Status::invalid_file("a bundled program must be smaller than 2 GiB");
  Bundle bundle;
  if (reinterpret_cast<uintptr_t>(file.data()) % kFlatbufferAlignment != 0) {
    PTERON_ASSIGN(bundle.aligned_copy, Buffer::create(file.size()));
    std::ranges::copy(file, bundle.aligned_copy.data());
    file = bundle.aligned_copy.span().first(file.size());
  }
  flatbuffers::Verifier::Options options;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(file.size() / 8 + 1);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(file.data()), file.size(), options);
  if (!wb::VerifyBundledProgramBuffer(verifier)) return Status::invalid_file("the bundled program's table is damaged");
  const wb::BundledProgram& root = *wb::GetBundledProgram(file.data());
  if (root.program() == nullptr || root.program()->size() == 0) return Status::invalid_file("the bundle holds no program");
  bundle.program = std::as_bytes(std::span(root.program()->data(), root.program()->size()));
  for (uint32_t i = 0; i < count_of(root.method_test_suites()); ++i) {
    PTERON_ASSIGN(BundledSuite suite, read_suite(*root.method_test_suites()->Get(i)));
    bundle.suites.push_back(std::move(suite));
  }
  return bundle;
}

}  // namespace pteron::format
