// The functions of the driver that the engine calls. Work runs when it is put on a stream; a captured stream keeps it in a graph. Calls that a real driver
// refuses are refused: without a context, outside of allocations, allocations during a capture, captured copies with memory that is not page-locked.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "emulator.h"

namespace pteron::emulator {
namespace {

using Work = std::function<bool()>;  // false: the device failed

// Numbers of CUresult.
constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNoContext = 201, kInvalidImage = 200, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700, kCaptureForbidden = 900, kCaptureInvalid = 901;

struct Graph {
  std::vector<Work> work;
};
struct GraphExec {
  std::vector<Work> work;
};
struct Stream {
  std::unique_ptr<Graph> capture;
  bool spoiled = false;
  int number = 0;              // of all streams that were ever made, from 1
  std::deque<Work> waiting;    // deferred work
};
struct Event {
  std::chrono::steady_clock::time_point when;
  Stream* stream = nullptr;    // where it was put last
  int waiting = 0;             // times that it stands in deferred work
};
struct Module {
  Kernels* kernels = nullptr;
};
struct Function {
  Module* module = nullptr;
  void* code = nullptr;
};
struct Failure {
  int nth = 0, result = 0;
  bool sticky = false;
};

struct Device {
  std::recursive_mutex mutex;
  std::map<uintptr_t, size_t> memory, pinned;  // address -> bytes
  std::set<Stream*> streams;
  std::set<void*> others;  // events, modules, graphs
  std::vector<std::unique_ptr<Function>> functions;
  std::map<std::string, int> calls;
  std::map<std::string, Failure> failures;
  int contexts = 0;
  int fault = kSuccess;    // of all further calls
  uint64_t copied[3] = {0, 0, 0};
  bool deferred = false;   // work runs when somebody waits for it
  bool logs = false;
  std::string log;
  int stream_count = 0;
} device;

void note(const char* what, const Stream* stream) {
  if (device.logs) device.log += what + std::string(" ") + std::to_string(stream == nullptr ? 0 : stream->number) + "\n";
}

void run_now(const Work& work) {
  if (!work()) device.fault = kIllegalAddress;
}

void run_waiting(Stream* stream) {
  while (!stream->waiting.empty()) {
    const Work work = std::move(stream->waiting.front());
    stream->waiting.pop_front();
    run_now(work);
  }
}

void run_all() {
  for (Stream* stream : device.streams) run_waiting(stream);
}

thread_local std::vector<void*> context_stack;
thread_local Stream* capturing = nullptr;

bool contains(const std::map<uintptr_t, size_t>& blocks, uintptr_t address, size_t bytes) {
  auto after = blocks.upper_bound(address);
  if (after == blocks.begin()) return false;
  --after;
  return address + bytes <= after->first + after->second;
}

/// What every call does first. Gives its result if it is not to go on.
int enter(const char* symbol, bool needs_context = true) {
  const int count = ++device.calls[symbol];
  if (device.fault != kSuccess) return device.fault;
  const auto failure = device.failures.find(symbol);
  if (failure != device.failures.end() && failure->second.nth == count) {
    if (failure->second.sticky) device.fault = failure->second.result;
    return failure->second.result;
  }
  return needs_context && context_stack.empty() ? kNoContext : kSuccess;
}

#define ENTER(symbol)                                               \
  const std::lock_guard<std::recursive_mutex> guard(device.mutex); \
  if (const int early = enter(symbol); early != kSuccess) return early
#define ENTER_WITHOUT_CONTEXT(symbol)                               \
  const std::lock_guard<std::recursive_mutex> guard(device.mutex); \
  if (const int early = enter(symbol, false); early != kSuccess) return early

/// Calls that may not happen while the thread captures.
int forbid_capture() {
  if (capturing == nullptr) return kSuccess;
  capturing->spoiled = true;
  return kCaptureForbidden;
}

int put(Stream* stream, Work work) {
  if (!device.streams.contains(stream)) return kInvalidValue;
  if (stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
    return kSuccess;
  }
  if (device.deferred) {
    stream->waiting.push_back(std::move(work));
  } else {
    run_now(work);
  }
  return kSuccess;  // as on a device: the fault shows in a later call
}

int allocate(std::map<uintptr_t, size_t>& blocks, size_t bytes, uintptr_t* address) {
  if (const int early = forbid_capture(); early != kSuccess) return early;
  if (bytes == 0) return kInvalidValue;
  // The end of the block, rounded to 256, is the end of a page, and the next page cannot be touched.
  const size_t page = 4096, padded = (bytes + 255) / 256 * 256, pages = (padded + page - 1) / page * page;
  void* memory = mmap(nullptr, pages + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return kOutOfMemory;
  mprotect(static_cast<char*>(memory) + pages, page, PROT_NONE);
  *address = reinterpret_cast<uintptr_t>(memory) + pages - padded;
  std::memset(reinterpret_cast<void*>(*address), 0xff, bytes);  // not a number, in every float format
  blocks[*address] = bytes;
  return kSuccess;
}

int deallocate(std::map<uintptr_t, size_t>& blocks, uintptr_t address) {
  const auto found = blocks.find(address);
  if (found == blocks.end()) return kInvalidValue;
  const size_t page = 4096, padded = (found->second + 255) / 256 * 256, pages = (padded + page - 1) / page * page;
  munmap(reinterpret_cast<void*>(address + padded - pages), pages + page);
  blocks.erase(found);
  return kSuccess;
}

bool contains_pinned(const void* host) { return contains(device.pinned, reinterpret_cast<uintptr_t>(host), 1); }

int copy(int kind, void* to, const void* from, size_t bytes, Stream* stream) {
  device.copied[kind] += stream->capture == nullptr ? bytes : 0;
  // Memory of the host that is not page-locked is read, or was written, when the call returns.
  if (device.deferred && stream->capture == nullptr && kind == 0 && !contains_pinned(from)) {
    return put(stream, [to, held = std::vector<char>(static_cast<const char*>(from), static_cast<const char*>(from) + bytes)] {
      std::memcpy(to, held.data(), held.size());
      return true;
    });
  }
  if (device.deferred && stream->capture == nullptr && kind == 1 && !contains_pinned(to)) run_waiting(stream);
  const bool at_once = device.deferred && stream->capture == nullptr && kind == 1 && !contains_pinned(to);
  if (at_once) {
    std::memmove(to, from, bytes);
    return kSuccess;
  }
  return put(stream, [kind, to, from, bytes, recorded = stream->capture != nullptr] {
    if (recorded) device.copied[kind] += bytes;
    std::memmove(to, from, bytes);
    return true;
  });
}

int put_event(Event* event, Stream* stream) {
  event->stream = stream;
  ++event->waiting;
  const bool recorded = device.streams.contains(stream) && stream->capture != nullptr;
  if (recorded) --event->waiting;
  return put(stream, [event, recorded] {
    event->when = std::chrono::steady_clock::now();
    if (!recorded) --event->waiting;
    return true;
  });
}

/// Host memory that a captured copy may use.
bool may_capture(Stream* stream, const void* host, size_t bytes) { return stream->capture == nullptr || contains(device.pinned, reinterpret_cast<uintptr_t>(host), bytes); }

}  // namespace

int enqueue(void* stream, std::function<void()> work) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  return put(static_cast<Stream*>(stream), [work = std::move(work)] {
    work();
    return true;
  });
}

}  // namespace pteron::emulator

