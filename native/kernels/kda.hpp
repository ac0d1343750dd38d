// Kimi Delta Attention (arXiv 2510.26692): what happens between its projections.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

enum class ForgetGate { sigmoid, softplus };

// Rows are sequence-major: `sequences` of n = rows / sequences consecutive tokens each; sequence s has slot
// slots[s]. Causal depthwise convolution and SiLU of q, k, v; L2 norms of q and k; decay = exp(g); beta =
// sigmoid(b).
struct KdaPrepareArgs {
  const float* y;       // [rows, y_width]: projected rows
  int64_t columns[3];   // where q, k, v begin in y
  const float* forget;  // [rows, forget_width]
  int64_t forget_column;
  const float* b;        // [rows, heads]
  const float* conv;     // [3, 4, heads * dim]: taps of q, k, v; the last tap is the current token's
  float* conv_states;    // [slots, 3, 3 * heads * dim]: rows before the first, oldest first; updated
  const int32_t* slots;  // [sequences]
  const float* a_log;    // [heads]
  const float* dt_bias;  // [heads * dim]
  ForgetGate gate;
  float lower_bound;
  float *q, *k, *v, *decay;  // [rows, heads * dim]
  float* beta;               // [rows, heads]
  int64_t rows, sequences, heads, dim, y_width, forget_width;
};

// S <- diag(decay) S;  u = beta (v - S^T k);  S <- S + k u^T;  o = S^T q, token by token.
struct KdaRecurrenceArgs {
  const float *q, *k, *v, *decay;  // [rows, heads * dim]
  const float* beta;               // [rows, heads]
  float* states;                   // [slots, heads, dim (K), dim (V)]; updated
  const int32_t* slots;            // [sequences]
  float* out;                      // [rows, heads * dim]
  int64_t rows, sequences, heads, dim;
};

// y = RMSNorm(o) per head * weight * sigmoid(gate).
struct KdaOutputArgs {
  const float* o;       // [rows, heads * dim]
  const float* gate;    // [rows, gate_width]
  int64_t gate_column;  // where the gate's heads * dim columns begin
  const float* weight;  // [dim]
  float* y;             // [rows, heads * dim]
  int64_t rows, heads, dim, gate_width;
  float eps;
};

}  // namespace mn

MN_KERNEL(kda_prepare, KdaPrepareArgs)
MN_KERNEL(kda_recurrence, KdaRecurrenceArgs)
MN_KERNEL(kda_output, KdaOutputArgs)
