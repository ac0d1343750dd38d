#include "kernels/packing.hpp"

#include <algorithm>
#include <atomic>
#include <cfloat>
#include <cmath>
#include <cstring>

#include "core/pool.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {
namespace {

// A group's element of largest magnitude becomes this integer before rounding and clamping to [-8, 7]:
// slightly more than -8 or 7 clips it, slightly less leaves room. -8 uses the range's longer side.
constexpr float kTargets[] = {-8.0f, -7.4f, -7.7f, -8.3f, -8.6f, -8.9f,
                              -9.2f, 7.0f,  7.4f,  7.8f,  -6.8f, -9.6f};

struct Group {
  vf w[4];
  float best = 0.0f;  // squared error so far
  float scale = 0.0f;

  vf rounded(int i, float s) const { return min(max(round(w[i] * set1(1.0f / s)), set1(-8.0f)), set1(7.0f)); }
  void offer(float s) {
    s = s == s ? s : 0.0f;
    uint32_t bits = static_cast<uint32_t>(to_bf16(s)) << 16;
    std::memcpy(&s, &bits, 4);
    if (!(std::fabs(s) >= FLT_MIN)) return;
    vf error = zero();
    for (int i = 0; i < 4; ++i) {
      vf d = w[i] - rounded(i, s) * set1(s);
      error = error + d * d;
    }
    float e = sum(error);
    if (e < best) {
      best = e;
      scale = s;
    }
  }
};

// Values of 32 inputs and their BF16 scale. Multiplications and additions are kept apart, so that every
// instruction set chooses the same.
uint16_t quantize_group4(const float* w, int n, int8_t* values) {
  Group g;
  vf high = zero(), low = zero(), squares = zero();
  for (int i = 0; i < 4; ++i) {
    int left = n - 8 * i;
    g.w[i] = left >= 8 ? load(w + 8 * i) : left > 0 ? load_partial(w + 8 * i, left) : zero();
    high = max(high, g.w[i]);
    low = max(low, zero() - g.w[i]);
    squares = squares + g.w[i] * g.w[i];
  }
  float up = maximum(high), down = maximum(low), largest = up >= down ? up : -down;
  g.best = sum(squares);
  for (float target : kTargets) g.offer(largest / target);
  if (g.scale != 0.0f) {  // the least-squares scale for the integers found
    vf product = zero(), weight = zero();
    for (int i = 0; i < 4; ++i) {
      vf v = g.rounded(i, g.scale);
      product = product + g.w[i] * v;
      weight = weight + v * v;
    }
    g.offer(sum(product) / sum(weight));
  }
  if (g.scale == 0.0f) {
    std::memset(values, 0, 32);
    return 0;
  }
  for (int i = 0; i < 4; ++i) store_i8(values + 8 * i, g.rounded(i, g.scale));
  return to_bf16(g.scale);
}

// One panel's group: 16 rows of 32 values and their scales.
void write_group4(const int8_t (*values)[32], const uint16_t* scales, uint8_t* out) {
  std::memcpy(out, scales, 32);
  out += 32;
  for (int s = 0; s < 8; ++s)
    for (int r = 0; r < 8; ++r)
      for (int i = 0; i < 4; ++i)
        *out++ = static_cast<uint8_t>((values[r][4 * s + i] + 8) | (values[8 + r][4 * s + i] + 8) << 4);
}

constexpr uint32_t kLargestBits = 0x5d5e0b6b;  // 1e18: squares of larger weights overflow

bool usable_row(const float* w, int64_t n) {
  uint32_t top = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, w + i, 4);
    bits &= 0x7fffffffu;
    top = bits > top ? bits : top;
  }
  return top <= kLargestBits;
}

void write_row8(const int8_t* values, int64_t cols, int64_t padded, int8_t* panel, int64_t row) {
  for (int64_t k = 0; k < padded; k += 4)
    for (int64_t i = 0; i < 4; ++i) panel[k * 16 + row * 4 + i] = k + i < cols ? values[k + i] : int8_t{0};
}

}  // namespace

void quantize_w4(const QuantizeW4Args& a) {
  const int64_t groups = (a.cols + 31) / 32;
  std::atomic<int64_t> bad{-1};
  parallel_for((a.rows + 15) / 16, [&](int64_t panel, int) {
    const int64_t count = std::min<int64_t>(16, a.rows - 16 * panel);
    const float* w = a.w + 16 * panel * a.cols;
    for (int64_t r = 0; r < count; ++r)
      if (!usable_row(w + r * a.cols, a.cols)) bad.store(16 * panel + r);
    for (int64_t g = 0; g < groups; ++g) {
      int8_t values[16][32] = {};
      uint16_t scales[16] = {};
      int n = static_cast<int>(std::min<int64_t>(32, a.cols - 32 * g));
      for (int64_t r = 0; r < count; ++r) scales[r] = quantize_group4(w + r * a.cols + 32 * g, n, values[r]);
      write_group4(values, scales, a.data + (panel * groups + g) * 288);
    }
  });
  if (bad.load() >= 0) *a.bad_row = bad.load();
}

