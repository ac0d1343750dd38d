// K and V rows into the B operands of the NPU's products: K^T [k_dims, 512 keys] and V [512 keys, v_dims] of
// a tile.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/mla_history.hpp"
#include "kernels/mla_rows.hpp"
#include "kernels/npu_layout.hpp"

namespace mn {
namespace MN_ISA {

constexpr float kLargestHalf = 65504.0f;

// 32 values of an operand as it holds them.
inline void npu_store_run(const int8_t* x, void* run, bool&) {
  std::memcpy(run, x, kNpuDepth);
}
inline void npu_store_run(const float* x, void* run, bool& unfit) {
  for (int64_t i = 0; i < kNpuDepth; ++i) unfit |= !(std::fabs(x[i]) <= kLargestHalf);
  from_float(Format::fp16, x, kNpuDepth, run);
}

// Rows [n] of k [n, k_dims] and v [n, padded_v] become keys first .. first + n of the scratch. first is a
// multiple of 32 and no tile ends between.
template <class T>
void npu_place(const History& to, int64_t h, int64_t first, const T* k, const T* v, int64_t n) {
  const int64_t tile = first / kTileKeys, offset = first % kTileKeys, depth = to.padded_k(),
                wide = to.padded_v();
  T run[kNpuDepth];
  bool unfit = false;
  for (int64_t t = 0; t < n; ++t)
    for (int64_t d = 0; d < depth; d += kNpuDepth) {
      const int64_t some = std::clamp<int64_t>(to.k_dims - d, 0, kNpuDepth);
      std::copy_n(k + t * to.k_dims + d, some, run);
      std::fill_n(run + some, kNpuDepth - some, T{0});
      npu_store_run(run, at(to.k(h, tile), to.format, npu_b_index(to.format, d, offset + t, depth)), unfit);
    }
  for (int64_t t = 0; t < n; t += kNpuDepth) {
    const int64_t some = std::min(kNpuDepth, n - t);
    std::fill_n(run, kNpuDepth, T{0});
    for (int64_t d = 0; d < wide; ++d) {
      for (int64_t i = 0; i < some; ++i) run[i] = d < to.v_dims ? v[(t + i) * wide + d] : T{0};
      npu_store_run(run, at(to.v(h, tile), to.format, npu_b_index(to.format, offset + t, d, kTileKeys)),
                    unfit);
    }
  }
  if (unfit) to.unfit->store(true, std::memory_order_relaxed);
}

inline void npu_place_scales(const History& to, int64_t h, int64_t first, const float* k, const float* v,
                             int64_t n) {
  const int64_t tile = first / kTileKeys, offset = first % kTileKeys;
  std::copy_n(k, n, to.k_scales(h, tile) + offset);
  std::copy_n(v, n, to.v_scales(h, tile) + offset);
}

// The last tile where it isn't full: what no key fills takes part in the products, with a P of 0.
inline void npu_clear_rest(const History& to) {
  if (to.layout == HistoryLayout::cpu || to.tokens() % kTileKeys == 0) return;
  for (int64_t h = 0; h < to.heads; ++h)
    std::memset(to.k(h, to.tiles - 1), 0, static_cast<size_t>(to.tile_bytes()));
}

}  // namespace MN_ISA
}  // namespace mn
