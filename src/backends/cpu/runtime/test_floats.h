// Numbers for the tests of this room.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace pteron::cpu {

/// `count` multiples of 1/1000 in [-1, 1], the same for the same seed.
inline std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<float> out(count);
  for (float& v : out) v = static_cast<float>(engine() % 2001) / 1000.0f - 1.0f;
  return out;
}

}  // namespace pteron::cpu
