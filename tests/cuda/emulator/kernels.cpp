// Kernels: translated by the host's compiler into a shared object; threads of a block are fibers, which change places where they wait.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <regex>
#include <string>
#include <vector>

#include "emulator.h"

// pteron_switch(save, to): keeps the registers that a call must keep on the present stack, whose pointer goes to *save, and goes on where `to` was kept.
// pteron_call(function, args, count): calls it with `count` numbers as arguments; at least six can be read.
asm(R"(
.text
.globl pteron_switch
.hidden pteron_switch
pteron_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.globl pteron_call
.hidden pteron_call
pteron_call:
  pushq %rbp
  movq %rsp, %rbp
  pushq %rbx
  pushq %r12
  movq %rdi, %rax
  movq %rsi, %r10
  movq %rdx, %rcx
  subq $6, %rcx
  jle 2f
  leaq 15(,%rcx,8), %r11
  andq $-16, %r11
  subq %r11, %rsp
1:
  movq 40(%r10,%rcx,8), %rbx
  movq %rbx, -8(%rsp,%rcx,8)
  decq %rcx
  jnz 1b
2:
  movq 0(%r10), %rdi
  movq 8(%r10), %rsi
  movq 16(%r10), %rdx
  movq 24(%r10), %rcx
  movq 32(%r10), %r8
  movq 40(%r10), %r9
  call *%rax
  leaq -16(%rbp), %rsp
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
extern "C" void pteron_switch(void** save, void* to);
extern "C" void pteron_call(void* function, const uint64_t* args, size_t count);

namespace pteron::emulator {
namespace {

struct Index {
  unsigned x, y, z;
};
/// As in device_code.h.
struct ModuleState {
  const Index* thread;
  Index block_index, block_size, grid_size;
  char* shared;
  void (*block_wait)();
  void (*warp_wait)(unsigned);
  uint64_t* (*warp_slots)();
  unsigned (*active_mask)();
  void (*trap)();
};

constexpr size_t kStackBytes = 128 * 1024;
constexpr size_t kSharedBytes = 256 * 1024;

enum class Wait : uint8_t { kNew, kReady, kBlock, kWarp, kDone };

struct Thread {
  Index index{};
  Wait wait = Wait::kNew;
  unsigned mask = 0;  // kWarp
  int stack = -1;
  void* sp = nullptr;
};

/// The block that runs. One at a time in the process: the driver's lock is held.
struct Block {
  std::vector<Thread> threads;
  std::vector<uint64_t> slots;  // 32 a warp
  std::vector<std::byte*> stacks;
  std::vector<int> free_stacks;
  void* scheduler = nullptr;
  size_t current = 0;
  ModuleState* state = nullptr;
  void* kernel = nullptr;
  std::vector<uint64_t> params;
  bool failed = false;
} block;

void leave(Wait wait, unsigned mask = 0) {
  Thread& thread = block.threads[block.current];
  thread.wait = wait;
  thread.mask = mask;
  pteron_switch(&thread.sp, block.scheduler);
}

void block_wait() { leave(Wait::kBlock); }
void warp_wait(unsigned mask) { leave(Wait::kWarp, mask); }
uint64_t* warp_slots() { return &block.slots[block.current / 32 * 32]; }
unsigned active_mask() {
  unsigned mask = 0;
  const size_t first = block.current / 32 * 32;
  for (size_t lane = 0; lane < 32 && first + lane < block.threads.size(); ++lane) {
    if (block.threads[first + lane].wait != Wait::kDone) mask |= 1u << lane;
  }
  return mask;
}
void trap() {
  block.failed = true;
  leave(Wait::kDone);
}

void fiber_main() {
  pteron_call(block.kernel, block.params.data(), block.params.size());
  leave(Wait::kDone);
  std::abort();
}

int take_stack() {
  if (block.free_stacks.empty()) {
    void* memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    block.stacks.push_back(static_cast<std::byte*>(memory));
    return static_cast<int>(block.stacks.size()) - 1;
  }
  const int stack = block.free_stacks.back();
  block.free_stacks.pop_back();
  return stack;
}

void resume(size_t index) {
  Thread& thread = block.threads[index];
  if (thread.wait == Wait::kNew) {
    thread.stack = take_stack();
    // What pteron_switch takes off: six registers and where to go on; the stack as after a call.
    auto* top = reinterpret_cast<void**>(block.stacks[static_cast<size_t>(thread.stack)] + kStackBytes - 64);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&fiber_main);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    thread.sp = top;
  }
  thread.wait = Wait::kReady;
  block.current = index;
  block.state->thread = &thread.index;
  pteron_switch(&block.scheduler, thread.sp);
  if (thread.wait == Wait::kDone && thread.stack >= 0) {
    block.free_stacks.push_back(thread.stack);
    thread.stack = -1;
  }
}

/// Lets lanes go on whose partners are all there. Gives whether any may.
bool release_warps() {
  bool any = false;
  for (size_t first = 0; first < block.threads.size(); first += 32) {
    const size_t lanes = std::min<size_t>(32, block.threads.size() - first);
    unsigned released = 0;
    for (size_t lane = 0; lane < lanes; ++lane) {
      const Thread& thread = block.threads[first + lane];
      if (thread.wait != Wait::kWarp) continue;
      bool complete = true;
      for (size_t other = 0; other < lanes && complete; ++other) {
        if ((thread.mask >> other & 1) == 0) continue;
        const Thread& partner = block.threads[first + other];
        complete = partner.wait == Wait::kDone || (partner.wait == Wait::kWarp && partner.mask == thread.mask);
      }
      if (complete) released |= 1u << lane;
    }
    for (size_t lane = 0; lane < lanes; ++lane) {
      if ((released >> lane & 1) != 0) block.threads[first + lane].wait = Wait::kReady;
    }
    any = any || released != 0;
  }
  return any;
}

bool release_block() {
  bool any = false;
  for (const Thread& thread : block.threads) {
    if (thread.wait != Wait::kDone && thread.wait != Wait::kBlock) return false;
    any = any || thread.wait == Wait::kBlock;
  }
  for (Thread& thread : block.threads) {
    if (thread.wait == Wait::kBlock) thread.wait = Wait::kReady;
  }
  return any;
}

/// False if a thread trapped, or if threads wait for others that never come.
bool run_block(const unsigned (&size)[3]) {
  size_t i = 0;
  for (unsigned z = 0; z < size[2]; ++z) {
    for (unsigned y = 0; y < size[1]; ++y) {
      for (unsigned x = 0; x < size[0]; ++x) block.threads[i++] = {{x, y, z}};
    }
  }
  for (i = 0; i < block.threads.size() && !block.failed; ++i) resume(i);
  while (!block.failed) {
    if (!release_warps() && !release_block()) break;
    for (i = 0; i < block.threads.size() && !block.failed; ++i) {
      if (block.threads[i].wait == Wait::kReady) resume(i);
    }
  }
  const bool done = std::ranges::all_of(block.threads, [](const Thread& thread) { return thread.wait == Wait::kDone; });
  if (!done && !block.failed) std::fprintf(stderr, "emulator: threads of a block wait for others that have ended or wait elsewhere\n");
  for (Thread& thread : block.threads) {
    if (thread.stack >= 0) block.free_stacks.push_back(thread.stack);
    thread.stack = -1;
  }
  return done && !block.failed;
}

std::string folder() {
  const char* chosen = std::getenv("PTERON_EMULATOR_CACHE");
  const std::string path = chosen != nullptr ? chosen : "";
  if (!path.empty()) mkdir(path.c_str(), 0755);
  return path;
}

bool translate(const std::string& text, const std::string& library) {
  const std::string source = library + ".cpp";
  std::ofstream(source) << "#include \"" PTERON_EMULATOR_DEVICE_CODE "\"\n" << text;
  const std::string command = std::string(PTERON_EMULATOR_COMPILER) + " -std=c++20 -O1 -shared -fPIC -w -ffp-contract=off -fno-strict-aliasing -fvisibility=hidden -x c++ " + source + " -o " + library + ".new && mv " + library + ".new " + library;
  const int result = std::system(command.c_str());
  if (std::getenv("PTERON_EMULATOR_KEEP") == nullptr) unlink(source.c_str());
  return result == 0;
}

}  // namespace

struct Kernels {
  void* library = nullptr;
  ModuleState* state = nullptr;
};

Kernels* open_kernels(const char* source) {
  // Dynamic shared memory is an array that no one defines.
  static const std::regex kDynamic(R"(extern\s+__shared__\s+(__align__\(\w+\)\s+|alignas\(\w+\)\s+)?([\w:<> ]+?)\s+(\w+)\s*\[\s*\]\s*;)");
  std::string text = std::regex_replace(std::string(source), kDynamic, "$2* const $3 = reinterpret_cast<$2*>(pteron_state_of_module.shared);");
  // Kernels are found by name: the others stay hidden, so that modules cannot take each other's.
  static const std::regex kKernel(R"(extern\s+"C"\s+__global__)");
  text = std::regex_replace(text, kKernel, "extern \"C\" __attribute__((visibility(\"default\")))");
  static const std::regex kMacro(R"(#define\s+PTERON_KERNEL\b.*)");
  text = std::regex_replace(text, kMacro, "#define PTERON_KERNEL extern \"C\" __attribute__((visibility(\"default\"))) void");
  static std::map<std::string, Kernels*> known;  // for the life of the process
  if (const auto found = known.find(text); found != known.end()) return found->second;
  const std::string cache = folder();
  std::string library;
  bool ready = false;
  if (!cache.empty()) {
    char name[64];
    std::snprintf(name, sizeof name, "/%016zx_%zu.so", std::hash<std::string>()(text), text.size());
    library = cache + name;
    ready = access(library.c_str(), R_OK) == 0;
  } else {
    static int count = 0;
    const char* temporary = std::getenv("TMPDIR");
    library = std::string(temporary != nullptr ? temporary : "/tmp") + "/pteron_emulator_" + std::to_string(getpid()) + "_" + std::to_string(++count) + ".so";
  }
  if (!ready && !translate(text, library)) return nullptr;
  void* handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) std::fprintf(stderr, "emulator: %s\n", dlerror());
  if (cache.empty()) unlink(library.c_str());
  if (handle == nullptr) return nullptr;
  auto* made = new Kernels;
  made->library = handle;
  made->state = static_cast<ModuleState*>(dlsym(handle, "pteron_state_of_module"));
  known[text] = made;
  return made;
}

