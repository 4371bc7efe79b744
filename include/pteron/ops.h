// Users' own operators, in C99: a shared library exports pteron_ops(), which describes operators that Pteron's compiler and runtime then treat
// like their own: `pteron compile --kernels libmine.so`, `pteron run --kernels libmine.so`, LoadOptions::kernel_libraries in C++.
// See examples/own_op. All functions may be called from several threads at once.
#ifndef PTERON_OPS_H
#define PTERON_OPS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. A library of another version is refused. */
#define PTERON_OPS_ABI 1u
#define PTERON_MAX_RANK 16

/* Numbers are c10's ScalarType. */
typedef enum pteron_dtype {
  PTERON_UINT8 = 0,
  PTERON_INT8 = 1,
  PTERON_INT16 = 2,
  PTERON_INT32 = 3,
  PTERON_INT64 = 4,
  PTERON_FLOAT16 = 5,
  PTERON_FLOAT32 = 6,
  PTERON_FLOAT64 = 7,
  PTERON_BOOL = 11,
  PTERON_BFLOAT16 = 15
} pteron_dtype;

/* A tensor: `data` points to its first element; strides are in elements and may be anything, 0 too. A result's strides must be honoured. */
typedef struct pteron_tensor {
  int32_t dtype; /* pteron_dtype */
  int32_t rank;
  int64_t sizes[PTERON_MAX_RANK];
  int64_t strides[PTERON_MAX_RANK];
  void* data; /* null while shapes are computed */
} pteron_tensor;

typedef enum pteron_kind {
  PTERON_NONE = 0,
  PTERON_TENSOR = 1,
  PTERON_INT = 2,    /* int, SymInt, ScalarType; a Scalar that is an int */
  PTERON_DOUBLE = 3, /* float; a Scalar that is a float */
  PTERON_BOOLEAN = 4,
  PTERON_STRING = 5,
  PTERON_INT_LIST = 6,
  PTERON_DOUBLE_LIST = 7,
  PTERON_TENSOR_LIST = 8
} pteron_kind;

/* One argument, in the order of the schema. */
typedef struct pteron_value {
  int32_t kind; /* pteron_kind */
  int64_t integer;         /* PTERON_INT, PTERON_BOOLEAN (0 or 1) */
  double number;           /* PTERON_DOUBLE */
  size_t count;            /* lists: items; PTERON_STRING: bytes */
  const char* string;      /* PTERON_STRING, not terminated */
  const int64_t* integers; /* PTERON_INT_LIST */
  const double* numbers;   /* PTERON_DOUBLE_LIST */
  const pteron_tensor* tensors; /* PTERON_TENSOR: one; PTERON_TENSOR_LIST: count; a rank of -1 stands for None */
} pteron_value;

/* Where a function says what is wrong: up to `size` bytes with the terminating zero. */
typedef struct pteron_message {
  char* text;
  size_t size;
} pteron_message;

/* One operator. Both functions return 0, or another number after they have written a message. */
typedef struct pteron_op {
  /* ATen's form: "mine::scaled_add(Tensor x, Tensor y, float scale=1.0) -> Tensor". Results are tensors; no argument is written. */
  const char* schema;
  /* Dtype, rank and sizes of the results from the arguments. */
  int (*shape)(const pteron_value* args, size_t arg_count, pteron_tensor* results, size_t result_count, pteron_message message);
  /* Computes the results, which have the shapes that shape() gave and memory of their own. */
  int (*kernel)(const pteron_value* args, size_t arg_count, const pteron_tensor* results, size_t result_count, pteron_message message);
} pteron_op;

typedef struct pteron_op_library {
  uint32_t abi; /* PTERON_OPS_ABI */
  const char* name;
  size_t op_count;
  const pteron_op* ops;
} pteron_op_library;

/* The one symbol that a library exports. What it returns must stay valid until the library is closed. */
const pteron_op_library* pteron_ops(void);

#ifdef __cplusplus
}
#endif

#endif
