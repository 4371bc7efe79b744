// PTERON_CHECK and PTERON_DCHECK: for our own bugs only; no input from outside may reach them (fuzz targets prove it).
#pragma once

namespace pteron {
/// Prints the failed condition and its place to stderr and aborts.
[[noreturn]] void check_failed(const char* condition, const char* file, int line);
}  // namespace pteron

#define PTERON_CHECK(condition) \
  do {                          \
    if (!(condition)) [[unlikely]] ::pteron::check_failed(#condition, __FILE__, __LINE__); \
  } while (false)

#ifdef NDEBUG
#define PTERON_DCHECK(condition) \
  do {                           \
    if (false) static_cast<void>(condition); \
  } while (false)
#else
#define PTERON_DCHECK(condition) PTERON_CHECK(condition)
#endif
