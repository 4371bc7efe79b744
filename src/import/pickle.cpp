// The opcodes (Python's pickletools names them) and their stack machine.
#include "import/pickle.h"

#include <bit>
#include <cstring>
#include <unordered_map>

#include "base/checked_math.h"
#include "base/str_cat.h"

namespace pteron::importer {

namespace {

using Kind = PickleValue::Kind;

class Reader {
 public:
  Reader(std::span<const std::byte> bytes, PickleArena& arena) : bytes_(bytes), arena_(arena) {}

  Result<const PickleValue*> read() {
    for (;;) {
      const int op = take(1) ? at(0) : -1;
      if (op == '.') break;
      if (op < 0 || !step(op)) break;
    }
    if (!status_.ok()) return std::move(status_);
    if (stack_.size() != 1 || !marks_.empty()) return Status(Code::kInvalidFile, "pickle ends in the middle");
    return static_cast<const PickleValue*>(stack_[0]);
  }

 private:
  bool fail(std::string message) {
    if (status_.ok()) status_ = Status(Code::kInvalidFile, str_cat("pickle at byte ", position_, ": ", message));
    return false;
  }
  /// Makes the next `count` bytes available through at(); false at the end.
  bool take(size_t count) {
    if (!range_inside(position_, count, bytes_.size())) return fail("truncated");
    current_ = position_;
    position_ += count;
    return true;
  }
  int at(size_t i) const { return static_cast<int>(bytes_[current_ + i]); }
  /// Little-endian number of the current bytes.
  uint64_t little(size_t count) const {
    uint64_t value = 0;
    for (size_t i = 0; i < count; ++i) value |= static_cast<uint64_t>(at(i)) << (8 * i);
    return value;
  }

  PickleValue* make(Kind kind) {
    PickleValue& value = arena_.emplace_back();
    value.kind = kind;
    return &value;
  }
  bool push(PickleValue* value) {
    stack_.push_back(value);
    return true;
  }
  bool push_int(Kind kind, int64_t integer) {
    PickleValue* value = make(kind);
    value->integer = integer;
    return push(value);
  }
  PickleValue* pop() {
    const size_t floor = marks_.empty() ? 0 : marks_.back();
    if (stack_.size() <= floor) {
      fail("empty stack");
      return nullptr;
    }
    PickleValue* value = stack_.back();
    stack_.pop_back();
    return value;
  }
  /// Everything above the last mark.
  bool pop_mark(std::vector<PickleValue*>* out) {
    if (marks_.empty()) return fail("no mark");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    marks_.pop_back();
    out->assign(first, stack_.end());
    stack_.erase(first, stack_.end());
    return true;
  }

  bool step(int op) {
    switch (op) {
      case 0x80: return take(1);  // PROTO
      case 'N': return push(make(Kind::kNone));
      case 0x88: return push_int(Kind::kBool, 1);
      case 0x89: return push_int(Kind::kBool, 0);
      case 'K': return take(1) && push_int(Kind::kInt, at(0));
      case 'M': return take(2) && push_int(Kind::kInt, static_cast<int64_t>(little(2)));
      case 'J': return take(4) && push_int(Kind::kInt, static_cast<int32_t>(little(4)));
      case 0x8a: return long_integer();
      case 'G': return floating();
      case 'X': return take(4) && string(little(4));
      case 0x8d: return take(8) && string(little(8));  // BINUNICODE8: 4 GiB and more
      case 'c': return global();
      case 'q': return take(1) && memorise(little(1));
      case 'r': return take(4) && memorise(little(4));
      case 'h': return take(1) && recall(little(1));
      case 'j': return take(4) && recall(little(4));
      case '(': marks_.push_back(stack_.size()); return true;
      case ')': return push(make(Kind::kTuple));
      case '}': return push(make(Kind::kDict));
      case ']': return push(make(Kind::kList));
      case 't': return marked_tuple();
      case 0x85: return tuple(1);
      case 0x86: return tuple(2);
      case 0x87: return tuple(3);
      case 'a': return append(false);
      case 'e': return append(true);
      case 's': return set_items(false);
      case 'u': return set_items(true);
      case 'Q': return persistent();
      case 'R': return call(false);  // REDUCE
      case 0x81: return call(true);  // NEWOBJ
      case 'b': return build();
      default: break;
    }
    status_ = Status(Code::kUnsupported, str_cat("pickle at byte ", position_, ": opcode ", op));
    return false;
  }

