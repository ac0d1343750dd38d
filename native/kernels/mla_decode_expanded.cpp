// Expanded decode: each head's K and V are streamed once, a chunk of keys a task. Products are fp32 in every
// format: reading the cache is what takes the time.
#include <algorithm>
#include <limits>

#include "core/pool.hpp"
#include "kernels/mla_decode.hpp"
#include "kernels/mla_rows.hpp"

namespace mn {
namespace MN_ISA {
namespace {

template <Format F, int Keys>
void dots(const float* q, const void* k, int64_t dims, int64_t key, float* scores) {
  vf sums[Keys];
#pragma GCC unroll 4
  for (int j = 0; j < Keys; ++j) sums[j] = zero();
  for (int64_t i = 0; i < dims; i += 8) {
    vf x = load(q + i);
#pragma GCC unroll 4
    for (int j = 0; j < Keys; ++j) sums[j] = fma(x, load_as<F>(k, (key + j) * dims + i), sums[j]);
  }
  for (int j = 0; j < Keys; ++j) scores[key + j] = sum(sums[j]);
}

// o [dims] += p . v for keys begin .. end, `Wide` vectors of dims at a time
template <Format F, int Wide>
void weigh(const float* p, const void* v, int64_t dims, int64_t d, int64_t begin, int64_t end, float* o) {
  vf sums[Wide];
#pragma GCC unroll 8
  for (int j = 0; j < Wide; ++j) sums[j] = load(o + d + 8 * j);
  for (int64_t t = begin; t < end; ++t) {
    vf x = set1(p[t]);
#pragma GCC unroll 8
    for (int j = 0; j < Wide; ++j) sums[j] = fma(x, load_as<F>(v, t * dims + d + 8 * j), sums[j]);
  }
#pragma GCC unroll 8
  for (int j = 0; j < Wide; ++j) store(o + d + 8 * j, sums[j]);
}

template <Format F>
void attend_chunk(const DecodeExpandedArgs& a, const ExpandedView& view, const float* q, int64_t slot,
                  int64_t n, float* scores, float* o, StageClock& clock) {
  const void* k = at(view.k, F, slot * a.k_dims);
  const void* v = at(view.v, F, slot * a.v_dims);
  int64_t t = 0;
  for (; t + 4 <= n; t += 4) dots<F, 4>(q, k, a.k_dims, t, scores);
  for (; t < n; ++t) dots<F, 1>(q, k, a.k_dims, t, scores);
  clock.matmul();
  float top = -std::numeric_limits<float>::infinity();
  for (t = 0; t < n; ++t) {
    scores[t] *= F == Format::int8 ? view.k_scales[slot + t] * a.scale : a.scale;
    top = std::max(top, scores[t]);
  }
  float total = 0;
  for (t = 0; t < n; t += 8) {
    const int left = static_cast<int>(std::min<int64_t>(8, n - t));
    vf p = exp(load_partial(scores + t, left) - set1(top));
    store(scores + t, zero());
    store_partial(scores + t, p, left);
    total += sum(load(scores + t));
    if (F == Format::int8) store(scores + t, load(scores + t) * load_partial(view.v_scales + slot + t, left));
  }
  clock.softmax();
  constexpr int64_t kKeys = 32;  // so that the rows are in L1 for their second half
  std::fill_n(o, a.v_dims, 0.0f);
  for (t = 0; t < n; t += kKeys) {
    const int64_t end = std::min(n, t + kKeys);
    int64_t d = 0;
    for (; d + 64 <= a.v_dims; d += 64) weigh<F, 8>(scores, v, a.v_dims, d, t, end, o);
    for (; d < a.v_dims; d += 8) weigh<F, 1>(scores, v, a.v_dims, d, t, end, o);
  }
  o[a.v_dims] = top;
  o[a.v_dims + 1] = total;
  clock.matmul();
}

void combine(const DecodeExpandedArgs& a, int64_t sequence, int64_t head) {
  const int64_t first = a.first_chunk[sequence], last = a.first_chunk[sequence + 1];
  auto partial = [&](int64_t c) { return a.scratch + (c * a.heads + head) * (a.v_dims + 2); };
  float* out = a.out + (sequence * a.heads + head) * a.v_dims;
  float top = partial(first)[a.v_dims];
  for (int64_t c = first + 1; c < last; ++c) top = std::max(top, partial(c)[a.v_dims]);
  float total = 0;
  std::fill_n(out, a.v_dims, 0.0f);
  for (int64_t c = first; c < last; ++c) {
    const float* o = partial(c);
    alignas(32) float w[8];
    store(w, exp(set1(o[a.v_dims] - top)));
    total += w[0] * o[a.v_dims + 1];
    for (int64_t i = 0; i < a.v_dims; i += 8) store(out + i, fma(load(o + i), set1(w[0]), load(out + i)));
  }
  for (int64_t i = 0; i < a.v_dims; i += 8) store(out + i, load(out + i) * set1(1.0f / total));
}

}  // namespace

void mla_decode_expanded(const DecodeExpandedArgs& a) {
  parallel_for(a.first_chunk[a.sequences] * a.heads, [&](int64_t task, int worker) {
    StageClock clock(a.stages);
    const int64_t index = task / a.heads, head = task % a.heads;
    int64_t sequence = 0;
    while (index >= a.first_chunk[sequence + 1]) ++sequence;
    const ExpandedView& view = a.views[sequence];
    const int64_t first = (index - a.first_chunk[sequence]) * kChunkKeys;
    const int64_t n = std::min(kChunkKeys, a.lengths[sequence] - first);
    float* scores = static_cast<float*>(worker_scratch(worker, kChunkKeys * 4));
    with_format(view.format, [&](auto format) {
      attend_chunk<decltype(format)::value>(a, view, a.q + (sequence * a.heads + head) * a.k_dims,
                                            head * view.capacity + first, n, scores,
                                            a.scratch + (index * a.heads + head) * (a.v_dims + 2), clock);
    });
  });
  parallel_for(a.sequences * a.heads, [&](int64_t task, int) { combine(a, task / a.heads, task % a.heads); });
}

}  // namespace MN_ISA
}  // namespace mn
