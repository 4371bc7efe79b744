// Writes the loops with Xbyak, for AVX2 or AVX-512. A value is in a register from its instruction to its last use; calls of elementary functions clobber
// all registers (System V), so what is needed afterwards is saved on the stack before. Inputs are read again instead.
#include "backends/cpu/runtime/pointwise_code.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "backends/cpu/pointwise_program.h"
#include "backends/cpu/runtime/pointwise_state.h"

#if defined(PTERON_XBYAK) && defined(__x86_64__)
#include <sys/mman.h>
#define XBYAK_NO_EXCEPTION
#include <xbyak/xbyak.h>
#endif

namespace pteron::cpu {

PointwiseCode& PointwiseCode::operator=(PointwiseCode&& other) noexcept {
  std::swap(pages_, other.pages_);
  std::swap(bytes_, other.bytes_);
  std::swap(vector_bytes_, other.vector_bytes_);
  std::swap(store_, other.store_);
  std::swap(stream_, other.stream_);
  return *this;
}

#if defined(PTERON_XBYAK) && defined(__x86_64__)
namespace {

constexpr size_t kPage = 4096;
/// Of a loop: 64 instructions, each with up to three loads, a call and a few values saved, are less than half of it.
constexpr size_t kMaxCodeBytes = 64 << 10;
/// Numbers of a program, each repeated over a vector, in front of the code.
constexpr size_t kMaxNumbers = 3 * kMaxPointwiseCode + 6;  // and those of the loops' own
constexpr size_t kMaxVectorBytes = 64;

/// The numbers that a program's instructions read, in the first bytes of its pages.
class Numbers {
 public:
  explicit Numbers(void* room) : room_(static_cast<uint32_t*>(room)) {}
  const void* at(uint32_t bits) {
    constexpr size_t kWords = kMaxVectorBytes / sizeof(uint32_t);
    size_t i = 0;
    while (i < count_ && room_[i * kWords] != bits) ++i;
    if (i == count_) std::fill_n(room_ + count_++ * kWords, kWords, bits);
    return room_ + i * kWords;
  }

 private:
  uint32_t* room_;
  size_t count_ = 0;
};

/// Writes one loop. Values are numbered as in the program's text: inputs, then one per instruction.
class Loop : public Xbyak::CodeGenerator {
 public:
  Loop(const PointwiseState& program, Numbers& numbers, void* room)
      : CodeGenerator(kMaxCodeBytes, room), program_(program), numbers_(numbers), wide_(pointwise_set().lanes == 16) {
    places_.resize(static_cast<size_t>(program.inputs) + program.code.size());
    find_uses();
  }

  void write(bool streams) {
    const Xbyak::Reg64 kept[] = {inputs_, out_, at_, end_, frame_};
    for (const Xbyak::Reg64& r : kept) push(r);
    mov(frame_, rsp);
    sub(rsp, static_cast<uint32_t>(program_.code.size() * kMaxVectorBytes));
    and_(rsp, -static_cast<int>(kMaxVectorBytes));
    mov(inputs_, rdi);
    mov(out_, rsi);
    mov(end_, rdx);
    xor_(at_, at_);
    Xbyak::Label next;
    L(next);
    for (int i = 0; i < count(); ++i) instruction(i);
    const Xbyak::Xmm result = vector(places_.back().reg);
    streams ? vmovntps(ptr[out_ + at_], result) : vmovups(ptr[out_ + at_], result);
    forget_registers();
    add(at_, vector_bytes());
    cmp(at_, end_);
    jb(next, T_NEAR);
    mov(rsp, frame_);
    for (size_t i = std::size(kept); i-- > 0;) pop(kept[i]);
    vzeroupper();
    ret();
  }

  int vector_bytes() const { return wide_ ? 64 : 32; }

 private:
  struct Place {
    int reg = -1;        ///< the register that has the value
    bool saved = false;  ///< it is in its slot of the stack, or an input's
    int last = -1;       ///< the instruction that reads it last
  };
  /// The first registers hold what a call gets and returns, and numbers on their way.
  static constexpr int kFirst = 3;
  int registers() const { return wide_ ? 32 : 16; }
  int count() const { return static_cast<int>(program_.code.size()); }
  const Instruction& code(int i) const { return program_.code[static_cast<size_t>(i)]; }
  Place& place(int value) { return places_[static_cast<size_t>(value)]; }
  Xbyak::Xmm vector(int index) const { return wide_ ? Xbyak::Xmm(Xbyak::Zmm(index)) : Xbyak::Xmm(Xbyak::Ymm(index)); }

