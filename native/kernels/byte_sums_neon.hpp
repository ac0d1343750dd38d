// Sums of products of signed bytes without SDOT: SMULL and SMLAL of eight bytes into int16, SADALP into
// int32. byte_sums.hpp says what each function computes.
//
// Two products of |w| <= 128 and |x| <= 127 fit an int16 (32,512). A W4 group fits whole: eight products of
// nibbles 0..15 reach 15,240, and the sum of two such lanes 30,480.
#pragma once

namespace mn {
namespace MN_ISA {

// Two quads of 16 lanes times R rows; parts[2v] are lanes 4v and 4v + 1, each in two parts.
template <int R>
MN_INLINE void add_two_quads(const int8_t* lanes, const int8_t* next, const int8x16_t (&x)[R],
                             const int8x16_t (&y)[R], int32x4_t (&parts)[R][8]) {
#pragma GCC unroll 24
  for (int v = 0; v < 4; ++v) {
    const int8x16_t w = vld1q_s8(lanes + 16 * v), u = vld1q_s8(next + 16 * v);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x[r])), high = vmull_high_s8(w, x[r]);
      parts[r][2 * v] = vpadalq_s16(parts[r][2 * v], vmlal_s8(low, vget_low_s8(u), vget_low_s8(y[r])));
      parts[r][2 * v + 1] = vpadalq_s16(parts[r][2 * v + 1], vmlal_high_s8(high, u, y[r]));
    }
  }
}

template <int R>
MN_INLINE void add_bytes_rows(const int8_t* lanes, int64_t quads, const int8_t* x, int64_t stride,
                              int64_t step, int32x4_t (*sums)[4]) {
  int32x4_t parts[R][8];
#pragma GCC unroll 24
  for (int i = 0; i < 8 * R; ++i) parts[i / 8][i % 8] = vdupq_n_s32(0);
  int8x16_t rows[R], next[R];
  int64_t i = 0;
  for (; i + 2 <= quads; i += 2, lanes += 128, x += 2 * step) {
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      rows[r] = quad_everywhere(x + r * stride);
      next[r] = quad_everywhere(x + r * stride + step);
    }
    add_two_quads(lanes, lanes + 64, rows, next, parts);
  }
  if (i < quads) {
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) {
      rows[r] = quad_everywhere(x + r * stride);
      next[r] = vdupq_n_s8(0);
    }
    add_two_quads(lanes, lanes, rows, next, parts);
  }
#pragma GCC unroll 24
  for (int j = 0; j < 4 * R; ++j) {
    const int r = j / 4, v = j % 4;
    sums[r][v] = vaddq_s32(sums[r][v], vpaddq_s32(parts[r][2 * v], parts[r][2 * v + 1]));
  }
}

// Two rows at a time: their parts take half of the registers.
template <int R>
MN_INLINE void add_bytes(const int8_t* lanes, int64_t quads, const int8_t* x, int64_t stride, int64_t step,
                         ByteSums<R>& sums) {
#pragma GCC unroll 24
  for (int i = 0; i < R / 2; ++i) {
    add_bytes_rows<2>(lanes, quads, x + 2 * i * stride, stride, step, sums + 2 * i);
  }
  if constexpr (R % 2 == 1) add_bytes_rows<1>(lanes, quads, x + (R - 1) * stride, stride, step, sums + R - 1);
}

// A group of W4: load(i, w) gives the i-th quad of 16 lanes.
template <int R, class Load>
MN_INLINE void add_group_rows(const int8_t* x, int64_t stride, int32x4_t (*sums)[4], Load&& load) {
  int16x8_t parts[R][8];
#pragma GCC unroll 24
  for (int i = 0; i < 8 * R; ++i) parts[i / 8][i % 8] = vdupq_n_s16(0);
#pragma GCC unroll 1  // or GCC 12 runs two halves of the rows at once, out of registers
  for (int i = 0; i < 8; ++i) {
    int8x16_t w[4], rows[R];
    load(i, w);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) rows[r] = quad_everywhere(x + r * stride + 4 * i);
#pragma GCC unroll 24
    for (int j = 0; j < 4 * R; ++j) {
      const int v = j / R, r = j % R;
      parts[r][2 * v] = vmlal_s8(parts[r][2 * v], vget_low_s8(w[v]), vget_low_s8(rows[r]));
      parts[r][2 * v + 1] = vmlal_high_s8(parts[r][2 * v + 1], w[v], rows[r]);
    }
  }
#pragma GCC unroll 24
  for (int j = 0; j < 4 * R; ++j) {
    const int r = j / 4, v = j % 4;
    sums[r][v] = vpadalq_s16(sums[r][v], vpaddq_s16(parts[r][2 * v], parts[r][2 * v + 1]));
  }
}

// At most three rows at a time: 24 parts.
template <int R, class Load>
MN_INLINE void add_group(const int8_t* x, int64_t stride, int32x4_t (*sums)[4], Load&& load) {
  constexpr int first = R > 3 ? (R + 1) / 2 : R;
  add_group_rows<first>(x, stride, sums, load);
  if constexpr (R > first) add_group_rows<R - first>(x + first * stride, stride, sums + first, load);
}

template <int R>
MN_INLINE void add_w4_group(const int8_t* open, const int8_t* x, int64_t stride, ByteSums<R>& sums) {
  add_group<R>(x, stride, sums, [=](int i, int8x16_t(&w)[4]) {
#pragma GCC unroll 24
    for (int v = 0; v < 4; ++v) w[v] = vld1q_s8(open + 64 * i + 16 * v);
  });
}

template <int R>
MN_INLINE void add_nibble_group(const uint8_t* packed, const int8_t* x, int64_t stride, ByteSums<R>& sums) {
  add_group<R>(x, stride, sums, [=](int i, int8x16_t(&w)[4]) {
#pragma GCC unroll 24
    for (int v = 0; v < 2; ++v) {
      const uint8x16_t two = vld1q_u8(packed + 32 * i + 16 * v);
      w[v] = vreinterpretq_s8_u8(vandq_u8(two, vdupq_n_u8(15)));
      w[v + 2] = vreinterpretq_s8_u8(vshrq_n_u8(two, 4));
    }
  });
}

}  // namespace MN_ISA
}  // namespace mn
