// One panel of 16 dense weight rows times a block of token rows, in fp32. Every sum runs along the inputs in
// order, so that a token's result doesn't depend on how many others come with it.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels/linear_dense.hpp"
#include "kernels/linear_tiles.hpp"

namespace mn {
namespace MN_ISA {

constexpr int64_t kDenseChunk = 256;                       // inputs transposed at once: 16 KB
constexpr int64_t kDenseOpenBytes = kDenseChunk * 16 * 4;  // scratch for them

// open [n, 16] = columns k .. k + n of rows 16 * panel ..., transposed; rows past the end are zero.
template <class T, class Load>
void dense_open(const T* data, int64_t rows, int64_t cols, int64_t panel, int64_t k, int64_t n, float* open,
                Load load8) {
  for (int64_t h = 0; h < 2; ++h) {
    int64_t first = 16 * panel + 8 * h, count = std::clamp<int64_t>(rows - first, 0, 8);
    if (count == 0) {
      for (int64_t i = 0; i < n; ++i) store(open + 16 * i + 8, zero());
      continue;
    }
    const T* from = data + first * cols + k;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
      vf v[8];
      for (int64_t r = 0; r < 8; ++r) {
        const T* p = from + std::min(r, count - 1) * cols + i;
        prefetch(p + kDenseChunk);
        v[r] = r < count ? load8(p) : zero();
      }
      transpose8(v);
      for (int64_t j = 0; j < 8; ++j) store(open + 16 * (i + j) + 8 * h, v[j]);
    }
    for (; i < n; ++i)
      for (int64_t r = 0; r < 8; ++r) {
        T one[8] = {};
        if (r < count) one[0] = from[r * cols + i];
        float wide[8];
        store(wide, load8(one));
        open[16 * i + 8 * h + r] = wide[0];
      }
  }
}

inline void dense_open(const DenseWeights& w, int64_t panel, int64_t k, int64_t n, float* open) {
  const uint16_t* half = static_cast<const uint16_t*>(w.data);
  if (w.type == Dense::fp32)
    dense_open(static_cast<const float*>(w.data), w.rows, w.cols, panel, k, n, open,
               [](const float* p) { return load(p); });
  else if (w.type == Dense::bf16)
    dense_open(half, w.rows, w.cols, panel, k, n, open, [](const uint16_t* p) { return load_bf16(p); });
  else
    dense_open(half, w.rows, w.cols, panel, k, n, open, [](const uint16_t* p) { return load_f16(p); });
}

template <int T>
void dense_tile(const float* open, int64_t n, const float* x, int64_t stride, float* acc) {
  vf sum[T][2];
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h) sum[t][h] = load(acc + 16 * t + 8 * h);
  for (int64_t k = 0; k < n; ++k) {
    vf w0 = load(open + 16 * k), w1 = load(open + 16 * k + 8);
#pragma GCC unroll 8
    for (int t = 0; t < T; ++t) {
      const float v = x[t * stride + k];
      sum[t][0] = fma(v, w0, sum[t][0]);
      sum[t][1] = fma(v, w1, sum[t][1]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < 2; ++h) store(acc + 16 * t + 8 * h, sum[t][h]);
}

// acc [n, 16] = x [n, cols] (rows `stride` apart) times the panel. open: kDenseOpenBytes of scratch.
inline void multiply_dense(const DenseWeights& w, int64_t panel, const float* x, int64_t stride, int64_t n,
                           float* acc, float* open) {
  std::memset(acc, 0, static_cast<size_t>(n * 64));
  const int64_t tiles = (n + kMaxTile - 1) / kMaxTile;
  for (int64_t k = 0; k < w.cols; k += kDenseChunk) {
    int64_t size = std::min(kDenseChunk, w.cols - k);
    dense_open(w, panel, k, size, open);
    for (int64_t i = 0; i < tiles; ++i) {
      int64_t begin = i * n / tiles, end = (i + 1) * n / tiles;
      const float* rows = x + begin * stride + k;
      float* a = acc + begin * 16;
      with_rows(end - begin, [&](auto t) { dense_tile<t>(open, size, rows, stride, a); });
    }
  }
}

}  // namespace MN_ISA
}  // namespace mn
