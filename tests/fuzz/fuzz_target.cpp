// A libFuzzer target: one program per kind of file, chosen by PTERON_FUZZ_KIND. With an empty corpus it starts from the seeds.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "fuzz/seeds.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);

namespace {

const pteron::fuzz::Kind& kind() {
  static const std::vector<pteron::fuzz::Kind> all = pteron::fuzz::all_kinds();
  for (const auto& candidate : all) {
    if (candidate.name == PTERON_FUZZ_KIND) return candidate;
  }
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kind().consume({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}

/// Now and then starts again from a seed, so that no corpus needs to be kept; otherwise libFuzzer's own mutations.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const auto& seeds = kind().seeds;
  const auto& chosen = seeds[seed % seeds.size()];
  if ((size < 8 || seed % 64 == 0) && chosen.size() <= max_size) {
    std::memcpy(data, chosen.data(), chosen.size());
    size = chosen.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