  /// Registers of the program hold several values in turn: values_ says which one each operand is.
  void find_uses() {
    int holds[kMaxRegisters] = {};
    for (int i = 0; i < count(); ++i) {
      const Instruction& in = code(i);
      for (int k = 0; k < in.count; ++k) {
        const Operand& o = in.operands[k];
        int& value = values_[i][k] = -1;
        if (o.kind == Operand::Kind::kValue) continue;
        value = o.kind == Operand::Kind::kInput ? o.index : holds[o.index];
        place(value).last = i;
      }
      holds[in.target] = program_.inputs + i;
    }
    places_.back().last = count();
    for (int i = 0; i < program_.inputs; ++i) place(i).saved = true;
  }

  /// Where a value that is saved can be read.
  Xbyak::Address memory(int value) {
    if (value >= program_.inputs) return ptr[rsp + (value - program_.inputs) * static_cast<int>(kMaxVectorBytes)];
    mov(rax, ptr[inputs_ + value * 8]);
    return ptr[rax + at_];
  }
  Xbyak::Address number(uint32_t bits) { return ptr[rip + numbers_.at(bits)]; }
  Xbyak::Address number(const Operand& o) { return number(std::bit_cast<uint32_t>(o.value)); }

  void save(int value) {
    Place& p = place(value);
    if (!p.saved) vmovups(memory(value), vector(p.reg));
    p.saved = true;
  }
  /// A register that nothing is in, and that this instruction keeps.
  int take() {
    int found = -1;
    for (int r = kFirst; r < registers(); ++r) {
      if (pinned_[r]) continue;
      if (owner_[r] < 0) {
        found = r;
        break;
      }
      if (found < 0 || place(owner_[r]).last > place(owner_[found]).last) found = r;
    }
    if (owner_[found] >= 0) {
      save(owner_[found]);
      place(owner_[found]).reg = -1;
      owner_[found] = -1;
    }
    pinned_[found] = true;
    return found;
  }
  void bind(int value, int reg) {
    place(value).reg = reg;
    owner_[reg] = value;
  }
  void free_register(int value) {
    Place& p = place(value);
    if (p.reg >= 0) owner_[p.reg] = -1;
    p.reg = -1;
  }
  void forget_registers() {
    for (int v = 0; v < static_cast<int>(places_.size()); ++v) free_register(v);
    for (int v = program_.inputs; v < static_cast<int>(places_.size()); ++v) place(v).saved = false;
  }

  /// Operand k of instruction i in a register; a number in `scratch`.
  Xbyak::Xmm in_register(int i, int k, int scratch) {
    const int value = values_[i][k];
    if (value < 0) {
      vmovups(vector(scratch), number(code(i).operands[k]));
      return vector(scratch);
    }
    if (place(value).reg < 0) {
      const int reg = take();
      vmovups(vector(reg), memory(value));
      bind(value, reg);
    }
    pinned_[place(value).reg] = true;
    return vector(place(value).reg);
  }
  /// fn(operand k of instruction i), in a register or in memory.
  template <class Fn>
  void with(int i, int k, Fn fn) {
    const int value = values_[i][k];
    if (value < 0) return fn(static_cast<const Xbyak::Operand&>(number(code(i).operands[k])));
    const Place& p = place(value);
    if (p.reg < 0 && p.last == i) return fn(static_cast<const Xbyak::Operand&>(memory(value)));
    fn(static_cast<const Xbyak::Operand&>(in_register(i, k, 0)));
  }
  /// Registers of values that instruction i reads last are free again.
  void release(int i) {
    for (int k = 0; k < code(i).count; ++k) {
      const int value = values_[i][k];
      if (value >= 0 && place(value).last <= i) free_register(value);
    }
    for (bool& p : pinned_) p = false;
  }
  /// The register of instruction i's value, once its operands have been found.
  Xbyak::Xmm define(int i) {
    const int reg = take();
    bind(program_.inputs + i, reg);
    return vector(reg);
  }

