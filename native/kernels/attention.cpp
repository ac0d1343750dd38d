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
#include "kernels/attention_rows.hpp"
#include "kernels/attention_tiles.hpp"
#include "kernels/mla_history.hpp"
#include "kernels/mla_rows.hpp"

namespace mn {
namespace MN_ISA {
namespace {

// Query rows of a task and keys of a step: scores, P, K and V of a step stay in L2 together. Floats may cut a
// tile, whose size matters to the quantized P alone.
struct Shape {
  int64_t rows, keys;
  int64_t score_stride() const { return keys + 16; }  // rows fall into different L1 sets
  int64_t p_stride() const { return keys + 64; }
};
constexpr Shape kByteShape{64, kTileKeys}, kFloatShape{96, kTileKeys / 2};

// One head and a few query rows: buffers and the online softmax's state.
struct Task {
  Shape shape;
  float *q, *scores, *o, *m, *l, *decay, *p_scale, *row_scale, *panel;
  int8_t* q_bytes;
  uint8_t *p, *open;
  int32_t* start;

  int64_t take(Parts parts, const History& h) {
    const bool bytes = h.format == Format::int8;
    shape = bytes ? kByteShape : kFloatShape;
    scores = parts.take<float>(shape.rows * shape.score_stride());
    o = parts.take<float>(shape.rows * h.padded_v());
    m = parts.take<float>(shape.rows);
    l = parts.take<float>(shape.rows);
    decay = parts.take<float>(shape.rows);
    p_scale = parts.take<float>(shape.rows);
    row_scale = parts.take<float>(shape.rows);
    if (bytes) {
      q_bytes = parts.take<int8_t>(shape.rows * h.k_dims);
      p = parts.take<uint8_t>(shape.rows * shape.p_stride());
      open = parts.take<uint8_t>(h.k_dims / 4 * kOpenQuad);
      start = parts.take<int32_t>(16);
    } else {
      q = parts.take<float>(shape.rows * h.k_dims);
      panel = parts.take<float>(16 * std::max(h.k_dims, shape.keys));
    }
    return parts.bytes();
  }
};

// The rows of a task against one step's keys: row r sees the first visible(r) of them.
struct Step {
  const AttendArgs& a;
  const History& h;
  int64_t head, begin, most;  // first key, keys in a step
  int64_t first_row, first,
      rows;  // the task's first row in q; rows first .. rows of the task see any of the keys

