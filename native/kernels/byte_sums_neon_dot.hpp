// Sums of products of signed bytes with SDOT, 16 of them an instruction. byte_sums.hpp says what each
// function computes.
#pragma once

namespace mn {
namespace MN_ISA {

// sum += w . quad Q of x. Spelled out because GCC 12 otherwise regroups the sums of an unrolled loop into
// chains that wait for themselves.
template <int Q>
MN_INLINE void sdot(int32x4_t& sum, int8x16_t w, int8x16_t x) {
  int32x4_t s = sum;
  asm volatile("sdot %0.4s, %1.16b, %2.4b[%3]" : "+w"(s) : "w"(w), "w"(x), "i"(Q));
  sum = s;
}

template <int R>
MN_INLINE void load_rows(const int8_t* x, int64_t stride, int8x16_t (&rows)[R]) {
#pragma GCC unroll 24
  for (int r = 0; r < R; ++r) rows[r] = vld1q_s8(x + r * stride);
}

// One quad of 16 lanes, which is quad Q of each row's vector.
template <int Q, int R>
MN_INLINE void add_lanes(const int8_t* lanes, const int8x16_t (&x)[R], ByteSums<R>& sums) {
#pragma GCC unroll 24
  for (int v = 0; v < 4; ++v) {
    const int8x16_t w = vld1q_s8(lanes + 16 * v);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) sdot<Q>(sums[r][v], w, x[r]);
  }
}

template <int Q, int R>
MN_INLINE void add_nibbles(const uint8_t* packed, const int8x16_t (&x)[R], ByteSums<R>& sums) {
#pragma GCC unroll 24
  for (int v = 0; v < 2; ++v) {
    const uint8x16_t two = vld1q_u8(packed + 16 * v);
    const int8x16_t low = vreinterpretq_s8_u8(vandq_u8(two, vdupq_n_u8(15)));
    const int8x16_t high = vreinterpretq_s8_u8(vshrq_n_u8(two, 4));
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) sdot<Q>(sums[r][v], low, x[r]);
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) sdot<Q>(sums[r][v + 2], high, x[r]);
  }
}

// Four rows whose quads lie side by side.
MN_INLINE void add_neighbours(const int8_t* lanes, int64_t quads, const int8_t* x, int64_t step,
                              ByteSums<4>& sums) {
  for (int64_t i = 0; i < quads; ++i, lanes += 64, x += step) {
    const int8x16_t rows = vld1q_s8(x);
#pragma GCC unroll 4
    for (int v = 0; v < 4; ++v) {
      const int8x16_t w = vld1q_s8(lanes + 16 * v);
      sdot<0>(sums[0][v], w, rows);
      sdot<1>(sums[1][v], w, rows);
      sdot<2>(sums[2][v], w, rows);
      sdot<3>(sums[3][v], w, rows);
    }
  }
}

template <int R>
MN_INLINE void add_bytes(const int8_t* lanes, int64_t quads, const int8_t* x, int64_t stride, int64_t step,
                         ByteSums<R>& sums) {
  if constexpr (R == 4) {
    if (stride == 4) return add_neighbours(lanes, quads, x, step, sums);
  }
  int8x16_t rows[R];
  int64_t i = 0;
  if (step == 4) {
    for (; i + 4 <= quads; i += 4, lanes += 256, x += 16) {
      load_rows(x, stride, rows);
      add_lanes<0>(lanes, rows, sums);
      add_lanes<1>(lanes + 64, rows, sums);
      add_lanes<2>(lanes + 128, rows, sums);
      add_lanes<3>(lanes + 192, rows, sums);
    }
  }
  for (; i < quads; ++i, lanes += 64, x += step) {
#pragma GCC unroll 24
    for (int r = 0; r < R; ++r) rows[r] = quad_everywhere(x + r * stride);
    add_lanes<0>(lanes, rows, sums);
  }
}

template <int R>
MN_INLINE void add_w4_group(const int8_t* open, const int8_t* x, int64_t stride, ByteSums<R>& sums) {
  add_bytes<R>(open, 8, x, stride, 4, sums);
}

template <int R>
MN_INLINE void add_nibble_group(const uint8_t* packed, const int8_t* x, int64_t stride, ByteSums<R>& sums) {
#pragma GCC unroll 24
  for (int half = 0; half < 2; ++half) {
    int8x16_t rows[R];
    load_rows(x + 16 * half, stride, rows);
    add_nibbles<0>(packed + 128 * half, rows, sums);
    add_nibbles<1>(packed + 128 * half + 32, rows, sums);
    add_nibbles<2>(packed + 128 * half + 64, rows, sums);
    add_nibbles<3>(packed + 128 * half + 96, rows, sums);
  }
}

}  // namespace MN_ISA
}  // namespace mn
