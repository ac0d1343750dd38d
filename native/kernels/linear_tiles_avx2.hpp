// AVX2 tiles. linear_tiles.hpp says what each function computes.
//
// W4: bytes 0..15 times signed bytes give pair sums of at most 3,810, and a group's eight of them stay inside
// an int16 modulo 2^16; the true sums of w x do not leave it (8 * 127 * 16 = 16,256), so starting at -8
// sum(x) and wrapping is exact. W8: |w| is the unsigned operand and the sign goes to x. Opened weights use x
// ^ m with m = -1 where w < 0, which is -x - 1: an exclusive or runs on more ports than a sign. It is off by
// |w| for every negative weight, a constant of the row that the accumulator starts with. Pair sums: at most 2
// * 127 * 128 = 32,512.
#pragma once
#include <cfloat>
#include <cstring>
#include <limits>

#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {

constexpr int64_t kAhead = 8192;  // bytes that few-row products fetch before they need them
constexpr int64_t kW8OpenGroup =
    8 * 128 + 64;  // 8 x (|w| of 16 rows, masks of 16 rows); 16 starts a group of 128

inline __m256i bytes_at(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline void put_bytes(void* p, __m256i v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), v);
}
inline __m256i broadcast4(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}

inline void prefetch_l2(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// Fetches the `bytes` that lie kAhead after p in the stream.
inline void fetch_ahead(const Stream& stream, const void* p, int bytes) {
  const uint8_t* to = static_cast<const uint8_t*>(p) + kAhead;
  if (to >= stream.end) to += stream.jump;
  for (int at = 0; at < bytes; at += 64) prefetch(to + at);
}

// Keeps the compiler from regrouping the sums of an unrolled loop, which costs it all registers.
inline void pin(__m256i& v) {
  asm("" : "+x"(v));
}

inline void transpose8(vf* v) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_ps(v[i].v, v[i + 1].v);
    a[i + 1] = _mm256_unpackhi_ps(v[i].v, v[i + 1].v);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      b[i + 2 * j] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0x44);
      b[i + 2 * j + 1] = _mm256_shuffle_ps(a[i + j], a[i + j + 2], 0xee);
    }
  for (int i = 0; i < 4; ++i) {
    v[i].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x20);
    v[i + 4].v = _mm256_permute2f128_ps(b[i], b[i + 4], 0x31);
  }
}

inline void quantize_group(const float* x, int n, int padded, int8_t* q, float* scale, int16_t* pairs) {
  __m256i top = _mm256_setzero_si256();  // compared as bits, so that an infinity or NaN wins
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (int i = 0; i < n; i += 8) {
    vf v = n - i >= 8 ? load(x + i) : load_partial(x + i, n - i);
    top = _mm256_max_epu32(top, _mm256_and_si256(_mm256_castps_si256(v.v), magnitude));
  }
  __m128i four = _mm_max_epu32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epu32(four, _mm_shuffle_epi32(four, 0xb1));
  uint32_t bits = static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  float largest;
  std::memcpy(&largest, &bits, 4);
  float s = largest / 127.0f;
  if (bits >= 0x7f800000u || s < FLT_MIN) {
    *scale = bits >= 0x7f800000u ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
    std::memset(q, 0, static_cast<size_t>(padded));
    std::memset(pairs, 0, static_cast<size_t>(padded / 8));
    return;
  }
  *scale = s;
  const __m256 divisor = _mm256_set1_ps(s);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // undoes the lanes of two packs
  for (int g = 0; g < padded; g += 32) {
    __m256i i32[4];
    for (int j = 0; j < 4; ++j) {
      int at = g + 8 * j;
      vf v = n - at >= 8 ? load(x + at) : n > at ? load_partial(x + at, n - at) : zero();
      i32[j] = _mm256_cvtps_epi32(_mm256_div_ps(v.v, divisor));
    }
    __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(i32[0], i32[1]), _mm256_packs_epi32(i32[2], i32[3]));
    packed = _mm256_permutevar8x32_epi32(packed, order);
    put_bytes(q + g, packed);
    __m256i two = _mm256_maddubs_epi16(_mm256_set1_epi8(1), packed);  // even lanes: i%4 in {0,1}; odd: {2,3}
    __m128i sum = _mm_add_epi16(_mm256_castsi256_si128(two), _mm256_extracti128_si256(two, 1));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0x4e));
    sum = _mm_add_epi16(sum, _mm_shuffle_epi32(sum, 0xb1));
    int32_t word = _mm_cvtsi128_si32(_mm_mullo_epi16(sum, _mm_set1_epi16(-8)));
    std::memcpy(pairs + g / 16, &word, 4);
  }
}

inline void w4_open(const uint8_t* packed, int64_t groups, uint8_t* open) {
  const __m256i low = _mm256_set1_epi8(15);
  for (int64_t g = 0; g < groups; ++g, packed += kW4Group, open += kW4OpenGroup) {
    for (int s = 0; s < 8; ++s) {
      __m256i two = bytes_at(packed + 32 + 32 * s);
      put_bytes(open + 64 * s, _mm256_and_si256(two, low));
      put_bytes(open + 64 * s + 32, _mm256_and_si256(_mm256_srli_epi16(two, 4), low));
    }
    float* scales = reinterpret_cast<float*>(open + 512);
    store(scales, load_bf16(reinterpret_cast<const uint16_t*>(packed)));
    store(scales + 8, load_bf16(reinterpret_cast<const uint16_t*>(packed) + 8));
  }
}

