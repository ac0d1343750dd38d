// Decode attention: one query row a sequence against its whole cache.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"
#include "kernels/mla.hpp"
#include "kernels/mla_stages.hpp"

namespace mn {

// A sequence is cut into chunks of this many keys, whatever the number of threads; a task is one chunk, and
// partial results are combined in the chunks' order.
constexpr int64_t kChunkKeys = 512;

inline int64_t chunks_of(int64_t length) {
  return (length + kChunkKeys - 1) / kChunkKeys;
}

// Absorbed: scores against the latent, all heads at once, so that the cache is read once.
struct DecodeLatentArgs {
  const float* q_latent;  // [sequences, heads, rank]
  const float* q_rope;    // [sequences, heads, rope_dims]
  const LatentView* views;
  const int64_t* lengths;
  const int64_t* first_chunk;  // [sequences + 1]: prefix sums of chunks_of(length)
  float* out;                  // [sequences, heads, rank]
  char* scratch;               // decode_latent_scratch bytes, aligned to 64
  int64_t sequences, heads, rank, rope_dims;
  float scale;
  Stages* stages;
};
struct DecodeLatentScratchArgs {
  const DecodeLatentArgs* decode;
  int64_t* bytes;
};

struct DecodeExpandedArgs {
  const float* q;  // [sequences, heads, k_dims]
  const ExpandedView* views;
  const int64_t* lengths;
  const int64_t* first_chunk;
  float* out;      // [sequences, heads, v_dims]
  float* scratch;  // [chunks, heads, v_dims + 2]
  int64_t sequences, heads, k_dims, v_dims;
  float scale;
  Stages* stages;
};

}  // namespace mn

MN_KERNEL(decode_latent_scratch, DecodeLatentScratchArgs)
MN_KERNEL(mla_decode_latent, DecodeLatentArgs)
MN_KERNEL(mla_decode_expanded, DecodeExpandedArgs)
