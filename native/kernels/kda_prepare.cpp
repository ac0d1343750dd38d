#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/pool.hpp"
#include "kernels/kda.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int kTaps = 4;  // the binding admits no other
constexpr int64_t kBefore = kTaps - 1;
constexpr int64_t kRows = 16;  // tokens of a task

// out = silu(sum over taps of taps[tap] * rows[tap]) over one head's channels. Returns the sum of squares.
float convolve(const float* taps, int64_t width, const float* const rows[kTaps], int64_t dim, float* out) {
  vf squares = zero();
  for (int64_t c = 0; c < dim; c += 8) {
    vf x = zero();
    for (int tap = 0; tap < kTaps; ++tap) x = fma(load(taps + tap * width + c), load(rows[tap] + c), x);
    x = silu(x);
    squares = fma(x, x, squares);
    store(out + c, x);
  }
  return sum(squares);
}

void scale(float* x, int64_t dim, float factor) {
  for (int64_t c = 0; c < dim; c += 8) store(x + c, load(x + c) * set1(factor));
}

void forget(const KdaPrepareArgs& a, int64_t row, int64_t head, float rate) {
  const float* f = a.forget + row * a.forget_width + a.forget_column + head * a.dim;
  const float* bias = a.dt_bias + head * a.dim;
  float* decay = a.decay + (row * a.heads + head) * a.dim;
  if (a.gate == ForgetGate::sigmoid) {
    for (int64_t c = 0; c < a.dim; c += 8)
      store(decay + c, exp(set1(a.lower_bound) * sigmoid(set1(rate) * (load(f + c) + load(bias + c)))));
  } else {
    for (int64_t c = 0; c < a.dim; c += 8)
      store(decay + c, exp(set1(-rate) * softplus(load(f + c) + load(bias + c))));
  }
}

// Tokens [first, last) of sequence s, one head: all that is read and written stays in the first cache.
void prepare_head(const KdaPrepareArgs& a, int64_t s, int64_t n, int64_t first, int64_t last, int64_t head) {
  const int64_t width = a.heads * a.dim, at = head * a.dim;
  const float* state = a.conv_states + a.slots[s] * kBefore * 3 * width + at;
  const float rate = std::exp(a.a_log[head]);
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(a.dim));
  float* outs[3] = {a.q, a.k, a.v};
  for (int64_t t = first; t < last; ++t) {
    const int64_t row = s * n + t;
    for (int part = 0; part < 3; ++part) {
      const float* rows[kTaps];
      for (int tap = 0; tap < kTaps; ++tap) {
        const int64_t from = t - kBefore + tap;  // negative: before this call's first token
        rows[tap] = from >= 0 ? a.y + (s * n + from) * a.y_width + a.columns[part] + at
                              : state + (from + kBefore) * 3 * width + part * width;
      }
      float* out = outs[part] + row * width + at;
      const float squares = convolve(a.conv + part * kTaps * width + at, width, rows, a.dim, out);
      if (part < 2) scale(out, a.dim, (part == 0 ? q_scale : 1.0f) / std::sqrt(squares + 1e-6f));
    }
    forget(a, row, head, rate);
    a.beta[row * a.heads + head] = 1.0f / (1.0f + std::exp(-a.b[row * a.heads + head]));
  }
}

// One head's last rows become the state; rows of it that fewer than kBefore new tokens leave over move up.
void keep_last_rows(const KdaPrepareArgs& a, int64_t s, int64_t n, int64_t head) {
  const int64_t width = a.heads * a.dim, at = head * a.dim;
  float* state = a.conv_states + a.slots[s] * kBefore * 3 * width + at;
  for (int64_t i = 0; i < kBefore; ++i) {
    const int64_t from = n - kBefore + i;
    for (int part = 0; part < 3; ++part) {
      const float* row = from < 0 ? state + ((i + n) * 3 + part) * width
                                  : a.y + (s * n + from) * a.y_width + a.columns[part] + at;
      std::memcpy(state + (i * 3 + part) * width, row, static_cast<size_t>(a.dim) * sizeof(float));
    }
  }
}

}  // namespace

void kda_prepare(const KdaPrepareArgs& a) {
  const int64_t n = a.rows / a.sequences, blocks = (n + kRows - 1) / kRows;
  // Few tokens: several heads a task, or the pool would cost more than the work.
  const int64_t group = n >= kRows ? 1 : std::min<int64_t>(a.heads, 4),
                groups = (a.heads + group - 1) / group;
  auto keep = [&](int64_t s, int64_t first, int64_t last) {
    for (int64_t head = first; head < last; ++head) keep_last_rows(a, s, n, head);
  };
  parallel_for(a.sequences * blocks * groups, [&](int64_t task, int) {
    const int64_t s = task / (blocks * groups), block = task / groups % blocks;
    const int64_t first = task % groups * group, last = std::min(first + group, a.heads);
    for (int64_t head = first; head < last; ++head)
      prepare_head(a, s, n, block * kRows, std::min((block + 1) * kRows, n), head);
    if (blocks == 1) keep(s, first, last);
  });
  if (blocks > 1)  // the first blocks read the old state
    for (int64_t s = 0; s < a.sequences; ++s) keep(s, 0, a.heads);
}

}  // namespace MN_ISA
}  // namespace mn
