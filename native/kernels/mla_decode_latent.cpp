// Absorbed decode. Lanes are heads, in blocks of 16, so that scores need no rearranged cache: 4 latent values
// of a key are broadcast against 16 heads. P c needs 4 keys side by side; a tile of the latent is interleaved
// for it in L2.
//
// INT8, exactly: q_latent is quantized per head and group of 128 (quantize_row), with the softmax scale in
// its scale. Score = fp32 rope product + sum over groups of float(int32 sum) * (query scale * key scale). Per
// tile of kByteKeys keys, counted from 0, and group: w = p * key scale, P = round(w * (127 / max w)), u' = u
// e^(m - m') + (max w / 127) * float(int32 sum of P c); a max w below 1e-30 counts as 0.
#include <algorithm>
#include <limits>

#include "core/pool.hpp"
#include "kernels/attention_tiles.hpp"
#include "kernels/mla_decode.hpp"
#include "kernels/mla_rows.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kByteKeys = 128, kFloatKeys = 64;  // keys of a tile; both divide kChunkKeys
constexpr int64_t kMaxKeys = 128;
constexpr int64_t kLanes = 16;

int64_t padded_stride(int64_t width) {  // an odd number of cache lines: a column falls into all L1 sets
  return ((width + 15) / 16 | 1) * 16;
}

// The query of 16 heads, prepared once a call.
struct Query {
  uint8_t* open;   // int8: [rank / 4] opened quads
  int32_t* start;  // int8: [groups][16]
  float* scales;   // int8: [groups][16]
  float* lanes;    // [rank + rope_dims][16], with the softmax scale; int8 uses the rope part

  int64_t take(Parts parts, int64_t rank, int64_t rope_dims) {
    const int64_t groups = (rank + 127) / 128;
    open = parts.take<uint8_t>(rank / 4 * kOpenQuad);
    start = parts.take<int32_t>(groups * kLanes);
    scales = parts.take<float>(groups * kLanes);
    lanes = parts.take<float>((rank + rope_dims) * kLanes);
    return parts.bytes();
  }
};

struct Layout {  // of DecodeLatentArgs::scratch
  int64_t blocks, query_bytes, partial;

  explicit Layout(const DecodeLatentArgs& a) {
    blocks = (a.heads + kLanes - 1) / kLanes;
    Query q{};
    query_bytes = q.take(Parts(), a.rank, a.rope_dims);
    partial = blocks * kLanes * (a.rank + 2);  // u [heads][rank], m, l
  }
  Query query(const DecodeLatentArgs& a, int64_t sequence, int64_t block) const {
    Query q{};
    q.take(Parts(a.scratch + (sequence * blocks + block) * query_bytes), a.rank, a.rope_dims);
    return q;
  }
  float* partials(const DecodeLatentArgs& a, int64_t chunk) const {
    return reinterpret_cast<float*>(a.scratch + a.sequences * blocks * query_bytes) + chunk * partial;
  }
};

void prepare(const DecodeLatentArgs& a, int64_t sequence, int64_t block, const Query& to, int worker) {
  const int64_t rank = a.rank, heads = std::min(kLanes, a.heads - block * kLanes),
                groups = (rank + 127) / 128;
  const bool bytes = a.views[sequence].format == Format::int8;
  const int64_t row = sequence * a.heads + block * kLanes;
  std::fill_n(to.lanes, (rank + a.rope_dims) * kLanes, 0.0f);
  for (int64_t h = 0; h < heads; ++h) {
    const float *latent = a.q_latent + (row + h) * rank, *rope = a.q_rope + (row + h) * a.rope_dims;
    if (!bytes)
      for (int64_t i = 0; i < rank; ++i) to.lanes[i * kLanes + h] = latent[i] * a.scale;
    for (int64_t i = 0; i < a.rope_dims; ++i) to.lanes[(rank + i) * kLanes + h] = rope[i] * a.scale;
  }
  if (!bytes) return;
  Parts parts(worker_scratch(worker, rank * kLanes + 1024));
  int8_t *lanes = parts.take<int8_t>(rank * kLanes), *group = parts.take<int8_t>(128);
  std::fill_n(lanes, rank * kLanes, int8_t{0});
  std::fill_n(to.scales, groups * kLanes, 0.0f);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t g = 0; g < groups; ++g) {
      const int64_t n = std::min<int64_t>(128, rank - 128 * g);
      to.scales[g * kLanes + h] = quantize_row(a.q_latent + (row + h) * rank + 128 * g, n, group) * a.scale;
      for (int64_t i = 0; i < n; i += 4) std::memcpy(lanes + (128 * g + i) * kLanes + 4 * h, group + i, 4);
    }
  for (int64_t g = 0; g < groups; ++g)
    open_lanes(lanes + 128 * g * kLanes, std::min<int64_t>(128, rank - 128 * g) / 4,
               to.open + 32 * g * kOpenQuad, to.start + g * kLanes);
}

