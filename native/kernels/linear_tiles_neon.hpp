// NEON tiles, with and without SDOT. linear_tiles.hpp says what each function computes. Floats are added
// in the order of AVX2, so both give the same bits.
#pragma once
#include <cfloat>
#include <cstring>
#include <limits>

#include "kernels/byte_sums.hpp"

namespace mn {
namespace MN_ISA {

constexpr int64_t kAhead = 4096;  // bytes that few-row products fetch before they need them; not measured
constexpr int64_t kW8OpenGroup = kW8Group;

inline void prefetch_l2(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

// Fetches the `bytes` that lie kAhead after p in the stream.
inline void fetch_ahead(const Stream& stream, const void* p, int bytes) {
  const uint8_t* to = static_cast<const uint8_t*>(p) + kAhead;
  if (to >= stream.end) to += stream.jump;
  for (int at = 0; at < bytes; at += 64) prefetch(to + at);
}

inline void transpose4(float32x4_t& a, float32x4_t& b, float32x4_t& c, float32x4_t& d) {
  const float64x2_t ab0 = vreinterpretq_f64_f32(vzip1q_f32(a, b)),
                    ab1 = vreinterpretq_f64_f32(vzip2q_f32(a, b));
  const float64x2_t cd0 = vreinterpretq_f64_f32(vzip1q_f32(c, d)),
                    cd1 = vreinterpretq_f64_f32(vzip2q_f32(c, d));
  a = vreinterpretq_f32_f64(vzip1q_f64(ab0, cd0));
  b = vreinterpretq_f32_f64(vzip2q_f64(ab0, cd0));
  c = vreinterpretq_f32_f64(vzip1q_f64(ab1, cd1));
  d = vreinterpretq_f32_f64(vzip2q_f64(ab1, cd1));
}

inline void transpose8(vf* v) {
  transpose4(v[0].a, v[1].a, v[2].a, v[3].a);
  transpose4(v[4].b, v[5].b, v[6].b, v[7].b);
  transpose4(v[0].b, v[1].b, v[2].b, v[3].b);
  transpose4(v[4].a, v[5].a, v[6].a, v[7].a);
  for (int i = 0; i < 4; ++i) {
    const float32x4_t b = v[i].b;
    v[i].b = v[i + 4].a;
    v[i + 4].a = b;
  }
}

inline void quantize_group(const float* x, int n, int padded, int8_t* q, float* scale, int16_t* pairs) {
  uint32x4_t top = vdupq_n_u32(0);  // compared as bits, so that an infinity or NaN wins
  for (int i = 0; i < n; i += 8) {
    const vf v = abs(n - i >= 8 ? load(x + i) : load_partial(x + i, n - i));
    top = vmaxq_u32(top, vmaxq_u32(vreinterpretq_u32_f32(v.a), vreinterpretq_u32_f32(v.b)));
  }
  const uint32_t bits = vmaxvq_u32(top);
  float largest;
  std::memcpy(&largest, &bits, 4);
  const float s = largest / 127.0f;
  if (bits >= 0x7f800000u || s < FLT_MIN) {
    *scale = bits >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    std::memset(q, 0, static_cast<size_t>(padded));
    std::memset(pairs, 0, static_cast<size_t>(padded / 8));
    return;
  }
  *scale = s;
  const vf divisor = set1(s);
  for (int g = 0; g < padded; g += 32) {
    int16x8_t halves = vdupq_n_s16(0);  // sums of pairs; even lanes: i % 4 in {0, 1}, odd ones: {2, 3}
    for (int j = 0; j < 32; j += 16) {
      const int left = n - g - j;
      const vf low = left >= 8 ? load(x + g + j) : left > 0 ? load_partial(x + g + j, left) : zero();
      const vf high = left >= 16 ? load(x + g + j + 8)
                      : left > 8 ? load_partial(x + g + j + 8, left - 8)
                                 : zero();
      const int8x16_t bytes = vqmovn_high_s16(vqmovn_s16(to_int16(low / divisor)), to_int16(high / divisor));
      vst1q_s8(q + g + j, bytes);
      halves = vpadalq_s8(halves, bytes);
    }
    const int16x4_t four = vadd_s16(vget_low_s16(halves), vget_high_s16(halves));
    const int16x4_t two = vmul_n_s16(vadd_s16(four, vext_s16(four, four, 2)), -8);
    pairs[g / 16] = vget_lane_s16(two, 0);
    pairs[g / 16 + 1] = vget_lane_s16(two, 1);
  }
}

inline void w4_open(const uint8_t* packed, int64_t groups, uint8_t* open) {
  const uint8x16_t low = vdupq_n_u8(15);
  const int8x16_t eight = vdupq_n_s8(8);
  for (int64_t g = 0; g < groups; ++g, packed += kW4Group, open += kW4OpenGroup) {
    for (int i = 0; i < 16; ++i) {
      const uint8x16_t two = vld1q_u8(packed + 32 + 16 * i);
      int8_t* to = reinterpret_cast<int8_t*>(open) + i / 2 * 64 + i % 2 * 16;
      vst1q_s8(to, vsubq_s8(vreinterpretq_s8_u8(vandq_u8(two, low)), eight));
      vst1q_s8(to + 32, vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(two, 4)), eight));
    }
    float* scales = reinterpret_cast<float*>(open + 512);
    store(scales, load_bf16(reinterpret_cast<const uint16_t*>(packed)));
    store(scales + 8, load_bf16(reinterpret_cast<const uint16_t*>(packed) + 8));
  }
}

inline vf to_floats(int32x4_t a, int32x4_t b) {
  return {vcvtq_f32_s32(a), vcvtq_f32_s32(b)};
}

// to [16] = fma(float(sums), by [16], to)
inline void add_scaled(const int32x4_t (&sums)[4], const float* by, float* to) {
#pragma GCC unroll 24
  for (int h = 0; h < 2; ++h) {
    float* p = to + 8 * h;
    store(p, fma(to_floats(sums[2 * h], sums[2 * h + 1]), load(by + 8 * h), load(p)));
  }
}

template <int T>
MN_TILE void w4_tile(const uint8_t* open, int64_t groups, const TileRows& rows, float* acc) {
  alignas(16) float part[16 * T] = {};
  const int8_t* x = rows.q;
  for (int64_t g = 0; g < groups; ++g, open += kW4OpenGroup, x += 32) {
    ByteSums<T> sums;
    clear<T>(sums);
    add_w4_group<T>(reinterpret_cast<const int8_t*>(open), x, rows.q_stride, sums);
#pragma GCC unroll 24
    for (int t = 0; t < T; ++t)
      add_scaled(sums[t], reinterpret_cast<const float*>(open + 512), part + 16 * t);
    if (g % 4 == 3 || g + 1 == groups)
      for (int t = 0; t < T; ++t) {
        const vf xs = set1(rows.scales[t * rows.scale_stride + g / 4]);
        for (int h = 0; h < 2; ++h) {
          float *p = part + 16 * t + 8 * h, *a = acc + 16 * t + 8 * h;
          store(a, fma(load(p), xs, load(a)));
          store(p, zero());
        }
      }
  }
}

template <int T>
MN_TILE void w4_direct(const uint8_t* packed, int64_t groups, const TileRows& rows, float* acc) {
  for (int64_t g0 = 0; g0 < groups; g0 += 4) {
    const int64_t end = groups < g0 + 4 ? groups : g0 + 4;
    vf part[T][2];
#pragma GCC unroll 24
    for (int i = 0; i < 2 * T; ++i) part[i / 2][i % 2] = zero();
    for (int64_t g = g0; g < end; ++g, packed += kW4Group) {
      fetch_ahead(rows.stream, packed, kW4Group);
      ByteSums<T> sums;
      clear<T>(sums);
      add_nibble_group<T>(packed + 32, rows.q + 32 * g, rows.q_stride, sums);
      const vf scale[2] = {load_bf16(reinterpret_cast<const uint16_t*>(packed)),
                           load_bf16(reinterpret_cast<const uint16_t*>(packed) + 8)};
#pragma GCC unroll 24
      for (int t = 0; t < T; ++t) {
        const int16_t* pairs = rows.pairs + t * rows.pair_stride + 2 * g;  // -8 sum(x), in two parts
        const int32x4_t start = vdupq_n_s32(pairs[0] + pairs[1]);
#pragma GCC unroll 24
        for (int h = 0; h < 2; ++h) {
          const vf exact = to_floats(vaddq_s32(sums[t][2 * h], start), vaddq_s32(sums[t][2 * h + 1], start));
          part[t][h] = fma(exact, scale[h], part[t][h]);
        }
      }
    }
#pragma GCC unroll 24
    for (int t = 0; t < T; ++t) {
      const vf xs = set1(rows.scales[t * rows.scale_stride + g0 / 4]);
#pragma GCC unroll 24
      for (int h = 0; h < 2; ++h) {
        float* a = acc + 16 * t + 8 * h;
        store(a, fma(part[t][h], xs, load(a)));
      }
    }
  }
}

// Packed bytes are what SDOT and SMULL take: opening only brings a chunk into the first cache.
inline void w8_open(const int8_t* packed, int64_t groups, uint8_t* open) {
  std::memcpy(open, packed, static_cast<size_t>(groups * kW8Group));
}

template <int T, bool Fetch>
inline void w8_blocks(const int8_t* packed, int64_t groups, const TileRows& rows, const float* row_scales,
                      float* acc) {
  for (int64_t g0 = 0; g0 < groups; g0 += 4, packed += 4 * kW8Group) {
    const int64_t left = groups - g0 < 4 ? groups - g0 : 4;
    ByteSums<T> sums;
    clear<T>(sums);
    for (int64_t g = 0; Fetch && g < left; ++g) {
      fetch_ahead(rows.stream, packed + kW8Group * g, kW8Group);
      add_bytes<T>(packed + kW8Group * g, 8, rows.q + 32 * (g0 + g), rows.q_stride, 4, sums);
    }
    if (!Fetch) add_bytes<T>(packed, 8 * left, rows.q + 32 * g0, rows.q_stride, 4, sums);
#pragma GCC unroll 24
    for (int t = 0; t < T; ++t) {
      const vf xs = set1(rows.scales[t * rows.scale_stride + g0 / 4]);
#pragma GCC unroll 24
      for (int h = 0; h < 2; ++h) {
        float* a = acc + 16 * t + 8 * h;
        store(a, fma(to_floats(sums[t][2 * h], sums[t][2 * h + 1]), xs, load(a)));
      }
    }
  }
  if (row_scales)
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) {
        float* a = acc + 16 * t + 8 * h;
        store(a, load(a) * load(row_scales + 8 * h));
      }
}

template <int T>
MN_TILE void w8_tile(const uint8_t* open, int64_t groups, const TileRows& rows, const float* row_scales,
                     float* acc) {
  w8_blocks<T, false>(reinterpret_cast<const int8_t*>(open), groups, rows, row_scales, acc);
}

template <int T>
MN_TILE void w8_direct(const int8_t* packed, int64_t groups, const TileRows& rows, const float* row_scales,
                       float* acc) {
  w8_blocks<T, true>(packed, groups, rows, row_scales, acc);
}

}  // namespace MN_ISA
}  // namespace mn
