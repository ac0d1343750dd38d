#include "kernels/peaks.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/pool.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {
namespace {

std::atomic<uint32_t> sink;  // keeps the loops' results alive

void keep(const void* p) {
  uint32_t word;
  std::memcpy(&word, p, 4);
  sink.fetch_xor(word, std::memory_order_relaxed);
}

// Twelve chains: more than latency times width needs, few enough for the registers.
int64_t fma_steps(int64_t steps) {
  constexpr int kChains = 12;
  vf acc[kChains];
  for (int i = 0; i < kChains; ++i) acc[i] = set1(static_cast<float>(i));
  const vf a = set1(0.999f), b = set1(1e-3f);
  for (int64_t s = 0; s < steps; ++s)
    for (int i = 0; i < kChains; ++i) acc[i] = fma(acc[i], a, b);
  for (int i = 1; i < kChains; ++i) acc[0] = acc[0] + acc[i];
  float total = sum(acc[0]);
  keep(&total);
  return steps * kChains * vf::width * 2;
}

#if defined(MN_ISA_avx2)
// vpmaddubsw + vpmaddwd + vpaddd; the empty asm keeps the compiler from hoisting products out of the loop.
int64_t int8_steps(int64_t steps) {
  constexpr int kChains = 8;
  __m256i acc[kChains], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (auto& a : acc) a = _mm256_setzero_si256();
  for (int64_t s = 0; s < steps; ++s)
    for (auto& a : acc) {
      __asm__ volatile("" : "+x"(w));
      a = _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones));
    }
  for (int i = 1; i < kChains; ++i) acc[0] = _mm256_add_epi32(acc[0], acc[i]);
  keep(&acc[0]);
  return steps * kChains * 64;
}

// vpmaddubsw + vpaddw.
int64_t int4_steps(int64_t steps) {
  constexpr int kChains = 8;
  __m256i acc[kChains], w = _mm256_set1_epi8(3), x = _mm256_set1_epi8(-5);
  for (auto& a : acc) a = _mm256_setzero_si256();
  for (int64_t s = 0; s < steps; ++s)
    for (auto& a : acc) {
      __asm__ volatile("" : "+x"(w));
      a = _mm256_add_epi16(a, _mm256_maddubs_epi16(w, x));
    }
  for (int i = 1; i < kChains; ++i) acc[0] = _mm256_add_epi16(acc[0], acc[i]);
  keep(&acc[0]);
  return steps * kChains * 64;
}

void read_bytes(const uint8_t* data, int64_t bytes) {
  __m256i acc[4];
  for (auto& a : acc) a = _mm256_setzero_si256();
  const auto* p = reinterpret_cast<const __m256i*>(data);
  int64_t i = 0;
  for (; i + 4 <= bytes / 32; i += 4)
    for (int j = 0; j < 4; ++j) acc[j] = _mm256_xor_si256(acc[j], _mm256_loadu_si256(p + i + j));
  for (; i < bytes / 32; ++i) acc[0] = _mm256_xor_si256(acc[0], _mm256_loadu_si256(p + i));
  for (int j = 1; j < 4; ++j) acc[0] = _mm256_xor_si256(acc[0], acc[j]);
  keep(&acc[0]);
}
#elif defined(MN_ISA_neon) || defined(MN_ISA_neon_dot)
// The empty asm keeps the compiler from hoisting products out of the loop.
int64_t int8_steps(int64_t steps) {
  constexpr int kChains = 16;
  int32x4_t acc[kChains];
  int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(-5);
  for (auto& a : acc) a = vdupq_n_s32(0);
  for (int64_t s = 0; s < steps; ++s)
    for (auto& a : acc) {
      __asm__ volatile("" : "+w"(w));
#if defined(MN_ISA_neon_dot)
      a = vdotq_s32(a, w, x);
#else
      a = vpadalq_s16(a, vmlal_high_s8(vmull_s8(vget_low_s8(w), vget_low_s8(x)), w, x));
#endif
    }
  for (int i = 1; i < kChains; ++i) acc[0] = vaddq_s32(acc[0], acc[i]);
  keep(&acc[0]);
  return steps * kChains * 32;
}

