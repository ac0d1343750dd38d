// Plain C++: the path that is always there and the meaning of every operation in avx2.hpp.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace mn {
namespace MN_ISA {

struct vf {  // eight floats
  static constexpr int width = 8;
  float v[8];
};

#define MN_EACH for (int i = 0; i < 8; ++i)
inline vf load(const float* p) {
  vf r;
  std::memcpy(r.v, p, 32);
  return r;
}
inline void store(float* p, vf a) {
  std::memcpy(p, a.v, 32);
}
inline vf load_partial(const float* p, int n) {  // lanes from n on are zero
  vf r;
  MN_EACH r.v[i] = i < n ? p[i] : 0.0f;
  return r;
}
inline void store_partial(float* p, vf a, int n) {
  MN_EACH if (i < n) p[i] = a.v[i];
}
inline vf set1(float x) {
  vf r;
  MN_EACH r.v[i] = x;
  return r;
}
inline vf zero() {
  return set1(0.0f);
}
inline vf operator+(vf a, vf b) {
  MN_EACH a.v[i] += b.v[i];
  return a;
}
inline vf operator-(vf a, vf b) {
  MN_EACH a.v[i] -= b.v[i];
  return a;
}
inline vf operator*(vf a, vf b) {
  MN_EACH a.v[i] *= b.v[i];
  return a;
}
inline vf operator/(vf a, vf b) {
  MN_EACH a.v[i] /= b.v[i];
  return a;
}
inline vf fma(vf a, vf b, vf c) {  // a * b + c, rounded once or twice
  MN_EACH c.v[i] += a.v[i] * b.v[i];
  return c;
}
inline vf fma(float a, vf b, vf c) {
  return fma(set1(a), b, c);
}
inline vf max(vf a, vf b) {
  MN_EACH a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline vf min(vf a, vf b) {
  MN_EACH a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
inline vf abs(vf a) {
  MN_EACH a.v[i] = std::fabs(a.v[i]);
  return a;
}
inline vf round(vf a) {  // to nearest, ties to even
  MN_EACH a.v[i] = std::nearbyintf(a.v[i]);
  return a;
}
inline vf sqrt(vf a) {
  MN_EACH a.v[i] = std::sqrt(a.v[i]);
  return a;
}
inline vf scale2(vf a, vf n) {  // a * 2^n for integral n in [-126, 127]
  MN_EACH {
    int32_t bits = (static_cast<int32_t>(n.v[i]) + 127) << 23;
    float f;
    std::memcpy(&f, &bits, 4);
    a.v[i] *= f;
  }
  return a;
}
inline vf scale2_shifted(vf a, vf t) {  // a * 2^n for t = n + 1.5 * 2^23, n in [-126, 127]
  MN_EACH {
    uint32_t bits;
    std::memcpy(&bits, &t.v[i], 4);
    bits = (bits + 127) << 23;
    float f;
    std::memcpy(&f, &bits, 4);
    a.v[i] *= f;
  }
  return a;
}
// Horizontal sum and maximum, in the order of the AVX2 reduction so that both sets agree to the bit.
inline float sum(vf a) {
  float q[4];
  for (int i = 0; i < 4; ++i) q[i] = a.v[i] + a.v[i + 4];
  return (q[0] + q[2]) + (q[1] + q[3]);
}
inline float maximum(vf a) {
  float m = a.v[0];
  MN_EACH m = a.v[i] > m ? a.v[i] : m;
  return m;
}
inline vf load_bf16(const uint16_t* p) {
  vf r;
  MN_EACH {
    uint32_t bits = static_cast<uint32_t>(p[i]) << 16;
    std::memcpy(&r.v[i], &bits, 4);
  }
  return r;
}
inline uint16_t to_bf16(float x) {  // round to nearest even, NaN stays NaN
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float from_f16(uint16_t h) {
  uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, e = h >> 10 & 31, m = h & 1023u;
  float f;
  uint32_t bits;
  if (e == 0) {
    f = static_cast<float>(m) * 5.9604644775390625e-8f;  // 2^-24
    std::memcpy(&bits, &f, 4);
    bits |= sign;
  } else {
    bits = sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
  }
  std::memcpy(&f, &bits, 4);
  return f;
}
inline uint16_t to_f16(float x) {  // round to nearest even, overflow to infinity
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000u);
  bits &= 0x7fffffffu;
  if (bits > 0x7f800000u) return sign | 0x7e00u;
  if (bits >= 0x477ff000u) return sign | 0x7c00u;
  if (bits < 0x38800000u) {  // below 2^-14: the half is subnormal
    float a;
    std::memcpy(&a, &bits, 4);
    return sign | static_cast<uint16_t>(std::nearbyintf(a * 16777216.0f));
  }
  bits += 0xfffu + (bits >> 13 & 1);
  return sign | static_cast<uint16_t>((bits >> 13) - (112u << 10));
}
inline vf load_f16(const uint16_t* p) {
  vf r;
  MN_EACH r.v[i] = from_f16(p[i]);
  return r;
}
inline void store_bf16(uint16_t* p, vf a) {
  MN_EACH p[i] = to_bf16(a.v[i]);
}
inline void store_f16(uint16_t* p, vf a) {
  MN_EACH p[i] = to_f16(a.v[i]);
}
inline vf load_i8(const int8_t* p) {
  vf r;
  MN_EACH r.v[i] = static_cast<float>(p[i]);
  return r;
}
inline void store_i8(int8_t* p, vf a) {  // a holds integers in [-128, 127]
  MN_EACH p[i] = static_cast<int8_t>(a.v[i]);
}
inline void prefetch(const void*) {}
#undef MN_EACH

}  // namespace MN_ISA
}  // namespace mn
