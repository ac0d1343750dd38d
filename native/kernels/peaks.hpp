// Loops that do nothing but reach a limit of the machine: what bench kernels compares every kernel with.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

enum class Peak {
  fma,   // fp32 multiply-adds in registers
  int8,  // 8-bit products widened to 32 bits at once: what W8 needs
  int4,  // unsigned nibbles times bytes, summed in 16 bits: what W4 needs
  read,  // bytes read from `data` once, in the order of the addresses
};

// `ops` counts a multiplication and an addition as two; for `read` it counts bytes.
struct PeakArgs {
  Peak kind;
  int64_t tasks, steps;  // register loops: `steps` rounds in each task
  const uint8_t* data;   // read: `bytes` of it, a multiple of 64
  int64_t bytes;
  int64_t* ops;
};

}  // namespace mn

MN_KERNEL(peak, PeakArgs)
