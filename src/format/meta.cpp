// Writer and verified reader of the pteron.meta blob.
#include "format/meta.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "base/str_cat.h"
#include "format/layout.h"
#include "format/program_view.h"
#include "schema/pteron_meta_generated.h"

namespace pteron::format {

namespace {

namespace wm = wire::meta;
using flatbuffers::FlatBufferBuilder;
using flatbuffers::Offset;
template <typename T>
using List = flatbuffers::Vector<Offset<T>>;

// --- writing ---

Offset<wm::Expr> put(FlatBufferBuilder& fbb, const DimExpr& expr) {
  std::vector<uint8_t> ops;
  std::vector<int64_t> operands;
  for (const DimExpr::Step& step : expr.steps) {
    ops.push_back(static_cast<uint8_t>(step.op));
    operands.push_back(step.operand);
  }
  const auto text = fbb.CreateSharedString(expr.text);
  const auto op_list = fbb.CreateVector(ops);
  return wm::CreateExpr(fbb, text, op_list, fbb.CreateVector(operands));
}

Offset<wm::Symbol> put(FlatBufferBuilder& fbb, const SymbolMeta& s) {
  return wm::CreateSymbol(fbb, fbb.CreateSharedString(s.name), s.min, s.max, s.divisor, s.remainder);
}

Offset<wm::Constraint> put(FlatBufferBuilder& fbb, const ConstraintMeta& c) {
  const auto condition = put(fbb, c.condition);
  return wm::CreateConstraint(fbb, condition, fbb.CreateSharedString(c.text));
}

Offset<wm::Arena> put(FlatBufferBuilder& fbb, const ArenaMeta& a) {
  return wm::CreateArena(fbb, a.alignment, fbb.CreateSharedString(a.share));
}

Offset<wm::InPlaceArgument> put(FlatBufferBuilder& fbb, const InPlaceArgument& a) {
  return wm::CreateInPlaceArgument(fbb, a.instruction, a.input_arg, a.output_arg);
}

Offset<wm::SourceLine> put(FlatBufferBuilder& fbb, const SourceLineMeta& s) {
  const auto location = fbb.CreateSharedString(s.location);
  return wm::CreateSourceLine(fbb, s.instruction, location, fbb.CreateSharedString(s.module_path));
}

Offset<wm::DataFile> put(FlatBufferBuilder& fbb, const DataFileMeta& f) {
  const auto name = fbb.CreateSharedString(f.name);
  return wm::CreateDataFile(fbb, name, f.size_bytes, fbb.CreateSharedString(f.manifest_hash));
}

Offset<wm::Port> put(FlatBufferBuilder& fbb, const PortMeta& p);
Offset<wm::MutableBuffer> put(FlatBufferBuilder& fbb, const MutableBufferMeta& b);
Offset<wm::Method> put(FlatBufferBuilder& fbb, const MethodMeta& m);

/// A vector of tables, from any struct that has a put().
template <typename Wire, typename Plain>
Offset<List<Wire>> put_list(FlatBufferBuilder& fbb, const std::vector<Plain>& items) {
  std::vector<Offset<Wire>> list;
  for (const Plain& item : items) list.push_back(put(fbb, item));
  return fbb.CreateVector(list);
}

Offset<wm::Port> put(FlatBufferBuilder& fbb, const PortMeta& p) {
  const auto name = fbb.CreateSharedString(p.name);
  const auto dims = put_list<wm::Expr>(fbb, p.dims);
  const auto strides = put_list<wm::Expr>(fbb, p.strides);
  const auto order = fbb.CreateVector(p.dim_order);
  return wm::CreatePort(fbb, name, static_cast<wm::PortKind>(p.kind), static_cast<int8_t>(p.dtype), dims, order, p.int_min, p.int_max, p.float_min,
                        p.float_max, p.symbol, p.mutated, strides, p.varies);
}

Offset<wm::MutableBuffer> put(FlatBufferBuilder& fbb, const MutableBufferMeta& b) {
  const auto name = fbb.CreateSharedString(b.name);
  return wm::CreateMutableBuffer(fbb, name, b.value_index, b.initialized, put_list<wm::InPlaceArgument>(fbb, b.in_place));
}

Offset<wm::Method> put(FlatBufferBuilder& fbb, const MethodMeta& m) {
  const auto name = fbb.CreateSharedString(m.name);
  const auto inputs = put_list<wm::Port>(fbb, m.inputs);
  const auto outputs = put_list<wm::Port>(fbb, m.outputs);
  const auto input_spec = fbb.CreateSharedString(m.input_spec);
  const auto output_spec = fbb.CreateSharedString(m.output_spec);
  const auto symbols = put_list<wm::Symbol>(fbb, m.symbols);
  const auto constraints = put_list<wm::Constraint>(fbb, m.constraints);
  const auto arenas = put_list<wm::Arena>(fbb, m.arenas);
  const auto buffers = put_list<wm::MutableBuffer>(fbb, m.mutable_buffers);
  const auto lines = put_list<wm::SourceLine>(fbb, m.source_lines);
  return wm::CreateMethod(fbb, name, inputs, outputs, input_spec, output_spec, symbols, constraints, arenas, buffers, lines);
}

// --- checks that writer and reader share ---

bool is_permutation(std::span<const uint8_t> order) {
  std::array<bool, kMaxRank> seen{};
  for (const uint8_t d : order) {
    if (d >= order.size() || std::exchange(seen[d], true)) return false;
  }
  return true;
}

/// The first fault of a port, or an empty text.
std::string fault_of(const PortMeta& port, size_t symbol_count) {
  const size_t rank = port.dims.size();
  if (rank > static_cast<size_t>(kMaxRank)) return str_cat("rank ", rank, " is over ", kMaxRank);
  if (!port.strides.empty() && port.strides.size() != rank) return str_cat(port.strides.size(), " strides for rank ", rank);
  if (!port.dim_order.empty() && (port.dim_order.size() != rank || !is_permutation(port.dim_order))) return "dim order is not a permutation";
  if (port.symbol < -1 || port.symbol >= static_cast<int64_t>(symbol_count)) return str_cat("symbol ", port.symbol, " of ", symbol_count);
  for (const std::vector<DimExpr>* list : {&port.dims, &port.strides}) {
    for (const DimExpr& expr : *list) {
      if (!is_well_formed(expr, symbol_count)) return str_cat("size expression \"", expr.text, "\" is not well formed");
    }
  }
  return {};
}

/// The first fault of a method, or an empty text.
std::string fault_of(const MethodMeta& method) {
  const size_t symbols = method.symbols.size();
  for (const std::vector<PortMeta>* ports : {&method.inputs, &method.outputs}) {
    for (const PortMeta& port : *ports) {
      const std::string fault = fault_of(port, symbols);
      if (!fault.empty()) return str_cat("port ", port.name, ": ", fault);
    }
  }
  for (const SymbolMeta& symbol : method.symbols) {
    if (symbol.divisor < 1 || symbol.min > symbol.max) return str_cat("symbol ", symbol.name, " has an empty range or divisor ", symbol.divisor);
  }
  for (const ConstraintMeta& constraint : method.constraints) {
    if (!is_well_formed(constraint.condition, symbols)) return str_cat("constraint \"", constraint.text, "\" is not well formed");
  }
  return {};
}

// --- reading ---

/// Copies the tables into plain structs. A blob may make tables share parts, so copied bytes are counted against a budget.
class MetaReader {
 public:
  explicit MetaReader(uint64_t blob_bytes) : budget_(blob_bytes * 8 + 4096) {}
  bool within_budget() const { return budget_ > 0; }

