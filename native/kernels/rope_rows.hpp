// The angles of one position and the rotation of one row, shared by rope and the cache writers.
#pragma once
#include <cmath>
#include <cstdint>

namespace mn {
namespace MN_ISA {

// turns [2 * rope_dims]: of each pair i the cosine of position * theta^(-2i/rope_dims) twice; after all of
// these its sine, negative and positive. The angle is formed in float64: in float32 it is off by 4e-3 at
// position 100,000.
inline void rope_turns(int64_t position, int64_t rope_dims, double theta, float* turns) {
  for (int64_t i = 0; i < rope_dims; i += 2) {
    double angle = static_cast<double>(position) *
                   std::pow(theta, -static_cast<double>(i) / static_cast<double>(rope_dims));
    float sine = static_cast<float>(std::sin(angle));
    turns[i] = turns[i + 1] = static_cast<float>(std::cos(angle));
    turns[rope_dims + i] = -sine;
    turns[rope_dims + i + 1] = sine;
  }
}

// Only sums of products: where one is subtracted, GCC 12 makes FMADDSUB of both on x86 in spite of
// -ffp-contract=off, and other instruction sets have other bits.
inline void rope_row(float* x, const float* turns, int64_t rope_dims) {
  const float* sines = turns + rope_dims;
  for (int64_t i = 0; i < rope_dims; i += 2) {
    float a = x[i], b = x[i + 1];
    x[i] = a * turns[i] + b * sines[i];
    x[i + 1] = b * turns[i + 1] + a * sines[i + 1];
  }
}

}  // namespace MN_ISA
}  // namespace mn
