// A few panels of packed weights times a block of token rows: what linear and experts share.
#pragma once
#include <algorithm>
#include <cstring>

#include "kernels/linear.hpp"
#include "kernels/linear_tiles.hpp"

namespace mn {
namespace MN_ISA {

constexpr int64_t kPanelsAtOnce = 2;   // share a tile's activations while these are in L1
constexpr int64_t kChunkGroups4 = 16;  // opened W4: 2 x 9 KB in L1
constexpr int64_t kChunkGroups8 = 8;   // opened W8: 2 x 8.5 KB in L1
constexpr int64_t kOpenBytes = kPanelsAtOnce * (kChunkGroups4 * kW4OpenGroup > kChunkGroups8 * kW8OpenGroup
                                                    ? kChunkGroups4 * kW4OpenGroup
                                                    : kChunkGroups8 * kW8OpenGroup);

inline TileRows tile_rows(const QuantizedRows& x, int64_t row, int64_t group) {
  return {x.q + row * x.q_stride + 32 * group,
          x.scales + row * x.scale_stride + group / 4,
          x.pairs + row * x.pair_stride + 2 * group,
          x.q_stride,
          x.scale_stride,
          x.pair_stride};
}

// Token rows of the next tile where `left` are left. Zen 3 runs a W8 tile of four rows a quarter slower than
// one of three or five.
inline int64_t tile_size(int bits, int64_t left) {
  if (bits == 4) return left <= kMaxTile ? left : left < 2 * kMaxTile - 1 ? left / 2 : 4;
  return left == 4 ? 3 : left == 9 ? 6 : std::min<int64_t>(left, 5);
}

// acc [count, n, 16] = rows row .. row + n of x times panels panel .. panel + count (at most kPanelsAtOnce).
// open: kOpenBytes of scratch, aligned to 64. stream: what is read after these panels, where rows are few.
inline void multiply_panels(const PackedWeights& w, int64_t panel, int64_t count, const QuantizedRows& x,
                            int64_t row, int64_t n, float* acc, uint8_t* open, Stream stream = {}) {
  std::memset(acc, 0, static_cast<size_t>(count * n * 64));
  const int64_t groups = w.groups(), bytes = w.panel_bytes();
  const uint8_t* data = w.data + panel * bytes;
  const float* scales = w.scales ? w.scales + panel * 16 : nullptr;
  if (n <= kMaxDirect) {
    for (int64_t p = 0; p < count; ++p)
      for (int64_t t = 0, tile; t < n; t += tile) {
        tile = std::min<int64_t>(n - t, n - t == 5 || n - t == 6 ? 3 : 4);
        TileRows r = tile_rows(x, row + t, 0);
        r.stream = stream;
        float* a = acc + (p * n + t) * 16;
        if (w.bits == 4)
          with_rows(tile, [&](auto rows) { w4_direct<rows>(data + p * bytes, groups, r, a); });
        else
          with_rows(tile, [&](auto rows) {
            w8_direct<rows>(reinterpret_cast<const int8_t*>(data + p * bytes), groups, r, scales + p * 16, a);
          });
      }
    return;
  }
  const int64_t chunk = w.bits == 4 ? kChunkGroups4 : kChunkGroups8, group_bytes = bytes / groups;
  for (int64_t g = 0; g < groups; g += chunk) {
    const int64_t size = std::min(chunk, groups - g);
    const bool last = g + size == groups;
    for (int64_t p = 0; p < count; ++p) {
      const uint8_t* packed = data + p * bytes + g * group_bytes;
      if (w.bits == 4)
        w4_open(packed, size, open + p * kChunkGroups4 * kW4OpenGroup);
      else
        w8_open(reinterpret_cast<const int8_t*>(packed), size, open + p * kChunkGroups8 * kW8OpenGroup);
    }
    // What is opened next comes from memory while this chunk is computed: its next chunk, or the next
    // panels'.
    const uint8_t* next = data + (last ? count * bytes : (g + size) * group_bytes);
    const int64_t next_bytes = std::min(chunk, last ? groups : groups - g - size) * group_bytes;
    int64_t fetched = 0;
    for (int64_t t = 0, tile; t < n; t += tile) {
      tile = tile_size(w.bits, n - t);
      for (; fetched * n < (t + tile) * next_bytes; fetched += 64)
        for (int64_t p = 0; p < count; ++p) prefetch_l2(next + p * bytes + fetched);
      TileRows r = tile_rows(x, row + t, g);
      for (int64_t p = 0; p < count; ++p) {
        float* a = acc + (p * n + t) * 16;
        if (w.bits == 4)
          with_rows(tile,
                    [&](auto rows) { w4_tile<rows>(open + p * kChunkGroups4 * kW4OpenGroup, size, r, a); });
        else
          with_rows(tile, [&](auto rows) {
            w8_tile<rows>(open + p * kChunkGroups8 * kW8OpenGroup, size, r, last ? scales + p * 16 : nullptr,
                          a);
          });
      }
    }
  }
}

}  // namespace MN_ISA
}  // namespace mn
