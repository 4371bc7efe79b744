// What the instructions of a payload read, write and multiply, and how fast a device could do that: for the tables of `pteron bench --profile`.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "pteron/tensor.h"
#include "runtime/value.h"

namespace pteron::cuda {

/// Of one instruction. Units: bytes; floating point operations, a multiply-add counts two.
struct Work {
  double bytes = 0;  ///< every operand and result once, whole: of a table only some rows may be read
  double flops = 0;  ///< of products, convolutions and attention; 0 for everything else, which memory bounds
  DType dtype = DType::kFloat32;  ///< of the multiplications
};

/// name: "pteron_cuda::product.out". args: as the instruction has them, with the sizes of the call.
Work work_of(std::string_view name, std::span<runtime::Value* const> args);

/// What a device reaches at most. Units: per second; 0: not known.
struct Peaks {
  double bytes = 0;
  double flops32 = 0;  ///< float32 without tensor cores
  double flops16 = 0;  ///< 16-bit floats on tensor cores, dense; 8-bit types reach twice as much
};
/// From what the driver says. sm: 90 for 9.0. clock_khz, memory_clock_khz, bus_bits: 0 where it does not say.
Peaks peaks_of(int sm, int multiprocessors, int clock_khz, int memory_clock_khz, int bus_bits);

/// The shortest time that the work can take; 0 if the device's peaks are not known. Units: milliseconds.
double least_ms(const Work& work, const Peaks& peaks);

}  // namespace pteron::cuda
