// What the NEON tiles of linear and attention share: 16 lanes times R rows of signed bytes, exactly. One file
// with SDOT, one without. Sums [row][v] hold lanes 4v .. 4v + 3.
//
//   add_bytes(lanes, quads, x, stride, step, sums)   lanes [quads][16][4]; row r's quad i is at
//                                                    x + r * stride + i * step. One side within +-127
//   add_w4_group(open, x, stride, sums)              8 quads; lanes [8][16][4] in -8..7
//   add_nibble_group(packed, x, stride, sums)        8 quads of packed W4: its nibbles, 0..15
#pragma once
#include <cstring>

#include "simd/simd.hpp"

// Called once or a hundred times, sums have to stay in registers.
#define MN_INLINE inline __attribute__((always_inline))

namespace mn {
namespace MN_ISA {

template <int R>
using ByteSums = int32x4_t[R][4];

template <int R>
MN_INLINE void clear(ByteSums<R>& sums) {
#pragma GCC unroll 24
  for (int i = 0; i < 4 * R; ++i) sums[i / 4][i % 4] = vdupq_n_s32(0);
}

MN_INLINE int8x16_t quad_everywhere(const int8_t* x) {
  int32_t word;
  std::memcpy(&word, x, 4);
  return vreinterpretq_s8_s32(vdupq_n_s32(word));
}

}  // namespace MN_ISA
}  // namespace mn

#if defined(MN_ISA_neon_dot)
#include "kernels/byte_sums_neon_dot.hpp"
#else
#include "kernels/byte_sums_neon.hpp"
#endif