  ProgramMeta program(const wm::Meta& w) {
    ProgramMeta out;
    out.compiler_version = text(w.compiler_version());
    out.profile = text(w.profile());
    get_list(w.methods(), &out.methods);
    get_list(w.data_files(), &out.data_files);
    return out;
  }

 private:
  bool spend(uint64_t bytes) {
    const bool enough = bytes < budget_;
    budget_ = enough ? budget_ - bytes : 0;
    return enough;
  }

  std::string text(const flatbuffers::String* value) {
    if (value == nullptr) missing_ = true;
    const std::string_view view = text_of(value);
    return spend(view.size()) ? std::string(view) : std::string();
  }

  template <typename Wire, typename Plain>
  void get_list(const List<Wire>* list, std::vector<Plain>* out) {
    if (list == nullptr) missing_ = true;
    for (uint32_t i = 0; i < count_of(list) && within_budget(); ++i) out->push_back(get(*list->Get(i)));
  }

  DimExpr get(const wm::Expr& w) {
    DimExpr out;
    out.text = text(w.text());
    const uint32_t count = count_of(w.ops());
    if (w.ops() == nullptr || w.operands() == nullptr) missing_ = true;
    if (reinterpret_cast<uintptr_t>(items_of(w.operands()).data()) % alignof(int64_t) != 0) {
      unknown_ = true;
      return out;
    }
    // Lists of different length leave no steps: not well formed, refused later.
    if (count != count_of(w.operands()) || !spend(uint64_t{count} * 9)) return out;
    for (uint32_t i = 0; i < count; ++i) out.steps.push_back({static_cast<DimOp>(w.ops()->Get(i)), w.operands()->Get(i)});
    return out;
  }

