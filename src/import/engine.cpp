// Prebuilt TensorRT engines in an archive: as an object of a custom class (a pickle whose state is the engine's record), or as a record in the
// node's arguments with the engine in a buffer. Both become one node (ir/engine.h).
#include "ir/engine.h"

#include <array>
#include <utility>

#include "base/str_cat.h"
#include "import/graph_reader.h"
#include "import/pickle.h"

namespace pteron::importer {

using ir::Arg;
using ir::ValueId;

namespace {

constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Errors: kInvalidFile (a character that is none of base64, a length that is no multiple of 4), kOutOfMemory.
Result<Buffer> decode_base64(std::string_view text) {
  std::array<uint8_t, 256> digits;
  digits.fill(0xff);
  for (size_t i = 0; i < kBase64.size(); ++i) digits[static_cast<unsigned char>(kBase64[i])] = static_cast<uint8_t>(i);
  const auto bad = [&] { return Status::invalid_file(str_cat("engine record: ", text.size(), " characters that are no base64")); };
  if (text.size() % 4 != 0) return bad();
  size_t padding = 0;
  while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
  const size_t count = text.size() / 4 * 3 - padding;
  PTERON_ASSIGN(Buffer out, Buffer::create(count));
  uint32_t bits = 0;
  for (size_t i = 0, made = 0; i < text.size(); ++i) {
    const uint8_t digit = i >= text.size() - padding ? uint8_t{0} : digits[static_cast<unsigned char>(text[i])];
    if (digit == 0xff) return bad();
    bits = bits << 6 | digit;
    if (i % 4 != 3) continue;
    for (int shift = 16; shift >= 0 && made < count; shift -= 8) out.data()[made++] = static_cast<std::byte>(bits >> shift & 0xff);
    bits = 0;
  }
  return out;
}

/// The list of strings in a value, which torch may have wrapped in a call that only notes its type; null if it is none.
const PickleValue* string_list(const PickleValue* value) {
  if (value != nullptr && value->kind == PickleValue::Kind::kCall && value->items[0]->text == "torch.jit._pickle.restore_type_tag") {
    const PickleValue& arguments = *value->items[1];
    value = arguments.items.empty() ? nullptr : arguments.items[0];
  }
  if (value == nullptr || (value->kind != PickleValue::Kind::kList && value->kind != PickleValue::Kind::kTuple)) return nullptr;
  for (const PickleValue* item : value->items) {
    if (item->kind != PickleValue::Kind::kString) return nullptr;
  }
  return value;
}

}  // namespace

Result<PayloadTable::Object> PayloadTable::object(const Archive& archive, std::string_view fqn) const {
  const auto found = metas_.find(fqn);
  if (found == metas_.end()) return Status::invalid_file(str_cat("object '", fqn, "' is not in the archive's payload table"));
  const std::string path = str_cat(folder_, json_text(found->second, "path_name"));
  const ZipEntry* entry = archive.find(path);
  if (entry == nullptr) return Status::invalid_file(str_cat("object '", fqn, "': its file ", path, " is missing in the archive"));
  const auto read = [&]() -> Result<Object> {
    PTERON_ASSIGN(const ZipBytes bytes, archive.zip().read(*entry, false));
    PTERON_ASSIGN(const ZipFile inner, ZipFile::open(bytes.bytes, bytes.owner));
    for (const ZipEntry& e : inner.entries()) {
      if (!e.name.ends_with("/data.pkl")) continue;
      PTERON_ASSIGN(const ZipBytes pickle, inner.read(e, true));
      PickleArena arena;
      PTERON_ASSIGN(const PickleValue* root, read_pickle(pickle.bytes, arena));
      const PickleValue* state = string_list(root->state);
      if (root->kind != PickleValue::Kind::kCall || state == nullptr) return Status(Code::kUnsupported, "its state is no list of strings");
      Object out{root->items[0]->text, {}};
      for (PickleValue* item : state->items) out.state.push_back(item->text);
      return out;
    }
    return Status::invalid_file("it has no data.pkl");
  };
  auto object = read();
  if (!object.ok()) return std::move(object).status().with_context(str_cat("object '", fqn, "' in ", path));
  return object;
}

Result<ValueId> GraphReader::engine_constant(std::string_view name, std::string_view base64) {
  PTERON_ASSIGN(Buffer bytes, decode_base64(base64));
  ir::Constant constant;
  constant.name = std::string(name);
  constant.dtype = DType::kUInt8;
  constant.sizes = {static_cast<int64_t>(bytes.size())};
  constant.strides = {1};
  constant.origin = ir::Constant::Origin::kConstant;
  const auto owner = std::make_shared<const Buffer>(std::move(bytes));  // as that of a mapped weight: several nodes may use it
  constant.data = owner->data();
  constant.owner = owner;
  return graph_.add_constant(context_.program.add(std::move(constant)), name);
}

Status GraphReader::read_engine_object(std::string_view name, ir::Node* node) {
  auto known = engines_.find(name);
  if (known == engines_.end()) {
    const auto payload = objects_.find(name);
    if (payload == objects_.end()) return Status::invalid_file(str_cat("object '", name, "' is no constant of the program"));
    PTERON_ASSIGN(PayloadTable::Object object, context_.constants.object(context_.archive, payload->second));
    constexpr std::string_view kType = "__torch__.torch.classes.tensorrt.Engine";
    if (object.type != kType) return Status::invalid_file(str_cat("object '", payload->second, "' is a ", object.type, ", expected a ", kType));
    if (object.state.size() != ir::kEngineSlots) {
      return Status::invalid_file(str_cat("engine '", payload->second, "': a record of ", object.state.size(), " slots, expected ", ir::kEngineSlots));
    }
    EngineObject engine;
    PTERON_ASSIGN(engine.bytes, engine_constant(payload->second, object.state[ir::kEngineBytesSlot]));
    for (size_t slot = 0; slot < ir::kEngineSlots; ++slot) {
      if (slot != ir::kEngineBytesSlot) engine.slots.push_back(std::move(object.state[slot]));
    }
    known = engines_.emplace(name, std::move(engine)).first;
  }
  node->args.emplace_back(known->second.bytes);
  for (const std::string& slot : known->second.slots) node->args.emplace_back(slot);
  return ok_status();
}

Status GraphReader::read_engine_arguments(JsonValue json, size_t skipped, ir::Node* node) {
  std::vector<Arg> given;
  std::string_view object;
  for (const JsonValue input : json_each(json, "inputs")) {
    if (skipped > 0) {
      --skipped;
      continue;
    }
    JsonValue arg, payload;
    std::string_view tag;
    if (!json_field(input, "arg", &arg) || !json_union(arg, &tag, &payload)) return Status::invalid_file("an argument without a value");
    if (tag == "as_custom_obj") {
      object = json_text(payload, "name");
      given.emplace_back();
      continue;
    }
    PTERON_ASSIGN(Arg read, argument(arg));
    given.push_back(std::move(read));
  }
  const auto* tensors = given.empty() ? nullptr : std::get_if<std::vector<ValueId>>(&given[0]);
  if (tensors == nullptr) return Status::invalid_file("its first argument is no list of tensors");
  if (!object.empty()) {
    if (given.size() != 2) return Status::invalid_file(str_cat(given.size(), " arguments, expected tensors and an engine"));
    node->args.push_back(std::move(given[0]));
    return read_engine_object(object, node);
  }
  if (given.size() != 1 + ir::kEngineSlots) return Status::invalid_file(str_cat("a record of ", given.size() - 1, " slots, expected ", ir::kEngineSlots));
  node->args.push_back(std::move(given[0]));
  Arg& bytes = given[1 + ir::kEngineBytesSlot];
  if (const auto* text = std::get_if<std::string>(&bytes)) {
    PTERON_ASSIGN(const ValueId id, engine_constant(str_cat(node->name, "_engine"), *text));
    bytes = id;
  }
  if (!std::holds_alternative<ValueId>(bytes))
    return Status::invalid_file(str_cat("slot ", ir::kEngineBytesSlot, " of the record is neither a buffer nor text"));
  node->args.push_back(std::move(bytes));
  for (size_t slot = 0; slot < ir::kEngineSlots; ++slot) {
    Arg& text = given[1 + slot];
    if (slot == ir::kEngineBytesSlot) continue;
    if (!std::holds_alternative<std::string>(text)) return Status::invalid_file(str_cat("slot ", slot, " of the record is no text"));
    node->args.push_back(std::move(text));
  }
  return ok_status();
}

}  // namespace pteron::importer
