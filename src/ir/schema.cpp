// Parser of operator schema text.
#include "ir/schema.h"

#include <iterator>
#include <utility>

#include "base/ascii.h"
#include "base/str_cat.h"

namespace pteron::ir {

namespace {

constexpr std::pair<std::string_view, BaseType> kTypeNames[] = {
    {"Tensor", BaseType::kTensor},         {"int", BaseType::kInt},          {"SymInt", BaseType::kInt},
    {"float", BaseType::kFloat},           {"bool", BaseType::kBool},        {"Scalar", BaseType::kScalar},
    {"str", BaseType::kString},            {"ScalarType", BaseType::kScalarType}, {"Layout", BaseType::kLayout},
    {"Device", BaseType::kDevice},         {"MemoryFormat", BaseType::kMemoryFormat}, {"Generator", BaseType::kGenerator},
    {"Graph", BaseType::kGraph},
};

/// Reads one schema left to right.
class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Schema> parse() {
    Schema schema;
    schema.name = std::string(until(".("));
    if (eat('.')) schema.overload = std::string(until("("));
    if (!eat('(')) return fail("'('");
    bool keyword_only = false;
    while (!eat(')')) {
      if (eat('*')) {
        keyword_only = true;
      } else {
        SchemaArg arg;
        arg.keyword_only = keyword_only;
        if (!type(&arg.type, &arg.alias, &arg.written)) return fail("a type");
        arg.name = std::string(word());
        if (arg.name.empty()) return fail("an argument name");
        if (eat('=')) {
          arg.has_default = true;
          arg.default_text = std::string(default_value());
        }
        schema.args.push_back(std::move(arg));
      }
      if (!eat(',') && peek() != ')') return fail("',' or ')'");
    }
    if (!eat('-') || !eat('>')) return fail("'->'");
    const bool many = eat('(');
    while (peek() != '\0' && peek() != ')') {
      SchemaReturn ret;
      if (!type(&ret.type, &ret.alias, &ret.written)) return fail("a type");
      ret.name = std::string(word());
      schema.returns.push_back(std::move(ret));
      if (!many || !eat(',')) break;
    }
    if (many && !eat(')')) return fail("')'");
    return schema;
  }

 private:
  void spaces() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  char peek() {
    spaces();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool eat(char c) {
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  std::string_view until(std::string_view stops) {
    const size_t begin = at_;
    while (at_ < text_.size() && stops.find(text_[at_]) == std::string_view::npos) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view word() {
    spaces();
    const size_t begin = at_;
    while (at_ < text_.size() && is_word_char(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }
  std::string_view default_value() {
    const size_t begin = at_;
    int depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '[') ++depth;
      if (c == ']') --depth;
      if (depth == 0 && (c == ',' || c == ')')) break;
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }
  bool type(SchemaType* out, std::string* alias, bool* written) {
    const std::string_view name = word();
    if (name.empty()) return false;
    out->base = BaseType::kOther;
    for (const auto& [text, base] : kTypeNames) {
      if (text == name) out->base = base;
    }
    if (at_ < text_.size() && text_[at_] == '(') {  // alias annotation: (a), (a!), (a -> *)
      ++at_;
      *alias = std::string(word());
      *written = eat('!');
      until(")");
      eat(')');
    }
    if (at_ < text_.size() && text_[at_] == '?') {
      ++at_;
      out->optional = true;
    }
    if (at_ < text_.size() && text_[at_] == '[') {
      until("]");
      ++at_;
      out->list = true;
      out->optional_elements = out->optional;
      out->optional = false;
      if (at_ < text_.size() && text_[at_] == '?') {
        ++at_;
        out->optional = true;
      }
    }
    return true;
  }
  Status fail(std::string_view expected) const {
    return Status(Code::kInternal, str_cat("schema '", text_, "': expected ", expected, " at position ", at_));
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::string Schema::full_name() const { return overload.empty() ? name : str_cat(name, ".", overload); }

int Schema::find(std::string_view arg_name) const {
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].name == arg_name) return static_cast<int>(i);
  }
  return -1;
}

Result<Schema> parse_schema(std::string_view text) { return Parser(text).parse(); }

}  // namespace pteron::ir
