#include <algorithm>
#include <cstring>

#include "core/pool.hpp"
#include "kernels/npu.hpp"
#include "kernels/npu_sums.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr int64_t kGroup = 128;  // inputs that share an activation scale

}  // namespace

void npu_weights(const NpuWeightsArgs& a) {
  const int64_t padded = a.w.groups() * 32, width = npu_b_width(Format::int8);
  parallel_for(a.cols / width, [&](int64_t task, int) {
    for (int64_t n = task * width; n < (task + 1) * width; ++n) {
      const int64_t row = a.first + n;
      const uint8_t* from = a.w.data + row / 16 * a.w.panel_bytes() + row % 16 * 4;
      for (int64_t group = 0; group < padded; group += kGroup) {
        const int64_t depth = std::min(kGroup, padded - group);
        int8_t* b = a.b + group * a.cols;
        for (int64_t k = 0; k < depth; k += 4) {
          int8_t* to = b + npu_b_index(Format::int8, k, n, depth);
          if (n < a.rows)
            std::memcpy(to, from + (group + k) / 4 * 64, 4);
          else
            std::memset(to, 0, 4);
        }
      }
    }
  });
}

void npu_inputs(const NpuInputsArgs& a) {
  const int8_t* q = a.x.q + a.group * kGroup;
  parallel_for(a.depth / kNpuPiece, [&](int64_t task, int) {
    int8_t* to = a.a + task * kNpuPiece * a.capacity;
    for (int64_t r = 0; r < a.x.rows; ++r)
      std::memcpy(to + r * kNpuPiece, q + r * a.x.q_stride + task * kNpuPiece, kNpuPiece);
    std::memset(to + a.x.rows * kNpuPiece, 0, static_cast<size_t>((a.capacity - a.x.rows) * kNpuPiece));
  });
}

void npu_combine(const NpuCombineArgs& a) {
  constexpr int64_t kCols = 32;                           // of a task: all rows of four columns lie together
  const int64_t rows = a.x.rows, pairs = (rows + 1) / 2;  // two rows' four columns are a vector
  parallel_for((a.cols + kCols - 1) / kCols, [&](int64_t task, int worker) {
    float* scales = static_cast<float*>(worker_scratch(worker, a.groups * pairs * 32));  // [groups][pairs][8]
    for (int64_t g = 0; g < a.groups; ++g)
      for (int64_t i = 0; i < 8 * pairs; ++i)
        scales[g * pairs * 8 + i] = a.x.scales[std::min(i / 4, rows - 1) * a.x.scale_stride + a.first + g];
    for (int64_t n = task * kCols; n < std::min(a.cols, (task + 1) * kCols); n += 4) {
      alignas(32) float two[8], row_scales[8];
      const int64_t wide = std::clamp<int64_t>(a.outputs - n, 0, 4);
      for (int64_t i = 0; i < 8; ++i) row_scales[i] = i % 4 < wide ? a.row_scales[n + i % 4] : 0.0f;
      const uint8_t* c = a.sums + 4 * npu_c_index(0, n, a.capacity);
      float *kept = a.acc + 2 * n * pairs, *out = a.out + n;  // acc [cols / 4][pairs][8]
      for (int64_t p = 0; p < pairs; ++p) {
        vf acc = a.first ? load(kept + 8 * p) : zero();
        for (int64_t g = 0; g < a.groups; ++g)
          acc = fma(npu_sums<Format::int8>(c + g * a.c_bytes + 32 * p), load(scales + (g * pairs + p) * 8),
                    acc);
        if (!a.last) {
          store(kept + 8 * p, acc);
          continue;
        }
        store(two, acc * load(row_scales));
        for (int64_t i = 0; i < std::min<int64_t>(2, rows - 2 * p); ++i) {
          float* to = out + (2 * p + i) * a.outputs;
          if (wide == 4)
            std::memcpy(to, two + 4 * i, 16);
          else
            std::memcpy(to, two + 4 * i, static_cast<size_t>(4 * wide));
        }
      }
    }
  });
}

}  // namespace MN_ISA
}  // namespace mn