  using Binary = void (Xbyak::CodeGenerator::*)(const Xbyak::Xmm&, const Xbyak::Operand&, const Xbyak::Operand&);
  /// first (in a register or a number's scratch), then operand k.
  void binary(int i, Binary op, const Xbyak::Xmm& first, int k) {
    with(i, k, [&](const Xbyak::Operand& second) {
      release(i);
      (this->*op)(define(i), first, second);
    });
  }

  void instruction(int i) {
    using enum PointwiseOp;
    const Xbyak::Xmm scratch = vector(0);
    switch (code(i).op) {
      case k_add:
        return binary(i, &CodeGenerator::vaddps, in_register(i, 0, 0), 1);
      case k_sub:
        return binary(i, &CodeGenerator::vsubps, in_register(i, 0, 0), 1);
      case k_mul:
        return binary(i, &CodeGenerator::vmulps, in_register(i, 0, 0), 1);
      case k_div:
        return binary(i, &CodeGenerator::vdivps, in_register(i, 0, 0), 1);
      case k_reciprocal:
        vmovups(scratch, number(std::bit_cast<uint32_t>(1.0f)));
        return binary(i, &CodeGenerator::vdivps, scratch, 0);
      case k_neg:
        vmovups(scratch, number(0x80000000u));
        return binary(i, &CodeGenerator::vxorps, scratch, 0);
      case k_abs:
        vmovups(scratch, number(0x7fffffffu));
        return binary(i, &CodeGenerator::vandps, scratch, 0);
      // The second operand if one is NaN, or both are zeros.
      case k_relu:
        vxorps(scratch, scratch, scratch);
        return binary(i, &CodeGenerator::vmaxps, scratch, 0);
      case k_clamp:
      case k_eq:
      case k_hardsigmoid:
      case k_hardswish:
      case k_le:
      case k_lt:
      case k_max:
      case k_min:
      case k_ne:
      case k_where:
        return several(i);
      default:
        return call(i);
    }
  }

  /// What takes several steps, as in pointwise_ops.cpp: all operands are in registers first.
  void several(int i) {
    using enum PointwiseOp;
    Xbyak::Xmm x[3];
    for (int k = 0; k < code(i).count; ++k) x[k] = in_register(i, k, k);
    const Xbyak::Xmm made = vector(take());
    constexpr uint8_t kEqual = 0, kUnordered = 3, kOtherOrUnordered = 4, kOther = 12, kLess = 17, kLessOrEqual = 18;
    switch (code(i).op) {
      case k_clamp:
        vmaxps(made, x[1], x[0]);
        vminps(made, x[2], made);
        break;
      case k_eq:
        truth(made, x[0], x[1], kEqual);
        break;
      case k_le:
        truth(made, x[0], x[1], kLessOrEqual);
        break;
      case k_lt:
        truth(made, x[0], x[1], kLess);
        break;
      case k_ne:
        truth(made, x[0], x[1], kOtherOrUnordered);
        break;
      case k_max:
        vmaxps(made, x[0], x[1]);
        choose(made, x[0], x[0], kUnordered, x[0], made);
        break;
      case k_min:
        vminps(made, x[0], x[1]);
        choose(made, x[0], x[0], kUnordered, x[0], made);
        break;
      case k_where:
        vxorps(made, made, made);
        choose(made, x[0], made, kOther, x[1], x[2]);
        break;
      default:
        hard_sigmoid(made, x[0], code(i).op == k_hardswish);
        break;
    }
    release(i);
    bind(program_.inputs + i, made.getIdx());
  }
  void hard_sigmoid(const Xbyak::Xmm& made, const Xbyak::Xmm& x, bool times_x) {
    const Xbyak::Xmm bound = vector(1);
    vaddps(made, x, number(std::bit_cast<uint32_t>(3.0f)));
    vxorps(bound, bound, bound);
    vmaxps(made, bound, made);
    vmovups(bound, number(std::bit_cast<uint32_t>(6.0f)));
    vminps(made, bound, made);
    vmulps(made, made, number(std::bit_cast<uint32_t>(1.0f / 6.0f)));
    if (times_x) vmulps(made, x, made);
  }
  /// made = a and b compare so ? 1 : 0
  void truth(const Xbyak::Xmm& made, const Xbyak::Xmm& a, const Xbyak::Xmm& b, uint8_t how) {
    const Xbyak::Address one = number(std::bit_cast<uint32_t>(1.0f));
    if (wide_) {
      vcmpps(k1, a, b, how);
      vmovups(made | k1 | Xbyak::util::T_z, one);
    } else {
      vcmpps(made, a, b, how);
      vandps(made, made, one);
    }
  }
  /// made = a and b compare so ? yes : no; `made` may be b or no.
  void choose(const Xbyak::Xmm& made, const Xbyak::Xmm& a, const Xbyak::Xmm& b, uint8_t how, const Xbyak::Xmm& yes, const Xbyak::Xmm& no) {
    if (wide_) {
      vcmpps(k1, a, b, how);
      vblendmps(made | k1, no, yes);
    } else {
      const Xbyak::Xmm mask = vector(take());
      vcmpps(mask, a, b, how);
      vblendvps(made, no, yes, mask);
    }
  }

