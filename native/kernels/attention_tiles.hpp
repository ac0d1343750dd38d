// Register tiles of the attention kernels: a few rows times 16 lanes. A lane is a key (prefill scores), a
// head (decode scores) or a value dimension. Integer tiles are exact; they hand their sums over as floats,
// which is exact below 2^24 (1,040 products of 127 * 127).
//
//   open_lanes(lanes, quads, open, start)        signed bytes [quads][16 lanes][4] in the form that
//   signed_tile reads signed_tile<R>(open, start, quads, x, stride, done)      sum over 4 * quads of
//   x[row][i] * lane[i], both signed unsigned_tile<R>(p, stride, step, lanes, quads, done)    p in 0..127:
//   row r's quad i is at p + r * stride + i * step interleave(rows, out)                        4 rows of 16
//   bytes -> [16][4] quantize_unsigned(w, n, inverse, out)        w * inverse to nearest even; n a multiple
//   of 8 quantize_quad(p, scales, inverse, out)       out[lane][key] = p[key][lane] * scales[key] *
//   inverse[lane], 4 keys
// done(row, half, sums): lanes 8 * half .. 8 * half + 7 of the row.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {

constexpr int64_t kOpenQuad = 128;  // bytes that open_lanes writes for a quad

// sum over n of a[r * a_row + i * a_step] * b[i * b_step + lane]
template <int R, class Done>
inline void fma_tile(const float* a, int64_t a_row, int64_t a_step, const float* b, int64_t b_step, int64_t n,
                     Done&& done) {
  vf sums[R][2];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sums[r][0] = sums[r][1] = zero();
  for (int64_t i = 0; i < n; ++i) {
    vf b0 = load(b), b1 = load(b + 8);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const float x = a[r * a_row];
      sums[r][0] = fma(x, b0, sums[r][0]);
      sums[r][1] = fma(x, b1, sums[r][1]);
    }
    a += a_step;
    b += b_step;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    done(r, 0, sums[r][0]);
    done(r, 1, sums[r][1]);
  }
}

constexpr int kFmaRows = 6;   // 12 accumulators, 2 lanes, 1 broadcast
constexpr int kByteRows = 4;  // 8 accumulators, 4 lanes, ones, 2 temporaries

// Memory that is needed soon, fetched a share at a time while tiles run: a burst of prefetches waits for
// itself. Locality as __builtin_prefetch has it: 3 for what fits L1, 2 for L2.
template <int Locality>
class Ahead {
 public:
  Ahead(const void* data, int64_t bytes, int64_t shares)
      : next_(static_cast<const char*>(data)),
        end_(next_ + bytes),
        share_((bytes / 64 / std::max<int64_t>(shares, 1) + 1) * 64) {}
  void step() {
    const char* stop = std::min(end_, next_ + share_);
    for (; next_ < stop; next_ += 64) __builtin_prefetch(next_, 0, Locality);
  }

 private:
  const char *next_, *end_;
  int64_t share_;
};

// Cuts rows begin .. end into tiles of at most `Max` and calls body(std::integral_constant<int, rows>,
// first).
template <int Max, class Body>
inline void each_tile(int64_t begin, int64_t end, Body&& body) {
  int64_t i = begin;
  for (; i + Max <= end; i += Max) body(std::integral_constant<int, Max>(), i);
  if constexpr (Max > 1) {
    if (i < end) each_tile<Max - 1>(i, end, body);
  }
}

}  // namespace MN_ISA
}  // namespace mn

#if defined(MN_ISA_avx2)
#include "kernels/attention_tiles_avx2.hpp"
#elif defined(MN_ISA_neon) || defined(MN_ISA_neon_dot)
#include "kernels/attention_tiles_neon.hpp"
#else
#include "kernels/attention_tiles_generic.hpp"
#endif
