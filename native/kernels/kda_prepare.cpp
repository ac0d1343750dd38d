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

// One head's part of q, k or v: taps by tap, so that neighbouring channels are neighbours.
void transpose_taps(const float* conv, int64_t dim, float* taps) {
  for (int64_t c = 0; c < dim; ++c)
    for (int tap = 0; tap < kTaps; ++tap) taps[tap * dim + c] = conv[c * kTaps + tap];
}

// out = silu(sum over taps of taps[tap] * rows[tap]) over one head's channels. Returns the sum of squares.
float convolve(const float* taps, const float* const rows[kTaps], int64_t dim, float* out) {
  vf squares = zero();
  for (int64_t c = 0; c < dim; c += 8) {
    vf x = zero();
    for (int tap = 0; tap < kTaps; ++tap) x = fma(load(taps + tap * dim + c), load(rows[tap] + c), x);
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
void prepare_head(const KdaPrepareArgs& a, int64_t s, int64_t n, int64_t first, int64_t last, int64_t head,
                  float* taps) {
  const int64_t width = a.heads * a.dim, at = head * a.dim;
  const float* state = a.conv_states + a.slots[s] * kBefore * 3 * width + at;
  const float rate = std::exp(a.a_log[head]);
  const float q_scale = 1.0f / std::sqrt(static_cast<float>(a.dim));
  float* outs[3] = {a.q, a.k, a.v};
  for (int part = 0; part < 3; ++part)
    transpose_taps(a.conv + (part * width + at) * kTaps, a.dim, taps + part * kTaps * a.dim);
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
      const float squares = convolve(taps + part * kTaps * a.dim, rows, a.dim, out);
      if (part < 2) scale(out, a.dim, (part == 0 ? q_scale : 1.0f) / std::sqrt(squares + 1e-6f));
    }
    forget(a, row, head, rate);
    a.beta[row * a.heads + head] = 1.0f / (1.0f + std::exp(-a.b[row * a.heads + head]));
  }
}

// The last rows become the state; rows of it that fewer than kBefore new tokens leave over move up.
void keep_last_rows(const KdaPrepareArgs& a, int64_t s, int64_t n) {
  const int64_t width = a.heads * a.dim;
  float* state = a.conv_states + a.slots[s] * kBefore * 3 * width;
  for (int64_t i = 0; i < kBefore; ++i) {
    const int64_t from = n - kBefore + i;
    if (from < 0) {
      std::memmove(state + i * 3 * width, state + (i + n) * 3 * width, 3 * width * sizeof(float));
      continue;
    }
    for (int part = 0; part < 3; ++part)
      std::memcpy(state + (i * 3 + part) * width, a.y + (s * n + from) * a.y_width + a.columns[part],
                  width * sizeof(float));
  }
}

}  // namespace

void kda_prepare(const KdaPrepareArgs& a) {
  const int64_t n = a.rows / a.sequences, blocks = (n + kRows - 1) / kRows;
  // Few tokens: several heads a task, or the pool would cost more than the work.
  const int64_t group = n >= kRows ? 1 : std::min<int64_t>(a.heads, 4),
                groups = (a.heads + group - 1) / group;
  parallel_for(a.sequences * blocks * groups, [&](int64_t task, int worker) {
    float* taps = static_cast<float*>(worker_scratch(worker, 3 * kTaps * a.dim * 4));
    const int64_t s = task / (blocks * groups), block = task / groups % blocks,
                  first_head = task % groups * group;
    for (int64_t head = first_head; head < std::min(first_head + group, a.heads); ++head)
      prepare_head(a, s, n, block * kRows, std::min((block + 1) * kRows, n), head, taps);
  });
  for (int64_t s = 0; s < a.sequences; ++s) keep_last_rows(a, s, n);
}

}  // namespace MN_ISA
}  // namespace mn
