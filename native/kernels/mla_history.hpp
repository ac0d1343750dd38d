// Prefill attention: K and V of a few heads, expanded and rearranged once, then attended by many query rows.
#pragma once
#include <atomic>
#include <cstdint>

#include "core/dispatch.hpp"
#include "kernels/linear.hpp"
#include "kernels/mla.hpp"
#include "kernels/mla_stages.hpp"

namespace mn {

// Keys are cut into tiles of this many, counted from position 0. For INT8 it is part of the definition,
// because P is quantized per row and tile: a device that computes the same must cut at the same keys.
constexpr int64_t kTileKeys = 512;

// Who reads the scratch: this file's attention, or the NPU's matmul library (kernels/npu_layout.hpp).
enum class HistoryLayout { cpu, rknpu };

// Scratch: [heads][tiles] of
//   floats  K [32 blocks of 16 keys][k_dims][16 keys], V [padded_v / 16][512 keys][16 dims]
//   int8    K [32][k_dims / 4][16 keys][4 dims], V [padded_v / 16][128][16 dims][4 keys], K and V scales f32
//   [512] each
// Keys from `length` on, and V's padding dims, hold anything.
//   rknpu   K^T and V as the B operands of int8 or fp16 products, dims padded to 32; what pads is 0. Scales
//   as above.
struct History {
  Format format;
  HistoryLayout layout;
  uint8_t* data;
  int64_t head, heads;    // which heads of the layer
  int64_t begin, length;  // which tokens: begin, a multiple of kTileKeys, to length
  int64_t tiles, k_dims, v_dims;
  std::atomic<bool>* unfit;  // fp16 for the NPU: set where a value is beyond FP16

  int64_t tokens() const { return length - begin; }
  int64_t padded_k() const { return layout == HistoryLayout::cpu ? k_dims : (k_dims + 31) / 32 * 32; }
  int64_t padded_v() const {
    const int64_t step = layout == HistoryLayout::cpu ? 16 : 32;
    return (v_dims + step - 1) / step * step;
  }
  int64_t k_bytes() const { return kTileKeys * padded_k() * format_bytes(format); }
  int64_t v_bytes() const { return kTileKeys * padded_v() * format_bytes(format); }
  int64_t tile_bytes() const { return k_bytes() + v_bytes() + (format == Format::int8 ? 8 * kTileKeys : 0); }
  uint8_t* k(int64_t h, int64_t tile) const { return data + (h * tiles + tile) * tile_bytes(); }
  uint8_t* v(int64_t h, int64_t tile) const { return k(h, tile) + k_bytes(); }
  float* k_scales(int64_t h, int64_t tile) const { return reinterpret_cast<float*>(v(h, tile) + v_bytes()); }
  float* v_scales(int64_t h, int64_t tile) const { return k_scales(h, tile) + kTileKeys; }
};

// K_nope[h] = Wk[h] c, V[h] = Wv[h] c for heads head .. head + heads of the layer's `layer_heads`.
struct HistoryLatentArgs {
  History to;
  LatentView view;
  int64_t layer_heads, nope;
  PackedWeights
      packed;  // W8 [layer_heads * (nope + v_dims), rank], K part first; data is null if dense is given
  const void* dense;  // the same rows in dense_format
  Format dense_format;
  float* panels;  // dense: scratch [heads][panels_a_head][rank][16]
  Stages* stages;

  int64_t k_panels() const { return (nope + 15) / 16; }
  int64_t panels_a_head() const { return k_panels() + (to.v_dims + 15) / 16; }
};

struct HistoryExpandedArgs {
  History to;
  ExpandedView view;
  Stages* stages;
};

// Causal attention of query rows row_begin .. row_end: row t sees the first start + t + 1 keys.
struct AttendArgs {
  History history;
  const float* q;  // [rows, layer_heads, k_dims]
  float* out;      // [rows, layer_heads, v_dims]
  int64_t layer_heads, start, row_begin, row_end;
  float scale;
  Stages* stages;
};

}  // namespace mn

MN_KERNEL(history_load_latent, HistoryLatentArgs)
MN_KERNEL(history_load_expanded, HistoryExpandedArgs)
MN_KERNEL(attend, AttendArgs)
