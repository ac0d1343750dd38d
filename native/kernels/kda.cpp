#include "kernels/kda.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/pool.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int kTaps = 4;          // the binding admits no other
constexpr int64_t kRows = 16;     // tokens of a prepare task
constexpr int64_t kColumns = 32;  // of the state, in one recurrence task: 128 x 32 floats stay in L1

// log(1 + e^x), accurate where e^x is tiny too.
float softplus(float x) {
  return x > 20.0f ? x : std::log1p(std::exp(x));
}

// out[t] = silu(sum over taps of conv[c][tap] * row t - before + tap) for tokens [0, count) and `m` (at most
// 8) channels; rows(i) is row i, from -before on. The window slides in registers: rows lie far apart, and in
// one set of the cache.
template <int TAPS, class Rows>
void convolve(const float* conv, int m, int64_t count, Rows rows, float* out, int64_t stride) {
  vf w[TAPS], x[TAPS];
  for (int tap = 0; tap < TAPS; ++tap) {
    float column[8] = {};
    for (int i = 0; i < m; ++i) column[i] = conv[i * TAPS + tap];
    w[tap] = load(column);
  }
  for (int tap = 0; tap + 1 < TAPS; ++tap) x[tap + 1] = load_partial(rows(tap + 1 - TAPS), m);
  for (int64_t t = 0; t < count; ++t) {
    for (int tap = 0; tap + 1 < TAPS; ++tap) x[tap] = x[tap + 1];
    x[TAPS - 1] = load_partial(rows(t), m);
    vf sum = zero();
    for (int tap = 0; tap < TAPS; ++tap) sum = fma(w[tap], x[tap], sum);
    store_partial(out + t * stride, silu(sum), m);
  }
}

// x /= sqrt(sum x^2 + 1e-6), times scale.
void normalize(float* x, int64_t n, float scale) {
  vf squares = zero();
  for (int64_t i = 0; i < n; i += 8) {
    vf v = n - i >= 8 ? load(x + i) : load_partial(x + i, static_cast<int>(n - i));
    squares = fma(v, v, squares);
  }
  vf factor = set1(scale / std::sqrt(sum(squares) + 1e-6f));
  for (int64_t i = 0; i < n; i += 8) {
    int m = static_cast<int>(std::min<int64_t>(8, n - i));
    store_partial(x + i, load_partial(x + i, m) * factor, m);
  }
}

}  // namespace

void kda_prepare(const KdaPrepareArgs& a) {
  const int64_t n = a.rows / a.sequences, width = a.heads * a.dim, before = kTaps - 1;
  const int64_t blocks = (n + kRows - 1) / kRows;
  parallel_for(a.sequences * blocks, [&](int64_t task, int) {
    const int64_t s = task / blocks, first = task % blocks * kRows, last = std::min(first + kRows, n);
    const float* state = a.conv_states + a.slots[s] * before * 3 * width;
    float* outs[3] = {a.q, a.k, a.v};
    for (int part = 0; part < 3; ++part)
      for (int64_t c = 0; c < width; c += 8) {
        auto rows = [&](int64_t i) {
          int64_t at = first + i;
          return at >= 0 ? a.y + (s * n + at) * a.y_width + a.columns[part] + c
                         : state + (at + before) * 3 * width + part * width + c;
        };
        int m = static_cast<int>(std::min<int64_t>(8, width - c));
        convolve<kTaps>(a.conv + (part * width + c) * kTaps, m, last - first, rows,
                        outs[part] + (s * n + first) * width + c, width);
      }
    for (int64_t t = first; t < last; ++t) {
      const int64_t row = s * n + t;
      for (int64_t h = 0; h < a.heads; ++h) {
        normalize(a.q + row * width + h * a.dim, a.dim, 1.0f / std::sqrt(static_cast<float>(a.dim)));
        normalize(a.k + row * width + h * a.dim, a.dim, 1.0f);
        const float rate = std::exp(a.a_log[h]);
        const float* f = a.forget + row * a.forget_width + a.forget_column + h * a.dim;
        const float* bias = a.dt_bias + h * a.dim;
        float* decay = a.decay + row * width + h * a.dim;
        for (int64_t i = 0; i < a.dim; i += 8) {
          int m = static_cast<int>(std::min<int64_t>(8, a.dim - i));
          vf x = load_partial(f + i, m) + load_partial(bias + i, m);
          vf g;
          if (a.gate == ForgetGate::sigmoid) {
            g = set1(a.lower_bound) * sigmoid(set1(rate) * x);
          } else {
            float values[8];
            store(values, x);
            for (float& value : values) value = softplus(value);
            g = set1(-rate) * load(values);
          }
          store_partial(decay + i, exp(g), m);
        }
        a.beta[row * a.heads + h] = 1.0f / (1.0f + std::exp(-a.b[row * a.heads + h]));
      }
    }
  });
  // The states change only now: the blocks above read them.
  for (int64_t s = 0; s < a.sequences; ++s) {
    float* state = a.conv_states + a.slots[s] * before * 3 * width;
    for (int64_t i = 0; i < before; ++i) {
      const int64_t at = n - before + i;  // the token that becomes row i; negative: an older row moves up
      if (at < 0) {
        std::memmove(state + i * 3 * width, state + (i + n) * 3 * width, 3 * width * sizeof(float));
        continue;
      }
      for (int part = 0; part < 3; ++part)
        std::memcpy(state + i * 3 * width + part * width, a.y + (s * n + at) * a.y_width + a.columns[part],
                    width * sizeof(float));
    }
  }
}

