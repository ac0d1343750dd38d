// Plain C++ tiles: the path that is always there. linear_tiles.hpp says what each function computes.
#pragma once
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {

constexpr int64_t kW8OpenGroup = kW8Group;

inline void prefetch_l2(const void*) {}

inline void transpose8(vf* v) {
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < i; ++j) std::swap(v[i].v[j], v[j].v[i]);
}

inline void quantize_group(const float* x, int n, int padded, int8_t* q, float* scale, int16_t* pairs) {
  uint32_t top = 0;  // compared as bits, so that an infinity or NaN wins
  for (int i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, 4);
    bits &= 0x7fffffffu;
    top = bits > top ? bits : top;
  }
  float largest;
  std::memcpy(&largest, &top, 4);
  float s = largest / 127.0f;
  bool usable = top < 0x7f800000u && s >= FLT_MIN;
  *scale = usable ? s : top < 0x7f800000u ? 0.0f : std::numeric_limits<float>::quiet_NaN();
  for (int i = 0; i < padded; ++i)
    q[i] = usable && i < n ? static_cast<int8_t>(std::nearbyintf(x[i] / s)) : int8_t{0};
  for (int g = 0; g < padded; g += 32) {
    int sum[2] = {0, 0};
    for (int i = 0; i < 32; ++i) sum[i % 4 / 2] += q[g + i];
    pairs[g / 16] = static_cast<int16_t>(-8 * sum[0]);
    pairs[g / 16 + 1] = static_cast<int16_t>(-8 * sum[1]);
  }
}

inline void w4_open(const uint8_t* packed, int64_t groups, uint8_t* open) {
  for (int64_t g = 0; g < groups; ++g, packed += kW4Group, open += kW4OpenGroup) {
    for (int s = 0; s < 8; ++s)
      for (int i = 0; i < 32; ++i) {
        uint8_t two = packed[32 + 32 * s + i];
        open[64 * s + i] = two & 15;
        open[64 * s + 32 + i] = two >> 4;
      }
    float* scales = reinterpret_cast<float*>(open + 512);
    store(scales, load_bf16(reinterpret_cast<const uint16_t*>(packed)));
    store(scales + 8, load_bf16(reinterpret_cast<const uint16_t*>(packed) + 8));
  }
}

// bytes: 8 steps of 16 rows x 4 inputs. Unsigned bytes hold w + 8; the pairs put the 8 right.
inline void w4_group(const uint8_t* bytes, const int8_t* x, const int16_t* pairs, int32_t* sums) {
  for (int r = 0; r < 16; ++r) sums[r] = pairs[0] + pairs[1];
  for (int s = 0; s < 8; ++s)
    for (int r = 0; r < 16; ++r)
      for (int i = 0; i < 4; ++i) sums[r] += bytes[64 * s + 4 * r + i] * x[4 * s + i];
}

template <int T>
MN_TILE void w4_tile(const uint8_t* open, int64_t groups, const TileRows& rows, float* acc) {
  for (int t = 0; t < T; ++t) {
    const int8_t* x = rows.q + t * rows.q_stride;
    const int16_t* pairs = rows.pairs + t * rows.pair_stride;
    const float* xs = rows.scales + t * rows.scale_stride;
    float part[16] = {};
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* bytes = open + g * kW4OpenGroup;
      float scales[16];
      std::memcpy(scales, bytes + 512, 64);
      int32_t sums[16];
      w4_group(bytes, x + 32 * g, pairs + 2 * g, sums);
      bool first = g % 4 == 0, last = g % 4 == 3 || g + 1 == groups;
      for (int r = 0; r < 16; ++r) {
        float v = static_cast<float>(sums[r]) * scales[r];
        part[r] = first ? v : part[r] + v;
        if (last) acc[16 * t + r] += part[r] * xs[g / 4];
      }
    }
  }
}

template <int T>
MN_TILE void w4_direct(const uint8_t* packed, int64_t groups, const TileRows& rows, float* acc) {
  uint8_t open[4 * kW4OpenGroup];
  for (int64_t g = 0; g < groups; g += 4) {
    int64_t n = groups - g < 4 ? groups - g : 4;
    w4_open(packed + g * kW4Group, n, open);
    TileRows part = rows;
    part.q += 32 * g;
    part.pairs += 2 * g;
    part.scales += g / 4;
    w4_tile<T>(open, n, part, acc);
  }
}

inline void w8_open(const int8_t* packed, int64_t groups, uint8_t* open) {
  std::memcpy(open, packed, static_cast<size_t>(groups * kW8Group));
}

template <int T>
MN_TILE void w8_direct(const int8_t* packed, int64_t groups, const TileRows& rows, const float* row_scales,
                       float* acc) {
  for (int t = 0; t < T; ++t) {
    const int8_t* x = rows.q + t * rows.q_stride;
    const float* xs = rows.scales + t * rows.scale_stride;
    int32_t sums[16];
    for (int64_t s = 0; s < 8 * groups; ++s) {
      if (s % 32 == 0) std::memset(sums, 0, sizeof sums);
      for (int r = 0; r < 16; ++r)
        for (int i = 0; i < 4; ++i) sums[r] += packed[64 * s + 4 * r + i] * x[4 * s + i];
      if (s % 32 == 31 || s + 1 == 8 * groups)
        for (int r = 0; r < 16; ++r) acc[16 * t + r] += static_cast<float>(sums[r]) * xs[s / 32];
    }
    if (row_scales)
      for (int r = 0; r < 16; ++r) acc[16 * t + r] *= row_scales[r];
  }
}

template <int T>
MN_TILE void w8_tile(const uint8_t* open, int64_t groups, const TileRows& rows, const float* row_scales,
                     float* acc) {
  w8_direct<T>(reinterpret_cast<const int8_t*>(open), groups, rows, row_scales, acc);
}

}  // namespace MN_ISA
}  // namespace mn
