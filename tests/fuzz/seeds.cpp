// Seeds: files made with our own writers, and archives after tests/conformance/sample.
#include "fuzz/seeds.h"

#include <zlib.h>

#include <array>
#include <cstring>
#include <string>

#include "backends/cuda/module.h"
#include "backends/tensorrt/blob.h"
#include "base/check.h"
#include "base/mapped_file.h"
#include "base/str_cat.h"
#include "base/zip.h"
#include "format/bundle.h"
#include "format/data_file.h"
#include "format/etdump.h"
#include "format/meta.h"
#include "format/sample_program.h"
#include "fuzz/consume.h"
#include "import/import.h"
#include "ir/text.h"
#include "ops/catalog.h"
#include "tensor/npy.h"
#include "tensor/safetensors.h"

namespace pteron::fuzz {

namespace {

using Bytes = std::vector<std::byte>;

Bytes taken(const MemorySink& sink) { return {sink.bytes().begin(), sink.bytes().end()}; }
std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

Bytes program_file(const format::ProgramSpec& program) {
  MemorySink sink;
  PTERON_CHECK(format::write_program(program, {}, sink).ok());
  return taken(sink);
}

Bytes meta_file() {
  using format::DimExpr;
  using format::DimOp;
  format::MethodMeta method;
  method.name = "forward";
  method.symbols = {{"batch", 1, 8, 1, 0}};
  format::PortMeta x;
  x.name = "x";
  x.dims = {DimExpr{{{DimOp::kSymbol, 0}, {DimOp::kConst, 2}, {DimOp::kFloorDiv, 0}}, "batch//2"}, DimExpr::constant(4)};
  x.dim_order = {1, 0};
  method.inputs = {x};
  method.outputs = {x};
  method.constraints = {{{{{DimOp::kSymbol, 0}, {DimOp::kConst, 9}, {DimOp::kLe, 0}}, "batch <= 9"}, "batch <= 9"}};
  method.arenas = {{64, "a"}};
  method.mutable_buffers = {{"cache", 1, true, {{0, 1, 2}}}};
  method.source_lines = {{0, "net.py:1", "net"}};
  format::ProgramMeta meta;
  meta.profile = "pteron";
  meta.methods = {method};
  meta.data_files = {{"m.ptd", 4, "0"}};
  auto blob = format::write_meta(meta);
  PTERON_CHECK(blob.ok());
  return {blob->data(), blob->data() + blob->size()};
}

/// A program with facts of ours, so that the runtime reads them too.
Bytes program_with_meta() {
  static const Bytes meta = [] {
    format::MethodMeta method;
    method.name = "forward";
    format::PortMeta port;
    port.name = "x";
    port.dims = {format::DimExpr::symbol(0, "s"), format::DimExpr::constant(4)};
    method.symbols = {{"s", 1, 3, 1, 0}};
    method.inputs = {port};
    method.outputs = {port};
    format::ProgramMeta facts;
    facts.methods = {method};
    auto blob = format::write_meta(facts);
    PTERON_CHECK(blob.ok());
    return Bytes(blob->data(), blob->data() + blob->size());
  }();
  format::ProgramSpec program = format::sample_add_program();
  program.blobs.push_back({format::Payload::borrow(meta), 0, 0});
  program.named_data = {{std::string(format::kMetaKey), 0}};
  return program_file(program);
}

Bytes data_file() {
  static constexpr std::array<float, 8> kNumbers = {1, 2, 3, 4};
  format::DataFileSpec data;
  data.blobs.push_back({format::Payload::borrow(std::as_bytes(std::span(kNumbers))), 0});
  data.entries.push_back({"layer.weight", 0, format::DataLayout{DType::kFloat32, {2, 4}, {1, 0}}});
  data.entries.push_back({"blob", 0, std::nullopt});
  PTERON_CHECK(format::add_manifest(data).ok());
  MemorySink sink;
  PTERON_CHECK(format::write_data_file(data, {}, sink).ok());
  return taken(sink);
}

/// The weights of program_with_weights.
Bytes weights_file(bool manifest) {
  format::DataFileSpec data;
  data.blobs.push_back({format::Payload::borrow(std::as_bytes(std::span(format::kSampleWeights))), 0});
  data.entries.push_back({"w", 0, format::DataLayout{DType::kFloat32, {3, 4}, {0, 1}}});
  if (manifest) PTERON_CHECK(format::add_manifest(data).ok());
  MemorySink sink;
  PTERON_CHECK(format::write_data_file(data, {}, sink).ok());
  return taken(sink);
}

Bytes etdump_file() {
  static constexpr std::array<int64_t, 2> kSizes = {2, 3};
  const format::EtdumpTensor tensor{DType::kInt16, kSizes, 64};
  format::Etdump dump;
  dump.runs = {{"Default", -1, {"planned"}}, {"Execute", 2}};
  dump.runs[0].events = {format::EtdumpProfile{"Method::init", {}, 1, 2, {}}, format::EtdumpAllocation{0, 64}};
  dump.runs[1].events = {format::EtdumpProfile{"native_call_add.out", {0, 3, -1, {}}, 3, 9, {}}, format::EtdumpProfile{"part", {0, 4, -1, "1: mm"}, 3, 9, bytes_of("abc")},
                         format::EtdumpDebug{"add.out", {0, 3, -1, {}}, tensor, true}, format::EtdumpDebug{"list", {0, 4, 1, {}}, std::vector{tensor, tensor}, false},
                         format::EtdumpDebug{"n", {}, int64_t{7}, false}, format::EtdumpDebug{"r", {}, 0.5, false}, format::EtdumpDebug{"b", {}, true, true}};
  auto made = format::write_etdump(dump);
  PTERON_CHECK(made.ok());
  return {made->span().begin(), made->span().end()};
}

Bytes tensorrt_blob() {
  tensorrt::Metadata metadata;
  metadata.bindings = {{"x", true}, {"cache", true}, {"y\xc3\xa9", false}, {"cache_out", false}};
  metadata.aliases = {{"cache_out", "cache", tensorrt::Alias::Kind::kUser}};
  metadata.device_id = 1;
  const auto head = tensorrt::blob_head(metadata, 6);
  PTERON_CHECK(head.ok());
  const std::string text = *head + "engine";
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes cuda_module() {
  static constexpr std::string_view kText = "extern";
  const auto made = cuda::write_module(std::array<cuda::ModuleEntry, 3>{{{cuda::ModuleKind::kCubin, 90, bytes_of("\x7f" "ELF")},
                                                                        {cuda::ModuleKind::kPtx, 80, bytes_of(std::string_view(".version\0", 9))},
                                                                        {cuda::ModuleKind::kSource, 0, bytes_of(kText)}}});
  PTERON_CHECK(made.ok());
  return {made->data(), made->data() + made->size()};
}

Bytes bundle_file(std::span<const std::byte> program) {
  static constexpr std::array<float, 6> kNumbers = {1, 2, 3, 4, 5, 6};
  const format::BundledTensor tensor{{DType::kFloat32, {2, 3}, {1, 0}}, std::as_bytes(std::span(kNumbers))};
  format::Bundle bundle;
  bundle.program = program;
  bundle.suites = {{"forward", {{{tensor, int64_t{3}, true, 0.5}, {tensor}}, {{tensor}, {}}}}, {"empty", {}}};
  auto made = format::write_bundle(bundle);
  PTERON_CHECK(made.ok());
  return {made->span().begin(), made->span().end()};
}

std::vector<NamedTensor> tensors() {
  static std::array<int16_t, 6> numbers = {1, 2, 3, 4, 5, 6};
  static constexpr std::array<int64_t, 2> kSizes = {2, 3};
  return {{"a", make_contiguous_view(DType::kInt16, kSizes, numbers.data())}, {"b\"", make_contiguous_view(DType::kBFloat16, {}, numbers.data())}};
}

Bytes safetensors_file() {
  MemorySink sink;
  PTERON_CHECK(write_safetensors(tensors(), sink).ok());
  return taken(sink);
}

Bytes npy_file() {
  MemorySink sink;
  PTERON_CHECK(write_npy(tensors()[0].view, sink).ok());
  return taken(sink);
}

Bytes npz_file() {
  const std::vector<NamedTensor> all = tensors();
  MemorySink sink;
  PTERON_CHECK(write_npz(std::span(all).first(1), sink).ok());
  return taken(sink);
}

/// An archive of the sample pack.
const FileBytes& sample_archive(std::string_view name) {
  static std::vector<std::pair<std::string, std::shared_ptr<FileBytes>>> cache;
  for (const auto& [known, file] : cache) {
    if (known == name) return *file;
  }
  auto file = FileBytes::map(str_cat(PTERON_SAMPLES, "/", name, "/model.pt2"));
  PTERON_CHECK(file.ok());
  cache.emplace_back(name, std::move(*file));
  return *cache.back().second;
}

Bytes copy_of(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

/// The pickle inside a file of an archive that is a zip file itself.
Bytes inner_pickle(std::span<const std::byte> archive, std::string_view file) {
  auto zip = ZipFile::open(archive, nullptr);
  PTERON_CHECK(zip.ok());
  for (const ZipEntry& entry : zip->entries()) {
    if (!entry.name.ends_with(file)) continue;
    auto nested = zip->read(entry, true);
    PTERON_CHECK(nested.ok());
    auto inner = ZipFile::open(nested->bytes, nested->owner);
    PTERON_CHECK(inner.ok());
    const ZipEntry* pickle = inner->find("archive/data.pkl");
    PTERON_CHECK(pickle != nullptr);
    return copy_of(inner->read(*pickle, true)->bytes);
  }
  PTERON_CHECK(false);
  return {};
}

Bytes sample_pickle(std::string_view name) { return inner_pickle(sample_archive(name).bytes(), "sample_inputs/model.pt"); }

/// An archive with a prebuilt engine (tests/archives/make_engines.py).
Bytes engine_archive(std::string_view name) {
  auto file = FileBytes::map(str_cat(PTERON_ENGINES, "/", name, ".pt2"));
  PTERON_CHECK(file.ok());
  return copy_of((*file)->bytes());
}

Bytes engine_record() {
  return copy_of(bytes_of("10\nengine_0\n1%8%0%0%NVIDIA A100\n\nx%cache\ny%cache_out\n0\nc2V0dGluZ3M=\nlinux_x86_64\n0\n0\n0\ncache_out@cache@kv_cache_update"));
}

/// An imported archive as IR text.
Bytes ir_text(std::string_view name) {
  const auto catalog = ops::make_catalog();
  auto file = FileBytes::map(str_cat(PTERON_SAMPLES, "/", name, "/model.pt2"));
  ir::Program program;
  PTERON_CHECK(catalog.ok() && file.ok() && importer::import_archive(std::move(*file), *catalog, {}, program).ok());
  return copy_of(bytes_of(ir::print(program)));
}

/// Every construct of the text form once.
constexpr std::string_view kText =
    "symbol s77: int in [2,64]\nsymbol f: float\nconst 0: f32[2,2]{1,2} \"w\" parameter = {1.0,-2.5,inf,nan}\n"
    "const 1: i64[] \"steps\" buffer mutable = {-9223372036854775808}\nconst 2: bf16[32] \"big\" = hash 0123456789abcdef\n"
    "method \"forward\"\ngraph(x: f32[2*s77,3]{1,2*s77}, %s77: f32[s77] as \"user\", k = 5, m: scalar(3+s77//2)) {\n"
    "  state c: i64[] \"steps\" = const 1\n  w = const 0\n  y = aten::relu(x) as \"n\" at \"net.py:42\" in \"layers.0\"\n"
    "  g: none, %\"odd name\": f32[3]@cuda:0 = mylib::thing.special(w, [], [1,max(s77,9)], complex(1.0,nan), true, none, dtype:f16)\n"
    "  r: f32[1] = higher_order::cond(s77<4, [y]) regions [\n    graph(x: f32[1]) { return x },\n    graph(x: f32[1]) { return x }\n  ]\n"
    "  write state \"steps\" = c\n  write input 0 = y\n  return r, s77, -0.0, \"s\", none, %s77, trunc(0.5*float(s77))\n}\n";

Bytes model_json(std::string_view name) {
  auto zip = ZipFile::open(sample_archive(name).bytes(), nullptr);
  PTERON_CHECK(zip.ok());
  for (const ZipEntry& entry : zip->entries()) {
    if (!entry.name.ends_with("models/model.json")) continue;
    auto content = zip->read(entry, true);
    PTERON_CHECK(content.ok());
    return copy_of(content->bytes);
  }
  PTERON_CHECK(false);
  return {};
}

void put(Bytes& out, uint64_t value, int count) {
  for (int i = 0; i < count; ++i) out.push_back(static_cast<std::byte>(i < 8 ? value >> (8 * i) : 0));
}

void put(Bytes& out, std::span<const std::byte> bytes) { out.insert(out.end(), bytes.begin(), bytes.end()); }

/// The fields that local and central headers share.
void put_common(Bytes& out, const ZipPart& part) {
  const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(part.bytes.data()), part.bytes.size());
  put(out, 20, 2);
  put(out, 0, 8);
  put(out, crc, 4);
  put(out, part.bytes.size(), 4);
  put(out, part.bytes.size(), 4);
  put(out, part.name.size(), 2);
  put(out, 0, 2);
}

}  // namespace

std::vector<std::byte> program_with_weights() {
  format::ProgramSpec program = format::sample_add_program();
  program.constants.clear();
  format::TensorSpec weight;
  weight.sizes = {3, 4};
  weight.external_name = "w";
  program.plans[0].values[2] = weight;
  return program_file(program);
}

std::vector<std::byte> build_zip(std::span<const ZipPart> parts) {
  Bytes out, directory;
  for (const ZipPart& part : parts) {
    put(directory, 0x02014b50, 4);
    put(directory, 20, 2);
    put_common(directory, part);
    put(directory, 0, 10);
    put(directory, out.size(), 4);
    put(directory, bytes_of(part.name));
    put(out, 0x04034b50, 4);
    put_common(out, part);
    put(out, bytes_of(part.name));
    put(out, part.bytes);
  }
  const size_t directory_at = out.size();
  put(out, directory);
  put(out, 0x06054b50, 4);
  put(out, 0, 4);
  put(out, parts.size(), 2);
  put(out, parts.size(), 2);
  put(out, directory.size(), 4);
  put(out, directory_at, 4);
  put(out, 0, 2);
  return out;
}

std::vector<std::byte> build_archive(std::span<const std::byte> json) {
  auto zip = ZipFile::open(sample_archive("mlp_bfloat16").bytes(), nullptr);
  PTERON_CHECK(zip.ok());
  std::vector<ZipPart> parts;
  for (const ZipEntry& entry : zip->entries()) {
    if (entry.name.ends_with("models/model.json")) {
      parts.push_back({entry.name, json});
      continue;
    }
    auto content = zip->read(entry, false);
    PTERON_CHECK(content.ok());
    parts.push_back({entry.name, content->bytes});
  }
  return build_zip(parts);
}

std::vector<Kind> all_kinds() {
  const Bytes add = program_file(format::sample_add_program()), full = program_file(format::sample_full_program()), facts = program_with_meta();
  const Bytes archive = copy_of(sample_archive("add.f32.32").bytes());
  const Bytes object = engine_archive("object"), buffer = engine_archive("buffer");
  return {
      {"program", consume_program, {add, full, facts}, true},
      {"run", consume_run, {add, facts}, true},
      {"data_file", consume_data_file, {data_file()}, true},
      {"meta", consume_meta, {meta_file()}, false},
      {"safetensors", consume_safetensors, {safetensors_file()}, true},
      {"npy", consume_npy, {npy_file(), npz_file()}, true},
      {"zip", consume_zip, {npz_file(), archive}, true},
      {"archive", consume_archive, {archive, object, buffer}, true},
      {"model_json", consume_model_json, {model_json("mlp_bfloat16")}, true},
      {"sample_inputs", consume_sample_inputs, {archive}, true},
      {"pickle", consume_pickle, {sample_pickle("add.f32.32"), inner_pickle(object, "custom_obj_0")}, true},
      {"ir_text", consume_ir_text, {ir_text("add.f32.32"), copy_of(bytes_of(kText))}, false},
      {"bundle", consume_bundle, {bundle_file(add)}, false},
      {"etdump", consume_etdump, {etdump_file()}, true},
      {"weights", consume_weights, {weights_file(true), weights_file(false)}, true},
      {"tensorrt_blob", consume_tensorrt_blob, {tensorrt_blob()}, false},
      {"engine_record", consume_engine_record, {engine_record()}, false},
      {"cuda_module", consume_cuda_module, {cuda_module()}, true},
      {"merge", consume_merge, {add, facts, bundle_file(add), weights_file(true), weights_file(false)}, true},
  };
}

}  // namespace pteron::fuzz
