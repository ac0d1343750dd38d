// One row's step of the online softmax, shared by all that compute attention: what is equal to the bit here
// is equal everywhere.
#pragma once
#include <algorithm>
#include <limits>

#include "kernels/attention_tiles.hpp"

namespace mn {
namespace MN_ISA {

// s[i] = e^(s[i] - top) for i < n and 0 up to the next multiple of 8; returns the sum.
inline float exp_row(float* s, int64_t n, float top) {
  const vf shift = set1(top);
  vf total = zero();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    vf p = exp(load(s + i) - shift);
    total = total + p;
    store(s + i, p);
  }
  if (i < n) {
    vf p = exp(load_partial(s + i, static_cast<int>(n - i)) - shift);
    store(s + i, zero());
    store_partial(s + i, p, static_cast<int>(n - i));
    total = total + load(s + i);
  }
  return sum(total);
}

// The same, then times value scales; returns the largest product too.
inline float exp_row_scaled(float* s, int64_t n, float top, const float* scales, float* largest) {
  const vf shift = set1(top);
  vf total = zero(), most = zero();
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    vf p = exp(load(s + i) - shift), w = p * load(scales + i);
    total = total + p;
    most = max(most, w);
    store(s + i, w);
  }
  if (i < n) {
    const int left = static_cast<int>(n - i);
    vf p = exp(load_partial(s + i, left) - shift);
    store(s + i, zero());
    store_partial(s + i, p, left);
    p = load(s + i);
    vf w = p * load_partial(scales + i, left);
    total = total + p;
    most = max(most, w);
    store(s + i, w);
  }
  *largest = maximum(most);
  return sum(total);
}

inline float row_max(const float* s, int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
  vf most = set1(top);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) most = max(most, load(s + i));
  for (; i < n; ++i) top = std::max(top, s[i]);
  return std::max(top, maximum(most));
}

// The running maximum becomes `top`; returns e^(m - top), by which what was summed so far counts less.
inline float raise_maximum(float& m, float top) {
  alignas(32) float shift[8] = {m - top};
  store(shift, exp(load(shift)));
  m = top;
  return shift[0];
}

// Scores [n] become P in 0..127, [n up to the next multiple of 8], and p_scale; m and l follow. Returns the
// decay.
inline float soften_int8(float* row, int64_t n, const float* v_scales, float& m, float& l, uint8_t* p,
                         float& p_scale) {
  const float decay = raise_maximum(m, std::max(m, row_max(row, n)));
  const int64_t end = (n + 7) / 8 * 8;
  float largest;
  const float total = exp_row_scaled(row, n, m, v_scales, &largest);
  const bool counts = largest >= 1e-30f;
  p_scale = counts ? largest / 127.0f : 0.0f;
  if (counts)
    quantize_unsigned(row, end, 127.0f / largest, p);
  else
    std::fill_n(p, end, uint8_t{0});
  l = l * decay + total;
  return decay;
}

// The same in floats: scores become e^(score - m), zeros up to the next multiple of 8.
inline float soften(float* row, int64_t n, float& m, float& l) {
  const float decay = raise_maximum(m, std::max(m, row_max(row, n)));
  l = l * decay + exp_row(row, n, m);
  return decay;
}

}  // namespace MN_ISA
}  // namespace mn
