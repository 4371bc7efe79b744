/* An operator of one's own: mine::scaled_add(x, y, scale) = x + scale * y for float32 tensors of one shape. Pure C99, links nothing.
   Build: cc -std=c99 -O2 -fPIC -shared -I../../include own_op.c -o libown_op.so */
#include <pteron/ops.h>
#include <stdio.h>

static int same_shape(const pteron_tensor* a, const pteron_tensor* b) {
  if (a->rank != b->rank) return 0;
  for (int d = 0; d < a->rank; ++d) {
    if (a->sizes[d] != b->sizes[d]) return 0;
  }
  return 1;
}

static int shape(const pteron_value* args, size_t arg_count, pteron_tensor* results, size_t result_count, pteron_message message) {
  const pteron_tensor* x = args[0].tensors;
  const pteron_tensor* y = args[1].tensors;
  (void)arg_count;
  (void)result_count;
  if (x->dtype != PTERON_FLOAT32 || y->dtype != PTERON_FLOAT32) {
    snprintf(message.text, message.size, "expected float32 tensors");
    return 1;
  }
  if (!same_shape(x, y)) {
    snprintf(message.text, message.size, "x and y have different shapes");
    return 1;
  }
  results[0] = *x;
  return 0;
}

/* Walks all dims of the three tensors at once; strides may be anything. */
static void add(const pteron_tensor* x, const pteron_tensor* y, const pteron_tensor* out, float scale, int dim, int64_t at_x, int64_t at_y, int64_t at_out) {
  if (dim == x->rank) {
    ((float*)out->data)[at_out] = ((const float*)x->data)[at_x] + scale * ((const float*)y->data)[at_y];
    return;
  }
  for (int64_t i = 0; i < x->sizes[dim]; ++i) {
    add(x, y, out, scale, dim + 1, at_x + i * x->strides[dim], at_y + i * y->strides[dim], at_out + i * out->strides[dim]);
  }
}

static int kernel(const pteron_value* args, size_t arg_count, const pteron_tensor* results, size_t result_count, pteron_message message) {
  (void)arg_count;
  (void)result_count;
  (void)message;
  const double scale = args[2].kind == PTERON_DOUBLE ? args[2].number : (double)args[2].integer;
  add(args[0].tensors, args[1].tensors, &results[0], (float)scale, 0, 0, 0, 0);
  return 0;
}

static const pteron_op ops[] = {{"mine::scaled_add(Tensor x, Tensor y, float scale=1.0) -> Tensor", shape, kernel}};
static const pteron_op_library library = {PTERON_OPS_ABI, "own_op", sizeof ops / sizeof ops[0], ops};

const pteron_op_library* pteron_ops(void) { return &library; }
