// Plain C++ tiles. attention_tiles.hpp says what each function computes.
#pragma once
#include <cmath>
#include <cstring>

namespace mn {
namespace MN_ISA {

inline void open_lanes(const int8_t* lanes, int64_t quads, uint8_t* open, int32_t* start) {
  for (int64_t i = 0; i < quads; ++i) std::memcpy(open + i * kOpenQuad, lanes + i * 64, 64);
  for (int l = 0; l < 16; ++l) start[l] = 0;
}

template <int R, class Done>
inline void finish_bytes(const int32_t (&sums)[R][16], Done&& done) {
  for (int r = 0; r < R; ++r)
    for (int half = 0; half < 2; ++half) {
      vf v;
      for (int l = 0; l < 8; ++l) v.v[l] = static_cast<float>(sums[r][8 * half + l]);
      done(r, half, v);
    }
}

template <int R, class X, class Done>
inline void byte_tile(const int8_t* lanes, int64_t lane_step, int64_t quads, const X* x, int64_t stride,
                      int64_t step, Done&& done) {
  int32_t sums[R][16] = {};
  for (int64_t i = 0; i < quads; ++i)
    for (int r = 0; r < R; ++r)
      for (int l = 0; l < 16; ++l)
        for (int j = 0; j < 4; ++j)
          sums[r][l] += static_cast<int32_t>(lanes[i * lane_step + 4 * l + j]) * x[r * stride + i * step + j];
  finish_bytes<R>(sums, done);
}

template <int R, class Done>
inline void signed_tile(const uint8_t* open, const int32_t*, int64_t quads, const int8_t* x, int64_t stride,
                        Done&& done) {
  byte_tile<R>(reinterpret_cast<const int8_t*>(open), kOpenQuad, quads, x, stride, 4, done);
}

template <int R, class Done>
inline void unsigned_tile(const uint8_t* p, int64_t stride, int64_t step, const int8_t* lanes, int64_t quads,
                          Done&& done) {
  byte_tile<R>(lanes, 64, quads, p, stride, step, done);
}

inline void interleave(const int8_t* const rows[4], int8_t* out) {
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 4; ++j) out[4 * i + j] = rows[j][i];
}

inline void quantize_unsigned(const float* w, int64_t n, float inverse, uint8_t* p) {
  for (int64_t i = 0; i < n; ++i) p[i] = static_cast<uint8_t>(std::nearbyintf(w[i] * inverse));
}

inline void quantize_quad(const float* p, const float* scales, const float* inverse, uint8_t* out) {
  for (int l = 0; l < 16; ++l)
    for (int j = 0; j < 4; ++j)
      out[4 * l + j] = static_cast<uint8_t>(std::nearbyintf(p[16 * j + l] * scales[j] * inverse[l]));
}

}  // namespace MN_ISA
}  // namespace mn
