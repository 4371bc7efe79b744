// A stand-in for the CUDA driver's library: device memory is the host's, kernels are the module's source translated by the host's compiler. What its files
// share, and what tests may ask of it (by dlsym, since it is opened as the driver).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace pteron::emulator {

/// Runs `work` in the order of the stream, or records it where the stream is captured. Library calls that the emulator stands in for use it.
/// Gives a CUresult.
int enqueue(void* stream, std::function<void()> work);

/// A translated module.
struct Kernels;
/// Null if the compiler refuses the text; its words go to stderr. Owns: the process; equal texts are translated once.
Kernels* open_kernels(const char* source);
/// Null if there is no such kernel.
void* find_kernel(Kernels* kernels, const char* name);
/// Runs a grid of blocks, one after another. params: 8 bytes each. Gives false if a thread trapped or threads wait for each other in vain.
bool run_kernel(Kernels* kernels, void* kernel, const unsigned (&grid)[3], const unsigned (&block)[3], size_t shared_bytes, const uint64_t* params, size_t count);

}  // namespace pteron::emulator

extern "C" {
/// Lets the nth call (from 1) of the function with this symbol ("cuMemAlloc_v2") fail with `result`, once; 0: none. sticky: every call afterwards too, as
/// after a fault on a device. Threads: not while others call.
void pteron_emulator_fail(const char* symbol, int nth, int result, int sticky);
/// Calls of the function so far.
int pteron_emulator_calls(const char* symbol);
/// What was made and not given back: memory, page-locked memory, streams, events, modules, graphs, contexts.
int pteron_emulator_live();
/// From now on work runs when it is put on a stream (0), or only when somebody waits for it (1): what reads results too early, or writes memory that is still
/// to be read, shows.
void pteron_emulator_defer(int on);
/// What was put on streams since the last call that asked for it, a line each: "launch 2", "replay 2", "wait 2", with the number of the stream. on: whether it is
/// noted from now on.
const char* pteron_emulator_log(int on);
/// Bytes that were copied to and from the device so far, and on it.
uint64_t pteron_emulator_copied(int kind);
}