  SymbolMeta get(const wm::Symbol& w) { return {text(w.name()), w.min(), w.max(), w.divisor(), w.remainder()}; }

  ConstraintMeta get(const wm::Constraint& w) {
    if (w.condition() == nullptr) missing_ = true;
    return {w.condition() == nullptr ? DimExpr() : get(*w.condition()), text(w.text())};
  }

  PortMeta get(const wm::Port& w) {
    PortMeta out;
    out.name = text(w.name());
    out.kind = static_cast<PortKind>(w.kind());
    if (w.kind() > wm::PortKind::MAX || !is_known_dtype(w.scalar_type())) unknown_ = true;
    out.dtype = static_cast<DType>(w.scalar_type());
    get_list(w.dims(), &out.dims);
    get_list(w.strides(), &out.strides);
    if (w.dim_order() == nullptr) missing_ = true;
    const std::span<const uint8_t> order = items_of(w.dim_order());
    if (order.size() <= static_cast<size_t>(kMaxRank)) {
      out.dim_order.assign(order.begin(), order.end());
    } else {
      unknown_ = true;
    }
    out.int_min = w.int_min();
    out.int_max = w.int_max();
    out.float_min = w.float_min();
    out.float_max = w.float_max();
    out.symbol = w.symbol();
    out.varies = w.varies();
    out.mutated = w.mutated();
    return out;
  }

  ArenaMeta get(const wm::Arena& w) { return {w.alignment(), text(w.share())}; }
  InPlaceArgument get(const wm::InPlaceArgument& w) { return {w.instruction(), w.input_arg(), w.output_arg()}; }

  MutableBufferMeta get(const wm::MutableBuffer& w) {
    MutableBufferMeta out{text(w.name()), w.value_index(), w.initialized(), {}};
    get_list(w.in_place(), &out.in_place);
    return out;
  }

  SourceLineMeta get(const wm::SourceLine& w) { return {w.instruction(), text(w.location()), text(w.module_path())}; }
  DataFileMeta get(const wm::DataFile& w) { return {text(w.name()), w.size_bytes(), text(w.manifest_hash())}; }

  MethodMeta get(const wm::Method& w) {
    MethodMeta out;
    out.name = text(w.name());
    get_list(w.inputs(), &out.inputs);
    get_list(w.outputs(), &out.outputs);
    out.input_spec = text(w.input_spec());
    out.output_spec = text(w.output_spec());
    get_list(w.symbols(), &out.symbols);
    get_list(w.constraints(), &out.constraints);
    get_list(w.arenas(), &out.arenas);
    get_list(w.mutable_buffers(), &out.mutable_buffers);
    get_list(w.source_lines(), &out.source_lines);
    return out;
  }

