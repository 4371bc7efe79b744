// Observers on the method and on the payloads inside take the time after each instruction; work is counted from its arguments.
#include "cli/profile.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace pteron::cli {

namespace {

using Clock = std::chrono::steady_clock;
using runtime::Tag;
using runtime::Value;

constexpr size_t kMaxEvents = 200000;
constexpr size_t kShownNodes = 40;
/// Below this an instruction's own cost counts more than its work.
constexpr double kSmallSeconds = 1e-6;

double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

double elements(const Value& value) { return value.tag == Tag::kTensor ? static_cast<double>(value.tensor.numel()) : 0; }

/// Multiply-adds per element of the result; 0 for kernels that are no products. Arguments as in the schemas.
double depth_of(std::string_view kernel, std::span<Value* const> args) {
  struct Product {
    std::string_view kernel;
    size_t left;
  };
  static constexpr Product kProducts[] = {{"aten::addmm.out", 1}, {"aten::baddbmm.out", 1}, {"aten::bmm.out", 0}, {"aten::linear.out", 0},
                                          {"aten::matmul.out", 0}, {"aten::mm.out", 0}, {"pteron_cpu::linear.out", 0},
                                          {"pteron_cpu::linear16.out", 0}, {"pteron_cpu::qlinear.out", 0}};
  for (const Product& product : kProducts) {
    if (product.kernel != kernel || product.left >= args.size() || args[product.left]->tag != Tag::kTensor) continue;
    const runtime::Tensor& left = args[product.left]->tensor;
    return left.rank() == 0 ? 0 : static_cast<double>(left.size(left.rank() - 1));
  }
  static constexpr std::string_view kConvolutions[] = {"aten::convolution.out", "pteron_cpu::conv2d.out", "pteron_cpu::conv2d16.out", "pteron_cpu::qconv2d.out"};
  if (std::ranges::find(kConvolutions, kernel) != std::end(kConvolutions) && args.size() > 1 && args[1]->tag == Tag::kTensor && args[1]->tensor.rank() > 0) {
    return elements(*args[1]) / std::max(1.0, static_cast<double>(args[1]->tensor.size(0)));
  }
  if (kernel == "pteron_cpu::gated_conv2d.out" && args.size() > 1 && args[1]->tag == Tag::kTensor && args[1]->tensor.rank() > 1) {
    return static_cast<double>(args[1]->tensor.size(1));
  }
  if ((kernel.starts_with("aten::scaled_dot_product_attention") || kernel == "pteron_cpu::attention.out") && args.size() > 1 && args[1]->tag == Tag::kTensor) {
    const runtime::Tensor& key = args[1]->tensor;
    return key.rank() < 2 ? 0 : 2 * static_cast<double>(key.size(key.rank() - 2));
  }
  return 0;
}

std::string rate(double amount, double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%8.1f", seconds > 0 ? amount / seconds / 1e9 : 0.0);
  return text;
}

std::string fixed(const char* format, double value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

}  // namespace

/// The observer of one method.
class Profile::Watcher final : public runtime::CallObserver {
 public:
  Watcher(Profile& profile, runtime::MethodState& state, std::string prefix) : profile_(profile), state_(state), prefix_(std::move(prefix)), nodes_(state.code.size(), SIZE_MAX) {
    if (const format::MethodMeta* meta = state.program->state().meta.find(state.info.name)) lines_ = meta->source_lines;
    state_.observer = this;
  }
  ~Watcher() override { state_.observer = nullptr; }

  Status after(size_t index) override {
    if (nodes_[index] == SIZE_MAX) nodes_[index] = describe(index);
    profile_.record(nodes_[index]);
    return ok_status();
  }

 private:
  size_t describe(size_t index) {
    const runtime::Instruction& instruction = state_.code[index];
    const auto name = static_cast<size_t>(state_.operator_of[index]);
    const bool is_delegate = instruction.kind == runtime::Instruction::Kind::kDelegate;
    ProfiledNode node;
    node.kernel = is_delegate ? state_.info.delegates[name] : state_.info.operators[name];
    node.place = str_cat(prefix_, index);
    std::string line;
    for (const format::SourceLineMeta& known : lines_) {
      if (static_cast<size_t>(known.instruction) <= index) line = known.location;
    }
    if (!line.empty()) str_append(node.place, " (", line, ")");
    if (!is_delegate) count(instruction.args, node);
    profile_.nodes_.push_back(std::move(node));
    return profile_.nodes_.size() - 1;
  }

