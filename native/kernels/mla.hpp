// The KV cache of one sequence and MLA layer, in two layouts and four formats. docs/design.md has the
// layouts.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

enum class Format { fp32, bf16, fp16, int8 };

inline int64_t format_bytes(Format f) {
  return f == Format::fp32 ? 4 : f == Format::int8 ? 1 : 2;
}

// One latent and one rope key a token, shared by all heads.
struct LatentView {
  Format format, rope_format;  // int8 keeps the rope part in bf16
  void* latent;                // [capacity, rank]
  float* scales;               // int8: [capacity, groups], one for 128 of the rank
  void* rope;                  // [capacity, rope_dims]
  int64_t capacity, rank, rope_dims;

  int64_t groups() const { return (rank + 127) / 128; }
};

// K and V of every head.
struct ExpandedView {
  Format format;
  void* k;                     // [heads, capacity, k_dims]
  void* v;                     // [heads, capacity, v_dims]
  float *k_scales, *v_scales;  // int8: [heads, capacity]
  int64_t heads, capacity, k_dims, v_dims;
};

// kv_a rows -> cache rows start .. start + tokens: RMSNorm of the latent, rotation of the rope key.
struct LatentWriteArgs {
  const float* kv_a;         // [tokens, stride]: rank latent values, then rope_dims
  const float* norm_weight;  // [rank]
  const int64_t* positions;  // [tokens]
  LatentView view;
  int64_t tokens, stride, start;
  float eps;
  double theta;  // 0: no rotation
};

// kv_b rows -> cache rows start .. start + tokens.
struct ExpandedWriteArgs {
  const float* kv;      // [tokens, heads * nope + heads * v_dims]: K part first
  const float* k_rope;  // [tokens, rope_dims], rotated
  ExpandedView view;
  int64_t tokens, rope_dims, start;
};

}  // namespace mn

MN_KERNEL(latent_write, LatentWriteArgs)
MN_KERNEL(expanded_write, ExpandedWriteArgs)
