// What sampling asks of a row of logits.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

// The n largest, descending; equal ones by ascending id. NaN counts as minus infinity.
struct TopLogitsArgs {
  const float* logits;  // [count]
  int64_t* ids;         // [n]
  float* values;        // [n]
  int64_t count, n;
};

// log sum e^x; NaN where an x is.
struct LogSumExpArgs {
  const float* logits;  // [count], at least one
  int64_t count;
  double* result;
};

}  // namespace mn

MN_KERNEL(top_logits, TopLogitsArgs)
MN_KERNEL(logsumexp, LogSumExpArgs)