// A chunk's buffers. Scores are [key][16 heads].
struct Tile {
  float *scores, *rows, *key_scales, *p_scale, *decay, *inverse;
  int8_t* dims;  // int8: [rank / 16][keys / 4][16 dims][4 keys]
  uint8_t* p;    // int8: [groups][keys / 4][16 heads][4 keys]
  int64_t stride;

  int64_t take(Parts parts, const LatentView& view) {
    const bool bytes = view.format == Format::int8;
    const int64_t groups = view.groups();
    stride = bytes ? view.rope_dims : padded_stride(view.rank + view.rope_dims);
    scores = parts.take<float>(kMaxKeys * kLanes);
    rows = parts.take<float>((bytes ? kByteKeys : kFloatKeys) * stride + 16);
    decay = parts.take<float>(kLanes);
    inverse = parts.take<float>(kLanes);
    if (bytes) {
      key_scales = parts.take<float>(groups * kByteKeys);
      p_scale = parts.take<float>(groups * kLanes);
      dims = parts.take<int8_t>(view.rank * kByteKeys);
      p = parts.take<uint8_t>(groups * kByteKeys * kLanes);
    }
    return parts.bytes();
  }
};

void load_bytes(const Tile& s, const LatentView& view, int64_t first, int64_t n) {
  const int8_t* c = static_cast<const int8_t*>(view.latent) + first * view.rank;
  const int64_t groups = view.groups();
  to_float(view.rope_format, at(view.rope, view.rope_format, first * view.rope_dims), n * view.rope_dims,
           s.rows);
  for (int64_t g = 0; g < groups; ++g)
    for (int64_t t = 0; t < (n + 3) / 4 * 4; ++t)
      s.key_scales[g * kByteKeys + t] = t < n ? view.scales[(first + t) * groups + g] : 0.0f;
  for (int64_t t = 0; t < n; t += 4) {
    const int8_t* row[4];
    for (int64_t j = 0; j < 4; ++j) row[j] = c + std::min(t + j, n - 1) * view.rank;
    for (int64_t d = 0; d < view.rank; d += 16) {
      const int8_t* from[4] = {row[0] + d, row[1] + d, row[2] + d, row[3] + d};
      interleave(from, s.dims + d * kByteKeys + t * 16);
    }
  }
}

void load_floats(const Tile& s, const LatentView& view, int64_t first, int64_t n) {
  for (int64_t t = 0; t < n; ++t) {
    float* row = s.rows + t * s.stride;
    to_float(view.format, at(view.latent, view.format, (first + t) * view.rank), view.rank, row);
    to_float(view.rope_format, at(view.rope, view.rope_format, (first + t) * view.rope_dims), view.rope_dims,
             row + view.rank);
  }
}

// The rows of the next tile, fetched while this one is worked on.
Ahead next_rows(const LatentView& view, int64_t first, int64_t end, int64_t shares) {
  const int64_t width = view.rank * format_bytes(view.format);
  return Ahead(static_cast<const char*>(view.latent) + first * width,
               std::max<int64_t>(0, end - first) * width, shares);
}

// scores (+)= rows . lanes, over dims begin .. end of the query's lanes
void scores_float(const Tile& s, const Query& q, const float* rows, int64_t begin, int64_t end, int64_t n,
                  Ahead* ahead) {
  constexpr int64_t kDepth = 256;
  for (int64_t k = begin; k < end; k += kDepth) {
    const int64_t depth = std::min(kDepth, end - k);
    each_tile<kFmaRows>(0, n, [&](auto count, int64_t t) {
      ahead->step();
      fma_tile<decltype(count)::value>(rows + t * s.stride + (k - begin), s.stride, 1, q.lanes + k * kLanes,
                                       kLanes, depth, [&](int i, int half, vf sums) {
                                         float* to = s.scores + (t + i) * kLanes + 8 * half;
                                         store(to, k > begin ? load(to) + sums : sums);
                                       });
    });
  }
}

