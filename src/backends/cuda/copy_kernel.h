// The one kernel that every module has: copies between tensors that lie differently. Compile halves put its text into each program, the runtime half
// calls it for what emit writes beside the operators (aten::clone.out, aten::copy_).
#pragma once

#include <string_view>

namespace pteron::cuda {

inline constexpr std::string_view kCopyKernelName = "pteron_copy";
/// Most dims, once those that lie alike in both tensors are one.
inline constexpr int kCopyKernelRank = 8;
/// Parameters: from, to, bytes of an element, elements, then for each of eight dims, innermost first: size, stride in `to`, stride in `from`.
/// Units: strides in elements. Any grid of blocks with one dim.
inline constexpr std::string_view kCopyKernelText = R"(
template <typename T>
__device__ static void pteron_copy_elements(const T* from, T* to, long long count, const long long (&dims)[8][3]) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
    long long rest = i, at_to = 0, at_from = 0;
    for (int d = 0; d < 8 && rest != 0; ++d) {
      const long long index = rest % dims[d][0];
      rest /= dims[d][0];
      at_to += index * dims[d][1];
      at_from += index * dims[d][2];
    }
    to[at_to] = from[at_from];
  }
}
struct alignas(16) pteron_copy_16 { unsigned long long a, b; };
extern "C" __global__ void pteron_copy(const void* from, void* to, long long element, long long count,
    long long n0, long long t0, long long f0, long long n1, long long t1, long long f1, long long n2, long long t2, long long f2, long long n3, long long t3, long long f3,
    long long n4, long long t4, long long f4, long long n5, long long t5, long long f5, long long n6, long long t6, long long f6, long long n7, long long t7, long long f7) {
  PTERON_BEGIN();
  const long long dims[8][3] = {{n0, t0, f0}, {n1, t1, f1}, {n2, t2, f2}, {n3, t3, f3}, {n4, t4, f4}, {n5, t5, f5}, {n6, t6, f6}, {n7, t7, f7}};
  if (element == 1) pteron_copy_elements((const unsigned char*)from, (unsigned char*)to, count, dims);
  if (element == 2) pteron_copy_elements((const unsigned short*)from, (unsigned short*)to, count, dims);
  if (element == 4) pteron_copy_elements((const unsigned int*)from, (unsigned int*)to, count, dims);
  if (element == 8) pteron_copy_elements((const unsigned long long*)from, (unsigned long long*)to, count, dims);
  if (element == 16) pteron_copy_elements((const pteron_copy_16*)from, (pteron_copy_16*)to, count, dims);
}
)";

}  // namespace pteron::cuda
