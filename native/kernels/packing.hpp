// Weights to and from the packed W4 and W8 forms. docs/design.md has the formats.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

// The scale of each row and group of 32 is the one of a few candidates with the least squared error.
struct QuantizeW4Args {
  const float* w;  // [rows, cols]
  uint8_t* data;   // [P, Kp / 32, 288]
  int64_t rows, cols;
  int64_t* bad_row;  // set to a row that holds a NaN or more than 1e18; untouched if there is none
};

struct PackW4Args {
  const int8_t* values;    // [rows, cols] in [-8, 7]
  const uint16_t* scales;  // [rows, ceil(cols / 32)] BF16 bits
  uint8_t* data;           // [P, Kp / 32, 288]
  int64_t rows, cols;
};

struct QuantizeW8Args {
  const float* w;  // [rows, cols]
  int8_t* data;    // [P, Kp / 4, 64]
  float* scales;   // [P * 16]
  int64_t rows, cols;
  int64_t* bad_row;
};

struct PackW8Args {
  const int8_t* values;  // [rows, cols] in [-127, 127]
  int8_t* data;          // [P, Kp / 4, 64]
  int64_t rows, cols;
};

struct UnpackArgs {
  int bits;
  const uint8_t* data;
  const float* scales;  // W8 only
  float* out;           // [rows, cols]
  int64_t rows, cols;
};

}  // namespace mn

MN_KERNEL(quantize_w4, QuantizeW4Args)
MN_KERNEL(pack_w4, PackW4Args)
MN_KERNEL(quantize_w8, QuantizeW8Args)
MN_KERNEL(pack_w8, PackW8Args)
MN_KERNEL(unpack_weights, UnpackArgs)