void* find_kernel(Kernels* kernels, const char* name) { return dlsym(kernels->library, name); }

bool run_kernel(Kernels* kernels, void* kernel, const unsigned (&grid)[3], const unsigned (&size)[3], size_t shared_bytes, const uint64_t* params, size_t count) {
  static std::vector<char> shared(kSharedBytes + 64);
  const size_t threads = size_t{size[0]} * size[1] * size[2];
  if (threads == 0 || threads > 1024 || shared_bytes > kSharedBytes) return false;
  block.threads.assign(threads, {});
  block.slots.assign((threads + 31) / 32 * 32, 0);
  block.kernel = kernel;
  block.params.assign(params, params + count);
  block.params.resize(std::max<size_t>(count, 6), 0);
  block.failed = false;
  block.state = kernels->state;
  char* const aligned = shared.data() + (64 - reinterpret_cast<uintptr_t>(shared.data()) % 64) % 64;
  *kernels->state = {nullptr, {}, {size[0], size[1], size[2]}, {grid[0], grid[1], grid[2]}, aligned, block_wait, warp_wait, warp_slots, active_mask, trap};
  for (unsigned z = 0; z < grid[2]; ++z) {
    for (unsigned y = 0; y < grid[1]; ++y) {
      for (unsigned x = 0; x < grid[0]; ++x) {
        std::memset(aligned, 0xff, shared_bytes);
        kernels->state->block_index = {x, y, z};
        if (!run_block(size)) return false;
      }
    }
  }
  return true;
}

}  // namespace pteron::emulator
