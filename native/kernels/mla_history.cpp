#include "kernels/mla_history.hpp"

#include <algorithm>

#include "core/pool.hpp"
#include "kernels/attention_tiles.hpp"
#include "kernels/linear_panels.hpp"
#include "kernels/mla_rows.hpp"
#include "kernels/npu_place.hpp"

namespace mn {
namespace MN_ISA {
namespace {

// Tokens of a task; each divides kTileKeys. A packed product opens its weights once a task, so that more
// tokens pay.
constexpr int64_t kPackedBlock = 128, kBlock = 64;

// Rows of K and V of one head on their way into the history.
struct Rows {
  float *k, *v;                // [block, k_dims], [block, padded_v]
  int8_t *k_bytes, *v_bytes;   // the same, quantized
  float *k_scales, *v_scales;  // [block]

  static Rows take(Parts& parts, const History& to, int64_t block) {
    Rows r;
    r.k = parts.take<float>(block * to.k_dims);
    r.v = parts.take<float>(block * to.padded_v());
    r.k_bytes = parts.take<int8_t>(block * to.k_dims);
    r.v_bytes = parts.take<int8_t>(block * to.padded_v());
    r.k_scales = parts.take<float>(block);
    r.v_scales = parts.take<float>(block);
    return r;
  }
};

void quantize_rows_of(const History& to, const Rows& rows, int64_t n) {
  for (int64_t t = 0; t < n; ++t) {
    rows.k_scales[t] = quantize_row(rows.k + t * to.k_dims, to.k_dims, rows.k_bytes + t * to.k_dims);
    rows.v_scales[t] = quantize_row(rows.v + t * to.padded_v(), to.v_dims, rows.v_bytes + t * to.padded_v());
  }
}

void place_bytes(const History& to, int64_t h, int64_t first, const Rows& rows, int64_t n) {
  const int64_t tile = first / kTileKeys, offset = first % kTileKeys, quads = to.k_dims / 4;
  int8_t* k = reinterpret_cast<int8_t*>(to.k(h, tile)) + offset / 16 * quads * 64;
  for (int64_t t = 0; t < n; ++t) {
    const int8_t* row = rows.k_bytes + t * to.k_dims;
    int8_t* out = k + t / 16 * quads * 64 + t % 16 * 4;
    for (int64_t i = 0; i < quads; ++i) std::memcpy(out + 64 * i, row + 4 * i, 4);
  }
  std::copy_n(rows.k_scales, n, to.k_scales(h, tile) + offset);
  std::copy_n(rows.v_scales, n, to.v_scales(h, tile) + offset);
  const int64_t wide = to.padded_v();
  int8_t* v = reinterpret_cast<int8_t*>(to.v(h, tile)) + offset / 4 * 64;
  for (int64_t t = 0; t < n; t += 4)
    for (int64_t b = 0; b < wide / 16; ++b) {
      const int8_t* from[4];
      for (int64_t j = 0; j < 4; ++j) from[j] = rows.v_bytes + std::min(t + j, n - 1) * wide + 16 * b;
      interleave(from, v + b * kTileKeys * 16 + t * 16);
    }
}

void place_floats(const History& to, int64_t h, int64_t first, const Rows& rows, int64_t n) {
  const int64_t tile = first / kTileKeys, offset = first % kTileKeys;
  const Format f = to.format;
  for (int64_t b = 0; b < n; b += 16) {
    const int64_t keys = std::min<int64_t>(16, n - b);
    alignas(64) float sixteen[16] = {};
    for (int64_t d = 0; d < to.k_dims; ++d) {
      for (int64_t j = 0; j < keys; ++j) sixteen[j] = rows.k[(b + j) * to.k_dims + d];
      from_float(f, sixteen, 16, at(to.k(h, tile), f, (offset + b) * to.k_dims + 16 * d));
    }
  }
  for (int64_t t = 0; t < n; ++t)
    for (int64_t d = 0; d < to.padded_v(); d += 16)
      from_float(f, rows.v + t * to.padded_v() + d, 16,
                 at(to.v(h, tile), f, d * kTileKeys + (offset + t) * 16));
}

// rows.k_bytes and v_bytes with their scales, rows `first` .. of the scratch.
void place_quantized(const History& to, int64_t h, int64_t first, const Rows& rows, int64_t n) {
  if (to.layout == HistoryLayout::cpu) return place_bytes(to, h, first, rows, n);
  npu_place(to, h, first, rows.k_bytes, rows.v_bytes, n);
  npu_place_scales(to, h, first, rows.k_scales, rows.v_scales, n);
}

void place(const History& to, int64_t h, int64_t first, const Rows& rows, int64_t n) {
  if (to.format == Format::int8) {
    quantize_rows_of(to, rows, n);
    place_quantized(to, h, first, rows, n);
  } else if (to.layout == HistoryLayout::cpu) {
    place_floats(to, h, first, rows, n);
  } else {
    npu_place(to, h, first, rows.k, rows.v, n);
  }
}

// Rows of kv_b of one head and part: 8 rows at a time, since every width is a multiple of 8.
struct Part {
  int64_t begin, rows;  // of kv_b
  float* out;           // [block, stride]
  int64_t stride;
};

void multiply_packed(const PackedWeights& w, const Part& part, const QuantizedRows& x, int64_t n, float* acc,
                     uint8_t* open) {
  const int64_t first = part.begin / 16, last = (part.begin + part.rows + 15) / 16;
  for (int64_t p = first; p < last; p += kPanelsAtOnce) {
    const int64_t count = std::min(kPanelsAtOnce, last - p);
    multiply_panels(w, p, count, x, 0, n, acc, open);
    for (int64_t i = 0; i < 2 * count; ++i) {
      const int64_t row = 16 * p + 8 * i - part.begin;
      if (row < 0 || row >= part.rows) continue;
      const float* from = acc + i / 2 * n * 16 + i % 2 * 8;
      for (int64_t t = 0; t < n; ++t) store(part.out + t * part.stride + row, load(from + 16 * t));
    }
  }
}

void multiply_dense(const float* panels, const Part& part, const float* x, int64_t rank, int64_t n) {
  constexpr int64_t kDepth = 256;  // a panel's slice and the rows it meets share L1
  for (int64_t p = 0; 16 * p < part.rows; ++p)
    for (int64_t k = 0; k < rank; k += kDepth) {
      const int64_t depth = std::min(kDepth, rank - k);
      each_tile<kFmaRows>(0, n, [&](auto count, int64_t t) {
        fma_tile<decltype(count)::value>(x + t * rank + k, rank, 1, panels + (p * rank + k) * 16, 16, depth,
                                         [&](int r, int half, vf sums) {
                                           if (16 * p + 8 * half >= part.rows) return;
                                           float* out = part.out + (t + r) * part.stride + 16 * p + 8 * half;
                                           store(out, k ? load(out) + sums : sums);
                                         });
      });
    }
}

void open_dense(const HistoryLatentArgs& a) {
  const int64_t rank = a.view.rank, each = a.panels_a_head();
  parallel_for(a.to.heads * each, [&](int64_t task, int worker) {
    const int64_t h = task / each, p = task % each, head = a.to.head + h;
    const bool is_k = p < a.k_panels();
    const int64_t begin =
        is_k ? head * a.nope + 16 * p : a.layer_heads * a.nope + head * a.to.v_dims + 16 * (p - a.k_panels());
    const int64_t left = is_k ? a.nope - 16 * p : a.to.v_dims - 16 * (p - a.k_panels());
    float* row = static_cast<float*>(worker_scratch(worker, rank * 4));
    float* out = a.panels + task * rank * 16;
    for (int64_t r = 0; r < 16; ++r) {
      if (r < left)
        to_float(a.dense_format, at(a.dense, a.dense_format, (begin + r) * rank), rank, row);
      else
        std::fill_n(row, rank, 0.0f);
      for (int64_t i = 0; i < rank; ++i) out[16 * i + r] = row[i];
    }
  });
}

void latent_row(const LatentView& view, int64_t t, float* x) {
  if (view.format == Format::int8)
    dequantize_latent(static_cast<const int8_t*>(view.latent) + t * view.rank,
                      view.scales + t * view.groups(), view.rank, x);
  else
    to_float(view.format, at(view.latent, view.format, t * view.rank), view.rank, x);
}

// The latent as quantized activations: the cache's own integers, or a float row quantized the same way.
void quantized_latent(const LatentView& view, int64_t first, int64_t n, int64_t padded, float* row, int8_t* q,
                      float* scales) {
  const int64_t groups = view.groups();
  for (int64_t t = 0; t < n; ++t) {
    int8_t* to = q + t * padded;
    std::fill_n(to + view.rank, padded - view.rank, int8_t{0});
    if (view.format == Format::int8) {
      std::copy_n(static_cast<const int8_t*>(view.latent) + (first + t) * view.rank, view.rank, to);
      std::copy_n(view.scales + (first + t) * groups, groups, scales + t * groups);
      continue;
    }
    to_float(view.format, at(view.latent, view.format, (first + t) * view.rank), view.rank, row);
    for (int64_t g = 0; g < groups; ++g)
      scales[t * groups + g] =
          quantize_row(row + 128 * g, std::min<int64_t>(128, view.rank - 128 * g), to + 128 * g);
  }
}

}  // namespace

void history_load_latent(const HistoryLatentArgs& a) {
  const History& to = a.to;
  const LatentView& view = a.view;
  const int64_t rank = view.rank, padded = (rank + 31) / 32 * 32, groups = view.groups();
  const int64_t block = a.dense ? kBlock : kPackedBlock;
  const int64_t blocks = (to.tokens() + block - 1) / block;
  if (a.dense) open_dense(a);
  npu_clear_rest(to);
  parallel_for(blocks * to.heads, [&](int64_t task, int worker) {
    StageClock clock(a.stages);
    const int64_t h = task / blocks, first = task % blocks * block, head = to.head + h;
    const int64_t n = std::min(block, to.tokens() - first), row = to.begin + first;
    Rows rows;
    float *x = nullptr, *scales = nullptr, *acc = nullptr;
    int8_t* q = nullptr;
    uint8_t* open = nullptr;
    int16_t* pairs = nullptr;
    auto take = [&](Parts parts) {
      rows = Rows::take(parts, to, block);
      x = parts.take<float>(a.dense ? block * rank : rank);
      q = parts.take<int8_t>(block * padded);
      scales = parts.take<float>(block * groups);
      acc = parts.take<float>(kPanelsAtOnce * block * 16);
      open = parts.take<uint8_t>(kOpenBytes);
      pairs = parts.take<int16_t>(padded / 16);
      return parts.bytes();
    };
    take(Parts(worker_scratch(worker, take(Parts()))));

    const Part k{head * a.nope, a.nope, rows.k, to.k_dims};
    const Part v{a.layer_heads * a.nope + head * to.v_dims, to.v_dims, rows.v, to.padded_v()};
    if (a.dense) {
      for (int64_t t = 0; t < n; ++t) latent_row(view, row + t, x + t * rank);
      clock.pack();
      const float* panels = a.panels + h * a.panels_a_head() * rank * 16;
      multiply_dense(panels, k, x, rank, n);
      multiply_dense(panels + a.k_panels() * rank * 16, v, x, rank, n);
    } else {
      quantized_latent(view, row, n, padded, x, q, scales);
      clock.pack();
      const QuantizedRows input{q, scales, pairs, n, padded, groups, 0};  // W8 doesn't look at pairs
      multiply_packed(a.packed, k, input, n, acc, open);
      multiply_packed(a.packed, v, input, n, acc, open);
    }
    clock.matmul();
    for (int64_t t = 0; t < n; ++t)
      to_float(view.rope_format, at(view.rope, view.rope_format, (row + t) * view.rope_dims), view.rope_dims,
               rows.k + t * to.k_dims + a.nope);
    place(to, h, first, rows, n);
    clock.pack();
  });
}

void history_load_expanded(const HistoryExpandedArgs& a) {
  const History& to = a.to;
  const ExpandedView& view = a.view;
  const int64_t blocks = (to.tokens() + kBlock - 1) / kBlock, wide = to.padded_v();
  npu_clear_rest(to);
  parallel_for(blocks * to.heads, [&](int64_t task, int worker) {
    StageClock clock(a.stages);
    const int64_t h = task / blocks, first = task % blocks * kBlock;
    const int64_t n = std::min(kBlock, to.tokens() - first);
    const int64_t slot = (to.head + h) * view.capacity + to.begin + first;
    Rows rows;
    auto take = [&](Parts parts) {
      rows = Rows::take(parts, to, kBlock);
      return parts.bytes();
    };
    take(Parts(worker_scratch(worker, take(Parts()))));

    if (view.format == Format::int8 && to.format == Format::int8) {
      std::copy_n(static_cast<const int8_t*>(view.k) + slot * to.k_dims, n * to.k_dims, rows.k_bytes);
      for (int64_t t = 0; t < n; ++t)
        std::copy_n(static_cast<const int8_t*>(view.v) + (slot + t) * to.v_dims, to.v_dims,
                    rows.v_bytes + t * wide);
      std::copy_n(view.k_scales + slot, n, rows.k_scales);
      std::copy_n(view.v_scales + slot, n, rows.v_scales);
      place_quantized(to, h, first, rows, n);
    } else {
      auto floats = [&](const void* from, const float* scales, int64_t dims, float* out, int64_t stride) {
        for (int64_t t = 0; t < n; ++t) {
          float* row = out + t * stride;
          to_float(view.format, at(from, view.format, (slot + t) * dims), dims, row);
          if (view.format == Format::int8)
            for (int64_t i = 0; i < dims; i += 8) store(row + i, load(row + i) * set1(scales[slot + t]));
        }
      };
      floats(view.k, view.k_scales, to.k_dims, rows.k, to.k_dims);
      floats(view.v, view.v_scales, to.v_dims, rows.v, wide);
      place(to, h, first, rows, n);
    }
    clock.pack();
  });
}

}  // namespace MN_ISA
}  // namespace mn
