#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/pool.hpp"
#include "kernels/kda.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kOutputRows = 16;  // tokens of an output task
constexpr int64_t kColumns = 48;     // of the state, in one task: 128 x 48 floats stay in the first cache
constexpr int64_t kAhead = 3;        // tokens by which q, k, decay and v are fetched early
constexpr int64_t kHeads = 4;        // heads of a decode task
constexpr int64_t kStepColumns = 32;

// Two or three vectors of columns at once: three use all registers, and four spill, at half the speed. Two
// parts or more take turns, so that one's sums can drain while the next one starts.
int vectors_of_part(int64_t left) {
  return left == 4 ? 2 : static_cast<int>(std::min<int64_t>(left, 3));
}

// The first token of a call: s [dim, 8 N] decays, sk = S^T k.
template <int N>
void decay_first(int64_t dim, float* s, const float* k, const float* d, float* sk) {
  vf sum[N];
  for (int j = 0; j < N; ++j) sum[j] = zero();
  for (int64_t i = 0; i < dim; ++i, s += 8 * N)
    for (int j = 0; j < N; ++j) {
      vf decayed = load(s + 8 * j) * set1(d[i]);
      store(s + 8 * j, decayed);
      sum[j] = fma(decayed, set1(k[i]), sum[j]);
    }
  for (int j = 0; j < N; ++j) store(sk + 8 * j, sum[j]);
}

// One token on s [dim, 8 N], decayed already, with sk = S^T k: adds k u^T, reads o and, but for the last one,
// decays for the next token and forms S^T k of that. An element is loaded and stored once a token.
template <int N, bool LAST>
void advance(int64_t dim, float* s, const float* q, const float* k, const float* next_k, const float* next_d,
             float beta, const float* v, float* o, float* sk) {
  vf u[N], out[N], sum[N];
  for (int j = 0; j < N; ++j) {
    u[j] = set1(beta) * (load(v + 8 * j) - load(sk + 8 * j));
    out[j] = sum[j] = zero();
  }
  for (int64_t i = 0; i < dim; ++i, s += 8 * N) {
    const vf ki = set1(k[i]), qi = set1(q[i]);
    if (LAST) {
      for (int j = 0; j < N; ++j) {
        vf updated = fma(ki, u[j], load(s + 8 * j));
        store(s + 8 * j, updated);
        out[j] = fma(qi, updated, out[j]);
      }
    } else {
      const vf di = set1(next_d[i]), ni = set1(next_k[i]);
      for (int j = 0; j < N; ++j) {
        vf updated = fma(ki, u[j], load(s + 8 * j));
        out[j] = fma(qi, updated, out[j]);
        updated = updated * di;
        store(s + 8 * j, updated);
        sum[j] = fma(updated, ni, sum[j]);
      }
    }
  }
  for (int j = 0; j < N; ++j) {
    store(o + 8 * j, out[j]);
    if (!LAST) store(sk + 8 * j, sum[j]);
  }
}

// Tokens' rows of one head lie heads * dim floats apart: too far for the hardware to foresee.
void fetch(const KdaRecurrenceArgs& a, int64_t from, int64_t column, int64_t columns) {
  for (int64_t i = 0; i < a.dim; i += 16)
    for (const float* p : {a.q, a.k, a.decay}) __builtin_prefetch(p + from + i);
  for (int64_t i = 0; i < columns; i += 16) __builtin_prefetch(a.v + from + column + i);
}

void copy_rows(int64_t rows, int vectors, const float* from, int64_t from_stride, float* to,
               int64_t to_stride) {
  for (int64_t i = 0; i < rows; ++i)
    for (int j = 0; j < vectors; ++j) store(to + i * to_stride + 8 * j, load(from + i * from_stride + 8 * j));
}

// Tokens [first, last) of a sequence, `columns` columns of one head's state.
void recur(const KdaRecurrenceArgs& a, int64_t first, int64_t last, int64_t head, int64_t column,
           int64_t columns, float* local) {
  const int64_t width = a.heads * a.dim, slot = a.slots[first / (a.rows / a.sequences)];
  float* state = a.states + (slot * a.heads + head) * a.dim * a.dim + column;
  float sk[kColumns];
  // f(vectors, first column, part of `local`) for each part
  auto each = [&](auto f) {
    for (int64_t c = 0; c < columns;) {
      const int n = vectors_of_part((columns - c) / 8);
      f(n, c, local + a.dim * c);
      c += 8 * n;
    }
  };
  each([&](int n, int64_t c, float* s) {
    copy_rows(a.dim, n, state + c, a.dim, s, 8 * n);
    const float *k = a.k + first * width + head * a.dim, *d = a.decay + first * width + head * a.dim;
    if (n == 3) return decay_first<3>(a.dim, s, k, d, sk + c);
    if (n == 2) return decay_first<2>(a.dim, s, k, d, sk + c);
    decay_first<1>(a.dim, s, k, d, sk + c);
  });
  for (int64_t row = first; row < last; ++row) {
    const int64_t from = row * width + head * a.dim;
    const float *q = a.q + from, *k = a.k + from, *v = a.v + from + column;
    const float *next_k = k + width, *next_d = a.decay + from + width;
    const float beta = a.beta[row * a.heads + head];
    float* o = a.out + from + column;
    if (row + 1 == last) {
      each([&](int n, int64_t c, float* s) {
        if (n == 3) return advance<3, true>(a.dim, s, q, k, nullptr, nullptr, beta, v + c, o + c, sk + c);
        if (n == 2) return advance<2, true>(a.dim, s, q, k, nullptr, nullptr, beta, v + c, o + c, sk + c);
        advance<1, true>(a.dim, s, q, k, nullptr, nullptr, beta, v + c, o + c, sk + c);
      });
      break;
    }
    if (row + kAhead < last) fetch(a, from + kAhead * width, column, columns);
    each([&](int n, int64_t c, float* s) {
      if (n == 3) return advance<3, false>(a.dim, s, q, k, next_k, next_d, beta, v + c, o + c, sk + c);
      if (n == 2) return advance<2, false>(a.dim, s, q, k, next_k, next_d, beta, v + c, o + c, sk + c);
      advance<1, false>(a.dim, s, q, k, next_k, next_d, beta, v + c, o + c, sk + c);
    });
  }
  each([&](int n, int64_t c, float* s) { copy_rows(a.dim, n, s, 8 * n, state + c, a.dim); });
}

