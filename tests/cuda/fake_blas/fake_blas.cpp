// A library with the functions of cuBLASLt that the engine calls (src/backends/cuda/runtime/blas.cpp), for tests of how it chooses among what is offered:
// eight algorithms for everything, and products that compute nothing.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace {

/// cublasLtMatmulHeuristicResult_t.
struct Heuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};

int made = 0;  // handles are never looked into

int make(void** handle) {
  *handle = &made;
  return 0;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() { return 130100; }
int cublasLtCreate(void** handle) { return make(handle); }
int cublasLtDestroy(void*) { return 0; }
int cublasLtMatmul(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*, void*, void*, const void*, void*, size_t, void*) { return 0; }
int cublasLtMatrixLayoutCreate(void** layout, int, uint64_t, uint64_t, int64_t) { return make(layout); }
int cublasLtMatrixLayoutDestroy(void*) { return 0; }
int cublasLtMatrixLayoutSetAttribute(void*, int, const void*, size_t) { return 0; }
int cublasLtMatmulDescCreate(void** descriptor, int, int) { return make(descriptor); }
int cublasLtMatmulDescDestroy(void*) { return 0; }
int cublasLtMatmulDescSetAttribute(void*, int, const void*, size_t) { return 0; }
int cublasLtMatmulPreferenceCreate(void** preference) { return make(preference); }
int cublasLtMatmulPreferenceDestroy(void*) { return 0; }
int cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int most, Heuristic* found, int* count) {
  *count = most < 8 ? most : 8;
  for (int i = 0; i < *count; ++i) {
    std::memset(&found[i], 0, sizeof found[i]);
    found[i].algorithm[0] = static_cast<uint64_t>(i) + 1;
  }
  return 0;
}

}  // extern "C"
