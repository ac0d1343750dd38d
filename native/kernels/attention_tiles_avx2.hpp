// AVX2 tiles. attention_tiles.hpp says what each function computes.
//
// vpmaddubsw wants one unsigned operand. P is: pair sums reach 2 * 127 * 127 = 32,258. Keys and queries are
// both signed: lanes are opened to |a| and the mask m = -1 where a < 0, and x ^ m = -x - 1 there. That is off
// by |a| for every negative a, a constant of the lane that the sums start with. Pair sums: 2 * 127 * 128 =
// 32,512.
#pragma once
#include <cstring>

namespace mn {
namespace MN_ISA {

inline __m256i lanes_at(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
inline __m256i broadcast_quad(const void* p) {
  int32_t word;
  std::memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}

// sum + a . b. The addition is spelled out because GCC 12 otherwise gives each sum a second register, which
// costs moves in the loop or, worse, sums in memory.
inline __m256i add_products(__m256i sum, __m256i a, __m256i b) {
  __m256i products = _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), _mm256_set1_epi16(1));
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
  return sum;
}

inline void open_lanes(const int8_t* lanes, int64_t quads, uint8_t* open, int32_t* start) {
  const __m256i ones = _mm256_set1_epi16(1), byte_ones = _mm256_set1_epi8(1);
  for (int half = 0; half < 2; ++half) {
    __m256i sum = _mm256_setzero_si256();
    for (int64_t i = 0; i < quads; ++i) {
      __m256i a = lanes_at(lanes + i * 64 + 32 * half);
      __m256i magnitude = _mm256_abs_epi8(a), mask = _mm256_cmpgt_epi8(_mm256_setzero_si256(), a);
      __m256i* out = reinterpret_cast<__m256i*>(open + i * kOpenQuad + 32 * half);
      _mm256_storeu_si256(out, magnitude);
      _mm256_storeu_si256(out + 2, mask);
      __m256i pairs = _mm256_maddubs_epi16(_mm256_and_si256(magnitude, mask), byte_ones);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(start + 8 * half), sum);
  }
}

template <int R, class Done>
inline void signed_tile(const uint8_t* open, const int32_t* start, int64_t quads, const int8_t* x,
                        int64_t stride, Done&& done) {
  __m256i sums[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    sums[r][0] = lanes_at(start);
    sums[r][1] = lanes_at(start + 8);
  }
  for (int64_t i = 0; i < quads; ++i) {
    const __m256i a0 = lanes_at(open), a1 = lanes_at(open + 32);
    const __m256i m0 = lanes_at(open + 64), m1 = lanes_at(open + 96);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256i b = broadcast_quad(x + r * stride);
      sums[r][0] = add_products(sums[r][0], a0, _mm256_xor_si256(b, m0));
      sums[r][1] = add_products(sums[r][1], a1, _mm256_xor_si256(b, m1));
    }
    open += kOpenQuad;
    x += 4;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    done(r, 0, vf{_mm256_cvtepi32_ps(sums[r][0])});
    done(r, 1, vf{_mm256_cvtepi32_ps(sums[r][1])});
  }
}

template <int R, class Done>
inline void unsigned_tile(const uint8_t* p, int64_t stride, int64_t step, const int8_t* lanes, int64_t quads,
                          Done&& done) {
  __m256i sums[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = _mm256_setzero_si256();
  for (int64_t i = 0; i < quads; ++i) {
    const __m256i a0 = lanes_at(lanes), a1 = lanes_at(lanes + 32);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const __m256i b = broadcast_quad(p + r * stride);
      sums[r][0] = add_products(sums[r][0], b, a0);
      sums[r][1] = add_products(sums[r][1], b, a1);
    }
    p += step;
    lanes += 64;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    done(r, 0, vf{_mm256_cvtepi32_ps(sums[r][0])});
    done(r, 1, vf{_mm256_cvtepi32_ps(sums[r][1])});
  }
}

inline void interleave(const int8_t* const rows[4], int8_t* out) {
  __m128i r[4];
  for (int j = 0; j < 4; ++j) r[j] = _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[j]));
  __m128i ab0 = _mm_unpacklo_epi8(r[0], r[1]), ab1 = _mm_unpackhi_epi8(r[0], r[1]);
  __m128i cd0 = _mm_unpacklo_epi8(r[2], r[3]), cd1 = _mm_unpackhi_epi8(r[2], r[3]);
  __m128i* to = reinterpret_cast<__m128i*>(out);
  _mm_storeu_si128(to, _mm_unpacklo_epi16(ab0, cd0));
  _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(ab0, cd0));
  _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(ab1, cd1));
  _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(ab1, cd1));
}

inline void quantize_unsigned(const float* w, int64_t n, float inverse, uint8_t* p) {
  const __m256 factor = _mm256_set1_ps(inverse);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);  // undoes the lanes of two packs
  auto eight = [&](int64_t i) { return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(w + i), factor)); };
  int64_t i = 0;
  for (; i + 32 <= n; i += 32) {
    __m256i a = _mm256_packs_epi32(eight(i), eight(i + 8)),
            b = _mm256_packs_epi32(eight(i + 16), eight(i + 24));
    __m256i bytes = _mm256_permutevar8x32_epi32(_mm256_packus_epi16(a, b), order);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + i), bytes);
  }
  for (; i < n; i += 8) {
    __m256i e = eight(i);
    __m128i s = _mm_packs_epi32(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p + i), _mm_packus_epi16(s, s));
  }
}

inline void quantize_quad(const float* p, const float* scales, const float* inverse, uint8_t* out) {
  for (int half = 0; half < 2; ++half) {
    const __m256 factor = _mm256_loadu_ps(inverse + 8 * half);
    auto key = [&](int j) {
      __m256 w = _mm256_mul_ps(_mm256_loadu_ps(p + 16 * j + 8 * half), _mm256_set1_ps(scales[j]));
      return _mm256_cvtps_epi32(_mm256_mul_ps(w, factor));
    };
    __m256i low = _mm256_or_si256(key(0), _mm256_slli_epi32(key(1), 8));
    __m256i high = _mm256_or_si256(_mm256_slli_epi32(key(2), 16), _mm256_slli_epi32(key(3), 24));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32 * half), _mm256_or_si256(low, high));
  }
}

}  // namespace MN_ISA
}  // namespace mn