  void count(std::span<Value* const> args, ProfiledNode& node) const {
    std::vector<const Value*> seen;
    const auto add = [&](const Value* value) {
      if (value->tag != Tag::kTensor || std::find(seen.begin(), seen.end(), value) != seen.end()) return;
      seen.push_back(value);
      node.bytes += static_cast<double>(value->tensor.view.size_bytes());
    };
    for (const Value* value : args) {
      add(value);
      if (value->tag == Tag::kTensorList) std::for_each(value->items.begin(), value->items.end(), add);
    }
    const Value* out = args.empty() ? nullptr : args.back();
    if (out == nullptr || out->tag != Tag::kTensor) return;
    node.shape = str_cat(dtype_name(out->tensor.dtype()), " ", shape_text(out->tensor.sizes()));
    const double depth = depth_of(node.kernel, args);
    node.flops = elements(*out) * (depth > 0 ? 2 * depth : 1);
    if (node.kernel == "pteron::view_strided.out") node.flops = node.bytes = 0;
  }

  Profile& profile_;
  runtime::MethodState& state_;
  std::string prefix_;
  std::vector<size_t> nodes_;  // by instruction
  std::vector<format::SourceLineMeta> lines_;
};

Profile::Profile(Method& method) {
  watchers_.push_back(std::make_unique<Watcher>(*this, method.state(), ""));
  for (size_t i = 0; i < method.state().delegates.size(); ++i) {
    runtime::MethodState* payload = method.state().delegates[i]->payload();
    if (payload != nullptr) watchers_.push_back(std::make_unique<Watcher>(*this, *payload, str_cat("delegate ", i, ": ")));
  }
  start_ = last_ = Clock::now();
}

Profile::~Profile() = default;

void Profile::begin_call() { last_ = Clock::now(); }

void Profile::end_call() {
  outside_seconds_ += microseconds(Clock::now() - last_) * 1e-6;
  ++calls_;
}

void Profile::record(size_t node) {
  const Clock::time_point now = Clock::now();
  const double duration = microseconds(now - last_);
  if (events_.size() < kMaxEvents) events_.push_back({node, microseconds(last_ - start_), duration});
  nodes_[node].seconds += duration * 1e-6;
  ++nodes_[node].calls;
  last_ = Clock::now();  // what the profile itself needs is nobody's
}

double Profile::total_seconds() const {
  double total = outside_seconds_;
  for (const ProfiledNode& node : nodes_) total += node.seconds;
  return total;
}

std::string Profile::hint(const Machine& machine) const {
  double arithmetic = 0, memory = 0, small = 0, ideal = 0;
  for (const ProfiledNode& node : nodes_) {
    const double calls = static_cast<double>(node.calls);
    const double by_arithmetic = node.flops / machine.flops_per_second, by_memory = node.bytes / machine.bytes_per_second;
    ideal += std::min(std::max(by_arithmetic, by_memory) * calls, node.seconds);  // narrow types multiply faster than the float that was measured
    if (std::max(by_arithmetic, by_memory) < kSmallSeconds) {
      small += node.seconds;
    } else {
      (by_arithmetic > by_memory ? arithmetic : memory) += node.seconds;
    }
  }
  const double total = std::max(total_seconds(), 1e-12), most = std::max({arithmetic, memory, small});
  const char* what = most == arithmetic ? "arithmetic" : most == memory ? "memory" : "the cost of calls: most instructions have less than a microsecond of work";
  return str_cat("bound by ", what, "; by time ", fixed("%.0f", 100 * arithmetic / total), " % arithmetic, ", fixed("%.0f", 100 * memory / total), " % memory, ",
                 fixed("%.0f", 100 * (total - arithmetic - memory) / total), " % small calls; a machine at its measured limits would need ",
                 fixed("%.0f", 100 * ideal / total), " % of the time\n");
}

std::string Profile::table(const Machine& machine) const {
  struct Row {
    double seconds = 0, flops = 0, bytes = 0;
    uint64_t calls = 0;
  };
  std::map<std::string, Row> kernels;
  for (const ProfiledNode& node : nodes_) {
    Row& row = kernels[node.kernel];
    row.seconds += node.seconds;
    row.flops += node.flops * static_cast<double>(node.calls);
    row.bytes += node.bytes * static_cast<double>(node.calls);
    row.calls += node.calls;
  }
  const double total = total_seconds(), calls = std::max(1.0, static_cast<double>(calls_));
  std::vector<std::pair<std::string, Row>> sorted(kernels.begin(), kernels.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string out = str_cat("this machine: ", fixed("%.1f", machine.flops_per_second / 1e9), " GFLOP/s, ", fixed("%.1f", machine.bytes_per_second / 1e9),
                            " GB/s (measured now, all threads)\n\n   ms/call  share  calls  GFLOP/s     GB/s  kernel\n");
  const auto line = [&](double seconds, double flops, double bytes, double count) {
    return str_cat(fixed("%10.4f", seconds * 1e3 / calls), fixed(" %5.1f%%", 100 * seconds / std::max(total, 1e-12)), fixed(" %6.0f", count), " ", rate(flops, seconds), " ",
                   rate(bytes, seconds), "  ");
  };
  for (const auto& [name, row] : sorted) str_append(out, line(row.seconds, row.flops, row.bytes, static_cast<double>(row.calls) / calls), name, "\n");
  str_append(out, line(outside_seconds_, 0, 0, 1), "inputs, outputs and checks\n\n   ms/call  share  calls  GFLOP/s     GB/s  node\n");
  std::vector<const ProfiledNode*> nodes;
  for (const ProfiledNode& node : nodes_) nodes.push_back(&node);
  std::stable_sort(nodes.begin(), nodes.end(), [](const auto* a, const auto* b) { return a->seconds > b->seconds; });
  for (size_t i = 0; i < nodes.size() && i < kShownNodes; ++i) {
    const ProfiledNode& node = *nodes[i];
    const double count = static_cast<double>(node.calls);
    str_append(out, line(node.seconds, node.flops * count, node.bytes * count, count / calls), node.place, " ", node.kernel, " ", node.shape, "\n");
  }
  if (nodes.size() > kShownNodes) str_append(out, "  ... and ", nodes.size() - kShownNodes, " more (--json has all)\n");
  str_append(out, "\n", hint(machine));
  return out;
}

void Profile::to_json(const Machine& machine, JsonWriter& json) const {
  const double calls = std::max(1.0, static_cast<double>(calls_));
  json.begin_object();
  json.field("machine_gflops", machine.flops_per_second / 1e9);
  json.field("machine_gbytes_per_second", machine.bytes_per_second / 1e9);
  json.field("calls", calls_);
  json.field("total_ms", total_seconds() * 1e3 / calls);
  json.field("outside_ms", outside_seconds_ * 1e3 / calls);
  std::string text = hint(machine);
  text.pop_back();
  json.field("hint", text);
  json.key("nodes");
  json.begin_array();
  for (const ProfiledNode& node : nodes_) {
    json.begin_object();
    json.field("kernel", node.kernel);
    json.field("place", node.place);
    json.field("shape", node.shape);
    json.field("time_ms", node.seconds * 1e3 / calls);
    json.field("calls", node.calls);
    json.field("flops", node.flops);
    json.field("bytes", node.bytes);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

std::string Profile::trace() const {
  JsonWriter json;
  json.begin_object();
  json.field("displayTimeUnit", "ns");
  json.key("traceEvents");
  json.begin_array();
  for (const ProfiledEvent& event : events_) {
    const ProfiledNode& node = nodes_[event.node];
    json.begin_object();
    json.field("name", node.kernel);
    json.field("cat", node.place.starts_with("delegate") ? "delegate" : "method");
    json.field("ph", "X");
    json.field("ts", event.begin_us);
    json.field("dur", event.duration_us);
    json.field("pid", 1);
    json.field("tid", 1);
    json.key("args");
    json.begin_object();
    json.field("place", node.place);
    json.field("shape", node.shape);
    json.field("flops", node.flops);
    json.field("bytes", node.bytes);
    json.end_object();
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return json.text();
}

}  // namespace pteron::cli
