// One row of a cache to floats and back. Widths are multiples of 8.
#pragma once
#include <cfloat>
#include <cstring>
#include <limits>

#include "kernels/mla.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {

template <Format F>
vf load_as(const void* base, int64_t i) {
  if constexpr (F == Format::fp32) return load(static_cast<const float*>(base) + i);
  if constexpr (F == Format::bf16) return load_bf16(static_cast<const uint16_t*>(base) + i);
  if constexpr (F == Format::fp16) return load_f16(static_cast<const uint16_t*>(base) + i);
  if constexpr (F == Format::int8) return load_i8(static_cast<const int8_t*>(base) + i);
}

// Calls body with the format as a compile-time constant.
template <class Body>
void with_format(Format f, Body&& body) {
  switch (f) {
    case Format::fp32:
      return body(std::integral_constant<Format, Format::fp32>());
    case Format::bf16:
      return body(std::integral_constant<Format, Format::bf16>());
    case Format::fp16:
      return body(std::integral_constant<Format, Format::fp16>());
    case Format::int8:
      return body(std::integral_constant<Format, Format::int8>());
  }
}

inline const void* at(const void* base, Format f, int64_t i) {
  return static_cast<const char*>(base) + i * format_bytes(f);
}
inline void* at(void* base, Format f, int64_t i) {
  return static_cast<char*>(base) + i * format_bytes(f);
}

inline void to_float(Format f, const void* src, int64_t n, float* dst) {
  with_format(f, [&](auto format) {
    for (int64_t i = 0; i < n; i += 8) store(dst + i, load_as<decltype(format)::value>(src, i));
  });
}

inline void from_float(Format f, const float* src, int64_t n, void* dst) {  // not int8
  if (f == Format::fp32) std::memcpy(dst, src, static_cast<size_t>(n) * 4);
  uint16_t* half = static_cast<uint16_t*>(dst);
  if (f == Format::bf16)
    for (int64_t i = 0; i < n; i += 8) store_bf16(half + i, load(src + i));
  if (f == Format::fp16)
    for (int64_t i = 0; i < n; i += 8) store_f16(half + i, load(src + i));
}

// q = x / scale to nearest even with scale = max|x| / 127, which is returned. Zero rows, and such whose scale
// would be subnormal, give scale 0; an infinity or NaN gives scale NaN.
inline float quantize_row(const float* x, int64_t n, int8_t* q) {
  vf top = zero(), bad = zero();
  for (int64_t i = 0; i < n; i += 8) {
    vf v = load(x + i);
    top = max(top, abs(v));
    bad = fma(v, zero(), bad);
  }
  float scale = maximum(top) / 127.0f, wrong = sum(bad);
  if (wrong != 0.0f || scale < FLT_MIN) {  // 0 * inf and 0 * NaN are NaN, which differs from everything
    std::memset(q, 0, static_cast<size_t>(n));
    return wrong != 0.0f ? std::numeric_limits<float>::quiet_NaN() : 0.0f;
  }
  vf divisor = set1(scale);
  for (int64_t i = 0; i < n; i += 8) store_i8(q + i, round(load(x + i) / divisor));
  return scale;
}

// A latent row of int8 times its group scales.
inline void dequantize_latent(const int8_t* q, const float* scales, int64_t rank, float* x) {
  for (int64_t i = 0; i < rank; i += 8) store(x + i, load_i8(q + i) * set1(scales[i / 128]));
}

}  // namespace MN_ISA
}  // namespace mn
