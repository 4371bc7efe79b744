// Machine code of pointwise programs against the same programs run block by block: equal bits for any program, any length and any layout.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "backends/cpu/runtime/kernels.h"
#include "backends/cpu/runtime/pointwise_state.h"
#include "backends/cpu/runtime/test_args.h"
#include "base/str_cat.h"

namespace pteron::cpu {
namespace {

constexpr struct {
  const char* name;
  int operands;
} kOps[] = {
#define POINTWISE(name, operands) {#name, operands},
#include "backends/cpu/pointwise_ops.inc"
#undef POINTWISE
};

using Numbers = std::mt19937;
size_t below(Numbers& random, size_t end) { return random() % end; }

float special_or_any(Numbers& random) {
  constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kSpecial[] = {0.0f, -0.0f, 1e-40f, -1e-40f, 1.0f, -1.0f, 88.5f, -100.0f, kInf, -kInf, kNaN, 3e38f};
  if (below(random, 4) == 0) return kSpecial[below(random, std::size(kSpecial))];
  return std::uniform_real_distribution<float>(-6, 6)(random);
}

std::string random_program(Numbers& random, size_t inputs, size_t length) {
  std::string text;
  for (size_t i = 0; i < length; ++i) {
    const auto& op = kOps[below(random, std::size(kOps))];
    str_append(text, i > 0 ? ";" : "", op.name);
    for (int k = 0; k < op.operands; ++k) {
      // Old values too, so that many live at once.
      const size_t value = below(random, 3) == 0 ? below(random, inputs + i) : inputs + i - std::min(inputs + i, 1 + below(random, 4));
      const bool number = below(random, 6) == 0;
      char hex[12];
      std::snprintf(hex, sizeof hex, "#%08x", std::bit_cast<uint32_t>(special_or_any(random)));
      str_append(text, " ", number ? std::string(hex) : std::to_string(value));
    }
  }
  return text;
}

/// The result of a program for inputs of n floats; the first one broadcasts along rows if `columns` is not 0. `shift` moves the result off vectors.
std::vector<float> run(const PointwiseState& program, std::string_view text, std::vector<std::vector<float>>& inputs, int64_t n, int64_t columns,
                       size_t shift) {
  std::vector<float> out(static_cast<size_t>(n) + shift, -7.0f);
  const std::vector<int64_t> sizes = columns > 0 ? std::vector<int64_t>{n / columns, columns} : std::vector<int64_t>{n};
  Args args;
  args.floats(columns > 0 ? std::vector<int64_t>{columns} : sizes, inputs[0]);
  args.list(runtime::Tag::kTensorList);
  for (size_t i = 1; i < inputs.size(); ++i) args.floats(sizes, inputs[i]);
  args.end_list();
  args.text(text);
  args.integer(static_cast<int64_t>(DType::kFloat32));
  args.tensor(DType::kFloat32, sizes, out.data() + shift);
  const auto pool = make_thread_pool(2);
  runtime::KernelContext context;
  context.pool = pool.get();
  context.state = &program;
  const Status status = pointwise_kernels()[0].fn(context, args.values());
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

void expect_same(const std::vector<float>& got, const std::vector<float>& want, const std::string& what) {
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]) && std::isnan(got[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i])) << what << " at " << i << ": " << got[i] << ", expected " << want[i];
  }
}

/// Both forms of a program; code is there wherever it can be made.
struct Both {
  std::shared_ptr<const PointwiseState> plain, compiled;
  explicit Both(const std::string& text, size_t inputs) {
    auto loaded = load_pointwise(text, static_cast<int>(inputs), false);
    if (!loaded.ok()) return;  // too many registers
    plain = *loaded;
    compiled = *load_pointwise(text, static_cast<int>(inputs));
    EXPECT_FALSE(plain->compiled);
#if defined(PTERON_XBYAK) && defined(__x86_64__)
    EXPECT_TRUE(compiled->compiled) << text;
#endif
  }
};

TEST(PointwiseCode, EqualsTheProgramsItIsMadeOf) {
  Numbers random(7);
  int compared = 0;
  for (int turn = 0; turn < 1500; ++turn) {
    const size_t inputs = 1 + below(random, 12), length = turn < 100 ? 1 : 1 + below(random, 64);
    const std::string text = random_program(random, inputs, length);
    const Both both(text, inputs);
    if (both.plain == nullptr) continue;
    const int64_t columns = turn % 3 == 0 && inputs > 1 ? 1 + static_cast<int64_t>(below(random, turn % 2 == 0 ? 60 : 1200)) : 0;
    int64_t n = 1 + static_cast<int64_t>(below(random, turn % 8 == 0 ? 9000 : 700));
    if (columns > 0) n = columns * (1 + n / columns);
    std::vector<std::vector<float>> values(inputs, std::vector<float>(static_cast<size_t>(n)));
    for (auto& v : values) {
      for (float& x : v) x = special_or_any(random);
    }
    const size_t shift = below(random, 4);
    expect_same(run(*both.compiled, text, values, n, columns, shift), run(*both.plain, text, values, n, columns, shift), text);
    ++compared;
  }
  EXPECT_GT(compared, 1000);
}

TEST(PointwiseCode, LargeResultsGoPastTheCaches) {
  const std::string text = "mul 0 1;add 2 #3f800000;gelu 3;sub 4 0";
  const Both both(text, 2);
  ASSERT_NE(both.plain, nullptr);
  for (const size_t shift : {size_t{0}, size_t{3}}) {
    for (const int64_t n : {int64_t{4} << 20, (int64_t{4} << 20) + 16 * 3}) {
      std::vector<std::vector<float>> values(2, std::vector<float>(static_cast<size_t>(n)));
      for (size_t i = 0; i < values[0].size(); ++i) {
        values[0][i] = static_cast<float>(i % 1013) * 0.01f - 5;
        values[1][i] = static_cast<float>(i % 577) * 0.003f;
      }
      expect_same(run(*both.compiled, text, values, n, 0, shift), run(*both.plain, text, values, n, 0, shift), str_cat(n, " floats, shift ", shift));
    }
  }
}

}  // namespace
}  // namespace pteron::cpu
