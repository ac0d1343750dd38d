// Operand layouts of the RK3588's matmul library for C = A B, A [M, K], B [K, N] (docs/rk3588.md has the
// sources):
//   A  [K / s][M][s]                 s = 16 int8, 8 fp16: pieces of 16 bytes either way
//   B  [N / w][K / 32][w][32]        w = 32 int8, 16 fp16
//   C  [N / 4][M][4]                 int32, fp32
#pragma once
#include <cstdint>

#include "kernels/mla.hpp"

namespace mn {

constexpr int64_t kNpuPiece = 16;  // bytes of a row of A that lie together
constexpr int64_t kNpuDepth = 32;  // K goes in blocks of 32

inline int64_t npu_b_width(Format f) {
  return f == Format::int8 ? 32 : 16;
}
inline int64_t npu_a_index(Format f, int64_t m, int64_t k, int64_t rows) {
  const int64_t s = kNpuPiece / format_bytes(f);
  return (k / s * rows + m) * s + k % s;
}
inline int64_t npu_b_index(Format f, int64_t k, int64_t n, int64_t depth) {
  const int64_t w = npu_b_width(f);
  return ((n / w * (depth / kNpuDepth) + k / kNpuDepth) * w + n % w) * kNpuDepth + k % kNpuDepth;
}
inline int64_t npu_c_index(int64_t m, int64_t n, int64_t rows) {
  return (n / 4 * rows + m) * 4 + n % 4;
}

}  // namespace mn
