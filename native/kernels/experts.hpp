// Gated MLPs chosen token by token: out[t] (+)= sum over slots of weight * down(silu(gate x) * up x).
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"
#include "kernels/linear.hpp"
#include "kernels/linear_dense.hpp"

namespace mn {

struct Routes {
  const int32_t* ids;    // [tokens, slots], each in [0, experts)
  const float* weights;  // [tokens, slots]
  int64_t tokens, slots, experts;
};

// A token's experts are summed in the order of their numbers, equal ones in the order of their slots.
struct ExpertsArgs {
  Routes routes;
  QuantizedRows x;
  PackedWeights gate_up;  // of the first expert; rows in turns of eight, inner rounded up to 8
  PackedWeights down;     // [hidden, inner]
  float* out;             // [tokens, down.rows]
  bool accumulate;
};

struct ExpertsDenseArgs {
  Routes routes;
  const float* x;  // [tokens, hidden]
  Dense type;
  const void *const *gate, *const *up, *const *down;  // a matrix an expert
  int64_t hidden, inner, width;                       // gate, up [inner, hidden], down [width, inner]
  float* out;                                         // [tokens, width]
  bool accumulate;
};

}  // namespace mn

MN_KERNEL(experts_quantized, ExpertsArgs)
MN_KERNEL(experts_dense, ExpertsDenseArgs)
