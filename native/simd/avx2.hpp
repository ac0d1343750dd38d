// AVX2 + FMA + F16C. See generic.hpp for the meaning of each operation.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace mn {
namespace MN_ISA {

struct vf {
  static constexpr int width = 8;
  __m256 v;
};

inline vf load(const float* p) {
  return {_mm256_loadu_ps(p)};
}
inline void store(float* p, vf a) {
  _mm256_storeu_ps(p, a.v);
}
inline __m256i lanes_below(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
inline vf load_partial(const float* p, int n) {
  if (n >= 8) return load(p);
  return {_mm256_maskload_ps(p, lanes_below(n))};
}
inline void store_partial(float* p, vf a, int n) {
  if (n >= 8) return store(p, a);  // a masked store takes dozens of cycles on Zen
  _mm256_maskstore_ps(p, lanes_below(n), a.v);
}
inline vf set1(float x) {
  return {_mm256_set1_ps(x)};
}
inline vf zero() {
  return {_mm256_setzero_ps()};
}
inline vf operator+(vf a, vf b) {
  return {_mm256_add_ps(a.v, b.v)};
}
inline vf operator-(vf a, vf b) {
  return {_mm256_sub_ps(a.v, b.v)};
}
inline vf operator*(vf a, vf b) {
  return {_mm256_mul_ps(a.v, b.v)};
}
inline vf operator/(vf a, vf b) {
  return {_mm256_div_ps(a.v, b.v)};
}
inline vf fma(vf a, vf b, vf c) {
  return {_mm256_fmadd_ps(a.v, b.v, c.v)};
}
inline vf fma(float a, vf b, vf c) {
  return fma(set1(a), b, c);
}
inline vf max(vf a, vf b) {
  return {_mm256_max_ps(a.v, b.v)};
}
inline vf min(vf a, vf b) {
  return {_mm256_min_ps(a.v, b.v)};
}
inline vf abs(vf a) {
  return {_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a.v)};
}
inline vf round(vf a) {
  return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
inline vf sqrt(vf a) {
  return {_mm256_sqrt_ps(a.v)};
}
inline vf scale2(vf a, vf n) {
  __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23);
  return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(e))};
}
inline vf scale2_shifted(vf a, vf t) {
  __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_castps_si256(t.v), _mm256_set1_epi32(127)), 23);
  return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(e))};
}
inline float sum(vf a) {
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
inline float maximum(vf a) {
  __m128 q = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  q = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
inline vf load_bf16(const uint16_t* p) {
  __m256i w = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(w, 16))};
}
inline uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float from_f16(uint16_t h) {
  return _cvtsh_ss(h);
}
inline uint16_t to_f16(float x) {
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}
inline vf load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
inline void store_bf16(uint16_t* p, vf a) {
  __m256i bits = _mm256_castps_si256(a.v);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  __m256i quiet = _mm256_or_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(0x40));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
  __m256i r = _mm256_blendv_epi8(rounded, quiet, nan);
  __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), packed);
}
inline void store_f16(uint16_t* p, vf a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}
inline vf load_i8(const int8_t* p) {
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
}
inline void store_i8(int8_t* p, vf a) {
  __m256i i = _mm256_cvtps_epi32(a.v);
  __m128i w = _mm_packs_epi32(_mm256_castsi256_si128(i), _mm256_extracti128_si256(i, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(w, w));
}
inline void prefetch(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

}  // namespace MN_ISA
}  // namespace mn
