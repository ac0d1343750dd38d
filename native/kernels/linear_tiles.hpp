// Exact integer tiles: 16 output rows (a panel) times a few token rows. One file an instruction set, all with
// the names below in namespace mn::MN_ISA. Every path adds its floats in one order, so that a token's result
// depends neither on how many others come with it nor on the path taken:
//   W4  acc = fma(xs[k/128], sum over its four groups of float(int sum) * ws[group], acc)
//   W8  acc = fma(xs[k/128], float(int sum of 128), acc), times the row's scale at the end
//
//   quantize_group(x, n, padded, q, scale, pairs)   one activation group of up to 128 inputs
//   transpose8(v)                                  eight vectors of eight floats
//   w4_open(packed, groups, open)                   nibbles to bytes and BF16 scales to f32
//   w4_tile<T>(open, groups, rows, acc)             acc [T, 16] +=, from opened weights
//   w4_direct<T>(packed, groups, rows, acc)         the same from packed weights: for few rows
//   w8_open / w8_tile<T> / w8_direct<T>             likewise, counted in groups of 32 inputs
#pragma once
#include <cstdint>
#include <type_traits>

// Tiles are functions of their own: inlined side by side they take each other's registers.
#define MN_TILE __attribute__((noinline))

namespace mn {
namespace MN_ISA {

constexpr int64_t kW4Group = 288;  // packed bytes of 16 rows x 32 inputs: 16 BF16 scales, 8 x 32 nibble pairs
constexpr int64_t kW4OpenGroup = 576;  // 8 x (rows 0..7, rows 8..15) x 4 inputs as bytes, 16 f32 scales
constexpr int64_t kW8Group = 512;      // 8 x 16 rows x 4 inputs
constexpr int64_t kMaxTile = 6;        // token rows of one register tile
constexpr int64_t kMaxDirect = 16;     // rows up to which weights are read straight from their packed form

// Weights that are read in order up to `end` and then go on `jump` bytes further: for fetching them early.
struct Stream {
  const uint8_t* end = nullptr;
  int64_t jump = 0;
};

// Quantized activations of a tile, from the tile's first row and the first group of its K range on. A K
// range starts at a multiple of 128.
struct TileRows {
  const int8_t* q;
  const float* scales;
  const int16_t* pairs;
  int64_t q_stride, scale_stride, pair_stride;  // elements from row to row
  Stream stream = {};
};

// f(T) with T = 1..kMaxTile token rows known to the compiler.
template <class F>
void with_rows(int64_t rows, F f) {
  if (rows == 1) return f(std::integral_constant<int, 1>());
  if (rows == 2) return f(std::integral_constant<int, 2>());
  if (rows == 3) return f(std::integral_constant<int, 3>());
  if (rows == 4) return f(std::integral_constant<int, 4>());
  if (rows == 5) return f(std::integral_constant<int, 5>());
  f(std::integral_constant<int, 6>());
}

}  // namespace MN_ISA
}  // namespace mn

#if defined(MN_ISA_avx2)
#include "kernels/linear_tiles_avx2.hpp"
#elif defined(MN_ISA_neon) || defined(MN_ISA_neon_dot)
#include "kernels/linear_tiles_neon.hpp"
#else
#include "kernels/linear_tiles_generic.hpp"
#endif
