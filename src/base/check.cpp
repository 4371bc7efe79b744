// The failing end of PTERON_CHECK.
#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace pteron {

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "pteron: internal check failed: %s (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace pteron
