// Products of quantized activations with packed W4 and W8 weights. docs/design.md has the formats.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

struct PackedWeights {
  int bits;             // 4 or 8
  const uint8_t* data;  // W4 [P, Kp/32, 288], W8 [P, Kp/4, 64] (int8)
  const float* scales;  // W8: [P * 16]
  int64_t rows, cols;

  int64_t panels() const { return (rows + 15) / 16; }
  int64_t groups() const { return (cols + 31) / 32; }
  int64_t panel_bytes() const { return groups() * (bits == 4 ? 288 : 512); }
  PackedWeights matrix(int64_t index) const {
    return {bits, data + index * panels() * panel_bytes(), scales ? scales + index * panels() * 16 : nullptr,
            rows, cols};
  }
};

struct QuantizedRows {
  const int8_t* q;       // [rows, q_stride]
  const float* scales;   // [rows, scale_stride], one for 128 inputs
  const int16_t* pairs;  // [rows, pair_stride], two for 32 inputs
  int64_t rows, q_stride, scale_stride, pair_stride;
};

// out[t, column + n] (+)= x[t] . w[n]
struct LinearArgs {
  PackedWeights w;
  QuantizedRows x;
  float* out;  // [rows, out_stride]
  int64_t out_stride, column;
  bool accumulate;
};

// out[t, h] = x[t, h] W[h]^T. x has tokens * heads rows, head innermost.
struct LinearHeadsArgs {
  PackedWeights w;  // the first of `heads` matrices that follow each other
  QuantizedRows x;
  float* out;  // [tokens, heads, w.rows]
  int64_t tokens, heads;
};

}  // namespace mn

MN_KERNEL(linear_quantized, LinearArgs)
MN_KERNEL(linear_heads, LinearHeadsArgs)
