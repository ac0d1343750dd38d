#include <cmath>
#include <cstring>

#include "kernels/mla_rows.hpp"
#include "kernels/npu.hpp"

namespace mn {
namespace MN_ISA {
namespace {

double element(Format format, const uint8_t* base, int64_t i) {
  if (format == Format::int8) return static_cast<double>(reinterpret_cast<const int8_t*>(base)[i]);
  uint16_t half;
  std::memcpy(&half, base + 2 * i, 2);
  const double size =
      half & 0x7c00 ? std::ldexp((half & 1023) | 1024, (half >> 10 & 31) - 25) : std::ldexp(half & 1023, -24);
  return half & 0x8000 ? -size : size;
}

double sum_at(Format format, const uint8_t* c, int64_t i) {
  if (format == Format::int8) {
    int32_t sum;
    std::memcpy(&sum, c + 4 * i, 4);
    return sum;
  }
  float sum;
  std::memcpy(&sum, c + 4 * i, 4);
  return sum;
}

uint64_t next(uint64_t& state) {  // splitmix64
  uint64_t z = state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

}  // namespace

void npu_check(const NpuCheckArgs& a) {
  uint64_t state = a.seed;
  *a.wrong = 0;
  for (int64_t i = 0; i < a.samples; ++i) {
    const int64_t m = a.first + static_cast<int64_t>(next(state) % static_cast<uint64_t>(a.rows - a.first));
    const int64_t n = static_cast<int64_t>(next(state) % static_cast<uint64_t>(a.cols));
    double want = 0, size = 0;
    for (int64_t k = 0; k < a.depth; ++k) {
      const double product = element(a.format, a.a, npu_a_index(a.format, m, k, a.capacity)) *
                             element(a.format, a.b, npu_b_index(a.format, k, n, a.depth));
      want += product;
      size += std::fabs(product);
    }
    const double error = std::fabs(sum_at(a.format, a.c, npu_c_index(m, n, a.capacity)) - want);
    *a.wrong += !(error <= (a.format == Format::int8 ? 0.0 : 0.01 * size));
  }
}

}  // namespace MN_ISA
}  // namespace mn
