// Tiled causal attention with an online softmax over an expanded history.
//
// INT8, exactly: q of a row and head is quantized with one scale (quantize_row). Score of a key =
// (float(int32 sum) * key scale) * (query scale * softmax scale). Per tile of kTileKeys keys: m' = max(m,
// scores), p = e^(score - m'), w = p * value scale, P = round(w * (127 / max w)) in 0..127, o' = o * e^(m -
// m') + (max w / 127) * float(int32 sum of P v), l' = l * e^(m - m') + sum p; a tile whose max w is below
// 1e-30 leaves o alone. The result is o / l. A row's result doesn't depend on the rows beside it.
#include <algorithm>
#include <limits>

#include "core/pool.hpp"
#include "kernels/attention_tiles.hpp"
#include "kernels/mla_history.hpp"
#include "kernels/mla_rows.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kRows = 48;  // query rows of a task: scores, P, K and V of a tile stay in L2 together
constexpr int64_t kScoreStride = kTileKeys + 16,
                  kPStride = kTileKeys + 64;  // rows fall into different L1 sets

// s[i] = e^(s[i] - top) for i < n and 0 up to the next multiple of 8; returns the sum.
float exp_row(float* s, int64_t n, float top) {
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
float exp_row_scaled(float* s, int64_t n, float top, const float* scales, float* largest) {
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

float row_max(const float* s, int64_t n) {
  float top = -std::numeric_limits<float>::infinity();
  vf most = set1(top);
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) most = max(most, load(s + i));
  for (; i < n; ++i) top = std::max(top, s[i]);
  return std::max(top, maximum(most));
}

// One head and up to kRows query rows: buffers and the online softmax's state.
struct Task {
  float *q, *scores, *o, *m, *l, *decay, *p_scale, *row_scale, *panel;
  int8_t* q_bytes;
  uint8_t *p, *open;
  int32_t* start;

  int64_t take(Parts parts, const History& h) {
    q = parts.take<float>(kRows * h.k_dims);
    scores = parts.take<float>(kRows * kScoreStride);
    o = parts.take<float>(kRows * h.padded_v());
    m = parts.take<float>(kRows);
    l = parts.take<float>(kRows);
    decay = parts.take<float>(kRows);
    p_scale = parts.take<float>(kRows);
    row_scale = parts.take<float>(kRows);
    if (h.format == Format::int8) {
      q_bytes = parts.take<int8_t>(kRows * h.k_dims);
      p = parts.take<uint8_t>(kRows * kPStride);
      open = parts.take<uint8_t>(h.k_dims / 4 * kOpenQuad);
      start = parts.take<int32_t>(16);
    } else {
      panel = parts.take<float>(16 * std::max(h.k_dims, kTileKeys));
    }
    return parts.bytes();
  }
};

// The rows of a task against one tile: row r sees the tile's first visible(r) keys.
struct TileOf {
  const AttendArgs& a;
  const History& h;
  int64_t head, tile, first_row, first, rows;  // rows first .. rows see any of it

  int64_t visible(int64_t r) const {
    return std::min(kTileKeys, a.start + first_row + r + 1 - tile * kTileKeys);
  }
  int64_t keys() const { return visible(rows - 1); }
};

// First row of the tile's that sees key `key`.
int64_t first_seeing(const TileOf& t, int64_t key) {
  return std::max(t.first, t.tile * kTileKeys + key - t.a.start - t.first_row);
}

void scores_int8(Task& s, const TileOf& t) {
  const int64_t quads = t.h.k_dims / 4;
  const int8_t* k = reinterpret_cast<const int8_t*>(t.h.k(t.head, t.tile));
  const float* scales = t.h.k_scales(t.head, t.tile);
  for (int64_t b = 0; b < t.keys(); b += 16) {
    open_lanes(k + b * quads * 4, quads, s.open, s.start);
    const vf scale[2] = {load(scales + b), load(scales + b + 8)};
    each_tile<kByteRows>(first_seeing(t, b), t.rows, [&](auto count, int64_t r) {
      signed_tile<decltype(count)::value>(s.open, s.start, quads, s.q_bytes + r * t.h.k_dims, t.h.k_dims,
                                          [&](int i, int half, vf sums) {
                                            store(s.scores + (r + i) * kScoreStride + b + 8 * half,
                                                  sums * scale[half] * set1(s.row_scale[r + i]));
                                          });
    });
  }
}

void values_int8(Task& s, const TileOf& t) {
  const int64_t wide = t.h.padded_v();
  const int8_t* v = reinterpret_cast<const int8_t*>(t.h.v(t.head, t.tile));
  for (int64_t d = 0; d < wide; d += 16)
    each_tile<kByteRows>(t.first, t.rows, [&](auto count, int64_t r) {
      constexpr int n = decltype(count)::value;
      unsigned_tile<n>(s.p + r * kPStride, kPStride, 4, v + d * kTileKeys, (t.visible(r + n - 1) + 3) / 4,
                       [&](int i, int half, vf sums) {
                         float* o = s.o + (r + i) * wide + d + 8 * half;
                         store(o, fma(sums, set1(s.p_scale[r + i]), load(o) * set1(s.decay[r + i])));
                       });
    });
}

void scores_float(Task& s, const TileOf& t) {
  const uint8_t* k = t.h.k(t.head, t.tile);
  for (int64_t b = 0; b < t.keys(); b += 16) {
    to_float(t.h.format, at(k, t.h.format, b * t.h.k_dims), 16 * t.h.k_dims, s.panel);
    each_tile<kFmaRows>(first_seeing(t, b), t.rows, [&](auto count, int64_t r) {
      fma_tile<decltype(count)::value>(
          s.q + r * t.h.k_dims, t.h.k_dims, 1, s.panel, 16, t.h.k_dims,
          [&](int i, int half, vf sums) { store(s.scores + (r + i) * kScoreStride + b + 8 * half, sums); });
    });
  }
}

void values_float(Task& s, const TileOf& t) {
  const int64_t wide = t.h.padded_v();
  const uint8_t* v = t.h.v(t.head, t.tile);
  for (int64_t d = 0; d < wide; d += 16) {
    to_float(t.h.format, at(v, t.h.format, d * kTileKeys), 16 * t.keys(), s.panel);
    each_tile<kFmaRows>(t.first, t.rows, [&](auto count, int64_t r) {
      constexpr int n = decltype(count)::value;
      fma_tile<n>(s.scores + r * kScoreStride, kScoreStride, 1, s.panel, 16, t.visible(r + n - 1),
                  [&](int i, int half, vf sums) {
                    float* o = s.o + (r + i) * wide + d + 8 * half;
                    store(o, fma(load(o), set1(s.decay[r + i]), sums));
                  });
    });
  }
}

// Scores become P; m, l and decay follow. Keys that a row doesn't see but its neighbours in a register tile
// do get a P of 0.
void softmax_rows(Task& s, const TileOf& t) {
  const bool bytes = t.h.format == Format::int8;
  const int64_t padded = (t.keys() + 7) / 8 * 8;
  for (int64_t r = t.first; r < t.rows; ++r) {
    float* row = s.scores + r * kScoreStride;
    const int64_t n = t.visible(r), end = (n + 7) / 8 * 8;
    const float top = std::max(s.m[r], row_max(row, n));
    alignas(32) float shift[8] = {s.m[r] - top};
    store(shift, exp(load(shift)));
    s.decay[r] = shift[0];
    s.m[r] = top;
    float total;
    if (bytes) {
      float largest;
      total = exp_row_scaled(row, n, top, t.h.v_scales(t.head, t.tile), &largest);
      const bool counts = largest >= 1e-30f;
      s.p_scale[r] = counts ? largest / 127.0f : 0.0f;
      uint8_t* p = s.p + r * kPStride;
      if (counts)
        quantize_unsigned(row, end, 127.0f / largest, p);
      else
        std::fill_n(p, end, uint8_t{0});
      std::fill(p + end, p + padded, uint8_t{0});
    } else {
      total = exp_row(row, n, top);
      std::fill(row + end, row + padded, 0.0f);
    }
    s.l[r] = s.l[r] * s.decay[r] + total;
  }
}

void load_queries(Task& s, const AttendArgs& a, int64_t head, int64_t row, int64_t rows) {
  const int64_t dims = a.history.k_dims;
  for (int64_t r = 0; r < rows; ++r) {
    const float* q = a.q + ((row + r) * a.layer_heads + a.history.head + head) * dims;
    if (a.history.format == Format::int8) {
      s.row_scale[r] = quantize_row(q, dims, s.q_bytes + r * dims) * a.scale;
    } else {
      for (int64_t i = 0; i < dims; i += 8) store(s.q + r * dims + i, load(q + i) * set1(a.scale));
    }
  }
}

}  // namespace

