// The angles of one position and the rotation of one row, shared by rope and the cache writers.
#pragma once
#include <cmath>
#include <cstdint>

namespace mn {
namespace MN_ISA {

// turns [rope_dims]: cosine and sine of position * theta^(-2i/rope_dims) for each pair i. The angle is formed
// in float64: in float32 it is off by 4e-3 at position 100,000.
inline void rope_turns(int64_t position, int64_t rope_dims, double theta, float* turns) {
  for (int64_t i = 0; i < rope_dims; i += 2) {
    double angle = static_cast<double>(position) *
                   std::pow(theta, -static_cast<double>(i) / static_cast<double>(rope_dims));
    turns[i] = static_cast<float>(std::cos(angle));
    turns[i + 1] = static_cast<float>(std::sin(angle));
  }
}

inline void rope_row(float* x, const float* turns, int64_t rope_dims) {
  for (int64_t i = 0; i < rope_dims; i += 2) {
    float a = x[i], b = x[i + 1], c = turns[i], s = turns[i + 1];
    x[i] = a * c - b * s;
    x[i + 1] = a * s + b * c;
  }
}

}  // namespace MN_ISA
}  // namespace mn
