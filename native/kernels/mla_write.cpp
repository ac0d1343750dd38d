#include <algorithm>
#include <cmath>

#include "core/pool.hpp"
#include "kernels/mla.hpp"
#include "kernels/mla_rows.hpp"
#include "kernels/rope_rows.hpp"

namespace mn {
namespace MN_ISA {

void latent_write(const LatentWriteArgs& a) {
  const LatentView& view = a.view;
  const int64_t rank = view.rank, dims = view.rope_dims;
  constexpr int64_t kTokens = 16;
  parallel_for((a.tokens + kTokens - 1) / kTokens, [&](int64_t task, int worker) {
    float* row = static_cast<float*>(worker_scratch(worker, (rank + 3 * dims) * 4));
    float *rope = row + rank, *turns = rope + dims;
    for (int64_t t = task * kTokens; t < std::min(a.tokens, (task + 1) * kTokens); ++t) {
      const float* x = a.kv_a + t * a.stride;
      vf squares = zero();
      for (int64_t i = 0; i < rank; i += 8) squares = fma(load(x + i), load(x + i), squares);
      vf norm = set1(1.0f / std::sqrt(sum(squares) / static_cast<float>(rank) + a.eps));
      for (int64_t i = 0; i < rank; i += 8) store(row + i, load(x + i) * norm * load(a.norm_weight + i));
      for (int64_t i = 0; i < dims; ++i) rope[i] = x[rank + i];
      if (a.theta > 0 && dims > 0) {
        rope_turns(a.positions[t], dims, a.theta, turns);
        rope_row(rope, turns, dims);
      }
      const int64_t at_row = a.start + t;
      if (view.format == Format::int8) {
        int8_t* q = static_cast<int8_t*>(view.latent) + at_row * rank;
        for (int64_t g = 0; g < view.groups(); ++g)
          view.scales[at_row * view.groups() + g] =
              quantize_row(row + 128 * g, std::min<int64_t>(128, rank - 128 * g), q + 128 * g);
      } else {
        from_float(view.format, row, rank, at(view.latent, view.format, at_row * rank));
      }
      from_float(view.rope_format, rope, dims, at(view.rope, view.rope_format, at_row * dims));
    }
  });
}

void expanded_write(const ExpandedWriteArgs& a) {
  const ExpandedView& view = a.view;
  const int64_t nope = view.k_dims - a.rope_dims, stride = view.heads * (nope + view.v_dims);
  constexpr int64_t kTokens = 8;
  const int64_t blocks = (a.tokens + kTokens - 1) / kTokens;
  parallel_for(blocks * view.heads, [&](int64_t task, int worker) {
    const int64_t h = task / blocks, first = task % blocks * kTokens;
    float* k = static_cast<float*>(worker_scratch(worker, view.k_dims * 4));
    for (int64_t t = first; t < std::min(a.tokens, first + kTokens); ++t) {
      const float* row = a.kv + t * stride;
      const float* v = row + view.heads * nope + h * view.v_dims;
      std::copy_n(row + h * nope, nope, k);
      std::copy_n(a.k_rope + t * a.rope_dims, a.rope_dims, k + nope);
      const int64_t slot = h * view.capacity + a.start + t;
      void* k_out = at(view.k, view.format, slot * view.k_dims);
      void* v_out = at(view.v, view.format, slot * view.v_dims);
      if (view.format == Format::int8) {
        view.k_scales[slot] = quantize_row(k, view.k_dims, static_cast<int8_t*>(k_out));
        view.v_scales[slot] = quantize_row(v, view.v_dims, static_cast<int8_t*>(v_out));
      } else {
        from_float(view.format, k, view.k_dims, k_out);
        from_float(view.format, v, view.v_dims, v_out);
      }
    }
  });
}

}  // namespace MN_ISA
}  // namespace mn
