#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/pool.hpp"
#include "kernels/attention_rows.hpp"
#include "kernels/mla_history.hpp"
#include "kernels/mla_rows.hpp"
#include "kernels/npu.hpp"
#include "kernels/npu_place.hpp"
#include "kernels/npu_sums.hpp"

namespace mn {
namespace MN_ISA {
namespace {

// Rows of a task. In A and C four and more rows share a cache line.
constexpr int64_t kRows = 16;
constexpr int64_t kStride = kTileKeys + 16;  // of a row of scores: rows fall into different L1 sets

template <class Body>
void for_rows(int64_t rows, Body&& body) {
  parallel_for((rows + kRows - 1) / kRows, [&](int64_t task, int worker) {
    body(task * kRows, std::min(rows, (task + 1) * kRows), worker);
  });
}

// 16-byte pieces of a row [bytes] into row m of A.
inline void store_row(const void* row, int64_t bytes, uint8_t* a, int64_t m, int64_t capacity) {
  const uint8_t* from = static_cast<const uint8_t*>(row);
  for (int64_t i = 0; i < bytes; i += kNpuPiece)
    std::memcpy(a + i * capacity + m * kNpuPiece, from + i, kNpuPiece);
}

inline void clear_rows(uint8_t* a, int64_t bytes, int64_t first, int64_t end, int64_t capacity) {
  if (first >= end) return;
  for (int64_t i = 0; i < bytes; i += kNpuPiece)
    std::memset(a + i * capacity + first * kNpuPiece, 0, static_cast<size_t>((end - first) * kNpuPiece));
}

// Scores of rows first .. end, keys 0 .. keys, to `scores`, rows kStride apart. Two rows' four keys are a
// vector.
template <Format F>
void gather(const NpuSoftmaxArgs& a, int64_t first, int64_t end, int64_t keys, float* scores) {
  alignas(32) float row_scales[kRows / 2][8], two[8];
  if (F == Format::int8)
    for (int64_t i = 0; i < 4 * (end - first); ++i) row_scales[i / 8][i % 8] = a.row_scales[first + i / 4];
  for (int64_t n = 0; n < keys; n += 4) {
    const uint8_t* c = a.scores + 4 * npu_c_index(first, n, a.capacity);
    vf key_scales = zero();
    if (F == Format::int8) {
      std::memcpy(two, a.k_scales + n, 16);
      std::memcpy(two + 4, a.k_scales + n, 16);
      key_scales = load(two);
    }
    for (int64_t r = 0; r < end - first; r += 2, c += 32) {
      vf sums = npu_sums<F>(c);
      if (F == Format::int8) sums = sums * key_scales * load(row_scales[r / 2]);
      store(two, sums);
      std::memcpy(scores + r * kStride + n, two, 16);
      if (r + 1 < end - first) std::memcpy(scores + (r + 1) * kStride + n, two + 4, 16);
    }
  }
}

}  // namespace

void npu_queries(const NpuQueriesArgs& a) {
  const int64_t bytes = a.depth * format_bytes(a.format);
  for_rows(a.capacity, [&](int64_t first, int64_t end, int worker) {
    float* row = static_cast<float*>(worker_scratch(worker, a.depth * 6));
    void* packed = row + a.depth;
    bool unfit = false;
    std::memset(row, 0, static_cast<size_t>(a.depth * 6));
    for (int64_t r = first; r < std::min(end, a.rows); ++r) {
      const float* q = a.q + r * a.stride;
      if (a.format == Format::int8) {
        a.row_scales[r] = quantize_row(q, a.k_dims, static_cast<int8_t*>(packed)) * a.scale;
      } else {
        for (int64_t i = 0; i < a.k_dims; i += 8) store(row + i, load(q + i) * set1(a.scale));
        for (int64_t i = 0; i < a.depth; i += kNpuDepth)
          npu_store_run(row + i, at(packed, Format::fp16, i), unfit);
      }
      store_row(packed, bytes, a.a, r, a.capacity);
    }
    clear_rows(a.a, bytes, std::max(first, a.rows), end, a.capacity);
    if (unfit) a.unfit->store(true, std::memory_order_relaxed);
  });
}

void npu_softmax(const NpuSoftmaxArgs& a) {
  const bool bytes = a.format == Format::int8;
  const int64_t row_bytes = kTileKeys * format_bytes(a.format);
  for_rows(a.capacity, [&](int64_t first, int64_t end, int worker) {
    float* scores = static_cast<float*>(worker_scratch(worker, kRows * kStride * 4 + 2 * kTileKeys));
    uint8_t* p = reinterpret_cast<uint8_t*>(scores + kRows * kStride);
    const int64_t rows = std::min(end, a.rows), seeing = std::clamp(1 - a.seen, first, std::max(first, rows));
    for (int64_t r = first; r < std::min(seeing, rows); ++r) {
      a.decay[r] = 1.0f;
      if (bytes) a.p_scale[r] = 0.0f;
    }
    clear_rows(a.p, row_bytes, first, std::min(seeing, end), a.capacity);
    if (seeing < rows) {
      const int64_t keys = std::min(kTileKeys, a.seen + rows - 1);
      bytes ? gather<Format::int8>(a, seeing, rows, keys, scores)
            : gather<Format::fp16>(a, seeing, rows, keys, scores);
    }
    for (int64_t r = seeing; r < rows; ++r) {
      const int64_t n = std::min(kTileKeys, a.seen + r), padded = (n + 7) / 8 * 8;
      float* row = scores + (r - seeing) * kStride;
      if (bytes) {
        a.decay[r] = soften_int8(row, n, a.v_scales, a.m[r], a.l[r], p, a.p_scale[r]);
        std::fill(p + padded, p + kTileKeys, uint8_t{0});
      } else {
        a.decay[r] = soften(row, n, a.m[r], a.l[r]);
        std::fill(row + padded, row + kTileKeys, 0.0f);
        from_float(Format::fp16, row, kTileKeys, p);
      }
      store_row(p, row_bytes, a.p, r, a.capacity);
    }
    clear_rows(a.p, row_bytes, std::max(first, rows), end, a.capacity);
  });
}

template <Format F>
void accumulate_rows(const NpuAccumulateArgs& a, int64_t first, int64_t end) {
  alignas(32) float eight[8];
  for (int64_t d = 0; d < a.dims; d += 8)
    for (int64_t r = first; r < end; ++r) {
      const uint8_t* c = a.sums + 4 * npu_c_index(r, d, a.capacity);
      std::memcpy(eight, c, 16);
      std::memcpy(eight + 4, c + 16 * a.capacity, 16);
      const vf sums = npu_sums<F>(reinterpret_cast<const uint8_t*>(eight));
      float* o = a.o + r * a.dims + d;
      store(o, F == Format::int8 ? fma(sums, set1(a.p_scale[r]), load(o) * set1(a.decay[r]))
                                 : fma(load(o), set1(a.decay[r]), sums));
    }
}

void npu_accumulate(const NpuAccumulateArgs& a) {
  for_rows(a.rows, [&](int64_t first, int64_t end, int) {
    first = std::max(first, a.first);
    a.format == Format::int8 ? accumulate_rows<Format::int8>(a, first, end)
                             : accumulate_rows<Format::fp16>(a, first, end);
  });
}

}  // namespace MN_ISA
}  // namespace mn