  int64_t visible(int64_t r) const { return std::min(most, a.start + first_row + r + 1 - begin); }
  int64_t keys() const { return visible(rows - 1); }
  int64_t first_seeing(int64_t key) const { return std::max(first, begin + key - a.start - first_row); }
  // A block of 16 keys of K; the step's keys in a block of 16 dims of V
  const void* k(int64_t key) const {
    return at(h.k(head, begin / kTileKeys), h.format, (begin % kTileKeys + key) * h.k_dims);
  }
  const void* v(int64_t dim) const {
    return at(h.v(head, begin / kTileKeys), h.format, dim * kTileKeys + begin % kTileKeys * 16);
  }
  // What is read after these: the next block of K or the first of V; the next of V or the next step's first
  // of K.
  Ahead<3> after_k(int64_t key, int64_t tiles) const {
    if (key + 16 >= keys()) return Ahead<3>(v(0), keys() * 16 * format_bytes(h.format), tiles);
    return Ahead<3>(k(key + 16), 16 * h.k_dims * format_bytes(h.format), tiles);
  }
  Ahead<3> after_v(int64_t dim, int64_t tiles) const {
    if (dim + 16 < h.padded_v()) return Ahead<3>(v(dim + 16), keys() * 16 * format_bytes(h.format), tiles);
    const Step next{a, h, head, begin + most, most, first_row, 0, rows};
    const bool ends = begin + most >= a.start + first_row + rows;
    return Ahead<3>(next.k(0), ends ? 0 : 16 * h.k_dims * format_bytes(h.format), tiles);
  }
};

// Below, what a tile's `done` reads is copied into locals: a vector store may alias anything, so that members
// would be read anew after each.

void scores_int8(Task& s, const Step& t) {
  const int64_t dims = t.h.k_dims, quads = dims / 4, stride = s.shape.score_stride(), keys = t.keys();
  const float* scales = t.h.k_scales(t.head, t.begin / kTileKeys);
  for (int64_t b = 0; b < keys; b += 16) {
    const int8_t* k = static_cast<const int8_t*>(t.k(b));
    open_lanes(k, quads, s.open, s.start);
    Ahead<3> ahead = t.after_k(b, (t.rows - t.first) / kByteRows);
    const vf scale[2] = {load(scales + b), load(scales + b + 8)};
    each_tile<kByteRows>(t.first_seeing(b), t.rows, [&](auto count, int64_t r) {
      ahead.step();
      float* to = s.scores + r * stride + b;
      const float* row_scale = s.row_scale + r;
      signed_tile<decltype(count)::value>(
          s.open, s.start, quads, s.q_bytes + r * dims, dims, [=](int i, int half, vf sums) {
            store(to + i * stride + 8 * half, sums * scale[half] * set1(row_scale[i]));
          });
    });
  }
}

void values_int8(Task& s, const Step& t) {
  const int64_t wide = t.h.padded_v(), stride = s.shape.p_stride();
  for (int64_t d = 0; d < wide; d += 16) {
    const int8_t* v = static_cast<const int8_t*>(t.v(d));
    Ahead<3> ahead = t.after_v(d, (t.rows - t.first) / kByteRows);
    each_tile<kByteRows>(t.first, t.rows, [&](auto count, int64_t r) {
      constexpr int n = decltype(count)::value;
      ahead.step();
      float* to = s.o + r * wide + d;
      const float *p_scale = s.p_scale + r, *decay = s.decay + r;
      unsigned_tile<n>(s.p + r * stride, stride, 4, v, (t.visible(r + n - 1) + 3) / 4,
                       [=](int i, int half, vf sums) {
                         float* o = to + i * wide + 8 * half;
                         store(o, fma(sums, set1(p_scale[i]), load(o) * set1(decay[i])));
                       });
    });
  }
}

void scores_float(Task& s, const Step& t) {
  const int64_t dims = t.h.k_dims, stride = s.shape.score_stride();
  for (int64_t b = 0; b < t.keys(); b += 16) {
    to_float(t.h.format, t.k(b), 16 * dims, s.panel);
    Ahead<3> ahead = t.after_k(b, (t.rows - t.first) / kFmaRows);
    each_tile<kFmaRows>(t.first_seeing(b), t.rows, [&](auto count, int64_t r) {
      ahead.step();
      float* to = s.scores + r * stride + b;
      fma_tile<decltype(count)::value>(
          s.q + r * dims, dims, 1, s.panel, 16, dims,
          [=](int i, int half, vf sums) { store(to + i * stride + 8 * half, sums); });
    });
  }
}

void values_float(Task& s, const Step& t) {
  const int64_t wide = t.h.padded_v(), stride = s.shape.score_stride();
  for (int64_t d = 0; d < wide; d += 16) {
    to_float(t.h.format, t.v(d), 16 * t.keys(), s.panel);
    Ahead<3> ahead = t.after_v(d, (t.rows - t.first) / kFmaRows);
    each_tile<kFmaRows>(t.first, t.rows, [&](auto count, int64_t r) {
      constexpr int n = decltype(count)::value;
      ahead.step();
      float* to = s.o + r * wide + d;
      const float* decay = s.decay + r;
      fma_tile<n>(s.scores + r * stride, stride, 1, s.panel, 16, t.visible(r + n - 1),
                  [=](int i, int half, vf sums) {
                    float* o = to + i * wide + 8 * half;
                    store(o, fma(load(o), set1(decay[i]), sums));
                  });
    });
  }
}

// Scores become P; m, l and decay follow. Keys that a row doesn't see but its neighbours in a register tile
// do get a P of 0.
void softmax_rows(Task& s, const Step& t) {
  const bool bytes = t.h.format == Format::int8;
  const int64_t padded = (t.keys() + 7) / 8 * 8;
  for (int64_t r = t.first; r < t.rows; ++r) {
    float* row = s.scores + r * s.shape.score_stride();
    const int64_t n = t.visible(r), end = (n + 7) / 8 * 8;
    if (bytes) {
      uint8_t* p = s.p + r * s.shape.p_stride();
      s.decay[r] =
          soften_int8(row, n, t.h.v_scales(t.head, t.begin / kTileKeys), s.m[r], s.l[r], p, s.p_scale[r]);
      std::fill(p + end, p + padded, uint8_t{0});
    } else {
      s.decay[r] = soften(row, n, s.m[r], s.l[r]);
      std::fill(row + end, row + padded, 0.0f);
    }
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
  const Shape shape = h.format == Format::int8 ? kByteShape : kFloatShape;
  const int64_t row_tasks = (a.row_end - a.row_begin + shape.rows - 1) / shape.rows, wide = h.padded_v();
  parallel_for(row_tasks * h.heads, [&](int64_t task, int worker) {
    StageClock clock(a.stages);
    const int64_t head = task / row_tasks, row = a.row_begin + task % row_tasks * shape.rows;
    const int64_t rows = std::min(shape.rows, a.row_end - row);
    Task s{};
    s.take(Parts(worker_scratch(worker, s.take(Parts(), h))), h);
    load_queries(s, a, head, row, rows);
    std::fill_n(s.o, rows * wide, 0.0f);
    std::fill_n(s.m, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(s.l, rows, 0.0f);
    clock.pack();
    const int64_t keys = a.start + row + rows;
    for (int64_t begin = 0; begin < keys; begin += shape.keys) {
      Step t{a, h, head, begin, shape.keys, row, 0, rows};
      t.first = t.first_seeing(0);
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