template <int T>
MN_TILE void w4_tile(const uint8_t* open, int64_t groups, const TileRows& rows, float* acc) {
  const __m256i ones = _mm256_set1_epi16(1);
  const int8_t* x = rows.q;
  const int64_t stride = rows.q_stride;
  alignas(32) float part[16 * T] = {};
  for (int64_t g = 0; g < groups; ++g, open += kW4OpenGroup, x += 32) {
    __m256i sum[T][2];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) sum[t][0] = sum[t][1] = broadcast4(rows.pairs + t * rows.pair_stride + 2 * g);
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      __m256i w0 = bytes_at(open + 64 * s), w1 = bytes_at(open + 64 * s + 32);
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        __m256i v = broadcast4(x + t * stride + 4 * s);
        sum[t][0] = _mm256_add_epi16(sum[t][0], _mm256_maddubs_epi16(w0, v));
        sum[t][1] = _mm256_add_epi16(sum[t][1], _mm256_maddubs_epi16(w1, v));
        pin(sum[t][0]);
        pin(sum[t][1]);
      }
    }
    const float* scales = reinterpret_cast<const float*>(open + 512);
    const bool last = g % 4 == 3 || g + 1 == groups;
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) {
        float* p = part + 16 * t + 8 * h;
        store(p,
              fma(vf{_mm256_cvtepi32_ps(_mm256_madd_epi16(sum[t][h], ones))}, load(scales + 8 * h), load(p)));
      }
    if (last) {
#pragma GCC unroll 8
      for (int t = 0; t < T; ++t) {
        vf xs = set1(rows.scales[t * rows.scale_stride + g / 4]);
        for (int h = 0; h < 2; ++h) {
          float* p = part + 16 * t + 8 * h;
          float* a = acc + 16 * t + 8 * h;
          store(a, fma(load(p), xs, load(a)));
          store(p, zero());
        }
      }
    }
  }
}

template <int T>
MN_TILE void w4_direct(const uint8_t* packed, int64_t groups, const TileRows& rows, float* acc) {
  const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);
  vf total[T][2];
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h) total[t][h] = load(acc + 16 * t + 8 * h);
  for (int64_t g0 = 0; g0 < groups; g0 += 4) {
    int64_t end = groups < g0 + 4 ? groups : g0 + 4;
    vf part[T][2];
    for (int t = 0; t < T; ++t) part[t][0] = part[t][1] = zero();
    for (int64_t g = g0; g < end; ++g, packed += kW4Group) {
      const int8_t* x = rows.q + 32 * g;
      fetch_ahead(rows.stream, packed, kW4Group);
      __m256i sum[T][2];
      for (int t = 0; t < T; ++t)
        sum[t][0] = sum[t][1] = broadcast4(rows.pairs + t * rows.pair_stride + 2 * g);
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s) {
        __m256i two = bytes_at(packed + 32 + 32 * s);
        __m256i w0 = _mm256_and_si256(two, low), w1 = _mm256_and_si256(_mm256_srli_epi16(two, 4), low);
        for (int t = 0; t < T; ++t) {
          __m256i v = broadcast4(x + t * rows.q_stride + 4 * s);
          sum[t][0] = _mm256_add_epi16(sum[t][0], _mm256_maddubs_epi16(w0, v));
          sum[t][1] = _mm256_add_epi16(sum[t][1], _mm256_maddubs_epi16(w1, v));
          pin(sum[t][0]);
          pin(sum[t][1]);
        }
      }
      for (int h = 0; h < 2; ++h) {
        vf scale = load_bf16(reinterpret_cast<const uint16_t*>(packed) + 8 * h);
        for (int t = 0; t < T; ++t) {
          vf v{_mm256_cvtepi32_ps(_mm256_madd_epi16(sum[t][h], ones))};
          part[t][h] = fma(v, scale, part[t][h]);
        }
      }
    }
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h)
        total[t][h] = fma(part[t][h], set1(rows.scales[t * rows.scale_stride + g0 / 4]), total[t][h]);
  }
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h) store(acc + 16 * t + 8 * h, total[t][h]);
}

// A block of 128 inputs: 16 starts, then for every four inputs |w| and the masks of 16 rows.
inline void w8_open(const int8_t* packed, int64_t groups, uint8_t* open) {
  const __m256i zeros = _mm256_setzero_si256(), ones8 = _mm256_set1_epi8(1), ones16 = _mm256_set1_epi16(1);
  for (int64_t g0 = 0; g0 < groups; g0 += 4, open += 4 * kW8OpenGroup) {
    const int64_t steps = 8 * (groups < g0 + 4 ? groups - g0 : 4);
    __m256i start[2] = {zeros, zeros};
    for (int64_t s = 0; s < steps; ++s, packed += 64)
      for (int h = 0; h < 2; ++h) {
        __m256i w = bytes_at(packed + 32 * h);
        __m256i size = _mm256_abs_epi8(w), mask = _mm256_cmpgt_epi8(zeros, w);
        put_bytes(open + 64 + 128 * s + 32 * h, size);
        put_bytes(open + 128 + 128 * s + 32 * h, mask);
        __m256i negative = _mm256_maddubs_epi16(_mm256_and_si256(size, mask), ones8);
        start[h] = _mm256_add_epi32(start[h], _mm256_madd_epi16(negative, ones16));
      }
    put_bytes(open, start[0]);
    put_bytes(open + 32, start[1]);
  }
}

