// The libFuzzer program for all kinds of files: --kind=NAME chooses one (libFuzzer leaves flags with two dashes alone). With an empty corpus it
// starts from the seeds.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "fuzz/seeds.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed);

namespace {

/// Set once by LLVMFuzzerInitialize, which is the only place that sees the command line.
const pteron::fuzz::Kind* chosen_kind = nullptr;

const pteron::fuzz::Kind& kind() { return *chosen_kind; }

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  static const std::vector<pteron::fuzz::Kind> all = pteron::fuzz::all_kinds();
  for (int i = 1; i < *argc; ++i) {
    const std::string_view word = (*argv)[i];
    for (const auto& candidate : all) {
      if (word.starts_with("--kind=") && word.substr(7) == candidate.name) chosen_kind = &candidate;
    }
  }
  if (chosen_kind != nullptr) return 0;
  std::fputs("name a kind of file, for example --kind=zip\n", stderr);
  std::exit(2);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kind().consume({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}

/// Now and then starts again from a seed, so that a short run without a corpus is of use, too; otherwise libFuzzer's own mutations.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  const auto& seeds = kind().seeds;
  const auto& chosen = seeds[seed % seeds.size()];
  if ((size < 8 || seed % 64 == 0) && chosen.size() <= max_size) {
    std::memcpy(data, chosen.data(), chosen.size());
    size = chosen.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}