using namespace pteron::emulator;

extern "C" {

void pteron_emulator_fail(const char* symbol, int nth, int result, int sticky) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  device.failures.clear();
  device.fault = kSuccess;
  if (nth > 0) device.failures[symbol] = {device.calls[symbol] + nth, result, sticky != 0};
}
int pteron_emulator_calls(const char* symbol) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  return device.calls[symbol];
}
int pteron_emulator_live() {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  return static_cast<int>(device.memory.size() + device.pinned.size() + device.streams.size() + device.others.size()) + device.contexts;
}
uint64_t pteron_emulator_copied(int kind) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  return kind >= 0 && kind < 3 ? device.copied[kind] : 0;
}
void pteron_emulator_defer(int on) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  run_all();
  device.deferred = on != 0;
}
const char* pteron_emulator_log(int on) {
  static std::string taken;
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  taken = std::move(device.log);
  device.log.clear();
  device.logs = on != 0;
  return taken.c_str();
}
/// The engine's sign that the driver takes sources.
int pteron_emulated_device() { return 1; }

int cuInit(unsigned) {
  ENTER_WITHOUT_CONTEXT("cuInit");
  return kSuccess;
}
int cuDriverGetVersion(int* version) {
  *version = 13000;
  return kSuccess;
}
int cuGetErrorString(int result, const char** text) {
  static std::map<int, std::string> texts;
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  std::string& known = texts[result];
  if (known.empty()) known = result == kOutOfMemory ? "out of memory" : "emulated error " + std::to_string(result);
  *text = known.c_str();
  return kSuccess;
}
int cuDeviceGetCount(int* count) {
  ENTER_WITHOUT_CONTEXT("cuDeviceGetCount");
  *count = 1;
  return kSuccess;
}
int cuDeviceGet(int* handle, int ordinal) {
  ENTER_WITHOUT_CONTEXT("cuDeviceGet");
  *handle = ordinal;
  return ordinal == 0 ? kSuccess : 101;
}
int cuDeviceGetName(char* name, int size, int) {
  std::snprintf(name, static_cast<size_t>(size), "emulated device");
  return kSuccess;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 13: *value = 1000000; return kSuccess;
    case 16: *value = 4; return kSuccess;
    case 36: *value = 1000000; return kSuccess;
    case 37: *value = 512; return kSuccess;
    case 75: *value = 9; return kSuccess;
    case 76: *value = 0; return kSuccess;
    case 97: *value = 227 * 1024; return kSuccess;
    default: return kInvalidValue;
  }
}
int cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = size_t{8} << 30;
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void** context, int) {
  ENTER_WITHOUT_CONTEXT("cuDevicePrimaryCtxRetain");
  ++device.contexts;
  *context = &device;
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  --device.contexts;
  if (device.contexts == 0) device.fault = kSuccess;
  return kSuccess;
}
int cuCtxPushCurrent_v2(void* context) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  context_stack.push_back(context);
  return kSuccess;
}
int cuCtxPopCurrent_v2(void** context) {
  if (context_stack.empty()) return kNoContext;
  *context = context_stack.back();
  context_stack.pop_back();
  return kSuccess;
}
int cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  ENTER("cuMemAlloc_v2");
  uintptr_t made = 0;
  const int result = allocate(device.memory, bytes, &made);
  if (result == kSuccess) *address = made;
  return result;
}
int cuMemFree_v2(uint64_t address) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  if (context_stack.empty()) return kNoContext;
  run_all();  // as the driver, which waits
  return deallocate(device.memory, address);
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER("cuMemHostAlloc");
  uintptr_t made = 0;
  const int result = allocate(device.pinned, bytes, &made);
  if (result == kSuccess) *memory = reinterpret_cast<void*>(made);
  return result;
}
int cuMemFreeHost(void* memory) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  if (context_stack.empty()) return kNoContext;
  run_all();
  return deallocate(device.pinned, reinterpret_cast<uintptr_t>(memory));
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* stream) {
  ENTER("cuMemcpyHtoDAsync_v2");
  auto* s = static_cast<Stream*>(stream);
  if (!device.streams.contains(s) || !contains(device.memory, to, bytes) || !may_capture(s, from, bytes)) return kInvalidValue;
  return copy(0, reinterpret_cast<void*>(to), from, bytes, s);
}
int cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* stream) {
  ENTER("cuMemcpyDtoHAsync_v2");
  auto* s = static_cast<Stream*>(stream);
  if (!device.streams.contains(s) || !contains(device.memory, from, bytes) || !may_capture(s, to, bytes)) return kInvalidValue;
  return copy(1, to, reinterpret_cast<const void*>(from), bytes, s);
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* stream) {
  ENTER("cuMemcpyDtoDAsync_v2");
  auto* s = static_cast<Stream*>(stream);
  if (!device.streams.contains(s) || !contains(device.memory, from, bytes) || !contains(device.memory, to, bytes)) return kInvalidValue;
  return copy(2, reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes, s);
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) {
  ENTER("cuMemsetD8Async");
  if (!contains(device.memory, to, bytes)) return kInvalidValue;
  return put(static_cast<Stream*>(stream), [=] {
    std::memset(reinterpret_cast<void*>(to), value, bytes);
    return true;
  });
}
int cuStreamCreate(void** stream, unsigned) {
  ENTER("cuStreamCreate");
  auto* made = new Stream;
  made->number = ++device.stream_count;
  device.streams.insert(made);
  *stream = made;
  return kSuccess;
}
int cuStreamDestroy_v2(void* stream) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  auto* s = static_cast<Stream*>(stream);
  if (!device.streams.contains(s)) return kInvalidValue;
  run_waiting(s);
  device.streams.erase(s);
  if (capturing == s) capturing = nullptr;
  delete s;
  return kSuccess;
}
int cuStreamSynchronize(void* stream) {
  ENTER("cuStreamSynchronize");
  auto* s = static_cast<Stream*>(stream);
  if (!device.streams.contains(s)) return kInvalidValue;
  note("wait", s);
  if (s->capture != nullptr) s->spoiled = true;
  if (const int early = forbid_capture(); early != kSuccess) return early;
  run_waiting(s);
  return device.fault;
}
int cuStreamIsCapturing(void* stream, int* status) {
  ENTER("cuStreamIsCapturing");
  auto* s = static_cast<Stream*>(stream);
  if (!device.streams.contains(s)) return kInvalidValue;
  *status = s->capture != nullptr ? 1 : 0;
  return kSuccess;
}
int cuCtxSynchronize() {
  ENTER("cuCtxSynchronize");
  if (const int early = forbid_capture(); early != kSuccess) return early;
  run_all();
  return device.fault;
}
int cuPointerGetAttribute(void* value, int attribute, uint64_t address) {
  ENTER("cuPointerGetAttribute");
  const bool on_device = contains(device.memory, address, 1);
  if (!on_device && !contains(device.pinned, address, 1)) return kInvalidValue;
  if (attribute == 2) *static_cast<unsigned*>(value) = on_device ? 2 : 1;
  if (attribute == 9) *static_cast<int*>(value) = 0;
  return kSuccess;
}
int cuStreamBeginCapture_v2(void* stream, int) {
  ENTER("cuStreamBeginCapture_v2");
  auto* s = static_cast<Stream*>(stream);
  if (!device.streams.contains(s) || s->capture != nullptr || capturing != nullptr) return kInvalidValue;
  s->capture = std::make_unique<Graph>();
  s->spoiled = false;
  capturing = s;
  return kSuccess;
}
int cuStreamEndCapture(void* stream, void** graph) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  auto* s = static_cast<Stream*>(stream);
  *graph = nullptr;
  if (!device.streams.contains(s) || s->capture == nullptr) return kInvalidValue;
  std::unique_ptr<Graph> made = std::move(s->capture);
  capturing = nullptr;
  if (const int early = enter("cuStreamEndCapture"); early != kSuccess) return early;
  if (s->spoiled) return kCaptureInvalid;
  device.others.insert(made.get());
  *graph = made.release();
  return kSuccess;
}
int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  ENTER("cuGraphInstantiateWithFlags");
  auto* made = new GraphExec{static_cast<Graph*>(graph)->work};
  device.others.insert(made);
  *exec = made;
  return kSuccess;
}
int cuGraphDestroy(void* graph) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  if (device.others.erase(graph) == 0) return kInvalidValue;
  delete static_cast<Graph*>(graph);
  return kSuccess;
}
int cuGraphExecDestroy(void* exec) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  if (device.others.erase(exec) == 0) return kInvalidValue;
  delete static_cast<GraphExec*>(exec);
  return kSuccess;
}
int cuGraphLaunch(void* exec, void* stream) {
  ENTER("cuGraphLaunch");
  if (!device.others.contains(exec)) return kInvalidValue;
  note("replay", static_cast<Stream*>(stream));
  for (const Work& work : static_cast<GraphExec*>(exec)->work) {
    if (const int result = put(static_cast<Stream*>(stream), work); result != kSuccess) return result;
  }
  return kSuccess;
}
int cuModuleLoadData(void** module, const void* image) {
  ENTER("cuModuleLoadData");
  Kernels* kernels = open_kernels(static_cast<const char*>(image));
  if (kernels == nullptr) return kInvalidImage;
  auto* made = new Module{kernels};
  device.others.insert(made);
  *module = made;
  return kSuccess;
}
int cuModuleUnload(void* module) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  if (device.others.erase(module) == 0) return kInvalidValue;
  auto* m = static_cast<Module*>(module);
  std::erase_if(device.functions, [&](const auto& function) { return function->module == m; });
  delete m;
  return kSuccess;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER("cuModuleGetFunction");
  auto* m = static_cast<Module*>(module);
  void* code = find_kernel(m->kernels, name);
  if (code == nullptr) return kNotFound;
  device.functions.push_back(std::make_unique<Function>(Function{m, code}));
  *function = device.functions.back().get();
  return kSuccess;
}
int cuFuncSetAttribute(void*, int, int) {
  ENTER("cuFuncSetAttribute");
  return kSuccess;
}
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  ENTER("cuLaunchKernel");
  const auto* f = static_cast<Function*>(function);
  if (gx == 0 || gy == 0 || gz == 0 || parameters != nullptr || extra == nullptr) return kInvalidValue;
  const auto* first = static_cast<const uint64_t*>(extra[1]);
  const size_t count = *static_cast<const size_t*>(extra[3]) / 8;
  note("launch", static_cast<Stream*>(stream));
  return put(static_cast<Stream*>(stream), [=, params = std::vector<uint64_t>(first, first + count)] {
    return run_kernel(f->module->kernels, f->code, {gx, gy, gz}, {bx, by, bz}, shared, params.data(), params.size());
  });
}
int cuEventCreate(void** event, unsigned) {
  ENTER("cuEventCreate");
  auto* made = new Event;
  device.others.insert(made);
  *event = made;
  return kSuccess;
}
int cuEventDestroy_v2(void* event) {
  const std::lock_guard<std::recursive_mutex> guard(device.mutex);
  if (device.others.erase(event) == 0) return kInvalidValue;
  delete static_cast<Event*>(event);
  return kSuccess;
}
int cuEventRecord(void* event, void* stream) {
  ENTER("cuEventRecord");
  return put_event(static_cast<Event*>(event), static_cast<Stream*>(stream));
}
int cuEventRecordWithFlags(void* event, void* stream, unsigned) {
  ENTER("cuEventRecordWithFlags");
  return put_event(static_cast<Event*>(event), static_cast<Stream*>(stream));
}
int cuEventQuery(void* event) {
  ENTER("cuEventQuery");
  return static_cast<Event*>(event)->waiting == 0 ? kSuccess : kNotReady;
}
int cuEventSynchronize(void* event) {
  ENTER("cuEventSynchronize");
  if (const int early = forbid_capture(); early != kSuccess) return early;
  auto* e = static_cast<Event*>(event);
  if (e->stream != nullptr && e->waiting > 0) run_waiting(e->stream);
  return kSuccess;
}
int cuEventElapsedTime(float* milliseconds, void* begin, void* end) {
  ENTER("cuEventElapsedTime");
  *milliseconds = std::chrono::duration<float, std::milli>(static_cast<Event*>(end)->when - static_cast<Event*>(begin)->when).count();
  return kSuccess;
}

}  // extern "C"