  void call(int i) {
    const Instruction& in = code(i);
    for (int r = kFirst; r < registers(); ++r) {
      if (owner_[r] >= 0 && place(owner_[r]).last > i) save(owner_[r]);
    }
    for (int k = 0; k < in.count; ++k) {
      const int value = values_[i][k];
      if (value >= 0 && place(value).reg >= 0) {
        vmovaps(vector(k), vector(place(value).reg));
      } else {
        vmovups(vector(k), value < 0 ? number(in.operands[k]) : memory(value));
      }
    }
    for (int r = kFirst; r < registers(); ++r) {
      if (owner_[r] >= 0) free_register(owner_[r]);
    }
    mov(rax, reinterpret_cast<uint64_t>(pointwise_set().vector[static_cast<size_t>(in.op)]));
    call_rax();
    release(i);
    vmovaps(define(i), vector(0));
    pinned_[place(program_.inputs + i).reg] = false;
  }
  void call_rax() { CodeGenerator::call(rax); }

  const PointwiseState& program_;
  Numbers& numbers_;
  bool wide_;
  // Kept by calls.
  const Xbyak::Reg64 inputs_ = rbx, out_ = rbp, at_ = r12, end_ = r13, frame_ = r14;
  std::vector<Place> places_;
  int values_[kMaxPointwiseCode][3] = {};
  int owner_[32] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};
  bool pinned_[32] = {};
};

}  // namespace

PointwiseCode::PointwiseCode(const PointwiseState& program) {
  constexpr size_t kNumberBytes = (kMaxNumbers * kMaxVectorBytes + kPage - 1) / kPage * kPage, kBytes = kNumberBytes + 2 * kMaxCodeBytes;
  void* pages = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return;
  pages_ = pages;
  bytes_ = kBytes;
  Numbers numbers(pages);
  auto* room = static_cast<uint8_t*>(pages) + kNumberBytes;
  Fn made[2] = {};
  for (const bool streams : {false, true}) {
    Loop loop(program, numbers, room);
    loop.write(streams);
    made[streams ? 1 : 0] = std::bit_cast<Fn>(room);
    vector_bytes_ = static_cast<size_t>(loop.vector_bytes());
    room += (loop.getSize() + kMaxVectorBytes - 1) / kMaxVectorBytes * kMaxVectorBytes;
    if (Xbyak::GetError() != Xbyak::ERR_NONE) {
      Xbyak::ClearError();
      return;
    }
  }
  // The pages behind the code go back to the system.
  const size_t used = (static_cast<size_t>(room - static_cast<uint8_t*>(pages)) + kPage - 1) / kPage * kPage;
  if (used < kBytes && munmap(static_cast<uint8_t*>(pages) + used, kBytes - used) == 0) bytes_ = used;
  if (mprotect(pages, bytes_, PROT_READ | PROT_EXEC) != 0) return;
  store_ = made[0];
  stream_ = made[1];
}

PointwiseCode::~PointwiseCode() {
  if (pages_ != nullptr) munmap(pages_, bytes_);
}

#else

PointwiseCode::PointwiseCode(const PointwiseState&) {}
PointwiseCode::~PointwiseCode() = default;

#endif

}  // namespace pteron::cpu
