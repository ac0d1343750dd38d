// NEON tiles, with and without SDOT. attention_tiles.hpp says what each function computes.
#pragma once
#include <cstring>

#include "kernels/byte_sums.hpp"

namespace mn {
namespace MN_ISA {

// SDOT and SMULL take signed bytes as they are: nothing to open, nothing to start with.
inline void open_lanes(const int8_t* lanes, int64_t quads, uint8_t* open, int32_t*) {
  std::memcpy(open, lanes, static_cast<size_t>(quads * 64));
}

template <int R, class Done>
inline void byte_tile(const int8_t* lanes, int64_t quads, const int8_t* x, int64_t stride, int64_t step,
                      Done&& done) {
  ByteSums<R> sums;
  clear<R>(sums);
  add_bytes<R>(lanes, quads, x, stride, step, sums);
#pragma GCC unroll 24
  for (int r = 0; r < R; ++r) {
    done(r, 0, vf{vcvtq_f32_s32(sums[r][0]), vcvtq_f32_s32(sums[r][1])});
    done(r, 1, vf{vcvtq_f32_s32(sums[r][2]), vcvtq_f32_s32(sums[r][3])});
  }
}

template <int R, class Done>
inline void signed_tile(const uint8_t* open, const int32_t*, int64_t quads, const int8_t* x, int64_t stride,
                        Done&& done) {
  byte_tile<R>(reinterpret_cast<const int8_t*>(open), quads, x, stride, 4, done);
}

template <int R, class Done>
inline void unsigned_tile(const uint8_t* p, int64_t stride, int64_t step, const int8_t* lanes, int64_t quads,
                          Done&& done) {
  byte_tile<R>(lanes, quads, reinterpret_cast<const int8_t*>(p), stride, step, done);
}

inline void interleave(const int8_t* const rows[4], int8_t* out) {
  int8x16_t r[4];
  for (int j = 0; j < 4; ++j) r[j] = vld1q_s8(rows[j]);
  const int16x8_t ab0 = vreinterpretq_s16_s8(vzip1q_s8(r[0], r[1])),
                  ab1 = vreinterpretq_s16_s8(vzip2q_s8(r[0], r[1]));
  const int16x8_t cd0 = vreinterpretq_s16_s8(vzip1q_s8(r[2], r[3])),
                  cd1 = vreinterpretq_s16_s8(vzip2q_s8(r[2], r[3]));
  vst1q_s8(out, vreinterpretq_s8_s16(vzip1q_s16(ab0, cd0)));
  vst1q_s8(out + 16, vreinterpretq_s8_s16(vzip2q_s16(ab0, cd0)));
  vst1q_s8(out + 32, vreinterpretq_s8_s16(vzip1q_s16(ab1, cd1)));
  vst1q_s8(out + 48, vreinterpretq_s8_s16(vzip2q_s16(ab1, cd1)));
}

inline void quantize_unsigned(const float* w, int64_t n, float inverse, uint8_t* p) {
  const vf factor = set1(inverse);
  for (int64_t i = 0; i < n; i += 8) vst1_u8(p + i, vqmovun_s16(to_int16(load(w + i) * factor)));
}

inline void quantize_quad(const float* p, const float* scales, const float* inverse, uint8_t* out) {
  for (int v = 0; v < 4; ++v) {
    const float32x4_t factor = vld1q_f32(inverse + 4 * v);
    auto key = [&](int j) {
      return vcvtnq_u32_f32(vmulq_f32(vmulq_n_f32(vld1q_f32(p + 16 * j + 4 * v), scales[j]), factor));
    };
    const uint32x4_t low = vsliq_n_u32(key(0), key(1), 8), high = vsliq_n_u32(key(2), key(3), 8);
    vst1q_u8(out + 16 * v, vreinterpretq_u8_u32(vsliq_n_u32(low, high, 16)));
  }
}

}  // namespace MN_ISA
}  // namespace mn