void scores_bytes(const Tile& s, const Query& q, const LatentView& view, int64_t first, int64_t n,
                  Ahead* ahead) {
  const int64_t rank = view.rank;
  const int8_t* c = static_cast<const int8_t*>(view.latent) + first * rank;
  if (view.rope_dims > 0)
    scores_float(s, q, s.rows, rank, rank + view.rope_dims, n, ahead);
  else
    std::fill_n(s.scores, n * kLanes, 0.0f);
  for (int64_t g = 0; g < view.groups(); ++g) {
    const float* scales = s.key_scales + g * kByteKeys;
    const vf q_scale[2] = {load(q.scales + g * kLanes), load(q.scales + g * kLanes + 8)};
    each_tile<kByteRows>(0, n, [&](auto count, int64_t t) {
      ahead->step();
      signed_tile<decltype(count)::value>(q.open + 32 * g * kOpenQuad, q.start + g * kLanes,
                                          std::min<int64_t>(128, rank - 128 * g) / 4, c + t * rank + 128 * g,
                                          rank, [&](int i, int half, vf sums) {
                                            float* to = s.scores + (t + i) * kLanes + 8 * half;
                                            vf scale = q_scale[half] * set1(scales[t + i]);
                                            store(to, fma(sums, scale, load(to)));
                                          });
    });
  }
}

// Scores become p = e^(s - m'); m, l and decay follow.
void softmax(const Tile& s, float* m, float* l, int64_t n) {
  for (int64_t half = 0; half < kLanes; half += 8) {
    vf old = load(m + half), top = old;
    for (int64_t t = 0; t < n; ++t) top = max(top, load(s.scores + t * kLanes + half));
    vf decay = exp(old - top), total = zero();
    for (int64_t t = 0; t < n; ++t) {
      vf p = exp(load(s.scores + t * kLanes + half) - top);
      total = total + p;
      store(s.scores + t * kLanes + half, p);
    }
    store(m + half, top);
    store(s.decay + half, decay);
    store(l + half, fma(load(l + half), decay, total));
  }
}

void quantize_p(const Tile& s, int64_t groups, int64_t n) {
  std::fill(s.scores + n * kLanes, s.scores + (n + 3) / 4 * 4 * kLanes, 0.0f);
  for (int64_t g = 0; g < groups; ++g) {
    const float* scales = s.key_scales + g * kByteKeys;
    vf most[2] = {zero(), zero()};
    for (int64_t t = 0; t < n; ++t)
      for (int half = 0; half < 2; ++half)
        most[half] = max(most[half], load(s.scores + t * kLanes + 8 * half) * set1(scales[t]));
    float* p_scale = s.p_scale + g * kLanes;
    store(p_scale, most[0]);
    store(p_scale + 8, most[1]);
    for (int64_t h = 0; h < kLanes; ++h) {
      const bool counts = p_scale[h] >= 1e-30f;
      s.inverse[h] = counts ? 127.0f / p_scale[h] : 0.0f;
      p_scale[h] = counts ? p_scale[h] / 127.0f : 0.0f;
    }
    uint8_t* p = s.p + g * kByteKeys * kLanes;
    for (int64_t t = 0; t < n; t += 4)
      quantize_quad(s.scores + t * kLanes, scales + t, s.inverse, p + t * kLanes);
  }
}

void values_bytes(const Tile& s, int64_t rank, int64_t heads, int64_t n, float* u) {
  for (int64_t d = 0; d < rank; d += 16) {
    const uint8_t* p = s.p + d / 128 * kByteKeys * kLanes;
    const float* p_scale = s.p_scale + d / 128 * kLanes;
    each_tile<kByteRows>(0, heads, [&](auto count, int64_t h) {
      unsigned_tile<decltype(count)::value>(p + 4 * h, 4, 64, s.dims + d * kByteKeys, (n + 3) / 4,
                                            [&](int i, int half, vf sums) {
                                              float* to = u + (h + i) * rank + d + 8 * half;
                                              vf scale = set1(p_scale[h + i]);
                                              store(to, fma(sums, scale, load(to) * set1(s.decay[h + i])));
                                            });
    });
  }
}

void values_float(const Tile& s, int64_t rank, int64_t heads, int64_t n, float* u) {
  for (int64_t d = 0; d < rank; d += 16)
    each_tile<kFmaRows>(0, heads, [&](auto count, int64_t h) {
      fma_tile<decltype(count)::value>(s.scores + h, 1, kLanes, s.rows + d, s.stride, n,
                                       [&](int i, int half, vf sums) {
                                         float* to = u + (h + i) * rank + d + 8 * half;
                                         store(to, fma(load(to), set1(s.decay[h + i]), sums));
                                       });
    });
}