void pack_w4(const PackW4Args& a) {
  const int64_t groups = (a.cols + 31) / 32;
  parallel_for((a.rows + 15) / 16, [&](int64_t panel, int) {
    const int64_t count = std::min<int64_t>(16, a.rows - 16 * panel);
    for (int64_t g = 0; g < groups; ++g) {
      int8_t values[16][32] = {};
      uint16_t scales[16] = {};
      for (int64_t r = 0; r < count; ++r) {
        int64_t row = 16 * panel + r;
        std::memcpy(values[r], a.values + row * a.cols + 32 * g,
                    static_cast<size_t>(std::min<int64_t>(32, a.cols - 32 * g)));
        scales[r] = a.scales[row * groups + g];
      }
      write_group4(values, scales, a.data + (panel * groups + g) * 288);
    }
  });
}

void quantize_w8(const QuantizeW8Args& a) {
  const int64_t padded = (a.cols + 31) / 32 * 32;
  std::atomic<int64_t> bad{-1};
  parallel_for((a.rows + 15) / 16, [&](int64_t panel, int worker) {
    int8_t* values = static_cast<int8_t*>(worker_scratch(worker, padded + 8));
    for (int64_t r = 0; r < 16; ++r) {
      const int64_t row = 16 * panel + r;
      float scale = 0.0f;
      if (row < a.rows) {
        const float* w = a.w + row * a.cols;
        if (!usable_row(w, a.cols)) bad.store(row);
        vf top = zero();
        int64_t k = 0;
        for (; k + 8 <= a.cols; k += 8) top = max(top, abs(load(w + k)));
        top = max(top, abs(load_partial(w + k, static_cast<int>(a.cols - k))));
        scale = maximum(top) / 127.0f;
        if (!(scale >= FLT_MIN)) scale = 0.0f;
        for (k = 0; k < a.cols; k += 8) {
          vf v = a.cols - k >= 8 ? load(w + k) : load_partial(w + k, static_cast<int>(a.cols - k));
          store_i8(values + k, scale == 0.0f ? zero() : round(v / set1(scale)));
        }
      }
      a.scales[row] = scale;
      write_row8(values, row < a.rows ? a.cols : 0, padded, a.data + panel * padded * 16, r);
    }
  });
  if (bad.load() >= 0) *a.bad_row = bad.load();
}

void pack_w8(const PackW8Args& a) {
  const int64_t padded = (a.cols + 31) / 32 * 32;
  parallel_for((a.rows + 15) / 16, [&](int64_t panel, int) {
    for (int64_t r = 0; r < 16; ++r) {
      int64_t row = 16 * panel + r;
      const int8_t* values = row < a.rows ? a.values + row * a.cols : nullptr;
      write_row8(values, row < a.rows ? a.cols : 0, padded, a.data + panel * padded * 16, r);
    }
  });
}

void unpack_weights(const UnpackArgs& a) {
  const int64_t groups = (a.cols + 31) / 32;
  parallel_for(a.rows, [&](int64_t row, int) {
    const int64_t panel = row / 16, r = row % 16;
    float* out = a.out + row * a.cols;
    for (int64_t k = 0; k < a.cols; ++k) {
      int64_t s = k / 4, i = k % 4;
      if (a.bits == 8) {
        const int8_t* data = reinterpret_cast<const int8_t*>(a.data) + panel * groups * 512;
        out[k] = static_cast<float>(data[s * 64 + r * 4 + i]) * a.scales[row];
        continue;
      }
      const uint8_t* group = a.data + (panel * groups + k / 32) * 288;
      uint8_t two = group[32 + 32 * (s % 8) + r % 8 * 4 + i];
      uint16_t half;
      std::memcpy(&half, group + 2 * r, 2);
      uint32_t bits = static_cast<uint32_t>(half) << 16;
      float scale;
      std::memcpy(&scale, &bits, 4);
      out[k] = static_cast<float>((r < 8 ? two & 15 : two >> 4) - 8) * scale;
    }
  });
}

}  // namespace MN_ISA
}  // namespace mn
