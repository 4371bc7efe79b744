// The CUDA driver, as a table of functions found in its library at run time: nothing of CUDA is needed to build, and a machine without it gets a
// sentence. PTERON_CUDA_DRIVER in the environment names another library (tests put a stand-in there).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "pteron/status.h"

namespace pteron::cuda {

/// Memory of the device. Units: bytes.
using Address = uint64_t;
/// Handles of the driver: never looked into.
using Context = struct ContextTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphExec = struct GraphExecTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;

/// Results that the engine tells apart; all others are failures.
inline constexpr int kSuccess = 0;
inline constexpr int kErrorOutOfMemory = 2;
inline constexpr int kErrorNotFound = 500;
/// Numbers of attributes and flags.
inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeClock = 13, kAttributeMemoryClock = 36, kAttributeBusBits = 37;
inline constexpr int kAttributeMajor = 75;
inline constexpr int kAttributeMinor = 76;
inline constexpr int kAttributeSharedLimit = 97;
inline constexpr int kFunctionDynamicShared = 8;
inline constexpr int kPointerMemoryType = 2, kPointerDevice = 9;
inline constexpr unsigned kMemoryOfDevice = 2;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr unsigned kEventWithoutTime = 2;
inline constexpr int kLaunchOverlaps = 6;  // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
/// CUlaunchAttribute and CUlaunchConfig of the driver's interface.
struct LaunchAttribute {
  int id = 0;
  int padding = 0;
  union {
    int value;
    char room[64] = {};
  };
};
static_assert(sizeof(LaunchAttribute) == 72);
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1}, shared_bytes = 0;
  Stream stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned attribute_count = 0;
};
using LaunchEx = int (*)(const LaunchConfig* config, Function function, void** parameters, void** extra);
/// A recorded call sets the event in every replay.
inline constexpr unsigned kEventExternal = 1;

/// Threads: immutable once open; the functions may be called from several threads.
struct Driver {
#define PTERON_CUDA_DRIVER(member, symbol, parameters) int(*member) parameters = nullptr;
#include "backends/cuda/runtime/driver_functions.inc"
#undef PTERON_CUDA_DRIVER
  LaunchEx launch_ex = nullptr;   ///< cuLaunchKernelEx; null where the library lacks it (a stand-in)
  std::string path;               ///< of the library, for messages
  std::shared_ptr<void> library;  ///< keeps it open

  /// Opens the library, finds the functions and initialises the driver.
  /// Errors: kUnavailable (no library, a function is missing, no device, driver and kernel module do not fit).
  static Result<std::shared_ptr<const Driver>> open();

  /// Errors: kOutOfMemory, kUnavailable (everything else) with the driver's text, if `result` is a failure. what: "copying to the device".
  Status check(int result, std::string_view what) const { return result == kSuccess ? ok_status() : failure(result, what); }
  Status failure(int result, std::string_view what) const;

  /// A symbol that only a stand-in's library has; null otherwise.
  void* optional_symbol(const char* name) const;
};

}  // namespace pteron::cuda