template <int T>
MN_TILE void w8_tile(const uint8_t* open, int64_t groups, const TileRows& rows, const float* row_scales,
                     float* acc) {
  const __m256i ones = _mm256_set1_epi16(1);
  const int64_t stride = rows.q_stride;
  for (int64_t g0 = 0; g0 < groups; g0 += 4, open += 4 * kW8OpenGroup) {
    const int8_t* x = rows.q + 32 * g0;
    const int8_t* end = x + 32 * (groups < g0 + 4 ? groups - g0 : 4);
    __m256i sum[T][2];
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) sum[t][h] = bytes_at(open + 32 * h);
    for (const uint8_t* block = open + 64; x < end; x += 16, block += 512) {
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
        const uint8_t* w = block + 128 * s;
        __m256i w0 = bytes_at(w), w1 = bytes_at(w + 32);
#pragma GCC unroll 8
        for (int t = 0; t < T; ++t) {
          asm("" : "+r"(block));  // masks stay memory operands: in registers they crowd out the sums
          const uint8_t* mask = block + 128 * s + 64;
          __m256i v = broadcast4(x + t * stride + 4 * s);
          __m256i v0 = _mm256_maddubs_epi16(w0, _mm256_xor_si256(v, bytes_at(mask)));
          __m256i v1 = _mm256_maddubs_epi16(w1, _mm256_xor_si256(v, bytes_at(mask + 32)));
          sum[t][0] = _mm256_add_epi32(sum[t][0], _mm256_madd_epi16(v0, ones));
          sum[t][1] = _mm256_add_epi32(sum[t][1], _mm256_madd_epi16(v1, ones));
          pin(sum[t][0]);
          pin(sum[t][1]);
        }
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      vf xs = set1(rows.scales[t * rows.scale_stride + g0 / 4]);
      for (int h = 0; h < 2; ++h) {
        float* p = acc + 16 * t + 8 * h;
        store(p, fma(vf{_mm256_cvtepi32_ps(sum[t][h])}, xs, load(p)));
      }
    }
  }
  if (row_scales)
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h) {
        float* p = acc + 16 * t + 8 * h;
        store(p, load(p) * load(row_scales + 8 * h));
      }
}

template <int T>
MN_TILE void w8_direct(const int8_t* packed, int64_t groups, const TileRows& rows, const float* row_scales,
                       float* acc) {
  const __m256i ones = _mm256_set1_epi16(1);
  vf total[T][2];
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h) total[t][h] = load(acc + 16 * t + 8 * h);
  for (int64_t g0 = 0; g0 < groups; g0 += 4) {
    int64_t end = groups < g0 + 4 ? groups : g0 + 4;
    __m256i sum[T][2];
    for (int t = 0; t < T; ++t) sum[t][0] = sum[t][1] = _mm256_setzero_si256();
    for (int64_t g = g0; g < end; ++g) {
      const int8_t* x = rows.q + 32 * g;
      fetch_ahead(rows.stream, packed, kW8Group);
#pragma GCC unroll 8
      for (int s = 0; s < 8; ++s, packed += 64) {
        __m256i w0 = bytes_at(packed), w1 = bytes_at(packed + 32);
        __m256i u0 = _mm256_abs_epi8(w0), u1 = _mm256_abs_epi8(w1);
        for (int t = 0; t < T; ++t) {
          __m256i v = broadcast4(x + t * rows.q_stride + 4 * s);
          __m256i v0 = _mm256_maddubs_epi16(u0, _mm256_sign_epi8(v, w0));
          __m256i v1 = _mm256_maddubs_epi16(u1, _mm256_sign_epi8(v, w1));
          sum[t][0] = _mm256_add_epi32(sum[t][0], _mm256_madd_epi16(v0, ones));
          sum[t][1] = _mm256_add_epi32(sum[t][1], _mm256_madd_epi16(v1, ones));
          pin(sum[t][0]);
          pin(sum[t][1]);
        }
      }
    }
    for (int t = 0; t < T; ++t)
      for (int h = 0; h < 2; ++h)
        total[t][h] = fma(vf{_mm256_cvtepi32_ps(sum[t][h])},
                          set1(rows.scales[t * rows.scale_stride + g0 / 4]), total[t][h]);
  }
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h) {
      if (row_scales) total[t][h] = total[t][h] * load(row_scales + 8 * h);
      store(acc + 16 * t + 8 * h, total[t][h]);
    }
}

}  // namespace MN_ISA
}  // namespace mn
