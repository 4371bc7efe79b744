// Sample inputs: finds the nested torch.save file, reads its pickle, turns tensor records into views.
#include "import/sample_inputs.h"

#include <utility>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "import/archive.h"
#include "import/pickle.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::importer {

namespace {

using Kind = PickleValue::Kind;
constexpr int kMaxPickleDepth = 64;
constexpr size_t kMaxVisits = 100000;  ///< a list may hold another one twice, which holds another one twice, ...

Status none_stored(std::string_view why) { return Status(Code::kNotFound, str_cat("no sample inputs: ", why)); }

bool storage_dtype(std::string_view global, DType* out) {
  constexpr std::pair<std::string_view, DType> kStorages[] = {
      {"torch.FloatStorage", DType::kFloat32},    {"torch.DoubleStorage", DType::kFloat64},   {"torch.HalfStorage", DType::kFloat16},
      {"torch.BFloat16Storage", DType::kBFloat16}, {"torch.LongStorage", DType::kInt64},      {"torch.IntStorage", DType::kInt32},
      {"torch.ShortStorage", DType::kInt16},      {"torch.CharStorage", DType::kInt8},        {"torch.ByteStorage", DType::kUInt8},
      {"torch.BoolStorage", DType::kBool},        {"torch.ComplexFloatStorage", DType::kComplexFloat}, {"torch.ComplexDoubleStorage", DType::kComplexDouble}};
  for (const auto& [name, dtype] : kStorages) {
    if (name != global) continue;
    *out = dtype;
    return true;
  }
  return false;
}

bool int_list(const PickleValue& value, std::vector<int64_t>* out) {
  for (const PickleValue* item : value.items) {
    if (item->kind != Kind::kInt || item->integer < 0) return false;
    out->push_back(item->integer);
  }
  return value.kind == Kind::kTuple && out->size() <= kMaxRank;
}

class Flattener {
 public:
  Flattener(const ZipFile& zip, std::string root) : zip_(zip), root_(std::move(root)) {}

  Status add(const PickleValue& value, const std::string& path, int depth) {
    if (depth > kMaxPickleDepth || ++visits_ > kMaxVisits) return none_stored("they are nested too deeply");
    switch (value.kind) {
      case Kind::kNone: return leaf(path, std::monostate());
      case Kind::kBool: return leaf(path, value.integer != 0);
      case Kind::kInt: return leaf(path, value.integer);
      case Kind::kFloat: return leaf(path, value.number);
      case Kind::kString: return leaf(path, value.text);
      case Kind::kTuple:
      case Kind::kList: return add_items(value, path, depth);
      case Kind::kDict: return add_dict(value, path, depth);
      case Kind::kCall: return add_call(value, path, depth);
      case Kind::kGlobal:
      case Kind::kPersistent: break;
    }
    return none_stored(str_cat("input ", path, " is an object of an unknown class"));
  }
  std::vector<SampleInput> take() { return std::move(out_); }

 private:
  Status leaf(const std::string& path, SampleValue value) {
    out_.push_back({path, std::move(value)});
    return ok_status();
  }
  static std::string join(const std::string& path, std::string_view key) { return path.empty() ? std::string(key) : str_cat(path, ".", key); }

  Status add_items(const PickleValue& value, const std::string& path, int depth) {
    for (size_t i = 0; i < value.items.size(); ++i) PTERON_TRY(add(*value.items[i], join(path, str_cat(i)), depth + 1));
    return ok_status();
  }

  Status add_dict(const PickleValue& value, const std::string& path, int depth) {
    for (size_t i = 0; i + 1 < value.items.size(); i += 2) {
      const PickleValue& key = *value.items[i];
      if (key.kind != Kind::kString && key.kind != Kind::kInt) return none_stored(str_cat("a key of ", path, " is neither text nor int"));
      PTERON_TRY(add(*value.items[i + 1], join(path, key.kind == Kind::kString ? key.text : str_cat(key.integer)), depth + 1));
    }
    return ok_status();
  }

  Status add_call(const PickleValue& call, const std::string& path, int depth) {
    const PickleValue &function = *call.items[0], &arguments = *call.items[1];
    if (function.kind == Kind::kGlobal && arguments.kind == Kind::kTuple) {
      const auto& args = arguments.items;
      if (call.is_new_object && !args.empty()) return add_items(arguments, path, depth);  // a named tuple
      if (function.text == "torch._utils._rebuild_parameter" && !args.empty()) return add(*args[0], path, depth + 1);
      if (function.text == "torch._utils._rebuild_tensor_v2" && args.size() >= 4) return add_tensor(args, false, path);
      if (function.text == "torch._utils._rebuild_tensor_v3" && args.size() >= 7) return add_tensor(args, true, path);
      if (function.text == "torch._export.serde.serialize._reconstruct_fake_tensor" || function.text == "torch._utils._rebuild_meta_tensor_no_storage") {
        return none_stored("they are fake tensors without data");
      }
    }
    return none_stored(str_cat("input ", path, " is an object of an unknown class", function.kind == Kind::kGlobal ? str_cat(" (", function.text, ")") : ""));
  }