namespace {

// Eight state columns of N vectors at once. An element is loaded and stored once a token: the pass that adds
// k u^T of token t and reads o also decays for token t + 1 and forms S^T k of it.
template <int N>
void recur(const KdaRecurrenceArgs& a, int64_t first, int64_t tokens, int64_t head, int64_t column, float* s,
           int64_t stride) {
  const int64_t width = a.heads * a.dim, at = head * a.dim;
  vf sk[N];
  {
    const float *k = a.k + first * width + at, *d = a.decay + first * width + at;
    for (int j = 0; j < N; ++j) sk[j] = zero();
    for (int64_t i = 0; i < a.dim; ++i)
      for (int j = 0; j < N; ++j) {
        vf decayed = load(s + i * stride + 8 * j) * set1(d[i]);
        store(s + i * stride + 8 * j, decayed);
        sk[j] = fma(decayed, set1(k[i]), sk[j]);
      }
  }
  for (int64_t t = 0; t < tokens; ++t) {
    const int64_t row = first + t;
    const float *q = a.q + row * width + at, *k = a.k + row * width + at;
    vf u[N], o[N];
    for (int j = 0; j < N; ++j) {
      u[j] = set1(a.beta[row * a.heads + head]) * (load(a.v + row * width + at + column + 8 * j) - sk[j]);
      o[j] = zero();
    }
    if (t + 1 == tokens) {
      for (int64_t i = 0; i < a.dim; ++i)
        for (int j = 0; j < N; ++j) {
          vf updated = fma(set1(k[i]), u[j], load(s + i * stride + 8 * j));
          store(s + i * stride + 8 * j, updated);
          o[j] = fma(set1(q[i]), updated, o[j]);
        }
    } else {
      const float *next = k + width, *d = a.decay + (row + 1) * width + at;
      for (int j = 0; j < N; ++j) sk[j] = zero();
      for (int64_t i = 0; i < a.dim; ++i) {
        vf ki = set1(k[i]), qi = set1(q[i]), di = set1(d[i]), ni = set1(next[i]);
        for (int j = 0; j < N; ++j) {
          vf updated = fma(ki, u[j], load(s + i * stride + 8 * j));
          o[j] = fma(qi, updated, o[j]);
          updated = updated * di;
          store(s + i * stride + 8 * j, updated);
          sk[j] = fma(updated, ni, sk[j]);
        }
      }
    }
    for (int j = 0; j < N; ++j) store(a.out + row * width + at + column + 8 * j, o[j]);
  }
}

void recur_n(int vectors, const KdaRecurrenceArgs& a, int64_t first, int64_t tokens, int64_t head,
             int64_t column, float* s, int64_t stride) {
  switch (vectors) {
    case 1:
      return recur<1>(a, first, tokens, head, column, s, stride);
    case 2:
      return recur<2>(a, first, tokens, head, column, s, stride);
    case 3:
      return recur<3>(a, first, tokens, head, column, s, stride);
    default:
      return recur<4>(a, first, tokens, head, column, s, stride);
  }
}

}  // namespace

void kda_recurrence(const KdaRecurrenceArgs& a) {
  const int64_t n = a.rows / a.sequences, blocks = (a.dim + kColumns - 1) / kColumns;
  parallel_for(a.sequences * a.heads * blocks, [&](int64_t task, int worker) {
    const int64_t s = task / (a.heads * blocks), head = task / blocks % a.heads;
    const int64_t column = task % blocks * kColumns, columns = std::min(kColumns, a.dim - column);
    float* state = a.states + (a.slots[s] * a.heads + head) * a.dim * a.dim + column;
    const int vectors = static_cast<int>(columns / 8);
    if (n == 1) return recur_n(vectors, a, s, 1, head, column, state, a.dim);
    float* local = static_cast<float*>(worker_scratch(worker, a.dim * kColumns * 4));
    for (int64_t i = 0; i < a.dim; ++i) std::memcpy(local + i * columns, state + i * a.dim, columns * 4);
    recur_n(vectors, a, s * n, n, head, column, local, columns);
    for (int64_t i = 0; i < a.dim; ++i) std::memcpy(state + i * a.dim, local + i * columns, columns * 4);
  });
}

void kda_output(const KdaOutputArgs& a) {
  parallel_for((a.rows + kRows - 1) / kRows, [&](int64_t task, int) {
    for (int64_t row = task * kRows; row < std::min((task + 1) * kRows, a.rows); ++row)
      for (int64_t h = 0; h < a.heads; ++h) {
        const float* o = a.o + (row * a.heads + h) * a.dim;
        const float* gate = a.gate + row * a.gate_width + a.gate_column + h * a.dim;
        float* y = a.y + (row * a.heads + h) * a.dim;
        vf squares = zero();
        for (int64_t i = 0; i < a.dim; i += 8) {
          vf v = load_partial(o + i, static_cast<int>(std::min<int64_t>(8, a.dim - i)));
          squares = fma(v, v, squares);
        }
        vf scale = set1(1.0f / std::sqrt(sum(squares) / static_cast<float>(a.dim) + a.eps));
        for (int64_t i = 0; i < a.dim; i += 8) {
          int m = static_cast<int>(std::min<int64_t>(8, a.dim - i));
          vf normed = load_partial(o + i, m) * scale * load_partial(a.weight + i, m);
          store_partial(y + i, normed * sigmoid(load_partial(gate + i, m)), m);
        }
      }
  });
}

}  // namespace MN_ISA
}  // namespace mn
