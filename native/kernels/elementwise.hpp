// Kernels that touch each element once: norms, gates, the embedding's rows.
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

struct HeadGateArgs {
  float* o;           // [rows, heads, dim], multiplied in place by
  const float* gate;  // [rows, heads]: sigmoid(gate)
  int64_t rows, heads, dim;
};

enum class TableType { fp32, bf16, fp16, int8 };

struct EmbedArgs {
  const int64_t* ids;   // [rows], all in the table
  const void* table;    // [vocabulary, width]
  const float* scales;  // [vocabulary] for int8
  float* out;           // [rows, width]
  int64_t rows, width;
  TableType type;
};

// The vector functions that the other kernels are made of, element by element.
enum class Function { exp, sigmoid, silu, softplus };

struct ApplyArgs {
  Function function;
  const float* x;  // [count]
  float* y;        // [count], may be x
  int64_t count;
};

// fp32 to the nearest BF16 or FP16, ties to even.
struct ToHalfArgs {
  const float* x;  // [count]
  uint16_t* y;     // [count]
  int64_t count;
  bool bf16;
};

}  // namespace mn

MN_KERNEL(rms_norm, RmsNormArgs)
MN_KERNEL(head_gate, HeadGateArgs)
MN_KERNEL(embed, EmbedArgs)
MN_KERNEL(apply, ApplyArgs)
MN_KERNEL(to_half, ToHalfArgs)