  uint64_t budget_;

 public:
  /// A kind, dtype or rank that this version does not know was met.
  bool unknown_ = false;
  /// A vector, string or expression is absent.
  bool missing_ = false;
};

Status invalid(std::string message) { return Status(Code::kInvalidFile, str_cat(kMetaKey, ": ", message)); }

Status open_blob(std::span<const std::byte> bytes, MetaView* view) {
  if (bytes.size() < 2 * kPrefixBytes || bytes.size() > kMaxFlatbufferBytes || read_tag(bytes, 4) != kMetaIdentifier) {
    return invalid(str_cat("a blob with identifier PTM1 is expected, found ", bytes.size(), " other bytes"));
  }
  const std::byte* data = bytes.data();
  if (reinterpret_cast<uintptr_t>(data) % kFlatbufferAlignment != 0) {
    PTERON_ASSIGN(view->copy, Buffer::create(bytes.size()));
    std::memcpy(view->copy.data(), data, bytes.size());
    data = view->copy.data();
  }
  flatbuffers::Verifier::Options options;
  options.max_tables = static_cast<flatbuffers::uoffset_t>(bytes.size() / 8 + 1);
  flatbuffers::Verifier verifier(reinterpret_cast<const uint8_t*>(data), bytes.size(), options);
  if (!verifier.VerifyBuffer<wm::Meta>(wm::MetaIdentifier())) return invalid(str_cat(bytes.size(), " bytes are not a well-formed flatbuffer"));
  view->root = wm::GetMeta(data);
  return ok_status();
}

Result<ProgramMeta> read_checked(std::span<const std::byte> bytes, MetaView* view) {
  PTERON_TRY(open_blob(bytes, view));
  MetaReader reader(bytes.size());
  ProgramMeta out = reader.program(*view->root);
  if (!reader.within_budget()) return invalid("overlapping parts in the flatbuffer");
  if (reader.unknown_) return invalid("a port kind, dtype or rank that this version does not know");
  if (reader.missing_) return invalid("a part that every version writes is missing");
  for (const MethodMeta& method : out.methods) {
    const std::string fault = fault_of(method);
    if (!fault.empty()) return invalid(str_cat("method ", method.name, ": ", fault));
  }
  return out;
}

}  // namespace

const MethodMeta* ProgramMeta::find(std::string_view method) const {
  for (const MethodMeta& m : methods) {
    if (m.name == method) return &m;
  }
  return nullptr;
}

Result<Buffer> write_meta(const ProgramMeta& meta) {
  for (const MethodMeta& method : meta.methods) {
    const std::string fault = fault_of(method);
    if (!fault.empty()) return Status(Code::kInvalidInput, str_cat("facts of method ", method.name, ": ", fault));
  }
  FlatBufferBuilder fbb;
  const auto version = fbb.CreateSharedString(meta.compiler_version);
  const auto profile = fbb.CreateSharedString(meta.profile);
  const auto methods = put_list<wm::Method>(fbb, meta.methods);
  const auto files = put_list<wm::DataFile>(fbb, meta.data_files);
  fbb.Finish(wm::CreateMeta(fbb, 1, version, profile, methods, files), wm::MetaIdentifier());
  PTERON_ASSIGN(Buffer out, Buffer::create(fbb.GetSize()));
  std::memcpy(out.data(), fbb.GetBufferPointer(), out.size());
  return out;
}

Result<MetaView> verify_meta(std::span<const std::byte> bytes) {
  MetaView view;
  PTERON_TRY(read_checked(bytes, &view).status());
  return view;
}

Result<ProgramMeta> read_meta(std::span<const std::byte> bytes) {
  MetaView view;
  return read_checked(bytes, &view);
}

}  // namespace pteron::format
