#include "kernels/linear_dense.hpp"

#include "core/pool.hpp"
#include "kernels/linear_dense_panels.hpp"
#include "kernels/linear_output.hpp"

namespace mn {
namespace MN_ISA {
namespace {

void multiply_range(const DenseWeights& w, int64_t begin, int64_t end, const float* x, int64_t stride,
                    int64_t n, float* out, int64_t out_stride, bool accumulate, int worker) {
  float* open = static_cast<float*>(worker_scratch(worker, kDenseOpenBytes + n * 64));
  float* acc = open + kDenseChunk * 16;
  for (int64_t p = begin; p < end; ++p) {
    multiply_dense(w, p, x, stride, n, acc, open);
    write_panel(acc, n, w.rows - 16 * p, out + 16 * p, out_stride, accumulate);
  }
}

}  // namespace

void linear_dense(const LinearDenseArgs& a) {
  const int64_t panels = a.w.panels();
  const int64_t block = std::min<int64_t>(a.tokens, 96), blocks = (a.tokens + block - 1) / block;
  const int64_t step = a.tokens <= 4 ? std::clamp<int64_t>(panels / 16, 1, 4) : 4;
  parallel_for((panels + step - 1) / step * blocks, [&](int64_t task, int worker) {
    int64_t begin = task / blocks * step, row = task % blocks * block;
    multiply_range(a.w, begin, std::min(begin + step, panels), a.x + row * a.w.cols, a.w.cols,
                   std::min(block, a.tokens - row), a.out + row * a.out_stride + a.column, a.out_stride,
                   a.accumulate, worker);
  });
}

void linear_heads_dense(const LinearHeadsDenseArgs& a) {
  const int64_t block = std::min<int64_t>(a.tokens, 96), blocks = (a.tokens + block - 1) / block;
  parallel_for(a.heads * blocks, [&](int64_t task, int worker) {
    int64_t head = task / blocks, row = task % blocks * block;
    DenseWeights w = {a.type, a.data[head], a.rows, a.cols};
    multiply_range(w, 0, w.panels(), a.x + (row * a.heads + head) * a.cols, a.heads * a.cols,
                   std::min(block, a.tokens - row), a.out + (row * a.heads + head) * a.rows, a.heads * a.rows,
                   false, worker);
  });
}

}  // namespace MN_ISA
}  // namespace mn
