// Rotary embedding of adjacent pairs.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

struct RopeArgs {
  float* x;                  // [tokens, heads, width]; the last rope_dims of each head are rotated
  const int64_t* positions;  // [tokens]
  int64_t tokens, heads, width, rope_dims;
  double theta;
};

}  // namespace mn

MN_KERNEL(rope_inplace, RopeArgs)
