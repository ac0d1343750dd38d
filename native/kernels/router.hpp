// Which experts a token goes to.
#pragma once
#include <cstdint>

#include "core/dispatch.hpp"

namespace mn {

enum class Score { sigmoid, softmax };

// s = score(logits); the best topk_group groups by the sum of their two best s + bias; in them the top_k best
// by s + bias; weights = s of the chosen, over their sum if norm_topk, times scale (DeepSeek-V3, arXiv
// 2412.19437). Equal values: the lower index first. ids come in descending order of s + bias.
struct RouteArgs {
  const float* logits;  // [rows, experts]
  const float* bias;    // [experts]
  int32_t* ids;         // [rows, top_k]
  float* weights;       // [rows, top_k]
  int64_t rows, experts, groups, topk_group, top_k;
  bool norm_topk;
  float scale;
  Score score;
};

}  // namespace mn

MN_KERNEL(route, RouteArgs)
