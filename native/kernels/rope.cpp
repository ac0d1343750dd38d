#include "kernels/rope.hpp"

#include <algorithm>

#include "core/pool.hpp"
#include "kernels/rope_rows.hpp"

namespace mn {
namespace MN_ISA {

void rope_inplace(const RopeArgs& a) {
  constexpr int64_t kTokens = 16;
  parallel_for((a.tokens + kTokens - 1) / kTokens, [&](int64_t task, int worker) {
    float* turns = static_cast<float*>(worker_scratch(worker, 2 * a.rope_dims * 4));
    for (int64_t t = task * kTokens; t < std::min(a.tokens, (task + 1) * kTokens); ++t) {
      rope_turns(a.positions[t], a.rope_dims, a.theta, turns);
      for (int64_t h = 0; h < a.heads; ++h)
        rope_row(a.x + (t * a.heads + h + 1) * a.width - a.rope_dims, turns, a.rope_dims);
    }
  });
}

}  // namespace MN_ISA
}  // namespace mn