void attend(const AttendArgs& a) {
  const History& h = a.history;
  const int64_t row_tasks = (a.row_end - a.row_begin + kRows - 1) / kRows, wide = h.padded_v();
  parallel_for(row_tasks * h.heads, [&](int64_t task, int worker) {
    StageClock clock(a.stages);
    const int64_t head = task / row_tasks, row = a.row_begin + task % row_tasks * kRows;
    const int64_t rows = std::min(kRows, a.row_end - row);
    Task s{};
    s.take(Parts(worker_scratch(worker, s.take(Parts(), h))), h);
    load_queries(s, a, head, row, rows);
    std::fill_n(s.o, rows * wide, 0.0f);
    std::fill_n(s.m, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(s.l, rows, 0.0f);
    clock.pack();
    const int64_t keys = a.start + row + rows;
    for (int64_t tile = 0; tile * kTileKeys < keys; ++tile) {
      TileOf t{a, h, head, tile, row, 0, rows};
      t.first = first_seeing(t, 0);
      if (h.format == Format::int8)
        scores_int8(s, t);
      else
        scores_float(s, t);
      clock.matmul();
      softmax_rows(s, t);
      clock.softmax();
      if (h.format == Format::int8)
        values_int8(s, t);
      else
        values_float(s, t);
      clock.matmul();
    }
    for (int64_t r = 0; r < rows; ++r) {
      float* out = a.out + ((row + r) * a.layer_heads + h.head + head) * h.v_dims;
      const vf inverse = set1(1.0f / s.l[r]);
      for (int64_t d = 0; d < h.v_dims; d += 8) store(out + d, load(s.o + r * wide + d) * inverse);
    }
    clock.softmax();
  });
}

}  // namespace MN_ISA
}  // namespace mn