// One token: N vectors of columns of the state itself, twice over its rows; the first pass brings it from
// memory. The same operations on each element in the same order as in recur, so that a split of a prompt
// changes no bit. While the second pass computes, the first lines of `upcoming` rows are fetched.
template <int N>
void step(const KdaRecurrenceArgs& a, int64_t row, int64_t head, int64_t column, float* s,
          const float* upcoming) {
  const int64_t dim = a.dim, from = (row * a.heads + head) * dim;  // a copy: a store may alias a.dim
  const float *q = a.q + from, *k = a.k + from, *d = a.decay + from;
  vf u[N], o[N];
  for (int j = 0; j < N; ++j) u[j] = zero();
  for (int64_t i = 0; i < dim; ++i)
    for (int j = 0; j < N; ++j) u[j] = fma(load(s + i * dim + 8 * j) * set1(d[i]), set1(k[i]), u[j]);
  for (int j = 0; j < N; ++j) {
    u[j] = set1(a.beta[row * a.heads + head]) * (load(a.v + from + column + 8 * j) - u[j]);
    o[j] = zero();
  }
  for (int64_t i = 0; i < dim; ++i) {
    for (int j = 0; j < N; j += 2) __builtin_prefetch(upcoming + i * dim + 8 * j, 1, 2);
    for (int j = 0; j < N; ++j) {
      vf updated = fma(set1(k[i]), u[j], load(s + i * dim + 8 * j) * set1(d[i]));
      store(s + i * dim + 8 * j, updated);
      o[j] = fma(set1(q[i]), updated, o[j]);
    }
  }
  for (int j = 0; j < N; ++j) store(a.out + from + column + 8 * j, o[j]);
}

void step_heads(const KdaRecurrenceArgs& a, int64_t row, int64_t first, int64_t last) {
  float* states = a.states + a.slots[row] * a.heads * a.dim * a.dim;
  for (int64_t head = first; head < last; ++head)
    for (int64_t column = 0; column < a.dim; column += kStepColumns) {
      float* s = states + head * a.dim * a.dim + column;
      const float* upcoming = s;
      if (column + kStepColumns < a.dim) {
        upcoming = s + kStepColumns;
      } else if (head + 1 < last) {
        upcoming = states + (head + 1) * a.dim * a.dim;
      }
      switch (std::min(kStepColumns, a.dim - column) / 8) {
        case 1:
          step<1>(a, row, head, column, s, upcoming);
          break;
        case 2:
          step<2>(a, row, head, column, s, upcoming);
          break;
        case 3:
          step<3>(a, row, head, column, s, upcoming);
          break;
        default:
          step<4>(a, row, head, column, s, upcoming);
      }
    }
}

}  // namespace

void kda_recurrence(const KdaRecurrenceArgs& a) {
  const int64_t n = a.rows / a.sequences;
  if (n == 1) {
    const int64_t groups = (a.heads + kHeads - 1) / kHeads;
    parallel_for(a.sequences * groups, [&](int64_t task, int) {
      const int64_t first = task % groups * kHeads;
      step_heads(a, task / groups, first, std::min(first + kHeads, a.heads));
    });
    return;
  }
  const int64_t blocks = (a.dim + kColumns - 1) / kColumns;
  parallel_for(a.sequences * a.heads * blocks, [&](int64_t task, int worker) {
    const int64_t s = task / (a.heads * blocks), head = task / blocks % a.heads;
    const int64_t column = task % blocks * kColumns;
    recur(a, s * n, (s + 1) * n, head, column, std::min(kColumns, a.dim - column),
          static_cast<float*>(worker_scratch(worker, a.dim * kColumns * 4)));
  });
}

void kda_output(const KdaOutputArgs& a) {
  parallel_for((a.rows + kOutputRows - 1) / kOutputRows, [&](int64_t task, int) {
    for (int64_t row = task * kOutputRows; row < std::min((task + 1) * kOutputRows, a.rows); ++row)
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
