/* Operand layouts, and the product itself, from the layout's definitions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emulator.h"

static void attr(rknn_matmul_tensor_attr* a, const char* name, int type, int bytes, int n, const int* dims) {
  memset(a, 0, sizeof *a);
  snprintf(a->name, sizeof a->name, "%s", name);
  a->n_dims = (uint32_t)n;
  a->type = type;
  a->size = (uint32_t)bytes;
  for (int i = 0; i < n; ++i) {
    a->dims[i] = (uint32_t)dims[i];
    a->size *= (uint32_t)dims[i];
  }
}

void describe(const rknn_matmul_info* info, const rknn_matmul_shape* s, rknn_matmul_io_attr* io) {
  const int half = info->type == F16_F32, type = half ? FLOAT16 : INT8, bytes = half ? 2 : 1;
  const int piece = 16 / bytes, width = half ? 16 : 32, sum = half ? FLOAT32 : INT32;
  if (info->AC_layout == NATIVE) {
    attr(&io->A, "A", type, bytes, 3, (int[]){s->K / piece, s->M, piece});
    attr(&io->C, "C", sum, 4, 3, (int[]){s->N / 4, s->M, 4});
  } else {
    attr(&io->A, "A", type, bytes, 2, (int[]){s->M, s->K});
    attr(&io->C, "C", sum, 4, 2, (int[]){s->M, s->N});
  }
  if (info->B_layout == NATIVE)
    attr(&io->B, "B", type, bytes, 4, (int[]){s->N / width, s->K / 32, width, 32});
  else if (info->B_layout == NORM)
    attr(&io->B, "B", type, bytes, 2, (int[]){s->K, s->N});
  else
    attr(&io->B, "B", type, bytes, 2, (int[]){s->N, s->K});
}

static float half_to_float(uint16_t h) {
  const int e = h >> 10 & 31, m = h & 1023;
  const float size = e == 31 ? (m ? NAN : INFINITY)
                     : e     ? ldexpf((float)(m | 1024), e - 25)
                             : ldexpf((float)m, -24);
  return h & 0x8000 ? -size : size;
}

static float table[65536];
static pthread_once_t once = PTHREAD_ONCE_INIT;
static void fill_table(void) {
  for (int h = 0; h < 65536; ++h) table[h] = half_to_float((uint16_t)h);
}

static int64_t a_index(const rknn_matmul_info* i, int64_t m, int64_t k, int64_t s) {
  return i->AC_layout == NATIVE ? (k / s * i->M + m) * s + k % s : m * i->K + k;
}
static int64_t b_index(const rknn_matmul_info* i, int64_t k, int64_t n, int64_t w) {
  if (i->B_layout == NATIVE) return ((n / w * (i->K / 32) + k / 32) * w + n % w) * 32 + k % 32;
  return i->B_layout == NORM ? k * i->N + n : n * i->K + k;
}
static int64_t c_index(const rknn_matmul_info* i, int64_t m, int64_t n) {
  return i->AC_layout == NATIVE ? (n / 4 * i->M + m) * 4 + n % 4 : m * i->N + n;
}

static void multiply_int8(const rknn_matmul_info* i, const int8_t* a, const int8_t* b, int32_t* c) {
  int8_t *row = malloc((size_t)i->K), *columns = malloc((size_t)i->N * i->K);
  for (int n = 0; n < i->N; ++n)
    for (int k = 0; k < i->K; ++k) columns[(int64_t)n * i->K + k] = b[b_index(i, k, n, 32)];
  for (int m = 0; m < i->M; ++m) {
    for (int k = 0; k < i->K; ++k) row[k] = a[a_index(i, m, k, 16)];
    for (int n = 0; n < i->N; ++n) {
      const int8_t* column = columns + (int64_t)n * i->K;
      int32_t sum = 0;
      for (int k = 0; k < i->K; ++k) sum += (int16_t)row[k] * (int16_t)column[k];
      c[c_index(i, m, n)] = sum;
    }
  }
  free(row);
  free(columns);
}

static void multiply_half(const rknn_matmul_info* i, const uint16_t* a, const uint16_t* b, float* c) {
  float *row = malloc((size_t)i->K * 4), *rows = malloc((size_t)i->N * i->K * 4);
  pthread_once(&once, fill_table);
  for (int k = 0; k < i->K; ++k)
    for (int n = 0; n < i->N; ++n) rows[(int64_t)k * i->N + n] = table[b[b_index(i, k, n, 16)]];
  float* sums = malloc((size_t)i->N * 4);
  for (int m = 0; m < i->M; ++m) {
    for (int k = 0; k < i->K; ++k) row[k] = table[a[a_index(i, m, k, 8)]];
    memset(sums, 0, (size_t)i->N * 4);
    for (int k = 0; k < i->K; ++k)
      for (int n = 0; n < i->N; ++n) sums[n] += row[k] * rows[(int64_t)k * i->N + n];
    for (int n = 0; n < i->N; ++n) c[c_index(i, m, n)] = sums[n];
  }
  free(row);
  free(rows);
  free(sums);
}

void multiply(const rknn_matmul_info* info, const uint8_t* a, const uint8_t* b, uint8_t* c) {
  if (info->type == I8_I32)
    multiply_int8(info, (const int8_t*)a, (const int8_t*)b, (int32_t*)c);
  else
    multiply_half(info, (const uint16_t*)a, (const uint16_t*)b, (float*)c);
}

EXPORT int rknn_B_normal_layout_to_native_layout(void* in, void* out, int K, int N, rknn_matmul_info* given) {
  rknn_matmul_info info = *given;
  info.K = K;
  info.N = N;
  info.B_layout = NATIVE;
  const int half = info.type == F16_F32;
  for (int k = 0; k < K; ++k)
    for (int n = 0; n < N; ++n) {
      const int64_t to = b_index(&info, k, n, half ? 16 : 32), from = (int64_t)k * N + n;
      if (half)
        ((uint16_t*)out)[to] = ((uint16_t*)in)[from];
      else
        ((int8_t*)out)[to] = ((int8_t*)in)[from];
    }
  return OK;
}
