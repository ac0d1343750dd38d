// Kernels that touch each element once: norms.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

struct RmsNormArgs {
  const float* x;       // [rows, width]
  const float* weight;  // [width]
  float* y;             // [rows, width], may be x
  int64_t rows, width;
  float eps;
};

}  // namespace mn

MN_KERNEL(rms_norm, RmsNormArgs)
