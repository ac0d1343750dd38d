// Activations: fp32 rows to INT8 with a scale per row and group of 128.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

struct QuantizeRowsArgs {
  const float* x;  // [rows, cols]
  int8_t* q;       // [rows, Kp]
  float* scales;   // [rows, ceil(Kp / 128)]
  int16_t* pairs;  // [rows, Kp / 32, 2]
  int64_t rows, cols;
};

}  // namespace mn

MN_KERNEL(quantize_rows, QuantizeRowsArgs)
