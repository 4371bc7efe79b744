// Deterministic damage: every kind of small file is cut at every length, has bits flipped and words replaced by extreme numbers, and is read from a
// heap buffer of exactly its size. Each reading must end with a clear result; a sanitizer sees any read outside.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "fuzz/seeds.h"

namespace pteron::fuzz {
namespace {

/// Damaged files of each sort per seed; seeds with more places take a fixed pseudo-random choice of them.
constexpr size_t kMaxCases = 4000;

bool consume_exact(const Kind& kind, std::span<const std::byte> bytes) {
  const std::unique_ptr<std::byte[]> room(new std::byte[bytes.size()]);
  if (!bytes.empty()) std::memcpy(room.get(), bytes.data(), bytes.size());
  return kind.consume({room.get(), bytes.size()});
}

/// `count` places out of [0, limit): all of them if they are few enough.
class Places {
 public:
  explicit Places(size_t limit) : limit_(limit), count_(std::min(limit, kMaxCases)) {}
  size_t count() const { return count_; }
  size_t next() {
    if (count_ == limit_) return at_++;
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;  // Knuth's MMIX generator
    return static_cast<size_t>((state_ >> 33) % limit_);
  }

 private:
  size_t limit_, count_, at_ = 0;
  uint64_t state_ = 1;
};

class Damage : public ::testing::TestWithParam<size_t> {
 protected:
  static const std::vector<Kind>& kinds() {
    static const std::vector<Kind> all = all_kinds();
    return all;
  }
  const Kind& kind() const { return kinds()[GetParam()]; }
};

TEST_P(Damage, SeedsAreGood) {
  for (const auto& seed : kind().seeds) EXPECT_TRUE(consume_exact(kind(), seed));
}

TEST_P(Damage, CutFiles) {
  for (const auto& seed : kind().seeds) {
    Places places(seed.size());
    size_t accepted = 0;
    for (size_t n = 0; n < places.count(); ++n) accepted += consume_exact(kind(), std::span(seed).first(places.next()));
    if (kind().cut_refused) {
      EXPECT_EQ(accepted, 0u);
    }
  }
}

TEST_P(Damage, FlippedBits) {
  for (const auto& seed : kind().seeds) {
    Places places(seed.size() * 8);
    size_t refused = 0;
    for (size_t n = 0; n < places.count(); ++n) {
      const size_t bit = places.next();
      std::vector<std::byte> damaged = seed;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      refused += !consume_exact(kind(), damaged);
    }
    EXPECT_GT(refused, places.count() / 50);
  }
}

TEST_P(Damage, ExtremeWords) {
  constexpr uint32_t kExtremes[] = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff8};
  for (const auto& seed : kind().seeds) {
    const size_t words = seed.size() / 4, extremes = std::size(kExtremes);
    Places places(words * extremes);
    for (size_t n = 0; n < places.count(); ++n) {
      const size_t choice = places.next();
      std::vector<std::byte> damaged = seed;
      std::memcpy(damaged.data() + choice / extremes * 4, &kExtremes[choice % extremes], 4);
      consume_exact(kind(), damaged);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, Damage, ::testing::Range<size_t>(0, all_kinds().size()),
                         [](const ::testing::TestParamInfo<size_t>& info) { return std::string(all_kinds()[info.param].name); });

}  // namespace
}  // namespace pteron::fuzz
