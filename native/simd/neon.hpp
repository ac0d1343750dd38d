// NEON, as every AArch64 processor has it. See generic.hpp for the meaning of each operation.
#pragma once
#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace mn {
namespace MN_ISA {

struct vf {
  static constexpr int width = 8;
  float32x4_t a, b;  // lanes 0..3 and 4..7
};

inline vf load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4)};
}
inline void store(float* p, vf x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
}
inline float32x4_t load_quad(const float* p, int n) {
  if (n >= 4) return vld1q_f32(p);
  float32x4_t r = vdupq_n_f32(0.0f);
  if (n == 1) return vld1q_lane_f32(p, r, 0);
  if (n >= 2) r = vcombine_f32(vld1_f32(p), vget_high_f32(r));
  if (n == 3) r = vld1q_lane_f32(p + 2, r, 2);
  return r;
}
inline void store_quad(float* p, float32x4_t x, int n) {
  if (n >= 4) return vst1q_f32(p, x);
  if (n == 1) return vst1q_lane_f32(p, x, 0);
  if (n >= 2) vst1_f32(p, vget_low_f32(x));
  if (n == 3) vst1q_lane_f32(p + 2, x, 2);
}
inline vf load_partial(const float* p, int n) {
  return {load_quad(p, n), n > 4 ? load_quad(p + 4, n - 4) : vdupq_n_f32(0.0f)};
}
inline void store_partial(float* p, vf x, int n) {
  store_quad(p, x.a, n);
  if (n > 4) store_quad(p + 4, x.b, n - 4);
}
inline vf set1(float x) {
  return {vdupq_n_f32(x), vdupq_n_f32(x)};
}
inline vf zero() {
  return set1(0.0f);
}
inline vf operator+(vf x, vf y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)};
}
inline vf operator-(vf x, vf y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)};
}
inline vf operator*(vf x, vf y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)};
}
inline vf operator/(vf x, vf y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b)};
}
inline vf fma(vf x, vf y, vf z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
}
// In this order: GCC 12 would otherwise fetch the x of all rows of a tile first, out of registers.
inline vf fma(float x, vf y, vf z) {
  asm volatile("fmla %0.4s, %1.4s, %2.s[0]" : "+w"(z.a) : "w"(y.a), "w"(x));
  asm volatile("fmla %0.4s, %1.4s, %2.s[0]" : "+w"(z.b) : "w"(y.b), "w"(x));
  return z;
}
// Not FMAX and FMIN, which return NaN where either operand is one: the second operand has to come out.
inline vf max(vf x, vf y) {
  return {vbslq_f32(vcgtq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcgtq_f32(x.b, y.b), x.b, y.b)};
}
inline vf min(vf x, vf y) {
  return {vbslq_f32(vcltq_f32(x.a, y.a), x.a, y.a), vbslq_f32(vcltq_f32(x.b, y.b), x.b, y.b)};
}
inline vf abs(vf x) {
  return {vabsq_f32(x.a), vabsq_f32(x.b)};
}
inline vf round(vf x) {
  return {vrndnq_f32(x.a), vrndnq_f32(x.b)};
}
inline vf sqrt(vf x) {
  return {vsqrtq_f32(x.a), vsqrtq_f32(x.b)};
}
inline float32x4_t power_of_2(int32x4_t n) {
  return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(n, vdupq_n_s32(127)), 23));
}
inline vf scale2(vf x, vf n) {
  return {vmulq_f32(x.a, power_of_2(vcvtq_s32_f32(n.a))), vmulq_f32(x.b, power_of_2(vcvtq_s32_f32(n.b)))};
}
inline vf scale2_shifted(vf x, vf t) {
  return {vmulq_f32(x.a, power_of_2(vreinterpretq_s32_f32(t.a))),
          vmulq_f32(x.b, power_of_2(vreinterpretq_s32_f32(t.b)))};
}
inline float sum(vf x) {
  float32x4_t q = vaddq_f32(x.a, x.b);
  return vpadds_f32(vadd_f32(vget_low_f32(q), vget_high_f32(q)));
}
inline float maximum(vf x) {
  return vmaxvq_f32(vmaxq_f32(x.a, x.b));
}
inline vf load_bf16(const uint16_t* p) {
  const uint16x8_t h = vld1q_u16(p), none = vdupq_n_u16(0);
  return {vreinterpretq_f32_u16(vzip1q_u16(none, h)), vreinterpretq_f32_u16(vzip2q_u16(none, h))};
}
inline uint16_t to_bf16(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
inline float from_f16(uint16_t h) {
  return vgetq_lane_f32(vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(h))), 0);
}
inline uint16_t to_f16(float x) {
  return vget_lane_u16(vreinterpret_u16_f16(vcvt_f16_f32(vdupq_n_f32(x))), 0);
}
inline vf load_f16(const uint16_t* p) {
  const float16x8_t h = vreinterpretq_f16_u16(vld1q_u16(p));
  return {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
inline uint32x4_t rounded_bf16(float32x4_t x) {  // in the upper halves
  const uint32x4_t bits = vreinterpretq_u32_f32(x), quiet = vorrq_u32(bits, vdupq_n_u32(0x400000));
  const uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  return vbslq_u32(vceqq_f32(x, x), vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7fff)), odd), quiet);
}
inline void store_bf16(uint16_t* p, vf x) {
  vst1q_u16(p,
            vuzp2q_u16(vreinterpretq_u16_u32(rounded_bf16(x.a)), vreinterpretq_u16_u32(rounded_bf16(x.b))));
}
inline void store_f16(uint16_t* p, vf x) {
  vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.a), x.b)));
}
inline vf load_i8(const int8_t* p) {
  const int16x8_t w = vmovl_s8(vld1_s8(p));
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(w))), vcvtq_f32_s32(vmovl_high_s16(w))};
}
inline int16x8_t to_int16(vf x) {  // to nearest even
  return vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(x.a)), vcvtnq_s32_f32(x.b));
}
inline void store_i8(int8_t* p, vf x) {
  vst1_s8(p, vqmovn_s16(to_int16(x)));
}
inline void prefetch(const void* p) {
  __builtin_prefetch(p);
}

}  // namespace MN_ISA
}  // namespace mn