#if defined(MN_ISA_neon_dot)
int64_t int4_steps(int64_t steps) {
  return int8_steps(steps);
}
#else
int64_t int4_steps(int64_t steps) {
  constexpr int kChains = 16;
  int16x8_t acc[kChains];
  int8x16_t w = vdupq_n_s8(3), x = vdupq_n_s8(-5);
  for (auto& a : acc) a = vdupq_n_s16(0);
  for (int64_t s = 0; s < steps; ++s)
    for (auto& a : acc) {
      __asm__ volatile("" : "+w"(w));
      a = vmlal_high_s8(vmlal_s8(a, vget_low_s8(w), vget_low_s8(x)), w, x);
    }
  for (int i = 1; i < kChains; ++i) acc[0] = vaddq_s16(acc[0], acc[i]);
  keep(&acc[0]);
  return steps * kChains * 32;
}
#endif

void read_bytes(const uint8_t* data, int64_t bytes) {
  uint8x16_t acc[4];
  for (auto& a : acc) a = vdupq_n_u8(0);
  for (int64_t i = 0; i + 64 <= bytes; i += 64)
    for (int j = 0; j < 4; ++j) acc[j] = veorq_u8(acc[j], vld1q_u8(data + i + 16 * j));
  for (int j = 1; j < 4; ++j) acc[0] = veorq_u8(acc[0], acc[j]);
  keep(&acc[0]);
}
#else
// Plain C++ as the generic kernels have it: 64 products a round, in 32 and in 16 bits.
template <class Sum>
int64_t byte_steps(int64_t steps) {
  int8_t w[64], x[64];
  Sum acc[64] = {};
  for (int i = 0; i < 64; ++i) w[i] = static_cast<int8_t>(i % 16), x[i] = static_cast<int8_t>(i - 32);
  for (int64_t s = 0; s < steps; ++s) {
    x[s % 64] = static_cast<int8_t>(s);  // so that no product is a constant of the loop
    for (int i = 0; i < 64; ++i) acc[i] = static_cast<Sum>(acc[i] + w[i] * x[i]);
  }
  uint32_t total = 0;
  for (Sum a : acc) total += static_cast<uint32_t>(a);
  keep(&total);
  return steps * 128;
}
int64_t int8_steps(int64_t steps) {
  return byte_steps<int32_t>(steps);
}
int64_t int4_steps(int64_t steps) {
  return byte_steps<int16_t>(steps);
}

void read_bytes(const uint8_t* data, int64_t bytes) {
  uint64_t acc[8] = {};
  for (int64_t i = 0; i + 64 <= bytes; i += 64) {
    uint64_t words[8];
    std::memcpy(words, data + i, 64);
    for (int j = 0; j < 8; ++j) acc[j] ^= words[j];
  }
  for (int j = 1; j < 8; ++j) acc[0] ^= acc[j];
  keep(&acc[0]);
}
#endif

}  // namespace

void peak(const PeakArgs& a) {
  if (a.kind == Peak::read) {
    constexpr int64_t kPiece = 1 << 18;
    parallel_for((a.bytes + kPiece - 1) / kPiece, [&](int64_t task, int) {
      read_bytes(a.data + task * kPiece, std::min(kPiece, a.bytes - task * kPiece));
    });
    *a.ops = a.bytes;
    return;
  }
  std::atomic<int64_t> ops{0};
  parallel_for(a.tasks, [&](int64_t, int) {
    ops += a.kind == Peak::fma    ? fma_steps(a.steps)
           : a.kind == Peak::int8 ? int8_steps(a.steps)
                                  : int4_steps(a.steps);
  });
  *a.ops = ops;
}

}  // namespace MN_ISA
}  // namespace mn
