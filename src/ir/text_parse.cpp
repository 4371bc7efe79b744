// Parser of the text form: programs, graphs, statements, arguments.
#include <algorithm>
#include <cmath>
#include <charconv>
#include <cstring>

#include "base/checked_math.h"
#include "base/str_cat.h"
#include "ir/builder.h"
#include "ir/foreign.h"
#include "ir/text.h"
#include "ir/text_expr.h"
#include "ir/text_lexer.h"
#include "ir/text_words.h"
#include "ir/verify.h"
#include "tensor/dtype.h"

namespace pteron::ir {

namespace {

constexpr int kMaxTextRegionDepth = 30;
constexpr uint64_t kMaxPatternBytes = uint64_t{64} << 20;  ///< constants without contents get a pattern of at most this size

/// What all graphs of a text share.
struct Shared {
  Lexer& lexer;
  Program& program;
  OperatorTable operators;
  std::unordered_map<std::string, Expr> symbols;
  std::vector<ConstantId> numbered;  ///< "const 3" -> id
};

bool parse_device(Lexer& lexer, Device* out) {
  const std::string_view type = lexer.word();
  if (type != "cpu" && type != "cuda") return lexer.expected("cpu or cuda");
  int64_t index = 0;
  if (!lexer.need(":") || !lexer.integer(&index)) return false;
  if (index < 0 || index > 127) return lexer.expected("a device index");
  *out = {type == "cuda" ? DeviceType::kCuda : DeviceType::kCpu, static_cast<int8_t>(index)};
  return true;
}

/// One number of {...} into bytes of a dtype.
bool parse_element(Lexer& lexer, DType dtype, std::byte* out) {
  const auto read = [&](int64_t* integer, double* decimal) {
    bool is_int = false;
    if (!lexer.number(integer, decimal, &is_int)) return false;
    if (is_int) *decimal = static_cast<double>(*integer);
    else *integer = std::isnan(*decimal) ? 0 : static_cast<int64_t>(std::clamp(*decimal, -9e18, 9e18));
    return true;
  };
  bool good = true;
  int64_t integer = 0;
  double decimal = 0;
  const bool typed = dispatch_dtype(dtype, [&]<typename T>() {
    T value{};
    if constexpr (std::is_same_v<T, bool>) {
      if (lexer.eat("true")) value = true;
      else good = lexer.need("false");
    } else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
      double imaginary = 0;
      good = read(&integer, &decimal) && lexer.need(",") && read(&integer, &imaginary);
      value = T(static_cast<typename T::value_type>(decimal), static_cast<typename T::value_type>(imaginary));
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      good = lexer.peek() == '-' ? lexer.expected("a number >= 0") : true;
      const std::string_view digits = good ? lexer.word() : std::string_view();
      const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      good = good && end.ec == std::errc() && end.ptr == digits.data() + digits.size();
    } else {
      good = read(&integer, &decimal);
      if constexpr (std::is_integral_v<T>) value = static_cast<T>(integer);
      else if constexpr (std::is_same_v<T, double>) value = decimal;
      else value = T(static_cast<float>(decimal));
    }
    std::memcpy(out, &value, sizeof value);
  });
  if (typed) return good || lexer.expected("a number");
  for (size_t i = 0; i < dtype_size(dtype); ++i) {
    if (i > 0 && !lexer.need(",")) return false;
    if (!lexer.integer(&integer)) return false;
    out[i] = static_cast<std::byte>(integer);
  }
  return true;
}

/// Small numbers that differ from element to element, for constants whose text gives no contents.
void fill_pattern(DType dtype, std::span<std::byte> bytes) {
  dispatch_dtype(dtype, [&]<typename T>() {
    for (size_t i = 0; (i + 1) * sizeof(T) <= bytes.size(); ++i) {
      T value{};
      const int step = static_cast<int>(i * 7 % 13);
      if constexpr (std::is_same_v<T, bool>) value = step % 2 != 0;
      else if constexpr (std::is_integral_v<T>) value = static_cast<T>(step);
      else if constexpr (std::is_same_v<T, std::complex<float>>) value = T(static_cast<float>(step - 6) / 8);
      else if constexpr (std::is_same_v<T, std::complex<double>>) value = T((step - 6) / 8.0);
      else value = static_cast<T>(static_cast<float>(step - 6) / 8);
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
}

class GraphParser {
 public:
  GraphParser(Shared& shared, Graph& graph, int depth) : shared_(shared), lexer_(shared.lexer), graph_(graph), depth_(depth) {}

  /// "graph(...) {...}" without the first word.
  bool parse() {
    if (depth_ > kMaxTextRegionDepth) return lexer_.fail(Status(Code::kUnsupported, "regions are nested too deeply"));
    if (!lexer_.need("(")) return false;
    while (!lexer_.eat(")")) {
      if (!graph_.inputs.empty() && !lexer_.need(",")) return false;
      if (!input()) return false;
    }
    if (!lexer_.need("{")) return false;
    while (!lexer_.eat("}")) {
      if (lexer_.at_end()) return lexer_.expected("'}'");
      if (!statement()) return false;
    }
    return true;
  }

  bool type(TensorType* out) {
    const std::string_view name = lexer_.peek_word();
    if (!dtype_from_short_name(name, &out->dtype)) return lexer_.expected("a type");
    lexer_.word();
    if (!lexer_.need("[") || !exprs_until("]", &out->sizes)) return false;
    if (out->sizes.size() > kMaxRank) return lexer_.fail(Status(Code::kUnsupported, str_cat("rank ", out->sizes.size())));
    if (lexer_.eat("{")) {
      if (!exprs_until("}", &out->strides)) return false;
      if (out->strides.size() != out->sizes.size()) return lexer_.expected("as many strides as sizes");
    } else {
      out->strides = contiguous_strides_of(out->sizes);
    }
    return !lexer_.eat("@") || parse_device(lexer_, &out->device);
  }

  /// Type, name, origin and contents behind "const".
  bool constant_definition(ConstantId* out) {
    TensorType made;
    if (!type(&made)) return false;
    Constant constant;
    constant.dtype = made.dtype;
    for (size_t d = 0; d < made.sizes.size(); ++d) {
      if (!made.sizes[d].is_const() || !made.strides[d].is_const() || made.strides[d].value() < 0) return lexer_.expected("a constant's type with constant dims");
      constant.sizes.push_back(made.sizes[d].value());
      constant.strides.push_back(made.strides[d].value());
    }
    int64_t numel = 0, bytes = 0;
    if (!checked_numel(constant.sizes, &numel) || !checked_mul(numel, static_cast<int64_t>(dtype_size(constant.dtype)), &bytes)) {
      return lexer_.expected("a constant's type of sensible size");
    }
    if (lexer_.peek() == '"' && !lexer_.string(&constant.name)) return false;
    for (size_t i = 0; i < std::size(kOriginNames); ++i) {
      if (lexer_.eat(kOriginNames[i])) constant.origin = static_cast<Constant::Origin>(i);
    }
    if (lexer_.eat("mutable")) constant.mutable_elsewhere = true;
    if (!contents(numel, &constant)) return false;
    *out = shared_.program.add(std::move(constant));
    return true;
  }

 private:
  struct Result {
    std::string name;
    bool typed = false;
    ValueKind kind = ValueKind::kTensor;
    TensorType type;
    Expr scalar;
  };

  bool exprs_until(std::string_view close, std::vector<Expr>* out) {
    while (!lexer_.eat(close)) {
      if (!out->empty() && !lexer_.need(",")) return false;
      if (!expr(&out->emplace_back())) return false;
    }
    return true;
  }

  bool expr(Expr* out) {
    const NameResolver resolve = [&](std::string_view name, Expr* found) {
      const auto symbol = shared_.symbols.find(std::string(name));
      if (symbol == shared_.symbols.end()) return false;
      *found = symbol->second;
      return true;
    };
    return parse_expr(lexer_, shared_.program.exprs, resolve, out);
  }

  /// Elements in row-major order, laid out by the constant's strides.
  bool contents(int64_t numel, Constant* constant) {
    if (!lexer_.eat("=")) return pattern(constant);
    if (lexer_.eat("lazy")) {
      constant->lazy = []() -> pteron::Result<Buffer> { return Status(Code::kInvalidFile, "a lazy constant read from text has no bytes"); };
      return true;
    }
    if (lexer_.eat("unknown")) return true;
    if (lexer_.eat("hash")) {
      constant->hash = std::string(lexer_.word());
      return !constant->hash.empty() || lexer_.expected("a hash");
    }
    if (!lexer_.need("{")) return false;
    if (numel > kInlineElements * 1024) return lexer_.expected("a hash for so large a constant");
    uint64_t span_bytes = 0;
    if (!extent(*constant, &span_bytes)) return lexer_.expected("strides of sensible size");
    auto buffer = new_buffer(span_bytes, constant);
    if (buffer == nullptr) return false;
    const size_t item = dtype_size(constant->dtype);
    std::vector<int64_t> index(constant->sizes.size(), 0);
    for (int64_t i = 0; i < numel; ++i) {
      if (i > 0 && !lexer_.need(",")) return false;
      int64_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) at += index[d] * constant->strides[d];
      if (!parse_element(lexer_, constant->dtype, buffer + static_cast<size_t>(at) * item)) return false;
      for (size_t d = index.size(); d-- > 0;) {
        if (++index[d] < constant->sizes[d]) break;
        index[d] = 0;
      }
    }
    return lexer_.need("}");
  }

  static bool extent(const Constant& constant, uint64_t* out) {
    uint64_t last = 0;
    *out = 0;
    for (size_t d = 0; d < constant.sizes.size(); ++d) {
      uint64_t step = 0;
      if (constant.sizes[d] == 0) return true;
      if (!checked_mul(static_cast<uint64_t>(constant.sizes[d] - 1), static_cast<uint64_t>(constant.strides[d]), &step) || !checked_add(last, step, &last)) return false;
    }
    return checked_mul(last + 1, static_cast<uint64_t>(dtype_size(constant.dtype)), out) && *out <= kMaxPatternBytes;
  }

  std::byte* new_buffer(uint64_t bytes, Constant* constant) {
    auto made = Buffer::create_zeroed(std::max<uint64_t>(bytes, 1));  // data of an empty constant is not null either
    if (!made.ok()) {
      lexer_.fail(std::move(made).status());
      return nullptr;
    }
    auto buffer = std::make_shared<Buffer>(std::move(*made));  // shared: Constant::owner
    constant->data = buffer->data();
    constant->owner = buffer;
    return buffer->data();
  }

  bool pattern(Constant* constant) {
    uint64_t span_bytes = 0;
    if (!extent(*constant, &span_bytes)) return lexer_.expected("contents for so large a constant");
    std::byte* data = new_buffer(span_bytes, constant);
    if (data == nullptr) return false;
    fill_pattern(constant->dtype, {data, span_bytes});
    return true;
  }

  /// "const 3" or "const f32[4] ...", behind the word.
  bool constant_reference(ConstantId* out) {
    if (!lexer_.starts_number()) return constant_definition(out);
    int64_t number = 0;
    if (!lexer_.integer(&number)) return false;
    if (number < 0 || static_cast<uint64_t>(number) >= shared_.numbered.size()) return lexer_.expected("the number of a constant above");
    *out = shared_.numbered[static_cast<size_t>(number)];
    return true;
  }

  bool value_name(std::string* out) {
    if (lexer_.eat("%")) {
      if (lexer_.peek() == '"') return lexer_.string(out);
      *out = std::string(lexer_.word());
      return !out->empty() || lexer_.expected("a name");
    }
    const std::string_view word = lexer_.peek_word();
    if (!is_identifier(word) || is_text_word(word)) return lexer_.expected("a name");
    *out = std::string(lexer_.word());
    return true;
  }

  /// A value that exists.
  bool value(ValueId* out) {
    std::string name;
    const size_t start = lexer_.position();
    if (!value_name(&name)) return false;
    *out = graph_.find(name);
    if (out->valid()) return true;
    lexer_.rewind(start);
    return lexer_.fail(Status(Code::kInvalidFile, str_cat("value '", name, "' is not defined before its use")));
  }

  bool value_type(Result* out) {
    out->typed = true;
    if (lexer_.eat("none")) return out->kind = ValueKind::kNone, true;
    if (!lexer_.eat("scalar")) return type(&out->type);
    out->kind = ValueKind::kScalar;
    return lexer_.need("(") && expr(&out->scalar) && lexer_.need(")");
  }

  bool define(const Result& result, std::string_view fallback, ValueId* out) {
    const bool unnamed = result.name == "_";
    const std::string_view name = unnamed ? fallback : std::string_view(result.name);
    switch (result.kind) {
      case ValueKind::kTensor: *out = graph_.add_tensor(result.type, name); break;
      case ValueKind::kScalar: *out = graph_.add_scalar(result.scalar, name); break;
      case ValueKind::kNone: *out = graph_.add_none(name); break;
    }
    if (unnamed || graph_[*out].name == result.name) return true;
    return lexer_.fail(Status(Code::kInvalidFile, str_cat("value '", result.name, "' is defined twice")));
  }

  bool input() {
    Input made;
    Result result;
    if (!value_name(&result.name)) return false;
    made.name = result.name;
    if (lexer_.eat("=")) {
      if (!argument(&made.literal)) return false;
      graph_.inputs.push_back(std::move(made));
      return true;
    }
    if (!lexer_.need(":") || !value_type(&result) || !define(result, "input", &made.value)) return false;
    if (lexer_.eat("as") && !lexer_.string(&made.name)) return false;
    graph_.inputs.push_back(std::move(made));
    return true;
  }

  bool statement() {
    const std::string_view word = lexer_.peek_word();
    if (word == "state") return state();
    if (word == "write") return write();
    if (word == "return") return results();
    const size_t start = lexer_.position();
    std::vector<Result> defined;
    if (lexer_.peek() == '%' || (is_identifier(word) && !is_text_word(word))) {
      if (!result_list(&defined)) return false;
      if (defined.empty()) lexer_.rewind(start);
    }
    if (!defined.empty() && lexer_.eat("const")) return constants(defined);
    return node(std::move(defined));
  }

  /// "a: type, b =": left empty (and nothing is recorded) if the statement is a call without results.
  bool result_list(std::vector<Result>* out) {
    do {
      Result result;
      if (!value_name(&result.name)) return false;
      const char next = lexer_.peek();
      const bool typed = next == ':' && lexer_.peek_second() != ':';
      if (!typed && next != ',' && next != '=') {
        if (!out->empty()) return lexer_.expected("'='");
        return true;
      }
      if (typed && (!lexer_.need(":") || !value_type(&result))) return false;
      out->push_back(std::move(result));
    } while (lexer_.eat(","));
    return lexer_.need("=");
  }

  bool constants(const std::vector<Result>& names) {
    const size_t start = lexer_.position();
    for (const Result& result : names) {
      lexer_.rewind(start);  // "a, b = const f32[4]" makes two
      ConstantId id;
      if (!constant_reference(&id)) return false;
      const ValueId made = graph_.add_constant(id, result.name);
      if (graph_[made].name != result.name) return lexer_.fail(Status(Code::kInvalidFile, str_cat("value '", result.name, "' is defined twice")));
      if (lexer_.eat("on") && !parse_device(lexer_, &graph_[made].type.device)) return false;
    }
    return true;
  }

  bool state() {
    lexer_.need("state");
    Result result;
    State made;
    if (!value_name(&result.name) || !lexer_.need(":") || !type(&result.type) || !define(result, "state", &made.value)) return false;
    if (!lexer_.string(&made.name)) return false;
    if (lexer_.eat("=") && (!lexer_.need("const") || !constant_reference(&made.initial))) return false;
    made.result = made.value;
    graph_.states.push_back(std::move(made));
    return true;
  }

  bool write() {
    lexer_.need("write");
    if (lexer_.eat("state")) {
      std::string name;
      if (!lexer_.string(&name) || !lexer_.need("=")) return false;
      for (State& state : graph_.states) {
        if (state.name == name) return value(&state.result);
      }
      return lexer_.fail(Status(Code::kInvalidFile, str_cat("no state '", name, "'")));
    }
    int64_t input = 0;
    InputMutation mutation;
    if (!lexer_.need("input") || !lexer_.integer(&input) || !lexer_.need("=") || !value(&mutation.result)) return false;
    if (input < 0 || static_cast<uint64_t>(input) >= graph_.inputs.size()) return lexer_.expected("the number of an input");
    mutation.input = static_cast<uint32_t>(input);
    graph_.input_mutations.push_back(mutation);
    return true;
  }

  bool results() {
    lexer_.need("return");
    if (lexer_.peek() == '}') return true;
    do {
      if (!argument(&graph_.outputs.emplace_back())) return false;
    } while (lexer_.eat(","));
    return true;
  }

  bool node(std::vector<Result> results) {
    const size_t start = lexer_.position();
    std::string name;
    if (lexer_.peek() == '"') {
      if (!lexer_.string(&name)) return false;
    } else {
      name = std::string(lexer_.operator_name());
    }
    if (name.empty()) return lexer_.expected("an operator");
    Node made;
    made.op = shared_.operators.find(name);
    if (!lexer_.need("(")) return false;
    while (!lexer_.eat(")")) {
      if (!made.args.empty() && !lexer_.need(",")) return false;
      if (!argument(&made.args.emplace_back())) return false;
    }
    if (made.op->known && !fit_arguments(&made)) return false;
    bool named = false;
    for (;;) {
      if (lexer_.eat("as")) {
        if (!lexer_.string(&made.name)) return false;
        named = true;
      } else if (lexer_.eat("at")) {
        if (!lexer_.string(&made.source)) return false;
      } else if (lexer_.eat("in")) {
        if (!lexer_.string(&made.module)) return false;
      } else {
        break;
      }
    }
    if (lexer_.eat("regions") && !regions(&made)) return false;
    const bool infer = std::any_of(results.begin(), results.end(), [](const Result& r) { return !r.typed; });
    if (infer && !infer_results(made, &results)) {
      lexer_.rewind(start);
      return lexer_.expected("types of the results");
    }
    for (const Result& result : results) {
      if (!define(result, short_operator_name(*made.op), &made.outputs.emplace_back())) return false;
    }
    if (!named && !made.outputs.empty()) made.name = graph_[made.outputs[0]].name;
    graph_.order.push_back(graph_.add_node(std::move(made)));
    return true;
  }

  static std::string_view short_operator_name(const Op& op) {
    std::string_view name = op.schema.name;
    const size_t colon = name.rfind(':');
    return colon == std::string_view::npos ? name : name.substr(colon + 1);
  }

  /// Numbers as the schema wants them, defaults for what is missing at the end.
  bool fit_arguments(Node* node) {
    const auto& schema = node->op->schema.args;
    for (size_t i = 0; i < node->args.size() && i < schema.size(); ++i) coerce_argument(&node->args[i], schema[i].type, shared_.program.exprs);
    auto complete = complete_args(*node->op, std::move(node->args), shared_.program.exprs);
    if (!complete.ok()) return lexer_.fail(Status(Code::kInvalidFile, std::string(complete.status().message())));
    node->args = std::move(*complete);
    return true;
  }

  bool regions(Node* node) {
    if (!lexer_.need("[")) return false;
    while (!lexer_.eat("]")) {
      if (!node->regions.empty() && !lexer_.need(",")) return false;
      auto region = std::make_unique<Graph>(shared_.program);
      if (!lexer_.need("graph") || !GraphParser(shared_, *region, depth_ + 1).parse()) return false;
      node->regions.push_back(std::move(region));
    }
    return true;
  }

  bool infer_results(const Node& node, std::vector<Result>* results) {
    const Op& op = node.op->functional != nullptr ? *node.op->functional : *node.op;
    if (!node.op->known || op.def.infer == nullptr) return false;
    if (const Status fits = check_arguments(graph_, *node.op, node.args); !fits.ok()) return lexer_.fail(Status(Code::kInvalidFile, std::string(fits.message())));
    InferContext context(graph_, op, node.args);
    if (Status status = op.def.infer(context); !status.ok()) return lexer_.fail(std::move(status).with_context(op.name));
    if (context.results.size() != results->size()) {
      return lexer_.fail(Status(Code::kInvalidFile, str_cat(op.name, " has ", context.results.size(), " results")));
    }
    for (size_t i = 0; i < results->size(); ++i) {
      Result& result = (*results)[i];
      if (result.typed) continue;
      result.kind = context.results[i].kind;
      result.type = context.results[i].type;
      result.scalar = context.results[i].scalar;
    }
    return true;
  }

  bool argument(Arg* out) {
    const char next = lexer_.peek();
    if (next == '"') {
      std::string text;
      if (!lexer_.string(&text)) return false;
      *out = std::move(text);
      return true;
    }
    if (next == '[') return list(out);
    if (next == '%') {
      ValueId id;
      if (!value(&id)) return false;
      *out = id;
      return true;
    }
    if (lexer_.eat("none")) return *out = std::monostate(), true;
    const std::string_view word = lexer_.peek_word();
    if (word == "dtype" || word == "format" || word == "layout" || word == "device") return enumeration(word, out);
    if (word == "complex") return complex_number(out);
    // A symbol wins over a value of the same name: the printer writes such values with '%'.
    const bool symbol = shared_.symbols.contains(std::string(word));
    const ValueId id = symbol || word.empty() ? ValueId() : graph_.find(word);
    if (id.valid()) {
      lexer_.word();
      *out = id;
      return true;
    }
    Expr e;
    if (!expr(&e)) return false;
    *out = e;
    return true;
  }

  bool enumeration(std::string_view kind, Arg* out) {
    lexer_.word();
    if (!lexer_.need(":")) return false;
    if (kind == "device") {
      Device device;
      if (!parse_device(lexer_, &device)) return false;
      *out = device;
      return true;
    }
    const std::string_view name = lexer_.word();
    if (kind == "dtype") {
      DType dtype{};
      if (!dtype_from_short_name(name, &dtype)) return lexer_.expected("a dtype");
      *out = dtype;
      return true;
    }
    for (size_t i = 0; i < std::size(kMemoryFormatNames) && kind == "format"; ++i) {
      if (name == kMemoryFormatNames[i]) return *out = static_cast<MemoryFormat>(i), true;
    }
    for (size_t i = 0; i < std::size(kLayoutNames) && kind == "layout"; ++i) {
      if (name == kLayoutNames[i]) return *out = static_cast<Layout>(i), true;
    }
    return lexer_.expected(str_cat("a ", kind));
  }

  bool complex_number(Arg* out) {
    int64_t integer = 0;
    double parts[2] = {};
    lexer_.word();
    if (!lexer_.need("(")) return false;
    for (int i = 0; i < 2; ++i) {
      bool is_int = false;
      if (i > 0 && !lexer_.need(",")) return false;
      if (!lexer_.number(&integer, &parts[i], &is_int)) return false;
      if (is_int) parts[i] = static_cast<double>(integer);
    }
    *out = std::complex<double>(parts[0], parts[1]);
    return lexer_.need(")");
  }

  /// Values and Nones, or numbers.
  bool list(Arg* out) {
    std::vector<ValueId> values;
    std::vector<Expr> numbers;
    lexer_.need("[");
    while (!lexer_.eat("]")) {
      if (values.size() + numbers.size() > 0 && !lexer_.need(",")) return false;
      Arg item;
      if (!argument(&item)) return false;
      if (const auto* e = std::get_if<Expr>(&item)) {
        numbers.push_back(*e);
      } else if (const auto* id = std::get_if<ValueId>(&item)) {
        values.push_back(*id);
      } else if (std::holds_alternative<std::monostate>(item)) {
        values.emplace_back();
      } else {
        return lexer_.expected("a list of values or numbers");
      }
      if (!values.empty() && !numbers.empty()) return lexer_.expected("a list of one kind");
    }
    if (values.empty()) *out = std::move(numbers);
    else *out = std::move(values);
    return true;
  }

  Shared& shared_;
  Lexer& lexer_;
  Graph& graph_;
  int depth_;
};

bool parse_bound(Lexer& lexer, int64_t infinite, int64_t* out) {
  int64_t integer = 0;
  double decimal = 0;
  bool is_int = false;
  if (!lexer.number(&integer, &decimal, &is_int)) return false;
  *out = is_int ? integer : infinite;
  return true;
}

bool parse_symbol(Shared& shared) {
  Lexer& lexer = shared.lexer;
  const std::string name(lexer.word());
  if (!is_identifier(name) || !lexer.need(":")) return lexer.expected("a symbol's name");
  const std::string_view kind = lexer.word();
  const ExprType type = kind == "float" ? ExprType::kFloat : kind == "bool" ? ExprType::kBool : ExprType::kInt;
  if (kind != "int" && kind != "float" && kind != "bool") return lexer.expected("int, float or bool");
  const Expr symbol = shared.program.exprs.symbol(name, type);
  Range range;
  if (lexer.eat("in")) {
    if (!lexer.need("[") || !parse_bound(lexer, Range::kMin, &range.min) || !lexer.need(",")) return false;
    if (!parse_bound(lexer, Range::kMax, &range.max) || !lexer.need("]")) return false;
    if (range.min > range.max) return lexer.expected("a range");
  }
  shared.program.exprs.set_range(symbol, range);
  shared.symbols[name] = symbol;
  return true;
}

bool parse_method(Shared& shared, std::string name) {
  auto method = std::make_unique<Method>(shared.program);
  method->name = std::move(name);
  Lexer& lexer = shared.lexer;
  if (lexer.eat("inputs") && !lexer.string(&method->in_spec)) return false;
  if (lexer.eat("outputs") && !lexer.string(&method->out_spec)) return false;
  if (!lexer.need("graph") || !GraphParser(shared, method->graph, 0).parse()) return false;
  shared.program.methods.push_back(std::move(method));
  return true;
}

bool parse_item(Shared& shared) {
  Lexer& lexer = shared.lexer;
  if (lexer.eat("symbol")) return parse_symbol(shared);
  if (lexer.eat("const")) {
    int64_t number = 0;
    ConstantId id;
    Graph scratch(shared.program);
    if (!lexer.integer(&number)) return false;
    if (number != static_cast<int64_t>(shared.numbered.size())) return lexer.expected("constants numbered from 0");
    if (!lexer.need(":") || !GraphParser(shared, scratch, 0).constant_definition(&id)) return false;
    shared.numbered.push_back(id);
    return true;
  }
  if (lexer.eat("method")) {
    std::string name;
    return lexer.string(&name) && parse_method(shared, std::move(name));
  }
  if (lexer.peek_word() == "graph") return parse_method(shared, "forward");
  return lexer.expected("symbol, const, method or graph");
}

}  // namespace

Status parse(std::string_view text, const Catalog& catalog, Program& program) {
  Lexer lexer(text);
  Shared shared{lexer, program, OperatorTable(catalog, program), {}, {}};
  for (const Expr& symbol : program.exprs.symbols()) shared.symbols.emplace(symbol.node()->name, symbol);
  while (!lexer.at_end()) {
    if (!parse_item(shared)) return lexer.take_status();
  }
  return ok_status();
}

}  // namespace pteron::ir
