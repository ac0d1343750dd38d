// Products with dense weights (fp32, BF16, FP16) in fp32: the yardstick.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

enum class Dense { fp32, bf16, fp16 };

struct DenseWeights {
  Dense type;
  const void* data;  // [rows, cols]
  int64_t rows, cols;

  int64_t panels() const { return (rows + 15) / 16; }
};

// out[t, column + n] (+)= x[t] . w[n]
struct LinearDenseArgs {
  DenseWeights w;
  const float* x;  // [tokens, cols]
  float* out;      // [tokens, out_stride]
  int64_t tokens, out_stride, column;
  bool accumulate;
};

// out[t, h] = x[t, h] W[h]^T
struct LinearHeadsDenseArgs {
  Dense type;
  const void* const* data;  // a matrix [rows, cols] a head
  int64_t rows, cols;
  const float* x;  // [tokens, heads, cols]
  float* out;      // [tokens, heads, rows]
  int64_t tokens, heads;
};

}  // namespace mn

MN_KERNEL(linear_dense, LinearDenseArgs)
MN_KERNEL(linear_heads_dense, LinearHeadsDenseArgs)