  bool long_integer() {
    if (!take(1)) return false;
    const auto count = static_cast<size_t>(at(0));
    if (count > 8) return fail("an integer of more than 64 bits");
    if (!take(count)) return false;
    uint64_t value = little(count);
    if (count > 0 && count < 8 && (at(count - 1) & 0x80) != 0) value |= ~uint64_t{0} << (8 * count);
    return push_int(Kind::kInt, static_cast<int64_t>(value));
  }

  bool floating() {
    if (!take(8)) return false;
    uint64_t bits = 0;
    for (size_t i = 0; i < 8; ++i) bits = bits << 8 | static_cast<uint64_t>(at(i));  // big-endian
    PickleValue* value = make(Kind::kFloat);
    value->number = std::bit_cast<double>(bits);
    return push(value);
  }

  bool string(uint64_t size) {
    if (!take(size)) return false;
    PickleValue* value = make(Kind::kString);
    value->text.assign(reinterpret_cast<const char*>(bytes_.data()) + current_, size);
    return push(value);
  }

  bool line(std::string* out) {
    for (out->clear(); take(1);) {
      if (at(0) == '\n') return true;
      out->push_back(static_cast<char>(at(0)));
    }
    return false;
  }

  bool global() {
    std::string module, name;
    if (!line(&module) || !line(&name)) return false;
    PickleValue* value = make(Kind::kGlobal);
    value->text = str_cat(module, ".", name);
    return push(value);
  }

  bool memorise(uint64_t index) {
    if (stack_.empty()) return fail("empty stack");
    memo_[index] = stack_.back();
    return true;
  }
  bool recall(uint64_t index) {
    const auto found = memo_.find(index);
    return found == memo_.end() ? fail("unknown memo") : push(found->second);
  }

  bool marked_tuple() {
    PickleValue* value = make(Kind::kTuple);
    return pop_mark(&value->items) && push(value);
  }
  bool tuple(size_t count) {
    PickleValue* value = make(Kind::kTuple);
    value->items.resize(count);
    for (size_t i = count; i-- > 0;) {
      value->items[i] = pop();
      if (value->items[i] == nullptr) return false;
    }
    return push(value);
  }

  /// Containers are filled only while they are on top of the stack.
  bool fill(Kind kind, const std::vector<PickleValue*>& items) {
    if (stack_.empty() || stack_.back()->kind != kind) return fail("no container to fill");
    if (kind == Kind::kDict && items.size() % 2 != 0) return fail("a key without value");
    auto& filled = stack_.back()->items;
    filled.insert(filled.end(), items.begin(), items.end());
    return true;
  }
  bool append(bool many) {
    std::vector<PickleValue*> items;
    if (many && !pop_mark(&items)) return false;
    if (!many) items.push_back(pop());
    return status_.ok() && fill(Kind::kList, items);
  }
  bool set_items(bool many) {
    std::vector<PickleValue*> items;
    if (many && !pop_mark(&items)) return false;
    if (!many) {
      items.resize(2);
      items[1] = pop();
      items[0] = pop();
    }
    return status_.ok() && fill(Kind::kDict, items);
  }

  bool persistent() {
    PickleValue* value = make(Kind::kPersistent);
    value->items.push_back(pop());
    return status_.ok() && push(value);
  }
  /// The state of an object, which stays on the stack.
  bool build() {
    PickleValue* state = pop();
    if (state == nullptr) return false;
    if (stack_.empty()) return fail("no object to give a state");
    stack_.back()->state = state;
    return true;
  }
  bool call(bool is_new_object) {
    PickleValue* arguments = pop();
    PickleValue* function = pop();
    if (!status_.ok()) return false;
    if (function->text == "collections.OrderedDict" && arguments->items.empty()) return push(make(Kind::kDict));
    PickleValue* value = make(Kind::kCall);
    value->items = {function, arguments};
    value->is_new_object = is_new_object;
    return push(value);
  }

  std::span<const std::byte> bytes_;
  PickleArena& arena_;
  size_t position_ = 0, current_ = 0;
  std::vector<PickleValue*> stack_;
  std::vector<size_t> marks_;
  std::unordered_map<uint64_t, PickleValue*> memo_;
  Status status_;
};

}  // namespace

Result<const PickleValue*> read_pickle(std::span<const std::byte> bytes, PickleArena& arena) { return Reader(bytes, arena).read(); }

}  // namespace pteron::importer