void chunk(const DecodeLatentArgs& a, const Layout& layout, int64_t sequence, int64_t index, int worker) {
  StageClock clock(a.stages);
  const LatentView& view = a.views[sequence];
  const bool bytes = view.format == Format::int8;
  const int64_t rank = a.rank, lanes = layout.blocks * kLanes;
  const int64_t begin = (index - a.first_chunk[sequence]) * kChunkKeys;
  const int64_t end = std::min(a.lengths[sequence], begin + kChunkKeys),
                step = bytes ? kByteKeys : kFloatKeys;
  float *u = layout.partials(a, index), *m = u + lanes * rank, *l = m + lanes;
  std::fill_n(u, lanes * rank, 0.0f);
  std::fill_n(m, lanes, -std::numeric_limits<float>::infinity());
  std::fill_n(l, lanes, 0.0f);
  Tile s{};
  s.take(Parts(worker_scratch(worker, s.take(Parts(), view))), view);
  for (int64_t first = begin; first < end; first += step) {
    const int64_t n = std::min(step, end - first);
    bytes ? load_bytes(s, view, first, n) : load_floats(s, view, first, n);
    clock.pack();
    // Shares: tiles of one block of heads, a group of 128 (int8) or 256 dims each
    Ahead ahead = next_rows(view, first + n, std::min(a.lengths[sequence], first + n + step),
                            bytes ? n / kByteRows * view.groups() : n / kFmaRows * ((rank + 255) / 256));
    for (int64_t block = 0; block < layout.blocks; ++block) {
      const Query q = layout.query(a, sequence, block);
      const int64_t lane = block * kLanes, heads = std::min(kLanes, a.heads - lane);
      if (bytes)
        scores_bytes(s, q, view, first, n, &ahead);
      else
        scores_float(s, q, s.rows, 0, rank + a.rope_dims, n, &ahead);
      clock.matmul();
      softmax(s, m + lane, l + lane, n);
      if (bytes) quantize_p(s, view.groups(), n);
      clock.softmax();
      if (bytes)
        values_bytes(s, rank, heads, n, u + lane * rank);
      else
        values_float(s, rank, heads, n, u + lane * rank);
      clock.matmul();
    }
  }
}

void combine(const DecodeLatentArgs& a, const Layout& layout, int64_t sequence, int64_t head) {
  const int64_t lanes = layout.blocks * kLanes, first = a.first_chunk[sequence],
                last = a.first_chunk[sequence + 1];
  float* out = a.out + (sequence * a.heads + head) * a.rank;
  auto m = [&](int64_t c) { return layout.partials(a, c)[lanes * a.rank + head]; };
  float top = m(first);
  for (int64_t c = first + 1; c < last; ++c) top = std::max(top, m(c));
  float total = 0;
  std::fill_n(out, a.rank, 0.0f);
  for (int64_t c = first; c < last; ++c) {
    alignas(32) float w[8];
    store(w, exp(set1(m(c) - top)));
    total += w[0] * layout.partials(a, c)[lanes * (a.rank + 1) + head];
    const float* u = layout.partials(a, c) + head * a.rank;
    for (int64_t i = 0; i < a.rank; i += 8) store(out + i, fma(load(u + i), set1(w[0]), load(out + i)));
  }
  for (int64_t i = 0; i < a.rank; i += 8) store(out + i, load(out + i) * set1(1.0f / total));
}

}  // namespace

void decode_latent_scratch(const DecodeLatentScratchArgs& args) {
  const DecodeLatentArgs& a = *args.decode;
  Layout layout(a);
  *args.bytes =
      a.sequences * layout.blocks * layout.query_bytes + a.first_chunk[a.sequences] * layout.partial * 4;
}

void mla_decode_latent(const DecodeLatentArgs& a) {
  const Layout layout(a);
  parallel_for(a.sequences * layout.blocks, [&](int64_t task, int worker) {
    const int64_t sequence = task / layout.blocks, block = task % layout.blocks;
    prepare(a, sequence, block, layout.query(a, sequence, block), worker);
  });
  parallel_for(a.first_chunk[a.sequences], [&](int64_t task, int worker) {
    int64_t sequence = 0;
    while (task >= a.first_chunk[sequence + 1]) ++sequence;
    chunk(a, layout, sequence, task, worker);
  });
  parallel_for(a.sequences * a.heads,
               [&](int64_t task, int) { combine(a, layout, task / a.heads, task % a.heads); });
}

}  // namespace MN_ISA
}  // namespace mn
