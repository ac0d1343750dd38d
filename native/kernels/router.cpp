#include "kernels/router.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/pool.hpp"
#include "simd/simd.hpp"

namespace mn {
namespace MN_ISA {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

int64_t best_of(const float* values, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i)
    if (values[i] > values[best]) best = i;
  return best;
}

void route_row(const RouteArgs& a, int64_t row, float* scratch) {
  float *s = scratch, *choice = scratch + a.experts, *groups = scratch + 2 * a.experts;
  const float* logits = a.logits + row * a.experts;
  if (a.score == Score::sigmoid) {
    for (int64_t i = 0; i < a.experts; i += 8) {
      int m = static_cast<int>(std::min<int64_t>(8, a.experts - i));
      store_partial(s + i, sigmoid(load_partial(logits + i, m)), m);
    }
  } else {
    float top = logits[best_of(logits, a.experts)], total = 0.0f;
    for (int64_t i = 0; i < a.experts; ++i) total += s[i] = std::exp(logits[i] - top);
    for (int64_t i = 0; i < a.experts; ++i) s[i] /= total;
  }
  for (int64_t i = 0; i < a.experts; ++i) choice[i] = s[i] + a.bias[i];
  const int64_t size = a.experts / a.groups;
  if (a.topk_group < a.groups) {
    for (int64_t g = 0; g < a.groups; ++g) {
      float first = kNever, second = kNever;
      for (int64_t i = g * size; i < (g + 1) * size; ++i) {
        if (choice[i] > first) {
          second = first;
          first = choice[i];
        } else if (choice[i] > second) {
          second = choice[i];
        }
      }
      groups[g] = size > 1 ? first + second : first;
    }
    float* kept = groups + a.groups;
    std::fill(kept, kept + a.groups, 0.0f);
    for (int64_t i = 0; i < a.topk_group; ++i) {
      int64_t g = best_of(groups, a.groups);
      kept[g] = 1.0f;
      groups[g] = kNever;
    }
    for (int64_t g = 0; g < a.groups; ++g)
      if (kept[g] == 0.0f) std::fill(choice + g * size, choice + (g + 1) * size, kNever);
  }
  int32_t* ids = a.ids + row * a.top_k;
  float* weights = a.weights + row * a.top_k;
  float total = 0.0f;
  for (int64_t i = 0; i < a.top_k; ++i) {
    int64_t e = best_of(choice, a.experts);
    choice[e] = kNever;
    ids[i] = static_cast<int32_t>(e);
    weights[i] = s[e];
    total += s[e];
  }
  const float factor = a.norm_topk ? a.scale / (total + 1e-20f) : a.scale;
  for (int64_t i = 0; i < a.top_k; ++i) weights[i] *= factor;
}

}  // namespace

void route(const RouteArgs& a) {
  constexpr int64_t kRows = 32;
  parallel_for((a.rows + kRows - 1) / kRows, [&](int64_t task, int worker) {
    float* scratch = static_cast<float*>(worker_scratch(worker, 4 * (2 * a.experts + 2 * a.groups + 16)));
    for (int64_t row = task * kRows; row < std::min((task + 1) * kRows, a.rows); ++row)
      route_row(a, row, scratch);
  });
}

}  // namespace MN_ISA
}  // namespace mn
