// What the host does around the NPU's products: operands from rows, softmax between the two products of
// attention, sums into rows, and a look at whether a product is right. Layouts: npu_layout.hpp. `capacity` is
// the product's M; rows beyond `rows` are 0 in A and ignored in C.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/dispatch.hpp"
#include "kernels/linear.hpp"
#include "kernels/npu_layout.hpp"

namespace mn {

// One head's queries -> A of QK^T. int8: a scale a row, times the softmax scale; fp16: the softmax scale is
// in A.
struct NpuQueriesArgs {
  Format format;
  const float* q;  // the head's first row; rows are `stride` apart
  uint8_t* a;      // [depth, capacity]
  float* row_scales;
  int64_t rows, capacity, stride, k_dims, depth;
  float scale;
  std::atomic<bool>* unfit;  // fp16: set where a value is beyond FP16
};

// Scores of a tile of kTileKeys keys -> A of P V. Row r sees the tile's first `seen` + r keys: none where
// that is below 1, all from kTileKeys on. int8 as attention.cpp defines it.
struct NpuSoftmaxArgs {
  Format format;
  const uint8_t* scores;             // C [capacity, kTileKeys]
  const float* row_scales;           // int8
  const float *k_scales, *v_scales;  // int8: [kTileKeys]
  float *m, *l, *decay, *p_scale;    // [rows]; p_scale: int8
  uint8_t* p;                        // A [capacity, kTileKeys]
  int64_t rows, capacity, seen;
};

// o [rows, dims] = o * decay + p_scale * sums, for rows first .. rows.
struct NpuAccumulateArgs {
  Format format;
  const uint8_t* sums;  // C [capacity, ..]
  const float *decay, *p_scale;
  float* o;
  int64_t first, rows, capacity, dims;
};

// Elements of C in rows first .. rows and columns below cols against the operands: int8 exactly, fp16 to 1 %
// of the sum of magnitudes. Which, follows from `seed`.
struct NpuCheckArgs {
  Format format;
  const uint8_t *a, *b, *c;
  int64_t first, rows, capacity, depth, cols, samples;
  uint64_t seed;
  int64_t* wrong;
};

// W8 rows first .. first + rows -> B of each group of 128 inputs, one after the other; outputs padded to
// `cols` by 0.
struct NpuWeightsArgs {
  PackedWeights w;
  int8_t* b;
  int64_t first, rows, cols;
};

// One group's inputs of quantized rows -> A.
struct NpuInputsArgs {
  QuantizedRows x;
  int8_t* a;
  int64_t group, depth, capacity;
};

// Groups first .. first + groups of a W8 product: acc = fma(group's scale, sum, acc), from 0 at the first
// group; after the last of all, out = acc * row scale. What linear_quantized computes, to the bit.
struct NpuCombineArgs {
  const uint8_t* sums;  // [groups] of C [capacity, cols], c_bytes apart
  QuantizedRows x;
  const float* row_scales;  // [outputs]
  float* acc;               // [rows up to an even number, cols]
  float* out;               // [rows, outputs]
  int64_t groups, first, c_bytes, capacity, cols, outputs;
  bool last;
};

}  // namespace mn

MN_KERNEL(npu_queries, NpuQueriesArgs)
MN_KERNEL(npu_softmax, NpuSoftmaxArgs)
MN_KERNEL(npu_accumulate, NpuAccumulateArgs)
MN_KERNEL(npu_check, NpuCheckArgs)
MN_KERNEL(npu_weights, NpuWeightsArgs)
MN_KERNEL(npu_inputs, NpuInputsArgs)
MN_KERNEL(npu_combine, NpuCombineArgs)
