// Choice between the versions of a function that <hwy/foreach_target.h> compiled: the baseline and AVX-512. For files of kernels.
// Highway's own choice needs its shared library, whose start-up measures a clock for milliseconds in every process. The compile flags that belong
// to this are pteron_use_highway() in cmake/PteronBuild.cmake. To be included last, inside #if HWY_ONCE.
#pragma once

#include <hwy/highway.h>

#include "base/processor.h"

#if HWY_ARCH_X86 && HWY_STATIC_TARGET > HWY_AVX2
#error "the baseline is AVX2: the target lacks pteron_use_highway()"
#endif

/// Calls f(), a function of the namespace around HWY_NAMESPACE.
#if HWY_ARCH_X86 && (HWY_TARGETS & HWY_AVX3) != 0 && HWY_STATIC_TARGET != HWY_AVX3
#define PTERON_HWY_CALL(f) (pteron::use_avx512() ? N_AVX3::f() : HWY_STATIC_DISPATCH(f)())
#else
#define PTERON_HWY_CALL(f) HWY_STATIC_DISPATCH(f)()
#endif