  /// args: (storage, offset, sizes, strides, ...); v3 has the dtype as seventh.
  Status add_tensor(const std::vector<PickleValue*>& args, bool v3, const std::string& path) {
    ir::Constant tensor;
    tensor.name = path;
    const PickleValue& storage = *args[0];
    const PickleValue* id = storage.kind == Kind::kPersistent && storage.items[0]->kind == Kind::kTuple ? storage.items[0] : nullptr;
    const bool shaped = id != nullptr && id->items.size() >= 4 && id->items[1]->kind == Kind::kGlobal && id->items[2]->kind == Kind::kString &&
                        args[1]->kind == Kind::kInt && args[1]->integer >= 0 && int_list(*args[2], &tensor.sizes) && int_list(*args[3], &tensor.strides) &&
                        tensor.sizes.size() == tensor.strides.size();
    if (!shaped) return none_stored(str_cat("input ", path, " is no tensor record"));
    const std::string_view dtype_text = v3 ? args[6]->text : std::string_view();
    const bool known = v3 ? dtype_text.starts_with("torch.") && dtype_from_name(dtype_text.substr(6), &tensor.dtype)
                          : storage_dtype(id->items[1]->text, &tensor.dtype);
    if (!known) return none_stored(str_cat("input ", path, " has an unknown dtype"));
    const ZipEntry* entry = zip_.find(str_cat(root_, "data/", id->items[2]->text));
    if (entry == nullptr) return none_stored(str_cat("the data of input ", path, " are missing"));
    PTERON_ASSIGN(const ZipBytes bytes, zip_.read(*entry, false));
    uint64_t extent = 0, offset_bytes = 0;
    int64_t numel = 0, total = 0;
    const size_t item = dtype_size(tensor.dtype);
    if (!checked_numel(tensor.sizes, &numel) || !checked_mul(numel, static_cast<int64_t>(item), &total) ||
        !strided_extent_bytes(tensor.sizes, tensor.strides, item, &extent) ||
        !checked_mul(static_cast<uint64_t>(args[1]->integer), static_cast<uint64_t>(item), &offset_bytes) ||
        (numel > 0 && !range_inside(offset_bytes, extent, bytes.bytes.size()))) {
      return none_stored(str_cat("input ", path, " reaches outside its data"));
    }
    tensor.data = bytes.bytes.data() + (numel > 0 ? offset_bytes : 0);
    tensor.owner = bytes.owner;
    return leaf(path, std::move(tensor));
  }

  const ZipFile& zip_;
  std::string root_;
  size_t visits_ = 0;
  std::vector<SampleInput> out_;
};

}  // namespace

Result<std::vector<SampleInput>> read_sample_inputs(std::shared_ptr<FileBytes> file, std::string_view model) {
  PTERON_ASSIGN(const Archive archive, Archive::open(std::move(file)));
  PTERON_ASSIGN(const std::string name, archive.choose_model(model));
  const ZipEntry* entry = archive.find(str_cat("data/sample_inputs/", name, ".pt"));
  if (entry == nullptr || entry->size_bytes == 0) return none_stored("the program was saved without them");
  PTERON_ASSIGN(const ZipBytes outer, archive.zip().read(*entry, false));
  auto inner = ZipFile::open(outer.bytes, outer.owner);
  if (!inner.ok()) return std::move(inner).status().with_context("sample inputs");
  for (const ZipEntry& file_entry : inner->entries()) {
    constexpr std::string_view kPickle = "data.pkl";
    if (!file_entry.name.ends_with(kPickle)) continue;
    PTERON_ASSIGN(const ZipBytes text, inner->read(file_entry, true));
    PickleArena arena;
    auto pickle = read_pickle(text.bytes, arena);
    if (!pickle.ok()) return none_stored(pickle.status().message());
    const PickleValue& top = **pickle;
    if (top.kind != Kind::kTuple || top.items.size() != 2 || top.items[0]->kind != Kind::kTuple || top.items[1]->kind != Kind::kDict) {
      return none_stored("they are not a tuple of arguments and keywords");
    }
    Flattener flattener(*inner, std::string(file_entry.name.substr(0, file_entry.name.size() - kPickle.size())));
    PTERON_TRY(flattener.add(*top.items[0], "", 0));
    PTERON_TRY(flattener.add(*top.items[1], "kw", 0));
    return flattener.take();
  }
  return none_stored("data.pkl is missing");
}

}  // namespace pteron::importer
