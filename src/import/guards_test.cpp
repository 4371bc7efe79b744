// Guards of an export: Python conditions on sizes of inputs.
#include "import/guards.h"

#include <gtest/gtest.h>

namespace pteron::importer {
namespace {

class Guards : public ::testing::Test {
 protected:
  Guards() : n(exprs.symbol("n")), m(exprs.symbol("m")) {
    exprs.set_range(n, {0, 100});
    exprs.set_range(m, {0, 100});
  }
  std::optional<ir::Expr> read(std::string_view text) {
    return read_guard(text, exprs, [this](std::string_view name, int64_t dim) -> std::optional<ir::Expr> {
      if (name == "x" && dim == 0) return n;
      if (name == "d_inner_1" && dim == 1) return m;
      if (name == "k" && dim == -1) return m;
      return std::nullopt;
    });
  }
  /// 1, 0, or -1 if the text is not read.
  int64_t holds(std::string_view text, int64_t n_value, int64_t m_value) {
    const auto guard = read(text);
    if (!guard) return -1;
    return ir::evaluate(*guard, [&](ir::Expr e) { return std::optional<int64_t>(e == n ? n_value : m_value); }).value_or(-1);
  }
  ir::ExprContext exprs;
  ir::Expr n, m;
};

TEST_F(Guards, ConditionsOnSizes) {
  EXPECT_EQ(holds("L['x'].size()[0] % 2 == 0", 4, 0), 1);
  EXPECT_EQ(holds("L['x'].size()[0] % 2 == 0", 5, 0), 0);
  EXPECT_EQ(holds("(((-1) + L['x'].size()[0] + ((2 + L['x'].size()[0]) // 3)) // ((2 + L['x'].size()[0]) // 3)) == 2", 4, 0), 1);
  EXPECT_EQ(holds("(((-1) + L['x'].size()[0] + ((2 + L['x'].size()[0]) // 3)) // ((2 + L['x'].size()[0]) // 3)) == 2", 3, 0), 0);
  EXPECT_EQ(holds("2 <= L['x'].size()[0] and L['x'].size()[0] <= 8", 8, 0), 1);
  EXPECT_EQ(holds("2 <= L['x'].size()[0] <= 8", 9, 0), 0);
  EXPECT_EQ(holds("L['x'].size()[0] == L['d']['Inner'][1].size()[1]", 3, 3), 1);
  EXPECT_EQ(holds("not L['x'].size()[0] > L['k']", 3, 2), 0);
  EXPECT_EQ(holds("L['x'].size()[0]**2 - 3*L['k'] < 1 or L['k'] == 0", 3, 3), 1);
  EXPECT_EQ(holds("max(1, L['x'].size()[0]) != Mod(L['k'], 4)", 1, 5), 0);
}

TEST_F(Guards, OthersAreLeftOut) {
  for (const char* text : {"", "L['y'].size()[0] == 1", "L['x'].stride()[0] == 1", "L['x'].size()[0] == 1.5", "L['x'].size()[0] >", "L['x'].size()[0] == 2)", "f(L['k']) == 1", "L['x", "L"}) {
    EXPECT_FALSE(read(text).has_value()) << text;
  }
  EXPECT_FALSE(read(std::string(5000, '(')).has_value());
  EXPECT_FALSE(read(std::string(5000, '-')).has_value());
}

TEST_F(Guards, SmallSizesAreNoConditions) {
  for (const char* text : {"L['x'].size()[0] != 1", "L['x'].size()[0] // 4 != 1", "(-1) + L['x'].size()[0] >= 2", "2 <= L['x'].size()[0]", "L['x'].size()[0] > 1", "1 < L['x'].size()[0]", "L['x'].size()[0] != 0"}) {
    EXPECT_TRUE(excludes_small_size(read(text).value())) << text;
  }
  for (const char* text : {"L['x'].size()[0] == 1", "L['x'].size()[0] != 2", "3 <= L['x'].size()[0]", "L['x'].size()[0] <= 2", "2 <= L['x'].size()[0] <= 8", "L['x'].size()[0] % 2 == 0",
                           "L['x'].size()[0] != L['k']"}) {
    EXPECT_FALSE(excludes_small_size(read(text).value())) << text;
  }
}

TEST_F(Guards, EquationsNarrowRanges) {
  const auto range_after = [&](const char* text, ir::Range range) {
    exprs.set_range(n, range);
    const std::vector<ir::Expr> guards = {read(text).value()}, symbols = {n};
    narrow_by_equalities(guards, symbols, exprs);
    return exprs.range_of(n);
  };
  EXPECT_EQ(range_after("((8 + ((-1)*L['x'].size()[0])) // 3) == 1", {3, 6}), (ir::Range{3, 5}));
  EXPECT_EQ(range_after("L['x'].size()[0] // 4 == 2", {0, 100}), (ir::Range{8, 11}));
  EXPECT_EQ(range_after("L['x'].size()[0] // 4 == 2", {0, 5000}), (ir::Range{0, 5000}));  // too many to try
  EXPECT_EQ(range_after("L['x'].size()[0] // 4 == 2", {20, 30}), (ir::Range{20, 30}));    // never true: the check at call time says so
  EXPECT_EQ(range_after("L['x'].size()[0] % 2 == 0", {3, 7}), (ir::Range{3, 7}));
  EXPECT_EQ(range_after("L['x'].size()[0] // 4 <= 2", {0, 100}), (ir::Range{0, 100}));
  exprs.set_range(n, {3, 6});
  narrow_by_equalities(std::vector<ir::Expr>{read("L['x'].size()[0] // 4 == 1").value()}, std::vector<ir::Expr>{m}, exprs);  // n is not ours to narrow
  EXPECT_EQ(exprs.range_of(n), (ir::Range{3, 6}));
}

}  // namespace
}  // namespace pteron::importer
