// Where a panel's results go.
#pragma once
#include <cstdint>

#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {

// out [n, stride] (+)= the first `width` of acc [n, 16].
inline void write_panel(const float* acc, int64_t n, int64_t width, float* out, int64_t stride,
                        bool accumulate) {
  for (int64_t t = 0; t < n; ++t, acc += 16, out += stride) {
    if (width >= 16) {
      store(out, accumulate ? load(out) + load(acc) : load(acc));
      store(out + 8, accumulate ? load(out + 8) + load(acc + 8) : load(acc + 8));
    } else {
      for (int64_t i = 0; i < width; ++i) out[i] = accumulate ? out[i] + acc[i] : acc[i];
    }
  }
}

// out (+)= weight * the first `width` of acc [16].
inline void add_weighted(const float* acc, float weight, int64_t width, float* out) {
  vf w = set1(weight);
  if (width >= 16) {
    store(out, fma(load(acc), w, load(out)));
    store(out + 8, fma(load(acc + 8), w, load(out + 8)));
    return;
  }
  for (int64_t i = 0; i < width; i += 8) {
    int n = static_cast<int>(width - i);
    store_partial(out + i, fma(load(acc + i), w, load_partial(out + i, n)), n);
  }
}

}  // namespace MN_ISA
}  // namespace mn
